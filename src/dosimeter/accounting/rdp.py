"""Rényi DP of the sampled Gaussian mechanism, and its conversions to (ε, δ).

Everything is a sum or an integral of positive terms, taken in log space: no order is lost at low noise, and nothing
cancels at high noise, where the divergence is tiny.

Why not dp_accounting, which computes the same at whole orders? For Poisson sampling at real orders (version 0.6):
- below order 2 its values exceed the exact ones, by 22 % at noise 0.7, rate 0.01 and order 1.1, and such orders decide
  ε at low noise;
- at high noise and low rates its sums of both signs cancel, and a value can come out below the exact one, by 2e-6 of
  it at noise 100, rate 1e-6 and order 10.9: that is not an upper bound;
- it takes one order at a time, and a search for the noise asks for thousands of lists of orders.
tests/accounting/ compares this module with quadrature in many digits, and with dp_accounting where that is exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from scipy import special

from dosimeter import _validate as check
from dosimeter._validate import FloatArray, InputError
from dosimeter.accounting.mechanism import Guarantee, Mechanism, Phase, PhaseKind, guarantee, mechanism, only

CONVERSIONS = ("improved", "classic")
DEFAULT_ORDERS: tuple[float, ...] = (
    *(1.001, 1.002, 1.004, 1.007, 1.01, 1.015, 1.02, 1.03, 1.04, 1.05, 1.06, 1.07, 1.08, 1.09),
    *(round(1 + k / 10, 1) for k in range(1, 100)),
    *(float(k) for k in range(11, 64)),
    *(64.0, 72.0, 80.0, 96.0, 112.0, 128.0, 160.0, 192.0, 224.0, 256.0, 320.0, 384.0, 448.0, 512.0),
    *(640.0, 768.0, 1024.0, 1536.0, 2048.0, 3072.0, 4096.0, 8192.0),
)
PAPER_ORDERS: tuple[float, ...] = (  # Table 1 of "That which we call private" (2019)
    *(round(1 + k / 10, 1) for k in range(1, 100)),
    *(float(k) for k in range(12, 64)),
    *(128.0, 256.0, 512.0),
)
_ROUGH_ORDERS: tuple[float, ...] = (
    *(1.001, 1.01, 1.03, 1.1, 1.2, 1.3, 1.5, 1.7, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 8.0, 10.0, 13.0, 16.0, 20.0, 26.0),
    *(32.0, 40.0, 50.0, 64.0, 96.0, 128.0, 192.0, 256.0, 384.0, 512.0, 1024.0, 2048.0, 4096.0),
)
_TAIL = 12.0  # standard deviations on each side of an integral: a relative error of 1e-32
_CHUNK = 1 << 20  # nodes × orders held in memory at once
_LEAST_NOISE = 0.05  # below, integrals would need millions of nodes for an ε in the thousands; whole orders do
_LARGEST_EXACT = 256  # beyond, the moment bound of sampling without replacement takes its simpler term


def _orders(orders: Sequence[float] | None) -> tuple[float, ...]:
    if orders is None:
        return DEFAULT_ORDERS
    values = check.finite_array("orders", orders)
    bad = (values <= 1) | (values > 1e6)
    if bad.any():
        index = int(np.argmax(bad))
        raise InputError(f"orders[{index}] is {values[index]:g}; Rényi orders must be in (1, 1e6].")
    return tuple(sorted(set(values.tolist())))


def _log_expm1(x: FloatArray) -> FloatArray:
    with np.errstate(divide="ignore", over="ignore"):
        return np.where(x > 30, x + np.log1p(-np.exp(-x)), np.log(np.expm1(np.minimum(x, 30.0))))


def _logsumexp(terms: FloatArray) -> FloatArray:
    """Over the last axis; scipy's own is slow for short rows."""
    top = terms.max(axis=-1, keepdims=True)
    total: FloatArray = np.log(np.exp(terms - top).sum(axis=-1)) + top[..., 0]
    return total


def _log_binomial(n: FloatArray | float, k: FloatArray) -> FloatArray:
    return special.gammaln(np.add(n, 1.0)) - special.gammaln(k + 1) - special.gammaln(np.subtract(n, k) + 1)


# --- Poisson sampling -------------------------------------------------------------------------------------


