"""The game of a members-only audit: who goes where, which records are generated, and the coins (Kazmi 2024, Alg. 1).

The members are cut at random into three parts: D_G for the generator (and for models that stand in for the target),
one to train the classifiers and one to audit. Generated records are drawn once and cut into disjoint parts
for the helper, the classifiers and the audit. A fair coin then decides for each audit pair which of the two is shown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dosimeter import _validate as check
from dosimeter._validate import FloatArray, InputError, IntArray
from dosimeter.attacks.stacked import Content
from dosimeter.audits.shift.copies import record_hashes
from dosimeter.audits.shift.records import Records, read_records
from dosimeter.evidence import OneRun, fair_coins
from dosimeter.models import dataset

FEWEST = 50  # records in every part: below it neither a classifier nor a bound says anything
COPIES = 0.05  # share of generated records that may be copies of members beyond what members are of each other
REPEATS = 0.2  # share of generated records that may repeat another one, beyond what members do
SPARE = 0.1  # of generated records, for copies that are left out
ROUNDS = 5  # of sampling, when a filter drops records


@dataclass(frozen=True, eq=False)
class Part:
    """Records as the model takes them, and as the classifiers of content do."""

    X: Any
    y: Any
    content: Content

    def __len__(self) -> int:
        return len(self.content)


@dataclass(frozen=True, eq=False)
class Game:
    """The parts of one audit. `real` and `made` hold "train" and "audit"; `held` is D_G, `helper` generated."""

    kind: str
    held: Part
    helper: Part
    real: Mapping[str, Part]
    made: Mapping[str, Part]
    facts: Mapping[str, Any]
    warnings: tuple[str, ...]

    @property
    def pairs(self) -> int:
        return len(self.real["audit"])


def take(X: Any, rows: IntArray) -> Any:
    """Rows of an array, a table or a list, in this order."""
    if X is None:
        return None
    if hasattr(X, "iloc"):
        return X.iloc[rows]
    return [X[i] for i in rows] if isinstance(X, list) else X[rows]


def shown(real: FloatArray, made: FloatArray, *, seed: int) -> OneRun:
    """The evidence when fair coins decide which record of each pair is shown; the seed draws the coins again."""
    coins = fair_coins(real.size, seed)
    return OneRun(np.where(coins, real, made), coins, mask_seed=seed)


def deal(
    members: Any,
    *,
    generator: Any = "auto",
    generated: Any = None,
    splits: tuple[float, float, float],
    audit_size: int | None,
    keep: Callable[..., Any] | None = None,
    seed: int = 0,
) -> Game:
    """Cut the members, generate non-members and check both."""
    X, y = _members(members)
    count = len(X) if isinstance(X, list) else int(X.shape[0])
    sizes = _sizes(count, splits, audit_size)
    cut, fitting, sampling = (int(s.generate_state(1)[0]) for s in np.random.SeedSequence(seed).spawn(3))
    order = np.random.default_rng(cut).permutation(count)
    ends = np.cumsum(sizes)
    rows = [order[end - size : end] for size, end in zip(sizes, ends, strict=True)]
    needed = (sizes[0], sizes[1], sizes[2])  # for the helper, the classifiers and the audit
    learnt = take(X, rows[0]), take(y, rows[0])
    made_X, made_y, facts = _generated(generator, generated, learnt, sum(needed), keep, fitting, sampling)
    records = _records((X, y), (made_X, made_y))
    usable, copies = _without_copies(records, sum(needed))
    made_rows = np.split(usable, np.cumsum(needed)[:-1])
    labels = (None, None) if records.labels is None else records.labels

    def part(side: int, chosen: IntArray) -> Part:
        source = ((X, y), (made_X, made_y))[side]
        content = Content(records.kind, (records.members, records.nonmembers)[side], labels[side]).take(chosen)
        return Part(take(source[0], chosen), take(source[1], chosen), content)

    warnings = list(facts.pop("warnings"))
    if copies["copies_of_members"]:
        what = (
            "they were left out: to the model they are members"
            if copies["copies_left_out"]
            else "members repeat each other as often, so they were kept: what leaks of those does not show"
        )
        warnings.append(
            f"{copies['copies_of_members']} of {records.sizes[1]} generated records are exact copies of members; {what}"
        )
    across = _across(records, rows)
    if across:
        warnings.append(
            f"{across} audit members equal a member of another part: what the classifiers know of the one they know "
            "of the other"
        )
    return Game(
        kind=records.kind,
        held=part(0, rows[0]),
        helper=part(1, made_rows[0]),
        real={"train": part(0, rows[1]), "audit": part(0, rows[2])},
        made={"train": part(1, made_rows[1]), "audit": part(1, made_rows[2])},
        facts={
            **facts,
            **copies,
            "members": count,
            "generator_members": sizes[0],
            "train_members": sizes[1],
            "audit_pairs": sizes[2],
            "equal_across_parts": across,
        },
        warnings=tuple(warnings),
    )


def _members(members: Any) -> tuple[Any, Any]:
    X, y = dataset(members)
    if y is None and not (isinstance(X, list) and isinstance(X[0], str)):
        raise InputError("members has no labels, and only texts can do without; pass (X, y).")
    return X, y


def _sizes(count: int, splits: Any, audit_size: int | None) -> tuple[int, int, int]:
    """How many members each part gets; refuses too few members with the number that is needed."""
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
            f"members holds {count} records, and splits {tuple(shares)} with at least {FEWEST} in each part need "
            f"{least}; pass at least {least}."
        )
    held, train, audit = (math.floor(share * count + 1e-9) for share in shares)
    if audit_size is not None:
        asked = check.whole(
            "audit_size", audit_size, FEWEST, f"pass at most the {audit} members of the audit part", audit
        )
        train, audit = min(train + (audit - asked), count), asked
    return held, train, audit


def _generated(
    generator: Any,
    generated: Any,
    learnt: tuple[Any, Any],
    needed: int,
    keep: Callable[..., Any] | None,
    fitting: int,
    sampling: int,
) -> tuple[Any, Any, dict[str, Any]]:
    """Records X and y of generated non-members, and how they came to be.

    There are at least `needed` of them after the filter, and some more, for copies of members are left out later.
    """
    spare = needed + math.ceil(SPARE * needed)
    if keep is not None and not callable(keep):
        raise InputError(f"filter must be a function (X, y) -> mask of records to keep, got {check.show(keep)}.")
    if generated is not None:
        X, y = dataset(generated)
        X, y, dropped = _kept(X, y, keep)
        have = len(X)
        if have < needed:
            raise InputError(
                f"generated holds {have} records{' after the filter' if keep else ''}, and helper, classifiers and "
                f"audit need {needed}; pass at least {needed}."
            )
        first = np.arange(min(have, spare))
        facts = {"generator": "given records", "reason": "", "filtered": dropped, "sampled": have + dropped}
        return take(X, first), take(y, first), {**facts, "warnings": []}
    sampler, name, reason = _sampler(generator, learnt, fitting)
    ask, have, dropped = spare, 0, 0
    for turn in range(1 if keep is None else ROUNDS):
        X, y = _labelled(sampler(ask, sampling + turn), learnt[1])
        if len(X) < ask:
            raise InputError(f"generator was asked for {ask} records and gave {len(X)}; it must give all of them.")
        X, y, dropped = _kept(X, y, keep)
        have = len(X)
        if have >= needed:
            break
        ask = math.ceil(1.2 * ask * needed / max(have, ask / 20)) + 10
    if have < needed:
        raise InputError(
            f"filter kept {have} generated records and dropped {dropped}, and {needed} are needed; drop fewer or "
            "improve the generator."
        )
    first = np.arange(min(have, spare))
    drawn = have + dropped
    warnings = [f"the filter dropped {dropped} of {drawn} generated records"] if dropped else []
    facts = {"generator": name, "reason": reason, "filtered": dropped, "sampled": drawn, "warnings": warnings}
    return take(X, first), take(y, first), facts


def _sampler(generator: Any, learnt: tuple[Any, Any], seed: int) -> tuple[Callable[[int, int], Any], str, str]:
    """A function (count, seed) -> records, the generator's name and why it was chosen."""
    members = learnt[0] if learnt[1] is None else learnt
    reason = ""
    if isinstance(generator, str):
        check.choice("generator", generator, ("auto",))
        from dosimeter import generators

        choice = generators.choose(members)
        generator, reason = choice.generator, choice.reason
    name = getattr(generator, "name", None) or getattr(generator, "__name__", type(generator).__name__)
    if hasattr(generator, "fit"):
        generator = generator.fit(members, seed=seed)
    if hasattr(generator, "sample"):
        fitted = generator
        return lambda count, at: fitted.sample(count, seed=at), str(name), reason
    if callable(generator):
        return generator, str(name), reason
    raise InputError(
        f"generator must be 'auto', an object with fit or sample, or a function (count, seed) -> records, got "
        f"{check.show(generator)}; pass one of these."
    )


