"""Utility beside privacy: how like the members the release is, column by column, pair by pair, and for a model."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np

from dosimeter._validate import FloatArray, IntArray
from dosimeter.attacks.stacked import boosted, quiet_fit
from dosimeter.audits.synthetic.cells import fit_cells
from dosimeter.audits.synthetic.result import TrainedOn, UtilityReport
from dosimeter.audits.synthetic.rows import Column, Numbers, Rows, Words

MOST_ROWS = 20_000
MOST_PAIRS = 200
WORST = 5
FEWEST_TESTED = 20
MOST_CLASSES = 50


def utility(
    pool: Rows, fitted: IntArray, tested: IntArray, release: Rows, target: int | None, seed: int
) -> UtilityReport:
    """Compare the release with the records that it was fitted to; models are tested on records that were not."""
    rng = np.random.default_rng(np.random.SeedSequence([seed, 21]))
    real = pool.take(_some(fitted, rng))
    made = release.take(_some(np.arange(len(release)), rng))
    if pool.kind != "tabular":
        return UtilityReport()
    shapes = [_shape(a, b) for a, b in zip(real.columns, made.columns, strict=True)]
    named = sorted(zip((f.name for f in pool.fields), shapes, strict=True), key=lambda pair: pair[1])
    return UtilityReport(
        shapes=float(np.mean(shapes)),
        trends=_trends(real, made, rng),
        worst=tuple((name, float(value)) for name, value in named[:WORST]),
        trained=None if target is None else _trained(pool, real, made, tested, target, rng),
    )


def _some(rows: IntArray, rng: np.random.Generator) -> IntArray:
    return rows if rows.size <= MOST_ROWS else np.sort(rng.choice(rows, MOST_ROWS, replace=False))


def _shape(real: Column, made: Column) -> float:
    """1 − the Kolmogorov–Smirnov distance of numbers, or 1 − the total variation of words; missing ones count."""
    if isinstance(real, Words) and isinstance(made, Words):
        names = {level: place for place, level in enumerate(dict.fromkeys((*real.levels, *made.levels)))}
        shares = [
            np.bincount(
                np.array([*(names[level] for level in c.levels), len(names)])[c.codes], minlength=len(names) + 1
            )
            / len(c.codes)
            for c in (real, made)
        ]
        return float(1 - np.abs(shares[0] - shares[1]).sum() / 2)
    assert isinstance(real, Numbers) and isinstance(made, Numbers)
    a, b = (np.sort(np.where(np.isnan(c.values), np.inf, c.values)) for c in (real, made))
    grid = np.concatenate([a, b])
    gap = np.searchsorted(a, grid, "right") / a.size - np.searchsorted(b, grid, "right") / b.size
    return float(1 - np.abs(gap).max())


def _trends(real: Rows, made: Rows, rng: np.random.Generator) -> float | None:
    """The mean over pairs of columns of 1 − the total variation of their joint cells, beyond chance at so few rows.

    Bins come from the real rows. Two samples of one law differ by chance as well; that is not taken off.
    """
    cells = fit_cells(real, 0)
    if cells is None:
        return None
    used = [place for place, size in enumerate(cells.sizes) if size]
    pairs = list(combinations(used, 2))
    if not pairs:
        return None
    if len(pairs) > MOST_PAIRS:
        pairs = [pairs[i] for i in np.sort(rng.choice(len(pairs), MOST_PAIRS, replace=False))]
    coarse = [_coarse(cells.codes(rows)) for rows in (real, made)]
    trends = []
    for a, b in pairs:
        width = int(max(rows[:, b].max() for rows in coarse)) + 1
        joint = [rows[:, a] * width + rows[:, b] for rows in coarse]
        size = int(max(j.max() for j in joint)) + 1
        shares = [np.bincount(j, minlength=size) / len(j) for j in joint]
        trends.append(1 - np.abs(shares[0] - shares[1]).sum() / 2)
    return float(np.mean(trends))


def _coarse(codes: IntArray) -> IntArray:
    """At most nine cells of each column, so that a pair of columns has few enough cells for a thousand rows."""
    return np.where(codes > 8, 8, codes)


def _trained(
    pool: Rows, real: Rows, made: Rows, tested: IntArray, target: int, rng: np.random.Generator
) -> TrainedOn | None:
    """The success of boosted trees on real records that were never in: trained on the release, or on members."""
    held = pool.take(_some(tested, rng))
    field = pool.fields[target]
    if len(held) < FEWEST_TESTED or field.kind == "text":
        return None
    others = [place for place in range(len(pool.columns)) if place != target]
    if not others:
        return None
    x = {name: _matrix(rows, pool, others) for name, rows in (("held", held), ("made", made), ("real", real))}
    y = {name: _target(rows, pool, target) for name, rows in (("held", held), ("made", made), ("real", real))}
    classes = field.kind == "word" or np.unique(y["real"][~np.isnan(y["real"])]).size <= 2
    if classes and np.unique(y["real"]).size > MOST_CLASSES:
        return None
    scores = {}
    for name in ("made", "real"):
        known = ~np.isnan(y[name])
        scores[name] = _score(x[name][known], y[name][known], x["held"], y["held"], classes=classes)
    measure = "accuracy" if classes else "share of variance explained"
    return TrainedOn(field.name, measure, scores["made"], scores["real"], len(held))


def _score(x: FloatArray, y: FloatArray, held: FloatArray, truth: FloatArray, *, classes: bool) -> float:
    known = ~np.isnan(truth)
    if np.unique(y).size < 2:
        guess: Any = np.full(len(held), y[0] if y.size else np.nan)
    elif classes:
        model = boosted(0, leaves=15, rounds=60)
        quiet_fit(model, x, y)
        guess = model.predict(held)
    else:
        from sklearn.ensemble import HistGradientBoostingRegressor

        trees = HistGradientBoostingRegressor(max_iter=60, max_leaf_nodes=15, early_stopping=False, random_state=0)
        quiet_fit(trees, x, y)
        guess = trees.predict(held)
    if classes:
        return float((guess[known] == truth[known]).mean())
    spread = float(((truth[known] - truth[known].mean()) ** 2).mean())
    return float(1 - ((guess[known] - truth[known]) ** 2).mean() / spread) if spread > 0 else 0.0


def _matrix(rows: Rows, pool: Rows, columns: list[int]) -> FloatArray:
    return np.stack([_target(rows, pool, place) for place in columns], axis=1)


def _target(rows: Rows, pool: Rows, place: int) -> FloatArray:
    """A column as numbers: words by their place among all records, NaN for a word that these lack."""
    column, all_of_them = rows.columns[place], pool.columns[place]
    if isinstance(column, Numbers):
        return column.values
    assert isinstance(all_of_them, Words)
    known = {level: float(code) for code, level in enumerate(all_of_them.levels)}
    return np.array([*(known.get(level, np.nan) for level in column.levels), np.nan])[column.codes]
