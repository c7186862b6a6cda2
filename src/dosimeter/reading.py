"""Files from outside: columns of .npz, .csv and .parquet files, text and JSON.

Nothing is unpickled, and sizes are checked before memory is taken.
"""

from __future__ import annotations

import gzip
import json
import math
import os
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Never

import numpy as np
import numpy.typing as npt

from dosimeter import _validate as check
from dosimeter._validate import InputError, show

Columns = dict[str, npt.NDArray[Any]]

MOST_BYTES = "DOSIMETER_MAX_BYTES"
_DEFAULT_BYTES = 2 << 30
_MOST_MEMBERS = 10_000
_MOST_NAMES = 12
JSON_BYTES = 1 << 26
JSON_DEPTH = 64


def most_bytes(limit: int | None = None) -> int:
    """The most bytes that one file may unpack to: `limit`, else DOSIMETER_MAX_BYTES, else 2 GiB."""
    if limit is not None:
        return check.whole("limit", limit, 1, "pass a number of bytes")
    text = os.environ.get(MOST_BYTES, "").strip()
    if not text:
        return _DEFAULT_BYTES
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 1 <= value <= 1e18:
        raise InputError(f"{MOST_BYTES} must be a number of bytes, got {show(text)}; set e.g. {MOST_BYTES}=8e9.")
    return int(value)


def read_columns(path: str | os.PathLike[str], *, missing: bool = False, limit: int | None = None) -> Columns:
    """All arrays of an .npz, or all columns of a .csv, .csv.gz or .parquet file, by name.

    A .csv file may be separated by commas, semicolons or tabs; with semicolons a comma may stand for the decimal point.

    With `missing` an empty cell is NaN among numbers and None among words; without, it is refused. A file that unpacks
    to more than `limit` bytes (see `most_bytes`) is refused before it is unpacked. Lists and records of a .parquet
    file are left out.
    """
    try:
        file = Path(path)
    except TypeError:
        raise InputError(f"path must be a file name, got {show(path)}; pass an .npz, .csv or .parquet file.") from None
    most = most_bytes(limit)
    readers: dict[str, Callable[[Path, bool, int], Columns]] = {
        ".npz": lambda file, _, most: _read_npz(file, most),
        ".csv": _read_csv,
        ".csv.gz": _read_csv,
        ".parquet": _read_parquet,
    }
    reader = next((read for ending, read in readers.items() if file.name.lower().endswith(ending)), None)
    if reader is None:
        raise InputError(f"{file} has the ending {file.suffix!r}; pass an .npz, .csv or .parquet file (a .csv.gz too).")
    try:
        if not file.is_file():
            raise InputError(f"{file} does not exist or is not a file; check the path.")
        if file.stat().st_size == 0:
            raise InputError(f"{file} is empty (0 bytes); write it again.")
        return reader(file, missing, most)
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
    decoded = _json_text(text, what)
    try:
        try:
            values = _decoded(decoded, what)
            finite = _check_tree(values, what)
        except json.JSONDecodeError:
            raise
        except (ValueError, OverflowError) as error:  # a whole number of thousands of digits
            if isinstance(error, InputError):
                raise
            finite = False
        if not finite:  # the same once more, looking at the digits of each number, to name the one that is not finite
            values = _decoded(
                decoded,
                what,
                parse_float=lambda digits: _finite(float(digits), digits, what),
                parse_int=lambda digits: _finite_whole(digits, what),
            )
            _check_tree(values, what)
    except json.JSONDecodeError as error:
        raise InputError(
            f"{what} is not JSON: {error.msg}, line {error.lineno} column {error.colno}; write it again."
        ) from None
    except RecursionError:
        raise _too_deep(what) from None
    return values


def _decoded(text: str, what: str, **numbers: Any) -> Any:
    return json.loads(
        text,
        parse_constant=lambda word: _not_finite(word, what),
        object_pairs_hook=lambda pairs: _without_repeats(pairs, what),
        **numbers,
    )


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


_SCALARS = {float, int, bool, type(None)}  # a column of these holds no text and no further level


