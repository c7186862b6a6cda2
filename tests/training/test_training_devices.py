"""Devices and precisions: what is missing is refused first, and every tensor is made where the models are.

There is no GPU here. Torch's meta device takes the place of one.
"""

import numpy as np
import pytest
import sample_models

from dosimeter import InputError, RunOptions, audit_training
from dosimeter.training import Neighbour, Privacy, Recipe, asking, train_many
from dosimeter.training.draws import Draws
from dosimeter.training.groups import started, train

torch = pytest.importorskip("torch", reason="the engine needs torch: dosimeter[torch]")
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402

X, Y = sample_models.images(60)
MEMBERS = sample_models.halves(3, 60, sizes=[30, 33, 45])
WAYS = [
    (sample_models.dense_net, "dense"),
    (sample_models.softmax_regression, "dense"),
    (sample_models.dense_net, "functional"),
    (sample_models.conv_net, "functional"),
    (sample_models.conv_net, "convolutional"),
    (sample_models.viewed_net, "convolutional"),
    (sample_models.dense_net, "sequential"),
]


def two_classes():
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 5), torch.nn.ReLU(), torch.nn.Linear(5, 2))


def flipped(records, generator):
    coins = torch.rand(len(records), generator=generator, device=records.device) < 0.5
    return torch.where(coins.view(-1, *[1] * (records.ndim - 1)), records.flip(-1), records)


class OneDevice(TorchDispatchMode):
    """Fails when an operation takes tensors of two devices, as it would on a GPU.

    Allowed are numbers (tensors of no dimension), copies from one device to the other, and rows that are named on the
    CPU. Operations on meta tensors check this themselves, but not all of them.
    """

    BETWEEN = ("_to_copy", "copy_", "index.Tensor", "index_put_", "lift_fresh")

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        given = [one for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor) and one.ndim]
        if len({one.device.type for one in given}) > 1 and not any(name in str(function) for name in self.BETWEEN):
            raise RuntimeError(f"{function} takes tensors of two devices")
        return function(*args, **(kwargs or {}))


def without_numbers(monkeypatch, factory, strategy, recipe):
    """Train on torch's meta device, whose tensors have a place and a shape and no numbers."""
    from dosimeter.training import dense, devices, draws, sequential

    # What meta tensors cannot do: draw, be compared, be mixed in precision, and take the fused step of Adam.
    autocast = torch.autocast
    monkeypatch.setattr(draws, "generator", lambda device, seed: None)
    monkeypatch.setattr(sequential, "seeded", lambda seed, device: devices.seeded(seed))
    monkeypatch.setattr(torch, "allclose", lambda *given, **options: True)
    monkeypatch.setattr(torch, "autocast", lambda kind, **options: autocast("cpu", **options))
    adaptive = dense.adaptive
    monkeypatch.setattr(
        dense, "adaptive", lambda recipe: lambda *given, fused, **more: adaptive(recipe)(*given, **more)
    )
    modules = [started(factory, at, recipe.precision).to("meta") for at in range(3)]
    kind = next(modules[0].parameters()).dtype
    x = torch.empty(X.shape, device="meta", dtype=kind)
    y = torch.zeros(len(Y), dtype=torch.int64, device="meta")
    drawn = [Draws(at, recipe, np.flatnonzero(row)) for at, row in enumerate(MEMBERS)]
    with OneDevice():
        train(strategy, modules, recipe, (x, y), drawn, None)
    assert {parameter.device.type for module in modules for parameter in module.parameters()} == {"meta"}


def named(value):
    """The name of a factory or a strategy: every process must call a test the same."""
    return getattr(value, "__name__", str(value))


@pytest.mark.parametrize("dp", [None, Privacy(1.0, 0.3)], ids=["plain", "private"])
@pytest.mark.parametrize("sampling", ["shuffled", "poisson"])
@pytest.mark.parametrize("options", [{}, {"optimiser": "adamw", "schedule": "cosine"}, {"accumulate": 2}], ids=str)
@pytest.mark.parametrize(("factory", "strategy"), [*WAYS, (two_classes, "dense")], ids=named)
def test_every_loop_stays_on_the_device(monkeypatch, factory, strategy, options, sampling, dp):
    recipe = Recipe(steps=2, batch_size=4, sampling=sampling, dp=dp, **options)
    without_numbers(monkeypatch, factory, strategy, recipe)


