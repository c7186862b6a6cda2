"""A tree of columns (Chow and Liu 1968): each column given its parent is as the members show it.

Columns are cut into bins; the tree is the one with the largest mutual information in all its edges. Sampling goes from
the root down, exactly. Inside a bin a value is drawn from the column's own marginal. A missing value is a bin of its
own, so its share and its dependence on the parent are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dosimeter import _validate as check
from dosimeter._validate import FloatArray, IntArray
from dosimeter.generators.protocol import check_count, joined, require_members, streams
from dosimeter.generators.table import Column, MemberTable, mutual_information, pair_tables, read_table
from dosimeter.generators.tabular import Marginal, bin_edges, marginal

MOST_BINS = 64
CELL = 5  # members that a cell of a two-way table of two binned columns has in the mean


@dataclass(frozen=True, eq=False)
class Binned:
    """A column as codes: the bins' edges as levels of its marginal; the last code is a missing value, if any."""

    marginal: Marginal
    edges: FloatArray
    codes: IntArray
    size: int

    def values(self, codes: IntArray, rng: np.random.Generator) -> FloatArray:
        """A value from each bin."""
        bins = self.edges.size - 1
        inside = np.minimum(codes, bins - 1)
        low, high = self.edges[inside], self.edges[inside + 1]
        level = low + (high - low) * rng.uniform(size=codes.size)
        return np.where(codes < bins, self.marginal.quantile(np.minimum(level, np.nextafter(high, 0.0))), np.nan)


def binned(column: Column, bins: int) -> Binned:
    """A column cut into bins of about equal shares; words and the values of short scales keep a bin each."""
    absent = column.absent
    present = column.values[~absent]
    part = marginal(present, interpolate=column.levels is None)
    edges = bin_edges(part, bins) if column.levels is None else part.edges
    middle = (part.edges[:-1] + part.edges[1:]) / 2
    bin_of_value = np.searchsorted(edges, middle) - 1
    codes = np.full(column.values.size, edges.size - 1, np.int64)
    codes[~absent] = bin_of_value[np.searchsorted(part.values, present)]
    return Binned(part, edges, codes, edges.size - 1 + bool(absent.any()))


def spanning_tree(weights: FloatArray) -> tuple[IntArray, IntArray]:
    """The maximum spanning tree of a full matrix of weights: the nodes from the root down, and the parent of each.

    The root is the node with the largest sum of weights; its parent is -1.
    """
    from scipy.sparse.csgraph import breadth_first_order, minimum_spanning_tree

    root = int(weights.sum(axis=1).argmax())
    cost = weights.max() + 1.0 - weights
    np.fill_diagonal(cost, 0.0)
    order, parent = breadth_first_order(minimum_spanning_tree(cost), root, directed=False)
    parent = np.where(parent < 0, -1, parent)
    return order.astype(np.int64), parent.astype(np.int64)


def cells_for(count: int) -> int:
    """How many bins a numeric column may have so that the cells of a two-way table are not empty."""
    return int(np.clip(np.sqrt(count / CELL), 4, MOST_BINS))


@dataclass(frozen=True)
class TreeModel:
    """Generate tables from a Chow–Liu tree: each column depends on one other column, as the members show it.

    It keeps every two-way table along its edges, so it suits tables with many unordered columns.

    Args:
        bins: The most bins of a numeric column; None chooses by the number of members.
        groups: The one-hot blocks, each by the names or places of its columns; "detect" finds contiguous ones.
        categorical: The numeric columns whose order means nothing.
        name: What the page calls it.
        minimum: The fewest members that it can be fitted to.

    >>> table = np.random.default_rng(0).integers(0, 3, (200, 4))
    >>> TreeModel().fit(table).sample(5, seed=1).shape
    (5, 4)
    """

    bins: int | None = None
    groups: Any = "detect"
    categorical: Sequence[Any] = ()
    name: str = "Chow–Liu tree"
    minimum: int = 50

    def fit(self, members: Any, *, seed: int = 0) -> FittedTree:
        """Choose the tree and count its tables.

        Args:
            members: A table X, or (X, y).
            seed: Checked, and not used: nothing is random here.

        Returns:
            What samples new records.

        Raises:
            InputError: If the members are of another kind or too few.
        """
        check.seed(seed)
        records = require_members(members, kind="tabular", minimum=self.minimum, caller="the tree model")
        table = read_table(records.X, records.y, groups=self.groups, categorical=self.categorical)
        columns, codes = discretised(table, self.bins)
        tables = pair_tables(codes, np.array([column.size for column in columns], np.int64))
        order, parent = spanning_tree(mutual_information(tables))
        return tree_of(table, columns, order, parent, tables.of)


def discretised(table: MemberTable, bins: int | None) -> tuple[tuple[Binned, ...], IntArray]:
    """All columns binned, and their codes (n, p)."""
    most = cells_for(table.count) if bins is None else check.whole("bins", bins, 2, "pass e.g. 32", MOST_BINS * 16)
    columns = tuple(binned(column, most) for column in table.columns)
    return columns, np.stack([column.codes for column in columns], axis=1)


def tree_of(
    table: MemberTable,
    columns: tuple[Binned, ...],
    order: IntArray,
    parent: IntArray,
    counts: Callable[[int, int], FloatArray],
) -> FittedTree:
    """The model of a tree from `counts`, the two-way table of a parent and a child; (a, a) is a diagonal one."""
    root = int(order[0])
    tables = [np.diag(counts(root, root))[None], *(counts(int(parent[node]), int(node)) for node in order[1:])]
    return FittedTree(table, columns, order, parent, tuple(_cumulative(counted) for counted in tables))


def _cumulative(counts: FloatArray) -> FloatArray:
    """Rows of counts as cumulative shares; a row that was never seen is never asked for."""
    total = np.cumsum(counts, axis=1)
    shares = total / np.where(total[:, -1:] > 0, total[:, -1:], 1.0)
    return np.where(total == total[:, -1:], 1.0, shares)


def drawn(cumulative: FloatArray, rows: IntArray, rng: np.random.Generator) -> IntArray:
    """A code from the distribution in each of the given rows."""
    width = cumulative.shape[1]
    flat = (cumulative + np.arange(len(cumulative))[:, None]).reshape(-1)
    place = np.searchsorted(flat, rows + rng.uniform(size=rows.size), side="right")
    return np.minimum(place - rows * width, width - 1).astype(np.int64)


@dataclass(frozen=True, eq=False)
class FittedTree:
    """The tree and the distribution of each column given its parent, in the order of sampling."""

    table: MemberTable
    columns: tuple[Binned, ...]
    order: IntArray
    parent: IntArray
    cumulative: tuple[FloatArray, ...]

    def sample(self, count: int, *, seed: int) -> Any:
        """Sample `count` new records in the form of the members."""
        size = check_count(count)
        walk, fill = streams(seed, 2)
        codes = np.zeros((size, len(self.columns)), np.int64)
        for node, shares in zip(self.order, self.cumulative, strict=True):
            above = codes[:, self.parent[node]] if self.parent[node] >= 0 else np.zeros(size, np.int64)
            codes[:, node] = drawn(shares, above, walk)
        made = [column.values(codes[:, place], fill) for place, column in enumerate(self.columns)]
        return joined(*self.table.form.write(self.table.columns, made))
