"""From the coins of a game to estimates: the headline, intervals at a threshold fixed in advance, and both sides.

Evidence is a table of scores (runs, points) and a table of independent fair coins of the same shape. Why the bounds
hold: put all runs side by side and call that one mechanism. Flipping one coin changes one record of one run, so if a
training is (ε, δ)-DP, so is the whole with respect to each coin; the one-run theorem (Steinke 2023) then holds for all
coins together, although coins of one run share a model. It asks that the scores do not depend on the coins other than
through the models: the attack's statistics, the points and the threshold come from other models. With one point the
runs are independent tries as well, and the estimators that count errors hold too; with several they do not, because
the errors of one model come together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dosimeter import geometry
from dosimeter._validate import BoolArray, FloatArray, IntArray
from dosimeter.accounting import DpSgd
from dosimeter.audits.model.run import distributions
from dosimeter.audits.result import Guard
from dosimeter.audits.scores.run import roc
from dosimeter.estimate import Estimate, Validity
from dosimeter.estimators.bayesian import bayesian
from dosimeter.estimators.gaussian import gaussian
from dosimeter.estimators.lower_bound import lower_bound
from dosimeter.estimators.rates import clopper_pearson, clopper_pearson_limits, jeffreys, jeffreys_limits, rectangle
from dosimeter.estimators.thresholds import counts_over_curve
from dosimeter.estimators.wording import as_if_independent, proven
from dosimeter.evidence import Counts, OneRun, Scores
from dosimeter.training import Recipe

UPPER_END = (
    "the upper end says how much this attack can show at this threshold; a better attack may show more, so it does not "
    "bound the ε of the training from above"
)
COVERAGE = (
    "credible is not confidence: where both error rates are about equal, the lower end of a 95 % interval lies above "
    "the truth in up to 20 % of audits"
)
DEPENDENT = (
    "the errors of points that share a model come together, and this method counts them as independent tries, so the "
    "stated level need not hold; the headline does not assume it"
)
BY_COINS = Guard(
    shift=False,
    checked=True,
    evidence={"reasons": ["Fair coins decided who was a member, so members and non-members differ in nothing else."]},
)


@dataclass(frozen=True)
class Evidence:
    """Scores and coins (runs, points) of a game, the seed that the coins came from, and a threshold fixed in advance.

    A run that failed is an outcome like any other, so its coins stay: it gets a score just below the threshold.
    """

    scores: FloatArray
    coins: BoolArray
    threshold: float
    mask_seed: int | None = None
    unit: str = "record"

    @property
    def points(self) -> int:
        return self.scores.shape[1]

    def one_run(self) -> OneRun:
        """All coins as the records of one run."""
        each = None if self.unit == "record" else np.arange(self.coins.size)  # every coin is that of a person
        return OneRun(self.scores.ravel(), self.coins.ravel(), self.mask_seed, each)


def pilot_threshold(inside: FloatArray, outside: FloatArray, *, delta: float, confidence: float) -> float:
    """The threshold with the largest Jeffreys bound on scores of shadow models; the largest advantage where all are 0.

    It stands midway between two of their scores.
    """
    pilot = Scores(inside, outside)
    fn, tp, fp, tn = counts_over_curve(pilot)
    low, _ = geometry.epsilon_range(*rectangle(fn, tp, fp, tn, 1 - confidence, "lower", jeffreys_limits), delta)
    advantage = tp / pilot.members.size - fp / pilot.nonmembers.size
    # The inverted guess may force ε too, but a score is high for a member: it must not be chosen for it.
    best = int(np.lexsort((advantage, np.where(advantage > 0, low, 0.0)))[-1])
    thresholds = pilot.curve.thresholds
    at = float(thresholds[best])
    below = float(thresholds[best + 1]) if best + 1 < thresholds.size else at
    middle = below + (at - below) / 2
    return middle if middle > below else at


def headline(evidence: Evidence, *, delta: float, confidence: float) -> Estimate:
    """The bound to report: over all coins, which an audit has always drawn itself."""
    coins = evidence.one_run()
    found = lower_bound(coins, delta=delta, confidence=confidence)
    return replace(found, warnings=tuple(w for w in found.warnings if w not in coins.mask_warnings))


def at_threshold(evidence: Evidence, *, delta: float, confidence: float) -> list[Estimate]:
    """Two-sided intervals at the threshold that shadow models fixed: Clopper–Pearson, Jeffreys, joint, Gaussian."""
    scores = evidence.one_run().as_scores(independent=True)
    at: dict[str, Any] = {"delta": delta, "confidence": confidence, "sides": "both", "threshold": evidence.threshold}
    found = [
        _with(clopper_pearson(scores, **at), UPPER_END),
        _with(jeffreys(scores, **at), UPPER_END),
        _with(bayesian(scores, **at), COVERAGE, UPPER_END),
    ]
    if delta > 0:
        found.append(_with(gaussian(scores, **at), UPPER_END))
    if evidence.points == 1:
        return found
    worst = worst_point(evidence, delta=delta, confidence=confidence)
    return [worst, *(as_if_independent(estimate, DEPENDENT) for estimate in found)]


def _with(estimate: Estimate, *warnings: str) -> Estimate:
    return replace(estimate, warnings=(*estimate.warnings, *warnings))


def threshold_notes(estimates: Sequence[Estimate]) -> list[str]:
    """A word of warning where the headline shows something and the intervals at the threshold nothing."""
    by_name = {e.method: e.low for e in estimates}
    if by_name["lower-bound"] == 0 or by_name["clopper-pearson"] > 0:
        return []
    return [
        "the headline shows a loss, the intervals at the threshold none: the shadow models fixed it on other training "
        "sets than the attacked models have, and here it does not part their scores; a recipe with steps instead of "
        "epochs makes both train alike long"
    ]


def joint_against_exact(estimates: Sequence[Estimate]) -> dict[str, Any] | None:
    """How much narrower the joint posterior's interval is than Clopper–Pearson's; None without an interval of each."""
    by_name = {e.method: e for e in estimates}
    if not {"bayesian", "clopper-pearson"} <= set(by_name):
        return None
    joint, exact = by_name["bayesian"], by_name["clopper-pearson"]
    widths = joint.high - joint.low, exact.high - exact.low
    known = all(math.isfinite(w) for w in widths) and widths[1] > 0
    return {
        "joint": [joint.low, joint.high],
        "exact": [exact.low, exact.high],
        "joint_width": widths[0],
        "exact_width": widths[1],
        "narrower": 1 - widths[0] / widths[1] if known else None,
        "caveat": COVERAGE,
    }


@dataclass(frozen=True)
class ByPoint:
    """Counts at the threshold for each point, and the bound of each that all keep together (Bonferroni)."""

    tp: IntArray
    fn: IntArray
    fp: IntArray
    tn: IntArray
    epsilon: FloatArray

    def advantage(self) -> list[float | None]:
        """TPR − FPR for each point; None where one of its coins never fell on a side."""
        inside, outside = self.tp + self.fn, self.fp + self.tn
        return [
            None if min(a, b) == 0 else float(t / a - f / b)
            for t, a, f, b in zip(self.tp, inside, self.fp, outside, strict=True)
        ]


def by_point(evidence: Evidence, *, delta: float, confidence: float) -> ByPoint:
    """Clopper–Pearson bounds of each point, at a level shared by all: for one point the runs are independent."""
    hit, coins = evidence.scores >= evidence.threshold, evidence.coins
    tp, fp = (hit & coins).sum(axis=0), (hit & ~coins).sum(axis=0)
    fn, tn = coins.sum(axis=0) - tp, (~coins).sum(axis=0) - fp
    box = rectangle(fn, tp, fp, tn, (1 - confidence) / evidence.points, "lower", clopper_pearson_limits)
    low, _ = geometry.epsilon_range(*box, delta)
    return ByPoint(tp, fn, fp, tn, low)


def worst_point(evidence: Evidence, *, delta: float, confidence: float) -> Estimate:
    """The largest of the bounds of single points, all of which hold together."""
    found = by_point(evidence, delta=delta, confidence=confidence)
    index = int(np.argmax(found.epsilon))
    low = float(found.epsilon[index])
    cells = {name: int(getattr(found, name)[index]) for name in ("tp", "fn", "fp", "tn")}
    seen = cells["tp"] + cells["fn"] > 0 and cells["fp"] + cells["tn"] > 0
    return proven(
        low,
        delta,
        confidence,
        "clopper-pearson, worst point",
        Validity.INDEPENDENT_RUNS,
        f" This is the largest bound of {evidence.points} points, which all hold at once.",
        neighbours="add/remove",
        threshold=evidence.threshold,
        counts=Counts(**cells) if seen else None,
        details={"point": index, "points": evidence.points, "threshold_rule": "fixed on shadow models"},
    )


# --- what an audit shows besides its estimates ------------------------------------------------------------


def curve(evidence: Evidence, confidence: float, *, stopped: bool = False) -> dict[str, Any]:
    """The ROC curve of the game; its band holds for one point and runs whose number was fixed, else it is empty."""
    found = roc(evidence.one_run().as_scores(), confidence)
    if evidence.points == 1 and not stopped:
        return found
    size = len(found["fpr"])
    marks = [{**point, "tpr_low": 0.0, "limit_threshold": math.inf} for point in found["tpr_at_fpr"]]
    return {**found, "fpr_high": np.ones(size), "tpr_low": np.zeros(size), "tpr_at_fpr": marks}


def score_densities(evidence: Evidence) -> dict[str, Any]:
    """Densities of the scores with the point in and out, and the threshold."""
    scores = evidence.one_run().as_scores()
    return {**distributions(scores.members, scores.nonmembers), "name": "score", "threshold": evidence.threshold}


def rows_of(estimates: Sequence[Estimate]) -> list[dict[str, Any]]:
    """The intervals side by side."""
    return [
        {"method": e.method, "low": e.low, "high": e.high, "validity": str(e.validity), "delta": e.delta}
        for e in estimates
    ]


def mechanism_of(recipe: Recipe | None, least: int, most: int) -> tuple[DpSgd | None, list[str]]:
    """The mechanism that trainings on `least` to `most` records are all at least as private as, and notes on it."""
    if recipe is None or recipe.dp is None:
        return None, []
    if recipe.dp.noise_multiplier == 0:
        return None, ["the recipe clips without noise, so no accountant promises anything"]
    few, many = recipe.mechanism(least), recipe.mechanism(most)
    if recipe.sampling == "poisson":  # the highest sampling rate with the most steps is the worst of all sizes
        return replace(few, steps=max(few.steps, many.steps)), []
    return max(few, many, key=lambda m: m.visits), []
