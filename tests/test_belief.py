"""ε' three ways, δ' and their intervals: golden numbers, second routes, laws and refusals."""

import json
import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

import dosimeter as dm
from dosimeter import InputError, Validity
from dosimeter.accounting import Composition, Gaussian, noise_for_epsilon, rdp
from dosimeter.accounting.sensitivities import effective_noise, epsilon_from_sensitivities
from dosimeter.estimators.belief import (
    Advantage,
    advantage_from_trajectories,
    advantage_from_wins,
    bound_from_beliefs,
    delta_prime,
    epsilon_from_advantage,
    epsilon_from_beliefs,
    excess_probability,
    information,
)
from dosimeter.geometry import delta_from_mu, mu_from_epsilon
from dosimeter.identifiability import advantage_from_epsilon
from dosimeter.identifiability import epsilon_from_advantage as invert

STEPS = 30
BELIEF_90 = math.log(9)


def local_noise(runs, mu, seed=0):
    """Final log-odds, worlds, distances and deviations of runs whose noise follows the local sensitivity."""
    rng = np.random.default_rng(seed)
    distances = rng.uniform(0.5, 3, (runs, STEPS))
    deviations = distances * math.sqrt(STEPS) / mu
    world = rng.random(runs) < 0.5
    sign = np.where(world, 1.0, -1.0)
    steps = mu / math.sqrt(STEPS) * rng.standard_normal((runs, STEPS)) + sign[:, None] * mu**2 / STEPS / 2
    return steps.cumsum(axis=1), world, distances, deviations


def varied(runs=400, seed=0):
    """Runs whose sensitivities differ, so that s does too."""
    rng = np.random.default_rng(seed)
    distances = rng.uniform(0.1, 1, (runs, 1)) * rng.uniform(0.5, 1, (runs, STEPS))
    s = (distances**2).sum(axis=1) / 9
    world = rng.random(runs) < 0.5
    truth = s / 2 + np.sqrt(s) * rng.standard_normal(runs)
    return np.where(world, truth, -truth), world, distances, np.full((runs, STEPS), 3.0)


# --- golden numbers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rho", "classic", "improved"),
    [(0.53, 329.0, 96.7), (0.75, 19.24, 14.66), (0.9, 9.952, 8.138), (0.99, 5.074, 4.424)],
)
def test_the_papers_noise_gives_back_its_target(rho, classic, improved):
    target = math.log(rho / (1 - rho))
    distances = np.full((3, STEPS), 0.7)
    for conversion, z in (("classic", classic), ("improved", improved)):
        found = epsilon_from_sensitivities(
            distances,
            z * distances,
            delta=1e-3,
            accountant="rdp",
            conversion=conversion,
            orders=[*np.arange(1.1, 11, 0.1), *range(11, 64)] if conversion == "classic" else None,
        )
        assert found.epsilon == pytest.approx(target, rel=2e-3)


@pytest.mark.parametrize(("delta", "expected"), [(0.01, 0.256), (0.001, 0.217)])
def test_the_papers_table_2_with_local_noise_is_a_closed_form(delta, expected):
    z = noise_for_epsilon(BELIEF_90, delta=delta, steps=STEPS, method="rdp-classic")
    distances = np.random.default_rng(0).uniform(0.1, 3, (50, STEPS))
    shown = advantage_from_trajectories(distances, z * distances)
    assert shown.value == pytest.approx(expected, abs=5e-4)
    assert shown.high - shown.low < 1e-12


def test_beliefs_above_point_nine_at_tight_noise():
    improved, exact = math.sqrt(STEPS) / 8.138, float(mu_from_epsilon(BELIEF_90, 1e-3))
    assert excess_probability(improved**2, BELIEF_90) == pytest.approx(1.7e-3, abs=5e-5)
    assert excess_probability(exact**2, BELIEF_90) == pytest.approx(5.2e-3, abs=5e-5)


@pytest.mark.parametrize(
    ("delta", "epsilon", "advantage"),
    [
        (1e-3, 2.19722, 0.229),
        (1e-3, 4.59512, 0.457),
        (1e-2, 1.09861, 0.140),
        (1e-2, 2.19722, 0.276),
        (1e-2, 4.59512, 0.540),
    ],
)
def test_the_classic_conversion_is_table_3(delta, epsilon, advantage):
    exact = float(advantage_from_epsilon(epsilon, delta=delta, method="classic"))
    assert exact == pytest.approx(advantage, abs=5e-4)
    shown = Advantage(exact, exact, exact, 0.0, 0.95, "trajectory", 10)
    assert epsilon_from_advantage(shown, delta=delta, conversion="classic").epsilon == pytest.approx(epsilon, rel=1e-9)


