"""Audits of a training when something fails: trainings, arguments, the whole process; and what a store gives back."""

import json
import os
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier
from training_games import (
    HERE,
    RECORDS,
    SMALL,
    X,
    Y,
    as_they_are,
    facts,
    kept_in,
    laplace,
    origin,
    simulated,
    tree,
)

from dosimeter import InputError, fair_coins
from dosimeter.audits.result import TrainingCounts
from dosimeter.audits.training import audit_training
from dosimeter.datasets import load
from dosimeter.engine import RunOptions, Store

# --- faults ---------------------------------------------------------------------------------------------------


def test_failed_trainings_are_counted_and_keep_their_coins(tmp_path):
    def train(indices, seed):
        if seed % 5 == 0:
            raise RuntimeError("no luck today")
        if seed % 7 == 0:
            return lambda records: np.full(RECORDS, np.nan)
        return laplace(4.0)(indices, seed)

    store = Store(tmp_path)
    audit = audit_training(
        train, SMALL, signal=as_they_are, attack="loss", shadows=20, runs=60, points=[2], **kept_in(store)
    )
    failed = audit.metadata["failed"]
    assert {f["stage"] for f in failed} == {"shadow", "run"}
    assert all(f["seed"] % 5 == 0 or f["seed"] % 7 == 0 for f in failed)
    assert "no luck today" in failed[0]["reason"] or "NaN" in failed[0]["reason"]
    assert audit.metadata["trainings"] == TrainingCounts(80, 80 - len(failed), len(failed), spared=0)
    assert len(failed) > 5
    assert audit.metadata["runs"] == 60
    cells = audit.details["points"][0]
    assert cells["tp"] + cells["fn"] + cells["fp"] + cells["tn"] == 60
    assert any("trainings failed" in w for w in audit.metadata["warnings"])
    logs = [part.split("(see ")[1].rstrip(")") for f in failed if "(see " in (part := f["reason"])]
    assert logs and all("no luck today" in text or "NaN" in text for text in (Path(log).read_text() for log in logs))


def one_sided_seed(runs: int) -> int:
    """A seed whose coins for one point all fall on one side."""
    return next(
        seed
        for seed in range(10_000)
        if len(set(fair_coins(runs, int(np.random.SeedSequence(seed).spawn(6)[2].generate_state(1)[0])).tolist())) == 1
    )


def test_coins_on_one_side_are_refused_before_anything_is_trained():
    def train(indices, seed):
        raise AssertionError("trained")

    with pytest.raises(InputError, match="all 8 coins came up the same"):
        audit_training(train, (X, Y), runs=8, shadows=8, seed=one_sided_seed(8), confidence=0.9, **HERE)


def test_a_claim_rejected_by_coins_of_one_side_waits_for_the_other():
    """The first eight runs all have the point in: a claim of ε = 0 may fall by then, but there is no curve yet."""
    seed = one_sided_seed(8)
    audit = simulated(30.0, seed, shadows=8, runs=60, points=[3], claim=(0.0, 0.0))
    claim = audit.details["claim"]
    assert claim["rejected"]
    assert audit.metadata["runs"] > 8
    assert min(audit.metadata["members"], audit.metadata["nonmembers"]) == 1 or claim["rejected_at"] > 8


def test_too_many_failures_end_the_audit_with_the_first_reason():
    def train(indices, seed):
        raise RuntimeError("no luck today")

    with pytest.raises(InputError, match=r"only 0 of 8 shadow models that calibrate the attack worked.*no luck today"):
        audit_training(train, (X, Y), shadows=8, runs=40, **HERE)


