"""Dataset sensitivity: which neighbouring data set is the most (or the least) dissimilar (Bernau et al. 2021).

Unbounded neighbours drop a record x of D, ranked by Σ d(x, x') over the other records of D. Bounded neighbours put a
record of U∖D in the place of a record of D, ranked by the distance of the two. All pairs are compared, in blocks.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dosimeter import _validate as check
from dosimeter._validate import FloatArray, InputError, IntArray
from dosimeter.datasets.distances import SSIM, Array, Function, name_of, prepare, unit_rows
from dosimeter.estimate import plain

BLOCK, IMAGE_BLOCK = 1024, 128
LARGEST = 1e140
_Blocks = Iterator[tuple[slice, slice]]


@dataclass(frozen=True, eq=False)
class NeighbourChoice:
    """The chosen records, the best choice first.

    `rows` are rows of D; `other_rows` are rows of U for bounded neighbours and None otherwise. `distances` are the
    distances of the pairs, or the sums of distances to all other records. `left_out` counts the records of U that are
    in D.
    """

    name: str
    most: bool
    rows: IntArray
    distances: FloatArray
    other_rows: IntArray | None = None
    left_out: int = 0

    @property
    def bounded(self) -> bool:
        return self.other_rows is not None

    def __len__(self) -> int:
        return int(self.rows.size)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain JSON values."""
        return {"bounded": self.bounded, **{name: plain(value) for name, value in vars(self).items()}}


def unbounded(
    X: Any,
    *,
    distance: str | Function,
    count: int = 1,
    most: bool = True,
    data_range: float | None = None,
    block: int | None = None,
    progress: bool = False,
) -> NeighbourChoice:
    """The `count` records of X with the largest (`most=False`: smallest) sum of distances to all others.

    `distance` is hamming, manhattan, euclidean, cosine, negative-ssim-8x8, negative-ssim-gaussian, or a symmetric
    function f(A, B) that returns distances of shape (len A, len B). Equal sums come in the order of their rows. `block`
    is the number of records on a side of the blocks of pairs that are held in memory.
    """
    records = _records("X", X, distance)
    most, size = check.flag("most", most), _block_size(block, distance)
    if len(records) < 2:
        raise InputError(f"X has {len(records)} record(s); a neighbour needs at least 2.")
    count = check.whole("count", count, 1, f"X has {len(records)} records to choose from", len(records))
    sums = _sums(records, distance, _range(data_range), size, check.flag("progress", progress))
    order = np.argsort(-sums if most else sums, kind="stable")[:count]
    return NeighbourChoice(name_of(distance), most, order, sums[order])


def bounded(
    D: Any,
    U: Any,
    *,
    distance: str | Function,
    count: int = 1,
    most: bool = True,
    rows_of_d: Any = None,
    data_range: float | None = None,
    block: int | None = None,
    progress: bool = False,
) -> NeighbourChoice:
    """The `count` pairs (record of D, record of U∖D) with the largest (`most=False`: smallest) distance.

    `rows_of_d` names the records of U that are in D, by their rows in U; without it, every record of U that equals a
    record of D in all values counts as one of D. `distance` as in `unbounded`; equal distances come in the order of
    the rows of D, then of U.
    """
    inside, universe = _records("D", D, distance), _records("U", U, distance)
    if inside.shape[1:] != universe.shape[1:]:
        raise InputError(f"D has records of shape {inside.shape[1:]}, U of {universe.shape[1:]}; they must agree.")
    most, size = check.flag("most", most), _block_size(block, distance)
    if len(inside) == 0:
        raise InputError("D has no records; pass at least one.")
    outside = np.flatnonzero(~_in_d(inside, universe, rows_of_d))
    if outside.size == 0:
        raise InputError(
            f"U∖D is empty: each of the {len(universe)} records of U is in D; pass a U with records that D lacks."
        )
    pairs_in_all = len(inside) * outside.size
    count = check.whole("count", count, 1, f"there are {pairs_in_all} pairs to choose from", pairs_in_all)
    if distance == "cosine":
        inside, universe = unit_rows("D", inside), unit_rows("U", universe)
    others = universe[outside]
    pairs = prepare(distance, inside, others, data_range=_range(data_range), refine=not most)
    top = _Top(count, most)
    blocks = [(rows, columns) for rows in _cut(len(inside), size) for columns in _cut(len(others), size)]
    for rows, columns in _watched(blocks, check.flag("progress", progress)):
        top.offer(pairs.block(rows, columns), rows.start, columns.start)
    found = pairs.distance(top.keys)
    left_out = len(universe) - outside.size
    return NeighbourChoice(pairs.name, most, top.rows, found, outside[top.columns], left_out)


