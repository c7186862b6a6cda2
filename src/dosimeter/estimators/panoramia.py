"""PANORAMIA: what a member-only audit with generated non-members can say (Kazmi 2024).

Each of m audit records shows a real member or a generated non-member, by a fair coin. The *baseline* scores see the
record alone: how well they tell the two apart gives c_lb, the gap between real and generated data. The *attack* scores
also see the model's outputs and give {c+ε}_lb. Their difference ε̃ is a measurement: it is a lower bound
on ε only if c_lb reaches the true c. With real non-members there is no gap, and {c+ε}_lb alone bounds ε.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from dosimeter import _validate as check
from dosimeter._validate import FloatArray, InputError, IntArray
from dosimeter.estimate import Estimate, Validity, claim_of_bound, number, percent
from dosimeter.estimators.ranked import guess, logit_bound, ranked
from dosimeter.estimators.walk import checkpoints, local_levels
from dosimeter.evidence import OneRun


class BoundCurve(NamedTuple):
    """The bound at every number of "member" guesses that a threshold can make, the fewest first."""

    guesses: IntArray
    correct: IntArray
    recall: FloatArray
    bound: FloatArray


class Strength(NamedTuple):
    """How well one set of scores tells members from non-members: the bound and where it was found."""

    bound: float
    guesses: int
    correct: int
    recall: float
    path: tuple[int, ...] | None = None  # right guesses at the checkpoints of a walk

    @property
    def saturated(self) -> bool:
        """Whether every guess was right, so that the bound says only how many there were."""
        return self.bound > 0.0 and self.correct == self.guesses

    def to_dict(self) -> dict[str, Any]:
        found = self._asdict() | {"saturated": self.saturated}
        return found if self.path is not None else {key: value for key, value in found.items() if key != "path"}


def bound_curve(evidence: OneRun, level: float) -> BoundCurve:
    """max(0, logit B(level; v, r−v+1)) at the end of every group of tied scores: one bound for each threshold."""
    share = check.within("level", level, 0.0, 1.0, "pass 1 − confidence, e.g. 0.025", include="()")
    guesses, correct = _prefixes(evidence)
    bound = np.zeros(guesses.size)
    some = 2 * correct > guesses if share <= 0.5 else correct > 0  # no bound above 0 from half right or less
    bound[some] = np.maximum(0.0, logit_bound(guesses[some], correct[some], share))
    return BoundCurve(guesses, correct, correct / evidence.included.sum(), bound)


def _prefixes(evidence: OneRun) -> tuple[IntArray, IntArray]:
    """(guesses, right ones) at the end of every group of tied scores."""
    order = np.argsort(-evidence.scores)
    ordered = evidence.scores[order]
    ends = np.flatnonzero(np.append(ordered[1:] != ordered[:-1], True))
    return ends + 1, np.cumsum(evidence.included[order], dtype=np.int64)[ends]


def _best_prefix(evidence: OneRun, level: float) -> tuple[float, int, int]:
    """The largest bound over all thresholds, with its guesses and right guesses.

    For a level up to ½ a bound is at most logit(v/r): what cannot beat the best of a few thresholds is left out.
    """
    guesses, correct = _prefixes(evidence)
    if level <= 0.5:
        few = np.unique(np.searchsorted(guesses, checkpoints(evidence.total)).clip(0, guesses.size - 1))
        least = special.expit(max(0.0, float(logit_bound(guesses[few], correct[few], level).max())))
        worth = correct >= least * guesses
        guesses, correct = (guesses[worth], correct[worth]) if worth.any() else (guesses[:1], correct[:1])
    bound = logit_bound(guesses, correct, level)
    best = int(np.argmax(bound))
    return max(0.0, float(bound[best])), int(guesses[best]), int(correct[best])


def _strength(evidence: OneRun, level: float, guesses: str | int) -> Strength:
    members = int(evidence.included.sum())
    if guesses == "naive":
        best, total, right = _best_prefix(evidence, level)
        return Strength(best, total, right, right / members)
    if guesses == "ranked":
        found = ranked(evidence, delta=0.0, confidence=1.0 - level, order="in")
        right, total = int(found.details["correct"]), int(found.details["guesses"])
        path = tuple(found.details["paths"]["in"])
        return Strength(found.epsilon, total, right, right / members, path)
    made = guess(evidence, k_in=int(guesses), k_out=0)
    bound = max(0.0, float(logit_bound(made.k_in, made.correct, level)))
    return Strength(bound, made.k_in, made.correct, made.correct / members)


def null_differences(
    baseline: OneRun, attack: OneRun, *, points: Any, level: float, resamples: int = 200, seed: int = 0
) -> tuple[float, FloatArray]:
    """The difference of the best bounds over `points` numbers of guesses, and the same when neither is the better one.

    For two equally good sets of scores it does not matter which of a record's two ranks belongs to which; so the
    ranks of each record are exchanged by a fair coin, its label kept. Records between the same two checkpoints in
    both orders are alike: how many of a cell are exchanged is binomial, and no sorting is needed.
    """
    ends = np.asarray(points)
    size = ends.size + 1
    cells = []
    for evidence, child in zip((baseline, attack), np.random.SeedSequence(seed).spawn(2), strict=True):
        position = np.empty(evidence.total, np.int64)
        position[_score_order(evidence.scores, int(child.generate_state(1)[0]))] = np.arange(1, evidence.total + 1)
        cells.append(np.searchsorted(ends, position, "left"))
    key = (cells[0] * size + cells[1]) * 2 + attack.included
    number_of = np.bincount(key, minlength=2 * size * size)
    used = np.flatnonzero(number_of)
    records = number_of[used].astype(float)
    first, second, inside = used // 2 // size, used // 2 % size, used % 2
    rng = np.random.default_rng(np.random.SeedSequence(seed).spawn(3)[2])
    exchanged = np.vstack([np.zeros(used.size), rng.binomial(number_of[used], 0.5, (resamples, used.size))])
    in_first, in_second = (np.eye(size)[cell] for cell in (first, second))

    def best(own: FloatArray, other: FloatArray) -> FloatArray:
        def cumulated(weight: FloatArray) -> FloatArray:
            inflow = ((records - exchanged) * weight) @ own + (exchanged * weight) @ other
            return np.cumsum(inflow, axis=1)[:, :-1]

        total, right = cumulated(np.ones(used.size)), cumulated(inside.astype(float))
        return np.maximum(0.0, logit_bound(total, right, level).max(axis=1))

    difference = best(in_second, in_first) - best(in_first, in_second)
    return float(difference[0]), difference[1:]


def _score_order(scores: FloatArray, seed: int) -> IntArray:
    """Indices from the highest score to the lowest, ties in an order drawn from `seed`."""
    shuffle = np.random.default_rng(np.random.SeedSequence(seed)).permutation(scores.size)
    return shuffle[np.argsort(-scores[shuffle], kind="stable")]


_NAIVE = (
    "the threshold was chosen on the data that bound it: with no leak at all such bounds are above 0 in 21 % "
    "(1000 records) to 30 % (10 000) of audits instead of 2.5 %"
)


def panoramia(
    *,
    baseline: OneRun | None,
    attack: OneRun,
    confidence: float = 0.95,
    guesses: str | int = "ranked",
    resamples: int = 200,
    seed: int = 0,
) -> Estimate:
    """Measure ε̃ = max(0, {c+ε}_lb − c_lb) from baseline and attack scores of the same records (PANORAMIA).

    Args:
        baseline: Scores of a classifier that sees the records alone, in the order of `attack`. None says that the
            non-members are real ones and that chance alone decided which records were members: then {c+ε}_lb, at the
            full level, is a lower bound on ε for replacing a record. Its coins are thrown after training and choose
            what is shown, so it needs that random split; coins that decided who was trained on need none (`one_run`).
        attack: Scores of a classifier that sees the model's outputs too.
        confidence: The confidence of the two bounds together.
        guesses: "ranked" (both bounds hold for every number of guesses at once), a number fixed in advance, or "naive"
            (the best threshold without a correction, as in the thesis; not a bound).
        resamples: Resamples for the spread of ε̃; 0 skips it.
        seed: Decides the resamples.

    Returns:
        The measurement; with `baseline=None`, a lower bound.

    Raises:
        InputError: If the two hold different records, or an argument is out of range.

    >>> import numpy as np
    >>> from dosimeter import OneRun, fair_coins
    >>> coins, rng = fair_coins(2000, seed=1), np.random.default_rng(0)
    >>> baseline, attack = (OneRun(rng.normal(lead * coins, 1), coins) for lead in (0.2, 2.0))
    >>> round(panoramia(baseline=baseline, attack=attack).epsilon, 1)
    3.8
    """
    confidence, seed = check.confidence(confidence), check.seed(seed)
    level = 1.0 - confidence
    count = check.whole("resamples", resamples, 0, "pass e.g. 200, or 0 for no null band", 100_000)
    _check_evidence(baseline, attack)
    if isinstance(guesses, str):
        check.choice("guesses", guesses, ("ranked", "naive"))
    else:
        guesses = check.whole("guesses", guesses, 1, f"pass at most the {attack.total} records there are", attack.total)
    warnings = [*attack.mask_warnings, *([_NAIVE] if guesses == "naive" else [])]
    if isinstance(guesses, int) and any(e is not None and _cut_tied(e, guesses) for e in (baseline, attack)):
        warnings.append("scores are tied where guessing stops; as few of these guesses as possible count as right")
    if baseline is None:
        return _real_nonmembers(_strength(attack, level, guesses), attack, confidence, guesses, warnings)

    c, both = (_strength(e, level / 2, guesses) for e in (baseline, attack))
    measured = max(0.0, both.bound - c.bound)
    null = _null(baseline, attack, level, guesses, count, seed) if count else {}
    warnings += _measurement_warnings(c, both, null.get("null_p_value", 0.0), level)
    naive = guesses == "naive"
    return Estimate(
        epsilon=measured,
        low=0.0,
        high=math.inf,
        delta=0.0,
        confidence=confidence,
        method="panoramia",
        validity=Validity.EXPLORATORY if naive else Validity.MEASUREMENT,
        claim=f"PANORAMIA measures ε̃ = {number(measured)} ({number(both.bound)} with the model less {number(c.bound)} "
        f"without it, {percent(confidence)} confidence{', thresholds chosen on the same data' if naive else ''}): a "
        "measurement, and a lower bound on ε only if no baseline can do better.",
        warnings=tuple(warnings),
        details={
            "c_lb": c.bound,
            "c_plus_epsilon_lb": both.bound,
            "baseline": c.to_dict(),
            "attack": both.to_dict(),
            **null,
            "level": level / 2,
            "selection": guesses,
            "records": attack.total,
        },
    )


def _null(
    baseline: OneRun, attack: OneRun, level: float, guesses: str | int, resamples: int, seed: int
) -> dict[str, Any]:
    """The central band of the difference between equally good scores, and how often they differ at least as much."""
    if isinstance(guesses, int):
        points, local = np.array([guesses]), level / 2
    else:
        points, local = checkpoints(attack.total)[::-2][::-1], level / 2
    if guesses == "ranked":
        local = float(local_levels(attack.total, np.array([level / 2])).min())
    observed, null = null_differences(baseline, attack, points=points, level=local, resamples=resamples, seed=seed)
    band = np.quantile(null, [level / 2, 1.0 - level / 2])
    chance = (1 + np.count_nonzero(null >= observed)) / (resamples + 1)
    return {"null_band": [float(band[0]), float(band[1])], "null_p_value": float(chance)}


def _cut_tied(evidence: OneRun, guesses: int) -> bool:
    if guesses >= evidence.total:
        return False
    around = np.partition(evidence.scores, [evidence.total - guesses - 1, evidence.total - guesses])
    return bool(around[evidence.total - guesses - 1] == around[evidence.total - guesses])


def _check_evidence(baseline: OneRun | None, attack: OneRun) -> None:
    for name, evidence in (("baseline", baseline), ("attack", attack)):
        if not isinstance(evidence, OneRun) and not (name == "baseline" and evidence is None):
            raise InputError(f"{name} must be a OneRun, got {type(evidence).__name__}; build OneRun(scores, included).")
    if baseline is None:
        return
    if baseline.total != attack.total:
        raise InputError(
            f"baseline has {baseline.total} records but attack has {attack.total}; score the same records with both."
        )
    differ = np.flatnonzero(baseline.included != attack.included)
    if differ.size:
        raise InputError(
            f"included differs between baseline and attack at record {differ[0]} ({differ.size} in all); both must "
            "score the same records, with the same coins, in the same order."
        )


def _measurement_warnings(baseline: Strength, attack: Strength, chance: float, level: float) -> list[str]:
    warnings = []
    for name, strength in (("baseline", baseline), ("attack", attack)):
        if strength.saturated:
            warnings.append(
                f"the {name} is saturated: all {strength.guesses} guesses were right, so {number(strength.bound)} is "
                "set by their number alone"
            )
    if chance > level:
        warnings.append(
            f"two equally good sets of scores differ by as much in {percent(round(chance, 3))} of cases: no leak shown"
        )
    return warnings


def _real_nonmembers(
    found: Strength, attack: OneRun, confidence: float, guesses: str | int, warnings: list[str]
) -> Estimate:
    naive = guesses == "naive"
    if naive:
        sentence = (
            f"The best threshold gives ε = {number(found.bound)} ({found.correct} of {found.guesses} guesses right), "
            "but it was chosen on the same data: this is not a bound."
        )
    else:
        sentence = (
            claim_of_bound(found.bound, 0.0, confidence, neighbours="replace")
            + f" {found.correct} of {found.guesses} guesses were right. This holds if chance alone decided which "
            "records were members and which were not."
        )
    return Estimate(
        epsilon=found.bound,
        low=found.bound,
        high=math.inf,
        delta=0.0,
        confidence=confidence,
        method="panoramia",
        validity=Validity.EXPLORATORY if naive else Validity.RANDOM_SPLIT,
        neighbours="replace",  # a coin decides which of a member and a non-member is shown
        claim=sentence,
        warnings=tuple(warnings),
        details={
            "c_lb": 0.0,
            "c_plus_epsilon_lb": found.bound,
            "attack": found.to_dict(),
            "level": 1.0 - confidence,
            "selection": guesses,
            "records": attack.total,
        },
    )
