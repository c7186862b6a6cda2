"""A spanning tree of columns whose tables are reconciled by private-PGM (McKenna et al. 2021), through mbi.

The tree is chosen as in `tree`. With `noise` above 0 its one- and two-way tables are perturbed by Gaussian noise of
that many records, and mbi finds the consistent distribution that explains them best. The bins and the tree come from
the members as they are, so the result is smoother than the tree model but has no differential-privacy guarantee.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dosimeter import _validate as check
from dosimeter._validate import FloatArray, IntArray, require
from dosimeter.generators.marginal import PairTables, mutual_information, pair_tables
from dosimeter.generators.protocol import require_members, streams
from dosimeter.generators.table import read_table
from dosimeter.generators.tree import FittedTree, discretised, spanning_tree, tree_of


@dataclass(frozen=True)
class Mst:
    """Generate tables from a maximum spanning tree that mbi estimates; needs the extra `tabular`.

    It has no differential-privacy guarantee, even with noise: bins and tree come from the members as they are.

    Args:
        noise: The standard deviation of the noise in each count, in records.
        bins: The most bins of a numeric column; None chooses by the number of members.
        steps: Steps of mbi's estimation.
        groups: The one-hot blocks, each by the names or places of its columns; "detect" finds contiguous ones.
        categorical: The numeric columns whose order means nothing.
        name: What the page calls it.
        minimum: The fewest members that it can be fitted to.

    >>> Mst(noise=5.0).fit((X, y), seed=0).sample(100, seed=1)  # doctest: +SKIP
    """

    noise: float = 0.0
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
        steps = check.whole("steps", self.steps, 1, "pass e.g. 1000")
        (rng,) = streams(seed, 1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # advice about settings of JAX
            mbi = require("mbi", extra="tabular", caller="dosimeter.generators.Mst")
        records = require_members(members, kind="tabular", minimum=self.minimum, caller="MST")
        table = read_table(records.X, records.y, groups=self.groups, categorical=self.categorical)
        columns, codes = discretised(table, self.bins)
        tables = pair_tables(codes, np.array([column.size for column in columns], np.int64))
        order, parent = spanning_tree(mutual_information(tables))
        model = _estimated(mbi, tables, order, parent, noise, steps, rng)

        def counts(a: int, b: int) -> FloatArray:
            if a == b:
                return np.diag(_table(model, (str(a),)))
            # mbi may turn the axes to the order of its domain
            return _table(model, (str(a), str(b))).reshape(tables.sizes[a], tables.sizes[b])

        return tree_of(table, columns, order, parent, counts)


def _table(model: Any, names: tuple[str, ...]) -> FloatArray:
    factor = model.project(names)
    values = np.maximum(np.asarray(factor.values, dtype=np.float64), 0.0)
    return values if tuple(factor.domain.attributes) == names else values.T


def _estimated(
    mbi: Any, tables: PairTables, order: IntArray, parent: IntArray, noise: float, steps: int, rng: np.random.Generator
) -> Any:
    """The distribution over the tree that explains the noisy tables best."""
    domain = mbi.Domain([str(node) for node in range(tables.sizes.size)], [int(size) for size in tables.sizes])
    singles = [((str(node),), np.diag(tables.of(node, node))) for node in range(tables.sizes.size)]
    pairs = [((str(parent[b]), str(b)), tables.of(int(parent[b]), int(b)).reshape(-1)) for b in order[1:]]
    deviation = max(noise, 1.0)  # weights only: all tables count alike
    seen = [
        mbi.LinearMeasurement(counts + noise * rng.standard_normal(counts.size), names, deviation)
        for names, counts in (*singles, *pairs)
    ]
    total = float(tables.of(0, 0).sum())
    return mbi.estimation.MirrorDescent().estimate(domain, seen, known_total=total, iters=steps)
