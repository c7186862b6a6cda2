"""A store never answers with another training: audits whose code stays the same while something it reaches changes."""

import argparse
import os
import subprocess
import sys
import threading
from types import SimpleNamespace

import numpy as np
import pytest
from training_games import HERE, SMALL, as_they_are, kept_in, origin

from dosimeter import InputError, audit_one_run, audit_training
from dosimeter.engine import Store

ARGS = argparse.Namespace(epochs=0)
COUNT = len(SMALL[0])
GAME = {"signal": as_they_are, "attack": "loss", "delta": 0.0, "shadows": 8, "runs": 40}


def train(indices, seed):
    outputs = np.random.default_rng(seed).normal(size=COUNT)
    outputs[indices] += ARGS.epochs
    return lambda records: outputs


def test_a_smoke_run_does_not_answer_for_the_real_one(tmp_path, monkeypatch):
    store = Store(tmp_path / "store")
    smoke = audit_training(train, SMALL, seed=0, **GAME, **kept_in(store))
    monkeypatch.setattr(ARGS, "epochs", 50)
    real = audit_training(train, SMALL, seed=0, **GAME, **kept_in(store))
    fresh = audit_training(train, SMALL, seed=0, **GAME, **HERE)
    assert origin(real.metadata) == (48, 0)
    assert real.headline.low == fresh.headline.low > smoke.headline.low == 0


def test_what_cannot_be_hashed_is_refused_unless_there_is_a_key(tmp_path):
    held = SimpleNamespace(connection=threading.local())

    def reaching(indices, seed):
        return held and train(indices, seed)

    store = Store(tmp_path / "store")
    with pytest.raises(InputError, match=r"reaching → held\.connection is a _thread\._local.*pass key="):
        audit_training(reaching, SMALL, **GAME, **kept_in(store))
    with pytest.raises(InputError, match=r"reaching → held\.connection"):
        audit_one_run(reaching, SMALL, signal=as_they_are, attack="loss", **kept_in(store))
    audit_training(reaching, SMALL, **GAME, **HERE)  # without a store nothing is looked up
    counts = [
        audit_training(reaching, SMALL, key=key, **GAME, **kept_in(store)).metadata["provenance"]
        for key in ("one", "one", "two")
    ]
    assert [found["computed"] for found in counts] == [48, 0, 48]
    assert counts[1]["key"] == "key one" and counts[1]["given"]


def test_provenance_lists_what_was_found(tmp_path):
    store = Store(tmp_path / "store")
    first = audit_training(train, SMALL, **GAME, **kept_in(store)).metadata["provenance"]
    again = audit_training(train, SMALL, **GAME, **kept_in(store)).metadata["provenance"]
    assert first["key"] == again["key"] and first["key"].startswith("train ")
    assert (first["computed"], first["cached"], first["entries"]) == (48, 0, ())
    assert (again["computed"], again["cached"]) == (0, 48)
    seeds = [entry.key for entry in store.ls() if entry.info == {"what": "the seed of an audit"}]
    assert len(seeds) == 1, "both had the same fresh coins"
    assert {entry["key"] for entry in again["entries"]} == {entry.key for entry in store.ls()} - set(seeds)
    assert [entry["stage"] for entry in again["entries"]] == ["shadow"] * 8 + ["run"] * 40
    assert any(version.startswith("numpy ") for version in again["versions"])
    assert audit_training(train, SMALL, **GAME, **HERE).metadata["provenance"]["key"] is None


def test_a_training_that_changes_what_it_reaches_keeps_its_key(tmp_path):
    seen = []

    def counting(indices, seed):
        seen.append(seed)
        return train(indices, seed)

    store = Store(tmp_path / "store")
    audit_training(counting, SMALL, **GAME, **kept_in(store))
    seen.clear()
    again = audit_training(counting, SMALL, **GAME, **kept_in(store))
    assert again.metadata["provenance"]["cached"] == 48 and seen == []


SCRIPT = """
import json, sys
import numpy as np
import settings
from dosimeter import audit_training
from dosimeter.engine import RunOptions, Store

X, Y = np.zeros((30, 1)), np.arange(30) % 2

def as_they_are(outputs, labels):
    return outputs

def train(indices, seed):
    outputs = np.random.default_rng(seed).normal(size=30)
    outputs[indices] += settings.CONFIG.epochs
    return lambda records: outputs

if __name__ == "__main__":
    settings.CONFIG.epochs = int(sys.argv[3])
    run = RunOptions(engine=sys.argv[2], workers=2, store=Store(sys.argv[1]), progress=False)
    audit = audit_training(train, (X, Y), signal=as_they_are, attack="loss", delta=0.0, shadows=8, runs=40, seed=3,
                           run=run)
    print(audit.headline.low, audit.metadata["provenance"]["cached"])
"""


@pytest.mark.parametrize("locked", ["", "import threading\nLOCK = threading.Lock()\n"])
@pytest.mark.slow
def test_worker_processes_see_the_values_that_the_key_holds(tmp_path, locked):
    (tmp_path / "audit.py").write_text(SCRIPT)
    settings = "class CONFIG:\n    epochs = 0\n"
    (tmp_path / "settings.py").write_text(locked + settings)

    def run(engine, epochs):
        command = [sys.executable, "audit.py", "store", engine, str(epochs)]
        done = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
        )
        if done.returncode:
            raise AssertionError(done.stderr)
        low, cached = done.stdout.split()
        return float(low), int(cached)

    if (
        locked
    ):  # the module cannot travel, and one that is imported anew has other values: no result, and so no wrong one
        with pytest.raises(AssertionError, match="settings has other values"):
            run("local", 50)
        assert run("local", 0) == (0.0, 0)
        return
    low, cached = run("local", 50)
    assert low > 1 and cached == 0
    assert run("inline", 50) == (low, 48)
    assert run("inline", 0) == (0.0, 0)
