"""The Opacus hook: which batches held the record, correct trainings that stay unaccused, broken ones that do not."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from dosimeter import DpSgd, InputError
from dosimeter.accounting import Composition, Gaussian
from dosimeter.attacks.gradient import Transcripts
from dosimeter.audits.gradients import OpacusTranscript, audit_transcripts
from dosimeter.geometry import epsilon_from_mu

torch = pytest.importorskip("torch", reason="the hook needs torch: dosimeter[torch]")
opacus = pytest.importorskip("opacus", reason="the hook needs Opacus: dosimeter[torch]")

from opacus.utils.batch_memory_manager import BatchMemoryManager  # noqa: E402
from torch.utils.data import DataLoader, SequentialSampler, TensorDataset, WeightedRandomSampler  # noqa: E402

from dosimeter.audits.gradients._opacus_batches import WatchedBatches  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore:Full backward hook is firing"),
    pytest.mark.filterwarnings("ignore:Secure RNG turned off"),
    pytest.mark.filterwarnings("ignore:.*:UserWarning"),
]

N, DIMS, CLIP, ROW = 24, 4, 0.05, 5
X = torch.from_numpy(np.random.default_rng(0).normal(size=(N, DIMS)).astype(np.float32))
Y = (X[:, 0] > 0).long()
RECORD = (X[ROW], Y[ROW])
LOSS = torch.nn.CrossEntropyLoss()
KEPT = torch.arange(N) != ROW


class Training:
    """A small training as people write it, with the defaults of `make_private`."""

    def __init__(
        self, on_d=True, *, noise=4.0, batch=12, poisson=True, workers=0, shuffle=True, clip=CLIP, data=None, **more
    ):
        rows = slice(None) if on_d else KEPT
        loader = DataLoader(
            data or TensorDataset(X[rows], Y[rows]), batch_size=batch, shuffle=shuffle, num_workers=workers
        )
        module = torch.nn.Linear(DIMS, 2)
        self.model, self.optimizer, self.loader = opacus.PrivacyEngine().make_private(
            module=module,
            optimizer=torch.optim.SGD(module.parameters(), lr=0.1),
            data_loader=loader,
            noise_multiplier=noise,
            max_grad_norm=clip,
            poisson_sampling=poisson,
            **more,
        )
        self.row = ROW if on_d else None
        self.held: list[int] = []  # how often each step really had the record

    def watch(self, **changes):
        given = {"removed": RECORD, "data_loader": self.loader, "index": self.row, **changes}
        return OpacusTranscript(self.model, self.optimizer, LOSS, **given)

    def train(self, epochs=1, loader=None, *, skip_empty=False, accumulate=1, virtual=1):
        held = turn = 0
        self.optimizer.zero_grad()
        for _ in range(epochs):
            for x, y in loader or self.loader:
                if skip_empty and not len(x):
                    continue
                turn += 1
                held += int((x == X[ROW]).all(dim=1).sum())
                if virtual > 1:
                    self.optimizer.signal_skip_step(do_skip=turn % virtual != 0)
                LOSS(self.model(x), y).backward()
                if turn % accumulate:
                    continue
                self.optimizer.step()
                self.optimizer.zero_grad()
                if not self.optimizer._is_last_step_skipped:
                    self.held.append(held)
                    held = 0


def run(on_d, before=None, epochs=1, **changes):
    training = Training(on_d, **changes)
    if before is not None:
        before(training.optimizer)
    with training.watch() as watch:
        training.train(epochs)
    return watch.transcript


def audited(runs, mechanism, delta=0.01, **changes):
    worlds = np.arange(runs) % 2 == 0
    seen = Transcripts.from_runs([run(on_d, **changes) for on_d in worlds], worlds)
    return audit_transcripts(seen, delta=delta, mechanism=mechanism)


HALF = DpSgd(4.0, sample_rate=0.5, steps=2)  # what Training() is by default


# --- correct and broken trainings -------------------------------------------------------------------------


def test_a_correct_poisson_training_is_not_accused():
    """Every batch taken to hold the record, and amplification counted on: both accused it, with ε ≥ 1.5 for ≤ 0.8."""
    audit = audited(60, DpSgd(1.0, sample_rate=0.125, steps=8), batch=3, noise=1.0)
    assert not audit.region.contradiction
    assert tight(audit) == pytest.approx(exact(Gaussian(1.0, 8)))
    assert any("without amplification" in text for text in audit.headline.warnings)
    assert audit.details.noise.low < 1.1 and audit.details.noise.high > 0.9


CORRECT = (
    ({}, DpSgd(50.0, sample_rate=0.5, steps=2)),
    ({"poisson": False}, DpSgd(50.0, sample_rate=0.5, steps=2, sampling="shuffled")),
    ({"batch": N}, Gaussian(50.0)),
)


def test_forty_audits_of_correct_trainings():
    """At 95 % an audit accuses a correct training with probability 0.05 at most: 10 of 40 are 1 in 48 000.

    The guarantee is so strict (ε ≤ 0.06 at full batches) that 16 runs can and do accuse, 3 of 100 audits of the last
    two kinds in simulations.
    """
    allowed = int(stats.binom.isf(1e-4, 40, 0.05))
    audits = []
    for turn in range(40):
        changes, mechanism = CORRECT[turn % 3]
        audits.append(audited(16, mechanism, 1e-5, noise=50.0, **changes))
    assert sum(audit.region.contradiction for audit in audits) <= allowed
    # 1 of 10 000 audits says it of noise that is right, in each direction: 2 of 40 are 1 in 30 000.
    assert sum(any("the noise had" in text for text in audit.metadata.warnings) for audit in audits) <= 1


def no_noise(optimizer):
    def add_noise():
        for parameter in optimizer.params:
            parameter.grad = parameter.summed_grad.clone()

    optimizer.add_noise = add_noise


def noise_of_the_mean(optimizer):
    """σC/B, which would be right on the mean of B records, is added to their sum."""

    def add_noise():
        deviation = optimizer.noise_multiplier * optimizer.max_grad_norm / optimizer.expected_batch_size
        for parameter in optimizer.params:
            parameter.grad = parameter.summed_grad + deviation * torch.randn_like(parameter)

    optimizer.add_noise = add_noise


@pytest.mark.parametrize(
    ("fault", "changes", "mechanism"),
    [
        (no_noise, {}, DpSgd(8.0, sample_rate=0.5, steps=2)),
        (noise_of_the_mean, {"batch": N}, Gaussian(8.0)),
    ],
)
def test_broken_trainings_are_caught(fault, changes, mechanism):
    """In 40 simulated audits the bounds were 1.28 and 0.83 at least, the guarantees are 0.63 and 0.43."""
    audit = audited(60, mechanism, 1e-5, before=fault, noise=8.0, **changes)
    assert audit.region.contradiction
    assert any("too little noise" in text for text in audit.headline.warnings)
    assert audit.details.noise.high < 0.2


def test_noise_of_the_mean_in_poisson_batches_is_caught_by_the_noise_itself():
    """A quarter of the runs never meets the record, so the bound passed the guarantee in 3 of 20 audits of 60 runs.

    The noise has 1/12 of the stated deviation in at least 7 steps, but for 1 in 10 million audits.
    """
    audit = audited(24, DpSgd(8.0, sample_rate=0.5, steps=2), 1e-5, before=noise_of_the_mean, noise=8.0)
    assert any("too little noise" in text and "is void" in text for text in audit.headline.warnings)
    assert audit.details.noise.high < 0.5


def test_the_noise_of_runs_in_one_world_is_looked_at():
    seen = Transcripts.from_runs([run(True, before=no_noise) for _ in range(6)], [True] * 6)
    audit = audit_transcripts(seen, delta=0.01)
    assert not audit.headline.validity.is_bound
    assert any("too little noise" in text for text in audit.headline.warnings)


def test_too_much_noise_accuses_nobody():
    def fault(optimizer):
        plain = optimizer.scale_grad

        def scale_grad():
            plain()
            for parameter in optimizer.params:
                parameter.grad += CLIP * 4.0 * torch.randn_like(parameter)  # σC on the mean instead of the sum

        optimizer.scale_grad = scale_grad

    audit = audited(20, HALF, before=fault)
    assert not audit.region.contradiction
    assert any("more noise than it states" in text for text in audit.headline.warnings)


def test_an_optimiser_that_does_not_clip_is_seen():
    def fault(optimizer):
        def clip_and_accumulate():
            for parameter in optimizer.params:
                parameter.summed_grad = parameter.grad_sample.sum(dim=0)

        optimizer.clip_and_accumulate = clip_and_accumulate

    runs = [run(True, before=fault, batch=N, noise=4.0) for _ in range(2)]
    assert min(one.distances.max() for one in runs) > 2 * CLIP
    with pytest.raises(InputError, match="above the global sensitivity"):
        Transcripts.from_runs(runs, [True, True], sensitivity=CLIP)


def test_a_noise_multiplier_of_0_is_refused_or_held_to_its_claim():
    runs = [run(on_d, noise=0.0, batch=N) for on_d in (True, False)]
    with pytest.raises(InputError, match="the adversary is certain"):
        Transcripts.from_runs(runs, [True, False])
    audit = audit_transcripts(Transcripts.from_runs(runs, [True, False], deviations=4.0 * CLIP), delta=0.01)
    assert audit.details.noise.ratio == pytest.approx(0, abs=1e-3)


# --- which batches held the record ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "loop"),
    [
        ({}, {}),
        ({"batch": 1}, {}),
        ({"batch": 1}, {"skip_empty": True}),
        ({"batch": 1, "rand_on_empty": True}, {}),
        ({"batch": N}, {}),
        ({"loss_reduction": "sum"}, {}),
        ({"poisson": False, "batch": 5}, {}),
        ({"poisson": False, "batch": 5, "shuffle": False}, {}),
        ({"poisson": False, "batch": 5}, {"accumulate": 3}),
        ({"poisson": False, "batch": 5}, {"virtual": 3}),
        ({"batch": 5}, {"virtual": 3}),
        ({"batch": 3, "workers": 1}, {"skip_empty": True}),
    ],
)
def test_the_loader_tells_which_steps_hold_the_record(setting, loop):
    training = Training(**setting)
    with training.watch() as watch:
        training.train(3, **loop)
    found = watch.transcript.distances
    assert np.array_equal(found > 0, np.array(training.held) > 0)
    assert found == pytest.approx(CLIP * np.array(training.held), rel=1e-3)


@pytest.mark.parametrize("outside", [False, True])
@pytest.mark.parametrize("poisson", [False, True])
def test_batches_in_parts(outside, poisson):
    training = Training(batch=8, poisson=poisson)
    parts = {"data_loader": training.loader, "max_physical_batch_size": 3, "optimizer": training.optimizer}
    if outside:
        with BatchMemoryManager(**parts) as loader, training.watch(data_loader=loader) as watch:
            training.train(4, loader)
    else:
        with training.watch() as watch, BatchMemoryManager(**parts) as loader:
            assert len(loader) == 8  # as without the watch
            training.train(4, loader)
    assert len(training.held) == 12
    assert watch.transcript.distances == pytest.approx(CLIP * np.array(training.held), rel=1e-3)


def test_blocks_can_be_resumed_and_stand_inside_one_another():
    training = Training()
    first, second = training.watch(), training.watch()
    with first:
        with second:
            training.train()
        training.train()
    training.train()
    with second:
        training.train()
    held = np.array(training.held)
    assert first.transcript.distances == pytest.approx(CLIP * held[:4], rel=1e-3)
    assert second.transcript.distances == pytest.approx(CLIP * held[[0, 1, 6, 7]], rel=1e-3)
    assert first.transcript.projections[:2] == pytest.approx(second.transcript.projections[:2])
    with first, pytest.raises(InputError, match="already watching"), first:
        pass
    assert "clip_and_accumulate" not in vars(training.optimizer)
    assert type(training.loader.batch_sampler).__name__ == "UniformWithReplacementSampler"


@pytest.mark.parametrize("setting", [{}, {"poisson": False}, {"batch": N}])
@pytest.mark.parametrize("on_d", [True, False])
def test_the_watch_changes_nothing(setting, on_d):
    weights = []
    for watched in (True, False):
        torch.manual_seed(3)
        training = Training(on_d, **setting)
        if watched:
            with training.watch():
                training.train(2)
        else:
            training.train(2)
        weights.append(torch.cat([parameter.detach().flatten() for parameter in training.model.parameters()]))
    assert torch.equal(*weights)


def places(passes, **setting):
    """In which batches the place of the absent record is drawn."""
    loader = Training(False, **setting).loader
    batches = WatchedBatches(loader, None)
    batches.start()
    return np.array([[batches.take(len(x), 0) for x, _ in loader] for _ in range(passes)])


def test_the_place_of_an_absent_record_is_drawn_as_the_loader_would():
    poisson = places(250, batch=6)  # 4 batches a pass: 1000 coins of rate 1/4
    assert stats.binomtest(int(poisson.sum()), poisson.size, 0.25).pvalue > 1e-4
    shuffled = places(300, batch=5, poisson=False)  # 24 places in batches of 5, the last of 4
    assert shuffled.shape == (300, 5) and (shuffled.sum(axis=1) == 1).all()
    assert stats.chisquare(shuffled.sum(axis=0), 300 * np.array([5, 5, 5, 5, 4]) / 24).pvalue > 1e-4
    assert places(3, batch=N, poisson=False).all() and places(3, batch=N).all()


# --- what is refused --------------------------------------------------------------------------------------


@pytest.mark.parametrize("setting", [{}, {"poisson": False}])
def test_mini_batches_of_which_nothing_is_known_are_refused(setting):
    with pytest.raises(InputError, match="nothing says which of them hold the record; pass data_loader"):
        Training(**setting).watch(data_loader=None, index=None)


def test_full_batches_need_no_loader():
    for setting in ({"batch": N}, {"batch": N, "poisson": False}):
        training = Training(**setting)
        with training.watch(data_loader=None, index=None) as watch:
            training.train(2)
        assert (watch.transcript.distances > 0).all()


def by_hand(watch, batches, training):
    with watch:
        for rows in batches:
            training.optimizer.zero_grad()
            LOSS(training.model(X[rows]), Y[rows]).backward()
            training.optimizer.step()


@pytest.mark.parametrize("rows", [(range(8), range(9)), (range(8), range(8, 16))])
def test_batches_that_change_are_not_full(rows):
    """By their number of records, or by the record that only some of them hold."""
    training = Training(batch=N, poisson=False)
    with pytest.raises(InputError, match="step 1, counted from 0, is not on the records of the step before"):
        by_hand(training.watch(data_loader=None, index=None), rows, training)


def test_steps_that_do_not_come_from_the_loader_are_refused():
    training = Training()
    with pytest.raises(InputError, match="came without a batch of data_loader"):
        by_hand(training.watch(), [range(8)], training)
    training, begun = Training(), Training()
    with pytest.raises(InputError, match="came without a batch of data_loader"), training.watch():
        training.train(loader=begun.loader)
    training = Training(batch=N)
    with pytest.raises(InputError, match=f"gradients of 3 records, but data_loader gave {N}"), training.watch():
        training.train(loader=[(x[:3], y[:3]) for x, y in training.loader])


class Endless(torch.utils.data.IterableDataset):
    def __iter__(self):
        yield from zip(X, Y, strict=True)


def weighted():
    return DataLoader(TensorDataset(X, Y), batch_size=8, sampler=WeightedRandomSampler([1.0] * N, N))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"in_batch": lambda step: True}, "both given; pass one"),
        ({"data_loader": None}, "index=5 is a row of data_loader, which is missing"),
        ({"data_loader": [X]}, "must be a DataLoader"),
        ({"index": N}, "index must be between 0 and 23, got 24"),
        ({"index": -1}, "index must be between 0 and 23, got -1"),
        ({"index": 1.5}, "index"),
        ({"index": ROW + 1}, "index=6 is not the row of the record"),
        ({"added": (X[0] + 1, Y[0]), "index": None}, "each data set has one of the two"),
        ({"data_loader": DataLoader(Endless(), batch_size=4), "index": None}, "records without their rows"),
        ({"data_loader": DataLoader(TensorDataset(X, Y), batch_size=None), "index": None}, "records without"),
        ({"data_loader": DataLoader(TensorDataset(X, Y), batch_size=8), "index": None}, "not for SequentialSampler"),
        ({"data_loader": weighted(), "index": None}, "not for WeightedRandomSampler"),
    ],
)
def test_bad_input(changes, told):
    with pytest.raises(InputError, match=told):
        Training().watch(**changes)


def test_the_parts_of_two_trainings_are_refused():
    one, other = Training(), Training()
    with pytest.raises(InputError, match="pass the two of one training"):
        OpacusTranscript(one.model, other.optimizer, LOSS, removed=RECORD, data_loader=one.loader, index=ROW)


def test_records_that_are_drawn_twice_count_twice():
    training = Training(poisson=False)
    loader = DataLoader(TensorDataset(X, Y), batch_sampler=[[ROW, ROW, 1], [2, 3], [ROW]])
    with training.watch(data_loader=loader) as watch:
        training.train(loader=loader)
    assert watch.transcript.distances == pytest.approx([2 * CLIP, 0, CLIP], rel=1e-3)
    assert isinstance(DataLoader(TensorDataset(X, Y)).sampler, SequentialSampler)


# --- beside which guarantee -------------------------------------------------------------------------------


def synthetic(runs=40, steps=4, scale=1.0, neighbours="add/remove", rate=0.5, deviation=4.0):
    rng = np.random.default_rng(1)
    held = scale * (rng.random((runs, steps)) < rate)
    noise = deviation * rng.normal(size=held.shape) * held
    return Transcripts(held, noise, deviation, np.arange(runs) % 2 == 0, neighbours=neighbours)


def tight(audit):
    return min(one.epsilon for one in audit.upper if one.is_bound)


def exact(mechanism):
    return float(epsilon_from_mu(mechanism.mu, 0.01))


@pytest.mark.parametrize(
    ("given", "neighbours", "whole", "told"),
    [
        (DpSgd(4.0, 0.5, 4), "add/remove", Gaussian(4.0, 4), "with amplification is a promise"),
        (DpSgd(4.0, 0.5, 4), "replace", Gaussian(4.0, 4, "replace"), "counted for replace neighbours"),
        (DpSgd(4.0, 0.5, 4), None, Gaussian(4.0, 4), "without amplification"),
        (DpSgd(4.0, 0.5, 4, "without-replacement"), "replace", Gaussian(4.0, 4, "replace"), "without amplification"),
        (DpSgd(4.0, 0.5, 8, "shuffled"), "add/remove", Gaussian(4.0, 4, "zero-out"), "zeroed out"),
        (Gaussian(4.0, 4, "replace"), "add/remove", Gaussian(4.0, 4), "counted for add/remove neighbours"),
        (
            Composition((DpSgd(4.0, 0.5, 4, "shuffled"), Gaussian(4.0, 2, "zero-out"))),
            "add/remove",
            Gaussian(4.0, 4, "zero-out"),
            "zeroed out",
        ),
    ],
)
def test_the_guarantee_is_that_of_the_runs(given, neighbours, whole, told):
    audit = audit_transcripts(synthetic(neighbours=neighbours), delta=0.01, mechanism=given)
    assert tight(audit) == pytest.approx(exact(whole), rel=1e-6)
    assert {one.neighbours for one in audit.upper} == {str(whole.neighbours)}
    assert any(told in text for text in audit.headline.warnings)
    assert audit.details.target.mu == pytest.approx(whole.mu)
    relation = neighbours or "add/remove"
    words = {"add/remove": "adding or removing", "replace": "replacing", "zero-out": "zeroing out"}
    counted = str(whole.neighbours)
    assert audit.metadata.neighbours == relation and f"{words[counted]} one record" in audit.headline.claim
    assert audit.headline.neighbours == counted and audit.region.upper.neighbours == counted


def test_a_guarantee_of_full_batches_is_left_as_it_is():
    audit = audit_transcripts(synthetic(rate=1.0), delta=0.01, mechanism=Gaussian(4.0, 4))
    assert audit.metadata.warnings == ()
    assert audit.metadata.mechanism == "Gaussian(noise_multiplier=4.0, steps=4, neighbours='add/remove')"


def test_what_the_runs_tell_of_the_mechanism():
    unknown = audit_transcripts(synthetic(), delta=0.01)
    assert any("beside guarantees without amplification" in text for text in unknown.headline.warnings)
    short = audit_transcripts(synthetic(), delta=0.01, mechanism=Gaussian(4.0, 3))
    assert any("in 4 steps, the mechanism counts 3" in text for text in short.headline.warnings)


def test_runs_that_repeat_one_another_are_refused():
    seen = synthetic(8)
    again = np.r_[np.arange(8), 2]
    with pytest.raises(InputError, match="same noise in runs 2 and 8"):
        audit_transcripts(
            Transcripts(seen.distances[again], seen.projections[again], 4.0, seen.trained_on_d[again]), delta=0.01
        )
    silent = Transcripts(np.ones((6, 2)), np.zeros((6, 2)), 1.0, np.arange(6) % 2 == 0)
    assert audit_transcripts(silent, delta=0.01).details.noise.ratio == 0


def test_the_relation_of_runs_is_kept():
    training = Training()
    with training.watch(added=(X[0] + 1, Y[0])) as watch:
        training.train()
    replaced = watch.transcript
    assert replaced.neighbours == "replace" and replaced.distances.max() <= 2 * CLIP * (1 + 1e-4)
    with pytest.raises(InputError, match="stack trainings on one pair"):
        Transcripts.from_runs([replaced, run(True)], [True, True])
    with pytest.raises(InputError, match="leave it out"):
        Transcripts.from_runs([replaced], [True], neighbours="add/remove")
    with pytest.raises(InputError, match="neighbours must be one of"):
        Transcripts([[1.0]], [[0.0]], 1.0, [True], neighbours="zero-out")
    assert Transcripts.from_runs([replaced], [True]).neighbours == "replace"


@pytest.mark.parametrize(("runs", "steps"), [(2, 1), (3, 1), (7, 2)])
def test_few_runs_and_steps(runs, steps):
    audit = audit_transcripts(synthetic(runs, steps), delta=0.01, mechanism=DpSgd(4.0, 0.5, steps))
    assert audit.headline.low <= tight(audit)


def test_records_that_no_batch_held():
    seen = Transcripts(np.zeros((4, 2)), np.zeros((4, 2)), 1.0, [True, False, True, False])
    audit = audit_transcripts(seen, delta=0.01, mechanism=DpSgd(1.0, 0.01, 2))
    assert audit.headline.low == 0 and audit.details.noise is None
