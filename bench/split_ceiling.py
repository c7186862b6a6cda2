"""What no valid test of a random split can exceed, and what the headline's own tests prove once they know the shape.

Scores come from known laws. For each ε there is a mechanism with the same scores whose labels leak no more than ε for
replacing one record (docs/headline.md, Lemma 11). A valid test rejects ε under it in at most 5 % of audits. So under
the truth it rejects ε no more often than the Neyman–Pearson test of the truth against it. `ceiling.py` prints both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple
from unittest import mock

import numpy as np
from scipy import special

ALPHA = 0.05
_LARGEST = 40.0  # of a log-odds ratio: beyond it no digit changes
_HALVINGS = 40
_RANGE = 16.0  # of ε


class Split(NamedTuple):
    """The true log-odds ratio of every record of a split, and which of them are members."""

    log_odds: np.ndarray
    inside: np.ndarray

    @property
    def members(self) -> int:
        return int(self.inside.sum())


def of(log_odds: np.ndarray, inside: np.ndarray) -> Split:
    """A split, without log-odds so large that they mean certainty."""
    return Split(np.clip(log_odds, -_LARGEST, _LARGEST), np.asarray(inside, bool))


def exceeded_by_half(splits: Sequence[Split], alpha: float = ALPHA) -> float:
    """The ε that no valid test rejects in more than half of these audits."""
    low, high = 0.0, _RANGE
    for _ in range(12):
        middle = (low + high) / 2
        low, high = (middle, high) if most_rejected(splits, middle, alpha) > 0.5 else (low, middle)
    return (low + high) / 2


def most_rejected(splits: Sequence[Split], epsilon: float, alpha: float = ALPHA) -> float:
    """The share of audits in which the most powerful test of level alpha rejects ε.

    Only draws of the truth are needed: a draw whose ratio is Λ counts e^{−Λ} under the mechanism that leaks ε.
    """
    ratios = np.sort([log_ratio(split, epsilon) for split in splits])[::-1]
    level = np.cumsum(np.exp(-ratios)) / ratios.size
    whole = int(np.searchsorted(level, alpha))
    if whole == ratios.size:
        return 1.0
    before = float(level[whole - 1]) if whole else 0.0
    return (whole + (alpha - before) / (float(level[whole]) - before)) / ratios.size


def log_ratio(split: Split, epsilon: float) -> float:
    """How much likelier the labels are in truth than under the mechanism that leaks ε, in logarithms."""
    least = _least(split, epsilon)
    limited = np.clip(split.log_odds, least, least + epsilon)
    return _log_chance(split.log_odds, split.inside) - _log_chance(limited, split.inside)


def _least(split: Split, epsilon: float) -> float:
    """Where the range of log-odds lies: as many members are lost above it as are gained below it."""
    tilt = _tilt(split.log_odds, split.members)
    low, high = float(split.log_odds.min()) - epsilon, float(split.log_odds.max())
    for _ in range(_HALVINGS):
        least = (low + high) / 2
        kept = special.expit(np.clip(split.log_odds, least, least + epsilon) + tilt).sum()
        low, high = (least, high) if kept < split.members else (low, least)
    return (low + high) / 2


def _tilt(log_odds: np.ndarray, members: int) -> float:
    """What is added to all log-odds so that so many members are expected."""
    low, high = -_LARGEST - float(log_odds.max()), _LARGEST - float(log_odds.min())
    tilt = 0.0
    for _ in range(100):
        chance = special.expit(log_odds + tilt)
        beyond = float(chance.sum()) - members
        if abs(beyond) < 1e-8 * members:
            break
        low, high = (low, tilt) if beyond > 0 else (tilt, high)
        step = tilt - beyond / max(float((chance * (1 - chance)).sum()), 1e-12)
        tilt = step if low < step < high else (low + high) / 2
    return tilt


def _log_chance(log_odds: np.ndarray, inside: np.ndarray) -> float:
    """The logarithm of the chance of these labels among all with as many members.

    The sum over all of them is a coefficient of a polynomial; a saddle point with its second term gives it to about
    the inverse square of the variance.
    """
    members = int(inside.sum())
    tilt = _tilt(log_odds, members)
    chance = special.expit(log_odds + tilt)
    each = chance * (1 - chance)
    variance, third, fourth = each.sum(), (each * (1 - 2 * chance)).sum(), (each * (1 - 6 * each)).sum()
    correction = math.log1p(fourth / (8 * variance**2) - 5 * third**2 / (24 * variance**3))
    total = float(np.logaddexp(0.0, log_odds + tilt).sum()) - members * tilt
    return float(log_odds[inside].sum()) - total + 0.5 * math.log(2 * math.pi * variance) - correction


def told(scores: np.ndarray, split: Split, delta: float, neighbours: str) -> float:
    """What the tests of the headline prove when they are told the true log-odds of every bin."""
    import dosimeter as dm
    from dosimeter.estimators.headline import rank_bins
    from dosimeter.estimators.headline.learning import Learner

    edges = rank_bins(scores, split.inside).edges
    ordered = split.log_odds[np.argsort(scores, kind="stable")]
    true = np.add.reduceat(ordered, edges[:-1]) / np.diff(edges)
    learned = Learner.view

    def view(self, low, high, design=None):
        return learned(self, low, high, design)._replace(odds=(true, None, None), chance=np.array([1.0, 0.0, 0.0]))

    with mock.patch.object(Learner, "view", view):
        evidence = dm.Scores(scores[split.inside], scores[~split.inside])
        return dm.lower_bound(evidence, delta=delta, neighbours=neighbours).low
