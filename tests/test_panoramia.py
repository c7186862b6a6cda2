import functools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dosimeter._validate import InputError
from dosimeter.estimate import Estimate, Validity
from dosimeter.estimators.panoramia import bound_curve, null_differences, panoramia
from dosimeter.estimators.ranked import ranked
from dosimeter.evidence import OneRun, fair_coins


def pair(records=2000, baseline=1.0, attack=1.0, seed=0, decimals=None):
    """Two sets of scores of the same records that share some of their noise."""
    coins = fair_coins(records, seed)
    rng = np.random.default_rng(seed + 1)
    shared = rng.normal(size=records)
    result = []
    for shift in (baseline, attack):
        scores = shared + 0.5 * rng.normal(size=records) + shift * coins
        result.append(OneRun(scores if decimals is None else scores.round(decimals), coins, mask_seed=seed))
    return result[0], result[1]


@functools.cache
def bound_by_bisection(guesses, correct, level):
    """The largest c ≥ 0 with P[Bin(r, e^c/(1+e^c)) ≥ v] ≤ level."""

    def p_value(c):
        return stats.binom.sf(correct - 1, guesses, 1 / (1 + math.exp(-c)))

    if p_value(0.0) > level:
        return 0.0
    low, high = 0.0, 50.0
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if p_value(middle) <= level else (low, middle)
    return low


@pytest.mark.parametrize("decimals", [None, 1, 0])
def test_curve_against_bisection_at_every_threshold(decimals):
    evidence = pair(records=300, attack=1.5, decimals=decimals)[1]
    curve = bound_curve(evidence, 0.025)
    thresholds = np.unique(evidence.scores)[::-1]
    assert curve.guesses.size == thresholds.size
    for k, threshold in enumerate(thresholds):
        above = evidence.scores >= threshold
        r, v = int(above.sum()), int((above & evidence.included).sum())
        assert (curve.guesses[k], curve.correct[k]) == (r, v)
        assert curve.recall[k] == pytest.approx(v / evidence.included.sum())
        assert curve.bound[k] == pytest.approx(bound_by_bisection(r, v, 0.025), abs=1e-9)


@pytest.mark.parametrize("level", [0.6, 0.9])
def test_curve_at_high_levels(level):
    evidence = pair(records=60, attack=0.2)[1]
    curve = bound_curve(evidence, level)
    expected = [bound_by_bisection(r, v, level) for r, v in zip(curve.guesses, curve.correct, strict=True)]
    assert curve.bound == pytest.approx(expected, abs=1e-9)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(3, 400), st.floats(0, 4), st.sampled_from([None, 0, 1]))
def test_naive_is_the_best_of_the_whole_curve(seed, records, shift, decimals):
    baseline, attack = None, None
    try:
        baseline, attack = pair(records, shift, shift + 0.5, seed, decimals)
    except InputError:
        return  # all coins equal
    estimate = panoramia(baseline=baseline, attack=attack, guesses="naive", resamples=20)
    for name, evidence in (("baseline", baseline), ("attack", attack)):
        curve = bound_curve(evidence, (1 - 0.95) / 2)
        found = estimate.details[name]
        assert found["bound"] == pytest.approx(curve.bound.max(), rel=1e-12)
        if found["bound"] > 0:
            assert found["bound"] == pytest.approx(
                bound_by_bisection(found["guesses"], found["correct"], 0.025), abs=1e-9
            )


def test_ranked_measurement():
    baseline, attack = pair(attack=2.0)
    estimate = panoramia(baseline=baseline, attack=attack, confidence=0.95, seed=3)
    c, both = (ranked(e, confidence=0.975, order="in").low for e in (baseline, attack))
    assert estimate.details["c_lb"] == c
    assert estimate.details["c_plus_epsilon_lb"] == both
    assert estimate.epsilon == both - c > 0
    assert estimate.low == 0.0
    assert estimate.validity is Validity.MEASUREMENT
    assert not estimate.validity.is_bound
    assert "a measurement" in estimate.claim
    assert "only if" in estimate.claim
    assert estimate.warnings == ()
    assert estimate.details["null_p_value"] == pytest.approx(1 / 201)
    assert estimate.epsilon > estimate.details["null_band"][1]
    assert Estimate.from_dict(estimate.to_dict()).epsilon == estimate.epsilon


