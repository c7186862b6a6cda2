"""Transcripts of every path beside a slow training with one backward pass a record, in both worlds."""

import copy
from functools import cache

import numpy as np
import pytest
import sample_models
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dosimeter import InputError
from dosimeter.training import Neighbour, Privacy, Recipe, Transcript, arguments
from dosimeter.training.draws import Draws

X, Y = sample_models.images(40)
X = X.astype(np.float64)
IN, OUT = 3, 35  # the removed and the added record
D = np.arange(30)
WAYS = [
    (sample_models.dense_net, "dense"),
    (sample_models.softmax_regression, "dense"),
    (sample_models.normed_net, "functional"),
    (sample_models.conv_net, "convolutional"),
    (sample_models.grouped_net, "convolutional"),
    (sample_models.dense_net, "sequential"),
]
BATCHES = {"full": {"batch_size": None}, "shuffled": {"batch_size": 8}, "poisson": {"batch_size": 8}}
NEIGHBOURS = [Neighbour(removed=IN), Neighbour(removed=IN, added=OUT), Neighbour(added=OUT)]


def recipe(batching, sensitivity, noise=0.7, **more):
    sampling = "poisson" if batching == "poisson" else "shuffled"
    dp = Privacy(noise, 0.2, sensitivity)
    return Recipe(**{"steps": 5, "learning_rate": 0.8, "sampling": sampling, "dp": dp, **BATCHES[batching], **more})


def other(neighbour):
    """The rows of D'."""
    rows = set(D.tolist()) - {neighbour.removed} | {neighbour.added}
    return np.array(sorted(rows - {None}))


def run(strategy, factory, recipe, members, seeds, neighbour, data=(X, Y)):
    """Train with one path, from the same starts as every other: (modules, transcripts)."""
    torch = pytest.importorskip("torch", reason="the engine needs torch: dosimeter[torch]")
    from dosimeter.training import convolutional, dense, functional, sequential
    from dosimeter.training.chain import chain

    draws = [Draws(seed, recipe, rows) for seed, rows in zip(seeds, members, strict=True)]
    modules = []
    for drawn in draws:
        torch.manual_seed(drawn.start)
        modules.append(factory().double())
    tensors = torch.from_numpy(data[0]), torch.from_numpy(data[1])
    if strategy == "dense":
        return modules, dense.train(modules, chain(modules[0]), recipe, tensors, draws, neighbour)
    way = {"functional": functional, "convolutional": convolutional, "sequential": sequential}[strategy]
    return modules, way.train(modules, recipe, tensors, draws, neighbour)


@cache
def slowly(factory, recipe, seed, neighbour, on_d):
    """The same training written out: both clipped sums in full, record by record; (module, arrays, log-odds)."""
    torch = pytest.importorskip("torch", reason="the engine needs torch: dosimeter[torch]")
    whole = D if neighbour.removed is not None else other(neighbour)  # what batches are drawn from
    seen_by, start = Draws(seed, recipe, whole), Draws(seed, recipe, D).start
    torch.manual_seed(start)
    module = factory().double().train()
    parameters, x, y = list(module.parameters()), torch.from_numpy(X), torch.from_numpy(Y)
    dp, found, odds = recipe.dp, [], []

    def clipped(row):
        loss = torch.nn.functional.cross_entropy(module(x[row : row + 1]), y[row : row + 1])
        flat = torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, parameters)]).numpy()
        return flat * min(1, dp.clip / np.linalg.norm(flat))

    for batch in seen_by.batches():
        if recipe.batch_size is None:
            rows = set(D), set(other(neighbour))
        else:
            rest, slot = set(batch), neighbour.removed if neighbour.removed is not None else neighbour.added
            ours, theirs = set(rest), set(rest)
            if slot in rest:
                (ours if neighbour.removed is None else theirs).discard(slot)
                theirs |= {neighbour.added} if neighbour.added is not None else set()
            rows = ours, theirs
        sums = [sum((clipped(row) for row in sorted(part)), np.zeros(1)) for part in rows]
        distance = np.linalg.norm(sums[0] - sums[1])
        deviation = dp.noise_multiplier * (distance if dp.sensitivity == "local" else dp.clip)
        noise = torch.empty(sum(p.numel() for p in parameters), dtype=torch.float64)
        seen_by.noise(noise)
        noise = noise.numpy() * deviation
        seen = sums[0 if on_d else 1] + noise
        found.append((distance, float(np.sum(noise * (sums[0] - sums[1]))), deviation))
        if distance:
            each = [stats.norm.logpdf(seen, total, deviation).sum() for total in sums]
            odds.append(each[0] - each[1])
        else:
            odds.append(0.0)
        divisor = len(rows[0 if on_d else 1]) if recipe.batch_size is None else recipe.batch_size
        at = 0
        with torch.no_grad():
            for p in parameters:
                part = torch.from_numpy(seen[at : at + p.numel()].reshape(p.shape))
                p -= recipe.learning_rate / divisor * part
                at += p.numel()
    return module, np.array(found).T, np.cumsum(odds)