# --- sums of distances ------------------------------------------------------------------------------------


def _sums(records: Array, distance: str | Function, data_range: float | None, block: int, progress: bool) -> FloatArray:
    """Σ d(x, x') over all other records x', for each record x."""
    if distance == "hamming":
        return _hamming_sums(records)
    if distance == "manhattan":
        return _manhattan_sums(records)
    if distance == "cosine":
        unit = unit_rows("X", records)
        return np.maximum(len(unit) - unit @ unit.sum(axis=0), 0.0)
    pairs = prepare(distance, records, records, data_range=data_range, refine=False)
    sums = np.zeros(len(records))
    cuts = _cut(len(records), block)
    blocks = [(rows, columns) for place, rows in enumerate(cuts) for columns in cuts[place:]]
    for rows, columns in _watched(blocks, progress):
        values = pairs.distance(pairs.block(rows, columns))
        if rows == columns:
            np.fill_diagonal(values, 0.0)
        else:
            sums[columns] += values.sum(axis=0)
        sums[rows] += values.sum(axis=1)
    return sums


def _hamming_sums(records: Array) -> FloatArray:
    """In each column a record differs from all but those with its value."""
    sums = np.zeros(len(records))
    for column in records.T:
        _, codes, counts = np.unique(column, return_inverse=True, return_counts=True)
        sums += len(records) - counts[codes]
    return sums


def _manhattan_sums(records: Array) -> FloatArray:
    """With a column in order, the k values below x are Σ(x − ·) = kx − (their sum) away, those above likewise."""
    sums = np.zeros(len(records))
    below = np.arange(len(records), dtype=np.float64)
    for column in records.T:
        order = np.argsort(column, kind="stable")
        values = column[order] - np.mean(column)
        upto = np.cumsum(values)
        total = upto[-1]
        sums[order] += (2 * below + 2 - len(values)) * values - 2 * upto + total
    return np.maximum(sums, 0.0)


# --- the best pairs ---------------------------------------------------------------------------------------


