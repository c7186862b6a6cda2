"""When a target stands out from models that never saw the members, and when it does not."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dosimeter.audits.members_only.measure import LEVEL, auc_limit, judge, prediction_limit
from dosimeter.audits.members_only.pair_classifier import FIRST_PART, Pair


def test_no_leak_is_reported_as_none_in_95_percent_of_200_audits():
    rng = np.random.default_rng(5)
    passed = 0
    for _ in range(200):
        content = rng.normal(np.repeat([0.6, 0.0], 400), 1.0)
        # Target and references: the same content, errors of their own, and those of the pool they learnt from.
        found = content + rng.normal(0, 0.4, (9, 800)) + rng.normal(0, 0.05, (9, 1)) * np.repeat([1.0, 0.0], 400)
        found[0] += rng.normal(0, 0.4, 800)
        found[1:] += rng.normal(0, 0.4, 800)
        pairs = [Pair(row[:400], row[400:]) for row in found]
        passed += judge(pairs[0], pairs[1:], level=LEVEL).stands_out
    assert passed <= 10


def test_a_leak_is_seen():
    rng = np.random.default_rng(6)
    content = rng.normal(np.repeat([0.6, 0.0], 1000), 1.0)
    references = [Pair(row[:1000], row[1000:]) for row in content + rng.normal(0, 0.4, (6, 2000))]
    leaking = content + rng.normal(0, 0.4, 2000) + np.repeat([0.4, 0.0], 1000)
    assert judge(Pair(leaking[:1000], leaking[1000:]), references, level=0.05).stands_out


def test_a_leak_of_few_records_is_seen_in_the_first_part():
    rng = np.random.default_rng(7)
    content = rng.normal(0.0, 1.0, 4000)
    references = [Pair(row[:2000], row[2000:]) for row in content + rng.normal(0, 0.2, (8, 4000))]
    leaking = content + rng.normal(0, 0.2, 4000)
    leaking[:60] += 8.0
    found = judge(Pair(leaking[:2000], leaking[2000:]), references, level=0.05)
    assert found.stands_out and found.first_part > found.first_part_limit


@pytest.mark.parametrize(("count", "level"), [(3, 0.05), (6, 0.025), (12, 0.1)])
def test_prediction_limit_is_passed_as_often_as_it_says(count, level):
    rng = np.random.default_rng(8)
    draws = rng.normal(3.0, 2.0, (40_000, count + 1))
    draws[:, 1:] += rng.normal(0.0, 2.0, (40_000, 1))  # the pool of the references
    mean, deviation = draws[:, 1:].mean(axis=1), draws[:, 1:].std(axis=1, ddof=1)
    reach = stats.t.ppf(1 - level, count - 1) * math.sqrt(2 + 1 / count)
    limits = np.array([prediction_limit(row, level) for row in draws[:200, 1:]])
    np.testing.assert_allclose(limits, (mean + reach * deviation)[:200], rtol=1e-10)
    passed = int((draws[:, 0] > mean + reach * deviation).sum())
    assert stats.binomtest(passed, 40_000, level).pvalue > 1e-3


@pytest.mark.parametrize(("count", "halves", "more"), [(3, 3, 1.33), (8, 4, 1.33), (4, 3, 3.0)])
def test_a_target_that_learnt_from_more_records_passes_as_rarely(count, halves, more):
    """Values that grow in a straight line with the records, smaller models vary more: passed at most at the level."""
    rng, level, gain = np.random.default_rng(9), 0.05, 7.0
    pool = rng.normal(0.0, 2.0, (4000, 1))  # its error in the target's place is what the target's own data bring
    whole, half = (rng.normal(gain, 2.0, (4000, count)), rng.normal(0.0, 3.0, (4000, halves)))
    target = rng.normal(gain * (1 + more), 2.0, 4000) + pool[:, 0]
    limits = [prediction_limit(a, level, smaller=b, more=more) for a, b in zip(whole, half, strict=True)]
    passed = int((target > limits).sum())
    assert passed > 40 and stats.binomtest(passed, 4000, 1.2 * level, alternative="greater").pvalue > 1e-3
    # Against reference models of one size such a target stands out.
    assert np.mean(target > [prediction_limit(a, level) for a in whole]) > (0.2 if count < 8 else 0.8)


@given(st.floats(0.0, 0.3), st.floats(0.0, 0.3), st.floats(0.1, 4.0))
@settings(deadline=None)
def test_a_gain_that_falls_off_stays_below_the_line(first, second, more):
    """For values without errors the limit is the straight line: at or above every curve that is concave."""
    half, whole = 0.5, 0.5 + first
    later = whole + min(first, second) * more  # no steeper than from half to whole
    assert prediction_limit([whole] * 4, 0.05, smaller=[half] * 3, more=more) >= later - 1e-12
    assert prediction_limit([half] * 4, 0.05, smaller=[whole] * 3, more=more) == pytest.approx(half)  # no loss is drawn


def test_a_line_of_aucs_does_not_lead_beyond_1():
    whole, half = [0.955, 0.949, 0.957, 0.951, 0.953, 0.956, 0.950, 0.954], [0.915, 0.920, 0.910, 0.917]
    assert prediction_limit(whole, 0.01, smaller=half, more=1.3) > 1.0
    assert max(whole) < auc_limit(whole, 0.01, records=400, smaller=half, more=1.3) < 0.99


@pytest.mark.parametrize("references", [[1.0] * 8, [1.0, 1.0, 0.999, 1.0], [0.5, 0.999, 1.0, 0.6]])
def test_no_auc_passes_a_limit_at_the_end(references):
    assert auc_limit(references, 0.01, records=50, smaller=references[:3], more=1.0) == 1.0


def test_perfect_references_let_nothing_stand_out():
    apart = Pair(np.arange(50.0, 100.0), np.arange(50.0))
    found = judge(apart, [apart] * 4, level=LEVEL, smaller=[apart] * 3, more=1.3)
    assert found.auc_limit == 1.0 and not found.stands_out


@given(st.lists(st.floats(0, 1), min_size=3, max_size=9), st.floats(0, 3))
def test_an_auc_limit_lies_between_the_median_and_1(values, more):
    assert np.clip(np.sort(values)[0], 0.005, 0.995) - 1e-12 <= auc_limit(values, 0.05, records=100, more=more) <= 1.0


def test_a_target_without_a_leak_passes_as_rarely_where_aucs_come_near_1():
    """Scores whose distance grows in a straight line with the records: z = .9, 1.35 and 2, so an AUC of .977."""
    rng, level = np.random.default_rng(10), 0.05
    pool = rng.normal(0.0, 0.08, (4000, 1))
    whole, half = rng.normal(1.35, 0.08, (4000, 8)), rng.normal(0.9, 0.1, (4000, 4))
    target = rng.normal(1.35 + 1.4 * 0.45, 0.08, 4000) + pool[:, 0]
    told = [
        auc_limit(a, level, records=500, smaller=b, more=1.4)
        for a, b in zip(stats.norm.cdf(whole), stats.norm.cdf(half), strict=True)
    ]
    passed = int((stats.norm.cdf(target) > told).sum())
    assert passed > 40 and stats.binomtest(passed, 4000, 1.2 * level, alternative="greater").pvalue > 1e-3


def test_equal_references_leave_room_for_chance_in_the_first_part():
    rng = np.random.default_rng(22)
    base = Pair(rng.normal(0.3, 1, 200), rng.normal(0, 1, 200))
    found = judge(base, [base] * 8, level=0.02)
    assert found.auc_limit == pytest.approx(base.auc)
    rate = base.first_part
    reach = stats.t.ppf(0.99, 7) * math.sqrt(2 + 1 / 8) * math.sqrt(rate * (1 - rate) / 200)
    assert found.first_part_limit == pytest.approx(rate + reach)
    assert not found.stands_out


@given(st.lists(st.floats(0, 1), min_size=3, max_size=9), st.floats(-2, 2), st.floats(0.1, 3))
def test_prediction_limit_moves_with_its_values(values, shift, scale):
    base = prediction_limit(values, 0.05)
    assert base >= np.mean(values) - 1e-12
    assert prediction_limit([scale * v + shift for v in values], 0.05) == pytest.approx(scale * base + shift, abs=1e-9)


@given(st.integers(0, 10_000))
@settings(max_examples=30)
def test_first_part_by_a_second_route(seed):
    rng = np.random.default_rng(seed)
    pair = Pair(rng.normal(0.5, 1, 60).round(1), rng.normal(0, 1, 80).round(1))
    edges = sorted(set(pair.nonmembers) | set(pair.members), reverse=True)
    points = [(0.0, 0.0)] + [((pair.nonmembers >= e).mean(), (pair.members >= e).mean()) for e in edges]
    total = 0.0
    for f in np.linspace(0.0, FIRST_PART, 201):
        # On a vertical step the value at its upper end counts.
        below = [p for p in points if p[0] <= f + 1e-12]
        low = below[-1]
        high = next((p for p in points if p[0] > f + 1e-12), low)
        total += low[1] if high[0] == low[0] else low[1] + (high[1] - low[1]) * (f - low[0]) / (high[0] - low[0])
    assert pair.first_part == pytest.approx(total / 201, abs=0.02)
