"""The records of a model's audit, members and held-out ones or one pool that coins have divided, and their groups."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import special

from dosimeter import _validate as check
from dosimeter._persons import Persons, persons, two_sides
from dosimeter._validate import BoolArray, FloatArray, InputError, IntArray, show
from dosimeter.audits.parts import known
from dosimeter.audits.result import Subgroup
from dosimeter.estimate import plain
from dosimeter.estimators.limits import auc_with_error
from dosimeter.estimators.lower_bound import proven_epsilon
from dosimeter.evidence import OneRun, Scores
from dosimeter.models.outputs import Task
from dosimeter.records import count, dataset, joined, missing_values, take

_BOTH = "pass members and nonmembers, or data and included"


@dataclass(frozen=True, eq=False)
class Pool:
    """Records that a model was trained on and records that it was not, with the persons behind them.

    `included` is the mask of coins over one pool; without it the records are two sides that were split at random.
    """

    inside: tuple[Any, Any]
    outside: tuple[Any, Any]
    included: BoolArray | None
    mask_seed: int | None
    groups: tuple[Any, Any] | None
    task: Task = "classification"

    @property
    def labels(self) -> tuple[Any, Any] | None:
        pair = self.inside[1], self.outside[1]
        return None if pair[0] is None or pair[1] is None else pair

    @property
    def size(self) -> int:
        """How many records there are on both sides."""
        return sum(len(self._side(side)) for side in (0, 1))

    @property
    def order(self) -> IntArray:
        """Where the members, then the non-members, stand in what the caller passed."""
        if self.included is None:
            return np.arange(self.size)
        return np.concatenate([np.flatnonzero(self.included), np.flatnonzero(~self.included)])

    @property
    def persons(self) -> IntArray | None:
        """The number of the person behind each record, members first; None where nobody owns several."""
        return None if self.groups is None else persons("groups", np.concatenate(self.groups), self.size).place

    @property
    def missing(self) -> int:
        """How many values of the records are missing."""
        return missing_values(self.inside[0]) + missing_values(self.outside[0])

    def joined(self) -> tuple[Any, Any]:
        """The records and labels of both sides, members first."""
        assert self.labels is not None
        return joined(self.inside[0], self.outside[0]), np.concatenate(self.labels)

    def evidence(
        self, members: FloatArray, nonmembers: FloatArray, aggregate: str, *, from_loss: bool
    ) -> Scores | OneRun:
        """The scores of both sides with what is known about their labels."""
        if self.included is None:
            return Scores(members, nonmembers, from_loss=from_loss, groups=self.groups, aggregate=aggregate)
        scores = np.empty(self.included.size)
        scores[self.included], scores[~self.included] = members, nonmembers
        ids = None if self.groups is None else self._in_order(*self.groups)
        return OneRun(scores, self.included, self.mask_seed, ids, aggregate, from_loss=from_loss)

    def _in_order(self, inside: Any, outside: Any) -> npt.NDArray[Any]:
        assert self.included is not None
        both = np.concatenate([np.asarray(inside), np.asarray(outside)])
        values = np.empty_like(both)
        values[self.order] = both
        return values

    def columns(self, given: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
        """The columns to look at by group: the classes, and those that were given; one value for each person."""
        columns = self._by_target()
        for name, values in given.items():
            columns[name] = self._parted(name, values)
        if self.groups is None:
            return columns
        rows = [_first_rows(side) for side in self._persons()]
        return {name: (np.asarray(a)[rows[0]], np.asarray(b)[rows[1]]) for name, (a, b) in columns.items()}

    def _by_target(self) -> dict[str, tuple[Any, Any]]:
        """Groups by what is predicted: classes, quarters of a number, or how many labels are set."""
        if self.labels is None:
            return {}
        if self.task == "multi-label":
            return {"labels set": (self.labels[0].sum(axis=1), self.labels[1].sum(axis=1))}
        if self.task != "regression":
            return {"class": self.labels}
        values = np.concatenate(self.labels).astype(np.float64)
        low, *_, high = edges = np.unique(np.quantile(values, np.arange(5) / 4))
        if edges.size < 3:
            return {}
        names = np.array([f"{a:.4g} to {b:.4g}" for a, b in pairwise(edges)])
        sides = [names[np.searchsorted(edges[1:-1], np.clip(side, low, high))] for side in self.labels]
        return {"target": (sides[0], sides[1])}

    def guard_labels(self) -> tuple[Any, Any] | None:
        """What the guard compares as classes: tenths of a number, or each set of labels as a class of its own."""
        if self.labels is None or self.task == "classification":
            return self.labels
        both = np.concatenate(self.labels)
        if self.task == "regression":
            codes = np.searchsorted(np.unique(np.quantile(both, np.arange(1, 10) / 10)), both)
        else:
            codes = np.unique(both, axis=0, return_inverse=True)[1].reshape(-1)
        return codes[: len(self.labels[0])], codes[len(self.labels[0]) :]

    def _parted(self, name: str, values: Any) -> tuple[Any, Any]:
        if self.included is None or (isinstance(values, (tuple, list)) and len(values) == 2):
            pair = values
        else:
            column = np.asarray(values)
            if column.shape != self.included.shape:
                raise InputError(
                    f"subgroups[{check.show(name)}] must have one value for each of the {self.included.size} records, "
                    f"got shape {column.shape}; pass a column of data."
                )
            pair = column[self.included], column[~self.included]
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise InputError(
                f"subgroups[{check.show(name)}] must be (values of members, values of nonmembers), got "
                f"{check.show(pair)}; pass two columns."
            )
        sizes = [len(self._side(side)) for side in (0, 1)]
        for side, (values_of, size) in enumerate(zip(pair, sizes, strict=True)):
            if np.shape(values_of)[:1] != (size,):
                kind = ("members", "nonmembers")[side]
                raise InputError(
                    f"subgroups[{check.show(name)}] has {np.shape(values_of)} values for {size} {kind}; pass one for "
                    "each record."
                )
        return pair[0], pair[1]

    def _side(self, side: int) -> range:
        return range(count((self.inside, self.outside)[side][0]))

    def _persons(self) -> tuple[Persons, Persons]:
        assert self.groups is not None
        first, second = (persons("groups", ids, len(self._side(side))) for side, ids in enumerate(self.groups))
        return first, second

    def name_of_member(self, place: int) -> Any:
        """The person, or the row number in the members or in the pool."""
        if self.groups is not None:
            return self._persons()[0].names[place].item()
        return place if self.included is None else int(np.flatnonzero(self.included)[place])

    def names(self) -> tuple[Any, Any]:
        """What to call each record of both sides: the person, or the row number."""
        if self.groups is not None:
            first, second = self._persons()
            return first.names, second.names
        if self.included is not None:
            return np.flatnonzero(self.included), np.flatnonzero(~self.included)
        return np.arange(len(self._side(0))), np.arange(len(self._side(1)))

    def shown_labels(self) -> tuple[str, ...] | None:
        """The labels of both sides in words, of a person's first record."""
        if self.labels is None:
            return None
        rows = [np.arange(len(side)) for side in self.labels]
        if self.groups is not None:
            rows = [_first_rows(side) for side in self._persons()]
        return tuple(self._shown(label) for side, part in zip(self.labels, rows, strict=True) for label in side[part])

    def label_of_member(self, place: int) -> str:
        """The label of a member, of a person's first record; "" where there are none."""
        if self.inside[1] is None:
            return ""
        row = place if self.groups is None else int(_first_rows(self._persons()[0])[place])
        return self._shown(self.inside[1][row])

    def _shown(self, label: Any) -> str:
        return f"{label:.6g}" if self.task == "regression" else _listed(label) if np.ndim(label) else str(label)


