"""A user's own generator: a function that samples, or a file of records that were generated before."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from dosimeter import _validate as check
from dosimeter._validate import InputError, IntArray, show
from dosimeter.columns import pick, read_columns
from dosimeter.generators.checks import same_shape
from dosimeter.generators.protocol import Members, check_count, joined, read_members, streams
from dosimeter.generators.table import is_absent
from dosimeter.reading import read_text
from dosimeter.records import take

_LABELS = ("label", "y")


@dataclass(frozen=True)
class OwnSampler:
    """Take a function of the caller as a generator, such as a trained CTGAN.

    Args:
        function: Called as `function(count, seed)`; returns records of the members' form.
        name: What the page calls it.
        minimum: The fewest members.

    >>> def noise(count, seed):
    ...     return np.random.default_rng(seed).normal(size=(count, 2))
    >>> OwnSampler(noise).fit(np.zeros((9, 2))).sample(4, seed=1).shape
    (4, 2)
    """

    function: Callable[[int, int], Any]
    name: str = "own sampler"
    minimum: int = 1

    def fit(self, members: Any, *, seed: int = 0) -> FittedSampler:
        """Keep some members to compare the samples with; the function must have been fitted before.

        Args:
            members: X or (X, y).
            seed: Checked, and not used here.

        Returns:
            What samples new records.

        Raises:
            InputError: If the members cannot be read, or the function cannot be called.
        """
        check.seed(seed)
        if not callable(self.function):
            raise InputError(f"function must be callable as sample(count, seed), got {show(self.function)}.")
        return FittedSampler(self.function, _stub(members))


@dataclass(frozen=True, eq=False)
class FittedSampler:
    """The function, and some members for their form."""

    function: Callable[[int, int], Any]
    example: Any

    def sample(self, count: int, *, seed: int) -> Any:
        """Take the first `count` records that the function gives, checked against the members' form."""
        size, number = check_count(count), check.seed(seed)
        try:
            made = self.function(size, number)
        except Exception as error:
            raise InputError(
                f"the sampler failed when asked for {size} records ({type(error).__name__}: {show(str(error), 120)}); "
                "make it callable as sample(count, seed)."
            ) from error
        same_shape(self.example, made, count=size)
        records = read_members(made, name="generated")
        return some_records(records, np.arange(size))


@dataclass(frozen=True)
class GeneratedFile:
    """Take a file of records that were generated before.

    It may be .npy, .npz (arrays X and y, or X), .csv, .parquet, or .txt with one text in each line. Texts in a .csv or
    .parquet file are in the column `text`. An empty cell of a table is a missing value, where the members have some in
    that column.

    Args:
        path: The file.
        label: The label column; None takes the column `label` or `y` if the members have labels.
        name: What the page calls it.
        minimum: The fewest members.

    >>> GeneratedFile("generated.csv").fit((X, y)).sample(100, seed=0)  # doctest: +SKIP
    """

    path: str | os.PathLike[str]
    label: str | None = None
    name: str = "file of generated records"
    minimum: int = 1

    def fit(self, members: Any, *, seed: int = 0) -> FittedFile:
        """Read the file and compare its records with the members' form.

        Args:
            members: X or (X, y).
            seed: Checked, and not used here.

        Returns:
            What samples new records.

        Raises:
            InputError: If the file cannot be read, or its records do not have the form of the members.
        """
        check.seed(seed)
        wanted = read_members(members)
        made = _read(Path(self.path), wanted, self.label)
        same_shape(members, made)
        return FittedFile(read_members(made, name="generated"), str(self.path))


@dataclass(frozen=True, eq=False)
class FittedFile:
    """The records of the file."""

    records: Members
    path: str

    def sample(self, count: int, *, seed: int) -> Any:
        """Take `count` different records of the file at random; refuse if it has fewer."""
        size = check_count(count)
        if size > self.records.size:
            raise InputError(
                f"{self.path} has {self.records.size} generated records and {size} are needed; generate more."
            )
        (rng,) = streams(seed, 1)
        return some_records(self.records, rng.permutation(self.records.size)[:size])


