"""A folder of results under the keys of their tasks: written whole or not at all, checked whenever they are read.

An entry is `ab/abcd….npz` (arrays, never pickled) and `ab/abcd….json` (its manifest with the checksum of the .npz and
a seal over itself). Both are written under temporary names and flushed to the disk, then renamed, the manifest last: an
entry without a valid manifest does not exist. Any number of processes or nodes may share the folder.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import secrets
import shutil
import sys
import time
import warnings
import zipfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from dosimeter._validate import InputError, show
from dosimeter.engine.tasks import Arrays, canonical
from dosimeter.estimate import plain

_KEY = re.compile(r"[0-9a-f]{64}")
_TEMPORARY = ".tmp-"
_LEFTOVER_AGE = 3600.0  # seconds; a younger temporary file may still be written by somebody


class DamagedEntryWarning(UserWarning):
    """A stored file is not what was written; it was set aside and its task will be computed again."""


class DiskFullError(OSError):
    """No space is left where results are kept."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        super().__init__(errno.ENOSPC, "disk full", str(folder))

    def __str__(self) -> str:
        return (
            f"the disk of {self.filename} is full; make space and run the same again, "
            "what is finished is kept and no half file was left."
        )


@dataclass(frozen=True)
class Entry:
    """What the manifest of an entry says."""

    key: str
    created: str
    version: str
    bytes: int
    arrays: dict[str, dict[str, Any]]
    info: dict[str, Any]


@dataclass(frozen=True)
class Removed:
    """What `gc` took away: keys of entries, leftovers (unfinished, damaged, old logs) and the bytes of all."""

    keys: list[str] = field(default_factory=list)
    leftovers: int = 0
    bytes: int = 0


class _DamageError(Exception):
    """Why an entry cannot be trusted."""


