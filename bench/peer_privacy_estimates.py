"""The tasks of the benchmark, done with privacy-estimates."""

from __future__ import annotations

from collections.abc import Callable

import data
import numpy as np
from privacy_estimates import AttackResults, compute_eps_lo, compute_eps_lo_hi

Work = Callable[[], object]


def posterior_interval(fn: int, tp: int, fp: int, tn: int, delta: float) -> Work:
    counts = AttackResults(FN=fn, FP=fp, TN=tn, TP=tp)
    return lambda: [float(end) for end in compute_eps_lo_hi(counts, delta=delta, alpha=0.05, method="joint-beta")]


def posterior_sweep(total: int) -> Work:
    """One lower bound, at the best balanced threshold, times the thresholds at which the ROC curve turns."""
    members, nonmembers = data.scores(total // 2)
    pooled = np.concatenate([members, nonmembers])
    is_member = np.argsort(pooled)[::-1] < members.size
    tp, fp = np.cumsum(is_member), np.cumsum(~is_member)
    turns = np.flatnonzero(is_member[:-1] & ~is_member[1:])
    best = turns[np.argmax(tp[turns] - fp[turns])]
    right, wrong = int(tp[best]), int(fp[best])
    counts = AttackResults(FN=members.size - right, FP=wrong, TN=nonmembers.size - wrong, TP=right)

    def work() -> None:
        compute_eps_lo(counts, delta=data.DELTA, alpha=0.05, method="joint-beta")

    work.scale = int(turns.size)
    return work
