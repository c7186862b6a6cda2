"""Epsilon*: the parametric and the empirical form, and the mechanism level."""

import json
import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import special
from star_routes import all_pairs, brute_force, ceiling, normal_losses

from dosimeter._validate import InputError
from dosimeter.estimate import Validity
from dosimeter.estimators.epsilon_star import (
    epsilon_star,
    epsilon_star_mechanism,
)

# --- the parametric form --------------------------------------------------------------------------------------


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
    assert "does not bound the DP ε" in estimate.claim and "lower bound" not in estimate.claim
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
    members, nonmembers = normal_losses(shift, n=100, seed=seed)
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


def cannot_tell(estimate):
    """An estimate without a value: the whole line as interval, and a claim that says why."""
    assert (estimate.epsilon, estimate.low, estimate.high) == (0, 0, math.inf)
    assert estimate.details["measurable"] is False
    assert "cannot be computed" in estimate.claim and "not evidence of privacy" in estimate.claim
    return estimate.claim


@pytest.mark.parametrize("form", ["parametric", "empirical"])
@pytest.mark.parametrize("sizes", [(20, 20), (99, 500), (500, 99)])
def test_few_records_cannot_tell(form, sizes):
    rng = np.random.default_rng(0)
    claim = cannot_tell(epsilon_star(rng.normal(0, 1, sizes[0]), rng.normal(9, 1, sizes[1]), delta=1e-5, form=form))
    assert f"{sizes[0]} members and {sizes[1]} non-members are too few" in claim


def test_constant_losses_cannot_tell():
    spread = np.linspace(0, 1, 200)
    for form in ("parametric", "empirical"):
        assert "all losses are equal" in cannot_tell(epsilon_star(np.ones(150), np.ones(200), delta=1e-5, form=form))
    for members, nonmembers, who in (
        (np.full(200, 0.5), spread, "all member losses are equal"),
        (spread, np.full(200, 0.5), "all non-member losses are equal"),
        (np.zeros(200), np.ones(200), "all losses of either kind are equal"),
    ):
        assert who in cannot_tell(epsilon_star(members, nonmembers, delta=1e-5))


def test_corners_of_the_fit_have_an_answer():
    spread = np.linspace(0, 1, 200)
    apart = epsilon_star(spread, spread + 1e6, delta=1e-5)
    assert apart.epsilon == pytest.approx(ceiling(1e-5)) and apart.details["at_ceiling"]
    assert any("ceiling" in w for w in apart.warnings)
    identical = epsilon_star(spread, spread, delta=1e-5, resamples=0)
    assert identical.epsilon == 0 and identical.threshold is not None and identical.details["measurable"]
    sides = np.array([1.0, -1.0, 0.7, -0.6]), np.array([0.9, -1.0, 0.9, 0.1])
    huge = epsilon_star(*(1.7e308 * side for side in sides), delta=1e-5, resamples=10, fewest=4)
    assert huge.epsilon == pytest.approx(epsilon_star(*sides, delta=1e-5, resamples=0, fewest=4).epsilon, abs=1e-9)
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
        ({"fewest": 0}, "fewest"),
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


def test_clipped_losses_are_mentioned():
    members, nonmembers = normal_losses(1.0)
    assert any("7 probabilities" in w for w in epsilon_star(members, nonmembers, clipped=7, resamples=0).warnings)


# --- the empirical form ---------------------------------------------------------------------------------------


few_values = st.lists(st.integers(0, 6).map(float), min_size=2, max_size=25)


@settings(max_examples=200, deadline=None)
@given(few_values, few_values, st.sampled_from([0.0, 1e-12, 1e-3, 0.2, 0.9]), st.sampled_from([0.0, 0.001, 0.2]))
def test_empirical_form_with_ties_against_a_loop(members, nonmembers, delta, edge):
    rates = (edge, 1 - edge)
    estimate = epsilon_star(members, nonmembers, delta=delta, form="empirical", rates=rates, resamples=0, fewest=1)
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
        values.append(epsilon_star(*sides, delta=1e-3, form="empirical", resamples=20, fewest=3).to_dict())
    for value in values[1:]:
        assert (value["epsilon"], value["low"], value["high"]) == tuple(
            values[0][k] for k in ("epsilon", "low", "high")
        )
    swapped = epsilon_star(nonmembers, members, delta=1e-3, form="empirical", resamples=0, fewest=3).epsilon
    assert swapped == pytest.approx(values[0]["epsilon"], abs=1e-12)


def test_empirical_form_leaves_out_the_limits_themselves():
    members, nonmembers = np.arange(1000.0), np.arange(1000.0) + 500.5
    kept = epsilon_star(members, nonmembers, delta=0.0, form="empirical", resamples=0)
    assert kept.counts.fp != 1 or kept.counts.fn != 1
    assert kept.epsilon == pytest.approx(math.log(max(500 - 2, 1) / 2), abs=0.01)  # FPR 2/1000, not 1/1000


def test_perfect_separation_is_not_sold_as_privacy():
    estimate = epsilon_star(np.zeros(100), np.ones(100), delta=1e-5, form="empirical")
    assert "no threshold has both rates inside" in cannot_tell(estimate)
    assert "worst case" in estimate.warnings[0]
    inverted = epsilon_star(np.ones(100), np.zeros(100), delta=1e-5, form="empirical")
    assert "worst case" in inverted.warnings[0]


def test_one_member_is_too_few_for_the_empirical_form():
    estimate = epsilon_star([1.0], np.arange(10.0), delta=1e-5, form="empirical", fewest=1)
    assert "no threshold has both rates inside" in cannot_tell(estimate) and "pass more" in estimate.warnings[0]


def test_few_records_at_the_maximum_are_mentioned():
    members, nonmembers = normal_losses(1.0)
    assert any("smallest count" in w for w in epsilon_star(members, nonmembers, form="empirical").warnings)
    large = epsilon_star(*normal_losses(1.0, n=20_000), form="empirical", rates=(0.05, 0.95), resamples=50)
    assert large.warnings == () and large.low < large.epsilon < large.high


# --- the mechanism --------------------------------------------------------------------------------------------


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
@example([([0.0], [0.0])] * 5, 0.0, [1e-6])  # rounding, in parts of the smallest rate
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
