import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dosimeter import geometry

RATE = st.floats(0, 1)
DELTA = st.sampled_from([0.0, 1e-12, 1e-5, 0.01, 0.2])


def in_region(fpr, fnr, epsilon, delta, slack=0.0):
    """The definition: all four inequalities of R(ε, δ)."""
    up = math.exp(epsilon)
    return (
        fnr + up * fpr >= 1 - delta - slack
        and fpr + up * fnr >= 1 - delta - slack
        and fpr + up * fnr <= up + delta + slack * up
        and fnr + up * fpr <= up + delta + slack * up
    )


class TestForcedEpsilon:
    @pytest.mark.parametrize(
        ("fpr", "fnr", "delta", "value"),
        [
            (0.1, 0.2, 0.0, math.log(8)),
            (0.2, 0.1, 0.0, math.log(8)),
            (0.9, 0.8, 0.0, math.log(8)),  # the same test with the guess inverted
            (0.5, 0.5, 0.0, 0.0),
            (0.25, 0.35, 0.05, math.log(0.6 / 0.25)),
            (0.0, 0.5, 0.0, math.inf),
            (0.5, 0.0, 0.0, math.inf),
            (0.0, 0.0, 0.1, math.inf),
            (0.0, 1.0, 0.0, 0.0),
            (1.0, 0.0, 0.0, 0.0),
            (1.0, 1.0, 0.0, math.inf),
            (0.0, 0.95, 0.05, 0.0),  # δ pays for all of it
            (0.0, 0.94, 0.05, math.inf),
        ],
    )
    def test_values(self, fpr, fnr, delta, value):
        assert float(geometry.epsilon_from_rates(fpr, fnr, delta)) == pytest.approx(value, abs=1e-14)

    @given(RATE, RATE, DELTA, st.floats(0, 20))
    def test_a_point_is_in_the_region_exactly_from_its_forced_epsilon_on(self, fpr, fnr, delta, epsilon):
        forced = float(geometry.epsilon_from_rates(fpr, fnr, delta))
        if forced <= epsilon - 1e-9:
            assert in_region(fpr, fnr, epsilon, delta, slack=1e-12)
        elif forced >= epsilon + 1e-9:
            assert not in_region(fpr, fnr, epsilon, delta, slack=-1e-15)

    @given(RATE, RATE, DELTA, st.floats(0, 20))
    def test_the_boundary_says_the_same(self, fpr, fnr, delta, epsilon):
        forced = float(geometry.epsilon_from_rates(fpr, fnr, delta))
        low, high = (float(v) for v in geometry.boundary(fnr, epsilon, delta))
        if low + 1e-9 < fpr < high - 1e-9:
            assert forced <= epsilon + 1e-12
        if fpr < low - 1e-9 or fpr > high + 1e-9:
            assert forced > epsilon

    @given(RATE, RATE, DELTA)
    def test_symmetries(self, fpr, fnr, delta):
        value = geometry.epsilon_from_rates(fpr, fnr, delta)
        assert value == geometry.epsilon_from_rates(fnr, fpr, delta)
        if 1 - (1 - fpr) == fpr and 1 - (1 - fnr) == fnr:
            assert geometry.epsilon_from_rates(1 - fpr, 1 - fnr, delta) == pytest.approx(
                float(value), rel=1e-9, abs=1e-9
            )
        assert value >= 0
        assert not np.isnan(value)

    def test_broadcasts(self):
        assert geometry.epsilon_from_rates(np.zeros((3, 1)), np.full(4, 0.5), 0.1).shape == (3, 4)

    def test_a_tiny_rate_keeps_its_digits(self):
        assert float(geometry.epsilon_from_rates(1e-300, 0.5, 0.0)) == pytest.approx(math.log(0.5) + 300 * math.log(10))


