"""What is checked before any number: would members and non-members differ if there were no model at all?"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.special import bdtr, chdtrc, gammaln

from dosimeter import _validate as check
from dosimeter._validate import FloatArray, InputError, IntArray
from dosimeter.audits.shift.blind import Blind, blind_baseline, views_of
from dosimeter.audits.shift.copies import Copies, NearCopies, exact_copies, near_copies
from dosimeter.audits.shift.records import Records, read_records, thumbnails, word_hashes
from dosimeter.estimate import percent, plain
from dosimeter.estimators.lower_bound import lower_bound
from dosimeter.evidence import OneRun, two_sides

FEWEST = 20  # records of either kind: below it no shift that matters could be seen
MOST_PERMUTATIONS = 20_000
MOST_CELLS, FEWEST_SAMPLED = 8_000_000, 2_000  # of a sampled table: wide ones are sampled further
EXPECTED_COUNT = 5  # of a class on either side, for the chi-square law
NEAR_SHARE = 0.02  # near copies of table rows that one smooth feature alone would not show
MASK_LEVEL = 0.001
BLIND = ("auc", "auc_low", "auc_high", "p_value", "candidates", "epsilon_blind", "permutations")


@dataclass(frozen=True)
class Guard:
    """What was checked before any number: whether members and non-members differ without the model."""

    shift: bool
    checked: bool
    evidence: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        found = self.evidence
        if not self.checked:
            reasons = found.get("reasons") or [
                "only scores were given, so a difference between the members' and the non-members' "
                "distributions cannot be told from leakage."
            ]
            return "Not checked: " + " ".join(reasons)
        if found.get("auc") is None:
            return "Members and non-members differ even without the model." if self.shift else "No shift was found."
        interval = f"{percent(found['confidence'])} interval {found['auc_low']:.2f}–{found['auc_high']:.2f}"
        told = f"AUC {found['auc']:.2f} ({interval}, {p_in_words(found['p_value'])})"
        if not self.shift:
            verdict = (
                f"No shift was found: a classifier that never saw the model tells members from non-members with {told}."
            )
        elif found["p_value"] <= found["level"]:
            verdict = (
                "Members and non-members differ even without the model: a classifier that never saw it tells them "
                f"apart with {told}; every ε below is suspect."
            )
        else:
            verdict = (
                "Members and non-members differ even without the model: their classes are distributed differently "
                f"({p_in_words(found['class_balance_p'])}); every ε below is suspect."
            )
        copies = found["duplicates"]
        return verdict + (f" {_exact(copies, found['nonmembers'])}." if copies else "")

    def to_dict(self) -> dict[str, Any]:
        return {"shift": self.shift, "checked": self.checked, "verdict": str(self), "evidence": plain(self.evidence)}


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

    `members` and `nonmembers` are feature arrays (n, d), images (n, h, w[, c]), lists of texts, or (X, y) tuples;
    `labels` is a pair of label arrays, `groups` a pair of ids of the persons behind the records: then one record of
    each person is looked at, since records of one person come together. A shift is announced when the exact p-value of
    the blind baseline, or that of the class balance, is at most 1 − confidence shared evenly between the tests made: so
    exchangeable members and non-members raise a false alarm with probability at most 1 − confidence. Copies are
    warned of, never a shift. The blind baseline and the near copies use a random sample of at most `max_records`
    records, exact copies all. At least `permutations` relabellings are drawn, more if the level asks for them.
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
    words = word_hashes(a + b) if records.kind == "text" else None
    if records.kind == "image":
        channels = records.members.shape[-1]
        a, b = thumbnails(a), thumbnails(b)
        near = near_copies(records.kind, a[:, : -2 * channels], b[:, : -2 * channels])
    else:
        near = near_copies(records.kind, a, b, words)
    near = near._replace(pairs=[[int(chosen[0][i]), int(chosen[1][j])] for i, j in near.pairs])
    balance = None if records.labels is None else class_balance_p(*records.labels)
    level = (1 - confidence) / (1 if balance is None else 2)
    evidence: dict[str, Any] = dict.fromkeys(BLIND)
    evidence |= {"confidence": confidence, "level": level, "class_balance_p": balance, "records_used": len(a) + len(b)}
    evidence |= _copy_evidence(records, copies, near)
    warnings = _copy_warnings(records, copies, near, len(a), len(b))
    if min(records.sizes) < FEWEST:
        side = "members" if records.sizes[0] < FEWEST else "nonmembers"
        reason = (
            f"{side} holds {min(records.sizes)} records, and telling a shift from chance takes at least {FEWEST} "
            "of either kind."
        )
        return Guard(shift=False, checked=False, evidence={**evidence, "reasons": [reason], "warnings": warnings})
    draws = min(max(permutations, math.ceil(20 / level)), MOST_PERMUTATIONS)
    coded = None
    if records.labels is not None:
        coded = np.concatenate([side[rows] for side, rows in zip(records.labels, chosen, strict=True)])
    blind = blind_baseline(
        views_of(records.kind, a, b, coded, words),
        np.arange(len(a) + len(b)) < len(a),
        confidence=confidence,
        permutations=draws,
        seeds=seeds,
    )
    if 2 / (1 + draws) > level:
        warnings.append(
            f"{draws} relabellings resolve p-values down to {2 / (1 + draws):.2g} only, above the level {level:.2g}; "
            "a weak shift can go unseen at this confidence"
        )
    evidence |= _blind_evidence(blind, confidence, seed)
    evidence["permutations"] = draws
    evidence |= {"reasons": _reasons(evidence), "warnings": warnings}
    return Guard(shift=bool(evidence["reasons"]), checked=True, evidence=evidence)


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


def _blind_evidence(blind: Blind, confidence: float, seed: int) -> dict[str, Any]:
    # The better of the two halves' bounds, each at half of the level: a bound on what no model can have leaked.
    bounds = [lower_bound(half.scores, confidence=(1 + confidence) / 2).low for half in blind.halves]
    return {
        "auc": blind.auc,
        "auc_low": blind.low,
        "auc_high": blind.high,
        "p_value": blind.p_value,
        "candidates": [{"classifier": h.chosen, "auc": h.auc, "p_value": h.p_value} for h in blind.halves],
        "epsilon_blind": max(bounds),
    }


def _copy_evidence(records: Records, copies: Copies, near: NearCopies) -> dict[str, Any]:
    return {
        "kind": records.kind,
        "members": records.sizes[0],
        "nonmembers": records.sizes[1],
        "missing_values": records.missing,
        "duplicates": copies.across,
        "duplicates_share": copies.across / records.sizes[1],
        "duplicate_pairs": copies.pairs,
        "duplicates_within_members": copies.within_members,
        "near_duplicates": near.across,
        "near_duplicate_pairs": near.pairs,
        "near_duplicates_within_members": near.within_members,
    }


def _reasons(found: Mapping[str, Any]) -> list[str]:
    reasons = []
    if found["p_value"] <= found["level"]:
        reasons.append(
            f"A classifier that never saw the model tells members from non-members with AUC {found['auc']:.2f} "
            f"({p_in_words(found['p_value'])})."
        )
    if found["class_balance_p"] is not None and found["class_balance_p"] <= found["level"]:
        reasons.append(
            "The classes are distributed differently among members and non-members "
            f"({p_in_words(found['class_balance_p'])})."
        )
    return reasons


def _copy_warnings(records: Records, copies: Copies, near: NearCopies, members: int, nonmembers: int) -> list[str]:
    warnings = []
    if copies.across:
        warnings.append(
            f"{_exact(copies.across, records.sizes[1])}: to the model a copy is a member, so it hides leakage"
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
            f"{_of(near.across, nonmembers)}{sampled} {'is' if near.across == 1 else 'are each'} nearly a copy of a "
            f"member (of the {members} members{sampled}, {near.within_members} are that near to another one): what the "
            "model learnt of the member it may know of the copy"
        )
    if records.missing:
        warnings.append(f"{records.missing} feature values are missing (NaN) and were taken as such")
    return warnings


def _of(count: int, total: int) -> str:
    return f"{count} of {total} non-members ({100 * count / total:.3g} %)"


def _exact(count: int, total: int) -> str:
    return f"{_of(count, total)} {'is an exact copy of a member' if count == 1 else 'are exact copies of members'}"


def p_in_words(p_value: float) -> str:
    """A p-value for a sentence."""
    return "p < 0.0001" if p_value < 1e-4 else f"p = {p_value:.2g}"


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


def check_mask(one_run: OneRun) -> dict[str, Any]:
    """Whether the inclusion mask of a one-run audit looks like independent fair coins: balance and runs, both exact."""
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
    return {
        "records": total,
        "included": inside,
        "share": inside / total,
        "balance_p": balance_p,
        "runs": runs,
        "runs_p": runs_p,
        "seed_checked": one_run.mask_seed is not None,
        "warnings": warnings,
    }


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
