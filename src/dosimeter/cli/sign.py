"""`dosimeter sign`: say who stands for an audit."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dosimeter.cli._shared import err
from dosimeter.cli.verify import AUDIT_HELP


def sign(
    file: Annotated[Path | None, typer.Argument(help=AUDIT_HELP, show_default=False)] = None,
    key: Annotated[Path | None, typer.Option("--key", help="Your Ed25519 private key, a PEM file.")] = None,
    new_key: Annotated[
        Path | None,
        typer.Option("--new-key", help="Make a pair of keys first: the private one goes here, the public one beside."),
    ] = None,
) -> None:
    """Sign an audit: the signature goes into FILE.sig, and `dosimeter gate --public-key` asks for it.

    The audit is verified first: nobody should sign numbers that do not follow. The password of a protected key is read
    from DOSIMETER_KEY_PASSWORD.

    Example: a pair of keys, once, then a signature

        dosimeter sign --new-key audit-key.pem

        dosimeter sign audit.json --key audit-key.pem

        dosimeter gate audit.json --max-epsilon 2 --public-key audit-key.public.pem
    """
    from dosimeter._validate import InputError
    from dosimeter.audits.result import Audit
    from dosimeter.audits.sign import ENDING, new_keys
    from dosimeter.audits.sign import sign as make
    from dosimeter.audits.verify import verify
    from dosimeter.reading import read_text

    if file is None and new_key is None:
        raise InputError("sign needs an audit and --key, or --new-key to make a pair of keys; pass one of them.")
    if file is not None and key is None and new_key is None:
        raise InputError(f"sign needs the private key to sign {file} with; pass --key, or --new-key to make one.")
    signature, text = None, ""
    if file is not None:  # before keys are made, so that a refusal leaves nothing behind
        text = read_text(file)
        found = verify(Audit.from_json(text))
        if not found.valid:
            first = found.contradictions[0]
            raise InputError(f"{file} is not a valid audit ({first.subject}: {first.reason}); it was not signed.")
        signature = make(text, key) if key is not None else None
    if new_key is not None:
        public = new_keys(new_key)
        err.print(f"written: {new_key} (keep it secret) and {public} (give it to whoever checks audits)", markup=False)
        signature = signature or (make(text, new_key) if file is not None else None)
    if file is None or signature is None:
        return
    beside = file.with_name(file.name + ENDING)
    beside.write_text(signature.to_json(), encoding="utf-8")
    err.print(f"written: {beside}, signed with key {signature.key_id}", markup=False)
