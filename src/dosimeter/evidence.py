"""What an attack saw: scores, counts, or one run with randomly included records. Validated once, immutable.

A higher score always means "more likely a member"; losses enter through `Scores.from_losses`, which
turns the sign. A record is guessed to be a member when its score is at or above the threshold.

The unit is a person where `groups` names the person behind each record: then there is one coin and one score for
each person, and every count below is a count of persons.
"""

from __future__ import annotations

import hashlib
import math
import os
import secrets
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from dosimeter import _validate as check
from dosimeter._persons import by_person, coin_of, persons, two_sides
from dosimeter._validate import BoolArray, FloatArray, InputError, IntArray
from dosimeter.columns import ColumnNames, read_coins, read_scores

MOST_RECORDS = check.MOST_RECORDS


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Hold the confusion counts of one attack at one threshold.

    Args:
        tp: Members called members.
        fn: Members called non-members.
        fp: Non-members called members.
        tn: Non-members called non-members.

    Raises:
        InputError: If a count is not a whole number from 0, or one side is empty.

    >>> Counts(tp=65, fn=35, fp=25, tn=75).tp
    65
    """

    tp: int
    fn: int
    fp: int
    tn: int

    def __post_init__(self) -> None:
        for name in ("tp", "fn", "fp", "tn"):
            value = check.whole(name, getattr(self, name), 0, "pass a count of records", 2**53)
            object.__setattr__(self, name, value)
        if self.members == 0 or self.nonmembers == 0:
            side = "tp + fn (members)" if self.members == 0 else "fp + tn (non-members)"
            raise InputError(f"{side} is 0; an attack needs at least one record of each kind.")

    @property
    def members(self) -> int:
        return self.tp + self.fn

    @property
    def nonmembers(self) -> int:
        return self.fp + self.tn

    @property
    def fnr(self) -> float:
        return self.fn / self.members

    @property
    def fpr(self) -> float:
        return self.fp / self.nonmembers

    @property
    def tpr(self) -> float:
        return self.tp / self.members

    def to_dict(self) -> dict[str, int]:
        return {"tp": self.tp, "fn": self.fn, "fp": self.fp, "tn": self.tn}


class Curve(NamedTuple):
    """Counts at every distinct threshold, the highest first: guesses "member" at score ≥ threshold."""

    thresholds: FloatArray
    tp: IntArray
    fp: IntArray


AGGREGATES = ("mean", "max")


@dataclass(frozen=True, eq=False)
class Scores:
    """Hold the attack scores of members and of non-members; higher means member.

    By default the scores come from one trained model, so they depend on each other; members and non-members must then
    be a random split of one population. With `independent=True` every score comes from a training run of its own.
    With `groups` the scores of each person's records become one score.

    Args:
        members: Scores of records that were trained on.
        nonmembers: Scores of records that were not.
        from_loss: Whether the scores are losses with the sign turned; `from_losses` sets it.
        independent: Whether every score comes from an independent training run.
        groups: A pair (ids of members, ids of non-members): the person behind each record.
        aggregate: How the scores of a person's records become one, "mean" or "max".

    Raises:
        InputError: If a score is not finite, ids do not pair up with records, or a person is on both sides.

    >>> Scores([2.0, 4.0, 1.0], [0.0, 1.0], groups=(["ann", "ann", "bob"], ["eve", "joe"])).members
    array([3., 1.])
    """

    members: FloatArray
    nonmembers: FloatArray
    from_loss: bool = False
    independent: bool = False
    groups: tuple[Any, Any] | None = None
    aggregate: str = "mean"
    records: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        check.flag("independent", self.independent)
        aggregate = check.choice("aggregate", self.aggregate, AGGREGATES)
        given = {name: getattr(self, name) for name in ("members", "nonmembers")}
        arrays = {name: check.finite_array(name, values) for name, values in given.items()}
        object.__setattr__(self, "records", sum(array.size for array in arrays.values()))
        if self.groups is not None:
            persons = two_sides(self.groups, arrays["members"].size, arrays["nonmembers"].size)
            for name, ids in zip(arrays, persons, strict=True):
                arrays[name] = by_person(arrays[name], ids.place, ids.names.size, aggregate)
            object.__setattr__(self, "groups", tuple(check.frozen(ids.names, ()) for ids in persons))
        for name, array in arrays.items():
            object.__setattr__(self, name, check.frozen(array, given[name]))

    @classmethod
    def from_losses(
        cls,
        members: Any,
        nonmembers: Any,
        *,
        independent: bool = False,
        groups: tuple[Any, Any] | None = None,
        aggregate: str = "mean",
    ) -> Scores:
        """Make scores from losses: a low loss means member, so the sign is turned."""
        member_losses = check.finite_array("member_losses", members)
        nonmember_losses = check.finite_array("nonmember_losses", nonmembers)
        return cls(-member_losses, -nonmember_losses, True, independent, groups, aggregate)

    @classmethod
    def from_file(
        cls,
        path: str | os.PathLike[str],
        *,
        score: str | None = None,
        loss: str | None = None,
        member: str | None = None,
        group: str | None = None,
        independent: bool = False,
        aggregate: str = "mean",
    ) -> Scores:
        """Read arrays (member_losses, nonmember_losses) or (members, nonmembers), or columns (score | loss, member).

        Capitals do not matter, and `member` may also be called is_member, is_train or the like and hold yes and no,
        true and false, or train and test. Persons are read from a column `group`, or from arrays (member_groups,
        nonmember_groups).

        Args:
            path: An .npz, .csv, .csv.gz or .parquet file.
            score: The column of scores, if it has another name; one with "loss" in its name is read as losses.
            loss: The column of losses, if it has another name; a low value means member.
            member: The column that says who is a member, if it has another name.
            group: The column of persons, if it has another name.
            independent: As for `Scores`.
            aggregate: As for `Scores`.

        Raises:
            InputError: If the file cannot be read, or a column is missing.
        """
        table = read_scores(path, ColumnNames(score, loss, member, group))
        build = cls.from_losses if table.losses else cls
        return build(table.members, table.nonmembers, groups=table.groups, independent=independent, aggregate=aggregate)

    @property
    def unit(self) -> str:
        """What one score belongs to: "record" or "person"."""
        return "record" if self.groups is None else "person"

    @property
    def total(self) -> int:
        return self.members.size + self.nonmembers.size

    @cached_property
    def sorted_members(self) -> FloatArray:
        """Member scores, lowest first."""
        return check.frozen(np.sort(self.members), ())

    @cached_property
    def sorted_nonmembers(self) -> FloatArray:
        """Non-member scores, lowest first."""
        return check.frozen(np.sort(self.nonmembers), ())

    @cached_property
    def curve(self) -> Curve:
        """Counts at every distinct observed score; tied scores share one threshold."""
        ordered = np.sort(np.concatenate([self.sorted_members, self.sorted_nonmembers]), kind="stable")
        first = np.empty(ordered.size, bool)
        first[0] = True
        np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
        at_or_above = ordered.size - np.flatnonzero(first)[::-1]
        thresholds = ordered[first][::-1]
        fp = self.nonmembers.size - np.searchsorted(self.sorted_nonmembers, thresholds, "left")
        return Curve(*(check.frozen(column, ()) for column in (thresholds, at_or_above - fp, fp)))

    def counts_at(self, threshold: float) -> Counts:
        """The counts when score ≥ threshold is guessed "member"."""
        if not (isinstance(threshold, float) and threshold == math.inf):
            check.real("threshold", threshold, "pass a score")
        tp = int(np.count_nonzero(self.members >= threshold))
        fp = int(np.count_nonzero(self.nonmembers >= threshold))
        return Counts(tp=tp, fn=self.members.size - tp, fp=fp, tn=self.nonmembers.size - fp)

    @cached_property
    def auc(self) -> float:
        """P[member score > non-member score], ties counted half."""
        below = np.searchsorted(self.sorted_nonmembers, self.sorted_members, "left").sum(dtype=float)
        upto = np.searchsorted(self.sorted_nonmembers, self.sorted_members, "right").sum(dtype=float)
        return float((below + upto) / (2.0 * self.members.size * self.nonmembers.size))

    def split(self, seed: int) -> tuple[Scores, Scores]:
        """Two halves at random: one to choose a threshold on, the other to bound with."""
        if min(self.members.size, self.nonmembers.size) < 2:
            raise InputError("threshold='split' needs at least 2 members and 2 non-members; pass a fixed threshold.")
        ordered = self.sorted_members, self.sorted_nonmembers
        digest = hashlib.sha256(b"".join((values + 0.0).tobytes() for values in ordered)).digest()  # -0.0 is 0.0
        # A seed alone would be a constant: the data have a part in it, the order of the rows has none.
        rng = np.random.default_rng(np.random.SeedSequence([check.seed(seed), int.from_bytes(digest, "little")]))
        halves = []
        for values in ordered:
            order = rng.permutation(values.size)
            halves.append((values[order[: values.size // 2]], values[order[values.size // 2 :]]))
        (m1, m2), (n1, n2) = halves
        first, second = (Scores(a, b, self.from_loss, self.independent) for a, b in ((m1, n1), (m2, n2)))
        return first, second


def fresh_seed() -> int:
    """Draw a seed from the operating system, to be stored with what is drawn from it.

    Returns:
        A whole number of 63 bits.

    >>> fresh_seed() != fresh_seed()
    True
    """
    return secrets.randbits(52)


def fair_coins(records: int, seed: int | None = None, *, groups: Any = None) -> BoolArray:
    """Flip a fair coin for each record: the inclusion mask of a one-run audit.

    The coins come from a stream of their own (SHAKE-256), which no other generator with the same seed shares.

    Args:
        records: The number of records.
        seed: A seed that draws the same coins again; without one they are fresh. To keep it, draw `fresh_seed()` first.
        groups: The person behind each record; all records of a person share one coin.

    Returns:
        A mask with True for the records to train on.

    >>> fair_coins(8, seed=1).tolist()
    [True, True, True, False, True, False, True, True]
    """
    count = check.whole("records", records, 1, "pass the number of audit records", MOST_RECORDS)
    key = fresh_seed() if seed is None else check.seed(seed)
    if groups is not None:
        ids = persons("groups", groups, count)
        return fair_coins(ids.names.size, key)[ids.place]
    stream = hashlib.shake_256(f"dosimeter fair coins {key}".encode()).digest((count + 7) // 8)
    return np.unpackbits(np.frombuffer(stream, np.uint8), count=count).astype(bool)


def mask_hash(included: Any) -> str:
    """Hash an inclusion mask (SHA-256), to be stored before training and checked afterwards.

    Args:
        included: A mask with True for the records to train on.

    Returns:
        The hash, in hexadecimal digits.

    Raises:
        InputError: If the mask holds something else than True and False.

    >>> mask_hash([True, False, True])[:8]
    '86484f89'
    """
    mask = check.bits("included", included)
    return hashlib.sha256(f"{mask.size}:".encode() + np.packbits(mask).tobytes()).hexdigest()


@dataclass(frozen=True, eq=False)
class OneRun:
    """Hold scores of audit records, each put into the training set (or shown) by an independent fair coin.

    Args:
        scores: A score for each record; higher means "in".
        included: The coins, True for "in".
        mask_seed: The seed given to `fair_coins`; the mask is checked against it.
        groups: The person behind each record: one coin, and so one score, for each person.
        aggregate: How the scores of a person's records become one, "mean" or "max".
        from_loss: Whether the scores are losses with the sign turned.

    Raises:
        InputError: If lengths differ, one side is empty, a person is both in and out, or the seed draws other coins.

    >>> OneRun([0.3, 0.5, 0.1], [1, 1, 0], groups=["ann", "ann", "bob"]).included
    array([ True, False])
    """

    scores: FloatArray
    included: BoolArray
    mask_seed: int | None = None
    groups: Any = None
    aggregate: str = "mean"
    from_loss: bool = False
    records: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        aggregate = check.choice("aggregate", self.aggregate, AGGREGATES)
        scores, included = check.finite_array("scores", self.scores), check.bits("included", self.included)
        if scores.size != included.size:
            raise InputError(f"scores has {scores.size} records but included has {included.size}; they must pair up.")
        if included.all() or not included.any():
            kind = "in" if included[0] else "out"
            raise InputError(f"included is all {kind}; a one-run audit needs fair coins, so records of both kinds.")
        object.__setattr__(self, "records", scores.size)
        ids = None if self.groups is None else persons("groups", self.groups, scores.size)
        if self.mask_seed is not None:
            drawn = fair_coins(scores.size, self.mask_seed, groups=self.groups)
            if not np.array_equal(drawn, included):
                raise InputError(
                    f"included is not the mask that fair_coins({included.size}, seed={self.mask_seed}) draws; "
                    "pass the mask and the seed of the same run."
                )
        if ids is not None:
            scores, included = by_person(scores, ids.place, ids.names.size, aggregate), coin_of(ids, included)
            object.__setattr__(self, "groups", check.frozen(ids.names, ()))
        object.__setattr__(self, "scores", check.frozen(scores, self.scores))
        object.__setattr__(self, "included", check.frozen(included, self.included))

    @classmethod
    def from_file(
        cls, path: str | os.PathLike[str], *, mask_seed: int | None = None, aggregate: str = "mean"
    ) -> OneRun:
        """Read arrays or columns `scores` (or `score`) and `included`, and persons from `group`."""
        scores, included, groups = read_coins(path)
        return cls(scores, included, mask_seed, groups, aggregate)

    @property
    def unit(self) -> str:
        """What one coin belongs to: "record" or "person"."""
        return "record" if self.groups is None else "person"

    @property
    def total(self) -> int:
        return self.scores.size

    @cached_property
    def mask_warnings(self) -> tuple[str, ...]:
        """What makes the mask look unlike independent fair coins."""
        if self.mask_seed is not None:
            return ()
        inside, total = int(self.included.sum()), self.included.size
        if total >= 50 and 2 * inside == total:
            return (
                f"exactly half of the {total} {self.unit}s are included: if that was fixed in advance instead of "
                "drawn by independent fair coins, the bound does not hold",
            )
        if abs(2 * inside - total) > 4.5 * total**0.5:
            return (f"{inside} of {total} {self.unit}s are included, too far from half for independent fair coins",)
        return ()

    def as_scores(self, *, independent: bool = False) -> Scores:
        """Included records as members and the rest as non-members; `independent` as for `Scores`."""
        inside = self.included
        found = Scores(self.scores[inside], self.scores[~inside], self.from_loss, independent)
        if self.groups is not None:
            object.__setattr__(found, "groups", (self.groups[inside], self.groups[~inside]))
            object.__setattr__(found, "records", self.records)
        return found
