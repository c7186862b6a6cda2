"""μ-Gaussian DP: the bound for mechanisms whose trade-off curve is Gaussian, and only for them: full batches."""

from __future__ import annotations

import numpy as np
from scipy import special

from dosimeter import _validate as check
from dosimeter import geometry
from dosimeter._validate import FloatArray, InputError
from dosimeter.estimate import Estimate, Validity, for_rates, number, percent
from dosimeter.estimators.limits import clopper_pearson_limits
from dosimeter.estimators.rates import (
    NAIVE_WARNING,
    SIDES,
    Rectangle,
    Threshold,
    at_threshold,
    counts_over_curve,
    rectangle,
    rule,
    uniform_looks,
)
from dosimeter.evidence import Counts, Scores

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
