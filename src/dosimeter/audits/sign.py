"""Who made this audit? An Ed25519 signature in a file beside it.

`verify` finds numbers that do not follow from the evidence; a forger may invent evidence. A signature says that the
holder of a private key made, or stands for, exactly these values. It is made over a canonical form of the JSON, so that
another layout of the same file keeps it, and it is kept in `audit.json.sig`, so that the audit stays what it was.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dosimeter._validate import InputError, require, show
from dosimeter.reading import read_text, strict_json

__all__ = ["Signature", "canonical", "check_signature", "new_keys", "read_signature", "sign"]

ENDING = ".sig"
PASSWORD = "DOSIMETER_KEY_PASSWORD"
_PURPOSE = b"dosimeter audit signature, version 1\n"


@dataclass(frozen=True)
class Signature:
    """A signature and the public key that it claims to be made for, both as bytes."""

    signature: bytes
    public_key: bytes

    @property
    def key_id(self) -> str:
        """A short name of the key, to compare by eye."""
        return self.public_key.hex()[:16]

    def to_json(self) -> str:
        """The text of the file beside the audit."""
        parts = {"signature": self.signature, "public_key": self.public_key}
        encoded = {name: base64.b64encode(value).decode("ascii") for name, value in parts.items()}
        return json.dumps({"format": 1, "algorithm": "Ed25519", **encoded}, indent=2) + "\n"


def canonical(text: str | bytes) -> bytes:
    """The one form of a JSON text that is signed: keys in order, no spaces, UTF-8.

    >>> canonical('{"b": 1.50, "a": "ε"}') == canonical('{"a":"ε","b":1.5}')
    True
    """
    values = strict_json(text, what="the audit")
    form = json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return form.encode("utf-8")


def sign(text: str | bytes, key: str | os.PathLike[str]) -> Signature:
    """Sign the JSON of an audit.

    Args:
        text: The JSON.
        key: The file of an Ed25519 private key in PEM; its password, if any, in DOSIMETER_KEY_PASSWORD.

    Returns:
        The signature; its `to_json` belongs into a file beside the audit.

    Raises:
        InputError: If the key cannot be used.

    >>> public = new_keys("signer.pem")
    >>> len(sign('{"epsilon": 1.5}', "signer.pem").signature)
    64
    """
    serialization = require("cryptography.hazmat.primitives.serialization", extra="sign", caller="sign")
    ed25519 = require("cryptography.hazmat.primitives.asymmetric.ed25519", extra="sign", caller="sign")
    password = os.environ.get(PASSWORD)
    try:
        private = serialization.load_pem_private_key(
            _pem(key), password=None if password is None else password.encode("utf-8")
        )
    except (ValueError, TypeError) as error:
        raise InputError(
            f"{key} is not a private key that can be read ({show(str(error))}); pass a PEM file, and the password of "
            f"a protected one in {PASSWORD}."
        ) from None
    if not isinstance(private, ed25519.Ed25519PrivateKey):
        raise InputError(f"{key} is a key of another kind; make an Ed25519 key with `dosimeter sign --new-key`.")
    public = private.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    return Signature(private.sign(_PURPOSE + canonical(text)), public)


def check_signature(text: str | bytes, signature: Signature, key: str | os.PathLike[str]) -> None:
    """Refuse an audit that was not signed by the holder of a key.

    Args:
        text: The JSON of the audit.
        signature: What stands beside it.
        key: The file of the Ed25519 public key in PEM, from somebody who is trusted. The key in the signature file
            is not: whoever forged the audit wrote it.

    Returns:
        Nothing, where the signature fits.

    Raises:
        InputError: If the signature was made by another key or for another audit.

    >>> public = new_keys("author.pem")
    >>> check_signature('{"epsilon": 1.0}', sign('{"epsilon": 1.5}', "author.pem"), public)
    Traceback (most recent call last):
        ...
    dosimeter._validate.InputError: the signature does not fit the audit and author.public.pem: the audit was ...
    """
    serialization = require("cryptography.hazmat.primitives.serialization", extra="sign", caller="check_signature")
    ed25519 = require("cryptography.hazmat.primitives.asymmetric.ed25519", extra="sign", caller="check_signature")
    exceptions = require("cryptography.exceptions", extra="sign", caller="check_signature")
    try:
        public = serialization.load_pem_public_key(_pem(key))
    except (ValueError, TypeError, exceptions.UnsupportedAlgorithm):
        raise InputError(f"{key} is not a public key that can be read; pass the PEM file of an Ed25519 key.") from None
    if not isinstance(public, ed25519.Ed25519PublicKey):
        raise InputError(f"{key} is a key of another kind; pass the Ed25519 key of whoever signs audits.")
    raw = public.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    try:
        public.verify(signature.signature, _PURPOSE + canonical(text))
    except exceptions.InvalidSignature:
        own = raw == signature.public_key
        reason = "the audit was changed after it was signed" if own else "it was signed with another key"
        raise InputError(f"the signature does not fit the audit and {key}: {reason}; ask for the original.") from None


def read_signature(path: str | os.PathLike[str]) -> Signature:
    """Read the signature file beside an audit."""
    values = strict_json(read_text(path, limit=1 << 16), what=str(path))
    if not isinstance(values, dict) or values.get("format") != 1 or values.get("algorithm") != "Ed25519":
        raise InputError(f"{path} is not a signature of this version; sign the audit again.")
    return Signature(_bytes(values.get("signature"), 64, path), _bytes(values.get("public_key"), 32, path))


def _bytes(value: Any, size: int, path: object) -> bytes:
    try:
        decoded = base64.b64decode(value, validate=True) if isinstance(value, str) else b""
    except (binascii.Error, ValueError):
        decoded = b""
    if len(decoded) != size:
        raise InputError(f"{path} is damaged; sign the audit again.")
    return decoded


def _pem(path: str | os.PathLike[str]) -> bytes:
    return read_text(path, limit=1 << 16).encode("utf-8")


def new_keys(private: str | os.PathLike[str]) -> Path:
    """Make a pair of keys: the private one in the file `private`, which only its owner may read.

    Args:
        private: Where the private key goes, e.g. "audit-key.pem"; it must not exist yet.

    Returns:
        The file of the public key, "audit-key.public.pem".

    Raises:
        InputError: If one of the files exists.

    >>> new_keys("audit-key.pem").name
    'audit-key.public.pem'
    """
    serialization = require("cryptography.hazmat.primitives.serialization", extra="sign", caller="new_keys")
    ed25519 = require("cryptography.hazmat.primitives.asymmetric.ed25519", extra="sign", caller="new_keys")
    secret = Path(private)
    public = secret.with_name(secret.stem + ".public" + (secret.suffix or ".pem"))
    for path in (secret, public):
        if path.exists():
            raise InputError(f"{path} exists; keys are never written over, choose another name.")
    key = ed25519.Ed25519PrivateKey.generate()
    password = os.environ.get(PASSWORD)
    sealed = serialization.BestAvailableEncryption(password.encode()) if password else serialization.NoEncryption()
    own = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, sealed)
    shared = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    for path, content, mode in ((secret, own, 0o600), (public, shared, 0o644)):
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        except FileExistsError:
            raise InputError(f"{path} exists; keys are never written over, choose another name.") from None
        with os.fdopen(handle, "wb") as file:
            file.write(content)
    return public
