"""How far a measured rate may be from the true one: one rate, a rate at a named FPR, a band for all thresholds."""

from __future__ import annotations

import bisect
import math
from functools import cache
from importlib import resources
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import fft, special

from dosimeter import _validate as check
from dosimeter._validate import FloatArray, IntArray
from dosimeter.evidence import Scores

# --- one rate ---------------------------------------------------------------------------------------------


def clopper_pearson_limits(k: npt.ArrayLike, n: npt.ArrayLike, tail: float) -> tuple[FloatArray, FloatArray]:
    """Exact limits for k of n, each missed with probability ≤ tail."""
    hits, misses = np.asarray(k, float), np.asarray(n, float) - np.asarray(k, float)
    low = np.where(hits > 0, special.betaincinv(np.maximum(hits, 1), misses + 1, tail), 0.0)
    high = np.where(misses > 0, special.betainccinv(hits + 1, np.maximum(misses, 1), tail), 1.0)
    return low, high


def jeffreys_limits(k: npt.ArrayLike, n: npt.ArrayLike, tail: float) -> tuple[FloatArray, FloatArray]:
    """Quantiles of the Beta(k+½, n−k+½) posterior; 0 for k = 0 and 1 for k = n."""
    hits, misses = np.asarray(k, float), np.asarray(n, float) - np.asarray(k, float)
    low = np.where(hits > 0, special.betaincinv(hits + 0.5, misses + 0.5, tail), 0.0)
    high = np.where(misses > 0, special.betainccinv(hits + 0.5, misses + 0.5, tail), 1.0)
    return low, high


# --- at a false-positive rate ------------------------------------------------------------------------------
#
# What a test with few false alarms is sure to find: a lower limit for the ROC at a named FPR.
#
# The ROC at an FPR f is the largest true TPR of a test "member if score ≥ t" whose *true* FPR is at most f. The k+1-th
# highest of n non-members leaves a share above it that is at most Beta(k+1, n−k), ties or not; so with k fixed by n, f
# and the level alone, the threshold just above it has a true FPR above f with probability at most P[Bin(n, f) ≤ k]. The
# members are independent of that threshold, so an exact limit for their rate above it, at what is left of the level,
# is a limit for the ROC.

_SHARE = 0.5  # of the level that may go into the FPR
_MOST = 0.9  # the same where the sample is so small that a threshold above all non-members costs more than half


def threshold_at_fpr(scores: Scores, fpr: float) -> float:
    """The lowest threshold with at most fpr · n false positives, found from the non-members alone.

    It stands just above an order statistic of the non-members, so Clopper–Pearson limits at it stay valid: the members
    are independent of it, and the FPR above the (k+1)-th highest of n is at most Beta(k+1, n−k), ties or not, whose
    quantile is the limit for k = `passed_at_fpr` false positives. Tied scores may leave fewer; k sets the limit.
    """
    return above_order(scores, passed_at_fpr(scores, fpr))


def passed_at_fpr(scores: Scores, fpr: float) -> int:
    """The most false positives that an FPR allows: fpr · n, rounded down."""
    return int(np.floor(fpr * scores.nonmembers.size * (1 + 1e-12)))


def above_order(scores: Scores, passed: int) -> float:
    """The threshold just above the non-member that `passed` others precede; the lowest of them if all may pass."""
    ordered = scores.sorted_nonmembers
    if passed >= ordered.size:
        return float(ordered[0])
    return math.nextafter(float(ordered[ordered.size - 1 - passed]), math.inf)


class TprLimit(NamedTuple):
    """A limit for the TPR, and the threshold that it stands on: ∞ where none could be placed."""

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


# --- at all thresholds at once -----------------------------------------------------------------------------
#
# The uniform band: one-sided binomial limits for a rate that hold at all thresholds at once.
#
# If k of n scores lie at or above a threshold, the true rate there is at most V_(k+1), the next order statistic of n
# uniforms. So the limits B(1−a; j, n−j+1) for V_(j) hold at every threshold if they hold for all orders j together;
# the local level a is chosen so that this fails with probability ≤ α. `violation` computes that probability exactly,
# as that of a binomial process N(u) falling below j at the points u_j = B(1−a; j, n−j+1).
#
# Above ALL_ORDERS only a dense choice of orders is controlled; a count between two of them takes the next one.
# The product reads a table made by `scripts/calibration_tables.py`; beyond it the union bound over the orders is used.

ALL_ORDERS = 2000
_DENSE_END = 500
_TAIL = 8.5


