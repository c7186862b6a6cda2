"""A Gaussian copula for mixed tables: every marginal is kept as it is, the dependence is that of a normal vector.

Each column is a monotone function of a latent standard normal variable. The latent correlation of two columns is the
one for which their normal scores have the covariance that the members show. With a_k the Hermite coefficients of a
column's scores, that covariance is Σ a_k b_k ρ^k (Mehler's formula), which is solved for ρ: for continuous columns this
is the normal-scores correlation, for two binary columns the tetrachoric one. A missing value is a state of its own:
each pattern of missing columns has a latent variable too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from dosimeter import _validate as check
from dosimeter._validate import BoolArray, FloatArray, IntArray
from dosimeter.generators.protocol import check_count, joined, require_members, streams
from dosimeter.generators.table import LARGEST_WHOLE, Column, MemberTable, determined, pair_tables, read_table

TERMS = 40
MOST_STEPS = 1 << 20  # grid points between the smallest and the largest value
GRID_ERROR = 0.01  # of a step


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


ROUNDS = 30  # of ordering the words of all columns
BISECTIONS = 30
STRONGEST = 0.9995  # latent correlation
SMALLEST = 1e-6  # eigenvalue
MOST_LEVELS = 64  # of a column that may determine another one
REPEATS = 20


@dataclass(frozen=True)
class GaussianCopula:
    """Generate tables with the members' own marginals and a normal dependence between columns.

    A column that another column determines is derived from it. The fastest generator for tables.

    Args:
        groups: The one-hot blocks, each by the names or places of its columns; "detect" finds contiguous ones.
        categorical: The numeric columns whose order means nothing.
        name: What the page calls it.
        minimum: The fewest members that it can be fitted to.

    >>> table = np.random.default_rng(0).normal(size=(200, 3))
    >>> GaussianCopula().fit(table).sample(5, seed=1).shape
    (5, 3)
    """

    groups: Any = "detect"
    categorical: Sequence[Any] = ()
    name: str = "Gaussian copula"
    minimum: int = 20

    def fit(self, members: Any, *, seed: int = 0) -> FittedCopula:
        """Fit marginals and latent correlations.

        Args:
            members: A table X, or (X, y).
            seed: Checked, and not used: nothing is random here.

        Returns:
            What samples new records.

        Raises:
            InputError: If the members are of another kind or too few.
        """
        check.seed(seed)
        records = require_members(members, kind="tabular", minimum=self.minimum, caller="the Gaussian copula")
        table = read_table(records.X, records.y, groups=self.groups, categorical=self.categorical)
        return _fit(table)


@dataclass(frozen=True, eq=False)
class FittedCopula:
    """Marginals, orders of words, patterns of missing values, latent correlation.

    The latent variables are the kept columns in their order, then the patterns of missing values.
    """

    table: MemberTable
    kept: IntArray
    marginals: tuple[Marginal, ...]
    orders: tuple[IntArray | None, ...]
    derived: dict[int, tuple[int, FloatArray, FloatArray]]
    patterns: tuple[Marginal, ...]
    pattern_of: IntArray
    correlation: FloatArray

    def sample(self, count: int, *, seed: int) -> Any:
        """Sample `count` new records in the form of the members."""
        size = check_count(count)
        (rng,) = streams(seed, 1)
        values, vectors = np.linalg.eigh(self.correlation)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        level = ndtr(rng.standard_normal((size, len(root))) @ root.T)
        made: list[FloatArray] = [np.empty(0)] * len(self.table.columns)
        gone = [pattern.quantile(level[:, self.kept.size + k]) == 1 for k, pattern in enumerate(self.patterns)]
        for latent, (place, part, order) in enumerate(zip(self.kept, self.marginals, self.orders, strict=True)):
            new = part.quantile(level[:, latent])
            new = new if order is None else order[new.astype(np.int64)].astype(np.float64)
            if self.pattern_of[place] >= 0:
                new[gone[self.pattern_of[place]]] = np.nan
            made[place] = new
        for place, (source, keys, images) in self.derived.items():
            made[place] = images[np.searchsorted(keys, np.nan_to_num(made[source], nan=np.inf))]
        return joined(*self.table.form.write(self.table.columns, made))


def _fit(table: MemberTable) -> FittedCopula:
    columns = table.columns
    derived = _derived(columns)
    kept = np.array([place for place in range(len(columns)) if place not in derived], np.int64)
    parts = [columns[place] for place in kept]
    orders = word_orders(parts)
    states, pattern_of = _patterns(columns)
    fixed = {source for source, _, _ in derived.values()}
    loose = [column.levels is None and int(place) not in fixed for column, place in zip(parts, kept, strict=True)]
    marginals, scores, coefficients = _scores(parts, orders, loose)
    patterns = [marginal(state, interpolate=False) for state in states]
    for part, state in zip(patterns, states, strict=True):
        scores = np.column_stack([scores, part.scores()[state.astype(np.int64)]])
        coefficients = np.vstack([coefficients, part.coefficients()])
    latent = latent_correlation(scores, coefficients)
    return FittedCopula(
        table, kept, tuple(marginals), tuple(orders), derived, tuple(patterns), pattern_of, shrunk(latent, table.count)
    )


def word_orders(columns: Sequence[Column]) -> list[IntArray | None]:
    """The words of each column in the order of the main direction of all columns; None for a column of numbers.

    The direction is that of categorical principal components (Gifi 1990): each word stands at the mean of its records,
    each record at the sum of its words and numbers weighted by how much they say; repeated until it settles.
    """
    words = [place for place, column in enumerate(columns) if column.levels is not None]
    orders: list[IntArray | None] = [None] * len(columns)
    if not words:
        return orders
    codes, seen = [], []
    for place in words:
        size = len(columns[place].levels or ())
        codes.append(np.where(columns[place].absent, size, columns[place].values).astype(np.int64))
        seen.append(np.bincount(codes[-1], minlength=size + 1)[:size])
    numeric = [column for column in columns if column.levels is None]
    fixed = np.nan_to_num(_scores(numeric, [None] * len(numeric), [True] * len(numeric))[1]) if numeric else None
    if fixed is not None:
        fixed = np.column_stack([_unit(column) for column in fixed.T])
        along = fixed @ np.linalg.eigh(fixed.T @ fixed)[1][:, -1]
    else:
        along = _unit(np.append(np.log(np.maximum(seen[0], 1)), 0.0)[codes[0]])
    means = [np.zeros(counts.size + 1) for counts in seen]
    for _ in range(ROUNDS):
        along = _unit(along)
        total = np.zeros_like(along) if fixed is None else fixed @ (fixed.T @ along) / along.size
        for k, (code, counts) in enumerate(zip(codes, seen, strict=True)):
            means[k] = np.append(np.bincount(code, along, counts.size + 1)[:-1] / np.maximum(counts, 1), 0.0)
            total += means[k][code]
        along = total
    for place, mean, counts in zip(words, means, seen, strict=True):
        used = np.flatnonzero(counts)
        orders[place] = used[np.argsort(mean[used], kind="stable")]
    return orders


def _unit(values: FloatArray) -> FloatArray:
    """Values with mean 0 and standard deviation 1; constant ones become 0."""
    moved = values - values.mean()
    spread = float(moved.std())
    return moved / spread if spread > 1e-12 else np.zeros_like(moved)


def _ranked(column: Column, order: IntArray | None) -> FloatArray:
    """The values of a column as numbers that have an order."""
    if order is None:
        return column.values
    rank = np.full(len(column.levels or ()) + 1, np.nan)
    rank[order] = np.arange(order.size)
    return rank[np.where(column.absent, len(rank) - 1, column.values).astype(np.int64)]


def _scores(
    columns: Sequence[Column], orders: Sequence[IntArray | None], loose: Sequence[bool]
) -> tuple[list[Marginal], FloatArray, FloatArray]:
    """Marginals, normal scores (n, p) with NaN where a value is missing, and Hermite coefficients (p, terms).

    New values may arise in the columns that are `loose`; one that determines another column keeps to the values seen.
    """
    marginals, scores = [], []
    for column, order, interpolate in zip(columns, orders, loose, strict=True):
        values, absent = _ranked(column, order), column.absent
        part = marginal(values[~absent], interpolate=interpolate)
        score = np.full(values.size, np.nan)
        score[~absent] = part.scores()[np.searchsorted(part.values, values[~absent])]
        marginals.append(part)
        scores.append(score)
    return marginals, np.column_stack(scores), np.stack([part.coefficients() for part in marginals])


def _patterns(columns: Sequence[Column]) -> tuple[list[FloatArray], IntArray]:
    """The distinct patterns of missing values as 0/1 columns, and the pattern of each column (-1: never missing)."""
    absent = np.stack([column.absent for column in columns], axis=1)
    some = np.flatnonzero(absent.any(axis=0))
    pattern_of = np.full(len(columns), -1, np.int64)
    if some.size == 0:
        return [], pattern_of
    distinct, which = np.unique(absent[:, some], axis=1, return_inverse=True)
    pattern_of[some] = which.reshape(-1)
    return [column.astype(np.float64) for column in distinct.T], pattern_of


def _derived(columns: Sequence[Column]) -> dict[int, tuple[int, FloatArray, FloatArray]]:
    """Columns that another column determines: its place, its values (a missing one last, as inf) and their images."""
    coded = [np.unique(column.values, return_inverse=True) for column in columns]  # NaN is one value, the last
    few = [place for place, (levels, _) in enumerate(coded) if levels.size <= MOST_LEVELS]
    if len(few) < 2:
        return {}
    codes = np.stack([coded[place][1].reshape(-1) for place in few], axis=1)
    sizes = np.array([coded[place][0].size for place in few], np.int64)
    tables = pair_tables(codes, sizes)
    derived = {}
    for b, a in determined(tables, repeats=REPEATS).items():
        keys = np.nan_to_num(coded[few[a]][0], nan=np.inf)
        derived[few[b]] = few[a], keys, coded[few[b]][0][tables.of(a, b).argmax(axis=1)]
    return derived


def latent_correlation(scores: FloatArray, coefficients: FloatArray) -> FloatArray:
    """The latent correlations under which scores have the covariances that they show; NaN is a missing score.

    Pairs are compared on the records in which both are there; a pair that never is counts as independent.
    """
    present = ~np.isnan(scores)
    correlation = _pairwise_correlation(np.where(present, scores, 0.0), present)
    spread = np.sqrt((np.where(present, scores, 0.0) ** 2).sum(axis=0) / np.maximum(present.sum(axis=0), 1))
    target = correlation * np.outer(spread, spread)
    rows, columns = np.triu_indices(len(coefficients), 1)
    product = coefficients[rows] * coefficients[columns]
    rho = _solved(product, target[rows, columns])
    latent = np.eye(len(coefficients))
    latent[rows, columns] = latent[columns, rows] = rho
    return latent


def _solved(product: FloatArray, target: FloatArray) -> FloatArray:
    """The ρ with Σ_k product_k ρ^k = target for each row, by bisection; the sum rises with ρ."""
    low, high = np.full(target.size, -STRONGEST), np.full(target.size, STRONGEST)
    factors = product.T.copy()
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        value = np.zeros_like(middle)
        for factor in factors[::-1]:
            value = (value + factor) * middle
        below = value < target
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return np.where(np.abs(product).max(axis=1, initial=0.0) > 0, (low + high) / 2, 0.0)


def _pairwise_correlation(scores: FloatArray, present: BoolArray) -> FloatArray:
    mask = present.astype(np.float64)
    both = mask.T @ mask
    size = np.maximum(both, 1.0)
    sums = scores.T @ mask
    squares = (scores**2).T @ mask
    variance = squares / size - (sums / size) ** 2
    covariance = scores.T @ scores / size - (sums / size) * (sums / size).T
    scale = np.sqrt(np.maximum(variance, 0.0) * np.maximum(variance, 0.0).T)
    sound = (both >= 3) & (scale > 1e-12)
    return np.clip(np.where(sound, covariance / np.where(sound, scale, 1.0), 0.0), -1.0, 1.0)


def shrunk(correlation: FloatArray, count: int) -> FloatArray:
    """A correlation matrix made positive definite.

    First it is drawn to the identity as far as its sampling error asks for (Schäfer and Strimmer 2005), then
    eigenvalues that are too small are raised and the diagonal is set to 1 again.
    """
    off = correlation[~np.eye(len(correlation), dtype=bool)]
    total = float((off**2).sum())
    weight = 1.0 if total == 0 else min(1.0, float(((1 - off**2) ** 2).sum()) / count / total)
    mixed = (1 - weight) * correlation + weight * np.eye(len(correlation))
    values, vectors = np.linalg.eigh(mixed)
    if values[0] >= SMALLEST:
        return mixed
    raised = (vectors * np.maximum(values, SMALLEST)) @ vectors.T
    scale = np.sqrt(np.diag(raised))
    return np.asarray(raised / np.outer(scale, scale))
