"""Which neighbouring data set a gradient audit compares with: searched for, named by its rows, or given whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dosimeter import _validate as check
from dosimeter._validate import BoolArray, InputError, IntArray
from dosimeter.accounting import Neighbours
from dosimeter.audits.gradients.result import ChosenNeighbour
from dosimeter.datasets import sensitivity
from dosimeter.training import Neighbour
from dosimeter.training.arguments import records

NEIGHBOURS = ("bounded", "unbounded")
OVER = ("x", "xy")
Distance = str | Callable[[npt.NDArray[Any], npt.NDArray[Any]], npt.NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Neighbouring:
    """D and D' in one array: the rows of D first, then the record that only D' has, if there is one.

    `row` is where that record stood in the universe, `distance` how far the differing records are apart (bounded) or
    how far the removed one is from all others together (unbounded), by the distance named `by`.
    """

    x: npt.NDArray[Any]
    y: IntArray
    size: int
    neighbour: Neighbour
    bounded: bool
    row: int | None = None
    distance: float | None = None
    by: str | None = None

    @property
    def relation(self) -> Neighbours:
        """The relation as the accountants name it."""
        return Neighbours.REPLACE if self.bounded else Neighbours.ADD_REMOVE

    def members(self, trained_on_d: BoolArray) -> BoolArray:
        """Say which records are in the training set of each model: (models, records)."""
        chosen = np.ones((len(trained_on_d), len(self.x)), bool)
        if self.neighbour.removed is not None:
            chosen[:, self.neighbour.removed] = trained_on_d
        if self.neighbour.added is not None:
            chosen[:, self.neighbour.added] = ~trained_on_d
        return chosen

    @property
    def choice(self) -> ChosenNeighbour:
        """What the audit records of D'."""
        return ChosenNeighbour(
            kind="bounded" if self.bounded else "unbounded",
            removed=self.neighbour.removed,
            added=self.row,
            distance=self.distance,
            by=self.by,
        )


def neighbouring(
    data: Any,
    universe: Any,
    *,
    neighbours: str,
    distance: Distance,
    neighbour: Any,
    over: str = "x",
    progress: bool = False,
) -> Neighbouring:
    """Find D' of `data`: the most dissimilar choice, or `neighbour`.

    That is a Neighbour (rows of data and of universe), or a data set (X, y) that differs from `data` in one record.
    """
    check.choice("neighbours", neighbours, NEIGHBOURS)
    labels_first = check.choice("over", over, OVER) == "xy"
    bounded = neighbours == "bounded"
    x, y = records(data)
    pool = None if universe is None else _universe(universe, x)
    if neighbour is None:
        if bounded:
            return _farthest_pair(x, y, pool, distance, labels_first, progress)
        return _farthest_record(x, y, distance, labels_first, progress)
    if isinstance(neighbour, Neighbour):
        return _named(x, y, pool, bounded, neighbour)
    return _given(x, y, bounded, neighbour)


def _universe(universe: Any, x: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], IntArray]:
    if not isinstance(universe, tuple) or len(universe) != 2:
        raise InputError(
            f"universe must be a pair (X, y), got {check.show(universe)}; pass records like those of data."
        )
    if not len(universe[0]):
        raise InputError("universe is empty, so U∖D holds no record to add; pass records that are not in data.")
    others = records(universe)
    if others[0].shape[1:] != x.shape[1:]:
        raise InputError(
            f"universe has records of shape {others[0].shape[1:]}, data of {x.shape[1:]}; pass records of one kind."
        )
    return others


def _farthest_record(
    x: npt.NDArray[Any], y: IntArray, distance: Distance, labels_first: bool, progress: bool
) -> Neighbouring:
    """D without the record farthest from all others; with labels first, one of the rarest label."""
    pairs = sensitivity.unbounded(x, distance=distance, count=len(x) if labels_first else 1, progress=progress)
    at = 0
    if labels_first:
        _, codes, counts = np.unique(y, return_inverse=True, return_counts=True)
        at = int(np.argmin(counts[codes][pairs.rows]))  # the first of them, which is the farthest
    removed, away = Neighbour(removed=int(pairs.rows[at])), float(pairs.distances[at])
    return Neighbouring(x, y, len(x), removed, False, None, away, _by(pairs.name, labels_first))


def _farthest_pair(
    x: npt.NDArray[Any],
    y: IntArray,
    pool: tuple[npt.NDArray[Any], IntArray] | None,
    distance: Distance,
    labels_first: bool,
    progress: bool,
) -> Neighbouring:
    """D with a record replaced by the farthest one of the universe; with labels first, one of another label."""
    if pool is None:
        raise InputError(
            "universe is missing: bounded neighbours replace a record by one that is not in data; pass "
            'universe=(X, y), neighbour=…, or neighbours="unbounded".'
        )
    others = pool[0].astype(x.dtype, copy=False)
    parts = _of_other_labels(x, y, others, pool[1]) if labels_first else []
    if not parts:
        parts = [(np.arange(len(x)), np.arange(len(others)))]
    pairs = []
    for rows, columns in parts:
        best = sensitivity.bounded(x[rows], others[columns], distance=distance, progress=progress)
        assert best.other_rows is not None
        pairs.append((float(best.distances[0]), int(rows[best.rows[0]]), int(columns[best.other_rows[0]]), best.name))
    away, removed, added, name = max(pairs, key=lambda one: one[0])
    return _with_added(x, y, pool, Neighbour(removed=removed, added=added), away, _by(name, labels_first))


