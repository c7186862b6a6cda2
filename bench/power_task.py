"""What everybody attacks in `power.py`: the targets, how references are drawn, and how scores are judged.

Only NumPy and scikit-learn, since it is imported in the environment of the peers too.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

RECORDS, REFERENCES, POPULATION = 8000, 16, 20_000
DELTA, SEED = 1e-5, 0


class Task(NamedTuple):
    """Records of one pool, the coins that decided who is a member, and other records of the same kind."""

    X: np.ndarray
    y: np.ndarray
    included: np.ndarray
    population_X: np.ndarray  # noqa: N815
    population_y: np.ndarray

    def save(self, path: Path) -> None:
        np.savez(path, **self._asdict())

    @classmethod
    def load(cls, path: Path) -> Task:
        with np.load(path, allow_pickle=False) as arrays:
            return cls(**{name: arrays[name] for name in cls._fields})


def estimator(name: str, seed: int) -> Any:
    """A target by its name; every tool trains the same ones."""
    from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
    from sklearn.neural_network import MLPClassifier

    made = {
        "HGB": HistGradientBoostingClassifier,
        "RF, leaves of 5": lambda **kw: RandomForestClassifier(min_samples_leaf=5, **kw),
        "MLP, 60 epochs": lambda **kw: MLPClassifier((64, 32), max_iter=60, **kw),
    }
    return made[name](random_state=seed)


TARGETS = ("HGB", "RF, leaves of 5", "MLP, 60 epochs")


def halves(records: int, seed: int) -> np.ndarray:
    """Masks of the references for tools that bring none: pairs that share out the records."""
    coins = np.random.default_rng([seed, 7]).random((REFERENCES // 2, records)) < 0.5
    return np.concatenate([coins, ~coins])


def judged(members: np.ndarray, nonmembers: np.ndarray) -> dict[str, float]:
    """The largest TPR with an FPR at or below .1 % and 1 %, and the AUC, ties by halves."""
    from sklearn.metrics import roc_auc_score, roc_curve

    truth = np.r_[np.ones(members.size), np.zeros(nonmembers.size)]
    scores = np.nan_to_num(np.concatenate([members, nonmembers]), posinf=1e300, neginf=-1e300)
    fpr, tpr, _ = roc_curve(truth, scores, drop_intermediate=False)
    return {
        "tpr_0.1": float(tpr[fpr <= 0.001].max()),
        "tpr_1": float(tpr[fpr <= 0.01].max()),
        "auc": float(roc_auc_score(truth, scores)),
    }


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds of processor time on one thread, and what the work returned."""
    start = time.process_time()
    found = work()
    return time.process_time() - start, found
