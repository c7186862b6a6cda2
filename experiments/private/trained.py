"""Logistic regressions trained with the paper's noise: their accuracy, what attacks show, what an accountant allows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dosimeter import OneRun, Scores, fair_coins, lower_bound
from dosimeter.accounting import DpSgd, Guarantee, PrivacyRegion, pld
from dosimeter.attacks import lira
from dosimeter.datasets import Dataset
from dosimeter.engine import Store
from dosimeter.estimate import Estimate
from dosimeter.estimators.limits import threshold_at_fpr
from dosimeter.models.outputs import losses_from_logits
from dosimeter.training import Dirac, Privacy, Recipe, train_many
from dosimeter.training.networks import network

from ..shared import announce, first_available

Settings = dict[str, Any]

DELTA = 1e-5
CONFIDENCE = 0.95
FPR = 0.05
MOST_RECORDS = 20_000  # of Purchase-100: the paper trains on 10 000, and half of the records are members


def by_advantage(advantage: float) -> float:
    """Eq. (1) of the paper: ln((1 − δ)/(1 − advantage)), at least 0."""
    return max(0.0, math.log((1 - DELTA) / (1 - advantage)))


@dataclass(frozen=True)
class Level:
    """The models of one noise level, mean over models; noise 0 is training without privacy."""

    noise: float
    models: int
    training_accuracy: float
    accuracy: float
    """On records that were left out."""
    tpr: float
    """Of the loss attack at a false-positive rate of 5 %."""
    best_advantage: float
    """Of the loss attack at its best threshold, chosen on the same records."""
    tpr_error: float
    """Standard error of `tpr` over the models."""

    @property
    def from_rate(self) -> float:
        """ε by Eq. (1) at a false-positive rate of 5 %."""
        return by_advantage(self.tpr - FPR)

    @property
    def from_best(self) -> float:
        """ε by Eq. (1) at the best threshold."""
        return by_advantage(self.best_advantage)

    @property
    def direct(self) -> float:
        """ln((TPR − δ)/FPR), at least 0: Proposition 1 used directly."""
        return max(0.0, math.log(max(self.tpr - DELTA, FPR) / FPR))


@dataclass(frozen=True)
class Bounds:
    """95 % lower bounds of one noise level by attack, each from one training with fair coins, and the upper bound."""

    lower: dict[str, Estimate]
    upper: Guarantee

    @property
    def contradictions(self) -> int:
        """How many of the lower bounds stand above the upper bound."""
        return sum(PrivacyRegion(lower=b, upper=self.upper).contradiction for b in self.lower.values())


@dataclass(frozen=True)
class Runs:
    """Trains and attacks logistic regressions on one data set; what the store holds is not trained again."""

    settings: Settings
    data: Dataset
    seeds: tuple[int, int]
    store: Store | None

    @classmethod
    def of(cls, settings: Settings, store: Store | None, seed: int = 0) -> Runs:
        """The runs of a size: the first of its data sets that is there."""
        first, second = (int(s) for s in np.random.SeedSequence(seed).generate_state(2))
        return cls(settings, first_available(settings["data"]), (first, second), store)

    @property
    def pair(self) -> tuple[Any, Any]:
        """Records and labels."""
        x, y = (part[:MOST_RECORDS] for part in self.data.pair)
        return x, y

    def recipe(self, noise: float, coins: npt.NDArray[np.bool_]) -> Recipe:
        """DP-SGD at this noise; the same steps and batches without clipping where it is 0."""
        # Coins count the members; the batch is that of the smallest model, so no record is drawn more often than q.
        return Recipe(
            "sgd",
            self.settings["learning_rate"],
            steps=self.settings["steps"],
            batch_size=math.floor(self.settings["sample_rate"] * int(coins.sum(axis=1).min())),
            sampling="poisson",
            dp=Privacy(noise, self.settings["clip"]) if noise else None,
        )

    def outputs(self, noise: float, models: int) -> tuple[npt.NDArray[np.bool_], list[npt.NDArray[Any]]]:
        """Who was a member of each model, and its logits on all records."""
        x, y = self.pair
        coins = memberships(len(x), models, self.seeds[0])
        announce(f"private: noise multiplier {noise:g}, {models} models")
        factory = network("logistic", x, len(self.data.class_names))
        given: dict[str, Any] = {"store": self.store, "progress": self.store is not None}
        how = self.recipe(noise, coins)
        trained = list(train_many(factory, how, (x, y), coins, range(models), evaluate_on="data", **given))
        failed = [model for model in trained if model.outputs is None]
        if failed:
            raise RuntimeError(f"noise {noise:g}, model {failed[0].index}: {failed[0].failed}")
        return coins, [model.outputs for model in trained]

    def level(self, noise: float, models: int) -> Level:
        """Accuracy and the loss attack of so many models."""
        _, y = self.pair
        rows = []
        for inside, logits in zip(*self.outputs(noise, models), strict=True):
            right = logits.argmax(axis=1) == y
            signal = -losses_from_logits(logits, y)
            scores = Scores(signal[inside], signal[~inside])
            tpr = scores.counts_at(threshold_at_fpr(scores, FPR)).tpr
            rows.append((right[inside].mean(), right[~inside].mean(), tpr, best_advantage(signal, inside)))
        means = np.mean(rows, axis=0)
        error = float(np.std([row[2] for row in rows], ddof=1) / math.sqrt(models))
        return Level(noise, models, *(float(value) for value in means), error)

    def bounds(self, noise: float) -> Bounds:
        """What the losses, LiRA and gradient canaries prove about the target, the first of the models."""
        y = self.pair[1]
        coins, logits = self.outputs(noise, self.settings["models"])
        signals = np.stack([-losses_from_logits(one, y) for one in logits])
        ratios = lira(signals[0], signals[1:], coins[1:])
        evidence = {
            "losses": OneRun(signals[0], coins[0], mask_seed=self.seeds[0]),
            "LiRA": OneRun(ratios, coins[0], mask_seed=self.seeds[0]),
            "gradient canaries": self._canaries(noise, coins),
        }
        lower = {name: lower_bound(e, delta=DELTA, confidence=CONFIDENCE) for name, e in evidence.items()}
        run = DpSgd(noise, sample_rate=self.settings["sample_rate"], steps=self.settings["steps"])
        return Bounds(lower, pld(run, delta=DELTA))

    def _canaries(self, noise: float, coins: npt.NDArray[np.bool_]) -> OneRun:
        x, y = self.pair
        classes = len(self.data.class_names)
        parameters = (x.shape[1] + 1) * classes
        count = min(self.settings["canaries"], parameters)
        dirac = Dirac.draw(count, parameters=parameters, seed=self.seeds[1])
        watched = Recipe(**{**vars(self.recipe(noise, coins)), "canaries": dirac})
        factory = network("logistic", x, classes)
        (model,) = train_many(factory, watched, (x, y), coins[:1], [len(coins)], store=self.store)
        if model.transcript is None or model.transcript.canaries is None:
            raise RuntimeError(f"noise {noise:g}, canaries: {model.failed}")
        return OneRun(model.transcript.canaries, np.array(dirac.included))


def memberships(records: int, models: int, seed: int) -> npt.NDArray[np.bool_]:
    """Who is in each of an odd number of models, by fair coins: a target, then pairs of a half and its complement.

    So every record is in exactly half of the models that stand beside the target.
    """
    target = fair_coins(records, seed)
    halves = [fair_coins(records, seed + k) for k in range(1, (models - 1) // 2 + 1)]
    return np.stack([target, *(side for half in halves for side in (half, ~half))])


def best_advantage(signal: npt.NDArray[np.float64], inside: npt.NDArray[np.bool_]) -> float:
    """The largest TPR − FPR over all thresholds: the Kolmogorov–Smirnov distance to one side."""
    order = np.argsort(-signal, kind="stable")
    steps = np.where(inside[order], 1 / inside.sum(), -1 / (~inside).sum())
    last = np.append(np.diff(signal[order]) != 0, True)  # a threshold parts no equal scores
    return max(0.0, float(np.cumsum(steps)[last].max()))
