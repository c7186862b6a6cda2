"""Measurements and conditional bounds: ε̃, bounds from propensities, the ε of sensitivities and of an advantage."""

from __future__ import annotations

import math

import numpy as np

from dosimeter import geometry
from dosimeter._validate import InputError
from dosimeter.audits.members_only.measure import LEVEL, auc_limit, prediction_limit
from dosimeter.audits.result import Audit
from dosimeter.audits.verify.evidence import (
    AdversaryEvidence,
    MembersOnlyNotes,
    PanoramiaEvidence,
    PropensityEvidence,
    SensitivityEvidence,
    Side,
    Throws,
    of,
    read,
)
from dosimeter.audits.verify.finding import Recomputed, UnknownError, WrongError, close, lower
from dosimeter.estimate import Estimate, Validity, number, plain
from dosimeter.estimators.belief import Advantage, epsilon_from_advantage
from dosimeter.estimators.propensity import EDGES, MOST_STEPS, GuessTable, bound_of_table
from dosimeter.estimators.ranked import logit_bound, walks_on

__all__ = ["adversary", "panoramia", "propensity", "sensitivities"]


def panoramia(e: Estimate, audit: Audit) -> Recomputed:
    """ε̃, or the bound of an attack on real non-members, which has no baseline."""
    level, evidence = 1 - e.confidence, of(PanoramiaEvidence, e)
    if evidence.throw_counts is not None:
        return _throws(e, evidence, evidence.throw_counts, audit, level / 2)
    if evidence.attack is None:
        raise UnknownError("it carries no guesses")
    naive = evidence.selection == "naive"
    if evidence.baseline is None:
        exact = (Validity.RANDOM_SPLIT, Validity.FINITE_SAMPLE)
        bound = _strength(evidence.attack, evidence, level)
        return lower(bound, (Validity.EXPLORATORY,) if naive else exact)
    both, without = (_strength(side, evidence, level / 2) for side in (evidence.attack, evidence.baseline))
    allowed = Validity.EXPLORATORY if naive else Validity.MEASUREMENT
    return Recomputed(max(0.0, both - without), 0.0, math.inf, (allowed,))


def _strength(side: Side, evidence: PanoramiaEvidence, level: float) -> float:
    """The bound of one set of scores from its guesses, or from its walk."""
    if evidence.selection == "ranked":
        if side.path is None:
            raise UnknownError("it carries no path of right guesses")
        walks = walks_on({"in": np.array(side.path, np.int64)}, evidence.records, 0.0, level)
        return max(w.epsilon for w in walks)
    if side.correct > side.guesses:
        raise WrongError("more guesses are right than were made")
    return max(0.0, float(logit_bound(side.guesses, side.correct, level)))


def _throws(e: Estimate, evidence: PanoramiaEvidence, throws: Throws, audit: Audit, level: float) -> Recomputed:
    """ε̃ from medians over the draws of the coins, 0 unless the attack stands out from the reference models."""
    if evidence.selection == "ranked":
        raise UnknownError("a walk for each draw of the coins would have to be kept")
    medians = []
    for pairs in (throws.baseline, throws.attack):
        table = np.array(pairs, np.int64)
        if (table[:, 1] > table[:, 0]).any():
            raise WrongError("throw_counts must be pairs of guesses and right ones")
        medians.append(float(np.median(np.maximum(0.0, logit_bound(table[:, 0], table[:, 1], level)))))
    stated = {"c_lb": evidence.c_lb, "c_plus_epsilon_lb": evidence.c_plus_epsilon_lb}
    for (name, here), there in zip(stated.items(), medians, strict=True):
        if here is None or not close(here, there):
            raise WrongError(f"{name} is stated as {here}, the draws give {number(there)}")
    passed = _stands_out(e, evidence, audit)
    if (evidence.stands_out is True) != passed:
        raise WrongError(f"stands_out is stated as {evidence.stands_out}, the reference models say the opposite")
    guesses = max(made for made, _ in throws.attack)
    most = max(0.0, float(logit_bound(guesses, guesses, level)) - medians[0])
    value = max(0.0, medians[1] - medians[0]) if passed else 0.0
    validity = Validity.EXPLORATORY if evidence.selection == "naive" else Validity.MEASUREMENT
    return Recomputed(value, 0.0, math.inf, (validity,), None, most, "its counts in each draw of the coins give it")