@pytest.mark.parametrize("sensitivity", ["global", "local"])
@pytest.mark.parametrize("batching", BATCHES)
@pytest.mark.parametrize("neighbour", NEIGHBOURS, ids=["unbounded", "bounded", "added"])
@pytest.mark.parametrize(("factory", "strategy"), WAYS, ids=lambda way: getattr(way, "__name__", way))
def test_as_a_slow_training_of_both_worlds(factory, strategy, neighbour, batching, sensitivity):
    how = recipe(batching, sensitivity)
    members = [D, other(neighbour), D]
    modules, transcripts = run(strategy, factory, how, members, [4, 4, 8], neighbour)
    some = 0
    for seed, on_d, module, transcript in zip([4, 4, 8], [True, False, True], modules, transcripts, strict=True):
        plain, arrays, odds = slowly(factory, how, seed, neighbour, on_d)
        for mine, theirs in zip(module.parameters(), plain.parameters(), strict=True):
            assert mine.detach().numpy() == pytest.approx(theirs.detach().numpy(), abs=1e-10)
        assert transcript.distances == pytest.approx(arrays[0], rel=1e-8, abs=1e-12)
        assert transcript.projections == pytest.approx(arrays[1], rel=1e-7, abs=1e-11)
        assert transcript.deviations == pytest.approx(arrays[2], rel=1e-8, abs=1e-12)
        assert transcript.log_odds(trained_on_d=on_d) == pytest.approx(odds, rel=1e-6, abs=1e-7)
        assert (transcript.distances <= 0.2 * len(neighbour.rows_and_signs()[0])).all()
        some += np.count_nonzero(transcript.distances)
    assert 3 <= some <= 15 and (some == 15) == (batching == "full")


