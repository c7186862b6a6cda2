"""Few records that leak for certain, at one end: how many of the outermost guesses are right, looked at once.

A ladder looks at the outermost records for 0, 1, 2, 4, … wrong guesses. Each rung is a number of records, the least in
which so few wrong guesses are rare enough; the ladder rejects if any rung holds no more wrong guesses than its limit.
Rungs overlap, so the chance that one of them rejects is far below the sum of their chances: it is computed exactly.
Which rungs there are follows from the ranks and from ε, never from a label that is tested (docs/headline.md,
Theorem 9b).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import special

from dosimeter._validate import FloatArray, IntArray

LIMITS = np.array([0, 1, 2, 4, 8, 16, 32])  # wrong guesses
_RELATIVE = np.array([1.0, 0.4, 0.3, 0.2, 0.15, 0.1, 0.1])  # chance of a rung, compared with that of the first
_KEPT, _KEPT_SHARE = 128, 0.03  # of the outermost records at an end
_LOWER = 0.88  # the next try, where the rungs together are too likely
_LEAST = 0.02  # of the level: a ladder this low is given up


def kept(total: int) -> float:
    """How many of the outermost records a ladder may need: they are not revealed while few leakers are likely."""
    return min(_KEPT_SHARE * total, _KEPT)


class Rungs(NamedTuple):
    """How many of the outermost records each rung looks at, and how many wrong guesses it may hold."""

    records: IntArray
    limits: IntArray

    def holds(self, wrong: IntArray) -> bool:
        """Whether some rung holds so few wrong guesses; `wrong` has one number for each rung."""
        return bool((wrong <= self.limits).any())


def rungs(lengths: IntArray, miss: float, level: float, allowance: int, longest: Rungs | None = None) -> Rungs | None:
    """The rungs that reject with a chance of at most `level` where each guess is wrong with chance `miss`.

    `lengths` are the numbers of outermost records that a rung may look at. `allowance` guesses may be right because of
    δ alone, so every limit must be rare even with so many more wrong guesses. No rung is longer than that of `longest`:
    ladders for smaller ε then reject whenever those for larger ε do. None if no rung is short enough.
    """
    chances = special.bdtr((LIMITS + allowance)[:, None], lengths[None, :], miss)
    share = 1.0
    while share > _LEAST:
        enough = chances <= (share * level * _RELATIVE)[:, None]
        kept = np.flatnonzero(enough.any(1))
        if not kept.size and longest is None:
            return None
        found = _shorter(Rungs(lengths[enough[kept].argmax(1)], LIMITS[kept]), longest)
        if crossing(found, miss, allowance) <= level:
            return found
        share *= _LOWER
    return longest


def within_reach(lengths: IntArray, wrong: IntArray, miss: float, level: float, allowance: int) -> bool:
    """Whether any ladder could reject with these numbers of wrong guesses: cheap, and false for most ends."""
    possible = wrong[None, :] <= LIMITS[:, None]
    chances = special.bdtr((LIMITS + allowance)[:, None], lengths[None, :], miss)
    return bool((possible & (chances <= (level * _RELATIVE)[:, None])).any())


def _shorter(found: Rungs, longest: Rungs | None) -> Rungs:
    if longest is None:
        return found
    records = {int(limit): int(n) for n, limit in zip(longest.records, longest.limits, strict=True)}
    for n, limit in zip(found.records.tolist(), found.limits.tolist(), strict=True):
        records[limit] = min(n, records.get(limit, n))
    limits = np.array(sorted(records))
    return Rungs(np.array([records[limit] for limit in limits.tolist()]), limits)


def crossing(found: Rungs, miss: float, allowance: int) -> float:
    """The chance that some rung holds at most its limit and the allowance of wrong guesses, each with chance `miss`."""
    order = np.argsort(found.records, kind="stable")
    limits = found.limits[order] + allowance
    mass, passed, crossed = np.ones(1), 0, 0.0
    for records, limit, most in zip(
        found.records[order].tolist(), limits.tolist(), np.maximum.accumulate(limits[::-1])[::-1].tolist(), strict=True
    ):
        if records > passed:
            mass = np.convolve(mass, _wrong(records - passed, miss, most))[: most + 1]  # more can cross no rung
            passed = records
        crossed += float(mass[: limit + 1].sum())
        mass[: limit + 1] = 0.0
    return crossed


def _wrong(records: int, miss: float, most: int) -> FloatArray:
    """The chances of 0, 1, … `most` wrong guesses among so many."""
    k = np.arange(min(most, records) + 1)
    log_mass = special.gammaln(records + 1) - special.gammaln(k + 1) - special.gammaln(records - k + 1)
    return np.asarray(np.exp(log_mass + special.xlogy(k, miss) + special.xlog1py(records - k, -miss)))
