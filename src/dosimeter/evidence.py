"""What an attack saw: scores, counts, or one run with randomly included records. Validated once, immutable.

A higher score always means "more likely a member"; losses enter through `Scores.from_losses`, which
turns the sign. A record is guessed to be a member when its score is at or above the threshold.
"""

from __future__ import annotations

import hashlib
import math
import os
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from dosimeter import _validate as check
from dosimeter._validate import BoolArray, FloatArray, InputError, IntArray
from dosimeter.reading import pick, read_columns

MOST_RECORDS = check.MOST_RECORDS


@dataclass(frozen=True, kw_only=True)
class Counts:
    """The confusion counts of one attack at one threshold."""

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


@dataclass(frozen=True, eq=False)
class Scores:
    """Attack scores of members and of non-members, two independent samples; higher means member."""

    members: FloatArray
    nonmembers: FloatArray
    from_loss: bool = False

    def __post_init__(self) -> None:
        for name in ("members", "nonmembers"):
            given = getattr(self, name)
            array = check.finite_array(name, given)
            object.__setattr__(self, name, check.frozen(array, given))

    @classmethod
    def from_losses(cls, members: Any, nonmembers: Any) -> Scores:
        """Scores from losses: a low loss means member, so the sign is turned."""
        member_losses = check.finite_array("member_losses", members)
        nonmember_losses = check.finite_array("nonmember_losses", nonmembers)
        return cls(-member_losses, -nonmember_losses, from_loss=True)

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Scores:
        """Arrays (member_losses, nonmember_losses) or (members, nonmembers), or columns (score | loss, member)."""
        columns = read_columns(path)
        names = pick(
            columns,
            path,
            ("members", "nonmembers"),
            ("member_losses", "nonmember_losses"),
            ("score", "member"),
            ("loss", "member"),
        )
        first, second = columns[names[0]], columns[names[1]]
        if names[1] != "member":
            return cls.from_losses(first, second) if "loss" in names[0] else cls(first, second)
        values, is_member = check.finite_array(names[0], first), check.bits("member", second)
        if values.size != is_member.size:
            raise InputError(f"{names[0]} has {values.size} rows but member has {is_member.size}; they must pair up.")
        build = cls.from_losses if names[0] == "loss" else cls
        if is_member.all() or not is_member.any():
            raise InputError(f"{path}: member is {int(is_member[0])} in every row; both kinds of records are needed.")
        return build(values[is_member], values[~is_member])

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
        rng = np.random.default_rng(np.random.SeedSequence(check.seed(seed)))
        halves = []
        for values in (self.members, self.nonmembers):
            order = rng.permutation(values.size)
            halves.append((values[order[: values.size // 2]], values[order[values.size // 2 :]]))
        (m1, m2), (n1, n2) = halves
        return Scores(m1, n1), Scores(m2, n2)


def fair_coins(records: int, seed: int) -> BoolArray:
    """The inclusion mask of a one-run audit: independent fair coins, the same for the same seed."""
    count = check.whole("records", records, 1, "pass the number of audit records", MOST_RECORDS)
    rng = np.random.default_rng(np.random.SeedSequence(check.seed(seed)))
    return rng.random(count) < 0.5


def mask_hash(included: Any) -> str:
    """SHA-256 of an inclusion mask, to be stored before training and checked afterwards."""
    mask = check.bits("included", included)
    return hashlib.sha256(f"{mask.size}:".encode() + np.packbits(mask).tobytes()).hexdigest()


@dataclass(frozen=True, eq=False)
class OneRun:
    """Scores of audit records, each put into the training set (or shown) by an independent fair coin.

    `mask_seed` is the seed given to `fair_coins`; when it is given the mask is checked against it.
    """

    scores: FloatArray
    included: BoolArray
    mask_seed: int | None = None

    def __post_init__(self) -> None:
        scores, included = check.finite_array("scores", self.scores), check.bits("included", self.included)
        if scores.size != included.size:
            raise InputError(f"scores has {scores.size} records but included has {included.size}; they must pair up.")
        if included.all() or not included.any():
            kind = "in" if included[0] else "out"
            raise InputError(f"included is all {kind}; a one-run audit needs fair coins, so records of both kinds.")
        object.__setattr__(self, "scores", check.frozen(scores, self.scores))
        object.__setattr__(self, "included", check.frozen(included, self.included))
        if self.mask_seed is not None and not np.array_equal(fair_coins(included.size, self.mask_seed), included):
            raise InputError(
                f"included is not the mask that fair_coins({included.size}, seed={self.mask_seed}) draws; "
                "pass the mask and the seed of the same run."
            )

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], *, mask_seed: int | None = None) -> OneRun:
        """Arrays or columns `scores` (or `score`) and `included`."""
        columns = read_columns(path)
        names = pick(columns, path, ("scores", "included"), ("score", "included"))
        return cls(columns[names[0]], columns[names[1]], mask_seed)

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
                f"exactly half of the {total} records are included: if that was fixed in advance instead of "
                "drawn by independent fair coins, the bound does not hold",
            )
        if abs(2 * inside - total) > 4.5 * total**0.5:
            return (f"{inside} of {total} records are included, too far from half for independent fair coins",)
        return ()

    def as_scores(self) -> Scores:
        """Included records as members and the rest as non-members."""
        return Scores(self.scores[self.included], self.scores[~self.included])
