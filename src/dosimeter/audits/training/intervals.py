"""From scores and coins to estimates: the headline, intervals at a threshold fixed in advance, a claim under test.

Evidence is a table of scores (runs, points) and a table of independent fair coins of the same shape. Why the bounds
hold: put all runs side by side and call that one mechanism. Flipping one coin changes one record of one run, so if a
training is (ε, δ)-DP, so is the whole with respect to each coin. The one-run theorem (Steinke 2023) then holds for all
coins together, although coins of one run share a model. It requires that the scores depend on the coins through the
models only: the attack's statistics, the points and the threshold come from other models. With one point the runs are
independent tries as well, and the estimators that count errors hold too. With several they do not, because the errors
of one model come together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any

import numpy as np

from dosimeter import _validate as check
from dosimeter import geometry
from dosimeter._validate import BoolArray, FloatArray, InputError, IntArray
from dosimeter.accounting import DpSgd
from dosimeter.audits.assemble import distributions, numbers, roc
from dosimeter.audits.parts import ShiftEvidence
from dosimeter.audits.result import Distributions, Guard, Roc
from dosimeter.audits.training.result import IntervalRow, JointAgainstExact, TestedClaim
from dosimeter.estimate import Estimate, Validity, as_if_independent, number, percent, plain, proven
from dosimeter.estimators.claim import ClaimTest, Profile
from dosimeter.estimators.claim import claim as claim_estimate
from dosimeter.estimators.headline import rank_bins
from dosimeter.estimators.limits import clopper_pearson_limits, jeffreys_limits
from dosimeter.estimators.lower_bound import bound_of_bins, largest_provable, lower_bound
from dosimeter.estimators.rates import clopper_pearson, counts_over_curve, jeffreys, rectangle
from dosimeter.estimators.with_assumptions import bayesian, gaussian
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
    "the errors of points that share a model come together, but this method counts them as independent tries, so the "
    "stated level need not hold; the headline does not assume it"
)
BY_COINS = Guard(
    shift=False,
    checked=True,
    evidence=ShiftEvidence(
        reasons=("Fair coins decided who was a member, so members and non-members differ in nothing else.",)
    ),
)


@dataclass(frozen=True)
class Evidence:
    """Scores and coins (runs, points), the seed that the coins came from, and a threshold fixed in advance.

    A run that failed is an outcome like any other, so its coins stay. It gets a score just below the threshold.
    `neighbours` says what flipping a coin does to a training set: add or remove a record, or replace one.
    """

    scores: FloatArray
    coins: BoolArray
    threshold: float
    mask_seed: int | None = None
    unit: str = "record"
    neighbours: str = "add/remove"

    @property
    def points(self) -> int:
        return self.scores.shape[1]

    def one_run(self) -> OneRun:
        """All coins as the records of one run."""
        each = None if self.unit == "record" else np.arange(self.coins.size)  # every coin is that of a person
        return OneRun(self.scores.ravel(), self.coins.ravel(), self.mask_seed, each)


def pilot_threshold(inside: FloatArray, outside: FloatArray, *, delta: float, confidence: float) -> float:
    """Take the threshold with the largest Jeffreys bound on scores of shadow models, or else the largest advantage.

    It lies midway between two of their scores.
    """
    pilot = Scores(inside, outside)
    fn, tp, fp, tn = counts_over_curve(pilot)
    low, _ = geometry.epsilon_range(*rectangle(fn, tp, fp, tn, 1 - confidence, "lower", jeffreys_limits), delta)
    advantage = tp / pilot.members.size - fp / pilot.nonmembers.size
    # The inverted guess may also force an ε, but a high score must mean a member: such thresholds are not chosen.
    best = int(np.lexsort((advantage, np.where(advantage > 0, low, 0.0)))[-1])
    thresholds = pilot.curve.thresholds
    at = float(thresholds[best])
    below = float(thresholds[best + 1]) if best + 1 < thresholds.size else at
    middle = below + (at - below) / 2
    return middle if middle > below else at


def headline(evidence: Evidence, *, delta: float, confidence: float) -> Estimate:
    """The bound to report: over all coins, which the audit has always drawn itself."""
    coins = evidence.one_run()
    bound = lower_bound(coins, delta=delta, confidence=confidence)
    if evidence.neighbours == "replace":  # the same proof, about the two data sets that these coins decide between
        bins = rank_bins(coins.scores, coins.included)
        again = bound_of_bins(bins, "coins", "replace", delta=delta, confidence=confidence, unit=coins.unit)
        bound = replace(again, warnings=bound.warnings)
    return replace(bound, warnings=tuple(w for w in bound.warnings if w not in coins.mask_warnings))


def at_threshold(evidence: Evidence, *, delta: float, confidence: float) -> list[Estimate]:
    """Two-sided intervals at the threshold that shadow models fixed: Clopper–Pearson, Jeffreys, joint, Gaussian."""
    scores = evidence.one_run().as_scores(independent=True)
    at: dict[str, Any] = {"delta": delta, "confidence": confidence, "sides": "both", "threshold": evidence.threshold}
    estimates = [
        _with(clopper_pearson(scores, **at), UPPER_END),
        _with(jeffreys(scores, **at), UPPER_END),
        _with(bayesian(scores, **at), COVERAGE, UPPER_END),
    ]
    if delta > 0:
        estimates.append(_with(gaussian(scores, **at), UPPER_END))
    estimates = [replace(estimate, neighbours=evidence.neighbours) for estimate in estimates]
    if evidence.points == 1:
        return estimates
    worst = worst_point(evidence, delta=delta, confidence=confidence)
    return [worst, *(as_if_independent(estimate, DEPENDENT) for estimate in estimates)]


def _with(estimate: Estimate, *warnings: str) -> Estimate:
    return replace(estimate, warnings=(*estimate.warnings, *warnings))


def threshold_notes(estimates: Sequence[Estimate]) -> list[str]:
    """Warn where the headline shows a loss and the intervals at the threshold show none."""
    by_name = {e.method: e.low for e in estimates}
    if by_name["lower-bound"] == 0 or by_name["clopper-pearson"] > 0:
        return []
    return [
        "the headline shows a loss, but the intervals at the threshold show none: the shadow models that fixed the "
        "threshold had other training sets than the attacked models, and it does not separate their scores; with a "
        "recipe of steps instead of epochs, both train equally long"
    ]


def joint_against_exact(estimates: Sequence[Estimate]) -> JointAgainstExact | None:
    """Compare the widths of the joint posterior's interval and Clopper–Pearson's; None without both."""
    by_name = {e.method: e for e in estimates}
    if not {"bayesian", "clopper-pearson"} <= set(by_name):
        return None
    joint, exact = by_name["bayesian"], by_name["clopper-pearson"]
    widths = joint.high - joint.low, exact.high - exact.low
    known = all(math.isfinite(w) for w in widths) and widths[1] > 0
    return JointAgainstExact(
        joint=numbers([joint.low, joint.high]),
        exact=numbers([exact.low, exact.high]),
        joint_width=plain(widths[0]),
        exact_width=plain(widths[1]),
        narrower=1 - widths[0] / widths[1] if known else None,
        caveat=COVERAGE,
    )


@dataclass(frozen=True)
class ByPoint:
    """Counts at the threshold for each point, and bounds of the points that hold together (Bonferroni)."""

    tp: IntArray
    fn: IntArray
    fp: IntArray
    tn: IntArray
    epsilon: FloatArray

    def advantage(self) -> list[float | None]:
        """TPR − FPR for each point; None where all of its coins came up the same."""
        inside, outside = self.tp + self.fn, self.fp + self.tn
        return [
            None if min(a, b) == 0 else float(t / a - f / b)
            for t, a, f, b in zip(self.tp, inside, self.fp, outside, strict=True)
        ]


def by_point(evidence: Evidence, *, delta: float, confidence: float) -> ByPoint:
    """Bound ε for each point by Clopper–Pearson, at a level shared by all: for one point the runs are independent."""
    hit, coins = evidence.scores >= evidence.threshold, evidence.coins
    tp, fp = (hit & coins).sum(axis=0), (hit & ~coins).sum(axis=0)
    fn, tn = coins.sum(axis=0) - tp, (~coins).sum(axis=0) - fp
    box = rectangle(fn, tp, fp, tn, (1 - confidence) / evidence.points, "lower", clopper_pearson_limits)
    low, _ = geometry.epsilon_range(*box, delta)
    return ByPoint(tp, fn, fp, tn, low)


def worst_point(evidence: Evidence, *, delta: float, confidence: float) -> Estimate:
    """The largest of the bounds of single points, all of which hold together."""
    points = by_point(evidence, delta=delta, confidence=confidence)
    index = int(np.argmax(points.epsilon))
    low = float(points.epsilon[index])
    cells = {name: int(getattr(points, name)[index]) for name in ("tp", "fn", "fp", "tn")}
    seen = cells["tp"] + cells["fn"] > 0 and cells["fp"] + cells["tn"] > 0
    return proven(
        low,
        delta,
        confidence,
        "clopper-pearson, worst point",
        Validity.INDEPENDENT_RUNS,
        f" This is the largest bound of {evidence.points} points, which all hold at once.",
        neighbours=evidence.neighbours,
        threshold=evidence.threshold,
        counts=Counts(**cells) if seen else None,
        details={"point": index, "points": evidence.points, "threshold_rule": "fixed on shadow models"},
    )


# --- what an audit shows besides its estimates ------------------------------------------------------------


def curve(evidence: Evidence, confidence: float, *, stopped: bool = False) -> Roc:
    """The ROC curve; its band needs one point and a number of runs that was fixed in advance, else it is empty."""
    whole = roc(evidence.one_run().as_scores(), confidence)
    if evidence.points == 1 and not stopped:
        return whole
    size = len(whole.fpr)
    marks = tuple(replace(point, tpr_low=0.0, limit_threshold=None) for point in whole.tpr_at_fpr)
    return replace(whole, fpr_high=(1.0,) * size, tpr_low=(0.0,) * size, tpr_at_fpr=marks)


def score_densities(evidence: OneRun, threshold: float | None = None) -> Distributions:
    """Densities of the scores of records that were in and out, and the threshold."""
    scores = evidence.as_scores()
    return replace(distributions(scores.members, scores.nonmembers), name="score", threshold=plain(threshold))


def rows_of(estimates: Sequence[Estimate]) -> tuple[IntervalRow, ...]:
    """The intervals side by side."""
    return tuple(IntervalRow(e.method, plain(e.low), plain(e.high), e.validity, e.delta) for e in estimates)


def mechanism_of(recipe: Recipe | None, least: int, most: int) -> tuple[DpSgd | None, list[str]]:
    """Find the mechanism that every training on `least` to `most` records is at least as private as, and notes."""
    if recipe is None or recipe.dp is None:
        return None, []
    if recipe.dp.noise_multiplier == 0:
        return None, ["the recipe clips without noise, so no accountant can give a guarantee"]
    few, many = recipe.mechanism(least), recipe.mechanism(most)
    if recipe.sampling == "poisson":  # the highest sampling rate with the most steps is the worst of all sizes
        return replace(few, steps=max(few.steps, many.steps)), []
    return max(few, many, key=lambda m: m.visits), []


# --- a claimed guarantee, tested while the runs come in ----------------------------------------------------

PLAN = "`dosimeter plan` says what an audit of a given size can show"


@dataclass
class Claim:
    """A claimed guarantee and the test that watches the runs; `path` is ln wealth after each of them."""

    epsilon: float
    delta: float
    confidence: float
    profile: Profile | None
    test: ClaimTest
    path: list[float] = field(default_factory=list)

    @classmethod
    def read(cls, claim: Any, *, delta: float, confidence: float) -> Claim:
        """Read a claim from (ε, δ), from pairs (ε', δ') of which the first is the claim, or from a profile δ(ε).

        The claimed ε of a profile is the smallest at which it falls to `delta`.
        """
        profile: Profile | None = None
        if callable(claim):
            pair, profile = (_epsilon_at(claim, delta), delta), claim
        elif isinstance(claim, (tuple, list)) and len(claim) == 2 and all(_is_number(value) for value in claim):
            pair = (claim[0], claim[1])
        elif isinstance(claim, (tuple, list)) and claim and all(_is_pair(value) for value in claim):
            pair, profile = tuple(claim[0]), [(e, d) for e, d in claim]
        else:
            raise InputError(
                f"claim must be (ε, δ), a list of such pairs or a function δ(ε), got {check.show(claim)}; pass one."
            )
        test = ClaimTest(epsilon=pair[0], delta=pair[1], confidence=confidence, profile=profile)
        return cls(test.epsilon, test.delta, test.confidence, profile, test)

    def update(self, score: float, included: bool) -> bool:
        """Add a run to the test, and say whether the claim is rejected."""
        self.test.update(score, included)
        self.path.append(self.test.log_wealth)
        return self.test.rejected

    def estimate(self, evidence: Evidence) -> Estimate:
        """The verdict and the confidence sequence after the runs so far."""
        return claim_estimate(
            evidence.one_run(),
            epsilon=self.epsilon,
            delta=self.delta,
            confidence=self.confidence,
            profile=self.profile,
        )

    def result(self, budget: int) -> TestedClaim:
        """The path of the wealth, and what it had to reach."""
        return TestedClaim(
            epsilon=self.epsilon,
            delta=self.delta,
            rejected=self.test.rejected,
            rejected_at=self.test.rejected_at,
            budget=budget,
            log_wealth=numbers(self.path),
            needed_log_wealth=self.test.goal,
        )

    def reachable(self, runs: int) -> bool:
        """Whether a perfect attack could reject the claim in this many runs, with scores of two values or of many."""
        coins = np.arange(runs) % 2 == 0
        for spread in (0.0, 1.0):
            test = ClaimTest(epsilon=self.epsilon, delta=self.delta, confidence=self.confidence, profile=self.profile)
            test.update_many(spread * np.arange(runs) / runs + 2.0 * coins, coins)
            if test.rejected:
                return True
        return False


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _is_pair(value: Any) -> bool:
    return isinstance(value, (tuple, list)) and len(value) == 2 and all(_is_number(end) for end in value)


def _epsilon_at(profile: Callable[[float], float], delta: float) -> float:
    """The smallest ε with profile(ε) ≤ δ, to 1e-9; a profile falls in ε."""
    if delta == 0:
        raise InputError("delta is 0, but the claimed ε of a profile is read off at delta; pass e.g. 1e-5.")
    try:
        if profile(0.0) <= delta:
            return 0.0
        high = 1.0
        while profile(high) > delta:
            high *= 2
            if high > 512:
                raise InputError(
                    f"claim: the profile stays above delta = {delta:g} up to ε = 512; pass another profile."
                )
        low = 0.0
        while high - low > 1e-9:
            middle = (low + high) / 2
            low, high = (middle, high) if profile(middle) > delta else (low, middle)
    except (TypeError, ZeroDivisionError, OverflowError) as error:
        raise InputError(f"claim must be a function δ(ε), but it fails ({check.show(error)}); pass one.") from None
    return high


def check_budget(
    coins: int,
    *,
    delta: float,
    confidence: float,
    claim: Claim | None = None,
    what: str = "coins (models × points)",
    remedy: str = "pass more runs",
) -> None:
    """Refuse an audit in which even a perfect attack could show nothing, or could not reject the claim."""
    if claim is not None:
        if not claim.reachable(coins):
            raise InputError(
                f"runs={coins} is too small: even a perfect attack could not reject the claim ε = "
                f"{number(claim.epsilon)} at {percent(confidence)} confidence; pass more runs. {PLAN}."
            )
        return
    if largest_provable(coins // 2, coins, "coins", "add/remove", delta, 1 - confidence) <= 0:
        raise InputError(
            f"{coins} {what} are too few: even a perfect attack could show nothing at {percent(confidence)} confidence "
            f"and delta = {delta:g}; {remedy}. {PLAN}."
        )
