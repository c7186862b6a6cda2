"""What is checked before any number: would members and non-members differ if there were no model? Are there copies?"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from scipy.special import chdtrc

from dosimeter import _validate as check
from dosimeter._persons import two_sides
from dosimeter._validate import BoolArray, FloatArray, InputError, IntArray
from dosimeter.audits.parts import BlindHalf, Pair, ShiftEvidence
from dosimeter.audits.result import Guard, at_most, copies_in_words, p_in_words, share_in_words
from dosimeter.audits.shift.blind import Blind, blind_baseline, views_of
from dosimeter.audits.shift.records import (
    BLOCK,
    HashedWords,
    Records,
    UintArray,
    mix,
    read_records,
    record_hashes,
    standardised,
    thumbnails,
    word_hashes,
)
from dosimeter.estimators.lower_bound import proven_epsilon
from dosimeter.records import take

__all__ = ["Guard", "check_shift", "class_balance_p"]

FEWEST = 20  # records of either kind: below it no shift that matters could be seen
MOST_PERMUTATIONS = 20_000
MOST_CELLS, FEWEST_SAMPLED = 8_000_000, 2_000  # of a sampled table: wide ones are sampled further
EXPECTED_COUNT = 5  # of a class on either side, for the chi-square law
NEAR_SHARE = 0.02  # near copies of table rows that one smooth feature alone would not show


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
    a, b = (take(side, rows) for side, rows in zip((records.members, records.nonmembers), chosen, strict=True))
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
    sides = [take(side, part) for side, part in zip((records.members, records.nonmembers), rows, strict=True)]
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


def _reasons(evidence: ShiftEvidence) -> list[str]:
    reasons = []
    if evidence.auc is not None and evidence.p_value is not None and at_most(evidence.p_value, evidence.level):
        reasons.append(
            f"A classifier that never saw the model tells members from non-members with AUC {evidence.auc:.2f} "
            f"({p_in_words(evidence.p_value)})."
        )
    if evidence.class_balance_p is not None and at_most(evidence.class_balance_p, evidence.level):
        reasons.append(
            "The classes are distributed differently among members and non-members "
            f"({p_in_words(evidence.class_balance_p)})."
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


PAIRS = 5
DISTINCT = 0.9  # a side whose records repeat less than this is too coarse to prove that both sides are one
NEAR_TABULAR = 0.01  # of the median distance from a member to the nearest other member
NEAR_IMAGE = 0.1
MOST_DIMENSIONS = 128
SHINGLE = 5
SIGNATURE, BANDS = 48, 16
NEAR_TEXT = 0.5  # Jaccard similarity of the shingle sets


class Copies(NamedTuple):
    """Exact copies: non-members that are members too, the first pairs (member, non-member), repeats of members."""

    across: int
    pairs: list[list[int]]
    within_members: int


class NearCopies(NamedTuple):
    """Near copies of members among the non-members, exact ones not counted; the members' own as comparison."""

    across: int
    pairs: list[list[int]]
    within_members: int


def exact_copies(records: Records) -> Copies:
    """Count exact copies over all records; refuse two sides that are the same records."""
    sides = records.members, records.nonmembers
    as_bytes = all(getattr(side, "dtype", None) == np.uint8 for side in sides)
    a, b = (record_hashes(side, as_bytes=as_bytes) for side in sides)
    distinct, first = np.unique(a, return_index=True)
    place = np.minimum(np.searchsorted(distinct, b), distinct.size - 1)
    copied = distinct[place] == b
    _refuse_same(a, b, copied)
    places = np.flatnonzero(copied)
    pairs = [[int(first[place[j]]), int(j)] for j in places[:PAIRS]]
    return Copies(int(places.size), pairs, int(a.size - distinct.size))


def _refuse_same(a: UintArray, b: UintArray, copied: BoolArray) -> None:
    same = a.size == b.size and np.array_equal(np.sort(a), np.sort(b))
    for side, inside in ((b, copied), (a, np.isin(a, b))):
        if not same and side.size >= 10 and inside.all():
            same = np.unique(side).size >= DISTINCT * side.size
    if same:
        raise InputError(
            f"members and nonmembers are the same records (all {min(a.size, b.size)} of the smaller side are in the "
            "other); pass records that were not trained on as nonmembers."
        )


def near_copies(kind: str, members: Any, nonmembers: Any, words: HashedWords | None = None) -> NearCopies:
    """Near copies between two samples; tables and image thumbnails by nearest neighbour, texts by MinHash.

    `words` are the word hashes of the texts of both.
    """
    if kind == "text":
        return _near_texts(members, nonmembers, words or word_hashes(members + nonmembers))
    both = np.concatenate([members, nonmembers])
    rows = _contrast(both) if kind == "image" else standardised(both)
    if rows.shape[1] > MOST_DIMENSIONS:  # a random projection moves a distance by a few percent only
        rows = rows @ np.random.default_rng(0).normal(size=(rows.shape[1], MOST_DIMENSIONS))
    return _near_rows(rows, record_hashes(both), len(members), NEAR_IMAGE if kind == "image" else NEAR_TABULAR)


