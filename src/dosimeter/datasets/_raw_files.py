"""Reading of archives without unpacking them to disk: members by exact name, sizes checked before reading."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from dosimeter._validate import InputError, show
from dosimeter.columns import Columns, parquet_table, read_columns

MEGA = 1 << 20
_MOST_MEMBERS = 10_000
_DAMAGE = (OSError, EOFError, zlib.error, zipfile.BadZipFile, tarfile.TarError, NotImplementedError, RuntimeError)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Turn whatever a damaged file provokes into one sentence that names it."""
    try:
        yield
    except InputError:
        raise
    except PermissionError:
        raise InputError(f"{path} may not be read; check its permissions.") from None
    except (*_DAMAGE, ValueError, IndexError, csv.Error) as error:
        raise InputError(f"{path} is damaged ({show(str(error), 90)}); get it again.") from None


def sha256_of(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with naming(path), path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def plain(path: Path, limit: int) -> bytes:
    """The bytes of a file of at most `limit` bytes; a .gz file is unpacked."""
    opened: Any = gzip.open if path.suffix == ".gz" else open
    with naming(path), opened(path, "rb") as stream:
        return _read(stream, limit, path)


def text(data: bytes, path: Path) -> str:
    """UTF-8 text."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{path} is not UTF-8 text; get it again.") from None


def rows(content: str, path: Path, separator: str = ",") -> list[list[str]]:
    """The rows of a table that are not blank."""
    with naming(path):
        return [row for row in csv.reader(io.StringIO(content), delimiter=separator, skipinitialspace=True) if row]


def arrays(path: Path, limit: int) -> Columns:
    """The arrays of an .npz file that holds at most `limit` bytes."""
    with naming(path), zipfile.ZipFile(path) as archive:
        total = sum(entry.file_size for entry in archive.infolist())
    if total > limit:
        raise InputError(f"{path} unpacks to {total} bytes, more than the {limit} expected; get it again.")
    return read_columns(path, limit=limit)


def zip_member(path: Path, names: Sequence[str], limit: int) -> bytes:
    """One member of a .zip file by its path in it; `names` lead through archives in archives."""
    with naming(path):
        data: IO[bytes] = path.open("rb")
        for name in names:
            with data, zipfile.ZipFile(data) as archive:
                if name not in archive.namelist():
                    raise InputError(f"{path} has no member {name}; it is not the file expected here.")
                with archive.open(name) as stream:
                    data = io.BytesIO(_read(stream, limit, path))
        with data:
            return data.read()


def parquet(path: Path, names: Sequence[str], most_rows: int) -> dict[str, list[Any]]:
    """Columns of a .parquet file that has at most `most_rows` rows."""
    import pyarrow
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as file:
            absent = [name for name in names if name not in file.schema_arrow.names]
            if absent or file.metadata.num_rows > most_rows:
                what = f"no column {absent[0]}" if absent else f"{file.metadata.num_rows} rows"
                raise InputError(f"{path} has {what}; it is not the file expected here.")
        table = parquet_table(path, names)
        return {name: table.column(name).to_pylist() for name in names}
    except InputError:
        raise
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise InputError(f"{path} is damaged ({show(str(error), 90)}); get it again.") from None


@contextmanager
def tar_members(path: Path, names: Sequence[str], limit: int) -> Iterator[Iterator[tuple[str, IO[bytes]]]]:
    """Regular files of a .tar.gz by their paths in it, as streams, in the order of the archive."""
    wanted = dict.fromkeys(names)

    def walk(archive: tarfile.TarFile) -> Iterator[tuple[str, IO[bytes]]]:
        total = 0
        for count, member in enumerate(archive):
            total += member.size
            if count >= _MOST_MEMBERS or total > limit:
                raise InputError(f"{path} unpacks to more than the {limit} bytes expected; get it again.")
            name = member.name.removeprefix("./")
            if name in wanted and member.isreg():
                stream = archive.extractfile(member)
                if stream is not None:
                    del wanted[name]
                    with stream:
                        yield name, stream
            if not wanted:
                return
        raise InputError(f"{path} has no member {next(iter(wanted))}; it is not the file expected here.")

    with naming(path), tarfile.open(path, "r:gz") as archive:
        yield walk(archive)


def _read(stream: IO[bytes], limit: int, path: Path) -> bytes:
    data = stream.read(limit + 1)
    if len(data) > limit:
        raise InputError(f"{path} unpacks to more than the {limit} bytes expected; get it again.")
    return data
