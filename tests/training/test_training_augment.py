"""Augmentation: drawn from the model's seed, the same in every loop and on any number of workers."""

import numpy as np
import pytest
import sample_models

from dosimeter import InputError
from dosimeter.engine import Store
from dosimeter.training import Neighbour, Privacy, Recipe, train_many

torch = pytest.importorskip("torch", reason="the engine needs torch: dosimeter[torch]")

X, Y = sample_models.images(60)
MEMBERS = sample_models.halves(3, 60, sizes=[30, 33, 45])
SEEDS = [5, 6, 7]


def flipped(records, generator):
    """Some images as in a mirror."""
    coins = torch.rand(len(records), generator=generator) < 0.5
    return torch.where(coins.view(-1, *[1] * (records.ndim - 1)), records.flip(-1), records)


def brighter(records, generator):
    return records + 0.1 * torch.rand(len(records), 1, 1, 1, generator=generator)


def unchanged(records, generator):
    return records


def trained(recipe, factory=sample_models.dense_net, **options):
    given = {"return_models": True, "engine": "inline", **options}
    return list(train_many(factory, recipe, (X, Y), MEMBERS, SEEDS, **given))


def apart(some, others):
    pairs = zip(some, others, strict=True)
    return max(float(np.abs(a.state[name] - b.state[name]).max()) for a, b in pairs for name in a.state)


@pytest.mark.parametrize(
    "dp", [None, Privacy(1.0, 0.3), Privacy(1.0, 0.3, microbatches=4)], ids=["plain", "dp", "micro"]
)
@pytest.mark.parametrize("sampling", ["shuffled", "poisson"])
@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize(
    ("factory", "strategy"),
    [
        (sample_models.dense_net, "functional"),
        (sample_models.conv_net, "functional"),
        (sample_models.conv_net, "convolutional"),
    ],
)
def test_every_loop_sees_the_same_records(factory, strategy, accumulate, sampling, dp):
    if strategy == "convolutional" and dp is not None and dp.microbatches:
        strategy = "auto"
    recipe = Recipe(
        epochs=2, batch_size=16, sampling=sampling, dp=dp, augment=flipped, accumulate=accumulate, precision="float64"
    )
    fast, plain = (trained(recipe, factory, strategy=way) for way in (strategy, "sequential"))
    assert apart(fast, plain) < 1e-9
    without = Recipe(
        epochs=2, batch_size=16, sampling=sampling, dp=dp, augment=unchanged, accumulate=accumulate, precision="float64"
    )
    assert apart(plain, trained(without, factory, strategy="sequential")) > 1e-4


def test_batches_and_noise_are_those_without_it():
    recipe = {"epochs": 2, "batch_size": 16, "sampling": "poisson", "dp": Privacy(1.0)}
    with_it = trained(Recipe(augment=unchanged, **recipe), strategy="functional")
    assert apart(with_it, trained(Recipe(**recipe), strategy="functional")) < 1e-6


def test_dense_networks_fall_to_the_path_that_can():
    assert trained(Recipe(steps=2, augment=flipped))[0].plan.strategy == "functional"
    assert trained(Recipe(steps=2, augment=flipped), sample_models.conv_net)[0].plan.strategy == "convolutional"
    with pytest.raises(InputError, match="augments its records"):
        trained(Recipe(steps=2, augment=flipped), strategy="dense")


def test_one_worker_or_many():
    recipe = Recipe(epochs=1, batch_size=16, augment=flipped)
    alone = trained(recipe, group=1)
    many = trained(recipe, group=1, engine="local", workers=2)
    assert apart(alone, many) == 0


def test_with_dp_no_record_meets_another():
    """A function that mixes the records of a batch has nothing to mix."""
    sizes = set()

    def mixed(records, generator):
        sizes.add(len(records))
        return records.roll(1, 0)

    for dp in (Privacy(0.0), Privacy(0.0, microbatches=4)):
        recipe = {"steps": 3, "batch_size": 16, "dp": dp}
        sizes.clear()
        rolled = trained(Recipe(augment=mixed, **recipe))
        assert sizes == {1, 2}  # two in the trial before any training
        assert apart(rolled, trained(Recipe(**recipe), strategy="functional")) < 1e-6


def test_the_store_knows_the_function(tmp_path):
    store = Store(tmp_path)
    first = trained(Recipe(steps=2, augment=flipped), store=store)
    again = trained(Recipe(steps=2, augment=flipped), store=store)
    other = trained(Recipe(steps=2, augment=brighter), store=store)
    assert [one.cached for one in (first[0], again[0], other[0])] == [False, True, False]
    assert apart(first, again) == 0 and apart(first, other) > 0


@pytest.mark.parametrize(
    ("augment", "words"),
    [
        (
            lambda records, generator: records[:, :, :4],
            r"augment must return records of shape \(2, 1, 8, 8\).*got shape",
        ),
        (lambda records, generator: records.double(), "torch.float32, as it got them; got shape"),
        (lambda records, generator: records.numpy(), "augment must return records"),
        (lambda records: records, "augment raised TypeError"),
        (lambda records, generator: records / 0 + "x", "augment raised"),
    ],
    ids=["shape", "type", "array", "arguments", "raises"],
)
def test_refused_before_any_training(augment, words):
    with pytest.raises(InputError, match=words):
        trained(Recipe(steps=2, augment=augment))


def test_more_refusals():
    with pytest.raises(InputError, match="augment must be a function"):
        Recipe(steps=2, augment="flip")
    recipe = Recipe(steps=2, batch_size=16, dp=Privacy(1.0), augment=flipped)
    with pytest.raises(InputError, match="leave augment out"):
        trained(recipe, neighbour=Neighbour(removed=0))
