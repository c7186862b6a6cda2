import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dosimeter._validate import InputError
from dosimeter.accounting import DpSgd, Gaussian, privacy_profile
from dosimeter.identifiability import (
    ADVANTAGES,
    advantage,
    advantage_from_epsilon,
    advantage_from_mu,
    advantage_from_rdp,
    belief_from_epsilon,
    epsilon_from_advantage,
    epsilon_from_belief,
    mu_from_advantage,
    ppv,
    reconstruction_bound,
    risk_from_epsilon,
    risk_in_words,
    tpr_at_fpr,
)

epsilons = st.floats(0, 40)
deltas = st.sampled_from([1e-12, 1e-5, 1e-3, 0.05])


# --- golden: Bernau et al. 2021, Table 3 (recomputed; Eq. (6) there lacks a factor 2) -----------------------


@pytest.mark.parametrize(
    ("belief", "delta", "epsilon", "advantage_value"),
    [
        (0.9, 1e-3, 2.19722, 0.229),
        (0.99, 1e-3, 4.59512, 0.457),
        (0.75, 1e-2, 1.09861, 0.140),
        (0.9, 1e-2, 2.19722, 0.276),
        (0.99, 1e-2, 4.59512, 0.540),
    ],
)
def test_table_3(belief, delta, epsilon, advantage_value):
    assert epsilon_from_belief(belief) == pytest.approx(epsilon, abs=5e-6)
    assert belief_from_epsilon(epsilon) == pytest.approx(belief, abs=1e-6)
    assert advantage_from_epsilon(epsilon, delta=delta, method="classic") == pytest.approx(advantage_value, abs=5e-4)


def test_exact_calibration_has_a_larger_advantage_than_theorem_3():
    # .2915 with exact calibration against .2289
    assert advantage_from_epsilon(2.19722, delta=1e-3, method="tight") == pytest.approx(0.2915, abs=5e-5)
    assert advantage_from_epsilon(2.19722, delta=1e-3, method="classic") == pytest.approx(0.2289, abs=5e-5)


@pytest.mark.parametrize(
    ("epsilon", "any_mechanism", "gaussian", "any_tpr", "gaussian_tpr"),
    [(1, 0.4621, 0.1066, 0.0272, 0.0198), (4, 0.9640, 0.3563, 0.5460, 0.0805), (8, 0.9993, 0.5952, 0.9997, 0.2545)],
)
def test_what_a_number_means(epsilon, any_mechanism, gaussian, any_tpr, gaussian_tpr):
    risk = risk_from_epsilon(epsilon, 1e-5)
    assert risk["advantage"] == pytest.approx(any_mechanism, abs=6e-5)
    assert risk["gaussian"]["advantage"] == pytest.approx(gaussian, abs=6e-5)
    assert risk["tpr"][1]["tpr"] == pytest.approx(any_tpr, abs=6e-5)
    assert risk["gaussian"]["tpr"][1]["tpr"] == pytest.approx(gaussian_tpr, abs=6e-5)


def test_full_batch_advantage_of_the_noise_in_force():
    # 30 full-batch steps: 0.3048, 0.9902 and 1.0000
    for noise, value in ((6.99, 0.3048), (1.06, 0.9902), (0.44, 1.0)):
        run = Gaussian(noise, 30)
        assert advantage_from_mu(run.mu) == pytest.approx(value, abs=5e-5)
        for order in (1.5, 8.0):
            rdp = 30 * order / (2 * noise**2)
            assert advantage_from_rdp(rdp, order=order) == pytest.approx(advantage_from_mu(run.mu), rel=1e-12)
        assert advantage(profile=privacy_profile(run)) == pytest.approx(float(advantage_from_mu(run.mu)), rel=1e-12)


# Table 2 of "That which we call private": from TPR at FPR 5 %
@pytest.mark.parametrize(("tpr", "epsilon"), [(0.053, 0.003), (0.056, 0.006)])
def test_lower_bound_of_erlingsson(tpr, epsilon):
    assert epsilon_from_advantage(tpr - 0.05, delta=1e-5, method="erlingsson") == pytest.approx(epsilon, abs=5e-4)


