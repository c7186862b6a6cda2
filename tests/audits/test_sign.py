"""Signatures: who made an audit, whatever its layout."""

import json
import stat
import sys
from pathlib import Path

import numpy as np
import pytest

from dosimeter import InputError, Scores
from dosimeter.audits.scores import audit_scores
from dosimeter.audits.sign import canonical, check_signature, new_keys, read_signature, sign
from dosimeter.cli import main

pytest.importorskip("cryptography", reason="signatures need cryptography: dosimeter[sign]")


@pytest.fixture(scope="module")
def text() -> str:
    rng = np.random.default_rng(0)
    return audit_scores(Scores(rng.normal(2, 1, 60), rng.normal(0, 1, 60)), resamples=0).to_json()


def test_a_signature_holds_for_these_values_alone(text, tmp_path):
    own, other = tmp_path / "own.pem", tmp_path / "other.pem"
    public, foreign = new_keys(own), new_keys(other)
    assert stat.S_IMODE(own.stat().st_mode) == 0o600
    made = sign(text, own)
    check_signature(text, made, public)
    check_signature(json.dumps(json.loads(text), indent=4), made, public)  # another layout
    with pytest.raises(InputError, match="another key"):
        check_signature(text, made, foreign)
    with pytest.raises(InputError, match="changed after it was signed"):
        check_signature(text.replace('"seed": 0', '"seed": 1'), made, public)
    with pytest.raises(InputError, match="exists"):
        new_keys(own)


def test_bad_keys_and_files(text, tmp_path, monkeypatch):
    key = tmp_path / "key.pem"
    public = new_keys(key)
    for path in (public, tmp_path / "none.pem"):
        with pytest.raises(InputError):
            sign(text, path)
    with pytest.raises(InputError, match="public key"):
        check_signature(text, sign(text, key), key)
    damaged = tmp_path / "audit.json.sig"
    for content in ("{}", "[]", '{"format": 1, "algorithm": "Ed25519", "signature": "AA", "public_key": 3}'):
        damaged.write_text(content)
        with pytest.raises(InputError):
            read_signature(damaged)
    assert canonical('{"b": 1, "a": 2}') == b'{"a":2,"b":1}'


def run(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", ["dosimeter", *arguments])
    with pytest.raises(SystemExit) as stop:
        main()
    return int(stop.value.code or 0)


def test_commands(text, tmp_path: Path, monkeypatch, capsys):
    file, key = tmp_path / "audit.json", tmp_path / "key.pem"
    file.write_text(text, encoding="utf-8")
    gate = ["gate", str(file), "--max-epsilon", "6", "--public-key", str(tmp_path / "key.public.pem")]
    assert run(["sign", "--new-key", str(key)], monkeypatch) == 0
    assert run(gate, monkeypatch) == 2  # not signed yet
    assert run(["sign", str(file), "--key", str(key)], monkeypatch) == 0
    assert run(gate, monkeypatch) == 0
    assert "signed these values" in capsys.readouterr().out
    file.write_text(text.replace('"seed": 0', '"seed": 1'), encoding="utf-8")
    assert run(gate, monkeypatch) == 2
    assert "was changed after it was signed" in capsys.readouterr().err
    file.write_text(text.replace('"low": ', '"low": 0, "x": ', 1), encoding="utf-8")
    assert run(["sign", str(file), "--key", str(key)], monkeypatch) == 2  # nobody signs what is not valid
    for arguments in (
        ["sign"],
        ["sign", str(file)],
        ["gate", str(file), "--max-epsilon", "1", "--signature", str(key)],
    ):
        assert run(arguments, monkeypatch) == 2
