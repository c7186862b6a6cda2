"""The sentences of proven bounds, so that every one of them says whose ε it is."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Any, TypeVar, cast

from dosimeter.estimate import Estimate, Validity, number, percent
from dosimeter.evidence import Scores

_ACTS = {"add/remove": "adding or removing", "replace": "replacing", "zero-out": "zeroing out"}


def change(neighbours: str | None, unit: str = "record") -> str:
    """The change that a guarantee hides, e.g. "replacing one record"; "" where it is not known."""
    return f"{_ACTS[neighbours]} one {unit}" if neighbours in _ACTS else ""


def claim_of_bound(
    epsilon: float, delta: float, confidence: float, *, neighbours: str | None = None, unit: str = "record"
) -> str:
    """The sentence of a proven lower bound."""
    of = f" for {change(neighbours, unit)}" if neighbours else ""
    if epsilon <= 0:
        return (
            f"At δ = {delta:g} the attack proves no privacy loss{of} with {percent(confidence)} confidence (ε ≥ 0); "
            "that is not proof of privacy."
        )
    sure = f"With {percent(confidence)} confidence"
    return f"{sure} the privacy loss{of} is at least ε = {number(epsilon)} at δ = {delta:g}."


def odds_of(confidence: float) -> str:
    """The share of audits that a confidence level lets go wrong, e.g. "1 of 20 audits"."""
    every = 1 / (1 - confidence)
    if abs(every - round(every)) < 1e-6 * every:
        return f"1 of {round(every)} audits"
    return f"{100 * (1 - confidence):.3g} % of audits"


def proven(
    low: float,
    delta: float,
    confidence: float,
    method: str,
    validity: Validity,
    addition: str = "",
    *,
    neighbours: str | None = None,
    unit: str = "record",
    **fields: Any,
) -> Estimate:
    """The estimate of a lower bound: nothing bounds ε from above; `addition` follows its sentence."""
    claim = claim_of_bound(low, delta, confidence, neighbours=neighbours, unit=unit) + addition
    return Estimate(low, low, math.inf, delta, confidence, method, validity, claim, neighbours=neighbours, **fields)


ONE_MODEL = (
    "the scores come from one model, so they depend on each other, and this method counts them as independent; "
    "pass Scores(independent=True) if every score comes from a training of its own"
)


def as_if_independent(estimate: Estimate, why: str = ONE_MODEL) -> Estimate:
    """The same number without its claim to a level: its method needs independent scores, which these are not."""
    if estimate.validity is Validity.EXPLORATORY:
        return replace(estimate, warnings=(*estimate.warnings, why))
    return replace(
        estimate,
        validity=Validity.EXPLORATORY,
        claim=f"If the scores were independent, which nothing guarantees: {estimate.claim}",
        warnings=(*estimate.warnings, why),
    )


Estimator = TypeVar("Estimator", bound=Callable[..., Estimate])


def for_rates(estimator: Estimator) -> Estimator:
    """Let an estimator of error rates say whose ε it bounds, and that one model's scores are not independent."""

    @wraps(estimator)
    def labelled(evidence: Any, **options: Any) -> Estimate:
        found = estimator(evidence, **options)
        if not isinstance(evidence, Scores):
            return found
        if evidence.independent:
            return replace(found, neighbours="add/remove")
        return as_if_independent(replace(found, neighbours="replace"))

    return cast(Estimator, labelled)
