"""Records that the references call sure: is more proven where these are tied, or where nothing else is told apart?

A generator that memorises a few records leaves them on top of the ranking, in an order that means nothing. The bound
learns from the middle of the ranking where to cut, and finds few sure members more easily if they are one group. Which
form of the scores serves best is decided on the references, with their own coins: each is cut where the others say.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy import special

from dosimeter._validate import BoolArray, FloatArray
from dosimeter.estimate import Level
from dosimeter.estimators.lower_bound import proven_epsilon
from dosimeter.evidence import OneRun

SURE = 0.9  # share of members, among the references' records above a cut, from which ties are tried at all
WORTH = 0.05  # of ε: a form must prove so much more about the references; below it the choice is mostly noise
TIED, ALONE = "stack, surest tied", "stack, surest alone"

Form = Callable[[FloatArray, float], FloatArray]
FORMS: dict[str, Form] = {
    TIED: np.minimum,
    ALONE: lambda scores, cut: (scores >= cut).astype(np.float64),
}


class Cut(NamedTuple):
    """A score, and how many of the references' records at or above it were in: a share of them."""

    score: float
    share: float


def best_cut(scores: FloatArray, masks: BoolArray, alpha: float) -> Cut | None:
    """Where guessing "in" above a cut would prove most about one release; None where no cut would prove anything.

    `scores` and `masks` are (releases, units); counts of all releases stand for those of one.
    """
    ordered, inside = scores.ravel(), masks.ravel()
    order = np.lexsort((inside, -ordered))  # among equal scores those that were out come first
    ordered, inside = ordered[order], inside[order]
    records, members = np.arange(1, ordered.size + 1), np.cumsum(inside)
    ends = np.append((ordered[:-1] > ordered[1:]) & ~inside[1:], True)  # one more member would only prove more
    at = np.flatnonzero(ends & (members >= SURE * records))
    if not at.size:
        return None
    right, tried = members[at] / len(scores), records[at] / len(scores)
    low = special.betaincinv(right, tried - right + 1, alpha)
    if low.max() <= 0.5:  # no better than coins
        return None
    place = at[int(np.argmax(low))]
    return Cut(float(ordered[place]), float(members[place] / records[place]))


def best_form(scores: FloatArray, masks: BoolArray, level: Level) -> tuple[str, float] | None:
    """The form of a score that proves most about the references on average, and its cut; None for the score itself.

    The score itself stays where no form proves `WORTH` more.
    """
    alpha = 1 - level["confidence"]
    cut = best_cut(scores, masks, alpha)
    if cut is None or len(scores) < 2:
        return None
    others = [np.arange(len(scores)) != place for place in range(len(scores))]
    cuts = [best_cut(scores[rest], masks[rest], alpha) for rest in others]
    plain, proven = _proven(scores, masks, level), {}
    for name, form in FORMS.items():
        made = [one if at is None else form(one, at.score) for one, at in zip(scores, cuts, strict=True)]
        proven[name] = _proven(np.stack(made), masks, level)
    name = max(proven, key=lambda key: proven[key])
    return (name, cut.score) if proven[name] >= plain + WORTH else None


def _proven(scores: FloatArray, masks: BoolArray, level: Level) -> float:
    """What is proven about the references, on average."""
    rows = zip(scores, masks, strict=True)
    return float(np.mean([proven_epsilon(OneRun(one, mask, None), **level) for one, mask in rows]))