class TestRange:
    @settings(max_examples=200)
    @given(st.lists(RATE, min_size=4, max_size=4), DELTA)
    def test_against_brute_force_over_the_rectangle(self, ends, delta):
        fpr, fnr = sorted(ends[:2]), sorted(ends[2:])
        low, high = (float(v) for v in geometry.epsilon_range(tuple(fpr), tuple(fnr), delta))
        y, x = np.meshgrid(np.linspace(*fpr, 41), np.linspace(*fnr, 41))
        values = geometry.epsilon_from_rates(y, x, delta)
        smallest, largest = values.min(), values.max()
        assert low <= smallest + 1e-9
        assert high == largest or high == pytest.approx(largest, abs=1e-9)
        if low > 0:
            assert low == smallest or low == pytest.approx(smallest, abs=1e-9)
        else:  # 0 is reached inside the rectangle: on the strip of chance
            total = x + y
            assert total.min() <= 1 + delta + 1e-12
            assert total.max() >= 1 - delta - 1e-12

    def test_the_corner_next_to_chance(self):
        # FN, TP, FP, TN = 10, 90, 0, 100 at 90 %: the papers' footnote takes 1.736 here; at FPR = 0 no ε is enough
        low, high = geometry.epsilon_range((0.0, 0.036217), (0.047, 0.176313), 1e-5)
        assert float(low) == pytest.approx(math.log((1 - 1e-5 - 0.176313) / 0.036217))
        assert high == math.inf

    def test_an_attack_worse_than_chance_forces_the_mirrored_value(self):
        below = geometry.epsilon_range((0.1, 0.2), (0.1, 0.3), 0.0)
        above = geometry.epsilon_range((0.8, 0.9), (0.7, 0.9), 0.0)
        assert np.allclose(below, above)


class TestTradeoff:
    # δ = 1e-5: TPR at 1 % FPR and advantage of (ε, δ) and of the Gaussian mechanism of the same ε
    @pytest.mark.parametrize(
        ("epsilon", "tpr", "tpr_gaussian", "advantage", "advantage_gaussian"),
        [
            (1.0, 0.0272, 0.0198, 0.4621, 0.1066),
            (4.0, 0.5460, 0.0805, 0.9640, 0.3563),
            (8.0, 0.9997, 0.2545, 0.9993, 0.5952),
        ],
    )
    def test_golden(self, epsilon, tpr, tpr_gaussian, advantage, advantage_gaussian):
        delta = 1e-5
        mu = float(geometry.mu_from_epsilon(epsilon, delta))
        assert 1 - geometry.tradeoff(0.01, epsilon, delta) == pytest.approx(tpr, abs=5e-5)
        assert 1 - geometry.tradeoff_gaussian(0.01, mu) == pytest.approx(tpr_gaussian, abs=5e-5)
        fpr = np.linspace(0, 1, 200_001)
        assert np.max(1 - fpr - geometry.tradeoff(fpr, epsilon, delta)) == pytest.approx(advantage, abs=5e-5)
        assert np.max(1 - fpr - geometry.tradeoff_gaussian(fpr, mu)) == pytest.approx(advantage_gaussian, abs=5e-5)

    @given(st.floats(0, 50), DELTA)
    def test_advantage_in_closed_form(self, epsilon, delta):
        kink = (1 - delta) / (1 + math.exp(epsilon))
        value = 1 - kink - float(geometry.tradeoff(kink, epsilon, delta))
        assert value == pytest.approx(math.tanh(epsilon / 2) + delta * 2 / (math.exp(epsilon) + 1), abs=1e-12)

    @given(st.floats(0, 30), DELTA)
    def test_a_tradeoff_curve_is_convex_falling_and_its_own_inverse(self, epsilon, delta):
        x = np.linspace(0, 1, 501)
        f = geometry.tradeoff(x, epsilon, delta)
        assert np.all(np.diff(f) <= 1e-12)
        assert np.all(np.diff(f, 2) >= -1e-12)
        assert np.all(f <= 1 - x + 1e-12)
        inside = f > 0
        again = geometry.tradeoff(f[inside], epsilon, delta)
        steep = math.exp(epsilon) * 1e-15
        assert np.all(np.abs(again - np.minimum(x[inside], 1 - delta)) <= 1e-9 + steep)

    @pytest.mark.parametrize("epsilon", [700.0, 800.0, 1e9, math.inf])
    def test_a_very_large_epsilon_is_no_accident(self, epsilon):
        assert geometry.tradeoff([0.0, 0.5, 1.0], epsilon, 0.25).tolist() == pytest.approx([0.75, 0.0, 0.0], abs=1e-300)
        low, high = geometry.boundary([0.0, 0.5, 1.0], epsilon, 0.25)
        assert low.tolist() == pytest.approx([0.75, 0.0, 0.0], abs=1e-300)
        assert high.tolist() == pytest.approx([1.0, 1.0, 0.25])