# --- second routes ----------------------------------------------------------------------------------------


@given(epsilons, deltas)
def test_generic_advantage_is_the_largest_gap_of_the_region(epsilon, delta):
    fpr = np.linspace(0, 1, 20001)
    gaps = tpr_at_fpr(fpr, epsilon=epsilon, delta=delta) - fpr
    corner = (1 - delta) / (1 + math.exp(epsilon))
    best = max(gaps.max(), float(tpr_at_fpr(corner, epsilon=epsilon, delta=delta)) - corner)
    assert advantage_from_epsilon(epsilon, delta=delta) == pytest.approx(best, rel=1e-9, abs=1e-12)


@given(epsilons, st.floats(0.001, 0.999))
def test_belief_is_bayes_rule_on_randomised_response(epsilon, prior):
    says_member = math.exp(epsilon) / (1 + math.exp(epsilon))
    posterior = prior * says_member / (prior * says_member + (1 - prior) * (1 - says_member))
    assert belief_from_epsilon(epsilon, prior=prior) == pytest.approx(posterior, rel=1e-9)
    assert belief_from_epsilon(epsilon, prior=prior) >= prior - 1e-15


@given(st.floats(0, 8), st.floats(0, 1))
def test_gaussian_tpr_by_scipy(mu, fpr):
    truth = stats.norm.sf(stats.norm.isf(fpr) - mu)
    assert tpr_at_fpr(fpr, mu=mu) == pytest.approx(truth, rel=1e-9, abs=1e-12)


@given(epsilons, deltas, st.sampled_from(ADVANTAGES))
def test_advantage_and_back(epsilon, delta, method):
    value = advantage_from_epsilon(epsilon, delta=delta, method=method)
    if value < 1 - 1e-6:
        assert epsilon_from_advantage(value, delta=delta, method=method) == pytest.approx(epsilon, rel=1e-6, abs=1e-7)


@given(st.floats(0.0, 0.999999))
def test_mu_and_back(value):
    assert advantage_from_mu(mu_from_advantage(value)) == pytest.approx(value, rel=1e-12, abs=1e-300)


@given(st.floats(0.5, 1 - 1e-9))
def test_belief_and_back(value):
    assert belief_from_epsilon(epsilon_from_belief(value)) == pytest.approx(value, rel=1e-12)


@given(epsilons, epsilons, deltas)
def test_everything_rises_with_epsilon(one, two, delta):
    low, high = sorted((one, two))
    assert belief_from_epsilon(low) <= belief_from_epsilon(high)
    for method in ADVANTAGES:
        small, large = (float(advantage_from_epsilon(e, delta=delta, method=method)) for e in (low, high))
        assert 0 <= small <= large + 1e-12 <= 1 + 1e-9
    rates = np.array([0, 1e-6, 0.01, 0.5, 1])
    assert np.all(tpr_at_fpr(rates, epsilon=low, delta=delta) <= tpr_at_fpr(rates, epsilon=high, delta=delta) + 1e-15)


@given(epsilons, deltas)
def test_the_loose_formulas_are_above_the_attained_one(epsilon, delta):
    attained = advantage_from_epsilon(epsilon, delta=delta)
    assert advantage_from_epsilon(epsilon, delta=delta, method="erlingsson") >= attained - 1e-12
    assert advantage_from_epsilon(epsilon, delta=delta, method="yeom") >= min(float(attained), 1) - delta - 1e-12
    assert advantage_from_epsilon(epsilon, delta=delta, method="tight") <= attained + 1e-9


def test_one_pair_says_less_than_the_curve():
    # at (8.412, 1e-5) one pair allows TPR .9998 at FPR .001, the curve .080
    profile = privacy_profile(DpSgd(1.06, 0.02, 5000))
    assert tpr_at_fpr(0.001, profile=profile) == pytest.approx(0.0804, abs=2e-4)
    assert tpr_at_fpr(0.001, epsilon=8.412, delta=1e-5) == pytest.approx(0.9998, abs=5e-5)