def _contrast(small: FloatArray) -> FloatArray:
    """Thumbnails with brightness and contrast taken out."""
    rows = np.nan_to_num(small)
    rows = rows - rows.mean(axis=1, keepdims=True)
    spread = rows.std(axis=1, keepdims=True)
    return np.asarray(rows / np.where(spread > 0, spread, 1.0))


def _nearest(queries: FloatArray, pool: FloatArray, *, same: bool) -> tuple[IntArray, FloatArray]:
    """Index and distance of the nearest row of the pool, the row itself excluded when both are the same sample."""
    q32, p32 = queries.astype(np.float32), pool.astype(np.float32)
    half = (p32**2).sum(axis=1) / np.float32(2)
    step = max(1, 2 * BLOCK // len(pool))
    best = np.empty(len(queries), np.int64)
    for start in range(0, len(queries), step):
        closeness = q32[start : start + step] @ p32.T
        closeness -= half
        if same:
            row = np.arange(len(closeness))
            closeness[row, start + row] = -np.inf
        best[start : start + step] = closeness.argmax(axis=1)
    return best, np.sqrt(((queries - pool[best]) ** 2).sum(axis=1))


def _near_rows(rows: FloatArray, hashes: UintArray, n: int, share: float) -> NearCopies:
    if n < 2:
        return NearCopies(0, [], 0)
    nearest, own = _nearest(rows[:n], rows[:n], same=True)
    own = own[hashes[:n] != hashes[nearest]]
    if own.size == 0:
        return NearCopies(0, [], 0)
    limit = share * float(np.median(own))
    index, distance = _nearest(rows[n:], rows[:n], same=False)
    near = np.flatnonzero((distance <= limit) & (hashes[n:] != hashes[index]))
    pairs = [[int(index[j]), int(j)] for j in near[:PAIRS]]
    return NearCopies(int(near.size), pairs, int((own <= limit).sum()))


def _near_texts(members: list[str], nonmembers: list[str], words: HashedWords) -> NearCopies:
    signature, worded = _signatures(words)
    n = len(members)
    exact = record_hashes(members + nonmembers)
    rows = SIGNATURE // BANDS
    salt = mix(np.arange(1, rows + 1, dtype=np.uint64))
    similarity, partner = np.zeros(len(nonmembers)), np.zeros(len(nonmembers), np.int64)
    own = np.zeros(n, bool)
    for band in range(BANDS):
        part = signature[:, band * rows : (band + 1) * rows]
        key = mix(mix(part ^ salt).sum(axis=1, dtype=np.uint64))
        distinct, first = np.unique(key[:n], return_index=True)
        place = np.minimum(np.searchsorted(distinct, key[n:]), distinct.size - 1)
        other = first[place]
        alike = (signature[n:] == signature[other]).mean(axis=1)
        alike[(distinct[place] != key[n:]) | ~worded[n:] | ~worded[other] | (exact[n:] == exact[other])] = 0
        better = alike > similarity
        similarity[better], partner[better] = alike[better], other[better]
        earlier = first[np.searchsorted(distinct, key[:n])]
        own |= (
            ((signature[:n] == signature[earlier]).mean(axis=1) >= NEAR_TEXT)
            & worded[:n]
            & (exact[:n] != exact[earlier])
        )
    near = np.flatnonzero(similarity >= NEAR_TEXT)
    return NearCopies(int(near.size), [[int(partner[j]), int(j)] for j in near[:PAIRS]], int(own.sum()))


def _signatures(tokens: HashedWords) -> tuple[UintArray, BoolArray]:
    """MinHash signatures of the sets of five-word shingles (Broder 1997), and which texts have a word at all."""
    words, counts = tokens
    starts = np.concatenate([[0], np.cumsum(counts)])
    text_of = np.repeat(np.arange(counts.size), counts)
    padded = np.concatenate([words, np.zeros(SHINGLE, np.uint64)])
    salt = mix(np.arange(1, SHINGLE + 1, dtype=np.uint64))
    position = np.arange(words.size)
    shingles = np.zeros(words.size, np.uint64)
    for k in range(SHINGLE):
        inside = position + k < starts[text_of + 1]
        shingles += np.where(inside, mix(padded[k : k + words.size] ^ salt[k]), np.uint64(0))
    # A shingle cut short by the end of its text counts only in a text that is shorter than a shingle.
    whole = (position + SHINGLE <= starts[text_of + 1]) | (position == starts[text_of])
    shingles, text_of = mix(shingles[whole]), text_of[whole]
    worded = counts > 0
    signature = np.zeros((counts.size, SIGNATURE), np.uint64)
    if shingles.size:
        begin = np.searchsorted(text_of, np.flatnonzero(worded))
        odd, shift = mix(np.arange(1, 2 * SIGNATURE + 1, dtype=np.uint64)).reshape(2, -1) | np.uint64(1)
        for k in range(SIGNATURE):
            signature[worded, k] = np.minimum.reduceat(shingles * odd[k] + shift[k], begin)
    return signature, worded
