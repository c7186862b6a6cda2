"""Lower bounds on ε that hold over every number of guesses at once: the exact ranked walk, and rank betting.

Records are ordered by a confidence that the labels have no part in. If the labels are independent fair coins and
the mechanism is ε-DP, each guess is right with conditional probability ≤ q = e^ε/(1+e^ε), so the path of right
guesses lies below a Bernoulli(q) walk, whatever the scores are. ε is rejected where the path passes a limit that such a
walk passes with probability ≤ α (`walk.py`).

With δ > 0 a guess may beat q. Couple each guess with one of success ≤ q: the expected number J of guesses that are
right only through δ is at most m·δ/(1+e^ε), half of that if all guesses are of one kind. So the path less an
allowance j lies below the walk except with probability P[J > j] ≤ mean/(j+1) (Markov), and the level pays for that.
j is fixed by m, δ, α and ε alone.

Orders, all by rank alone, so that an increasing transform of the scores changes nothing: `in` guesses "member" from the
highest score downwards, `out` "non-member" from the lowest upwards; `two-sided` does both in turn; `mixed` runs all
three, on 70, 15 and 15 % of the level, and keeps the best one. Records of equal score have no order: where a look
falls among them, as few guesses as their counts allow are taken to be right.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from dosimeter import _validate as check
from dosimeter._validate import BoolArray, FloatArray, InputError, IntArray
from dosimeter.estimate import Estimate, Validity, proven
from dosimeter.estimators import walk
from dosimeter.estimators.walk import BAND_EDGES
from dosimeter.evidence import MOST_RECORDS, OneRun

# --- rank betting ------------------------------------------------------------------------------------------
#
# A lower bound on ε from one run that holds for every number of guesses at once.
#
# The guesses are put in the order of their confidence, decided without the labels. Under ε each is right with
# conditional probability at most q = 1/(1+e^−ε), so a bettor who stakes a share l of the wealth on each, at odds that
# are fair at q, has wealth W_k(l) = Π(1 + l(X/q − 1)) after k guesses; averaged over l it ever reaches 1/α with
# probability at most α (Ville). With δ > 0 guesses that are right through δ alone are m·δ/(1+e^ε) on average; so j
# right guesses are counted as wrong, and the level pays for P[there are more than j] ≤ m·δ/((1+e^ε)(j+1)).
STAKES = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9)
_DELTA_SHARE = 0.5  # the allowance is the least one whose failure costs no more than this share of the level


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


# --- the ranked walk ---------------------------------------------------------------------------------------
ORDERS = ("mixed", "two-sided", "in", "out")
_SHARES = {
    "mixed": {"two-sided": 0.7, "in": 0.15, "out": 0.15},
    "two-sided": {"two-sided": 1.0},
    "in": {"in": 1.0},
    "out": {"out": 1.0},
}


class Walk(NamedTuple):
    """The ε below which a walk rejects everything, and the checkpoint that did it."""

    epsilon: float
    order: str
    guesses: int
    correct: int
    allowance: int
    local_level: float


def ranked(evidence: OneRun, *, delta: float = 0.0, confidence: float = 0.95, order: str = "mixed") -> Estimate:
    """Bound ε from below by the ranked walk, valid although the number of guesses is chosen on the data.

    The walk needs labels thrown by fair coins. For pools of members and non-members use `lower_bound`.

    Args:
        evidence: Scores of records that fair coins put in or left out.
        delta: The δ of the guarantee that is tested.
        confidence: The confidence of the bound.
        order: "in", "out", "two-sided" or "mixed", which runs all three.

    Returns:
        The bound, for adding or removing one record.

    >>> import numpy as np
    >>> from dosimeter import fair_coins
    >>> coins = fair_coins(2000, seed=1)
    >>> round(ranked(OneRun(np.random.default_rng(0).normal(coins, 1), coins)).low, 1)
    1.6
    """
    delta, confidence = check.delta(delta), check.confidence(confidence)
    order = check.choice("order", order, ORDERS)
    if not isinstance(evidence, OneRun):
        raise InputError(
            f"evidence must be a OneRun, got {type(evidence).__name__}; the walk needs labels thrown by fair coins, "
            "use lower_bound for pools of members and non-members."
        )
    alpha = 1 - confidence
    paths = _paths(evidence, order)
    walks = walks_on(paths, evidence.total, delta, alpha)
    best = max(walks, key=lambda w: w.epsilon)
    return proven(
        best.epsilon,
        delta,
        confidence,
        "ranked",
        Validity.FINITE_SAMPLE,
        neighbours="add/remove",
        unit=evidence.unit,
        warnings=evidence.mask_warnings,
        details={
            "order": best.order,
            "guesses": best.guesses,
            "correct": best.correct,
            "records": evidence.total,
            "local_level": best.local_level,
            "allowance": best.allowance,
            "largest_provable": largest_provable(evidence.total, delta, alpha, order=order),
            "walks": {w.order: w.epsilon for w in walks},
            "paths": {name: path.tolist() for name, path in paths.items()},
        },
    )


def _paths(evidence: OneRun, order: str) -> dict[str, IntArray]:
    """The right guesses at the checkpoints, for each order: all that the bound uses of the scores."""
    points = walk.checkpoints(evidence.total)
    fewest_in, fewest_out = fewest_right(evidence)
    return {name: fewest_in[top] + fewest_out[points - top] for name in _SHARES[order] for top in [_tops(name, points)]}


def walks_on(paths: Mapping[str, IntArray], records: int, delta: float, alpha: float) -> list[Walk]:
    """The bound of each order as a function of its right guesses at the checkpoints: what a verifier recomputes.

    Args:
        paths: Right guesses at the checkpoints, one array for each order.
        records: The number of audit records.
        delta: The δ of the guarantee that is tested.
        alpha: The level, shared among the orders.

    Raises:
        InputError: If there is no order for these paths, or a path is not one of right guesses.
    """
    shares = next((part for part in _SHARES.values() if set(part) == set(paths)), None)
    if shares is None:
        raise InputError(f"paths must be those of one of {', '.join(ORDERS)}, got {check.show(sorted(paths))}.")
    points = walk.checkpoints(records)
    for name, correct in paths.items():
        steps = np.diff(correct, prepend=0)
        if correct.shape != points.shape or (steps < 0).any() or (steps > np.diff(points, prepend=0)).any():
            raise InputError(f"paths[{name!r}] is not a path of right guesses about {records} records.")
    return [
        _best_look(name, points, paths[name], _Level(records, delta * _delta_factor(name), share * alpha))
        for name, share in shares.items()
    ]


def _tops(order: str, points: IntArray) -> IntArray:
    """How many of the first r guesses are "in" guesses."""
    return {"in": points, "out": np.zeros_like(points), "two-sided": (points + 1) // 2}[order]


def _delta_factor(order: str) -> float:
    """The coupling costs half where guesses of one kind only are made."""
    return 1.0 if order == "two-sided" else 0.5


class _Level(NamedTuple):
    """What a walk may spend, and on how many records."""

    records: int
    delta: float
    alpha: float

    def allowances(self, epsilon: FloatArray) -> tuple[IntArray, FloatArray]:
        """For each ε the right guesses that δ may account for, and P[it accounts for more]."""
        mean = self.records * self.delta * special.expit(-epsilon)
        allowed = np.maximum(np.ceil(mean / (_DELTA_SHARE * self.alpha)) - 1, 0).astype(np.int64)
        return allowed, mean / (allowed + 1)


def fewest_right(evidence: OneRun) -> tuple[IntArray, IntArray]:
    """For every number c: at least how many of the c highest are in, and at least how many of the c lowest are out.

    Among records of equal score the wrong guesses are taken to come first.
    """
    scores, inside = evidence.scores, evidence.included
    highest = np.lexsort((inside, -scores))  # of equal scores those that are out come first
    lowest = np.lexsort((~inside, scores))
    right = inside[highest], ~inside[lowest]
    return tuple(np.concatenate([[0], np.cumsum(part)]) for part in right)  # type: ignore[return-value]


def _best_look(order: str, points: IntArray, correct: IntArray, level: _Level) -> Walk:
    """Reject band after band of ε, each at its own level, and stop at the first ε that stands."""
    edges = np.array(walk.BAND_EDGES)
    allowed, cost = level.allowances(edges)  # at the lower edge of a band, where the coupling costs most
    levels = walk.local_levels(int(points[-1]), level.alpha - cost)
    counted = np.maximum(correct - allowed[:, None], 0)
    tried = _promising(points, counted, levels[:, None])
    reach = logit_bound(points[tried], np.take_along_axis(counted, tried, 1), levels[:, None])
    look = np.argmax(reach, axis=1)
    best = Walk(0.0, order, 0, 0, 0, 0.0)
    for band, floor in enumerate(edges):
        top, at = float(reach[band, look[band]]), tried[band, look[band]]
        ceiling = edges[band + 1] if band + 1 < edges.size else np.inf
        if top <= floor:
            break
        epsilon = float(min(top, ceiling))
        best = Walk(epsilon, order, int(points[at]), int(correct[at]), int(allowed[band]), float(levels[band]))
        if top < ceiling:
            break
    return best


def _promising(points: IntArray, correct: IntArray, level: FloatArray, most: int = 8) -> IntArray:
    """In each row the checkpoints with the highest Wilson limits: leaving one out can only lower the bound."""
    if points.size <= most:
        return np.broadcast_to(np.arange(points.size), correct.shape)
    z2 = special.ndtri(np.clip(level, 1e-300, 0.5)) ** 2
    share = correct / points
    spread = np.sqrt(z2 * (share * (1 - share) / points + z2 / (4.0 * points**2)))
    wilson = (share + z2 / (2 * points) - spread) / (1 + z2 / points)
    return np.argpartition(-wilson, most, axis=1)[:, :most]


def logit_bound(guesses: Any, correct: Any, level: float | FloatArray) -> FloatArray:
    """logit B(level; v, r−v+1), the largest ε with P[Bin(r, q) ≥ v] ≤ level; −∞ where v = 0. Vectorised."""
    r, v = np.asarray(guesses, float), np.asarray(correct, float)
    inner = np.maximum(v, 1.0)
    miss = special.betainccinv(np.maximum(r, 1.0) - inner + 1.0, inner, level)  # 1 − q itself: q may round to 1
    with np.errstate(divide="ignore"):
        value = np.log1p(-miss) - np.log(miss)
    return np.where(v < 1, -np.inf, value)


@lru_cache(maxsize=4096)
def largest_provable(records: int, delta: float, alpha: float, *, order: str = "mixed") -> float:
    """The bound that a perfect attack on this many audit records would get."""
    points = walk.checkpoints(records)[-1:]  # all right: the more guesses, the better
    return max(
        _best_look(name, points, points, _Level(records, delta * _delta_factor(name), share * alpha)).epsilon
        for name, share in _SHARES[order].items()
    )


class Guesses(NamedTuple):
    """The guesses of a one-run audit at a fixed number of guesses, and how many were right."""

    k_in: int
    k_out: int
    correct: int
    cut_tied: bool


# --- guesses at a fixed number, decided without the labels -------------------------------------------------
def guess(evidence: OneRun, *, k_in: int, k_out: int) -> Guesses:
    """Guess "in" for the k_in highest scores and "out" for the k_out lowest; count the right ones.

    Where a cut parts equal scores, as few of them as possible are taken to be right.
    """
    right_in, right_out = fewest_right(evidence)
    ordered, total = np.sort(evidence.scores)[::-1], evidence.total
    cuts = [cut for cut in (k_in, total - k_out) if 0 < cut < total]
    tied = any(bool(ordered[cut - 1] == ordered[cut]) for cut in cuts)
    return Guesses(k_in, k_out, int(right_in[k_in] + right_out[k_out]), tied)
