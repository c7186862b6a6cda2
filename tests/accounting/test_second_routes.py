"""Each accountant by a second route."""

import math

import mpmath
import numpy as np
import pytest
from scipy import integrate, optimize, special

from dosimeter.accounting import DpSgd, Gaussian, account, advanced, exact, naive, pld, privacy_profile, rdp, zcdp
from dosimeter.accounting.pld import LossProfile, grid_for
from dosimeter.accounting.profile import tpr_from_profile
from dosimeter.accounting.rdp import rdp_delta, rdp_values
from dosimeter.geometry import delta_from_mu, epsilon_from_mu, log_delta_from_mu

pytestmark = pytest.mark.slow


def divergence_by_mpmath(noise, rate, order):
    """ln E[((1−q) + q e^u)^a]/(a−1) in 40 digits."""
    with mpmath.workdps(40):
        z, q, a = mpmath.mpf(noise), mpmath.mpf(rate), mpmath.mpf(order)

        def integrand(t):
            return mpmath.npdf(t) * ((1 - q) + q * mpmath.exp(t / z - 1 / (2 * z * z))) ** a

        far = a / z
        value = mpmath.quad(
            integrand, sorted({-30, 0, far / 2, far, z * mpmath.log(1 / q - 1) + 1 / (2 * z), far + 30})
        )
        return float(mpmath.log(value) / (a - 1))


@pytest.mark.parametrize("noise", [0.3, 0.44, 1.06, 6.99, 136.67])
@pytest.mark.parametrize("order", [1.001, 1.1, 1.3, 2.0, 2.5, 7.0, 10.9])
def test_divergence_of_the_sampled_gaussian(noise, order):
    _, ours = rdp_values(DpSgd(noise, 0.02, 1), [order])
    assert ours[0] == pytest.approx(divergence_by_mpmath(noise, 0.02, order), rel=1e-9)


@pytest.mark.parametrize(("noise", "rate"), [(5.0, 0.5), (0.7, 0.9), (50.0, 1e-5), (0.2, 1e-4)])
def test_divergence_at_unusual_rates(noise, rate):
    orders = [1.05, 1.5, 2.0, 4.7]
    _, ours = rdp_values(DpSgd(noise, rate, 1), orders)
    assert ours == pytest.approx([divergence_by_mpmath(noise, rate, order) for order in orders], rel=1e-8)


def test_whole_and_real_orders_are_one_curve():
    for noise in (0.5, 1.0, 20.0, 200.0):
        orders = [3 - 1e-7, 3.0, 3 + 1e-7, 40 - 1e-7, 40.0, 40 + 1e-7]
        _, values = rdp_values(DpSgd(noise, 0.02, 1), orders)
        assert values[1] == pytest.approx((values[0] + values[2]) / 2, rel=1e-10)
        assert values[4] == pytest.approx((values[3] + values[5]) / 2, rel=1e-10)


def test_no_order_is_lost_at_low_noise():
    # direct integration: 65.5904 for 5000 steps at order 1.3
    _, values = rdp_values(DpSgd(0.44, 0.02, 5000), [1.3])
    assert values[0] == pytest.approx(65.5904, abs=5e-5)