def test_the_curve_of_a_pair_gives_the_pair_back():
    epsilon, delta = 1.5, 1e-3

    def profile(e):  # the (ε, δ)-randomised response
        if e >= epsilon:
            return delta
        return delta + (1 - delta) * (math.exp(epsilon) - math.exp(e)) / (1 + math.exp(epsilon))

    rates = np.array([0.001, 0.05, 0.1, 0.2, 0.5, 0.8])
    assert tpr_at_fpr(rates, profile=profile) == pytest.approx(
        tpr_at_fpr(rates, epsilon=epsilon, delta=delta), abs=1e-6
    )
    assert advantage(profile=profile) == pytest.approx(advantage(epsilon=epsilon, delta=delta), rel=1e-12)


def test_riskcal_agrees():
    riskcal = pytest.importorskip("riskcal")
    from dp_accounting.pld import privacy_loss_distribution

    distribution = privacy_loss_distribution.from_gaussian_mechanism(
        1.06, sampling_prob=0.02, value_discretization_interval=1e-3
    ).self_compose(1000)
    profile = privacy_profile(DpSgd(1.06, 0.02, 1000), grid=1e-3)
    for fpr in (0.01, 0.1, 0.5):
        theirs = 1 - float(riskcal.analysis.get_beta_from_pld(distribution, alpha=fpr))
        assert tpr_at_fpr(fpr, profile=profile) == pytest.approx(theirs, rel=1e-4)
    theirs = float(riskcal.analysis.get_advantage_from_pld(distribution))
    assert advantage(profile=profile) == pytest.approx(theirs, rel=1e-4)


def test_ppv_by_counting():
    assert ppv(0.5, 0.01, prior=0.1) == pytest.approx(50 / (50 + 9))
    assert ppv(0.0, 0.0, prior=0.1) == pytest.approx(0.1)
    assert ppv(0.3, 0.0, prior=0.1) == 1


def test_reconstruction_is_the_test_at_the_baseline():
    assert reconstruction_bound(0.1, epsilon=1.0) == pytest.approx(0.1 * math.e)
    assert reconstruction_bound(0.0, epsilon=1.0, delta=1e-3) == pytest.approx(1e-3)
    assert reconstruction_bound([0.1, 0.2], mu=0.0) == pytest.approx([0.1, 0.2])


# --- shapes, corners, refusals ----------------------------------------------------------------------------


def test_vectorised():
    grid = np.linspace(0, 10, 7)
    assert belief_from_epsilon(grid).shape == (7,)
    assert belief_from_epsilon(grid[:, None], prior=np.array([0.1, 0.5])).shape == (7, 2)
    for method in ADVANTAGES:
        many = advantage_from_epsilon(grid, delta=1e-5, method=method)
        one = [float(advantage_from_epsilon(e, delta=1e-5, method=method)) for e in grid]
        assert many == pytest.approx(one, rel=1e-12)
    assert tpr_at_fpr(np.array([0.01, 0.1]), epsilon=grid[:, None], delta=1e-5).shape == (7, 2)
    assert tpr_at_fpr(np.array([0.01, 0.1]), mu=grid[:, None]).shape == (7, 2)


