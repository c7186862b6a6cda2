import itertools
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from dosimeter import geometry
from dosimeter._validate import InputError
from dosimeter.estimate import Validity
from dosimeter.estimators.claim import (
    FRACTIONS,
    LEVELS,
    PROFILE_EPSILONS,
    SIDE_WEIGHTS,
    ClaimTest,
    claim,
    gaussian_profile,
    wealth_log,
)
from dosimeter.evidence import OneRun


def gaussian_runs(seed, runs, mu=1.0):
    rng = np.random.default_rng([5, seed])
    coins = rng.random(runs) < 0.5
    return rng.normal(size=runs) + mu * coins, coins


def leaky_response(epsilon, delta):
    """P[output | coin] over outputs −2, −1, 1, 2: the coin is given away with probability δ, else ε-randomised."""
    truth = (1 - delta) * special.expit(epsilon)
    lie = (1 - delta) * special.expit(-epsilon)
    return {0: {-2: delta, -1: truth, 1: lie, 2: 0.0}, 1: {-2: 0.0, -1: lie, 1: truth, 2: delta}}


# --- the wealth -------------------------------------------------------------------------------------------


def test_wealth_golden():
    # counts and value recomputed from Π(1 + l(g − δ/2)), one factor for each run
    stake = 0.5 / (math.e + 5e-6)
    found = wealth_log(hits_in=30, hits_out=3, runs=200, epsilon=1, delta=1e-5, stake=stake)
    assert found == pytest.approx(2.985802, abs=6e-7)
    payoffs = [1.0] * 30 + [-math.e] * 3 + [0.0] * 167
    assert found == pytest.approx(math.log(math.prod(1 + stake * (g - 5e-6) for g in payoffs)), abs=1e-12)


def wealth_by_definition(scores, coins, pairs, thresholds=None):
    """Every bet multiplied out run by run; thresholds are quantiles of the runs before the last power of two."""
    size = len(LEVELS) if thresholds is None else len(thresholds)
    low = np.arange((size + 1) // 2)
    wealth = {
        (pair, f, side): np.ones(size if side != "both" else low.size)
        for pair in pairs
        for f in FRACTIONS
        for side in ("in", "out", "both")
    }
    path = []
    for t, (score, coin) in enumerate(zip(scores, coins, strict=True)):
        cut = thresholds
        if thresholds is None and t >= 8:
            cut = np.quantile(scores[: 2 ** int(math.log2(t))], LEVELS)
        if cut is not None:
            sign = 1 if coin else -1
            cut = np.asarray(cut)
            above, below = score >= cut, score <= cut
            if size % 2:
                below[size // 2] = score < cut[size // 2]
            for ((epsilon, delta), f, side), w in wealth.items():
                price = {1: 1.0, -1: -math.exp(epsilon)}
                up, down = above * price[sign], below * price[-sign]
                if side == "both":
                    w *= 1 + f / (math.exp(epsilon) + delta) * (up[size - 1 - low] + down[low] - delta)
                else:
                    w *= 1 + f / (math.exp(epsilon) + delta / 2) * ((up if side == "in" else down) - delta / 2)
        total = 0.0
        for side, weight in zip(("in", "out", "both"), SIDE_WEIGHTS, strict=True):
            total += weight * np.mean([w for (_, _, s), w in wealth.items() if s == side])
        path.append(math.log(total))
    return np.array(path)


@pytest.mark.parametrize("profile", [None, [(0.0, 0.3), (2.0, 1e-7)]])
@pytest.mark.parametrize("thresholds", [None, [0.3], [-1.0, 0.0, 0.5, 2.0], [-0.5, 0.5, 1.5]])
def test_wealth_is_its_definition_at_every_run(profile, thresholds):
    scores, coins = gaussian_runs(0, 70, mu=2.0)
    pairs = [(1.0, 0.01), *(profile or [])]
    expected = wealth_by_definition(scores, coins, pairs, thresholds)
    test = ClaimTest(epsilon=1.0, delta=0.01, profile=profile, thresholds=thresholds)
    found = []
    for score, coin in zip(scores, coins, strict=True):
        test.update(score, coin)
        found.append(test.log_wealth)
    assert found == pytest.approx(expected, abs=1e-9)
    assert test.max_log_wealth == pytest.approx(max(0.0, expected.max()), abs=1e-9)
    crossed = np.flatnonzero(expected >= math.log(20))
    assert test.rejected_at == (int(crossed[0]) + 1 if crossed.size else None)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 0.0), (0.0, 0.2), (1.0, 0.0), (1.0, 0.1), (3.0, 1e-5)])