@settings(max_examples=60, deadline=None)
@given(
    st.integers(3, 60),
    st.integers(1, 20),
    st.sampled_from(["shuffled", "poisson"]),
    st.sampled_from(["unbounded", "bounded", "added"]),
    st.integers(0, 2**30),
)
def test_both_worlds_get_the_same_batches_but_for_one_record(count, size, sampling, kind, seed):
    ours, new = np.arange(count) * 2, 2 * (count // 2) + 1
    neighbour = {
        "unbounded": Neighbour(removed=2),
        "bounded": Neighbour(removed=2, added=new),
        "added": Neighbour(added=new),
    }[kind]
    theirs = np.setdiff1d(ours, [] if kind == "added" else [2])
    theirs = theirs if kind == "unbounded" else np.union1d(theirs, [new])
    how = Recipe(epochs=3, batch_size=size, sampling=sampling, dp=Privacy(1.0))
    worlds = [Draws(seed, how, rows) for rows in (ours, theirs)]
    before = worlds[0].divisor
    for one in worlds:
        one.watch(neighbour)
    if worlds[0].full:
        assert all(
            (batch == rows).all() for one, rows in zip(worlds, (ours, theirs), strict=True) for batch in one.batches()
        )
        assert worlds[0].differs.all()
        return
    assert worlds[0].steps == worlds[1].steps and worlds[0].divisor == worlds[1].divisor
    if kind != "added":  # a training on D draws as it does when nobody watches
        assert worlds[0].divisor == before
        alone = list(Draws(seed, how, ours).batches())
    seen = 0
    for step, (a, b) in enumerate(zip(*(one.batches() for one in worlds), strict=True)):
        if kind != "added":
            assert (a == alone[step]).all()
        lost, won = set(a) - set(b), set(b) - set(a)
        differ = bool(lost or won)
        assert worlds[0].differs[step] == worlds[1].differs[step] == differ
        assert len(np.unique(a)) == len(a) and len(np.unique(b)) == len(b)
        assert not differ or (lost, won) == (
            set() if neighbour.removed is None else {2},
            set() if neighbour.added is None else {new},
        )
        seen += differ
    if sampling == "shuffled":
        assert seen == 3  # once in each pass


@pytest.mark.parametrize("strategy", ["dense", "functional", "sequential"])
@pytest.mark.parametrize("batching", BATCHES)
def test_records_that_are_alike_get_no_local_noise(strategy, batching):
    twin = X.copy(), Y.copy()
    twin[0][OUT], twin[1][OUT] = X[IN], Y[IN]
    neighbour = Neighbour(removed=IN, added=OUT)
    factory = sample_models.dense_net
    modules, transcripts = run(strategy, factory, recipe(batching, "local"), [D], [4], neighbour, twin)
    silent, _ = run(strategy, factory, recipe(batching, "global", noise=0.0), [D], [4], None, twin)
    for mine, theirs in zip(modules[0].parameters(), silent[0].parameters(), strict=True):
        assert (mine == theirs).all()
    assert not transcripts[0].distances.any() and not transcripts[0].deviations.any()
    assert not transcripts[0].log_odds().any()


@pytest.mark.parametrize("on_d", [True, False])
def test_log_odds_under_local_noise_have_a_known_law(on_d):
    """N(±μ²/2, μ²) with μ = √k/z, whatever the data and the network (KS, 400 repetitions, fixed seed)."""
    neighbour, how = Neighbour(removed=IN, added=OUT), recipe("full", "local", noise=2.0, steps=6)
    rows = D if on_d else other(neighbour)
    _, transcripts = run("dense", sample_models.dense_net, how, [rows] * 400, range(400), neighbour)
    final = Transcript.stack(transcripts).log_odds(trained_on_d=on_d)[:, -1]
    mu = np.sqrt(6) / 2
    assert stats.kstest(final, stats.norm((1 if on_d else -1) * mu**2 / 2, mu).cdf).pvalue > 0.01


def test_a_group_is_what_its_models_are_alone():
    neighbour, how = Neighbour(removed=IN), recipe("poisson", "local")
    _, together = run("dense", sample_models.dense_net, how, [D, other(neighbour)], [1, 2], neighbour)
    for at, rows in enumerate((D, other(neighbour))):
        _, alone = run("dense", sample_models.dense_net, how, [rows], [1 + at], neighbour)
        assert alone[0].distances == pytest.approx(together[at].distances, rel=1e-10)
        assert alone[0].projections == pytest.approx(together[at].projections, rel=1e-9, abs=1e-13)


class TestTranscript:
    RNG = np.random.default_rng(0)

    def one(self, steps=4, **changes):
        arrays = {"distances": self.RNG.random(steps), "projections": self.RNG.standard_normal(steps)}
        return Transcript(**{**arrays, "deviations": 0.5 + self.RNG.random(steps), **changes})

    def test_stacks_are_the_repetitions(self):
        several = [self.one() for _ in range(3)]
        stacked = Transcript.stack(several)
        assert stacked.distances.shape == (3, 4) and stacked.canaries is None
        worlds = [True, False, True]
        each = [one.log_odds(trained_on_d=world) for one, world in zip(several, worlds, strict=True)]
        assert stacked.log_odds(trained_on_d=worlds) == pytest.approx(np.array(each))
        assert stacked.log_odds(deviation=2.0)[1] == pytest.approx(several[1].log_odds(deviation=2.0))

    def test_steps_without_a_difference_add_nothing(self):
        odds = self.one(distances=[0.0, 1.0, 0.0, 0.0], deviations=[0.0, 1.0, 0.0, 2.0]).log_odds()
        assert odds[0] == 0 and odds[1] != 0 and (odds[1:] == odds[1]).all()

    def test_refusals(self):
        with pytest.raises(InputError, match="step 2 has deviation 0"):
            self.one(deviations=[1.0, 1.0, 0.0, 1.0]).log_odds()
        with pytest.raises(InputError, match="deviation has shape"):
            self.one().log_odds(deviation=[1.0, 2.0])
        with pytest.raises(InputError, match="trained_on_d"):
            self.one().log_odds(trained_on_d=[True, False])
        with pytest.raises(InputError, match="one shape"):
            self.one(distances=[1.0])
        with pytest.raises(InputError, match="empty"):
            Transcript.stack([])
        with pytest.raises(InputError, match=r"transcripts\[1\]"):
            Transcript.stack([self.one(), None])
        with pytest.raises(InputError, match=r"transcripts\[1\] has shape"):
            Transcript.stack([self.one(), self.one(steps=3)])


def test_local_noise_is_refused_where_it_has_no_meaning():
    with pytest.raises(InputError, match="sensitivity"):
        Privacy(1.0, 1.0, "dataset")
    with pytest.raises(InputError, match="not differentially private"):
        recipe("full", "local").mechanism(100)
    with pytest.raises(InputError, match="pass neighbour"):
        arguments.watched(None, recipe("full", "local"), 40, np.ones((1, 40), bool))
    arguments.watched(None, recipe("full", "global"), 40, np.ones((1, 40), bool))
    for strategy in ("dense", "functional", "sequential"):
        with pytest.raises(InputError, match="pass neighbour"):
            run(strategy, sample_models.dense_net, recipe("full", "local"), [D], [1], None)


def test_which_world_a_model_lives_in():
    chosen = np.zeros((2, 40), bool)
    chosen[0, D] = chosen[1, other(Neighbour(removed=IN, added=OUT))] = True
    for neighbour in NEIGHBOURS:
        assert neighbour.trained_on_d(chosen).tolist() == [True, False]
    assert bool(NEIGHBOURS[0].trained_on_d(chosen[0])) is True
    both = copy.deepcopy(chosen)
    both[1, IN] = True
    with pytest.raises(InputError, match=r"memberships\[1\] holds both"):
        arguments.watched(NEIGHBOURS[1], recipe("full", "global"), 40, both)
    both[1, [IN, OUT]] = False
    with pytest.raises(InputError, match=r"memberships\[1\] holds neither"):
        arguments.watched(NEIGHBOURS[1], recipe("full", "global"), 40, both)
