"""Records that are changed a little at random: numbers by noise on the scale of their column, categories redrawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dosimeter._validate import BoolArray, FloatArray, InputError
from dosimeter.records import Array

__all__ = ["Perturbation"]

SMALLEST, LARGEST = 0.02, 1.0  # noise in standard deviations of a column, from the first copy to the last
REDRAWN = 0.5  # the share of categories that are drawn again in the last copy; in others less, as the noise is
FEW = 10  # distinct whole numbers that are taken as categories


@dataclass(frozen=True, eq=False)
class _Column:
    """One column of a table: its values to draw from, or the scale and range of its numbers."""

    values: Any
    scale: float | None
    low: float = 0.0
    high: float = 0.0
    whole: bool = False


@dataclass(frozen=True, eq=False)
class Perturbation:
    """How records are perturbed, as all records together say; who is a member plays no part.

    The copies of a record become less and less like it. The same numbers perturb the same records for every model, so
    that answers of different models can be compared.
    """

    columns: tuple[_Column, ...]
    seed: int
    table: bool = True

    @classmethod
    def of(cls, X: Any, seed: int) -> Perturbation:
        """Learn the scales of columns, or of arrays as a whole.

        Raises:
            InputError: If the records are texts, tokens or a sparse matrix.
        """
        if hasattr(X, "iloc"):
            return cls(tuple(_frame_column(X[name]) for name in X.columns), seed)
        if not isinstance(X, np.ndarray) or X.dtype.kind not in "biuf":
            raise InputError(
                "labels alone tell members by perturbed records, and only tables and arrays of numbers can be "
                "perturbed; pass X as an array or a data frame, or queries=1."
            )
        if X.ndim == 2:
            return cls(tuple(_column(X[:, j]) for j in range(X.shape[1])), seed)
        return cls((_column(X.reshape(-1), categories=False),), seed, table=False)

    def copy(self, X: Any, number: int, copies: int) -> Any:
        """The `number`-th perturbed copy of the records."""
        level = SMALLEST * (LARGEST / SMALLEST) ** (number / max(copies - 1, 1))
        rng = np.random.default_rng(np.random.SeedSequence([self.seed, 31, number]))
        if hasattr(X, "iloc"):
            changed = [_frame_perturbed(X[n], c, level, rng) for n, c in zip(X.columns, self.columns, strict=True)]
            return X.assign(**dict(zip(X.columns, changed, strict=True)))
        if X.ndim != 2:
            return _perturbed(X, self.columns[0], level, rng)
        made = np.empty_like(X)
        for j, column in enumerate(self.columns):
            made[:, j] = _perturbed(X[:, j], column, level, rng)
        return made


def _column(values: Array, *, categories: bool = True) -> _Column:
    known = values[~np.isnan(values)] if values.dtype.kind == "f" else values
    whole = known.dtype.kind in "biu" or bool((known == np.floor(known)).all())
    if categories and whole and np.unique(known[:100_000]).size <= FEW:
        return _Column(values, None)
    numbers = known.astype(np.float64)
    return _Column(None, float(numbers.std()), float(numbers.min()), float(numbers.max()), whole)


def _perturbed(values: Array, column: _Column, level: float, rng: np.random.Generator) -> Array:
    if column.scale is None:
        return np.where(_redrawn(values, level, rng), rng.choice(column.values, values.shape), values)
    return _noisy(values.astype(np.float64), column, level, rng).astype(values.dtype)


def _noisy(values: FloatArray, column: _Column, level: float, rng: np.random.Generator) -> FloatArray:
    assert column.scale is not None
    moved = (values + level * column.scale * rng.standard_normal(values.shape)).clip(column.low, column.high)
    return np.round(moved) if column.whole else moved


def _redrawn(values: Any, level: float, rng: np.random.Generator) -> BoolArray:
    redrawn: BoolArray = rng.random(len(values)) < level * REDRAWN
    return redrawn


def _frame_column(series: Any) -> _Column:
    from pandas.api import types

    if types.is_numeric_dtype(series.dtype) and not types.is_bool_dtype(series.dtype):
        found = _column(series.to_numpy(dtype=np.float64, na_value=np.nan))
        if found.scale is not None:
            return found
    return _Column(series.array, None)


def _frame_perturbed(series: Any, column: _Column, level: float, rng: np.random.Generator) -> Any:
    import pandas

    if column.scale is None:
        made = series.array.copy()
        redrawn = _redrawn(made, level, rng)
        made[redrawn] = column.values.take(rng.integers(len(column.values), size=int(redrawn.sum())))
        return pandas.Series(made, index=series.index)
    moved = _noisy(series.to_numpy(dtype=np.float64, na_value=np.nan), column, level, rng)
    return pandas.Series(moved, index=series.index).astype(series.dtype)