@pytest.mark.parametrize(
    "recipe",
    [
        Recipe(steps=2, batch_size=4, dp=Privacy(1.0, 0.3, microbatches=4)),
        Recipe(steps=2, batch_size=4, sampling="poisson", dp=Privacy(1.0, 0.3, microbatches=4)),
        Recipe(steps=2, batch_size=4, augment=flipped),
        Recipe(steps=2, batch_size=4, augment=flipped, dp=Privacy(1.0)),
        Recipe(steps=2, batch_size=4, precision="bf16"),
        Recipe(steps=2, batch_size=4, precision="bf16", dp=Privacy(1.0)),
        Recipe(steps=2, batch_size=4, precision="float64"),
    ],
    ids=["micro", "micro-poisson", "augment", "augment-private", "bf16", "bf16-private", "float64"],
)
def test_so_do_the_other_options(monkeypatch, recipe):
    without_numbers(monkeypatch, sample_models.dense_net, "functional", recipe)
    if recipe.dp is None or recipe.dp.microbatches is None:
        without_numbers(monkeypatch, sample_models.conv_net, "convolutional", recipe)
        without_numbers(monkeypatch, sample_models.dense_net, "sequential", recipe)


def test_a_tensor_in_the_wrong_place_is_found(monkeypatch):
    """The check itself: noise that is made on the CPU fails."""
    from dosimeter.training import steps

    monkeypatch.setattr(steps.Private, "_noise", lambda self, sums: [torch.zeros(total.shape) for total in sums])
    recipe = Recipe(steps=3, batch_size=16, dp=Privacy(1.0))
    with pytest.raises(RuntimeError, match=r"two devices|expected device"):
        without_numbers(monkeypatch, sample_models.conv_net, "convolutional", recipe)


@pytest.mark.parametrize("name", ["cuda", "cuda:1", "mps", "xpu"])
def test_without_a_gpu_one_sentence_before_any_work(name):
    if getattr(torch, name.partition(":")[0]).is_available():
        pytest.skip("this machine has one")
    called = []

    def factory():
        called.append(1)
        return sample_models.dense_net()

    with pytest.raises(InputError, match=rf"device='{name}' asks for a GPU, and torch .* finds none"):
        train_many(factory, Recipe(steps=3, device=name), (X, Y), MEMBERS, [1, 2, 3])
    with pytest.raises(InputError, match=rf"device='{name}' asks for a GPU"):
        audit_training(factory, (X, Y), recipe=Recipe(steps=3), shadows=8, runs=64, run=RunOptions(device=name))
    assert not called


@pytest.mark.parametrize("name", ["abacus", "cuda:x", "cuda:", "meta", 3, ""])
def test_unknown_devices(name):
    with pytest.raises(InputError, match=r"device must be one of cpu, cuda, mps, xpu"):
        Recipe(steps=3, device=name)


def test_two_devices_contradict_each_other():
    run = RunOptions(device="cpu", engine="inline", progress=False)
    with pytest.raises(InputError, match=r"recipe has device='cuda' and run has device='cpu'"):
        audit_training(
            sample_models.dense_net, (X, Y), recipe=Recipe(steps=3, device="cuda"), shadows=8, runs=64, run=run
        )


