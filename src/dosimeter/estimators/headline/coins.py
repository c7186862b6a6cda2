"""Labels thrown by independent fair coins: a bound for adding or removing one record.

Labels are revealed from the middle rank outwards. What is still hidden is tested once: "member" is guessed for the
upper bins, "non-member" for the lower ones, with whole weights that only the revealed labels and the ranks decide.
Given those, every guess is right with probability at most q = e^ε/(1+e^ε), so the weighted count of right guesses lies
below a weighted sum of Bernoulli(q) variables (docs/headline.md, Theorem 9). Few strong leakers do not show in the
middle: they are tested without weights, by ladders (Theorem 9b). Going up the ε axis cell by cell, each with tests of
its own, costs nothing more (Lemma 10).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy import special

from dosimeter._validate import BoolArray, FloatArray, IntArray
from dosimeter.estimators.headline.ladder import kept, rungs, within_reach
from dosimeter.estimators.headline.learning import ACTIVE, BOTH, IN, KINDS, OUT, Learner, View
from dosimeter.estimators.headline.ranks import (
    COIN_STEPS,
    DESIGN,
    Bins,
    Proof,
    binomial,
    nothing,
    reach,
    upper_tail,
    whole_weights,
)

CELLS = np.concatenate([np.arange(100) * 0.05, 5 + np.arange(111) * 0.1])  # of the ε axis
_PART = 10  # at most this share of the bins left on a side is revealed at a time
_DELTA_SHARE = 0.5  # of the level: the most that an allowance for δ may cost
_PRECISION = 1e-3
_NEARLY = 0.35  # of a design: log-odds that make no difference between the last bins that add weight
_POINTS = 5  # of a cell that a ladder tells apart

Rule = Callable[[View], tuple[FloatArray, BoolArray]]


def coins_bound(bins: Bins, delta: float, alpha: float) -> Proof:
    """The largest ε that (ε, δ)-DP for adding or removing a record is rejected at, at level alpha."""
    if bins.records.size < 2:
        return nothing(bins.total)
    learner = Learner(bins, 0.5)
    middle = int(np.argmin(np.abs(bins.edges[1:-1] - bins.total / 2))) + 1
    budget = bins.total * delta
    view, design = _reveal(bins, learner, learner.view(middle, middle), partial(_first_design, bins, budget, alpha))
    tests, first = _tests(bins, view, design / DESIGN), design
    frozen = float(first[list(view.tested)].min())
    proof, prefixes = nothing(bins.total), _Prefixes(bins, middle)
    for floor, top in pairwise(CELLS.tolist()):
        if floor >= frozen and floor > 0:
            passed = floor >= first
            view = _reveal_for(bins, learner, view, np.where(passed, (floor + top) / 2, first))
            tests, frozen = _tests(bins, view, np.where(passed, (floor + top) / 2, first / DESIGN)), top
        level = _level(budget, floor, alpha)
        share = _prefix_share(top, bins.total, alpha)
        learned = _SplitLevel(level.allowance, level.alpha * (1 - share))
        best = nothing(bins.total)
        for test in tests:
            best = max(best, test.largest(floor, top, learned), key=lambda found: found.epsilon)
            if best.epsilon >= top:
                break
        if best.epsilon < top:
            plain = prefixes.largest(floor, top, _SplitLevel(level.allowance, level.alpha * share))
            best = max(best, plain, key=lambda found: found.epsilon)
        if best.epsilon > proof.epsilon:
            proof = best
        if best.epsilon < top:
            break
    return proof


class _SplitLevel(NamedTuple):
    """The right guesses that δ may account for, and what is left of the level."""

    allowance: int
    alpha: float


def _level(budget: float, floor: float, alpha: float) -> _SplitLevel:
    """Markov's allowance at the lower edge of a cell, where δ can do most; `budget` is m·δ."""
    mean = budget * float(special.expit(-floor))
    allowance = max(math.ceil(mean / (_DELTA_SHARE * alpha)) - 1, 0)
    return _SplitLevel(allowance, alpha - mean / (allowance + 1))


# --- revealing --------------------------------------------------------------------------------------------