def _listed(labels: Any) -> str:
    """Which of several labels are set."""
    return ", ".join(str(i) for i in np.flatnonzero(labels)) or "none"


def _first_rows(people: Persons) -> IntArray:
    """The first record of each person."""
    return np.unique(people.place, return_index=True)[1]


def read_pool(members: Any, nonmembers: Any, data: Any, included: Any, *, mask_seed: Any, groups: Any) -> Pool:
    """The records as they were given, in one of the two ways."""
    split, one_pool = members is not None or nonmembers is not None, data is not None or included is not None
    if split and one_pool:
        given = "included" if included is not None else "data"
        raise InputError(f"{given} and members were both given; {_BOTH}.")
    if one_pool:
        if data is None or included is None:
            raise InputError(f"{'data' if data is None else 'included'} is missing; {_BOTH}.")
        return _parted_by_coins(data, included, mask_seed, groups)
    if members is None or nonmembers is None:
        raise InputError(f"{'members' if members is None else 'nonmembers'} is missing; {_BOTH}.")
    if mask_seed is not None:
        raise InputError("mask_seed checks a mask of coins, and none was given; pass data and included.")
    sides = dataset(members, any_target=True), dataset(nonmembers, any_target=True)
    pool = Pool(*_alike(*sides), None, None, groups)
    if groups is not None:
        two_sides(groups, *(len(pool._side(side)) for side in (0, 1)))
    return pool


