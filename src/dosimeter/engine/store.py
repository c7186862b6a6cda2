"""A folder of results under the keys of their tasks: written whole or not at all, checked whenever they are read.

An entry is `ab/abcd….npz` (arrays, never pickled) and `ab/abcd….json` (its manifest with the checksum of the .npz and
a seal over itself). Both are written under temporary names and flushed to the disk, then renamed, the manifest last: an
entry without a valid manifest does not exist. Any number of processes or nodes may share the folder.

A file `dosimeter-store.json` marks the folder as a store; only a `Store` writes it. Nothing is read, moved or removed
through a symbolic link, and nothing outside the folder.
"""

from __future__ import annotations

import ast
import contextlib
import errno
import hashlib
import hmac
import json
import math
import os
import re
import secrets
import shutil
import stat
import sys
import time
import warnings
import zipfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from dosimeter._files import named
from dosimeter._validate import InputError, show
from dosimeter.engine.tasks import Arrays, canonical
from dosimeter.estimate import plain

MARKER = "dosimeter-store.json"
KEY_VARIABLE = "DOSIMETER_STORE_KEY"
_KEY = re.compile(r"[0-9a-f]{64}")
_PREFIX = re.compile(r"[0-9a-f]{2}")
_OLD_PART = re.compile(r"[0-9a-f]{16}")  # folders in which 0.1.0 kept the trainings of one function
_ASIDE = re.compile(r"[0-9a-f]{2,64}(\.(npz|json))?(\.[0-9a-f]{16})?")
_TEMPORARY = ".tmp-"
_LEFTOVER_AGE = 3600.0  # seconds; a younger temporary file may still be written by somebody
_LARGEST_MANIFEST = 64_000_000  # bytes
_LONGEST_HEADER = 1_000_000  # bytes, of an array
_SHORTEST_KEY = 16  # characters


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
    """What `gc` took away, or would: keys of entries, leftovers (unfinished, damaged, old logs), the bytes of all."""

    keys: list[str] = field(default_factory=list)
    leftovers: int = 0
    bytes: int = 0


class _DamageError(Exception):
    """Why an entry cannot be trusted."""


