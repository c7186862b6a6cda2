"""The records of a members-only audit: which member serves for what, and the generated records beside them.

The members are divided at random (Kazmi 2024, Alg. 1): some for the generator (D_G in the paper) and for reference
models, some to train the classifiers, and some to audit; a fourth share, where there is one, is for reference models
alone. Generated records are drawn once and divided into disjoint sets for the helper, the classifiers and the audit. A
fair coin then decides for each pair of the audit which of the two records is shown.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dosimeter import _validate as check
from dosimeter._validate import FloatArray, InputError, IntArray
from dosimeter.attacks.labeler import label
from dosimeter.attacks.stacked import Content
from dosimeter.audits.members_only.close_images import close_to_members
from dosimeter.audits.members_only.result import NearestMembers, RecordCounts
from dosimeter.audits.shift.records import Records, read_records, record_hashes
from dosimeter.engine import Store
from dosimeter.evidence import OneRun, fair_coins
from dosimeter.models import dataset
from dosimeter.records import take

# --- generated records: drawn or given, filtered, checked for copies of members ----------------------------

COPIES = 0.05  # share of generated records that may be copies of members beyond what members are of each other
REPEATS = 0.2  # share of generated records that may repeat another one, beyond what members do
SPARE = 0.1  # of generated records, for copies that are left out
ROUNDS = 5  # of sampling, when a filter drops records


@dataclass(frozen=True, eq=False)
class NonmemberSource:
    """Where generated records come from: a generator or given records, and the caller's filter."""

    generator: Any = "auto"
    generated: Any = None
    keep: Callable[..., Any] | None = None
    store: Store | None = None

    def __post_init__(self) -> None:
        if self.keep is not None and not callable(self.keep):
            raise InputError(
                f"filter must be a function (X, y) -> mask of records to keep, got {check.show(self.keep)}."
            )


@dataclass(frozen=True, eq=False)
class GeneratedRecords:
    """Generated records after the filter, and how they came to be."""

    X: Any
    y: Any
    generator: str
    reason: str
    filtered: int
    sampled: int
    labelled: float | None = None  # how often the labeler is right, where there was one

    @property
    def warnings(self) -> tuple[str, ...]:
        sentences = []
        if self.filtered and self.generator != GIVEN:
            sentences.append(f"the filter dropped {self.filtered} of {self.sampled} generated records")
        if self.labelled is not None:
            sentences.append(
                "the generated records came without labels; a classifier trained on the generator's members, right for "
                f"{100 * self.labelled:.3g} % of others, labelled them"
            )
        return tuple(sentences)


@dataclass(frozen=True)
class GeneratedCopies:
    """How many generated records equal a member, and how many of those were left out."""

    of_members: int
    share: float
    left_out: int
    repeated_share: float

    def warnings(self, generated: int) -> tuple[str, ...]:
        """What to say about copies among this many generated records."""
        if not self.of_members:
            return ()
        what = (
            "they were left out: to the model they are members"
            if self.left_out
            else "members repeat each other as often, so they were kept, and a leak of those records does not show"
        )
        return (f"{self.of_members} of {generated} generated records are exact copies of members; {what}",)


GIVEN = "given records"


def generated_records(
    source: NonmemberSource, members: tuple[Any, Any], needed: int, *, fitting: int, sampling: int
) -> GeneratedRecords:
    """Draw generated records, or take the given ones.

    There are at least `needed` of them after the filter, and a few more because copies of members are left out later.
    `members` are those that the generator learns from; `fitting` and `sampling` are seeds.
    """
    most = needed + math.ceil(SPARE * needed)
    if source.generated is not None:
        return _given(source, members, needed, most, fitting)
    sampler, name, reason = _sampler(source, members, fitting)
    ask, have, dropped, right = most, 0, 0, None
    for turn in range(1 if source.keep is None else ROUNDS):
        X, y, right = _labelled(sampler(ask, sampling + turn), members, fitting)
        if len(X) < ask:
            raise InputError(f"generator was asked for {ask} records and gave {len(X)}; it must give all of them.")
        X, y, dropped = _kept(X, y, source.keep)
        have = len(X)
        if have >= needed:
            break
        ask = math.ceil(1.2 * ask * needed / max(have, ask / 20)) + 10
    if have < needed:
        raise InputError(
            f"filter kept {have} generated records and dropped {dropped}, and {needed} are needed; drop fewer or "
            "improve the generator."
        )
    first = np.arange(min(have, most))
    return GeneratedRecords(take(X, first), take(y, first), name, reason, dropped, have + dropped, right)


