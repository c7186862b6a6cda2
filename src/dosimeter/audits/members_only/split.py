"""The records of a members-only audit: which member serves for what, and the generated records beside them.

The members are divided at random (Kazmi 2024, Alg. 1): some for the generator (D_G in the paper) and for reference
models, some to train the classifiers, and some to audit. Generated records are drawn once and divided into disjoint
sets for the helper, the classifiers and the audit. A fair coin then decides for each pair of the audit which of the two
records is shown.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dosimeter import _validate as check
from dosimeter._validate import FloatArray, InputError, IntArray
from dosimeter.attacks.stacked import Content
from dosimeter.audits.members_only.generated import (
    CopyCounts,
    GeneratedRecords,
    NonmemberSource,
    generated_records,
    read_both,
    take_rows,
    without_copies,
)
from dosimeter.audits.members_only.result import RecordCounts
from dosimeter.audits.shift.copies import record_hashes
from dosimeter.audits.shift.records import Records
from dosimeter.evidence import OneRun, fair_coins
from dosimeter.models import dataset

FEWEST = 50  # records of each set: below it neither a classifier nor a bound says anything


@dataclass(frozen=True, eq=False)
class RecordSet:
    """Records as the model takes them, and as the classifiers of content do."""

    X: Any
    y: Any
    content: Content

    def __len__(self) -> int:
        return len(self.content)

    def rows(self, rows: IntArray) -> RecordSet:
        """The records with these row numbers."""
        return RecordSet(take_rows(self.X, rows), take_rows(self.y, rows), self.content.take(rows))


@dataclass(frozen=True, eq=False)
class BothSides:
    """Members, and the generated or real non-members beside them."""

    members: RecordSet
    nonmembers: RecordSet


@dataclass(frozen=True, eq=False)
class AuditRecords:
    """All records of one audit: for the generator, for the helper, to train the classifiers and to audit."""

    kind: str
    for_generator: RecordSet
    for_helper: RecordSet
    train: BothSides
    audit: BothSides
    counts: RecordCounts
    warnings: tuple[str, ...]

    @property
    def pairs(self) -> int:
        """How many pairs of a member and a non-member are audited."""
        return len(self.audit.members)

    @property
    def sets(self) -> tuple[RecordSet, ...]:
        """Every set of records."""
        return (
            self.for_generator,
            self.for_helper,
            self.train.members,
            self.audit.members,
            self.train.nonmembers,
            self.audit.nonmembers,
        )


def coin_evidence(members: FloatArray, nonmembers: FloatArray, *, seed: int) -> OneRun:
    """The evidence when fair coins decide which record of each pair is shown; the seed draws the coins again."""
    coins = fair_coins(members.size, seed)
    return OneRun(np.where(coins, members, nonmembers), coins, mask_seed=seed)


def split_records(
    members: Any,
    *,
    generator: Any = "auto",
    generated: Any = None,
    splits: tuple[float, float, float],
    audit_size: int | None,
    keep: Callable[..., Any] | None = None,
    seed: int = 0,
) -> AuditRecords:
    """Divide the members, generate non-members and check both."""
    X, y = _labelled_members(members)
    count = len(X) if isinstance(X, list) else int(X.shape[0])
    sizes = _sizes(count, splits, audit_size)
    dividing, fitting, sampling = (int(s.generate_state(1)[0]) for s in np.random.SeedSequence(seed).spawn(3))
    order = np.random.default_rng(dividing).permutation(count)
    rows = [order[end - size : end] for size, end in zip(sizes, np.cumsum(sizes), strict=True)]
    made = generated_records(
        NonmemberSource(generator, generated, keep),
        (take_rows(X, rows[0]), take_rows(y, rows[0])),
        sum(sizes),
        fitting=fitting,
        sampling=sampling,
    )
    records = read_both((X, y), made)
    usable, copies = without_copies(records, sum(sizes))
    made_rows = np.split(usable, np.cumsum(sizes)[:-1])  # for the helper, the classifiers and the audit
    labels = (None, None) if records.labels is None else records.labels
    inside = RecordSet(X, y, Content(records.kind, records.members, labels[0]))
    outside = RecordSet(made.X, made.y, Content(records.kind, records.nonmembers, labels[1]))
    for_generator, train, audit = (inside.rows(chosen) for chosen in rows)
    for_helper, made_train, made_audit = (outside.rows(chosen) for chosen in made_rows)
    repeated = _repeated_members(records, rows)
    return AuditRecords(
        kind=records.kind,
        for_generator=for_generator,
        for_helper=for_helper,
        train=BothSides(train, made_train),
        audit=BothSides(audit, made_audit),
        counts=_counts(made, copies, count, sizes, repeated),
        warnings=(*made.warnings, *copies.warnings(records.sizes[1]), *_repeats_warning(repeated)),
    )


def _counts(
    made: GeneratedRecords, copies: CopyCounts, members: int, sizes: tuple[int, int, int], repeated: int
) -> RecordCounts:
    return RecordCounts(
        generator=made.generator,
        reason=made.reason,
        filtered=made.filtered,
        sampled=made.sampled,
        copies_of_members=copies.of_members,
        copies_share=copies.share,
        copies_left_out=copies.left_out,
        repeated_share=copies.repeated_share,
        members=members,
        generator_members=sizes[0],
        train_members=sizes[1],
        audit_pairs=sizes[2],
        equal_across_parts=repeated,
    )


def _repeats_warning(repeated: int) -> tuple[str, ...]:
    if not repeated:
        return ()
    return (
        f"{repeated} audit members equal a member that is used elsewhere in the audit: what the classifiers know of "
        "the one they know of the other",
    )


def _labelled_members(members: Any) -> tuple[Any, Any]:
    X, y = dataset(members)
    if y is None and not (isinstance(X, list) and isinstance(X[0], str)):
        raise InputError("members has no labels, and only texts can do without; pass (X, y).")
    return X, y


def _sizes(count: int, splits: Any, audit_size: int | None) -> tuple[int, int, int]:
    """How many members serve for what; refuses too few members with the number that is needed."""
    if not isinstance(splits, (tuple, list)) or len(splits) != 3:
        raise InputError(f"splits must be three shares, got {check.show(splits)}; pass e.g. (0.4, 0.3, 0.3).")
    shares = [
        check.within(f"splits[{i}]", share, 0.0, 1.0, "pass a share of the members, e.g. 0.3", include="()")
        for i, share in enumerate(splits)
    ]
    if sum(shares) > 1 + 1e-9:
        raise InputError(f"splits add up to {sum(shares):g}; pass three shares that sum to at most 1.")
    least = math.ceil(FEWEST / min(shares) - 1e-9)
    if count < least:
        raise InputError(
            f"members holds {count} records, and splits {tuple(shares)} with at least {FEWEST} for each share need "
            f"{least}; pass at least {least}."
        )
    held, train, audit = (math.floor(share * count + 1e-9) for share in shares)
    if audit_size is not None:
        asked = check.whole("audit_size", audit_size, FEWEST, f"pass at most the {audit} members to audit", audit)
        train, audit = min(train + (audit - asked), count), asked
    return held, train, audit


def _repeated_members(records: Records, rows: list[IntArray]) -> int:
    """How many members to audit equal a member that serves for something else."""
    hashes = record_hashes(records.members)
    return int(np.isin(hashes[rows[2]], np.concatenate([hashes[rows[0]], hashes[rows[1]]])).sum())
