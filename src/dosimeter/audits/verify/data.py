"""The evidence of an audit itself, from the scores that it was counted in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dosimeter._validate import InputError
from dosimeter.audits.assemble import roc
from dosimeter.audits.result import Audit, Roc
from dosimeter.audits.verify.evidence import (
    AtThreshold,
    ClaimEvidence,
    FixedGuesses,
    PathEvidence,
    of,
)
from dosimeter.audits.verify.finding import Finding, WrongError, close, finding_of
from dosimeter.audits.verify.rates import NATURAL, ON_ONE_HALF
from dosimeter.estimate import Estimate, number
from dosimeter.estimators.claim import claim
from dosimeter.estimators.epsilon_star import epsilon_star
from dosimeter.estimators.headline import Bins, rank_bins
from dosimeter.estimators.ranked import guess, rank_betting, ranked
from dosimeter.evidence import OneRun, Scores, mask_hash

__all__ = ["from_data"]

STAR = "epsilon-star-"


@dataclass(frozen=True)
class _Data:
    """The data as it was given, and as scores."""

    given: Scores | OneRun
    scores: Scores


def from_data(audit: Audit, bins: Bins | None, data: Scores | OneRun) -> list[Finding]:
    """What the scores say of each part of the evidence.

    Raises:
        InputError: If the audit carries nothing that scores could give.
    """
    both = _Data(data, data if isinstance(data, Scores) else data.as_scores())
    findings = []
    if bins is not None:
        findings.append(finding_of("data: lower-bound", lambda: _same_bins(bins, data)))
    for e in audit.estimates:
        check = _check_of(e, audit, both)
        if check is not None:
            findings.append(finding_of(f"data: {e.method}", check))
    curve = audit.curve
    if curve is not None:
        findings.append(finding_of("data: curve", lambda: _same_curve(curve, audit.headline.confidence, both.scores)))
    mask = getattr(audit.metadata, "mask_hash", None)
    if isinstance(data, OneRun) and data.groups is None and mask is not None:
        findings.append(finding_of("data: coins", lambda: _same_mask(mask, data)))
    if not findings:
        raise InputError("data holds scores, but this audit carries nothing that scores could give; leave data out.")
    return findings


def _check_of(e: Estimate, audit: Audit, data: _Data) -> Callable[[], str] | None:
    """How an estimate is compared with the scores; None where they do not give it."""
    if e.method in NATURAL and e.counts is not None and e.threshold is not None:
        return lambda: _same_counts(e, audit, data.scores)
    if e.method.startswith(STAR) and data.scores.from_loss:
        return lambda: _same_number(e, _star(e, data.scores))
    run = data.given
    if isinstance(run, Scores):
        return None
    if e.method == "ranked":
        return lambda: _same_number(e, _walk(e, run))
    if e.method == "rank betting":
        return lambda: _same_number(e, rank_betting(run, delta=e.delta, confidence=e.confidence).low)
    if e.method.startswith("one-run") and "k_in" in e.details:
        return lambda: _same_guesses(e, run)
    if e.method == "claim":
        return lambda: _same_number(e, _claim(e, run))
    return None


def _star(e: Estimate, scores: Scores) -> float:
    form = e.method.removeprefix(STAR)
    again = epsilon_star(
        -scores.members, -scores.nonmembers, form=form, resamples=0, delta=e.delta, confidence=e.confidence
    )
    return again.epsilon


def _walk(e: Estimate, run: OneRun) -> float:
    paths = of(PathEvidence, e).paths
    order = "mixed" if len(paths) > 1 else next(iter(paths))
    return ranked(run, order=order, delta=e.delta, confidence=e.confidence).low


def _claim(e: Estimate, run: OneRun) -> float:
    pairs = list(of(ClaimEvidence, e).pairs)
    return claim(run, epsilon=pairs[0][0], profile=pairs, delta=e.delta, confidence=e.confidence).low


def _same_bins(bins: Bins, data: Scores | OneRun) -> str:
    if isinstance(data, OneRun):
        values, member = data.scores, data.included
    else:
        values = np.concatenate([data.members, data.nonmembers])
        member = np.arange(values.size) < data.members.size
    again = rank_bins(values, member)
    if not (np.array_equal(again.records, bins.records) and np.array_equal(again.members, bins.members)):
        raise WrongError("the scores fall into other bins of ranks than the audit holds")
    return f"its bins of ranks are those of {values.size} scores"


def _same_counts(e: Estimate, audit: Audit, scores: Scores) -> str:
    if of(AtThreshold, e).threshold_rule == ON_ONE_HALF:
        if audit.metadata.seed is None:
            raise WrongError("it names no seed to draw its half of the scores with")
        scores = scores.split(audit.metadata.seed)[1]
    assert e.threshold is not None
    if scores.counts_at(e.threshold) != e.counts:
        raise WrongError("the scores give other counts at its threshold")
    return "its counts are those of the scores"


def _same_number(e: Estimate, again: float) -> str:
    if not close(e.epsilon, again):
        raise WrongError(f"epsilon is stated as {number(e.epsilon)}, the scores give {number(again)}")
    return "it is what the scores give"


def _same_guesses(e: Estimate, data: OneRun) -> str:
    evidence = of(FixedGuesses, e)
    made = guess(data, k_in=evidence.k_in, k_out=evidence.k_out)
    if made.correct != evidence.correct or data.total != evidence.records:
        raise WrongError("the scores give other right guesses")
    return "its right guesses are those of the scores"


def _same_curve(curve: Roc, confidence: float, scores: Scores) -> str:
    again = roc(scores, confidence)
    columns = [
        ((curve.auc,), (again.auc,)),
        (curve.fpr, again.fpr),
        (curve.tpr, again.tpr),
        *(
            (tuple(getattr(p, name) for p in curve.tpr_at_fpr), tuple(getattr(p, name) for p in again.tpr_at_fpr))
            for name in ("fpr", "tpr")
        ),
        *(
            (tuple(getattr(p, name) for p in curve.tnr_at_fnr), tuple(getattr(p, name) for p in again.tnr_at_fnr))
            for name in ("fnr", "tnr")
            if curve.tnr_at_fnr  # files of older versions have none
        ),
    ]
    if any(len(here) != len(there) or not np.allclose(here, there, rtol=0, atol=1e-9) for here, there in columns):
        raise WrongError("the scores have another ROC curve")
    return "it is that of the scores"


def _same_mask(mask: str, data: OneRun) -> str:
    if mask_hash(data.included) != mask:
        raise WrongError("the coins of the data are not those of the audit")
    return "they have the hash that the audit names"
