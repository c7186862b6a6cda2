"""What everybody attacks in `power.py`: the targets, how references are drawn, and how scores are judged.

Only NumPy, scikit-learn and torch, since it is imported in the environment of the peers too.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin

REFERENCES = 16
RECORDS = {"credit_default": 8000, "adult": 8000, "cifar10": 2000}
POPULATION = {"credit_default": 20_000, "adult": 20_000, "cifar10": 4000}
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


class ConvNet(ClassifierMixin, BaseEstimator):
    """A small convolutional network on flat rows of 32 x 32 images in [0, 1], used like a scikit-learn estimator."""

    def __init__(self, epochs: int = 12, random_state: int = 0) -> None:
        self.epochs, self.random_state = epochs, random_state

    def fit(self, X: np.ndarray, y: np.ndarray) -> ConvNet:
        import torch

        torch.manual_seed(self.random_state)
        self.classes_ = np.unique(y)
        self.network_ = _network(self.classes_.size)
        images, codes = _images(X), torch.as_tensor(np.searchsorted(self.classes_, y))
        optimiser = torch.optim.Adam(self.network_.parameters(), lr=2e-3)
        for _ in range(self.epochs):
            for rows in torch.randperm(len(images)).split(64):
                optimiser.zero_grad()
                torch.nn.functional.cross_entropy(self.network_(images[rows]), codes[rows]).backward()
                optimiser.step()
        return self

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        import torch

        with torch.no_grad():
            parts = [self.network_(part).double().softmax(dim=1) for part in _images(X).split(500)]
        return torch.cat(parts).numpy()

    def predict(self, X: np.ndarray) -> np.ndarray:
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


def _images(X: np.ndarray) -> Any:
    import torch

    return torch.as_tensor(np.asarray(X, np.float32)).reshape(-1, 3, 32, 32) * 2 - 1


def _network(classes: int) -> Any:
    from torch import nn

    return nn.Sequential(
        *(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(32 * 64, 64), nn.ReLU(), nn.Linear(64, classes)),
    )


def estimator(name: str, seed: int) -> Any:
    """A target by its name; every tool trains the same ones."""
    from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
    from sklearn.neural_network import MLPClassifier

    made = {
        "HGB": HistGradientBoostingClassifier,
        "RF, leaves of 5": lambda **kw: RandomForestClassifier(min_samples_leaf=5, **kw),
        "MLP, 60 epochs": lambda **kw: MLPClassifier((64, 32), max_iter=60, **kw),
        "CNN, 12 epochs": ConvNet,
    }
    return made[name](random_state=seed)


_TABLES = ("HGB", "RF, leaves of 5", "MLP, 60 epochs")
TARGETS = {"credit_default": _TABLES, "adult": _TABLES, "cifar10": ("CNN, 12 epochs",)}


def target_of(task: Task, name: str) -> Any:
    """The target, trained on the members."""
    return estimator(name, SEED).fit(task.X[task.included], task.y[task.included])


def pace(task: Task, name: str) -> float:
    """Seconds of processor time that one training of the target takes now, the faster of two."""
    return min(timed(lambda: target_of(task, name))[0] for _ in range(2))


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
