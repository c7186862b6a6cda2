"""Shapes that leakage takes along the ranks, and what the labels revealed so far say about them.

A shape is the log-odds ratio that a record at a given rank is a member. The library covers leaks on both sides
(Gaussian scores, clipped: Laplace scores and randomised response too) and on one side (a few strong leakers among the
members, or a few give-aways among the non-members). The bound holds whatever the library is; only its tightness
rests on it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy import special

from dosimeter._validate import FloatArray
from dosimeter.estimators.headline.bins import Bins

BOTH, IN, OUT = KINDS = (0, 1, 2)  # the leak shows at both ends of the ranking, at the upper end, at the lower end
CAP = 14.0  # of every log-odds ratio
FLOOR = 0.02  # a kind less likely than this is not tested
ACTIVE = 0.10  # a kind less likely than this does not decide what is revealed
_LEAST = 3.0  # Kullback–Leibler divergence from "no leak" that makes a shape worth prior mass

_DISTANCES = (0.1, 0.2, 0.3, 0.45, 0.6, 0.8, 1, 1.25, 1.5, 1.8, 2.2, 2.7, 3.3, 4, 5, 6.5, 9)
_CAPS = np.array([0.25, 0.5, 0.75, 1, 1.4, 2, 3, 4.5, 7, CAP])
_LEAKER_DISTANCES = (2.0, 4.0, 8.0)
_ONE_SIDED_CAPS = [(a, b) for a in (0.25, 0.7, 1.4) for b in (3.0, CAP)]
_PRIOR = (0.5, 0.25, 0.25)
_ONE_SIDED_PRIOR = 0.02  # of each one-sided kind's quarter

_AXIS = np.linspace(-11, 22, 1321)
_NORMAL = special.ndtr(_AXIS)


class View(NamedTuple):
    """What is known when the labels of bins low … high − 1 are revealed.

    `chance` is the probability of each kind of leak; `odds` the predicted log-odds ratio of every bin under it, None
    for a kind that is too unlikely to be tested.
    """

    low: int
    high: int
    chance: FloatArray
    odds: tuple[FloatArray | None, ...]

    def of(self, kind: int) -> FloatArray:
        """The log-odds ratios of a kind that is tested."""
        odds = self.odds[kind]
        assert odds is not None
        return odds

    @property
    def tested(self) -> tuple[int, ...]:
        return tuple(kind for kind in KINDS if self.odds[kind] is not None)

    @property
    def shares(self) -> FloatArray:
        """How the level is divided between the kinds."""
        kept = np.where(self.chance >= FLOOR, self.chance, 0.0)
        return np.asarray(kept / kept.sum())


class Learner:
    """A Bayes mixture over the library; `share` is the share of members among the records."""

    def __init__(self, bins: Bins, share: float, *, one_sided_caps: bool) -> None:
        shapes, prior = _library(bins, share, one_sided_caps)
        sizes = [len(part) for part in shapes]
        starts = np.concatenate([[0], np.cumsum(sizes)])
        self._kinds = [slice(starts[kind], starts[kind + 1]) for kind in KINDS]
        self.base = math.log(share / (1 - share))
        log_odds = np.concatenate(shapes) + self.base
        normaliser = np.logaddexp(0, log_odds)
        self._member = special.expit(log_odds)
        divergence = self._divergence(log_odds, normaliser, share, bins)
        self._log_prior = _pruned(np.concatenate(prior), self._kinds, divergence)
        each = bins.members * log_odds - bins.records * normaliser
        self._log_likelihood = np.concatenate([np.zeros((len(each), 1)), np.cumsum(each, 1)], 1)

    def _divergence(self, log_odds: FloatArray, normaliser: FloatArray, share: float, bins: Bins) -> FloatArray:
        """Kullback–Leibler divergence of each shape from "no leak" over all records."""
        p = self._member
        each = p * (log_odds - math.log(share)) - normaliser + (p - 1) * math.log1p(-share)
        return np.asarray(each @ bins.records)

    def view(self, low: int, high: int) -> View:
        """The view when bins low … high − 1 are revealed; no other label has a part in it."""
        weight = self._log_prior + self._log_likelihood[:, high] - self._log_likelihood[:, low]
        weight = np.exp(weight - weight.max())
        weight /= weight.sum()
        chance = np.array([weight[kind].sum() for kind in self._kinds])
        odds: list[FloatArray | None] = []
        for kind, rows in enumerate(self._kinds):
            if chance[kind] < FLOOR:
                odds.append(None)
                continue
            member = (weight[rows] / chance[kind]) @ self._member[rows]
            odds.append(np.clip(special.logit(member) - self.base, -CAP, CAP))
        return View(low, high, chance, tuple(odds))


def _pruned(prior: FloatArray, kinds: list[slice], divergence: FloatArray) -> FloatArray:
    """Log prior without the shapes that so many records cannot prove: they would pull every prediction down."""
    for rows in kinds:
        worth = divergence[rows] >= min(_LEAST, 0.5 * divergence[rows].max())
        kept = np.where(worth, prior[rows], 0.0)
        prior[rows] = kept * (prior[rows].sum() / kept.sum())
    with np.errstate(divide="ignore"):
        return np.log(prior)


def _library(bins: Bins, share: float, one_sided_caps: bool) -> tuple[list[FloatArray], list[FloatArray]]:
    """Log-odds ratios of every shape at the middle rank of every bin, and its prior, for each kind of leak."""
    edges, total = bins.edges, bins.total
    at = np.clip((edges[:-1] + edges[1:]) / (2 * total), 1e-9, 1 - 1e-9)
    gauss = np.stack([_gaussian(mu, share, at) for mu in _DISTANCES])
    both = np.clip(gauss[:, None, :], -_CAPS[None, :, None], _CAPS[None, :, None]).reshape(-1, at.size)
    few = _fractions(min(0.3, 8 / total))
    inside = np.stack([_leakers(f, mu, share, at) for f in few for mu in _LEAKER_DISTANCES])
    outside = -np.stack([_leakers(f, mu, 1 - share, 1 - at) for f in few for mu in _LEAKER_DISTANCES])
    shapes, plain = [both, inside, outside], len(inside)
    if one_sided_caps:
        shapes[IN] = np.concatenate([inside, *(np.clip(gauss, -a, b) for a, b in _ONE_SIDED_CAPS)])
        shapes[OUT] = np.concatenate([outside, *(np.clip(gauss, -b, a) for a, b in _ONE_SIDED_CAPS)])
    prior = [np.full(len(both), _PRIOR[BOTH] / len(both))]
    prior += [_one_sided_prior(plain, len(shapes[kind]), _PRIOR[kind]) for kind in (IN, OUT)]
    return [np.clip(part, -CAP, CAP) for part in shapes], prior


def _one_sided_prior(plain: int, total: int, mass: float) -> FloatArray:
    if plain == total:
        return np.full(total, mass / total)
    rest = np.full(total - plain, _ONE_SIDED_PRIOR / (total - plain))
    return np.concatenate([np.full(plain, (mass - _ONE_SIDED_PRIOR) / plain), rest])


def _fractions(first: float) -> list[float]:
    found = [first]
    while (following := found[-1] * 1.7) < 0.6:
        found.append(following)
    return found


def _gaussian(mu: float, share: float, at: FloatArray) -> FloatArray:
    """Members N(μ, 1), non-members N(0, 1)."""
    pooled = share * special.ndtr(_AXIS - mu) + (1 - share) * _NORMAL
    return np.asarray(mu * np.interp(at, pooled, _AXIS) - mu * mu / 2)


def _leakers(fraction: float, mu: float, share: float, at: FloatArray) -> FloatArray:
    """Members N(0, 1) but for a fraction at N(μ, 1), non-members N(0, 1)."""
    members = (1 - fraction) * _NORMAL + fraction * special.ndtr(_AXIS - mu)
    pooled = share * members + (1 - share) * _NORMAL
    exponent = np.minimum(mu * np.interp(at, pooled, _AXIS) - mu * mu / 2, 30)
    return np.asarray(np.log1p(fraction * np.expm1(exponent)))
