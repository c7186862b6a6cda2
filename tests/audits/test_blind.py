"""The classifier that never sees the model: exact p-values of rank sums, the AUC and its error."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dosimeter.audits.blind import auc_with_error, midranks, rank_sum_p_value
from dosimeter.evidence import Scores

rng_of = np.random.default_rng


@pytest.mark.parametrize("members", [2, 4, 6])
def test_rank_sum_agrees_with_all_labellings(members):
    values = np.array([0.0, 1, 1, 1, 2, 2, 3, 5])
    inside = np.zeros(8, bool)
    inside[-members:] = True
    inside[[1, 6]] = inside[[6, 1]]
    ranks = midranks(values)
    sums = np.array([ranks[list(chosen)].sum() for chosen in itertools.combinations(range(8), members)])
    exact = np.mean(sums >= ranks[inside].sum() - 1e-9)
    draws = 20_000
    found = rank_sum_p_value(values, inside, draws, rng_of(0))
    assert abs(found - exact) < 4 * math.sqrt(exact * (1 - exact) / draws) + 1e-4


@pytest.mark.parametrize(("m", "n"), [(8, 8), (3, 12), (12, 3), (6, 30)])
def test_bernstein_never_goes_below_the_exact_tail(m, n):
    values = np.arange(m + n, dtype=float)
    inside = values >= n
    assert rank_sum_p_value(values, inside, 3, rng_of(1)) >= 1 / math.comb(m + n, m)


def test_a_strong_shift_gets_a_small_p_value_from_few_relabellings():
    values = np.arange(600.0)
    assert rank_sum_p_value(values, values >= 300, 50, rng_of(0)) < 1e-30


def test_rank_sum_agrees_with_the_normal_law():
    rng = rng_of(5)
    values, inside = rng.normal(size=2000), np.arange(2000) < 800
    values[inside] += 0.08
    rank_sum = midranks(values)[inside].sum()
    z = (rank_sum - 800 * 2001 / 2) / math.sqrt(800 * 1200 * 2001 / 12)
    expected = math.erfc(z / math.sqrt(2)) / 2
    assert 0.001 < expected < 0.5
    assert rank_sum_p_value(values, inside, 20_000, rng) == pytest.approx(expected, abs=0.015)


def test_p_value_is_valid_with_ties_and_unequal_sizes():
    # Normal approximations fail here: 5 members, 150 non-members, all scores equal but four.
    values = np.zeros(155)
    values[:4] = [1, 2, 3, 4]
    found = []
    for seed in range(600):
        rng = rng_of(seed)
        inside = np.zeros(155, bool)
        inside[rng.choice(155, 5, replace=False)] = True
        found.append(rank_sum_p_value(values, inside, 199, rng))
    found = np.array(found)
    for level in (0.01, 0.05, 0.2):
        assert np.mean(found <= level) <= level + 3.5 * math.sqrt(level * (1 - level) / 600)


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


def test_midranks_share_ties():
    assert midranks(np.array([3.0, 1, 3, 2, 3])).tolist() == [4, 1, 4, 2, 4]
