"""Micro-batches of DP-SGD: clipped means as TensorFlow Privacy has them, and the ε that holds with them."""

from dataclasses import replace

import numpy as np
import pytest
import sample_models

from dosimeter import InputError
from dosimeter.training import Dirac, Neighbour, Privacy, Recipe, train_many
from dosimeter.training.draws import Draws
from dosimeter.training.groups import started

torch = pytest.importorskip("torch", reason="the engine needs torch: dosimeter[torch]")

X, Y = sample_models.images(60)
MEMBERS = sample_models.halves(2, 60, sizes=[30, 45])


def slow(factory, recipe, rows, seed, labels=Y):
    """The definition, written out: cut, mean, clip, sum, noise, divide by the number of micro-batches."""
    draws = Draws(seed, recipe, rows)
    module = started(factory, draws.start, "float64")
    parameters = list(module.parameters())
    number, clip = recipe.dp.microbatches, recipe.dp.clip
    total, move = sum(p.numel() for p in parameters), 0.0
    for batch in draws.batches():
        slots = draws.slots(len(batch))
        summed = torch.zeros(total, dtype=torch.float64)
        for slot in range(number):
            chosen = batch[slots == slot]
            if not len(chosen):
                continue
            loss = torch.nn.functional.cross_entropy(
                module(torch.from_numpy(X[chosen]).double()), torch.from_numpy(labels[chosen])
            )
            mean = torch.cat([g.flatten() for g in torch.autograd.grad(loss, parameters)])
            summed += mean * min(1.0, clip / float(mean.norm()))
        noise = torch.empty(total, dtype=torch.float64)
        draws.noise(noise)
        move = (summed + recipe.dp.noise_multiplier * clip * noise) / number + recipe.momentum * move
        at = 0
        with torch.no_grad():
            for p in parameters:
                p -= recipe.learning_rate * move[at : at + p.numel()].view(p.shape)
                at += p.numel()
    return module.state_dict()


@pytest.mark.parametrize("number", [1, 4, 16])
@pytest.mark.parametrize(("sampling", "size"), [("shuffled", 16), ("poisson", 16), ("shuffled", 64)])
@pytest.mark.parametrize(
    ("factory", "strategy", "accumulate"),
    [
        (sample_models.dense_net, "dense", 1),  # it takes a batch as a whole
        (sample_models.two_logits, "dense", 1),
        *((sample_models.dense_net, "functional", parts) for parts in (1, 3)),
        *((sample_models.conv_net, "functional", parts) for parts in (1, 3)),
        *((sample_models.dense_net, "sequential", parts) for parts in (1, 3)),
    ],
)
def test_as_the_definition(factory, strategy, sampling, size, number, accumulate):
    dp = Privacy(0.5, 0.3, microbatches=number)
    recipe = Recipe(
        epochs=2,
        batch_size=size,
        sampling=sampling,
        dp=dp,
        learning_rate=0.5,
        momentum=0.5,
        precision="float64",
        accumulate=accumulate,
    )
    y = np.minimum(Y, 1) if factory is sample_models.two_logits else Y
    found = train_many(factory, recipe, (X, y), MEMBERS, [3, 4], strategy=strategy, engine="inline", return_models=True)
    for one, row in zip(found, MEMBERS, strict=True):
        wanted = slow(factory, recipe, np.flatnonzero(row), one.seed, y)
        for name, value in wanted.items():
            assert one.state[name] == pytest.approx(value.numpy(), rel=1e-7, abs=1e-9)


def test_the_path_that_can_is_taken():
    recipe = Recipe(steps=2, batch_size=16, dp=Privacy(1.0, microbatches=4))
    for factory, strategy in ((sample_models.dense_net, "dense"), (sample_models.conv_net, "functional")):
        one = next(iter(train_many(factory, recipe, (X, Y), MEMBERS, [3, 4], engine="inline")))
        assert one.plan.strategy == strategy and one.failed is None
    parts = replace(recipe, accumulate=2)
    with pytest.raises(InputError, match=r"dense.*clips micro-batches and adds up parts"):
        list(train_many(sample_models.dense_net, parts, (X, Y), MEMBERS, [3, 4], strategy="dense"))


