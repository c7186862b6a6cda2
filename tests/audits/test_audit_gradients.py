"""The audit of gradients: agreement with theory, honest bounds, D' in every form, and what is refused."""

from __future__ import annotations

import inspect
import itertools
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import dosimeter as dm
from dosimeter import InputError
from dosimeter.accounting import noise_for_belief, noise_for_epsilon
from dosimeter.attacks.gradient import Transcripts
from dosimeter.audits.gradients import OpacusTranscript, audit_gradients, audit_transcripts
from dosimeter.audits.gradients._loss_adversary import AskedRecords, answers
from dosimeter.audits.gradients._neighbouring import neighbouring
from dosimeter.audits.gradients._runs import draw_worlds
from dosimeter.audits.result import Audit, TrainingCounts
from dosimeter.engine import RunOptions, Store
from dosimeter.evidence import fair_coins
from dosimeter.identifiability import advantage_from_mu
from dosimeter.training import Neighbour, Privacy, Recipe, train_many

torch = pytest.importorskip("torch", reason="trainings need torch: dosimeter[torch]")

RNG = np.random.default_rng(0)
N, DIMS = 40, 8
X = RNG.normal(size=(3 * N, DIMS)).astype(np.float32)
Y = (X[:, 0] + 0.5 * RNG.normal(size=3 * N) > 0).astype(np.int64)
D, U, TEST = (X[:N], Y[:N]), (X[N : 2 * N], Y[N : 2 * N]), (X[2 * N :], Y[2 * N :])
QUIET = RunOptions(engine="inline", progress=False)


def net():
    nn = torch.nn
    return nn.Sequential(nn.Linear(DIMS, 5), nn.Tanh(), nn.Linear(5, 2))


def recipe(noise=0.0, **changes):
    return Recipe(**{"steps": 8, "batch_size": None, "learning_rate": 0.2, "dp": Privacy(noise, clip=0.7), **changes})


def run(**changes):
    given = {
        "recipe": recipe(),
        "universe": U,
        "distance": "euclidean",
        "repetitions": 60,
        "belief": 0.9,
        "delta": 1 / N,
        "seed": 1,
        "run": QUIET,
    }
    return audit_gradients(net, D, **{**given, **changes})


def method(audit, name):
    return next(e for e in audit.estimates if e.method == name)


# --- agreement with theory --------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["bounded", "unbounded"])
def local(request):
    return run(neighbours=request.param, noise="local", repetitions=600, seed=3)


def test_local_noise_gives_the_gaussian_law(local):
    """The log-odds in favour of the truth are N(μ²/2, μ²), whatever data and network."""
    mu = local.details.target.mu
    audit = local
    assert audit.details.advantage.counting_low <= advantage_from_mu(mu) <= audit.details.advantage.counting_high
    assert audit.details.advantage.trajectory == pytest.approx(float(advantage_from_mu(mu)), rel=1e-6)
    excess = audit.details.delta_prime
    assert excess.share_low <= excess.expected <= excess.share_high
    assert excess.expected == pytest.approx(stats.norm.sf(audit.details.target.epsilon, mu**2 / 2, mu), rel=1e-4)


def test_log_odds_of_local_noise_pass_a_ks_test():
    drawn = draw_worlds(800, True, 5)
    worlds, seeds = drawn.trained_on_d, drawn.seeds
    members = np.ones((800, N), bool)
    members[:, 4] = worlds
    plan = recipe(3.0, dp=Privacy(3.0, clip=0.7, sensitivity="local"))
    runs = train_many(net, plan, D, members, seeds, neighbour=Neighbour(removed=4), engine="inline")
    seen = Transcripts.from_runs([one.transcript for one in runs], worlds, sensitivity=0.7)
    mu = math.sqrt(8) / 3.0
    favour = np.where(worlds, seen.final, -seen.final)
    assert stats.kstest(favour, "norm", args=(mu**2 / 2, mu)).pvalue > 1e-3
    assert stats.kstest(favour, "norm", args=(mu**2 / 2, 1.2 * mu)).pvalue < 1e-2


