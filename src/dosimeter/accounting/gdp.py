"""The central-limit value of Gaussian DP for Poisson batches: a well-known approximation, not a bound."""

from __future__ import annotations

import math

import numpy as np

from dosimeter import _validate as check
from dosimeter.accounting.mechanism import Guarantee, Mechanism, Phase, PhaseKind, guarantee, mechanism, only
from dosimeter.geometry import epsilon_from_mu


def clt_mu(phases: tuple[Phase, ...]) -> float:
    """μ = √Σ steps·q²(e^{1/z²} − 1) (Bu, Dong, Long, Su 2020); full-batch phases add their exact steps/z²."""
    total = 0.0
    with np.errstate(over="ignore"):
        for phase in phases:
            curvature = float(np.expm1(1 / phase.noise**2))
            total += phase.steps * (phase.rate**2 * curvature if phase.rate < 1 else 1 / phase.noise**2)
    return math.sqrt(total)


def gdp_clt(value: Mechanism, *, delta: float, method: str = "gdp-clt") -> Guarantee:
    """Give ε of the Gaussian mechanism that many sampled steps tend to; it may lie on either side of the truth.

    Args:
        value: The mechanism.
        delta: The δ.
        method: A name for the result.

    Returns:
        The value, with `is_bound` False.

    Raises:
        InputError: If an argument is out of range.

    >>> from dosimeter import DpSgd
    >>> round(gdp_clt(DpSgd(1.1, 0.02, 5000), delta=1e-5).epsilon, 2)
    7.64
    """
    value = mechanism(value)
    delta = check.delta(delta, zero=False, why_not_zero="the Gaussian mechanism has no finite ε at δ = 0")
    mu = clt_mu(only(value, (PhaseKind.GAUSSIAN, PhaseKind.POISSON), method))
    epsilon = float(epsilon_from_mu(mu, delta)) if mu < 1e6 else math.inf
    warnings = ("a central-limit approximation: below the true ε for some runs, far above it for others",)
    return guarantee(value, epsilon, delta, method, is_bound=False, details={"mu": mu}, warnings=warnings)
