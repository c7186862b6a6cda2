"""A network as large as the paper's, trained once on CIFAR-10 and audited in that one run."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from dosimeter import OneRun, fair_coins, lower_bound
from dosimeter.engine import Store
from dosimeter.estimate import Estimate

from .measure import DELTA
from .targets import named

CONFIG: dict[str, Any] = tomllib.loads((Path(__file__).parent / "config.toml").read_text(encoding="utf-8"))["once"]
SEED = 5  # of the coins and of the training


@dataclass(frozen=True)
class Once:
    """One model, and what its losses show of the records that coins were tossed for."""

    title: str
    members: int
    audited: int
    """Records that were in or out by a coin."""
    accuracy: float
    """On test records."""
    auc: float
    """How often a member has a smaller loss than a record that was left out."""
    bound: Estimate


def audited(size: str, store: Store | None) -> Once:
    """Train on all records but those that a coin leaves out, without other models.

    The signal is the log of the probability that the model gives a record's own class.
    """
    own = CONFIG[size]
    target = named(own, store)
    records = len(target.y)
    tossed = np.sort(np.random.default_rng(SEED).permutation(records)[: own["audited"]])
    coins = fair_coins(len(tossed), SEED)
    members = np.ones(records, bool)
    members[tossed] = coins
    ((signals, accuracy),) = target.trained(members[None], [SEED], store, tossed.tolist())
    inside, outside = signals[coins], signals[~coins]
    auc = stats.mannwhitneyu(inside, outside).statistic / (len(inside) * len(outside))
    bound = lower_bound(OneRun(np.asarray(signals, np.float64), coins, SEED), delta=DELTA)
    return Once(own["title"], int(members.sum()), len(coins), accuracy, float(auc), bound)
