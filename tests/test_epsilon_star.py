"""Epsilon*: the losses, the exact supremum, both forms, their resamples and the mechanism level."""

import json
import math
import time
from pathlib import Path

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from dosimeter._validate import InputError
from dosimeter.estimate import Validity
from dosimeter.estimators import resampling
from dosimeter.estimators.epsilon_star import (
    epsilon_star,
    epsilon_star_from_tails,
    epsilon_star_mechanism,
    epsilon_star_normal,
)
from dosimeter.estimators.losses import losses_from_logits, losses_from_probabilities
from dosimeter.evidence import Scores

GOLDEN = json.loads((Path(__file__).parent / "golden" / "epsilon_star.json").read_text(encoding="utf-8"))


def ceiling(delta):
    return math.log((1 - 2 * delta) / delta)


def normal_losses(shift, n=400, seed=0, scale=1.0):
    rng = np.random.default_rng(seed)
    return rng.normal(0, 1, n), rng.normal(shift, scale, n)


# --- losses -----------------------------------------------------------------------------------------------


def test_binary_logits_are_the_signed_logit():
    np.testing.assert_array_equal(losses_from_logits([2.0, 2.0, -700.0], [1, 0, 1]), [-2.0, 2.0, 700.0])


def test_multiclass_logits_keep_the_tail():
    logits = np.array([[60.0, 0.0, 1.0], [0.5, -0.25, 3.0], [-400.0, 400.0, 399.0], [0.0, 1e300, 0.0]])
    labels = [0, 1, 0, 1]
    with mpmath.workdps(400):
        expected = []
        for row, label in zip(logits[:3], labels[:3], strict=True):
            weights = [mpmath.exp(mpmath.mpf(float(z))) for z in row]
            p = weights[label] / mpmath.fsum(weights)
            expected.append(float(-(mpmath.log(p) - mpmath.log(1 - p))))
    losses = losses_from_logits(logits, labels)
    np.testing.assert_allclose(losses[:3], expected, rtol=1e-14)
    assert losses[3] == -1e300


@given(st.lists(st.floats(-30, 30), min_size=1, max_size=8), st.integers(0, 1))
def test_two_classes_equal_the_binary_formula(logits, label):
    z = np.array(logits)
    two = losses_from_logits(np.column_stack([np.zeros_like(z), z]), np.full(z.size, label))
    np.testing.assert_allclose(two, losses_from_logits(z, np.full(z.size, label)), rtol=1e-13, atol=1e-13)
    p = special.expit(z)
    from_p, _ = losses_from_probabilities(np.column_stack([special.expit(-z), p]), np.full(z.size, label))
    np.testing.assert_allclose(from_p, two, rtol=1e-9, atol=1e-9)


def test_probabilities_give_the_formula():
    losses, clipped = losses_from_probabilities([0.2, 0.2, 0.9], [1, 0, 1])
    np.testing.assert_allclose(losses, [math.log(4), -math.log(4), -math.log(9)])
    assert clipped == 0
    losses, clipped = losses_from_probabilities([[0.2, 0.3, 0.5], [0.1, 0.1, 0.8]], [1, 2])
    np.testing.assert_allclose(losses, [math.log(7 / 3), -math.log(4)])
    assert clipped == 0


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_rounded_probabilities_are_clipped_alike_at_both_ends_and_counted(dtype):
    losses, clipped = losses_from_probabilities(np.array([0, 1, 0, 1, 0.5], dtype), [0, 0, 1, 1, 1])
    edge = -math.log(np.finfo(dtype).epsneg)
    np.testing.assert_allclose(losses, [-edge, edge, edge, -edge, 0], atol=1e-3)
    assert clipped == 4
    two_columns, clipped = losses_from_probabilities(np.array([[1, 0], [0, 1]], dtype), [0, 0])
    np.testing.assert_allclose(two_columns, [-edge, edge], atol=1e-3)
    assert clipped == 2


