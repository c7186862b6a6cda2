"""Dirac canaries: what every path observes of them is what the weights did, and they are drawn as records are."""

import json
from dataclasses import replace

import numpy as np
import pytest
import sample_models
from test_training_transcripts import BATCHES, IN, WAYS, D, X, Y, recipe, run

from dosimeter import InputError
from dosimeter.training import Neighbour, Privacy, Recipe
from dosimeter.training.draws import Draws
from dosimeter.training.recipe import Dirac


def flat(module):
    return np.concatenate([p.detach().numpy().ravel() for p in module.parameters()])


def canaries(factory, count=12, seed=1, subtract=True):
    pytest.importorskip("torch", reason="the engine needs torch: dosimeter[torch]")
    drawn = Dirac.draw(count, parameters=sum(p.numel() for p in factory().parameters()), seed=seed)
    return replace(drawn, subtract=subtract)


@pytest.mark.parametrize("batching", BATCHES)
@pytest.mark.parametrize(("factory", "strategy"), WAYS, ids=lambda way: getattr(way, "__name__", way))
def test_observations_are_what_the_weights_did(factory, strategy, batching):
    """Plain SGD moves the weights by learning rate / divisor times the sum of the noisy sums."""
    torch = pytest.importorskip("torch", reason="the engine needs torch: dosimeter[torch]")
    dirac = canaries(factory, subtract=False)
    how = recipe(batching, "global", canaries=dirac)
    members = [D, np.arange(25)]
    modules, transcripts = run(strategy, factory, how, members, [3, 4], None)
    for seed, rows, module, transcript in zip([3, 4], members, modules, transcripts, strict=True):
        torch.manual_seed(Draws(seed, how, rows).start)
        moved = flat(factory().double()) - flat(module)
        divisor = how.batch_size or len(rows)
        expected = moved[list(dirac.coordinates)] * divisor / how.learning_rate
        assert transcript.canaries == pytest.approx(expected, abs=1e-10)
        assert transcript.deviations == pytest.approx(0.14) and not transcript.distances.any()


@pytest.mark.parametrize("batching", ["full", "shuffled"])
@pytest.mark.parametrize(("factory", "strategy"), WAYS, ids=lambda way: getattr(way, "__name__", way))
def test_who_knows_the_records_sees_noise_and_canaries_alone(factory, strategy, batching):
    """Other records, momentum and weight decay change nothing in what is left: the noise and the canaries' visits."""
    dirac, more = canaries(factory), {"momentum": 0.9, "weight_decay": 0.1}
    how = recipe(batching, "global", canaries=dirac, **more)
    _, (seen,) = run(strategy, factory, how, [D], [3], None)
    _, (other,) = run(strategy, factory, how, [D], [3], None, (X[::-1].copy(), Y[::-1].copy()))
    assert seen.canaries == pytest.approx(other.canaries, abs=1e-9)
    _, (out,) = run(strategy, factory, replace(how, canaries=replace(dirac, included=(False,) * 12)), [D], [3], None)
    gap = seen.canaries - out.canaries
    inside = np.array(dirac.included)
    assert gap[~inside] == pytest.approx(0.0, abs=1e-9)
    assert gap[inside] == pytest.approx(0.2 * np.round(gap[inside] / 0.2), abs=1e-9) and (gap[inside] > 0.1).all()


@pytest.mark.parametrize(("factory", "strategy"), WAYS, ids=lambda way: getattr(way, "__name__", way))
def test_poisson_batches_give_likelihood_ratios(factory, strategy):
    """One step: the score is ln(1 − q + q·exp((2x − 1)/2σ²)) of what stands at the coordinate, in units of clip."""
    dirac = canaries(factory)
    how = recipe("poisson", "global", canaries=dirac, steps=1)
    _, (seen,) = run(strategy, factory, how, [D], [3], None)
    _, (sums,) = run(strategy, factory, replace(how, dp=replace(how.dp, noise_multiplier=0.0)), [D], [3], None)
    drawn = Draws(3, how, D)
    noise = np.empty(sum(p.numel() for p in factory().parameters()))
    torch = pytest.importorskip("torch", reason="the engine needs torch: dosimeter[torch]")
    drawn.noise(torch.from_numpy(noise))
    x = sums.canaries / 0.2 + 0.7 * noise[list(dirac.coordinates)]  # without noise the sums are the visits alone
    rate = 8 / 30
    assert seen.canaries == pytest.approx(np.log(1 - rate + rate * np.exp((2 * x - 1) / (2 * 0.7**2))), abs=1e-9)


