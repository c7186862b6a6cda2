"""What the labels revealed so far say about the shape that leakage takes along the ranks.

A shape is the log-odds ratio that a record at a given rank is a member. What can be learned from the middle ranks is
one kind of leak; a few strong leakers among the members, or a few give-aways among the non-members, are two more: the
middle says nothing about them, so each has a test of its own (`library.py`).
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy import special

from dosimeter._validate import FloatArray
from dosimeter.estimators.headline.bins import Bins
from dosimeter.estimators.headline.library import CAP, library

BOTH, IN, OUT = KINDS = (0, 1, 2)  # the leak shows anywhere, at the upper end, at the lower end
FLOOR = 0.02  # a kind less likely than this is not tested
ACTIVE = 0.10  # a kind less likely than this does not decide what is revealed
_LEAST = 3.0  # Kullback–Leibler divergence from "no leak" that makes a shape worth prior mass
_POINTS = np.concatenate([[0, 0.1, 0.2, 0.35, 0.5, 0.7], np.arange(0.9, 3, 0.3), np.arange(3, 6, 0.5), [6, 8, 11]])
_Z = 1.645


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
        shapes, prior = library(bins, share)
        starts = np.concatenate([[0], np.cumsum([len(part) for part in shapes])])
        self._kinds = [slice(starts[kind], starts[kind + 1]) for kind in KINDS]
        self.base = math.log(share / (1 - share))
        self._records, self._shapes = bins.records.astype(float), np.concatenate(shapes)
        log_odds = self._shapes + self.base
        normaliser = np.logaddexp(0, log_odds)
        self._member = special.expit(log_odds)
        divergence = self._divergence(log_odds, normaliser, share)
        self._log_prior = _pruned(np.concatenate(prior), self._kinds, divergence)
        each = bins.members * log_odds - bins.records * normaliser
        self._log_likelihood = np.concatenate([np.zeros((len(each), 1)), np.cumsum(each, 1)], 1)

    def _divergence(self, log_odds: FloatArray, normaliser: FloatArray, share: float) -> FloatArray:
        """Kullback–Leibler divergence of each shape from "no leak" over all records."""
        p = self._member
        each = p * (log_odds - math.log(share)) - normaliser + (p - 1) * math.log1p(-share)
        return np.asarray(each @ self._records)

    @cached_property
    def _log_power(self) -> FloatArray:
        """About how likely each shape is to be rejected at each of a few ε, in logarithms; one row each."""
        leaning, found = np.abs(self._shapes), np.empty((len(self._shapes), _POINTS.size))
        right = special.expit(leaning)
        for place, epsilon in enumerate(_POINTS.tolist()):
            weight, q = np.maximum(leaning - epsilon, 0.0), float(special.expit(epsilon))
            drift, variance = (weight * (right - q)) @ self._records, (weight * weight) @ self._records * q * (1 - q)
            found[:, place] = special.log_ndtr(drift / np.sqrt(variance + 1e-12) - _Z)
        return found

    def _provable(self, rows: slice, epsilon: float) -> FloatArray:
        """Weights of the shapes for a test at ε: what ε cannot be rejected for need not be tested for."""
        place = int(np.clip(np.searchsorted(_POINTS, epsilon) - 1, 0, _POINTS.size - 2))
        between = float(np.clip((epsilon - _POINTS[place]) / (_POINTS[place + 1] - _POINTS[place]), 0, 1))
        power = (1 - between) * self._log_power[rows, place] + between * self._log_power[rows, place + 1]
        return np.exp((power - power.max()) / 2)

    def view(self, low: int, high: int, design: FloatArray | None = None) -> View:
        """The view when bins low … high − 1 are revealed; no other label has a part in it.

        With a `design`, one ε for each kind, the odds are those of the shapes that can prove as much.
        """
        weight = self._log_prior + self._log_likelihood[:, high] - self._log_likelihood[:, low]
        weight = np.exp(weight - weight.max())
        weight /= weight.sum()
        chance = np.array([weight[kind].sum() for kind in self._kinds])
        odds: list[FloatArray | None] = []
        for kind, rows in enumerate(self._kinds):
            if chance[kind] < FLOOR:
                odds.append(None)
                continue
            inner = weight[rows]
            if design is not None:
                inner = inner * self._provable(rows, float(design[kind]))
            member = (inner / inner.sum()) @ self._member[rows]
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
