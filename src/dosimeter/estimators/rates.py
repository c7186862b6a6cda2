"""Limits for the two error rates, and the ε that they force: Clopper–Pearson, Jeffreys, and the advantage TPR − FPR.

Each rate gets half of the level (union bound); ε is then the smallest, or largest, value over the rectangle of both
intervals (`geometry.epsilon_range`).
"""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dosimeter import _validate as check
from dosimeter import geometry
from dosimeter._validate import FloatArray, InputError
from dosimeter.estimate import Estimate, Validity, for_rates, number, percent
from dosimeter.estimators.limits import (
    band_limits,
    band_orders,
    clopper_pearson_limits,
    jeffreys_limits,
    passed_at_fpr,
    threshold_at_fpr,
)
from dosimeter.evidence import Counts, Scores

Threshold = str | float | None
Limits = Callable[[npt.ArrayLike, npt.ArrayLike, float], tuple[FloatArray, FloatArray]]
SIDES = ("lower", "both")
NAIVE_WARNING = (
    "the threshold was chosen on the same data that bounds it, so the stated confidence does not hold; "
    "use lower_bound, or threshold='uniform' or 'split'"
)
WORSE_THAN_CHANCE = (
    "the guesses are worse than chance, which proves nothing: if they were meant the other way round, negate the "
    "scores, or swap tp with fn and fp with tn, before you look"
)