def test_epsilon_from_sensitivities_is_the_target(local):
    assert method(local, "sensitivities").epsilon == pytest.approx(local.details.target.epsilon, rel=0.01)
    assert local.details.target.epsilon == pytest.approx(math.log(9))


def test_local_noise_is_called_not_private(local):
    assert local.upper == () and local.region is None
    told = " ".join(local.headline.warnings)
    assert "not differentially private" in told
    assert any("not differentially private" in text for text in local.metadata.warnings)
    assert local.metadata.mechanism is None


@pytest.fixture(scope="module")
def audit():
    return run(repetitions=300, seed=1, test=TEST, name="small")


def test_global_noise_keeps_its_guarantee(audit):
    assert method(audit, "sensitivities").epsilon <= audit.details.target.epsilon * (1 + 1e-6)
    tight = min(g.epsilon for g in audit.upper if g.is_bound)
    assert tight == pytest.approx(math.log(9), rel=1e-6)
    assert audit.headline.low <= tight and audit.headline.validity.is_bound
    assert audit.details.sensitivities.largest <= audit.details.sensitivities.limit * (1 + 1e-4)
    assert audit.details.sensitivities.limit == pytest.approx(1.4)
    assert {g.neighbours for g in audit.upper} == {"replace"}


def test_trajectories_and_counting_agree(audit):
    found = audit.details.advantage
    assert found.counting_low <= found.trajectory <= found.counting_high
    assert found.trajectory <= found.expected + 1e-9
    assert found.trajectory_high - found.trajectory_low < 0.1 * (found.counting_high - found.counting_low)


def test_the_page_data_are_complete_and_survive_json(audit):
    again = Audit.from_json(audit.to_json())
    assert again.metadata.kind == "gradients" and again.to_json() == audit.to_json()
    paths = audit.details.trajectories
    assert np.shape(paths.beliefs) == (40, 9) and {path[0] for path in paths.beliefs} == {0.5}
    assert sum(audit.details.final.on_d) == pytest.approx(1.0)
    assert audit.details.epsilons[0].name == "bound that the beliefs prove"
    assert audit.details.utility.records == N and audit.details.yeom.nonmembers == N
    assert "small" in str(audit.metadata.name)


def test_yeom_stands_beside_its_bounds(audit):
    yeom = audit.details.yeom
    assert yeom.advantage_low <= yeom.advantage <= yeom.advantage_high
    assert yeom.bound_gaussian < yeom.bound_generic < yeom.bound_yeom
    assert yeom.bound_yeom == 1.0  # e^ε − 1 says nothing here
    assert yeom.bound_generic == pytest.approx((9 - 1 + 2 / N) / 10)


def test_yeom_by_hand():
    logits = np.array([[2.0, 0.0], [0.0, 1.0], [0.5, 0.0], [0.0, 3.0], [1.0, 0.0], [0.0, 0.1]])
    labels = np.array([0, 1, 1, 1, 0, 0])
    loss = -np.log(np.exp(logits)[np.arange(6), labels] / np.exp(logits).sum(axis=1))
    inside, outside = loss[:3], loss[4:]
    limit = inside.mean()
    asked = AskedRecords((np.zeros((6, 1)), labels), 4, True)
    found = answers(logits, asked, np.array([True, True, True, False]))
    assert found[0] == pytest.approx((inside <= limit).mean() - (outside <= limit).mean())
    assert found[1:] == pytest.approx((0.5, 2 / 3))
    one_column = answers((logits[:, 1] - logits[:, 0])[:, None], asked, np.array([True, True, True, False]))
    assert one_column == pytest.approx(found)


