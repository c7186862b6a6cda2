"""Downloads that end as whole, checked files or not at all."""

from __future__ import annotations

import hashlib
import os
import secrets
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import IO, Any

from dosimeter._files import naming
from dosimeter._progress import Progress
from dosimeter._validate import InputError, show
from dosimeter.datasets._raw_files import MEGA, sha256_of

TIMEOUT = 30.0  # seconds without a byte
_CHUNK = 1 << 18


class UnreachableError(Exception):
    """No address gave the right file; the message says why."""


def download(urls: Sequence[str], path: Path, *, sha256: str | None, limit: int) -> None:
    """Fetch a file from the first address that has it, of at most `limit` bytes.

    With `sha256` the file must have it. Without, its own is written beside it (`path`.sha256) and holds from then on:
    trust on first use.
    """
    reasons = []
    for url in urls:
        try:
            _one(url, path, sha256, limit)
            return
        except UnreachableError as reason:
            reasons.append(f"{url}: {reason}")
        except OSError as error:
            raise InputError(f"{path} cannot be written ({error.strerror or error}); check the folder.") from None
    raise UnreachableError("; ".join(reasons))


def first_seen(path: Path) -> str | None:
    """The SHA-256 that the file had when it was downloaded, if that was written down."""
    note = _note(path)
    words = note.read_text(encoding="ascii", errors="replace").split() if note.is_file() else []
    return words[0].lower() if words else None


@contextmanager
def _network() -> Iterator[None]:
    """Tell what fails on the way here from what fails on the disk."""
    try:
        yield
    except TimeoutError:
        raise UnreachableError(f"no answer within {TIMEOUT:g} s") from None
    except urllib.error.HTTPError as error:
        raise UnreachableError(f"HTTP status {error.code}") from None
    except (OSError, HTTPException) as error:
        raise UnreachableError(show(str(getattr(error, "reason", error)), 90)) from None


def _one(url: str, path: Path, sha256: str | None, limit: int) -> None:
    request = urllib.request.Request(url, headers={"User-Agent": "dosimeter"})
    with _network():
        answer = urllib.request.urlopen(request, timeout=TIMEOUT)
    with answer:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = _part(path)
        try:
            with naming(path), part.open("wb") as file:
                found = _copy(answer, file, url, limit)
                file.flush()
                os.fsync(file.fileno())
            if sha256 is not None and found != sha256:
                raise UnreachableError(f"wrong checksum, SHA-256 {found} and not {sha256}")
            if sha256 is None:
                _write(_note(path), found)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    _settle(path.parent)


def _copy(answer: Any, file: IO[bytes], url: str, limit: int) -> str:
    """Copy the body, counting, hashing and showing how far it is; the SHA-256 of what was copied."""
    stated = answer.headers.get("Content-Length")
    total = int(stated) if stated is not None and stated.isdigit() else None
    too_long = UnreachableError(f"longer than the {limit} bytes expected")
    if total is not None and total > limit:
        raise too_long
    digest, done = hashlib.sha256(), 0
    with _progress(url, total) as progress:
        while True:
            with _network():
                chunk = answer.read(_CHUNK)
            if not chunk:
                break
            done += len(chunk)
            if done > limit:
                raise too_long
            digest.update(chunk)
            file.write(chunk)
            progress.advance(done)
    if total is not None and done != total:
        raise UnreachableError(f"the connection ended after {done} of {total} bytes")
    return digest.hexdigest()


def _progress(url: str, total: int | None) -> Progress:
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn

    size = "" if total is None else f" ({total / MEGA:.1f} MiB)"
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    progress = Progress(total, f"Downloading {url}{size}", label=url.rpartition("/")[2], columns=columns)
    progress.announce()
    return progress


def _note(path: Path) -> Path:
    return path.with_name(path.name + ".sha256")


def _part(path: Path) -> Path:
    """A name beside the file's that no other process, thread or machine uses."""
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")


def _write(path: Path, content: str) -> None:
    part = _part(path)
    try:
        with naming(path), part.open("w", encoding="ascii") as file:
            file.write(content + "\n")
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _settle(folder: Path) -> None:
    """Make the renames in a folder last, where the system can."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def check_file(path: Path, sha256: str | None) -> None:
    """Refuse a file that has not the known checksum, or not the one of its first download."""
    expected = sha256 or first_seen(path)
    if expected is None:
        return
    found = sha256_of(path)
    if found != expected:
        known = "its known one is" if sha256 else "at its first download it was"
        raise InputError(f"{path} has the wrong checksum: SHA-256 {found}, {known} {expected}; get the file again.")