class Store:
    """A content-addressed folder.

    `get` and `verify` compare checksums. A damaged entry is moved to `quarantine/` and reported as a
    `DamagedEntryWarning`; from then on it does not exist, so a run computes it again.
    """

    claims = True  # runs that use the folder at the same time share the work; see `engine.leases`

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        try:
            self.folder = Path(folder)
        except TypeError:
            raise InputError(f"folder must be a path, got {show(folder)}; pass e.g. 'store'.") from None
        if self.folder.exists() and not self.folder.is_dir():
            raise InputError(f"{self.folder} is a file; pass the folder of a store, or a new one.")

    def __repr__(self) -> str:
        return f"Store({str(self.folder)!r})"

    def __contains__(self, key: object) -> bool:
        """Whether a manifest and a file of the right size are there; the content is checked by `get`."""
        if not isinstance(key, str) or not _KEY.fullmatch(key):
            return False
        npz, manifest = self._paths(key)
        try:
            return bool(_read_manifest(manifest, key)["bytes"] == npz.stat().st_size)
        except (OSError, _DamageError):
            return False

    def put(self, key: str, arrays: Mapping[str, npt.NDArray[Any]], info: Mapping[str, Any] | None = None) -> None:
        """Keep arrays and info under a key; whole or, on any error, not at all."""
        from dosimeter import __version__

        npz, manifest = self._paths(_checked_key(key))
        _check_arrays(arrays)
        temporary = [npz.with_name(_TEMPORARY + secrets.token_hex(8)) for _ in range(2)]
        renamed = done = False
        try:
            npz.parent.mkdir(parents=True, exist_ok=True)
            with temporary[0].open("wb+") as file:
                _write_arrays(file, arrays)
                _to_disk(file)
                file.seek(0)
                checksum = hashlib.file_digest(file, "sha256").hexdigest()
                size = file.seek(0, os.SEEK_END)
            fields = {
                "key": key,
                "sha256": checksum,
                "bytes": size,
                "arrays": {n: {"dtype": str(a.dtype), "shape": list(a.shape)} for n, a in arrays.items()},
                "created": datetime.now(UTC).isoformat(timespec="seconds"),
                "dosimeter": __version__,
                "info": plain(info or {}),
            }
            with temporary[1].open("wb") as file:
                file.write(_sealed(fields))
                _to_disk(file)
            temporary[0].replace(npz)
            renamed = True
            temporary[1].replace(manifest)
            done = True
            _sync_folder(npz.parent)
        except OSError as error:
            raise full_or(error, self.folder) from None
        finally:
            if not done:
                _unlink(*temporary, *([npz] if renamed else []))

    def get(self, key: str) -> tuple[Arrays, dict[str, Any]] | None:
        """Arrays and info, or None if there is no entry; a damaged one is set aside with a DamagedEntryWarning."""
        try:
            return self._load(_checked_key(key))
        except FileNotFoundError:
            return None
        except _DamageError as damage:
            self._set_aside(key)
            _warn(f"entry {key[:12]}… of {self.folder} is damaged ({damage}); it was moved to quarantine.")
            return None

    def discard(self, key: str) -> None:
        """Remove an entry; nothing happens if there is none."""
        npz, manifest = self._paths(_checked_key(key))
        _unlink(manifest, npz)

    def ls(self) -> list[Entry]:
        """The entries, oldest first; a manifest that cannot be read is left out with a warning."""
        entries = []
        for key in self._keys(".json"):
            npz, manifest = self._paths(key)
            try:
                fields = _read_manifest(manifest, key)
                if npz.stat().st_size != fields["bytes"]:
                    raise _DamageError("the .npz has another size")
            except OSError:
                continue
            except _DamageError as damage:
                _warn(f"entry {key[:12]}… of {self.folder} is damaged ({damage}); run `dosimeter store verify`.")
                continue
            entries.append(
                Entry(key, fields["created"], fields["dosimeter"], fields["bytes"], fields["arrays"], fields["info"])
            )
        return sorted(entries, key=lambda entry: (entry.created, entry.key))

    def verify(self) -> list[str]:
        """Read every entry; the keys of the damaged ones, which are set aside."""
        damaged = []
        for key in self._keys(".json"):
            npz, manifest = self._paths(key)
            try:
                fields = _read_manifest(manifest, key)
                with npz.open("rb") as file:
                    _check_content(file, fields)
            except FileNotFoundError:
                if not manifest.exists():  # somebody else has removed the entry meanwhile
                    continue
            except _DamageError:
                pass
            else:
                continue
            self._set_aside(key)
            damaged.append(key)
        return damaged

    def gc(self, *, keep: Collection[str] | None = None, older_than: float | timedelta | None = None) -> Removed:
        """Remove entries that are not in `keep` and are older than `older_than` (seconds or a timedelta).

        Without both, entries stay. Unfinished files, the quarantine and logs go once they are an hour old.
        """
        age = older_than.total_seconds() if isinstance(older_than, timedelta) else older_than
        if age is not None and not age >= 0:
            raise InputError(f"older_than must be at least 0 seconds, got {show(older_than)}; pass e.g. 86400.")
        kept = None if keep is None else {_checked_key(key) for key in keep}
        now = time.time()
        keys: list[str] = []
        total = 0
        if kept is not None or age is not None:
            for key in self._keys(".json"):
                npz, manifest = self._paths(key)
                written = _modified(manifest)
                if (kept is not None and key in kept) or (age is not None and now - written < age):
                    continue
                total += _unlink(manifest, npz)
                keys.append(key)
        leftovers = [file for file in self._leftovers() if now - _modified(file) >= _LEFTOVER_AGE]
        total += _unlink(*leftovers)
        return Removed(keys, len(leftovers), total)

    def export(self, path: str | os.PathLike[str]) -> list[str]:
        """Copy every sound entry to a .zip file or to the folder of another store; the keys that were copied."""
        target = Path(path)
        sound = [key for key in self._keys(".json") if self._sound(key)]
        try:
            if target.suffix.lower() == ".zip":
                self._export_zip(sound, target)
            else:
                self._export_folder(sound, Store(target))
        except OSError as error:
            raise full_or(error, target) from None
        return sound

    def log(self, key: str, text: str) -> Path:
        """Write the log of a task; the file's path."""
        folder = self.folder / "logs"
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"{_checked_key(key)}.txt"
        temporary = folder / (_TEMPORARY + secrets.token_hex(8))
        try:
            temporary.write_text(text, encoding="utf-8", errors="replace")
            temporary.replace(file)
        finally:
            _unlink(temporary)
        return file

    def _paths(self, key: str) -> tuple[Path, Path]:
        folder = self.folder / key[:2]
        return folder / f"{key}.npz", folder / f"{key}.json"

    def _keys(self, suffix: str) -> Iterator[str]:
        for file in sorted(self.folder.glob(f"[0-9a-f][0-9a-f]/*{suffix}")):
            if _KEY.fullmatch(file.stem) and file.stem[:2] == file.parent.name:
                yield file.stem

    def _leftovers(self) -> Iterator[Path]:
        yield from self.folder.glob(f"[0-9a-f][0-9a-f]/{_TEMPORARY}*")
        yield from (self.folder / "quarantine").glob("*")
        yield from (self.folder / "logs").glob("*")
        for key in self._keys(".npz"):
            npz, manifest = self._paths(key)
            if not manifest.exists():
                yield npz

    def _load(self, key: str) -> tuple[Arrays, dict[str, Any]]:
        npz, manifest = self._paths(key)
        fields = _read_manifest(manifest, key)
        try:
            with npz.open("rb") as file:
                _check_content(file, fields)
                file.seek(0)
                with np.load(file, allow_pickle=False) as stored:
                    return dict(stored), fields["info"]
        except FileNotFoundError:
            if manifest.exists():
                raise _DamageError("its .npz is missing") from None
            raise
        except (ValueError, zipfile.BadZipFile) as error:
            raise _DamageError(f"its arrays cannot be read: {error}") from None

    def _sound(self, key: str) -> bool:
        npz, manifest = self._paths(key)
        try:
            with npz.open("rb") as file:
                _check_content(file, _read_manifest(manifest, key))
        except (OSError, _DamageError) as damage:
            _warn(f"entry {key[:12]}… of {self.folder} is damaged ({damage}) and was not exported.")
            return False
        return True

    def _set_aside(self, key: str) -> None:
        quarantine = self.folder / "quarantine"
        with contextlib.suppress(OSError):
            quarantine.mkdir(exist_ok=True)
        for file in self._paths(key)[::-1]:
            try:
                file.replace(quarantine / file.name)
            except OSError:  # no space for the folder, or gone already: away with it in any case
                _unlink(file)

    def _export_zip(self, keys: Iterable[str], target: Path) -> None:
        temporary = target.with_name(_TEMPORARY + secrets.token_hex(8))
        try:
            with temporary.open("wb") as file:
                with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
                    for key in keys:
                        for source in self._paths(key):
                            archive.write(source, f"{key[:2]}/{source.name}")
                _to_disk(file)
            temporary.replace(target)
        finally:
            _unlink(temporary)

    def _export_folder(self, keys: Iterable[str], target: Store) -> None:
        for key in keys:
            for source, final in zip(self._paths(key), target._paths(key), strict=True):
                final.parent.mkdir(parents=True, exist_ok=True)
                temporary = final.with_name(_TEMPORARY + secrets.token_hex(8))
                try:
                    with source.open("rb") as reading, temporary.open("wb") as writing:
                        shutil.copyfileobj(reading, writing)
                        _to_disk(writing)
                    temporary.replace(final)
                finally:
                    _unlink(temporary)


