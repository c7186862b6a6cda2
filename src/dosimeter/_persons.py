"""The persons behind records: read from ids, and their records brought down to one score and one coin each."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dosimeter import _validate as check
from dosimeter._validate import BoolArray, FloatArray, InputError, IntArray


class Persons(NamedTuple):
    """The persons behind records: their names, and each record's place among them."""

    names: Any
    place: IntArray


def persons(name: str, ids: Any, records: int) -> Persons:
    """Read the ids of the persons behind records, numbers or texts, in the order of their first record."""
    check.check_length(name, ids)
    try:
        array = np.asarray(ids)
    except Exception:  # an object may raise anything when it is asked for its values
        array = np.empty((0, 0))
    if array.dtype.kind == "O" and array.ndim == 1:
        empty = next((i for i, v in enumerate(array.tolist()) if _is_missing(v)), None)
        if empty is not None:
            raise InputError(f"{name}[{empty}] is missing; every record needs the id of a person.")
        array = np.array([str(int(v) if isinstance(v, float) and v.is_integer() else v) for v in array.tolist()])
    if array.ndim != 1 or array.dtype.kind not in "biufUSM":
        raise InputError(f"{name} must be a flat array of ids, got {check.show(ids)}; pass one id for each record.")
    if array.size != records:
        raise InputError(f"{name} has {array.size} ids for {records} records; pass one id for each record.")
    absent = array != array if array.dtype.kind in "fM" else np.zeros(1, bool)  # NaN and NaT
    if absent.any():
        raise InputError(f"{name}[{int(np.argmax(absent))}] is missing; every record needs the id of a person.")
    names, first, place = np.unique(array, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(order.size)
    return Persons(names[order], rank[place])


def two_sides(groups: Any, members: int, nonmembers: int) -> tuple[Persons, Persons]:
    """Read the ids of members and of non-members; nobody may be on both sides."""
    if not isinstance(groups, (tuple, list)) or len(groups) != 2:
        raise InputError(
            f"groups must be a pair (ids of members, ids of non-members), got {check.show(groups)}; pass two arrays."
        )
    sides = persons("groups[0]", groups[0], members), persons("groups[1]", groups[1], nonmembers)
    shared = np.intersect1d(*(_spelled(side.names) for side in sides))
    if shared.size:
        raise InputError(
            f"groups: {check.show(shared[0].item())} is a member and a non-member ({shared.size} such persons); "
            "put all records of a person on one side."
        )
    return sides


def _is_missing(value: Any) -> bool:
    try:
        return value is None or bool(value != value)
    except Exception:  # a missing value of pandas equals nothing, and differs from nothing either
        return True


def _spelled(names: Any) -> Any:
    """Ids as texts, 1 and 1.0 alike: a column with a gap anywhere is read as floats."""
    texts = names.astype(str)
    if names.dtype.kind in "bf":
        whole = (names == np.floor(names)) & (np.abs(names) < 2**53)
        texts[whole] = names[whole].astype(np.int64).astype(str)
    return texts


def by_person(scores: FloatArray, place: IntArray, count: int, aggregate: str) -> FloatArray:
    """One score for each person: the mean or the highest of their records."""
    if aggregate == "max":
        highest = np.full(count, -np.inf)
        np.maximum.at(highest, place, scores)
        return highest
    order = np.lexsort((scores, place))  # the order of the rows must not change a digit
    place, scores = place[order], scores[order]
    return np.asarray(np.bincount(place, scores / np.bincount(place, minlength=count)[place], count), np.float64)


def coin_of(ids: Persons, included: BoolArray) -> BoolArray:
    """One coin for each person; all records of a person must share it."""
    inside = np.bincount(ids.place, included, ids.names.size)
    records = np.bincount(ids.place, minlength=ids.names.size)
    mixed = (inside > 0) & (inside < records)
    if mixed.any():
        person = check.show(ids.names[int(np.argmax(mixed))].item())
        raise InputError(
            f"groups: {person} has records in and out ({int(mixed.sum())} such persons); flip one coin for each "
            "person, e.g. by fair_coins(groups=…)."
        )
    return np.asarray(inside > 0)
