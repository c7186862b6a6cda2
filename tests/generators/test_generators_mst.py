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


# --- with a stated ε ----------------------------------------------------------------------------------------


def rows_of(seed, size=600):
    rng = np.random.default_rng(seed)
    a = rng.integers(0, 3, size)
    b = np.where(rng.uniform(size=size) < 0.8, a, rng.integers(0, 3, size))
    c = np.where(rng.uniform(size=size) < 0.2, np.nan, (b > 0) + 0.0)
    return {"a": np.array(["x", "y", "z"])[a], "b": b, "c": c}


def agreement(part):
    return (np.unique(part["a"], return_inverse=True)[1] == part["b"]).mean()


def test_a_large_epsilon_keeps_what_a_small_one_blurs(members):
    public = rows_of(9)
    loose, tight = (
        Mst(epsilon=e, public=public, steps=300).fit(members, seed=0).sample(4000, seed=1) for e in (1e4, 0.05)
    )
    same_shape(members, loose, count=4000)
    assert abs(agreement(loose) - agreement(members)) < 0.04
    assert abs(agreement(tight) - agreement(members)) > 0.1  # 600 records at ε = 0.05 are lost in the noise


def test_the_domain_is_public_and_takes_other_values(members):
    """Values that the public rows do not have end up in their bins; no bin and no word comes from the members."""
    strange = {**members, "a": members["a"].astype(object), "b": members["b"] + 100}
    strange["a"][:50] = "never seen"
    made = Mst(epsilon=50.0, public=rows_of(9), steps=100).fit(strange, seed=0).sample(500, seed=1)
    assert set(made["a"]) <= {"x", "y", "z"} and set(np.unique(made["b"])) <= {0, 1, 2}
    assert (made["b"] == 2).mean() > 0.9


def test_noise_and_edges_spend_the_budget():
    """Each stage has a third of ρ: the noise that was drawn for one column has the deviation √(3p/2ρ)."""
    from dosimeter.generators import mst
    from dosimeter.generators.table import pair_tables

    rho = mst.zcdp(1.0, 1e-5)
    assert rho + 2 * math.sqrt(rho * math.log(1e5)) == pytest.approx(1.0)
    tables = pair_tables(np.zeros((10, 2), np.int64), np.array([4000, 2]))
    counted = mst._counted(tables, (0,), math.sqrt(3 * 2 / (2 * rho)), np.random.default_rng(0))
    assert np.std(counted.counts[1:]) == pytest.approx(math.sqrt(3 / rho), rel=0.05)
    rng = np.random.default_rng(1)
    codes = rng.integers(0, 2, (200, 3))
    codes[:, 1] = codes[:, 0]
    tables = pair_tables(codes, np.array([2, 2, 2]))
    singles = [np.diag(tables.of(k, k)) for k in range(3)]
    first = [mst._edges(tables, singles, 200.0, r, rng)[0] for r in (10.0, 1e-9) for _ in range(300)]
    assert first[:300].count((0, 1)) == 300  # always the dependent pair where ρ is large
    assert 60 < first[300:].count((0, 1)) < 140  # one of three where it is nothing


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"epsilon": 1.0}, "pass public"),
        ({"epsilon": 0.0, "public": 1}, "epsilon"),
        ({"epsilon": 1.0, "delta": 0.0, "public": 1}, "delta"),
        ({"public": 1}, "pass epsilon too"),
        ({"epsilon": 1.0, "public": rows_of(1), "noise": 2.0}, "pass one of the two"),
        ({"epsilon": 1.0, "public": {"a": rows_of(1)["a"]}}, "other columns"),
    ],
)
def test_a_guarantee_that_cannot_be_given_is_refused(members, given, words):
    with pytest.raises(InputError, match=words):
        Mst(**given).fit(members, seed=0)
