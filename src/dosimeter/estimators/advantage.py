"""Membership advantage, TPR − FPR, with a limit, and the ε that an advantage forces."""

from __future__ import annotations

import numpy as np

from dosimeter import _validate as check
from dosimeter import geometry
from dosimeter.estimate import Estimate, Validity, for_rates, number, percent
from dosimeter.estimators.limits import clopper_pearson_limits
from dosimeter.estimators.rates import Threshold, at_threshold, counts_over_curve, rectangle, rule, uniform_looks
from dosimeter.evidence import Counts, Scores


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
