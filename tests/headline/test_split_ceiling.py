"""The most that any valid test of a split can reject: exact on small splits, 5 % without a leak and at the truth."""

import math
import sys
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import dosimeter as dm

BENCH = Path(__file__).parents[2] / "bench"


@pytest.fixture
def bench(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))
    sys.modules.pop("split_ceiling", None)
    import split_ceiling

    return split_ceiling


def splits(bench, members, nonmembers, draws, gap=1.0):
    """Normal scores, `gap` apart, with their true log-odds."""
    found = []
    for seed in range(draws):
        rng = np.random.default_rng([seed, 6])
        scores = np.concatenate([rng.normal(gap, 1, members), rng.normal(0, 1, nonmembers)])
        inside = np.arange(members + nonmembers) < members
        found.append((scores, bench.of(gap * scores - gap * gap / 2, inside)))
    return found


def responses(bench, epsilon, draws, side=200):
    """Randomised response: exactly ε for adding or removing, 2ε for replacing one record."""
    found = []
    for seed in range(draws):
        rng = np.random.default_rng([seed, 7])
        inside = np.arange(2 * side) < side
        told = inside ^ (rng.random(2 * side) > 1 / (1 + math.exp(-epsilon)))
        found.append(bench.of(np.where(told, epsilon, -epsilon), inside))
    return found


def test_the_chance_of_the_labels_is_that_of_counting(bench):
    rng = np.random.default_rng(0)
    log_odds = rng.normal(0, 1.5, 16)
    inside = np.arange(16) < 8
    every = [log_odds[list(chosen)].sum() for chosen in combinations(range(16), 8)]
    exact = log_odds[inside].sum() - np.logaddexp.reduce(every)
    assert bench._log_chance(log_odds, inside) == pytest.approx(exact, abs=3e-3)


def test_without_a_leak_nothing_is_rejected_more_often_than_allowed(bench):
    flat = [bench.of(np.zeros(100), np.arange(100) < 30) for _ in range(40)]
    assert bench.most_rejected(flat, 0.5) == pytest.approx(bench.ALPHA)


def test_the_true_epsilon_cannot_be_rejected_and_a_smaller_one_can(bench):
    found = responses(bench, 1.0, 60)
    assert bench.most_rejected(found, 2.0) == pytest.approx(bench.ALPHA)
    assert bench.most_rejected(found, 1.0) > 0.9
    assert bench.exceeded_by_half(found) < 2.0


def test_more_records_and_smaller_claims_are_easier(bench):
    few, many = ([split for _, split in splits(bench, side, side, 40)] for side in (100, 400))
    assert bench.exceeded_by_half(few) < bench.exceeded_by_half(many)
    powers = [bench.most_rejected(many, epsilon) for epsilon in (1.0, 2.0, 3.0, 4.0, 6.0)]
    assert powers == sorted(powers, reverse=True)


def test_the_headline_stays_below_and_comes_near(bench):
    found = splits(bench, 300, 300, 60)
    bounds = [dm.lower_bound(dm.Scores(x[s.inside], x[~s.inside]), delta=0).low for x, s in found]
    at_most = bench.exceeded_by_half([split for _, split in found])
    assert 0.85 * at_most < np.median(bounds) < 1.05 * at_most
    for epsilon in (2.0, 2.5, 3.0, 3.5):
        rejected = sum(bound > epsilon for bound in bounds)
        likely = bench.most_rejected([split for _, split in found], epsilon)
        assert stats.binom.sf(rejected - 1, len(bounds), min(likely + 0.1, 1.0)) > 1e-4


def test_tests_that_are_told_the_shape_need_no_learning(bench):
    found = splits(bench, 300, 300, 12)
    told = [bench.told(x, split, 0.0, "replace") for x, split in found]
    bounds = [dm.lower_bound(dm.Scores(x[s.inside], x[~s.inside]), delta=0).low for x, s in found]
    assert min(told) > 0
    assert told != bounds  # they really were told
    assert abs(np.mean(told) - np.mean(bounds)) < 0.4
    assert bounds == [dm.lower_bound(dm.Scores(x[s.inside], x[~s.inside]), delta=0).low for x, s in found]
