"""`dosimeter store` as a user meets it."""

import json
import os
import time
import zipfile

import numpy as np
import pytest
from typer.testing import CliRunner

from dosimeter import InputError
from dosimeter.cli.store import store as app
from dosimeter.engine import Store

A, B = "a" * 64, "b" * 64


@pytest.fixture
def folder(tmp_path):
    store = Store(tmp_path / "store")
    for key in (A, B):
        store.put(key, {"x": np.arange(500)}, {"seed": 3})
    return store.folder


def call(*arguments):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if isinstance(result.exception, InputError):
        raise result.exception
    return result


def damage(folder, key):
    file = folder / key[:2] / f"{key}.npz"
    content = bytearray(file.read_bytes())
    content[300] ^= 1
    file.write_bytes(content)


def test_ls(folder):
    entries = json.loads(call("ls", folder, "--json").stdout)
    assert [entry["key"] for entry in entries] == [A, B]
    assert entries[0]["arrays"] == {"x": {"dtype": "int64", "shape": [500]}}
    table = call("ls", folder).stdout
    assert "2 entries, 8." in table
    assert A[:12] in table


def test_verify(folder):
    sound = call("verify", folder)
    assert (sound.exit_code, "is intact" in sound.stdout) == (0, True)
    damage(folder, A)
    found = call("verify", folder, "--json")
    assert found.exit_code == 1
    assert json.loads(found.stdout) == {"damaged": [A]}
    damage(folder, B)
    told = call("verify", folder).stdout
    assert f"damaged: {B}" in told and "were moved to quarantine/" in told


def test_verify_does_not_say_that_entries_were_moved_where_they_could_not_be(folder, monkeypatch):
    damage(folder, A)

    def refuse(path, *given, **more):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("pathlib.Path.rename", refuse)
    monkeypatch.setattr("pathlib.Path.unlink", refuse)
    told = call("verify", folder)
    assert told.exit_code == 1
    assert "1 of 1 could not be moved to quarantine/" in told.stdout and "were moved" not in told.stdout


def test_gc(folder):
    assert "Removed 0 entries" in call("gc", folder, "--yes").stdout
    for file in folder.rglob("*"):
        os.utime(file, (time.time() - 2 * 86400,) * 2)
    assert json.loads(call("gc", folder, "--older-than", "3d", "--json").stdout)["keys"] == []
    keep = ["gc", folder, "--older-than", "30h", "--keep", "aaaa", "--json"]
    assert json.loads(call(*keep).stdout) | {"bytes": 0} == {"keys": [B], "leftovers": 0, "bytes": 0, "removed": False}
    assert "Would remove 1 entry and 0 leftovers" in call(*keep[:-1]).stdout
    assert len(Store(folder).ls()) == 2
    assert json.loads(call(*keep, "--yes").stdout)["keys"] == [B]
    assert json.loads(call("gc", folder, "--older-than", "0s", "--json", "--yes").stdout)["keys"] == [A]
    assert Store(folder).ls() == []


@pytest.mark.parametrize("age", ["soon", "3", "-1d", "d", "1.2.3d", "nand"])
def test_bad_ages(folder, age):
    with pytest.raises(InputError, match="--older-than must be a number with d, h, min or s"):
        call("gc", folder, f"--older-than={age}")
    assert len(Store(folder).ls()) == 2


def test_bad_arguments(folder, tmp_path):
    with pytest.raises(InputError, match="not what goes"):
        call("gc", folder, "--keep", "aa")
    with pytest.raises(InputError, match="fits 0 entries"):
        call("gc", folder, "--older-than", "0d", "--keep", "cc")
    for command in (["ls"], ["verify"], ["gc"]):
        with pytest.raises(InputError, match="is not a folder"):
            call(*command, tmp_path / "none")
    (tmp_path / "project" / "logs").mkdir(parents=True)
    for command in (["ls"], ["verify"], ["gc", "--yes"], ["export", tmp_path / "out.zip"]):
        with pytest.raises(InputError, match="is empty, not a store"):
            call(command[0], tmp_path / "project" / "logs", *command[1:])
        with pytest.raises(InputError, match="is not a store: it has files"):
            call(command[0], tmp_path / "project", *command[1:])


def test_export(folder, tmp_path):
    damage(folder, B)
    result = call("export", folder, tmp_path / "out.zip", "--json")
    assert json.loads(result.stdout)["keys"] == [A]
    assert "damaged" in result.stderr
    assert len(zipfile.ZipFile(tmp_path / "out.zip").namelist()) == 3
    assert "Copied 1 entry to" in call("export", folder, tmp_path / "copy").stdout
    assert A in Store(tmp_path / "copy")
