"""A lower bound on ε where the chance of being a member differs from record to record and is known.

Every label is "in" with a chance of its own, its *propensity* π: 1/2 for a fair coin, and something else where a record
looks more like a member than like a non-member before any model is asked. Under ε an "in" guess is right with
probability at most π e^ε/(π e^ε + 1 − π), and an "out" guess with the same for 1 − π. So a weighted number of right
guesses lies below the same sum of independent coins with these chances, whose upper tail is computed exactly.
docs/honest-bounds.md has the proof (9).

The surest guesses count most: guesses are put into blocks by their confidence, the weight of a block is fixed in
advance, and four sets of weights share the level.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy import special

from dosimeter import _validate as check
from dosimeter._validate import FloatArray, InputError, IntArray
from dosimeter.estimate import Estimate, Validity, proven
from dosimeter.estimators.propensity_run import CoinSum, PropensityRun
from dosimeter.estimators.walk import BAND_EDGES

STEP = 0.04  # of log-odds: guesses within one step are counted together, at the upper end of it
MOST_STEPS = 200  # log-odds beyond 8 count as certain, log-odds below −8 as −8
EDGES = (1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64)  # shares of the guesses, the surest first
WEIGHTS = {  # of the blocks between the edges, the least sure first
    "all": (1, 3, 4, 5, 6, 7, 8),
    "surest quarter": (0, 0, 1, 2, 3, 4, 5),
    "surest 1/16": (0, 0, 0, 0, 1, 2, 3),
    "surest 1/64": (0, 0, 0, 0, 0, 0, 1),
}
MOST_EPSILON = 60.0
_DELTA_SHARE = 0.5  # of the level, for guesses that are right through δ alone


class GuessTable(NamedTuple):
    """All that the bound uses: for each block of confidence and step of log-odds, guesses made and guesses right."""

    block: IntArray
    step: IntArray
    guesses: IntArray
    right: IntArray

    @classmethod
    def of(cls, evidence: PropensityRun) -> GuessTable:
        """Count the guesses: the sign of a score is the guess, its size the confidence; tied sizes share a block."""
        assert evidence.limits is not None
        made = np.flatnonzero(evidence.scores)
        scores, included = evidence.scores[made], evidence.included[made]
        sure = np.abs(scores)
        least = sure.size - np.searchsorted(np.sort(sure), sure, "left")  # guesses that are at least as sure
        block = np.sum(least <= np.array(EDGES)[:, None] * sure.size, axis=0)
        low, high = (side[made] for side in evidence.limits)
        with np.errstate(divide="ignore"):
            odds = np.where(scores > 0, special.logit(high), -special.logit(low))
        step = np.ceil(np.clip(odds / STEP, -MOST_STEPS, MOST_STEPS + 1) - 1e-9).astype(np.int64)
        key, place = np.unique(block * 10_000 + step + MOST_STEPS, return_inverse=True)
        right = np.bincount(place, (scores > 0) == included, minlength=key.size).astype(np.int64)
        return cls(key // 10_000, key % 10_000 - MOST_STEPS, np.bincount(place, minlength=key.size), right)

    @property
    def log_odds(self) -> FloatArray:
        """Of each step; infinite where they are too large to say."""
        return np.where(self.step > MOST_STEPS, np.inf, self.step * STEP)


class Found(NamedTuple):
    """A bound, the set of weights that gives it, the guesses that it weighs, and the allowance for δ."""

    epsilon: float
    scheme: str
    guesses: int
    right: int
    allowance: int


def bound_of_table(table: GuessTable, *, records: int, delta: float, level: float, slack: float = 0.0) -> Found:
    """The bound as a function of the counts: what a verifier recomputes.

    With δ > 0 at most j guesses are right through δ alone, except with probability records·δ/((1 + e^ε)(j + 1)): the j
    largest weights are given away, and the level pays for that. ε is rejected band by band, each with its own j. With a
    slack γ what is rejected is ε + γ.
    """
    best = Found(0.0, next(iter(WEIGHTS)), 0, 0, 0)
    edges = (*BAND_EDGES, MOST_EPSILON) if delta > 0 else (0.0, MOST_EPSILON)
    for floor, ceiling in pairwise(edges):
        share, mean = level / len(WEIGHTS), records * delta * float(special.expit(-max(0.0, floor - slack)))
        allowed = max(0, math.ceil(mean / (_DELTA_SHARE * share)) - 1)
        found = _in_band(table, allowed, share - mean / (allowed + 1), floor, ceiling)
        if found is None:
            break
        best = found
        if found.epsilon < ceiling:
            break
    return best._replace(epsilon=max(0.0, best.epsilon - slack))


def _in_band(table: GuessTable, allowed: int, level: float, floor: float, ceiling: float) -> Found | None:
    """The largest ε of a band that any set of weights rejects; None if none rejects its lower end."""
    best = None
    for scheme, weights in WEIGHTS.items():
        weight = np.array(weights)[table.block]
        used = weight > 0
        heaviest = np.sort(np.repeat(weight[used], table.guesses[used]))[::-1][:allowed]
        least = int(weight @ table.right) - int(heaviest.sum())
        coins = CoinSum(weight[used], table.guesses[used], _under(table.log_odds[used]), least)
        start = floor if best is None else best.epsilon
        if least <= 0 or coins.p_value(start) > level:
            continue
        rejected = coins.largest(level, start, ceiling)
        best = Found(rejected, scheme, int(table.guesses[used].sum()), int(table.right[used].sum()), allowed)
        if rejected >= ceiling:
            break
    return best


def _under(log_odds: FloatArray) -> Callable[[float], FloatArray]:
    """The largest chances of right guesses under ε, as a function of ε."""
    return lambda epsilon: np.asarray(special.expit(log_odds + epsilon))


def propensity_bound(evidence: PropensityRun, *, delta: float = 0.0, confidence: float = 0.95) -> Estimate:
    """Bound ε from below where the chance of being a member differs from record to record.

    The bound holds if the propensities are right: given everything that the scores were made of except the model, each
    label is "in" with its own propensity, independently of the others. If their log-odds are wrong by up to γ, the
    bound less γ holds.

    Args:
        evidence: Scores, labels and propensities.
        delta: The δ of the guarantee that is tested.
        confidence: The confidence of the bound.

    Returns:
        The bound, conditional on the propensities.

    Raises:
        InputError: If the evidence is not a PropensityRun, or an argument is out of range.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> chance = rng.uniform(0.2, 0.8, 2000)
    >>> inside = rng.random(2000) < chance
    >>> round(propensity_bound(PropensityRun(rng.normal(2 * inside - 1, 1), inside, chance)).low, 1)
    4.0
    """
    if not isinstance(evidence, PropensityRun):
        raise InputError(
            f"evidence must be a PropensityRun, got {type(evidence).__name__}; build PropensityRun(scores, included, "
            "propensities)."
        )
    delta, confidence = check.delta(delta), check.confidence(confidence)
    level = 1.0 - confidence - evidence.spent
    if level <= 0:
        raise InputError(
            f"confidence is {confidence:g}, but the limits of the propensities spend {evidence.spent:g} of the level; "
            "pass a lower confidence or narrower limits."
        )
    table = GuessTable.of(evidence)
    found = bound_of_table(table, records=evidence.total, delta=delta, level=level, slack=evidence.slack)
    return proven(
        found.epsilon,
        delta,
        confidence,
        "propensity",
        Validity.CONDITIONAL,
        " This holds if the chance of being a member, before the model is asked, is right for each record.",
        neighbours=evidence.neighbours,
        details={
            "records": evidence.total,
            "selection": found.scheme,
            "guesses": found.guesses,
            "correct": found.right,
            "allowance": found.allowance,
            "spent": evidence.spent,
            "slack": evidence.slack,
            "table": [column.tolist() for column in table],
        },
    )
