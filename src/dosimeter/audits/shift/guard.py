"""What is checked before any number: would members and non-members differ if there were no model at all?"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import bdtr, chdtrc, gammaln

from dosimeter import _validate as check
from dosimeter._persons import two_sides
from dosimeter._validate import FloatArray, InputError, IntArray
from dosimeter.audits.parts import BlindHalf, MaskCheck, Pair, ShiftEvidence
from dosimeter.audits.result import Guard, at_most, copies_in_words, p_in_words, share_in_words
from dosimeter.audits.shift.blind import Blind, blind_baseline, views_of
from dosimeter.audits.shift.copies import Copies, NearCopies, exact_copies, near_copies
from dosimeter.audits.shift.records import Records, read_records, thumbnails
from dosimeter.estimators.lower_bound import proven_epsilon
from dosimeter.evidence import OneRun

__all__ = ["Guard", "check_mask", "check_shift", "class_balance_p"]

FEWEST = 20  # records of either kind: below it no shift that matters could be seen
MOST_PERMUTATIONS = 20_000
MOST_CELLS, FEWEST_SAMPLED = 8_000_000, 2_000  # of a sampled table: wide ones are sampled further
EXPECTED_COUNT = 5  # of a class on either side, for the chi-square law
NEAR_SHARE = 0.02  # near copies of table rows that one smooth feature alone would not show
MASK_LEVEL = 0.001


def check_shift(
    members: Any,
    nonmembers: Any,
    *,
    labels: Any = None,
    groups: Any = None,
    kind: str = "auto",
    confidence: float = 0.95,
    permutations: int = 200,
    max_records: int = 20_000,
    seed: int = 0,
) -> Guard:
    """Look for a shift between members and non-members, and for copies, without the model.

    A shift is announced when the exact p-value of the blind baseline, or that of the class balance, is at most
    1 − confidence shared evenly between the tests made: so exchangeable members and non-members raise a false alarm
    with probability at most 1 − confidence. Copies are warned of, but they are never a shift.

    Args:
        members: Records that were trained on: features (n, d), images (n, h, w[, c]), a list of texts, or (X, y).
        nonmembers: Records that were not, of the same kind.
        labels: A pair of label arrays, where the records are not (X, y).
        groups: A pair of ids of the persons behind the records. Then one record of each person is looked at, since
            records of one person come together.
        kind: "tabular", "image" or "text"; "auto" looks at the records.
        confidence: One minus the rate of false alarms.
        permutations: The fewest relabellings to draw; more are drawn if the level asks for them.
        max_records: The blind baseline and the near copies use a random sample of at most this size; exact
            copies are sought among all records.
        seed: Of the sample, the halves and the relabellings.

    Returns:
        The guard: whether there is a shift, and the evidence for it.

    Raises:
        InputError: If the records cannot be read, or both sides are the same records.

    >>> rng = np.random.default_rng(0)
    >>> check_shift(rng.normal(size=(100, 2)), rng.normal(size=(100, 2)) + 1).shift
    True
    """
    confidence, seed = check.confidence(confidence), check.seed(seed)
    permutations = check.whole("permutations", permutations, 1, "pass e.g. 200", MOST_PERMUTATIONS)
    max_records = check.whole("max_records", max_records, 4 * FEWEST, "pass e.g. 20000")
    records = read_records(members, nonmembers, labels, kind)
    copies = exact_copies(records)
    sampling, *seeds = np.random.SeedSequence(seed).spawn(4)
    if groups is not None:
        records = _one_each(records, groups, np.random.default_rng(sampling.spawn(1)[0]))
        copies = copies._replace(within_members=exact_copies(records).within_members)
    chosen = _sample(records, max_records, np.random.default_rng(sampling))
    a, b = (_take(side, rows) for side, rows in zip((records.members, records.nonmembers), chosen, strict=True))
    a, b, near = _near(records, a, b, chosen)
    balance = None if records.labels is None else class_balance_p(*records.labels)
    level = (1 - confidence) / (1 if balance is None else 2)
    evidence = replace(
        _copy_evidence(records, copies, near, len(a), len(b)),
        confidence=confidence,
        level=level,
        class_balance_p=balance,
    )
    if min(records.sizes) < FEWEST:
        side = "members" if records.sizes[0] < FEWEST else "nonmembers"
        reason = (
            f"{side} holds {min(records.sizes)} records, and telling a shift from chance takes at least {FEWEST} "
            "of either kind."
        )
        return Guard(shift=False, checked=False, evidence=replace(evidence, reasons=(reason,)))
    draws = min(max(permutations, math.ceil(20 / level)), MOST_PERMUTATIONS)
    coded = None
    if records.labels is not None:
        coded = np.concatenate([side[rows] for side, rows in zip(records.labels, chosen, strict=True)])
    blind = blind_baseline(
        views_of(records.kind, a, b, coded),
        np.arange(len(a) + len(b)) < len(a),
        confidence=confidence,
        permutations=draws,
        seeds=seeds,
    )
    evidence = _with_blind(evidence, blind, confidence, draws)
    evidence = replace(evidence, reasons=tuple(_reasons(evidence)))
    return Guard(shift=bool(evidence.reasons), checked=True, evidence=evidence)


def _near(records: Records, a: Any, b: Any, chosen: tuple[IntArray, IntArray]) -> tuple[Any, Any, NearCopies]:
    """The sampled records as the blind baseline sees them, and the near copies among them by their rows."""
    if records.kind == "image":
        channels = records.members.shape[-1]
        a, b = thumbnails(a), thumbnails(b)
        near = near_copies(records.kind, a[:, : -2 * channels], b[:, : -2 * channels])
    else:
        near = near_copies(records.kind, a, b)
    return a, b, near._replace(pairs=[[int(chosen[0][i]), int(chosen[1][j])] for i, j in near.pairs])


def _one_each(records: Records, groups: Any, rng: np.random.Generator) -> Records:
    """One record of each person, at random."""
    rows = []
    for ids in two_sides(groups, *records.sizes):
        order = rng.permutation(ids.place.size)
        rows.append(np.sort(order[np.unique(ids.place[order], return_index=True)[1]]))
    sides = [_take(side, part) for side, part in zip((records.members, records.nonmembers), rows, strict=True)]
    labels = records.labels
    if labels is not None:
        labels = labels[0][rows[0]], labels[1][rows[1]]
    return replace(records, members=sides[0], nonmembers=sides[1], labels=labels)


def _sample(records: Records, most: int, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
    m, n = records.sizes
    if records.kind == "tabular":
        most = min(most, max(FEWEST_SAMPLED, MOST_CELLS // records.members.shape[1]))
    sizes = min(m, max(most // 2, most - n)), min(n, max(most // 2, most - m))
    rows = [np.sort(rng.choice(total, size, replace=False)) for total, size in zip((m, n), sizes, strict=True)]
    return rows[0], rows[1]


def _take(side: Any, rows: IntArray) -> Any:
    if isinstance(side, list):
        return [side[i] for i in rows]
    return side if len(rows) == len(side) else side[rows]


def _pairs(pairs: list[list[int]]) -> tuple[Pair, ...]:
    return tuple((member, nonmember) for member, nonmember in pairs)


def _copy_evidence(records: Records, copies: Copies, near: NearCopies, members: int, nonmembers: int) -> ShiftEvidence:
    """What was counted in the records; `members` and `nonmembers` are the sizes of the sample."""
    return ShiftEvidence(
        records_used=members + nonmembers,
        kind=records.kind,
        members=records.sizes[0],
        nonmembers=records.sizes[1],
        missing_values=records.missing,
        duplicates=copies.across,
        duplicates_share=copies.across / records.sizes[1],
        duplicate_pairs=_pairs(copies.pairs),
        duplicates_within_members=copies.within_members,
        near_duplicates=near.across,
        near_duplicate_pairs=_pairs(near.pairs),
        near_duplicates_within_members=near.within_members,
        warnings=tuple(_copy_warnings(records, copies, near, members, nonmembers)),
    )


def _with_blind(evidence: ShiftEvidence, blind: Blind, confidence: float, draws: int) -> ShiftEvidence:
    """The evidence with what the blind baseline found, and a warning where its p-value cannot be small enough."""
    warnings, level = evidence.warnings, evidence.level
    if level is not None and 2 / (1 + draws) > level:
        warnings = (
            *warnings,
            f"{draws} relabellings resolve p-values down to {2 / (1 + draws):.2g} only, above the level {level:.2g}; "
            "a weak shift can go unseen at this confidence",
        )
    # The better of the two halves' bounds, each at half of the level: a bound on what no model can have leaked.
    bounds = [proven_epsilon(half.scores, confidence=(1 + confidence) / 2) for half in blind.halves]
    return replace(
        evidence,
        auc=blind.auc,
        auc_low=blind.low,
        auc_high=blind.high,
        p_value=blind.p_value,
        candidates=tuple(BlindHalf(half.chosen, half.auc, half.p_value) for half in blind.halves),
        epsilon_blind=max(bounds),
        permutations=draws,
        warnings=warnings,
    )


def _reasons(found: ShiftEvidence) -> list[str]:
    reasons = []
    if found.auc is not None and found.p_value is not None and at_most(found.p_value, found.level):
        reasons.append(
            f"A classifier that never saw the model tells members from non-members with AUC {found.auc:.2f} "
            f"({p_in_words(found.p_value)})."
        )
    if found.class_balance_p is not None and at_most(found.class_balance_p, found.level):
        reasons.append(
            "The classes are distributed differently among members and non-members "
            f"({p_in_words(found.class_balance_p)})."
        )
    return reasons


def _copy_warnings(records: Records, copies: Copies, near: NearCopies, members: int, nonmembers: int) -> list[str]:
    warnings = []
    if copies.across:
        warnings.append(
            f"{copies_in_words(copies.across, records.sizes[1])}: to the model a copy is a member, so it hides leakage"
        )
    if copies.within_members:
        warnings.append(
            f"{copies.within_members} of {records.sizes[0]} members repeat an earlier one: a record that was trained "
            "on k times is protected k times less"
        )
    expected = near.within_members / members
    noise = 3 * math.sqrt(max(expected, 1 / members) / nonmembers)
    share = near.across / nonmembers
    if near.across and (records.kind != "tabular" or share > NEAR_SHARE or share > expected + noise):
        sampled = "" if members + nonmembers == sum(records.sizes) else " in the sample"
        warnings.append(
            f"{share_in_words(near.across, nonmembers)}{sampled} {'is' if near.across == 1 else 'are each'} nearly a "
            "copy of a member, so what the model learnt about the member may also show on the copy "
            f"({near.within_members} of the {members} members{sampled} "
            f"{'is' if near.within_members == 1 else 'are'} as close to another member)"
        )
    if records.missing:
        values = "value is" if records.missing == 1 else "values are"
        warnings.append(f"{records.missing} feature {values} missing (NaN); the check treats that as information")
    return warnings


def class_balance_p(members: IntArray, nonmembers: IntArray) -> float:
    """Pearson's chi-square test that both sides share one distribution of classes (codes from 0).

    Classes too rare for the chi-square law on either side are put together, the rarest first.
    """
    classes = int(max(members.max(), nonmembers.max())) + 1
    table = np.stack([np.bincount(side, minlength=classes) for side in (members, nonmembers)]).astype(np.float64)
    total = table.sum(axis=0)
    share = table.sum(axis=1, keepdims=True) / table.sum()
    order = np.argsort(total, kind="stable")
    table, total = table[:, order], total[order]
    rare = (float(share.min()) * total < EXPECTED_COUNT).sum()
    if rare:
        upto = np.searchsorted(np.cumsum(total) * float(share.min()), EXPECTED_COUNT) + 1
        cut = min(max(int(rare), int(upto)), classes)
        table = np.concatenate([table[:, :cut].sum(axis=1, keepdims=True), table[:, cut:]], axis=1)
        total = table.sum(axis=0)
    if total.size < 2:
        return 1.0
    expected = share * total
    return float(chdtrc(total.size - 1, ((table - expected) ** 2 / expected).sum()))


def check_mask(one_run: OneRun) -> MaskCheck:
    """Compare the inclusion mask of a one-run audit with independent fair coins: balance and runs, both exact.

    Args:
        one_run: The scores and the mask.

    Returns:
        Both p-values, the counts behind them, and warnings where coins hardly ever fall so.

    Raises:
        InputError: If it is not a OneRun.

    >>> from dosimeter.evidence import fair_coins
    >>> check_mask(OneRun(np.zeros(200), fair_coins(200, seed=3), 3)).warnings
    ()
    """
    if not isinstance(one_run, OneRun):
        raise InputError(
            f"one_run must be a OneRun, got {type(one_run).__name__}; build OneRun(scores, included) first."
        )
    mask = one_run.included
    inside, total = int(mask.sum()), mask.size
    runs = 1 + int(np.count_nonzero(mask[1:] != mask[:-1]))
    balance_p = min(1.0, 2 * float(bdtr(min(inside, total - inside), total, 0.5)))
    runs_p = _runs_p(runs, inside, total - inside)
    warnings = list(one_run.mask_warnings)
    if one_run.mask_seed is None and runs_p < MASK_LEVEL:
        warnings.append(
            f"the mask changes {runs - 1} times over {total} records, which independent coins hardly ever do "
            f"({p_in_words(runs_p)}): harmless if the records were sorted after the draw, but a mask that was not "
            "drawn by coins breaks the bound"
        )
    return MaskCheck(
        records=total,
        included=inside,
        share=inside / total,
        balance_p=balance_p,
        runs=runs,
        runs_p=runs_p,
        seed_checked=one_run.mask_seed is not None,
        warnings=tuple(warnings),
    )


def _runs_p(runs: int, inside: int, outside: int) -> float:
    """Two-sided p-value of the number of runs given the counts (Wald and Wolfowitz 1940), from its exact law."""
    number = np.arange(2, 2 * min(inside, outside) + 2)
    k = number // 2
    # An even number of runs is k of each kind, starting with either; an odd one is k + 1 of one kind, k of the other.
    even = math.log(2) + _log_choose(inside - 1, k - 1) + _log_choose(outside - 1, k - 1)
    odd = np.logaddexp(
        _log_choose(inside - 1, k) + _log_choose(outside - 1, k - 1),
        _log_choose(inside - 1, k - 1) + _log_choose(outside - 1, k),
    )
    law = np.exp(np.where(number % 2 == 0, even, odd) - _log_choose(inside + outside, np.array(inside)))
    return min(1.0, 2 * min(float(law[number <= runs].sum()), float(law[number >= runs].sum())))


def _log_choose(n: int, k: Any) -> FloatArray:
    with np.errstate(invalid="ignore"):
        value = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
    return np.asarray(np.where(k > n, -np.inf, value))
