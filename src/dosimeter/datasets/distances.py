"""Distances between records, a block of pairs at a time.

Each class prepares two sets of records once and gives blocks of *keys*: numbers that order pairs as the distance does
and that `distance` turns into distances. Where few values occur in a column, a matrix product counts differences
exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from dosimeter import _validate as check
from dosimeter._validate import FloatArray, InputError

Array = npt.NDArray[Any]
Function = Callable[[Array, Array], Any]

SSIM = {"negative-ssim-8x8": "8x8", "negative-ssim-gaussian": "gaussian"}
DISTANCES = ("hamming", "manhattan", "euclidean", "cosine", *SSIM)
FEW_VALUES = 16  # columns with so many values at most are compared by matrix products
_SAMPLE = 24  # records on which a user's function is tried
_EXACT_IN_SINGLE = 2.0**24
_CLOSE = 1e-5  # share of the squared norms below which a squared distance is computed again without cancellation
_ROWS_AT_ONCE = 1 << 16
_IMAGES_AT_ONCE = 64  # so many products fit into a core's cache


class Pairs(Protocol):
    """Two prepared sets of records."""

    name: str

    def block(self, rows: slice, columns: slice) -> Array:
        """Keys of the pairs (rows of the first set, rows of the second)."""
        ...

    def distance(self, keys: Array) -> FloatArray:
        """Distances from keys."""
        ...


def name_of(distance: Any) -> str:
    """The full name of a distance; "negative-ssim" is the one with 8×8 windows."""
    if callable(distance):
        return str(getattr(distance, "__name__", "function"))
    if distance == "negative-ssim":
        return "negative-ssim-8x8"
    return check.choice("distance", distance, DISTANCES)


def prepare(distance: Any, first: Array, second: Array, *, data_range: float | None = None, refine: bool) -> Pairs:
    """The named distance, or the user's function, between two checked sets of records.

    `refine` asks for close pairs to be computed to full relative accuracy.
    """
    name = name_of(distance)
    if callable(distance):
        return FunctionPairs(distance, name, first, second)
    if name in SSIM:
        return SsimPairs(name, first, second, data_range)
    if name == "hamming":
        return HammingPairs(first, second)
    if name == "manhattan":
        return ManhattanPairs(first, second)
    return SquaredPairs(name, first, second, refine)


# --- few values in a column: products ---------------------------------------------------------------------


def _few_and_many(first: Array, second: Array) -> tuple[list[tuple[int, Array]], list[int]]:
    """Columns with few distinct values over both sets, with these values, and the other columns."""
    few, many = [], []
    for column in range(first.shape[1]):
        values = np.unique(np.concatenate([np.unique(first[:, column]), np.unique(second[:, column])]))
        if values.size == 1:
            continue
        if values.size <= FEW_VALUES:
            few.append((column, values))
        else:
            many.append(column)
    return few, many


class _Products:
    """Differences as `constant` − left·right, plus `extra` on the columns with many values."""

    def __init__(self, left: list[Array], right: list[Array], constant: float, exact: bool) -> None:
        kind = np.float32 if exact else np.float64
        self.constant = constant
        self.left: Any = np.concatenate(left, axis=1).astype(kind) if left else None
        self.right: Any = np.concatenate(right, axis=1).astype(kind) if right else None

    def block(self, rows: slice, columns: slice, shape: tuple[int, int]) -> Array:
        if self.left is None:
            return np.zeros(shape)
        product: Array = self.left[rows] @ self.right[columns].T
        np.subtract(self.constant, product, out=product)
        return product


class HammingPairs:
    """The number of columns in which two records differ."""

    name = "hamming"

    def __init__(self, first: Array, second: Array) -> None:
        few, many = _few_and_many(first, second)
        left: list[Array] = []
        right: list[Array] = []
        constant = 0.0
        for column, values in few:
            a, b = first[:, [column]] == values, second[:, [column]] == values
            if values.size == 2:  # one column of ±1 does for both values: differing = ½ − ½·ab
                left.append(a[:, :1] - 0.5)
                right.append(2.0 * b[:, :1] - 1)
                constant += 0.5
            else:
                left.append(a)
                right.append(b)
                constant += 1.0
        self.products = _Products(left, right, constant, exact=True)
        self.many = (np.ascontiguousarray(first[:, many]), np.ascontiguousarray(second[:, many]))

    def block(self, rows: slice, columns: slice) -> Array:
        a, b = self.many[0][rows], self.many[1][columns]
        keys = self.products.block(rows, columns, (len(a), len(b)))
        if a.shape[1]:
            keys += _cdist(a, b, "hamming") * a.shape[1]
        return keys

    def distance(self, keys: Array) -> FloatArray:
        return np.rint(np.asarray(keys, np.float64))


class ManhattanPairs:
    """Σ |a − b|; a column with few values is the sum of its gaps, each either crossed or not."""

    name = "manhattan"

    def __init__(self, first: Array, second: Array) -> None:
        few, many = _few_and_many(first, second)
        left, right, gaps = [], [], []
        for column, values in few:
            step = np.diff(values)
            left.append(np.where(first[:, [column]] > values[:-1], step / 2, -step / 2))
            right.append(np.where(second[:, [column]] > values[:-1], 1.0, -1.0))
            gaps.append(step)
        widths = np.concatenate(gaps) if gaps else np.zeros(0)
        exact = bool((widths == np.rint(widths)).all() and widths.sum() < _EXACT_IN_SINGLE / 2)
        self.products = _Products(left, right, float(widths.sum()) / 2, exact)
        self.many = (np.ascontiguousarray(first[:, many]), np.ascontiguousarray(second[:, many]))

    def block(self, rows: slice, columns: slice) -> Array:
        a, b = self.many[0][rows], self.many[1][columns]
        keys = self.products.block(rows, columns, (len(a), len(b)))
        return keys + _cdist(a, b, "cityblock") if a.shape[1] else keys

    def distance(self, keys: Array) -> FloatArray:
        return np.maximum(np.asarray(keys, np.float64), 0.0)


def _cdist(a: Array, b: Array, metric: Any) -> FloatArray:
    from scipy.spatial.distance import cdist

    found: FloatArray = cdist(a, b, metric)
    return found


# --- squared differences ----------------------------------------------------------------------------------


class SquaredPairs:
    """Euclidean distances through their squares; cosine distances as half the squares between `unit_rows`."""

    def __init__(self, name: str, first: Array, second: Array, refine: bool) -> None:
        self.name = name
        whole = name == "euclidean" and _whole(first) and _whole(second)
        if name == "euclidean" and not whole:  # the origin in the middle keeps cancellation small
            middle = (first.mean(axis=0) + second.mean(axis=0)) / 2
            first, second = first - middle, second - middle
        largest = max(float(np.abs(first).max()), float(np.abs(second).max()))
        self.exact = whole and largest**2 * first.shape[1] < _EXACT_IN_SINGLE / 4
        kind = np.float32 if self.exact else np.float64
        self.first: Any = first.astype(kind, copy=False)
        self.second: Any = second.astype(kind, copy=False)
        self.squares = tuple(np.einsum("nd,nd->n", side, side) for side in (self.first, self.second))
        self.refine = refine and not self.exact

    def block(self, rows: slice, columns: slice) -> Array:
        a, b = self.first[rows], self.second[columns]
        keys: Array = a @ b.T
        keys *= -2
        keys += self.squares[0][rows, None]
        keys += self.squares[1][columns]
        np.maximum(keys, 0, out=keys)
        if self.refine:
            scale = float(self.squares[0][rows].max() + self.squares[1][columns].max())
            i, j = np.nonzero(keys <= _CLOSE * scale)
            for start in range(0, i.size, _ROWS_AT_ONCE):
                near = slice(start, start + _ROWS_AT_ONCE)
                keys[i[near], j[near]] = np.square(a[i[near]] - b[j[near]]).sum(axis=1)
        return keys

    def distance(self, keys: Array) -> FloatArray:
        values = np.asarray(keys, np.float64)
        return values / 2 if self.name == "cosine" else np.sqrt(values)


def _whole(values: Array) -> bool:
    return bool((values == np.rint(values)).all())


def unit_rows(name: str, records: Array) -> FloatArray:
    """Records scaled to length 1; a record of zeros has no direction and is refused."""
    largest = np.abs(records).max(axis=1, keepdims=True)
    if not largest.all():
        row = int(np.argmin(largest[:, 0]))
        raise InputError(
            f"row {row} of {name} is all zeros, so it has no cosine distance; leave it out or take another distance."
        )
    scaled = records / largest
    unit: FloatArray = scaled / np.sqrt(np.einsum("nd,nd->n", scaled, scaled))[:, None]
    return unit


# --- structural similarity --------------------------------------------------------------------------------


class SsimPairs:
    """−SSIM of grey images (Wang, Bovik, Sheikh, Simoncelli 2004, Eq. 13), mean over all windows inside the image.

    Windows are "8x8" (uniform) or "gaussian" (11×11, deviation 1.5); K₁ = 0.01, K₂ = 0.03 and L is `data_range`, by
    default the span of all values given.
    """

    def __init__(self, name: str, first: Array, second: Array, data_range: float | None) -> None:
        self.name = name
        weights = _window(SSIM[name])
        for side in first.shape[1:]:
            if side < weights.size:
                raise InputError(
                    f"images of shape {first.shape[1:]} are smaller than the window of {name}, {weights.size} pixels; "
                    "take larger images or another distance."
                )
        if data_range is None:
            data_range = float(max(first.max(), second.max()) - min(first.min(), second.min())) or 1.0
        self.constants = ((0.01 * data_range) ** 2, (0.03 * data_range) ** 2)
        self.down, self.across = (_filter(weights, side) for side in first.shape[1:])
        # pixels first and images last: filters are then products of large matrices
        self.first = np.ascontiguousarray(np.moveaxis(first, 0, -1))
        self.second = np.ascontiguousarray(np.moveaxis(second, 0, -1))
        self.moments = tuple(self._moments(side) for side in (self.first, self.second))

    def _filtered(self, images: Array) -> Array:
        height, width, count = images.shape
        tall = (self.down @ images.reshape(height, width * count)).reshape(-1, width, count)
        filtered: Array = self.across @ tall
        return filtered

    def _moments(self, images: Array) -> tuple[Array, Array]:
        mean = self._filtered(images)
        return mean, self._filtered(images * images) - mean * mean

    def block(self, rows: slice, columns: slice) -> Array:
        keys = np.empty((rows.stop - rows.start, columns.stop - columns.start))
        for start in range(columns.start, columns.stop, _IMAGES_AT_ONCE):
            some = slice(start, min(start + _IMAGES_AT_ONCE, columns.stop))
            self._fill(keys[:, some.start - columns.start : some.stop - columns.start], rows, some)
        return keys

    def _fill(self, keys: Array, rows: slice, columns: slice) -> None:
        """Each image of `rows` against a few others, in buffers that stay in the cache."""
        small, large = self.constants
        images = np.ascontiguousarray(self.second[..., columns])
        height, width, count = images.shape
        mean, variance = (np.ascontiguousarray(moment[..., columns]) for moment in self.moments[1])
        double, squares, variance = 2 * mean, mean * mean + small, variance + large
        products, tall = np.empty_like(images), np.empty((mean.shape[0], width * count))
        covariance, luminance, scale = np.empty_like(mean), np.empty_like(mean), np.empty_like(mean)
        weights = np.full(mean.shape[0] * mean.shape[1], -1.0 / (mean.shape[0] * mean.shape[1]))
        for place, row in enumerate(range(rows.start, rows.stop)):
            own_mean, own_variance = (moment[..., row, None] for moment in self.moments[0])
            np.multiply(self.first[..., row, None], images, out=products)
            np.matmul(self.down, products.reshape(height, width * count), out=tall)
            np.matmul(self.across, tall.reshape(-1, width, count), out=covariance)
            covariance *= 2
            np.multiply(own_mean, double, out=luminance)
            covariance -= luminance
            covariance += large
            luminance += small
            covariance *= luminance
            np.add(squares, own_mean * own_mean, out=luminance)
            np.add(variance, own_variance, out=scale)
            luminance *= scale
            covariance /= luminance
            np.matmul(weights, covariance.reshape(-1, count), out=keys[place])

    def distance(self, keys: Array) -> FloatArray:
        return np.asarray(keys, np.float64)


def _window(name: str) -> FloatArray:
    """Weights of the window along one side; the window is their product."""
    if name == "8x8":
        return np.full(8, 1 / 8)
    weights: FloatArray = np.exp(-((np.arange(11.0) - 5) ** 2) / (2 * 1.5**2))
    return weights / weights.sum()


def _filter(weights: FloatArray, side: int) -> FloatArray:
    """(places, pixels): the weighted mean at every place of the window along one side."""
    places = side - weights.size + 1
    matrix = np.zeros((places, side))
    for offset, weight in enumerate(weights):
        matrix[np.arange(places), np.arange(places) + offset] = weight
    return matrix


# --- a user's function ------------------------------------------------------------------------------------


class FunctionPairs:
    """f(A, B) that returns the distances (len A, len B); tried for symmetry on a sample of the records."""

    def __init__(self, function: Function, name: str, first: Array, second: Array) -> None:
        self.function, self.name, self.first, self.second = function, name, first, second
        a, b = (side[np.unique(np.linspace(0, len(side) - 1, _SAMPLE).astype(int))] for side in (first, second))
        there, back = self._call(a, b), self._call(b, a).T
        wrong = ~np.isclose(there, back, rtol=1e-6, atol=1e-9)
        if wrong.any():
            i, j = np.argwhere(wrong)[0]
            raise InputError(
                f"distance {name} is not symmetric: {there[i, j]:.6g} one way and {back[i, j]:.6g} the other for a "
                "sampled pair of records; pass a symmetric function."
            )

    def _call(self, a: Array, b: Array) -> FloatArray:
        try:
            found = np.asarray(self.function(a, b))
        except Exception as error:
            raise InputError(f"distance {self.name} failed on {len(a)} × {len(b)} records: {error!r}.") from error
        if found.shape != (len(a), len(b)) or found.dtype.kind not in "biuf":
            raise InputError(
                f"distance {self.name} returned shape {found.shape} of {found.dtype} for {len(a)} and {len(b)} records;"
                f" it must return numbers of shape ({len(a)}, {len(b)})."
            )
        if not np.isfinite(found).all():
            raise InputError(f"distance {self.name} returned a value that is not finite; repair the function.")
        return found.astype(np.float64, copy=False)

    def block(self, rows: slice, columns: slice) -> Array:
        return self._call(self.first[rows], self.second[columns])

    def distance(self, keys: Array) -> FloatArray:
        return np.asarray(keys, np.float64)
