"""Counts, means and sums of squares of the signals of shadow models with and without each record.

`sides` makes them in blocks of records; `without_one` takes each model out of its side in closed form, which is what
lets every model be the target once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dosimeter._validate import BoolArray, FloatArray, IntArray
from dosimeter.attacks.signals import Array, blocks

ROUNDING = 16 * float(np.finfo(np.float64).eps)
LOST = 1e-6  # a sum of squares that falls by more than this factor is summed again


class Moments(NamedTuple):
    """Of one side: how many models, their mean, their sum of squared deviations from it; (n,) or (K, n)."""

    models: IntArray
    mean: FloatArray
    squares: FloatArray

    def at(self, part: slice) -> Moments:
        """Those of a block of records."""
        return Moments(self.models[part], self.mean[part], self.squares[part])


def counts(included: BoolArray) -> tuple[IntArray, IntArray]:
    """How many models were trained with and without each record."""
    inside = np.count_nonzero(included, axis=0).astype(np.int64)
    return inside, included.shape[0] - inside


def sides(shadows: Array, included: BoolArray) -> tuple[Moments, Moments]:
    """Moments of every record, with it and without it; a side with no model has mean 0 and squares 0."""
    records = shadows.shape[1]
    found = [Moments(np.empty(records, np.int64), np.empty(records), np.empty(records)) for _ in range(2)]
    for part in blocks(records, shadows.shape[0]):
        for whole, piece in zip(found, block_sides(shadows[:, part], included[:, part]), strict=True):
            for kept, new in zip(whole, piece, strict=True):
                kept[part] = new
    return found[0], found[1]


def block_sides(signals: Array, included: BoolArray) -> tuple[Moments, Moments]:
    """Moments of one block, in two passes around a pivot."""
    pivot = signals[0].astype(np.float64)
    x = np.subtract(signals, pivot, dtype=np.float64)
    weights = included.astype(np.float64)
    inside = _mean(x, weights)
    np.subtract(1.0, weights, out=weights)
    outside = _mean(x, weights)
    x -= np.where(included, inside[1], outside[1])
    x *= x
    outside_squares = np.einsum("kb,kb->b", x, weights)
    np.subtract(1.0, weights, out=weights)
    inside_squares = np.einsum("kb,kb->b", x, weights)
    return (
        Moments(inside[0], inside[1] + pivot, _cleaned(*inside, inside_squares)),
        Moments(outside[0], outside[1] + pivot, _cleaned(*outside, outside_squares)),
    )


def _mean(x: FloatArray, weights: FloatArray) -> tuple[IntArray, FloatArray]:
    count = weights.sum(axis=0).astype(np.int64)
    return count, np.einsum("kb,kb->b", x, weights) / np.maximum(count, 1)


def _cleaned(count: IntArray, mean: FloatArray, squares: FloatArray) -> FloatArray:
    """Squares that are rounding errors of a constant side become 0."""
    return np.where((count <= 1) | (squares <= count * (ROUNDING * mean) ** 2), 0.0, squares)


def without_one(signals: Array, own: BoolArray, side: Moments) -> Moments:
    """Moments (K, B) of one side of a block when model k is left out; `own` says which models are on that side.

    Removing x from n values with mean m leaves the mean m − (x−m)/(n−1) and the squares S − (x−m)² n/(n−1).
    Where little is left of S the difference is all rounding, and the squares are summed again.
    """
    count = side.models - own
    rest = np.maximum(count, 1)
    gap = np.where(own, signals - side.mean, 0.0)
    mean = side.mean - gap / rest
    squares = side.squares - gap * gap * (side.models / rest)
    squares[(count <= 1) | (side.squares == 0)] = 0.0
    lost = own & (count > 1) & (squares < LOST * side.squares)
    if lost.any():
        squares[lost] = _summed_again(signals, own, lost)
    return Moments(count, mean, squares)


def _summed_again(signals: Array, own: BoolArray, lost: BoolArray) -> FloatArray:
    """At most one model of three or more can carry nearly all squares, so there are few such pairs."""
    models, records = np.nonzero(lost)
    weights = own[:, records].astype(np.float64)
    weights[models, np.arange(models.size)] = 0.0
    x = signals[:, records].astype(np.float64)
    x -= x[np.argmax(weights, axis=0), np.arange(models.size)]
    count, mean = _mean(x, weights)
    return _cleaned(count, mean, np.einsum("kb,kb->b", (x - mean) ** 2, weights))