def _alike(inside: tuple[Any, Any], outside: tuple[Any, Any]) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    """Both sides with targets of one type: where one side holds fractions, whole numbers are numbers too."""
    targets = inside[1], outside[1]
    if targets[0] is None or targets[1] is None:
        return inside, outside
    kinds = {target.dtype.kind for target in targets}
    if len({target.shape[1:] for target in targets}) > 1 or ("U" in kinds and len(kinds) > 1):
        raise InputError(
            f"labels of members are such as {check.show(targets[0][0].tolist())}, those of nonmembers such as "
            f"{check.show(targets[1][0].tolist())}; pass labels of one kind."
        )
    if "f" in kinds:
        return (inside[0], targets[0].astype(np.float64)), (outside[0], targets[1].astype(np.float64))
    return inside, outside


def _parted_by_coins(data: Any, included: Any, mask_seed: Any, groups: Any) -> Pool:
    X, y = dataset(data, any_target=True)
    mask = check.bits("included", included)
    size = X.shape[0] if hasattr(X, "shape") else len(X)
    if mask.size != size:
        raise InputError(f"included has {mask.size} coins for {size} records; pass one for each record of data.")
    if mask.all() or not mask.any():
        raise InputError(
            f"included is all {'in' if mask[0] else 'out'}; a bound needs records of both kinds, so flip fair coins."
        )
    OneRun(np.zeros(size), mask, mask_seed, groups)  # the coins and persons are checked before the model is asked
    rows = np.flatnonzero(mask), np.flatnonzero(~mask)
    sides = [(take(X, part), None if y is None else y[part]) for part in rows]
    ids = None
    if groups is not None:
        names = persons("groups", groups, size)
        every = names.names[names.place]
        ids = every[rows[0]], every[rows[1]]
    return Pool(sides[0], sides[1], mask, mask_seed, ids)


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
    present = [group for name, pair in groups.items() for group in _groups_of(scores, name, pair, by_coins)]
    each = 1 - (1 - confidence) / max(len(present), 1)
    rows = [_row(scores, group, delta, each, by_coins) for group in present]
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
    candidates = [
        _Group(str(name), str(value), members == value, nonmembers == value)
        for value in values[np.argsort(-counts)][:MOST_GROUPS]
    ]
    if by_coins:
        return [
            g
            for g in candidates
            if g.inside.sum() + g.outside.sum() >= 2 * LEAST and g.inside.any() and g.outside.any()
        ]
    return [group for group in candidates if min(group.inside.sum(), group.outside.sum()) >= LEAST]


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
