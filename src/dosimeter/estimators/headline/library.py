"""The library of shapes: the log-odds ratios of leaks that are looked for, at the middle rank of every bin.

The bound holds whatever the library is; only its tightness rests on it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy import special

from dosimeter._validate import FloatArray
from dosimeter.estimators.headline.bins import Bins

CAP = 14.0  # of every log-odds ratio
_PRIOR = (0.5, 0.33, 0.17)  # learned from the middle; few strong leakers among the members; among the non-members

# Shapes that the middle ranks can teach, and the share of each family.
_GAUSSIAN, _ONE_SIDED, _WIDTH, _HEAVY, _POWER, _MANY = 0.75, 0.04, 0.07, 0.12, 0.05, 0.04
_DISTANCES = (0.1, 0.2, 0.3, 0.45, 0.6, 0.8, 1, 1.25, 1.5, 1.8, 2.2, 2.7, 3.3, 4, 5, 6.5, 9)
_CAPS = np.array([0.25, 0.5, 0.75, 1, 1.4, 2, 3, 4.5, 7, CAP])
_ONE_SIDED_CAPS = [(a, b) for a in (0.25, 0.7, 1.4) for b in (3.0, CAP)]
_WIDTHS = (0.5, 0.7, 0.85, 1.2, 1.5, 2)
_WIDTH_DISTANCES = (0, 0.3, 0.6, 1, 1.5, 2.2, 3.3, 5)
_FREEDOMS = (1, 2, 4)
_HEAVY_DISTANCES = (0.4, 0.7, 1, 1.5, 2.2, 3.3, 5)
_SCALES = (1.25, 1.6, 2.2, 3, 4.5, 8)

# Few leakers, which the middle says nothing about.
_LEAKER_DISTANCES = (2.0, 4.0, 8.0)
_FEWEST = 8  # leakers
_ENOUGH = 40  # records that leak: fewer prove less, and get less prior
_FEW = 0.06  # of the members: a larger share shows in the middle

_AXIS = np.linspace(-20, 25, 1801)
_NORMAL = special.ndtr(_AXIS)
_LONG_AXIS = np.concatenate([-np.geomspace(1e4, 12, 60), np.linspace(-11.9, 16.9, 1153), np.geomspace(17, 1e4, 60)])
_HALF_AXIS = np.concatenate([np.linspace(0, 1, 200), np.geomspace(1.01, 200, 600)])


class Library(NamedTuple):
    """The shapes of each kind of leak, one row each, and their prior."""

    shapes: tuple[FloatArray, ...]
    prior: tuple[FloatArray, ...]


def library(bins: Bins, share: float) -> Library:
    """All shapes at the middle rank of every bin; `share` is the share of members among the records."""
    edges, total = bins.edges, bins.total
    at = np.clip((edges[:-1] + edges[1:]) / (2 * total), 1e-9, 1 - 1e-9)
    fractions = _fractions(min(0.3, _FEWEST / total))
    few = [fraction for fraction in fractions if fraction <= _FEW] or fractions[:1]
    many = [fraction for fraction in fractions if fraction not in few]
    families = [*_learnable(share, at), (_both_ends(many, share, at), _MANY)]
    learned = np.concatenate([shapes for shapes, _ in families])
    prior = np.concatenate([np.full(len(shapes), mass / max(len(shapes), 1)) for shapes, mass in families])
    worth = np.repeat(np.minimum(np.array(few) * total / _ENOUGH, 1.0) ** 2, len(_LEAKER_DISTANCES))
    ends = np.split(_both_ends(few, share, at), 2)
    return Library(
        tuple(np.clip(part, -CAP, CAP) for part in (learned, *ends)),
        (_PRIOR[0] * prior / prior.sum(), *(mass * worth / worth.sum() for mass in _PRIOR[1:])),
    )


def _learnable(share: float, at: FloatArray) -> list[tuple[FloatArray, float]]:
    """Families of shapes that show in the middle, each with its share."""
    gauss = np.stack([_gaussian(mu, 1.0, share, at) for mu in _DISTANCES])
    capped = np.clip(gauss[:, None, :], -_CAPS[None, :, None], _CAPS[None, :, None]).reshape(-1, at.size)
    one_sided = [np.clip(gauss, *ends) for a, b in _ONE_SIDED_CAPS for ends in ((-a, b), (-b, a))]
    powers = [np.stack([_power(r, share, at), -_power(r, 1 - share, 1 - at)]) for r in _SCALES]
    return [
        (capped, _GAUSSIAN),
        (np.concatenate(one_sided), _ONE_SIDED),
        (np.stack([_gaussian(mu, sd, share, at) for sd in _WIDTHS for mu in _WIDTH_DISTANCES]), _WIDTH),
        (np.stack([_student(nu, mu, share, at) for nu in _FREEDOMS for mu in _HEAVY_DISTANCES]), _HEAVY),
        (np.concatenate(powers), _POWER),
    ]


def _both_ends(fractions: list[float], share: float, at: FloatArray) -> FloatArray:
    """Leakers among the members, then their mirror images among the non-members."""
    pairs = [(fraction, mu) for fraction in fractions for mu in _LEAKER_DISTANCES]
    inside = [_leakers(*pair, share, at) for pair in pairs]
    outside = [-_leakers(*pair, 1 - share, 1 - at) for pair in pairs]
    return np.array([*inside, *outside]).reshape(-1, at.size)


def _fractions(first: float) -> list[float]:
    found = [first]
    while (following := found[-1] * 1.7) < 0.6:
        found.append(following)
    return found


def _gaussian(mu: float, width: float, share: float, at: FloatArray) -> FloatArray:
    """Members N(μ, width²), non-members N(0, 1)."""
    pooled = share * special.ndtr((_AXIS - mu) / width) + (1 - share) * _NORMAL
    x = np.interp(at, pooled, _AXIS)
    return np.asarray(x * x / 2 - ((x - mu) / width) ** 2 / 2 - math.log(width))


def _student(freedom: float, mu: float, share: float, at: FloatArray) -> FloatArray:
    """Student's t, shifted by μ for members: the log-odds ratio turns back in the tails."""
    pooled = share * special.stdtr(freedom, _LONG_AXIS - mu) + (1 - share) * special.stdtr(freedom, _LONG_AXIS)
    x = np.interp(at, pooled, _LONG_AXIS)
    return np.asarray((freedom + 1) / 2 * (np.log1p(x * x / freedom) - np.log1p((x - mu) ** 2 / freedom)))


def _power(scale: float, share: float, at: FloatArray) -> FloatArray:
    """Exponential scores, of a larger scale for members: the odds are a power of the rank at one end."""
    pooled = -share * np.expm1(-_HALF_AXIS / scale) - (1 - share) * np.expm1(-_HALF_AXIS)
    return np.asarray(np.interp(at, pooled, _HALF_AXIS) * (1 - 1 / scale) - math.log(scale))


def _leakers(fraction: float, mu: float, share: float, at: FloatArray) -> FloatArray:
    """Members N(0, 1) but for a fraction at N(μ, 1), non-members N(0, 1)."""
    members = (1 - fraction) * _NORMAL + fraction * special.ndtr(_AXIS - mu)
    pooled = share * members + (1 - share) * _NORMAL
    exponent = np.minimum(mu * np.interp(at, pooled, _AXIS) - mu * mu / 2, 30)
    return np.asarray(np.log1p(fraction * np.expm1(exponent)))