def test_expected_wealth_is_at_most_one_under_the_claim(epsilon, delta):
    """All outcomes of three runs of a mechanism that uses up its (ε, δ), with their exact probabilities."""
    law = leaky_response(epsilon, delta)
    steps = [(s, b, p / 2) for b in (0, 1) for s, p in law[b].items() if p > 0]
    mean = 0.0
    for path in itertools.product(steps, repeat=3):
        test = ClaimTest(epsilon=epsilon, delta=delta, thresholds=[-1.5, 0.0, 1.5])
        test.update_many([s for s, _, _ in path], [b for _, b, _ in path])
        mean += math.exp(test.log_wealth) * math.prod(p for _, _, p in path)
    assert mean <= 1 + 1e-12
    assert mean > 0.9


def test_expected_wealth_is_above_one_when_the_claim_is_false():
    law = leaky_response(1.0, 0.1)
    steps = [(s, b, p / 2) for b in (0, 1) for s, p in law[b].items() if p > 0]
    mean = 0.0
    for s, b, p in steps:
        test = ClaimTest(epsilon=0.5, delta=0.05, thresholds=[-1.5, 0.0, 1.5])
        test.update(s, b)
        mean += p * math.exp(test.log_wealth)
    assert mean > 1.001


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 200), st.integers(1, 50))
def test_bets_are_placed_before_the_run(seed, runs, more):
    """What comes later changes nothing that was said before."""
    scores, coins = gaussian_runs(seed, runs + more)
    short, long = (ClaimTest(epsilon=0.3, delta=1e-5) for _ in range(2))
    short.update_many(scores[:runs], coins[:runs])
    for start in range(0, runs, 7):
        long.update_many(scores[start : min(start + 7, runs)], coins[start : min(start + 7, runs)])
    assert long.log_wealth == pytest.approx(short.log_wealth, abs=1e-9)
    before = short.rejected_at
    short.update_many(scores[runs:], coins[runs:])
    assert before is None or short.rejected_at == before


def test_state_survives_a_restart():
    scores, coins = gaussian_runs(3, 900)
    whole = ClaimTest(epsilon=1.0, delta=1e-5, profile=gaussian_profile(0.268051))
    whole.update_many(scores, coins)
    for cut in (3, 8, 100, 511, 512, 899):
        part = ClaimTest(epsilon=1.0, delta=1e-5, profile=gaussian_profile(0.268051))
        part.update_many(scores[:cut], coins[:cut])
        part = ClaimTest.from_dict(json.loads(json.dumps(part.to_dict())))
        part.update_many(scores[cut:], coins[cut:])
        assert part.log_wealth == pytest.approx(whole.log_wealth, abs=1e-9)
        assert part.rejected_at == whole.rejected_at
        assert part.lower_bound() == pytest.approx(whole.lower_bound(), abs=1e-9)
    fixed = ClaimTest(epsilon=1.0, delta=0.0, thresholds=[1.0, 0.0])
    fixed.update_many(scores, coins)
    assert ClaimTest.from_dict(fixed.to_dict()).to_dict() == fixed.to_dict()


# --- level and power --------------------------------------------------------------------------------------


def rejections(streams, runs, draw, **arguments):
    count = 0
    for seed in range(streams):
        test = ClaimTest(**arguments)
        test.update_many(*draw(np.random.default_rng([9, seed]), runs))
        count += test.rejected
    return count


def laplace(rng, runs):
    coins = rng.random(runs) < 0.5
    return rng.laplace(size=runs) + coins, coins


def response(rng, runs):
    coins = rng.random(runs) < 0.5
    return np.where(rng.random(runs) < special.expit(1.0), coins, ~coins).astype(float), coins


def gaussian(rng, runs):
    coins = rng.random(runs) < 0.5
    return rng.normal(size=runs) + coins, coins


@pytest.mark.parametrize("draw", [laplace, response])
def test_a_true_claim_is_rejected_at_most_at_the_level_at_any_time(draw):
    found = rejections(200, 2000, draw, epsilon=1.0, delta=0.0)
    assert stats.binom.sf(found - 1, 200, 0.05) > 1e-3


