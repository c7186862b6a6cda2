"""Which folders are stores, what is never touched, entries that are not what they should be, and keys."""

import contextlib
import hashlib
import json
import os
import sys
import warnings
import zipfile

import numpy as np
import pytest

from dosimeter import InputError
from dosimeter.engine import DamagedEntryWarning, Removed, Store
from dosimeter.engine._store_entries import sealed
from dosimeter.engine.store import MARKER

A, B = "a" * 64, "b" * 64
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs pipes and links")


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


@pytest.fixture
def project(tmp_path):
    """A folder of somebody's work, with logs of its own."""
    folder = tmp_path / "project"
    for name in ("logs/run.log", f"logs/{A}.txt", f"aa/{A}.npz", "quarantine/notes", "train.py"):
        write(folder / name)
    return folder


def write(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("mine")
    os.utime(path, (0, 0))


def contents(folder):
    return {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def quietly(function, *arguments):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DamagedEntryWarning)
        return function(*arguments)


# --- which folders are stores, and what is never touched --------------------------------------------------------


def test_only_a_store_is_opened(store, project, tmp_path):
    with pytest.raises(InputError, match=r"is not a store: it has files, but no dosimeter-store\.json"):
        Store(project)
    (tmp_path / "empty").mkdir()
    for name in ("new", "empty"):
        assert not Store(tmp_path / name).exists
    (tmp_path / "empty" / "leases").mkdir()  # another process has begun
    assert not Store(tmp_path / "empty").exists
    store.put(A, {"x": np.arange(3)}, {})
    assert store.exists and Store(store.folder).exists


def test_a_marker_must_be_one(store, project):
    store.put(A, {"x": np.arange(3)}, {})
    for content in (b"", b"{}", b"[" * 9000, b'{"format":"dosimeter store 1"}', b'{"format":"other","seal":null}'):
        (store.folder / MARKER).write_bytes(content)
        with pytest.raises(InputError, match="does not mark a store"):
            Store(store.folder)
    (store.folder / MARKER).unlink()
    (store.folder / MARKER).symlink_to(project / "train.py")
    with pytest.raises(InputError, match="does not mark a store"):
        Store(store.folder)


def test_a_store_of_version_0_1_is_taken_over(store):
    store.put(A, {"x": np.arange(3)}, {})
    store.log(A, "said")
    (store.folder / MARKER).unlink()
    old = Store(store.folder)
    assert old.exists and old.get(A) is not None
    old.put(B, {"x": np.arange(3)}, {})
    assert (store.folder / MARKER).exists()
    (store.folder / MARKER).unlink()
    (store.folder / "thesis.txt").write_text("mine")
    with pytest.raises(InputError, match="is not a store"):
        Store(store.folder)


def test_gc_leaves_what_no_store_has_written(store):
    store.put(A, {"x": np.arange(3)}, {})
    for name in ("logs/run.log", "quarantine/notes", "results/table.csv", f"results/{B}.npz", "bb/notes.txt"):
        write(store.folder / name)
    before = contents(store.folder)
    assert store.gc() == Removed([], 0, 0)
    assert contents(store.folder) == before


@pytest.mark.parametrize("name", ["quarantine", "logs", "bb"])
def test_nothing_behind_a_link_is_touched(store, project, name):
    store.put(A, {"x": np.arange(3)}, {})
    for suffix in ("json", "npz", "txt"):
        write(project / f"{A}.{suffix}")
        write(project / f"{B}.{suffix}")
    before = contents(project)
    (store.folder / name).symlink_to(project, target_is_directory=True)
    assert store.gc(older_than=0).keys == [A]
    store.put(A, {"x": np.arange(3)}, {})
    (store.folder / "aa" / f"{A}.npz").write_bytes(b"damaged")
    assert quietly(store.ls) == []
    assert quietly(store.get, A) is None
    assert A not in store and B not in store
    assert quietly(store.get, B) is None
    assert store.verify() == []
    with pytest.raises(InputError, match="is a link") if name == "logs" else contextlib.nullcontext():
        store.log(A, "said")
    store.put(B, {"x": np.arange(3)}, {})
    assert store.get(B) is not None
    store.discard(B)
    assert contents(project) == before


def test_nothing_is_written_through_a_link(store, project):
    store.put(A, {"x": np.arange(3)}, {})
    (store.folder / "bb").symlink_to(project, target_is_directory=True)
    with pytest.raises(InputError, match="is a link, not a folder of the store; remove it"):
        store.put(B, {"x": np.arange(3)}, {})
    assert not list(project.glob("*.npz"))


def test_a_dry_run_removes_nothing(store):
    for key in (A, B):
        store.put(key, {"x": np.arange(3)}, {})
    said = store.gc(older_than=0, dry_run=True)
    assert (said.keys, len(store.ls())) == ([A, B], 2)
    assert store.gc(older_than=0) == said


# --- entries that are not what they should be -------------------------------------------------------------------


def as_directory(path):
    path.unlink()
    path.mkdir()
    (path / "inside").write_text("x")


def as_pipe(path):
    path.unlink()
    os.mkfifo(path)


def as_device(path):
    path.unlink()
    path.symlink_to("/dev/zero")


def as_link(path):
    path.rename(path.with_name("elsewhere"))
    path.symlink_to(path.with_name("elsewhere"))


@pytest.mark.parametrize("suffix", ["npz", "json"])
@pytest.mark.parametrize("change", [as_directory, as_pipe, as_device, as_link])
@pytest.mark.parametrize("use", ["get", "verify"])
def test_what_is_not_a_file_is_a_damaged_entry(store, suffix, change, use):
    store.put(A, {"x": np.arange(3)}, {})
    for _ in range(2):  # the quarantine has the first by then
        change(store.folder / "aa" / f"{A}.{suffix}")
        assert A not in store
        assert quietly(store.ls) == []
        if use == "get":
            with pytest.warns(DamagedEntryWarning, match=r"damaged \(its \.\w+ is a .*\); it was moved to quarantine"):
                assert store.get(A) is None
        else:
            assert store.verify() == [A]
        assert store.get(A) is None
        store.put(A, {"x": np.arange(3)}, {})
        assert store.get(A)[0]["x"].tolist() == [0, 1, 2]


def resealed(store, key, change):
    """Make an entry as somebody would who knows how seals are made, but has no key."""
    npz, manifest = store._paths(key)
    fields = json.loads(manifest.read_bytes())
    del fields["seal"]
    change(npz, fields)
    if "sha256" in fields:
        fields["sha256"] = hashlib.sha256(npz.read_bytes()).hexdigest()
    if "bytes" in fields:
        fields["bytes"] = npz.stat().st_size
    manifest.write_bytes(sealed(fields, None))


def header_of_10_gb(npz, fields):
    head = "{'descr': '<f8', 'fortran_order': False, 'shape': (1250000000,), }"
    with zipfile.ZipFile(npz, "w") as archive:
        archive.writestr("x.npy", b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head.encode())
    fields["arrays"]["x"] = {"dtype": "float64", "shape": [1_250_000_000]}


def compressed_bomb(npz, fields):
    np.savez_compressed(npz, x=np.zeros(1_000_000))
    fields["arrays"]["x"] = {"dtype": "float64", "shape": [1_000_000]}


def duplicate_members(npz, fields):
    with zipfile.ZipFile(npz, "a") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        archive.writestr("x.npy", archive.read("x.npy"))


def pickled(npz, fields):
    np.savez(npz, x=np.array([{}], dtype=object))
    fields["arrays"]["x"] = {"dtype": "object", "shape": [1]}


FORGED = {
    "10 GB": header_of_10_gb,
    "bomb": compressed_bomb,
    "duplicate": duplicate_members,
    "pickle": pickled,
    "not a zip": lambda npz, fields: npz.write_bytes(b"PK" + bytes(60)),
    "another type": lambda npz, fields: fields["arrays"]["x"].update(dtype="float32"),
    "another shape": lambda npz, fields: fields["arrays"]["x"].update(shape=[2]),
    "a negative shape": lambda npz, fields: fields["arrays"]["x"].update(shape=[-1]),
    "a missing array": lambda npz, fields: fields["arrays"].clear(),
    "no form": lambda npz, fields: fields["arrays"].update(x=3),
    "a time that is none": lambda npz, fields: fields.update(created=7),
    **{
        f"no {name}": (lambda npz, fields, name=name: fields.pop(name))
        for name in ("sha256", "bytes", "arrays", "created", "dosimeter", "info", "key")
    },
}


@pytest.mark.parametrize("name", FORGED)
def test_an_entry_that_contradicts_itself_is_damaged(store, name):
    store.put(A, {"x": np.arange(3)}, {})
    resealed(store, A, FORGED[name])
    with pytest.warns(DamagedEntryWarning, match="damaged"):
        assert store.get(A) is None
    assert A not in store
    store.put(A, {"x": np.arange(3)}, {})
    resealed(store, A, FORGED[name])
    assert store.verify() == [A]


def test_a_manifest_that_is_too_large_is_not_read(store):
    store.put(A, {"x": np.arange(3)}, {})
    with (store.folder / "aa" / f"{A}.json").open("r+b") as file:
        file.truncate(10**11)  # takes no space
    with pytest.warns(DamagedEntryWarning, match="manifest is too large"):
        assert store.get(A) is None


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="root may read everything")
def test_an_entry_of_another_user_that_cannot_be_read(store):
    store.put(A, {"x": np.arange(3)}, {})
    (store.folder / "aa" / f"{A}.json").chmod(0)
    with pytest.warns(DamagedEntryWarning, match="cannot be read: Permission denied"):
        assert store.get(A) is None