# --- from sensitivities -----------------------------------------------------------------------------------


def test_epsilon_from_sensitivities_is_the_target_under_local_noise():
    for target, delta in ((0.5, 1e-3), (2.2, 1e-5), (8.0, 1e-2)):
        mu = float(mu_from_epsilon(target, delta))
        _, _, distances, deviations = local_noise(20, mu)
        for accountant in ("gaussian", "pld"):
            found = epsilon_from_sensitivities(distances, deviations, delta=delta, accountant=accountant)
            assert found.epsilon == pytest.approx(target, rel=1e-9)
        assert found.low == pytest.approx(target, rel=1e-9)
        assert found.validity is Validity.MEASUREMENT
        z = math.sqrt(STEPS) / mu
        by_rdp = epsilon_from_sensitivities(distances, deviations, delta=delta, accountant="rdp")
        assert by_rdp.epsilon == pytest.approx(rdp(Gaussian(z, STEPS), delta=delta).epsilon, rel=1e-9)


def test_steps_of_different_noise_compose_as_the_accountant_composes_them():
    rng = np.random.default_rng(1)
    distances, deviations = rng.uniform(0.5, 2, (4, 7)), rng.uniform(2, 6, (4, 7))
    noise = effective_noise(distances, deviations)
    np.testing.assert_allclose(noise, deviations / distances)
    each = [
        rdp(Composition(tuple(Gaussian(z) for z in row)), delta=1e-4, conversion="classic").epsilon for row in noise
    ]
    found = epsilon_from_sensitivities(distances, deviations, delta=1e-4, accountant="rdp", conversion="classic")
    assert found.epsilon == found.high == pytest.approx(max(each), rel=1e-9)
    assert found.low == pytest.approx(min(each), rel=1e-9)
    assert found.details["repetition"] == int(np.argmax(each))
    exact = epsilon_from_sensitivities(distances, deviations, delta=1e-4)
    assert delta_from_mu(exact.epsilon, exact.details["mu"]["highest"]) == pytest.approx(1e-4, rel=1e-9)
    assert exact.epsilon < found.epsilon


def test_runs_in_which_nothing_differs_lose_nothing():
    zero = np.zeros((3, 4))
    assert effective_noise(zero, 1.0).min() == math.inf
    for accountant in ("gaussian", "rdp"):
        assert epsilon_from_sensitivities(zero, 0.0, delta=1e-5, accountant=accountant).epsilon == 0
    faint = epsilon_from_sensitivities(zero + 1e-12, 1.0, delta=1e-5, accountant="rdp", conversion="classic")
    assert 0 < faint.epsilon < 0.01


def test_the_share_of_runs_below_the_largest_is_a_tolerance_limit():
    """Over many samples of runs the maximum covers the stated share at the stated confidence."""
    rng = np.random.default_rng(2)
    n, trials = 50, 4000
    covered = epsilon_from_sensitivities(np.ones((n, 1)), 1.0, delta=1e-5, confidence=0.9).details["share_below"]
    kept = int((rng.random((trials, n)).max(axis=1) >= covered).sum())
    assert stats.binomtest(kept, trials, 0.9).pvalue > 0.01


# --- from beliefs -----------------------------------------------------------------------------------------


def test_the_largest_belief_is_exploratory_and_takes_the_truth_of_each_world():
    found = epsilon_from_beliefs([1.0, -3.0, 2.0, 0.5], [1, 0, 0, 1], delta=1e-3)
    assert found.epsilon == 3.0
    assert found.details["belief"] == pytest.approx(1 / (1 + math.exp(-3)))
    assert found.details["repetition"] == 1
    assert (found.low, found.high, found.validity) == (0, math.inf, Validity.EXPLORATORY)
    assert "neither an estimate nor a bound" in found.claim
    assert found.warnings
    assert epsilon_from_beliefs([-2.0], [True], delta=0.0).epsilon == 0
    json.dumps(found.to_dict(), allow_nan=False)


def test_trajectories_count_by_their_last_step():
    log_odds, world, _, _ = local_noise(50, 1.0)
    whole, last = (epsilon_from_beliefs(values, world, delta=1e-3) for values in (log_odds, log_odds[:, -1]))
    assert whole.to_dict() == last.to_dict()


