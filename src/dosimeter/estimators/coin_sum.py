"""Exact tails of weighted sums of independent coins, and the parameter at which a tail reaches a level."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
from scipy import fft, special

from dosimeter._validate import FloatArray, IntArray

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
    logs = np.zeros(angles.size, complex)
    step = max(1, _CHUNK // angles.size)
    for value in np.unique(weight):
        turn = np.expm1(angles * value)
        own = weight == value
        chances, numbers = chance[own], number[own]
        for at in range(0, chances.size, step):
            some = slice(at, at + step)
            with np.errstate(divide="ignore"):  # a chance of one half at −1: the factor is 0
                logs += numbers[some] @ np.log(1 + chances[some, None] * turn)
    with np.errstate(invalid="ignore"):
        masses = fft.irfft(np.conj(np.exp(logs)), length)
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
