"""Epsilon* of one trained model from the losses of members and non-members ([ES]; no retraining).

A low loss means member. Epsilon* describes one *model instance* ([ES] Definition 1): the largest ε that the rates of a
loss threshold on it force. It does not bound the DP ε of the mechanism that trained it; every claim made here says so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from dosimeter import _validate as check
from dosimeter._validate import FloatArray, InputError
from dosimeter.estimate import Estimate, Validity, number, percent
from dosimeter.estimators.supremum import (
    NO_ZERO,
    RATIOS,
    Fit,
    epsilon_star_from_tails,
    epsilon_star_normal,
    extremes,
    normal_supremum,
    resampled_maxima,
    resampled_moments,
    transform,
)
from dosimeter.evidence import Counts, Scores
from dosimeter.geometry import epsilon_from_rates

__all__ = ["epsilon_star", "epsilon_star_from_tails", "epsilon_star_mechanism", "epsilon_star_normal"]

_WHAT_IT_IS = "It describes this one trained model; it does not bound the DP ε of the mechanism that trained it."
_SMALLEST_RATE = 0.001
_FEW = 100
FEWEST = 100  # of either kind: below it both forms follow the noise


def epsilon_star(
    member_losses: Any,
    nonmember_losses: Any,
    *,
    delta: float | None = None,
    form: str = "parametric",
    confidence: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
    rates: tuple[float, float] = (0.001, 0.999),
    clipped: int = 0,
    fewest: int = FEWEST,
) -> Estimate:
    """Estimate Epsilon* of one model, with a bootstrap interval in `low` and `high`.

    The parametric form fits a normal law (mean and maximum-likelihood standard deviation) to the transformed losses
    of either kind and takes the exact supremum over all thresholds with both rates in (δ, 1−δ). Fits too far apart to
    leave such a threshold get the ceiling ln((1−2δ)/δ), which Epsilon* reaches when the last of them vanishes. The
    empirical form is the largest value at the observed thresholds; a maximum of noisy ratios lies high, and its
    interval (quantiles reflected about the value) covers less than `confidence` where few records decide it.

    Where the losses cannot tell (too few, or all equal on one side), `details["measurable"]` is False, the interval
    is 0 to ∞, and the claim says so.

    Args:
        member_losses: Losses of records that the model was trained on.
        nonmember_losses: Losses of other records of the same kind.
        delta: δ; by default 1/(n ln n), n the number of members.
        form: "parametric" or "empirical".
        confidence: The confidence of the interval.
        resamples: Bootstrap resamples; 0 skips the interval.
        seed: Decides the resamples.
        rates: The empirical form leaves out pairs with a rate outside this open interval.
        clipped: The count that `losses_from_probabilities` returned, carried into the warnings.
        fewest: Fewer losses of either kind give no value.

    Returns:
        The estimate, an instance metric; its `threshold` is a loss.

    Raises:
        InputError: If an argument cannot be used.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> round(epsilon_star(rng.normal(0, 1, 1000), rng.normal(1, 1, 1000), delta=1e-5).epsilon, 1)
    4.2
    """
    members = check.finite_array("member_losses", member_losses)
    nonmembers = check.finite_array("nonmember_losses", nonmember_losses)
    check.choice("form", form, ("parametric", "empirical"))
    level = check.confidence(confidence)
    draws = check.whole("resamples", resamples, 0, "pass e.g. 1000, or 0 for no interval", 10**6)
    rng = np.random.default_rng(np.random.SeedSequence(check.seed(seed)))
    limits = _rates(rates)
    lost = check.whole("clipped", clipped, 0, "pass the count that losses_from_probabilities returned")
    least = check.whole("fewest", fewest, 1, "pass the least number of losses of either kind, e.g. 100")
    parametric = form == "parametric"
    failure = _default_delta(members.size) if delta is None else delta
    failure = check.delta(failure, zero=not parametric, why_not_zero=NO_ZERO)
    why_not = _cannot_tell(members, nonmembers, least, parametric)
    if why_not:
        found = _Measured(0.0, None, None, np.empty(0), [], {}, why_not)
    elif parametric:
        found = _parametric(members, nonmembers, failure, draws, rng)
    else:
        found = _empirical(Scores.from_losses(members, nonmembers), failure, limits, draws, rng)
    if lost:
        clip = f"{lost} probabilities had rounded to 0 or 1 and were clipped; pass logits to keep the tails"
        found = found._replace(warnings=[*found.warnings, clip])
    asked = {"form": form, "measurable": not found.why_not, "resamples": draws, "seed": int(seed), "clipped": lost}
    return _stated(found._replace(details={**asked, **found.details}), form, failure, level)


def epsilon_star_mechanism(models: Sequence[tuple[Any, Any]], *, delta: float, fpr_grid: Any = None) -> Estimate:
    """Estimate Epsilon* of a training mechanism from models that it trained ([ES] Theorem 2).

    With η_t(θ) the FNR at FPR t (between two observed thresholds that of a test which picks one of them at random), ε̄
    is the logarithm of the largest ratio at (t, mean of η_t over the models). It never exceeds ln mean e^{ε*(θ)}, ε*(θ)
    on the same grid; `details` holds both sides. An FNR closer to 0 or 1 than 0.001, and than every rate of the grid,
    is moved to that distance: one empty count would make either side infinite.

    Args:
        models: A pair (member_losses, nonmember_losses) for each model.
        delta: The δ.
        fpr_grid: The rates t; by default 401 rates from 0.001 to 0.999, closer together towards the ends.

    Returns:
        The estimate, an instance metric without an interval.

    Raises:
        InputError: If there is no model, or a rate lies outside (0, 1).

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> models = [(rng.normal(0, 1, 500), rng.normal(1, 1, 500)) for _ in range(4)]
    >>> round(epsilon_star_mechanism(models, delta=1e-5).epsilon, 1)
    3.8
    """
    failure = check.delta(delta)
    if fpr_grid is None:
        edge = special.logit(_SMALLEST_RATE)
        grid = np.asarray(special.expit(np.linspace(edge, -edge, 401)))
    else:
        grid = check.finite_array("fpr_grid", fpr_grid)
    outside = (grid <= 0) | (grid >= 1)
    if outside.any():
        index = int(np.argmax(outside))
        raise InputError(f"fpr_grid[{index}] is {grid[index]:g}; every rate must lie inside (0, 1): remove it.")
    observed = np.stack([_fnr_at(pair, index, grid) for index, pair in enumerate(_pairs(models))])
    edge = min(_SMALLEST_RATE, float(grid.min()), float(1 - grid.max()))
    fnr = np.clip(observed, edge, 1 - edge)
    moved = int(np.count_nonzero(fnr != observed))
    mean_fnr = fnr.mean(axis=0)
    at_mean = epsilon_from_rates(grid, mean_fnr, failure)
    best = int(np.argmax(at_mean))
    left = float(at_mean[best])
    per_model = epsilon_from_rates(grid, fnr, failure).max(axis=1)
    right = float(special.logsumexp(per_model) - math.log(per_model.size))
    rounding = max(1e-12, 16 * float(np.finfo(np.float64).eps) / edge)  # of a ratio of rates this close to 0 or 1
    if abs(right - left) < rounding:  # equal models: rounding must not reverse the theorem
        right = max(left, right)
    warnings = ["no interval: low and high repeat the value itself, and sampling error is not accounted for"]
    if moved:
        warnings.append(f"{moved} of {fnr.size} FNRs were closer to 0 or 1 than {edge:g} and were moved there")
    if per_model.size == 1:
        warnings.append("one model says nothing about the spread of the mechanism; pass several")
    return Estimate(
        epsilon=left,
        low=left,
        high=left,
        delta=failure,
        confidence=0.0,
        method="epsilon-star-mechanism",
        validity=Validity.INSTANCE_METRIC,
        claim=(
            f"Epsilon* from the rates averaged over {per_model.size} trained model(s) is {number(left)} at "
            f"δ = {failure:.3g} (the models' own values average to {number(right)}): an estimate for these models "
            "and records without a confidence level, not a bound for the DP ε of the mechanism that trained them."
        ),
        warnings=tuple(warnings),
        details={
            "mean_rates": left,
            "mean_of_models": right,
            "epsilon_star": per_model,
            "fpr": float(grid[best]),
            "mean_fnr": float(mean_fnr[best]),
            "models": per_model.size,
        },
    )


# --- the two forms ----------------------------------------------------------------------------------------


class _Measured(NamedTuple):
    """What one form of Epsilon* gave; `resampled` is empty without an interval."""

    epsilon: float
    threshold: float | None
    counts: Counts | None
    resampled: FloatArray
    warnings: list[str]
    details: dict[str, Any]
    why_not: str = ""  # why there is no value


def _stated(found: _Measured, form: str, delta: float, confidence: float) -> Estimate:
    """The value with its interval and its claim."""
    low, high, interval, warnings = found.epsilon, found.epsilon, "no interval", list(found.warnings)
    if found.why_not:
        low, high = 0.0, math.inf
    elif not found.resampled.size:
        warnings.append("no interval: resamples is 0, so low and high repeat the value itself")
    else:
        tail = (1 - confidence) / 2
        ends = np.quantile(found.resampled, [tail, 1 - tail])
        if form == "empirical":  # a resampled maximum over thresholds is biased upwards: reflect its quantiles
            ends = 2 * found.epsilon - ends[::-1]
        low = min(found.epsilon, max(0.0, float(ends[0])))
        high = max(found.epsilon, float(ends[1]))
        interval = f"{percent(confidence)} bootstrap interval {number(low)} to {number(high)}"
    if found.why_not:
        claim = (
            f"Epsilon* of this model cannot be computed in the {form} form at δ = {delta:.3g}: {found.why_not}. "
            "That is not evidence of privacy."
        )
    else:
        claim = (
            f"Epsilon* of this model is {number(found.epsilon)} at δ = {delta:.3g} ({form} form, {interval}). "
            f"{_WHAT_IT_IS}"
        )
    return Estimate(
        epsilon=found.epsilon,
        low=low,
        high=high,
        delta=delta,
        confidence=confidence,
        method=f"epsilon-star-{form}",
        validity=Validity.INSTANCE_METRIC,
        claim=claim,
        threshold=found.threshold,
        counts=found.counts,
        warnings=tuple(warnings),
        details=found.details,
    )


def _cannot_tell(members: FloatArray, nonmembers: FloatArray, fewest: int, parametric: bool) -> str:
    """Why these losses give no value; "" where they may."""
    if min(members.size, nonmembers.size) < fewest:
        return (
            f"{members.size} members and {nonmembers.size} non-members are too few, at least {fewest} of each are "
            "needed"
        )
    equal = [bool((losses == losses[0]).all()) for losses in (members, nonmembers)]
    if all(equal) and members[0] == nonmembers[0]:
        return "all losses are equal"
    if parametric and any(equal):
        which = (
            "all losses of either kind are equal" if all(equal) else f"all {_KINDS[equal.index(True)]} losses are equal"
        )
        return f"{which}, so no normal law can be fitted"
    return ""


_KINDS = ("member", "non-member")


def _parametric(
    members: FloatArray, nonmembers: FloatArray, delta: float, resamples: int, rng: np.random.Generator
) -> _Measured:
    one, two, lowest, highest = _transformed(members, nonmembers)
    m1, s1, m2, s2 = np.array([[one.mean], [one.sd], [two.mean], [two.sd]])
    at = normal_supremum(m1, s1, m2, s2, delta)
    resampled, ways = np.empty(0), []
    if resamples:
        means1, sds1, way1 = resampled_moments(one, resamples, rng)
        means2, sds2, way2 = resampled_moments(two, resamples, rng)
        resampled, ways = normal_supremum(means1, sds1, means2, sds2, delta).epsilon, [way1, way2]

    warnings = []
    if delta >= 0.5:
        warnings.append(f"no rate lies in (δ, 1−δ) at δ = {delta:g}, so Epsilon* is 0 whatever the losses")
    elif at.separated[0]:
        warnings.append(
            "the fits lie so far apart that no threshold has both rates in (δ, 1−δ): Epsilon* is at its ceiling "
            "ln((1−2δ)/δ), the most that this δ can show"
        )
    location = float(at.location[0])
    share = float(np.logaddexp(0.0, -location)) - 1.0  # the inverse of φ, as a share of the way from lowest to highest
    threshold = lowest * (1 - share) + highest * share
    details = {
        "members": {"n": members.size, "mean": one.mean, "sd": one.sd},
        "nonmembers": {"n": nonmembers.size, "mean": two.mean, "sd": two.sd},
        "lowest_loss": lowest,
        "highest_loss": highest,
        "location": location,
        "fpr": float(at.fpr[0]),
        "fnr": float(at.fnr[0]),
        "ratio": RATIOS[int(at.ratio[0])],
        "at_ceiling": bool(at.separated[0]),
        "bootstrap": ways,
    }
    finite = threshold if math.isfinite(threshold) else None
    return _Measured(float(at.epsilon[0]), finite, None, resampled, warnings, details)


def _transformed(members: FloatArray, nonmembers: FloatArray) -> tuple[Fit, Fit, float, float]:
    """Both sides transformed on their common scale, and the ends of that scale."""
    (low1, high1), (low2, high2) = extremes(members), extremes(nonmembers)
    lowest, highest = min(low1, low2), max(high1, high2)
    return transform(members, lowest, highest), transform(nonmembers, lowest, highest), lowest, highest


def transformed_losses(members: FloatArray, nonmembers: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The losses as the parametric form fits them: what a test of its normal fit must look at."""
    one, two, *_ = _transformed(members, nonmembers)
    return one.centred + one.mean, two.centred + two.mean


