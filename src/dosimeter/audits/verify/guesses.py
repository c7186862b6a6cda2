"""Bounds from guesses about coins: a number of guesses fixed in advance, bets, and tests of claims."""

from __future__ import annotations

import math

import numpy as np

from dosimeter import geometry
from dosimeter.accounting.claims import Guessed, Looked, epsilon_at, least_noise, of_parts
from dosimeter.audits.result import Audit
from dosimeter.audits.verify.evidence import BetEvidence, ClaimEvidence, FamilyEvidence, FixedGuesses, of
from dosimeter.audits.verify.finding import Recomputed, UnknownError, WrongError, lower
from dosimeter.audits.verify.ranks import from_bins, from_paths
from dosimeter.estimate import Estimate, Validity
from dosimeter.estimators.claim import Marks, claim
from dosimeter.estimators.limits import band_limits
from dosimeter.estimators.one_run import one_run_bound, one_run_mu_bound
from dosimeter.estimators.ranked import betting_bound
from dosimeter.estimators.rates import Looks
from dosimeter.evidence import OneRun

__all__ = ["bets", "claimed", "in_family", "one_run"]

MOST_RUNS = 10**6  # for which a perfect attack on a claim is tried


def one_run(e: Estimate, audit: Audit) -> Recomputed:
    """A bound from one run, by how its guesses were selected."""
    selection = e.details.get("selection")
    if selection == "learned":
        return from_bins(e, audit)
    if selection == "ranked":
        return from_paths(e, audit)
    if selection != "fixed":
        raise UnknownError("it does not say how its guesses were selected")
    evidence = of(FixedGuesses, e)
    made, only_in = evidence.k_in + evidence.k_out, min(evidence.k_in, evidence.k_out) == 0
    if e.method == "one-run f-DP":
        mu = one_run_mu_bound(records=evidence.records, guesses=made, correct=evidence.correct, confidence=e.confidence)
        return lower(float(geometry.epsilon_from_mu(mu, e.delta)), (Validity.ASSUMES_GAUSSIAN,), ("add/remove",))
    low, most = (
        one_run_bound(
            records=evidence.records,
            guesses=made,
            correct=correct,
            delta=e.delta,
            confidence=e.confidence,
            term=evidence.term,
            only_in=only_in,
        )
        for correct in (evidence.correct, made)
    )
    return lower(low, (Validity.FINITE_SAMPLE,), ("add/remove",), most)


def bets(e: Estimate, _audit: Audit) -> Recomputed:
    """A bound from bets down the ranking."""
    evidence = of(BetEvidence, e)
    right, wrong = np.array(evidence.corners.right, float), np.array(evidence.corners.wrong, float)
    if right.size != wrong.size or (np.diff(right) < 0).any() or (np.diff(wrong) < 0).any():
        raise WrongError("corners must be counts of right and wrong guesses that do not fall")
    missed = evidence.guesses - evidence.correct
    made = evidence.correct <= evidence.guesses <= evidence.records and (
        not right.size or (right[-1] <= evidence.correct and wrong[-1] <= missed)
    )
    if not made:
        raise WrongError("corners hold more guesses than were made")
    level, records = 1 - e.confidence, evidence.records
    low = betting_bound(right, wrong, records, e.delta, level).epsilon
    top = betting_bound(np.array([float(records)]), np.zeros(1), records, e.delta, level).epsilon
    return lower(low, (Validity.FINITE_SAMPLE,), ("add/remove",), top, "its corners of right guesses give it")


def claimed(e: Estimate, _audit: Audit) -> Recomputed:
    """What the test of a claim has rejected."""
    evidence = of(ClaimEvidence, e)
    runs = np.array(evidence.marks.runs, float)
    try:
        counts = np.array(evidence.marks.counts, float)
    except ValueError:
        raise WrongError("marks must hold as many counts for each number of runs") from None
    if counts.ndim != 4 or counts.shape[:3] != (runs.size, 2, 2):
        raise WrongError("marks must hold counts for each of their numbers of runs")
    if (counts.sum(axis=1) > runs[:, None, None]).any() or runs.max() > evidence.runs:
        raise WrongError("marks hold more hits than there were runs")
    if evidence.pairs[0] != (evidence.claimed_epsilon, e.delta):
        raise WrongError("the first of the pairs must be the claim itself")
    marks, goal = Marks(runs, counts), -math.log1p(-e.confidence)
    if (marks.wealth(evidence.pairs) >= goal) != evidence.rejected:
        said = "rejected" if evidence.rejected else "kept"
        raise WrongError(f"the claim is stated as {said}, the bets say the opposite")
    low = marks.bound(evidence.claimed_epsilon, e.delta, goal)
    most = _most_of_claim(evidence.runs, evidence.claimed_epsilon, e.delta, e.confidence)
    return lower(low, (Validity.INDEPENDENT_RUNS,), None, most, "the bets at its marks give it")


def in_family(e: Estimate, _audit: Audit) -> Recomputed:
    """The ε of the smallest noise that one run rejects, in the family of the mechanism that it was tested against."""
    evidence, level = of(FamilyEvidence, e), 1 - e.confidence
    if evidence.independent:
        if e.counts is None or e.counts.members + e.counts.nonmembers != evidence.records:
            raise WrongError("it needs counts of all records at its threshold")
        fpr = band_limits(np.array([e.counts.fp]), e.counts.nonmembers, level / 2)
        fnr = band_limits(np.array([e.counts.fn]), e.counts.members, level / 2)
        test: Looked | Guessed = Looked(Looks(np.zeros(1), fpr, fnr))
    else:
        if not evidence.looks or not all(
            correct <= k_in + k_out <= evidence.records and k_in + k_out for k_in, k_out, correct in evidence.looks
        ):
            raise WrongError("looks must hold guesses of each kind and how many were right")
        test = Guessed(evidence.records, evidence.looks, level)
    mechanism = of_parts(evidence.parts)
    least = least_noise(mechanism, test.rejects)
    if least.rejected != evidence.rejected:
        said = "rejected" if evidence.rejected else "kept"
        raise WrongError(f"the claimed mechanism is stated as {said}, the counts say the opposite")
    low = 0.0 if least.scale is None else epsilon_at(mechanism, least.scale, e.delta)
    return lower(low, (Validity.ASSUMES_FAMILY,), ("add/remove",))


def _most_of_claim(runs: int, epsilon: float, delta: float, confidence: float) -> float:
    """What a perfect attack would have shown in as many runs, with scores of two values or of many."""
    if runs > MOST_RUNS:
        return math.inf
    coins = np.arange(runs) % 2 == 0
    if not 0 < coins.sum() < runs:
        return 0.0
    ranking = [spread * np.arange(runs) / runs + 2.0 * coins for spread in (0.0, 1.0)]
    return max(
        claim(OneRun(scores, coins), epsilon=epsilon, delta=delta, confidence=confidence).low for scores in ranking
    )
