"""Rank betting: a lower bound on ε from one run that holds for every number of guesses at once.

The guesses are put in the order of their confidence, decided without the labels. Under ε each is right with
conditional probability at most q = 1/(1+e^−ε), so a bettor who stakes a share l of the wealth on each, at odds that
are fair at q, has wealth W_k(l) = Π(1 + l(X/q − 1)) after k guesses; averaged over l it ever reaches 1/α with
probability at most α (Ville). With δ > 0 the same holds but for probability m·δ/(1+e^ε).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import special

from dosimeter import _validate as check
from dosimeter._validate import BoolArray, FloatArray, InputError, IntArray
from dosimeter.estimate import Estimate, Validity, number
from dosimeter.estimators.claims import proven
from dosimeter.evidence import MOST_RECORDS, OneRun

STAKES = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9)


def score_order(scores: FloatArray, seed: int) -> IntArray:
    """Indices from the highest score to the lowest, ties in an order drawn from `seed`."""
    shuffle = np.random.default_rng(np.random.SeedSequence(seed)).permutation(scores.size)
    return shuffle[np.argsort(-scores[shuffle], kind="stable")]


def by_confidence(evidence: OneRun) -> BoolArray:
    """Whether each guess was right, the surest first: by distance of the rank from the middle, its side the guess.

    Among equal scores the wrong guesses come first, so that no order of ties can favour the bet.
    """
    highest = evidence.included[np.lexsort((evidence.included, -evidence.scores))]
    lowest = ~evidence.included[np.lexsort((~evidence.included, evidence.scores))]
    total = evidence.total
    right = np.empty(total, bool)
    right[0::2] = highest[: (total + 1) // 2]
    right[1::2] = lowest[: total // 2]
    return right


def _corners(right: BoolArray) -> tuple[FloatArray, FloatArray]:
    """(right, wrong) counts at the prefixes where the wealth can be largest.

    The mean wealth is a convex function of both counts, so over all prefixes it is largest at a corner of their
    convex hull. A prefix under the chord of its neighbours is no corner; such prefixes are dropped until none is left
    or the rest is small.
    """
    hits = np.cumsum(right)
    ends = right & ~np.append(right[1:], False)
    x = (np.flatnonzero(ends) + 1 - hits[ends]).astype(float)
    y = hits[ends].astype(float)
    while y.size > 64:
        dx, dy = np.diff(x), np.diff(y)
        keep = np.ones(y.size, bool)
        keep[1:-1] = dy[:-1] * dx[1:] > dy[1:] * dx[:-1]
        if keep.all():
            break
        x, y = x[keep], y[keep]
    return y, x


def _log_wealth(hits: FloatArray, misses: FloatArray, epsilon: float) -> float:
    """The largest ln of the wealth, averaged over the stakes: W(l) = Π(1 + l(X/q − 1)), 1/q − 1 = e^−ε."""
    stakes = np.array(STAKES)
    logs = np.multiply.outer(hits, np.log1p(stakes * math.exp(-epsilon)))
    logs += np.multiply.outer(misses, np.log1p(-stakes))
    return float(np.max(special.logsumexp(logs, axis=1))) - math.log(stakes.size)


def betting_bound(hits: FloatArray, misses: FloatArray, level: float) -> float:
    """The largest ε at which the mean wealth reaches 1/level at one of the corners; the wealth falls as ε rises.

    `hits` and `misses` count right and wrong guesses at the corners: all that a verifier needs of the guesses.
    """
    from scipy.optimize import brentq

    if hits.size == 0:
        return 0.0
    goal = -math.log(level)
    if _log_wealth(hits, misses, 0.0) < goal:
        return 0.0
    top = max(1.0, math.log(float(hits[-1]) / goal) + 1.0)  # ln W ≤ hits·e^−ε, below the goal there
    return float(brentq(lambda e: _log_wealth(hits, misses, e) - goal, 0.0, top, xtol=1e-14, rtol=1e-14))


def delta_share(records: int, delta: float, level: float) -> tuple[float, float]:
    """What of the level pays for δ, fixed before the labels are seen, and the ε below which a result counts as 0.

    The coupling costs m·δ/(1+e^ε); the share is clip(mδ/2, level/100, level/2), and the floor is where both meet.
    """
    if delta == 0.0:
        return 0.0, 0.0
    cost = records * delta
    share = min(max(cost / 2, level / 100), level / 2)
    return share, math.log(cost / share - 1.0) if cost > 2.0 * share else 0.0


def rank_betting(
    evidence: OneRun | Any,
    *,
    delta: float = 0.0,
    confidence: float = 0.95,
    records: int | None = None,
) -> Estimate:
    """Bet on the guesses in the order of their confidence: a lower bound on ε valid over all numbers of guesses.

    `evidence` is a `OneRun`, or an array that says of each guess, the surest first, whether it was right (`records`
    is then the number of audit records if some were not guessed). The order must not depend on the labels.
    """
    d, level = check.delta(delta), 1.0 - check.confidence(confidence)
    warnings: tuple[str, ...] = ()
    if isinstance(evidence, OneRun):
        if records is not None:
            raise InputError(f"records is {check.show(records)}, but a OneRun knows its own; leave records out.")
        right, total = by_confidence(evidence), evidence.total
        warnings = evidence.mask_warnings
    else:
        right = check.bits("evidence", evidence)
        remedy = "pass the number of audit records, at least the number of guesses"
        total = right.size if records is None else check.whole("records", records, right.size, remedy, MOST_RECORDS)
    share, floor = delta_share(total, d, level)
    hits, misses = _corners(right)
    found = betting_bound(hits, misses, level - share)
    epsilon = found if found > floor else 0.0
    if floor > 0.0:
        warnings = (*warnings, _floor_warning(total, d, floor))
    return proven(
        epsilon,
        d,
        confidence,
        "rank betting",
        Validity.FINITE_SAMPLE,
        f" {int(right.sum())} of {right.size} guesses about {total} audit records were right; the bets on them, the "
        "surest first, hold for every number of guesses at once.",
        neighbours="add/remove",
        warnings=warnings,
        details={
            "records": total,
            "guesses": right.size,
            "correct": int(right.sum()),
            "level_for_delta": share,
            "floor": floor,
            "corners": {"right": hits.astype(np.int64).tolist(), "wrong": misses.astype(np.int64).tolist()},
        },
    )


def _floor_warning(records: int, delta: float, floor: float) -> str:
    return (
        f"records × delta is {records * delta:.3g}, so no ε below {number(floor)} can be shown this way; "
        "use fewer audit records or a smaller delta"
    )
