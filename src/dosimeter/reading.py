"""Files from outside: columns of .npz, .csv and .parquet files, text and JSON.

Nothing is unpickled, and sizes are checked before memory is taken.
"""

from __future__ import annotations

import json
import math
import os
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Never

import numpy as np
import numpy.typing as npt

from dosimeter._validate import InputError, show

Columns = dict[str, npt.NDArray[Any]]

JSON_BYTES = 1 << 26
JSON_DEPTH = 64


def read_columns(path: str | os.PathLike[str], *, missing: bool = False) -> Columns:
    """All arrays of an .npz, or all columns of a .csv or .parquet file, by name.

    With `missing` an empty cell is NaN among numbers and None among words; without, it is refused.
    """
    try:
        file = Path(path)
    except TypeError:
        raise InputError(f"path must be a file name, got {show(path)}; pass an .npz, .csv or .parquet file.") from None
    readers: dict[str, Callable[[Path, bool], Columns]] = {
        ".npz": lambda file, _: _read_npz(file),
        ".csv": _read_csv,
        ".parquet": _read_parquet,
    }
    reader = readers.get(file.suffix.lower())
    if reader is None:
        raise InputError(f"{file} has the ending {file.suffix!r}; pass an .npz, .csv or .parquet file.")
    try:
        if not file.is_file():
            raise InputError(f"{file} does not exist or is not a file; check the path.")
        if file.stat().st_size == 0:
            raise InputError(f"{file} is empty (0 bytes); write it again.")
        return reader(file, missing)
    except PermissionError:
        raise InputError(f"{file} may not be read; check its permissions.") from None
    except OSError as error:
        raise InputError(f"{show(str(file))} cannot be read ({error.strerror}); check the path.") from None


def read_text(path: str | os.PathLike[str], *, limit: int = 1 << 28) -> str:
    """The text of a file of at most `limit` bytes."""
    file = Path(path)
    if not file.is_file():
        raise InputError(f"{file} does not exist or is not a file; check the path.")
    size = file.stat().st_size
    if not 0 < size <= limit:
        raise InputError(f"{file} has {size} bytes, between 1 and {limit} can be read; check the file.")
    try:
        return file.read_text(encoding="utf-8")
    except (UnicodeDecodeError, PermissionError) as error:
        raise InputError(f"{file} cannot be read as text ({type(error).__name__}); check the file.") from None


def strict_json(text: str | bytes, *, what: str = "the file") -> Any:
    """Read JSON that can mean one thing only.

    Refused: a key that is given twice, NaN and infinite numbers (also 1e400), text that is not UTF-8, more than 64
    levels, more than 64 MiB.

    Args:
        text: The JSON, as text or as UTF-8 bytes.
        what: What the messages call it, for example the file's name.

    Raises:
        InputError: If the text is anything else.

    Example:
        >>> strict_json('{"low": 1.5}')
        {'low': 1.5}
    """
    try:
        values = json.loads(
            _json_text(text, what),
            parse_constant=lambda word: _not_finite(word, what),
            parse_float=lambda digits: _finite(float(digits), digits, what),
            parse_int=lambda digits: _finite_whole(digits, what),
            object_pairs_hook=lambda pairs: _without_repeats(pairs, what),
        )
    except json.JSONDecodeError as error:
        raise InputError(
            f"{what} is not JSON: {error.msg}, line {error.lineno} column {error.colno}; write it again."
        ) from None
    except RecursionError:
        raise _too_deep(what) from None
    _check_tree(values, what)
    return values


def _json_text(text: str | bytes, what: str) -> str:
    if not isinstance(text, str | bytes):
        raise InputError(f"{what} must be JSON text, got {show(text)}; pass a text or bytes.")
    if len(text) > JSON_BYTES:
        raise InputError(f"{what} has {len(text)} bytes, and JSON is read up to {JSON_BYTES}; check the file.")
    try:
        decoded = text if isinstance(text, str) else text.decode("utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{what} is not UTF-8 text; write it again.") from None
    if not decoded.strip():
        raise InputError(f"{what} is empty; write it again.")
    return decoded


def _not_finite(digits: str, what: str) -> Never:
    raise InputError(f"{what} holds the number {digits[:30]}, which is not finite; write it again.")


def _finite(value: float, digits: str, what: str) -> float:
    return value if math.isfinite(value) else _not_finite(digits, what)