def _check_tree(values: Any, what: str) -> bool:
    """Refuse too many levels, and text that cannot be written; answer whether all numbers are finite."""
    level, depth, finite = [values], 0, True
    while level:
        for value in level:
            if isinstance(value, str) and not value.isascii():
                _check_text(value, what)
            elif isinstance(value, float | int):
                finite = finite and math.isfinite(value)
        holders = [value for value in level if isinstance(value, dict | list)]
        if holders and depth == JSON_DEPTH:
            raise _too_deep(what)
        level = []
        for holder in holders:
            if _SCALARS.issuperset(map(type, holder)):
                finite = finite and math.isfinite(sum(filter(None, holder)))
            else:
                level += holder
            if isinstance(holder, dict):
                level += holder.values()
        depth += 1
    return finite


def _check_text(text: str, what: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise InputError(f"{what} holds {show(text)}, half of a surrogate pair; write it again.") from None


def _too_deep(what: str) -> InputError:
    return InputError(f"{what} is nested more than {JSON_DEPTH} levels deep; write it again.")


@contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[None]:
    """Name the file in whatever the system says while it is written: a full disk or a quota does not."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            raise OSError(error.errno, error.strerror or "cannot be written", os.fspath(path)) from None
        raise


def pick(columns: Mapping[str, npt.NDArray[Any]], path: object, *choices: tuple[str, ...]) -> tuple[str, ...]:
    """The first choice of names that are all there, else an error that lists what is there."""
    for names in choices:
        if all(name in columns for name in names):
            return names
    wanted = " or ".join(" and ".join(names) for names in choices)
    raise InputError(f"{path} must hold {wanted}; it holds {listed(columns)}. Rename the arrays or columns.")


def listed(columns: Iterable[str]) -> str:
    """The names of columns for a message, the first of them if they are many."""
    names = sorted(columns)
    found = ", ".join(show(name, 40).strip("'") for name in names[:_MOST_NAMES]) or "nothing"
    return found + (f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else "")


def _check_size(size: int, limit: int, path: Path) -> None:
    if size > limit:
        raise InputError(
            f"{path} unpacks to {size} bytes, and at most {limit} are read; if you trust the file, set {MOST_BYTES} to "
            "more."
        )


def _read_npz(path: Path, limit: int) -> Columns:
    arrays: Columns = {}
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            if len(entries) > _MOST_MEMBERS:
                raise InputError(
                    f"{path} holds {len(entries)} arrays, and at most {_MOST_MEMBERS} are read; join them into fewer."
                )
            _check_size(sum(entry.file_size for entry in entries), limit, path)
            names = [entry.filename.removesuffix(".npy") for entry in entries]  # NumPy reads both forms of a name
            twice = next((name for name, count in Counter(names).items() if count > 1), None)
            if twice is not None:
                raise InputError(f"{path}: array {show(twice)[1:-1]} is there more than once; keep one of them.")
            for name, entry in zip(names, entries, strict=True):
                if entry.filename.endswith(".npy"):
                    arrays[name] = _read_member(archive, entry, path, limit)
    except InputError:
        raise
    except (zipfile.BadZipFile, EOFError, OSError, ValueError, NotImplementedError, RuntimeError) as error:
        raise InputError(
            f"{path} cannot be read as .npz ({show(str(error))}); write it again with numpy.savez."
        ) from None
    except Exception as error:  # zlib.error and whatever a hostile header provokes
        raise InputError(f"{path} is damaged ({type(error).__name__}); write it again with numpy.savez.") from None
    return arrays


def _read_member(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, path: Path, limit: int) -> npt.NDArray[Any]:
    name = show(entry.filename[:-4])[1:-1]
    with archive.open(entry) as stream:
        version = np.lib.format.read_magic(stream)
        header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = header(stream)
        if dtype.hasobject:
            raise InputError(f"{path}: array {name} holds Python objects; store plain numbers instead.")
        size = math.prod(shape) * max(dtype.itemsize, 1)
        if size > entry.file_size:
            raise InputError(f"{path}: array {name} claims {size} bytes but holds {entry.file_size}; write it again.")
        if len(shape) == 1 and dtype.kind in "biuf":  # scores and the like, which become float64
            _check_size(8 * shape[0], limit, path)
    with archive.open(entry) as stream:
        array: npt.NDArray[Any] = np.lib.format.read_array(stream, allow_pickle=False)
    return array


def _read_csv(path: Path, missing: bool, limit: int) -> Columns:
    import pyarrow
    from pyarrow import csv

    _check_size(path.stat().st_size, limit, path)
    try:
        packed = path.suffix.lower() == ".gz"
        source: Any = pyarrow.BufferReader(_unpacked(path, limit)) if packed else path
        with gzip.open(path, "rb") if packed else path.open("rb") as stream:
            mark, point = _separators(stream.read(1 << 16))
        table = csv.read_csv(
            source,
            parse_options=csv.ParseOptions(delimiter=mark),
            convert_options=csv.ConvertOptions(strings_can_be_null=missing, decimal_point=point),
        )
    except InputError:
        raise
    except (pyarrow.ArrowException, OSError, ValueError, EOFError, zlib.error) as error:
        raise InputError(
            f"{path} cannot be read as .csv ({show(str(error))}); it needs a header row and commas, semicolons or tabs."
        ) from None
    return _from_arrow(table, path, missing)


def _unpacked(path: Path, limit: int) -> bytes:
    """What is in a .gz file, which says nothing reliable about its size."""
    with gzip.open(path, "rb") as stream:
        text = stream.read(limit + 1)
    _check_size(len(text), limit, path)
    return text


def _separators(start: bytes) -> tuple[str, str]:
    """What stands between the cells, and the decimal point: a spreadsheet may write 0,5;1 instead of 0.5,1."""
    header, _, rows = start.partition(b"\n")
    if b"," in header or not (b";" in header or b"\t" in header):
        return ",", "."
    mark = ";" if b";" in header else "\t"
    return mark, "," if re.search(rb"\d,\d", rows) and not re.search(rb"\d\.\d", rows) else "."


def _read_parquet(path: Path, missing: bool, limit: int) -> Columns:
    import pyarrow

    try:
        table = parquet_table(path, limit=limit)
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} cannot be read as .parquet ({show(str(error))}); write it again.") from None
    return _from_arrow(table, path, missing)


def parquet_table(path: Path, names: Sequence[str] | None = None, *, limit: int | None = None) -> Any:
    """The columns of a .parquet file (or those of these names) as an Arrow table, its sizes checked first.

    Texts that repeat are stored once, so they are read in that form, counted, and only then written out.
    """
    from pyarrow import parquet

    most = most_bytes(limit)
    with parquet.ParquetFile(path) as file:
        leaves = [file.schema.column(index) for index in range(len(file.schema))]
        flat = [leaf for leaf in leaves if leaf.path == leaf.name and (names is None or leaf.name in names)]
        _check_size(_declared(file.metadata, flat), most, path)
        texts = [leaf.name for leaf in flat if leaf.physical_type == "BYTE_ARRAY"]
        chosen = None if len(flat) == len(leaves) else [leaf.name for leaf in flat]
    with parquet.ParquetFile(path, read_dictionary=texts) as file:
        return _written_out(file.read(columns=chosen), most, path)


def _declared(metadata: Any, leaves: Sequence[Any]) -> int:
    """What the columns take in memory by the file's own account, repeated texts counted once.

    A chunk's metadata is not asked for: where it is damaged, Arrow ends the process.
    """
    widths = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT96": 12}
    width = sum(
        leaf.length if leaf.physical_type == "FIXED_LEN_BYTE_ARRAY" else widths.get(leaf.physical_type, 8)
        for leaf in leaves
    )
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    rows = sum(group.num_rows for group in groups)
    texts = any(leaf.physical_type == "BYTE_ARRAY" for leaf in leaves)
    return rows * width + (sum(group.total_byte_size for group in groups) if texts else 0)


def _written_out(table: Any, limit: int, path: Path) -> Any:
    """The table with every text in its row."""
    import pyarrow
    from pyarrow import compute

    size = table.nbytes
    for place, field in enumerate(table.schema):
        if not pyarrow.types.is_dictionary(field.type):
            continue
        for chunk in table.column(place).chunks:
            lengths = compute.binary_length(chunk.dictionary)
            size += compute.sum(lengths.take(chunk.indices).cast("int64")).as_py() or 0
        _check_size(size, limit, path)
        texts = table.column(place).cast(field.type.value_type)
        table = table.set_column(place, field.with_type(field.type.value_type), texts)
    return table


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
