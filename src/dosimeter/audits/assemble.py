"""What every audit puts beside its headline: guarantees of the same neighbours, the region between, the risk."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from dosimeter._validate import InputError
from dosimeter.accounting import Guarantee, PrivacyRegion, account
from dosimeter.accounting.mechanism import Mechanism, with_neighbours
from dosimeter.estimate import Estimate
from dosimeter.identifiability import risk_from_epsilon, risk_in_words


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


def both_sides(
    estimates: Sequence[Estimate], upper: Sequence[Guarantee], unit: str = "record"
) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """Region and risk: what the headline excludes and, with a guarantee of the same neighbours, what that allows.

    Where the headline has no such guarantee, a second bound with the same validity may have one.
    """
    head = estimates[0]
    risk = {**risk_from_epsilon(head.low, head.delta), "words": risk_in_words(head.low, head.delta, side="lower")}
    for lower in estimates:
        if lower.method != head.method or unit != "record":
            break
        best = tightest(upper, lower.neighbours)
        if best is not None:
            allowed = {
                "upper": risk_from_epsilon(best.epsilon, best.delta),
                "upper_words": risk_in_words(best.epsilon, best.delta, side="upper"),
            }
            return PrivacyRegion(lower=lower, upper=best).to_dict(), {**risk, **allowed}
    return None, risk