# --- noise and target -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("neighbours", "relation", "scale"), [("bounded", "replace", 2), ("unbounded", "add/remove", 1)]
)
def test_noise_is_chosen_for_the_target(neighbours, relation, scale):
    by_belief = run(neighbours=neighbours, repetitions=8, belief=0.8).details.target
    assert by_belief.noise_multiplier == pytest.approx(noise_for_belief(0.8, delta=1 / N, steps=8, neighbours=relation))
    assert by_belief.noise_over_sensitivity == pytest.approx(by_belief.noise_multiplier / scale)
    by_epsilon = run(neighbours=neighbours, repetitions=8, belief=None, epsilon=1.5, delta=1e-3).details.target
    assert by_epsilon.noise_multiplier == pytest.approx(
        noise_for_epsilon(1.5, delta=1e-3, steps=8, neighbours=relation)
    )
    assert by_epsilon.epsilon == 1.5 and by_epsilon.chosen


def test_a_given_noise_stays_and_the_target_is_only_compared():
    with_target = run(recipe=recipe(6.0), repetitions=8, belief=None, epsilon=3.0)
    assert with_target.details.target.noise_multiplier == 6.0
    assert with_target.details.target.epsilon == 3.0 and not with_target.details.target.chosen
    alone = run(recipe=recipe(6.0), repetitions=8, belief=None)
    exact = min(g.epsilon for g in alone.upper if g.is_bound)
    assert alone.details.target.epsilon == pytest.approx(exact, rel=1e-6)
    assert alone.details.target.mu == pytest.approx(math.sqrt(8) * 2 / 6.0)


@pytest.mark.parametrize(("sampling", "seen"), [("shuffled", 2), ("poisson", 8)])
def test_mini_batches_are_counted_without_amplification(sampling, seen):
    """The adversary knows the batches: a record counts in each pass once, or in as many steps as the coins allow."""
    audit = run(recipe=recipe(4.0, batch_size=10, sampling=sampling), repetitions=40, belief=None, seed=2)
    assert audit.details.target.mu == pytest.approx(math.sqrt(seen) * 2 / 4.0)
    assert any("without amplification" in text for text in audit.metadata.warnings)
    assert method(audit, "sensitivities").epsilon <= audit.details.target.epsilon * (1 + 1e-6)


# --- where it runs ----------------------------------------------------------------------------------------


def test_the_former_keywords_still_work_and_say_what_replaces_them():
    """The warning is about the caller's line, so that a caller sees it."""
    small = {"recipe": recipe(4.0), "universe": U, "repetitions": 8, "seed": 1}
    with pytest.warns(DeprecationWarning, match=r"pass run=RunOptions\(engine=…, progress=…\)") as caught:
        former = audit_gradients(net, D, **small, engine="inline", progress=False)
    assert [Path(one.filename).name for one in caught] == [Path(__file__).name]
    assert former.to_json() == audit_gradients(net, D, **small, run=QUIET).to_json()
    assert former.metadata.delta == 1e-5  # the default of every audit
    for options, told in (
        ({"run": QUIET, "workers": 2}, "workers was passed beside run"),
        ({"run": 2}, "run must be RunOptions"),
        ({"proceses": 2}, "takes no argument 'proceses'"),
    ):
        with pytest.raises(InputError, match=told):
            audit_gradients(net, D, **small, **options)


def test_signatures_fit_in_a_head():
    for function in (audit_gradients, audit_transcripts):
        assert len(inspect.signature(function).parameters) < 18


# --- worlds, seeds, store ---------------------------------------------------------------------------------


def test_worlds_are_fair_coins():
    drawn = draw_worlds(500, True, 4)
    assert drawn.trained_on_d.sum() == fair_coins(500, drawn.coins).sum() and len(set(drawn.seeds)) == 500
    counts = [draw_worlds(100, True, seed).trained_on_d.sum() for seed in range(200)]
    assert np.std(counts) == pytest.approx(5, abs=1.2)  # half and half would have no spread


def test_one_world_has_no_bound():
    audit = run(both_worlds=False, repetitions=30)
    assert audit.headline.method == "advantage, trajectory" and not audit.headline.validity.is_bound
    assert not audit.curve and audit.metadata.trained_on_d == 30
    assert audit.details.final.on_d_prime is None
    assert any("same one of the two" in text for text in audit.headline.warnings)


