"""Recipes, draws and refusals."""

import dataclasses
import json
import re

import numpy as np
import pytest
import sample_models
from hypothesis import given, settings
from hypothesis import strategies as st

from dosimeter import InputError
from dosimeter.accounting import DpSgd, Sampling
from dosimeter.training import Model, Neighbour, Privacy, Recipe, train_many
from dosimeter.training.draws import Draws, blocks


def test_plain_values_there_and_back():
    recipe = Recipe(optimiser="adam", epochs=3, batch_size=64, sampling="poisson", dp=Privacy(1.1, 0.5))
    assert Recipe.from_dict(json.loads(json.dumps(recipe.to_dict()))) == recipe
    plain = Recipe(steps=7.0, batch_size=None)
    assert Recipe.from_dict(json.loads(json.dumps(plain.to_dict()))) == plain
    assert plain.steps == 7 and isinstance(plain.steps, int)
    assert Model(dict, "mlp").to_dict() == {"name": "mlp", "version": "1"}
    with pytest.raises(dataclasses.FrozenInstanceError):
        recipe.epochs = 4


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ({}, "exactly one of epochs and steps"),
        ({"epochs": 1, "steps": 1}, "exactly one of epochs and steps"),
        ({"epochs": 0}, "epochs"),
        ({"steps": 2.5}, "steps"),
        ({"epochs": 1, "batch_size": 0}, "batch_size"),
        ({"epochs": 1, "learning_rate": 0}, "learning_rate"),
        ({"epochs": 1, "learning_rate": float("nan")}, "learning_rate"),
        ({"epochs": 1, "momentum": 1}, "momentum"),
        ({"epochs": 1, "optimiser": "adam", "momentum": 0.9}, "momentum"),
        ({"epochs": 1, "weight_decay": -1}, "weight_decay"),
        ({"epochs": 1, "optimiser": "lbfgs"}, "optimiser"),
        ({"epochs": 1, "sampling": "uniform"}, "sampling"),
        ({"epochs": 1, "loss": "hinge"}, "loss"),
        ({"epochs": 1, "dp": 1.1}, "Privacy"),
    ],
)
def test_refusals_name_the_argument(values, names):
    with pytest.raises(InputError, match=names):
        Recipe(**values)


@pytest.mark.parametrize("values", [(-1,), (float("inf"),), (1, 0), (1, float("inf"))])
def test_privacy_refusals(values):
    with pytest.raises(InputError, match=r"noise_multiplier|clip"):
        Privacy(*values)


def test_the_mechanism_that_is_accounted_for():
    dp = Privacy(1.1)
    poisson = Recipe(epochs=5, batch_size=256, sampling="poisson", dp=dp).mechanism(10_000)
    assert poisson == DpSgd(1.1, 0.0256, 200)
    shuffled = Recipe(epochs=5, batch_size=256, dp=dp).mechanism(10_000)
    assert shuffled.sampling is Sampling.SHUFFLED and shuffled.visits == 5 and shuffled.steps == 200
    full = Recipe(steps=30, batch_size=None, dp=dp).mechanism(1000)
    assert full.sample_rate == 1 and full.steps == 30
    for recipe in (Recipe(epochs=1), Recipe(epochs=1, dp=Privacy(0.0))):
        with pytest.raises(InputError, match="no guarantee"):
            recipe.mechanism(100)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 300), st.integers(1, 40), st.integers(1, 4), st.integers(0, 2**40))
def test_shuffled_passes_use_every_member_once(count, size, epochs, seed):
    recipe = Recipe(epochs=epochs, batch_size=size, dp=Privacy(1.0))
    members = np.arange(count) * 3
    batches = list(Draws(seed, recipe, members).batches())
    assert len(batches) == recipe.length(count) == epochs * -(-count // min(size, count))
    used = np.concatenate(batches)
    assert (np.unique(used, return_counts=True)[1] == epochs).all()
    assert recipe.mechanism(count).visits == epochs
    for one, other in zip(batches, Draws(seed, recipe, members).batches(), strict=True):
        assert (one == other).all()


def test_poisson_batches_are_one_coin_a_record():
    """20 000 batches of 50 records at rate 0.2: binomial sizes, records and pairs as often as they should be."""
    count, rate, steps = 50, 0.2, 20_000
    recipe = Recipe(steps=steps, batch_size=10, sampling="poisson")
    inside = np.zeros((steps, count), bool)
    for row, batch in zip(inside, Draws(1, recipe, np.arange(count)).batches(), strict=True):
        assert np.unique(batch).size == batch.size
        row[batch] = True
    error = np.sqrt(rate * (1 - rate) / steps)
    assert np.abs(inside.mean(axis=0) - rate).max() < 4.5 * error
    assert inside.sum(axis=1).var() == pytest.approx(count * rate * (1 - rate), rel=0.05)
    pairs = (inside[:, :-1] & inside[:, 1:]).mean(axis=0)
    assert np.abs(pairs - rate**2).max() < 4.5 * np.sqrt(rate**2 * (1 - rate**2) / steps)


def test_streams_of_a_seed_do_not_disturb_each_other():
    torch = pytest.importorskip("torch", reason="the noise is drawn by torch: dosimeter[torch]")
    members = np.arange(20)
    noisy, quiet = (Draws(3, Recipe(epochs=2, batch_size=8), members) for _ in range(2))
    drawn = torch.empty(1000)
    noisy.noise(drawn)
    assert abs(float(drawn.mean())) < 0.15 and float(drawn.std()) == pytest.approx(1, abs=0.1)
    for one, other in zip(noisy.batches(), quiet.batches(), strict=True):
        assert (one == other).all()
    assert Draws(3, Recipe(steps=1), members).start != Draws(4, Recipe(steps=1), members).start


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(1, 90), min_size=1, max_size=5), st.sampled_from(["shuffled", "poisson"]), st.integers(1, 8)
)
def test_blocks_are_the_batches_side_by_side(counts, sampling, align):
    recipe = Recipe(epochs=2, batch_size=16, sampling=sampling)
    members = [np.arange(count) + 5 for count in counts]
    streams = [list(Draws(7, recipe, rows).batches()) for rows in members]
    step = 0
    for rows, sizes in blocks([Draws(7, recipe, one) for one in members], align):
        for row, size in zip(rows, sizes, strict=True):
            assert row.shape[1] % align == 0
            for model, stream in enumerate(streams):
                batch = stream[step] if step < len(stream) else np.empty(0, int)
                assert (row[model, : size[model]] == batch).all() and size[model] == len(batch)
                assert (row[model, size[model] :] == 5).all()  # the first member
            step += 1
    assert step == max(map(len, streams))


