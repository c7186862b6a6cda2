"""The replace-one game: a coin decides which of two records a model is trained on, the point or its substitute.

This is Experiment 1 of Zanella-Béguelin et al. (ICML 2023), membership inference as Yeom et al. (2018) define it. All
models are trained on equally many records. Flipping a coin replaces one record by another, so the bound is for the ε of
replacing one. What the attack may look at is fixed by the shadow models: the two records, and the threshold.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from dosimeter._validate import BoolArray, FloatArray, InputError, IntArray
from dosimeter.audits.training.intervals import pilot_threshold
from dosimeter.audits.training.shadows import AttackScorer, Candidates, ChallengedPoints, Trainings, choose, in_and_out

__all__ = ["ReplacedPoints", "choose_pairs"]


@dataclass(frozen=True)
class ReplacedPoints:
    """Points and their substitutes, and a threshold for the difference of their scores."""

    chosen: ChallengedPoints
    count: int
    threshold: float

    @property
    def points(self) -> IntArray:
        return self.chosen.points[: self.count]

    @property
    def substitutes(self) -> IntArray:
        return self.chosen.points[self.count :]

    def margins(self, scores: FloatArray) -> FloatArray:
        """How much more the attack says "in" of each point than of its substitute, from scores (models, columns)."""
        at = self.chosen.at
        return scores[:, at[: self.count]] - scores[:, at[self.count :]]

    def memberships(self, coins: BoolArray, units: int, real: int) -> BoolArray:
        """Who is in which run: all real records but the pairs, and one of each pair."""
        inside = np.zeros((len(coins), units), bool)
        inside[:, :real] = True
        inside[:, self.substitutes] = ~coins
        inside[:, self.points] = coins
        return inside


def choose_pairs(
    shadows: Trainings,
    included: BoolArray,
    candidates: Candidates,
    *,
    points: IntArray | None,
    count: int,
    scorer: AttackScorer,
    by: str,
    seed: int,
    delta: float,
    confidence: float,
) -> ReplacedPoints:
    """Take the worst candidates as points and the next worst as their substitutes.

    Points that the caller names, and canaries, are replaced by real records that are drawn at random.
    """
    pick = partial(choose, shadows, included, candidates.rows, scorer=scorer, by=by, seed=seed)
    if points is None and candidates.canaries is None:
        chosen = pick(points=None, count=2 * count)
    else:
        if points is None:
            points = pick(points=None, count=count).points
        others = np.setdiff1d(np.flatnonzero(in_and_out(included[:, : candidates.real], 2)), points)
        if others.size < count:
            raise InputError(
                f"only {others.size} records could replace the {count} points: each must be in and out of at least 2 "
                f"of the {len(included)} shadow models; pass more shadows, e.g. 64."
            )
        drawn = np.random.default_rng(np.random.SeedSequence([seed, 1])).choice(others, count, replace=False)
        both = np.concatenate([points, drawn])
        chosen = pick(points=both, count=both.size)
    pairs = ReplacedPoints(chosen, count, 0.0)
    margins = pairs.margins(scorer.pilot(shadows.signals[:, chosen.columns], included[:, chosen.columns]))
    first, second = included[:, pairs.points], included[:, pairs.substitutes]
    inside, outside = margins[first & ~second], margins[second & ~first]
    if not inside.size or not outside.size:  # no shadow model holds one of them alone: the middle must do
        return pairs
    return ReplacedPoints(chosen, count, pilot_threshold(inside, outside, delta=delta, confidence=confidence))
