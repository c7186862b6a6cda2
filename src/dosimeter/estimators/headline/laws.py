"""Exact laws: binomial, Fisher's noncentral hypergeometric, and the tail of a weighted sum of independent ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dosimeter._validate import FloatArray

ROUNDING = 1e-11  # added to every tail: more than the windows and the Fourier transform can lose


class Law(NamedTuple):
    """Probabilities of first, first + 1, …"""

    first: int
    mass: FloatArray

    @property
    def values(self) -> FloatArray:
        return np.asarray(self.first + np.arange(self.mass.size, dtype=float))

    @property
    def mean(self) -> float:
        return float(self.values @ self.mass)

    @property
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
