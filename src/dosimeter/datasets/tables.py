"""Tables: categories as one column each, numbers scaled to [0, 1] by ranges that are written down here.

Categories and ranges are those of the published data, constants of the code: nothing is learnt from the rows at hand,
so an encoded record says nothing about the others, and any part of the data is encoded like the whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from dosimeter._validate import InputError, show
from dosimeter.datasets import _raw_files
from dosimeter.datasets._raw_files import MEGA

Array: TypeAlias = npt.NDArray[Any]
LIMIT = 64 * MEGA


class Contents(NamedTuple):
    """What a file holds, after the preprocessing."""

    X: Array
    y: Array | None
    feature_names: tuple[str, ...]
    class_names: tuple[str, ...]
    raw: dict[str, Array] | None


@dataclass(frozen=True)
class Schema:
    """The columns of a table in their order: a (low, high) range for a number, or the categories.

    `label` is the label's column with the value that stands for each class; `missing` marks an unknown value, and a
    row that has it is left out.
    """

    columns: Mapping[str, tuple[float, float] | tuple[str, ...]]
    label: str
    classes: Mapping[str, str]
    missing: str | None = None


def encode(table: Mapping[str, Sequence[str]], schema: Schema, path: Path) -> Contents:
    """The encoded records of a table of texts."""
    wanted = (*schema.columns, schema.label)
    absent = [name for name in wanted if name not in table]
    if absent:
        raise InputError(f"{path} has no column {absent[0]}; it has {show(', '.join(table), 120)}.")
    cells = {name: np.asarray(values, dtype=str) for name, values in table.items()}
    rows = len(cells[schema.label])
    kept = np.ones(rows, bool)
    if schema.missing is not None:
        for name in wanted:
            kept &= cells[name] != schema.missing
    if not kept.any():
        raise InputError(f"{path} has no complete row; get it again.")
    lines = np.flatnonzero(kept)
    raw = {name: values[kept] for name, values in cells.items()}
    parts: list[Array] = []
    names: list[str] = []
    for name, kind in schema.columns.items():
        numeric = isinstance(kind[0], (int, float))
        parts.append((_scaled if numeric else _dummies)(raw[name], name, kind, lines, path))
        names += [name] if numeric else [f"{name}={category}" for category in kind]
    codes = tuple(schema.classes)
    y = np.argmax(_dummies(raw[schema.label], schema.label, codes, lines, path), axis=1).astype(np.int64)
    return Contents(np.hstack(parts), y, tuple(names), tuple(schema.classes.values()), raw)


def _scaled(values: Array, name: str, kind: Any, lines: Array, path: Path) -> Array:
    low, high = kind
    try:
        numbers = values.astype(np.float64)
    except ValueError:
        numbers = np.array([_number(value) for value in values])
    with np.errstate(invalid="ignore"):
        bad = ~((numbers >= low) & (numbers <= high))
    if bad.any():
        at = int(np.argmax(bad))
        raise InputError(
            f"{path}: record {lines[at]}, column {name} is {show(str(values[at]))}, not a number from {low:g} to "
            f"{high:g}; get the file again."
        )
    return ((numbers - low) / (high - low)).astype(np.float32)[:, None]


def _number(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        return float("nan")


def _dummies(values: Array, name: str, kind: Any, lines: Array, path: Path) -> Array:
    columns = values[:, None] == np.asarray(kind, dtype=str)[None, :]
    known = columns.any(axis=1)
    if not known.all():
        at = int(np.argmin(known))
        raise InputError(
            f"{path}: record {lines[at]}, column {name} is {show(str(values[at]))}, none of its {len(kind)} known "
            "values; get the file again."
        )
    return columns.astype(np.float32)


def columns_of(rows: Sequence[Sequence[str]], names: Sequence[str], path: Path) -> dict[str, list[str]]:
    """Rows of equal length as columns."""
    for number, row in enumerate(rows):
        if len(row) != len(names):
            raise InputError(
                f"{path}: record {number} has {len(row)} columns and not {len(names)}; get the file again."
            )
    if not rows:
        raise InputError(f"{path} has no record; get the file again.")
    return {name: list(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}


def read_csv(path: Path) -> dict[str, list[str]]:
    """The columns of a .csv.gz file with a header."""
    rows = _raw_files.rows(_raw_files.text(_raw_files.plain(path, LIMIT), path), path)
    if not rows:
        raise InputError(f"{path} is empty; get it again.")
    return columns_of(rows[1:], rows[0], path)