def test_a_class_that_is_missing_is_a_failure_of_that_model():
    labels = np.array([0] * 20 + [1] * 19 + [2])
    features = np.arange(40.0)[:, None]

    def train(indices, seed):
        return DecisionTreeClassifier(random_state=seed).fit(features[indices], labels[indices])

    audit = audit_training(train, (features, labels), shadows=64, runs=24, points=[3], **HERE)
    assert all("classes" in f["reason"] for f in audit.metadata["failed"])
    assert 8 < audit.metadata["trainings"]["failed"] < 56  # class 2 has one record, in about half of the shadows


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"game": "chess"}, "game must be one of"),
        ({"attack": "magic"}, "attack must be one of"),
        ({"select": "luck"}, "select must be one of"),
        ({"shadows": 3}, "at least 4"),
        ({"shadows": 7, "game": "crossed"}, "at least 8"),
        ({"runs": 0}, "runs must be at least 1"),
        ({"runs": 4}, "dosimeter plan"),
        ({"runs": 10, "claim": (8.0, 1e-5)}, "dosimeter plan"),
        ({"challenges": 2, "claim": (1.0, 1e-5)}, "challenges=1"),
        ({"game": "crossed", "claim": (1.0, 1e-5)}, "challenges=1"),
        ({"points": [200]}, "rows are 0 to 199"),
        ({"points": [3, 3]}, "names a row twice"),
        ({"points": [0.5]}, "row numbers"),
        ({"points": [1], "canaries": "mislabelled"}, "exclude each other"),
        ({"canaries": "mislabelled"}, "cannot see"),
        ({"canaries": "yellow"}, "canaries must be one of"),
        ({"canaries": (X[:2, :3], Y[:2])}, "shape"),
        ({"challenges": 200}, "leaves no fixed record"),
        ({"challenges": 201}, "200 candidates"),
        ({"delta": 1.0}, "delta must be in"),
        ({"confidence": 0}, "confidence must be in"),
        ({"run": {"workers": 2}}, "run must be RunOptions"),
        ({"workers": 2}, "workers was passed beside run"),
        ({"worker": 2}, "audit_training takes no argument 'worker'"),
        ({"recipe": "slow"}, "recipe must be a Recipe"),
        ({"signal": 3}, "signal must be a function"),
        ({"name": 3}, "name must be a text"),
        ({"nonmembers": (X[:, :3], Y)}, "nonmembers has records of shape"),
        ({"seed": -1}, "seed must be at least 0"),
    ],
)
def test_bad_arguments_are_refused_before_anything_is_trained(options, says):
    def train(indices, seed):
        raise AssertionError("trained")

    with pytest.raises(InputError, match=says):
        audit_training(train, (X, Y), **{**HERE, **options})


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"workers": 0}, "workers must be at least 1"),
        ({"store": "folder"}, "store must be a Store"),
        ({"engine": "abacus"}, "engine must be"),
    ],
)
def test_bad_run_options_are_refused(options, says):
    with pytest.raises(InputError, match=says):
        audit_training(tree, (X, Y), run=RunOptions(**options))
    with pytest.raises(InputError, match=says), pytest.warns(DeprecationWarning, match="is deprecated"):
        audit_training(tree, (X, Y), **options)


def test_the_former_keywords_still_work():
    options = {"signal": as_they_are, "attack": "loss", "shadows": 8, "runs": 24, "points": [2], "seed": 1}
    new = audit_training(laplace(3.0), SMALL, **options, **HERE)
    with pytest.warns(DeprecationWarning, match=r"audit_training\(engine=…, progress=…\) is deprecated") as caught:
        old = audit_training(laplace(3.0), SMALL, **options, engine="inline", progress=False)
    assert caught[0].filename == __file__, "the caller's line is named"
    assert facts(old) == facts(new)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (X, "pair"),
        ((X, Y[:5]), "one label for each record"),
        ((X, Y + 0.5), "whole numbers"),
        ((X[:0], Y[:0]), "array of records"),
        ((np.array([object()] * 4), Y[:4]), "array of records"),
    ],
)
def test_bad_data_are_refused(data, says):
    with pytest.raises(InputError, match=says):
        audit_training(tree, data, **HERE)
    with pytest.raises(InputError, match="train must be a function"):
        audit_training("tree", (X, Y), **HERE)


