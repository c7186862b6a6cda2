"""The distribution of one column, with new values between single ones, and the two-way tables of all pairs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from dosimeter._validate import BoolArray, FloatArray, IntArray

TERMS = 40
MOST_STEPS = 1 << 20  # grid points between the smallest and the largest value
GRID_ERROR = 0.01  # of a step
LARGEST_WHOLE = 2.0**53


@dataclass(frozen=True, eq=False)
class Marginal:
    """Distinct values in order, how often each was seen, and which of them are atoms.

    A value seen more than once is an atom and keeps its share. A single value stands for the interval between the
    midpoints to its neighbours (the first and the last end at themselves), so that new values arise there; on a grid
    (whole numbers, cents) they stay on it.
    """

    values: FloatArray
    counts: IntArray
    atom: BoolArray
    step: float
    decimals: int | None

    @property
    def edges(self) -> FloatArray:
        """The cumulative shares from 0 to 1."""
        edges = np.concatenate([[0.0], np.cumsum(self.counts) / self.counts.sum()])
        edges[-1] = 1.0
        return edges

    def quantile(self, level: FloatArray) -> FloatArray:
        """The value at each level in [0, 1]."""
        edges = self.edges
        cell = np.clip(np.searchsorted(edges, level, side="right") - 1, 0, self.values.size - 1)
        value = self.values[cell]
        loose = np.flatnonzero(~self.atom[cell])
        if loose.size:
            cell, middle = cell[loose], value[loose]
            padded = np.concatenate([self.values[:1], self.values, self.values[-1:]])
            low, high = padded[cell] / 2 + middle / 2, middle / 2 + padded[cell + 2] / 2
            middle = np.where((cell == 0) | (cell == self.values.size - 1), low / 2 + high / 2, middle)
            part = 2 * (level[loose] - edges[cell]) / (edges[cell + 1] - edges[cell])
            new = np.where(part < 1, low + (middle - low) * part, middle + (high - middle) * (part - 1))
            if self.step:
                new = self.values[0] + self.step * np.rint((new - self.values[0]) / self.step)
            value[loose] = new if self.decimals is None else np.round(new, self.decimals)
        return value

    def scores(self) -> FloatArray:
        """E[Z | value] for a standard normal Z whose cells are the values: the normal score of each value."""
        density = _density(_thresholds(self.edges))
        return np.asarray((density[:-1] - density[1:]) / np.diff(self.edges))

    def coefficients(self) -> FloatArray:
        """The score as a function of Z in orthonormal Hermite polynomials of degree 1 to TERMS."""
        cut = _thresholds(self.edges)
        density = _density(cut)
        cut = np.where(np.isfinite(cut), cut, 0.0)
        scores = self.scores()
        coefficients = np.empty(TERMS)
        before, now = np.zeros_like(cut), density.copy()  # h_k(t) φ(t), by the three-term recurrence
        for k in range(1, TERMS + 1):
            coefficients[k - 1] = (scores * (now[:-1] - now[1:])).sum() / np.sqrt(k)
            before, now = now, (cut * now - np.sqrt(k - 1) * before) / np.sqrt(k)
        return coefficients


def _thresholds(edges: FloatArray) -> FloatArray:
    return np.asarray(ndtri(edges))


def _density(z: FloatArray) -> FloatArray:
    return np.asarray(np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi))


def marginal(values: FloatArray, *, interpolate: bool = True) -> Marginal:
    """The marginal of present values; without `interpolate` every value is an atom."""
    distinct, counts = np.unique(values, return_counts=True)
    atom = counts > 1 if interpolate else np.ones(distinct.size, bool)
    step, decimals = (0.0, None) if atom.all() else _grid(distinct)
    return Marginal(distinct, counts, atom, step, decimals)


def _grid(distinct: FloatArray) -> tuple[float, int | None]:
    """The step of the grid that all values lie on and its decimals; 0 when there is no grid coarser than the values."""
    gaps = np.diff(distinct)
    if gaps.size == 0 or np.abs(distinct).max() >= LARGEST_WHOLE:
        return 0.0, None
    if (distinct == np.rint(distinct)).all():
        return float(np.gcd.reduce(gaps.astype(np.int64))), 0
    decimals = next((d for d in range(1, 5) if _decimal(distinct, d)), None)
    if decimals is not None:
        return float(10.0**-decimals), decimals
    with np.errstate(over="ignore"):
        steps = np.rint((distinct[-1] - distinct[0]) / gaps.min())
    if steps > min(MOST_STEPS, 50 * distinct.size):
        return 0.0, None
    step = float((distinct[-1] - distinct[0]) / steps)
    place = (distinct - distinct[0]) / step
    return (step if (np.abs(place - np.rint(place)) < GRID_ERROR).all() else 0.0), None


def _decimal(distinct: FloatArray, decimals: int) -> bool:
    """Whether all values have at most this many decimals, as float64 or as float32 numbers."""
    rounded, single = np.round(distinct, decimals), distinct.astype(np.float32)
    of_single = (single == distinct).all() and (rounded.astype(np.float32) == single).all()
    return bool((rounded == distinct).all() or of_single)


# --- pairs of columns as codes ------------------------------------------------------------------------------

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
