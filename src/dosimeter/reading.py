"""Columns of numbers from .npz, .csv and .parquet files. Nothing is unpickled; sizes are checked first."""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dosimeter._validate import InputError, show

Columns = dict[str, npt.NDArray[Any]]


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
