"""ε' of a watched DP-SGD run from its local sensitivities: what its noise was worth against this one neighbour."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dosimeter import _validate as check
from dosimeter import geometry
from dosimeter._validate import FloatArray, InputError
from dosimeter.accounting.mechanism import NOISE_RANGE, Gaussian
from dosimeter.accounting.rdp import CONVERSIONS, rdp
from dosimeter.estimate import Estimate, Validity, number, percent
from dosimeter.estimators.belief import in_noise, information, sensitivities

ACCOUNTANTS = ("gaussian", "pld", "rdp")


def effective_noise(distances: Any, deviations: Any) -> FloatArray:
    """σ_i/LS_i, the noise multiplier that is in force at each step; infinite where the data sets do not differ."""
    ratio = in_noise(*sensitivities(distances, deviations))
    with np.errstate(divide="ignore"):
        return 1 / ratio


def epsilon_from_sensitivities(
    distances: Any,
    deviations: Any,
    *,
    delta: float,
    accountant: str = "gaussian",
    conversion: str = "improved",
    orders: Sequence[float] | None = None,
    confidence: float = 0.95,
) -> Estimate:
    """ε' of steps with noise multipliers σ_i/LS_i, composed; the largest over the repetitions.

    Gaussian steps that each see the record compose to one Gaussian mechanism with μ² = Σ LS_i²/σ_i², so "gaussian" is
    exact, and "pld" is the same number: the privacy-loss distribution of that mechanism. "rdp" takes the way of Bernau
    et al. 2021, with `conversion` "improved" or "classic" and `orders` as in `accounting.rdp`. The interval is the
    range over the repetitions.
    """
    delta = check.delta(delta, zero=False, why_not_zero="the Gaussian mechanism has no finite ε at δ = 0")
    accountant = check.choice("accountant", accountant, ACCOUNTANTS)
    conversion, confidence = check.choice("conversion", conversion, CONVERSIONS), check.confidence(confidence)
    if accountant != "rdp" and (orders is not None or conversion != "improved"):
        raise InputError('conversion and orders belong to accountant="rdp"; leave them out for an exact accountant.')
    mu = np.sqrt(information(distances, deviations))
    worst = int(np.argmax(mu))
    if mu[worst] > 1 / NOISE_RANGE[0]:
        raise InputError(f"deviations is so small in repetition {worst} that μ = {mu[worst]:.3g}; add noise.")
    warnings: tuple[str, ...] = ()
    details: dict[str, Any] = {"accountant": accountant}
    ends = mu[[int(np.argmin(mu)), worst]]
    if accountant != "rdp":
        low, high = (float(e) for e in geometry.epsilon_from_mu(ends, delta))
    else:
        results = [
            rdp(Gaussian(min(1 / end, NOISE_RANGE[1])), delta=delta, conversion=conversion, orders=orders)
            if end > 0
            else None
            for end in ends.tolist()
        ]
        low, high = (0.0 if result is None else result.epsilon for result in results)
        if results[1] is not None:
            warnings, details = results[1].warnings, {**details, **results[1].details}
        details["conversion"] = conversion
    covered = float((1 - confidence) ** (1 / mu.size))
    return Estimate(
        epsilon=high,
        low=low,
        high=high,
        delta=delta,
        confidence=confidence,
        method="sensitivities",
        validity=Validity.MEASUREMENT,
        claim=f"Against this neighbour the noise of {mu.size} runs was worth ε' = {number(high)} at δ = {delta:g} in "
        f"the worst of them, and with {percent(confidence)} confidence at least {100 * covered:.4g} % of such runs "
        "are no worse.",
        warnings=warnings,
        details={
            **details,
            "mu": {"lowest": float(mu.min()), "mean": float(mu.mean()), "highest": float(mu.max())},
            "repetition": worst,
            "repetitions": mu.size,
            "share_below": covered,
        },
    )
