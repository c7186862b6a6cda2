"""The distribution of one column: repeated values keep their frequency, single values are interpolated."""

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