def test_a_count_of_devices_is_kept(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    from dosimeter.training.asking import require_device

    require_device("cuda:1")
    with pytest.raises(InputError, match=r"cuda:2.*this machine has 2"):
        require_device("cuda:2")


def test_the_cpu_by_name_is_the_cpu(tmp_path):
    from dosimeter.engine import Store

    options = {"engine": "inline", "store": Store(tmp_path), "evaluate_on": "data"}
    plain = list(train_many(sample_models.dense_net, Recipe(steps=3), (X, Y), MEMBERS, [1, 2, 3], **options))
    named = list(
        train_many(sample_models.dense_net, Recipe(steps=3, device="cpu"), (X, Y), MEMBERS, [1, 2, 3], **options)
    )
    assert all(one.cached for one in named)
    assert all(np.array_equal(a.outputs, b.outputs) for a, b in zip(plain, named, strict=True))


@pytest.mark.parametrize("dp", [None, Privacy(0.0, 0.3)], ids=["plain", "clipped"])
@pytest.mark.parametrize(("factory", "strategy"), [WAYS[2], WAYS[3], WAYS[4], WAYS[6]], ids=named)
def test_mixed_precision_is_near_single(factory, strategy, dp):
    options = {"strategy": strategy, "engine": "inline", "return_models": True}
    recipe = {"steps": 6, "batch_size": 16, "learning_rate": 0.1, "dp": dp}
    single = list(train_many(factory, Recipe(**recipe), (X, Y), MEMBERS, [1, 2, 3], **options))
    mixed = list(train_many(factory, Recipe(precision="bf16", **recipe), (X, Y), MEMBERS, [1, 2, 3], **options))
    apart = [abs(a.state[n] - b.state[n]).max() for a, b in zip(single, mixed, strict=True) for n in a.state]
    assert 0 < max(apart) < 0.02
    assert all(value.dtype == np.float32 for one in mixed for value in one.state.values())


@pytest.mark.parametrize(("factory", "strategy"), [WAYS[3], WAYS[4], WAYS[6]], ids=named)
def test_mixed_precision_keeps_the_clipping_norm(factory, strategy):
    """One record a batch: the step is its clipped gradient, of norm `clip` and not a rounded one."""
    recipe = Recipe(steps=1, batch_size=1, learning_rate=1.0, precision="bf16", dp=Privacy(0.0, 1e-3))
    members = np.zeros((3, 60), bool)
    members[range(3), range(3)] = True
    options = {"strategy": strategy, "engine": "inline", "return_models": True}
    moved = list(train_many(factory, recipe, (X, Y), members, [1, 2, 3], **options))
    for one, start in zip(moved, (1, 2, 3), strict=True):
        was = started(factory, Draws(start, recipe, np.arange(1)).start).state_dict()
        square = sum(((one.state[name].astype(float) - was[name].double().numpy()) ** 2).sum() for name in was)
        assert np.sqrt(square) <= 1e-3 * (1 + 1e-3)  # single precision of weights near 1, not the 2⁻⁸ of bfloat16


def test_a_processor_that_stops_bfloat16_is_noticed_before_any_training(monkeypatch):
    monkeypatch.setattr(asking, "_TRIAL", "import os, signal; os.kill(os.getpid(), signal.SIGILL)")
    asking._has_bfloat16.cache_clear()
    with pytest.raises(InputError, match=r"bf16.*ONEDNN_MAX_CPU_ISA"):
        train_many(sample_models.dense_net, Recipe(steps=2, precision="bf16"), (X, Y), MEMBERS, [1, 2, 3])
    asking._has_bfloat16.cache_clear()


def test_mixed_precision_falls_to_a_path_that_can():
    one = next(iter(train_many(sample_models.dense_net, Recipe(steps=2, precision="bf16"), (X, Y), MEMBERS, [1, 2, 3])))
    assert one.plan.strategy == "functional" and "two precisions" in one.plan.reason
    recipe = Recipe(steps=2, precision="bf16", dp=Privacy(1.0))
    with pytest.raises(InputError, match=r"dense.*two precisions"):
        train_many(sample_models.dense_net, recipe, (X, Y), MEMBERS, [1, 2, 3], strategy="dense")
    with pytest.raises(InputError, match=r"precision must be one of"):
        Recipe(steps=2, precision="fp8")


def test_double_precision_is_that_of_the_module():
    found = next(
        iter(
            train_many(
                two_classes, Recipe(steps=3, precision="float64"), (X, Y % 2), MEMBERS, [1, 2, 3], return_models=True
            )
        )
    )
    assert {value.dtype for value in found.state.values()} == {np.dtype(np.float64)}


def test_a_neighbour_on_a_device(monkeypatch):
    """The transcript leaves the GPU as numbers: fake tensors have none, so here the CPU must do."""
    recipe = Recipe(steps=3, batch_size=None, dp=Privacy(1.0), device="cpu")
    neighbour = Neighbour(removed=int(np.flatnonzero(MEMBERS.all(axis=0))[0]))
    for strategy in ("dense", "functional", "sequential"):
        one = next(
            iter(
                train_many(
                    sample_models.dense_net, recipe, (X, Y), MEMBERS, [1, 2, 3], neighbour=neighbour, strategy=strategy
                )
            )
        )
        assert (one.transcript.distances > 0).all()
