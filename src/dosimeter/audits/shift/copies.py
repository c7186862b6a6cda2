"""Copies: records that stand on both sides, nearly so, or more than once among the members."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dosimeter._validate import BoolArray, FloatArray, InputError, IntArray
from dosimeter.audits.shift.records import BLOCK, Records, UintArray, Words, mix, record_hashes, word_hashes

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
    found = np.flatnonzero(copied)
    pairs = [[int(first[place[j]]), int(j)] for j in found[:PAIRS]]
    return Copies(int(found.size), pairs, int(a.size - distinct.size))


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


def near_copies(kind: str, members: Any, nonmembers: Any, words: Words | None = None) -> NearCopies:
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


def standardised(rows: FloatArray) -> FloatArray:
    """Columns with mean 0 and standard deviation 1; a missing value becomes the mean, a constant column 0."""
    absent = np.isnan(rows)
    present = np.maximum(len(rows) - absent.sum(axis=0), 1)
    values = np.where(absent, 0.0, rows)
    scale = np.maximum(values.max(axis=0), -values.min(axis=0))
    values /= np.where(scale > 0, scale, 1.0)
    values -= values.sum(axis=0) / present
    values[absent] = 0.0
    spread = np.sqrt(np.einsum("ij,ij->j", values, values) / present)
    values /= np.where(spread > 1e-12, spread, np.inf)
    return values


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
    found = np.flatnonzero((distance <= limit) & (hashes[n:] != hashes[index]))
    pairs = [[int(index[j]), int(j)] for j in found[:PAIRS]]
    return NearCopies(int(found.size), pairs, int((own <= limit).sum()))


def _near_texts(members: list[str], nonmembers: list[str], words: Words) -> NearCopies:
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
    found = np.flatnonzero(similarity >= NEAR_TEXT)
    return NearCopies(int(found.size), [[int(partner[j]), int(j)] for j in found[:PAIRS]], int(own.sum()))


def _signatures(tokens: Words) -> tuple[UintArray, BoolArray]:
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
