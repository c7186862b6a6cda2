"""A spanning tree of columns whose tables are reconciled by private-PGM (McKenna et al. 2021), through mbi.

The tree is chosen as in `tree`. With `noise` above 0 its one- and two-way tables are perturbed by Gaussian noise of
that many records, and mbi finds the consistent distribution that explains them best. The bins and the tree come from
the members as they are, so the result is smoother than the tree model but has no differential-privacy guarantee.

With `epsilon` it is MST as published: the domain (columns, bins, words) comes from `public` rows, and all that is asked
of the members is private. A third of the budget ρ of zero-concentrated differential privacy goes to each of three
stages. (1) Every column is counted, with noise √(3p/2ρ): a record is in one cell of each of the p tables. (2) The p − 1
edges of the tree are drawn one after another by the exponential mechanism, each with parameter e = √(8ρ/3(p − 1)), so
e²/8 of ρ (Cesar and Rogers 2021). The quality of a pair is the L1 distance of its counts from independence at the noisy
shares; a record moves it by at most 1. (3) The chosen pairs are counted with noise √(3(p − 1)/2ρ). What follows uses
these answers alone. ρ is the largest with ρ + 2√(ρ ln 1/δ) ≤ ε (Bun and Steinke 2016, Prop. 1.3); neighbours differ by
one record that is added or removed.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dosimeter import _validate as check
from dosimeter._validate import FloatArray, InputError, IntArray, require
from dosimeter.generators.protocol import Members, require_members, streams
from dosimeter.generators.table import Column, MemberTable, PairTables, mutual_information, pair_tables, read_table
from dosimeter.generators.tree import Binned, FittedTree, discretised, spanning_tree, tree_of


@dataclass(frozen=True)
class Mst:
    """Generate tables from a maximum spanning tree that mbi estimates; needs the extra `tabular`.

    With `epsilon` and `public` it is (ε, δ)-differentially private for records that are added or removed. With `noise`
    alone it is not: bins and tree then come from the members as they are.

    Args:
        noise: The standard deviation of the noise in each count, in records.
        epsilon: The ε that is guaranteed.
        delta: The δ of the guarantee.
        public: Rows in the form of the members, (X, y) or X, that are not members: they decide the columns, the bins
            and the words, which the guarantee does not cover.
        bins: The most bins of a numeric column; None chooses by the number of members.
        steps: Steps of mbi's estimation.
        groups: The one-hot blocks, each by the names or places of its columns; "detect" finds contiguous ones.
        categorical: The numeric columns whose order means nothing.
        name: What the page calls it.
        minimum: The fewest members that it can be fitted to.

    >>> Mst(noise=5.0).fit((X, y), seed=0).sample(100, seed=1)  # doctest: +SKIP
    """

    noise: float = 0.0
    epsilon: float | None = None
    delta: float = 1e-5
    public: Any = None
    bins: int | None = None
    steps: int = 1000
    groups: Any = "detect"
    categorical: Sequence[Any] = ()
    name: str = "MST"
    minimum: int = 50

    def fit(self, members: Any, *, seed: int) -> FittedTree:
        """Choose the tree, add noise to its tables and estimate.

        Args:
            members: A table X, or (X, y).
            seed: Decides the noise.

        Returns:
            What samples new records.

        Raises:
            InputError: If the members are of another kind or too few, or an argument is out of range.
        """
        noise = check.within("noise", self.noise, 0.0, np.inf, "pass a number of records, e.g. 5", include="[)")
        self._check_guarantee()
        steps = check.whole("steps", self.steps, 1, "pass e.g. 1000")
        (rng,) = streams(seed, 1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # advice about settings of JAX
            mbi = require("mbi", extra="tabular", caller="dosimeter.generators.Mst")
        records = require_members(members, kind="tabular", minimum=self.minimum, caller="MST")
        if self.epsilon is not None:
            return self._private(mbi, records, steps, rng)
        table = read_table(records.X, records.y, groups=self.groups, categorical=self.categorical)
        columns, codes = discretised(table, self.bins)
        tables = pair_tables(codes, np.array([column.size for column in columns], np.int64))
        order, parent = spanning_tree(mutual_information(tables))
        pairs = [(int(parent[node]), int(node)) for node in order[1:]]
        exact = [(node,) for node in range(tables.sizes.size)]
        seen = [_counted(tables, at, noise, rng) for at in (*exact, *pairs)]
        model = _estimated(mbi, tables.sizes, seen, float(tables.of(0, 0).sum()), steps)
        return _tree(table, columns, order, parent, model)

    def _check_guarantee(self) -> None:
        if self.epsilon is None:
            if self.public is not None:
                raise InputError("public rows are the domain of a private MST; pass epsilon too, or leave them out.")
            return
        check.within("epsilon", self.epsilon, 0.0, np.inf, "pass e.g. 3", include="()")
        check.within("delta", self.delta, 0.0, 1.0, "pass e.g. 1e-5", include="()")
        if self.public is None:
            raise InputError(
                f"epsilon is {self.epsilon:g}, and bins that come from the members would break it; pass public, rows "
                "of the same form that are not members."
            )
        if self.noise:
            raise InputError(f"noise is {self.noise:g}, but epsilon decides it; pass one of the two.")

    def _private(self, mbi: Any, records: Members, steps: int, rng: np.random.Generator) -> FittedTree:
        """MST on a public domain."""
        assert self.epsilon is not None
        public = require_members(self.public, kind="tabular", minimum=self.minimum, caller="MST's domain")
        domain = read_table(public.X, public.y, groups=self.groups, categorical=self.categorical)
        columns, _ = discretised(domain, self.bins)
        codes = _codes(records, domain, columns)
        sizes = np.array([column.size for column in columns], np.int64)
        tables, third, p = pair_tables(codes, sizes), zcdp(self.epsilon, self.delta) / 3, sizes.size
        if p < 2:
            raise InputError("MST needs at least two columns; pass a table with more, or its labels.")
        single, paired = np.sqrt(p / (2 * third)), np.sqrt((p - 1) / (2 * third))
        seen = [_counted(tables, (node,), single, rng) for node in range(p)]
        total = max(1.0, float(np.mean([one.counts.sum() for one in seen])))
        edges = _edges(tables, [one.counts for one in seen], total, third, rng)
        seen += [_counted(tables, edge, paired, rng) for edge in edges]
        chosen = np.zeros((p, p))
        chosen[tuple(np.transpose(edges))] = 1.0
        order, parent = spanning_tree(chosen + chosen.T)
        return _tree(domain, columns, order, parent, _estimated(mbi, sizes, seen, total, steps))


def zcdp(epsilon: float, delta: float) -> float:
    """The largest ρ with ρ + 2√(ρ ln 1/δ) ≤ ε (Bun and Steinke 2016, Prop. 1.3).

    >>> rho = zcdp(1.0, 1e-5)
    >>> bool(abs(rho + 2 * np.sqrt(rho * np.log(1e5)) - 1.0) < 1e-12)
    True
    """
    log = np.log(1.0 / delta)
    return float((np.sqrt(log + epsilon) - np.sqrt(log)) ** 2)


def _codes(records: Members, domain: MemberTable, columns: tuple[Binned, ...]) -> IntArray:
    """The members in the bins of a public domain: other values go to the nearest, other words to the first."""
    blocks = [column.places for column in domain.columns if len(column.places) > 1]
    unordered = [c.places[0] for c in domain.columns if _is_coded(c) and c.name != "label"]
    table = read_table(records.X, records.y, groups=blocks, categorical=unordered)
    if [c.places for c in table.columns] != [c.places for c in domain.columns]:
        raise InputError("public has other columns than the members; pass rows of the same form.")
    found = []
    for own, column, part in zip(table.columns, domain.columns, columns, strict=True):
        values = own.values
        if column.levels is not None and own.levels is not None:
            place = {level: float(k) for k, level in enumerate(column.levels)}
            known = np.array([place.get(level, 0.0) for level in own.levels])
            values = np.where(own.absent, np.nan, known[np.nan_to_num(values).astype(np.int64)])
        edges, seen = part.marginal.edges, part.marginal.values
        bins = np.searchsorted(part.edges, (edges[:-1] + edges[1:]) / 2) - 1
        nearest = np.searchsorted((seen[:-1] + seen[1:]) / 2, np.nan_to_num(values))
        missing = part.edges.size - 1 if part.size > part.edges.size - 1 else 0
        found.append(np.where(np.isnan(values), missing, bins[nearest]))
    return np.stack(found, axis=1).astype(np.int64)


def _is_coded(column: Column) -> bool:
    """Whether a single column holds numbers whose order means nothing."""
    return len(column.places) == 1 and column.levels is not None and isinstance(column.levels[0], float)


def _edges(
    tables: PairTables, singles: list[FloatArray], total: float, rho: float, rng: np.random.Generator
) -> list[tuple[int, int]]:
    """The edges of a tree, drawn one after another by the exponential mechanism."""
    count = len(singles)
    shares = [np.maximum(one, 0.0) / max(float(np.maximum(one, 0.0).sum()), 1e-9) for one in singles]
    pairs = [(a, b) for a in range(count) for b in range(a + 1, count)]
    quality = np.array([np.abs(tables.of(a, b) - total * np.outer(shares[a], shares[b])).sum() for a, b in pairs])
    each = np.sqrt(8.0 * rho / (count - 1))
    group, edges = np.arange(count), []
    for _ in range(count - 1):
        open_ = [k for k, (a, b) in enumerate(pairs) if group[a] != group[b]]
        # The largest of e·q/2 with Gumbel noise is a draw in proportion to exp(e·q/2); a record moves q by at most 1.
        a, b = pairs[open_[int(np.argmax(quality[open_] * each / 2 + rng.gumbel(size=len(open_))))]]
        group[group == group[b]] = group[a]
        edges.append((a, b))
    return edges


def _tree(table: MemberTable, columns: tuple[Binned, ...], order: IntArray, parent: IntArray, model: Any) -> FittedTree:
    def counts(a: int, b: int) -> FloatArray:
        if a == b:
            return np.diag(_table(model, (str(a),)))
        # mbi may turn the axes to the order of its domain
        return _table(model, (str(a), str(b))).reshape(columns[a].size, columns[b].size)

    return tree_of(table, columns, order, parent, counts)


def _table(model: Any, names: tuple[str, ...]) -> FloatArray:
    factor = model.project(names)
    values = np.maximum(np.asarray(factor.values, dtype=np.float64), 0.0)
    return values if tuple(factor.domain.attributes) == names else values.T


@dataclass(frozen=True, eq=False)
class CountedTable:
    """The noisy counts of one column or of a pair."""

    places: tuple[int, ...]
    counts: FloatArray
    noise: float


def _counted(tables: PairTables, places: tuple[int, ...], noise: float, rng: np.random.Generator) -> CountedTable:
    """Count one column or a pair, with Gaussian noise in each cell."""
    exact = np.diag(tables.of(places[0], places[0])) if len(places) == 1 else tables.of(*places).reshape(-1)
    return CountedTable(places, exact + noise * rng.standard_normal(exact.size), noise)


def _estimated(mbi: Any, sizes: IntArray, seen: Sequence[CountedTable], total: float, steps: int) -> Any:
    """The distribution over the tree that explains the noisy tables best."""
    domain = mbi.Domain([str(node) for node in range(sizes.size)], [int(size) for size in sizes])
    told = [
        mbi.LinearMeasurement(one.counts, tuple(map(str, one.places)), max(float(one.noise), 1.0))  # weights only
        for one in seen
    ]
    return mbi.estimation.MirrorDescent().estimate(domain, told, known_total=total, iters=steps)
