"""The supremum behind Epsilon*: exact for normal fits, and for many bootstrap resamples at once."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import special

from dosimeter import _validate as check
from dosimeter._validate import FloatArray, InputError, IntArray
from dosimeter.evidence import Scores

# --- the exact supremum ------------------------------------------------------------------------------------
#
# The largest ratio of rates over all thresholds with both rates in (δ, 1−δ).
#
# Four ratios force ε at each threshold: (1−δ−FNR)/FPR, (1−δ−FPR)/FNR and, with the guess inverted, (FNR−δ)/(1−FPR),
# (FPR−δ)/(1−FNR) ([ES] Eq. (7)). The set of the four does not change when members and non-members, or low and high
# losses, change places; so neither does the supremum. It often stands at an end, where a rate is δ: it is then a limit.


RATIOS = ("(1-delta-FNR)/FPR", "(1-delta-FPR)/FNR", "(FNR-delta)/(1-FPR)", "(FPR-delta)/(1-FNR)")
NO_ZERO = "normal fits that differ at all give Epsilon* = ∞ at δ = 0"
_NODES = 513  # of the scan; the narrowest features stand at its ends, where the cosine spacing is 1e-5 of the width

LogTails = Callable[[FloatArray], tuple[FloatArray, FloatArray, FloatArray, FloatArray]]
"""Points to ln FNR, ln(1−FNR), ln FPR, ln(1−FPR)."""


class Supremum(NamedTuple):
    """For each set of parameters: Epsilon*, where it stands, its rates, which ratio it is, and if it is the ceiling."""

    epsilon: FloatArray
    location: FloatArray
    fpr: FloatArray
    fnr: FloatArray
    ratio: IntArray
    separated: npt.NDArray[np.bool_]


def epsilon_star_normal(
    mu_members: npt.ArrayLike,
    sd_members: npt.ArrayLike,
    mu_nonmembers: npt.ArrayLike,
    sd_nonmembers: npt.ArrayLike,
    delta: float,
) -> FloatArray:
    """Epsilon* of normal scores (or losses), exact and for many parameter sets at once.

    The supremum runs over the thresholds with both rates in (δ, 1−δ); it is ln((1−2δ)/δ), its ceiling, where there
    is none. A standard deviation of 0 is the limit; two equal points give 0.
    """
    failure = check.delta(delta, zero=False, why_not_zero=NO_ZERO)
    names = ("mu_members", "sd_members", "mu_nonmembers", "sd_nonmembers")
    given = [np.asarray(v, float) for v in (mu_members, sd_members, mu_nonmembers, sd_nonmembers)]
    for name, array in zip(names, given, strict=True):
        if not np.isfinite(array).all() or (name.startswith("sd") and (array < 0).any()):
            raise InputError(f"{name} must be finite, and a standard deviation at least 0; got {check.show(array)}.")
    shape = np.broadcast_shapes(*(array.shape for array in given))
    m1, s1, m2, s2 = (np.broadcast_to(array, shape).ravel() for array in given)
    return normal_supremum(m1, s1, m2, s2, failure).epsilon.reshape(shape)


def epsilon_star_from_tails(members: Any, nonmembers: Any, *, delta: float) -> float:
    """Epsilon* of two exact continuous distributions of the loss.

    Each is an object with vectorised `logcdf` and `logsf` (a frozen distribution of scipy.stats is one) or a pair
    (log cdf, log survival function). It is the supremum over the thresholds with both rates in (δ, 1−δ), or its
    ceiling ln((1−2δ)/δ) where there is none.
    """
    failure = check.delta(delta, zero=False, why_not_zero="the supremum over rates in (δ, 1−δ) then diverges")
    member, nonmember = _tails("members", members), _tails("nonmembers", nonmembers)
    odds = math.log(failure) - math.log1p(-failure)
    levels = np.linspace(odds, -odds, _NODES)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore"):
        per_side = [_at_log_odds(side, levels) for side in (member, nonmember)]
        low = max(float(nodes[0]) for nodes in per_side)
        high = min(float(nodes[-1]) for nodes in per_side)
        if failure >= 0.5 or low >= high:
            return max(0.0, _ceiling(failure))
        nodes = np.unique(np.clip(np.concatenate(per_side), low, high))

        def log_tails(points: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
            loss = np.sinh(points)
            return member[1](loss), member[0](loss), nonmember[0](loss), nonmember[1](loss)

        return float(_refined(log_tails, nodes[None, :], failure)[0][0])


def _ceiling(delta: float) -> float:
    return math.log1p(-2 * delta) - math.log(delta) if delta < 0.5 else -math.inf


def _log_ratios(log_tails: LogTails, points: FloatArray, log_delta: float) -> FloatArray:
    """The logarithms of the four ratios in a new first axis; −∞ where a numerator is not positive."""
    fnr, tpr, fpr, tnr = log_tails(points)

    def less_delta(tail: FloatArray) -> FloatArray:
        return tail + np.log(-np.expm1(np.minimum(log_delta - tail, 0.0)))

    return np.stack([less_delta(tpr) - fpr, less_delta(tnr) - fnr, less_delta(fnr) - tnr, less_delta(fpr) - tpr])


def _refined(log_tails: LogTails, nodes: FloatArray, delta: float) -> tuple[FloatArray, FloatArray, IntArray]:
    """Largest ratio over the span of each row of nodes, where it stands and which it is.

    Each ratio is bracketed by the neighbours of its best node and refined by golden section; the ends are nodes, so
    a supremum there is met exactly.
    """
    log_delta = math.log(delta)
    rows = np.arange(nodes.shape[0])[None, :]
    with np.errstate(divide="ignore", invalid="ignore"):
        values = _log_ratios(log_tails, nodes, log_delta)  # (4, rows, nodes)
        best = values.argmax(axis=2)
        value, place = np.take_along_axis(values, best[:, :, None], axis=2)[:, :, 0], nodes[rows, best]
        left, right = nodes[rows, np.maximum(best - 1, 0)], nodes[rows, np.minimum(best + 1, nodes.shape[1] - 1)]
        golden = (math.sqrt(5) - 1) / 2
        own = np.arange(4)
        for _ in range(64):
            width = golden * (right - left)
            probes = np.concatenate([right - width, left + width], axis=1)  # (4, 2·rows)
            probed = _log_ratios(log_tails, probes.T, log_delta)[own, :, own]
            inner, outer = np.split(probed, 2, axis=1)
            for point, reached in zip(np.split(probes, 2, axis=1), (inner, outer), strict=True):
                better = reached > value
                value, place = np.where(better, reached, value), np.where(better, point, place)
            rising = inner < outer
            left, right = np.where(rising, right - width, left), np.where(rising, right, left + width)
    ratio = value.argmax(axis=0)
    return np.maximum(value[ratio, rows[0]], 0.0), place[ratio, rows[0]], ratio


def normal_supremum(
    mu_members: FloatArray, sd_members: FloatArray, mu_nonmembers: FloatArray, sd_nonmembers: FloatArray, delta: float
) -> Supremum:
    """The supremum for normal scores, high for members.

    In units of the tighter side, s = μ_tight + u σ_tight and the other side's deviate is `offset` + `ratio`·u. That
    loses nothing when one standard deviation is tiny, and at 0 it is the limit.
    """
    blocks = []
    for start in range(0, max(1, mu_members.size), 1024):
        part = slice(start, start + 1024)
        blocks.append(
            _normal_block(mu_members[part], sd_members[part], mu_nonmembers[part], sd_nonmembers[part], delta)
        )
    return Supremum(*(np.concatenate(parts) for parts in zip(*blocks, strict=True)))


def _normal_block(m1: FloatArray, s1: FloatArray, m2: FloatArray, s2: FloatArray, delta: float) -> Supremum:
    members_tight = s1 <= s2
    tight, wide = np.minimum(s1, s2), np.maximum(s1, s2)
    centre = np.where(members_tight, m1, m2)
    gap = centre - np.where(members_tight, m2, m1)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        offset = np.where(gap == 0, 0.0, gap / wide)  # ±∞ for two different points
        ratio = np.where(wide > 0, tight / wide, 1.0)
        reach = -special.ndtri(delta) if delta < 0.5 else 0.0
        cut_low = np.where(ratio > 0, (-reach - offset) / ratio, np.where(offset > -reach, -np.inf, np.inf))
        cut_high = np.where(ratio > 0, (reach - offset) / ratio, np.where(offset < reach, np.inf, -np.inf))
    low, high = np.maximum(-reach, cut_low), np.minimum(reach, cut_high)
    separated = ~(low < high)
    low, high = np.where(separated, -reach, low), np.where(separated, reach, high)
    offset = np.where(separated, 0.0, offset)
    spread = 0.5 - 0.5 * np.cos(np.linspace(0, np.pi, _NODES))
    nodes = low[:, None] + (high - low)[:, None] * spread
    nodes[:, -1] = high

    def log_tails(u: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        shape = (-1,) + (1,) * (u.ndim - 1)
        repeat = u.shape[0] // offset.size
        shift, slope, flag = (np.tile(a, repeat).reshape(shape) for a in (offset, ratio, members_tight))
        v = shift + slope * u
        member, nonmember = np.where(flag, u, v), np.where(flag, v, u)
        return (
            special.log_ndtr(member),
            special.log_ndtr(-member),
            special.log_ndtr(-nonmember),
            special.log_ndtr(nonmember),
        )

    value, place, which = _refined(log_tails, nodes, delta)
    fnr, _, fpr, _ = (np.exp(tail) for tail in log_tails(place))
    corner = np.where(m1 >= m2, delta, 1 - delta)  # both rates where the last admissible threshold vanishes
    inverted = np.where(m1 >= m2, 0, 2)
    return Supremum(
        np.where(separated, max(0.0, _ceiling(delta)), value),
        np.where(separated, m1 / 2 + m2 / 2, centre + place * tight),
        np.where(separated, corner, fpr),
        np.where(separated, corner, fnr),
        np.where(separated, inverted, which),
        separated,
    )


def _tails(name: str, side: Any) -> tuple[Callable[[FloatArray], FloatArray], Callable[[FloatArray], FloatArray]]:
    pair = (side.logcdf, side.logsf) if hasattr(side, "logcdf") and hasattr(side, "logsf") else side
    if not (isinstance(pair, (tuple, list)) and len(pair) == 2 and all(callable(part) for part in pair)):
        raise InputError(
            f"{name} must have logcdf and logsf or be a pair of functions, got {check.show(side)}; "
            "pass e.g. scipy.stats.norm(0, 1)."
        )
    return pair[0], pair[1]


def _at_log_odds(side: tuple[Any, Any], levels: FloatArray) -> FloatArray:
    """arsinh of the losses at which ln(cdf/sf) reaches the levels: a stretch that keeps tiny and huge losses exact."""
    low, high = np.full(levels.shape, -700.0), np.full(levels.shape, 700.0)
    for _ in range(1200):
        middle = (low + high) / 2
        if ((middle == low) | (middle == high)).all():
            break
        loss = np.sinh(middle)
        odds = np.asarray(side[0](loss) - side[1](loss), float)
        if odds.shape != levels.shape or np.isnan(odds).any():
            raise InputError("the log cdf and log survival function must be vectorised and never NaN; correct them.")
        below = odds < levels
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return high


# --- bootstrap resamples: moments of normal fits, and maxima over observed thresholds -----------------------

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
