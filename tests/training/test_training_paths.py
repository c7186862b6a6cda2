"""Every path trains as the plain loop does: same seeds, batches and noise, float tolerance; and repeats bit by bit."""

import subprocess
import sys
import threading
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import sample_models

from dosimeter.training import Model, Neighbour, Privacy, Recipe, train_many
from dosimeter.training.steps import optimiser

torch = pytest.importorskip("torch", reason="the engine needs torch: dosimeter[torch]")
nn = torch.nn

SIZES = [30, 33, 45]  # members differ, so steps and last batches do too
X, Y = sample_models.images(60)
MEMBERS = sample_models.halves(3, 60, sizes=SIZES)
SEEDS = [5, 6, 7]
WAYS = [
    (sample_models.dense_net, "dense"),
    (sample_models.softmax_regression, "dense"),
    (sample_models.dense_net, "functional"),
    (sample_models.normed_net, "functional"),
    (sample_models.conv_net, "functional"),
    (sample_models.conv_net, "convolutional"),
]
OPTIMISERS = [
    {"learning_rate": 0.1, "momentum": 0.9, "weight_decay": 0.01},
    {"optimiser": "adam", "learning_rate": 0.01, "weight_decay": 0.01},
]
PRIVACIES = [None, Privacy(0.0, 0.3), Privacy(1.0, 0.3)]


# How far rounding may carry two orders of the same sums, in single precision, after eight steps. Adam divides by the
# size of a gradient and so enlarges the rounding of a small one. Which order a processor takes is its own affair.
ROUNDING = {"sgd": 3e-6, "adam": 1e-5}


def train(factory, recipe, strategy, **options):
    given = {"data": (X, Y), "memberships": MEMBERS, "seeds": SEEDS, "workers": 1, "return_models": True, **options}
    return list(train_many(factory, recipe, strategy=strategy, **given))


@cache
def plainly(factory, recipe):
    """What several ways are compared with, trained once."""
    return train(factory, recipe, "sequential")


def apart(some, others):
    pairs = zip(some, others, strict=True)
    return max(float(np.abs(a.state[name] - b.state[name]).max()) for a, b in pairs for name in a.state)


@pytest.mark.parametrize("optimiser", OPTIMISERS, ids=["sgd", "adam"])
@pytest.mark.parametrize("dp", PRIVACIES, ids=["plain", "clipped", "private"])
@pytest.mark.parametrize("sampling", ["shuffled", "poisson"])
@pytest.mark.parametrize(("factory", "strategy"), WAYS, ids=lambda way: getattr(way, "__name__", way))
def test_as_the_plain_loop(factory, strategy, sampling, dp, optimiser):
    recipe = Recipe(epochs=2, batch_size=16, sampling=sampling, dp=dp, **optimiser)
    fast, plain = train(factory, recipe, strategy), plainly(factory, recipe)
    assert fast[0].plan.strategy == strategy
    start = [one.state for one in plainly(factory, Recipe(steps=1, learning_rate=1e-30))]
    moved = max(
        float(np.abs(one.state[name] - was[name]).max()) for one, was in zip(plain, start, strict=True) for name in was
    )
    assert moved > 3e-3
    assert apart(fast, plain) < ROUNDING["adam" if "optimiser" in optimiser else "sgd"]


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("weight_decay", [0.0, 0.01])
def test_the_optimiser_is_torchs_to_the_bit(momentum, weight_decay):
    options = {"momentum": momentum, "weight_decay": weight_decay}
    modules = [sample_models.conv_net() for _ in range(2)]
    modules[1].load_state_dict(modules[0].state_dict())
    ours = optimiser(list(modules[0].parameters()), Recipe(steps=1, learning_rate=0.3, **options))
    theirs = torch.optim.SGD(modules[1].parameters(), lr=0.3, **options)
    for at in range(4):
        for module, optimise in zip(modules, (ours, theirs), strict=True):
            optimise.zero_grad()
            torch.nn.functional.cross_entropy(module(torch.from_numpy(X[at::4])), torch.from_numpy(Y[at::4])).backward()
            optimise.step()
    for mine, other in zip(*(module.parameters() for module in modules), strict=True):
        assert torch.equal(mine, other)


