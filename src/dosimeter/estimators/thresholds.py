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


def threshold_at_fpr(scores: Scores, fpr: float) -> float:
    """The lowest threshold with at most fpr · n false positives, found from the non-members alone.

    It stands just above an order statistic of the non-members, so Clopper–Pearson limits at it stay valid: the members
    are independent of it, and the FPR above the (k+1)-th highest of n is at most Beta(k+1, n−k), ties or not, whose
    quantile is the limit for k = `passed_at_fpr` false positives. Tied scores may leave fewer; k sets the limit.
    """
    return above_order(scores, passed_at_fpr(scores, fpr))


def passed_at_fpr(scores: Scores, fpr: float) -> int:
    """The most false positives that an FPR allows: fpr · n, rounded down."""
    return int(np.floor(fpr * scores.nonmembers.size * (1 + 1e-12)))


def above_order(scores: Scores, passed: int) -> float:
    """The threshold just above the non-member that `passed` others precede; the lowest of them if all may pass."""
    ordered = scores.sorted_nonmembers
    if passed >= ordered.size:
        return float(ordered[0])
    return math.nextafter(float(ordered[ordered.size - 1 - passed]), math.inf)


def counts_over_curve(scores: Scores) -> tuple[Any, Any, Any, Any]:
    """Arrays fn, tp, fp, tn at every distinct threshold, the highest first."""
    curve = scores.curve
    return scores.members.size - curve.tp, curve.tp, curve.fp, scores.nonmembers.size - curve.fp
