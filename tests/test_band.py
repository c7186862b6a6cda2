"""The uniform band: exact violation probabilities, golden levels, conservative look-ups."""

import numpy as np
import pytest
from scipy import special

from dosimeter.estimators import limits

pytestmark = pytest.mark.slow


# Monte Carlo, independent of this code, ± 5 %: local level at α/2 = .025
@pytest.mark.parametrize(("n", "level"), [(25, 0.00204), (100, 0.00112), (500, 0.000628), (1000, 0.000537)])
def test_golden_levels(n: int, level: float) -> None:
    assert limits.violation(n, np.array([level]))[0] == pytest.approx(0.025, rel=0.06)


def test_violation_of_one_and_two_records_is_closed_form() -> None:
    level = np.array([0.2, 0.01, 1e-6])
    assert np.allclose(limits.violation(1, level), level, rtol=1e-12)
    u1, u2 = special.betainccinv(1, 2, level), special.betainccinv(2, 1, level)
    # P[V(1) ≤ u1 and V(2) ≤ u2] for two uniforms
    held = 2 * u1 * u2 - u1**2
    assert np.allclose(limits.violation(2, level), 1 - held, rtol=1e-8)


def test_violation_against_simulation() -> None:
    n, level, trials = 60, 0.003, 40_000
    rng = np.random.default_rng(7)
    order = np.arange(1, n + 1)
    failed = (np.sort(rng.random((trials, n)), axis=1) > special.betainccinv(order, n - order + 1, level)).any(axis=1)
    expected = limits.violation(n, np.array([level]))[0]
    assert abs(failed.mean() - expected) < 4 * np.sqrt(expected * (1 - expected) / trials)


@pytest.mark.parametrize("alpha", [0.2, 0.025, 1e-3])
def test_look_up_is_conservative_between_the_sizes_of_the_table(alpha: float) -> None:
    rng = np.random.default_rng(5)
    sizes = np.concatenate([np.arange(1, 30), rng.integers(30, 1500, 12), [2001, 2500, 9000]])
    for n in sizes.tolist():
        level = limits.local_level(n, alpha)
        true = limits.violation(n, np.array([level]))[0]
        assert true <= alpha * (1 + 1e-9)
        assert n > 1500 or true > 0.7 * alpha or level > alpha / 2  # and not wasteful


@pytest.mark.parametrize("n", [1739, 1900, 1999, 2000, 2001, 2100, 2171])
def test_levels_hold_where_the_orders_thin_out(n: int) -> None:
    alphas = np.geomspace(1e-4, 0.3, 400)
    levels = np.array([limits.local_level(n, float(alpha)) for alpha in alphas])
    tried, first = np.unique(levels, return_index=True)  # with the least alpha that each of them served
    assert np.all(limits.violation(n, tried) <= alphas[first])


@pytest.mark.parametrize("n", [1, 2, 500, 2000, 2001, 10**6, 10**9])
def test_limits_for_any_size(n: int) -> None:
    k = np.unique(np.array([0, 1, n // 10, n // 2, n - 1, n]))
    limit = limits.band_limits(k, n, 0.025)
    assert np.all(np.diff(limit) >= 0)
    assert np.all(limit >= k / n)
    assert limit[-1] == 1.0
    assert limit[0] <= 1 - special.xlog1py(0, 0) and limit[0] >= 1 - 0.025 ** (1 / n) - 1e-12


def test_controlled_orders_are_dense() -> None:
    for n in (3000, 10**6, 10**8):
        order = limits.band_orders(n)
        assert order[0] == 1 and order[-1] == n
        low = order[order <= n // 2]
        assert np.max(low[1:] / low[:-1]) <= 2.0
        assert np.max(low[low > 600][1:] / low[low > 600][:-1]) <= 1.0212