def test_no_leak_stays_in_the_null_band_and_says_so():
    baseline, attack = pair(records=4000, seed=5)
    estimate = panoramia(baseline=baseline, attack=attack)
    low, high = estimate.details["null_band"]
    assert low < 0 < high
    assert estimate.epsilon <= high
    assert any("equally good" in w for w in estimate.warnings)


def test_a_weaker_attack_measures_zero():
    baseline, attack = pair(baseline=2.0, attack=0.3)
    estimate = panoramia(baseline=baseline, attack=attack)
    assert estimate.epsilon == 0.0
    assert estimate.details["c_lb"] > estimate.details["c_plus_epsilon_lb"]


def test_fixed_number_of_guesses():
    baseline, attack = pair(attack=2.0)
    estimate = panoramia(baseline=baseline, attack=attack, guesses=100)
    for name, evidence in (("baseline", baseline), ("attack", attack)):
        v = int(evidence.included[np.argsort(-evidence.scores)[:100]].sum())
        assert estimate.details[name]["correct"] == v
        assert estimate.details[name]["bound"] == pytest.approx(bound_by_bisection(100, v, 0.025), abs=1e-9)
    assert estimate.validity is Validity.MEASUREMENT


def test_ties_at_the_cut_are_reported():
    baseline, attack = pair(decimals=0)
    assert any("tied" in w for w in panoramia(baseline=baseline, attack=attack, guesses=100).warnings)
    everything = panoramia(baseline=baseline, attack=attack, guesses=2000)
    assert not any("tied" in w for w in everything.warnings)


def test_naive_says_that_it_is_no_bound():
    baseline, attack = pair(attack=2.0)
    estimate = panoramia(baseline=baseline, attack=attack, guesses="naive")
    assert estimate.validity is Validity.EXPLORATORY
    assert any("chosen on the data" in w for w in estimate.warnings)
    alone = panoramia(baseline=None, attack=attack, guesses="naive")
    assert alone.validity is Validity.EXPLORATORY
    assert "not a bound" in alone.claim


def test_real_nonmembers_give_a_bound_at_the_full_level():
    _, attack = pair(attack=2.0)
    estimate = panoramia(baseline=None, attack=attack, seed=1)
    assert estimate.epsilon == estimate.low == ranked(attack, confidence=0.95, order="in").low > 0
    assert estimate.validity is Validity.RANDOM_SPLIT
    assert "chance alone decided which records were members" in estimate.claim
    fixed = panoramia(baseline=None, attack=attack, guesses=100)
    assert fixed.epsilon == pytest.approx(bound_by_bisection(100, fixed.details["attack"]["correct"], 0.05), abs=1e-9)


def test_saturation_is_flagged():
    baseline, attack = pair(baseline=1.0, attack=50.0)
    estimate = panoramia(baseline=baseline, attack=attack)
    assert estimate.details["attack"]["saturated"]
    assert not estimate.details["baseline"]["saturated"]
    assert any("attack is saturated" in w for w in estimate.warnings)
    perfect = panoramia(baseline=baseline, attack=attack, guesses=100).details["c_plus_epsilon_lb"]
    assert perfect == pytest.approx(math.log(0.025**0.01 / (1 - 0.025**0.01)))


