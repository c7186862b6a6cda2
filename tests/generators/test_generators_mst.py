"""The tree that mbi estimates: exact without noise, the same form, repeatable, bad input."""

import math
import warnings

import numpy as np
import pytest

from dosimeter._validate import InputError
from dosimeter.generators import Mst, TreeModel, same_shape

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pytest.importorskip("mbi")


@pytest.fixture(scope="module")
def members():
    rng = np.random.default_rng(0)
    a = rng.integers(0, 3, 600)
    b = np.where(rng.uniform(size=600) < 0.8, a, rng.integers(0, 3, 600))
    c = np.where(rng.uniform(size=600) < 0.2, np.nan, (b > 0) + 0.0)
    return {"a": np.array(["x", "y", "z"])[a], "b": b, "c": c}


@pytest.fixture(scope="module")
def fitted(members):
    return Mst(steps=300).fit(members, seed=0)


def test_without_noise_the_tables_are_those_of_the_tree(members, fitted):
    plain = TreeModel().fit(members, seed=0)
    assert np.array_equal(fitted.order, plain.order) and np.array_equal(fitted.parent, plain.parent)
    for estimated, counted in zip(fitted.cumulative, plain.cumulative, strict=True):
        assert np.abs(estimated - counted).max() < 0.02


def test_samples_have_the_members_form_and_dependence(members, fitted):
    made = fitted.sample(8000, seed=1)
    same_shape(members, made, count=8000)
    codes = [np.unique(part["a"], return_inverse=True)[1] == part["b"] for part in (members, made)]
    share = codes[0].mean()
    assert abs(share - codes[1].mean()) < 0.01 + 5 * math.sqrt(share * (1 - share) / 8000)
    gone = [np.isnan(part["c"]).mean() for part in (members, made)]
    assert abs(gone[0] - gone[1]) < 0.01 + 5 * math.sqrt(gone[0] / 8000)


def test_the_seeds_decide(members, fitted):
    first, again, other = (fitted.sample(100, seed=s) for s in (1, 1, 2))
    assert np.array_equal(first["b"], again["b"]) and not np.array_equal(first["b"], other["b"])
    noisy = [Mst(noise=20.0, steps=20).fit(members, seed=s).cumulative[1] for s in (0, 0, 1)]
    assert np.array_equal(noisy[0], noisy[1]) and not np.array_equal(noisy[0], noisy[2])


@pytest.mark.parametrize(("model", "words"), [(Mst(noise=-1), "noise"), (Mst(steps=0), "steps"), (Mst(bins=1), "bins")])
def test_bad_input_is_refused(members, model, words):
    with pytest.raises(InputError, match=words):
        model.fit(members, seed=0)


def test_too_few_members_are_refused():
    with pytest.raises(InputError, match="at least 50 members"):
        Mst().fit(np.zeros((10, 2)), seed=0)
