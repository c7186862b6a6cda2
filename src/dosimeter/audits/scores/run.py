"""An audit from scores or losses alone: every bound, the ROC curve with its band, and what it means."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

import dosimeter
from dosimeter import _validate as check
from dosimeter._validate import InputError
from dosimeter.audits.assemble import risk_of, roc
from dosimeter.audits.result import Audit, Guard, RecordRisk
from dosimeter.audits.scores.result import ScoresDetails, ScoresMetadata
from dosimeter.estimate import Estimate
from dosimeter.estimators.epsilon_star import epsilon_star
from dosimeter.estimators.lower_bound import game_of, lower_bound
from dosimeter.estimators.rates import Threshold, advantage, clopper_pearson
from dosimeter.estimators.with_assumptions import bayesian, gaussian
from dosimeter.evidence import OneRun, Scores


def audit_scores(
    scores: Scores | OneRun,
    *,
    delta: float = 1e-5,
    confidence: float = 0.95,
    threshold: Threshold = None,
    fpr: float | None = None,
    resamples: int = 1000,
    seed: int = 0,
) -> Audit:
    """Audit scores or losses: every estimate that they allow, Epsilon* too when they come from losses.

    Scores of one model get two headlines, each at its own level: for replacing one record, which comes first, and for
    adding or removing one. Scores with coins (`OneRun`) and scores of independent runs get one.

    Args:
        scores: What the attack saw.
        delta: The δ of the guarantees that are tested.
        confidence: The confidence of every bound.
        threshold: For the estimators that work at one threshold; the headline needs none.
        fpr: Fix that threshold by a false-positive rate instead.
        resamples: Bootstrap resamples for the interval of Epsilon*, 0 for none.
        seed: Decides the halves of `threshold="split"` and the bootstrap.

    Returns:
        The audit, its headline first.

    Raises:
        InputError: If an argument cannot be used.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> audit = audit_scores(Scores(rng.normal(1, 1, 1000), rng.normal(0, 1, 1000)))
    >>> [(e.neighbours, round(e.low, 1)) for e in audit.estimates[:2]]
    [('replace', 3.3), ('add/remove', 1.7)]
    """
    if not isinstance(scores, (Scores, OneRun)):
        raise InputError(
            f"scores must be Scores or OneRun, got {type(scores).__name__}; build Scores(members, nonmembers) first."
        )
    delta, confidence, seed = check.delta(delta), check.confidence(confidence), check.seed(seed)
    resamples = check.whole("resamples", resamples, 0, "pass e.g. 1000, or 0 for no interval of Epsilon*", 10**6)
    headlines = _headlines(scores, delta, confidence)
    pools = scores if isinstance(scores, Scores) else scores.as_scores()
    warnings: list[str] = []
    rates = _at_thresholds(pools, delta, confidence, threshold, fpr, seed, warnings)
    if isinstance(scores, OneRun):  # what an adversary of coins loses or gains is a record, not a replacement
        rates = [replace(estimate, neighbours="add/remove") for estimate in rates]
    stars = _epsilon_star(pools, delta, confidence, resamples, seed, warnings) if pools.from_loss else []
    return Audit(
        estimates=(*headlines, *rates, *stars),
        guard=Guard(shift=False, checked=False),
        risk=risk_of(headlines),
        curve=roc(pools, confidence),
        details=ScoresDetails(),
        record_risk=_record_risk(scores, pools),
        metadata=ScoresMetadata(
            members=pools.members.size,
            nonmembers=pools.nonmembers.size,
            records=scores.records,
            unit=scores.unit,
            game=game_of(scores),
            from_loss=pools.from_loss,
            delta=delta,
            confidence=confidence,
            seed=seed,
            warnings=tuple(warnings),
            version=dosimeter.__version__,
        ),
    )


def _record_risk(scores: Scores | OneRun, sides: Scores) -> RecordRisk | None:
    """The risk of all records, by their rows; None for persons, whose names only their audit knows."""
    if scores.unit != "record":
        return None
    rows = np.arange(sides.members.size), np.arange(sides.nonmembers.size)
    if isinstance(scores, OneRun):
        rows = np.flatnonzero(scores.included), np.flatnonzero(~scores.included)
    return RecordRisk.of(sides, rows)


def _headlines(scores: Scores | OneRun, delta: float, confidence: float) -> list[Estimate]:
    estimates = [lower_bound(scores, delta=delta, confidence=confidence)]
    if game_of(scores) == "split":
        estimates.append(lower_bound(scores, delta=delta, confidence=confidence, neighbours="add/remove"))
    return estimates


def _at_thresholds(
    scores: Scores,
    delta: float,
    confidence: float,
    threshold: Threshold,
    fpr: float | None,
    seed: int,
    warnings: list[str],
) -> list[Estimate]:
    """The estimators that work on error rates."""
    one: dict[str, Any] = {
        "delta": delta,
        "confidence": confidence,
        "seed": seed,
        "threshold": threshold,
        "fpr": fpr,
    }
    # "uniform" is not a choice for the posterior, which needs one threshold: it then takes its own default.
    posterior = {**one, "threshold": None if isinstance(threshold, str) and threshold == "uniform" else threshold}
    estimates = [clopper_pearson(scores, **one)]
    if min(scores.members.size, scores.nonmembers.size) >= 2 or posterior["threshold"] is not None or fpr is not None:
        estimates.append(bayesian(scores, **posterior))
    else:
        warnings.append(
            "bayesian left out: choosing its threshold on a separate half needs 2 members and 2 non-members"
        )
    if delta > 0:
        estimates.append(gaussian(scores, **one))
    return [*estimates, advantage(scores, **one)]


def _epsilon_star(
    scores: Scores, delta: float, confidence: float, resamples: int, seed: int, warnings: list[str]
) -> list[Estimate]:
    estimates = []
    for form in ("parametric", "empirical"):
        if form == "parametric" and delta == 0:
            warnings.append("parametric epsilon-star left out: it is infinite at delta = 0")
            continue
        try:
            estimates.append(
                epsilon_star(
                    -scores.members,
                    -scores.nonmembers,
                    delta=delta,
                    form=form,
                    confidence=confidence,
                    resamples=resamples,
                    seed=seed,
                )
            )
        except InputError as error:
            warnings.append(f"{form} epsilon-star left out: {error}")
    return estimates
