"""Tables of mixed columns, read into numbers and codes, and written back in the form they came in; two-way tables.

A table is a NumPy array (n, d), a pandas data frame, a pyarrow table, or a mapping of names to columns. Numbers stay
numbers, words become codes, and a block of 0/1 columns with exactly one 1 in each row becomes one coded column. A
missing value (NaN, None) is NaN throughout.
"""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from dosimeter._validate import BoolArray, FloatArray, InputError, IntArray, show
from dosimeter.datasets.dataset import Array

LABEL = "label"
CLASSES = 50  # whole-numbered labels with at most this many distinct values are classes
_ABSENT = ("NoneType", "NAType", "NaTType")


@dataclass(frozen=True, eq=False)
class Column:
    """One variable: where it stands in the table, its values, and the words behind the codes of an unordered one.

    `values` is float64 with NaN for a missing value. `levels` is None for numbers; for words it is what the codes
    mean; for a one-hot block the numbers of its columns. `whole` says that Python integers stood there.
    """

    name: str
    places: tuple[int, ...]
    values: FloatArray
    levels: tuple[Any, ...] | None
    whole: bool = False

    @property
    def absent(self) -> BoolArray:
        return np.isnan(self.values)


@dataclass(frozen=True, eq=False)
class TableForm:
    """How the table came: array, frame, arrow or mapping; the names and the types of its columns."""

    kind: str
    names: tuple[Any, ...]
    types: tuple[Any, ...]
    missing: tuple[Any, ...]
    label: Any

    def write(self, columns: Sequence[Column], values: Sequence[FloatArray]) -> tuple[Any, Array | None]:
        """A table of this form, and the labels if there were any, from new values of the columns."""
        made: list[Any] = [None] * (len(self.names) + (self.label is not None))
        whole = {column.places[0] for column in columns if column.whole}
        for column, new in zip(columns, values, strict=True):
            if len(column.places) > 1:
                for code, place in enumerate(column.places):
                    made[place] = (new == code).astype(np.float64)
            else:
                made[column.places[0]] = new if column.levels is None else _decoded(new, column.levels)
        y = None if self.label is None else _typed(made.pop(), self.label, None, False)
        if self.kind == "array" and self.types[0] != np.dtype(object):
            return np.stack(made, axis=1).astype(self.types[0]), y
        kept = zip(made, self.types, self.missing, strict=True)
        typed = [_typed(v, t, m, place in whole) for place, (v, t, m) in enumerate(kept)]
        return self._assembled(typed), y

    def _assembled(self, columns: list[Any]) -> Any:
        if self.kind == "array":
            table = np.empty((len(columns[0]), len(columns)), object)
            for place, column in enumerate(columns):
                table[:, place] = column
            return table
        if self.kind == "mapping":
            return dict(zip(self.names, columns, strict=True))
        if self.kind == "frame":
            pandas: Any = import_module("pandas")

            parts = [pandas.Series(c, dtype=t) for c, t in zip(columns, self.types, strict=True)]
            frame = pandas.concat(parts, axis=1)
            frame.columns = list(self.names)
            return frame
        import pyarrow

        arrays = [pyarrow.array(c, type=t, from_pandas=True) for c, t in zip(columns, self.types, strict=True)]
        return pyarrow.table(arrays, names=list(self.names))


@dataclass(frozen=True, eq=False)
class MemberTable:
    """The variables of a table, the labels as the last of them, and the form to write new ones in."""

    columns: tuple[Column, ...]
    form: TableForm
    count: int


