"""Generated non-members: drawn from a generator or given, filtered, and checked for copies of members."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dosimeter import _validate as check
from dosimeter._validate import InputError, IntArray
from dosimeter.audits.shift.copies import record_hashes
from dosimeter.audits.shift.records import Records, read_records
from dosimeter.models import dataset

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

    @property
    def warnings(self) -> tuple[str, ...]:
        if not self.filtered or self.generator == GIVEN:
            return ()
        return (f"the filter dropped {self.filtered} of {self.sampled} generated records",)


@dataclass(frozen=True)
class CopyCounts:
    """How many generated records equal a member, and how many of those were left out."""

    of_members: int
    share: float
    left_out: int
    repeated_share: float

    def warnings(self, generated: int) -> tuple[str, ...]:
        """What to say about copies among so many generated records."""
        if not self.of_members:
            return ()
        what = (
            "they were left out: to the model they are members"
            if self.left_out
            else "members repeat each other as often, so they were kept, and a leak of those records does not show"
        )
        return (f"{self.of_members} of {generated} generated records are exact copies of members; {what}",)


GIVEN = "given records"


def take_rows(X: Any, rows: IntArray) -> Any:
    """Rows of an array, a table or a list, in this order."""
    if X is None:
        return None
    if hasattr(X, "iloc"):
        return X.iloc[rows]
    return [X[i] for i in rows] if isinstance(X, list) else X[rows]


def generated_records(
    source: NonmemberSource, members: tuple[Any, Any], needed: int, *, fitting: int, sampling: int
) -> GeneratedRecords:
    """Draw generated records, or take the given ones.

    There are at least `needed` of them after the filter, and a few more because copies of members are left out later.
    `members` are those that the generator learns from; `fitting` and `sampling` are seeds.
    """
    most = needed + math.ceil(SPARE * needed)
    if source.generated is not None:
        return _given(source, needed, most)
    sampler, name, reason = _sampler(source.generator, members, fitting)
    ask, have, dropped = most, 0, 0
    for turn in range(1 if source.keep is None else ROUNDS):
        X, y = _labelled(sampler(ask, sampling + turn), members[1])
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
    return GeneratedRecords(take_rows(X, first), take_rows(y, first), name, reason, dropped, have + dropped)


def _given(source: NonmemberSource, needed: int, most: int) -> GeneratedRecords:
    X, y = dataset(source.generated)
    X, y, dropped = _kept(X, y, source.keep)
    have = len(X)
    if have < needed:
        raise InputError(
            f"generated holds {have} records{' after the filter' if source.keep else ''}, and helper, classifiers and "
            f"audit need {needed}; pass at least {needed}."
        )
    first = np.arange(min(have, most))
    return GeneratedRecords(take_rows(X, first), take_rows(y, first), GIVEN, "", dropped, have + dropped)


def _sampler(generator: Any, members: tuple[Any, Any], seed: int) -> tuple[Callable[[int, int], Any], str, str]:
    """A function (count, seed) -> records, the generator's name and why it was chosen."""
    learnt = members[0] if members[1] is None else members
    reason = ""
    if isinstance(generator, str):
        check.choice("generator", generator, ("auto",))
        from dosimeter import generators

        choice = generators.choose(learnt)
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
        f"generator must be 'auto', an object with fit or sample, or a function (count, seed) -> records, got "
        f"{check.show(generator)}; pass one of these."
    )


def _labelled(made: Any, y: Any) -> tuple[Any, Any]:
    if (isinstance(made, tuple) and len(made) == 2) != (y is not None):
        form = "(X, y)" if y is not None else "records without labels"
        raise InputError(f"generator must return {form}, as the members are; got {check.show(made)}.")
    return dataset(made if y is not None else (made, None))


def _kept(X: Any, y: Any, keep: Callable[..., Any] | None) -> tuple[Any, Any, int]:
    if keep is None:
        return X, y, 0
    mask = check.bits("the answer of filter", keep(X, y))
    if mask.size != len(X):
        raise InputError(f"filter answered for {mask.size} of {len(X)} records; return one True or False for each.")
    rows = np.flatnonzero(mask)
    return take_rows(X, rows), take_rows(y, rows), int(mask.size - rows.size)


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


def without_copies(records: Records, needed: int) -> tuple[IntArray, CopyCounts]:
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
    return usable[:needed], CopyCounts(across, share, across if dropped else 0, repeated)
