"""What the attacks read: signals of targets and shadow models, and who was trained on what. Checked once.

A signal is a number for each record and model that is high for a likely member: the logit-scaled confidence in the
true label, or minus the loss. Matrices are (models, records). They are read in blocks of records and never copied as
a whole, so single precision costs no double.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dosimeter._validate import BoolArray, FloatArray, InputError, IntArray

Array = npt.NDArray[Any]
LARGEST = 1e100  # squares of signals must stay far from the largest float
CELLS = 1 << 17  # numbers of one block: its few temporaries stay in the cache


class Signals(NamedTuple):
    """Checked input: target (T, n), shadows (K, n), included (K, n); `flat` when the target was (n,)."""

    target: Array
    shadows: Array
    included: BoolArray
    flat: bool

    def shaped(self, scores: FloatArray) -> FloatArray:
        """Scores (T, n) in the shape in which the target came."""
        return scores[0] if self.flat else scores


def read_signals(target: Any, shadows: Any, included: Any) -> Signals:
    """Check the three arrays of an attack with shadow models against each other."""
    signals, mask = read_shadows(shadows, included, "shadows")
    aims = matrix("target", target)
    if aims.shape[-1] != signals.shape[1]:
        raise InputError(
            f"target has {aims.shape[-1]} records but shadows has {signals.shape[1]}; pass the same records in both."
        )
    return Signals(np.atleast_2d(aims), signals, mask, aims.ndim == 1)


def read_shadows(outputs: Any, included: Any, name: str = "outputs") -> tuple[Array, BoolArray]:
    """Signals (K, n) of many models with the mask of who was trained on what."""
    signals = matrix(name, outputs, dimensions=(2,))
    mask = _mask(included)
    if mask.shape != signals.shape:
        raise InputError(
            f"included has shape {mask.shape} but {name} has {signals.shape}; both must be (models, records)."
        )
    return signals, mask


def matrix(name: str, values: Any, dimensions: tuple[int, ...] = (1, 2)) -> Array:
    """Finite numbers in their own precision; names the first entry that is not."""
    try:
        array = np.asarray(values)
    except (ValueError, TypeError, OverflowError):
        raise InputError(f"{name} must be an array of numbers; its rows have mixed lengths.") from None
    if array.dtype.kind not in "iuf":
        raise InputError(f"{name} must hold numbers, got an array of type {array.dtype}; convert it to float first.")
    if array.ndim not in dimensions:
        shapes = " or ".join({1: "(records,)", 2: "(models, records)"}[size] for size in dimensions)
        raise InputError(f"{name} must have shape {shapes}, got {array.shape}; reshape it.")
    if array.size == 0:
        raise InputError(f"{name} is empty, of shape {array.shape}; pass at least one model and one record.")
    if np.ma.is_masked(values):
        index = tuple(int(i) for i in np.argwhere(np.ma.getmaskarray(values))[0])
        raise InputError(f"{name}{list(index)} is masked; remove the masked records first.")
    with np.errstate(invalid="ignore"):
        peak = max(float(array.max()), -float(array.min()))
    if not peak <= LARGEST:
        _refuse(name, array)
    return array


def _refuse(name: str, array: Array) -> None:
    with np.errstate(invalid="ignore"):
        bad = ~(np.abs(array) <= LARGEST)
    index = tuple(int(i) for i in np.argwhere(bad)[0])
    place = f"{name}[{', '.join(map(str, index))}]"
    raise InputError(
        f"{place} is {array[index]}, and {int(bad.sum())} of {array.size} values are not finite or beyond "
        f"{LARGEST:g}; repair or remove these records first."
    )


def _mask(included: Any) -> BoolArray:
    try:
        mask = np.asarray(included)
    except (ValueError, TypeError):
        raise InputError("included must be an array of True and False; its rows have mixed lengths.") from None
    if mask.dtype == np.bool_ and not np.ma.is_masked(included):
        return mask
    numbers = matrix("included", included, dimensions=(2,))
    bad = (numbers != 0) & (numbers != 1)
    if bad.any():
        model, record = (int(i) for i in np.argwhere(bad)[0])
        raise InputError(
            f"included[{model}, {record}] is {numbers[model, record]}; included must hold only True and False."
        )
    return numbers.astype(bool)


def labels_of(labels: Any, records: int, name: str = "labels") -> IntArray:
    """Class codes of one label for each record."""
    array = np.asarray(labels)
    if array.shape != (records,):
        raise InputError(f"{name} has shape {array.shape} for {records} records; pass one label for each record.")
    if array.dtype.kind not in "biufUS":
        raise InputError(f"{name} must hold numbers or strings, got type {array.dtype}; encode them first.")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        index = int(np.argmax(~np.isfinite(array)))
        raise InputError(f"{name}[{index}] is {array[index]}; give every record a label.")
    return np.unique(array, return_inverse=True)[1].astype(np.int64)


def table(name: str, values: Any, columns: int | None = None) -> FloatArray:
    """Features (records, columns) as float64; one column may come flat."""
    array = matrix(name, values).astype(np.float64, copy=False)
    array = array[:, None] if array.ndim == 1 else array
    if columns is not None and array.shape[1] != columns:
        raise InputError(f"{name} has {array.shape[1]} columns, expected {columns}; pass the same features everywhere.")
    return array


def blocks(records: int, models: int) -> Iterator[slice]:
    """Slices of records whose matrices of all models hold about `CELLS` numbers."""
    width = max(1, CELLS // max(1, models))
    return (slice(start, min(start + width, records)) for start in range(0, records, width))