class TestGaussian:
    @pytest.mark.parametrize(("mu", "epsilon"), [(0.5, 1.993091), (1, 4.377178), (2, 9.997256), (3, 16.675494)])
    def test_golden(self, mu, epsilon):  # δ = 1e-5
        assert float(geometry.epsilon_from_mu(mu, 1e-5)) == pytest.approx(epsilon, abs=5e-7)

    @pytest.mark.parametrize("mu", [0.01, 0.3, 1.0, 5.0, 40.0])
    @pytest.mark.parametrize("delta", [1e-12, 1e-5, 0.1])
    def test_against_thirty_digits(self, mu, delta):
        with mpmath.workdps(30):

            def gap(e):
                return mpmath.ncdf(-e / mu + mu / 2) - mpmath.exp(e) * mpmath.ncdf(-e / mu - mu / 2) - delta

            found = float(geometry.epsilon_from_mu(mu, delta))
            if found == 0:
                assert gap(mpmath.mpf(0)) <= 0
            else:
                assert found == pytest.approx(float(mpmath.findroot(gap, found)), rel=1e-10, abs=1e-12)

    @given(st.floats(1e-3, 60), st.sampled_from([1e-12, 1e-5, 0.05]))
    def test_there_and_back(self, mu, delta):
        epsilon = float(geometry.epsilon_from_mu(mu, delta))
        if epsilon > 1e-6:
            assert float(geometry.mu_from_epsilon(epsilon, delta)) == pytest.approx(mu, rel=1e-7)

    @given(st.floats(0, 500), st.sampled_from([1e-12, 1e-5, 0.05]))
    def test_back_and_there(self, epsilon, delta):
        mu = float(geometry.mu_from_epsilon(epsilon, delta))
        assert float(geometry.epsilon_from_mu(mu, delta)) == pytest.approx(epsilon, rel=1e-8, abs=1e-6)

    def test_delta_at_the_golden_point(self):
        assert float(geometry.delta_from_mu(4.377178, 1.0)) == pytest.approx(1e-5, rel=1e-5)

    def test_rises_with_mu_and_falls_with_delta(self):
        mu = np.linspace(0, 10, 50)
        values = np.array([geometry.epsilon_from_mu(mu, delta) for delta in (1e-9, 1e-5, 1e-2)])
        assert np.all(np.diff(values, axis=1) >= 0)
        assert np.all(np.diff(values, axis=0) <= 0)

    def test_no_leak(self):
        assert float(geometry.epsilon_from_mu(0.0, 1e-5)) == 0.0
        assert float(geometry.delta_from_mu(0.0, 0.0)) == 0.0
        assert geometry.tradeoff_gaussian([0.0, 0.3, 1.0], 0.0) == pytest.approx([1.0, 0.7, 0.0])


class TestLogRatio:
    def test_dropped_and_infinite_terms(self):
        assert geometry.log_ratio([-1, 0, 0, 1, 2], [1, 1, 0, 0, 1]).tolist() == [
            -math.inf,
            -math.inf,
            -math.inf,
            math.inf,
            math.log(2),
        ]
