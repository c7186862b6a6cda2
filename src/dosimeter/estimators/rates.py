"""Limits for the two error rates, and the ε that they force: Clopper–Pearson and Jeffreys.

Each rate gets half of the level (union bound); ε is then the smallest, or largest, value over the rectangle of both
intervals (`geometry.epsilon_range`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import special

from dosimeter import _validate as check
from dosimeter import geometry
from dosimeter._validate import FloatArray, InputError
from dosimeter.estimate import Estimate, Validity, number, percent
from dosimeter.estimators import band
from dosimeter.estimators.thresholds import (
    NAIVE_WARNING,
    ChosenThreshold,
    Threshold,
    at_fixed,
    choose,
    counts_over_curve,
    rule,
)
from dosimeter.estimators.wording import for_rates
from dosimeter.evidence import Counts, Scores

SIDES = ("lower", "both")
Limits = Callable[[npt.ArrayLike, npt.ArrayLike, float], tuple[FloatArray, FloatArray]]


def clopper_pearson_limits(k: npt.ArrayLike, n: npt.ArrayLike, tail: float) -> tuple[FloatArray, FloatArray]:
    """Exact limits for k of n, each missed with probability ≤ tail."""
    hits, misses = np.asarray(k, float), np.asarray(n, float) - np.asarray(k, float)
    low = np.where(hits > 0, special.betaincinv(np.maximum(hits, 1), misses + 1, tail), 0.0)
    high = np.where(misses > 0, special.betainccinv(hits + 1, np.maximum(misses, 1), tail), 1.0)
    return low, high


def jeffreys_limits(k: npt.ArrayLike, n: npt.ArrayLike, tail: float) -> tuple[FloatArray, FloatArray]:
    """Quantiles of the Beta(k+½, n−k+½) posterior; 0 for k = 0 and 1 for k = n."""
    hits, misses = np.asarray(k, float), np.asarray(n, float) - np.asarray(k, float)
    low = np.where(hits > 0, special.betaincinv(hits + 0.5, misses + 0.5, tail), 0.0)
    high = np.where(misses > 0, special.betainccinv(hits + 0.5, misses + 0.5, tail), 1.0)
    return low, high


class Rectangle(NamedTuple):
    """Intervals of both error rates."""

    fpr: tuple[FloatArray, FloatArray]
    fnr: tuple[FloatArray, FloatArray]


def rectangle(fn: Any, tp: Any, fp: Any, tn: Any, alpha: float, sides: str, limits: Limits) -> Rectangle:
    """Both intervals at joint level alpha: upper limits for a lower bound, two-sided intervals for both ends.

    Upper limits alone leave an attack that is worse than chance without a bound: which way round a guess is meant must
    not be decided by its counts, unless all four limits share the level.
    """
    tail = alpha / 2 if sides == "lower" else alpha / 4
    ends = limits(fp, np.add(fp, tn), tail), limits(fn, np.add(fn, tp), tail)
    return Rectangle(*ends) if sides == "both" else Rectangle(*((np.zeros_like(high), high) for _, high in ends))


@for_rates
def clopper_pearson(
    evidence: Counts | Scores,
    *,
    delta: float = 0.0,
    confidence: float = 0.95,
    sides: str = "lower",
    threshold: Threshold = None,
    fpr: float | None = None,
    seed: int = 0,
) -> Estimate:
    """Bound ε by exact binomial limits of both error rates.

    A lower bound takes the guesses as they are meant: guesses that are worse than chance prove nothing.

    Args:
        evidence: Counts at a threshold that was fixed in advance, or scores.
        delta: The δ of the guarantee that is tested.
        confidence: The confidence of the limits.
        sides: "lower" (nothing bounds ε from above) or "both".
        threshold: For scores: "uniform" (a band over all thresholds, the default), "split", "naive" or a number.
        fpr: Instead of a threshold: the false positive rate that the non-members fix it at.
        seed: Decides the halves of "split".

    Returns:
        The estimate; its `counts` and `threshold` are those that it rests on.

    Raises:
        InputError: If an argument is out of range, or counts come with a threshold.

    >>> from dosimeter import Counts
    >>> round(clopper_pearson(Counts(tp=65, fn=35, fp=25, tn=75), delta=1e-5).low, 2)
    0.46
    """
    setting = _RateSetting.checked(delta, confidence, sides)
    if isinstance(evidence, Scores) and rule(threshold, fpr, "uniform", ("uniform", "split", "naive")) == "uniform":
        return _uniform(evidence, setting)
    return _at_one_threshold(
        evidence, setting, threshold, fpr, seed, "clopper-pearson", clopper_pearson_limits, Validity.INDEPENDENT_RUNS
    )


@for_rates
def jeffreys(
    evidence: Counts | Scores,
    *,
    delta: float = 0.0,
    confidence: float = 0.95,
    sides: str = "lower",
    threshold: Threshold = None,
    fpr: float | None = None,
    seed: int = 0,
) -> Estimate:
    """Bound ε by Jeffreys credible limits of both error rates.

    Args:
        evidence: Counts at a threshold that was fixed in advance, or scores.
        delta: The δ of the guarantee that is tested.
        confidence: The confidence of the limits.
        sides: "lower" (nothing bounds ε from above) or "both".
        threshold: For scores: "split" (chosen on one half, the default), "naive" or a number.
        fpr: Instead of a threshold: the false positive rate that the non-members fix it at.
        seed: Decides the halves of "split".

    Returns:
        The estimate; its `counts` and `threshold` are those that it rests on.

    Raises:
        InputError: If an argument is out of range, or counts come with a threshold.

    >>> from dosimeter import Counts
    >>> round(jeffreys(Counts(tp=65, fn=35, fp=25, tn=75), delta=1e-5).low, 2)
    0.48
    """
    setting = _RateSetting.checked(delta, confidence, sides)
    return _at_one_threshold(evidence, setting, threshold, fpr, seed, "jeffreys", jeffreys_limits, Validity.CREDIBLE)


class _RateSetting(NamedTuple):
    delta: float
    confidence: float
    sides: str

    @classmethod
    def checked(cls, delta: Any, confidence: Any, sides: Any) -> _RateSetting:
        return cls(check.delta(delta), check.confidence(confidence), check.choice("sides", sides, SIDES))

    @property
    def alpha(self) -> float:
        return 1 - self.confidence


def at_threshold(evidence: Any, threshold: Threshold, fpr: float | None, seed: int, best: Any) -> ChosenThreshold:
    """Counts as they are, or the counts of scores at a threshold chosen as asked ("split" by default)."""
    if isinstance(evidence, Counts):
        if threshold is not None or fpr is not None:
            raise InputError(
                "threshold and fpr apply to Scores; counts belong to one threshold already, so leave them out."
            )
        return at_fixed(evidence, float("nan"), "fixed in advance")
    if not isinstance(evidence, Scores):
        raise InputError(f"evidence must be Counts or Scores, got {type(evidence).__name__}; build one of these first.")
    return choose(evidence, threshold, fpr, seed, "split", best)


def _at_one_threshold(
    evidence: Any,
    setting: _RateSetting,
    threshold: Threshold,
    fpr: float | None,
    seed: int,
    method: str,
    limits: Limits,
    validity: Validity,
) -> Estimate:
    def best(scores: Scores) -> float:
        cells = counts_over_curve(scores)
        low, _ = geometry.epsilon_range(*rectangle(*cells, setting.alpha, "lower", limits), setting.delta)
        return float(scores.curve.thresholds[int(np.argmax(low))])

    choice = at_threshold(evidence, threshold, fpr, seed, best)
    box = rectangle(*choice.cells, setting.alpha, setting.sides, limits)
    low, high = (float(v) for v in geometry.epsilon_range(*box, setting.delta))
    if setting.sides == "lower":
        high = float("inf")
    return Estimate(
        epsilon=low,
        low=low,
        high=high,
        delta=setting.delta,
        confidence=setting.confidence,
        method=method,
        validity=Validity.EXPLORATORY if choice.naive else validity,
        claim=interval_claim(low, high, setting.delta, setting.confidence, _KIND[method], choice),
        threshold=None if np.isnan(choice.threshold) else choice.threshold,
        counts=choice.counts,
        warnings=choice.warnings if setting.sides == "lower" else (NAIVE_WARNING,) * choice.naive,
        details={
            "threshold_rule": choice.how,
            "fpr_interval": [float(v) for v in box.fpr],
            "fnr_interval": [float(v) for v in box.fnr],
        },
    )


_KIND = {
    "clopper-pearson": "confidence (exact Clopper–Pearson limits for both error rates)",
    "jeffreys": "posterior probability (Jeffreys limits for both error rates; credible, not guaranteed coverage)",
}


def interval_claim(
    low: float, high: float, delta: float, confidence: float, kind: str, choice: ChosenThreshold | None = None
) -> str:
    """The sentence of an interval or a lower bound at one threshold."""
    span = f"ε ≥ {number(low)}" if high == float("inf") else f"ε lies in [{number(low)}, {number(high)}]"
    text = f"At δ = {delta:g}, {span} with {percent(confidence)} {kind}"
    if choice is None or not choice.naive:
        return text + "."
    return text + ", nominally: the threshold was chosen on the same data, so this level is not kept."


def _uniform(scores: Scores, setting: _RateSetting) -> Estimate:
    if setting.sides == "both":
        raise InputError(
            "sides='both' needs one threshold, but threshold is 'uniform'; pass a number, fpr= or 'split'."
        )
    looks = uniform_looks(scores, setting.alpha)
    nothing = np.zeros_like(looks.fpr)
    epsilon, _ = geometry.epsilon_range((nothing, looks.fpr), (nothing, looks.fnr), setting.delta)
    index = int(np.argmax(epsilon))
    low, threshold = float(epsilon[index]), float(looks.thresholds[index])
    return Estimate(
        epsilon=low,
        low=low,
        high=float("inf"),
        delta=setting.delta,
        confidence=setting.confidence,
        method="clopper-pearson",
        validity=Validity.INDEPENDENT_RUNS,
        claim=interval_claim(low, float("inf"), setting.delta, setting.confidence, _KIND["clopper-pearson"])[:-1]
        + ", held at all thresholds at once.",
        threshold=threshold,
        counts=scores.counts_at(threshold),
        details={
            "threshold_rule": "uniform",
            "fpr_upper": float(looks.fpr[index]),
            "fnr_upper": float(looks.fnr[index]),
        },
    )


class Looks(NamedTuple):
    """Thresholds with upper limits of both error rates, all valid together."""

    thresholds: FloatArray
    fpr: FloatArray
    fnr: FloatArray


def uniform_looks(scores: Scores, alpha: float) -> Looks:
    """Upper limits of both rates at every threshold that can be best, valid over *all* thresholds at 1 − alpha.

    The limit of the FPR only changes at the orders of its band, and lowering a threshold lowers the FNR; so the
    lowest threshold above each of these non-members is enough.
    """
    members, nonmembers = scores.sorted_members, scores.sorted_nonmembers
    order = band.orders(nonmembers.size)
    passed = nonmembers[nonmembers.size - order]
    fn = np.searchsorted(members, passed, "right")
    fp = nonmembers.size - np.searchsorted(nonmembers, passed, "right")
    above_m = np.append(members, np.inf)[fn]
    above_n = np.append(nonmembers, np.inf)[nonmembers.size - fp]
    nearest = np.minimum(above_m, above_n)
    with np.errstate(over="ignore"):  # the threshold above the largest number there is
        thresholds = np.where(np.isfinite(nearest), nearest, np.nextafter(passed, np.inf))
    return Looks(
        thresholds,
        band.upper_limits(fp, nonmembers.size, alpha / 2),
        band.upper_limits(fn, members.size, alpha / 2),
    )
