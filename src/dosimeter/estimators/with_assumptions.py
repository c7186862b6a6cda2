"""Bounds that assume more than limits of rates do: a prior for both rates, or a Gaussian mechanism.

`bayesian` gives credible bounds of ε from the joint posterior of both error rates (Zanella-Béguelin et al., ICML 2023).
`gaussian` gives the bound for mechanisms whose trade-off curve is Gaussian, and only for them: full batches.
"""

from __future__ import annotations

import numbers
from dataclasses import replace
from typing import Any, overload

import numpy as np
import numpy.typing as npt
from scipy import special

from dosimeter import _validate as check
from dosimeter import geometry
from dosimeter._validate import FloatArray, InputError, IntArray
from dosimeter.estimate import Estimate, Validity, for_rates, number, percent
from dosimeter.estimators.joint_posterior import CountRows, cdf_and_density, joint_posterior, quantile, rough_quantile
from dosimeter.estimators.limits import clopper_pearson_limits
from dosimeter.estimators.rates import (
    NAIVE_WARNING,
    SIDES,
    ChosenThreshold,
    Rectangle,
    Threshold,
    at_threshold,
    choose,
    counts_over_curve,
    rectangle,
    rule,
    uniform_looks,
)
from dosimeter.evidence import Counts, Scores

_BLOCKS = 128  # blocks of thresholds that are bounded at first when the best one is sought, or up to _SPLIT as many
_SPLIT = 4  # parts into which a block that may hold a better threshold is divided
_CHUNK = 1 << 16  # thresholds ranked at once: bounds the memory


# --- the best threshold -----------------------------------------------------------------------------------
def _thresholds_above(counts: CountRows, epsilon: float, alpha: float, delta: float) -> tuple[IntArray, FloatArray]:
    """The thresholds with F(ε) < α, so with a lower bound above ε, and F(ε) at them.

    `counts` runs along the curve: TP and FP rise together. A block of thresholds is dropped as a whole if even its
    most TP with its fewest FP, and for inverted guesses its fewest TP with its most FP, leave F(ε) ≥ α.
    """
    fn, tp, fp, tn = counts
    size = 1
    while tp.size > _BLOCKS * size:
        size *= _SPLIT
    starts = np.arange(0, tp.size, size)
    while True:
        ends = np.minimum(starts + size, tp.size) - 1
        direct = (fn[ends], tp[ends], fp[starts], tn[starts])
        inverted = (fn[starts], tp[starts], fp[ends], tn[ends])
        level = np.full(starts.size, epsilon)
        cdf, _ = cdf_and_density(joint_posterior(direct, inverted), level, delta, density=False)
        keep = cdf < alpha
        starts = starts[keep]
        if size == 1:
            return starts, cdf[keep]
        size //= _SPLIT
        starts = (starts[:, None] + np.arange(0, size * _SPLIT, size)).ravel()
        starts = starts[starts < tp.size]


def best_threshold(scores: Scores, delta: float, confidence: float) -> tuple[int, float]:
    """The threshold with the largest one-sided lower bound: its place in `scores.curve`, and the bound.

    A few promising thresholds are solved; one evaluation of F at the best bound so far then tells which of the
    others can beat it, and only these are solved.
    """
    fn, tp, fp, tn = (np.asarray(c, float) for c in counts_over_curve(scores))
    counts = (fn, tp, fp, tn)
    alpha = 1 - confidence

    def solve(rows: IntArray) -> tuple[int, float]:
        low = quantile((fn[rows], tp[rows], fp[rows], tn[rows]), np.full(rows.size, alpha), delta)
        place = int(np.argmax(low))
        return int(rows[place]), float(low[place])

    z = float(special.ndtri(alpha))
    chunks = [slice(i, i + _CHUNK) for i in range(0, tp.size, _CHUNK)]
    rough = np.concatenate([rough_quantile((fn[c], tp[c], fp[c], tn[c]), delta, z) for c in chunks])
    few = min(4, rough.size)
    best, low = solve(np.sort(np.argpartition(rough, rough.size - few)[rough.size - few :]))
    rivals, cdf = _thresholds_above(counts, low, alpha, delta)
    while rivals.size:
        order = np.argsort(cdf, kind="stable")
        place, value = solve(rivals[order[:4]])
        if value > low:
            best, low = place, value
        rivals = np.sort(rivals[order[4:]])
        if rivals.size:
            level = np.full(rivals.size, low)
            posterior = joint_posterior((fn[rivals], tp[rivals], fp[rivals], tn[rivals]))
            cdf, _ = cdf_and_density(posterior, level, delta, density=False)
            rivals, cdf = rivals[cdf < alpha], cdf[cdf < alpha]
    return best, low