def test_a_true_profile_is_rejected_at_most_at_the_level_at_any_time():
    delta = gaussian_profile(1.0)(1.0)
    found = rejections(60, 2000, gaussian, epsilon=1.0, delta=delta, profile=gaussian_profile(1.0))
    assert stats.binom.sf(found - 1, 60, 0.05) > 1e-3


def test_power_against_a_gaussian_that_leaks_more_than_it_claims():
    """Claimed ε = 1 at δ = 1e-5, truth 4.377: the medians of the published bets are 171 and 735 runs."""
    claimed = gaussian_profile(float(geometry.mu_from_epsilon(1.0, 1e-5)))
    with_profile, one_pair = [], []
    for seed in range(100):
        scores, coins = gaussian_runs(seed, 1500)
        for found, profile in ((with_profile, claimed), (one_pair, None)):
            test = ClaimTest(epsilon=1.0, delta=1e-5, profile=profile)
            test.update_many(scores[: 600 if profile else 1500], coins[: 600 if profile else 1500])
            found.append(test.rejected_at or math.inf)
    assert np.median(with_profile) < 171
    assert np.median(one_pair) < 600


# --- the confidence sequence and the estimate -------------------------------------------------------------


@pytest.mark.once
def test_lower_bound_and_verdict_agree():
    for seed in range(20):
        evidence = OneRun(*gaussian_runs(seed, 600))
        for claimed in (0.3, 0.6, 1.0):
            estimate = claim(evidence, epsilon=claimed, delta=1e-5)
            assert estimate.details["rejected"] == (estimate.low >= claimed)


def test_lower_bound_is_where_the_wealth_reaches_the_goal():
    evidence = OneRun(*gaussian_runs(2, 40, mu=3.0))
    low = claim(evidence, epsilon=1.0, delta=1e-3).low
    assert low > 0
    just_below = claim(evidence, epsilon=low - 1e-6, delta=1e-3).details
    just_above = claim(evidence, epsilon=low + 1e-6, delta=1e-3).details
    assert just_below["rejected"]
    assert not just_above["rejected"]
    assert just_above["max_log_wealth"] == pytest.approx(just_above["needed_log_wealth"], abs=1e-4)


def test_lower_bound_does_not_depend_on_what_was_claimed():
    evidence = OneRun(*gaussian_runs(1, 49))
    lows = [claim(evidence, epsilon=e, delta=1e-5).low for e in (0.0, 1.0, 5.0)]
    assert lows == pytest.approx([lows[0]] * 3, abs=1e-9)


@pytest.mark.once
def test_lower_bound_holds_its_level():
    above = 0
    for seed in range(120):
        evidence = OneRun(*response(np.random.default_rng([13, seed]), 150))
        above += claim(evidence, epsilon=1.0, delta=0.0, confidence=0.9).low > 1.0
    assert stats.binom.sf(above - 1, 120, 0.1) > 1e-3


def test_estimate_of_a_rejected_claim():
    estimate = claim(OneRun(*gaussian_runs(0, 400, mu=3.0)), epsilon=1.0, delta=1e-5)
    assert estimate.method == "claim"
    assert estimate.validity is Validity.INDEPENDENT_RUNS
    assert estimate.details["rejected"] is True
    assert 8 < estimate.details["rejected_at"] < 200
    assert estimate.details["runs"] == 400
    assert estimate.details["e_value"] > 20
    assert f"rejected with 95 % confidence at run {estimate.details['rejected_at']}" in estimate.claim
    assert 1.0 < estimate.epsilon == estimate.low < estimate.high == math.inf
    json.dumps(estimate.to_dict(), allow_nan=False)


def test_estimate_of_a_claim_that_stands():
    estimate = claim(OneRun(*gaussian_runs(0, 400, mu=0.0)), epsilon=1.0, delta=1e-5)
    assert estimate.details["rejected"] is False
    assert estimate.details["rejected_at"] is None
    assert "does not prove it" in estimate.claim
    assert estimate.low == 0.0


