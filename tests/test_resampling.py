"""The resamples of Epsilon*: moments, maxima, the width of the interval, time."""

import math
import time

import numpy as np
import pytest
from scipy import stats
from star_routes import all_pairs, normal_losses

from dosimeter.estimators import supremum
from dosimeter.estimators.epsilon_star import (
    epsilon_star,
)
from dosimeter.evidence import Scores


@pytest.mark.parametrize("form", ["parametric", "empirical"])
def test_the_seed_decides_and_no_resamples_means_no_interval(form):
    members, nonmembers = normal_losses(1.0)
    first, again, other = (epsilon_star(members, nonmembers, form=form, resamples=99, seed=s) for s in (5, 5, 6))
    assert (first.low, first.high) == (again.low, again.high) != (other.low, other.high)
    bare = epsilon_star(members, nonmembers, form=form, resamples=0)
    assert bare.low == bare.high == bare.epsilon == first.epsilon
    assert any("no interval" in w for w in bare.warnings)
    wide = epsilon_star(members, nonmembers, form=form, resamples=99, seed=5, confidence=0.99)
    assert wide.low <= first.low <= first.high <= wide.high


def test_resampled_moments_have_the_moments_of_a_plain_bootstrap():
    rng = np.random.default_rng(4)
    values = rng.gamma(2.0, size=300)
    fit = supremum.transform(values, values.min(), values.max())
    means, sds, way = supremum.resampled_moments(fit, 4000, rng)
    assert way == "resampled records"
    phi = fit.centred + fit.mean
    plain = [rng.choice(phi, phi.size) for _ in range(4000)]
    # Two sets of 4000 draws: means and spreads agree within five standard errors.
    for ours, theirs in ((means, [p.mean() for p in plain]), (sds, [p.std() for p in plain])):
        spread = np.std(theirs)
        assert np.mean(ours) == pytest.approx(np.mean(theirs), abs=5 * spread * math.sqrt(2 / 4000))
        assert np.std(ours) == pytest.approx(spread, rel=5 * math.sqrt(1 / 4000))
    assert np.corrcoef(means, sds)[0, 1] == pytest.approx(
        np.corrcoef([p.mean() for p in plain], [p.std() for p in plain])[0, 1], abs=0.1
    )


def test_normal_limit_of_moments_equals_drawing_records(monkeypatch):
    rng = np.random.default_rng(4)
    values = rng.gamma(3.0, size=20_000)
    fit = supremum.transform(values, values.min(), values.max())
    drawn = supremum.resampled_moments(fit, 3000, rng)
    monkeypatch.setattr(supremum, "_MOST_DRAWN", 1000)
    monkeypatch.setattr(supremum, "_SKEWEST", 0.1)
    limit = supremum.resampled_moments(fit, 3000, rng)
    assert limit[2] == "normal limit"
    for one, other in zip(drawn[:2], limit[:2], strict=True):
        assert stats.ks_2samp(one, other).pvalue > 1e-4
    assert np.corrcoef(*drawn[:2])[0, 1] == pytest.approx(np.corrcoef(*limit[:2])[0, 1], abs=0.1)


def test_one_heavy_record_forbids_the_normal_limit(monkeypatch):
    monkeypatch.setattr(supremum, "_MOST_DRAWN", 1000)
    values = np.append(np.random.default_rng(4).normal(size=5000), 1e5)
    fit = supremum.transform(values, values.min(), values.max())
    assert supremum.resampled_moments(fit, 10, np.random.default_rng(0))[2] == "resampled records"
    two_points = supremum.transform(np.tile([0.0, 1.0], 1000), 0.0, 1.0)
    assert supremum.resampled_moments(two_points, 10, np.random.default_rng(0))[2] == "resampled records"


@pytest.mark.once
def test_resampled_maxima_against_a_plain_bootstrap():
    members, nonmembers = (np.round(side, 1) for side in normal_losses(0.7, n=150))
    rng = np.random.default_rng(8)
    ours = supremum.resampled_maxima(Scores.from_losses(members, nonmembers), 1e-3, (0.02, 0.98), 600, rng)
    plain = [all_pairs(rng.choice(members, 150), rng.choice(nonmembers, 150), 1e-3, (0.02, 0.98)) for _ in range(600)]
    assert stats.ks_2samp(ours, plain).pvalue > 1e-4


def test_spread_ranks_are_all_ranks_when_few_and_dense_at_both_ends():
    np.testing.assert_array_equal(supremum._spread_ranks(1500), np.arange(1500))
    ranks = supremum._spread_ranks(10**7)
    assert ranks[0] == 0 and ranks[-1] == 10**7 - 1 and ranks.size < 25_000
    np.testing.assert_array_equal(ranks[:1000], np.arange(1000))
    inner = ranks[(ranks >= 1000) & (ranks < 5 * 10**6)]
    assert (np.diff(inner) / inner[:-1]).max() < 0.0021


@pytest.mark.once
def test_parametric_interval_is_as_wide_as_fresh_data_vary():
    fresh = [epsilon_star(*normal_losses(1.0, seed=s), delta=1e-4, resamples=0).epsilon for s in range(200)]
    widths = [epsilon_star(*normal_losses(1.0, seed=s), delta=1e-4, resamples=200) for s in range(20)]
    implied = np.mean([(e.high - e.low) / (2 * 1.96) for e in widths])
    assert implied == pytest.approx(np.std(fresh), rel=0.25)


@pytest.mark.slow
def test_a_thousand_resamples_of_a_hundred_thousand_records_take_seconds():
    sides = normal_losses(1.0, n=100_000)
    for form in ("parametric", "empirical"):
        start = time.process_time()
        estimate = epsilon_star(*sides, form=form, resamples=1000)
        assert time.process_time() - start < 20
        assert estimate.low < estimate.epsilon < estimate.high


def test_a_million_losses_take_a_moment():
    sides = normal_losses(1.0, n=1_000_000)
    start = time.process_time()
    estimate = epsilon_star(*sides)
    assert time.process_time() - start < 3
    assert estimate.details["bootstrap"] == ["normal limit", "normal limit"]