def test_probabilities_of_the_others_keep_what_one_minus_p_loses():
    losses, clipped = losses_from_probabilities([[1.0, 2e-16, 3e-16]], [0])
    assert losses[0] == pytest.approx(math.log(5e-16)) and clipped == 0


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: losses_from_logits([[1.0, math.nan], [0, 0]], [0, 1]), r"logits\[0\] is not finite"),
        (lambda: losses_from_logits([0.0, math.inf], [0, 1]), r"logits\[1\] is not finite"),
        (lambda: losses_from_logits([[1.0], [2.0]], [0, 0]), "binary"),
        (lambda: losses_from_logits(np.zeros((2, 2, 2)), [0, 0]), r"shape \(n,\)"),
        (lambda: losses_from_logits([], []), r"shape \(n,\)"),
        (lambda: losses_from_logits([[1.0, 2.0], [3.0]], [0, 0]), "mixed lengths"),
        (lambda: losses_from_logits(["a"], [0]), "must hold numbers"),
        (lambda: losses_from_logits([1.0, 2.0], [0]), "pair up"),
        (lambda: losses_from_logits([1.0, 2.0], [0, 2]), r"labels\[1\] is 2"),
        (lambda: losses_from_logits([1.0, 2.0], [0.5, 1]), r"labels\[0\] is 0.5"),
        (lambda: losses_from_logits([[1.0, 2.0, 3.0]], [-1]), r"labels\[0\] is -1"),
        (lambda: losses_from_logits([[-1.7e308, 1.7e308]], [0]), "largest float"),
        (lambda: losses_from_probabilities([0.5, 1.5], [0, 1]), r"probabilities\[1\] .*outside"),
        (lambda: losses_from_probabilities([[0.5, 0.6]], [0]), r"probabilities\[0\] does not sum to 1"),
        (lambda: losses_from_probabilities([[1.5, -0.5]], [0]), "outside"),
    ],
)
def test_bad_outputs_are_refused(call, words):
    with pytest.raises(InputError, match=words):
        call()


# --- the exact supremum -----------------------------------------------------------------------------------


def test_golden_normal():
    golden = GOLDEN["normal 0 vs 3, delta 1e-5"]
    for value in (
        epsilon_star_from_tails(stats.norm(0, 1), stats.norm(3, 1), delta=1e-5),
        float(epsilon_star_normal(0, 1, 3, 1, 1e-5)),
    ):
        assert value == pytest.approx(golden["value"], abs=golden["tolerance"])
        assert value == pytest.approx(9.23934, abs=1e-4)


@pytest.mark.parametrize(
    ("delta", "rounded"), [(1e-5, (4.31917, 6.61728, 8.04013)), (1e-3, (2.70822, 4.22489, 5.12752))]
)
@pytest.mark.parametrize("scale", [5.0, 0.2])  # the second parameter may be read as scale or as rate
def test_golden_gamma(delta, rounded, scale):
    member = stats.gamma(2, scale=scale)
    assert epsilon_star_from_tails(member, stats.gamma(2, scale=scale), delta=delta) == 0
    for d, grid_value in enumerate(rounded, start=1):
        golden = GOLDEN[f"gamma d={d}, delta {'1e-5' if delta == 1e-5 else '1e-3'}"]
        other = stats.gamma(2 + d, scale=scale)
        value = epsilon_star_from_tails(member, other, delta=delta)
        assert value == pytest.approx(golden["value"], abs=golden["tolerance"])
        assert value == pytest.approx(grid_value, abs=1e-4)
        assert value == pytest.approx(epsilon_star_from_tails(other, member, delta=delta), abs=1e-12)


def brute_force(m1, s1, m2, s2, delta):
    """A dense scan of plain ratios: no brackets, no refinement, no logarithms."""
    z = -special.ndtri(delta)
    low, high = max(m1 - z * s1, m2 - z * s2), min(m1 + z * s1, m2 + z * s2)
    if low >= high:
        return ceiling(delta)
    edge = np.geomspace(1e-12, 1e-2, 5001)
    s = low + (high - low) * np.concatenate([np.linspace(0, 1, 50001), edge, 1 - edge])
    fnr, tpr = special.ndtr((s - m1) / s1), special.ndtr((m1 - s) / s1)
    tnr, fpr = special.ndtr((s - m2) / s2), special.ndtr((m2 - s) / s2)
    ratios = [(tpr - delta) / fpr, (tnr - delta) / fnr, (fnr - delta) / tnr, (fpr - delta) / tpr]
    return max(0.0, math.log(max(np.max(ratios), 1)))


