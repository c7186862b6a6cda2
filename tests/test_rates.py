"""Clopper–Pearson, Jeffreys, Gaussian and advantage bounds."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dosimeter import (
    Counts,
    InputError,
    Scores,
    Validity,
    advantage,
    clopper_pearson,
    gaussian,
    jeffreys,
)
from dosimeter.estimators import limits
from dosimeter.estimators.limits import clopper_pearson_limits
from dosimeter.estimators.rates import counts_over_curve, rectangle, uniform_looks
from dosimeter.estimators.with_assumptions import mu_from_rates
from dosimeter.geometry import epsilon_from_rates, epsilon_range

PAPER = Counts(fn=35, tp=65, fp=25, tn=75)
PERFECT = Counts(fn=0, tp=1000, fp=0, tn=1000)


# Zanella-Béguelin et al., worked example
@pytest.mark.parametrize(("method", "low", "high"), [(clopper_pearson, 0.29515, 1.48873), (jeffreys, 0.32095, 1.45637)])
def test_golden_worked_example(method, low: float, high: float) -> None:
    found = method(PAPER, delta=0.05, confidence=0.95, sides="both")
    assert found.low == pytest.approx(low, abs=6e-6)
    assert found.high == pytest.approx(high, abs=6e-6)


# Perfect attack, 1000 + 1000 trials, δ = 1e-5, 90 %
@pytest.mark.parametrize(
    ("method", "sides", "value"),
    [(clopper_pearson, "both", 5.60058), (clopper_pearson, "lower", 5.80906), (jeffreys, "lower", 6.25433)],
)
def test_golden_perfect_attack(method, sides: str, value: float) -> None:
    assert method(PERFECT, delta=1e-5, confidence=0.9, sides=sides).low == pytest.approx(value, abs=6e-6)


def test_golden_corner_of_footnote_1() -> None:
    found = clopper_pearson(Counts(tp=90, fp=0, tn=100, fn=10), delta=1e-5, confidence=0.9, sides="both")
    assert found.low == pytest.approx(3.12437, abs=6e-6)
    assert found.high == math.inf


def test_an_attack_worse_than_chance_proves_nothing_until_it_is_turned_round() -> None:
    inverted = Counts(fn=65, tp=35, fp=75, tn=25)
    for method in (clopper_pearson, jeffreys):
        found = method(inverted, delta=0.05)
        assert found.low == 0
        assert "worse than chance" in found.warnings[0] and "swap" in found.warnings[0]
        assert not method(PAPER, delta=0.05).warnings
        both = [method(counts, delta=0.05, sides="both").low for counts in (PAPER, inverted)]
        assert both[0] == pytest.approx(both[1], rel=1e-12) and both[0] > 0  # four limits at a quarter of the level


@pytest.mark.parametrize("alpha", [0.05, 0.4])
@pytest.mark.parametrize(("members", "nonmembers"), [(6, 6), (9, 4), (25, 7)])
def test_limits_at_a_fixed_threshold_by_enumeration(members: int, nonmembers: int, alpha: float) -> None:
    """P[bound > true ε], exactly, at rates on a grid: never above α, although the bound uses both rates."""
    fn, fp = np.meshgrid(np.arange(members + 1), np.arange(nonmembers + 1), indexing="ij")
    box = rectangle(fn, members - fn, fp, nonmembers - fp, alpha, "lower", clopper_pearson_limits)
    low = epsilon_range(*box, 0.0)[0]
    for fnr in np.linspace(0.02, 0.98, 25):
        for fpr in np.linspace(0.02, 0.98, 25):
            law = stats.binom.pmf(fn, members, fnr) * stats.binom.pmf(fp, nonmembers, fpr)
            assert law[low > epsilon_from_rates(fpr, fnr) + 1e-9].sum() <= alpha


def test_the_limit_of_the_fpr_holds_with_ties_where_fpr_fixes_the_threshold() -> None:
    """Few values: which of them the threshold stands on is chance, so the count above it must not set the limit."""
    above = np.array([0.0185, 0.152])  # P[score ≥ value] of all values but the lowest, the highest first
    rng, missed, trials = np.random.default_rng(4), 0, 2500
    for _ in range(trials):
        drawn = -np.searchsorted(above, rng.random(200), "right").astype(float)
        found = clopper_pearson(Scores([0.0, -2.0], drawn), fpr=0.1)
        passed = int(np.ceil(-found.threshold))  # values above the threshold
        true = above[passed - 1] if passed > 0 else 0.0
        missed += true > found.details["fpr_interval"][1]
    assert missed / trials <= 0.025 + 3.5 * np.sqrt(0.025 * 0.975 / trials)


@pytest.mark.parametrize(
    "counts", [Counts(tp=1, fn=0, fp=0, tn=1), Counts(tp=0, fn=1, fp=1, tn=0), Counts(tp=1, fn=0, fp=1, tn=0)]
)
def test_one_record_of_each_kind(counts: Counts) -> None:
    assert clopper_pearson(counts).low == 0
    assert clopper_pearson(counts, sides="both").high == math.inf


def test_huge_counts() -> None:
    huge = Counts(tp=650_000_000, fn=350_000_000, fp=250_000_000, tn=750_000_000)
    found = clopper_pearson(huge, sides="both")
    exact = float(epsilon_from_rates(0.25, 0.35))
    assert found.low < exact < found.high
    assert found.high - found.low < 5e-4


@settings(max_examples=150, deadline=None)
@given(*[st.integers(0, 300)] * 4, st.sampled_from([0.0, 1e-12, 1e-5, 0.1]), st.sampled_from([0.5, 0.9, 0.999]))
def test_interval_contains_the_plain_estimate(tp, fn, fp, tn, delta, confidence) -> None:
    if tp + fn == 0 or fp + tn == 0:
        return
    counts = Counts(tp=tp, fn=fn, fp=fp, tn=tn)
    plug_in = float(epsilon_from_rates(counts.fpr, counts.fnr, delta))
    for method in (clopper_pearson, jeffreys):
        found = method(counts, delta=delta, confidence=confidence, sides="both")
        assert found.low <= plug_in + 1e-9
        assert plug_in <= found.high + 1e-9
        if counts.tpr >= counts.fpr:
            assert method(counts, delta=delta, confidence=confidence).low >= found.low - 1e-12
        wider = method(counts, delta=delta, confidence=(1 + confidence) / 2, sides="both")
        assert wider.low <= found.low + 1e-12 and wider.high >= found.high - 1e-12


def drawn(n: int, seed: int = 0, ties: bool = False) -> Scores:
    rng = np.random.default_rng(seed)
    members, nonmembers = rng.normal(1, 1, n), rng.normal(0, 1, n)
    return Scores(np.round(members, 1), np.round(nonmembers, 1)) if ties else Scores(members, nonmembers)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("n", [1, 2, 30, 400, 3000])
def test_uniform_equals_the_scan_of_every_threshold(n: int, ties: bool) -> None:
    scores = drawn(n, ties=ties)
    fn, _, fp, _ = counts_over_curve(scores)
    fpr, fnr = limits.band_limits(fp, n, 0.025), limits.band_limits(fn, n, 0.025)
    zero = np.zeros_like(fpr)
    scanned = epsilon_range((zero, fpr), (zero, fnr), 1e-5)[0].max()
    found = clopper_pearson(scores, delta=1e-5)
    assert found.low == pytest.approx(scanned, abs=1e-12)
    assert gaussian(scores).details["mu_low"] == pytest.approx(mu_from_rates(fpr, fnr).max(), abs=1e-12)
    assert advantage(scores).details["advantage_low"] == pytest.approx(max(0, (1 - fpr - fnr).max()), abs=1e-12)
    if found.low > 0:
        looks = uniform_looks(scores, 0.05)
        at = int(np.argmin(np.abs(looks.thresholds - found.threshold)))
        assert float(epsilon_from_rates(looks.fpr[at], looks.fnr[at], 1e-5)) == pytest.approx(found.low)


def test_threshold_rules() -> None:
    scores = drawn(1000)
    uniform, split = clopper_pearson(scores), clopper_pearson(scores, threshold="split", seed=1)
    naive, fixed = clopper_pearson(scores, threshold="naive"), clopper_pearson(scores, threshold=1.5)
    at_fpr = clopper_pearson(scores, fpr=0.05)
    assert naive.low > uniform.low
    assert naive.validity is Validity.EXPLORATORY and naive.warnings
    assert "level is not kept" in naive.claim
    assert split.counts.members == 500
    assert fixed.counts == scores.counts_at(1.5)
    assert at_fpr.counts.fp == 50
    for one_model in (uniform, split, fixed, at_fpr):
        assert one_model.validity is Validity.EXPLORATORY
        assert one_model.neighbours == "replace"
        assert "nothing guarantees" in one_model.claim and "independent=True" in one_model.warnings[-1]
    runs = Scores(scores.members, scores.nonmembers, independent=True)
    rules = ({}, {"threshold": "split", "seed": 1}, {"threshold": 1.5}, {"fpr": 0.05})
    for one_model, rule in zip((uniform, split, fixed, at_fpr), rules, strict=True):
        found = clopper_pearson(runs, **rule)
        assert found.validity is Validity.INDEPENDENT_RUNS
        assert found.neighbours == "add/remove"
        assert (found.low, found.counts) == (one_model.low, one_model.counts)
    assert clopper_pearson(runs, threshold="naive").validity is Validity.EXPLORATORY
    assert jeffreys(scores).counts.members == 500  # split by default
    assert split.low == clopper_pearson(scores, threshold="split", seed=1).low


def test_gaussian_goldens_and_labels() -> None:
    # rates that belong to μ = 1 exactly: Φ⁻¹(1−.1587)−Φ⁻¹(.5) with so many trials that the limits hardly move it
    n = 10**9
    counts = Counts(fn=n // 2, tp=n // 2, fp=158_655_254, tn=n - 158_655_254)
    found = gaussian(counts, delta=1e-5)
    assert found.low == pytest.approx(4.377178, abs=2e-3)
    assert found.low < 4.377178
    assert found.validity is Validity.ASSUMES_GAUSSIAN
    assert any("Gaussian" in w for w in found.warnings)


def test_gaussian_never_mirrors_an_attack_worse_than_chance() -> None:
    worse = Counts(fn=900, tp=100, fp=900, tn=100)
    assert gaussian(worse).low == 0
    assert np.all(mu_from_rates(np.array([1.0, 0.9, 0.5]), np.array([0.3, 0.9, 0.5])) == 0)
    both = gaussian(PERFECT, sides="both")
    assert both.high == math.inf and both.low > 0


def test_gaussian_refuses_delta_zero_with_the_reason() -> None:
    with pytest.raises(InputError, match="delta must be above 0"):
        gaussian(PAPER, delta=0)


def test_advantage_forms() -> None:
    found = advantage(PAPER, delta=0.0)
    proven = found.details["advantage_low"]
    assert proven < found.details["advantage"] == pytest.approx(0.4)
    assert found.low == pytest.approx(math.log((1 + proven) / (1 - proven)))
    assert found.details["epsilon_erlingsson"] == pytest.approx(-math.log(1 - proven))
    assert found.details["epsilon_erlingsson"] <= found.low


@pytest.mark.parametrize("method", [clopper_pearson, jeffreys, gaussian, advantage])
def test_bad_input_is_one_sentence(method) -> None:
    for evidence, arguments, named in [
        (PAPER, {"threshold": 0.5}, "threshold"),
        (PAPER, {"fpr": 0.1}, "fpr"),
        (drawn(20), {"threshold": "best"}, "threshold"),
        (drawn(20), {"threshold": 0.5, "fpr": 0.1}, "exclude"),
        (drawn(20), {"fpr": 1.5}, "fpr"),
        (drawn(20), {"threshold": float("nan")}, "threshold"),
        (drawn(1), {"threshold": "split"}, "at least 2"),
        (PAPER, {"delta": 1.0}, "delta"),
        (PAPER, {"confidence": 0.0}, "confidence"),
        ([1, 2], {}, "evidence"),
    ]:
        with pytest.raises(InputError, match=named) as error:
            method(evidence, **arguments)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("method", [clopper_pearson, gaussian])
def test_an_interval_needs_one_threshold(method) -> None:
    with pytest.raises(InputError, match="sides"):
        method(drawn(20), sides="both")
    with pytest.raises(InputError, match="sides"):
        method(PAPER, sides="upper")
