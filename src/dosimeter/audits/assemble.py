"""What every audit puts beside its headline: guarantees of the same neighbours, the region between, the risk."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from enum import StrEnum
from itertools import takewhile
from typing import Any

import numpy as np

from dosimeter._validate import FloatArray, InputError
from dosimeter.accounting import Composition, DpSgd, Gaussian, Guarantee, PrivacyRegion, account
from dosimeter.accounting.mechanism import Mechanism, with_neighbours
from dosimeter.audits.part import numbers
from dosimeter.audits.result import Allowed, Distributions, Risk
from dosimeter.estimate import Estimate
from dosimeter.identifiability import risk_from_epsilon, risk_in_words

BINS = 60


def guarantees(
    mechanism: Mechanism | None, delta: float, relations: Iterable[str], unit: str = "record"
) -> tuple[tuple[Guarantee, ...], list[str]]:
    """What the accountants promise for each of these neighbours, and notes on what does not fit the bound.

    A mechanism that can be bounded for none of them keeps its own neighbours.
    """
    if mechanism is None:
        return (), []
    if delta == 0:
        raise InputError("delta is 0, but an accountant's ε needs delta above 0; pass e.g. 1e-5, or train without DP.")
    found: list[Guarantee] = []
    notes: list[str] = []
    if unit != "record":
        notes.append(
            f"the accountants' guarantee is for one record, the bound for one {unit}: they are not set side by side"
        )
    for relation in dict.fromkeys(relations):
        try:
            found += account(with_neighbours(mechanism, relation), delta=delta)
        except InputError as error:
            notes.append(f"no guarantee for {relation} neighbours stands beside the bound: {error}")
    return tuple(found or account(mechanism, delta=delta)), notes


def tightest(upper: Sequence[Guarantee], neighbours: str | None) -> Guarantee | None:
    """The smallest proven guarantee for these neighbours."""
    proven = (g for g in upper if g.is_bound and g.neighbours == neighbours)
    return min(proven, key=lambda g: g.epsilon, default=None)


def risk_of(estimates: Sequence[Estimate]) -> Risk:
    """Which guarantees the headline excludes, in words, and what one of the smallest size left would allow.

    A number that is not a bound excludes none.
    """
    head = estimates[0]
    if not head.validity.is_bound:
        return Risk((f"No guarantee is excluded: the headline is not a bound (validity: {head.validity}).",))
    told = [
        risk_in_words(
            e.low,
            e.delta,
            side="lower",
            neighbours=e.neighbours,
            unit=str(e.details.get("unit", "record")),
            confidence=e.confidence,
        )
        for e in family(estimates)
    ]
    longest = max(told, key=len)
    words = (*(lines[0] for lines in told), *longest[1:])
    return Risk(words, would_allow=Allowed.of(risk_from_epsilon(head.low, head.delta)))


def family(estimates: Sequence[Estimate]) -> list[Estimate]:
    """The headline and, right behind it, the same bound for other neighbours."""
    return list(takewhile(lambda estimate: estimate.method == estimates[0].method, estimates))


def both_sides(
    estimates: Sequence[Estimate], upper: Sequence[Guarantee], unit: str = "record"
) -> tuple[PrivacyRegion | None, Risk]:
    """Region and risk: what the headline excludes and, with a guarantee of the same neighbours, what that allows.

    Where the headline has no such guarantee, a second bound with the same validity may have one.
    """
    risk = risk_of(estimates)
    for lower in family(estimates) if unit == "record" else ():
        best = tightest(upper, lower.neighbours)
        if best is not None:
            allowed = replace(
                risk,
                upper=Allowed.of(risk_from_epsilon(best.epsilon, best.delta)),
                upper_words=tuple(risk_in_words(best.epsilon, best.delta, side="upper", neighbours=best.neighbours)),
            )
            return PrivacyRegion(lower=lower, upper=best), allowed
    return None, risk


def distributions(members: FloatArray, nonmembers: FloatArray) -> Distributions:
    """Densities of both losses in common bins, over all but the outer 0.1 % of each side."""
    pooled = np.concatenate([members, nonmembers])
    low, high = np.quantile(pooled, [0.001, 0.999])
    if not low < high:
        low, high = low - 0.5, high + 0.5
    edges = np.linspace(low, high, BINS + 1)
    width = edges[1] - edges[0]
    shares = [np.histogram(np.clip(v, low, high), edges)[0] / (v.size * width) for v in (members, nonmembers)]
    return Distributions(numbers(edges), numbers(shares[0]), numbers(shares[1]))


def written(mechanism: Mechanism) -> str:
    """A mechanism as it would be written in code: the repr of its fields would put enum reprs on the page."""

    def value(found: Any) -> str:
        if isinstance(found, (DpSgd, Gaussian, Composition)):
            return written(found)
        if isinstance(found, tuple):
            inner = ", ".join(map(value, found))
            return f"({inner},)" if len(found) == 1 else f"({inner})"
        return repr(found.value) if isinstance(found, StrEnum) else repr(found)

    inside = ", ".join(f"{part.name}={value(getattr(mechanism, part.name))}" for part in fields(mechanism))
    return f"{type(mechanism).__name__}({inside})"