@settings(max_examples=80, deadline=None)
@given(
    st.floats(-12, -0.5),
    st.floats(-6, 6),
    st.one_of(st.floats(-0.5, 0.5), st.floats(-5, 1)),
)
def test_normal_supremum_against_brute_force(log_delta, gap, log_sd):
    delta, sd = 10**log_delta, 10**log_sd
    exact = float(epsilon_star_normal(gap, sd, 0.0, 1.0, delta))
    scanned = brute_force(gap, sd, 0.0, 1.0, delta)
    assert exact >= scanned - 1e-9
    assert exact == pytest.approx(scanned, abs=1e-5)


def test_interior_supremum_against_mpmath():
    # Equal means, members twice as spread: the best threshold is inside, found here by root of the derivative.
    delta = mpmath.mpf("1e-4")
    with mpmath.workdps(40):

        def log_ratio(s):
            return mpmath.log((mpmath.ncdf(-s / 2) - delta) / mpmath.ncdf(-s))

        best = mpmath.findroot(lambda s: mpmath.diff(log_ratio, s), 3.5)
        at_end = log_ratio(-mpmath.sqrt(2) * mpmath.erfinv(2 * delta - 1))
        expected = float(max(log_ratio(best), at_end))
    assert float(epsilon_star_normal(0, 2, 0, 1, 1e-4)) == pytest.approx(expected, abs=1e-11)


def test_two_routes_to_one_supremum():
    for delta in (1e-12, 1e-5, 0.01, 0.3):
        for sd in (0.3, 1.0, 2.5):
            by_tails = epsilon_star_from_tails(stats.norm(0, sd), stats.norm(0.7, 1), delta=delta)
            assert by_tails == pytest.approx(float(epsilon_star_normal(0, sd, 0.7, 1, delta)), abs=1e-9)


def test_tails_may_be_functions_and_heavy():
    pair = (stats.norm(0, 1).logcdf, stats.norm(0, 1).logsf)
    assert epsilon_star_from_tails(pair, stats.norm(3, 1), delta=1e-5) == pytest.approx(9.239367372294035)
    # ln of a log-normal is normal: a strictly increasing transform changes nothing, over 18 orders of magnitude.
    heavy = epsilon_star_from_tails(stats.lognorm(5), stats.lognorm(5, scale=math.exp(15)), delta=1e-5)
    assert heavy == pytest.approx(9.239367372294035, abs=1e-9)


@given(st.floats(-3, 3), st.floats(0.2, 3), st.floats(0.2, 3), st.floats(1e-9, 0.2))
@settings(max_examples=60, deadline=None)
def test_supremum_is_symmetric_scale_free_and_falls_in_delta(gap, s1, s2, delta):
    value = float(epsilon_star_normal(gap, s1, 0, s2, delta))
    for same in ((0, s2, gap, s1), (-gap, s1, 0, s2), (7 * gap + 2, 7 * s1, 2, 7 * s2)):
        assert float(epsilon_star_normal(*same, delta)) == pytest.approx(value, abs=1e-8)
    assert 0 <= value <= ceiling(delta) + 1e-12
    assert float(epsilon_star_normal(gap, s1, 0, s2, delta / 2)) >= value - 1e-12


def test_wider_separation_never_lowers_the_supremum_up_to_its_ceiling():
    gaps = np.linspace(0, 40, 801)
    for sd in (0.01, 1.0, 3.0):
        values = epsilon_star_normal(gaps, sd, 0, 1, 1e-6)
        if sd == 1.0:
            assert values[0] == 0
        assert np.diff(values).min() >= -1e-9
        assert values[-1] == pytest.approx(ceiling(1e-6), abs=1e-12)


def test_vanishing_standard_deviation_is_the_limit():
    p, delta = special.ndtr(1.0), 1e-5
    limit = math.log(max((1 - 2 * delta) / (1 - p), (p - delta) / delta, (1 - 2 * delta) / p, (1 - p - delta) / delta))
    for sd, tolerance in ((0.0, 1e-12), (1e-9, 1e-7), (1e-4, 1e-2)):
        for value in (epsilon_star_normal(1, sd, 0, 1, delta), epsilon_star_normal(0, 1, 1, sd, delta)):
            assert float(value) == pytest.approx(limit, abs=tolerance)
    np.testing.assert_allclose(
        epsilon_star_normal([1, 1, 9], 0, [1, 2, 0], [0, 0, 1], delta), [0, *[ceiling(delta)] * 2]
    )