def test_the_bound_from_beliefs_is_the_headline_bound_of_the_final_log_odds():
    log_odds, world, _, _ = local_noise(1000, 1.5)
    final = log_odds[:, -1]
    found = bound_from_beliefs(log_odds, world, delta=1e-5, confidence=0.9)
    same = dm.lower_bound(dm.Scores(final[world], final[~world], independent=True), delta=1e-5, confidence=0.9)
    assert found == same
    assert found.validity.is_bound
    assert 0 < found.low < float(dm.gaussian(dm.Scores(final[world], final[~world]), delta=1e-5).high)
    with pytest.raises(InputError, match="both worlds"):
        bound_from_beliefs(final, np.ones(1000), delta=1e-5)


# --- from the advantage -----------------------------------------------------------------------------------


def test_counting_and_trajectories_agree_within_their_errors():
    final, world, distances, deviations = varied(4000)
    counted = advantage_from_wins(final, world)
    trajectory = advantage_from_trajectories(distances, deviations)
    assert abs(counted.value - trajectory.value) < 3 * math.hypot(counted.standard_error, trajectory.standard_error)
    assert counted.low < trajectory.value < counted.high
    assert 5 * trajectory.standard_error < counted.standard_error


def test_the_trajectory_estimator_is_a_mean_of_conditional_advantages():
    _, _, distances, deviations = varied(7)
    s = ((distances / deviations) ** 2).sum(axis=1)
    np.testing.assert_allclose(information(distances, deviations), s)
    each = []
    for one in s:  # half the area between the two densities of the log-odds
        here, there = stats.norm(one / 2, math.sqrt(one)), stats.norm(-one / 2, math.sqrt(one))
        each.append(integrate.quad(lambda x, a=here, b=there: abs(a.pdf(x) - b.pdf(x)), -20, 20, points=[0])[0] / 2)
    shown = advantage_from_trajectories(distances, deviations, confidence=0.9)
    assert shown.value == pytest.approx(np.mean(each), rel=1e-7)
    low, high = stats.t.interval(0.9, 6, np.mean(each), stats.sem(each))
    assert (shown.low, shown.high) == (pytest.approx(low, rel=1e-6), pytest.approx(high, rel=1e-6))


def test_counted_wins_have_clopper_pearson_limits():
    final = np.where(np.arange(1000) < 623, 1.0, -1.0)
    shown = advantage_from_wins(np.where(np.arange(1000) % 2, final, -final), np.arange(1000) % 2)
    ci = stats.binomtest(623, 1000).proportion_ci(0.95, "exact")
    assert shown.value == pytest.approx(0.246)
    assert (shown.low, shown.high) == (pytest.approx(2 * ci.low - 1), pytest.approx(2 * ci.high - 1))
    assert shown.standard_error == pytest.approx(2 * math.sqrt(0.623 * 0.377 / 1000))


def test_unequal_worlds_are_not_pooled():
    """An adversary that always says D wins 95 of 100 runs here and has no advantage."""
    world = np.arange(100) < 95
    shown = advantage_from_wins(np.ones(100), world)
    assert shown.value == 0
    assert shown.low <= 0 <= shown.high
    limits = [stats.binomtest(k, n).proportion_ci(0.975, "exact") for k, n in ((95, 95), (0, 5))]
    assert shown.low == pytest.approx(sum(ci.low for ci in limits) - 1)
    assert shown.high == pytest.approx(sum(ci.high for ci in limits) - 1)


def test_one_world_is_warned_of_and_proves_nothing_in_general():
    shown = advantage_from_wins(np.ones(50), np.ones(50))
    assert shown.warnings
    assert not shown.both_worlds
    found = epsilon_from_advantage(shown, delta=0.0, conversion="generic")
    assert found.validity is Validity.EXPLORATORY
    assert shown.warnings[0] in found.warnings


def test_ties_are_half_wins_lost_for_the_lower_limit_and_won_for_the_upper_one():
    assert advantage_from_wins([0.0, 0.0, 1.0, -1.0], [1, 0, 1, 0]).value == 0.5
    shown = advantage_from_wins(np.zeros(200), np.arange(200) % 2, confidence=0.9)
    assert (shown.low, shown.value, shown.high) == (-1.0, 0.0, 1.0)


def test_coverage_of_the_counted_interval():
    mu, trials, runs = 0.6, 1500, 100
    truth = float(stats.norm.cdf(mu / 2) * 2 - 1)
    rng = np.random.default_rng(5)
    world = rng.random((trials, runs)) < 0.5
    values = mu**2 / 2 + mu * rng.standard_normal((trials, runs))
    kept = 0
    for row, on_d in zip(values, world, strict=True):
        shown = advantage_from_wins(np.where(on_d, row, -row), on_d, confidence=0.9)
        kept += shown.low <= truth <= shown.high
    assert stats.binomtest(kept, trials, 0.9, alternative="less").pvalue > 0.01