def test_seeds_repeat_and_differ(tmp_path):
    first, again, other = (
        run(repetitions=20, seed=seed, run=replace(QUIET, store=Store(tmp_path))) for seed in (1, 1, 2)
    )
    assert again.metadata.provenance.cached == 20 and first.metadata.provenance.cached == 0
    records = [audit.to_dict() for audit in (first, again)]
    for record in records:
        del record["metadata"]["provenance"]
    assert records[0] == records[1]
    assert first.metadata.trainings == TrainingCounts(asked=20, done=20)
    assert first.details.advantage != other.details.advantage


# --- D' ---------------------------------------------------------------------------------------------------


def test_the_farthest_pair_is_found():
    away = np.linalg.norm(D[0][:, None].astype(float) - U[0][None], axis=2)
    row, column = np.unravel_index(np.argmax(away), away.shape)
    found = run(repetitions=4).details.neighbour
    assert (found.removed, found.added) == (row, column)
    assert found.distance == pytest.approx(away.max(), rel=1e-6) and found.by == "euclidean"
    alone = run(repetitions=4, neighbours="unbounded", universe=None).details.neighbour
    inner = np.linalg.norm(D[0][:, None].astype(float) - D[0][None], axis=2).sum(axis=1)
    assert alone.removed == int(np.argmax(inner)) and alone.added is None


def other_data(drop=(), add=()):
    keep = [i for i in range(N) if i not in drop]
    return np.concatenate([D[0][keep], U[0][list(add)]]), np.concatenate([D[1][keep], U[1][list(add)]])


def test_given_neighbours_are_the_same_as_named_ones():
    order = np.random.default_rng(1).permutation(N)
    x, y = other_data((7,), (3,))
    given = run(repetitions=8, neighbour=(x[order], y[order]), universe=None)
    named = run(repetitions=8, neighbour=Neighbour(removed=7, added=3))
    assert given.details.advantage == named.details.advantage
    less = run(repetitions=8, neighbours="unbounded", neighbour=other_data((7,)))
    named = run(repetitions=8, neighbours="unbounded", neighbour=Neighbour(removed=7))
    assert less.details.advantage == named.details.advantage
    more = run(repetitions=8, neighbours="unbounded", neighbour=Neighbour(added=3))
    assert more.details.advantage.trajectory > 0 and more.details.neighbour.removed is None


@pytest.mark.parametrize(
    ("drop", "add", "neighbours", "counts"),
    [
        ((1, 2), (0, 1), "bounded", ("2 record", "2 of its own")),
        ((1,), (), "bounded", ("1 record", "0 of its own")),
        ((1,), (0,), "unbounded", ("1 record", "1 of its own")),
        ((), (), "bounded", ("0 record", "0 of its own")),
    ],
)
def test_a_data_set_that_is_no_neighbour_is_refused(drop, add, neighbours, counts):
    with pytest.raises(InputError, match="not a neighbour of data") as caught:
        run(neighbours=neighbours, neighbour=other_data(drop, add))
    assert all(count in str(caught.value) for count in counts)


def test_a_changed_label_is_a_replaced_record():
    x, y = other_data()
    y = y.copy()
    y[5] = 1 - y[5]
    found = run(repetitions=4, neighbour=(x, y)).details.neighbour
    assert found.removed == 5


# --- bad input --------------------------------------------------------------------------------------------