class _Top:
    """The best pairs so far, by key, then by row and column."""

    def __init__(self, count: int, most: bool) -> None:
        self.count, self.most = count, most
        self.keys: Array = np.zeros(0)
        self.rows: IntArray = np.zeros(0, np.int64)
        self.columns: IntArray = np.zeros(0, np.int64)

    def offer(self, block: Array, row: int, column: int) -> None:
        """Keep what the block has among the best."""
        best = block.max() if self.most else block.min()
        if self.keys.size == self.count and (best < self.keys[-1] if self.most else best > self.keys[-1]):
            return
        values = block.reshape(-1) if self.most else -block.reshape(-1)
        size = min(self.count, values.size)
        bar = values.max() if size == 1 else np.partition(values, values.size - size)[values.size - size]
        at = np.flatnonzero(values >= bar)
        at = at[np.argsort(-values[at], kind="stable")[:size]]
        width = block.shape[1]
        keys = np.concatenate([self.keys, block.reshape(-1)[at].astype(np.float64)])
        rows = np.concatenate([self.rows, row + at // width])
        columns = np.concatenate([self.columns, column + at % width])
        order = np.lexsort((columns, rows, -keys if self.most else keys))[: self.count]
        self.keys, self.rows, self.columns = keys[order], rows[order], columns[order]


def _block_size(block: Any, distance: str | Function) -> int:
    if block is None:
        return IMAGE_BLOCK if name_of(distance) in SSIM else BLOCK
    return check.whole("block", block, 1, "pass the records on one side of a block of pairs, e.g. 1024")


def _cut(total: int, size: int) -> list[slice]:
    return [slice(start, min(start + size, total)) for start in range(0, total, size)]


def _watched(blocks: list[tuple[slice, slice]], progress: bool) -> _Blocks:
    """The blocks, with a bar on a terminal and one line elsewhere."""
    if not progress or sys.stderr is None:
        yield from blocks
    elif not sys.stderr.isatty():
        count = "1 block" if len(blocks) == 1 else f"{len(blocks)} blocks"
        print(f"dosimeter: comparing records, {count} of pairs.", file=sys.stderr, flush=True)
        yield from blocks
    else:
        from rich.console import Console
        from rich.progress import track

        yield from track(blocks, "comparing records", console=Console(stderr=True), transient=True)


# --- reading records --------------------------------------------------------------------------------------


def _records(name: str, values: Any, distance: str | Function) -> Array:
    """Finite numbers, one row for each record: flat, images for SSIM, as they are for a user's function."""
    full = name_of(distance)
    try:
        array = np.asarray(values)
    except (ValueError, TypeError):
        raise InputError(
            f"{name} must be an array with one row for each record; its rows have mixed lengths."
        ) from None
    if array.dtype.kind not in "biuf" or np.ma.is_masked(values):
        raise InputError(f"{name} must hold numbers, got an array of {array.dtype}; encode the records first.")
    if array.ndim < 2 or 0 in array.shape[1:]:
        raise InputError(f"{name} must have one row for each record, got shape {array.shape}; pass (records, columns).")
    records = array.astype(np.float64)
    if not np.isfinite(records).all():
        place = tuple(int(index) for index in np.argwhere(~np.isfinite(records))[0])
        count = int((~np.isfinite(records)).sum())
        raise InputError(
            f"{name}{list(place)} is {records[place]}, and {count} of {records.size} values are not finite; repair or "
            "leave out these records."
        )
    if callable(distance):
        return array
    if records.size and np.abs(records).max() > LARGEST:
        raise InputError(f"{name} holds values above {LARGEST:g}, whose squares overflow; scale the records first.")
    if full not in SSIM:
        return records.reshape(len(records), math.prod(records.shape[1:]))
    if records.ndim == 4 and 1 in (records.shape[1], records.shape[3]):
        records = records[:, 0] if records.shape[1] == 1 else records[..., 0]
    if records.ndim != 3:
        raise InputError(f"{name} must hold grey images (records, height, width) for {full}, got shape {array.shape}.")
    return records


def _range(data_range: Any) -> float | None:
    if data_range is None:
        return None
    remedy = "pass the span of the pixel values, e.g. 1 or 255"
    return check.within("data_range", data_range, 0.0, math.inf, remedy, include="()")


def _in_d(inside: Array, universe: Array, rows_of_d: Any) -> npt.NDArray[np.bool_]:
    """Which records of U are in D."""
    if rows_of_d is None:
        return np.isin(_keys(universe), _keys(inside))
    rows = check.finite_array("rows_of_d", rows_of_d, minimum=0)
    bad = (rows != np.floor(rows)) | (rows < 0) | (rows >= len(universe))
    if bad.any():
        wrong = rows[int(np.argmax(bad))]
        raise InputError(f"rows_of_d holds {wrong:g}, and U has rows 0 to {len(universe) - 1}; pass rows of U.")
    found = np.zeros(len(universe), bool)
    found[rows.astype(np.int64)] = True
    return found


def _keys(records: Array) -> Array:
    """Each record as one value that can be compared; −0.0 counts as 0.0."""
    flat = np.ascontiguousarray(records.reshape(len(records), math.prod(records.shape[1:])).astype(np.float64) + 0.0)
    return flat.view(np.dtype((np.void, flat.shape[1] * 8))).reshape(-1)
