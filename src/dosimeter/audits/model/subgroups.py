"""Is a class or group of people more exposed than the rest? Bounds that hold together, and a corrected test."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import special

from dosimeter._validate import BoolArray, FloatArray, InputError, show
from dosimeter.audits.parts import known
from dosimeter.audits.result import Subgroup
from dosimeter.estimate import plain
from dosimeter.estimators.limits import auc_with_error
from dosimeter.estimators.lower_bound import proven_epsilon
from dosimeter.evidence import OneRun, Scores

LEAST = 20  # records of each kind below which a group is not looked at
MOST_GROUPS = 50

Groups = Mapping[str, tuple[npt.ArrayLike, npt.ArrayLike]]


class _Group(NamedTuple):
    """A value of a grouping, and the records that have it."""

    name: str
    value: str
    inside: BoolArray
    outside: BoolArray


def by_group(evidence: Scores | OneRun, groups: Groups, *, delta: float, confidence: float) -> tuple[Subgroup, ...]:
    """One row for each value of each grouping with enough records, the most exposed first.

    All rows hold together: with n rows each `epsilon` is a bound at level (1 − confidence)/n, so that all n are true at
    once with the stated confidence, and the largest of them with them. `p_value` is that of "this group's AUC is above
    that of all other records" (DeLong, one-sided); `flagged` is that test after Holm's correction over all rows.
    """
    scores = evidence if isinstance(evidence, Scores) else evidence.as_scores()
    by_coins = isinstance(evidence, OneRun)
    found = [group for name, pair in groups.items() for group in _groups_of(scores, name, pair, by_coins)]
    each = 1 - (1 - confidence) / max(len(found), 1)
    rows = [_row(scores, group, delta, each, by_coins) for group in found]
    adjusted = holm(np.array([row.p_value for row in rows]))
    rows = [
        replace(row, adjusted_p_value=float(p), flagged=bool(p < 1 - confidence), joint_confidence=confidence)
        for row, p in zip(rows, adjusted, strict=True)
    ]
    return tuple(sorted(rows, key=lambda row: (-known(row.epsilon), row.p_value)))


def _groups_of(scores: Scores, name: str, pair: Any, by_coins: bool) -> list[_Group]:
    """The most frequent values of one grouping that have enough records of each kind.

    Where coins decided, the coins must not decide which groups are looked at: enough records in all are enough.
    """
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise InputError(
            f"subgroups[{show(name)}] must be (values of members, values of nonmembers), got {show(pair)}."
        )
    members, nonmembers = _column(name, pair[0], scores.members), _column(name, pair[1], scores.nonmembers)
    values, counts = np.unique(np.concatenate([members, nonmembers]), return_counts=True)
    found = [
        _Group(str(name), str(value), members == value, nonmembers == value)
        for value in values[np.argsort(-counts)][:MOST_GROUPS]
    ]
    if by_coins:
        return [
            g for g in found if g.inside.sum() + g.outside.sum() >= 2 * LEAST and g.inside.any() and g.outside.any()
        ]
    return [group for group in found if min(group.inside.sum(), group.outside.sum()) >= LEAST]


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


def _row(scores: Scores, which: _Group, delta: float, confidence: float, by_coins: bool) -> Subgroup:
    """One group alone; what depends on the others is filled in later."""
    inside, outside = which.inside, which.outside
    group = Scores(scores.members[inside], scores.nonmembers[outside])
    pooled = np.concatenate([group.members, group.nonmembers])
    coins = OneRun(pooled, np.arange(pooled.size) < group.members.size) if by_coins else None
    epsilon = proven_epsilon(group if coins is None else coins, delta=delta, confidence=confidence)
    auc, error = auc_with_error(group)
    p_value = 1.0
    if min((~inside).sum(), (~outside).sum()) >= LEAST:
        other_auc, other_error = auc_with_error(Scores(scores.members[~inside], scores.nonmembers[~outside]))
        p_value = float(special.ndtr((other_auc - auc) / math.hypot(error, other_error)))
    return Subgroup(
        group=which.name,
        value=which.value,
        members=group.members.size,
        nonmembers=group.nonmembers.size,
        epsilon=plain(epsilon),
        p_value=p_value,
        flagged=False,
        neighbours="add/remove" if by_coins else "replace",
        auc=auc,
    )


def holm(p_values: FloatArray) -> FloatArray:
    """Holm's adjusted p-values."""
    order = np.argsort(p_values)
    steps = (p_values.size - np.arange(p_values.size)) * p_values[order]
    adjusted = np.empty_like(p_values)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return adjusted