def test_tiny_deltas_and_large_ones():
    assert float(epsilon_star_normal(0, 1, 1, 1, 1e-300)) < ceiling(1e-300)
    assert float(epsilon_star_normal(0, 1, 50, 1, 0.4)) == 0  # even the ceiling is below 1
    assert float(epsilon_star_normal(0, 1, 50, 1, 0.7)) == 0
    assert epsilon_star_from_tails(stats.norm(0, 1), stats.norm(50, 1), delta=0.7) == 0
    assert epsilon_star_from_tails(stats.norm(0, 1), stats.norm(50, 1), delta=1e-5) == pytest.approx(ceiling(1e-5))


def test_bad_distributions_are_refused():
    with pytest.raises(InputError, match="delta must be above 0"):
        epsilon_star_normal(0, 1, 1, 1, 0)
    with pytest.raises(InputError, match="sd_members"):
        epsilon_star_normal(0, -1, 1, 1, 1e-5)
    with pytest.raises(InputError, match="mu_nonmembers"):
        epsilon_star_normal(0, 1, math.nan, 1, 1e-5)
    with pytest.raises(InputError, match="delta must be above 0"):
        epsilon_star_from_tails(stats.norm(0, 1), stats.norm(3, 1), delta=0)
    with pytest.raises(InputError, match="members must have logcdf"):
        epsilon_star_from_tails(3, stats.norm(3, 1), delta=1e-5)
    with pytest.raises(InputError, match="never NaN"):
        epsilon_star_from_tails((lambda x: x * math.nan,) * 2, stats.norm(3, 1), delta=1e-5)


# --- the parametric form ----------------------------------------------------------------------------------


def written_out(members, nonmembers, delta):
    """The four steps of the paper one by one, and a dense scan."""
    union = np.concatenate([members, nonmembers])
    phi = []
    for losses in (members, nonmembers):
        p = np.exp(-((losses - union.min()) / (union.max() - union.min()) + 1))
        phi.append(np.log(p) - np.log(1 - p))
    return brute_force(phi[0].mean(), phi[0].std(), phi[1].mean(), phi[1].std(), delta)


@pytest.mark.parametrize("shift", [0.0, 0.5, 3.0])
def test_parametric_form_follows_the_paper(shift):
    members, nonmembers = normal_losses(shift, scale=1.3)
    estimate = epsilon_star(members, nonmembers, delta=1e-4, resamples=0)
    assert estimate.epsilon == pytest.approx(written_out(members, nonmembers, 1e-4), abs=1e-5)
    assert estimate.method == "epsilon-star-parametric"


def test_parametric_result_says_what_it_is():
    members, nonmembers = normal_losses(1.0)
    estimate = epsilon_star(members, nonmembers)
    assert estimate.validity is Validity.INSTANCE_METRIC
    assert "not for the DP ε" in estimate.claim and "lower bound" in estimate.claim
    assert estimate.delta == pytest.approx(1 / (400 * math.log(400)))
    assert 0 < estimate.low < estimate.epsilon < estimate.high
    details = estimate.details
    rates = {"FPR": details["fpr"], "FNR": details["fnr"], "delta": estimate.delta}
    assert math.log(eval(details["ratio"], {}, rates)) == pytest.approx(estimate.epsilon, abs=1e-9)
    # The reported loss threshold gives the same rates through the transform.
    x = 1 + (estimate.threshold - details["lowest_loss"]) / (details["highest_loss"] - details["lowest_loss"])
    phi = -math.log(math.expm1(x))
    fit = details["members"]
    assert special.ndtr((phi - fit["mean"]) / fit["sd"]) == pytest.approx(details["fnr"], rel=1e-6)
    assert json.dumps(estimate.to_dict(), allow_nan=False)