def read_table(X: Any, y: Any = None, *, groups: Any = "detect", categorical: Sequence[Any] = ()) -> MemberTable:
    """Read a table and its labels.

    `groups` lists the one-hot blocks, each by the names or places of its columns; "detect" finds contiguous blocks by
    themselves, and () takes every column alone. `categorical` names the numeric columns whose order means nothing.
    """
    kind, names, raw, types = _raw(X)
    if not raw or len(raw[0]) == 0:
        raise InputError("members holds no column or no record; pass a table with at least one of each.")
    unordered = {_place(item, names, "categorical") for item in categorical}
    columns = [_column(str(n), j, values, j in unordered) for j, (n, values) in enumerate(zip(names, raw, strict=True))]
    columns = _grouped(columns, _blocks(columns, names, groups))
    missing = tuple(_marker(values) for values in raw)
    label = None
    if y is not None:
        y = np.asarray(y)
        label = y.dtype
        few = y.dtype.kind in "biu" and np.unique(y).size <= CLASSES
        columns.append(_column(LABEL, len(names), y if y.dtype.kind in "biuf" else y.astype(object), few))
        if columns[-1].absent.any():
            raise InputError(
                f"label {int(np.argmax(columns[-1].absent))} is missing; remove the records without label."
            )
    return MemberTable(tuple(columns), TableForm(kind, tuple(names), types, missing, label), len(raw[0]))


def _raw(X: Any) -> tuple[str, list[Any], list[Array], tuple[Any, ...]]:
    """The form of a table, its names, its columns as arrays of numbers or objects, and their types."""
    if isinstance(X, Mapping):
        arrays = [np.array([*c, None], object)[:-1] if isinstance(c, list) else np.asarray(c) for c in X.values()]
        raw = [_plain(column) for column in arrays]
        kept = [list if isinstance(c, list) else a.dtype for c, a in zip(X.values(), arrays, strict=True)]
        return "mapping", list(X), raw, tuple(kept)
    if hasattr(X, "column_names"):
        parts = [X.column(j) for j in range(len(X.column_names))]
        raw = [
            _plain(np.array([*part.to_pylist(), None], object)[:-1] if _slow(part) else part.to_numpy())
            for part in parts
        ]
        return "arrow", list(X.column_names), raw, tuple(X.schema.types)
    if hasattr(X, "iloc"):
        series = [X.iloc[:, j] for j in range(X.shape[1])]
        raw = [_plain((s if isinstance(s.dtype, np.dtype) else s.astype(object)).to_numpy()) for s in series]
        return "frame", list(X.columns), raw, tuple(s.dtype for s in series)
    array = np.asarray(X)
    if array.ndim != 2:
        raise InputError(f"members must be a table (n, d), got shape {array.shape}; pass one row for each record.")
    raw = [_plain(array[:, j]) for j in range(array.shape[1])]
    return "array", list(range(array.shape[1])), raw, (array.dtype,) * array.shape[1]


def _slow(part: Any) -> bool:
    """Whether a pyarrow column is read value by value: words, and whole numbers that would become floats."""
    import pyarrow.types as kinds

    return not kinds.is_floating(part.type) and (bool(part.null_count) or not kinds.is_integer(part.type))


def _plain(values: Array) -> Array:
    if values.ndim != 1:
        raise InputError(f"a column has shape {values.shape}; every column must be flat.")
    if values.dtype.kind in "mMcV":
        raise InputError(f"a column has type {values.dtype}; convert it to numbers or texts first.")
    return values if values.dtype.kind in "biuf" else values.astype(object)


def is_absent(value: Any) -> bool:
    """Whether a value among objects is missing: None, NaN and the like."""
    return type(value).__name__ in _ABSENT or (isinstance(value, numbers.Real) and value != value)


def _marker(values: Array) -> Any:
    """What stands for a missing value among objects."""
    return next((v for v in values if is_absent(v)), None) if values.dtype.kind == "O" else np.nan


