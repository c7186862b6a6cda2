"""Zero-concentrated DP: ρ = Σ steps / (2 noise²), without amplification by sampling."""

from __future__ import annotations

import math

import numpy as np

from dosimeter import _validate as check
from dosimeter.accounting.mechanism import Guarantee, Mechanism, guarantee, mechanism

CONVERSIONS = ("improved", "classic")


def rho_to_epsilon(rho: float, delta: float, conversion: str = "improved") -> tuple[float, float]:
    """ε of a ρ-zCDP mechanism and the Rényi order it is read at.

    classic: ρ + 2√(ρ ln(1/δ)) (Bun and Steinke 2016, Proposition 1.3); improved: the smallest value over all orders of
    ρa + ln(1−1/a) − ln(δa)/(a−1) (Canonne, Kamath, Steinke 2020, Proposition 12).
    """
    if rho == 0:
        return 0.0, math.inf
    centre = math.log(math.sqrt(-math.log(delta) / rho))
    if conversion == "classic":
        return rho + 2 * math.sqrt(-rho * math.log(delta)), 1 + math.exp(centre)
    width = 12.0
    best = centre
    for _ in range(12):  # each pass narrows the bracket of a smooth valley thirty-fold
        gap = np.exp(np.linspace(best - width, best + width, 121))
        order = 1 + gap
        value = rho * order - np.log1p(1 / gap) - (math.log(delta) + np.log1p(gap)) / gap
        index = int(np.argmin(value))
        best, width = math.log(gap[index]), width / 30
    return max(0.0, float(value[index])), float(order[index])


def zcdp(value: Mechanism, *, delta: float, conversion: str = "improved", method: str | None = None) -> Guarantee:
    """Bound ε through zero-concentrated DP.

    Sampling is not used: the value holds for any batches, and is loose for small ones.

    Args:
        value: The mechanism.
        delta: The δ of the guarantee.
        conversion: "improved" or "classic", ε = ρ + 2√(ρ ln 1/δ).
        method: A name for the guarantee, other than "zcdp" or "zcdp-classic".

    Returns:
        The guarantee.

    Raises:
        InputError: If an argument is out of range.

    >>> from dosimeter import Gaussian
    >>> round(zcdp(Gaussian(4.0), delta=1e-5).epsilon, 3)
    1.012
    """
    value = mechanism(value)
    delta = check.delta(delta, zero=False, why_not_zero="the Gaussian mechanism has no finite ε at δ = 0")
    check.choice("conversion", conversion, CONVERSIONS)
    rho = math.fsum(phase.steps / (2 * phase.noise**2) for phase in value.phases)
    epsilon, order = rho_to_epsilon(rho, delta, conversion)
    name = method or ("zcdp" if conversion == "improved" else "zcdp-classic")
    return guarantee(value, epsilon, delta, name, details={"rho": rho, "conversion": conversion, "order": order})