class Store:
    """A content-addressed folder.

    The folder is new, empty or a store already; any other is refused. `get` and `verify` check what they read against
    its manifest. A damaged entry is moved to `quarantine/` and reported as a `DamagedEntryWarning`; from then on it
    does not exist, so a run computes it again.

    If the environment variable DOSIMETER_STORE_KEY is set when the store is made, its entries are sealed with that key
    (HMAC-SHA256): nobody without it can write an entry that is believed. Without a key the seal finds accidents, not
    forgers. A store that was sealed opens only with its key, and with a key only a store that it sealed.

    Args:
        folder: Where the entries are; made when the first is kept.

    Raises:
        InputError: If the folder is a file, or holds something else than a store, or has another key.

    >>> import tempfile
    >>> store = Store(tempfile.mkdtemp())
    >>> store.put("0" * 64, {"losses": np.zeros(3)}, {"seed": 7})
    >>> arrays, info = store.get("0" * 64)
    >>> arrays["losses"].shape, info
    ((3,), {'seed': 7})
    """

    claims = True  # runs that use the folder at the same time share the work; see `engine.leases`

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        try:
            self.folder = Path(folder)
        except TypeError:
            raise InputError(f"folder must be a path, got {show(folder)}; pass e.g. 'store'.") from None
        if self.folder.exists() and not self.folder.is_dir():
            raise InputError(f"{self.folder} is a file; pass the folder of a store, or a new one.")
        self._secret = _secret()
        self._check_marker()

    def __repr__(self) -> str:
        return f"Store({str(self.folder)!r})"

    def __contains__(self, key: object) -> bool:
        """Whether a manifest and a file of the right size are there; the content is checked by `get`."""
        if not isinstance(key, str) or not _KEY.fullmatch(key):
            return False
        try:
            with self._opened(key):
                return True
        except (OSError, _DamageError):
            return False

    @property
    def exists(self) -> bool:
        """Whether the folder is a store already: marked, or one of version 0.1.0, which had no marker."""
        return _is_marked(self.folder) or self._is_old()

    def put(self, key: str, arrays: Mapping[str, npt.NDArray[Any]], info: Mapping[str, Any] | None = None) -> None:
        """Keep arrays and info under a key; whole or, on any error, not at all."""
        from dosimeter import __version__

        npz, manifest = self._paths(_checked_key(key))
        _check_arrays(arrays)
        temporary = [npz.with_name(_TEMPORARY + secrets.token_hex(8)) for _ in range(2)]
        renamed = done = False
        try:
            self._made(npz.parent.name)
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
                file.write(_sealed(fields, self._secret))
                _to_disk(file)
            temporary[0].replace(npz)
            renamed = True
            temporary[1].replace(manifest)
            done = True
            _sync_folder(npz.parent)
        except OSError as error:
            raise full_or(error, self.folder, npz) from None
        finally:
            if not done:
                _unlink(*temporary, *([npz] if renamed else []))

    def get(self, key: str) -> tuple[Arrays, dict[str, Any]] | None:
        """Arrays and info, or None if there is no entry; a damaged one is set aside with a DamagedEntryWarning."""
        try:
            with self._opened(_checked_key(key)) as (file, fields):
                return _read(file, fields), fields["info"]
        except FileNotFoundError:
            return None
        except _DamageError as damage:
            where = "it was moved to quarantine" if self._set_aside(key) else "it cannot be moved"
            _warn(f"entry {key[:12]}… of {self.folder} is damaged ({damage}); {where}.")
            return None

    def discard(self, key: str) -> None:
        """Remove an entry; nothing happens if there is none."""
        npz, manifest = self._paths(_checked_key(key))
        if _is_folder(npz.parent):
            _unlink(manifest, npz)

    def ls(self) -> list[Entry]:
        """The entries, oldest first; a manifest that cannot be read is left out with a warning."""
        entries = []
        for key in self._keys(".json"):
            try:
                with self._opened(key) as (_, fields):
                    pass
            except FileNotFoundError:
                continue
            except (OSError, _DamageError) as damage:
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
            try:
                with self._opened(key) as (file, fields):
                    _check_content(file, fields)
            except FileNotFoundError:  # somebody else has removed the entry meanwhile
                continue
            except _DamageError:
                if not self._set_aside(key):
                    _warn(f"entry {key[:12]}… of {self.folder} is damaged and cannot be moved; is it yours?")
                damaged.append(key)
        return damaged

    def gc(
        self,
        *,
        keep: Collection[str] | None = None,
        older_than: float | timedelta | None = None,
        dry_run: bool = False,
    ) -> Removed:
        """Remove entries that are not in `keep` and are older than `older_than` (seconds or a timedelta).

        Without both, entries stay. Unfinished files, the quarantine and logs go once they are an hour old. Files that
        no store has written stay, and so does everything behind a symbolic link.

        Args:
            keep: Keys that stay.
            older_than: Age from which entries go.
            dry_run: Say what would go, and remove nothing.

        Returns:
            What was removed, or would be.

        Raises:
            OSError: If a file cannot be removed; it is named.
        """
        age = older_than.total_seconds() if isinstance(older_than, timedelta) else older_than
        if age is not None and not age >= 0:
            raise InputError(f"older_than must be at least 0 seconds, got {show(older_than)}; pass e.g. 86400.")
        kept = None if keep is None else {_checked_key(key) for key in keep}
        remove = _size if dry_run else _remove
        now = time.time()
        keys: list[str] = []
        total = 0
        if kept is not None or age is not None:
            for key in self._keys(".json"):
                npz, manifest = self._paths(key)
                written = _modified(manifest)
                if (kept is not None and key in kept) or (age is not None and now - written < age):
                    continue
                if _is_folder(manifest):  # `verify` sets it aside
                    continue
                total += remove(manifest, npz)
                keys.append(key)
        leftovers = [
            file for file in self._leftovers() if now - _modified(file) >= _LEFTOVER_AGE and not _is_folder(file)
        ]
        total += remove(*leftovers)
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
        name = _checked_key(key)
        folder = self._made("logs")
        file = folder / f"{name}.txt"
        temporary = folder / (_TEMPORARY + secrets.token_hex(8))
        try:
            temporary.write_text(text, encoding="utf-8", errors="replace")
            temporary.replace(file)
        finally:
            _unlink(temporary)
        return file

    # --- the folder ---------------------------------------------------------------------------------------

    def _check_marker(self) -> None:
        """Refuse a folder that is neither a store nor empty, and one that has another key."""
        try:
            seal = _read_marker(self.folder)
        except FileNotFoundError:
            if self._unused():
                return
            if not self._is_old() and not _is_marked(self.folder):  # another process may have marked it just now
                raise InputError(
                    f"{self.folder} is not a store: it has files, but no {MARKER}; pass a new or an empty folder."
                ) from None
            seal = None
        except _DamageError as damage:
            raise InputError(
                f"{self.folder / MARKER} does not mark a store ({damage}); pass a new folder, or repair it."
            ) from None
        if seal is not None and self._secret is None:
            raise InputError(f"{self.folder} is sealed with a key; set {KEY_VARIABLE} to it.")
        if seal is None and self._secret is not None:
            raise InputError(
                f"{self.folder} is not sealed with a key, but {KEY_VARIABLE} is set; pass a new folder, or unset it."
            )
        if seal is not None and not hmac.compare_digest(seal, str(_mark(self._secret))):
            raise InputError(f"{self.folder} is sealed with another key than {KEY_VARIABLE} has; set the right one.")

    def _unused(self) -> bool:
        """Whether there is nothing yet but what begins a store."""
        if not self.folder.exists():
            return True
        return all(
            part.name.startswith(_TEMPORARY) or (part.name == "leases" and part.is_dir(follow_symlinks=False))
            for part in os.scandir(self.folder)
        )

    def _is_old(self) -> bool:
        """Whether the folder has the layout of version 0.1.0, and at least one entry that is sealed."""
        if not _is_folder(self.folder, follow=True):
            return False
        parts = [part for part in os.scandir(self.folder) if not part.name.startswith(_TEMPORARY)]
        names = {part.name for part in parts}
        known = all(_PREFIX.fullmatch(n) or _OLD_PART.fullmatch(n) or n in _OTHERS for n in names)
        if not known or not all(part.is_dir(follow_symlinks=False) for part in parts):
            return False
        return _has_entry(self.folder) or any(
            _has_entry(self.folder / name) for name in names if _OLD_PART.fullmatch(name)
        )

    def _made(self, name: str) -> Path:
        """A folder of the store, made if it is missing, and with it the marker."""
        if not _is_marked(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            _write_marker(self.folder, self._secret)
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        if not _is_folder(folder):
            raise InputError(f"{folder} is a link, not a folder of the store; remove it.")
        return folder

    def _paths(self, key: str) -> tuple[Path, Path]:
        folder = self.folder / key[:2]
        return folder / f"{key}.npz", folder / f"{key}.json"

    def _keys(self, suffix: str) -> Iterator[str]:
        for folder in _folders(self.folder):
            if _PREFIX.fullmatch(folder.name):
                for name in _names(folder):
                    key = name.removesuffix(suffix)
                    if key != name and _KEY.fullmatch(key) and key[:2] == folder.name:
                        yield key

    def _leftovers(self) -> Iterator[Path]:
        if self.folder.is_dir():
            yield from (self.folder / name for name in _names(self.folder) if name.startswith(_TEMPORARY))
        for folder in _folders(self.folder):
            names = _names(folder)
            if folder.name == "quarantine":
                yield from (folder / name for name in names if _ASIDE.fullmatch(name))
            elif folder.name == "logs":
                known = [n for n in names if _KEY.fullmatch(n.removesuffix(".txt")) or n.startswith(_TEMPORARY)]
                yield from (folder / name for name in known)
            elif _PREFIX.fullmatch(folder.name):
                yield from (folder / name for name in names if name.startswith(_TEMPORARY))
                yield from (
                    folder / name
                    for name in names
                    if _KEY.fullmatch(name.removesuffix(".npz")) and f"{name.removesuffix('.npz')}.json" not in names
                )

    @contextmanager
    def _opened(self, key: str) -> Iterator[tuple[IO[bytes], dict[str, Any]]]:
        """The .npz of an entry, open, and its manifest; all that can be checked without reading the .npz is right."""
        npz, manifest = self._paths(key)
        if not npz.parent.is_symlink() and not npz.parent.exists():
            raise FileNotFoundError(npz)
        if not _is_folder(npz.parent):
            raise _DamageError("its folder is not one")
        with _regular(manifest) as file:
            fields = _read_manifest(file, key, self._secret)
        try:
            with _regular(npz) as file:
                if os.fstat(file.fileno()).st_size != fields["bytes"]:
                    raise _DamageError("its .npz has another size")
                yield file, fields
        except FileNotFoundError:
            if manifest.exists():
                raise _DamageError("its .npz is missing") from None
            raise

    def _sound(self, key: str) -> bool:
        try:
            with self._opened(key) as (file, fields):
                _check_content(file, fields)
        except (OSError, _DamageError) as damage:
            _warn(f"entry {key[:12]}… of {self.folder} is damaged ({damage}) and was not exported.")
            return False
        return True

    def _set_aside(self, key: str) -> bool:
        """Move what stands for an entry to the quarantine, or else away; whether it is gone."""
        files = self._paths(key)[::-1]
        if not _is_folder(files[0].parent):
            files = (files[0].parent,) * 2
        try:
            quarantine = self._made("quarantine")
        except (OSError, InputError):
            quarantine = None
        for file in files:
            if quarantine is not None:
                token = "" if not os.path.lexists(quarantine / file.name) else f".{secrets.token_hex(8)}"
                with contextlib.suppress(OSError):
                    file.rename(quarantine / f"{file.name}{token}")
            _unlink(file)  # no space for the folder: away with it in any case
        return not any(map(os.path.lexists, files))

    def _export_zip(self, keys: Iterable[str], target: Path) -> None:
        temporary = target.with_name(_TEMPORARY + secrets.token_hex(8))
        try:
            with temporary.open("wb") as file:
                with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
                    archive.writestr(MARKER, _marker(self._secret))
                    for key in keys:
                        for source in self._paths(key):
                            archive.write(source, f"{key[:2]}/{source.name}")
                _to_disk(file)
            temporary.replace(target)
        finally:
            _unlink(temporary)

    def _export_folder(self, keys: Iterable[str], target: Store) -> None:
        for key in keys:
            folder = target._made(key[:2])
            for source in self._paths(key):
                temporary = folder / (_TEMPORARY + secrets.token_hex(8))
                try:
                    with _regular(source) as reading, temporary.open("wb") as writing:
                        shutil.copyfileobj(reading, writing)
                        _to_disk(writing)
                    temporary.replace(folder / source.name)
                finally:
                    _unlink(temporary)


_FORMAT = "dosimeter store 1"
_OTHERS = ("quarantine", "logs", "leases")


def _secret() -> bytes | None:
    text = os.environ.get(KEY_VARIABLE)
    if not text:
        return None
    if len(text) < _SHORTEST_KEY:
        raise InputError(
            f"{KEY_VARIABLE} has {len(text)} characters; take at least {_SHORTEST_KEY}, e.g. secrets.token_hex(32)."
        )
    return text.encode("utf-8", "surrogateescape")


def _mark(secret: bytes | None) -> str | None:
    """What the marker says of the key: enough to know it again."""
    return None if secret is None else hmac.digest(secret, _FORMAT.encode(), "sha256").hex()


def _marker(secret: bytes | None) -> bytes:
    return canonical({"format": _FORMAT, "seal": _mark(secret)}).encode()


def _is_marked(folder: Path) -> bool:
    return (folder / MARKER).is_file()


def _read_marker(folder: Path) -> str | None:
    """What the marker says of the key; FileNotFoundError if there is none."""
    with _regular(folder / MARKER) as file:
        try:
            fields = json.loads(file.read(10_000))
            found, seal = fields["format"], fields["seal"]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise _DamageError("it is no marker") from None
    if found != _FORMAT or not (seal is None or (isinstance(seal, str) and seal.isascii())):
        raise _DamageError("it is no marker")
    return seal


def _write_marker(folder: Path, secret: bytes | None) -> None:
    temporary = folder / (_TEMPORARY + secrets.token_hex(8))
    try:
        with temporary.open("wb") as file:
            file.write(_marker(secret))
            _to_disk(file)
        temporary.replace(folder / MARKER)
    finally:
        _unlink(temporary)


def _is_folder(path: Path, *, follow: bool = False) -> bool:
    """Whether this is a folder, not a link to one."""
    try:
        return stat.S_ISDIR(path.stat(follow_symlinks=follow).st_mode)
    except OSError:
        return False


def _folders(folder: Path) -> list[Path]:
    """The folders in a folder, without links."""
    if not folder.is_dir():
        return []
    return sorted(Path(part.path) for part in os.scandir(folder) if part.is_dir(follow_symlinks=False))


def _names(folder: Path) -> list[str]:
    return sorted(part.name for part in folder.iterdir())


def _has_entry(folder: Path) -> bool:
    """Whether there is an entry with a seal of version 0.1.0, which knew no keys."""
    for inner in _folders(folder):
        for name in _names(inner) if _PREFIX.fullmatch(inner.name) else ():
            key = name.removesuffix(".json")
            if _KEY.fullmatch(key) and key != name:
                with contextlib.suppress(OSError, _DamageError), _regular(inner / name) as file:
                    _read_manifest(file, key, None)
                    return True
    return False


@contextmanager
def _regular(path: Path) -> Iterator[IO[bytes]]:
    """An ordinary file, open for reading: no link is followed, and nothing waits for a pipe."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        found = path.lstat()
        if not stat.S_ISREG(found.st_mode):
            raise _DamageError(f"its {path.suffix} is {_called(found.st_mode)}, not a file")
        descriptor = os.open(path, flags)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _DamageError(f"it cannot be read: {error.strerror or error}") from None
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise _DamageError("it is not a file")
        yield file


def _called(mode: int) -> str:
    names = {stat.S_ISLNK: "a link", stat.S_ISDIR: "a folder", stat.S_ISFIFO: "a pipe", stat.S_ISSOCK: "a socket"}
    return next((name for test, name in names.items() if test(mode)), "a device")


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


def _sealed(fields: Mapping[str, Any], secret: bytes | None) -> bytes:
    text = canonical(fields).encode()
    seal = hashlib.sha256(text).hexdigest() if secret is None else hmac.digest(secret, text, "sha256").hex()
    return canonical({**fields, "seal": seal}).encode()


def _read_manifest(file: IO[bytes], key: str, secret: bytes | None) -> dict[str, Any]:
    """The fields of a manifest, all of them there and of their types."""
    if os.fstat(file.fileno()).st_size > _LARGEST_MANIFEST:
        raise _DamageError("its manifest is too large")
    content = file.read(_LARGEST_MANIFEST)
    try:
        fields = json.loads(content)
        del fields["seal"]
        genuine = hmac.compare_digest(_sealed(fields, secret), content) and fields["key"] == key
    except (ValueError, KeyError, TypeError, RecursionError):
        genuine = False
    if not genuine:
        raise _DamageError("its manifest was altered")
    wrong = next((name for name, kind in _FIELDS.items() if type(fields.get(name)) is not kind), None)
    if wrong is not None:
        raise _DamageError(f"its manifest has no {wrong}")
    for name, form in fields["arrays"].items():
        if not _is_form(form):
            raise _DamageError(f"its manifest does not say what {show(name)} is")
    return dict(fields)


_FIELDS = {"sha256": str, "bytes": int, "arrays": dict, "created": str, "dosimeter": str, "info": dict}


def _is_form(form: Any) -> bool:
    """Whether this is what a manifest says of an array: {"dtype": …, "shape": […]}."""
    if not isinstance(form, dict) or not isinstance(form.get("dtype"), str) or not isinstance(form.get("shape"), list):
        return False
    return all(type(length) is int and length >= 0 for length in form["shape"])


def _check_content(file: IO[bytes], fields: Mapping[str, Any]) -> None:
    """The checksum, and then that the file holds just the arrays of the manifest, before any of them is made."""
    if hashlib.file_digest(file, "sha256").hexdigest() != fields["sha256"]:  # type: ignore[arg-type]
        raise _DamageError("the checksum of its .npz differs")
    with _members(file, fields) as archive:
        for name, form in fields["arrays"].items():
            with archive.open(f"{name}.npy") as member:
                dtype, shape = _header(member)
                size = math.prod(shape) * dtype.itemsize
                held = archive.getinfo(f"{name}.npy").file_size
                if str(dtype) != form["dtype"] or list(shape) != form["shape"] or dtype.hasobject or size > held:
                    raise _DamageError(f"its array {show(name)} is not what the manifest says")


def _read(file: IO[bytes], fields: Mapping[str, Any]) -> Arrays:
    _check_content(file, fields)
    arrays: Arrays = {}
    with _members(file, fields) as archive:
        for name in fields["arrays"]:
            with archive.open(f"{name}.npy") as member:
                arrays[name] = np.lib.format.read_array(member, allow_pickle=False)
    return arrays


@contextmanager
def _members(file: IO[bytes], fields: Mapping[str, Any]) -> Iterator[zipfile.ZipFile]:
    """The archive; its members are stored as they are, so that none is larger than the file."""
    file.seek(0)
    try:
        with zipfile.ZipFile(file) as archive:
            found = archive.infolist()
            if sorted(one.filename for one in found) != sorted(f"{name}.npy" for name in fields["arrays"]):
                raise _DamageError("it holds other arrays than the manifest says")
            if any(one.compress_type != zipfile.ZIP_STORED or one.file_size > fields["bytes"] for one in found):
                raise _DamageError("its arrays are larger than its file")
            yield archive
    except (ValueError, OSError, EOFError, KeyError, NotImplementedError, RuntimeError, zipfile.BadZipFile) as error:
        raise _DamageError(f"its arrays cannot be read: {show(str(error))}") from None


def _header(member: IO[bytes]) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """Type and shape from the head of an .npy file of any version."""
    version = np.lib.format.read_magic(member)
    length = int.from_bytes(member.read(2 if version == (1, 0) else 4), "little")
    if length > _LONGEST_HEADER:
        raise ValueError(f"a header of {length} bytes")
    try:
        head = ast.literal_eval(member.read(length).decode("latin1" if version < (3, 0) else "utf-8"))
        return np.lib.format.descr_to_dtype(head["descr"]), tuple(int(side) for side in head["shape"])
    except (SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise ValueError(f"no header: {error}") from None


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


def full_or(error: OSError, folder: Path, file: Path | None = None) -> OSError:
    """The error with the name of its file, or the sentence for a full disk."""
    full = error.errno in (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC))
    return DiskFullError(folder) if full else named(error, file or folder)


def _modified(file: Path) -> float:
    try:
        return file.lstat().st_mtime
    except OSError:
        return time.time()


def _unlink(*files: Path) -> int:
    """Remove files that may be gone already, links as such; the bytes that were set free."""
    total = 0
    for file in files:
        with contextlib.suppress(OSError):
            size = file.lstat().st_size
            file.unlink()
            total += size
    return total


def _remove(*files: Path) -> int:
    """Like `_unlink`, but what cannot be removed is an error; a folder in place of a file stays."""
    total = 0
    for file in files:
        with contextlib.suppress(FileNotFoundError):
            if _is_folder(file):
                continue
            size = file.lstat().st_size
            file.unlink()
            total += size
    return total


def _size(*files: Path) -> int:
    total = 0
    for file in files:
        with contextlib.suppress(OSError):
            total += file.lstat().st_size
    return total


def _warn(message: str) -> None:
    warnings.warn(message, DamagedEntryWarning, stacklevel=3)