@settings(max_examples=30, deadline=None)
@given(st.floats(0, 3), st.floats(1e-3, 1e3), st.floats(-1e3, 1e3), st.integers(0, 100))
def test_parametric_form_ignores_positive_affine_transforms(shift, slope, offset, seed):
    members, nonmembers = normal_losses(shift, n=50, seed=seed)
    value = epsilon_star(members, nonmembers, delta=1e-3, resamples=0).epsilon
    moved = epsilon_star(slope * members + offset, slope * nonmembers + offset, delta=1e-3, resamples=0).epsilon
    assert moved == pytest.approx(value, abs=1e-6)


def test_parametric_form_is_symmetric_in_the_sides_and_falls_in_delta():
    members, nonmembers = normal_losses(1.0)
    one = epsilon_star(members, nonmembers, delta=1e-4, resamples=0)
    other = epsilon_star(nonmembers, members, delta=1e-4, resamples=0)
    assert one.epsilon == pytest.approx(other.epsilon, abs=1e-12)
    values = [epsilon_star(members, nonmembers, delta=d, resamples=0).epsilon for d in (1e-12, 1e-6, 1e-3, 0.1)]
    assert values == sorted(values, reverse=True)
    shifts = [epsilon_star(members, members + s, delta=1e-4, resamples=0).epsilon for s in (0, 0.5, 1, 2, 4)]
    assert shifts[0] == 0 and shifts == sorted(shifts)


def test_degenerate_losses_have_an_answer():
    spread = np.linspace(0, 1, 50)
    same = epsilon_star(np.ones(5), np.ones(7), delta=1e-5)
    assert (same.epsilon, same.low, same.high) == (0, 0, 0) and "all losses are equal" in same.warnings[0]
    two_points = epsilon_star(np.zeros(5), np.ones(7), delta=1e-5)
    assert two_points.epsilon == pytest.approx(ceiling(1e-5)) and two_points.details["at_ceiling"]
    assert any("ceiling" in w for w in two_points.warnings)
    one_constant = epsilon_star(np.full(50, 0.5), spread, delta=1e-5)
    assert 0 < one_constant.epsilon < ceiling(1e-5) and "all member losses are equal" in one_constant.warnings[0]
    nearly = np.full(50, 0.5) + 1e-9 * np.linspace(-1, 1, 50)
    limit = epsilon_star(nearly, spread, delta=1e-5)
    assert one_constant.epsilon == pytest.approx(limit.epsilon, abs=1e-6)
    identical = epsilon_star(spread, spread, delta=1e-5, resamples=0)
    assert identical.epsilon == 0 and identical.threshold is not None
    sides = np.array([1.0, -1.0, 0.7, -0.6]), np.array([0.9, -1.0, 0.9, 0.1])
    huge = epsilon_star(*(1.7e308 * side for side in sides), delta=1e-5, resamples=10)
    assert huge.epsilon == pytest.approx(epsilon_star(*sides, delta=1e-5, resamples=0).epsilon, abs=1e-9)
    assert epsilon_star(spread, spread + 9, delta=0.6).warnings[0].startswith("no rate lies in")


@pytest.mark.parametrize(
    ("kwargs", "words"),
    [
        ({"delta": 0}, "delta must be above 0 here.*∞"),
        ({"delta": 1.0}, "delta"),
        ({"delta": -1e-9}, "delta"),
        ({"form": "exact"}, "form must be one of"),
        ({"confidence": 1.0}, "confidence"),
        ({"resamples": -1}, "resamples"),
        ({"resamples": 2.5}, "resamples"),
        ({"seed": -1}, "seed"),
        ({"rates": (0.9, 0.1)}, r"rates\[1\]"),
        ({"rates": 0.1}, "rates must be a pair"),
        ({"rates": (-0.1, 0.9)}, r"rates\[0\]"),
        ({"clipped": -1}, "clipped"),
    ],
)
def test_bad_arguments_are_refused(kwargs, words):
    with pytest.raises(InputError, match=words):
        epsilon_star([0.0, 1.0, 2.0], [1.0, 2.0, 3.0], **{"delta": 1e-5, **kwargs})


