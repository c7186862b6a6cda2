"""The AUC and DeLong's error of it."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import rankdata

from dosimeter import Scores
from dosimeter.estimators.limits import auc_with_error, average_ranks


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 6), min_size=2, max_size=25),
    st.lists(st.integers(0, 6), min_size=2, max_size=25),
)
def test_delong_agrees_with_the_double_sum(members, nonmembers):
    scores = Scores(np.array(members, float), np.array(nonmembers, float))
    wins = (scores.members[:, None] > scores.nonmembers) + 0.5 * (scores.members[:, None] == scores.nonmembers)
    variance = wins.mean(1).var(ddof=1) / len(members) + wins.mean(0).var(ddof=1) / len(nonmembers)
    auc, error = auc_with_error(scores)
    assert auc == pytest.approx(wins.mean(), abs=1e-12)
    assert auc == pytest.approx(scores.auc, abs=1e-12)
    if variance > 1e-12:
        assert error == pytest.approx(math.sqrt(variance), rel=1e-9)
    else:
        assert 0 < error < 0.5


def test_delong_against_simulation() -> None:
    rng = np.random.default_rng(0)
    found = [auc_with_error(Scores(rng.normal(0.5, 1, 80), rng.normal(0, 1, 120))) for _ in range(600)]
    aucs, errors = np.array(found).T
    assert aucs.var() == pytest.approx((errors**2).mean(), rel=0.15)


@pytest.mark.parametrize(("m", "n"), [(30, 30), (30, 500), (1, 7), (1, 1)])
def test_perfect_separation_and_constants_have_an_error(m: int, n: int) -> None:
    few = min(m, n)
    for members, auc in ((np.arange(m) + 1.0, 1.0), (np.zeros(m), 0.5), (-np.arange(m) - 1.0, 0.0)):
        found, error = auc_with_error(Scores(members, np.zeros(n)))
        assert found == auc
        assert error >= 0.3 / few if auc != 0.5 else error >= 0.4 / math.sqrt(few)


@pytest.mark.parametrize("values", [[], [2.0], [3.0, 3.0], [np.inf, -np.inf, 0.0, -0.0, np.inf]])
def test_ranks_are_those_of_scipy_at_the_corners(values):
    np.testing.assert_array_equal(average_ranks(np.array(values)), rankdata(np.array(values)))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(-4, 4), max_size=40))
def test_ranks_are_those_of_scipy(values):
    array = np.array(values, float)
    np.testing.assert_array_equal(average_ranks(array), rankdata(array))