def _checked_key(key: Any) -> str:
    if not isinstance(key, str) or not _KEY.fullmatch(key):
        raise InputError(f"key must be 64 hexadecimal digits, got {show(key)}; pass the key of a task.")
    return key


def _check_arrays(arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    for name, array in arrays.items():
        if not isinstance(name, str) or not name or name.endswith(".npy"):
            raise InputError(f"arrays has the name {show(name)}; use a text that does not end with .npy.")
        if not isinstance(array, np.ndarray) or array.dtype.hasobject:
            raise InputError(f"arrays[{name!r}] is {show(array)}; pass a NumPy array of numbers or text, no objects.")


def _write_arrays(file: IO[bytes], arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    # numpy.savez would take an array named "file" for its own argument.
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for name, array in arrays.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def _sealed(fields: Mapping[str, Any]) -> bytes:
    seal = hashlib.sha256(canonical(fields).encode()).hexdigest()
    return canonical({**fields, "seal": seal}).encode()


def _read_manifest(path: Path, key: str) -> dict[str, Any]:
    content = path.read_bytes()
    try:
        fields = json.loads(content)
        del fields["seal"]
        genuine = _sealed(fields) == content and fields["key"] == key
    except (ValueError, KeyError, TypeError, RecursionError):
        genuine = False
    if not genuine:
        raise _DamageError("its manifest was altered")
    return dict(fields)


def _check_content(file: IO[bytes], fields: Mapping[str, Any]) -> None:
    if hashlib.file_digest(file, "sha256").hexdigest() != fields["sha256"]:  # type: ignore[arg-type]
        raise _DamageError("the checksum of its .npz differs")


def _to_disk(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    if sys.platform == "win32":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def full_or(error: OSError, folder: Path) -> OSError:
    """The error as it is, or the sentence for a full disk."""
    full = error.errno in (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC))
    return DiskFullError(folder) if full else error


def _modified(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:
        return time.time()


def _unlink(*files: Path) -> int:
    """Remove files that may be gone already; the bytes that were set free."""
    total = 0
    for file in files:
        with contextlib.suppress(OSError):
            size = file.stat().st_size
            file.unlink()
            total += size
    return total


def _warn(message: str) -> None:
    warnings.warn(message, DamagedEntryWarning, stacklevel=3)