@pytest.mark.parametrize(
    ("members", "nonmembers", "words"),
    [
        ([], [1.0], "member_losses must hold at least 1"),
        ([1.0, math.nan], [1.0, 2.0], r"member_losses\[1\] is nan"),
        ([1.0, 2.0], [1.0, -math.inf], r"nonmember_losses\[1\] is -inf"),
        ([[1.0, 2.0]], [1.0, 2.0], "one-dimensional"),
        ([1.0, 2.0], [1.0, 2.0], "delta has no default with 2"),
    ],
)
def test_bad_losses_are_refused(members, nonmembers, words):
    with pytest.raises(InputError, match=words):
        epsilon_star(members, nonmembers)


def test_one_member_has_no_normal_fit():
    with pytest.raises(InputError, match="member_losses holds 1 value"):
        epsilon_star([1.0], [1.0, 2.0], delta=1e-5)
    with pytest.raises(InputError, match="nonmember_losses holds 1 value"):
        epsilon_star([1.0, 2.0], [1.0], delta=1e-5)


def test_clipped_losses_are_mentioned():
    members, nonmembers = normal_losses(1.0)
    assert any("7 probabilities" in w for w in epsilon_star(members, nonmembers, clipped=7, resamples=0).warnings)


# --- the empirical form -----------------------------------------------------------------------------------


def all_pairs(members, nonmembers, delta, rates=(0.001, 0.999)):
    """Every threshold in a plain loop."""
    best = 1.0
    for t in np.concatenate([members, nonmembers]):
        fnr, fpr = np.mean(members > t), np.mean(nonmembers <= t)
        if rates[0] < fnr < rates[1] and rates[0] < fpr < rates[1]:
            best = max(
                best,
                (1 - delta - fnr) / fpr,
                (1 - delta - fpr) / fnr,
                (fnr - delta) / (1 - fpr),
                (fpr - delta) / (1 - fnr),
            )
    return math.log(best)


few_values = st.lists(st.integers(0, 6).map(float), min_size=2, max_size=25)


@settings(max_examples=200, deadline=None)
@given(few_values, few_values, st.sampled_from([0.0, 1e-12, 1e-3, 0.2, 0.9]), st.sampled_from([0.0, 0.001, 0.2]))
def test_empirical_form_with_ties_against_a_loop(members, nonmembers, delta, edge):
    rates = (edge, 1 - edge)
    estimate = epsilon_star(members, nonmembers, delta=delta, form="empirical", rates=rates, resamples=0)
    expected = all_pairs(np.array(members), np.array(nonmembers), delta, rates)
    assert estimate.epsilon == pytest.approx(expected, abs=1e-12)
    if estimate.counts is not None:
        assert estimate.counts.fn == np.sum(np.array(members) > estimate.threshold)
        assert estimate.counts.fp == np.sum(np.array(nonmembers) <= estimate.threshold)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(-50, 50), min_size=3, max_size=40), st.lists(st.integers(-50, 50), min_size=3, max_size=40))
def test_empirical_form_ignores_increasing_transforms(members, nonmembers):
    values = []
    for transform in (lambda v: v, np.exp, lambda v: v**3 + v, lambda v: np.arctan(v / 7)):
        sides = [transform(np.array(side, float)) for side in (members, nonmembers)]
        values.append(epsilon_star(*sides, delta=1e-3, form="empirical", resamples=20).to_dict())
    for value in values[1:]:
        assert (value["epsilon"], value["low"], value["high"]) == tuple(
            values[0][k] for k in ("epsilon", "low", "high")
        )
    swapped = epsilon_star(nonmembers, members, delta=1e-3, form="empirical", resamples=0).epsilon
    assert swapped == pytest.approx(values[0]["epsilon"], abs=1e-12)


def test_empirical_form_leaves_out_the_limits_themselves():
    members, nonmembers = np.arange(1000.0), np.arange(1000.0) + 500.5
    kept = epsilon_star(members, nonmembers, delta=0.0, form="empirical", resamples=0)
    assert kept.counts.fp != 1 or kept.counts.fn != 1
    assert kept.epsilon == pytest.approx(math.log(max(500 - 2, 1) / 2), abs=0.01)  # FPR 2/1000, not 1/1000


