"""What the results of audits are made of: frozen dataclasses that are attributes in code and objects in JSON.

Here is what several kinds of audit have; what only one has stands in its folder, `audits/<kind>/result.py`, and what
is made beside every headline in `assemble.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Annotated, Any, TypeAlias

from annotated_types import Interval, MinLen

from dosimeter.estimate import plain

__all__ = [
    "BlindHalf",
    "Count",
    "ExposedRecord",
    "FailedTraining",
    "MaskCheck",
    "Numbers",
    "Pair",
    "Part",
    "Positive",
    "Provenance",
    "Rate",
    "ShiftEvidence",
    "StarCurve",
    "StoreEntry",
    "Subgroup",
    "Text",
    "TrainingCounts",
    "known",
]

MOST = 10**12  # records, runs, guesses

Rate: TypeAlias = Annotated[float, Interval(ge=0.0, le=1.0)]
Positive: TypeAlias = Annotated[float, Interval(ge=0.0)]
Count: TypeAlias = Annotated[int, Interval(ge=0, le=MOST)]
Text: TypeAlias = Annotated[str, MinLen(1)]
Numbers: TypeAlias = tuple[float | None, ...]  # None where a number is infinite or missing, as in JSON


class Part(Mapping[str, Any]):
    """A typed part of an audit, the base of its dataclasses.

    The same class is built by the audit, written to JSON, checked when it is read back, and drawn on the page. It also
    reads as a mapping of its fields, so that `audit.metadata["seed"]` is `audit.metadata.seed`.
    """

    __slots__ = ()
    __pydantic_config__ = {"strict": True, "extra": "ignore"}  # noqa: RUF012  (what reads a file looks for it here)

    def __getitem__(self, name: str) -> Any:
        if name not in self._names():
            raise KeyError(name)
        return getattr(self, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def __len__(self) -> int:
        return len(self._names())

    @classmethod
    def _names(cls) -> tuple[str, ...]:
        return _names_of(cls)

    def to_dict(self) -> dict[str, Any]:
        """Give the fields as strict JSON values."""
        return {name: plain(getattr(self, name)) for name in self}


@cache
def _names_of(part: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(part))


def known(value: float | None) -> float:
    """Give a number that a part may hold as None because it is infinite."""
    return math.inf if value is None else value


@dataclass(frozen=True)
class StarCurve(Part):
    """The ε that each pair of measured rates forces along the thresholds; `best` is where it is largest."""

    fpr: tuple[Rate, ...]
    fnr: tuple[Rate, ...]
    epsilon: Numbers
    best: Count


@dataclass(frozen=True)
class Subgroup(Part):
    """The bound of one class or group of people.

    The bounds of all groups hold at once with `joint_confidence`; `flagged` says that the group is more exposed than
    the rest, after correction for their number.
    """

    group: str
    value: str
    members: Count
    nonmembers: Count
    epsilon: Positive | None
    p_value: Rate
    flagged: bool
    neighbours: str | None = None
    auc: Rate | None = None
    adjusted_p_value: Rate | None = None
    joint_confidence: Rate | None = None


@dataclass(frozen=True)
class ExposedRecord(Part):
    """A member that the attack is surest of: its row, or the id of a person."""

    record: Count | Text | float
    score: float
    threshold_fpr: Rate
    label: str


# --- what was trained --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TrainingCounts(Part):
    """How many trainings were asked for, done, failed, and spared by a test that had enough."""

    asked: Count = 0
    done: Count = 0
    failed: Count = 0
    spared: Count = 0


@dataclass(frozen=True)
class FailedTraining(Part):
    """A training that failed, and why."""

    stage: str
    index: int
    seed: int
    reason: str | None


@dataclass(frozen=True)
class StoreEntry(Part):
    """What was taken from the store: its key, and how many models it held."""

    key: str
    models: Count
    stage: str | None = None


@dataclass(frozen=True)
class Provenance(Part):
    """What was computed and what came from the store, under which key."""

    computed: Count
    cached: Count
    given: bool = False
    key: str | None = None
    versions: tuple[str, ...] = ()
    entries: tuple[StoreEntry, ...] = ()


# --- what was checked before any number --------------------------------------------------------------------

Pair: TypeAlias = tuple[Count, Count]  # a member's row and a non-member's


@dataclass(frozen=True)
class BlindHalf(Part):
    """The classifier that was chosen on one half of the records, and what it did on the other."""

    classifier: str
    auc: Rate
    p_value: Rate


@dataclass(frozen=True)
class ShiftEvidence(Part):
    """What a check for a shift found; None where it was not looked for.

    The blind baseline is a classifier that never saw the model: its AUC with an interval at `confidence`, its exact
    p-value, and the ε that it proves although no model is involved. A shift is announced where `p_value` or
    `class_balance_p` is at most `level`. Pairs are rows of a member and a non-member, the first few of them.
    """

    auc: Rate | None = None
    auc_low: Rate | None = None
    auc_high: Rate | None = None
    p_value: Rate | None = None
    candidates: tuple[BlindHalf, ...] | None = None
    epsilon_blind: Positive | None = None
    permutations: Count | None = None
    confidence: Rate | None = None
    level: Rate | None = None
    class_balance_p: Rate | None = None
    records_used: Count | None = None
    kind: str | None = None
    members: Count | None = None
    nonmembers: Count | None = None
    missing_values: Count | None = None
    duplicates: Count | None = None
    duplicates_share: Rate | None = None
    duplicate_pairs: tuple[Pair, ...] | None = None
    duplicates_within_members: Count | None = None
    near_duplicates: Count | None = None
    near_duplicate_pairs: tuple[Pair, ...] | None = None
    near_duplicates_within_members: Count | None = None
    reasons: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class MaskCheck(Part):
    """How a mask compares with fair coins: the balance of its two sides, and how often it changes."""

    records: Count
    included: Count
    share: Rate
    balance_p: Rate
    runs: Count
    runs_p: Rate
    seed_checked: bool
    warnings: tuple[str, ...] = ()
