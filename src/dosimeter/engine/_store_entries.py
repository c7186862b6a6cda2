"""An entry of a store: its arrays as .npz, and the sealed manifest that says what they are."""

from __future__ import annotations

import ast
import hashlib
import hmac
import json
import math
import os
import re
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from dosimeter._validate import InputError, show
from dosimeter.engine._store_files import DamageError
from dosimeter.engine.tasks import Arrays, canonical

__all__ = ["KEY", "PREFIX", "check_arrays", "check_content", "read_arrays", "read_manifest", "sealed", "write_arrays"]

KEY = re.compile(r"[0-9a-f]{64}")
PREFIX = re.compile(r"[0-9a-f]{2}")  # of a key: the name of the folder that its entry is in
_LARGEST_MANIFEST = 64_000_000  # bytes
_LONGEST_HEADER = 1_000_000  # bytes, of an array


def check_arrays(arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    for name, array in arrays.items():
        if not isinstance(name, str) or not name or name.endswith(".npy"):
            raise InputError(f"arrays has the name {show(name)}; use a text that does not end with .npy.")
        if not isinstance(array, np.ndarray) or array.dtype.hasobject:
            raise InputError(f"arrays[{name!r}] is {show(array)}; pass a NumPy array of numbers or text, no objects.")


def write_arrays(file: IO[bytes], arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    # numpy.savez would take an array named "file" for its own argument.
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for name, array in arrays.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def sealed(fields: Mapping[str, Any], secret: bytes | None) -> bytes:
    text = canonical(fields).encode()
    seal = hashlib.sha256(text).hexdigest() if secret is None else hmac.digest(secret, text, "sha256").hex()
    return canonical({**fields, "seal": seal}).encode()


def read_manifest(file: IO[bytes], key: str, secret: bytes | None) -> dict[str, Any]:
    """The fields of a manifest, all of them there and of their types."""
    if os.fstat(file.fileno()).st_size > _LARGEST_MANIFEST:
        raise DamageError("its manifest is too large")
    content = file.read(_LARGEST_MANIFEST)
    try:
        fields = json.loads(content)
        del fields["seal"]
        genuine = hmac.compare_digest(sealed(fields, secret), content) and fields["key"] == key
    except (ValueError, KeyError, TypeError, RecursionError):
        genuine = False
    if not genuine:
        raise DamageError("its manifest was altered")
    wrong = next((name for name, kind in _FIELDS.items() if type(fields.get(name)) is not kind), None)
    if wrong is not None:
        raise DamageError(f"its manifest has no {wrong}")
    for name, form in fields["arrays"].items():
        if not _is_form(form):
            raise DamageError(f"its manifest does not say what {show(name)} is")
    return dict(fields)


_FIELDS = {"sha256": str, "bytes": int, "arrays": dict, "created": str, "dosimeter": str, "info": dict}


def _is_form(form: Any) -> bool:
    """Whether this is what a manifest says of an array: {"dtype": …, "shape": […]}."""
    if not isinstance(form, dict) or not isinstance(form.get("dtype"), str) or not isinstance(form.get("shape"), list):
        return False
    return all(type(length) is int and length >= 0 for length in form["shape"])


def check_content(file: IO[bytes], fields: Mapping[str, Any]) -> None:
    """The checksum, and then that the file holds just the arrays of the manifest, before any of them is made."""
    if hashlib.file_digest(file, "sha256").hexdigest() != fields["sha256"]:  # type: ignore[arg-type]
        raise DamageError("the checksum of its .npz differs")
    with _members(file, fields) as archive:
        for name, form in fields["arrays"].items():
            with archive.open(f"{name}.npy") as member:
                dtype, shape = _header(member)
                size = math.prod(shape) * dtype.itemsize
                held = archive.getinfo(f"{name}.npy").file_size
                if str(dtype) != form["dtype"] or list(shape) != form["shape"] or dtype.hasobject or size > held:
                    raise DamageError(f"its array {show(name)} is not what the manifest says")


def read_arrays(file: IO[bytes], fields: Mapping[str, Any]) -> Arrays:
    check_content(file, fields)
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
                raise DamageError("it holds other arrays than the manifest says")
            if any(one.compress_type != zipfile.ZIP_STORED or one.file_size > fields["bytes"] for one in found):
                raise DamageError("its arrays are larger than its file")
            yield archive
    except (ValueError, OSError, EOFError, KeyError, NotImplementedError, RuntimeError, zipfile.BadZipFile) as error:
        raise DamageError(f"its arrays cannot be read: {show(str(error))}") from None


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