@pytest.mark.parametrize(("factory", "strategy"), [WAYS[0], WAYS[1], WAYS[5]])
@pytest.mark.parametrize("same", [True, False])
def test_full_batches_and_the_transcript(factory, strategy, same):
    members = np.tile(MEMBERS[:1], (3, 1)) if same else MEMBERS
    inside, outside = int(np.flatnonzero(MEMBERS.all(axis=0))[0]), int(np.flatnonzero(~MEMBERS.any(axis=0))[0])
    for neighbour in (Neighbour(removed=inside), Neighbour(removed=inside, added=outside), Neighbour(added=outside)):
        recipe = Recipe(steps=4, batch_size=None, dp=Privacy(0.7, 0.2), learning_rate=1.0)
        fast = train(factory, recipe, strategy, memberships=members, neighbour=neighbour)
        plain = train(factory, recipe, "sequential", memberships=members, neighbour=neighbour)
        assert apart(fast, plain) < 3e-6
        for a, b in zip(fast, plain, strict=True):
            assert a.transcript.distances == pytest.approx(b.transcript.distances, rel=1e-4)
            assert a.transcript.projections == pytest.approx(b.transcript.projections, rel=1e-4, abs=1e-6)
            assert (a.transcript.distances > 0).all()
            assert (a.transcript.distances <= 0.4 + 1e-6).all()  # two records, each clipped to 0.2


def test_log_odds_are_the_ratio_of_two_gaussians():
    """From the transcript, and from the gradients themselves in a training written out with NumPy."""
    x, y = X.reshape(60, -1).astype(float), Y
    neighbour, dp = Neighbour(removed=3, added=50), Privacy(0.9, 0.5)
    members = np.arange(60) < 40
    recipe = Recipe(steps=3, batch_size=None, dp=dp, learning_rate=2.0)
    one = train(_double_regression, recipe, "dense", memberships=members[None], seeds=[9], neighbour=neighbour)[0]

    from dosimeter.training.draws import Draws

    draws = Draws(9, recipe, np.flatnonzero(members))
    torch.manual_seed(draws.start)
    module = _double_regression()
    weights = np.column_stack([module[1].weight.detach().numpy(), module[1].bias.detach().numpy()])
    inputs, target, total = np.column_stack([x, np.ones(60)]), np.eye(3)[y], []
    others = members.copy()
    others[3], others[50] = False, True
    for _ in range(3):
        logits = inputs @ weights.T
        error = np.exp(logits - logits.max(1, keepdims=True))
        error = error / error.sum(1, keepdims=True) - target
        gradients = error[:, :, None] * inputs[:, None, :]
        gradients *= np.minimum(1, dp.clip / np.linalg.norm(gradients, axis=(1, 2)))[:, None, None]
        drawn = np.empty(weights.size)
        draws.noise(torch.from_numpy(drawn))
        noise = np.column_stack([drawn[: 3 * 64].reshape(3, 64), drawn[3 * 64 :]]) * dp.noise_multiplier * dp.clip
        seen = gradients[members].sum(0) + noise
        far, near = seen - gradients[others].sum(0), seen - gradients[members].sum(0)
        total.append(((far**2).sum() - (near**2).sum()) / (2 * (dp.noise_multiplier * dp.clip) ** 2))
        weights -= 2.0 / members.sum() * seen
    assert one.state["1.weight"] == pytest.approx(weights[:, :-1], abs=1e-9)
    assert one.transcript.deviations == pytest.approx(0.45)
    assert one.transcript.log_odds() == pytest.approx(one.transcript.log_odds(deviation=0.45))
    assert one.transcript.log_odds() == pytest.approx(np.cumsum(total), rel=1e-6)


def _double_regression():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 3)).double()


def _double_dense():
    return sample_models.dense_net().double()


@pytest.mark.parametrize("sampling", ["shuffled", "poisson"])
def test_double_precision_agrees_to_many_digits(sampling):
    recipe = Recipe(epochs=3, batch_size=16, sampling=sampling, dp=Privacy(0.5, 0.3), learning_rate=0.3, momentum=0.5)
    found = {way: train(_double_dense, recipe, way) for way in ("dense", "functional", "sequential")}
    assert apart(found["dense"], found["sequential"]) < 1e-13
    assert apart(found["functional"], found["sequential"]) < 1e-13


def _many_classes():
    return nn.Sequential(nn.Flatten(), nn.Linear(X[0].size, 300))


@pytest.mark.parametrize("last", [255, 256, 299])
def test_classes_beyond_a_byte(last):
    """Labels are kept as bytes where they fit."""
    labels = np.where(Y.max() == Y, last, Y)
    recipe = Recipe(epochs=2, batch_size=16, learning_rate=0.1)
    fast, plain = (train(_many_classes, recipe, way, data=(X, labels)) for way in ("dense", "sequential"))
    assert apart(fast, plain) < 3e-6


