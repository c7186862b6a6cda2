"""The marker of a store: a file that says that a folder is one, and whether a key seals its entries."""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import re
import secrets
from pathlib import Path

from dosimeter._validate import InputError
from dosimeter.engine._store_entries import KEY, PREFIX, read_manifest
from dosimeter.engine._store_files import (
    TEMPORARY,
    DamageError,
    folders,
    is_folder,
    names_in,
    regular,
    to_disk,
    unlink,
)
from dosimeter.engine.tasks import canonical

__all__ = [
    "KEY_VARIABLE",
    "MARKER",
    "check_marker",
    "is_marked",
    "is_old",
    "marker",
    "secret_key",
    "write_marker",
]

MARKER = "dosimeter-store.json"
KEY_VARIABLE = "DOSIMETER_STORE_KEY"
_FORMAT = "dosimeter store 1"
_SHORTEST_KEY = 16  # characters
_OLD_PART = re.compile(r"[0-9a-f]{16}")  # folders in which 0.1.0 kept the trainings of one function
_OTHERS = ("quarantine", "logs", "leases")


def secret_key() -> bytes | None:
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


def marker(secret: bytes | None) -> bytes:
    return canonical({"format": _FORMAT, "seal": _mark(secret)}).encode()


def is_marked(folder: Path) -> bool:
    return (folder / MARKER).is_file()


def _read_marker(folder: Path) -> str | None:
    """What the marker says of the key; FileNotFoundError if there is none."""
    with regular(folder / MARKER) as file:
        try:
            fields = json.loads(file.read(10_000))
            found, seal = fields["format"], fields["seal"]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise DamageError("it is not a marker") from None
    if found != _FORMAT or not (seal is None or (isinstance(seal, str) and seal.isascii())):
        raise DamageError("it is not a marker")
    return seal


def write_marker(folder: Path, secret: bytes | None) -> None:
    temporary = folder / (TEMPORARY + secrets.token_hex(8))
    try:
        with temporary.open("wb") as file:
            file.write(marker(secret))
            to_disk(file)
        temporary.replace(folder / MARKER)
    finally:
        unlink(temporary)


def check_marker(folder: Path, secret: bytes | None) -> None:
    """Refuse a folder that is neither a store nor empty, and one that has another key."""
    try:
        seal = _read_marker(folder)
    except FileNotFoundError:
        if _is_unused(folder):
            return
        if not is_old(folder) and not is_marked(folder):  # another process may have marked it just now
            raise InputError(
                f"{folder} is not a store: it has files, but no {MARKER}; pass a new or an empty folder."
            ) from None
        seal = None
    except DamageError as damage:
        raise InputError(
            f"{folder / MARKER} does not mark a store ({damage}); pass a new folder, or repair it."
        ) from None
    if seal is not None and secret is None:
        raise InputError(f"{folder} is sealed with a key; set {KEY_VARIABLE} to it.")
    if seal is None and secret is not None:
        raise InputError(
            f"{folder} is not sealed with a key, but {KEY_VARIABLE} is set; pass a new folder, or unset it."
        )
    if seal is not None and not hmac.compare_digest(seal, str(_mark(secret))):
        raise InputError(f"{folder} is sealed with another key than {KEY_VARIABLE} has; set the right one.")


def _is_unused(folder: Path) -> bool:
    """Whether there is nothing yet but what begins a store."""
    if not folder.exists():
        return True
    return all(
        part.name.startswith(TEMPORARY) or (part.name == "leases" and part.is_dir(follow_symlinks=False))
        for part in os.scandir(folder)
    )


def is_old(folder: Path) -> bool:
    """Whether the folder has the layout of version 0.1.0, and at least one entry that is sealed."""
    if not is_folder(folder, follow=True):
        return False
    parts = [part for part in os.scandir(folder) if not part.name.startswith(TEMPORARY)]
    names = {part.name for part in parts}
    known = all(PREFIX.fullmatch(n) or _OLD_PART.fullmatch(n) or n in _OTHERS for n in names)
    if not known or not all(part.is_dir(follow_symlinks=False) for part in parts):
        return False
    return _has_entry(folder) or any(_has_entry(folder / name) for name in names if _OLD_PART.fullmatch(name))


def _has_entry(folder: Path) -> bool:
    """Whether there is an entry with a seal of version 0.1.0, which knew no keys."""
    for inner in folders(folder):
        for name in names_in(inner) if PREFIX.fullmatch(inner.name) else ():
            key = name.removesuffix(".json")
            if KEY.fullmatch(key) and key != name:
                with contextlib.suppress(OSError, DamageError), regular(inner / name) as file:
                    read_manifest(file, key, None)
                    return True
    return False