def _of_other_labels(
    x: npt.NDArray[Any], y: IntArray, others: npt.NDArray[Any], labels: IntArray
) -> list[tuple[IntArray, IntArray]]:
    """Rows of each label, and the records of U∖D that have another one; nothing where all labels are the same."""
    _, codes = np.unique(one_value(record_bytes(np.concatenate([x, others]))), return_inverse=True)
    outside = ~np.isin(codes[len(x) :], codes[: len(x)])
    parts = [(np.flatnonzero(y == label), np.flatnonzero(outside & (labels != label))) for label in np.unique(y)]
    return [(rows, columns) for rows, columns in parts if columns.size]


def _by(name: str, labels_first: bool) -> str:
    return f"{name}, labels first" if labels_first else name


def _named(
    x: npt.NDArray[Any],
    y: IntArray,
    pool: tuple[npt.NDArray[Any], IntArray] | None,
    bounded: bool,
    neighbour: Neighbour,
) -> Neighbouring:
    removed, added = neighbour.removed, neighbour.added
    if bounded != (removed is not None and added is not None):
        wanted = "one record removed and one added" if bounded else "one record removed or one added"
        raise InputError(
            f"neighbour removes {'nothing' if removed is None else f'row {removed}'} and adds "
            f"{'nothing' if added is None else f'row {added}'}, but {'bounded' if bounded else 'unbounded'} neighbours "
            f"differ by {wanted}; pass such a Neighbour, or another neighbours."
        )
    if removed is not None and removed >= len(x):
        raise InputError(f"neighbour removes row {removed}, but data has rows 0 to {len(x) - 1}; name one of these.")
    if added is None:
        return Neighbouring(x, y, len(x), neighbour, False)
    if pool is None or added >= len(pool[0]):
        has = "is missing" if pool is None else f"has rows 0 to {len(pool[0]) - 1}"
        raise InputError(f"neighbour adds row {added} of universe, which {has}; pass universe=(X, y) with that row.")
    return _with_added(x, y, pool, neighbour, None, None)


def _with_added(
    x: npt.NDArray[Any],
    y: IntArray,
    pool: tuple[npt.NDArray[Any], IntArray],
    chosen: Neighbour,
    away: float | None,
    by: str | None,
) -> Neighbouring:
    assert chosen.added is not None
    wide = np.concatenate([x, pool[0][[chosen.added]].astype(x.dtype, copy=False)])
    labels = np.concatenate([y, pool[1][[chosen.added]]])
    bounded = chosen.removed is not None
    return Neighbouring(wide, labels, len(x), Neighbour(chosen.removed, len(x)), bounded, chosen.added, away, by)


def _given(x: npt.NDArray[Any], y: IntArray, bounded: bool, other: Any) -> Neighbouring:
    if not isinstance(other, tuple) or len(other) != 2:
        raise InputError(
            f"neighbour must be a Neighbour or a data set (X, y), got {check.show(other)}; pass Neighbour(removed=0)."
        )
    x2, y2 = records(other)
    if x2.shape[1:] != x.shape[1:]:
        raise InputError(
            f"neighbour has records of shape {x2.shape[1:]}, data of {x.shape[1:]}; it must equal data except for one "
            "record."
        )
    only, extra = _difference(x, y, x2.astype(x.dtype, copy=False), y2)
    allowed = [(1, 1)] if bounded else [(1, 0), (0, 1)]
    if (len(only), len(extra)) not in allowed:
        wanted = "exactly one record replaced" if bounded else "exactly one record removed or added"
        raise InputError(
            f"neighbour is not a neighbour of data: {len(only)} record(s) of data are not in it and {len(extra)} of "
            f"its own are not in data, where {'bounded' if bounded else 'unbounded'} neighbours have {wanted}; "
            "records are compared with their labels."
        )
    removed = int(only[0]) if len(only) else None
    if not len(extra):
        return Neighbouring(x, y, len(x), Neighbour(removed=removed), False)
    return _with_added(x, y, (x2.astype(x.dtype, copy=False), y2), Neighbour(removed, int(extra[0])), None, None)


def _difference(x: npt.NDArray[Any], y: IntArray, x2: npt.NDArray[Any], y2: IntArray) -> tuple[IntArray, IntArray]:
    """Rows of each data set that the other lacks, as multisets of records with labels."""
    labels = np.concatenate([y, y2])[:, None].view(np.uint8)
    keys = np.concatenate([record_bytes(np.concatenate([x, x2])), labels], axis=1)
    _, codes = np.unique(one_value(keys), return_inverse=True)
    ours, theirs = codes[: len(x)], codes[len(x) :]
    kinds = int(codes.max()) + 1
    surplus = np.bincount(ours, minlength=kinds) - np.bincount(theirs, minlength=kinds)
    return _surplus_rows(ours, surplus), _surplus_rows(theirs, -surplus)


def record_bytes(x: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """The bytes of each record as a row; −0.0 counts as 0.0."""
    flat = x.reshape(len(x), -1)
    whole = np.ascontiguousarray(flat + 0.0 if flat.dtype.kind == "f" else flat)
    return whole.view(np.uint8).reshape(len(x), -1)


def one_value(keys: npt.NDArray[np.uint8]) -> npt.NDArray[Any]:
    """Rows of bytes as single values that can be sorted and looked up."""
    return np.ascontiguousarray(keys).view(np.dtype((np.void, keys.shape[1]))).reshape(-1)


def _surplus_rows(codes: IntArray, surplus: IntArray) -> IntArray:
    """The last rows of each kind of record, as many as the other data set lacks."""
    order = np.argsort(codes, kind="stable")
    ends = np.searchsorted(codes[order], codes[order], side="right")
    place_from_end = ends - np.arange(len(codes))
    return np.sort(order[place_from_end <= surplus[codes[order]]])
