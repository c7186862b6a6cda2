"""Yeom's loss-threshold adversary and the accuracy of the models that a gradient audit trains."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special

from dosimeter._validate import BoolArray, FloatArray, InputError, IntArray
from dosimeter.attacks.gradient import advantage_limits
from dosimeter.audits.gradients._neighbouring import Neighbouring, one_value, record_bytes
from dosimeter.audits.gradients.result import LossAdversary, ModelAccuracy
from dosimeter.identifiability import advantage_from_mu
from dosimeter.models.outputs import losses_from_logits
from dosimeter.training.arguments import records

MOST_TEST = 1000  # records that every trained model is asked about, beside those of D


@dataclass(frozen=True, eq=False)
class AskedRecords:
    """The records that every model is asked about: the `inside` ones of D and D' first, then some that no model saw."""

    pair: tuple[npt.NDArray[Any], IntArray]
    inside: int
    is_test: bool

    @property
    def outside(self) -> int:
        return len(self.pair[0]) - self.inside


def asked_records(pair: Neighbouring, test: Any, universe: Any, seed: int) -> AskedRecords | None:
    """Draw at most MOST_TEST records of `test`, or else of the universe less D and D'; None where there are none."""
    source, name = (universe, "universe") if test is None else (test, "test")
    if source is None:
        return None
    x, y = records(source)
    if x.shape[1:] != pair.x.shape[1:]:
        raise InputError(f"{name} has records of shape {x.shape[1:]}, data of {pair.x.shape[1:]}; pass the same kind.")
    x = x.astype(pair.x.dtype, copy=False)
    rows = np.arange(len(x))
    if test is None:
        rows = np.flatnonzero(~np.isin(one_value(record_bytes(x)), one_value(record_bytes(pair.x))))
    if not len(rows):
        return None
    rng = np.random.default_rng(np.random.SeedSequence([seed, 8]))
    some = np.sort(rng.permutation(rows)[:MOST_TEST])
    both = np.concatenate([pair.x, x[some]]), np.concatenate([pair.y, y[some]])
    return AskedRecords(both, len(pair.x), test is not None)


def answers(outputs: npt.NDArray[Any], asked: AskedRecords, members: BoolArray) -> tuple[float, float, float]:
    """Compute from the logits of one model Yeom's advantage, its accuracy outside and that on its training set.

    A record is called a member if its loss is at most the mean training loss (Yeom et al. 2018).
    """
    logits = outputs.reshape(len(outputs)) if outputs.size == len(outputs) else outputs
    loss = np.logaddexp(0.0, losses_from_logits(logits, asked.pair[1]))  # −ln p of the true class
    guess = logits > 0 if logits.ndim == 1 else logits.argmax(axis=1)
    right = guess == asked.pair[1]
    inside, outside = loss[: asked.inside][members], loss[asked.inside :]
    limit = inside.mean()
    return (
        float(np.mean(inside <= limit) - np.mean(outside <= limit)),
        float(right[asked.inside :].mean()),
        float(right[: asked.inside][members].mean()),
    )


def loss_adversary(
    advantages: FloatArray,
    *,
    members: int,
    nonmembers: int,
    epsilon: float | None,
    delta: float,
    mu: float,
    confidence: float,
) -> LossAdversary:
    """Compare the mean advantage over the models with its bounds; without a guaranteed `epsilon` it has none.

    The Student interval is over trainings, for these records.
    """
    mean, size = float(advantages.mean()), advantages.size
    reach = float(special.stdtrit(size - 1, (1 + confidence) / 2) * advantages.std(ddof=1) / math.sqrt(size))
    allowed = None if epsilon is None else advantage_limits(epsilon=epsilon, delta=delta)
    return LossAdversary(
        advantage=mean,
        advantage_low=mean - reach,
        advantage_high=mean + reach,
        bound_yeom=None if allowed is None else allowed["yeom"],
        bound_generic=None if allowed is None else allowed["generic"],
        bound_gaussian=None if allowed is None else float(advantage_from_mu(mu)),
        members=members,
        nonmembers=nonmembers,
    )


def utility(accuracies: FloatArray, count: int) -> ModelAccuracy:
    """Give the mean accuracy on `count` test records, and where the middle 90 % of the models lie."""
    low, high = np.quantile(accuracies, [0.05, 0.95])
    return ModelAccuracy(float(accuracies.mean()), float(low), float(high), count)