@pytest.mark.parametrize("columns", [1, 2])
def test_two_classes(columns):
    """One column of logits is class 1 against 0, and two columns are their own short cut."""

    def factory():
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 5), nn.Sigmoid(), nn.Linear(5, columns))

    recipe = Recipe(epochs=3, batch_size=16, learning_rate=0.3)
    labels = (Y > 0).astype(int)
    found = {
        way: train(factory, recipe, way, data=(X, labels), evaluate_on="data")
        for way in ("dense", "functional", "sequential")
    }
    for one in found.values():
        assert apart(one, found["sequential"]) < 1e-6
        guess = one[0].outputs[:, 0] > 0 if columns == 1 else one[0].outputs.argmax(1)
        assert one[0].accuracy == pytest.approx(np.mean(guess == labels))


@pytest.mark.parametrize("batching", ["parts", "full", "full and the same"])
@pytest.mark.parametrize("dp", [None, Privacy(0.0, 0.2), Privacy(0.7, 1.0)], ids=["plain", "clipped", "private"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("hidden", [0, 1, 2])
@pytest.mark.parametrize("columns", [1, 2])
def test_the_short_cut_of_two_classes(columns, hidden, bias, dp, batching):
    """The last layer alone or above others, its gradient, its clipping and the transcript of a neighbour."""

    def factory():
        sizes = [64, 7, 5][: hidden + 1]
        below = [part for a, b in pairwise(sizes) for part in (nn.Linear(a, b), nn.ReLU())]
        return nn.Sequential(nn.Flatten(), *below, nn.Linear(sizes[-1], columns, bias=bias)).double()

    recipe = Recipe(steps=4, batch_size=16 if batching == "parts" else None, dp=dp, learning_rate=0.5, momentum=0.5)
    inside, outside = int(np.flatnonzero(MEMBERS.all(axis=0))[0]), int(np.flatnonzero(~MEMBERS.any(axis=0))[0])
    given = {"data": (X.astype(np.float64), (Y > 0).astype(int))}
    given["memberships"] = np.tile(MEMBERS[:1], (3, 1)) if batching == "full and the same" else MEMBERS
    given["neighbour"] = Neighbour(removed=inside, added=outside) if dp else None
    fast, plain = (train(factory, recipe, way, **given) for way in ("dense", "sequential"))
    assert apart(fast, plain) < 1e-13
    for a, b in zip(fast, plain, strict=True) if dp else ():
        assert a.transcript.distances == pytest.approx(b.transcript.distances, rel=1e-9)
        assert a.transcript.projections == pytest.approx(b.transcript.projections, rel=1e-9, abs=1e-12)
        assert batching == "parts" or (a.transcript.distances > 0).all()


def _two_columns():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 5), nn.ReLU(), nn.Linear(5, 2))


@pytest.mark.parametrize("dp", [None, Privacy(1.0, 0.3)], ids=["plain", "private"])
@pytest.mark.parametrize("factory", [sample_models.viewed_net, sample_models.viewed_normed_net])
def test_a_view_after_a_convolution(factory, dp):
    """It takes no tensor whose channels lie last, neither in the training nor when the model is asked."""
    recipe = Recipe(epochs=1, batch_size=16, learning_rate=0.3, dp=dp)
    fast, plain = (train(factory, recipe, way, evaluate_on="data") for way in ("auto", "sequential"))
    assert apart(fast, plain) < 3e-6
    assert fast[0].outputs == pytest.approx(plain[0].outputs, abs=1e-5)


def test_batch_statistics_are_not_touched_by_the_choice_of_a_layout():
    def factory():
        return nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(108, 3))

    recipe = Recipe(epochs=1, batch_size=16, learning_rate=0.3)
    fast, plain = (train(factory, recipe, way, evaluate_on="data") for way in ("convolutional", "sequential"))
    assert apart(fast, plain) < 3e-6
    assert int(fast[0].state["1.num_batches_tracked"]) == int(plain[0].state["1.num_batches_tracked"]) == 2