def test_corners():
    assert belief_from_epsilon(math.inf) == 1
    assert epsilon_from_belief(1.0) == math.inf
    assert epsilon_from_belief(0.5) == 0
    for method in ADVANTAGES:
        assert advantage_from_epsilon(math.inf, delta=1e-5, method=method) == 1
        assert advantage_from_epsilon(800.0, delta=1e-5, method=method) == pytest.approx(1)
        assert epsilon_from_advantage(0.0, delta=1e-5, method=method) == 0
    assert advantage_from_epsilon(0.0, delta=0.1) == pytest.approx(0.1)
    assert epsilon_from_advantage(1.0) == math.inf
    assert epsilon_from_advantage(1.0, method="yeom") == pytest.approx(math.log(2))
    assert tpr_at_fpr(0.0, epsilon=math.inf) == pytest.approx(0, abs=1e-200)
    assert tpr_at_fpr(1e-3, epsilon=math.inf) == 1


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: belief_from_epsilon(-1.0), ("epsilon", "-1")),
        (lambda: belief_from_epsilon(math.nan), ("epsilon", "nan")),
        (lambda: belief_from_epsilon("2"), ("epsilon", "'2'")),
        (lambda: belief_from_epsilon([1.0, -2.0]), ("epsilon", "-2")),
        (lambda: belief_from_epsilon([]), ("epsilon", "[]")),
        (lambda: belief_from_epsilon(1.0, prior=0.0), ("prior", "(0, 1)")),
        (lambda: epsilon_from_belief(0.4), ("belief", "0.4")),
        (lambda: epsilon_from_belief(1.1), ("belief", "1.1")),
        (lambda: advantage_from_epsilon(1.0, method="bernau"), ("method", "classic")),
        (lambda: advantage_from_epsilon(1.0, method="classic"), ("delta", "above 0")),
        (lambda: advantage_from_epsilon(1.0, method="tight"), ("delta", "above 0")),
        (lambda: advantage_from_epsilon(1.0, delta=1.0), ("delta", "got 1")),
        (lambda: epsilon_from_advantage(-0.1), ("advantage", "-0.1")),
        (lambda: mu_from_advantage(1.5), ("advantage", "1.5")),
        (lambda: advantage_from_rdp(1.0, order=1.0), ("order", "got 1")),
        (lambda: tpr_at_fpr(0.1), ("exactly one", "none")),
        (lambda: tpr_at_fpr(0.1, epsilon=1.0, mu=1.0), ("exactly one", "epsilon and mu")),
        (lambda: tpr_at_fpr(0.1, profile=3), ("profile", "function")),
        (lambda: tpr_at_fpr(1.1, epsilon=1.0), ("fpr", "1.1")),
        (lambda: tpr_at_fpr(0.1, mu=math.inf), ("mu", "inf")),
        (lambda: ppv(1.2, 0.1, prior=0.5), ("tpr", "1.2")),
        (lambda: risk_in_words(1.0, 1e-5, side="both"), ("side", "upper")),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(InputError) as caught:
        call()
    assert all(word in str(caught.value) for word in words), str(caught.value)


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 4.0, 700.0, 1e9, math.inf])
@pytest.mark.parametrize("delta", [0.0, 1e-12, 1e-5, 0.5])
def test_risk_is_strict_json_and_in_words(epsilon, delta):
    json.dumps(risk_from_epsilon(epsilon, delta), allow_nan=False)
    for side in ("upper", "lower"):
        lines = risk_in_words(epsilon, delta, side=side)
        assert lines
        assert all("nan" not in line and "inf" not in line for line in lines)


def test_words_carry_the_numbers():
    text = "\n".join(risk_in_words(4.0, 1e-5))
    for number in ("98.2 %", "54.6 %", "96.4 percentage", "8.05 %", "ε = 4"):
        assert number in text


def test_a_lower_bound_speaks_of_guarantees_only():
    lines = risk_in_words(1.7, 1e-5, side="lower", neighbours="replace", confidence=0.95)
    assert lines[0] == (
        "With 95 % confidence no training with a guarantee below ε = 1.7 at δ = 1e-05 for replacing one record "
        "explains what was seen."
    )
    told = " ".join(lines)
    for claim in ("may find", "of the members", "raise it to", "percentage points"):
        assert claim not in told
    assert "No guarantee at δ = 1e-05 is excluded" in risk_in_words(0.0, 1e-5, side="lower")[0]
    assert "not evidence of privacy" in risk_in_words(0.0, 1e-5, side="lower")[0]
    assert "for adding or removing one record" in risk_in_words(4.0, 1e-5, neighbours="add/remove")[0]