def _given(source: NonmemberSource, members: tuple[Any, Any], needed: int, most: int, seed: int) -> GeneratedRecords:
    given, right = source.generated, None
    bare = isinstance(given, np.ndarray) or hasattr(given, "iloc")
    X, y = dataset((given, None) if bare else given)
    if y is None and members[1] is not None:
        X, y, right = _labelled(X, members, seed)
    X, y, dropped = _kept(X, y, source.keep)
    have = len(X)
    if have < needed:
        raise InputError(
            f"generated holds {have} records{' after the filter' if source.keep else ''}, and helper, classifiers and "
            f"audit need {needed}; pass at least {needed}."
        )
    first = np.arange(min(have, most))
    return GeneratedRecords(take(X, first), take(y, first), GIVEN, "", dropped, have + dropped, right)


def _sampler(
    source: NonmemberSource, members: tuple[Any, Any], seed: int
) -> tuple[Callable[[int, int], Any], str, str]:
    """A function (count, seed) -> records, the generator's name and why it was chosen."""
    learnt = members[0] if members[1] is None else members
    generator, reason = source.generator, ""
    if isinstance(generator, str):
        from dosimeter import generators

        choice = generators.choose(learnt, generator, store=source.store)
        generator, reason = choice.generator, choice.reason
    name = getattr(generator, "name", None) or getattr(generator, "__name__", type(generator).__name__)
    if hasattr(generator, "fit"):
        generator = generator.fit(learnt, seed=seed)
    if hasattr(generator, "sample"):
        fitted = generator
        return lambda count, at: fitted.sample(count, seed=at), str(name), reason
    if callable(generator):
        return generator, str(name), reason
    raise InputError(
        f"generator must be 'auto', 'flow', an object with fit or sample, or a function (count, seed) -> records, got "
        f"{check.show(generator)}; pass one of these."
    )


def _labelled(made: Any, members: tuple[Any, Any], seed: int) -> tuple[Any, Any, float | None]:
    """Generated records with labels; where they came without, a classifier of the members gives them."""
    pair = isinstance(made, tuple) and len(made) == 2
    if members[1] is None:
        if pair:
            raise InputError(
                f"generator must return records without labels, as the members are; got {check.show(made)}."
            )
        return (*dataset((made, None)), None)
    if pair:
        return (*dataset(made), None)
    X, _ = dataset((made, None))
    form = read_both((members[0], None), GeneratedRecords(X, None, "", "", 0, 0))
    names, codes = np.unique(np.asarray(members[1]), return_inverse=True)
    labelled = label(Content(form.kind, form.members, codes), Content(form.kind, form.nonmembers, None), seed=seed)
    return X, names[labelled.codes], labelled.accuracy


def _kept(X: Any, y: Any, keep: Callable[..., Any] | None) -> tuple[Any, Any, int]:
    if keep is None:
        return X, y, 0
    mask = check.bits("the answer of filter", keep(X, y))
    if mask.size != len(X):
        raise InputError(f"filter answered for {mask.size} of {len(X)} records; return one True or False for each.")
    rows = np.flatnonzero(mask)
    return take(X, rows), take(y, rows), int(mask.size - rows.size)


def read_both(members: tuple[Any, Any], made: GeneratedRecords) -> Records:
    """Read members and generated records into one form; refuse other columns or shapes."""
    X = members[0]
    if hasattr(X, "columns") and hasattr(made.X, "columns") and list(X.columns) != list(made.X.columns):
        raise InputError(
            f"generated has the columns {check.show(list(made.X.columns), 90)} and members "
            f"{check.show(list(X.columns), 90)}; generate the same columns in the same order."
        )
    try:
        sides = [side if side[1] is not None else side[0] for side in (members, (made.X, made.y))]
        return read_records(sides[0], sides[1])
    except InputError as error:
        raise InputError(str(error).replace("nonmembers", "the generated records")) from None


def without_copies(records: Records, needed: int) -> tuple[IntArray, GeneratedCopies]:
    """Choose the generated records to use; refuse a generator that hands back its members or repeats itself.

    Copies are left out if they are more frequent than members that repeat another one: up to there they are what the
    distribution does.
    """
    members, made = records.sizes
    known, hashes = record_hashes(records.members), record_hashes(records.nonmembers)
    own = 1.0 - np.unique(known).size / members
    copied = np.isin(hashes, known)
    across = int(copied.sum())
    share = across / made
    if share > COPIES + own:
        raise InputError(
            f"{100 * share:.3g} % of the generated records ({across} of {made}) are exact copies of members, so "
            "they are not non-members; use a generator that does not hand back its training records."
        )
    repeated = 1.0 - np.unique(hashes).size / made
    if repeated > REPEATS + own:
        raise InputError(
            f"{100 * repeated:.3g} % of the generated records repeat another one, so helper, training and audit would "
            "share records; use a generator that draws fresh records for each seed."
        )
    dropped = share > own
    usable = np.flatnonzero(~copied) if dropped else np.arange(made)
    if usable.size < needed:
        raise InputError(
            f"generated holds {usable.size} records that are not copies of members, and helper, classifiers and audit "
            f"need {needed}; pass at least {needed}."
        )
    return usable[:needed], GeneratedCopies(across, share, across if dropped else 0, repeated)