# --- public functions -------------------------------------------------------------------------------------
def _rows(counts: Counts, size: int) -> CountRows:
    if not isinstance(counts, Counts):
        raise InputError(f"counts must be a Counts, got {check.show(counts)}; pass Counts(tp=…, fn=…, fp=…, tn=…).")
    fn, tp, fp, tn = (np.full(size, float(c)) for c in (counts.fn, counts.tp, counts.fp, counts.tn))
    return fn, tp, fp, tn


def _at(counts: Counts, epsilon: Any, delta: float, density: bool) -> Any:
    level = check.delta(delta)
    single = isinstance(epsilon, numbers.Real) or (isinstance(epsilon, np.ndarray) and epsilon.ndim == 0)
    if single:
        values = np.array([check.real("epsilon", epsilon, "pass a finite ε of at least 0")])
    else:
        values = check.finite_array("epsilon", epsilon)
    if values.min() < 0:
        index = int(np.argmin(values))
        name = "epsilon" if single else f"epsilon[{index}]"
        raise InputError(f"{name} must be at least 0, got {values[index]:g}; pass an ε of at least 0.")
    result = cdf_and_density(joint_posterior(_rows(counts, values.size)), values, level, density=density)[int(density)]
    return float(result[0]) if single else result


@overload
def posterior_cdf(counts: Counts, epsilon: float, delta: float = ...) -> float: ...
@overload
def posterior_cdf(counts: Counts, epsilon: npt.ArrayLike, delta: float = ...) -> FloatArray: ...
def posterior_cdf(counts: Counts, epsilon: Any, delta: float = 0.0) -> Any:
    """F(ε): the posterior probability that the true rates lie in R(ε, δ), for one ε or an array of them.

    The error is below 1e-10 for counts up to 1e9. F(0) > 0 is a point mass at ε = 0.
    """
    return _at(counts, epsilon, delta, density=False)


@overload
def posterior_density(counts: Counts, epsilon: float, delta: float = ...) -> float: ...
@overload
def posterior_density(counts: Counts, epsilon: npt.ArrayLike, delta: float = ...) -> FloatArray: ...
def posterior_density(counts: Counts, epsilon: Any, delta: float = 0.0) -> Any:
    """dF/dε for one ε or an array of them; it integrates to 1 − F(0), the rest sits at ε = 0."""
    return _at(counts, epsilon, delta, density=True)


