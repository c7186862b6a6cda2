"""What every headline test is made of: bins of ranks, exact laws, whole weights, and what was proven.

All that the bound uses of the scores are the counts in bins of neighbouring ranks. The laws are those of
docs/headline.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy import special

from dosimeter._validate import BoolArray, FloatArray, IntArray

RATIO = 1.12  # a bin reaches this much further from its end of the ranking than the one before it


class Bins(NamedTuple):
    """How many records, and how many members among them, each bin of ranks holds; the lowest scores first."""

    records: IntArray
    members: IntArray

    @property
    def edges(self) -> IntArray:
        """The ranks between which the bins lie, from 0 to the number of records."""
        return np.concatenate([[0], np.cumsum(self.records)])

    @property
    def total(self) -> int:
        return int(self.records.sum())


def rank_bins(scores: FloatArray, member: BoolArray) -> Bins:
    """Count the members in bins whose sizes grow from both ends of the ranking towards its middle.

    No edge parts records of equal score: an edge inside a group of ties moves to both ends of the group.
    """
    order = np.argsort(scores, kind="stable")
    edges = _edges(scores[order])
    upto = np.concatenate([[0], np.cumsum(member[order])])
    return Bins(np.diff(edges), np.diff(upto[edges]))


def wanted_edges(total: int) -> IntArray:
    """The ranks at which so many records are parted where no scores are tied."""
    ranks, rank = [0], 1
    while rank < total / 2:
        ranks.append(rank)
        rank = max(rank + 1, int(rank * RATIO))
    wanted = np.array(ranks, dtype=np.int64)
    return np.unique(np.concatenate([wanted, total - wanted, [total // 2, (total + 1) // 2]]))


def _edges(ordered: FloatArray) -> IntArray:
    total = ordered.size
    edges = wanted_edges(total)
    inner = edges[(edges > 0) & (edges < total)]
    values = ordered[inner]
    tied = ordered[inner - 1] == values
    if tied.any():
        ends = [np.searchsorted(ordered, values[tied], side) for side in ("left", "right")]
        inner = np.concatenate([inner[~tied], *ends])
    return np.unique(np.concatenate([[0], inner, [total]])).astype(np.int64)


# --- what was proven ------------------------------------------------------------------------------------------


class Proof(NamedTuple):
    """The largest rejected ε, and what was counted among the records that were tested.

    `upper` records had the highest scores and `upper_members` of them were members; `lower` records had the lowest
    scores and `lower_members` of them were members. `learned` records between them taught the test its weights.
    """

    epsilon: float
    upper: int
    upper_members: int
    lower: int
    lower_members: int
    learned: int
    allowance: int

    @property
    def tested(self) -> int:
        return self.upper + self.lower

    @property
    def right(self) -> int:
        """Right guesses among the tested records: "member" above, "non-member" below."""
        return self.upper_members + self.lower - self.lower_members


def nothing(records: int) -> Proof:
    """The proof of ε ≥ 0: nothing was tested."""
    return Proof(0.0, 0, 0, 0, 0, records, 0)


# --- exact laws -----------------------------------------------------------------------------------------------


ROUNDING = 1e-11  # added to every tail: more than the windows and the Fourier transform can lose


@dataclass(frozen=True, eq=False)
class Law:
    """Probabilities of first, first + 1, …"""

    first: int
    mass: FloatArray

    @cached_property
    def values(self) -> FloatArray:
        return np.asarray(self.first + np.arange(self.mass.size, dtype=float))

    @cached_property
    def mean(self) -> float:
        return float(self.values @ self.mass)

    @cached_property
    def variance(self) -> float:
        centred = self.values - self.mean
        return float((centred * centred) @ self.mass)


def _from_ratios(first: int, log_ratios: FloatArray) -> Law:
    """The law whose neighbouring probabilities have these log ratios."""
    log_mass = np.concatenate([[0.0], np.cumsum(log_ratios)])
    mass = np.exp(log_mass - log_mass.max())
    return Law(first, mass / mass.sum())


def binomial(trials: int, q: float) -> Law:
    """Bin(trials, q) on a window that misses less than 1e-15."""
    half = int(9 * math.sqrt(trials * q * (1 - q)) + 40)
    centre = int(trials * q)
    first, last = max(0, centre - half), min(trials, centre + half)
    r = np.arange(first, last, dtype=float)
    return _from_ratios(first, math.log(q / (1 - q)) + np.log((trials - r) / (r + 1)))


def noncentral(upper: int, lower: int, members: int, theta: float) -> Law:
    """Members among `upper` records when `upper` + `lower` records hold `members`, with odds ratio θ.

    Fisher's noncentral hypergeometric law, P[r] ∝ C(upper, r)·C(lower, members − r)·θ^r, on a window around its mode.
    """
    least, most = max(0, members - lower), min(upper, members)
    a, b, c = theta - 1, -(theta * (upper + members) + (lower - members)), theta * upper * members
    mode = (2 * c) / (-b + math.sqrt(max(b * b - 4 * a * c, 0.0))) if c > 0 else 0.0
    centre = int(min(max(round(mode), least), most))
    precision = 1 / (mode + 0.5) + 1 / (upper - mode + 0.5)
    precision += 1 / max(members - mode + 0.5, 0.5) + 1 / max(lower - members + mode + 0.5, 0.5)
    half = int(10 / math.sqrt(precision) + 30)
    first, last = max(least, centre - half), min(most, centre + half)
    r = np.arange(first, last, dtype=float)
    up = np.log((upper - r) * (members - r))
    return _from_ratios(first, math.log(theta) + up - np.log((r + 1) * (lower - members + r + 1)))


def upper_tail(parts: Sequence[tuple[int, Law]], observed: int) -> float:
    """P[Σ weight·R ≥ observed] for independent R, by a Fourier transform of a window around the mean."""
    base = sum(weight * law.first for weight, law in parts)
    top = sum(weight * (law.first + law.mass.size - 1) for weight, law in parts)
    mean = sum(weight * law.mean for weight, law in parts)
    half = 9 * math.sqrt(sum(weight**2 * law.variance for weight, law in parts)) + 40 * max(w for w, _ in parts)
    low, high = max(base, int(mean - half)), min(top, int(mean + half) + 1)
    if observed <= low:
        return 1.0
    size = 1 << math.ceil(math.log2(high - low + 2))
    transform = np.ones(size // 2 + 1, complex)
    for weight, law in parts:
        places = weight * (law.first + np.arange(law.mass.size)) % size
        transform = transform * np.fft.rfft(np.bincount(places, law.mass, size))
    mass = np.fft.irfft(transform, size)[(low + np.arange(high - low + 1)) % size]
    return min(float(np.maximum(mass[observed - low :], 0).sum()) + ROUNDING, 1.0)


# --- weights, and how far a test can be expected to get -------------------------------------------------------


DESIGN = 0.95  # the first test is designed for this share of what can be expected
STEPS, COIN_STEPS = 16, 64  # weights of tables, and of coins, are whole numbers up to this
_HEAVIEST = 6.0  # log-odds beyond a design that still add weight
_GRID = np.concatenate([np.linspace(0, 0.5, 11), np.geomspace(0.55, 11, 40)])
_Z = 1.645

Lost = Callable[[FloatArray, FloatArray, FloatArray, FloatArray], FloatArray]


def reach(
    records: FloatArray,
    odds: FloatArray,
    sign: FloatArray,
    base: FloatArray,
    *,
    lost: Lost | None = None,
    two_sided: bool = False,
) -> float:
    """The log odds ratio that a weighted test of these bins is expected to reject.

    `odds` says how far each bin leans to its guess, `sign` is +1 where the guess is "member" and −1 where it is
    "non-member", `base` the log-odds of the guess where nothing leaks. `lost(grid, weight, records, sign)` is what δ
    takes from the drift. A two-sided test shares the odds ratio between its ends.
    """
    if not records.size:
        return 0.0
    order = np.argsort(-odds, kind="stable")
    records, odds, sign, base = records[order], odds[order], sign[order], base[order]
    grid = (_GRID / 2 if two_sided else _GRID)[:, None]
    weight = np.maximum(odds - grid, 0.0)
    mass = weight * records
    limit = special.expit(grid + base)
    drift = (mass * (special.expit(odds + base) - limit)).sum(1)
    variance = (mass * weight * limit * (1 - limit)).sum(1)
    if lost is not None:
        drift = drift - lost(_GRID, weight, records, sign)
    good = drift >= _Z * np.sqrt(variance) + 1e-12
    return float(_GRID[np.flatnonzero(good).max()]) if good.any() else 0.0


def whole_weights(excess: FloatArray, steps: int = STEPS) -> IntArray:
    """Whole weights up to `steps`, in proportion to how far bins lie beyond a design; all 1 if none does."""
    capped = np.clip(excess, 0.0, _HEAVIEST)
    if not capped.size or capped.max() <= 0:
        return np.ones(capped.size, np.int64)
    weights = np.where(capped > 0, np.maximum(np.round(capped / capped.max() * steps), 1), 0).astype(np.int64)
    return np.asarray(weights // np.gcd.reduce(weights))  # the smaller, the shorter the exact law