# --- keys ---------------------------------------------------------------------------------------------------------


def forged(npz, fields):
    np.savez(npz, x=np.zeros(3, int))


def test_without_a_key_a_seal_finds_accidents_not_forgers(store):
    store.put(A, {"x": np.arange(3)}, {})
    resealed(store, A, forged)
    assert store.get(A)[0]["x"].tolist() == [0, 0, 0]


def test_with_a_key_nobody_else_can_write_an_entry(store, monkeypatch):
    monkeypatch.setenv("DOSIMETER_STORE_KEY", "a secret of our own")
    sealed = Store(store.folder)
    sealed.put(A, {"x": np.arange(3)}, {})
    assert Store(store.folder).get(A)[0]["x"].tolist() == [0, 1, 2]
    assert b"a secret" not in b"".join(contents(store.folder).values())
    resealed(sealed, A, forged)
    with pytest.warns(DamagedEntryWarning, match="manifest was altered"):
        assert sealed.get(A) is None


def test_a_store_opens_only_with_its_key(store, tmp_path, monkeypatch):
    store.put(A, {"x": np.arange(3)}, {})
    monkeypatch.setenv("DOSIMETER_STORE_KEY", "a secret of our own")
    with pytest.raises(InputError, match="is not sealed with a key, but DOSIMETER_STORE_KEY is set"):
        Store(store.folder)
    Store(tmp_path / "sealed").put(A, {"x": np.arange(3)}, {})
    assert Store(tmp_path / "sealed").export(tmp_path / "copy") == [A]
    assert Store(tmp_path / "copy").get(A) is not None
    monkeypatch.setenv("DOSIMETER_STORE_KEY", "the secret of others")
    with pytest.raises(InputError, match="sealed with another key"):
        Store(tmp_path / "sealed")
    monkeypatch.delenv("DOSIMETER_STORE_KEY")
    with pytest.raises(InputError, match="is sealed with a key; set DOSIMETER_STORE_KEY"):
        Store(tmp_path / "sealed")
    monkeypatch.setenv("DOSIMETER_STORE_KEY", "short")
    with pytest.raises(InputError, match="has 5 characters; take at least 16"):
        Store(tmp_path / "new")