def _finite_whole(digits: str, what: str) -> int:
    if len(digits) > 300:  # a float64 ends at 309 digits
        _finite(float(digits), digits, what)
    return int(digits)


def _without_repeats(pairs: list[tuple[str, Any]], what: str) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, value in pairs:
        if name in values:
            raise InputError(f"{what} gives the key {show(name)} more than once; write it again.")
        values[name] = value
    return values


def _check_tree(values: Any, what: str) -> None:
    """Refuse too many levels, and text that cannot be written."""
    level, depth = [values], 0
    while level:
        for value in level:
            if isinstance(value, str) and not value.isascii():
                _check_text(value, what)
        holders = [value for value in level if isinstance(value, dict | list)]
        if holders and depth == JSON_DEPTH:
            raise _too_deep(what)
        level = [part for holder in holders for part in holder]
        level += [part for holder in holders if isinstance(holder, dict) for part in holder.values()]
        depth += 1


def _check_text(text: str, what: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise InputError(f"{what} holds {show(text)}, half of a surrogate pair; write it again.") from None


def _too_deep(what: str) -> InputError:
    return InputError(f"{what} is nested more than {JSON_DEPTH} levels deep; write it again.")


def pick(columns: Mapping[str, npt.NDArray[Any]], path: object, *choices: tuple[str, ...]) -> tuple[str, ...]:
    """The first choice of names that are all there, else an error that lists what is there."""
    for names in choices:
        if all(name in columns for name in names):
            return names
    wanted = " or ".join(" and ".join(names) for names in choices)
    found = ", ".join(sorted(columns)) or "nothing"
    raise InputError(f"{path} must hold {wanted}; it holds {found}. Rename the arrays or columns.")


def _read_npz(path: Path) -> Columns:
    arrays: Columns = {}
    try:
        with zipfile.ZipFile(path) as archive:
            for entry in archive.infolist():
                if entry.filename.endswith(".npy"):
                    arrays[entry.filename[:-4]] = _read_member(archive, entry, path)
    except InputError:
        raise
    except (zipfile.BadZipFile, EOFError, OSError, ValueError, NotImplementedError, RuntimeError) as error:
        raise InputError(
            f"{path} cannot be read as .npz ({show(str(error))}); write it again with numpy.savez."
        ) from None
    except Exception as error:  # zlib.error and whatever a hostile header provokes
        raise InputError(f"{path} is damaged ({type(error).__name__}); write it again with numpy.savez.") from None
    return arrays


def _read_member(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, path: Path) -> npt.NDArray[Any]:
    name = entry.filename[:-4]
    with archive.open(entry) as stream:
        version = np.lib.format.read_magic(stream)
        header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = header(stream)
        if dtype.hasobject:
            raise InputError(f"{path}: array {name} holds Python objects; store plain numbers instead.")
        size = math.prod(shape) * dtype.itemsize
        if size > entry.file_size:
            raise InputError(f"{path}: array {name} claims {size} bytes but holds {entry.file_size}; write it again.")
    with archive.open(entry) as stream:
        array: npt.NDArray[Any] = np.lib.format.read_array(stream, allow_pickle=False)
    return array


def _read_csv(path: Path, missing: bool) -> Columns:
    import pyarrow
    from pyarrow import csv

    try:
        table = csv.read_csv(path, convert_options=csv.ConvertOptions(strings_can_be_null=missing))
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise InputError(
            f"{path} cannot be read as .csv ({show(str(error))}); it needs a header row and commas."
        ) from None
    return _from_arrow(table, path, missing)


def _read_parquet(path: Path, missing: bool) -> Columns:
    import pyarrow
    from pyarrow import parquet

    try:
        table = parquet.read_table(path)
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read as .parquet ({show(str(error))}); write it again.") from None
    return _from_arrow(table, path, missing)


def _from_arrow(table: Any, path: Path, missing: bool) -> Columns:
    columns: Columns = {}
    try:
        names = table.column_names
    except UnicodeDecodeError:
        raise InputError(f"{path} has column names that are not UTF-8; write it again.") from None
    for index, name in enumerate(names):
        if name in columns:
            raise InputError(f"{path}: column {name} is there more than once; keep one of them.")
        column = table.column(index)
        if column.null_count and not missing:
            row = next(i for i, value in enumerate(column) if not value.is_valid)
            raise InputError(
                f"{path}: column {name} has {column.null_count} empty cell(s), the first in row {row}; "
                "fill or remove these rows."
            )
        columns[name] = column.to_numpy()
    return columns
