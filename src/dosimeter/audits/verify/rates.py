"""Bounds of error rates: from counts at one threshold, or at one of a band that holds at all of them."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from dosimeter import geometry
from dosimeter.audits.result import Audit
from dosimeter.audits.verify.evidence import AtThreshold, WorstPoint, of
from dosimeter.audits.verify.finding import Recomputed, UnknownError, WrongError, close, lower
from dosimeter.estimate import Estimate, Validity
from dosimeter.estimators.limits import band_limits
from dosimeter.estimators.rates import advantage, clopper_pearson, jeffreys
from dosimeter.estimators.with_assumptions import bayesian, gaussian, mu_from_rates
from dosimeter.evidence import Counts

__all__ = ["NATURAL", "ON_ONE_HALF", "from_rates", "worst_point"]

ON_ONE_HALF = "chosen on one half, bounded on the other"
ON_THE_SAME = "chosen on the data that bounds it"
UNIFORM = "uniform"
AT_FPR = "fixed at FPR "

NATURAL = {
    "clopper-pearson": Validity.INDEPENDENT_RUNS,
    "jeffreys": Validity.CREDIBLE,
    "bayesian": Validity.CREDIBLE,
    "gaussian": Validity.ASSUMES_GAUSSIAN,
    "advantage": Validity.INDEPENDENT_RUNS,
}
_TWO_SIDED: dict[str, Callable[..., Estimate]] = {
    "clopper-pearson": clopper_pearson,
    "jeffreys": jeffreys,
    "bayesian": bayesian,
    "gaussian": gaussian,
}


def from_rates(e: Estimate, _audit: Audit) -> Recomputed:
    """An estimator of error rates, at counts of one threshold or of the uniform band."""
    if e.counts is None:
        raise UnknownError("it carries no counts")
    evidence = of(AtThreshold, e)
    how = evidence.threshold_rule
    allowed: tuple[Validity, ...] = (NATURAL[e.method], Validity.EXPLORATORY)
    if how == UNIFORM:
        return lower(_uniform(e, e.counts), allowed)
    if how == ON_THE_SAME:
        allowed = (Validity.EXPLORATORY,)
    candidates = [
        _at_counts(e, cells, sides) for cells in _limits_at(e.counts, how) for sides in _sides(e, evidence.sides)
    ]
    fitting = (again for again in candidates if close(again.low, e.low) and close(again.high, e.high))
    again = next(fitting, candidates[0])
    return Recomputed(again.epsilon, again.low, again.high, allowed)


def _sides(e: Estimate, asked: str | None) -> tuple[str, ...]:
    """Which intervals may have been asked for; one whose upper end is open may be either."""
    if e.method == "advantage":
        return ("lower",)
    if asked is not None:
        return (asked,)
    return ("both",) if math.isfinite(e.high) else ("lower", "both")


def _limits_at(counts: Counts, how: str) -> list[Counts]:
    """The counts that limits are taken at: those of the threshold, or what a fixed FPR lets pass among tied scores."""
    if not how.startswith(AT_FPR):
        return [counts]
    rate = float(how[len(AT_FPR) :].split()[0])
    total = counts.nonmembers
    passed = [k for k in {math.floor(rate * total * (1 + 1e-6)), math.floor(rate * total)} if counts.fp <= k <= total]
    return [*(Counts(tp=counts.tp, fn=counts.fn, fp=k, tn=total - k) for k in passed), counts]


def _at_counts(e: Estimate, counts: Counts, sides: str) -> Estimate:
    if e.method == "advantage":
        return advantage(counts, delta=e.delta, confidence=e.confidence)
    return _TWO_SIDED[e.method](counts, delta=e.delta, confidence=e.confidence, sides=sides)


def _uniform(e: Estimate, counts: Counts) -> float:
    """The bound at one threshold of a band that holds at all of them."""
    tail = (1 - e.confidence) / 2
    fpr = band_limits(np.array([counts.fp]), counts.nonmembers, tail)
    fnr = band_limits(np.array([counts.fn]), counts.members, tail)
    if e.method == "gaussian":
        return float(geometry.epsilon_from_mu(float(mu_from_rates(fpr, fnr)[0]), e.delta))
    if e.method == "advantage":
        sure = max(0.0, float(1 - fpr[0] - fnr[0]))
        return max(0.0, float(geometry.log_ratio(1 + sure - 2 * e.delta, 1 - sure)))
    if e.method != "clopper-pearson":
        raise WrongError(f"{e.method} has no uniform band")
    nothing = np.zeros(1)
    return float(geometry.epsilon_range((nothing, fpr), (nothing, fnr), e.delta)[0][0])


def worst_point(e: Estimate, audit: Audit) -> Recomputed:
    """The largest bound of several points, which share the level."""
    allowed, points = (Validity.INDEPENDENT_RUNS,), of(WorstPoint, e).points
    if e.counts is None:
        return lower(0.0, allowed)
    each = 1 - (1 - e.confidence) / max(points, 1)
    whose = "replace" if getattr(audit.metadata, "game", None) == "replace" else "add/remove"
    return lower(clopper_pearson(e.counts, delta=e.delta, confidence=each).low, allowed, (whose,))
