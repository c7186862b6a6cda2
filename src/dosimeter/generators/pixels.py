"""Images as rows of numbers, and a map that gives generated images the members' distribution in every pixel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dosimeter._validate import FloatArray, InputError, IntArray
from dosimeter.datasets.dataset import Array
from dosimeter.generators.protocol import Members

KNOTS = 257
SMALLEST_CLASS = 10
CHANNELS = (1, 3, 4)

Float32Array = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Images:
    """Images as rows (n, d), the form of one image, and its type; `classes` has the distinct labels."""

    rows: Array
    shape: tuple[int, ...]
    dtype: Any
    classes: Array
    codes: IntArray
    labelled: bool

    def write(self, rows: FloatArray, codes: IntArray) -> Any:
        """Images, or images and labels, in the form they came in."""
        whole = np.dtype(self.dtype).kind in "biu"
        images = (np.rint(rows) if whole else rows).astype(self.dtype).reshape(-1, *self.shape)
        return (images, self.classes[codes]) if self.labelled else images


def channels_last(X: Any) -> Array:
    """Images as (n, h, w, c), whether their channels came last, first or not at all."""
    array = np.asarray(X)
    if array.ndim == 3:
        return array[..., None]
    return np.moveaxis(array, 1, -1) if array.shape[1] in CHANNELS and array.shape[3] not in CHANNELS else array


def read_images(members: Members) -> Images:
    """Images as rows; every class must have enough of them."""
    array = np.asarray(members.X)
    if array.dtype.kind not in "biuf" or 0 in array.shape:
        raise InputError(f"members must hold pixel values, got type {array.dtype} and shape {array.shape}.")
    rows = array.reshape(len(array), -1)
    if rows.dtype.kind == "f" and not np.isfinite(rows).all():
        row = int(np.argmin(np.isfinite(rows).all(axis=1)))
        raise InputError(f"image {row} has a value that is not finite; repair or remove these images first.")
    labelled = members.y is not None
    classes, codes = np.unique(members.y if labelled else np.zeros(len(rows)), return_inverse=True)
    counts = np.bincount(codes)
    if labelled and counts.min() < SMALLEST_CLASS:
        few = classes[counts.argmin()]
        raise InputError(
            f"class {few} has {counts.min()} members and needs {SMALLEST_CLASS}; pass more, or images without labels."
        )
    return Images(rows, array.shape[1:], array.dtype, classes, codes.reshape(-1), labelled)


@dataclass(frozen=True, eq=False)
class PixelMap:
    """For every pixel, quantiles of what a model generates and of what the members have there, at the same levels."""

    model: Float32Array
    members: Array

    def __call__(self, rows: FloatArray) -> FloatArray:
        """Rows with each pixel moved to the members' value of the same rank; the order within a pixel stays."""
        mapped = np.empty_like(rows)
        last = len(self.members) - 1
        places = np.arange(last + 1.0)
        for pixel in range(rows.shape[1]):
            target = self.members[:, pixel]
            if target[0] == target[-1]:
                mapped[:, pixel] = target[0]
                continue
            place = np.interp(rows[:, pixel], self.model[:, pixel], places)
            mapped[:, pixel] = target[np.rint(place).astype(np.int64)]
        return mapped


def pixel_map(members: Array, generated: FloatArray) -> PixelMap:
    """The map from rows that a model generated to the distribution of the members; only values seen are used."""
    knots = min(KNOTS, len(members))
    levels = np.linspace(0.0, 1.0, knots)
    own = np.sort(members, axis=0)[np.rint(levels * (len(members) - 1)).astype(np.int64)]
    model = np.sort(generated, axis=0)[np.rint(levels * (len(generated) - 1)).astype(np.int64)]
    return PixelMap(model.astype(np.float32), own)