def test_perfect_separation_is_not_sold_as_privacy():
    estimate = epsilon_star(np.zeros(100), np.ones(100), delta=1e-5, form="empirical")
    assert (estimate.epsilon, estimate.low, estimate.high) == (0, 0, math.inf)
    assert "worst case" in estimate.warnings[0] and "no evidence of privacy" in estimate.claim
    inverted = epsilon_star(np.ones(100), np.zeros(100), delta=1e-5, form="empirical")
    assert "worst case" in inverted.warnings[0]


def test_one_member_is_too_few_for_the_empirical_form():
    estimate = epsilon_star([1.0], np.arange(10.0), delta=1e-5, form="empirical")
    assert estimate.epsilon == 0 and "too few records" in estimate.warnings[0]


def test_few_records_at_the_maximum_are_mentioned():
    members, nonmembers = normal_losses(1.0)
    assert any("record(s)" in w for w in epsilon_star(members, nonmembers, form="empirical").warnings)
    large = epsilon_star(*normal_losses(1.0, n=20_000), form="empirical", rates=(0.05, 0.95), resamples=50)
    assert large.warnings == () and large.low < large.epsilon < large.high


# --- resampling -------------------------------------------------------------------------------------------


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
    fit = resampling.transform(values, values.min(), values.max())
    means, sds, way = resampling.resampled_moments(fit, 4000, rng)
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
    fit = resampling.transform(values, values.min(), values.max())
    drawn = resampling.resampled_moments(fit, 3000, rng)
    monkeypatch.setattr(resampling, "_MOST_DRAWN", 1000)
    monkeypatch.setattr(resampling, "_SKEWEST", 0.1)
    limit = resampling.resampled_moments(fit, 3000, rng)
    assert limit[2] == "normal limit"
    for one, other in zip(drawn[:2], limit[:2], strict=True):
        assert stats.ks_2samp(one, other).pvalue > 1e-4
    assert np.corrcoef(*drawn[:2])[0, 1] == pytest.approx(np.corrcoef(*limit[:2])[0, 1], abs=0.1)


def test_one_heavy_record_forbids_the_normal_limit(monkeypatch):
    monkeypatch.setattr(resampling, "_MOST_DRAWN", 1000)
    values = np.append(np.random.default_rng(4).normal(size=5000), 1e5)
    fit = resampling.transform(values, values.min(), values.max())
    assert resampling.resampled_moments(fit, 10, np.random.default_rng(0))[2] == "resampled records"
    two_points = resampling.transform(np.tile([0.0, 1.0], 1000), 0.0, 1.0)
    assert resampling.resampled_moments(two_points, 10, np.random.default_rng(0))[2] == "resampled records"


def test_resampled_maxima_against_a_plain_bootstrap():
    members, nonmembers = (np.round(side, 1) for side in normal_losses(0.7, n=150))
    rng = np.random.default_rng(8)
    ours = resampling.resampled_maxima(Scores.from_losses(members, nonmembers), 1e-3, (0.02, 0.98), 600, rng)
    plain = [all_pairs(rng.choice(members, 150), rng.choice(nonmembers, 150), 1e-3, (0.02, 0.98)) for _ in range(600)]
    assert stats.ks_2samp(ours, plain).pvalue > 1e-4


def test_spread_ranks_are_all_ranks_when_few_and_dense_at_both_ends():
    np.testing.assert_array_equal(resampling._spread_ranks(1500), np.arange(1500))
    ranks = resampling._spread_ranks(10**7)
    assert ranks[0] == 0 and ranks[-1] == 10**7 - 1 and ranks.size < 25_000
    np.testing.assert_array_equal(ranks[:1000], np.arange(1000))
    inner = ranks[(ranks >= 1000) & (ranks < 5 * 10**6)]
    assert (np.diff(inner) / inner[:-1]).max() < 0.0021


def test_parametric_interval_is_as_wide_as_fresh_data_vary():
    fresh = [epsilon_star(*normal_losses(1.0, seed=s), delta=1e-4, resamples=0).epsilon for s in range(200)]
    widths = [epsilon_star(*normal_losses(1.0, seed=s), delta=1e-4, resamples=200) for s in range(20)]
    implied = np.mean([(e.high - e.low) / (2 * 1.96) for e in widths])
    assert implied == pytest.approx(np.std(fresh), rel=0.25)


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


# --- the mechanism ----------------------------------------------------------------------------------------