def test_a_signal_that_fails_is_named():
    def broken(outputs, labels):
        raise KeyError("gone")

    with pytest.raises(InputError, match="signal raised KeyError"):
        audit_training(tree, (X, Y), signal=broken, shadows=8, runs=40, **HERE)
    with pytest.raises(InputError, match="one number per record"):
        audit_training(tree, (X, Y), signal=lambda outputs, labels: outputs, shadows=8, runs=40, **HERE)


def test_classes_instead_of_probabilities_are_explained():
    def train(indices, seed):
        return tree(indices, seed).predict

    with pytest.raises(InputError, match="one number per record for 10 classes: return probabilities"):
        audit_training(train, (X, Y), shadows=8, runs=40, **HERE)


def test_a_data_set_is_taken_as_it_is():
    data = load("digits").take(np.arange(200))
    pixels, labels = data.pair

    def train(indices, seed):
        return DecisionTreeClassifier(random_state=seed).fit(pixels[indices], labels[indices])

    found = [audit_training(train, given, shadows=6, runs=12, seed=0, **HERE) for given in (data, data.pair)]
    assert facts(found[0]) == facts(found[1])


# --- nothing is lost ------------------------------------------------------------------------------------------


def test_a_second_run_trains_nothing_and_says_the_same(tmp_path):
    store = Store(tmp_path)
    first = audit_training(tree, (X, Y), shadows=8, runs=24, **kept_in(store))
    again = audit_training(tree, (X, Y), shadows=8, runs=24, **kept_in(store))
    assert origin(first.metadata) == (32, 0)
    assert origin(again.metadata) == (0, 32)
    assert facts(first) == facts(again)
    longer = audit_training(tree, (X, Y), shadows=8, runs=30, **kept_in(store))
    assert longer.metadata["provenance"]["computed"] == 6, "more runs begin with the old ones"
    other = audit_training(tree, (X, Y), shadows=8, runs=24, name="other data", **kept_in(store))
    assert other.metadata["provenance"]["cached"] == 0


SCRIPT = """
import json, sys, time
import numpy as np
from sklearn.datasets import load_digits
from sklearn.tree import DecisionTreeClassifier
from dosimeter import audit_training
from dosimeter.engine import RunOptions, Store

X, Y = load_digits(return_X_y=True)
X, Y = X[:150], Y[:150]

def tree(indices, seed):
    time.sleep(0.02)
    return DecisionTreeClassifier(random_state=seed).fit(X[indices], Y[indices])

if __name__ == "__main__":
    run = RunOptions(engine=sys.argv[2], workers=2, store=Store(sys.argv[1]), progress=False)
    audit = audit_training(tree, (X, Y), shadows=12, runs=30, seed=5, run=run)
    print(audit.to_json())
"""


@pytest.mark.slow
def test_killed_at_any_moment_it_ends_with_the_same_bits(tmp_path):
    script = tmp_path / "audit.py"
    script.write_text(SCRIPT)

    def start(store, engine):
        command = [sys.executable, str(script), str(store), engine]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})

    def entries(store):
        return len(list(store.glob("??/*.json")))

    for least, engine in ((3, "local"), (20, "inline")):
        process = start(tmp_path / "killed", engine)
        deadline = time.monotonic() + 120
        while entries(tmp_path / "killed") < least and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    kept = entries(tmp_path / "killed")
    assert 20 <= kept < 42
    own = runpy.run_path(str(script))
    whole = audit_training(own["tree"], (own["X"], own["Y"]), shadows=12, runs=30, seed=5, **HERE)
    process = start(tmp_path / "killed", "inline")
    ends = {"killed": json.loads(process.communicate(timeout=180)[0]), "whole": json.loads(whole.to_json())}
    counts = {name: found["metadata"].pop("provenance") for name, found in ends.items()}
    assert ends["killed"] == ends["whole"]
    assert (counts["whole"]["computed"], counts["whole"]["cached"]) == (42, 0)
    assert counts["killed"]["cached"] >= kept
