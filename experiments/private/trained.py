"""Logistic regressions trained with the noise of Table 1, what attacks show of them, and what the accountants allow."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dosimeter import OneRun, Scores, fair_coins, one_run
from dosimeter.accounting import DpSgd, Guarantee, PrivacyRegion, pld
from dosimeter.attacks import lira
from dosimeter.engine import Store
from dosimeter.estimate import Estimate
from dosimeter.estimators.losses import losses_from_logits
from dosimeter.estimators.thresholds import threshold_at_fpr
from dosimeter.training import Dirac, Privacy, Recipe, train_many
from dosimeter.training.networks import network

from ..shared import announce, first_available

Settings = dict[str, Any]
Floats = npt.NDArray[np.float64]

DELTA = 1e-5
CONFIDENCE = 0.95
FPR = 0.05
MOST_RECORDS = 20_000  # of Purchase-100: the paper trains on 10 000, and half of the records are members


@dataclass(frozen=True)
class Level:
    """The models of one noise level."""

    noise: float
    accuracy: float
    """On records that were left out, mean over the models."""
    tpr: float
    """Of the loss attack at a false-positive rate of 5 %, mean over the models."""
    bounds: dict[str, Estimate]
    """Lower bounds by attack, each from one training in which fair coins decided who is in."""
    upper: Guarantee

    @property
    def by_advantage(self) -> float:
        """Eq. (1) of the paper: ln((1 − δ)/(1 − advantage)), at least 0."""
        return max(0.0, math.log((1 - DELTA) / (1 - (self.tpr - FPR))))

    @property
    def direct(self) -> float:
        """ln((TPR − δ)/FPR), at least 0."""
        return max(0.0, math.log(max(self.tpr - DELTA, FPR) / FPR))

    @property
    def contradictions(self) -> int:
        """How many of the lower bounds stand above the upper bound."""
        return sum(PrivacyRegion(lower=b, upper=self.upper).contradiction for b in self.bounds.values())


def levels(settings: Settings, store: Store | None, *, seed: int = 0) -> tuple[str, list[Level]]:
    """Train and attack at each noise level; the name of the data set and what was found."""
    data = first_available(settings["data"])
    x, y = (part[:MOST_RECORDS] for part in data.pair)
    first, second = (int(s) for s in np.random.SeedSequence(seed).generate_state(2))
    coins = memberships(len(x), settings["models"], first)
    given = (x, y, len(data.class_names)), coins, (first, second), store
    return data.name, [_level(noise, settings, *given) for noise in settings["noise"]]


def memberships(records: int, models: int, seed: int) -> npt.NDArray[np.bool_]:
    """Who is in each of an odd number of models, by fair coins: a target, then pairs of a half and its complement.

    So every record is in exactly half of the models that stand beside the target.
    """
    target = fair_coins(records, seed)
    halves = [fair_coins(records, seed + k) for k in range(1, (models - 1) // 2 + 1)]
    return np.stack([target, *(side for half in halves for side in (half, ~half))])


def _level(
    noise: float,
    settings: Settings,
    data: tuple[Any, Any, int],
    coins: npt.NDArray[np.bool_],
    seeds: tuple[int, int],
    store: Store | None,
) -> Level:
    x, y, classes = data
    # Coins count the members; the batch is that of the smallest model, so that no record is drawn more often than q.
    batch = math.floor(settings["sample_rate"] * int(coins.sum(axis=1).min()))
    recipe = Recipe(
        "sgd",
        settings["learning_rate"],
        steps=settings["steps"],
        batch_size=batch,
        sampling="poisson",
        dp=Privacy(noise, settings["clip"]),
    )
    factory = network("logistic", x, classes)
    announce(f"private: noise multiplier {noise:g}, {len(coins)} models")
    given: dict[str, Any] = {"store": store, "progress": store is not None}
    trained = train_many(factory, recipe, (x, y), coins, range(len(coins)), evaluate_on="data", **given)
    signals, accuracies, rates = np.empty((len(coins), len(x))), [], []
    for row, model, inside in zip(signals, trained, coins, strict=True):
        if model.outputs is None:
            raise RuntimeError(f"noise {noise:g}, model {model.index}: {model.failed}")
        row[:] = -losses_from_logits(model.outputs, y)
        accuracies.append(float(np.mean(model.outputs.argmax(axis=1)[~inside] == y[~inside])))
        scores = Scores(row[inside], row[~inside])
        rates.append(scores.counts_at(threshold_at_fpr(scores, FPR)).tpr)
    ratios = lira(signals[0], signals[1:], coins[1:])
    bounds = {
        "losses": one_run(OneRun(signals[0], coins[0], mask_seed=seeds[0]), delta=DELTA, confidence=CONFIDENCE),
        "LiRA": one_run(OneRun(ratios, coins[0], mask_seed=seeds[0]), delta=DELTA, confidence=CONFIDENCE),
    }
    parameters = (x.shape[1] + 1) * classes
    dirac = Dirac.draw(min(settings["canaries"], parameters), parameters=parameters, seed=seeds[1])
    watched = Recipe(**{**vars(recipe), "canaries": dirac})
    (model,) = train_many(factory, watched, (x, y), coins[:1], [len(coins)], store=store)
    if model.transcript is None or model.transcript.canaries is None:
        raise RuntimeError(f"noise {noise:g}, canaries: {model.failed}")
    bounds["gradient canaries"] = one_run(
        OneRun(model.transcript.canaries, np.array(dirac.included)), delta=DELTA, confidence=CONFIDENCE
    )
    upper = pld(DpSgd(noise, sample_rate=settings["sample_rate"], steps=settings["steps"]), delta=DELTA)
    return Level(noise, float(np.mean(accuracies)), float(np.mean(rates)), bounds, upper)