def test_mechanism_level_by_hand():
    nonmembers = [4.0, 10.0, 11.0, 12.0]
    one = ([1.0, 2.0, 3.0, 13.0], nonmembers)  # FNR 1/4 at FPR 1/4: ratios 3, 3, 1/3, 1/3
    two = ([1.0, 13.0, 14.0, 15.0], nonmembers)  # FNR 3/4 at FPR 1/4: all ratios at most 1
    estimate = epsilon_star_mechanism([one, two], delta=0.0, fpr_grid=[0.25])
    assert estimate.epsilon == estimate.low == estimate.high == pytest.approx(math.log(2))  # (1 - 1/2) / (1/4)
    assert estimate.details["mean_fnr"] == 0.5
    np.testing.assert_allclose(np.exp(estimate.details["epsilon_star"]), [3, 1])
    assert estimate.details["mean_of_models"] == pytest.approx(math.log(2))
    assert estimate.validity is Validity.INSTANCE_METRIC and "not a bound for the DP ε" in estimate.claim
    assert json.dumps(estimate.to_dict(), allow_nan=False)


def test_mechanism_level_mixes_neighbouring_thresholds_and_takes_the_smallest_fnr():
    model = ([1.0, 4.5, 13.0, 14.0], [4.0, 10.0, 11.0, 12.0])  # FNR 3/4 at FPR 0, 1/2 at FPR 1/4
    fnr = [epsilon_star_mechanism([model], delta=0.0, fpr_grid=[t]).details["mean_fnr"] for t in (0.125, 0.25)]
    assert fnr == pytest.approx([0.625, 0.5])


losses = st.lists(st.integers(0, 9).map(float), min_size=1, max_size=12)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(losses, losses), min_size=1, max_size=5),
    st.sampled_from([0.0, 1e-5, 0.1, 0.6]),
    st.one_of(st.none(), st.lists(st.floats(1e-6, 1 - 1e-6), min_size=1, max_size=5)),
)
def test_theorem_2(models, delta, grid):
    estimate = epsilon_star_mechanism(models, delta=delta, fpr_grid=grid)
    right = np.log(np.mean(np.exp(estimate.details["epsilon_star"])))
    assert 0 <= estimate.epsilon <= right + 1e-9
    assert estimate.epsilon <= estimate.details["mean_of_models"]
    assert estimate.details["mean_of_models"] == pytest.approx(right, abs=1e-9)
    alone = [epsilon_star_mechanism([model], delta=delta, fpr_grid=grid).epsilon for model in models]
    assert alone == pytest.approx(list(estimate.details["epsilon_star"]), abs=1e-12)


def test_equal_models_give_equal_sides():
    model = normal_losses(1.0)
    estimate = epsilon_star_mechanism([model] * 3, delta=1e-5)
    assert estimate.epsilon == pytest.approx(estimate.details["mean_of_models"], abs=1e-12)
    assert estimate.epsilon > 0 and not any("one model" in w for w in estimate.warnings)


def test_perfect_models_reach_the_edge_of_the_grid():
    estimate = epsilon_star_mechanism([(np.zeros(50), np.ones(50))], delta=0.0)
    assert estimate.epsilon == pytest.approx(math.log(999))
    assert any("moved there" in w for w in estimate.warnings) and any("one model" in w for w in estimate.warnings)


@pytest.mark.parametrize(
    ("models", "kwargs", "words"),
    [
        ([], {}, "at least one pair"),
        (3, {}, "at least one pair"),
        ([([1.0], [2.0]), [1.0]], {}, r"models\[1\]"),
        ([([1.0], [2.0]), ([math.nan], [1.0])], {}, r"models\[1\]: member_losses\[0\] is nan"),
        ([([1.0], [2.0])], {"fpr_grid": [0.5, 1.0]}, r"fpr_grid\[1\] is 1"),
        ([([1.0], [2.0])], {"fpr_grid": []}, "fpr_grid"),
        ([([1.0], [2.0])], {"delta": 1.0}, "delta"),
    ],
)
def test_bad_models_are_refused(models, kwargs, words):
    with pytest.raises(InputError, match=words):
        epsilon_star_mechanism(models, **{"delta": 1e-5, **kwargs})