@for_rates
def bayesian(
    evidence: Counts | Scores,
    *,
    delta: float = 0.0,
    confidence: float = 0.95,
    sides: str = "lower",
    threshold: Threshold = None,
    fpr: float | None = None,
    seed: int = 0,
) -> Estimate:
    """Bound ε by the joint posterior of both error rates (Zanella-Béguelin et al. 2023).

    Args:
        evidence: Counts at a threshold that was fixed in advance, or scores.
        delta: The δ of the guarantee that is tested.
        confidence: The confidence of the limits.
        sides: "lower" (the 1 − confidence quantile, nothing above) or "both" (an equal-tailed interval).
        threshold: For scores: "split" (chosen on one half, bounded on the other; the default), a number fixed in
            advance, or "naive" (the best one on the same data, as in the paper; exploratory).
        fpr: Instead of a threshold: the false positive rate that the non-members fix it at.
        seed: Decides the halves of "split".

    Returns:
        The estimate; its `counts` and `threshold` are those that it rests on.

    Raises:
        InputError: If an argument is out of range, or counts come with a threshold.

    >>> from dosimeter import Counts
    >>> round(bayesian(Counts(tp=65, fn=35, fp=25, tn=75), delta=0.05).low, 2)
    0.58
    """
    level, target = check.delta(delta), _level(confidence)
    check.choice("sides", sides, ("lower", "both"))
    if isinstance(evidence, Counts):
        for name, value in (("threshold", threshold), ("fpr", fpr)):
            if value is not None:
                raise InputError(f"{name}={check.show(value)} needs Scores, got Counts; leave {name} out.")
        return _estimate(evidence, level, target, sides)
    if not isinstance(evidence, Scores):
        raise InputError(f"evidence must be Counts or Scores, got {check.show(evidence)}; pass one of these.")

    def best(scores: Scores) -> float:
        return float(scores.curve.thresholds[best_threshold(scores, level, target)[0]])

    return _estimate_chosen(choose(evidence, threshold, fpr, seed, "split", best), level, target, sides)


def _level(confidence: Any) -> float:
    level = check.confidence(confidence)
    if level > 1 - 1e-9:
        raise InputError(f"confidence must be at most 1 - 1e-9 here, got {level!r}; pass e.g. 0.95.")
    return level


def _estimate(counts: Counts, delta: float, confidence: float, sides: str) -> Estimate:
    alpha = 1 - confidence
    tails = np.array([alpha] if sides == "lower" else [alpha / 2, 1 - alpha / 2])
    ends = np.sort(quantile(_rows(counts, tails.size), tails, delta))  # at a tiny confidence they meet
    low, high = float(ends[0]), float(ends[1]) if sides == "both" else np.inf
    return Estimate(
        epsilon=low,
        low=low,
        high=high,
        delta=delta,
        confidence=confidence,
        method="bayesian",
        validity=Validity.CREDIBLE,
        claim=f"Given these counts, {_says(low, high, delta, confidence)} at a threshold fixed in advance: a credible "
        "statement under the Jeffreys prior, not a confidence bound.",
        counts=counts,
        details={"sides": sides, "prior": "Jeffreys"},
    )


def _estimate_chosen(choice: ChosenThreshold, delta: float, confidence: float, sides: str) -> Estimate:
    result = _estimate(choice.counts, delta, confidence, sides)
    says = _says(result.low, result.high, delta, confidence, "would be" if choice.naive else "is")
    if choice.naive:
        claim = (
            f"If the threshold had been fixed in advance, {says}; but it was chosen on the data that bounds it, so "
            "this is exploratory, neither a confidence bound nor a credible statement."
        )
    else:
        claim = (
            f"Given the counts at the threshold {choice.threshold:.6g} ({choice.how}), {says}: a credible statement "
            "under the Jeffreys prior, not a confidence bound."
        )
    return replace(
        result,
        threshold=choice.threshold,
        validity=Validity.EXPLORATORY if choice.naive else Validity.CREDIBLE,
        claim=claim,
        warnings=(NAIVE_WARNING,) if choice.naive else (),
        details={**result.details, "threshold_rule": choice.how},
    )


def _says(low: float, high: float, delta: float, confidence: float, verb: str = "is") -> str:
    span = f"at least {number(low)}" if np.isinf(high) else f"between {number(low)} and {number(high)}"
    return f"ε at δ = {delta:g} {verb} {span} with posterior probability {percent(confidence)}"


ASSUMPTION = (
    "assumes that the mechanism's trade-off curve is Gaussian (full-batch DP-SGD or one Gaussian step); "
    "on other mechanisms this number may exceed the true ε"
)


