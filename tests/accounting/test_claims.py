"""One run against the claimed mechanism: the curve, the recursion, the band, their levels and what they prove."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

import dosimeter as dm
from dosimeter import Composition, DpSgd, Gaussian, InputError, OneRun, Validity, fair_coins
from dosimeter.accounting import noise_for_epsilon, pld, privacy_profile
from dosimeter.accounting.claims import (
    SHARES,
    Guessed,
    Looked,
    claim_mechanism,
    curve_of,
    epsilon_at,
    of_parts,
    parts_of,
)
from dosimeter.accounting.pld import least_epsilon
from dosimeter.accounting.profile import tpr_from_profile
from dosimeter.estimators.one_run import one_run_mu_bound
from dosimeter.estimators.trade_off import TradeOffCurve, band_excess, recursion_rejects

pytestmark = pytest.mark.once  # NumPy, SciPy and dp-accounting alone

LEVEL = 0.1


def dirac_scores(value, coins, seed, noise=1.0):
    """Log-likelihood ratios of Dirac canaries in a run of DP-SGD whose noise is `noise` times the claimed one."""
    rng = np.random.default_rng([11, seed])
    q, z = value.sample_rate, value.noise_multiplier
    if q == 1:  # the sum over all steps says it all
        return rng.normal(value.steps * coins, noise * z * math.sqrt(value.steps))
    found = np.zeros(coins.size)
    for _ in range(value.steps):
        seen = rng.normal((rng.random(coins.size) < q) & coins, noise * z)
        found += np.logaddexp(math.log1p(-q), math.log(q) + (2 * seen - 1) / (2 * z * z))
    return found


class TestCurve:
    @given(st.floats(0.1, 4.0), st.floats(1e-9, 1.0))
    def test_gaussian(self, mu, fpr):
        """The lines of 200 points are a little above the curve itself, Φ(Φ⁻¹(x) + μ), never below."""
        curve = curve_of(Gaussian(1 / mu))
        exact = float(special.ndtr(special.ndtri(fpr) + mu))
        assert exact - 1e-12 <= curve.tpr(fpr) <= exact * 1.01 + 1e-10

    @given(st.floats(0.1, 4.0), st.floats(1e-7, 1 - 1e-7))
    def test_inverse(self, mu, fpr):
        curve = curve_of(Gaussian(1 / mu))
        tpr = curve.tpr(fpr)
        if tpr < 1 - 1e-6:
            assert curve.fpr(tpr) == pytest.approx(fpr, rel=1e-6, abs=1e-7)
        assert curve.fpr(tpr) <= fpr * (1 + 1e-9) + 1e-15

    def test_sampled(self):
        value = DpSgd(1.2, 0.3, 10)
        curve, profile = curve_of(value), privacy_profile(value)
        for fpr in (1e-5, 1e-3, 0.1, 0.5):
            assert curve.tpr(fpr) == pytest.approx(tpr_from_profile(profile, fpr), rel=0.01)

    @pytest.mark.parametrize(
        "points", [([], []), ([1.0], [0.1, 0.2]), ([-1.0], [0.1]), ([1.0], [1.5]), ([[1.0]], [[0.1]])]
    )
    def test_refuses(self, points):
        with pytest.raises(InputError, match="epsilons"):
            TradeOffCurve(*points)


class TestRecursion:
    @pytest.mark.parametrize(
        ("records", "guesses", "correct"), [(1000, 1000, 700), (1000, 100, 95), (10_000, 1000, 900)]
    )
    def test_agrees_with_the_closed_gaussian_form(self, records, guesses, correct):
        mu = one_run_mu_bound(records=records, guesses=guesses, correct=correct)
        asked = {"records": records, "guesses": guesses, "correct": correct, "level": 0.05}
        assert recursion_rejects(curve_of(Gaussian(1 / (mu * 0.98))), **asked)
        assert not recursion_rejects(curve_of(Gaussian(1 / mu)), **asked)

    @given(st.integers(1, 12), st.data())
    @settings(max_examples=40)
    def test_level_against_the_worst_mechanism_by_linear_programming(self, guesses, data):
        """No law of the number of right guesses that the curve allows reaches a rejected count more often."""
        from scipy.optimize import linprog

        records = data.draw(st.integers(guesses, 20))
        epsilon, delta = data.draw(st.floats(0.0, 2.0)), data.draw(st.floats(0.0, 0.2))
        curve = TradeOffCurve([epsilon], [delta])
        rejected = [
            c
            for c in range(guesses + 1)
            if recursion_rejects(curve, records=records, guesses=guesses, correct=c, level=LEVEL)
        ]
        if not rejected:
            return
        j = np.arange(guesses + 1)
        right, wrong = j / records, (guesses - j) / records
        lines = [(math.exp(epsilon), delta), (math.exp(-epsilon), 1 - math.exp(-epsilon) * (1 - delta))]
        rows, limits = [], []
        for k in range(guesses):  # r_{k+1} ≤ slope·h_k + height for both lines
            for slope, height in lines:
                rows.append(np.where(j >= k + 1, right, 0.0) - slope * np.where(j >= k, wrong, 0.0))
                limits.append(height)
        worst = linprog(
            -(j >= min(rejected)).astype(float), np.array(rows), limits, np.ones((1, guesses + 1)), [1.0], bounds=(0, 1)
        )
        assert -worst.fun <= LEVEL + 1e-7

    def test_more_right_guesses_and_milder_curves_reject_more(self):
        asked = {"records": 500, "guesses": 100, "level": 0.05}
        found = [
            [recursion_rejects(curve_of(Gaussian(z)), correct=c, **asked) for z in (0.5, 1.0, 2.0, 4.0)]
            for c in range(50, 101, 5)
        ]
        assert (np.diff(np.array(found).astype(int), axis=0) >= 0).all()
        assert (np.diff(np.array(found).astype(int), axis=1) >= 0).all()


@pytest.mark.parametrize("value", [DpSgd(3.0, 1.0, 20), DpSgd(1.0, 0.3, 6)], ids=["full", "poisson"])
@pytest.mark.parametrize("test", ["recursion", "band"])
def test_a_run_as_claimed_is_rejected_at_most_at_the_level(value, test):
    curve, trials, rejected = curve_of(value), 1000, 0
    for seed in range(trials):
        coins = np.random.default_rng([13, seed]).random(400) < 0.5
        evidence = OneRun(dirac_scores(value, coins, seed), coins)
        made = Guessed.at(evidence, None, LEVEL) if test == "recursion" else Looked.at(evidence, LEVEL)
        rejected += made.rejects(curve)
    assert stats.binom.sf(rejected - 1, trials, LEVEL) > 1e-3


def test_the_recursion_holds_for_scores_that_depend_on_each_other():
    """A public coin decides whether anything leaks, within the curve: the band is misled, the recursion is not."""
    mu, chance, level, trials, rejected = 1.0, 0.1, 0.02, 200, np.zeros(2, int)
    right = 0.3
    wrong = special.ndtr(special.ndtri(chance * right) - mu) / chance  # so that z(P[right]) − z(P[wrong]) = μ
    curve = curve_of(Gaussian(1 / mu))
    for seed in range(trials):
        rng = np.random.default_rng([17, seed])
        coins, scores, answer = rng.random(2000) < 0.5, rng.random(2000), rng.random(2000)
        if rng.random() < chance:
            truth = 2.0 * coins - 1
            scores += np.where(answer < right, truth, np.where(answer > 1 - wrong, -truth, 0.0))
        evidence = OneRun(scores, coins)
        rejected += [Guessed.at(evidence, None, level).rejects(curve), Looked.at(evidence, level).rejects(curve)]
    assert stats.binom.sf(rejected[0] - 1, trials, level) > 1e-3
    assert stats.binom.sf(rejected[1] - 1, trials, level) < 1e-4


class TestClaim:
    value = DpSgd(2.0, 1.0, 9)  # μ = 1.5

    def run(self, noise=1.0, count=4000, seed=1, value=None):
        coins = fair_coins(count, seed=seed)
        return OneRun(dirac_scores(value or self.value, coins, seed, noise), coins, seed)

    @pytest.mark.parametrize("independent", [False, True])
    def test_half_the_noise_is_caught_and_the_claimed_noise_is_not(self, independent):
        fine = dm.claim(self.run(), mechanism=self.value, independent=independent)
        broken = dm.claim(self.run(0.5), mechanism=self.value, independent=independent)
        assert not fine.details["rejected"] and broken.details["rejected"]
        truth = pld(self.value, delta=1e-5).epsilon
        assert 0.4 * truth < fine.low < truth < broken.low < pld(DpSgd(1.0, 1.0, 9), delta=1e-5).epsilon
        assert "not rejected" in fine.claim and "which does not prove it" in fine.claim
        assert "is rejected with 95 % confidence" in broken.claim
        for found in (fine, broken):
            assert found.validity is Validity.ASSUMES_FAMILY and not found.validity.is_bound
            assert found.neighbours == "add/remove" and "without that assumption" in found.claim
            assert dm.Estimate.from_dict(found.to_dict()).to_dict() == found.to_dict()
            assert found.details["noise_multiplier"] == pytest.approx(2.0 * found.details["noise_scale"])

    def test_independent_canaries_prove_more(self):
        run = self.run()
        assert dm.claim(run, mechanism=self.value, independent=True).low > dm.claim(run, mechanism=self.value).low

    @pytest.mark.once
    def test_sampled_and_composed(self):
        value = DpSgd(1.0, 0.4, 5)
        run = self.run(value=value)
        alone = dm.claim(run, mechanism=value, independent=True)
        assert 0.7 * pld(value, delta=1e-5).epsilon < alone.low < pld(value, delta=1e-5).epsilon
        parts = Composition((DpSgd(1.0, 0.4, 3), DpSgd(1.0, 0.4, 2)))
        composed = dm.claim(run, mechanism=parts, independent=True)
        assert composed.low == pytest.approx(alone.low, rel=1e-3) and composed.details["noise_multiplier"] is None
        assert "2 claimed phases" in composed.claim

    def test_nothing_leaks(self):
        coins = fair_coins(300, seed=1)
        found = dm.claim(OneRun(np.random.default_rng(0).random(300), coins), mechanism=self.value)
        assert found.low == 0.0 and "shows no privacy loss" in found.claim and not found.details["rejected"]

    def test_everything_leaks(self):
        coins = fair_coins(2000, seed=1)
        found = dm.claim(OneRun(coins.astype(float), coins), mechanism=self.value)
        assert found.details["rejected"] and found.low > pld(self.value, delta=1e-5).epsilon

    def test_the_smallest_rejected_noise_is_rejected_and_a_little_less_is_not(self):
        run = self.run()
        found = dm.claim(run, mechanism=self.value, independent=True)
        z = found.details["noise_multiplier"]
        assert dm.claim(run, mechanism=DpSgd(z * 1.001, 1.0, 9), independent=True).details["rejected"]
        assert not dm.claim(run, mechanism=DpSgd(z * 0.998, 1.0, 9), independent=True).details["rejected"]

    def test_numbers_of_guesses(self):
        run = self.run()
        looks = dm.claim(run, mechanism=self.value).details["looks"]
        assert [k_in + k_out for k_in, k_out, _ in looks] == [math.ceil(share * 4000) for share in SHARES]
        one = dm.claim(run, mechanism=self.value, guesses=[100])
        mu = one_run_mu_bound(records=4000, guesses=100, correct=one.details["looks"][0][2])
        assert math.sqrt(9) / one.details["noise_multiplier"] == pytest.approx(mu, rel=0.02)

    @pytest.mark.parametrize(
        ("options", "match"),
        [
            ({}, "epsilon is missing"),
            ({"epsilon": 1.0, "independent": True}, "pass mechanism="),
            ({"epsilon": 1.0, "guesses": [3]}, "pass mechanism="),
            ({"mechanism": DpSgd(1.0, 1.0, 1), "epsilon": 1.0}, "epsilon is for independent runs"),
            ({"mechanism": DpSgd(1.0, 1.0, 1), "thresholds": [1.0]}, "thresholds is for independent runs"),
            ({"mechanism": "dp-sgd"}, "mechanism must be a Gaussian"),
            ({"mechanism": DpSgd(1.0, 0.1, 5, sampling="shuffled")}, "adding or removing"),
            ({"mechanism": Gaussian(1.0, neighbours="replace")}, "adding or removing"),
            ({"mechanism": DpSgd(1.0, 1.0, 1), "delta": 0.0}, "delta"),
            ({"mechanism": DpSgd(1.0, 1.0, 1), "guesses": []}, "guesses"),
            ({"mechanism": DpSgd(1.0, 1.0, 1), "guesses": [101]}, "guesses"),
            ({"mechanism": DpSgd(1.0, 1.0, 1), "guesses": [5], "independent": True}, "guesses"),
        ],
    )
    def test_refusals(self, options, match):
        run = OneRun(np.arange(100.0), fair_coins(100, seed=0))
        with pytest.raises(InputError, match=match):
            dm.claim(run, **options)
        with pytest.raises(InputError, match="OneRun"):
            claim_mechanism([1.0], DpSgd(1.0, 1.0, 1))


class TestLeastEpsilon:
    @pytest.mark.parametrize("value", [DpSgd(1.0, 0.3, 20), DpSgd(0.8, 0.02, 200)])
    def test_below_the_accountant_and_near(self, value):
        low, high = least_epsilon(value, delta=1e-5), pld(value, delta=1e-5).epsilon
        assert high - 0.03 < low < high

    def test_exact_for_full_batches(self):
        value = DpSgd(2.0, 1.0, 7)
        assert epsilon_at(value, 1.5, 1e-5) == pld(DpSgd(3.0, 1.0, 7), delta=1e-5).epsilon

    def test_parts(self):
        value = Composition((DpSgd(1.0, 0.4, 3), Gaussian(2.0, 5)))
        assert of_parts(parts_of(value)).phases == value.phases
        with pytest.raises(InputError, match="three numbers"):
            of_parts([[1.0, 2.0]])


def test_band_excess():
    curve = TradeOffCurve([0.0], [0.25])
    assert band_excess(curve, np.array([0.1, 0.9]), np.array([0.5, 0.0])) == pytest.approx([0.15, 0.0])


def test_near_the_accountant():
    """ε = 8 with 10 000 canaries: the finite-sample headline passes 4 and the family bound 6.8."""
    value = DpSgd(noise_for_epsilon(8.0, delta=1e-5, sample_rate=1.0, steps=100), 1.0, 100)
    coins = fair_coins(10_000, seed=5)
    run = OneRun(dirac_scores(value, coins, 5), coins)
    assert dm.lower_bound(run, delta=1e-5).low > 4.0
    assert 6.8 < dm.claim(run, mechanism=value, independent=True).low < 8.0
