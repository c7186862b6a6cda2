"""The generators of the comparison: rows copied, blended, or drawn from fitted tables, copulas and networks.

Each is a function (records, seed) → rows that learns everything from the records it is given, except for MST, whose
domain is public: it comes from rows of the file that no audit touches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dosimeter.generators import GaussianCopula, TreeModel

DELTA = 1e-5


def publish(records: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Publish the records as they are."""
    return records


def bootstrap(records: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Draw as many rows as there are, with replacement: a copier."""
    rng = np.random.default_rng(seed)
    return records.iloc[rng.integers(len(records), size=len(records))].reset_index(drop=True)


def smote(records: pd.DataFrame, seed: int, neighbours: int = 5) -> pd.DataFrame:
    """Blend a row with one of its nearest neighbours: numbers between both, each word from one of them."""
    from sklearn.neighbors import NearestNeighbors

    rng = np.random.default_rng(seed)
    numbers, points = records.select_dtypes("number"), _points(records)
    near = NearestNeighbors(n_neighbors=neighbours + 1).fit(points).kneighbors(points, return_distance=False)
    first = rng.integers(len(records), size=len(records))
    second = near[first, rng.integers(1, neighbours + 1, size=len(records))]
    share = rng.random(len(records))
    made = records.iloc[first].reset_index(drop=True)
    other = records.iloc[second].reset_index(drop=True)
    for name in records.columns:
        if name in numbers.columns:
            blended = made[name] + share * (other[name] - made[name])
            whole = records[name].dtype.kind in "iu"
            made[name] = np.rint(blended).astype(records[name].dtype) if whole else blended
        else:
            made[name] = np.where(rng.random(len(records)) < 0.5, made[name], other[name])
    return made


def _points(records: pd.DataFrame) -> Any:
    """Numbers in standard deviations, words one apart."""
    numbers = records.select_dtypes("number")
    scaled = (numbers - numbers.mean()) / numbers.std().replace(0, 1)
    words = records.drop(columns=numbers.columns)
    if not words.shape[1]:
        return scaled.to_numpy(float)
    return np.concatenate([scaled.to_numpy(float), pd.get_dummies(words).to_numpy(float) / np.sqrt(2)], axis=1)


def independent(records: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Draw every column on its own."""
    rng = np.random.default_rng(seed)
    columns = {n: records[n].to_numpy()[rng.integers(len(records), size=len(records))] for n in records.columns}
    return pd.DataFrame(columns)


def averaged(records: pd.DataFrame, seed: int, together: int = 3) -> pd.DataFrame:
    """Put records in groups of neighbours: the mean of their numbers, for each word that of one of them."""
    rng = np.random.default_rng(seed)
    points, left, rows = _points(records), rng.permutation(len(records)), []
    while len(left) >= together:
        near = np.argpartition(((points[left] - points[left[0]]) ** 2).sum(axis=1), together - 1)[:together]
        rows.append(left[near])
        left = np.delete(left, near)
    made = {}
    for name in records.columns:
        values = records[name].to_numpy()[np.array(rows)]
        if records[name].dtype.kind in "iuf":
            mean = values.mean(axis=1)
            made[name] = np.rint(mean).astype(records[name].dtype) if records[name].dtype.kind in "iu" else mean
        else:
            made[name] = values[np.arange(len(rows)), rng.integers(together, size=len(rows))]
    return pd.DataFrame(made)


@dataclass(frozen=True)
class NoisyColumns:
    """Counts of every column with Laplace noise, from which rows are drawn: ε-private by construction.

    The domain is public, and so is the number of published rows. A record moves one count of each column by one.
    """

    public: pd.DataFrame
    epsilon: float
    rows: int
    bins: int = 12

    def __call__(self, records: pd.DataFrame, seed: int) -> pd.DataFrame:
        """Measure and draw, a column at a time."""
        rng = np.random.default_rng(seed)
        made = {}
        for name in records.columns:
            part = _Coded(self.public[name], self.bins)
            counts = np.bincount(part.codes(records[name]), minlength=part.size)
            noisy = np.maximum(counts + rng.laplace(scale=len(records.columns) / self.epsilon, size=part.size), 1e-9)
            made[name] = part.values(rng.choice(part.size, self.rows, p=noisy / noisy.sum()), rng)
        return pd.DataFrame(made)


@dataclass(frozen=True)
class Unrelated:
    """A generator that never sees its records: rows of a table of its own."""

    rows: pd.DataFrame

    def __call__(self, records: pd.DataFrame, seed: int) -> pd.DataFrame:
        """As many rows as there are records, whoever they are."""
        rng = np.random.default_rng(seed)
        return self.rows.iloc[rng.integers(len(self.rows), size=len(self.rows) // 2)].reset_index(drop=True)


@dataclass(frozen=True)
class CopulasPackage:
    """GaussianMultivariate of the package copulas, which takes numbers alone: words become codes, and back."""

    rows: int

    def __call__(self, records: pd.DataFrame, seed: int) -> pd.DataFrame:
        """Fit with Gaussian marginals (its search over families takes minutes) and sample."""
        from copulas.multivariate import GaussianMultivariate
        from copulas.univariate import GaussianUnivariate

        levels = {n: sorted(records[n].unique()) for n in records.columns if records[n].dtype.kind not in "iuf"}
        coded = records.copy()
        rng = np.random.default_rng(seed)
        for name, words in levels.items():
            codes = {word: place for place, word in enumerate(words)}
            coded[name] = records[name].map(codes).astype(float) + rng.random(len(records))
        model = GaussianMultivariate(distribution=GaussianUnivariate, random_state=seed % 2**32)
        model.fit(coded.astype(float))
        made = model.sample(self.rows)
        for name in records.columns:
            if name in levels:
                place = np.floor(made[name]).clip(0, len(levels[name]) - 1).astype(int)
                made[name] = np.array(levels[name], object)[place]
            elif records[name].dtype.kind in "iu":
                made[name] = np.rint(made[name]).astype(records[name].dtype)
        return made[records.columns]


@dataclass(frozen=True)
class Mst:
    """MST (McKenna, Miklau and Sheldon 2021) on a public domain, by mbi; ε = ∞ is the same without noise.

    A third of the budget measures every column, a third chooses the edges of the tree by the exponential mechanism, a
    third measures the chosen pairs. The number of records is measured too: add/remove neighbours differ in it.
    """

    public: pd.DataFrame
    epsilon: float
    rows: int
    bins: int = 12
    steps: int = 1500  # 150 were too few: pairs of columns came out nearly independent

    def __call__(self, records: pd.DataFrame, seed: int) -> pd.DataFrame:
        """Measure, estimate, sample."""
        import mbi

        rng = np.random.default_rng(seed)
        domain = [_Coded(self.public[name], self.bins) for name in records.columns]
        codes = np.stack([part.codes(records[n]) for part, n in zip(domain, records.columns, strict=True)], axis=1)
        sizes = [part.size for part in domain]
        private = np.isfinite(self.epsilon)
        rho = zcdp(self.epsilon, DELTA) / 3 if private else np.inf
        noise = np.sqrt(len(sizes) / (2 * rho)) if private else 0.0  # adding a record moves each count table by 1
        seen: list[tuple[tuple[int, ...], Any, float]] = []
        for place, size in enumerate(sizes):
            counts = np.bincount(codes[:, place], minlength=size) + noise * rng.standard_normal(size)
            seen.append(((place,), counts, max(noise, 1.0)))
        total = max(1.0, float(np.mean([counts.sum() for _, counts, _ in seen])))
        shares = [np.maximum(counts, 0) / max(np.maximum(counts, 0).sum(), 1e-9) for _, counts, _ in seen]
        edges = _tree(codes, sizes, shares, total, rho if private else None, rng)
        noise = np.sqrt(len(edges) / (2 * rho)) if private else 0.0
        for a, b in edges:
            size = sizes[a] * sizes[b]
            counts = np.bincount(codes[:, a] * sizes[b] + codes[:, b], minlength=size) + noise * rng.standard_normal(
                size
            )
            seen.append(((a, b), counts, max(noise, 1.0)))
        names = mbi.Domain([str(place) for place in range(len(sizes))], sizes)
        measured = [mbi.LinearMeasurement(c, tuple(map(str, at)), float(s)) for at, c, s in seen]
        model = mbi.estimation.MirrorDescent().estimate(names, measured, known_total=total, iters=self.steps)
        made = _sampled(model, edges, sizes, self.rows, rng)
        return pd.DataFrame(
            {
                n: part.values(made[:, place], rng)
                for place, (part, n) in enumerate(zip(domain, records.columns, strict=True))
            }
        )


def zcdp(epsilon: float, delta: float) -> float:
    """The largest ρ with ρ + 2√(ρ ln 1/δ) ≤ ε (Bun and Steinke 2016, Prop. 1.3)."""
    log = np.log(1 / delta)
    return float((np.sqrt(log + epsilon) - np.sqrt(log)) ** 2)


class _Coded:
    """One column of a public domain: words, or bins between public quantiles."""

    def __init__(self, public: pd.Series, bins: int) -> None:
        self.words = None if public.dtype.kind in "iuf" else {w: i for i, w in enumerate(sorted(public.unique()))}
        self.whole = public.dtype.kind in "iu"
        if self.words is None:
            distinct = np.unique(public)
            few = distinct.size <= bins
            self.edges = distinct if few else np.unique(np.quantile(public, np.linspace(0, 1, bins + 1)))
            self.few = few
        self.size = (
            len(self.words) if self.words is not None else (len(self.edges) if self.few else len(self.edges) - 1)
        )

    def codes(self, values: pd.Series) -> Any:
        if self.words is not None:
            return values.map(self.words).fillna(0).to_numpy(int)
        if self.few:
            return np.abs(values.to_numpy(float)[:, None] - self.edges).argmin(axis=1)
        return np.searchsorted(self.edges[1:-1], values.to_numpy(float), "right")

    def values(self, codes: Any, rng: np.random.Generator) -> Any:
        if self.words is not None:
            return np.array(list(self.words), object)[codes]
        if self.few:
            made = self.edges[codes]
        else:
            made = self.edges[codes] + rng.random(len(codes)) * (self.edges[codes + 1] - self.edges[codes])
        return np.rint(made).astype(int) if self.whole else made


def _tree(
    codes: Any, sizes: list[int], shares: list[Any], total: float, rho: float | None, rng: np.random.Generator
) -> list[tuple[int, int]]:
    """Edges of a spanning tree, one after the other: by the distance of a pair's counts from independence."""
    count = len(sizes)
    weights = np.zeros((count, count))
    for a in range(count):
        for b in range(a + 1, count):
            joint = np.bincount(codes[:, a] * sizes[b] + codes[:, b], minlength=sizes[a] * sizes[b])
            weights[a, b] = np.abs(joint - total * np.outer(shares[a], shares[b]).ravel()).sum()
    group = np.arange(count)
    edges = []
    each = None if rho is None else np.sqrt(8 * rho / max(count - 1, 1))  # exponential mechanism: ε²/8 of zCDP a choice
    for _ in range(count - 1):
        open_ = [(a, b) for a in range(count) for b in range(a + 1, count) if group[a] != group[b]]
        values = np.array([weights[edge] for edge in open_])
        if each is None:
            chosen = open_[int(values.argmax())]
        else:
            noisy = values * each / 2 + rng.gumbel(size=len(open_))  # sensitivity 1
            chosen = open_[int(noisy.argmax())]
        group[group == group[chosen[1]]] = group[chosen[0]]
        edges.append(chosen)
    return edges


def _sampled(model: Any, edges: list[tuple[int, int]], sizes: list[int], rows: int, rng: np.random.Generator) -> Any:
    """Rows from the tree of an estimated model, from its first column down."""
    made = np.zeros((rows, len(sizes)), int)
    first = _table(model, (0,))
    made[:, 0] = rng.choice(sizes[0], rows, p=first / first.sum())
    done, left = {0}, list(edges)
    while left:
        a, b = next(e for e in left if (e[0] in done) != (e[1] in done))
        left.remove((a, b))
        known, new = (a, b) if a in done else (b, a)
        joint = _table(model, (a, b)).reshape(sizes[a], sizes[b])
        joint = joint if known == a else joint.T
        rows_of = joint / np.maximum(joint.sum(axis=1, keepdims=True), 1e-12)
        limits = rows_of.cumsum(axis=1)[made[:, known]]
        made[:, new] = (rng.random((rows, 1)) > limits / np.maximum(limits[:, -1:], 1e-12)).sum(axis=1)
        done.add(new)
    return made.clip(0, np.array(sizes) - 1)


def _table(model: Any, places: tuple[int, ...]) -> Any:
    names = tuple(map(str, places))
    factor = model.project(names)
    values = np.maximum(np.asarray(factor.values, float), 0.0)
    return values if tuple(factor.domain.attributes) == names else values.T


def of_name(name: str, public: pd.DataFrame, rows: int) -> tuple[Callable[..., Any] | Any, float | None]:
    """A generator by name, and the ε that it states."""
    if name.startswith("MST"):
        epsilon = float(name.split("=")[1].replace("∞", "inf"))
        return Mst(public, epsilon, rows), epsilon
    if name.startswith("CTGAN"):
        from ctgan import CTGAN

        return CTGAN(epochs=int(name.split()[1]), enable_gpu=False), None
    known = {
        "publishes its records": publish,
        "bootstrap (copies rows)": bootstrap,
        "SMOTE (neighbours blended)": smote,
        "Gaussian copula": GaussianCopula(),
        "Chow–Liu tree": TreeModel(),
        "independent columns": independent,
        "copulas (package)": CopulasPackage(rows),
        "never saw the members": Unrelated(public),
    }
    return known[name], None