def test_profile_as_function_and_as_pairs_is_the_same():
    evidence = OneRun(*gaussian_runs(0, 200))
    function = gaussian_profile(0.268051)
    pairs = [(e, function(e)) for e in PROFILE_EPSILONS]
    one = claim(evidence, epsilon=1.0, delta=1e-5, profile=function)
    other = claim(evidence, epsilon=1.0, delta=1e-5, profile=pairs)
    assert one == other
    assert "with its profile" in one.claim
    assert one.details["pairs"][0] == (1.0, 1e-5)


def test_gaussian_profile_golden():
    # ε(μ = 1, δ = 1e-5) = 4.377178
    assert gaussian_profile(1.0)(4.377178) == pytest.approx(1e-5, rel=1e-5)
    assert gaussian_profile(0.0)(1.0) == 0.0


def test_few_runs_and_ties():
    estimate = claim(OneRun([1.0, 0.0], [1, 0]), epsilon=0.0, delta=0.0)
    assert estimate.low == 0.0
    assert not estimate.details["rejected"]
    constant = claim(OneRun(np.zeros(300), gaussian_runs(0, 300)[1]), epsilon=0.0, delta=0.0)
    assert not constant.details["rejected"]
    coins = gaussian_runs(0, 300)[1]
    perfect = claim(OneRun(coins.astype(float), coins), epsilon=4.0, delta=1e-12)
    assert perfect.details["rejected"]
    assert perfect.low > 4.0
    assert claim(OneRun(coins.astype(float), coins), epsilon=700.0, delta=0.0).details["rejected"] is False


def test_mask_warnings_are_passed_on():
    half = OneRun(np.arange(100.0), np.arange(100) >= 50)
    assert "exactly half" in claim(half, epsilon=1.0, delta=0.0).warnings[0]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ClaimTest(epsilon=-1.0, delta=0.0), "epsilon"),
        (lambda: ClaimTest(epsilon=1.0, delta=1.0), "delta"),
        (lambda: ClaimTest(epsilon=1.0, delta=0.0, confidence=2), "confidence"),
        (lambda: ClaimTest(epsilon=1.0, delta=0.0, profile=3), "profile must be a function"),
        (lambda: ClaimTest(epsilon=1.0, delta=0.0, profile=[(1.0,)]), "profile must be a function"),
        (lambda: ClaimTest(epsilon=1.0, delta=0.0, profile=[(1.0, 2.0)]), "profile δ at ε = 1"),
        (lambda: ClaimTest(epsilon=1.0, delta=0.0, profile=lambda e: math.nan), "profile δ at ε = 0"),
        (lambda: ClaimTest(epsilon=1.0, delta=0.0, thresholds=[]), "thresholds must hold at least 1"),
        (lambda: ClaimTest(epsilon=1.0, delta=0.0).update(math.nan, 1), r"scores\[0\] is nan"),
        (lambda: ClaimTest(epsilon=1.0, delta=0.0).update(1.0, 2), "only 0 and 1"),
        (lambda: ClaimTest(epsilon=1.0, delta=0.0).update_many([1.0, 2.0], [1]), "they must pair up"),
        (lambda: ClaimTest.from_dict({}), "not what ClaimTest.to_dict wrote"),
        (lambda: ClaimTest.from_dict({"version": 99}), "version 99"),
        (lambda: claim([1.0], epsilon=1.0, delta=0.0), "must be a OneRun, got list"),
        (lambda: gaussian_profile(-1.0), "mu"),
        (lambda: wealth_log(hits_in=2, hits_out=2, runs=3, epsilon=1, delta=0, stake=0.1), "hits_out"),
        (lambda: wealth_log(hits_in=1, hits_out=1, runs=3, epsilon=1, delta=0, stake=0.4), "stake"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(InputError, match=message):
        call()


def test_a_state_that_was_cut_is_refused():
    test = ClaimTest(epsilon=1.0, delta=1e-5)
    test.update_many(*gaussian_runs(0, 50))
    for name in test.to_dict():
        broken = test.to_dict()
        del broken[name]
        with pytest.raises(InputError):
            ClaimTest.from_dict(broken)
    with pytest.raises(InputError):
        ClaimTest.from_dict(test.to_dict() | {"counts": [1, 2]})


def test_the_lowest_number_there_is_can_be_a_score():
    lowest = -np.finfo(float).max
    scores = np.array([0.0] * 3 + [lowest] * 5 + [0.0])
    assert claim(OneRun(scores, np.arange(9) < 5), epsilon=1.0, delta=0.0, confidence=0.5).low >= 0
