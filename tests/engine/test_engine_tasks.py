"""Tasks, and the key that must change with everything that matters."""

import hashlib
import json
import pickle
import subprocess
import sys

import engine_jobs as jobs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dosimeter
from dosimeter import InputError
from dosimeter.engine import Task, key_of
from dosimeter.engine.tasks import checked_shared, hash_of_arrays
from dosimeter.estimate import plain

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def key(function=jobs.draw, name="t", arguments=None, seed=0, version="", shared=None):
    print_ = hash_of_arrays(checked_shared(shared))
    return key_of(function, Task(name, arguments or {}, seed), version=version, shared_fingerprint=print_)


def test_the_key_by_a_second_route():
    x = np.array([[1.0, 2.0]])
    content = hashlib.sha256(b'["x","\'<f8\'",[1,2]]' + x.tobytes()).hexdigest()
    parts = ["engine_jobs.draw", "v", "t", {"a": [1, 2.5], "b": None}, 7, content, dosimeter.__version__]
    expected = hashlib.sha256(json.dumps(parts, separators=(",", ":"), sort_keys=True).encode()).hexdigest()
    assert key(arguments={"b": None, "a": (1, 2.5)}, seed=7, version="v", shared={"x": x}) == expected


X = np.arange(6, dtype=np.float64)
BASE = {"arguments": {"epochs": 5}, "seed": 1, "version": "1", "shared": {"x": X}}
CHANGES = [
    {"function": jobs.other},
    {"name": "u"},
    {"arguments": {"epochs": 6}},
    {"arguments": {"epochs": 5.0}},
    {"arguments": {"epochs": "5"}},
    {"arguments": {"epochs": [5]}},
    {"arguments": {"Epochs": 5}},
    {"arguments": {"epochs": 5, "more": None}},
    {"seed": 2},
    {"version": "2"},
    {"shared": None},
    {"shared": {"y": X}},
    {"shared": {"x": X, "y": X[:0]}},
    {"shared": {"x": X.astype(np.float32)}},
    {"shared": {"x": X.view(np.int64)}},
    {"shared": {"x": X.reshape(2, 3)}},
    {"shared": {"x": np.nextafter(X, 9)}},
    {"shared": {"x": X.astype(">f8")}},
]


def test_everything_that_matters_changes_the_key(monkeypatch):
    keys = [key(**BASE)] + [key(**{**BASE, **change}) for change in CHANGES]
    monkeypatch.setattr(dosimeter, "__version__", "another")
    keys.append(key(**BASE))
    assert len(set(keys)) == len(CHANGES) + 2


def test_what_does_not_matter_does_not_change_it():
    wide = np.zeros((6, 2))
    wide[:, 0] = X
    same = {"arguments": {"epochs": np.int64(5)}, "seed": 1.0, "version": "1", "shared": {"x": wide[:, 0]}}
    assert key(**same) == key(**BASE)
    a, b = {"x": X, "y": X + 1}, {"y": X + 1, "x": X}
    assert hash_of_arrays(a) == hash_of_arrays(b)


def test_fingerprints_of_unusual_arrays():
    arrays = [
        np.array(1.0),
        np.array([1.0]),
        np.array(["a"]),
        np.array(["2020-01-01"], dtype="M8[D]"),
        np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]),
        np.zeros((0, 3)),
        np.zeros((3, 0)),
    ]
    assert len({hash_of_arrays({"x": array}) for array in arrays}) == len(arrays)


@pytest.mark.once
@given(st.dictionaries(st.text(), JSON, max_size=4), st.integers(0, 2**70))
def test_a_task_survives_a_journey(arguments, seed):
    task = Task("t", arguments, seed)
    again = pickle.loads(pickle.dumps(task))  # noqa: S301 (made one line above)
    assert again == task
    assert key_of(jobs.draw, again) == key_of(jobs.draw, Task("t", json.loads(json.dumps(arguments)), seed))


def test_a_task_does_not_change_with_its_source():
    arguments = {"list": [1, 2]}
    task = Task("t", arguments, 0)
    arguments["list"].append(3)
    assert task.arguments == {"list": [1, 2]}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("", {}, 0), "name must be a text"),
        (("t", [], 0), "arguments must be a mapping"),
        (("t", {"a": {"b": [1, float("nan")]}}, 0), r"arguments\['a'\]\['b'\]\[1\] is nan"),
        (("t", {1: 2}, 0), "has the key 1"),
        (("t", {"a": np.arange(2)}, 0), "arrays in shared"),
        (("t", {"a": object()}, 0), r"arguments\['a'\] is"),
        (("t", {}, -1), "seed"),
        (("t", {}, 0.5), "seed"),
    ],
)
def test_bad_tasks(arguments, says):
    with pytest.raises(InputError, match=says):
        Task(*arguments)


def test_shared_arrays_are_read_only_and_plain():
    mine = np.arange(3.0)
    shared = checked_shared({"x": mine})
    with pytest.raises(ValueError, match="read-only"):
        shared["x"][0] = 1
    mine[0] = 5.0  # the caller's own array stays writable
    for bad in ({"x": np.array([{}])}, {1: mine}, [mine]):
        with pytest.raises(InputError, match="shared"):
            checked_shared(bad)


def test_plain_is_strict_json():
    value = {"a": float("inf"), "b": (np.float32(1.5), {2}), 3: np.array([[1, 2]]), "c": object, "d": True}
    text = json.dumps(plain(value), allow_nan=False)
    assert json.loads(text)["b"] == [1.5, [2]]
    assert json.loads(text)["a"] is None
    assert json.loads(text)["3"] == [[1, 2]]


def test_importing_the_engine_is_light():
    heavy = ("ray", "torch", "rich", "typer", "sklearn")
    code = f"import sys, dosimeter.engine; print(*(name for name in {heavy} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