def test_exchange_of_counts_is_exchange_of_ranks():
    """The binomial draw for each cell against records that are exchanged one by one and sorted anew."""
    baseline, attack = pair(records=400, baseline=1.0, attack=1.6, seed=9)
    points, level = np.array([5, 20, 60, 150, 400]), 0.025
    observed, fast = null_differences(baseline, attack, points=points, level=level, resamples=4000, seed=1)

    ranks = np.array([stats.rankdata(-e.scores) for e in (baseline, attack)])
    rng = np.random.default_rng(2)

    def difference(rows):
        best = []
        for row in rows:
            prefix = [row <= p for p in points]
            best.append(
                max(
                    bound_by_bisection(int(k.sum()), int((k & attack.included).sum()), level) for k in prefix if k.any()
                )
            )
        return best[1] - best[0]

    assert observed == pytest.approx(difference(ranks), abs=1e-9)
    slow = np.array([difference(np.where(rng.random(400) < 0.5, ranks, ranks[::-1])) for _ in range(250)])
    assert stats.ks_2samp(fast, slow).pvalue > 1e-3
    assert fast.std() == pytest.approx(slow.std(), rel=0.2)


def test_null_p_value_is_uniform_enough_without_a_leak():
    small = sum(
        panoramia(baseline=b, attack=a, seed=s).details["null_p_value"] <= 0.1
        for s in range(150)
        for b, a in [pair(records=400, seed=s)]
    )
    assert stats.binom.sf(small - 1, 150, 0.1) > 1e-3


def test_without_a_null_band():
    baseline, attack = pair()
    assert "null_band" not in panoramia(baseline=baseline, attack=attack, resamples=0).details


def test_same_seed_same_result():
    baseline, attack = pair(records=500, decimals=1)
    one, other = (panoramia(baseline=baseline, attack=attack, seed=4) for _ in range(2))
    assert one.to_dict() == other.to_dict()


@pytest.mark.parametrize("shift", [0.0, 1.0])
def test_level_with_real_nonmembers(shift):
    """Laplace scores of shift 1 have ε = 1 exactly, and shift 0 none."""
    above, repeats = 0, 300
    for seed in range(repeats):
        rng = np.random.default_rng([11, seed])
        coins = rng.random(400) < 0.5
        evidence = OneRun(rng.laplace(size=400) + shift * coins, coins)
        above += panoramia(baseline=None, attack=evidence, confidence=0.9, seed=seed).epsilon > shift
    assert stats.binom.sf(above - 1, repeats, 0.1) > 1e-3


def test_two_records():
    evidence = OneRun([1.0, 0.0], [1, 0])
    estimate = panoramia(baseline=evidence, attack=evidence)
    assert estimate.epsilon == 0.0
    assert estimate.details["null_p_value"] == 1.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda b, a: {"baseline": b.as_scores(), "attack": a}, "baseline must be a OneRun, got Scores"),
        (lambda b, a: {"baseline": b, "attack": None}, "attack must be a OneRun, got NoneType"),
        (lambda b, a: {"baseline": pair(100)[0], "attack": a}, "baseline has 100 records but attack has 2000"),
        (
            lambda b, a: {"baseline": pair(seed=2)[0], "attack": a},
            "included differs between baseline and attack at record",
        ),
        (lambda b, a: {"baseline": b, "attack": a, "guesses": "best"}, "guesses must be one of ranked, naive"),
        (lambda b, a: {"baseline": b, "attack": a, "guesses": 2001}, "guesses must be between 1 and 2000"),
        (lambda b, a: {"baseline": b, "attack": a, "guesses": 2.5}, "guesses must be a whole number"),
        (lambda b, a: {"baseline": b, "attack": a, "confidence": 0.0}, "confidence"),
        (lambda b, a: {"baseline": b, "attack": a, "resamples": -1}, "resamples"),
        (lambda b, a: {"baseline": b, "attack": a, "seed": 0.5}, "seed"),
    ],
)
def test_bad_input(change, message):
    with pytest.raises(InputError, match=message):
        panoramia(**change(*pair()))


def test_bad_level():
    with pytest.raises(InputError, match="level"):
        bound_curve(pair()[0], 0.0)