def test_neighbours():
    rows, signs = Neighbour(removed=3, added=9).rows_and_signs()
    assert rows.tolist() == [3, 9] and signs.tolist() == [1, -1]
    with pytest.raises(InputError, match="both None"):
        Neighbour()
    with pytest.raises(InputError, match="added"):
        Neighbour(added=-1)


class TestRefusals:
    X, Y = sample_models.images(20)
    ALL = np.ones((2, 20), bool)

    def refuse(self, match, recipe=None, factory=sample_models.dense_net, **changes):
        pytest.importorskip("torch", reason="the engine needs torch: dosimeter[torch]")
        given = {"data": (self.X, self.Y), "memberships": self.ALL, "seeds": [0, 1], **changes}
        with pytest.raises(InputError, match=match) as refused:
            train_many(factory, recipe or Recipe(epochs=1), **given)
        assert re.fullmatch(r".+; .+\.", str(refused.value)), "what is wrong, and what to do"

    def test_data(self):
        self.refuse("pair", data=self.X)
        self.refuse("one label for each record", data=(self.X, self.Y[:-1]))
        self.refuse("whole numbers from 0", data=(self.X, self.Y - 1))
        self.refuse("whole numbers from 0", data=(self.X, self.Y + 0.5))
        self.refuse("infinite or NaN", data=(np.where(self.X > 2, np.nan, self.X), self.Y))
        self.refuse("array of numbers", data=(np.array(["a"] * 20), self.Y))
        named = "y must hold the classes as numbers, got .*'cat'.*; number them by numpy.unique"
        self.refuse(named, data=(self.X, np.array(["cat", "dog"] * 10)))
        self.refuse(named, data=(self.X, ["cat", None] * 10))
        self.refuse(r"whole numbers from 0, got .*2\.5", data=(self.X, np.where(self.Y == 2, 2.5, self.Y)))
        self.refuse("X holds rows of mixed lengths", data=([[1.0], [1.0, 2.0]], self.Y))
        self.refuse("class 3", data=(self.X, np.where(self.Y == 2, 3, self.Y)))
        self.refuse("cannot take records", data=(self.X[:, :, :4], self.Y))

    def test_memberships_and_seeds(self):
        self.refuse("memberships must be bools", memberships=self.ALL[:, :-1])
        self.refuse("memberships must be bools", memberships=self.ALL.astype(float))
        self.refuse("only False and True", memberships=self.ALL * 2)
        self.refuse(r"memberships\[1\] has no members", memberships=np.outer([1, 0], np.ones(20)).astype(int))
        self.refuse("mixed lengths", memberships=[[True] * 20, [True]])
        self.refuse("seeds", seeds=[1])
        self.refuse("seeds", seeds=[[1], [1, 2]])
        self.refuse("seed", seeds=[1, -1])

    def test_choices(self):
        self.refuse("strategy", strategy="fastest")
        self.refuse("cannot train this model: it has no Conv2d", strategy="convolutional")
        self.refuse("LayerNorm", strategy="dense", factory=sample_models.normed_net)
        self.refuse("group", group=0)
        self.refuse("workers", workers=0)
        self.refuse("evaluate_on", evaluate_on="everything")
        self.refuse("evaluate_on has records of shape", evaluate_on=self.X[:, :, :4])
        self.refuse("recipe", recipe="fast")
        self.refuse("DP-SGD", neighbour=Neighbour(removed=1))
        full = Recipe(steps=1, batch_size=None, dp=Privacy(1.0))
        self.refuse("row 20", neighbour=Neighbour(added=20), recipe=full)
        self.refuse("holds both", neighbour=Neighbour(removed=0, added=1), recipe=full)

    def test_models(self):
        torch = pytest.importorskip("torch", reason="the engine needs torch: dosimeter[torch]")
        self.refuse("torch module", factory=dict)
        self.refuse("torch module", factory=torch.nn.Flatten)
        norm = torch.nn.BatchNorm2d
        factory = lambda: torch.nn.Sequential(norm(1), torch.nn.Flatten(), torch.nn.Linear(64, 3))  # noqa: E731
        self.refuse("BatchNorm2d, which mixes", factory=factory, recipe=Recipe(epochs=1, dp=Privacy(1.0)))
        assert len(list(train_many(factory, Recipe(epochs=1), (self.X, self.Y), self.ALL, [0, 1], workers=1))) == 2
