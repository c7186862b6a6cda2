"""Cell counts: how many published rows share a record's cell in tables of one, two and three columns.

Generators that fit tables of counts copy no row, but a record that was in adds about one row to each of its cells.
Bins and words come from all audited records. Which tables are looked at is drawn from the seed of the audit.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np
import numpy.typing as npt

from dosimeter._validate import IntArray
from dosimeter.audits.synthetic.rows import Column, Numbers, Rows, Words

BINS = 12  # of a column with more numbers than FEW
FEW = 24
MOST_WORDS = 64  # rarer ones are one cell
TABLES = {1: 200, 2: 120, 3: 60}  # at most so many of each order
DENSE = 1 << 20  # cells that are counted in an array


@dataclass(frozen=True, eq=False)
class Cells:
    """The bins of each column, and the columns of each table."""

    edges: tuple[npt.NDArray[np.float64] | None, ...]
    words: tuple[dict[str, int] | None, ...]
    sizes: tuple[int, ...]
    tables: tuple[tuple[int, ...], ...]

    def orders(self) -> IntArray:
        """How many columns each table has."""
        return np.array([len(table) for table in self.tables], np.int64)

    def codes(self, rows: Rows) -> IntArray:
        """The bin of every value, (rows, columns); 0 is a missing value or an unknown word."""
        codes = np.zeros((len(rows), len(self.sizes)), np.int64)
        for place, column in enumerate(rows.columns):
            if self.sizes[place]:
                codes[:, place] = _codes(column, self.edges[place], self.words[place])
        return codes

    def counts(self, published: IntArray, asked: IntArray) -> npt.NDArray[np.float32]:
        """How many published rows lie in the cell of each record asked about, (records, tables)."""
        table_counts = np.empty((len(asked), len(self.tables)), np.float32)
        for place, table in enumerate(self.tables):
            size = int(np.prod([self.sizes[column] for column in table]))
            here, there = self._joint(published, table), self._joint(asked, table)
            if size <= DENSE:
                table_counts[:, place] = np.bincount(here, minlength=size)[there]
            else:
                cells, counts = np.unique(here, return_counts=True)
                at = np.searchsorted(cells, there).clip(0, cells.size - 1)
                table_counts[:, place] = np.where(cells[at] == there, counts[at], 0)
        return table_counts

    def _joint(self, codes: IntArray, table: tuple[int, ...]) -> IntArray:
        joint = codes[:, table[0]]
        for column in table[1:]:
            joint = joint * self.sizes[column] + codes[:, column]
        return joint


def fit_cells(pool: Rows, seed: int) -> Cells | None:
    """Choose bins and tables; None where the records have no column that can be counted."""
    edges: list[npt.NDArray[np.float64] | None] = []
    words: list[dict[str, int] | None] = []
    sizes: list[int] = []
    for field, column in zip(pool.fields, pool.columns, strict=True):
        edges.append(_edges(column) if isinstance(column, Numbers) else None)
        words.append(_frequent(column) if isinstance(column, Words) and field.kind == "word" else None)
        known = edges[-1].size + 1 if edges[-1] is not None else len(words[-1] or ()) + 1
        sizes.append(0 if field.kind == "text" else known + 1)
    used = [place for place, size in enumerate(sizes) if size]
    if not used or pool.kind != "tabular":
        return None
    rng = np.random.default_rng(np.random.SeedSequence(seed))
    tables = [table for order, most in TABLES.items() for table in _tables(used, order, most, rng)]
    return Cells(tuple(edges), tuple(words), tuple(sizes), tuple(tables))


def _edges(column: Numbers) -> npt.NDArray[np.float64]:
    """Edges of bins between distinct numbers, or at quantiles where there are many."""
    present = column.values[~np.isnan(column.values)]
    distinct = np.unique(present)
    if distinct.size <= FEW:
        return (distinct[1:] + distinct[:-1]) / 2
    return np.unique(np.quantile(present, np.arange(1, BINS) / BINS))


def _frequent(column: Words) -> dict[str, int]:
    seen = np.bincount(column.codes[column.codes >= 0], minlength=len(column.levels))
    order = np.argsort(-seen, kind="stable")[:MOST_WORDS]
    return {column.levels[level]: place for place, level in enumerate(order)}


def _codes(column: Column, edges: npt.NDArray[np.float64] | None, words: dict[str, int] | None) -> IntArray:
    if isinstance(column, Numbers):
        assert edges is not None
        return np.where(np.isnan(column.values), 0, np.searchsorted(edges, column.values, "right") + 1)
    assert words is not None
    rare = len(words) + 1
    place = np.array([words.get(level, rare - 1) + 1 for level in column.levels] + [0], np.int64)
    return place[column.codes]


def _tables(used: list[int], order: int, most: int, rng: np.random.Generator) -> list[tuple[int, ...]]:
    """All tables of an order, or some of them at random."""
    if comb(len(used), order) <= most:
        return list(combinations(used, order))
    tables: set[tuple[int, ...]] = set()
    while len(tables) < most:
        tables.add(tuple(sorted(int(used[i]) for i in rng.choice(len(used), order, replace=False))))
    return sorted(tables)
