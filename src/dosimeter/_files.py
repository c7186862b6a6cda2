"""Writing files: an error always names the file."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def named(error: OSError, path: str | os.PathLike[str]) -> OSError:
    """The error with the name of the file that it is about; a write that fails does not know it."""
    folder = Path(path).parent
    if error.errno == errno.ENOENT and not folder.exists():
        return FileNotFoundError(f"{path} cannot be written: the folder {folder} does not exist; make it first.")
    if error.filename is not None:
        return error
    if error.errno is None:  # NumPy tells only how much could be written
        return OSError(f"{path} cannot be written ({error}); is the disk full, or a file too large (ulimit -f)?")
    limit = " for the limit on file sizes (ulimit -f)" if error.errno == errno.EFBIG else ""
    return OSError(error.errno, f"{error.strerror}{limit}", str(path))


@contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Name the file in any error of the block."""
    try:
        yield
    except OSError as error:
        raise named(error, path) from None


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file; an error names it, and no half file is left where there was none."""
    target = Path(path)
    existed = target.exists()
    try:
        with naming(target):
            target.write_text(text, encoding="utf-8")
    except OSError:
        if not existed and target.is_file():
            target.unlink()
        raise
