"""Is a class or group of people more exposed than the rest? Bounds for each, and a test corrected for their number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special

from dosimeter._validate import FloatArray, InputError, show
from dosimeter.estimators.lower_bound import lower_bound
from dosimeter.evidence import Scores

LEAST = 20  # records of each kind below which a group is not looked at
MOST_GROUPS = 50

Groups = Mapping[str, tuple[npt.ArrayLike, npt.ArrayLike]]


def by_group(
    scores: Scores, groups: Groups, *, delta: float, confidence: float, seed: int
) -> tuple[dict[str, Any], ...]:
    """One row for each value of each grouping with enough records, the most exposed first.

    `p_value` is that of "this group's AUC is above that of all other records" (DeLong, one-sided); `flagged` is that
    test after Holm's correction over all rows. A row's ε is a bound for that group alone, not for the largest of many.
    """
    rows = []
    for name, pair in groups.items():
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise InputError(
                f"subgroups[{show(name)}] must be (values of members, values of nonmembers), got {show(pair)}."
            )
        member_values, nonmember_values = pair
        inside, outside = (
            _column(name, member_values, scores.members),
            _column(name, nonmember_values, scores.nonmembers),
        )
        values, counts = np.unique(np.concatenate([inside, outside]), return_counts=True)
        for value in values[np.argsort(-counts)][:MOST_GROUPS]:
            row = _row(scores, inside == value, outside == value, delta, confidence, seed)
            if row is not None:
                rows.append({"group": str(name), "value": str(value), **row})
    adjusted = holm(np.array([row["p_value"] for row in rows]))
    for row, p in zip(rows, adjusted, strict=True):
        row["adjusted_p_value"], row["flagged"] = float(p), bool(p < 1 - confidence)
    return tuple(sorted(rows, key=lambda row: (-row["epsilon"], row["p_value"])))


def _column(name: str, values: npt.ArrayLike, records: FloatArray) -> npt.NDArray[Any]:
    try:
        column = np.asarray(values)
    except ValueError:
        raise InputError(f"subgroups[{show(name)}] must be flat columns; its rows have mixed lengths.") from None
    if column.shape != records.shape:
        raise InputError(
            f"subgroups[{show(name)}] must have one value for each record ({records.size}), got shape {column.shape}; "
            "pass (values of members, values of nonmembers)."
        )
    return column.astype(str)


def _row(
    scores: Scores, inside: Any, outside: Any, delta: float, confidence: float, seed: int
) -> dict[str, Any] | None:
    if min(inside.sum(), outside.sum()) < LEAST:
        return None
    group = Scores(scores.members[inside], scores.nonmembers[outside])
    bound = lower_bound(group, delta=delta, confidence=confidence)
    auc, variance = delong(group)
    row: dict[str, Any] = {
        "members": group.members.size,
        "nonmembers": group.nonmembers.size,
        "epsilon": bound.low,
        "auc": auc,
        "p_value": 1.0,
    }
    if min((~inside).sum(), (~outside).sum()) >= LEAST:
        other_auc, other_variance = delong(Scores(scores.members[~inside], scores.nonmembers[~outside]))
        spread = np.sqrt(variance + other_variance)
        row["p_value"] = float(special.ndtr(-(auc - other_auc) / spread)) if spread > 0 else 1.0
    return row


def delong(scores: Scores) -> tuple[float, float]:
    """AUC and its variance by DeLong's placements (asymptotic)."""
    m, n = scores.members.size, scores.nonmembers.size
    placed_m = _placement(scores.members, scores.sorted_nonmembers)
    placed_n = 1 - _placement(scores.nonmembers, scores.sorted_members)
    variance = (placed_m.var(ddof=1) / m if m > 1 else 0.0) + (placed_n.var(ddof=1) / n if n > 1 else 0.0)
    return float(placed_m.mean()), float(variance)


def _placement(values: FloatArray, ordered: FloatArray) -> FloatArray:
    below = np.searchsorted(ordered, values, "left") + np.searchsorted(ordered, values, "right")
    return below / (2.0 * ordered.size)


def holm(p_values: FloatArray) -> FloatArray:
    """Holm's adjusted p-values."""
    order = np.argsort(p_values)
    steps = (p_values.size - np.arange(p_values.size)) * p_values[order]
    adjusted = np.empty_like(p_values)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return adjusted
