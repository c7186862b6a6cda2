"""Rank betting: a lower bound on ε from one run that holds for every number of guesses at once.

The guesses are put in the order of their confidence, decided without the labels. Under ε each is right with
conditional probability at most q = 1/(1+e^−ε), so a bettor who stakes a share l of the wealth on each, at odds that
are fair at q, has wealth W_k(l) = Π(1 + l(X/q − 1)) after k guesses; averaged over l it ever reaches 1/α with
probability at most α (Ville). With δ > 0 guesses that are right through δ alone are m·δ/(1+e^ε) on average; so j right
guesses are counted as wrong, and the level pays for P[there are more than j] ≤ m·δ/((1+e^ε)(j+1)).
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from dosimeter import _validate as check
from dosimeter._validate import BoolArray, FloatArray, InputError, IntArray
from dosimeter.estimate import Estimate, Validity
from dosimeter.estimators.walk import BAND_EDGES
from dosimeter.estimators.wording import proven
from dosimeter.evidence import MOST_RECORDS, OneRun

STAKES = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9)
_DELTA_SHARE = 0.5  # the allowance is the least one whose failure costs no more than this share of the level


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
    convex hull. A prefix under the chord of its neighbours is not a corner; such prefixes are dropped until none is
    left or the rest is small.
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


def allowances(records: int, delta: float, level: float, epsilon: FloatArray) -> tuple[IntArray, FloatArray]:
    """For each ε how many right guesses δ may account for, and P[it accounts for more], by Markov's inequality.

    The least number that costs at most half of the level; it depends on no label.
    """
    mean = records * delta * special.expit(-epsilon)
    allowed = np.maximum(np.ceil(mean / (_DELTA_SHARE * level)) - 1, 0).astype(np.int64)
    return allowed, mean / (allowed + 1)


class Bet(NamedTuple):
    """The ε below which everything is rejected, and what was paid for δ in the band where that ended."""

    epsilon: float
    allowance: int
    paid: float


def betting_bound(hits: FloatArray, misses: FloatArray, records: int, delta: float, level: float) -> Bet:
    """Reject band after band of ε, each with its own allowance, and stop at the first ε that stands.

    `hits` and `misses` count right and wrong guesses at the corners: all that a verifier needs of the guesses.
    """
    from scipy.optimize import brentq

    edges = np.array(BAND_EDGES if delta > 0 else (0.0,))
    allowed, paid = allowances(records, delta, level, edges)  # at the lower edge of a band, where δ costs most
    best = Bet(0.0, int(allowed[0]), float(paid[0]))
    for floor, ceiling, j, cost in zip(edges, np.append(edges[1:], np.inf), allowed, paid, strict=True):
        left = hits > j
        goal = -math.log(level - cost)
        wealth = partial(_log_wealth, hits[left] - j, misses[left] + j)
        if not left.any() or wealth(floor) < goal:
            break
        top = min(ceiling, max(1.0, math.log(float(hits[-1]) / goal) + 1.0))  # ln W ≤ hits·e^−ε, below the goal there
        if top == ceiling and wealth(ceiling) >= goal:
            best = Bet(float(ceiling), int(j), float(cost))
            continue
        found = brentq(lambda e: wealth(e) - goal, floor, top, xtol=1e-14, rtol=1e-14)  # noqa: B023
        return Bet(float(found), int(j), float(cost))
    return best


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
    hits, misses = _corners(right)
    found = betting_bound(hits, misses, total, d, level)
    return proven(
        found.epsilon,
        d,
        confidence,
        "rank betting",
        Validity.FINITE_SAMPLE,
        f" {int(right.sum())} of {right.size} guesses about {total} audit records were right. The bound counts the "
        "surest of them first and holds wherever the counting stops.",
        neighbours="add/remove",
        warnings=warnings,
        details={
            "records": total,
            "guesses": right.size,
            "correct": int(right.sum()),
            "allowance": found.allowance,
            "level_for_delta": found.paid,
            "corners": {"right": hits.astype(np.int64).tolist(), "wrong": misses.astype(np.int64).tolist()},
        },
    )
