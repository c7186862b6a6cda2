"""How a threshold may be chosen: fixed in advance, on a separate half, or on the data itself (naive)."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dosimeter import _validate as check
from dosimeter._validate import InputError
from dosimeter.evidence import Counts, Scores

Threshold = str | float | None

NAIVE_WARNING = (
    "the threshold was chosen on the same data that bounds it, so the stated confidence does not hold; "
    "use lower_bound, or threshold='uniform' or 'split'"
)


class Choice(NamedTuple):
    """A threshold, the counts to bound with, and how it came about."""

    counts: Counts
    threshold: float
    how: str
    naive: bool


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
) -> Choice:
    """Counts at a threshold; `best` finds the best one on the scores it is given."""
    wanted = rule(threshold, fpr, default)
    if wanted == "split":
        pilot, rest = scores.split(check.seed(seed))
        value = best(pilot)
        return Choice(rest.counts_at(value), value, "chosen on one half, bounded on the other", False)
    if wanted == "naive":
        value = best(scores)
        return Choice(scores.counts_at(value), value, "chosen on the data that bounds it", True)
    if wanted == "fpr":
        assert fpr is not None
        rate = float(fpr)
        value = threshold_at_fpr(scores, rate)
        return Choice(scores.counts_at(value), value, f"fixed at FPR {rate:g} by the non-members", False)
    value = float(wanted)
    return Choice(scores.counts_at(value), value, "fixed in advance", False)


def threshold_at_fpr(scores: Scores, fpr: float) -> float:
    """The lowest threshold with at most fpr · n false positives, found from the non-members alone.

    It stands just above an order statistic of the non-members, so Clopper–Pearson limits at it stay valid: the members
    are independent of it, and the FPR above the (k+1)-th highest of n is Beta(k+1, n−k), whose quantile is the limit.
    """
    ordered = scores.sorted_nonmembers
    allowed = int(np.floor(fpr * ordered.size * (1 + 1e-12)))
    if allowed >= ordered.size:
        return float(ordered[0])
    return math.nextafter(float(ordered[ordered.size - 1 - allowed]), math.inf)


def counts_over_curve(scores: Scores) -> tuple[Any, Any, Any, Any]:
    """Arrays fn, tp, fp, tn at every distinct threshold, the highest first."""
    curve = scores.curve
    return scores.members.size - curve.tp, curve.tp, curve.fp, scores.nonmembers.size - curve.fp