def _sides(bins: Bins, view: View, kind: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Records of the hidden bins where this kind of leak shows, how far they lean to their guess, and the guess."""
    odds, low, high = view.of(kind), view.low, view.high
    upper, lower = kind != OUT, kind != IN
    records = np.concatenate([bins.records[high:] * upper, bins.records[:low] * lower]).astype(float)
    sign = np.concatenate([np.ones(bins.records.size - high), -np.ones(low)])
    keep = records > 0
    return records[keep], np.concatenate([odds[high:], -odds[:low]])[keep], sign[keep]


def _first_design(bins: Bins, budget: float, alpha: float, view: View) -> tuple[FloatArray, BoolArray]:
    """What each kind of leak can be expected to prove, and the kinds that decide what is revealed."""

    def lost(grid: FloatArray, weight: FloatArray, records: FloatArray, _sign: FloatArray) -> FloatArray:
        allowed = np.maximum(np.ceil(budget * special.expit(-grid) / (_DELTA_SHARE * alpha)) - 1, 0)
        taken = np.minimum(np.cumsum(records)[None, :], allowed[:, None])
        return np.asarray((np.diff(taken, axis=1, prepend=0.0) * weight).sum(1))

    design = np.zeros(len(KINDS))
    for kind in view.tested:
        records, odds, sign = _sides(bins, view, kind)
        design[kind] = DESIGN * reach(records, odds, sign, np.zeros(records.size), lost=lost if budget > 0 else None)
    likely = view.chance >= ACTIVE
    return design, likely & (design >= 0.5 * design[likely].max())


def _reveal(bins: Bins, learner: Learner, view: View, rule: Rule) -> tuple[View, FloatArray]:
    """Reveal bins from the inside until the next one on either side is of use to a test at the design."""
    while True:
        design, active = rule(view)
        view = learner.view(view.low, view.high, design)
        low, high = _next(bins, view, design, active)
        if (low, high) == (view.low, view.high):
            return view, design
        view = learner.view(low, high)


def _reveal_for(bins: Bins, learner: Learner, view: View, design: FloatArray) -> View:
    """The same for a design that no view changes."""
    low, high = view.low, view.high
    while True:
        view = learner.view(low, high, design)
        low, high = _next(bins, view, design, view.chance >= ACTIVE)
        if (low, high) == (view.low, view.high):
            return view


def _next(bins: Bins, view: View, design: FloatArray, active: BoolArray) -> tuple[int, int]:
    """The bins that are revealed next, as the first one and the one after the last."""
    above, below = _useless(bins, view, design, active)
    left = bins.records.size - view.high
    high = view.high + (max(1, min(above, left // _PART)) if above else 0)
    low = view.low - (max(1, min(below, view.low // _PART)) if below else 0)
    return low, high


def _useless(bins: Bins, view: View, design: FloatArray, active: BoolArray) -> tuple[int, int]:
    """How many of the next bins above and below no active kind would give weight; the outermost bins always stay."""
    above, below = np.ones(bins.records.size - view.high, bool), np.ones(view.low, bool)
    for kind in np.flatnonzero(active).tolist():
        if kind in (BOTH, IN):
            above &= view.of(kind)[view.high :] <= design[kind]
        if kind in (BOTH, OUT):
            below &= -view.of(kind)[: view.low] <= design[kind]
        if kind == IN:
            above &= bins.total - bins.edges[view.high : -1] > kept(bins.total)
        if kind == OUT:
            below &= bins.edges[1 : view.low + 1] > kept(bins.total)
    return _leading(above), _leading(below[::-1])


def _leading(useless: BoolArray) -> int:
    """How many lead the row, but never all."""
    count = useless.size if useless.all() else int(np.argmin(useless))
    return max(min(count, useless.size - 1), 0)


# --- testing ----------------------------------------------------------------------------------------------


def _tests(bins: Bins, view: View, design: FloatArray) -> list[_Weighted | _Ladder]:
    """One test for each kind of leak that is likely enough, with its share of the level."""
    shares = view.shares.tolist()
    return [
        _Weighted(bins, view, float(design[kind]), shares[kind])
        if kind == BOTH
        else _Ladder(bins, view, kind, shares[kind])
        for kind in view.tested
    ]


class _Ladder:
    """How few of the outermost guesses at one end are wrong, at any of several lengths (`ladder.py`)."""

    def __init__(self, bins: Bins, view: View, kind: int, share: float) -> None:
        side = np.arange(bins.records.size - 1, view.high - 1, -1) if kind == IN else np.arange(view.low)
        self._lengths, members = np.cumsum(bins.records[side]), np.cumsum(bins.members[side])
        self._wrong = self._lengths - members if kind == IN else members
        self._kind, self._share = kind, share
        self._learned = int(bins.records[view.low : view.high].sum())

    def largest(self, floor: float, top: float, level: _SplitLevel) -> Proof:
        """The largest of a few points of a cell that is rejected, 0 if none is."""
        longest, width, alpha = None, (top - floor) / _POINTS, level.alpha * self._share
        lowest = float(special.expit(-floor - width))
        if not within_reach(self._lengths, self._wrong, lowest, alpha, level.allowance):
            return nothing(self._learned)
        for epsilon in (top - width * np.arange(_POINTS)).tolist():
            miss = float(special.expit(-epsilon))
            longest = rungs(self._lengths, miss, alpha, level.allowance, longest)
            if longest is None:
                continue
            wrong = self._wrong[np.searchsorted(self._lengths, longest.records)]
            if longest.holds(wrong):
                place = int(np.argmax(wrong <= longest.limits))
                return self._proof(epsilon, int(longest.records[place]), int(wrong[place]), level.allowance)
        return nothing(self._learned)

    def _proof(self, epsilon: float, records: int, wrong: int, allowance: int) -> Proof:
        counts = (records, records - wrong, 0, 0) if self._kind == IN else (0, 0, records, wrong)
        return Proof(epsilon, *counts, self._learned, allowance)


class _Weighted:
    """The weighted count of right guesses, which lies below the weighted sum of Bin(records, q)."""

    def __init__(self, bins: Bins, view: View, design: float, share: float) -> None:
        upper, lower = np.arange(view.high, bins.records.size), np.arange(view.low)
        odds = view.of(BOTH)
        weights = whole_weights(_excess(np.concatenate([odds[upper], -odds[lower]]), design), COIN_STEPS)
        right = np.concatenate([bins.members[upper], (bins.records - bins.members)[lower]])
        records = np.concatenate([bins.records[upper], bins.records[lower]])
        used = weights > 0
        self._share = share
        self._weights, self._records = _merged(weights[used], records[used])
        self._observed = int(weights @ right)
        self._total = float(self._weights @ self._records)
        self._squares = float(self._weights**2 @ self._records)
        self._upper, self._lower = upper[used[: upper.size]], lower[used[upper.size :]]
        self._bins, self._learned = bins, int(bins.records[view.low : view.high].sum())

    def largest(self, floor: float, top: float, level: _SplitLevel) -> Proof:
        """The largest ε of a cell that is rejected, to a thousandth; its lower edge is known to be rejected or 0."""
        observed = self._observed - self._heaviest(level.allowance)
        rejects = partial(self._rejects, observed=observed, level=level.alpha * self._share)
        if rejects(top):
            return self._proof(top, level.allowance)
        if not rejects(floor):
            return self._proof(0.0, level.allowance)
        while top - floor > _PRECISION:
            middle = (floor + top) / 2
            floor, top = (middle, top) if rejects(middle) else (floor, middle)
        return self._proof(floor, level.allowance)

    def _heaviest(self, count: int) -> int:
        """The sum of the largest weights, which is what δ may account for."""
        taken = np.diff(np.minimum(np.cumsum(self._records), count), prepend=0)
        return int(taken @ self._weights)

    def _rejects(self, epsilon: float, *, observed: int, level: float) -> bool:
        if observed <= 0 or level <= 0:
            return False
        q = float(special.expit(epsilon))
        z = (observed - q * self._total) / math.sqrt(q * (1 - q) * self._squares)
        if z < 0.3:  # cannot be rejected at any level in use
            return False
        if z > 2.2 and self._log_chernoff(q, observed) <= math.log(level):
            return True
        parts = [(int(w), binomial(int(n), q)) for w, n in zip(self._weights, self._records, strict=True)]
        return upper_tail(parts, observed) <= level

    def _log_chernoff(self, q: float, observed: int) -> float:
        """Chernoff's bound for the log tail: cheap, never below the truth."""
        n, w = self._records, self._weights
        if observed >= self._total:
            return float(n.sum() * math.log(q))
        tilt = min((observed - q * self._total) / (q * (1 - q) * self._squares), 30 / w[0])
        best = 0.0
        for _ in range(10):
            z = math.log(q / (1 - q)) + tilt * w
            p = special.expit(z)
            best = min(best, float(n @ (np.logaddexp(0, z) + math.log1p(-q))) - tilt * observed)
            slope, curvature = float((n * w) @ p) - observed, float((n * w * w) @ (p * (1 - p)))
            if curvature <= 0 or abs(slope) < 1e-3 * math.sqrt(curvature):
                break
            tilt = min(max(tilt - slope / curvature, 0.2 * tilt), 60 / w[0])
        return best

    def _proof(self, epsilon: float, allowance: int) -> Proof:
        bins = self._bins
        upper, lower = (bins.records[side].sum() for side in (self._upper, self._lower))
        above, below = (bins.members[side].sum() for side in (self._upper, self._lower))
        return Proof(epsilon, int(upper), int(above), int(lower), int(below), self._learned, allowance)


def _excess(odds: FloatArray, design: float) -> FloatArray:
    """How far bins lie beyond a design. Where the farthest hardly does, all that are nearly as far count the same.

    Two groups of tied scores may be predicted a little above and a little below a design: either alone proves less.
    """
    nearly, farthest = _NEARLY * design, float(odds.max())
    return np.where(odds > farthest - nearly, 1.0, 0.0) if 0 < farthest - design < nearly else odds - design


# --- prefixes ---------------------------------------------------------------------------------------------

_RUNGS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)  # wrong guesses that a prefix may hold
_RUNG_SHARES = 1 / (np.arange(len(_RUNGS)) + 1.5) / (1 / (np.arange(len(_RUNGS)) + 1.5)).sum()
_ORDER_SHARES = (0.5, 0.25, 0.25)  # both ends, the upper one, the lower one
_LEAST_SHARE, _MOST_SHARE = 0.01, 0.06  # of the level, for all prefixes
_LARGE = 0.05  # share of the records that must all be guessed right to reject ε, from which on prefixes get most


