"""An audit of half a hundred short trainings, as a script that can be killed; and what is left of its processes."""

import json
import os
import sys
import time
from pathlib import Path

import numpy as np

from dosimeter import audit_training
from dosimeter.engine import Store

RNG = np.random.default_rng(7)
X, Y = RNG.normal(size=(60, 4)).round(6), RNG.integers(0, 2, 60)
SHADOWS, RUNS = 12, 48
PYTHONPATH = os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])


def draw(task, shared):
    return {"values": np.random.default_rng(task.seed).normal(size=task.arguments.get("size", 40))}, {"seed": task.seed}


def train(indices, seed):
    """A model that knows its members a little better than the rest."""
    time.sleep(0.03)
    noise = np.random.default_rng(seed)
    known = {row.tobytes() for row in X[indices]}
    labels = {row.tobytes(): label for row, label in zip(X, Y, strict=True)}

    def predict(records):
        right = np.array([2.0 if row.tobytes() in known else 0.0 for row in records]) + noise.normal(size=len(records))
        share = 1 / (1 + np.exp(-right))
        truth = np.array([labels[row.tobytes()] for row in records])
        return np.stack([np.where(truth == 0, share, 1 - share), np.where(truth == 0, 1 - share, share)], axis=1)

    return predict


def audit(store=None, *, engine="inline", workers=None):
    return audit_training(
        train,
        (X, Y),
        shadows=SHADOWS,
        runs=RUNS,
        seed=3,
        name="chaos",
        engine=engine,
        workers=workers,
        store=None if store is None else Store(store),
        progress=False,
    )


def facts(text):
    """Everything that an audit says but what was computed when."""
    found = json.loads(text)
    del found["metadata"]["provenance"]
    return found


def processes_in(scratch):
    """Processes that have this folder for temporary files, each with its command line."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"TMPDIR={scratch}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                found[int(folder.name)] = (folder / "cmdline").read_bytes()
        except OSError:
            continue
    return found


if __name__ == "__main__":
    import chaos_jobs  # workers know the functions by this name

    try:
        print(chaos_jobs.audit(sys.argv[1], engine=sys.argv[2], workers=2).to_json())
    except ChildProcessError as error:
        print(error, file=sys.stderr)
        sys.exit(3)