def _column(name: str, place: int, values: Array, unordered: bool) -> Column:
    whole = values.dtype.kind in "iu"
    if values.dtype.kind == "O":
        absent = np.array([is_absent(v) for v in values], bool)
        present = [v for v, gone in zip(values, absent, strict=True) if not gone]
        if all(isinstance(v, numbers.Real) and not isinstance(v, (bool, np.bool_)) for v in present):
            whole = all(isinstance(v, numbers.Integral) for v in present)
            values = np.array([np.nan if gone else float(v) for v, gone in zip(values, absent, strict=True)])
        elif all(isinstance(v, str) for v in present) or all(isinstance(v, (bool, np.bool_)) for v in present):
            levels = tuple(sorted(set(present)))
            code = {level: float(k) for k, level in enumerate(levels)}
            coded = np.array([np.nan if gone else code[v] for v, gone in zip(values, absent, strict=True)])
            return _known(Column(name, (place,), coded, levels))
        else:
            odd = next(v for v in present if not isinstance(v, str))
            raise InputError(f"column {name} holds {show(odd)} among others; make it all numbers or all texts.")
    number = values.astype(np.float64)
    if np.isinf(number).any():
        row = int(np.argmax(np.isinf(number)))
        raise InputError(f"column {name} is infinite in row {row}; repair it, or write NaN for a missing value.")
    if whole and np.nanmax(np.abs(number), initial=0) > LARGEST_WHOLE:
        raise InputError(f"column {name} has whole numbers beyond 2^53; remove it or write it as text.")
    if not unordered:
        return _known(Column(name, (place,), number, None, whole))
    distinct = np.unique(number[~np.isnan(number)])
    coded = np.where(np.isnan(number), np.nan, np.searchsorted(distinct, number))
    return _known(Column(name, (place,), coded, tuple(distinct.tolist()), whole))


def _known(column: Column) -> Column:
    if column.absent.all():
        raise InputError(f"column {column.name} has no value at all; remove it.")
    return column


def _place(item: Any, names: list[Any], argument: str) -> int:
    if item in names:
        return names.index(item)
    if isinstance(item, (int, np.integer)) and 0 <= item < len(names):
        return int(item)
    raise InputError(f"{argument} names {show(item)}, which is not a column; the columns are {show(names, 120)}.")


def _blocks(columns: list[Column], names: list[Any], groups: Any) -> list[list[int]]:
    if isinstance(groups, str):
        if groups != "detect":
            raise InputError(f'groups must be "detect" or a list of one-hot blocks, got {show(groups)}.')
        return detect_blocks(columns)
    blocks = [sorted(_place(item, names, "groups") for item in group) for group in groups]
    places = [place for block in blocks for place in block]
    if len(set(places)) != len(places):
        raise InputError("groups names a column twice; each column can be in one block only.")
    for block in blocks:
        values = np.stack([columns[place].values for place in block], axis=1)
        if any(columns[p].levels is not None for p in block) or not (
            np.isin(values, (0.0, 1.0)).all() and (values.sum(axis=1) == 1).all()
        ):
            raise InputError(f"groups names the columns {show(block)}, which do not have exactly one 1 in every row.")
    return blocks


def detect_blocks(columns: Sequence[Column]) -> list[list[int]]:
    """Contiguous 0/1 columns with exactly one 1 in each row, each block as short as can be."""
    blocks: list[list[int]] = []
    start, end = 0, len(columns)
    binary = [c.levels is None and bool(((c.values == 0) | (c.values == 1)).all()) for c in columns]
    while start < end:
        total, stop = np.zeros(len(columns[0].values)), start
        while stop < end and binary[stop] and total.max() <= 1 and not (total == 1).all():
            total = total + columns[stop].values
            stop += 1
        if stop - start > 1 and (total == 1).all():
            blocks.append(list(range(start, stop)))
            start = stop
        else:
            start += 1
    return blocks


def _grouped(columns: list[Column], blocks: list[list[int]]) -> list[Column]:
    inside = {place for block in blocks for place in block}
    kept = [column for column in columns if column.places[0] not in inside]
    for block in blocks:
        codes = np.argmax(np.stack([columns[place].values for place in block]), axis=0).astype(np.float64)
        kept.append(Column(columns[block[0]].name, tuple(block), codes, tuple(range(len(block)))))
    return sorted(kept, key=lambda column: column.places[0])


