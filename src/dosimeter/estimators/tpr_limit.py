"""What a test with few false alarms is sure to find: a lower limit for the ROC at a named FPR.

The ROC at an FPR f is the largest true TPR of a test "member if score ≥ t" whose *true* FPR is at most f. The k+1-th
highest of n non-members leaves a share above it that is at most Beta(k+1, n−k), ties or not; so with k fixed by n, f
and the level alone, the threshold just above it has a true FPR above f with probability at most P[Bin(n, f) ≤ k]. The
members are independent of that threshold, so an exact limit for their rate above it, at what is left of the level, is a
limit for the ROC.
"""

from __future__ import annotations

import bisect
import math
from typing import NamedTuple

from scipy import special

from dosimeter import _validate as check
from dosimeter.estimators.rates import clopper_pearson_limits
from dosimeter.estimators.thresholds import above_order
from dosimeter.evidence import Scores

_SHARE = 0.5  # of the level that may go into the FPR
_MOST = 0.9  # the same where the sample is so small that a threshold above all non-members costs more than half


class TprLimit(NamedTuple):
    """A limit for the TPR, and the threshold that it stands on: ∞ where no threshold can be had."""

    tpr: float
    threshold: float


def tpr_limit(scores: Scores, fpr: float, confidence: float) -> TprLimit:
    """Bound the ROC at an FPR from below: some threshold has a true FPR of at most `fpr` and a TPR of at least this.

    Both error rates count: the threshold in the answer has a true FPR of at most `fpr` *and* a true TPR of at least the
    limit, except with probability 1 − confidence. The limit is 0 where the non-members are too few to place a
    threshold (at 95 %: fewer than 30 at an FPR of 10 %, 309 at 1 %, 3100 at 0.1 %).

    The records of each kind must be independent draws. For one trained model this is said about that model: the
    non-members are a random sample of records that it has not seen, the members one of those it was trained on.

    Args:
        scores: Attack scores of members and non-members.
        fpr: The false-positive rate, inside (0, 1), named before the scores were looked at.
        confidence: The level of this limit alone; several limits at once share a level.

    Returns:
        The limit and its threshold.

    Raises:
        InputError: If a rate or the confidence is out of range.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> tpr_limit(Scores(rng.normal(2, 1, 1000), rng.normal(0, 1, 1000)), 0.1, 0.95).tpr > 0.6
    True
    """
    rate = check.within("fpr", fpr, 0.0, 1.0, "pass the false-positive rate to work at, e.g. 0.01", include="()")
    alpha = 1 - check.confidence(confidence)
    passed, cost = _passed(scores.nonmembers.size, rate, alpha)
    if passed < 0:
        return TprLimit(0.0, math.inf)
    threshold = above_order(scores, passed)
    counts = scores.counts_at(threshold)
    return TprLimit(float(clopper_pearson_limits(counts.tp, counts.members, alpha - cost)[0]), threshold)


def _passed(nonmembers: int, fpr: float, alpha: float) -> tuple[int, float]:
    """How many non-members may lie above the threshold, and P[its true FPR is above `fpr`]; −1 if none will do."""

    def cost(k: int) -> float:
        return float(special.bdtr(k, nonmembers, fpr))

    passed = bisect.bisect_right(range(nonmembers), _SHARE * alpha, key=cost) - 1
    if passed < 0 and cost(0) <= _MOST * alpha:
        passed = 0
    return passed, cost(passed) if passed >= 0 else 0.0