def _prefix_share(epsilon: float, total: int, alpha: float) -> float:
    """The share of the level that prefixes get: the more of the records an ε takes, the more; no label decides."""
    needed = -math.log(alpha) * math.exp(epsilon) / total
    return _LEAST_SHARE + (_MOST_SHARE - _LEAST_SHARE) * min(needed / _LARGE, 1.0)


class _Prefixes:
    """Plain counts of right guesses among so many outermost records, which nothing was learned for.

    How long a prefix is follows from the number of wrong guesses that it may hold and from ε, never from a label.
    """

    def __init__(self, bins: Bins, middle: int) -> None:
        self._bins, self._middle = bins, middle
        upper = np.arange(bins.records.size - 1, middle - 1, -1)
        lower = np.arange(middle)
        self._sizes = [np.cumsum(bins.records[side]) for side in (upper, lower)]
        self._members = [np.cumsum(bins.members[side]) for side in (upper, lower)]
        places, others = np.arange(upper.size), np.arange(lower.size)
        near = np.minimum(np.searchsorted(self._sizes[1], self._sizes[0]), lower.size - 1)
        self._orders = ((places, near), (places, np.full_like(places, -1)), (np.full_like(others, -1), others))

    def largest(self, floor: float, top: float, level: _SplitLevel) -> Proof:
        """The largest ε of a cell that a prefix rejects, 0 if none rejects its lower edge."""
        best = nothing(self._bins.total)
        if level.alpha <= 0:
            return best
        miss = float(special.expit(-top))
        for ends, order_share in zip(self._orders, _ORDER_SHARES, strict=True):
            above, below = (self._at(side, end) for side, end in enumerate(ends))
            records = above[0] + below[0]
            right = above[1] + below[0] - below[1]
            for rung, rung_share in zip(_RUNGS, _RUNG_SHARES.tolist(), strict=True):
                alone = level.alpha * order_share * rung_share
                enough = special.bdtr(rung + level.allowance, records, miss) <= alone
                if not enough.any():
                    break
                place = int(np.argmax(enough))
                seen = int(right[place]) - level.allowance
                if seen < 1:
                    continue
                reached = float(special.betainccinv(int(records[place]) - seen + 1, seen, alone))
                epsilon = min(top, math.log1p(-reached) - math.log(reached))
                if epsilon > max(best.epsilon, floor):
                    upper, inside, lower, outside = (int(part[place]) for part in (*above, *below))
                    best = Proof(epsilon, upper, inside, lower, outside, 0, level.allowance)
        return best

    def _at(self, side: int, ends: IntArray) -> tuple[IntArray, IntArray]:
        """Records and members up to the given bins of one end; none where −1 stands."""
        sizes, members = (np.where(ends < 0, 0, part[side][ends]) for part in (self._sizes, self._members))
        return sizes, members


def _merged(weights: IntArray, records: IntArray) -> tuple[IntArray, IntArray]:
    """Bins of equal weight as one, the heaviest first."""
    values, place = np.unique(-weights, return_inverse=True)
    totals = np.zeros(values.size, np.int64)
    np.add.at(totals, place, records)
    return -values, totals
