"""A folder of results under the keys of their tasks: written whole or not at all, checked whenever they are read.

An entry is `ab/abcd….npz` (arrays, never pickled) and `ab/abcd….json` (its manifest with the checksum of the .npz and
a seal over itself). Both are written under temporary names and flushed to the disk, then renamed, the manifest last: an
entry without a valid manifest does not exist. Any number of processes or nodes may share the folder.

A file `dosimeter-store.json` marks the folder as a store; only a `Store` writes it. Nothing is read, moved or removed
through a symbolic link, and nothing outside the folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import shutil
import time
import warnings
import zipfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, Any

import numpy.typing as npt

from dosimeter._validate import InputError, show
from dosimeter.engine._store_entries import (
    KEY,
    PREFIX,
    check_arrays,
    check_content,
    read_arrays,
    read_manifest,
    sealed,
    write_arrays,
)
from dosimeter.engine._store_files import (
    TEMPORARY,
    DamageError,
    DiskFullError,
    folders,
    full_or,
    is_folder,
    modified,
    names_in,
    regular,
    remove_files,
    size_of,
    sync_folder,
    to_disk,
    unlink,
)
from dosimeter.engine._store_marker import (
    KEY_VARIABLE,
    MARKER,
    check_marker,
    is_marked,
    is_old,
    marker,
    secret_key,
    write_marker,
)
from dosimeter.engine.tasks import Arrays
from dosimeter.estimate import plain

__all__ = ["KEY_VARIABLE", "MARKER", "DamagedEntryWarning", "DiskFullError", "Entry", "Removed", "Store", "full_or"]

_ASIDE = re.compile(r"[0-9a-f]{2,64}(\.(npz|json))?(\.[0-9a-f]{16})?")
_LEFTOVER_AGE = 3600.0  # seconds; a younger temporary file may still be in use


class DamagedEntryWarning(UserWarning):
    """A stored file is not what was written; it was set aside and its task will be computed again."""


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


class Store:
    """Keep the results of finished tasks in a content-addressed folder.

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
    >>> import numpy as np
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
        self._secret = secret_key()
        check_marker(self.folder, self._secret)

    def __repr__(self) -> str:
        return f"Store({str(self.folder)!r})"

    def __contains__(self, key: object) -> bool:
        """Whether a manifest and a file of the right size are there; the content is checked by `get`."""
        if not isinstance(key, str) or not KEY.fullmatch(key):
            return False
        try:
            with self._opened(key):
                return True
        except (OSError, DamageError):
            return False

    @property
    def exists(self) -> bool:
        """Whether the folder is a store already: marked, or one of version 0.1.0, which had no marker."""
        return is_marked(self.folder) or is_old(self.folder)

    def put(self, key: str, arrays: Mapping[str, npt.NDArray[Any]], info: Mapping[str, Any] | None = None) -> None:
        """Keep arrays and info under a key; whole or, on any error, not at all."""
        from dosimeter import __version__

        npz, manifest = self._paths(_checked_key(key))
        check_arrays(arrays)
        temporary = [npz.with_name(TEMPORARY + secrets.token_hex(8)) for _ in range(2)]
        renamed = done = False
        try:
            self._made(npz.parent.name)
            with temporary[0].open("wb+") as file:
                write_arrays(file, arrays)
                to_disk(file)
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
                file.write(sealed(fields, self._secret))
                to_disk(file)
            temporary[0].replace(npz)
            renamed = True
            temporary[1].replace(manifest)
            done = True
            sync_folder(npz.parent)
        except OSError as error:
            raise full_or(error, self.folder, npz) from None
        finally:
            if not done:
                unlink(*temporary, *([npz] if renamed else []))

    def get(self, key: str) -> tuple[Arrays, dict[str, Any]] | None:
        """Arrays and info, or None if there is no entry; a damaged one is set aside with a DamagedEntryWarning."""
        try:
            with self._opened(_checked_key(key)) as (file, fields):
                return read_arrays(file, fields), fields["info"]
        except FileNotFoundError:
            return None
        except DamageError as damage:
            where = "it was moved to quarantine" if self._set_aside(key) else "it cannot be moved"
            _warn(f"entry {key[:12]}… of {self.folder} is damaged ({damage}); {where}.")
            return None

    def discard(self, key: str) -> None:
        """Remove an entry; nothing happens if there is none."""
        npz, manifest = self._paths(_checked_key(key))
        if is_folder(npz.parent):
            unlink(manifest, npz)

    def ls(self) -> list[Entry]:
        """The entries, oldest first; a manifest that cannot be read is left out with a warning."""
        entries = []
        for key in self._keys(".json"):
            try:
                with self._opened(key) as (_, fields):
                    pass
            except FileNotFoundError:
                continue
            except (OSError, DamageError) as damage:
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
                    check_content(file, fields)
            except FileNotFoundError:  # another process has removed the entry meanwhile
                continue
            except DamageError:
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
        remove = size_of if dry_run else remove_files
        now = time.time()
        keys: list[str] = []
        total = 0
        if kept is not None or age is not None:
            for key in self._keys(".json"):
                npz, manifest = self._paths(key)
                written = modified(manifest)
                if (kept is not None and key in kept) or (age is not None and now - written < age):
                    continue
                if is_folder(manifest):  # `verify` sets it aside
                    continue
                total += remove(manifest, npz)
                keys.append(key)
        leftovers = [
            file for file in self._leftovers() if now - modified(file) >= _LEFTOVER_AGE and not is_folder(file)
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
        temporary = folder / (TEMPORARY + secrets.token_hex(8))
        try:
            temporary.write_text(text, encoding="utf-8", errors="replace")
            temporary.replace(file)
        finally:
            unlink(temporary)
        return file

    # --- the folder ---------------------------------------------------------------------------------------

    def _made(self, name: str) -> Path:
        """A folder of the store, made if it is missing, and with it the marker."""
        if not is_marked(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            write_marker(self.folder, self._secret)
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        if not is_folder(folder):
            raise InputError(f"{folder} is a link, not a folder of the store; remove it.")
        return folder

    def _paths(self, key: str) -> tuple[Path, Path]:
        folder = self.folder / key[:2]
        return folder / f"{key}.npz", folder / f"{key}.json"

    def _keys(self, suffix: str) -> Iterator[str]:
        for folder in folders(self.folder):
            if PREFIX.fullmatch(folder.name):
                for name in names_in(folder):
                    key = name.removesuffix(suffix)
                    if key != name and KEY.fullmatch(key) and key[:2] == folder.name:
                        yield key

    def _leftovers(self) -> Iterator[Path]:
        if self.folder.is_dir():
            yield from (self.folder / name for name in names_in(self.folder) if name.startswith(TEMPORARY))
        for folder in folders(self.folder):
            names = names_in(folder)
            if folder.name == "quarantine":
                yield from (folder / name for name in names if _ASIDE.fullmatch(name))
            elif folder.name == "logs":
                known = [n for n in names if KEY.fullmatch(n.removesuffix(".txt")) or n.startswith(TEMPORARY)]
                yield from (folder / name for name in known)
            elif PREFIX.fullmatch(folder.name):
                yield from (folder / name for name in names if name.startswith(TEMPORARY))
                yield from (
                    folder / name
                    for name in names
                    if KEY.fullmatch(name.removesuffix(".npz")) and f"{name.removesuffix('.npz')}.json" not in names
                )

    @contextmanager
    def _opened(self, key: str) -> Iterator[tuple[IO[bytes], dict[str, Any]]]:
        """The .npz of an entry, open, and its manifest; all that can be checked without reading the .npz is right."""
        npz, manifest = self._paths(key)
        if not npz.parent.is_symlink() and not npz.parent.exists():
            raise FileNotFoundError(npz)
        if not is_folder(npz.parent):
            raise DamageError("its folder is not one")
        with regular(manifest) as file:
            fields = read_manifest(file, key, self._secret)
        try:
            with regular(npz) as file:
                if os.fstat(file.fileno()).st_size != fields["bytes"]:
                    raise DamageError("its .npz has another size")
                yield file, fields
        except FileNotFoundError:
            if manifest.exists():
                raise DamageError("its .npz is missing") from None
            raise

    def _sound(self, key: str) -> bool:
        try:
            with self._opened(key) as (file, fields):
                check_content(file, fields)
        except (OSError, DamageError) as damage:
            _warn(f"entry {key[:12]}… of {self.folder} is damaged ({damage}) and was not exported.")
            return False
        return True

    def _set_aside(self, key: str) -> bool:
        """Move what stands for an entry to the quarantine, or else away; whether it is gone."""
        files = self._paths(key)[::-1]
        if not is_folder(files[0].parent):
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
            unlink(file)  # no space for the folder: away with it in any case
        return not any(map(os.path.lexists, files))

    def _export_zip(self, keys: Iterable[str], target: Path) -> None:
        temporary = target.with_name(TEMPORARY + secrets.token_hex(8))
        try:
            with temporary.open("wb") as file:
                with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
                    archive.writestr(MARKER, marker(self._secret))
                    for key in keys:
                        for source in self._paths(key):
                            archive.write(source, f"{key[:2]}/{source.name}")
                to_disk(file)
            temporary.replace(target)
        finally:
            unlink(temporary)

    def _export_folder(self, keys: Iterable[str], target: Store) -> None:
        for key in keys:
            folder = target._made(key[:2])
            for source in self._paths(key):
                temporary = folder / (TEMPORARY + secrets.token_hex(8))
                try:
                    with regular(source) as reading, temporary.open("wb") as writing:
                        shutil.copyfileobj(reading, writing)
                        to_disk(writing)
                    temporary.replace(folder / source.name)
                finally:
                    unlink(temporary)


def _warn(message: str) -> None:
    warnings.warn(message, DamagedEntryWarning, stacklevel=3)


def _checked_key(key: Any) -> str:
    if not isinstance(key, str) or not KEY.fullmatch(key):
        raise InputError(f"key must be 64 hexadecimal digits, got {show(key)}; pass the key of a task.")
    return key
