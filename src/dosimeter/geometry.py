"""The geometry of (ε, δ)-DP: which pairs of error rates a guarantee allows, and what a pair forces.

Everything here is a pure function of numbers or arrays. `fpr` is P[guess member | non-member],
`fnr` is P[guess non-member | member]; a trade-off curve gives the smallest FNR at an FPR.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special

from dosimeter._validate import FloatArray

ArrayLike = npt.ArrayLike


def log_ratio(numerator: ArrayLike, denominator: ArrayLike) -> FloatArray:
    """ln(numerator / denominator); −∞ where the numerator is ≤ 0 and +∞ where only the denominator is 0."""
    top, bottom = np.broadcast_arrays(np.asarray(numerator, float), np.asarray(denominator, float))
    with np.errstate(divide="ignore", invalid="ignore"):
        value = np.log(top) - np.log(bottom)
    return np.where(top <= 0, -np.inf, np.where(bottom <= 0, np.inf, value))


def epsilon_from_rates(fpr: ArrayLike, fnr: ArrayLike, delta: float = 0.0) -> FloatArray:
    """The smallest ε whose region R(ε, δ) contains (FNR, FPR): what a pair of exact rates forces."""
    y, x = np.asarray(fpr, float), np.asarray(fnr, float)
    return np.maximum.reduce(
        [
            np.zeros(np.broadcast_shapes(x.shape, y.shape)),
            log_ratio(1 - delta - x, y),
            log_ratio(1 - delta - y, x),
            log_ratio(x - delta, 1 - y),
            log_ratio(y - delta, 1 - x),
        ]
    )


def boundary(fnr: ArrayLike, epsilon: float, delta: float) -> tuple[FloatArray, FloatArray]:
    """The FPRs that R(ε, δ) allows at an FNR: (lowest, highest)."""
    x = np.asarray(fnr, float)
    up, down = np.exp(np.minimum(epsilon, 700.0)), np.exp(-np.asarray(epsilon))  # inf · 0 is not a number
    low = np.maximum.reduce([np.zeros_like(x), 1 - delta - up * x, (1 - delta - x) * down])
    high = np.minimum.reduce([np.ones_like(x), 1 + (delta - x) * down, delta + (1 - x) * up])
    return low, high


def epsilon_range(
    fpr: tuple[ArrayLike, ArrayLike], fnr: tuple[ArrayLike, ArrayLike], delta: float
) -> tuple[FloatArray, FloatArray]:
    """Smallest and largest forced ε over the rectangle of two intervals of rates.

    ε(·) falls in both rates below the chance line and rises above it, so the smallest value is 0 where the
    rectangle meets 1−δ ≤ FNR+FPR ≤ 1+δ and stands at the corner next to that strip otherwise; the largest is
    at one of the two corners furthest from it.
    """
    y_low, y_high, x_low, x_high = (np.asarray(v, float) for v in (*fpr, *fnr))
    below = x_high + y_high < 1 - delta
    above = x_low + y_low > 1 + delta
    at_low = epsilon_from_rates(y_low, x_low, delta)
    at_high = epsilon_from_rates(y_high, x_high, delta)
    low = np.where(below, at_high, np.where(above, at_low, 0.0))
    return low, np.maximum(at_low, at_high)


# --- trade-off curves -------------------------------------------------------------------------------------


def tradeoff(fpr: ArrayLike, epsilon: float, delta: float) -> FloatArray:
    """f_{ε,δ}: the smallest FNR at an FPR that an (ε, δ)-DP mechanism allows."""
    return boundary(fpr, epsilon, delta)[0]


def tradeoff_gaussian(fpr: ArrayLike, mu: float) -> FloatArray:
    """The smallest FNR at an FPR that a μ-Gaussian-DP mechanism allows: Φ(Φ⁻¹(1−x) − μ)."""
    result: FloatArray = special.ndtr(-special.ndtri(np.asarray(fpr, float)) - mu)
    return result


# --- Gaussian DP ------------------------------------------------------------------------------------------


def log_delta_from_mu(epsilon: ArrayLike, mu: ArrayLike) -> FloatArray:
    """ln δ(ε) of the μ-Gaussian mechanism, in log space so that no tail is lost."""
    e, m = np.asarray(epsilon, float), np.asarray(mu, float)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        first = special.log_ndtr(-e / m + m / 2)
        second = e + special.log_ndtr(-e / m - m / 2)
        value = first + np.log(-np.expm1(np.minimum(second - first, 0.0)))
        without_noise_gap = np.where(e >= 0, -np.inf, np.log(-np.expm1(np.minimum(e, 0))))
    return np.where(m <= 0, without_noise_gap, value)


def delta_from_mu(epsilon: ArrayLike, mu: ArrayLike) -> FloatArray:
    """δ(ε) = Φ(−ε/μ + μ/2) − e^ε Φ(−ε/μ − μ/2)."""
    return np.exp(log_delta_from_mu(epsilon, mu))


def _bisect(function: Any, low: FloatArray, high: FloatArray, steps: int = 200) -> FloatArray:
    """Last point where a decreasing vectorised function is ≥ 0, to the last bit."""
    for _ in range(steps):
        middle = (low + high) / 2
        positive = function(middle) >= 0
        low, high = np.where(positive, middle, low), np.where(positive, high, middle)
        if np.all(high - low <= 4e-16 * np.maximum(1, np.abs(high))):
            break
    return high


def epsilon_from_mu(mu: ArrayLike, delta: float) -> FloatArray:
    """The ε of the μ-Gaussian mechanism at δ > 0; 0 where δ(0) is already below δ."""
    m = np.asarray(mu, float)
    goal = np.log(delta)
    ceiling = m * m / 2 + m * np.sqrt(-2 * goal) + 1.0  # the Gaussian tail bound on the privacy loss
    root = _bisect(lambda e: log_delta_from_mu(e, m) - goal, np.zeros_like(m), ceiling)
    return np.where(log_delta_from_mu(np.zeros_like(m), m) <= goal, 0.0, root)


def mu_from_epsilon(epsilon: ArrayLike, delta: float) -> FloatArray:
    """The largest μ whose Gaussian mechanism is (ε, δ)-DP; inverse of `epsilon_from_mu`."""
    e = np.asarray(epsilon, float)
    goal = np.log(delta)
    ceiling = np.sqrt(2) * np.sqrt(e + 1) + np.sqrt(-8 * goal) + 4 * special.ndtri((1 + delta) / 2) + 10
    low = np.full_like(e, 1e-300)
    return _bisect(lambda m: goal - log_delta_from_mu(e, m), low, np.broadcast_to(ceiling, e.shape).copy())