class TestDistancesOverLabels:
    """Records with different labels are farther apart than all with equal ones."""

    x = np.array([[0.0], [1.0], [2.0], [9.0]], np.float32)
    y = np.array([0, 0, 0, 1])

    def chosen(self, universe, **how):
        given = {"neighbours": "bounded", "distance": "manhattan", "neighbour": None, **how}
        return neighbouring((self.x, self.y), universe, **given).choice

    @pytest.mark.parametrize(("over", "pair", "away"), [("x", (0, 0), 20.0), ("xy", (3, 0), 11.0)])
    def test_the_pair_farthest_apart(self, over, pair, away):
        found = self.chosen((np.array([[20.0], [5.0]]), np.array([0, 1])), over=over)
        assert ((found.removed, found.added), found.distance) == (pair, away)
        assert found.by == ("manhattan" if over == "x" else "manhattan, labels first")

    def test_a_record_of_d_is_not_added(self):
        universe = np.array([[9.0], [3.0]]), np.array([1, 1])  # the first is in D
        assert self.chosen(universe, over="xy").added == 1

    def test_with_one_label_the_distance_alone_decides(self):
        x, y = self.x, np.zeros(4, np.int64)
        how = {"neighbours": "bounded", "distance": "manhattan", "neighbour": None, "over": "xy"}
        assert neighbouring((x, y), (np.array([[20.0]]), np.array([0])), **how).choice.removed == 0

    @pytest.mark.parametrize(("over", "removed"), [("x", 3), ("xy", 0)])
    def test_the_record_that_is_removed(self, over, removed):
        how = {"neighbours": "unbounded", "distance": "manhattan", "neighbour": None, "over": over}
        assert neighbouring((self.x, np.array([1, 0, 0, 0])), None, **how).choice.removed == removed

    def test_the_audit_takes_it(self):
        found = run(over="xy", repetitions=4).details.neighbour
        assert U[1][found.added] != D[1][found.removed]
        assert found.by == "euclidean, labels first"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"recipe": Recipe(steps=3)}, "recipe has no dp"),
        ({"recipe": None}, "must be a Recipe"),
        ({"belief": None}, "no target to choose it for"),
        ({"epsilon": 2.0}, "pass one"),
        ({"belief": 0.4}, "belief"),
        ({"belief": None, "epsilon": -1.0}, "epsilon"),
        ({"noise": "none"}, "noise must be one of"),
        ({"neighbours": "both"}, "neighbours must be one of"),
        ({"repetitions": 1}, "repetitions must be at least 2"),
        ({"universe": None}, "universe is missing"),
        ({"universe": (np.zeros((0, DIMS)), np.zeros(0))}, "U∖D"),
        ({"universe": D}, "U∖D is empty"),
        ({"universe": (np.zeros((4, 3)), np.zeros(4))}, "shape"),
        ({"universe": np.zeros((4, 3))}, "universe must be a pair"),
        ({"test": (np.zeros((4, 3)), np.zeros(4))}, "test has records of shape"),
        ({"neighbour": Neighbour(removed=1)}, "bounded neighbours differ by"),
        ({"neighbour": Neighbour(removed=N, added=0)}, "data has rows 0 to"),
        ({"neighbour": Neighbour(removed=1, added=N)}, "universe, which has rows"),
        ({"neighbour": 3}, "must be a Neighbour or a data set"),
        ({"delta": 0.0}, "delta"),
        ({"delta": 1.5}, "delta"),
        ({"confidence": 1.0}, "confidence"),
        ({"distance": "chebyshev"}, "distance"),
        ({"distance": lambda a, b: np.arange(len(a) * len(b), dtype=float).reshape(len(a), len(b))}, "symmetric"),
        ({"both_worlds": 1}, "both_worlds"),
        ({"over": "y"}, "over must be one of"),
    ],
    ids=itertools.count(),
)
def test_bad_input(changes, told):
    with pytest.raises(InputError, match=told):
        run(**changes)


@pytest.mark.parametrize("factory", [3, lambda: 3])
def test_a_factory_must_make_modules(factory):
    with pytest.raises(InputError, match="factory must"):
        audit_gradients(factory, D, recipe=recipe(2.0), universe=U, repetitions=8, seed=0, run=QUIET)


def test_clip_must_be_positive():
    with pytest.raises(InputError, match="clip"):
        recipe(dp=Privacy(1.0, clip=0.0))


def rising_net():
    nn = torch.nn
    return nn.Sequential(nn.Linear(DIMS, 5), nn.ReLU(), nn.Linear(5, 2))


