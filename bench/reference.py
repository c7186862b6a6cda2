"""Yardsticks that need no other library: sorting, passes over the data, and a bound found by search."""

from __future__ import annotations

from collections.abc import Callable

import data
import numpy as np
from scipy import stats

Work = Callable[[], object]


def sorting(members: int) -> Work:
    inside, outside = data.scores(members)

    def work() -> None:
        np.sort(inside)
        np.sort(outside)

    return work


def transforming(members: int) -> Work:
    """Five passes of the transform −ln(e^x − 1) of Epsilon* over both sides, in blocks that stay in the cache."""
    sides = [1.0 + (side - side.min()) / np.ptp(side) for side in data.losses(members)]
    blocks = [block for side in sides for block in np.array_split(side, 1 + side.size // 2**16)]

    def work() -> None:
        for _ in range(5):
            for block in blocks:
                room = np.expm1(block)
                np.log(room, out=room)
                np.negative(room, out=room)

    return work


def panoramia_search(records: int, thresholds: int) -> Work:
    """The largest ε with P[Bin(r, q) ≥ v] ≤ 0.025 by 30 halvings, one threshold after the other, at some of them."""
    scores, included = data.canaries(records)
    right = np.cumsum(included[np.argsort(-scores)])
    guesses = np.linspace(1, records, thresholds).astype(int)

    def bound(r: int, v: int) -> float:
        low, high = 0.0, 20.0
        if stats.binom.sf(v - 1, r, 0.5) > 0.025:
            return 0.0
        for _ in range(30):
            middle = (low + high) / 2
            if stats.binom.sf(v - 1, r, 1 / (1 + np.exp(-middle))) <= 0.025:
                low = middle
            else:
                high = middle
        return low

    def work() -> float:
        return max(bound(int(r), int(right[r - 1])) for r in guesses)

    work.scale = records // thresholds
    return work
