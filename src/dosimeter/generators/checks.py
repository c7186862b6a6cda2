"""Checks of generated records: as many as asked for, of the members' form, no NaN, and how many are copies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dosimeter._validate import BoolArray, InputError, IntArray, show
from dosimeter.datasets.dataset import Array
from dosimeter.generators.protocol import Members, read_members
from dosimeter.generators.table import is_absent


def check_copies(members: Any, generated: Any) -> float:
    """Count the generated records that equal a member in every feature; labels do not count.

    Args:
        members: X or (X, y).
        generated: Records of the same form.

    Returns:
        The share of generated records that are copies.

    Raises:
        InputError: If the records are of another kind, shape or columns than the members.

    >>> check_copies(np.eye(3), np.array([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]]))
    0.5
    """
    return float(copied(members, generated).mean())


def copied(members: Any, generated: Any) -> BoolArray:
    """Mark the generated records that equal a member in every feature; white space in texts does not count.

    Args:
        members: X or (X, y).
        generated: Records of the same form.

    Returns:
        True for each generated record that is a copy.

    Raises:
        InputError: If the records are of another kind, shape or columns than the members.

    >>> copied(["a cat", "a dog"], ["a  cat", "a bird"]).tolist()
    [True, False]
    """
    first, second = _alike(members, generated)
    if first.kind == "text":
        known = {" ".join(str(text).split()) for text in first.X}
        return np.array([" ".join(str(text).split()) in known for text in second.X], bool)
    codes = np.concatenate([_columns(first.X), _columns(second.X)]) if first.kind == "image" else _codes(first, second)
    rows = np.ascontiguousarray(codes)
    keys = rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1])))[:, 0]
    return np.isin(keys[first.size :], keys[: first.size])


def same_shape(members: Any, generated: Any, *, count: int | None = None, missing: bool = True) -> None:
    """Refuse generated records that do not have the form of the members.

    Args:
        members: X or (X, y).
        generated: The records to check.
        count: The fewest records there must be; None for any number.
        missing: Whether a value may be missing (NaN, None) where the same column of the members has missing ones.

    Returns:
        Nothing, where they have it.

    Raises:
        InputError: If they are of another kind, shape or columns, too few, or not finite numbers.

    >>> same_shape(np.eye(3), np.zeros((2, 3)), count=3)
    Traceback (most recent call last):
        ...
    dosimeter._validate.InputError: the generator gave 2 records and 3 are needed; generate more.
    """
    first, second = _alike(members, generated)
    if count is not None and second.size < count:
        raise InputError(f"the generator gave {second.size} records and {count} are needed; generate more.")
    if (first.y is None) != (second.y is None):
        has = "labels" if first.y is not None else "no labels"
        raise InputError(f"members has {has} and the generated records do not match; generate pairs (X, y) likewise.")
    if first.kind == "text":
        bad = next((i for i, text in enumerate(second.X) if not isinstance(text, str)), None)
        if bad is not None:
            raise InputError(f"generated[{bad}] is {show(second.X[bad])}, not a text; generate strings.")
        return
    for (name, old), (_, new) in zip(_named(first.X), _named(second.X), strict=True):
        if old.dtype.kind in "biuf" and new.dtype.kind not in "biuf":
            raise InputError(
                f"generated column {name} has type {new.dtype}, the members' {old.dtype}; generate numbers."
            )
        if new.dtype.kind in "biuf" and old.dtype.kind not in "biuf" and any(isinstance(v, str) for v in old):
            raise InputError(f"generated column {name} has type {new.dtype}, the members' holds texts; generate texts.")
        if new.dtype.kind == "f":
            allowed = missing and old.dtype.kind == "f" and bool(np.isnan(old).any())
            bad_values = np.isinf(new) if allowed else ~np.isfinite(new)
            if bad_values.any():
                row = int(np.argmax(bad_values.reshape(len(new), -1).any(axis=1)))
                raise InputError(f"generated {name} is not a finite number in record {row}; repair the generator.")
        elif new.dtype.kind == "O":
            absent = [at for at, value in enumerate(new) if is_absent(value)]
            if absent and not (missing and any(is_absent(value) for value in old)):
                raise InputError(
                    f"generated column {name} is empty in record {absent[0]}, and the members' never is; repair the "
                    "generator."
                )


def _alike(members: Any, generated: Any) -> tuple[Members, Members]:
    first, second = read_members(members), read_members(generated, name="generated")
    if first.kind != second.kind:
        raise InputError(f"members is {first.kind} and generated is {second.kind}; generate records of the same kind.")
    if first.kind != "text":
        a, b = ([str(name) for name, _ in _named(part.X)] for part in (first, second))
        if a != b:
            raise InputError(f"generated has the columns {show(b, 90)}, members has {show(a, 90)}; make them the same.")
        shapes = [np.shape(part.X)[1:] if first.kind == "image" else () for part in (first, second)]
        if shapes[0] != shapes[1]:
            raise InputError(f"generated has records of shape {shapes[1]}, members of shape {shapes[0]}; resize them.")
    return first, second


def _named(X: Any) -> list[tuple[Any, Array]]:
    """The columns of a table with their names; images are one."""
    if isinstance(X, Mapping):
        return [(name, np.asarray(column)) for name, column in X.items()]
    if hasattr(X, "column_names"):
        return [(name, _arrow(X.column(j))) for j, name in enumerate(X.column_names)]
    if hasattr(X, "iloc"):
        return [(name, X.iloc[:, j].to_numpy()) for j, name in enumerate(X.columns)]
    array = np.asarray(X)
    return [("pixels", array)] if array.ndim > 2 else [(j, array[:, j]) for j in range(array.shape[1])]


def _arrow(column: Any) -> Array:
    return np.asarray(column.to_numpy())


def _columns(images: Any) -> Array:
    """Images as rows of float64; the sign of zero does not count."""
    return np.asarray(images, dtype=np.float64).reshape(len(images), -1) + 0.0


def _codes(first: Members, second: Members) -> IntArray:
    """Rows of codes, equal where the values are equal, over the members and then the generated records."""
    coded = []
    for (_, old), (_, new) in zip(_named(first.X), _named(second.X), strict=True):
        if old.dtype.kind in "biuf" and new.dtype.kind in "biuf":
            wide = np.concatenate([old.astype(np.float64), new.astype(np.float64)])
        else:
            wide = np.array([str(value) for part in (old, new) for value in part])
        coded.append(np.unique(wide, return_inverse=True)[1].reshape(-1))
    return np.stack(coded, axis=1).astype(np.int64)