@pytest.mark.parametrize("factory", [sample_models.dense_net, _two_columns])
def test_the_group_decides_rounding_alone(factory):
    """On some processors not even that: a product of several models may be summed in another order than that of one."""
    members, seeds = sample_models.halves(9, 60, sizes=[30] * 9), list(range(9))
    recipe = Recipe(epochs=2, batch_size=16, momentum=0.9, dp=Privacy(1.0, 0.3))
    found = [
        train(factory, recipe, "dense", data=(X, Y % 2), memberships=members, seeds=seeds, group=group)
        for group in (1, 4, 9)
    ]
    assert [one[0].plan.group for one in found] == [1, 4, 9]
    assert max(apart(found[0], found[1]), apart(found[0], found[2])) < 1e-7


@pytest.mark.parametrize("shown", ["factory", "lambda", "local class"])
def test_bits_do_not_depend_on_the_processes(shown):
    class Local(nn.Module):
        def __init__(self):
            super().__init__()
            self.inside = sample_models.dense_net()

        def forward(self, x):
            return self.inside(x)

    factory = {"factory": sample_models.dense_net, "lambda": lambda: sample_models.dense_net(), "local class": Local}[
        shown
    ]
    members, seeds = sample_models.halves(9, 60), list(range(9))
    recipe = Recipe(epochs=2, batch_size=16, sampling="poisson", dp=Privacy(1.0, 0.3))
    one, two = (
        train(factory, recipe, "auto", memberships=members, seeds=seeds, workers=processes) for processes in (1, 2)
    )
    assert [trained.index for trained in two] == list(range(9))
    assert one[0].plan.workers == 1
    assert two[0].plan.workers == 2
    assert apart(one, two) == 0


def test_what_cannot_travel_stays_in_this_process():
    lock = threading.Lock()

    def factory():
        with lock:
            return sample_models.dense_net()

    members, seeds = sample_models.halves(9, 60), list(range(9))
    found = train(factory, Recipe(epochs=1), "auto", memberships=members, seeds=seeds, workers=2)
    assert found[0].plan.workers == 1 and "cannot be sent to other processes" in found[0].plan.reason
    assert all(one.failed is None for one in found)


def test_a_worker_that_dies_is_reported():
    members, seeds = sample_models.halves(9, 60), list(range(9))
    found = train(sample_models.dying_net, Recipe(epochs=1), "auto", memberships=members, seeds=seeds, workers=2)
    assert len(found) == 9 and all("died with exit code" in one.failed for one in found)
    log = Path(found[0].failed.split("(see ")[1].rstrip(")"))
    assert "died" in log.read_text()
    log.unlink()


def test_one_model_that_fails_leaves_the_others_alone():
    members = np.ones((3, 60), bool)
    members[1:, 0] = False
    wild = X.copy()
    wild[0] = 3e38  # only the first model sees it
    recipe = Recipe(epochs=3, batch_size=16, learning_rate=0.1)
    for strategy in ("dense", "functional", "sequential"):
        first, second, third = train(
            sample_models.dense_net, recipe, strategy, data=(wild, Y), memberships=members, evaluate_on="data"
        )
        assert "seed 5" in first.failed
        assert first.state is None and first.outputs is None and first.accuracy is None
        calm = train(sample_models.dense_net, recipe, "sequential", memberships=members[1:], seeds=SEEDS[1:])
        assert second.failed is None and third.failed is None
        assert apart([second, third], calm) < 1e-6


def test_random_layers_go_through_the_loop_and_repeat():
    def factory():
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 3))

    recipe = Recipe(epochs=2, batch_size=16)
    first, second = train(factory, recipe, "auto"), train(factory, recipe, "auto")
    assert first[0].plan.strategy == "sequential" and "Dropout" in first[0].plan.reason
    assert apart(first, second) == 0


def test_what_is_asked_of_the_models():
    recipe = Recipe(epochs=2, batch_size=16)
    for one in train(Model(sample_models.conv_net, "conv", "2"), recipe, "auto", evaluate_on=(X[:20], Y[:20])):
        module = one.module(sample_models.conv_net)
        with torch.no_grad():
            logits = module(torch.from_numpy(X[:20])).numpy()
        assert one.outputs == pytest.approx(logits, abs=1e-5)
        assert one.accuracy == np.mean(logits.argmax(1) == Y[:20])
    silent = train(sample_models.conv_net, recipe, "auto", evaluate_on=X[:5], return_models=False)[0]
    assert silent.state is None and silent.accuracy is None and silent.outputs.shape == (5, 3)


def test_importing_does_not_import_torch():
    code = "import sys, dosimeter.training; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "False"
