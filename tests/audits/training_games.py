"""Trainings of known ε and of trees, and audits of them, for the tests of audits that train."""

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.tree import DecisionTreeClassifier

from dosimeter.audits.training import audit_training
from dosimeter.engine import RunOptions, Store

X, Y = load_digits(return_X_y=True)
X, Y = X[:200], Y[:200]
HERE = {"run": RunOptions(engine="inline", progress=False)}
RECORDS = 24
SMALL = (np.zeros((RECORDS, 1)), np.zeros(RECORDS))


def kept_in(store: Store) -> dict:
    """As HERE, with a store."""
    return {"run": RunOptions(engine="inline", progress=False, store=store)}


def as_they_are(outputs, labels):
    return outputs


def laplace(epsilon: float, count: int = RECORDS):
    """A training whose output for each record is its own Laplace noise, moved by ε when the record is in: exactly ε."""

    def train(indices, seed):
        outputs = np.random.default_rng(seed).laplace(size=count)
        outputs[indices] += epsilon
        return lambda records: outputs

    return train


def tree(indices, seed):
    return DecisionTreeClassifier(random_state=seed).fit(X[indices], Y[indices])


def trained(folder: Path, seed: int) -> None:
    """Note a training in a file: what a function holds in memory would be part of its identity in a store."""
    with (folder / "seeds").open("a") as file:
        file.write(f"{seed}\n")


def seeds_of(folder: Path) -> list[str]:
    return (folder / "seeds").read_text().split()


def simulated(epsilon: float, seed: int, **options):
    return audit_training(
        laplace(epsilon), SMALL, signal=as_they_are, delta=0.0, seed=seed, **{"attack": "loss", **HERE, **options}
    )


def facts(audit) -> dict:
    """Everything an audit says but where its trainings came from."""
    found = audit.to_dict()
    del found["metadata"]["provenance"]
    return found


def of_version_1(audit) -> dict:
    """An audit as version 1 wrote it: other counts of trainings, the caller's notes among the metadata."""
    values = audit.to_dict()
    values["schema"] = 1
    for estimate in [*values["estimates"], *([values["region"]["lower"]] if values["region"] else [])]:
        del estimate["neighbours"]
    meta = values["metadata"]
    done, cached = meta.pop("trainings"), meta.pop("provenance")["cached"]
    meta["trainings"] = {"computed": done["done"] + done["failed"] - cached, "cached": cached, "failed": done["failed"]}
    del meta["notes"], meta["unit"]
    meta["unit_of_privacy"] = "one patient"
    return values


def origin(metadata) -> tuple[int, int]:
    """How many trainings were computed now, and how many found in the store."""
    return metadata["provenance"]["computed"], metadata["provenance"]["cached"]


def valid(audit) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((Path(__file__).parents[2] / "docs" / "audit.schema.json").read_text(encoding="utf-8"))
    jsonschema.validate(json.loads(audit.to_json()), schema)