def _empirical(
    scores: Scores, delta: float, rates: tuple[float, float], resamples: int, rng: np.random.Generator
) -> _Measured:
    n1, n2 = scores.members.size, scores.nonmembers.size
    curve = scores.curve
    fpr, fnr = curve.fp / n2, (n1 - curve.tp) / n1
    kept = np.flatnonzero((fpr > rates[0]) & (fpr < rates[1]) & (fnr > rates[0]) & (fnr < rates[1]))
    if kept.size == 0:
        crossed = bool(((fpr <= rates[0]) & (fnr <= rates[0])).any() or ((fpr >= rates[1]) & (fnr >= rates[1])).any())
        why = f"no threshold has both rates inside ({rates[0]:g}, {rates[1]:g})"
        advice = (
            "the losses tell members from non-members (almost) without an error: this is the worst case for privacy, "
            "not the best; use form='parametric' or lower_bound"
            if crossed
            else "pass more records, or wider rates"
        )
        return _Measured(0.0, None, None, np.empty(0), [advice], {"thresholds": 0, "separated": crossed}, why)
    values = epsilon_from_rates(fpr[kept], fnr[kept], delta)
    best = int(kept[np.argmax(values)])
    y, x = float(fpr[best]), float(fnr[best])
    ratios = ((1 - delta - x) / y, (1 - delta - y) / x, (x - delta) / (1 - y), (y - delta) / (1 - x))
    tp, fp = int(curve.tp[best]), int(curve.fp[best])
    counts = Counts(tp=tp, fn=n1 - tp, fp=fp, tn=n2 - fp)
    fewest = min(counts.tp, counts.fn, counts.fp, counts.tn)
    warnings = []
    if fewest < _FEW:
        warnings.append(
            f"the smallest count behind the largest ratio is {fewest}: such a maximum lies above the true value on "
            "average and its interval covers less than stated; lower_bound gives a bound that holds"
        )
    details = {
        "fpr": y,
        "fnr": x,
        "ratio": RATIOS[int(np.argmax(ratios))],
        "thresholds": int(kept.size),
        "rates": list(rates),
    }
    return _Measured(
        float(values.max()),
        -float(curve.thresholds[best]),
        counts,
        resampled_maxima(scores, delta, rates, resamples, rng),
        warnings,
        details,
    )


