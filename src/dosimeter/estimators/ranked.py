"""The exact ranked walk: a lower bound on ε that is valid over every number of guesses at once.

Records are ordered by a confidence that the labels have no part in. If the labels are independent fair coins and
the mechanism is ε-DP, each guess is right with conditional probability ≤ q = e^ε/(1+e^ε), so the path of right
guesses lies below a Bernoulli(q) walk, whatever the scores are. ε is rejected where the path passes a limit that such a
walk passes with probability ≤ α (`walk.py`).

With δ > 0 a guess may beat q. Couple each guess with one of success ≤ q: the expected number J of guesses that are
right only through δ is at most m·δ/(1+e^ε), half of that if all guesses are of one kind. So the path less an
allowance j lies below the walk except with probability P[J > j], and the level pays for that. In one run J may be
anything with this mean (Markov: mean/(j+1)); records of two independent samples make it binomial. j is fixed by m, δ, α
and ε alone.

Orders, all by rank alone, so that an increasing transform of the scores changes nothing: `in` guesses "member" from the
highest score downwards, `out` "non-member" from the lowest upwards; `two-sided` does both in turn; `mixed` runs all
three, on 70, 15 and 15 % of the level, and keeps the best one.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from dosimeter import _validate as check
from dosimeter._validate import FloatArray, InputError, IntArray
from dosimeter.estimate import Estimate, Validity, number, percent
from dosimeter.estimators import walk
from dosimeter.evidence import OneRun, Scores

ORDERS = ("mixed", "two-sided", "in", "out")
_SHARES = {
    "mixed": {"two-sided": 0.7, "in": 0.15, "out": 0.15},
    "two-sided": {"two-sided": 1.0},
    "in": {"in": 1.0},
    "out": {"out": 1.0},
}
_POOL_RISK = 0.05  # largest share of draws of fair coins that two finite pools may fail to serve
_DELTA_SHARE = 0.5  # the allowance is the least one whose failure costs no more than this share of the level


class Game(NamedTuple):
    """Scores of records whose membership was decided by fair coins, lowest first; P[the coins could be served]."""

    members: FloatArray
    nonmembers: FloatArray
    served: float
    independent: bool

    @property
    def records(self) -> int:
        return self.members.size + self.nonmembers.size


class Walk(NamedTuple):
    """The ε below which a walk rejects everything, and the look that did it."""

    epsilon: float
    order: str
    guesses: int
    correct: int
    allowance: int
    local_level: float


def ranked(
    evidence: Scores | OneRun,
    *,
    delta: float = 0.0,
    confidence: float = 0.95,
    order: str = "mixed",
    seed: int = 0,
) -> Estimate:
    """A lower bound on ε, valid although the number of guesses is chosen on the data.

    Two samples (`Scores`) are first turned into a game with fair coins: the number of members is drawn from the
    binomial distribution and both pools are subsampled by `seed`. Tied scores are ordered at random by `seed`.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> round(ranked(Scores(rng.normal(1, 1, 1000), rng.normal(0, 1, 1000))).low, 1)
    1.9
    """
    delta, confidence = check.delta(delta), check.confidence(confidence)
    order, seed = check.choice("order", order, ORDERS), check.seed(seed)
    rng = np.random.default_rng(np.random.SeedSequence(seed))
    game = _game(evidence, rng)
    alpha = (1 - confidence) * game.served
    walks = _walks(game, delta, alpha, order, rng)
    best = max(walks, key=lambda w: w.epsilon)
    return proven(
        best.epsilon,
        delta,
        confidence,
        "ranked",
        Validity.FINITE_SAMPLE if isinstance(evidence, OneRun) else Validity.INDEPENDENT_RUNS,
        " This holds for every number of guesses at once." if best.epsilon > 0 else "",
        warnings=evidence.mask_warnings if isinstance(evidence, OneRun) else (),
        details={
            "order": best.order,
            "guesses": best.guesses,
            "correct": best.correct,
            "records": game.records,
            "local_level": best.local_level,
            "allowance": best.allowance,
            "largest_provable": largest_provable(game.records, delta, alpha, independent=game.independent, order=order),
            "walks": {w.order: w.epsilon for w in walks},
            "seed": seed,
        },
    )


def claim_of_bound(epsilon: float, delta: float, confidence: float) -> str:
    """The sentence of a proven lower bound."""
    at = f"δ = {delta:g}"
    if epsilon <= 0:
        return (
            f"At {at} the attack proves no privacy loss with {percent(confidence)} confidence (ε ≥ 0); "
            "that is not proof of privacy."
        )
    return f"With {percent(confidence)} confidence the privacy loss is at least ε = {number(epsilon)} at {at}."


def proven(
    low: float, delta: float, confidence: float, method: str, validity: Validity, addition: str, **fields: Any
) -> Estimate:
    """The estimate of a lower bound: nothing bounds ε from above, and its sentence goes on with the addition."""
    claim = claim_of_bound(low, delta, confidence) + addition
    return Estimate(low, low, np.inf, delta, confidence, method, validity, claim, **fields)


def _game(evidence: Scores | OneRun, rng: np.random.Generator) -> Game:
    if isinstance(evidence, OneRun):
        scores, inside = evidence.scores, evidence.included
        return Game(np.sort(scores[inside]), np.sort(scores[~inside]), 1.0, independent=False)
    if not isinstance(evidence, Scores):
        raise InputError(f"evidence must be Scores or OneRun, got {type(evidence).__name__}; build one of these first.")
    members, nonmembers = evidence.members.size, evidence.nonmembers.size
    records, served = drawable(members, nonmembers)
    drawn = rng.binomial(records, 0.5)
    while not records - nonmembers <= drawn <= members:  # the level pays for this: it is multiplied by `served`
        drawn = rng.binomial(records, 0.5)
    return Game(
        _thin(evidence.sorted_members, drawn, rng),
        _thin(evidence.sorted_nonmembers, records - drawn, rng),
        served,
        independent=True,
    )


def drawable(members: int, nonmembers: int) -> tuple[int, float]:
    """The most records for which fair coins can be served from two pools, but for 5 % of draws; P[served]."""

    def served(records: int) -> float:
        tail_high = special.bdtr(members, records, 0.5) if members < records else 1.0
        low = records - nonmembers - 1
        return float(tail_high - (special.bdtr(low, records, 0.5) if low >= 0 else 0.0))

    low, high = 1, min(members + nonmembers, 2 * min(members, nonmembers) + 1)
    while low < high:
        middle = (low + high + 1) // 2
        if served(middle) >= 1 - _POOL_RISK:
            low = middle
        else:
            high = middle - 1
    return low, served(low)


def _thin(ordered: FloatArray, keep: int, rng: np.random.Generator) -> FloatArray:
    """A uniformly random subset of `keep` values of a sorted array, still sorted."""
    drop = rng.choice(ordered.size, ordered.size - keep, replace=False, shuffle=False)
    return np.delete(ordered, drop) if drop.size else ordered


def _walks(game: Game, delta: float, alpha: float, order: str, rng: np.random.Generator) -> list[Walk]:
    points = walk.checkpoints(game.records)
    names = list(_SHARES[order])
    tops = [_tops(name, points) for name in names]
    cuts = np.concatenate([cut for top in tops for cut in (top, game.records - (points - top))])
    found = _members_among_top(game, cuts, rng).reshape(len(names), 2, points.size)
    return [
        _best_look(
            name,
            points,
            hits + (points - top) - (game.members.size - rest),  # right "in" guesses + right "out" guesses
            _Level(game.records, delta * _delta_factor(name), _SHARES[order][name] * alpha, game.independent),
        )
        for name, top, (hits, rest) in zip(names, tops, found, strict=True)
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
    independent: bool

    def allowances(self, epsilon: FloatArray) -> tuple[IntArray, FloatArray]:
        """For each ε the right guesses that δ may account for, and P[it accounts for more]."""
        rate = self.delta * special.expit(-epsilon)
        budget = _DELTA_SHARE * self.alpha
        if not self.independent:
            mean = self.records * rate
            allowed = np.maximum(np.ceil(mean / budget) - 1, 0).astype(np.int64)
            return allowed, mean / (allowed + 1)

        def excess(j: IntArray) -> FloatArray:
            inside = np.minimum(j, self.records - 1)
            return np.where(j >= self.records, 0.0, special.betainc(inside + 1, self.records - inside, rate))

        low, high = np.full(rate.shape, -1), np.zeros(rate.shape, np.int64)
        while np.any(short := excess(high) > budget):
            low, high = np.where(short, high, low), np.where(short, 2 * high + 1, high)
        while np.any(high - low > 1):
            middle = (low + high) // 2
            good = excess(middle) <= budget
            high, low = np.where(good, middle, high), np.where(good, low, middle)
        return high, excess(high)


def _members_among_top(game: Game, cuts: IntArray, rng: np.random.Generator) -> IntArray:
    """How many members are among the c highest scores, for each cut c; ties that a cut parts are ordered at random."""
    members, nonmembers = game.members, game.nonmembers
    below = game.records - cuts
    # i of the `below` lowest records are members: the least i whose next member is not under the last non-member
    low, high = np.maximum(below - nonmembers.size, 0), np.minimum(below, members.size)
    while np.any(low < high):
        middle = (low + high) // 2
        enough = nonmembers[np.maximum(below - middle - 1, 0)] <= members[np.minimum(middle, members.size - 1)]
        active = low < high
        high, low = np.where(active & enough, middle, high), np.where(active & ~enough, middle + 1, low)
    i, j = low, below - low
    pad = np.array([-np.inf]), np.array([np.inf])
    m_below, m_above = np.concatenate([pad[0], members])[i], np.concatenate([members, pad[1]])[i]
    n_below, n_above = np.concatenate([pad[0], nonmembers])[j], np.concatenate([nonmembers, pad[1]])[j]
    edge = np.minimum(m_above, n_above)
    parted = (edge == np.maximum(m_below, n_below)) & np.isfinite(edge)
    both = ((m_below == edge) | (m_above == edge)) & ((n_below == edge) | (n_above == edge))
    if not np.any(parted & both):
        return members.size - i
    pooled = np.concatenate([members, nonmembers])
    order = np.lexsort((rng.random(pooled.size), pooled))
    positions = np.flatnonzero(order < members.size)
    return members.size - np.searchsorted(positions, below)


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
    """In each row the looks with the highest Wilson limits: one that is left out can only make the bound lower."""
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
def largest_provable(records: int, delta: float, alpha: float, *, independent: bool, order: str = "mixed") -> float:
    """The bound that a perfect attack on this many records of the game would get."""
    points = walk.checkpoints(records)[-1:]  # all right: the more guesses, the better
    return max(
        _best_look(
            name, points, points, _Level(records, delta * _delta_factor(name), share * alpha, independent)
        ).epsilon
        for name, share in _SHARES[order].items()
    )
