"""An audit from scores or losses alone: every bound, the ROC curve with its band, and what it means."""

from __future__ import annotations

from typing import Any

import numpy as np

import dosimeter
from dosimeter import _validate as check
from dosimeter._validate import FloatArray, InputError
from dosimeter.audits.audit import Audit, Guard
from dosimeter.estimate import Estimate
from dosimeter.estimators import band
from dosimeter.estimators.advantage import advantage
from dosimeter.estimators.bayesian import bayesian
from dosimeter.estimators.epsilon_star import epsilon_star
from dosimeter.estimators.gaussian import gaussian
from dosimeter.estimators.lower_bound import lower_bound
from dosimeter.estimators.rates import clopper_pearson, clopper_pearson_limits
from dosimeter.estimators.thresholds import Threshold, threshold_at_fpr
from dosimeter.evidence import Scores
from dosimeter.identifiability import risk_from_epsilon, risk_in_words

LOW_FPRS = (0.001, 0.01, 0.1)
CURVE_POINTS = 400


def audit_scores(
    scores: Scores,
    *,
    delta: float = 1e-5,
    confidence: float = 0.95,
    threshold: Threshold = None,
    fpr: float | None = None,
    resamples: int = 1000,
    seed: int = 0,
) -> Audit:
    """Every estimate that scores allow; Epsilon* too when they come from losses.

    `threshold` and `fpr` apply to the estimators that work at one threshold; the headline is valid over all of them.
    """
    if not isinstance(scores, Scores):
        raise InputError(
            f"scores must be Scores, got {type(scores).__name__}; build Scores(members, nonmembers) first."
        )
    delta, confidence, seed = check.delta(delta), check.confidence(confidence), check.seed(seed)
    resamples = check.whole("resamples", resamples, 0, "pass e.g. 1000, or 0 for no interval of Epsilon*", 10**6)
    at: dict[str, Any] = {"delta": delta, "confidence": confidence}
    one: dict[str, Any] = {**at, "seed": seed, "threshold": threshold, "fpr": fpr}
    # "uniform" is no choice for the posterior, which needs one threshold: it then takes its own default.
    posterior = {**one, "threshold": None if isinstance(threshold, str) and threshold == "uniform" else threshold}
    estimates: list[Estimate] = [lower_bound(scores, **at), clopper_pearson(scores, **one)]
    warnings: list[str] = []
    if min(scores.members.size, scores.nonmembers.size) >= 2 or posterior["threshold"] is not None or fpr is not None:
        estimates.append(bayesian(scores, **posterior))
    else:
        warnings.append(
            "bayesian left out: choosing its threshold on a separate half needs 2 members and 2 non-members"
        )
    if delta > 0:
        estimates.append(gaussian(scores, **one))
    estimates.append(advantage(scores, **one))
    if scores.from_loss:
        estimates += _epsilon_star(scores, delta, confidence, resamples, seed, warnings)
    headline = estimates[0]
    return Audit(
        estimates=tuple(estimates),
        guard=Guard(shift=False, checked=False),
        risk={
            **risk_from_epsilon(headline.low, delta),
            "words": risk_in_words(headline.low, delta, side="lower"),
        },
        curve=roc(scores, confidence),
        metadata={
            "members": scores.members.size,
            "nonmembers": scores.nonmembers.size,
            "from_loss": scores.from_loss,
            "delta": delta,
            "confidence": confidence,
            "seed": seed,
            "warnings": warnings,
            "version": dosimeter.__version__,
        },
    )


def _epsilon_star(
    scores: Scores, delta: float, confidence: float, resamples: int, seed: int, warnings: list[str]
) -> list[Estimate]:
    found = []
    for form in ("parametric", "empirical"):
        if form == "parametric" and delta == 0:
            warnings.append("parametric epsilon-star left out: it is infinite at delta = 0")
            continue
        try:
            found.append(
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
    return found


def roc(scores: Scores, confidence: float) -> dict[str, Any]:
    """The ROC curve thinned for a screen, its simultaneous lower band, AUC, and the TPR at low FPRs.

    The band is a pair of limits at each threshold: with the stated confidence, at every one of them the true FPR is
    at most `fpr_high` and the true TPR at least `tpr_low`.
    """
    curve = scores.curve
    keep = _thin(curve.fp, curve.tp, scores.nonmembers.size, scores.members.size)
    fp, tp = curve.fp[keep], curve.tp[keep]
    alpha = 1 - confidence
    return {
        "auc": scores.auc,
        "threshold": curve.thresholds[keep],
        "fpr": fp / scores.nonmembers.size,
        "tpr": tp / scores.members.size,
        "fpr_high": band.upper_limits(fp, scores.nonmembers.size, alpha / 2),
        "tpr_low": 1 - band.upper_limits(scores.members.size - tp, scores.members.size, alpha / 2),
        "tpr_at_fpr": [_tpr_at(scores, fpr, confidence) for fpr in LOW_FPRS],
    }


def _thin(fp: Any, tp: Any, nonmembers: int, members: int) -> Any:
    """Indices of at most about 3 · CURVE_POINTS thresholds: even on a log FPR, a linear FPR and a linear TPR axis."""
    if fp.size <= 3 * CURVE_POINTS:
        return np.arange(fp.size)
    grid = np.linspace(0, 1, CURVE_POINTS)
    marks = [
        np.searchsorted(fp, nonmembers ** (grid - 1) * nonmembers, "right") - 1,
        np.searchsorted(fp, grid * nonmembers, "right") - 1,
        np.searchsorted(tp, grid * members),
        np.array([0, fp.size - 1]),
    ]
    return np.unique(np.clip(np.concatenate(marks), 0, fp.size - 1))


def _tpr_at(scores: Scores, fpr: float, confidence: float) -> dict[str, float]:
    """The TPR at a threshold that the non-members alone decide, with its exact lower limit."""
    threshold = threshold_at_fpr(scores, fpr)
    counts = scores.counts_at(threshold)
    low: FloatArray = clopper_pearson_limits(counts.tp, counts.members, 1 - confidence)[0]
    return {"fpr": fpr, "tpr": counts.tpr, "tpr_low": float(low), "threshold": threshold}