@for_rates
def gaussian(
    evidence: Counts | Scores,
    *,
    delta: float = 1e-5,
    confidence: float = 0.95,
    sides: str = "lower",
    threshold: Threshold = None,
    fpr: float | None = None,
    seed: int = 0,
) -> Estimate:
    """Give ε of the least μ-Gaussian mechanism that the limits of both error rates allow.

    It assumes that the mechanism is Gaussian, and is then much tighter than `clopper_pearson`.

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
    >>> round(gaussian(Counts(tp=65, fn=35, fp=25, tn=75), delta=1e-5).low, 2)
    2.06
    """
    delta = check.delta(delta, zero=False, why_not_zero="a Gaussian mechanism has no finite ε at δ = 0")
    confidence, sides = check.confidence(confidence), check.choice("sides", sides, SIDES)
    alpha = 1 - confidence
    if isinstance(evidence, Scores) and rule(threshold, fpr, "uniform", ("uniform", "split", "naive")) == "uniform":
        if sides == "both":
            raise InputError("sides='both' needs one threshold, but threshold is 'uniform'; pass a number or fpr=.")
        looks = uniform_looks(evidence, alpha)
        mu = mu_from_rates(looks.fpr, looks.fnr)
        index = int(np.argmax(mu))
        mu_low, mu_high, naive, how = float(mu[index]), np.inf, False, "uniform"
        at: float | None = float(looks.thresholds[index])
        counts = evidence.counts_at(float(looks.thresholds[index]))
    else:

        def best(scores: Scores) -> float:
            box = rectangle(*counts_over_curve(scores), alpha, "lower", clopper_pearson_limits)
            return float(scores.curve.thresholds[int(np.argmax(_mu_low(box)))])

        choice = at_threshold(evidence, threshold, fpr, seed, best)
        counts, naive, how = choice.counts, choice.naive, choice.how
        at = None if np.isnan(choice.threshold) else choice.threshold
        box = rectangle(*choice.cells, alpha, sides, clopper_pearson_limits)
        mu_low = float(_mu_low(box))
        mu_high = np.inf if sides == "lower" else float(_mu_high(box))
    low = float(geometry.epsilon_from_mu(mu_low, delta))
    high = float(geometry.epsilon_from_mu(mu_high, delta)) if np.isfinite(mu_high) else np.inf
    span = f"ε ≥ {number(low)}" if sides == "lower" else f"ε lies in [{number(low)}, {number(high)}]"
    validity = Validity.EXPLORATORY if naive else Validity.ASSUMES_GAUSSIAN
    return Estimate(
        epsilon=low,
        low=low,
        high=high,
        delta=delta,
        confidence=confidence,
        method="gaussian",
        validity=validity,
        claim=f"If the mechanism is Gaussian, {span} at δ = {delta:g} with {percent(confidence)} confidence; "
        "without that assumption nothing follows.",
        threshold=at,
        counts=counts,
        warnings=(ASSUMPTION, NAIVE_WARNING) if naive else (ASSUMPTION,),
        details={"mu_low": mu_low, "mu_high": mu_high, "threshold_rule": how},
    )


def mu_from_rates(fpr: FloatArray, fnr: FloatArray) -> FloatArray:
    """μ = Φ⁻¹(1−FPR) − Φ⁻¹(FNR), at least 0: a negative value is an attack worse than chance, not its mirror."""
    y, x = np.asarray(fpr, float), np.asarray(fnr, float)
    settled = (y >= 1) | (x >= 1)
    inside = np.where(settled, 0.5, y), np.where(settled, 0.5, x)
    return np.where(settled, 0.0, np.maximum(-special.ndtri(inside[0]) - special.ndtri(inside[1]), 0.0))


def _mu_low(box: Rectangle) -> FloatArray:
    return mu_from_rates(box.fpr[1], box.fnr[1])


def _mu_high(box: Rectangle) -> FloatArray:
    return mu_from_rates(box.fpr[0], box.fnr[0])