@cache
def band_orders(n: int) -> IntArray:
    """The orders j that the band controls: all of a small sample, else the ends and steps of 1 % (2 % beyond 1e6)."""
    if n <= ALL_ORDERS:
        return np.arange(1, n + 1)
    ratio = 1.01 if n <= 10**6 else 1.02
    steps = int(np.log(n / 2 / _DENSE_END) / np.log(ratio)) + 1
    inner = np.unique((_DENSE_END * ratio ** np.arange(1, steps + 1)).astype(np.int64))
    lower = np.concatenate([np.arange(1, _DENSE_END + 1), inner[inner <= n // 2]])
    return np.unique(np.concatenate([lower, n + 1 - lower]))


def violation(n: int, level: FloatArray) -> FloatArray:
    """P[some controlled limit fails] for each local level: exact, by Poissonisation and absorption."""
    points = band_orders(n)
    u = special.betainccinv(points[None, :], n - points[None, :] + 1, level[:, None])
    log_total = special.xlogy(n, n) - n - special.gammaln(n + 1)  # P[Poisson(n) = n]
    state = np.ones((level.size, 1))  # law of N at the last point, from `floor` upwards
    floor, failed, before = 0, np.zeros(level.size), np.zeros(level.size)
    for k, j in enumerate(points):
        first, step = _poisson_window(n * (u[:, k] - before))
        size = state.shape[1] + step.shape[1] - 1
        length = fft.next_fast_len(size, real=True)
        moved = fft.irfft(fft.rfft(state, length) * fft.rfft(step, length), length)[:, :size]
        np.maximum(moved, 0.0, out=moved)
        value = floor + first[:, None] + np.arange(size)
        rest = n * (1 - u[:, k])
        left = np.maximum(n - value, 0)
        log_end = special.xlogy(left, rest[:, None]) - rest[:, None] - special.gammaln(left + 1) - log_total
        lost = (value < j) & (value <= n)
        failed += np.sum(np.where(lost, moved * np.exp(log_end), 0.0), axis=1)
        top = int(np.max(np.minimum(n * u[:, k] + _TAIL * np.sqrt(n * u[:, k] * (1 - u[:, k])) + 8, n)))
        index = (j - floor) - first[:, None] + np.arange(max(top - j + 1, 1))
        inside = (index >= 0) & (index < size) & (j + np.arange(index.shape[1]) <= n)
        state = np.where(inside, np.take_along_axis(moved, np.clip(index, 0, size - 1), 1), 0.0)
        floor, before = int(j), u[:, k]
    return np.minimum(failed, 1.0)


def _poisson_window(mean: FloatArray) -> tuple[IntArray, FloatArray]:
    """First value and probabilities of Poisson(mean) around its mean, one row for each mean."""
    spread = _TAIL * np.sqrt(mean) + 12
    first = np.maximum(np.floor(mean - spread), 0).astype(np.int64)
    value = first[:, None] + np.arange(int(np.max(np.ceil(mean + spread) - first)) + 1)
    mass = np.exp(special.xlogy(value, mean[:, None]) - mean[:, None] - special.gammaln(value + 1))
    return first, mass


class BandLevels(NamedTuple):
    """`alpha[i, k]`: the violation probability of `size[i]` records at local level `level[k]`."""

    size: IntArray
    level: FloatArray
    alpha: FloatArray


@cache
def level_table() -> BandLevels:
    """The committed table."""
    source = resources.files("dosimeter.estimators").joinpath("band_levels.npz")
    with source.open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
        return BandLevels(stored["size"].astype(np.int64), stored["level"].astype(float), stored["alpha"].astype(float))


def local_level(n: int, alpha: float) -> float:
    """A local level with which all limits of n records hold together with probability ≥ 1 − alpha.

    Between two sizes of the table the worse one counts, with 1 % on top; the union bound is the last resort.
    """
    table = level_table()
    union = alpha / band_orders(n).size
    above = int(np.searchsorted(table.size, n))
    if above == table.size.size:
        return union
    if table.size[above] == n:
        needed = table.alpha[above]
    else:
        needed = 1.01 * np.maximum(table.alpha[above - 1], table.alpha[above])
    fits = int(np.sum(needed <= alpha))
    return max(union, float(table.level[fits - 1])) if fits else union


def band_limits(k: npt.ArrayLike, n: int, alpha: float) -> FloatArray:
    """Limits for the true rate where k of n records are counted, valid for all k together at 1 − alpha."""
    points = band_orders(n)
    following = np.searchsorted(points, np.asarray(k) + 1)
    limit = special.betainccinv(points, n - points + 1, local_level(n, alpha))
    return np.append(limit, 1.0)[following]


# --- the whole curve ---------------------------------------------------------------------------------------


def average_ranks(values: FloatArray) -> FloatArray:
    """The ranks of values from 1 on; equal ones share the mean of theirs. scipy.stats takes a second to import."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    first = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))[: values.size]
    end = np.append(first[1:], values.size)[: first.size]
    ranks = np.empty(values.size)
    ranks[order] = np.repeat((first + end + 1) / 2, end - first)
    return ranks


def auc_with_error(scores: Scores) -> tuple[float, float]:
    """The AUC and its standard error (DeLong, DeLong and Clarke-Pearson 1988), asymptotic.

    Where all placements agree (perfect separation, or all scores equal) that error is 0, which is not a measure of
    anything; a binomial error with half a miss added to the smaller side stands in for it.
    """
    m, n = scores.members.size, scores.nonmembers.size
    both = average_ranks(np.concatenate([scores.members, scores.nonmembers]))
    above = (both[:m] - average_ranks(scores.members)) / n
    below = 1 - (both[m:] - average_ranks(scores.nonmembers)) / m
    auc = float(above.mean())
    variance = (above.var(ddof=1) / m if m > 1 else 0.25) + (below.var(ddof=1) / n if n > 1 else 0.25)
    if variance <= 1e-15:
        few = min(m, n)
        shrunk = (few * auc + 0.5) / (few + 1)
        variance = shrunk * (1 - shrunk) / few
    return auc, math.sqrt(variance)