def _whole_orders(noise: float, rate: float, orders: FloatArray) -> FloatArray:
    """ln(A − 1) at whole orders a: A − 1 = Σ_{k≥2} C(a,k) q^k (1−q)^{a−k} (e^{k(k−1)/(2z²)} − 1).

    Mironov, Talwar, Zhang 2019, section 3.3, less the two terms that make the 1.
    """
    result = np.empty_like(orders)
    for index, order in enumerate(orders):
        k = np.arange(2.0, order + 1)
        terms = (
            _log_binomial(order, k)
            + k * math.log(rate)
            + (order - k) * math.log1p(-rate)
            + _log_expm1(k * (k - 1) / (2 * noise**2))
        )
        result[index] = _logsumexp(terms)
    return result


def _real_orders(noise: float, rate: float, orders: FloatArray) -> FloatArray:
    """ln(A − 1) at real orders by the trapezoidal rule, which converges geometrically here.

    A = E[(1+y)^a] with y = q(e^u − 1), u ~ N(−1/(2z²), 1/z²) and E y = 0, so A − 1 = E[(1+y)^a − 1 − ay], whose
    integrand is positive. The nearest singularity lies at the distance πz from the real line.
    """
    width = min(0.25, math.pi * noise * 2 * math.pi / 40)
    result = np.empty_like(orders)
    start = 0
    while start < orders.size:
        nodes = math.ceil((float(orders[-1]) / noise + 2 * _TAIL) / width) + 1
        stop = min(orders.size, start + max(1, _CHUNK // nodes))
        block = orders[start:stop, None]
        t: FloatArray = -_TAIL + width * np.arange(nodes, dtype=float)[None, :]
        u = t / noise - 1 / (2 * noise**2)
        result[start:stop] = _logsumexp(_log_remainder(u, rate, block) - t * t / 2) + math.log(
            width / math.sqrt(2 * math.pi)
        )
        start = stop
    return result


def _log_remainder(u: FloatArray, rate: float, order: FloatArray) -> FloatArray:
    """ln((1+y)^a − 1 − ay) for y = q(e^u − 1), by series where y is small and in logarithms where it is large."""
    small_u = np.minimum(u, 30.0)
    y = rate * np.expm1(small_u)
    growth = np.where(
        u < 30, np.log1p(y), math.log(rate) + u + np.log1p((1 - rate) / rate * np.exp(-np.maximum(u, 30)))
    )
    power = order * growth
    a = order
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        series = a * (a - 1) / 2 * y * y * (1 + (a - 2) / 3 * y * (1 + (a - 3) / 4 * y * (1 + (a - 4) / 5 * y)))
        middle = np.expm1(np.minimum(power, 60.0)) - a * y
        log_linear = np.where(u < 30, np.log1p(np.maximum(a * y, 0)), np.log(a * rate) + u)
        large = power + np.log1p(-np.exp(np.minimum(log_linear - power, -1e-300)))
        direct = np.log(np.where(a * np.abs(y) < 1e-3, series, middle))
    return np.where((power < 40) & (u < 30), direct, large)


@lru_cache(maxsize=256)
def _poisson(noise: float, rate: float, orders: tuple[float, ...]) -> FloatArray:
    grid = np.array(orders)
    whole = grid == np.floor(grid)
    if noise < _LEAST_NOISE and not whole.all():
        between = _interpolated(grid, lambda k: np.logaddexp(0.0, _whole_orders(noise, rate, k)))
        return np.minimum(between, _minkowski(noise, rate, grid))
    log_excess = np.empty_like(grid)
    if whole.any():
        log_excess[whole] = _whole_orders(noise, rate, grid[whole])
    if not whole.all():
        log_excess[~whole] = _real_orders(noise, rate, grid[~whole])
    result: FloatArray = np.logaddexp(0.0, log_excess) / (grid - 1)
    result.flags.writeable = False
    return result


def _minkowski(noise: float, rate: float, orders: FloatArray) -> FloatArray:
    """An upper bound that is tight at low noise: the norm of a mixture is at most the mixture of the norms,

    A^{1/a} ≤ (1−q) + q e^{(a−1)/(2z²)}.
    """
    norm = np.logaddexp(math.log1p(-rate), math.log(rate) + (orders - 1) / (2 * noise**2))
    return orders / (orders - 1) * norm


def _interpolated(grid: FloatArray, log_moments: Callable[[FloatArray], FloatArray]) -> FloatArray:
    """RDP at real orders from ln A at whole ones: ln A is convex in the order and 0 at 1 (WBK 2019, Corollary 10)."""
    floor, ceiling = np.floor(grid), np.ceil(grid)
    needed = np.unique(np.concatenate([floor, ceiling]))
    values = np.zeros_like(needed)
    values[needed > 1] = log_moments(needed[needed > 1])
    low, high = values[np.searchsorted(needed, floor)], values[np.searchsorted(needed, ceiling)]
    share = grid - floor
    result: FloatArray = ((1 - share) * low + share * high) / (grid - 1)
    result.flags.writeable = False
    return result


# --- sampling without replacement -------------------------------------------------------------------------


def _even_moments(noise: float, count: int) -> FloatArray:
    """ln E[(e^u − 1)^{2j}] for j = 1 … count: even central moments of the likelihood ratio, integrands positive."""
    powers = 2.0 * np.arange(1, count + 1)
    result = np.empty_like(powers)
    width = 0.25 if noise >= 0.25 else noise
    start = 0
    while start < powers.size:
        nodes = math.ceil((float(powers[-1]) / noise + 2 * _TAIL) / width) + 1
        stop = min(powers.size, start + max(1, _CHUNK // nodes))
        t = -_TAIL + width * np.arange(nodes)[None, :]
        u = t / noise - 1 / (2 * noise**2)
        with np.errstate(divide="ignore"):
            base = np.where(u > 0, _log_expm1(np.abs(u)), np.log(-np.expm1(np.minimum(u, 0.0))))
        terms = powers[start:stop, None] * base - t * t / 2
        result[start:stop] = _logsumexp(terms) + math.log(width / math.sqrt(2 * math.pi))
        start = stop
    return result


@lru_cache(maxsize=256)
def _without_replacement(noise: float, rate: float, orders: tuple[float, ...]) -> FloatArray:
    """RDP for replaced records (Wang, Balle, Kasiviswanathan 2019, Theorem 27; between whole orders Corollary 10)."""
    grid = np.array(orders)
    exact_up_to = _LARGEST_EXACT if noise >= _LEAST_NOISE else 0
    largest = int(min(math.ceil(grid.max()), max(exact_up_to, 2)))
    moments = _even_moments(noise, (largest + 1) // 2) if exact_up_to else np.array([math.inf])

    def log_moments(whole: FloatArray) -> FloatArray:
        result = np.empty_like(whole)
        for index, order in enumerate(whole):
            j = np.arange(2.0, order + 1)
            bound = math.log(2) + j * (j - 1) / (2 * noise**2)
            if order <= exact_up_to:
                low, high = (j // 2).astype(int), ((j + 1) // 2).astype(int)
                bound = np.minimum(bound, math.log(4) + 0.5 * (moments[low - 1] + moments[high - 1]))
            else:
                bound[0] = min(bound[0], math.log(4) + float(moments[0]))
            terms = j * math.log(rate) + _log_binomial(order, j) + bound
            result[index] = np.logaddexp(0.0, _logsumexp(terms))
        return result

    return _interpolated(grid, log_moments)


# --- the accountant ---------------------------------------------------------------------------------------

_KINDS = (PhaseKind.GAUSSIAN, PhaseKind.POISSON, PhaseKind.WITHOUT_REPLACEMENT)


def _phase_rdp(phase: Phase, orders: tuple[float, ...]) -> FloatArray:
    if phase.kind is PhaseKind.GAUSSIAN:
        one: FloatArray = np.array(orders) / (2 * phase.noise**2)
    elif phase.kind is PhaseKind.POISSON:
        one = _poisson(phase.noise, phase.rate, orders)
    else:
        one = _without_replacement(phase.noise, phase.rate, orders)
    return phase.steps * one


def rdp_values(value: Mechanism, orders: Sequence[float] | None = None) -> tuple[FloatArray, FloatArray]:
    """(orders, RDP of the whole mechanism at each order)."""
    grid = _orders(orders)
    phases = only(mechanism(value), _KINDS, "rdp")
    total: FloatArray = np.sum([_phase_rdp(phase, grid) for phase in phases], axis=0)
    return np.array(grid), total


def _epsilons(orders: FloatArray, values: FloatArray, delta: float, conversion: str) -> FloatArray:
    if conversion == "classic":  # Mironov 2017, Proposition 3
        return values - math.log(delta) / (orders - 1)
    gap = orders - 1
    improved = values - np.log1p(1 / gap) - (math.log(delta) + np.log(orders)) / gap  # CKS 2020, Proposition 12
    no_loss = -np.expm1(-values) <= delta**2  # Bretagnolle–Huber: total variation ≤ √(1 − e^{−KL}) ≤ δ
    return np.where(no_loss, 0.0, np.maximum(improved, 0.0))


def rdp(
    value: Mechanism,
    *,
    delta: float,
    conversion: str = "improved",
    orders: Sequence[float] | None = None,
    method: str | None = None,
) -> Guarantee:
    """Bound ε through Rényi DP.

    Args:
        value: The mechanism.
        delta: The δ of the guarantee.
        conversion: "improved" (Canonne, Kamath and Steinke 2020) or "classic" (Mironov 2017).
        orders: Rényi orders, of which the best counts; by default it is searched between 1.001 and 8192.
        method: A name for the guarantee, other than "rdp" or "rdp-classic".

    Returns:
        The guarantee; `details["order"]` is the order that it rests on.

    Raises:
        InputError: If an argument is out of range, or Rényi DP has no bound for these neighbours.

    >>> from dosimeter import DpSgd
    >>> round(rdp(DpSgd(1.1, 0.02, 5000), delta=1e-5).epsilon, 2)
    8.51
    """
    value = mechanism(value)
    delta = check.delta(delta, zero=False, why_not_zero="the Gaussian mechanism has no finite ε at δ = 0")
    check.choice("conversion", conversion, CONVERSIONS)
    grid, values = rdp_values(value, orders)
    epsilons = _epsilons(grid, values, delta, conversion)
    best = int(np.argmin(epsilons))
    warnings: tuple[str, ...] = ()
    if epsilons[best] > 0 and best in (0, grid.size - 1):
        end = "smallest" if best == 0 else "largest"
        warnings = (f"the best order is {grid[best]:g}, the {end} of the list; more orders beyond it would lower ε",)
    elif orders is None and epsilons[best] > 0:
        for _ in range(2):  # the list only brackets the best order
            near = np.linspace(grid[max(best - 1, 0)], grid[min(best + 1, grid.size - 1)], 33)
            grid, values = rdp_values(value, [*near.tolist(), float(grid[best])])
            epsilons = _epsilons(grid, values, delta, conversion)
            best = int(np.argmin(epsilons))
    epsilon = float(epsilons[best])
    details: dict[str, Any] = {
        "conversion": conversion,
        "order": float(grid[best]),
        "rdp": float(values[best]),
        "orders": "every order from 1.001 to 8192" if orders is None else [float(order) for order in grid],
    }
    name = method or ("rdp" if conversion == "improved" else "rdp-classic")
    return guarantee(value, epsilon, delta, name, details=details, warnings=warnings)


def rough_epsilon(phases: tuple[Phase, ...], delta: float) -> float:
    """A quick ε for choosing grids and starting points; replaced records are taken as one record of double weight."""
    grid = np.array(_ROUGH_ORDERS)
    near = [
        phase._replace(kind=PhaseKind.POISSON) if phase.kind is PhaseKind.POISSON_REPLACE else phase for phase in phases
    ]
    total = np.sum([_phase_rdp(phase, _ROUGH_ORDERS) for phase in near], axis=0)
    return float(_epsilons(grid, total, delta, "improved").min())


def rdp_delta(value: Mechanism, epsilon: float, orders: Sequence[float] | None = None) -> float:
    """The smallest δ that Rényi DP shows at ε ≥ 0."""
    grid, values = rdp_values(value, orders)
    gap = grid - 1
    with np.errstate(divide="ignore", over="ignore"):
        converted = gap * (values - epsilon - np.log1p(1 / gap)) - np.log(grid)
        variation = 0.5 * np.log(-np.expm1(-values))
        return float(np.exp(min(0.0, converted.min(), variation.min())))