# --- arguments --------------------------------------------------------------------------------------------


def _default_delta(members: int) -> float:
    if members < 3:
        raise InputError(f"delta has no default with {members} member(s), 1/(n ln n) needs 3; pass delta, e.g. 1e-5.")
    return 1 / (members * math.log(members))


def _rates(rates: Any) -> tuple[float, float]:
    remedy = "pass two numbers such as (0.001, 0.999)"
    if not isinstance(rates, (tuple, list, np.ndarray)) or getattr(rates, "ndim", 1) != 1 or len(rates) != 2:
        raise InputError(f"rates must be a pair, got {check.show(rates)}; {remedy}.")
    low = check.within("rates[0]", rates[0], 0.0, 1.0, remedy)
    return low, check.within("rates[1]", rates[1], low, 1.0, remedy, include="(]")


def _pairs(models: Any) -> list[tuple[Any, Any]]:
    shape = "pass a list of (member_losses, nonmember_losses), one pair for each model"
    if not isinstance(models, (list, tuple)) or len(models) == 0:
        raise InputError(f"models must hold at least one pair, got {check.show(models)}; {shape}.")
    for index, pair in enumerate(models):
        if not isinstance(pair, (list, tuple)) or len(pair) != 2:
            raise InputError(f"models[{index}] is {check.show(pair)}; {shape}.")
    return list(models)


def _fnr_at(pair: tuple[Any, Any], index: int, grid: FloatArray) -> FloatArray:
    """The smallest FNR at each FPR of the grid, linear between observed thresholds."""
    try:
        curve = (scores := Scores.from_losses(*pair)).curve
    except InputError as error:
        raise InputError(f"models[{index}]: {error}") from None
    n1, n2 = scores.members.size, scores.nonmembers.size
    fp, fn = np.concatenate([[0], curve.fp]), np.concatenate([[n1], n1 - curve.tp])
    last = np.append(fp[1:] != fp[:-1], True)
    return np.interp(grid, fp[last] / n2, fn[last] / n1)
