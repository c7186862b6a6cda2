"""The store: whole or not at all, and every flipped byte found."""

import errno
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
import warnings
import zipfile
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dosimeter import InputError
from dosimeter.engine import DamagedEntryWarning, DiskFullError, Store
from dosimeter.engine.store import MARKER

A, B = "a" * 64, "b" * 64


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


def files(store):
    found = sorted(str(p.relative_to(store.folder)) for p in store.folder.rglob("*") if p.is_file())
    return [name for name in found if name != MARKER]


def age(store, key, seconds):
    for file in store.folder.rglob(f"{key}*"):
        os.utime(file, (time.time() - seconds,) * 2)


ARRAYS = hnp.arrays(
    dtype=st.one_of(hnp.scalar_dtypes(), hnp.unicode_string_dtypes(min_len=1), hnp.byte_string_dtypes(min_len=1)),
    shape=hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3),
)


@given(st.dictionaries(st.sampled_from(["file", "a/b", "ä", "allow_pickle", "x", "../up"]), ARRAYS, max_size=3))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_goes_in_comes_out(tmp_path, arrays):
    store = Store(tmp_path / "s")
    store.put(A, arrays, {"n": 1})
    found, info = store.get(A)
    assert info == {"n": 1}
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype
        assert found[name].shape == array.shape
        assert found[name].tobytes() == np.ascontiguousarray(array).tobytes()


def test_the_layout_and_the_manifest(store):
    assert store.get(A) is None
    assert A not in store
    store.put(A, {"x": np.arange(3, dtype=np.int16)}, {"loss": float("nan")})
    assert A in store
    assert B not in store
    assert "../../etc" not in store
    assert files(store) == [f"aa/{A}.json", f"aa/{A}.npz"]
    manifest = json.loads((store.folder / "aa" / f"{A}.json").read_bytes())
    assert manifest["arrays"] == {"x": {"dtype": "int16", "shape": [3]}}
    assert manifest["info"] == {"loss": None}
    assert {"sha256", "bytes", "created", "dosimeter", "key", "seal"} <= manifest.keys()
    (entry,) = store.ls()
    assert (entry.key, entry.bytes) == (A, manifest["bytes"])
    store.discard(A)
    store.discard(A)
    assert files(store) == []


def test_the_same_arrays_are_the_same_bytes(store):
    other = Store(store.folder.with_name("other"))
    for target in (store, other):
        target.put(A, {"x": np.arange(4)}, {})
    path = Path("aa") / f"{A}.npz"
    assert (store.folder / path).read_bytes() == (other.folder / path).read_bytes()


@pytest.mark.parametrize("suffix", ["npz", "json"])
def test_every_flipped_byte_is_found(store, suffix):
    store.put(A, {"x": np.arange(2)}, {"loss": 0.25})
    file = store.folder / "aa" / f"{A}.{suffix}"
    sound = {p: p.read_bytes() for p in file.parent.iterdir()}
    rng = random.Random(0)
    for position in range(len(sound[file])):
        damaged = bytearray(sound[file])
        damaged[position] ^= 1 << rng.randrange(8)
        file.write_bytes(damaged)
        with pytest.warns(DamagedEntryWarning, match="damaged"):
            assert store.get(A) is None
        assert A not in store
        assert store.get(A) is None  # set aside: from now on there simply is none
        for path, content in sound.items():
            path.write_bytes(content)
    assert store.get(A) is not None


@pytest.mark.parametrize("suffix", ["npz", "json"])
@pytest.mark.parametrize("how", ["cut", "empty", "longer", "garbage"])
def test_verify_finds_and_sets_aside(store, suffix, how):
    for key in (A, B):
        store.put(key, {"x": np.arange(50)}, {})
    file = store.folder / "aa" / f"{A}.{suffix}"
    content = file.read_bytes()
    new = {"cut": content[:-7], "empty": b"", "longer": content + b" ", "garbage": b"[" * 5000}[how]
    file.write_bytes(new)
    assert store.verify() == [A]
    assert store.verify() == []
    assert A not in store
    assert B in store
    assert f"quarantine/{A}.{suffix}" in files(store)


def test_a_missing_half(store):
    for key in (A, B):
        store.put(key, {"x": np.arange(5)}, {})
    (store.folder / "aa" / f"{A}.json").unlink()
    assert store.get(A) is None  # no manifest, no entry: not damage but an unfinished write
    (store.folder / "bb" / f"{B}.npz").unlink()
    assert store.verify() == [B]
    assert store.ls() == []


def test_an_entry_under_a_foreign_name_is_damage(store):
    store.put(A, {"x": np.arange(5)}, {})
    (store.folder / "bb").mkdir()
    for suffix in ("npz", "json"):
        content = (store.folder / "aa" / f"{A}.{suffix}").read_bytes()
        (store.folder / "bb" / f"{B}.{suffix}").write_bytes(content)
    with pytest.warns(DamagedEntryWarning):
        assert [entry.key for entry in store.ls()] == [A]
    with pytest.warns(DamagedEntryWarning):
        assert store.get(B) is None


def test_nothing_is_unpickled(store):
    with pytest.raises(InputError, match="no objects"):
        store.put(A, {"x": np.array([{}], dtype=object)}, {})
    for name in ("", "x.npy", 3):
        with pytest.raises(InputError, match="name"):
            store.put(A, {name: np.arange(2)}, {})
    for key in ("abc", "A" * 64, "../" + "a" * 61, None):
        with pytest.raises(InputError, match="64 hexadecimal digits"):
            store.put(key, {}, {})
    assert not store.folder.exists()


