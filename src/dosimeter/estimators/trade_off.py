"""Tests of a whole claimed trade-off curve on one training run.

A curve is held as points (ε, δ) of its privacy profile. Each point limits the power of every membership test by two
lines, and the curve is what all lines allow together. More points make it tighter; with any points it is valid.

Two tests. `recursion_rejects` counts right guesses (Mahloujifar, Melis and Chaudhuri 2025): it holds for every
mechanism with this curve, however the scores of one run depend on each other. `band_excess` reads the error rates at
all thresholds: it holds where, given the coins, the scores of different canaries are independent and alike.
`docs/honest-bounds.md` (4.3 and 4.4) has the proofs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dosimeter._validate import FloatArray, InputError
from dosimeter.estimators.one_run import STEPS


@dataclass(frozen=True)
class TradeOffCurve:
    """What a mechanism lets a membership test reach, from points of its profile: (ε_j, δ_j)-DP holds for every j.

    Args:
        epsilons: The ε of the points, not negative.
        deltas: The δ of the points.

    Raises:
        InputError: If the points do not pair up or are out of range.

    >>> TradeOffCurve([0.0], [0.25]).tpr(0.1)
    0.35
    """

    epsilons: FloatArray
    deltas: FloatArray

    def __post_init__(self) -> None:
        epsilons, deltas = np.asarray(self.epsilons, float), np.asarray(self.deltas, float)
        if epsilons.ndim != 1 or epsilons.shape != deltas.shape or epsilons.size == 0:
            raise InputError("epsilons and deltas must be lists of one length; pass the points of a profile.")
        if not ((epsilons >= 0) & (deltas >= 0) & (deltas <= 1)).all():
            raise InputError("epsilons must not be negative and deltas lie in [0, 1]; pass the points of a profile.")
        object.__setattr__(self, "epsilons", epsilons)
        object.__setattr__(self, "deltas", deltas)

    def tpr(self, fpr: float) -> float:
        """Give the largest TPR that the curve allows at an FPR."""
        return float(self.tprs(np.array([fpr]))[0])

    def tprs(self, fprs: FloatArray) -> FloatArray:
        """Give the largest TPR at each of many FPRs."""
        up = self.deltas + np.multiply.outer(fprs, np.exp(np.minimum(self.epsilons, 700.0)))
        down = 1.0 - np.exp(-self.epsilons) * (1.0 - self.deltas - fprs[:, None])
        return np.minimum(np.minimum(up, down).min(axis=1), 1.0)

    def fpr(self, tpr: float) -> float:
        """Give the smallest FPR at which the curve allows a TPR: the inverse of `tpr`, rounding included."""
        up = (tpr - self.deltas) * np.exp(-self.epsilons)
        missed = 1.0 - tpr + 4 * np.finfo(float).eps  # a rounding error here would be multiplied by e^ε
        down = 1.0 - self.deltas - missed * np.exp(np.minimum(self.epsilons, 700.0))
        return float(max(0.0, up.max(), down.max()))


def recursion_rejects(curve: TradeOffCurve, *, records: int, guesses: int, correct: int, level: float) -> bool:
    """Say whether `correct` right guesses reject the curve at a level; the number of guesses was fixed in advance.

    If at least `correct` guesses are right with probability `level`, the curve forces this probability up for each
    smaller number of right guesses. It is rejected where that would exceed 1.
    """
    right, wrong, goal = level * correct / records, level * (guesses - correct) / records, guesses / records
    for i in range(correct - 1, max(-1, correct - 1 - STEPS), -1):
        step = curve.fpr(min(1.0, right)) - wrong
        if step <= 0.0:
            break
        right, wrong = right + i / (guesses - i) * step, wrong + step
        if right + wrong > goal:
            return True
    return right + wrong > goal


def band_excess(curve: TradeOffCurve, fpr: FloatArray, fnr: FloatArray) -> FloatArray:
    """By how much limits of both error rates, which all hold together, exceed what the curve allows at each look."""
    return np.asarray(1.0 - fnr - curve.tprs(fpr))