def test_one_record_changes_one_clipped_mean():
    """In Poisson and full batches the others keep their micro-batch, whoever is there."""
    for sampling, size in (("poisson", 16), ("shuffled", 64)):
        recipe = Recipe(steps=30, batch_size=size, sampling=sampling, dp=Privacy(1.0, microbatches=4))
        draws = Draws(0, recipe, np.arange(60))
        slots = np.concatenate([draws.slots(len(batch)) for batch in draws.batches()])
        assert np.bincount(slots, minlength=4) / slots.size == pytest.approx([0.25] * 4, abs=0.06)
    fixed = Draws(0, Recipe(epochs=1, batch_size=16, dp=Privacy(1.0, microbatches=4)), np.arange(60))
    assert [np.bincount(fixed.slots(len(batch))).tolist() for batch in fixed.batches()] == [[4] * 4] * 3 + [[4] * 3]


def test_the_guarantee_is_that_of_twice_the_sensitivity():
    recipe = Recipe(epochs=2, batch_size=32, sampling="poisson", dp=Privacy(2.0, microbatches=8))
    alone = Recipe(epochs=2, batch_size=32, sampling="poisson", dp=Privacy(1.0))
    assert recipe.mechanism(1000) == alone.mechanism(1000)
    assert Privacy(2.0).reach == 1 and Privacy(2.0, microbatches=1).reach == 2


def _slope():
    layer = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.zeros_(layer.weight)
    return layer


def test_a_record_does_move_the_sum_by_twice_the_clip():
    """The worst case is real: an accountant that took the noise as it stands would promise too much.

    Thirty records pull the weight up with a clipped mean of C, and one strong record turns it to −C.
    """
    x = np.r_[np.full(30, 1.0), -1000.0].astype(np.float32)[:, None]
    members = np.ones((2, 31), bool)
    members[1, 30] = False
    options = {"engine": "inline", "return_models": True}
    moved = {}
    for number in (None, 1):
        dp = Privacy(0.0, 0.01, microbatches=number)
        recipe = Recipe(steps=1, batch_size=32, learning_rate=1.0, dp=dp)
        found = train_many(_slope, recipe, (x, np.zeros(31, np.int64)), members, [0, 0], **options)
        sums = [one.state["weight"].item() * (number or 31 - one.index) for one in found]
        moved[number] = abs(sums[0] - sums[1]) / 0.01
    assert moved[1] == pytest.approx(2 * 1.0, rel=1e-5)
    assert moved[None] == pytest.approx(1.0, rel=1e-5)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (
            {"batch_size": 30, "dp": Privacy(1.0, microbatches=4)},
            "microbatches=4 must divide batch_size, got batch_size=30",
        ),
        ({"batch_size": None, "dp": Privacy(1.0, microbatches=4)}, "must divide batch_size, got batch_size=None"),
        ({"dp": Privacy(1.0, microbatches=4), "canaries": Dirac((0,), (True,))}, "canaries are gradients of single"),
    ],
)
def test_refusals(values, words):
    with pytest.raises(InputError, match=words):
        Recipe(epochs=1, **values)


def test_more_refusals():
    with pytest.raises(InputError, match=r"microbatches"):
        Privacy(1.0, microbatches=0)
    with pytest.raises(InputError, match=r"leave microbatches out"):
        Privacy(1.0, sensitivity="local", microbatches=2)
    recipe = Recipe(steps=2, batch_size=16, dp=Privacy(1.0, microbatches=4))
    with pytest.raises(InputError, match=r"leave microbatches out"):
        list(train_many(sample_models.dense_net, recipe, (X, Y), MEMBERS, [3, 4], neighbour=Neighbour(removed=0)))
