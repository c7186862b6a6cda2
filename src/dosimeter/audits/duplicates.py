"""Copies: records that stand on both sides, nearly so, or more than once among the members."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dosimeter._validate import BoolArray, FloatArray, InputError, IntArray
from dosimeter.audits.records import Records, UintArray, digest, mix, thumbnails, word_hashes

PAIRS = 5
BLOCK_BYTES = 1 << 25
DISTINCT = 0.9  # a side whose records repeat less than this is too coarse to prove that both sides are one
NEAR_TABULAR = 0.01  # of the median distance from a member to the nearest other member
NEAR_IMAGE = 0.1
SHINGLE = 5
SIGNATURE, BANDS = 64, 16
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


def record_hashes(records: Any) -> UintArray:
    """64 bits for each record, equal for equal records; white space in texts and the sign of zero do not count."""
    if isinstance(records, list):
        return np.array([digest(" ".join(text.split())) for text in records], np.uint64)
    rows = records.reshape(len(records), -1)
    step = max(1, BLOCK_BYTES // (8 * rows.shape[1]))
    return np.concatenate([_row_hashes(rows[i : i + step]) for i in range(0, len(rows), step)])


def _row_hashes(rows: npt.NDArray[Any]) -> UintArray:
    if rows.dtype == np.uint8:
        wide = np.zeros((len(rows), -(-rows.shape[1] // 8) * 8), np.uint8)
        wide[:, : rows.shape[1]] = rows
        words = wide.view(np.uint64)
    else:
        values = rows.astype(np.float64)
        values += 0.0  # -0.0 is 0.0
        values[np.isnan(values)] = np.nan
        words = values.view(np.uint64)
    salt = mix(np.arange(1, words.shape[1] + 1, dtype=np.uint64))
    return mix(mix(words ^ salt).sum(axis=1, dtype=np.uint64))


def exact_copies(records: Records) -> Copies:
    """Count exact copies over all records; refuse two sides that are the same records."""
    members, nonmembers = records.members, records.nonmembers
    if not isinstance(members, list) and members.dtype != nonmembers.dtype:
        members, nonmembers = members.astype(np.float64), nonmembers.astype(np.float64)
    a, b = record_hashes(members), record_hashes(nonmembers)
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


def near_copies(kind: str, members: Any, nonmembers: Any) -> NearCopies:
    """Near copies between two samples of records; tables and images by nearest neighbour, texts by MinHash."""
    if kind == "text":
        return _near_texts(members, nonmembers)
    both = np.concatenate([members, nonmembers])
    hashes = record_hashes(both)
    rows = _contrast(thumbnails(both)) if kind == "image" else standardised(both)
    return _near_rows(rows, hashes, len(members), NEAR_IMAGE if kind == "image" else NEAR_TABULAR)


def standardised(rows: FloatArray) -> FloatArray:
    """Columns with mean 0 and standard deviation 1; a missing value becomes the mean, a constant column 0."""
    absent = np.isnan(rows)
    present = np.maximum((~absent).sum(axis=0), 1)
    scale = np.where(absent, 0.0, np.abs(rows)).max(axis=0)
    values = np.where(absent, 0.0, rows) / np.where(scale > 0, scale, 1.0)
    centred = np.where(absent, 0.0, values - values.sum(axis=0) / present)
    spread = np.sqrt((centred**2).sum(axis=0) / present)
    return np.asarray(centred / np.where(spread > 1e-12, spread, np.inf))


def _contrast(small: FloatArray) -> FloatArray:
    """Thumbnails as rows whose brightness and contrast are taken out."""
    rows = np.nan_to_num(small.reshape(len(small), -1))
    rows = rows - rows.mean(axis=1, keepdims=True)
    spread = rows.std(axis=1, keepdims=True)
    return np.asarray(rows / np.where(spread > 0, spread, 1.0))


def _nearest(queries: FloatArray, pool: FloatArray, *, same: bool) -> tuple[IntArray, FloatArray]:
    """Index and distance of the nearest row of the pool, the row itself excluded when both are the same sample."""
    q32, p32 = queries.astype(np.float32), pool.astype(np.float32)
    half = (p32**2).sum(axis=1) / np.float32(2)
    step = max(1, BLOCK_BYTES // (4 * len(pool)))
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


def _near_texts(members: list[str], nonmembers: list[str]) -> NearCopies:
    signature, worded = _signatures(members + nonmembers)
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


def _signatures(texts: list[str]) -> tuple[UintArray, BoolArray]:
    """MinHash signatures of the sets of five-word shingles (Broder 1997), and which texts have a word at all."""
    words, counts = word_hashes(texts)
    starts = np.concatenate([[0], np.cumsum(counts)])
    text_of = np.repeat(np.arange(len(texts)), counts)
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
    signature = np.zeros((len(texts), SIGNATURE), np.uint64)
    if shingles.size:
        begin = np.searchsorted(text_of, np.flatnonzero(worded))
        for k, key in enumerate(mix(np.arange(1, SIGNATURE + 1, dtype=np.uint64) << np.uint64(32))):
            signature[worded, k] = np.minimum.reduceat(mix(shingles ^ key), begin)
    return signature, worded
