"""One geometry for rows of mixed columns: numbers by their rank, words by whether they agree, texts by hashed letters.

The geometry is fitted to all audited records, whoever was in. A column moves two rows apart by at most 1: numbers by
the difference of their ranks, words and a missing value against another by 1, texts by the angle between them. Images
are their principal components and texts hashed n-grams, as in `audit_members_only`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dosimeter._validate import FloatArray
from dosimeter.attacks.stacked import Content, hashed, principal
from dosimeter.audits.shift.records import UintArray, mix, record_hashes
from dosimeter.audits.synthetic.nearest import Single
from dosimeter.audits.synthetic.rows import Column, Numbers, Rows, Words

TEXT_DIMENSIONS = 256
TEXT_COLUMN_DIMENSIONS = 24


@dataclass(frozen=True, eq=False)
class ColumnScale:
    """How a column is measured: the distinct numbers of all records with their ranks, or their words."""

    kind: str
    known: FloatArray
    rank: FloatArray
    levels: tuple[str, ...]
    missing: bool


@dataclass(frozen=True, eq=False)
class Space:
    """The geometry of a pool of records."""

    scales: tuple[ColumnScale, ...]
    pool: Rows

    def coordinates(self, rows: Rows, columns: Sequence[int] | None = None) -> Single:
        """Rows as points whose Euclidean distance is that of the geometry; `columns` are places of some of them."""
        wanted = range(len(self.scales)) if columns is None else columns
        parts = [_coordinates(self.scales[place], rows.columns[place]) for place in wanted]
        if rows.kind != "tabular" and columns is None:
            parts.insert(0, _content(self.pool, rows).astype(np.float32))
        return np.ascontiguousarray(np.concatenate(parts, axis=1), np.float32)

    def parts(self, rows: Rows) -> tuple[Single, Single]:
        """Numbers as ranks, and words as indicators: what distances by column need."""
        numbers = [np.empty((len(rows), 0), np.float32)]
        words = [np.empty((len(rows), 0), np.float32)]
        for scale, column in zip(self.scales, rows.columns, strict=True):
            made = _coordinates(scale, column)
            if scale.kind == "word":
                words.append(_indicators(scale, column))
            else:
                numbers.append(made)
        return np.concatenate(numbers, axis=1), np.concatenate(words, axis=1)


def fit_space(pool: Rows) -> Space:
    """Measure every column of all records."""
    return Space(tuple(_scale(f.kind, c) for f, c in zip(pool.fields, pool.columns, strict=True)), pool)


def _scale(kind: str, column: Column) -> ColumnScale:
    none = np.empty(0)
    if isinstance(column, Words):
        return ColumnScale(kind, none, none, column.levels, bool((column.codes < 0).any()))
    gone = np.isnan(column.values)
    distinct, counts = np.unique(column.values[~gone], return_counts=True)
    rank = (np.cumsum(counts) - counts / 2) / max(counts.sum(), 1)  # the middle of each group of equal numbers
    return ColumnScale("number", distinct, rank, (), bool(gone.any()))


def _coordinates(scale: ColumnScale, column: Column) -> Single:
    if isinstance(column, Numbers):
        gone = np.isnan(column.values)
        place = np.interp(np.where(gone, 0.0, column.values), scale.known, scale.rank)
        if not scale.missing:
            return np.where(gone, -1.0, place)[:, None].astype(
                np.float32
            )  # further from all than these from each other
        return np.stack([np.where(gone, 0.5, place), math.sqrt(0.75) * gone], axis=1).astype(np.float32)
    if scale.kind == "text":
        return _hashed_column(column)
    return (_indicators(scale, column) * np.float32(math.sqrt(0.5))).astype(np.float32)


def _indicators(scale: ColumnScale, column: Column) -> Single:
    """A column for each word of the records and, where values are missing there, one for these."""
    assert isinstance(column, Words)
    width = len(scale.levels) + scale.missing
    known = {level: place for place, level in enumerate(scale.levels)}
    place = np.array([known.get(level, -1) for level in column.levels] + [width - 1 if scale.missing else -1])
    code = place[column.codes]  # -1, a missing value, is the last
    indicators = np.zeros((len(code), width), np.float32)
    inside = np.flatnonzero(code >= 0)
    indicators[inside, code[inside]] = 1
    return indicators


def _hashed_column(column: Words) -> Single:
    """Hashed letters and words of a column of texts, projected to unit vectors over √2: unrelated texts are 1 apart."""
    made = _projected(list(column.levels) or [""], TEXT_COLUMN_DIMENSIONS) / math.sqrt(2)
    return np.concatenate([made, np.zeros((1, made.shape[1]))])[column.codes].astype(np.float32)


def _projected(texts: list[str], dimensions: int) -> FloatArray:
    """Hashed n-grams of texts on fixed random directions."""
    table = hashed(Content("text", texts, None))
    used = np.unique(table.indices)
    made = np.zeros((len(texts), dimensions))
    for start in range(0, used.size, 4096):
        part = used[start : start + 4096]
        made += np.asarray(table[:, part] @ _directions(part, dimensions))
    return made / math.sqrt(dimensions) / math.sqrt(2)  # words and letters are a unit vector each


def _directions(columns: Any, dimensions: int) -> FloatArray:
    """±1 for each hashed column and direction, from the number of the column alone."""
    words = (dimensions + 63) // 64
    seeds = columns.astype(np.uint64)[:, None] * np.uint64(words) + np.arange(1, words + 1, dtype=np.uint64)
    bits = np.unpackbits(mix(mix(seeds)).view(np.uint8).reshape(len(columns), -1), axis=1)[:, :dimensions]
    return bits.astype(np.float64) * 2 - 1


def _content(pool: Rows, rows: Rows) -> FloatArray:
    if rows.texts is not None:
        return _projected(list(rows.texts), TEXT_DIMENSIONS)
    assert pool.images is not None and rows.images is not None
    places, asked = principal(Content("image", pool.images, None), Content("image", rows.images, None))
    scale = math.sqrt(2 * float(places[:, :-2].var(axis=0).sum())) or 1.0
    return asked[:, :-2] / scale


def hashes(rows: Rows) -> UintArray:
    """64 bits for each row, equal for rows that are equal in every column."""
    columns = [_hash(column) for column in rows.columns]
    if rows.texts is not None:
        columns.append(record_hashes(list(rows.texts)))
    if rows.images is not None:
        columns.append(record_hashes(rows.images.reshape(len(rows), -1)))
    return record_hashes(np.stack(columns, axis=1).view(np.uint8).reshape(len(rows), -1), as_bytes=True)


def _hash(column: Column) -> UintArray:
    if isinstance(column, Numbers):
        return record_hashes(column.values[:, None])
    words = record_hashes(list(column.levels)) if column.levels else np.empty(0, np.uint64)
    return np.concatenate([words, np.zeros(1, np.uint64)])[column.codes]
