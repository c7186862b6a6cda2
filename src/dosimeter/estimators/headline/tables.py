"""Tables of upper against lower ranks, members against non-members, and what δ can do to them.

Given how many members a table holds, the number of members among its upper records lies below Fisher's noncentral
hypergeometric law of odds ratio θ, and tables that share no record are jointly below independent ones (Theorem 5 in
docs/headline.md). With δ > 0 the excess is bounded by Stein's method (Theorem 6): a weighted count less a
whole allowance keeps its level but for a cost in proportion to the Stein factors computed here.
Which bins form a table, and with what weight, the ranks and the revealed labels decide.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import special
from scipy.fft import irfft, next_fast_len, rfft

from dosimeter._validate import FloatArray, IntArray
from dosimeter.estimators.headline.learning import BOTH, View
from dosimeter.estimators.headline.ranks import ROUNDING, Bins, Law, noncentral, upper_tail, whole_weights

REPLACE, ADD_REMOVE = NEIGHBOURS = ("replace", "add/remove")
_LEAK_SHARE = 0.5  # of the level: the most that runs given away by δ may cost
_SEEN = 1e-13  # beyond this probability the Stein factor of the identity is bounded, not computed


class RankTable(NamedTuple):
    """Upper and lower records, the members among all of them, the members among the upper ones, and a weight."""

    upper: int
    lower: int
    members: int
    above: float
    weight: int

    @property
    def is_free(self) -> bool:
        """Whether the margins leave anything to chance."""
        return min(self.upper, self.members) > max(0, self.members - self.lower)

    def law(self, theta: float) -> Law:
        return noncentral(self.upper, self.lower, self.members, theta)


class DeltaCost(NamedTuple):
    """What δ may cost: `total` counts pairs of data sets, `flipped` says that records are added before one is removed.

    For replace-one neighbours each pair inside a table costs its Stein factor once; for add/remove the two steps
    of a swap cost as many times as there are records to take them with (Corollary 7).
    """

    total: float
    neighbours: str
    flipped: bool = False

    def of(self, table: RankTable, log_theta: float) -> float:
        if self.neighbours == REPLACE:
            return 1.0
        first, second = (table.upper, table.lower) if self.flipped else (table.lower, table.upper)
        return first + math.exp(log_theta / 2) * second


@dataclass(frozen=True)
class Tables:
    """The weighted count of members in the upper halves, less an allowance for δ."""

    rows: tuple[RankTable, ...]
    allowance: int = 0

    @classmethod
    def of(cls, rows: Sequence[RankTable], allowance: int = 0) -> Tables:
        return cls(tuple(row for row in rows if row.weight > 0 and row.is_free), allowance)

    def p_value(self, log_theta: float) -> float:
        """P[as much or more], were the odds ratio of every swap at most θ."""
        theta = math.exp(log_theta)
        observed = int(sum(row.weight * row.above for row in self.rows)) - self.allowance
        return upper_tail([(row.weight, row.law(theta)) for row in self.rows], observed)

    def score(self, log_theta: float) -> float:
        """The count beyond its mean, less the allowance, in standard deviations; as little as can be without tables."""
        if not self.rows:
            return -math.inf
        laws = [(row, row.law(math.exp(log_theta))) for row in self.rows]
        beyond = sum(row.weight * (row.above - law.mean) for row, law in laws) - self.allowance
        return beyond / math.sqrt(sum(row.weight**2 * law.variance for row, law in laws) + 1e-9)

    def gamma(self, log_theta: float, cost: DeltaCost, enough: float = 0.0) -> float:
        """What a unit of δ costs at this odds ratio, given the allowance; only above `enough` may it be too large."""
        return max(factor.least(self.allowance) for factor in self._factors(log_theta, cost, self.allowance, enough))

    def least_allowance(self, log_theta: float, cost: DeltaCost, limit: float) -> int:
        """The least allowance with which a unit of δ costs no more than the limit."""
        factors = self._factors(log_theta, cost, 0, limit)
        return max((math.ceil(f.slope * f.weight / limit) for f in factors if f.least(0) > limit), default=0)

    def _factors(self, log_theta: float, cost: DeltaCost, allowance: int = 0, enough: float = 0.0) -> Iterator[_Factor]:
        """The factors of each table, in the order in which the proof replaces them: the cheapest first.

        Laws of sums take most of the time, so no more tables smooth a factor than bring it below `enough`, and none
        where all of them could not.
        """
        theta = math.exp(log_theta)
        rows = []
        for row in self.rows:
            law = row.law(theta)
            step, slope = stein_factors(row, theta, law)
            each = cost.of(row, log_theta)
            rows.append((step * each, slope * each, row.weight, law))
        rows.sort(key=lambda found: found[:3])
        smoother, before, variance = np.ones(1), deque[tuple[int, Law]](), 0.0
        for step, slope, weight, law in rows:
            found = _Factor(step, slope, weight, _most_within(smoother, weight))
            # By Chebyshev, ¾ of the sum's mass lies on 4σ: so much of it is within some `weight` neighbours at least.
            smoothest = found._replace(window=0.75 * weight / (4 * math.sqrt(variance) + 1 + weight))
            if smoothest.least(allowance) <= enough or not enough:
                while found.least(allowance) > enough and before:
                    smoother = _added(smoother, *before.popleft())
                    found = found._replace(window=_most_within(smoother, weight))
            yield found
            before.append((weight, law))
            variance += weight**2 * law.variance


class _Factor(NamedTuple):
    """Stein factors of a table, times what a swap costs, and how likely the tables replaced before it decide."""

    step: float
    slope: float
    weight: int
    window: float  # the most that the sum of the tables replaced before can put on `weight` neighbouring values

    def least(self, allowance: int) -> float:
        most = min(self.window, self.weight / allowance) if allowance else self.window
        return min(self.step, self.slope * most)


def _most_within(mass: FloatArray, width: int) -> float:
    """The largest probability of so many neighbouring values."""
    if mass.size <= width:
        return 1.0
    upto = np.concatenate([[0.0], np.cumsum(mass)])
    return min(float((upto[width:] - upto[:-width]).max()) + ROUNDING, 1.0)


def _added(mass: FloatArray, weight: int, law: Law) -> FloatArray:
    """The law of an independent sum, on its whole window."""
    spread = np.zeros(weight * (law.mass.size - 1) + 1)
    spread[::weight] = law.mass
    size = mass.size + spread.size - 1
    length = next_fast_len(size, real=True)
    return np.asarray(np.maximum(irfft(rfft(mass, length) * rfft(spread, length), length)[:size], 0.0))


def stein_factors(table: RankTable, theta: float, law: Law | None = None) -> tuple[float, float]:
    """The largest |g(r+1) − g(r)| of the Stein equation: over indicators of r ≥ t, and for the identity.

    The first is largest where the law has its mass. The second may rise towards the ends; there it is
    bounded by the inverse slope of the drift, see docs/headline.md.
    """
    law = table.law(theta) if law is None else law
    if law.mass.size < 2:
        return 0.0, 0.0
    r, mass = law.values[:-1], law.mass
    up = theta * (table.upper - r) * (table.members - r)
    seen = np.flatnonzero(mass[:-1] > _SEEN)
    flow = np.maximum(mass[:-1] * up, 1e-300)[seen]
    below, above = np.cumsum(mass)[:-1], np.cumsum(mass[::-1])[::-1][1:]
    step = float(((below * above)[seen] / flow).max())
    away = mass * (law.values - law.mean)
    inwards = np.where(r < law.mean, -np.cumsum(away)[:-1], np.cumsum(away[::-1])[::-1][1:])  # equal; no digits lost
    slope = float((inwards[seen] / flow).max())
    return step, max(slope, *_slopes_beyond(table, theta, law.mean, float(r[seen[0]]), float(r[seen[-1]])))


def threshold(table: RankTable, theta: float, level: float) -> tuple[int, float]:
    """The least count t with P[R' ≥ t] ≤ level, and the Stein factor of the one indicator 1{r ≥ t}.

    Where only one table is tested t is known, and its factor may be far below the largest of all indicators.
    """
    law = table.law(theta)
    tails = np.cumsum(law.mass[::-1])[::-1] + ROUNDING
    place = int(np.argmax(tails <= level)) if tails[-1] <= level else law.mass.size
    count = law.first + place
    if place in (0, law.mass.size):
        return count, 0.0
    down = count * (table.lower - table.members + count)
    return count, float(tails[place] * (1 - law.mass[place:].sum()) / (law.mass[place] * down))


def _slopes_beyond(table: RankTable, theta: float, mean: float, low: float, high: float) -> tuple[float, float]:
    """Limits for the second factor below `low` and above `high`.

    The drift θ(upper − r)(members − r) − r(lower − members + r) is (zero − r)·m(r), with m falling in r where θ ≥ 1.
    """
    a, b = theta - 1, theta * (table.upper + table.members) + (table.lower - table.members)
    c = theta * table.upper * table.members
    zero = 2 * c / (b + math.sqrt(max(b * b - 4 * a * c, 0.0)))
    least, most = max(0, table.members - table.lower), min(table.upper, table.members)
    limits = []
    for start, end, flattest in ((low, float(least), low), (high + 1, float(most), float(most))):
        if start == end:  # nothing lies beyond
            limits.append(0.0)
            continue
        ratio = max((mean - r) / (zero - r) for r in (start, end))  # monotone between them
        limits.append(ratio / (b - a * (flattest + zero)))
    return limits[0], limits[1]


def null_cells(upper: FloatArray, lower: FloatArray, members: FloatArray, log_theta: float) -> tuple[FloatArray, ...]:
    """Members and non-members above, then below, that tables are expected to hold at an odds ratio."""
    theta = math.exp(log_theta)
    b, c = theta * (upper + members) + lower - members, theta * upper * members
    mean = 2 * c / (b + np.sqrt(np.maximum(b * b - 4 * (theta - 1) * c, 0.0)))
    cells = (mean, upper - mean, members - mean, lower - members + mean)
    return tuple(np.maximum(cell, 0.5) for cell in cells)


def leaks_of(records: int, delta: float, alpha: float) -> tuple[int, float]:
    """How many of so many independent runs δ may give away, and the chance that it gives away more.

    A run of an (ε, δ)-DP mechanism tells its world with probability δ and is ε-DP otherwise (Kairouz, Oh and Viswanath
    2015), so the number of runs that tell is Binomial(records, δ).
    """
    leaks = 0
    while (missed := float(special.bdtrc(leaks, records, delta))) > _LEAK_SHARE * alpha:
        leaks += 1
    return leaks, missed


# --- which bins are tested against which ----------------------------------------------------------------------


SIZES = (12, 24, 48, 100, 250, 1000, 10**9)  # least records a side, from fine tables to one table of all


class Pairing(NamedTuple):
    """A table before its members are counted: bins above, bins below, and its weight."""

    upper: IntArray
    lower: IntArray
    weight: int

    def observed(self, bins: Bins) -> RankTable:
        """The table with its members."""
        upper, lower = self.upper, self.lower
        above, below = int(bins.members[upper].sum()), int(bins.members[lower].sum())
        records = int(bins.records[upper].sum()), int(bins.records[lower].sum())
        return RankTable(*records, above + below, above, self.weight)


class _OpposedBins(NamedTuple):
    upper: IntArray
    lower: IntArray
    excess: float  # log odds ratio between the two, beyond the design


class _Least(NamedTuple):
    """What a side of a table must hold: records, and about how many of the rarer label."""

    records: int
    rare: float


def layouts(
    bins: Bins, view: View, design: float, sizes: tuple[int, ...], base: float, rare: float
) -> Iterator[tuple[int, list[Pairing]]]:
    """Ways to lay tables, from fine to coarse, each with its size; none has as many tables as an earlier one.

    Each side of a table is expected to hold so many `rare` labels at least.
    """
    seen = set()
    for size in sizes:
        groups = _two_sided(bins, view, design, base, _Least(size, rare))
        if not groups or len(groups) in seen:
            continue
        seen.add(len(groups))
        weights = whole_weights(np.array([group.excess for group in groups]))
        yield size, [Pairing(g.upper, g.lower, int(w)) for g, w in zip(groups, weights, strict=True)]


def _two_sided(bins: Bins, view: View, design: float, base: float, least: _Least) -> list[_OpposedBins]:
    """Groups from the outermost bins inwards; the lower side is cut where as much of its information is passed."""
    odds, records = view.of(BOTH), bins.records
    member = special.expit(odds + base)
    information = records * member * (1 - member)
    top, bottom = np.arange(records.size - 1, view.high - 1, -1), np.arange(view.low)
    if not top.size or not bottom.size:
        return []
    above, below = (_Passed.of(records, information, odds, side) for side in (top, bottom))
    facing = above.facing(below)
    groups = []
    i0 = j0 = 0
    while i0 < top.size and j0 < bottom.size:
        i = max(above.enough(i0, least), bisect_left(facing, below.enough(j0, least)))
        if i >= top.size - 1 or not (above.leaves(i, least) and below.leaves(facing[i], least)):
            i = top.size - 1
        j = facing[i]
        excess = above.mean_odds(i0, i) - below.mean_odds(j0, j) - design
        groups.append(_OpposedBins(top[i0 : i + 1], bottom[j0 : j + 1], excess))
        i0, j0 = i + 1, j + 1
    return groups


class _Passed(NamedTuple):
    """Records, information, and log-odds weighted by it, that are passed on the way inwards.

    Lists: a side has some hundred bins, and a search in so few is quicker in a list than in an array.
    """

    records: list[int]
    information: list[float]
    weighted: list[float]
    weights: list[float]

    @classmethod
    def of(cls, records: IntArray, information: FloatArray, odds: FloatArray, bins: IntArray) -> _Passed:
        weights = information[bins] + 1e-9
        passed = (np.cumsum(each).tolist() for each in (information[bins], weights * odds[bins], weights))
        return cls(np.cumsum(records[bins]).tolist(), *passed)

    def facing(self, other: _Passed) -> list[int]:
        """For each bin the one of the other side up to which as large a share of its information is passed."""
        mine, theirs = np.array(self.information), np.array(other.information)
        place = np.searchsorted(theirs / theirs[-1], mine / mine[-1] - 1e-12)
        place[-1] = theirs.size
        return np.minimum(place, theirs.size - 1).tolist()

    def enough(self, first: int, least: _Least) -> int:
        """The last bin of the smallest group from `first` on that is large enough."""
        records, information = (self.records[first - 1], self.information[first - 1]) if first else (0, 0.0)
        by_records = bisect_left(self.records, records + least.records)
        return max(by_records, bisect_left(self.information, information + least.rare))

    def leaves(self, last: int, least: _Least) -> bool:
        """Whether a group that ends here leaves enough for another."""
        records, information = self.records[-1] - self.records[last], self.information[-1] - self.information[last]
        return records >= least.records and information >= least.rare

    def mean_odds(self, first: int, last: int) -> float:
        """The mean log-odds of a group, by information."""
        weighted, weights = (
            passed[last] - (passed[first - 1] if first else 0.0) for passed in (self.weighted, self.weights)
        )
        return weighted / weights
