"""Labels whose chances differ from record to record: the evidence, and the check of its chances against the labels."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from scipy import fft, special

from dosimeter import _validate as check
from dosimeter._validate import BoolArray, FloatArray, InputError, IntArray
from dosimeter.evidence import MOST_RECORDS

CUT = 1e-12  # more than the probability that is left out of a window
RESOLUTION = 1e-5  # of the parameter
_LOG_CUT = 30.0  # two tails of e^−30 are below CUT
_CHUNK = 1 << 18


class Grouped(NamedTuple):
    """Coins in groups of one weight and one chance each."""

    weight: IntArray
    chance: FloatArray
    number: IntArray


def tail(coins: Grouped, least: int) -> float:
    """P[Σ weight·coin ≥ least] of independent coins, from their characteristic function.

    The sum is looked at modulo the length of a window around its mean; Bernstein's inequality bounds what lies outside,
    and CUT is added for it.
    """
    weight, chance, number = coins
    total = int((weight * number).sum())
    if least <= 0:
        return 1.0
    if least > total:
        return 0.0
    mean = float((weight * number * chance).sum())
    variance = float((weight**2 * number * chance * (1 - chance)).sum())
    linear = float(weight.max()) * _LOG_CUT / 3
    reach = linear + np.sqrt(linear**2 + 2 * variance * _LOG_CUT)
    if least <= mean - reach:
        return 1.0
    if least >= mean + reach:
        return CUT
    whole = total + 1 <= 2 * reach + 4
    length = fft.next_fast_len(total + 1 if whole else int(2 * reach) + 4, real=True)
    angles = 2j * np.pi * np.arange(length // 2 + 1) / length
    transform = np.ones(angles.size, complex)
    step = max(1, _CHUNK // angles.size)
    for value in np.unique(weight):
        turn = np.expm1(angles * value)
        own = weight == value
        chances, numbers = chance[own], number[own]
        for at in range(0, chances.size, step):
            some = slice(at, at + step)
            factors, left = 1 + chances[some, None] * turn, numbers[some]
            while left.size:  # powers by squaring: complex logarithms take thirty times as long
                transform *= factors[left % 2 == 1].prod(axis=0)
                factors, left = np.square(factors[left > 1]), left[left > 1] // 2
    masses = fft.irfft(np.conj(transform), length)
    last = total if whole else int(np.ceil(mean - reach)) + length - 1
    above = float(masses[np.arange(least, last + 1) % length].sum())
    return min(1.0, max(above, 0.0) + CUT)


@dataclass(frozen=True, eq=False)
class CoinSum:
    """Coins whose chances rise with x, and the p-value of x: how likely they reach a number."""

    weight: IntArray
    number: IntArray
    chance: Callable[[float], FloatArray]
    least: int

    def p_value(self, x: float) -> float:
        return tail(Grouped(self.weight, self.chance(x), self.number), self.least)

    def largest(self, level: float, low: float, high: float) -> float:
        """The largest x in [low, high] whose p-value is at most the level, from below; `low` if there is none."""
        from scipy.optimize import brentq

        @cache
        def gap(x: float) -> float:
            return math.log(max(self.p_value(x), CUT)) - math.log(level)

        if gap(low) > 0:
            return low
        near, step = self._nearly(level, low, high), 0.01
        while near > low and gap(near) > 0:
            near, step = max(low, near - step), 3 * step
        above, step = near, 0.01
        while gap(above) <= 0:
            if above >= high:
                return high
            near, above, step = above, min(high, above + step), 3 * step
        root = float(brentq(gap, near, above, xtol=RESOLUTION, rtol=1e-12))
        below = max(near, root - 2 * RESOLUTION)
        return below if gap(below) <= 0 else near

    def _nearly(self, level: float, low: float, high: float) -> float:
        """Where the sum would be if it were normal: a place to begin."""
        z = -float(special.ndtri(level))
        for _ in range(40):
            middle = (low + high) / 2
            chance = self.chance(middle)
            mean = float(self.weight @ (self.number * chance))
            spread = math.sqrt(float(self.weight**2 @ (self.number * chance * (1 - chance))))
            low, high = (middle, high) if mean + z * spread <= self.least - 0.5 else (low, middle)
        return low


SPENT = 0.005  # of the level, for the limits of the propensities


@dataclass(frozen=True, eq=False)
class PropensityRun:
    """Hold scores of audit records whose labels are independent, each "in" with a known chance.

    Args:
        scores: Evidence from the model for each record: above 0 for "in", below 0 for "out", 0 for none. Only signs
            and the order of the sizes are used.
        included: The labels, True for "in".
        propensities: The chance of "in" for each record before the model is asked, given everything else that the
            scores were made of.
        limits: A lower and an upper limit of each propensity, where it is not known exactly.
        spent: The probability with which a limit is wrong; it is taken from the level of the bound.
        slack: How far log-odds may be wrong beyond that; it is subtracted from the bound.
        neighbours: What flipping one label does to the training data: "add/remove" or "replace" one record.

    Raises:
        InputError: If lengths differ, or a propensity is not between 0 and 1.

    >>> PropensityRun([1.2, -0.3], [1, 0], [0.7, 0.5]).total
    2
    """

    scores: FloatArray
    included: BoolArray
    propensities: FloatArray
    limits: tuple[Any, Any] | None = None
    spent: float = 0.0
    slack: float = 0.0
    neighbours: str = "add/remove"

    def __post_init__(self) -> None:
        scores, included = check.finite_array("scores", self.scores), check.bits("included", self.included)
        check.choice("neighbours", self.neighbours, ("add/remove", "replace"))
        spent = check.within("spent", self.spent, 0.0, 1.0, "pass the level of the limits, e.g. 0.005", include="[)")
        slack = check.within("slack", self.slack, 0.0, math.inf, "pass how far log-odds may be wrong", include="[)")
        point = _chances("propensities", self.propensities, scores.size)
        sides = (point, point) if self.limits is None else _two("limits", self.limits)
        low, high = (_ends(side, scores.size) for side in sides)
        if included.size != scores.size or (low > point).any() or (point > high).any():
            raise InputError(
                f"scores has {scores.size} records and included {included.size}, and limits must enclose the "
                "propensities; pass one of each for every record, each limit on its side."
            )
        for name, value in (("scores", scores), ("included", included), ("propensities", point)):
            object.__setattr__(self, name, check.frozen(value, getattr(self, name)))
        object.__setattr__(self, "limits", (check.frozen(low, ()), check.frozen(high, ())))
        object.__setattr__(self, "spent", spent)
        object.__setattr__(self, "slack", slack)

    @classmethod
    def from_pairs(cls, scores: tuple[Any, Any], log_odds: tuple[Any, Any], *, spent: float = SPENT) -> PropensityRun:
        """Make a label of each pair of a member and a non-member: is the one with the higher log-odds the member?

        Given the two records of a pair, the chance of that is expit(b·lead), where the lead is the difference of their
        log-odds and b is 1 if these are right. b is estimated from the labels, which needs no model, and the limits
        are those of an exact interval for b. Exchanging the two replaces one record.

        Args:
            scores: Scores of members and of non-members, higher for a likelier member; pairs are formed by position,
                so chance alone may decide who is paired with whom.
            log_odds: Log-odds of being a member for the same records, made without the model.
            spent: One minus the confidence of the interval for b.

        Returns:
            The evidence, for replacing one record.

        Raises:
            InputError: If the four arrays do not have one length.

        >>> run = PropensityRun.from_pairs(([2.0, 0.1], [0.3, 0.2]), ([1.0, 0.0], [0.5, 0.4]))
        >>> run.included.tolist(), run.neighbours
        ([True, False], 'replace')
        """
        sides = [check.finite_array("scores", side) for side in _two("scores", scores)]
        odds = [check.finite_array("log_odds", side) for side in _two("log_odds", log_odds)]
        if len({side.size for side in (*sides, *odds)}) != 1:
            sizes = ", ".join(str(side.size) for side in (*sides, *odds))
            raise InputError(
                f"scores and log_odds hold {sizes} records; pass as many members as non-members, in pairs."
            )
        spent = check.within("spent", spent, 1e-9, 1.0, "pass a small level, e.g. 0.005", include="[)")
        ahead, lead = odds[0] - odds[1], sides[0] - sides[1]
        first = np.where(ahead != 0, ahead > 0, lead > 0)  # whether the member comes first; no label decides the order
        low, slope, high = slope_interval(np.abs(ahead), first, spent)
        point, *limits = (special.expit(np.clip(b * np.abs(ahead), -36, 36)) for b in (slope, low, high))
        chances = (limits[0], limits[1])
        return cls(np.where(first, lead, -lead), first, point, chances, spent, neighbours="replace")

    @property
    def total(self) -> int:
        return self.scores.size

    def ordered(self, *, bins: int = 10, spent: float = SPENT) -> PropensityRun:
        """Keep the order of the propensities alone: their limits come from the labels, bin by bin.

        In bins of the propensities the share of "in" has a Clopper–Pearson interval. If the true chance rises with the
        propensity, that of a record is at most the mean chance of the next bin and at least that of the bin before. In
        the last bin nothing but 1 is an upper limit.

        Args:
            bins: How many bins of about equal size.
            spent: The probability with which any limit is wrong.

        Returns:
            The same evidence with these limits.

        >>> run = PropensityRun([1.0] * 40, [1] * 30 + [0] * 10, [0.75] * 40)
        >>> float(run.ordered(bins=2).limits[1][0])
        1.0
        """
        table = reliability(self, bins=bins, level=spent)
        low = np.concatenate([[0.0], [row.low for row in table.bins[:-1]]])[table.place]
        high = np.concatenate([[row.high for row in table.bins[1:]], [1.0]])[table.place]
        inside = np.clip(self.propensities, np.maximum(low, 1e-15), np.minimum(high, 1.0 - 1e-15))
        return replace(self, propensities=inside, limits=(np.minimum(low, inside), high), spent=spent)


def _two(name: str, values: Any) -> tuple[Any, Any]:
    if not isinstance(values, (tuple, list)) or len(values) != 2:
        raise InputError(f"{name} must be a pair of arrays, got {check.show(values)}; pass (first, second).")
    return values[0], values[1]


def _chances(name: str, values: Any, size: int) -> FloatArray:
    array = check.finite_array(name, values)
    if array.size != size or not ((array > 0) & (array < 1)).all():
        raise InputError(f"{name} must be {size} numbers between 0 and 1, got {check.show(values)}; pass one for each.")
    return array


def _ends(values: Any, size: int) -> FloatArray:
    array = check.finite_array("limits", values)
    if array.size != size or not ((array >= 0) & (array <= 1)).all():
        raise InputError(f"limits must be {size} numbers from 0 to 1, got {check.show(values)}; pass one for each.")
    return array


# --- how steep the log-odds are ----------------------------------------------------------------------------
CELLS = 256  # of the lead
MOST_CHANCE = 36.0  # log-odds at which a chance is 1 in double precision: no slope is steeper


def slope_interval(lead: FloatArray, first: BoolArray, level: float) -> tuple[float, float, float]:
    """An exact interval for b, and b itself, where the first of a pair is the member with chance expit(b·lead).

    The statistic is a sum of whole weights that rise with the lead (≥ 0), so it rises with b; each end is where its
    exact tail is level / 2, leads rounded to the side that makes the interval wider.
    """
    largest = float(lead.max(initial=0.0))
    if largest == 0.0:
        return 1.0, 1.0, 1.0  # no lead anywhere: b has no part in anything
    cell = np.minimum(np.floor(lead / largest * CELLS), CELLS - 1).astype(np.int64)
    number = np.bincount(cell, minlength=CELLS)
    used = np.flatnonzero(number)
    weight, number = 1 + 8 * used // CELLS, number[used]
    right = np.bincount(cell, first, minlength=CELLS)[used].astype(np.int64)
    upper, lower = (used + 1) / CELLS * largest, used / CELLS * largest
    most = MOST_CHANCE * CELLS / largest

    def chance(b: float) -> FloatArray:  # at least that of any lead in the cell
        return np.asarray(special.expit(b * (upper if b > 0 else lower)))

    too_low = CoinSum(weight, number, chance, int(weight @ right))
    too_high = CoinSum(weight, number, chance, int(weight @ (number - right)))  # of −b, so that it rises
    low, high = too_low.largest(level / 2, -most, most), -too_high.largest(level / 2, -most, most)
    point = _balanced((lower + upper) / 2, number, right, most)
    return min(low, point), point, max(high, point)


def _balanced(lead: FloatArray, number: IntArray, right: IntArray, most: float) -> float:
    """The most likely slope: as many right as expected, weighed by the lead."""
    from scipy.optimize import brentq

    def excess(b: float) -> float:
        return float(lead @ (number * special.expit(b * lead) - right))

    if excess(-most) >= 0 or excess(most) <= 0:
        return -most if excess(-most) >= 0 else most
    return float(brentq(excess, -most, most, xtol=1e-9))


# --- are the propensities right? ---------------------------------------------------------------------------
class ReliabilityBin(NamedTuple):
    """One bin of propensities: their mean, the share that was in, and limits of the true share."""

    records: int
    predicted: float
    share: float
    low: float
    high: float


class Reliability(NamedTuple):
    """How the labels agree with the propensities, bin by bin; `place` is the bin of each record."""

    bins: tuple[ReliabilityBin, ...]
    calibrated: bool
    place: IntArray


def reliability(evidence: PropensityRun, *, bins: int = 10, level: float = 0.05) -> Reliability:
    """Compare the propensities with the labels, in bins; no score has a part in it.

    The limits are Clopper–Pearson limits at level / bins, made isotonic: if the true chance rises with the propensity,
    an upper limit of a later bin is one of every earlier bin, and a lower limit of an earlier bin one of every later
    bin. The propensities are called calibrated if in every bin their mean lies within.

    Args:
        evidence: The labels and the propensities.
        bins: How many bins of about equal size.
        level: The probability with which any of the limits is wrong.

    Returns:
        The bins, and whether the propensities are calibrated.

    >>> run = PropensityRun([0.0] * 100, [1] * 60 + [0] * 40, [0.6] * 100)
    >>> reliability(run, bins=1).calibrated
    True
    """
    count = check.whole("bins", bins, 1, "pass e.g. 10", MOST_RECORDS)
    share = check.within("level", level, 0.0, 1.0, "pass e.g. 0.05", include="()") / count
    ordered = np.sort(evidence.propensities)
    edges = np.unique(ordered[np.linspace(0, ordered.size, count + 1).astype(np.int64)[1:-1]])
    place = np.searchsorted(edges, evidence.propensities, "right")
    used, place = np.unique(place, return_inverse=True)
    records = np.bincount(place, minlength=used.size)
    inside = np.bincount(place, evidence.included, minlength=used.size)
    predicted = np.bincount(place, evidence.propensities, minlength=used.size) / records
    low = np.where(inside > 0, special.betaincinv(np.maximum(inside, 1), records - inside + 1, share / 2), 0.0)
    outside = records - inside
    high = np.where(outside > 0, special.betaincinv(inside + 1, np.maximum(outside, 1), 1 - share / 2), 1.0)
    low, high = np.maximum.accumulate(low), np.minimum.accumulate(high[::-1])[::-1]
    rows = zip(
        records.tolist(), predicted.tolist(), (inside / records).tolist(), low.tolist(), high.tolist(), strict=True
    )
    fits = bool(((low <= predicted) & (predicted <= high)).all())
    return Reliability(tuple(ReliabilityBin(*row) for row in rows), fits, place)