@given(st.floats(0, 0.999), st.sampled_from([1e-6, 1e-3, 0.05]))
@settings(max_examples=60, deadline=None)
def test_conversions_agree_with_identifiability(value, delta):
    shown = Advantage(value, value / 2, (1 + value) / 2, 0.1, 0.95, "wins", 100)
    for conversion, method in (("gaussian", "tight"), ("classic", "classic"), ("generic", "generic")):
        found = epsilon_from_advantage(shown, delta=delta, conversion=conversion)
        assert found.low == pytest.approx(float(invert(value / 2, delta=delta, method=method)), rel=1e-9, abs=1e-12)
        assert found.low <= found.epsilon <= found.high
        if conversion != "generic":
            assert found.epsilon == pytest.approx(float(invert(value, delta=delta, method=method)), rel=1e-9, abs=1e-12)
        json.dumps(found.to_dict(), allow_nan=False)


def test_validity_follows_the_conversion():
    counted = advantage_from_wins(*local_noise(500, 1.0)[:2])
    generic = epsilon_from_advantage(counted, delta=1e-5, conversion="generic")
    assert generic.validity is Validity.INDEPENDENT_RUNS
    assert (generic.epsilon, generic.high) == (generic.low, math.inf)
    for conversion in ("gaussian", "classic"):
        found = epsilon_from_advantage(counted, delta=1e-5, conversion=conversion)
        assert found.validity is Validity.ASSUMES_GAUSSIAN
        assert found.warnings
    smooth = advantage_from_trajectories(*local_noise(500, 1.0)[2:])
    assert epsilon_from_advantage(smooth, delta=1e-5, conversion="generic").validity is Validity.ASYMPTOTIC


def test_a_certain_adversary_and_a_useless_one():
    certain = Advantage(1.0, 0.9, 1.0, 0.0, 0.95, "wins", 100)
    assert epsilon_from_advantage(certain, delta=1e-5).epsilon == math.inf
    useless = Advantage(-0.1, -0.2, 0.0, 0.0, 0.95, "wins", 100)
    found = epsilon_from_advantage(useless, delta=1e-5)
    assert (found.low, found.epsilon, found.high) == (0, 0, 0)


def test_one_run_has_no_spread():
    shown = advantage_from_trajectories([[1.0, 1.0]], 2.0)
    assert (shown.low, shown.high) == (0, 1)
    found = epsilon_from_advantage(shown, delta=1e-5)
    assert (found.low, found.high) == (0, math.inf)
    json.dumps(found.to_dict(), allow_nan=False)


# --- δ' ---------------------------------------------------------------------------------------------------


def test_delta_prime_agrees_with_theory():
    mu = float(mu_from_epsilon(1.0, 1e-2))
    log_odds, world, distances, deviations = local_noise(20_000, mu)
    found = delta_prime(log_odds, world, epsilon=1.0, distances=distances, deviations=deviations, confidence=0.99)
    assert found.expected == pytest.approx(stats.norm(mu**2 / 2, mu).sf(1.0), rel=1e-9)
    assert found.low < found.expected < found.high
    truth = np.where(world, log_odds[:, -1], -log_odds[:, -1])
    assert found.share == (1 / (1 + np.exp(-truth)) > found.belief).mean()
    ci = stats.binomtest(round(found.share * 20_000), 20_000).proportion_ci(0.99, "exact")
    assert (found.low, found.high) == (pytest.approx(ci.low), pytest.approx(ci.high))
    assert found.expected > 1e-2  # it is no δ
    other = stats.norm(-(mu**2) / 2, mu).sf(1.0)
    assert found.expected - math.e * other == pytest.approx(1e-2, rel=1e-6)
    json.dumps(found.to_dict(), allow_nan=False)


def test_excess_probability_in_high_precision():
    with mpmath.workdps(30):
        for s, epsilon in ((0.3, 2.2), (4.0, 1.0), (1e-4, 0.2), (0.01, 3.0)):
            expected = mpmath.ncdf((mpmath.mpf(s) / 2 - mpmath.mpf(epsilon)) / mpmath.sqrt(mpmath.mpf(s)))
            assert float(excess_probability(s, epsilon)) == pytest.approx(float(expected), rel=1e-9)
    assert excess_probability(0.0, 0.0) == 0


