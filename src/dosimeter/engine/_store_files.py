"""Files of a store: opened without following links, written to the disk, removed; and what is said of a full one."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from dosimeter._files import named

__all__ = [
    "TEMPORARY",
    "DamageError",
    "DiskFullError",
    "folders",
    "full_or",
    "is_folder",
    "modified",
    "names_in",
    "regular",
    "remove_files",
    "size_of",
    "sync_folder",
    "to_disk",
    "unlink",
]

TEMPORARY = ".tmp-"  # how the name of a file begins that is not whole yet


class DiskFullError(OSError):
    """No space is left where results are kept."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        super().__init__(errno.ENOSPC, "disk full", str(folder))

    def __str__(self) -> str:
        return (
            f"the disk of {self.filename} is full; make space and run the same again, "
            "what is finished is kept and no half file was left."
        )


class DamageError(Exception):
    """Why an entry cannot be trusted."""


def is_folder(path: Path, *, follow: bool = False) -> bool:
    """Whether this is a folder, not a link to one."""
    try:
        return stat.S_ISDIR(path.stat(follow_symlinks=follow).st_mode)
    except OSError:
        return False


def folders(folder: Path) -> list[Path]:
    """The folders in a folder, without links."""
    if not folder.is_dir():
        return []
    return sorted(Path(part.path) for part in os.scandir(folder) if part.is_dir(follow_symlinks=False))


def names_in(folder: Path) -> list[str]:
    return sorted(part.name for part in folder.iterdir())


@contextmanager
def regular(path: Path) -> Iterator[IO[bytes]]:
    """An ordinary file, open for reading: no link is followed, and nothing waits for a pipe."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        found = path.lstat()
        if not stat.S_ISREG(found.st_mode):
            raise DamageError(f"its {path.suffix} is {_called(found.st_mode)}, not a file")
        descriptor = os.open(path, flags)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise DamageError(f"it cannot be read: {error.strerror or error}") from None
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise DamageError("it is not a file")
        yield file


def _called(mode: int) -> str:
    names = {stat.S_ISLNK: "a link", stat.S_ISDIR: "a folder", stat.S_ISFIFO: "a pipe", stat.S_ISSOCK: "a socket"}
    return next((name for test, name in names.items() if test(mode)), "a device")


def to_disk(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    if sys.platform == "win32":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def full_or(error: OSError, folder: Path, file: Path | None = None) -> OSError:
    """The error with the name of its file, or the sentence for a full disk."""
    full = error.errno in (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC))
    return DiskFullError(folder) if full else named(error, file or folder)


def modified(file: Path) -> float:
    try:
        return file.lstat().st_mtime
    except OSError:
        return time.time()


def unlink(*files: Path) -> int:
    """Remove files that may be gone already, links as such; the bytes that were set free."""
    total = 0
    for file in files:
        with contextlib.suppress(OSError):
            size = file.lstat().st_size
            file.unlink()
            total += size
    return total


def remove_files(*files: Path) -> int:
    """Like `unlink`, but what cannot be removed is an error; a folder in place of a file stays."""
    total = 0
    for file in files:
        with contextlib.suppress(FileNotFoundError):
            if is_folder(file):
                continue
            size = file.lstat().st_size
            file.unlink()
            total += size
    return total


def size_of(*files: Path) -> int:
    total = 0
    for file in files:
        with contextlib.suppress(OSError):
            total += file.lstat().st_size
    return total