def some_records(records: Members, rows: IntArray) -> Any:
    """Some records of any form, in the order of the rows."""
    X = take(records.X, rows)
    return joined(X.reset_index(drop=True) if hasattr(X, "iloc") else X, take(records.y, rows))


def _stub(members: Any) -> Any:
    """Enough members to know their form, without those that are not needed."""
    records = read_members(members)
    return members if records.kind == "tabular" else some_records(records, np.arange(1))


def _read(path: Path, wanted: Members, label: str | None) -> Any:
    ending, text = path.suffix.lower(), wanted.kind == "text"
    labelled = wanted.y is not None
    if ending == ".txt":
        texts = [line for line in read_text(path).split("\n") if line.strip()]
        if not texts:
            raise InputError(f"{path} has no line with a text; write one generated text in each line.")
        return texts
    if ending == ".npy":
        return _texts(_npy(path)) if text else _npy(path)
    columns = read_columns(path, missing=not text)
    if ending == ".npz":
        names = pick(columns, path, ("X", "y"), ("x", "y")) if labelled else pick(columns, path, ("X",), ("x",))
        values = columns[names[0]]
        return joined(_texts(values) if text else values, columns[names[1]] if labelled else None)
    y = None
    if labelled:
        there = [name for name in ((label,) if label is not None else _LABELS) if name in columns]
        if len(there) != 1:
            raise InputError(
                f"{path} must have one label column ({label or ' or '.join(_LABELS)}); name it with label=."
            )
        y = columns.pop(there[0])
        gone = next((row for row, value in enumerate(y.tolist()) if is_absent(value)), None)
        if gone is not None:
            raise InputError(f"{path}: the label of record {gone} is empty; remove this record.")
    if text:
        return joined(_texts(columns[pick(columns, path, ("text",))[0]]), y)
    return joined(_like(columns, wanted.X, path), y)


def _texts(array: Any) -> Any:
    """A flat array of words as a list of texts; anything else as it is, to be refused."""
    return [str(text) for text in array] if array.ndim == 1 and array.dtype.kind not in "biufc" else array


def _npy(path: Path) -> Any:
    if not path.is_file():
        raise InputError(f"{path} does not exist or is not a file; check the path.")
    try:
        return np.load(path, allow_pickle=False, mmap_mode="r")
    except (ValueError, OSError, EOFError) as error:
        raise InputError(f"{path} cannot be read as .npy ({show(str(error))}); write it with numpy.save.") from None


def _like(columns: dict[str, Any], X: Any, path: Path) -> Any:
    """Columns of a file in the form of the members, in their order when the names are the same."""
    names = [
        str(name) for name in (X if isinstance(X, Mapping) else getattr(X, "column_names", getattr(X, "columns", ())))
    ]
    if set(names) == set(columns):
        columns = {name: columns[name] for name in names}
    if hasattr(X, "iloc"):
        pandas: Any = import_module("pandas")

        return pandas.DataFrame(columns)
    if hasattr(X, "column_names"):
        import pyarrow

        return pyarrow.table(columns)
    if isinstance(X, Mapping):
        return columns
    words = [name for name, values in columns.items() if values.dtype.kind not in "biuf"]
    if words:
        raise InputError(f"{path} has columns that are not numbers, {show(words, 90)}; members is an array of numbers.")
    rows, kind = np.stack(list(columns.values()), axis=1), np.asarray(X).dtype
    if kind.kind != "f" and (gone := np.isnan(rows.astype(np.float64)).any(axis=1)).any():
        row = int(np.argmax(gone))
        raise InputError(f"{path} has an empty cell in record {row}, and members has none; fill or remove the record.")
    return rows.astype(kind)