@pytest.mark.parametrize(("rate", "decay", "least"), [(1e25, 0.0, 1), (1e3, 1e3, 3)])
def test_gradients_that_become_nan_are_named(rate, decay, least):
    """The step is the first one after which the weights are not finite; decay makes them a million times larger."""
    wild = recipe(1.0, learning_rate=rate, weight_decay=decay, steps=9)
    pair = {"universe": U, "neighbour": Neighbour(removed=0, added=0)}
    with pytest.raises(InputError, match="infinite or NaN in step") as caught:
        audit_gradients(rising_net, D, recipe=wild, repetitions=4, seed=1, **pair, run=QUIET)
    told = str(caught.value)
    step = int(told.split("in step ")[1].split(",")[0])
    seed = int(told.split("seed ")[1].split(",")[0])
    assert "repetition 0" in told and "trained on D)" in told and step >= least
    for steps, fails in ((step + 1, True), (step, False)):
        part = recipe(1.0, learning_rate=rate, weight_decay=decay, steps=steps)
        one = next(iter(train_many(rising_net, part, D, np.ones((1, N), bool), [seed], engine="inline")))
        assert (one.failed is not None) == fails


def test_transcripts_that_were_not_clipped_are_refused():
    with pytest.raises(InputError, match="step 1 of repetition 0"):
        Transcripts([[1.0, 3.0]], [[0.0, 0.0]], 1.0, [True], sensitivity=2.0)
    with pytest.raises(InputError, match="must be Transcripts"):
        audit_transcripts(np.zeros((2, 2)), delta=0.1)


