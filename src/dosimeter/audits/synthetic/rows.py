"""Rows of any kind in one form: tables of numbers, dates, words and texts; images; texts.

What a column is, number or word, is decided on the real records alone, all of them, whoever was in. The rows of a
release are then read as these columns. A missing value is NaN among numbers and -1 among words.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from dosimeter._validate import FloatArray, InputError, IntArray, show
from dosimeter.columns import read_columns
from dosimeter.generators.table import is_absent
from dosimeter.records import kind_of, parted

LABEL = "label"
MOST_LEVELS = 256  # a column with more words than this is read as texts
_DATE = re.compile(r"\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d(?:\.\d+)?)?)?$")

Raw: TypeAlias = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Numbers:
    """A column of numbers, or of dates as days."""

    values: FloatArray


@dataclass(frozen=True, eq=False)
class Words:
    """A column of words: places in `levels`, -1 where one is missing."""

    codes: IntArray
    levels: tuple[str, ...]


Column: TypeAlias = Numbers | Words


@dataclass(frozen=True)
class Field:
    """The name of a column and what it is: "number", "date", "word" or "text"."""

    name: str
    kind: str


@dataclass(frozen=True, eq=False)
class Rows:
    """Records or published rows: the columns of a table, or images or texts with their labels as the only column."""

    kind: str
    fields: tuple[Field, ...]
    columns: tuple[Column, ...]
    images: npt.NDArray[Any] | None = None
    texts: tuple[str, ...] | None = None

    def __len__(self) -> int:
        content = self.images if self.images is not None else self.texts
        if content is not None:
            return len(content)
        column = self.columns[0]
        return len(column.values if isinstance(column, Numbers) else column.codes)

    def take(self, rows: Any) -> Rows:
        """Some of the rows."""
        place = np.arange(len(self))[rows]
        columns = tuple(
            Numbers(c.values[place]) if isinstance(c, Numbers) else Words(c.codes[place], c.levels)
            for c in self.columns
        )
        images = None if self.images is None else self.images[place]
        texts = None if self.texts is None else tuple(self.texts[i] for i in place)
        return Rows(self.kind, self.fields, columns, images, texts)

    def place_of(self, name: Any, argument: str) -> int:
        """The place of a column by its name."""
        names = [field.name for field in self.fields]
        if str(name) not in names:
            raise InputError(
                f"{argument} names {show(name)}, which is not a column; the columns are {show(names, 160)}."
            )
        return names.index(str(name))


def read_real(data: Any, name: str) -> tuple[Rows, list[str]]:
    """Read real records and decide what each column is; columns without any value are named and left out."""
    X, y = _parts(data, name)
    kind = kind_of(X, name=name)
    raw = _raw(X, name) if kind == "tabular" else {}
    if y is not None:
        raw[_free(raw)] = _flat(np.asarray(y), LABEL, name)
    size = _check_sizes(raw, X, kind, name)
    if size < 2:
        raise InputError(f"{name} holds {size} record; an audit needs at least 2, and proves more with thousands.")
    empty = [key for key, values in raw.items() if _absent(values).all()]
    fields = tuple(Field(key, _kind(key, values)) for key, values in raw.items() if key not in empty)
    if kind == "tabular" and not fields:
        raise InputError(f"{name} has no column with a value; pass a table with at least one.")
    return _typed(kind, fields, raw, X, name), empty


def read_release(data: Any, like: Rows, name: str, *, left_out: Sequence[str] = ()) -> Rows:
    """Read published rows as the columns that the real records have."""
    X, y = _parts(data, name)
    kind = kind_of(X, name=name)
    if kind != like.kind:
        raise InputError(f"{name} holds {_PLURAL[kind]}, but the records are {_PLURAL[like.kind]}; pass the same kind.")
    raw = _raw(X, name) if kind == "tabular" else {}
    names = [field.name for field in like.fields]
    if y is not None:
        raw[names[-1] if names and names[-1].startswith(LABEL) else LABEL] = _flat(np.asarray(y), LABEL, name)
    if kind == "tabular" and not set(names) <= set(raw) and len(raw) == len(names) and _numbered(raw):
        raw = dict(zip(names, raw.values(), strict=True))  # an array has no names: its columns are in their order
    missing, unknown = [n for n in names if n not in raw], [n for n in raw if n not in (*names, *left_out)]
    if missing or unknown:
        extra = f"has {show(unknown[0])}, which the records lack" if unknown else ""
        what = " and ".join(part for part in (f"lacks {show(missing[0])}" if missing else "", extra) if part)
        raise InputError(
            f"{name} {what}: it has {len(raw)} columns and the records {len(names) + len(left_out)}; give both the "
            f"same columns."
        )
    size = _check_sizes(raw, X, kind, name)
    if size < 2:
        raise InputError(f"{name} holds {size or 'no'} row; publish at least 2.")
    rows = _typed(kind, like.fields, raw, X, name)
    if like.images is not None and rows.images is not None and rows.images.shape[1:] != like.images.shape[1:]:
        raise InputError(
            f"{name} holds images of shape {rows.images.shape[1:]}, the records {like.images.shape[1:]}; make them "
            f"alike."
        )
    return rows


_PLURAL = {"tabular": "a table", "image": "images", "text": "texts"}


def _parts(data: Any, name: str) -> tuple[Any, Any]:
    if isinstance(data, (str, os.PathLike)):
        return read_columns(data, missing=True), None
    X, y = parted(name, getattr(data, "pair", data))
    if hasattr(X, "detach"):
        X = X.detach().cpu().numpy()
    return X, y


def _numbered(raw: Mapping[str, Raw]) -> bool:
    return list(raw) == [str(place) for place in range(len(raw))]


def _free(raw: Mapping[str, Raw]) -> str:
    name = LABEL
    while name in raw:
        name += "_"
    return name


def _flat(values: Raw, column: str, name: str) -> Raw:
    if values.ndim != 1:
        raise InputError(f"column {show(column)} of {name} has shape {values.shape}; every column must be flat.")
    if values.dtype.kind in "cV":
        raise InputError(f"column {show(column)} of {name} has type {values.dtype}; pass numbers, dates or texts.")
    return values


def _raw(X: Any, name: str) -> dict[str, Raw]:
    """The columns of a table by name, as arrays of numbers, dates or objects."""
    if isinstance(X, Mapping):
        columns = {str(key): _array(column) for key, column in X.items()}
    elif hasattr(X, "column_names"):
        columns = {key: X.column(key).to_numpy(zero_copy_only=False) for key in X.column_names}
    elif hasattr(X, "iloc"):
        series = {str(key): X.iloc[:, place] for place, key in enumerate(X.columns)}
        if len(series) != X.shape[1]:
            raise InputError(f"{name} has two columns of one name; rename them.")
        columns = {
            key: (s if isinstance(s.dtype, np.dtype) else s.astype(object)).to_numpy() for key, s in series.items()
        }
    else:
        array = np.asarray(X)
        columns = {str(place): array[:, place] for place in range(array.shape[1])}
    return {key: _flat(values, key, name) for key, values in columns.items()}


def _array(column: Any) -> Raw:
    if isinstance(column, (list, tuple)):
        return np.array([*column, None], object)[:-1]
    return np.asarray(column)


def _check_sizes(raw: Mapping[str, Raw], X: Any, kind: str, name: str) -> int:
    sizes = {len(values) for values in raw.values()} | (set() if kind == "tabular" else {len(X)})
    if len(sizes) > 1:
        raise InputError(f"the columns of {name} have different lengths, {show(sorted(sizes))}; make them alike.")
    if not sizes:
        raise InputError(f"{name} has no column; pass at least one.")
    return sizes.pop()


def _absent(values: Raw) -> npt.NDArray[np.bool_]:
    if values.dtype.kind in "biu":
        return np.zeros(len(values), bool)
    if values.dtype.kind in "fmM":
        return np.asarray(values != values)
    return np.array([is_absent(v) or v == "" for v in values.tolist()], bool)


def _kind(name: str, values: Raw) -> str:
    """What a column is, from all its values."""
    if values.dtype.kind in "biuf":
        return "number"
    if values.dtype.kind in "mM":
        return "date"
    present = [v for v, gone in zip(values.tolist(), _absent(values), strict=True) if not gone]
    if all(isinstance(v, (int, float, np.number)) for v in present):
        return "number"
    if all(hasattr(v, "isoformat") or (isinstance(v, str) and _DATE.match(v)) for v in present):
        return "date"
    return "text" if len({str(v) for v in present}) > MOST_LEVELS else "word"


def _typed(kind: str, fields: Sequence[Field], raw: Mapping[str, Raw], X: Any, name: str) -> Rows:
    columns = tuple(_column(field, raw[field.name], name) for field in fields)
    images = None
    if kind == "image":
        images = np.asarray(X)
        if images.dtype.kind not in "biuf" or not np.isfinite(images).all():
            raise InputError(f"{name} must hold finite pixel values, got type {images.dtype}; pass numbers.")
    texts = None
    if kind == "text":
        bad = next((i for i, text in enumerate(X) if not isinstance(text, str)), None)
        if bad is not None:
            raise InputError(f"{name}[{bad}] is {show(X[bad])}, not a text; pass one string for each record.")
        texts = tuple(X)
    return Rows(kind, tuple(fields), columns, images, texts)


def _column(field: Field, values: Raw, name: str) -> Column:
    if field.kind in ("word", "text"):
        return _words(values)
    try:
        numbers = _dates(values) if field.kind == "date" else _numbers(values)
    except (ValueError, TypeError, OverflowError):
        example = next((v for v in values.tolist() if not _is_number(v)), values.tolist()[0])
        raise InputError(
            f"column {show(field.name)} of {name} holds {show(example)}, but it is a {field.kind} in the records; "
            f"give it "
            "one type."
        ) from None
    if np.isinf(numbers).any():
        row = int(np.argmax(np.isinf(numbers)))
        raise InputError(
            f"column {show(field.name)} of {name} is infinite in row {row}; write NaN for a missing value."
        )
    return Numbers(numbers)


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (ValueError, TypeError):
        return is_absent(value)
    return True


def _numbers(values: Raw) -> FloatArray:
    if values.dtype.kind in "biuf":
        return values.astype(np.float64)
    if values.dtype.kind in "mM":
        raise TypeError("dates")
    return np.array([np.nan if gone else float(v) for v, gone in zip(values.tolist(), _absent(values), strict=True)])


def _dates(values: Raw) -> FloatArray:
    """Days since 1970; NaN where a date is missing."""
    if values.dtype.kind == "M":
        seconds = values.astype("datetime64[s]")
    elif values.dtype.kind == "m":
        return np.where(values != values, np.nan, values.astype("timedelta64[s]").astype(np.float64) / 86_400)
    elif values.dtype.kind in "biuf":
        raise TypeError("numbers")
    else:
        told = [
            "NaT" if gone else (v if isinstance(v, str) else v.isoformat()[:19])
            for v, gone in zip(values.tolist(), _absent(values), strict=True)
        ]
        seconds = np.array(told, "datetime64[s]")
    return np.where(seconds != seconds, np.nan, seconds.astype(np.int64) / 86_400)


def _words(values: Raw) -> Words:
    """Words and their codes; a number among them is written as a word."""
    levels: dict[str, int] = {}
    codes = np.full(len(values), -1, np.int64)
    for row, (value, gone) in enumerate(zip(values.tolist(), _absent(values), strict=True)):
        if not gone:
            text = value if isinstance(value, str) else f"{value:g}" if isinstance(value, float) else str(value)
            codes[row] = levels.setdefault(text, len(levels))
    return Words(codes, tuple(levels))


# --- on the way to the store and back ---------------------------------------------------------------------


def packed(rows: Rows) -> dict[str, Raw]:
    """Rows as arrays of numbers, which a store can hold."""
    arrays: dict[str, Raw] = {}
    for place, column in enumerate(rows.columns):
        if isinstance(column, Numbers):
            arrays[f"{place}:values"] = column.values
        else:
            arrays[f"{place}:codes"] = column.codes.astype(np.int32)
            arrays |= _bytes(f"{place}:levels", column.levels)
    if rows.images is not None:
        arrays["images"] = rows.images
    if rows.texts is not None:
        arrays |= _bytes("texts", rows.texts)
    return arrays


def unpacked(arrays: Mapping[str, Raw], like: Rows) -> Rows:
    """Read back what `packed` wrote."""
    columns: list[Column] = []
    for place in range(len(like.fields)):
        if f"{place}:values" in arrays:
            columns.append(Numbers(arrays[f"{place}:values"]))
        else:
            codes = arrays[f"{place}:codes"].astype(np.int64)
            columns.append(Words(codes, _texts(f"{place}:levels", arrays)))
    texts = _texts("texts", arrays) if "texts:bytes" in arrays else None
    return Rows(like.kind, like.fields, tuple(columns), arrays.get("images"), texts)


def _bytes(name: str, texts: Sequence[str]) -> dict[str, Raw]:
    encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
    return {
        f"{name}:bytes": np.frombuffer(b"".join(encoded), np.uint8),
        f"{name}:ends": np.cumsum([len(one) for one in encoded], dtype=np.int64),
    }


def _texts(name: str, arrays: Mapping[str, Raw]) -> tuple[str, ...]:
    content, ends = arrays[f"{name}:bytes"].tobytes(), arrays[f"{name}:ends"].tolist()
    starts = [0, *ends[:-1]]
    return tuple(content[a:b].decode("utf-8", "surrogatepass") for a, b in zip(starts, ends, strict=True))
