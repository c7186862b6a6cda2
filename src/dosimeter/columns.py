"""Columns of .npz, .csv and .parquet files, and which of them hold scores, losses and who is a member.

Nothing is unpickled, and sizes are checked before memory is taken.
"""

from __future__ import annotations

import gzip
import math
import os
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dosimeter import _validate as check
from dosimeter._validate import BoolArray, FloatArray, InputError, show

Columns = dict[str, npt.NDArray[Any]]

MOST_BYTES = "DOSIMETER_MAX_BYTES"
_DEFAULT_BYTES = 2 << 30
_MOST_MEMBERS = 10_000
_MOST_NAMES = 12


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


# --- which column is what -----------------------------------------------------------------------------------

Array = npt.NDArray[Any]
MEMBER_COLUMNS = ("member", "is_member", "membership", "is_train", "in_train", "in_training", "train", "split")
SCORE_COLUMNS = ("score", "scores", "loss", "losses")
YES = ("1", "1.0", "yes", "y", "true", "t", "member", "in", "train", "training")
NO = ("0", "0.0", "no", "n", "false", "f", "non-member", "nonmember", "out", "test", "holdout", "held-out")


@dataclass(frozen=True)
class ColumnNames:
    """The columns that a caller names; what is None is found by its name."""

    score: str | None = None
    loss: str | None = None
    member: str | None = None
    group: str | None = None


class ScoreTable(NamedTuple):
    """Values of members and of non-members, whether they are losses, and the persons behind them."""

    members: Any
    nonmembers: Any
    losses: bool
    groups: tuple[Any, Any] | None


def read_scores(path: str | os.PathLike[str], names: ColumnNames) -> ScoreTable:
    """Read scores or losses: two arrays, or a table with a row for each record.

    Raises:
        InputError: If a column is missing or ambiguous, or a word does not say who is a member.
    """
    columns = read_columns(path)
    if names == ColumnNames():
        for first, second in (("members", "nonmembers"), ("member_losses", "nonmember_losses")):
            if first in columns and second in columns:
                return ScoreTable(columns[first], columns[second], "loss" in first, _group_arrays(columns, path))
    value, losses = _value_column(columns, path, names)
    member = _column(columns, path, names.member, MEMBER_COLUMNS, "who is a member", "member")
    values, is_member = check.finite_array(value, columns[value]), membership(member, columns[member])
    if values.size != is_member.size:
        raise InputError(f"{value} has {values.size} rows but {member} has {is_member.size}; they must pair up.")
    if is_member.all() or not is_member.any():
        given = show(columns[member].tolist()[0])
        raise InputError(f"{path}: {member} is {given} in every row; both kinds of records are needed.")
    group = _find(columns, names.group or "group")
    if group is None and names.group is not None:
        raise _missing(columns, path, names.group, "group")
    ids = None if group is None else columns[group]
    groups = None if ids is None else (ids[is_member], ids[~is_member])
    return ScoreTable(values[is_member], values[~is_member], losses, groups)


def read_coins(path: str | os.PathLike[str]) -> tuple[FloatArray, BoolArray, Any]:
    """Read the scores, the coins and the persons (or None) of one run."""
    columns = read_columns(path)
    score = next((name for usual in ("scores", "score") if (name := _find(columns, usual))), None)
    coin = _find(columns, "included")
    if score is None or coin is None:
        raise InputError(f"{path} must hold scores and included; it holds {listed(columns)}. Rename them.")
    group = _find(columns, "group")
    values = check.finite_array(score, columns[score])
    return values, membership(coin, columns[coin]), None if group is None else columns[group]


def membership(name: str, values: Any) -> BoolArray:
    """Tell who is a member from 0 and 1, or from words such as yes, TRUE or train.

    Args:
        name: What messages call the column.
        values: A flat array of numbers, flags or words.

    Returns:
        True for members.

    Raises:
        InputError: If a value is none of these.

    >>> membership("is_train", np.array(["Yes", "no", "TRUE"])).tolist()
    [True, False, True]
    """
    array = np.asarray(values)
    if array.dtype.kind in "biuf" or array.ndim != 1:
        return check.bits(name, values)
    words = np.array([str(value).strip().lower() for value in array.tolist()])
    yes, no = np.isin(words, YES), np.isin(words, NO)
    unknown = ~(yes | no)
    if unknown.any():
        row = int(np.argmax(unknown))
        raise InputError(
            f"{name} is {show(array.tolist()[row])} in row {row}, which does not say whether the record is a member; "
            "write yes or no, true or false, 1 or 0, train or test, or name another column with --member-column."
        )
    return np.asarray(yes)


def _value_column(columns: Mapping[str, Array], path: object, names: ColumnNames) -> tuple[str, bool]:
    """The column of scores or losses, and whether a low value means member."""
    if names.score is not None and names.loss is not None:
        raise InputError("--score-column and --loss-column are both given; name one column.")
    if names.loss is not None:
        return _column(columns, path, names.loss, (), "the losses", "loss"), True
    name = _column(columns, path, names.score, SCORE_COLUMNS, "the scores or losses", "score")
    return name, _is_loss(name)


def _is_loss(name: str) -> bool:
    """Whether a name says that low values mean member; minus a loss is a score."""
    spelled = name.lower()
    return "loss" in spelled and not any(word in spelled for word in ("neg", "minus"))


def _column(
    columns: Mapping[str, Array], path: object, given: str | None, usual: tuple[str, ...], what: str, option: str
) -> str:
    """The column that is named, else the first of the usual names; capitals do not matter."""
    for name in (given,) if given is not None else usual:
        found = _find(columns, name)
        if found is not None:
            return found
    if given is not None:
        raise _missing(columns, path, given, option)
    raise InputError(
        f"{path} must hold {what} ({' or '.join(usual)}); it holds {listed(columns)}. Name the column with "
        f"--{option}-column (in Python, {option}=…), or write arrays members and nonmembers."
    )


def _missing(columns: Mapping[str, Array], path: object, name: str, option: str) -> InputError:
    return InputError(f"{path} has no column {show(name)} (--{option}-column); it holds {listed(columns)}.")


def _find(columns: Mapping[str, Array], name: str) -> str | None:
    if name in columns:
        return name
    alike = [column for column in columns if column.strip().lower() == name.lower()]
    return alike[0] if len(alike) == 1 else None


def _group_arrays(columns: Mapping[str, Array], path: object) -> tuple[Any, Any] | None:
    found = [columns.get(name) for name in ("member_groups", "nonmember_groups")]
    if found[0] is None and found[1] is None:
        return None
    if found[0] is None or found[1] is None:
        raise InputError(f"{path} has only one of member_groups and nonmember_groups; pass both or neither.")
    return found[0], found[1]