@given(st.lists(st.floats(-30, 30), min_size=1, max_size=40), st.floats(0, 10))
@settings(max_examples=60, deadline=None)
def test_mirroring_the_worlds_changes_nothing(values, epsilon):
    final = np.array(values)
    world = np.arange(final.size) % 2 == 0
    assert delta_prime(final, world, epsilon=epsilon) == delta_prime(-final, ~world, epsilon=epsilon)
    assert advantage_from_wins(final, world).value == pytest.approx(advantage_from_wins(-final, ~world).value)
    here, there = (epsilon_from_beliefs(f, w, delta=0.0) for f, w in ((final, world), (-final, ~world)))
    assert here.epsilon == there.epsilon


# --- the law ----------------------------------------------------------------------------------------------


def test_local_noise_leaves_nothing_of_the_data():
    mu = math.sqrt(STEPS) / 9.952
    log_odds, world, distances, deviations = local_noise(4000, mu)
    truth = np.where(world, log_odds[:, -1], -log_odds[:, -1])
    assert stats.kstest(truth, stats.norm(mu**2 / 2, mu).cdf).pvalue > 0.01
    counted = advantage_from_wins(log_odds, world)
    assert counted.low < 2 * stats.norm.cdf(mu / 2) - 1 < counted.high
    assert advantage_from_trajectories(distances, deviations).value == pytest.approx(2 * stats.norm.cdf(mu / 2) - 1)


# --- refusals ---------------------------------------------------------------------------------------------

ONES = np.ones((2, 3))
BAD = ONES.copy()
BAD[1, 2] = np.nan


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: epsilon_from_sensitivities(BAD, 1.0, delta=1e-5), "distances is nan at step 2 of repetition 1"),
        (lambda: epsilon_from_sensitivities(ONES, BAD, delta=1e-5), "deviations is nan at step 2 of repetition 1"),
        (lambda: epsilon_from_sensitivities(ONES, 0.0, delta=1e-5), "deviations is 0 at step 0 of repetition 0"),
        (lambda: epsilon_from_sensitivities(-ONES, 1.0, delta=1e-5), "distances is -1 at step 0"),
        (lambda: epsilon_from_sensitivities(ONES, 1.0, delta=0.0), "delta must be above 0"),
        (lambda: epsilon_from_sensitivities(ONES, 1e-9, delta=1e-5), "so small in repetition 0"),
        (lambda: epsilon_from_sensitivities(ONES, 1e-200, delta=1e-5), "overflows"),
        (lambda: epsilon_from_sensitivities(ONES, np.ones((3, 3)), delta=1e-5), r"deviations has shape \(3, 3\)"),
        (lambda: epsilon_from_sensitivities(ONES, 1.0, delta=1e-5, accountant="zcdp"), "accountant must be one of"),
        (lambda: epsilon_from_sensitivities(ONES, 1.0, delta=1e-5, conversion="classic"), 'accountant="rdp"'),
        (lambda: epsilon_from_sensitivities(np.ones(3), 1.0, delta=1e-5), r"\(repetitions, steps\)"),
        (lambda: epsilon_from_beliefs(BAD, [1, 0], delta=1e-5), "log_odds is nan at step 2 of repetition 1"),
        (lambda: epsilon_from_beliefs([1.0, np.inf], [1, 0], delta=1e-5), r"log_odds\[1\] is inf"),
        (lambda: epsilon_from_beliefs([1.0, 2.0], [1], delta=1e-5), "log_odds has 2 repetitions"),
        (lambda: epsilon_from_beliefs([1.0, 2.0], [1, 2], delta=1e-5), r"trained_on_d\[1\] is 2"),
        (lambda: epsilon_from_beliefs([], [], delta=1e-5), "at least 1"),
        (lambda: advantage_from_wins([1.0], [1], confidence=1.0), "confidence"),
        (lambda: advantage_from_trajectories(ONES, 1.0, confidence=0), "confidence"),
        (lambda: epsilon_from_advantage(0.3, delta=1e-5), "advantage must be an Advantage"),
        (lambda: epsilon_from_advantage(Advantage(0, 0, 0, 0, 0.9, "wins", 1), delta=0.0), "delta must be above 0"),
        (
            lambda: epsilon_from_advantage(Advantage(0, 0, 0, 0, 0.9, "wins", 1), delta=0.1, conversion="yeom"),
            "conversion must be one of",
        ),
        (lambda: delta_prime([1.0], [1], epsilon=-1), "epsilon must be in"),
        (lambda: delta_prime([1.0], [1], epsilon=1, distances=ONES), "only distances is given"),
        (lambda: delta_prime([1.0], [1], epsilon=1, deviations=1.0), "only deviations is given"),
        (lambda: delta_prime([1.0], [1], epsilon=1, distances=ONES, deviations=1.0), "distances has 2 repetitions"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(call, words):
    with pytest.raises(InputError, match=words) as caught:
        call()
    assert "\n" not in str(caught.value)