def _stands_out(e: Estimate, evidence: PanoramiaEvidence, audit: Audit) -> bool:
    notes = read(MembersOnlyNotes, plain(audit.details), "the audit's details")
    verdict, null = evidence.verdict, notes.null
    if (verdict is None) != (null is None):
        raise WrongError("it needs both a verdict and the values of the reference models, or neither")
    if verdict is None or null is None:
        if evidence.null_p_value is None:
            raise UnknownError("it carries neither reference models nor a p-value")
        return evidence.null_p_value <= 1 - e.confidence
    rows = [row for row in notes.targets if row.name == evidence.target]
    if len(rows) != 1 or (rows[0].auc, rows[0].first_part) != (verdict.auc, verdict.first_part):
        raise WrongError("the verdict and the target's row speak of different values")
    level = min(1 - e.confidence, LEVEL) / 2
    firsts = np.array(null.first_part, float)
    rate = float(firsts.mean())
    floor = math.sqrt(max(rate * (1 - rate), 0.0) / evidence.records)
    limits = (
        auc_limit(null.auc, level, records=evidence.records, smaller=null.smaller_auc, more=null.more),
        prediction_limit(firsts, level, floor=floor, smaller=null.smaller_first_part, more=null.more),
    )
    return bool(verdict.auc > limits[0] or verdict.first_part > limits[1])


def propensity(e: Estimate, _audit: Audit) -> Recomputed:
    """The bound of weighted guesses whose chances before the model are known."""
    evidence = of(PropensityEvidence, e)
    if len({len(column) for column in evidence.table}) != 1:
        raise WrongError("its table must be four lists of one length")
    table = GuessTable(*(np.array(column, np.int64) for column in evidence.table))
    wrong = (table.block < 0) | (table.block > len(EDGES)) | (np.abs(table.step) > MOST_STEPS + 1)
    wrong |= (table.right < 0) | (table.right > table.guesses) | (table.guesses < 1)
    if wrong.any() or int(table.guesses.sum()) > evidence.records:
        raise WrongError("its table must hold at most one guess for each record, and no more right ones than guesses")
    level = 1 - e.confidence - evidence.spent
    bound = bound_of_table(table, records=evidence.records, delta=e.delta, level=level, slack=evidence.slack)
    allowed = ("replace", "add/remove")
    return lower(bound.epsilon, (Validity.CONDITIONAL,), allowed, None, "its guesses and their chances give it")


def sensitivities(e: Estimate, _audit: Audit) -> Recomputed:
    """The ε of the smallest and the largest μ that the sensitivities gave."""
    evidence = of(SensitivityEvidence, e)
    if evidence.accountant == "rdp":
        raise UnknownError("the accountant's orders would have to be kept")
    if evidence.mu is None:
        raise UnknownError("it carries no μ")
    ends = evidence.mu.lowest, math.inf if evidence.mu.highest is None else evidence.mu.highest
    low, high = (float(geometry.epsilon_from_mu(mu, e.delta)) for mu in ends)
    return Recomputed(high, low, high, (Validity.MEASUREMENT,), reason="the stated μ gives it")


def adversary(e: Estimate, _audit: Audit) -> Recomputed:
    """The ε of a stated advantage."""
    evidence = of(AdversaryEvidence, e)
    notes = evidence.advantage
    if e.method != f"advantage, {notes.estimator}" or notes.confidence != e.confidence:
        raise WrongError("its evidence is that of another advantage")
    error = math.inf if notes.standard_error is None else notes.standard_error
    if error < 0 or not -1 <= notes.low <= notes.value <= notes.high <= 1:
        raise WrongError("its advantage must lie within its interval, and that within [-1, 1]")
    stated = Advantage(
        value=notes.value,
        low=notes.low,
        high=notes.high,
        standard_error=error,
        confidence=notes.confidence,
        estimator=notes.estimator,
        repetitions=notes.repetitions,
        both_worlds=notes.both_worlds,
    )
    try:
        again = epsilon_from_advantage(stated, delta=e.delta, conversion=evidence.conversion)
    except InputError as error_:
        raise WrongError(str(error_)) from None
    return Recomputed(again.epsilon, again.low, again.high, (again.validity,), reason="the stated advantage gives it")