# --- which record serves for what ---------------------------------------------------------------------------


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
        return RecordSet(take(self.X, rows), take(self.y, rows), self.content.take(rows))


@dataclass(frozen=True, eq=False)
class BothSides:
    """Members, and the generated or real non-members beside them."""

    members: RecordSet
    nonmembers: RecordSet


@dataclass(frozen=True, eq=False)
class AuditRecords:
    """All records of one audit: for the generator, for the helper, to train the classifiers and to audit.

    `for_references` are members that reference models alone learn from, where a share of them was asked for.
    """

    kind: str
    for_generator: RecordSet
    for_helper: RecordSet
    train: BothSides
    audit: BothSides
    counts: RecordCounts
    warnings: tuple[str, ...]
    nearest: NearestMembers | None = None
    for_references: RecordSet | None = None

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
            *(() if self.for_references is None else (self.for_references,)),
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
    splits: tuple[float, ...],
    audit_size: int | None,
    keep: Callable[..., Any] | None = None,
    store: Store | None = None,
    seed: int = 0,
) -> AuditRecords:
    """Divide the members, generate non-members and check both."""
    X, y = _labelled_members(members)
    count = len(X) if isinstance(X, list) else int(X.shape[0])
    *sizes, kept = _sizes(count, splits, audit_size)
    dividing, fitting, sampling = (int(s.generate_state(1)[0]) for s in np.random.SeedSequence(seed).spawn(3))
    order = np.random.default_rng(dividing).permutation(count)
    rows = np.split(order, np.cumsum([*sizes, kept]))[:-1]
    made = generated_records(
        NonmemberSource(generator, generated, keep, store),
        (take(X, rows[0]), take(y, rows[0])),
        sum(sizes),
        fitting=fitting,
        sampling=sampling,
    )
    records = read_both((X, y), made)
    usable, copies = without_copies(records, sum(sizes))
    nearest = None
    if records.kind == "image":
        nearest = close_to_members(records.members, records.nonmembers[usable], given=generated is not None)
    made_rows = np.split(usable, np.cumsum(sizes)[:-1])  # for the helper, the classifiers and the audit
    labels = (None, None) if records.labels is None else records.labels
    inside = RecordSet(X, y, Content(records.kind, records.members, labels[0]))
    outside = RecordSet(made.X, made.y, Content(records.kind, records.nonmembers, labels[1]))
    for_generator, train, audit, for_references = (inside.rows(chosen) for chosen in rows)
    for_helper, made_train, made_audit = (outside.rows(chosen) for chosen in made_rows)
    repeated = _repeated_members(records, rows)
    return AuditRecords(
        kind=records.kind,
        for_generator=for_generator,
        for_helper=for_helper,
        train=BothSides(train, made_train),
        audit=BothSides(audit, made_audit),
        counts=_counts(made, copies, count, (*sizes, kept), repeated),
        warnings=(*made.warnings, *copies.warnings(records.sizes[1]), *_repeats_warning(repeated)),
        nearest=nearest,
        for_references=for_references if kept else None,
    )


def _counts(
    made: GeneratedRecords, copies: GeneratedCopies, members: int, sizes: tuple[int, ...], repeated: int
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
        reference_members=sizes[3],
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


def _sizes(count: int, splits: Any, audit_size: int | None) -> tuple[int, int, int, int]:
    """How many members serve for what; refuses too few members with the number that is needed."""
    if not isinstance(splits, (tuple, list)) or len(splits) not in (3, 4):
        raise InputError(
            f"splits must be three shares, or four with one for the reference models, got {check.show(splits)}; pass "
            "e.g. (0.4, 0.3, 0.3)."
        )
    shares = [
        check.within(f"splits[{i}]", share, 0.0, 1.0, "pass a share of the members, e.g. 0.3", include="()")
        for i, share in enumerate(splits)
    ]
    if sum(shares) > 1 + 1e-9:
        raise InputError(f"splits add up to {sum(shares):g}; pass shares that sum to at most 1.")
    least = math.ceil(FEWEST / min(shares) - 1e-9)
    if count < least:
        raise InputError(
            f"members holds {count} records, and splits {tuple(shares)} with at least {FEWEST} for each share need "
            f"{least}; pass at least {least}."
        )
    held, train, audit, *rest = (math.floor(share * count + 1e-9) for share in shares)
    if audit_size is not None:
        asked = check.whole("audit_size", audit_size, FEWEST, f"pass at most the {audit} members to audit", audit)
        train, audit = min(train + (audit - asked), count), asked
    return held, train, audit, sum(rest)


def _repeated_members(records: Records, rows: list[IntArray]) -> int:
    """How many members to audit equal a member that serves for something else."""
    hashes = record_hashes(records.members)
    elsewhere = np.concatenate([rows[0], rows[1], rows[3]])
    return int(np.isin(hashes[rows[2]], hashes[elsewhere]).sum())