def test_a_store_of_somebody_else_is_not_said_to_be_tidied(store, monkeypatch):
    store.put(A, {"x": np.zeros(3)})
    file = store.folder / A[:2] / f"{A}.npz"

    def refuse(path, *given, **more):
        raise PermissionError(13, "Permission denied", str(path))

    with monkeypatch.context() as patch:
        patch.setattr("pathlib.Path.unlink", refuse)
        patch.setattr("pathlib.Path.rename", refuse)
        assert store.gc(older_than=0, dry_run=True).keys == [A]
        with pytest.raises(PermissionError, match=A):
            store.gc(older_than=0)
        content = file.read_bytes()
        file.write_bytes(b"")
        with pytest.warns(DamagedEntryWarning, match="cannot be moved"):
            assert store.verify() == [A]
        file.write_bytes(content)
    assert A in store
    assert store.gc(older_than=0).keys == [A] and A not in store


def test_folders_in_place_of_files_stay(store):
    store.put(A, {"x": np.zeros(3)})
    file = store.folder / A[:2] / f"{A}.npz"
    file.unlink()
    file.mkdir()
    with pytest.warns(DamagedEntryWarning, match="quarantine"):
        assert store.get(A) is None
    for path in store.folder.glob("quarantine/*"):
        os.utime(path, (0, 0))
    assert store.gc().leftovers == store.gc(dry_run=True).leftovers + 1 == 1
    assert [path.is_dir() for path in store.folder.glob("quarantine/*")] == [True]


def test_a_marker_that_cannot_be_read_says_why(store, monkeypatch):
    store.put(A, {"x": np.zeros(3)})

    def refuse(*given, **more):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("os.open", refuse)
    with pytest.raises(InputError, match="Permission denied"):
        Store(store.folder)
