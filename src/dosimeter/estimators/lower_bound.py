"""The headline: one lower bound on ε for any scores, valid as called."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

import numpy as np
from scipy import special

from dosimeter import _validate as check
from dosimeter._validate import InputError
from dosimeter.estimate import Estimate, Validity, number, odds_of, proven
from dosimeter.estimators.headline import VERSION, Bins, Proof, coins_bound, pools_bound, rank_bins
from dosimeter.estimators.headline.ranks import binomial, noncentral, upper_tail
from dosimeter.evidence import OneRun, Scores

NEIGHBOURS = ("add/remove", "replace")
METHOD = "lower-bound"


def lower_bound(
    evidence: Scores | OneRun, *, delta: float = 0.0, confidence: float = 0.95, neighbours: str | None = None
) -> Estimate:
    """Bound ε from below: the number to report.

    It uses pooled ranks alone, so neither the order of the rows nor an increasing transform of the scores changes a
    digit; nothing is drawn at random, and equal scores count as one group. What it bounds depends on the evidence:

    - `OneRun`: labels are fair coins. The bound is for adding or removing one record, whatever the records are.
    - `Scores` of one model: labels are a random split. The bound is for replacing one record by default; the same
      evidence gives one for adding or removing a record, which is about half as large.
    - `Scores(independent=True)`: the bound is for the two worlds that the runs were drawn from, by default with
      and without the record.

    Args:
        evidence: Scores with what is known about their labels.
        delta: The δ of the guarantee that is tested.
        confidence: The confidence of the bound.
        neighbours: Whose ε: "replace" or "add/remove".

    Returns:
        The bound. `details["bins"]` holds the counts that it was computed from.

    Raises:
        InputError: If the evidence cannot give a bound for these neighbours.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> lower_bound(Scores(rng.normal(1, 1, 1000), rng.normal(0, 1, 1000)), delta=1e-5).low
    3.28
    """
    delta, confidence = check.delta(delta), check.confidence(confidence)
    if not isinstance(evidence, (Scores, OneRun)):
        raise InputError(f"evidence must be Scores or OneRun, got {type(evidence).__name__}; build one of these first.")
    game = game_of(evidence)
    relation = _relation(evidence, neighbours)
    scores, member = _pooled(evidence)
    bins = rank_bins(scores, member)
    found = bound_of_bins(bins, game, relation, delta=delta, confidence=confidence, unit=evidence.unit)
    return replace(found, warnings=_warnings(evidence, scores, member))


def proven_epsilon(
    evidence: Scores | OneRun, *, delta: float = 0.0, confidence: float = 0.95, neighbours: str | None = None
) -> float:
    """The `low` of `lower_bound` alone: its ceiling and its sentences take most of the time, and many need neither."""
    bins = rank_bins(*_pooled(evidence))
    return prove(bins, game_of(evidence), _relation(evidence, neighbours), delta, 1 - confidence).epsilon


def bound_of_bins(
    bins: Bins, game: str, neighbours: str, *, delta: float, confidence: float, unit: str = "record"
) -> Estimate:
    """The whole estimate as a function of counts in bins of ranks: what a verifier compares an audit with."""
    proof = prove(bins, game, neighbours, delta, 1 - confidence)
    # Coins could have fallen otherwise: a perfect attack is taken on as many records, half of them members.
    members = bins.total // 2 if game == "coins" else int(bins.members.sum())
    most = max(proof.epsilon, largest_provable(members, bins.total, game, neighbours, delta, 1 - confidence))
    return proven(
        proof.epsilon,
        delta,
        confidence,
        METHOD,
        VALIDITY[game],
        _in_counts(proof, game, neighbours, "run" if game == "runs" else unit, confidence, most),
        neighbours=neighbours,
        unit=unit,
        details={
            "game": game,
            "unit": unit,
            "records": bins.total,
            "tested": {
                "upper": proof.upper,
                "upper_members": proof.upper_members,
                "lower": proof.lower,
                "lower_members": proof.lower_members,
            },
            "learned": proof.learned,
            "allowance": proof.allowance,
            "largest_provable": most,
            "version": VERSION,
            "bins": {"records": bins.records.tolist(), "members": bins.members.tolist()},
        },
    )


VALIDITY = {
    "coins": Validity.FINITE_SAMPLE,
    "split": Validity.RANDOM_SPLIT,
    "runs": Validity.INDEPENDENT_RUNS,
}


def game_of(evidence: Scores | OneRun) -> str:
    """How the labels came about: "coins", a random "split", or independent "runs"."""
    if isinstance(evidence, OneRun):
        return "coins"
    return "runs" if evidence.independent else "split"


def prove(bins: Bins, game: str, neighbours: str, delta: float, alpha: float) -> Proof:
    """The bound as a function of counts in bins of ranks: what a verifier recomputes.

    A run of its own for each record makes the law of all scores a product: the bound is for the two worlds of a run,
    whatever these are.
    """
    if game == "coins":
        return coins_bound(bins, delta, alpha)
    return pools_bound(bins, delta, alpha, neighbours, independent=game == "runs")


def _relation(evidence: Scores | OneRun, neighbours: str | None) -> str:
    if neighbours is None:
        return "replace" if isinstance(evidence, Scores) and not evidence.independent else "add/remove"
    relation = check.choice("neighbours", neighbours, NEIGHBOURS)
    if isinstance(evidence, OneRun) and relation == "replace":
        raise InputError(
            "neighbours is 'replace', but coins add or remove records; leave it out, "
            "or pass evidence.as_scores() if the records are exchangeable."
        )
    return relation


def _pooled(evidence: Scores | OneRun) -> tuple[check.FloatArray, check.BoolArray]:
    if isinstance(evidence, OneRun):
        return evidence.scores, evidence.included
    scores = np.concatenate([evidence.members, evidence.nonmembers])
    return scores, np.arange(scores.size) < evidence.members.size


@lru_cache(maxsize=4096)
def largest_provable(members: int, total: int, game: str, neighbours: str, delta: float, alpha: float) -> float:
    """The bound that a perfect attack on as many records would get, with scores of two values or all different.

    Neither is always the larger one: different scores teach the test its weights, but cost it records.
    """
    scores = np.arange(float(total))
    member = scores >= total - members
    perfect = (rank_bins(scores, member), rank_bins(member.astype(float), member))
    return max(prove(bins, game, neighbours, delta, alpha).epsilon for bins in perfect)


_NEAR = 0.95  # of what a perfect attack proves: ties among its scores move that by a few per cent


def _speak_alone(proof: Proof, game: str, neighbours: str, confidence: float) -> bool:
    """Whether the counts, each record counted once, are as unlikely as is said: what a reader can look up in a table.

    The test gives more weight to records further out, so they may not be.
    """
    if game == "coins":
        law, seen = binomial(proof.tested, float(special.expit(proof.epsilon))), proof.right
    else:
        theta = math.exp(proof.epsilon if game == "split" and neighbours == "replace" else 2 * proof.epsilon)
        members = proof.upper_members + proof.lower_members
        law, seen = noncentral(proof.upper, proof.lower, members, theta), proof.upper_members
    return upper_tail([(1, law)], seen) <= 1 - confidence + 1e-9


def _in_counts(proof: Proof, game: str, neighbours: str, unit: str, confidence: float, most: float) -> str:
    """What the bound rests on, in counts that can be looked up, and how far it could have gone."""
    if most <= 0:
        return f" So few {unit}s cannot prove any."
    if proof.epsilon <= 0:
        return f" A perfect attack on so many {unit}s could have proven ε ≥ {number(most)}."
    if game == "coins":
        seen = (
            f"It rests on the {proof.tested} {unit}s with the most extreme scores, "
            f"of which the attack guessed {proof.right} right"
        )
    else:
        seen = (
            f"It rests on {proof.tested} {unit}s: of the {proof.upper} ranked higher, {proof.upper_members} were "
            f"members, of the {proof.lower} ranked lower, {proof.lower_members}"
        )
    if not _speak_alone(proof, game, neighbours, confidence):
        seen += f"; the further out a {unit}'s score, the more it counts"
    text = f" {seen}; with ε ≤ {number(proof.epsilon)} evidence this strong comes up in at most {odds_of(confidence)}."
    if proof.epsilon >= _NEAR * most:
        text += f" This is close to the most that an audit of so many {unit}s can prove."
    return text


_REVERSED = 5.0  # standard errors below one half, which is not chance at any size


def _warnings(evidence: Scores | OneRun, scores: check.FloatArray, member: check.BoolArray) -> tuple[str, ...]:
    found = evidence.mask_warnings if isinstance(evidence, OneRun) else ()
    inside = int(member.sum())
    outside = member.size - inside
    auc = (evidence if isinstance(evidence, Scores) else evidence.as_scores()).auc
    error = ((member.size + 1) / (12 * inside * outside)) ** 0.5  # of the rank sum where nothing leaks
    if auc < 0.5 - _REVERSED * error:
        found = (
            *found,
            f"the scores look the wrong way round: members have lower scores than non-members (AUC {auc:.2f}); higher "
            "must mean member, so negate them, or pass losses as losses",
        )
    return found