@pytest.mark.parametrize("more", [{"momentum": 0.9, "weight_decay": 0.1}, {"optimiser": "adam", "weight_decay": 0.1}])
@pytest.mark.parametrize("batching", BATCHES)
@pytest.mark.parametrize(("factory", "strategy"), WAYS[:4], ids=lambda way: getattr(way, "__name__", way))
def test_as_the_plain_loop(factory, strategy, batching, more):
    neighbour = Neighbour(removed=IN)
    how = recipe(batching, "global", canaries=canaries(factory), **{"learning_rate": 0.05, **more})
    found = [run(way, factory, how, [D, np.arange(25)], [3, 4], neighbour) for way in (strategy, "sequential")]
    for one, other in zip(*[modules for modules, _ in found], strict=True):
        assert flat(one) == pytest.approx(flat(other), abs=1e-9)
    for one, other in zip(*[transcripts for _, transcripts in found], strict=True):
        assert one.canaries == pytest.approx(other.canaries, abs=1e-9)
        assert one.distances == pytest.approx(other.distances, abs=1e-9)


def test_only_what_is_included_moves():
    """Without gradients of records and without noise each observation is clip times the batches it was in."""

    def factory():
        import torch

        return torch.nn.Linear(64, 3, bias=False)

    blank, labels = np.zeros((40, 64)), np.zeros(40, int)
    dirac = canaries(factory, count=100)
    for batching, visits in (("full", (12, 12)), ("shuffled", (3, 3)), ("poisson", (0, 10))):
        how = recipe(batching, "global", noise=0.0, canaries=dirac, steps=12)
        _, transcripts = run("dense", factory, how, [D, D], [5, 6], None, (blank, labels))
        for seen in transcripts:
            counts = seen.canaries / 0.2
            assert counts == pytest.approx(np.round(counts))
            inside = counts[np.array(dirac.included)]
            assert not counts[~np.array(dirac.included)].any()
            assert visits[0] - 0.5 < inside.min() and inside.max() < visits[1] + 0.5
        if batching == "poisson":
            assert not np.allclose(transcripts[0].canaries, transcripts[1].canaries)


def test_poisson_coins():
    how = Recipe(steps=20_000, batch_size=10, sampling="poisson", dp=Privacy(1.0), canaries=Dirac((0, 1, 2), (1, 1, 0)))
    found = np.array(list(Draws(1, how, np.arange(50)).canaries()))
    assert found.shape == (20_000, 3) and not found[:, 2].any()
    error = np.sqrt(0.2 * 0.8 / 20_000)
    assert np.abs(found[:, :2].mean(axis=0) - 0.2).max() < 4.5 * error
    assert (found[:, 0] & found[:, 1]).mean() == pytest.approx(0.04, abs=4.5 * np.sqrt(0.04 * 0.96 / 20_000))


def test_a_recipe_without_canaries_draws_the_same():
    with_them = recipe("poisson", "global", canaries=Dirac((0, 1), (1, 0)))
    for one, other in zip(
        Draws(1, with_them, D).batches(), Draws(1, recipe("poisson", "global"), D).batches(), strict=True
    ):
        assert (one == other).all()


def test_scores_tell_members_from_others():
    """400 canaries in one training: the mean gap is clip · steps."""
    factory = sample_models.dense_net
    dirac = canaries(factory, count=400)
    _, (seen,) = run("dense", factory, recipe("full", "global", canaries=dirac, steps=30), [D], [1], None)
    inside = np.array(dirac.included)
    gap = seen.canaries[inside].mean() - seen.canaries[~inside].mean()
    error = np.std(seen.canaries[~inside]) * np.sqrt(4 / 400)
    assert gap == pytest.approx(0.2 * 30, abs=4 * error)
    assert 150 < inside.sum() < 250


def test_values_and_refusals():
    dirac = Dirac.draw(5, parameters=100, seed=2)
    assert dirac == Dirac.draw(5, parameters=100, seed=2) != Dirac.draw(5, parameters=100, seed=3)
    how = Recipe(epochs=1, dp=Privacy(1.0), canaries=dirac)
    assert Recipe.from_dict(json.loads(json.dumps(how.to_dict()))) == how
    for places, bits, match in (
        ((1, 1), (0, 1), "twice"),
        ((1, 2), (0,), "included has 1"),
        ((1, 2), (0, 2), r"included\[1\]"),
        ((1, -2), (0, 1), "coordinates"),
        ((1, 2.5), (0, 1), "coordinates"),
        ((), (), "coordinates"),
    ):
        with pytest.raises(InputError, match=match):
            Dirac(places, bits)
    with pytest.raises(InputError, match="subtract"):
        Dirac((1, 2), (0, 1), subtract="yes")
    with pytest.raises(InputError, match="count"):
        Dirac.draw(5, parameters=4, seed=0)
    with pytest.raises(InputError, match="dp"):
        Recipe(epochs=1, canaries=dirac)
    with pytest.raises(InputError, match="Dirac"):
        Recipe(epochs=1, dp=Privacy(1.0), canaries=[1])
    for strategy in ("dense", "functional", "sequential"):
        with pytest.raises(InputError, match="coordinate 9999"):
            far = recipe("full", "global", canaries=Dirac((9999,), (True,)))
            run(strategy, sample_models.dense_net, far, [D], [1], None)