def test_bad_folders(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="is a file"):
        Store(tmp_path / "file")
    with pytest.raises(InputError, match="must be a path"):
        Store(3)


def test_gc(store):
    keys = [f"{digit}" * 64 for digit in range(4)]
    for key in keys:
        store.put(key, {"x": np.arange(5)}, {})
    age(store, keys[0], 5000)
    age(store, keys[1], 5000)
    assert store.gc().keys == []
    assert store.gc(keep=[keys[0]], older_than=4000).keys == [keys[1]]
    assert store.gc(older_than=timedelta(seconds=4000)).keys == [keys[0]]
    removed = store.gc(keep=[keys[2]])
    assert removed.keys == [keys[3]]
    assert removed.bytes > 200
    assert [entry.key for entry in store.ls()] == [keys[2]]
    for bad in (-1, float("nan")):
        with pytest.raises(InputError, match="older_than"):
            store.gc(older_than=bad)
    with pytest.raises(InputError, match="hexadecimal"):
        store.gc(keep=["abc"])


def test_gc_takes_old_leftovers_and_nothing_else(store):
    store.put(A, {"x": np.arange(5)}, {})
    mine = store.folder / "thesis.txt"
    half, orphan = store.folder / "aa" / ".tmp-12", store.folder / "bb" / f"{B}.npz"
    orphan.parent.mkdir()
    for file in (mine, half, orphan):
        file.write_text("x")
    store.log(A, "a log")
    assert store.gc().leftovers == 0  # young: somebody may still be writing
    for file in store.folder.rglob("*"):
        os.utime(file, (time.time() - 7200,) * 2)
    assert store.gc().leftovers == 3
    assert mine.exists()
    assert A in store


@pytest.mark.parametrize("target", ["out.zip", "out"])
def test_export_takes_what_is_sound(store, tmp_path, target):
    for key in (A, B):
        store.put(key, {"x": np.arange(5)}, {"key": key})
    damaged = store.folder / "bb" / f"{B}.npz"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    with pytest.warns(DamagedEntryWarning, match="not exported"):
        assert store.export(tmp_path / target) == [A]
    folder = tmp_path / "out"
    if target.endswith("zip"):
        with zipfile.ZipFile(tmp_path / target) as archive:
            archive.extractall(folder)
    arrays, info = Store(folder).get(A)
    assert arrays["x"].tolist() == [0, 1, 2, 3, 4]
    assert info == {"key": A}
    assert not list(tmp_path.glob(".tmp*"))


def write_many(folder, start):
    store = Store(folder)
    for number in range(40):
        store.put(f"{number % 20:064x}", {"x": np.full(1000, number % 20)}, {"from": start})
        found = store.get(f"{(number + start) % 20:064x}")
        assert found is None or (found[0]["x"] == (number + start) % 20).all()


@pytest.mark.once
def test_many_writers_and_readers_at_once(store):
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=write_many, args=(store.folder, start)) for start in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0, 0]
    assert len(store.ls()) == 20
    assert store.verify() == []
    assert not list(store.folder.rglob(".tmp*"))


ENDLESS = """
import sys, numpy as np
from dosimeter.engine import Store
store = Store(sys.argv[1])
print("go", flush=True)
n = 0
while True:
    store.put(f"{n:064x}", {"x": np.full(20000, n)}, {"n": n})
    n += 1
"""


def test_a_killed_writer_leaves_whole_entries(store):
    rng = random.Random(1)
    for _ in range(4):
        writer = subprocess.Popen([sys.executable, "-c", ENDLESS, store.folder], stdout=subprocess.PIPE)
        writer.stdout.readline()
        time.sleep(rng.uniform(0.02, 0.3))
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            entries = store.ls()
            assert all((store.get(e.key)[0]["x"] == e.info["n"]).all() for e in entries)
        assert store.verify() == []
    assert entries


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 1 MB."""
    folder = tmp_path / "small"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(folder)]
    try:
        mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        mounted = False
    if not mounted:
        pytest.skip("mounting a small file system needs root")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_leaves_no_half_file(small_disk):
    store = Store(small_disk / "store")
    store.put(A, {"x": np.zeros(50_000)}, {})
    before = files(store)
    with pytest.raises(DiskFullError, match=r"^the disk of .* is full; make space and run the same again") as raised:
        store.put(B, {"x": np.zeros(100_000)}, {})
    assert raised.value.errno == errno.ENOSPC
    assert files(store) == before
    assert store.get(A) is not None
    store.discard(A)
    store.put(B, {"x": np.zeros(100_000)}, {})
    assert store.get(B) is not None


@pytest.mark.parametrize("step", ["write", "fsync", "replace", "second replace"])
def test_an_error_at_any_step_leaves_nothing(store, monkeypatch, step):
    calls = []

    def fail(*arguments, **options):
        calls.append(step)
        if step != "second replace" or len(calls) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(*arguments, **options)

    real = Path.replace
    target = {"write": (np.lib.format, "write_array"), "fsync": (os, "fsync")}.get(step, (Path, "replace"))
    with monkeypatch.context() as patch:
        patch.setattr(*target, fail)
        with pytest.raises(DiskFullError):
            store.put(A, {"x": np.arange(10)}, {})
    assert calls
    assert files(store) == []
    store.put(A, {"x": np.arange(10)}, {})
    assert A in store


def test_other_errors_keep_their_words(store, monkeypatch):
    def refuse(*_):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(PermissionError, match="Permission denied"):
        store.put(A, {"x": np.arange(10)}, {})
    assert files(store) == []
