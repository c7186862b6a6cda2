"""(X, y) taken apart: records alone or with labels, as arrays of numbers, with labels of two kinds."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dosimeter import _validate as check
from dosimeter._validate import InputError
from dosimeter.records.forms import Array, fetched


def parted(name: str, data: Any, remedy: str = "pass X or (X, y)") -> tuple[Any, Any]:
    """X and y of a tuple (X, y), or X and None of anything that is not a tuple."""
    if not isinstance(data, tuple):
        return data, None
    if len(data) != 2:
        raise InputError(f"{name} as a tuple must be (X, y), got {len(data)} parts; {remedy}.")
    return data


def pair(name: str, data: Any, remedy: str) -> tuple[Any, Any]:
    """X and y of a pair (X, y), or of a `Dataset` of this package."""
    found = getattr(data, "pair", data)
    if not isinstance(found, (tuple, list)) or len(found) != 2:
        raise InputError(f"{name} must be a pair (X, y), got {check.show(data)}; {remedy}.")
    return found[0], found[1]


def array(name: str, values: Any) -> Array:
    """Any values as an array, if their lengths are alike."""
    try:
        return np.asarray(values)
    except ValueError:  # NumPy's answer to rows of mixed lengths
        raise InputError(f"{name} holds rows of mixed lengths, got {check.show(values)}; make them alike.") from None


def numbers(name: str, values: Any) -> Array:
    """An array of finite numbers with at least one row."""
    found = array(name, values)
    if found.dtype.kind not in "biuf" or found.ndim == 0 or found.size == 0:
        raise InputError(
            f"{name} must be an array of numbers, got type {found.dtype} and shape {found.shape}; pass a row for each "
            "record, with categories as numbers."
        )
    if found.dtype.kind == "f" and not np.isfinite(found).all():
        raise InputError(f"{name} holds values that are infinite or NaN; remove or repair these records first.")
    return found


def class_numbers(name: str, values: Any, count: int) -> npt.NDArray[np.int64]:
    """Whole class numbers from 0, one for each record."""
    remedy = "number them by numpy.unique(…, return_inverse=True)[1]"
    y = array(name, values)
    if y.dtype.kind in "USO" and y.size:
        raise InputError(f"{name} must hold the classes as numbers, got {check.show(y.flat[0])}; {remedy}.")
    y = numbers(name, y)
    if y.shape != (count,):
        raise InputError(
            f"{name} must hold one label for each record, got shape {y.shape} for {count} records; pass shape "
            f"({count},)."
        )
    whole = y.astype(np.int64)
    if (wrong := (whole != y) | (whole < 0)).any():
        raise InputError(
            f"{name} must hold the classes as whole numbers from 0, got {check.show(y[wrong][0])}; {remedy}."
        )
    return whole


def class_codes(
    name: str, values: Any, count: int, names: tuple[str, ...] | None = None
) -> tuple[npt.NDArray[np.int64], tuple[str, ...] | None]:
    """Class numbers from 0 and the names that they stand for: words are numbered in the order of the alphabet.

    Without words the names are None. `names` are those of other records, which these must share.
    """
    words = array(name, values)
    if words.ndim == 2 and words.shape[1] == 1:
        words = words[:, 0]
    if words.dtype.kind not in "UTO":
        return class_numbers(name, words, count), None
    texts = labels(words, count)
    if texts.dtype.kind != "U":
        return class_numbers(name, texts, count), None
    known = tuple(np.unique(texts).tolist()) if names is None else names
    place = np.searchsorted(known, texts).clip(0, len(known) - 1)
    strange = np.asarray(known)[place] != texts
    if strange.any():
        raise InputError(
            f"{name} holds {check.show(str(texts[strange][0]))}, which is not a class of the data "
            f"({check.show(list(known), 90)}); remove these records or correct the labels."
        )
    return place.astype(np.int64), known


def targets(y: Any, records: int | None = None) -> Array:
    """What a model predicts: labels as `labels` gives them, numbers (float64), or 0 and 1 for each of several labels.

    Whole numbers are labels; what else they may be is for the model to decide.
    """
    raw = None if y is None else array("labels", fetched(y))
    if raw is not None and raw.ndim == 2 and raw.shape[1] > 1:
        return _several_labels(raw, records)
    if raw is not None and raw.dtype.kind == "f" and raw.size and np.isfinite(raw).all():
        flat = raw[:, 0] if raw.ndim == 2 else raw
        if flat.ndim == 1 and (flat != np.floor(flat)).any():
            if records is not None and flat.size != records:
                raise InputError(f"there are {flat.size} labels but {records} records; they must pair up.")
            return flat.astype(np.float64)
    return labels(y, records)


def _several_labels(raw: Array, records: int | None) -> Array:
    if records is not None and len(raw) != records:
        raise InputError(f"there are {len(raw)} rows of labels but {records} records; they must pair up.")
    if raw.dtype.kind not in "biuf" or not np.isin(raw, (0, 1)).all():
        raise InputError(
            f"labels have shape {raw.shape}; pass one label for each record, or 0 and 1 for each of several labels."
        )
    if (raw.sum(axis=1) == 1).all():
        raise InputError(
            f"labels have shape {raw.shape} with a single 1 in each row, not one column per class; pass one label for "
            "each record: y.argmax(axis=1)."
        )
    return raw.astype(np.int64)


def labels(y: Any, records: int | None = None) -> Array:
    """Labels as a flat array of whole numbers (int64) or strings."""
    if y is None:
        raise InputError("labels are missing; pass y with one label for each record.")
    try:
        raw = np.asarray(fetched(y))
    except (ValueError, TypeError, OverflowError):
        raise InputError("labels have rows of mixed lengths; pass one label for each record.") from None
    if raw.ndim == 2 and raw.shape[1] == 1:
        raw = raw[:, 0]
    if raw.ndim != 1:
        raise InputError(f"labels have shape {raw.shape}; pass one label for each record, not one column per class.")
    if records is not None and raw.size != records:
        raise InputError(f"there are {raw.size} labels but {records} records; they must pair up.")
    if raw.dtype.kind == "O":
        if all(isinstance(value, str) for value in raw):
            return raw.astype(str)
        try:
            raw = raw.astype(np.float64)
        except (TypeError, ValueError, OverflowError):
            raise InputError("labels mix types or hold empty cells; use whole numbers, or strings alone.") from None
    if raw.dtype.kind in "UT":
        return raw.astype(str)
    array = check.finite_array("labels", raw)
    good = (array == np.floor(array)) & (np.abs(array) < 2.0**62)
    if not good.all():
        index = int(np.argmin(good))
        raise InputError(f"labels[{index}] is {array[index]:g}; labels must be whole numbers or strings.")
    return raw.astype(np.int64)