def test_sampling_without_replacement_against_the_theorem_written_out():
    # Wang, Balle, Kasiviswanathan 2019, Theorem 27, with forward differences in 60 digits
    noise, rate = 1.7, 0.05

    def term_by_term(order):
        with mpmath.workdps(60):
            z, q = mpmath.mpf(noise), mpmath.mpf(rate)
            moment = [mpmath.exp(i * (i - 1) / (2 * z * z)) for i in range(order + 2)]

            def difference(n):
                return mpmath.fsum((-1) ** (n - i) * mpmath.binomial(n, i) * moment[i] for i in range(n + 1))

            total = mpmath.mpf(1)
            for j in range(2, order + 1):
                central = 4 * mpmath.sqrt(difference(2 * (j // 2)) * difference(2 * ((j + 1) // 2)))
                total += q**j * mpmath.binomial(order, j) * min(central, 2 * moment[j])
            return float(mpmath.log(total) / (order - 1))

    orders = [2.0, 3.0, 4.0, 7.0, 16.0]
    _, values = rdp_values(DpSgd(2 * noise, rate, 1, "without-replacement"), orders)
    assert values == pytest.approx([term_by_term(int(order)) for order in orders], rel=1e-9)


def test_conversions_by_minimisation():
    for rho, delta in ((0.01, 1e-5), (1.0, 1e-3), (50.0, 1e-8)):
        run = Gaussian(math.sqrt(1 / (2 * rho)))

        def improved(log_gap, rho=rho, delta=delta):
            a = 1 + math.exp(log_gap)
            return rho * a + math.log1p(-1 / a) - math.log(delta * a) / (a - 1)

        best = optimize.minimize_scalar(improved, bounds=(-12, 12), method="bounded", options={"xatol": 1e-10}).fun
        assert zcdp(run, delta=delta).epsilon == pytest.approx(max(best, 0), rel=1e-9)
        assert rdp(run, delta=delta).epsilon == pytest.approx(max(best, 0), rel=1e-5)
        classic = rho + 2 * math.sqrt(rho * math.log(1 / delta))
        assert zcdp(run, delta=delta, conversion="classic").epsilon == pytest.approx(classic, rel=1e-12)
        assert rdp(run, delta=delta, conversion="classic").epsilon == pytest.approx(classic, rel=1e-5)


def test_rdp_curve_inverts_the_accountant():
    run = DpSgd(1.06, 0.02, 500)
    epsilon = rdp(run, delta=1e-6).epsilon
    assert rdp_delta(run, epsilon) == pytest.approx(1e-6, rel=0.02)
    assert rdp_delta(run, epsilon) >= 1e-6 * (1 - 1e-9)


def test_naive_composition_written_out():
    run = DpSgd(4.0, 0.01, 300)
    step_delta = 1e-6 / 3
    classic = math.sqrt(2 * math.log(1.25 / step_delta)) / 4
    assert naive(run, delta=1e-6).epsilon == pytest.approx(
        300 * math.log(1 + 0.01 * (math.exp(classic) - 1)), rel=1e-12
    )
    tight = optimize.brentq(lambda e: float(log_delta_from_mu(e, 0.25)) - math.log(step_delta), 0, 10, xtol=1e-14)
    value = naive(run, delta=1e-6, gaussian="exact").epsilon
    assert value == pytest.approx(300 * math.log(1 + 0.01 * (math.exp(tight) - 1)), rel=1e-10)


def test_advanced_composition_by_brute_force():
    run, delta = DpSgd(4.0, 0.01, 300), 1e-6
    means = {"drv": lambda e: e * (math.exp(e) - 1), "tanh": lambda e: e * math.tanh(e / 2), "square": lambda e: e * e}
    for mean, loss in means.items():
        values = []
        for share in np.linspace(0.001, 0.999, 999):
            plain = math.sqrt(2 * math.log(1.25 * 3 / ((1 - share) * delta))) / 4
            step = math.log(1 + 0.01 * (math.exp(plain) - 1))
            values.append(math.sqrt(600 * math.log(1 / (share * delta))) * step + 300 * loss(step))
        result = advanced(run, delta=delta, mean=mean)
        assert result.epsilon == pytest.approx(min(values), rel=1e-6)
        assert result.epsilon <= min(values) * (1 + 1e-12)
        assert advanced(run, delta=delta, mean=mean, split=0.5).epsilon == pytest.approx(values[499], rel=1e-9)


def test_rare_sampling_needs_no_epsilon():
    # a record is seen with probability 1e-6 < δ: (0, δ) holds
    run = DpSgd(0.01, 1e-6, 1)
    for result in account(run, delta=1e-5, methods=["naive", "naive-exact", "pld"]):
        assert result.epsilon == 0, result.method


@pytest.mark.parametrize(("noise", "rate", "steps"), [(1.06, 0.02, 200), (0.7, 0.1, 20), (3.0, 0.3, 100)])
def test_pld_against_prv_accountant(noise, rate, steps):
    prv = pytest.importorskip("prv_accountant")
    accountant = prv.PRVAccountant(
        prvs=prv.PoissonSubsampledGaussianMechanism(noise_multiplier=noise, sampling_probability=rate),
        max_self_compositions=steps,
        eps_error=0.01,
        delta_error=1e-10,
    )
    low, _, high = accountant.compute_epsilon(delta=1e-5, num_self_compositions=[steps])
    assert low <= pld(DpSgd(noise, rate, steps), delta=1e-5).epsilon <= high


def test_one_sampled_step_by_integration():
    noise, rate, epsilon = 0.8, 0.1, 0.7
    with_record = lambda x: (1 - rate) * phi(x) + rate * phi(x - 1 / noise)  # noqa: E731
    phi = lambda x: math.exp(-x * x / 2) / math.sqrt(2 * math.pi)  # noqa: E731
    remove = integrate.quad(lambda x: max(0, with_record(x) - math.exp(epsilon) * phi(x)), -12, 14, limit=500)[0]
    add = integrate.quad(lambda x: max(0, phi(x) - math.exp(epsilon) * with_record(x)), -12, 14, limit=500)[0]
    profile = privacy_profile(DpSgd(noise, rate, 1), grid=1e-4)
    assert profile(epsilon) == pytest.approx(max(remove, add), rel=1e-6)
    assert profile(epsilon) >= max(remove, add)


def test_replaced_records_in_poisson_batches_by_integration():
    noise, rate, epsilon = 1.5, 0.2, 0.3

    def mixture(x, side):
        return ((1 - rate) * math.exp(-x * x / 2) + rate * math.exp(-((x - side / noise) ** 2) / 2)) / math.sqrt(
            2 * math.pi
        )

    truth = integrate.quad(
        lambda x: max(0, mixture(x, 1) - math.exp(epsilon) * mixture(x, -1)), -12, 13, limit=500, points=[0]
    )[0]
    profile = privacy_profile(DpSgd(noise, rate, 1, neighbours="replace"), grid=1e-4)
    assert profile(epsilon) == pytest.approx(truth, rel=1e-5)


@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-9, 1e-11])
def test_a_composed_distribution_never_falls_below_the_truth(delta):
    # a tiny share of unsampled records: as close to the exact Gaussian as the Poisson path gets
    rate = 1 - 1e-12
    steps, noise = 400, 20.0
    ours = pld(DpSgd(noise, rate, steps), delta=delta)
    truth = float(epsilon_from_mu(math.sqrt(steps) / noise, delta))
    assert truth * (1 - 1e-9) <= ours.epsilon <= truth * 1.003


def test_a_delta_beyond_double_precision_falls_back_on_rdp():
    run = DpSgd(1.06, 0.02, 5000)
    result = pld(run, delta=1e-13)
    assert result.epsilon == rdp(run, delta=1e-13).epsilon
    assert result.details["source"] == "rdp"
    assert result.warnings


def test_grid_rule():
    for noise, grid in ((136.67, 1e-5), (6.99, 8e-5), (1.06, 8e-4), (0.44, 1e-3)):
        assert grid_for(DpSgd(noise, 0.02, 5000), 1e-5) == pytest.approx(grid)
    with pytest.raises(ValueError, match="grid"):
        pld(DpSgd(1.0, 0.02, 10), delta=1e-5, grid=0.0)


def test_the_curve_never_promises_more_than_the_truth_at_low_fpr():
    # dp-accounting 0.6.0 with grid 5e-5: TPR at FPR .001/.01/.1 is .08035/.25705/.64583 at a fine grid
    profile = LossProfile(DpSgd(1.06, 0.02, 5000), 1e-3).delta
    for fpr, tpr in ((0.001, 0.08035), (0.01, 0.25705), (0.1, 0.64583)):
        assert tpr <= tpr_from_profile(profile, fpr) <= tpr * 1.001


@pytest.mark.parametrize("mu", [0.05, 0.7, 2.0, 6.0])
def test_envelope_of_a_gaussian_curve_is_its_tradeoff(mu):
    profile = lambda e: float(delta_from_mu(e, mu))  # noqa: E731
    for fpr in (1e-9, 1e-4, 0.01, 0.3, 0.5, 0.9, 0.999):
        truth = float(special.ndtr(special.ndtri(fpr) + mu))
        found = tpr_from_profile(profile, fpr)
        assert truth - 1e-12 <= found
        assert found == pytest.approx(truth, rel=1e-6, abs=1e-9)
    assert tpr_from_profile(profile, 0.0) == pytest.approx(0, abs=1e-12)
    assert tpr_from_profile(profile, 1.0) == 1


def test_corners():
    tiny = account(noise_multiplier=1e-3, sample_rate=0.5, steps=10, delta=1e-12)
    assert all(result.epsilon > 1e4 or not result.is_bound for result in tiny)
    huge = account(noise_multiplier=1e6, sample_rate=1e-6, steps=10**6, delta=1e-5)
    assert {result.method: result.epsilon for result in huge}["pld"] == 0
    one = account(Gaussian(1.0), delta=0.999)
    assert {result.method: result.epsilon for result in one}["gaussian"] == 0
    assert exact(Gaussian(1.0), delta=1e-300).epsilon == pytest.approx(
        0.5 + math.sqrt(2 * 300 * math.log(10)), rel=0.01
    )