def _labelled(found: Any, y: Any) -> tuple[Any, Any]:
    if (isinstance(found, tuple) and len(found) == 2) != (y is not None):
        form = "(X, y)" if y is not None else "records without labels"
        raise InputError(f"generator must return {form}, as the members are; got {check.show(found)}.")
    return dataset(found if y is not None else (found, None))


def _kept(X: Any, y: Any, keep: Callable[..., Any] | None) -> tuple[Any, Any, int]:
    if keep is None:
        return X, y, 0
    mask = check.bits("the answer of filter", keep(X, y))
    if mask.size != len(X):
        raise InputError(f"filter answered for {mask.size} of {len(X)} records; return one True or False for each.")
    rows = np.flatnonzero(mask)
    return take(X, rows), take(y, rows), int(mask.size - rows.size)


def _records(real: tuple[Any, Any], made: tuple[Any, Any]) -> Records:
    if hasattr(real[0], "columns") and hasattr(made[0], "columns") and list(real[0].columns) != list(made[0].columns):
        raise InputError(
            f"generated has the columns {check.show(list(made[0].columns), 90)} and members "
            f"{check.show(list(real[0].columns), 90)}; generate the same columns in the same order."
        )
    try:
        sides = [side if side[1] is not None else side[0] for side in (real, made)]
        return read_records(sides[0], sides[1])
    except InputError as error:
        raise InputError(str(error).replace("nonmembers", "the generated records")) from None


def _without_copies(records: Records, needed: int) -> tuple[IntArray, dict[str, Any]]:
    """The generated records to use; refuses a generator that hands back its members or repeats itself.

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
            "they are no non-members; use a generator that does not hand back its training records."
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
            f"generated holds {usable.size} records that are no copies of members, and helper, classifiers and audit "
            f"need {needed}; pass at least {needed}."
        )
    facts = {
        "copies_of_members": across,
        "copies_share": share,
        "copies_left_out": across if dropped else 0,
        "repeated_share": repeated,
    }
    return usable[:needed], facts


def _across(records: Records, rows: list[IntArray]) -> int:
    hashes = record_hashes(records.members)
    return int(np.isin(hashes[rows[2]], np.concatenate([hashes[rows[0]], hashes[rows[1]]])).sum())
