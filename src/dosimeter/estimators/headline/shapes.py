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
_PRIOR = eval(__import__("os").environ.get("PRIOR", "(.5,.33,.17)"))
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

    def __init__(self, bins: Bins, share: float) -> None:
        shapes, prior = _library(bins, share)
        sizes = [len(part) for part in shapes]
        starts = np.concatenate([[0], np.cumsum(sizes)])
        self._kinds = [slice(starts[kind], starts[kind + 1]) for kind in KINDS]
        self.base = math.log(share / (1 - share))
        log_odds = np.concatenate(shapes) + self.base
        self._L, self._bins = log_odds - self.base, bins
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

    def _z(self, log_odds, bins):
        """H x G: expected z-score of each shape's own test at each grid ε."""
        a = np.abs(log_odds)
        n = bins.records.astype(float)
        p = special.expit(a)
        out = np.empty((len(a), _ZGRID.size))
        for k, e in enumerate(_ZGRID):
            w = np.maximum(a - e, 0)
            q = special.expit(e)
            out[:, k] = ((w * (p - q)) @ n) / np.sqrt((w * w) @ n * q * (1 - q) + 1e-12)
        return out

    def _tilt(self, epsilon):
        if not hasattr(self, "_zs"):
            self._zs = special.log_ndtr(self._z(self._L, self._bins) - _ZCUT)
        k = min(max(int(np.searchsorted(_ZGRID, epsilon)) - 1, 0), _ZGRID.size - 2)
        f = min(max((epsilon - _ZGRID[k]) / (_ZGRID[k + 1] - _ZGRID[k]), 0), 1)
        return _TILT * ((1 - f) * self._zs[:, k] + f * self._zs[:, k + 1])

    def view(self, low: int, high: int, design=None) -> View:
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
            inner = weight[rows] / chance[kind]
            if design is not None and _TILT:
                t = self._tilt(design[kind])[rows]
                inner = inner * np.exp(t - t.max())
                inner /= inner.sum()
            member = inner @ self._member[rows]
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


def _library(bins: Bins, share: float) -> tuple[list[FloatArray], list[FloatArray]]:
    """Log-odds ratios of every shape at the middle rank of every bin, and its prior, for each kind of leak."""
    edges, total = bins.edges, bins.total
    at = np.clip((edges[:-1] + edges[1:]) / (2 * total), 1e-9, 1 - 1e-9)
    gauss = np.stack([_gaussian(mu, share, at) for mu in _DISTANCES])
    both = np.clip(gauss[:, None, :], -_CAPS[None, :, None], _CAPS[None, :, None]).reshape(-1, at.size)
    capw = _CAPW / _CAPW.sum()
    families = [(both, _W[0] * np.tile(capw, len(_DISTANCES)))]
    if _W[1]:
        families.append((np.concatenate([np.clip(gauss, -a, b) for a, b in _ONE_SIDED_CAPS] + [np.clip(gauss, -b, a) for a, b in _ONE_SIDED_CAPS]), _W[1]))
    if _W[2]:
        families.append((np.stack([_wide(mu, sd, share, at) for sd in _SDS for mu in _WIDE_DISTANCES]), _W[2]))
    if _W[3]:
        families.append((np.stack([_student(nu, mu, share, at) for nu in _NUS for mu in _T_DISTANCES]), _W[3]))
    if _W[4]:
        families.append((np.concatenate([np.stack([_power(r, share, at) for r in _POWERS]), -np.stack([_power(r, 1-share, 1-at) for r in _POWERS])]), _W[4]))
    few = _fractions(min(0.3, 8 / total))
    many = [f for f in few if f > _FEW]
    few = [f for f in few if f <= _FEW] or few[:1]
    if many and _W[5]:
        families.append((np.concatenate([np.stack([_leakers(f, mu, share, at) for f in many for mu in _LEAKER_DISTANCES]), -np.stack([_leakers(f, mu, 1 - share, 1 - at) for f in many for mu in _LEAKER_DISTANCES])]), _W[5]))
    fw = np.repeat(_leak_prior(np.array(few) * total), len(_LEAKER_DISTANCES)); fw = fw / fw.sum()
    inside = np.stack([_leakers(f, mu, share, at) for f in few for mu in _LEAKER_DISTANCES])
    outside = -np.stack([_leakers(f, mu, 1 - share, 1 - at) for f in few for mu in _LEAKER_DISTANCES])
    w = np.concatenate([x / len(_DISTANCES) if np.ndim(x) else np.full(len(f), x / len(f)) for f, x in families])
    shapes = [np.concatenate([f for f, _ in families]), inside, outside]
    prior = [w * _PRIOR[BOTH] / w.sum()] + [fw * _PRIOR[kind] for kind in (IN, OUT)]
    return [np.clip(part, -CAP, CAP) for part in shapes], prior

_W = eval(__import__("os").environ.get("W", "(.75,.04,.07,.12,.05,.04)"))
_ZGRID = np.concatenate([[0, .1, .2, .35, .5, .7], np.arange(.9, 3, .3), np.arange(3, 6, .5), [6, 8, 11]])
_ZCUT = 1.645
_TILT = 0.5
_FEW = .06
_CAPW = np.ones(10)
_POWERS = (1.25, 1.6, 2.2, 3, 4.5, 8)
_LEAKP = 2
def _leak_prior(n): 
    return np.minimum(n / 40, 1) ** _LEAKP
_EAXIS = np.concatenate([np.linspace(0, 1, 200), np.geomspace(1.01, 200, 600)])
def _power(r: float, share: float, at: FloatArray) -> FloatArray:
    pooled = -share * np.expm1(-_EAXIS / r) - (1 - share) * np.expm1(-_EAXIS)
    x = np.interp(at, pooled, _EAXIS)
    return np.asarray(x * (1 - 1 / r) - math.log(r))
_SDS = (.5, .7, .85, 1.2, 1.5, 2)
_WIDE_DISTANCES = (0, .3, .6, 1, 1.5, 2.2, 3.3, 5)
_NUS = (1, 2, 4)
_T_DISTANCES = (.4, .7, 1, 1.5, 2.2, 3.3, 5)
_T_AXIS = np.concatenate([-np.geomspace(1e4, 12, 60), np.linspace(-11.9, 16.9, 1153), np.geomspace(17, 1e4, 60)])

def _wide(mu: float, sd: float, share: float, at: FloatArray) -> FloatArray:
    pooled = share * special.ndtr((_WAXIS - mu) / sd) + (1 - share) * special.ndtr(_WAXIS)
    x = np.interp(at, pooled, _WAXIS)
    return np.asarray(x * x / 2 - ((x - mu) / sd) ** 2 / 2 - math.log(sd))
_WAXIS = np.linspace(-20, 25, 1801)

def _student(nu: float, mu: float, share: float, at: FloatArray) -> FloatArray:
    pooled = share * special.stdtr(nu, _T_AXIS - mu) + (1 - share) * special.stdtr(nu, _T_AXIS)
    x = np.interp(at, pooled, _T_AXIS)
    return np.asarray((nu + 1) / 2 * (np.log1p(x * x / nu) - np.log1p((x - mu) ** 2 / nu)))


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
