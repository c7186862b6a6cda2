"""Naive and advanced composition: one step's (ε, δ), amplified by sampling, added up.

The step is the Gaussian mechanism at its own δ₀, by the textbook formula √(2 ln(1.25/δ₀))/z ("classic", proven
for ε₀ ≤ 1 only and checked here against the exact δ) or exactly ("exact").
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import special

from dosimeter import _validate as check
from dosimeter._validate import FloatArray
from dosimeter.accounting.mechanism import (
    DpSgd,
    Guarantee,
    Mechanism,
    Phase,
    PhaseKind,
    Sampling,
    guarantee,
    mechanism,
    only,
)
from dosimeter.geometry import epsilon_from_mu, log_delta_from_mu

_AMPLIFIED = (PhaseKind.GAUSSIAN, PhaseKind.POISSON, PhaseKind.WITHOUT_REPLACEMENT)
STEPS = ("classic", "exact")
MEANS = ("drv", "tanh", "square")
SPLITS = ("best", "percent")


def _amplify(step: FloatArray, rate: float) -> FloatArray:
    """ln(1 + q(e^ε − 1)): sampling with rate q (Balle, Barthe, Gaboardi 2018, Theorems 8 and 9)."""
    low = np.log1p(rate * np.expm1(np.minimum(step, 30.0)))
    high = math.log(rate) + step + np.log1p((1 - rate) / rate * np.exp(-step))
    return np.where(step < 30, low, high)


def _steps(phase: Phase, budget: FloatArray, gaussian: str) -> tuple[FloatArray, bool]:
    """The amplified ε of one step at each δ₀ of `budget`, and whether the formula holds there."""
    scale = np.minimum(budget, 1.0)
    mu: Any = np.full(budget.shape, 1 / phase.noise)
    if gaussian == "exact":
        inner: Any = np.minimum(scale, 1 - 1e-16)
        plain = epsilon_from_mu(mu, inner)
        proven = True
    else:
        plain = np.sqrt(2 * np.log(1.25 / scale)) / phase.noise
        proven = bool(np.all(log_delta_from_mu(plain, mu) <= np.log(scale)))
    plain = np.where(budget >= 1, 0.0, plain)  # (0, 1)-DP promises nothing, so it always holds
    return _amplify(plain, phase.rate), proven


def _visits(phases: tuple[Phase, ...]) -> float:
    return math.fsum(phase.rate * phase.steps for phase in phases)


_UNPROVEN = (
    "the classic Gaussian formula does not hold at this noise: the exact δ of a step is above the δ it is given; "
    'use gaussian="exact"'
)


def naive(value: Mechanism, *, delta: float, gaussian: str = "classic", method: str | None = None) -> Guarantee:
    """Add up ε over all steps: Σ ln(1 + q(e^{ε₀} − 1)), with δ₀ = δ / Σq.

    With `gaussian="classic"` this is the column "naive" of Table 1 of "That which we call private" (2019).

    Args:
        value: The mechanism.
        delta: The δ of the guarantee.
        gaussian: How one step is bounded, "classic" or "exact".
        method: A name for the guarantee, other than "naive" or "naive-exact".

    Returns:
        The guarantee.

    Raises:
        InputError: If an argument is out of range, or these neighbours have no such bound.

    >>> from dosimeter import DpSgd
    >>> round(naive(DpSgd(4.0, 0.01, 100), delta=1e-5).epsilon, 2)
    2.33
    """
    value = mechanism(value)
    delta = check.delta(delta, zero=False, why_not_zero="the Gaussian mechanism has no finite ε at δ = 0")
    check.choice("gaussian", gaussian, STEPS)
    name = method or ("naive" if gaussian == "classic" else "naive-exact")
    phases = only(value, _AMPLIFIED, name)
    budget = np.array([delta / _visits(phases)])
    total, proven = 0.0, True
    for phase in phases:
        step, holds = _steps(phase, budget, gaussian)
        total, proven = total + phase.steps * float(step[0]), proven and holds
    details = {"gaussian": gaussian, "step_delta": float(budget[0])}
    return guarantee(
        value, total, delta, name, is_bound=proven, details=details, warnings=() if proven else (_UNPROVEN,)
    )


def advanced(
    value: Mechanism,
    *,
    delta: float,
    gaussian: str = "classic",
    mean: str | None = None,
    split: str | float = "best",
    method: str | None = None,
) -> Guarantee:
    """Compose all steps by the advanced theorem.

    ε = √(2 ln(1/(fδ)) Σε²) + Σ m(ε) with δ₀ = (1−f)δ / Σq for each step. With the classic step, "drv" and "percent"
    this is the column "advanced" of Table 1 of "That which we call private" (2019). Jayaraman and Evans (2019) take
    "square" and f = ½.

    Args:
        value: The mechanism.
        delta: The δ of the guarantee.
        gaussian: How one step is bounded, "classic" or "exact".
        mean: The expected loss m of a step: "drv" ε(e^ε − 1) (Dwork, Rothblum, Vadhan 2010), "tanh" ε·tanh(ε/2) (the
            same theorem with the exact mean of randomised response, tighter), or "square" ε².
        split: The share f: "best", "percent" (the best of 0.01 … 0.99) or a number.
        method: A name for the guarantee, other than "advanced" or "advanced-exact".

    Returns:
        The guarantee.

    Raises:
        InputError: If an argument is out of range, or these neighbours have no such bound.

    >>> from dosimeter import DpSgd
    >>> round(advanced(DpSgd(4.0, 0.01, 100), delta=1e-5).epsilon, 2)
    1.26
    """
    value = mechanism(value)
    delta = check.delta(delta, zero=False, why_not_zero="advanced composition spends part of δ")
    check.choice("gaussian", gaussian, STEPS)
    mean = check.choice("mean", mean or ("drv" if gaussian == "classic" else "tanh"), MEANS)
    name = method or ("advanced" if gaussian == "classic" else "advanced-exact")
    phases = only(value, _AMPLIFIED, name)
    if isinstance(split, str):
        check.choice("split", split, SPLITS)
        shares = np.arange(1, 100) / 100.0 if split == "percent" else special.expit(np.linspace(-20, 20, 201))
    else:
        remedy = 'pass the share of δ for the composition, "best" or "percent"'
        shares = np.array([check.within("split", split, 0.0, 1.0, remedy, include="()")])
    totals = _advanced(phases, delta, shares, gaussian, mean)
    if split == "best":
        for width in (0.2, 0.004):
            centre = special.logit(shares[int(np.argmin(totals))])
            shares = special.expit(np.linspace(centre - width, centre + width, 101))
            totals = _advanced(phases, delta, shares, gaussian, mean)
    best = int(np.argmin(totals))
    share = shares[best : best + 1]
    proven = all(_steps(phase, (1 - share) * delta / _visits(phases), gaussian)[1] for phase in phases)
    details = {"gaussian": gaussian, "mean": mean, "share": float(share[0])}
    warnings = () if proven else (_UNPROVEN,)
    return guarantee(value, float(totals[best]), delta, name, is_bound=proven, details=details, warnings=warnings)


def _advanced(phases: tuple[Phase, ...], delta: float, shares: FloatArray, gaussian: str, mean: str) -> FloatArray:
    budget = (1 - shares) * delta / _visits(phases)
    squares, means = np.zeros_like(shares), np.zeros_like(shares)
    with np.errstate(over="ignore"):
        for phase in phases:
            step, _ = _steps(phase, budget, gaussian)
            growth = {"drv": np.expm1(step), "tanh": np.tanh(step / 2), "square": step}[mean]
            squares += phase.steps * step**2
            means += phase.steps * step * growth
        return np.sqrt(-2 * np.log(shares * delta) * squares) + means


_NOT_SHUFFLED = (
    "composes over epochs as if every record were used once in each; that is a bound for shuffled batches, not for "
    "the sampling stated here"
)


def by_epochs(value: DpSgd) -> tuple[DpSgd, tuple[str, ...]]:
    """The same run with shuffled batches, and the warning that goes with it unless that is what was run.

    Jayaraman and Evans (2019) compose over epochs without amplification; these are their columns.
    """
    shuffled = DpSgd(value.noise_multiplier, value.sample_rate, value.steps, Sampling.SHUFFLED)
    return shuffled, () if value.sampling is Sampling.SHUFFLED else (_NOT_SHUFFLED,)