def _decoded(codes: FloatArray, levels: tuple[Any, ...]) -> Array:
    if all(isinstance(level, float) for level in levels):
        return np.where(np.isnan(codes), np.nan, np.array(levels)[np.nan_to_num(codes).astype(np.int64)])
    words = np.empty(len(levels) + 1, object)
    words[:-1], words[-1] = levels, None
    return words[np.where(np.isnan(codes), len(levels), codes).astype(np.int64)]


def _typed(values: Array, wanted: Any, marker: Any, whole: bool) -> Any:
    """New values of one column with the type that it had."""
    if isinstance(wanted, np.dtype) and wanted.kind in "biufUT":
        return values.astype(wanted)
    if values.dtype.kind == "f":
        absent = np.isnan(values)
        filled = np.where(absent, 0.0, values)
        made = (np.rint(filled).astype(np.int64) if whole else filled).astype(object)
    else:
        made, absent = values.copy(), np.array([v is None for v in values], bool)
    made[absent] = marker
    return made.tolist() if wanted is list else made


LARGEST_WHOLE = 2.0**53


# --- pairs of columns as codes ------------------------------------------------------------------------------
BLOCK = 1 << 22  # cells of the 0/1 matrix that are held at once


@dataclass(frozen=True, eq=False)
class PairTables:
    """The counts of all pairs of columns: the table of columns a and b starts at row starts[a], column starts[b]."""

    counts: FloatArray
    sizes: IntArray
    starts: IntArray

    def of(self, a: int, b: int) -> FloatArray:
        """The two-way table of columns a and b."""
        rows, columns = self.starts[a], self.starts[b]
        return self.counts[rows : rows + self.sizes[a], columns : columns + self.sizes[b]]


def pair_tables(codes: IntArray, sizes: IntArray) -> PairTables:
    """Two-way tables of all pairs of columns of codes (n, p) as one product of 0/1 matrices."""
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
    width = int(sizes.sum())
    counts = np.zeros((width, width))
    step = max(1, BLOCK // width)
    for begin in range(0, len(codes), step):
        part = codes[begin : begin + step] + starts
        marks = np.zeros((len(part), width), np.float32)
        marks[np.arange(len(part))[:, None], part] = 1
        counts += marks.T @ marks
    return PairTables(counts, sizes, starts)


def mutual_information(tables: PairTables) -> FloatArray:
    """Mutual information of all pairs in nats, less the bias of empty cells (Miller 1955); never below 0."""
    total = tables.counts[: tables.sizes[0], : tables.sizes[0]].sum()
    share = tables.counts / total
    single = np.diag(share)
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(share > 0, share * np.log(share / np.outer(single, single)), 0.0)
    summed = np.add.reduceat(np.add.reduceat(terms, tables.starts, axis=0), tables.starts, axis=1)
    freedom = np.outer(tables.sizes - 1, tables.sizes - 1)
    return np.asarray(np.maximum(summed - freedom / (2 * total), 0.0))


def determined(tables: PairTables, *, repeats: int) -> dict[int, int]:
    """Columns that are a function of another column in every record, each with the column that determines it.

    The determining column must have, in the mean, at least `repeats` records for each of its codes.
    """
    total = tables.counts[: tables.sizes[0], : tables.sizes[0]].sum()
    filled = np.add.reduceat((tables.counts > 0).astype(np.int64), tables.starts, axis=1)
    one = np.minimum.reduceat(filled == 1, tables.starts, axis=0)  # each code of a meets one code of b
    p = tables.sizes.size
    place = np.arange(p)
    finer = (tables.sizes[:, None] > tables.sizes) | (
        (tables.sizes[:, None] == tables.sizes) & (place[:, None] < place)
    )
    able = one & finer & (tables.sizes * repeats <= total)[:, None] & (tables.sizes > 1)
    free = ~able.any(axis=0)
    return {int(b): int(np.argmax(able[:, b] & free)) for b in np.flatnonzero(~free) if (able[:, b] & free).any()}
