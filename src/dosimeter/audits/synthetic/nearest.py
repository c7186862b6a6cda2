"""The nearest row of a release for each record, exactly: products of tiles in float32, winners measured in float64.

With |p|² folded into the product, one matrix product gives |p|² − 2 q·p, which orders the rows p by their distance to
q. Where two rows are nearer to each other than float32 can tell, either may win: their distances differ by 10⁻⁵ of the
whole at most, and the distance of the winner is computed again from the differences.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dosimeter._validate import FloatArray, IntArray
from dosimeter.engine.work import cores

Single = npt.NDArray[np.float32]
TILE = 1024, 8192  # queries and rows of one product
SMALL_TILE = 256, 2048  # where many passes over a tile are made, so that it stays in a core's own cache


class Nearest(NamedTuple):
    """The place of the nearest row, and its distance."""

    place: IntArray
    distance: FloatArray


def nearest(queries: Single, rows: Single, *, itself: bool = False, workers: int | None = None) -> Nearest:
    """Find the nearest row by the Euclidean distance; with `itself` row i is not compared with query i."""
    norms = np.einsum("ij,ij->i", rows, rows)[:, None]
    asked = np.concatenate([-2 * queries, np.ones((len(queries), 1), np.float32)], axis=1)

    def distances(a: slice, b: slice) -> Single:
        return asked[a] @ np.concatenate([rows[b], norms[b]], axis=1).T  # folded a tile at a time: no second copy

    place = _in_tiles(distances, len(queries), len(rows), itself, workers, TILE)
    distance = np.empty(len(queries))
    for start in range(0, len(queries), TILE[1]):
        part = slice(start, start + TILE[1])
        gap = queries[part].astype(np.float64) - rows[place[part]]
        distance[part] = np.sqrt(np.einsum("ij,ij->i", gap, gap))
    return Nearest(place, distance)


def nearest_by_column(
    queries: tuple[Single, Single], rows: tuple[Single, Single], *, itself: bool = False, workers: int | None = None
) -> Nearest:
    """Find the nearest row by the sum over columns: |difference| of numbers, the number of words that differ (Gower).

    Each side is (numbers, words as indicators of which the product counts those that agree).
    """
    (a_numbers, a_words), (b_numbers, b_words) = queries, rows
    weight = b_words.sum(axis=1, dtype=np.float32)

    def distances(a: slice, b: slice) -> Single:
        out = weight[b] - a_words[a] @ b_words[b].T
        for column in range(a_numbers.shape[1]):
            gap = np.subtract.outer(a_numbers[a, column], b_numbers[b, column])
            out += np.abs(gap, out=gap)
        return out

    place = _in_tiles(distances, len(a_numbers), len(b_numbers), itself, workers, SMALL_TILE)
    gap = np.abs(a_numbers.astype(np.float64) - b_numbers[place]).sum(axis=1)
    agree = np.einsum("ij,ij->i", a_words, b_words[place])
    return Nearest(place, np.maximum(gap + weight[place] - agree, 0.0))


def _in_tiles(
    distances: Callable[[slice, slice], Single],
    queries: int,
    rows: int,
    itself: bool,
    workers: int | None,
    size: tuple[int, int],
) -> IntArray:
    """The place of the smallest distance for each query, a tile at a time."""
    place = np.zeros(queries, np.int64)
    high, wide = size

    def fill(start: int) -> None:
        a = slice(start, min(start + high, queries))
        best = np.full(a.stop - a.start, np.inf, np.float32)
        for first in range(0, rows, wide):
            tile = distances(a, slice(first, first + wide))
            if itself:
                own = np.arange(max(a.start, first), min(a.stop, first + tile.shape[1]))
                tile[own - a.start, own - first] = np.inf
            winner = tile.argmin(axis=1)
            value = tile[np.arange(len(tile)), winner]
            better = value < best
            best[better] = value[better]
            place[a][better] = winner[better] + first

    with _libraries().limit(limits=1), ThreadPoolExecutor(workers or cores()) as threads:
        for _ in threads.map(fill, range(0, queries, high)):
            pass
    return place


@cache
def _libraries() -> Any:
    """The libraries whose threads are limited while ours run; to look for them takes longer than a small search."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
