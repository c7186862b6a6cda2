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
    """One model, trained on the records that fair coins chose."""

    title: str
    records: int
    members: int
    accuracy: float
    """On test records."""
    auc: float
    """How often a member has a smaller loss than a record that was left out."""
    bound: Estimate


def audited(size: str, store: Store | None) -> Once:
    """Train on half of the records; the signal is the log-odds of each record's own class, without other models."""
    own = CONFIG[size]
    target = named(own, store)
    coins = fair_coins(own["records"], SEED)
    ((signals, accuracy),) = target.trained(coins[None], [SEED], store)
    inside, outside = signals[coins], signals[~coins]
    auc = stats.mannwhitneyu(inside, outside).statistic / (len(inside) * len(outside))
    bound = lower_bound(OneRun(np.asarray(signals, np.float64), coins, SEED), delta=DELTA)
    return Once(own["title"], len(coins), int(coins.sum()), accuracy, float(auc), bound)
