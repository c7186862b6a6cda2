"""Bootstrap resamples of Epsilon*, many at once: moments of normal fits, and maxima over observed thresholds."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dosimeter._validate import FloatArray, IntArray
from dosimeter.evidence import Scores

_BLOCK = 1 << 16  # values that stay in the cache while they are worked on
_MOST_DRAWN = 200_000  # records of a side up to which resamples are drawn record by record
_SKEWEST = 0.02  # the largest Lyapunov ratio: by Berry and Esseen the limit is then off by less than 1 % in probability
_EXACT_RANKS = 1000


class Fit(NamedTuple):
    """Transformed losses less their mean, and their first two moments."""

    centred: FloatArray
    mean: float
    sd: float


def extremes(values: FloatArray) -> tuple[float, float]:
    """Smallest and largest value in one pass."""
    ends = [(block.min(), block.max()) for block in _blocks(values)]
    return float(min(low for low, _ in ends)), float(max(high for _, high in ends))


def transform(losses: FloatArray, lowest: float, highest: float) -> Fit:
    """The paper's φ of one side's losses, in two passes ([ES] §3.2).

    x = 1 + the loss scaled to [0, 1] over both sides, p = e^{−x}, and φ = ln p − ln(1−p) = −ln(e^x − 1), which falls
    with the loss.
    """
    span = highest / 2 - lowest / 2  # halves, so that the difference of two huge losses stays finite
    phi = np.empty(losses.size)
    total, low, high = 0.0, math.inf, -math.inf
    for source, target in zip(_blocks(losses), _blocks(phi), strict=True):
        np.multiply(source, 0.5, out=target)
        target -= lowest / 2
        target /= span if span > 0 else 1.0
        target += 1.0
        np.expm1(target, out=target)
        np.log(target, out=target)
        np.negative(target, out=target)
        total += float(target.sum())
        low, high = min(low, float(target.min())), max(high, float(target.max()))
    mean = low if low == high else total / losses.size  # equal losses: no rounding, so that equal sides stay equal
    squares = 0.0
    for target in _blocks(phi):
        target -= mean
        squares += float(target @ target)
    return Fit(phi, mean, math.sqrt(squares / losses.size))


def _blocks(values: FloatArray) -> list[FloatArray]:
    return [values[start : start + _BLOCK] for start in range(0, values.size, _BLOCK)]


def resampled_moments(fit: Fit, resamples: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray, str]:
    """Means and standard deviations of bootstrap resamples, the scale to [0, 1] held at that of the full sample.

    Up to 200 000 records each resample is drawn record by record. Beyond, the mean and the second moment are drawn
    from their joint normal limit, unless a few records carry so much of their variance that the limit is poor.
    """
    d, n = fit.centred, fit.centred.size
    if n > _MOST_DRAWN and fit.sd > 0:
        pairs = ((block, block * block) for block in _blocks(d))
        third, fourth, sixth = np.sum([(x @ y, y @ y, (y * y) @ y) for x, y in pairs], axis=0) / n
        if sixth <= _SKEWEST * math.sqrt(n) * max(fourth - fit.sd**4, 0.0) ** 1.5:
            common, own = rng.standard_normal((2, resamples)) / math.sqrt(n)
            slope = third / fit.sd  # the covariance of d and d² is the third central moment
            first = fit.sd * common
            second = fit.sd**2 + slope * common + math.sqrt(max(fourth - fit.sd**4 - slope**2, 0.0)) * own
            return fit.mean + first, np.sqrt(np.maximum(second - first * first, 0.0)), "normal limit"
    first, second = np.empty(resamples), np.empty(resamples)
    rows = max(1, (1 << 19) // n)
    buffer = np.empty((min(rows, resamples), n))
    for start in range(0, resamples, rows):
        stop = min(start + rows, resamples)
        picked = buffer[: stop - start]
        np.take(d, rng.integers(0, n, size=picked.shape), out=picked, mode="clip")
        first[start:stop] = picked.sum(axis=1) / n
        second[start:stop] = np.einsum("ij,ij->i", picked, picked) / n
    return fit.mean + first, np.sqrt(np.maximum(second - first * first, 0.0)), "resampled records"


def resampled_maxima(
    scores: Scores, delta: float, rates: tuple[float, float], resamples: int, rng: np.random.Generator
) -> FloatArray:
    """Empirical Epsilon* of bootstrap resamples: multinomial counts between thresholds, summed along the scores.

    Thresholds are those of the 1000 outermost ranks of either side and, further in, ranks 0.1 % apart: where the
    maximum is noisy nothing is left out, and elsewhere no rate moves by more than 0.1 % between two of them.
    """
    n1, n2 = scores.members.size, scores.nonmembers.size
    sides = (scores.sorted_members, scores.sorted_nonmembers)
    thresholds = np.unique(np.concatenate([side[_spread_ranks(side.size)] for side in sides]))
    shares = [
        np.diff(np.searchsorted(side, thresholds, "left"), prepend=0, append=side.size) / side.size for side in sides
    ]
    maxima = np.empty(resamples)
    rows = max(1, (1 << 20) // thresholds.size)
    for start in range(0, resamples, rows):
        stop = min(start + rows, resamples)
        fn, tn = (
            np.cumsum(rng.multinomial(n, share, size=stop - start)[:, :-1], axis=1)
            for n, share in zip((n1, n2), shares, strict=True)
        )
        fnr, fpr = fn / n1, (n2 - tn) / n2
        inside = (fpr > rates[0]) & (fpr < rates[1]) & (fnr > rates[0]) & (fnr < rates[1])
        fnr[~inside] = fpr[~inside] = 0.5
        largest = np.maximum((1 - delta - fnr) / fpr, (1 - delta - fpr) / fnr)
        np.maximum(largest, (fnr - delta) / (1 - fpr), out=largest)
        np.maximum(largest, (fpr - delta) / (1 - fnr), out=largest)
        maxima[start:stop] = np.log(np.maximum(largest.max(axis=1), 1.0))
    return maxima


def _spread_ranks(size: int) -> IntArray:
    steps = max(0, math.ceil(1000 * math.log(max(1.0, size / 2 / _EXACT_RANKS))))
    further = _EXACT_RANKS * np.exp(np.arange(steps + 1) / 1000)
    ranks = np.unique(np.concatenate([np.arange(_EXACT_RANKS), further.astype(np.int64)]))
    ranks = ranks[ranks < size]
    return np.unique(np.concatenate([ranks, size - 1 - ranks]))