# --- Opacus -----------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
@pytest.mark.filterwarnings("ignore:Secure RNG turned off")
@pytest.mark.parametrize("neighbour", ["removed", "added", "both"])
def test_opacus_hook_sees_what_a_full_log_holds(neighbour):
    """Second route: both clipped sums by one backward pass per record, and the noisy sum from the applied gradient."""
    opacus = pytest.importorskip("opacus", reason="the hook needs Opacus: dosimeter[torch]")
    clip, sigma, lr, steps = 0.5, 1.5, 0.1, 5
    x, y = torch.from_numpy(D[0]), torch.from_numpy(D[1])
    extra = torch.from_numpy(U[0][:1]), torch.from_numpy(U[1][:1])
    removed = 3 if neighbour != "added" else None
    pairs = {}
    if removed is not None:
        pairs["removed"] = (D[0][3], D[1][3])
    if neighbour != "removed":
        pairs["added"] = (U[0][0], U[1][0])
    keep = [i for i in range(N) if i != removed]
    x2, y2 = x[keep], y[keep]
    if neighbour != "removed":
        x2, y2 = torch.cat([x2, extra[0]]), torch.cat([y2, extra[1]])
    torch.manual_seed(1)
    module = opacus.GradSampleModule(net())
    inner = torch.optim.SGD(module.parameters(), lr=lr)
    optimizer = opacus.optimizers.DPOptimizer(inner, noise_multiplier=sigma, max_grad_norm=clip, expected_batch_size=N)
    called = []
    optimizer.attach_step_hook(lambda _: called.append(1))
    criterion = torch.nn.CrossEntropyLoss()

    def clipped(module, x, y):
        total = 0.0
        for a, b in zip(x, y, strict=True):
            loss = criterion(module(a[None]), b[None])
            flat = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(module.parameters()))]).double()
            total = total + flat * min(1.0, clip / (float(flat.norm()) + 1e-6))
        return total.numpy()

    plain = net()
    logs = [[], [], []]
    with OpacusTranscript(module, optimizer, criterion, **pairs) as watch:
        for _ in range(steps):
            plain.load_state_dict({k.removeprefix("_module."): v for k, v in module.state_dict().items()})
            before = torch.cat([p.detach().flatten() for p in module.parameters()]).double()
            optimizer.zero_grad()
            criterion(module(x), y).backward()
            optimizer.step()
            after = torch.cat([p.detach().flatten() for p in module.parameters()]).double()
            logs[0].append(clipped(plain, x, y))
            logs[1].append(clipped(plain, x2, y2))
            logs[2].append(((before - after) / lr * N).numpy())
    sums_d, sums_other, noisy = (np.array([log]) for log in logs)
    want = Transcripts.from_gradients(sums_d, sums_other, noisy, deviations=clip * sigma, trained_on_d=[True])
    got = Transcripts.from_runs([watch.transcript], [True], sensitivity=2 * clip)
    assert len(called) == steps and optimizer.step_hook is not None
    assert got.distances == pytest.approx(want.distances, abs=1e-5)
    assert got.log_odds == pytest.approx(want.log_odds, abs=1e-3)


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
def test_opacus_runs_are_audited_as_ours():
    opacus = pytest.importorskip("opacus", reason="the hook needs Opacus: dosimeter[torch]")
    clip, sigma, steps = 0.5, 2.0, 4
    x, y = torch.from_numpy(D[0]), torch.from_numpy(D[1])
    worlds = np.arange(24) % 2 == 0
    runs = []
    for seed, on_d in enumerate(worlds):
        torch.manual_seed(seed)
        module = opacus.GradSampleModule(torch.nn.Linear(DIMS, 2))
        inner = torch.optim.SGD(module.parameters(), lr=0.1)
        optimizer = opacus.optimizers.DPOptimizer(
            inner, noise_multiplier=sigma, max_grad_norm=clip, expected_batch_size=N
        )
        rows = slice(0, N) if on_d else slice(1, N)
        criterion = torch.nn.CrossEntropyLoss()
        with OpacusTranscript(
            module, optimizer, criterion, removed=(x[0], y[0]), in_batch=lambda step: step != 2
        ) as watch:
            for step in range(steps):
                optimizer.zero_grad()
                at = rows if step != 2 else slice(1, N)
                criterion(module(x[at]), y[at]).backward()
                optimizer.step()
        runs.append(watch.transcript)
    seen = Transcripts.from_runs(runs, worlds, sensitivity=clip)
    assert (seen.distances[:, 2] == 0).all() and (seen.distances[:, 0] > 0).all()
    audit = audit_transcripts(seen, delta=0.01, mechanism=dm.Gaussian(sigma, steps=3), name="mine")
    assert audit.details.target.mu == pytest.approx(math.sqrt(3) / sigma)
    assert method(audit, "sensitivities").epsilon <= audit.details.target.epsilon * (1 + 1e-4)
    # ⟨noise, Δ⟩/(σ‖Δ‖) is standard normal: the hook reads the noise that Opacus really drew
    used = np.delete(np.arange(steps), 2)
    unit = seen.projections[:, used] / (seen.distances[:, used] * seen.deviations[:, used])
    assert stats.kstest(unit.ravel(), "norm").pvalue > 1e-3


def test_opacus_hook_refuses():
    opacus = pytest.importorskip("opacus", reason="the hook needs Opacus: dosimeter[torch]")
    module = opacus.GradSampleModule(net())
    inner = torch.optim.SGD(module.parameters(), lr=0.1)
    good = opacus.optimizers.DPOptimizer(inner, noise_multiplier=1.0, max_grad_norm=1.0, expected_batch_size=2)
    layered = opacus.optimizers.DPPerLayerOptimizer(
        inner, noise_multiplier=1.0, max_grad_norm=[1.0] * 4, expected_batch_size=2
    )
    record = (D[0][0], D[1][0])
    for arguments, told in (
        ((module, inner, len), "DPOptimizer"),
        ((module, layered, len), "flat clipping"),
        ((net(), good, len), "GradSampleModule"),
        ((module, good, 3), "functions"),
    ):
        with pytest.raises(InputError, match=told):
            OpacusTranscript(*arguments, removed=record)
    with pytest.raises(InputError, match="both None"):
        OpacusTranscript(module, good, len)
    with pytest.raises(InputError, match="one label"):
        OpacusTranscript(module, good, len, removed=D)
    with pytest.raises(InputError, match="no step was seen"):
        _ = OpacusTranscript(module, good, len, removed=record).transcript
