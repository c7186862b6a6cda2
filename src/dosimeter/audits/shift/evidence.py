"""What the checks before any number have found, as typed values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from dosimeter.audits.part import Count, Part, Positive, Rate

__all__ = ["BlindHalf", "MaskCheck", "Pair", "ShiftEvidence"]

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