class ChosenThreshold(NamedTuple):
    """A threshold, the counts to bound with, and how it came about.

    `passed` false positives set the limit of the FPR: with tied scores it may be more than were counted, since which
    value the threshold stands on is then chance.
    """

    counts: Counts
    threshold: float
    how: str
    naive: bool
    passed: int

    @property
    def cells(self) -> tuple[int, int, int, int]:
        """fn, tp, fp, tn to take limits at."""
        return self.counts.fn, self.counts.tp, self.passed, self.counts.nonmembers - self.passed

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a reader must know of a lower bound at this threshold."""
        worse = self.counts.tpr < self.counts.fpr
        return (NAIVE_WARNING,) * self.naive + (WORSE_THAN_CHANCE,) * worse


def at_fixed(counts: Counts, threshold: float, how: str, *, naive: bool = False) -> ChosenThreshold:
    """Counts at a threshold that other data fixed, or none (naive)."""
    return ChosenThreshold(counts, threshold, how, naive, counts.fp)


def rule(threshold: Any, fpr: Any, default: str, names: tuple[str, ...] = ("split", "naive")) -> str | float:
    """The rule asked for: a name, or a number that was fixed in advance."""
    if fpr is not None:
        check.within("fpr", fpr, 0.0, 1.0, "pass the false-positive rate to work at, e.g. 0.01", include="[)")
        if threshold is not None:
            raise InputError(f"threshold={check.show(threshold)} and fpr={fpr} exclude each other; pass one of them.")
        return "fpr"
    if threshold is None:
        return default
    if isinstance(threshold, str):
        return check.choice("threshold", threshold, names)
    if isinstance(threshold, numbers.Real):
        return check.real("threshold", threshold, f"pass a score, or one of {', '.join(names)}")
    raise InputError(
        f"threshold must be a number or one of {', '.join(names)}, got {check.show(threshold)}; choose one."
    )


def choose(
    scores: Scores,
    threshold: Threshold,
    fpr: float | None,
    seed: int,
    default: str,
    best: Callable[[Scores], float],
) -> ChosenThreshold:
    """Counts at a threshold; `best` finds the best one on the scores it is given."""
    wanted = rule(threshold, fpr, default)
    if wanted == "split":
        pilot, rest = scores.split(check.seed(seed))
        value = best(pilot)
        return at_fixed(rest.counts_at(value), value, "chosen on one half, bounded on the other")
    if wanted == "naive":
        value = best(scores)
        return at_fixed(scores.counts_at(value), value, "chosen on the data that bounds it", naive=True)
    if wanted == "fpr":
        assert fpr is not None
        rate = float(fpr)
        value, passed = threshold_at_fpr(scores, rate), passed_at_fpr(scores, rate)
        return ChosenThreshold(
            scores.counts_at(value), value, f"fixed at FPR {rate:g} by the non-members", False, passed
        )
    value = float(wanted)
    return at_fixed(scores.counts_at(value), value, "fixed in advance")


def counts_over_curve(scores: Scores) -> tuple[Any, Any, Any, Any]:
    """Arrays fn, tp, fp, tn at every distinct threshold, the highest first."""
    curve = scores.curve
    return scores.members.size - curve.tp, curve.tp, curve.fp, scores.nonmembers.size - curve.fp


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
    order = band_orders(nonmembers.size)
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
        band_limits(fp, nonmembers.size, alpha / 2),
        band_limits(fn, members.size, alpha / 2),
    )


@for_rates
def advantage(
    evidence: Counts | Scores,
    *,
    delta: float = 0.0,
    confidence: float = 0.95,
    threshold: Threshold = None,
    fpr: float | None = None,
    seed: int = 0,
) -> Estimate:
    """Bound ε by the advantage that is proven: an (ε, δ)-DP mechanism allows at most (e^ε − 1 + 2δ)/(e^ε + 1).

    `details` also has the weaker form ln((1−δ)/(1−advantage)) of Erlingsson et al.

    Args:
        evidence: Counts at a threshold that was fixed in advance, or scores.
        delta: The δ of the guarantee that is tested.
        confidence: The confidence of the limits.
        threshold: For scores: "uniform" (a band over all thresholds, the default), "split", "naive" or a number.
        fpr: Instead of a threshold: the false positive rate that the non-members fix it at.
        seed: Decides the halves of "split".

    Returns:
        The estimate; its `counts` and `threshold` are those that it rests on.

    Raises:
        InputError: If an argument is out of range, or counts come with a threshold.

    >>> from dosimeter import Counts
    >>> round(advantage(Counts(tp=900, fn=100, fp=50, tn=950)).low, 2)
    2.28
    """
    delta, confidence = check.delta(delta), check.confidence(confidence)
    alpha = 1 - confidence
    naive = False
    warnings: tuple[str, ...] = ()
    at: float | None
    if isinstance(evidence, Scores) and rule(threshold, fpr, "uniform", ("uniform", "split", "naive")) == "uniform":
        looks = uniform_looks(evidence, alpha)
        index = int(np.argmax(-looks.fpr - looks.fnr))
        proven = max(0.0, float(1 - looks.fpr[index] - looks.fnr[index]))
        at, how = float(looks.thresholds[index]), "uniform"
        counts = evidence.counts_at(float(looks.thresholds[index]))
    else:

        def best(scores: Scores) -> float:
            fn, tp, fp, tn = counts_over_curve(scores)
            return float(scores.curve.thresholds[int(np.argmax(tp / (tp + fn) - fp / (fp + tn)))])

        choice = at_threshold(evidence, threshold, fpr, seed, best)
        counts, naive, how, warnings = choice.counts, choice.naive, choice.how, choice.warnings
        at = None if np.isnan(choice.threshold) else choice.threshold
        box = rectangle(*choice.cells, alpha, "lower", clopper_pearson_limits)
        proven = max(0.0, float(1 - box.fpr[1] - box.fnr[1]))
    low = max(0.0, float(geometry.log_ratio(1 + proven - 2 * delta, 1 - proven)))
    return Estimate(
        epsilon=low,
        low=low,
        high=np.inf,
        delta=delta,
        confidence=confidence,
        method="advantage",
        validity=Validity.EXPLORATORY if naive else Validity.INDEPENDENT_RUNS,
        claim=f"With {percent(confidence)} confidence the membership advantage is at least {100 * proven:.3g} %, "
        f"which forces ε ≥ {number(low)} at δ = {delta:g}.",
        threshold=at,
        counts=counts,
        warnings=warnings,
        details={
            "advantage": counts.tpr - counts.fpr,
            "advantage_low": proven,
            "epsilon_erlingsson": max(0.0, float(geometry.log_ratio(1 - delta, 1 - proven))),
            "threshold_rule": how,
        },
    )
