"""Columns as codes: bins, two-way tables of all pairs at once, and columns that another one determines."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dosimeter._validate import FloatArray, IntArray
from dosimeter.generators.marginal import Marginal

BLOCK = 1 << 22  # cells of the 0/1 matrix that are held at once


@dataclass(frozen=True, eq=False)
class PairTables:
    """The counts of all pairs of columns: the table of columns a and b starts at row starts[a], column starts[b]."""

    counts: FloatArray
    sizes: IntArray
    starts: IntArray

    def of(self, a: int, b: int) -> FloatArray:
        """The two-way table of columns a and b."""
        rows, columns = self.starts[a], self.starts[b]
        return self.counts[rows : rows + self.sizes[a], columns : columns + self.sizes[b]]


def pair_tables(codes: IntArray, sizes: IntArray) -> PairTables:
    """Two-way tables of all pairs of columns of codes (n, p) as one product of 0/1 matrices."""
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
    width = int(sizes.sum())
    counts = np.zeros((width, width))
    step = max(1, BLOCK // width)
    for begin in range(0, len(codes), step):
        part = codes[begin : begin + step] + starts
        marks = np.zeros((len(part), width), np.float32)
        marks[np.arange(len(part))[:, None], part] = 1
        counts += marks.T @ marks
    return PairTables(counts, sizes, starts)


def mutual_information(tables: PairTables) -> FloatArray:
    """Mutual information of all pairs in nats, less the bias of empty cells (Miller 1955); never below 0."""
    total = tables.counts[: tables.sizes[0], : tables.sizes[0]].sum()
    share = tables.counts / total
    single = np.diag(share)
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(share > 0, share * np.log(share / np.outer(single, single)), 0.0)
    summed = np.add.reduceat(np.add.reduceat(terms, tables.starts, axis=0), tables.starts, axis=1)
    freedom = np.outer(tables.sizes - 1, tables.sizes - 1)
    return np.asarray(np.maximum(summed - freedom / (2 * total), 0.0))


def determined(tables: PairTables, *, repeats: int) -> dict[int, int]:
    """Columns that are a function of another column in every record, each with the column that determines it.

    The determining column must have, in the mean, at least `repeats` records for each of its codes.
    """
    total = tables.counts[: tables.sizes[0], : tables.sizes[0]].sum()
    filled = np.add.reduceat((tables.counts > 0).astype(np.int64), tables.starts, axis=1)
    one = np.minimum.reduceat(filled == 1, tables.starts, axis=0)  # each code of a meets one code of b
    p = tables.sizes.size
    place = np.arange(p)
    finer = (tables.sizes[:, None] > tables.sizes) | (
        (tables.sizes[:, None] == tables.sizes) & (place[:, None] < place)
    )
    able = one & finer & (tables.sizes * repeats <= total)[:, None] & (tables.sizes > 1)
    free = ~able.any(axis=0)
    return {int(b): int(np.argmax(able[:, b] & free)) for b in np.flatnonzero(~free) if (able[:, b] & free).any()}


def bin_edges(marginal: Marginal, bins: int) -> FloatArray:
    """Levels from 0 to 1 that cut a marginal into at most about `bins` bins; a frequent value has a bin of its own."""
    edges = marginal.edges
    if marginal.values.size <= bins:
        return edges
    share = np.diff(edges)
    heavy = np.flatnonzero(share >= 1 / bins)
    own = np.concatenate([edges[heavy], edges[heavy + 1]])
    rest = edges[np.searchsorted(edges, np.arange(1, bins) / bins)]
    return np.unique(np.concatenate([[0.0, 1.0], own, rest]))
