"""The classifier that never sees the model: exact p-values of rank sums."""

import itertools
import math

import numpy as np
import pytest
from scipy.stats import rankdata

from dosimeter.audits.shift.blind import rank_sum_p_value

rng_of = np.random.default_rng


@pytest.mark.parametrize("members", [2, 4, 6])
def test_rank_sum_agrees_with_all_labellings(members):
    values = np.array([0.0, 1, 1, 1, 2, 2, 3, 5])
    inside = np.zeros(8, bool)
    inside[-members:] = True
    inside[[1, 6]] = inside[[6, 1]]
    ranks = rankdata(values)
    sums = np.array([ranks[list(chosen)].sum() for chosen in itertools.combinations(range(8), members)])
    exact = np.mean(sums >= ranks[inside].sum() - 1e-9)
    draws = 20_000
    found = rank_sum_p_value(values, inside, draws, rng_of(0), enough=draws)
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
    rank_sum = rankdata(values)[inside].sum()
    z = (rank_sum - 800 * 2001 / 2) / math.sqrt(800 * 1200 * 2001 / 12)
    expected = math.erfc(z / math.sqrt(2)) / 2
    assert 0.001 < expected < 0.5
    assert rank_sum_p_value(values, inside, 20_000, rng, enough=20_000) == pytest.approx(expected, abs=0.015)


def test_drawing_ends_once_the_p_value_is_settled():
    rng = rng_of(6)
    values, inside = rng.normal(size=1001), np.arange(1001) < 300

    class Counting:
        drawn = 0

        def random(self, shape):
            self.drawn += shape[0]
            return rng.random(shape)

    counting = Counting()
    p_value = rank_sum_p_value(values, inside, 20_000, counting)
    assert counting.drawn < 2_000
    exact = rank_sum_p_value(values, inside, 20_000, rng, enough=20_000)
    assert p_value == pytest.approx(exact, rel=0.4)


def test_p_value_is_valid_when_drawing_ends_early():
    found = []
    for seed in range(800):
        rng = rng_of(seed)
        values, inside = np.floor(3 * rng.normal(size=31)), rng.permutation(31) < 12
        found.append(rank_sum_p_value(values, inside, 199, rng, enough=10))
    for level in (0.05, 0.2, 0.5):
        assert np.mean(np.array(found) <= level) <= level + 3.5 * math.sqrt(level * (1 - level) / 800)


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
