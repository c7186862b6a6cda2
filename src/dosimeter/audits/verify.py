"""Does an audit's every number follow from the evidence that it carries?

An audit holds the counts that its bounds were computed from. `verify` computes the bounds again from them, without the
scores and without the model, and with the scores also the counts. It finds numbers that were changed, forgotten or
computed by other rules. It cannot find a forger who invents counts: only the data, or a signature of somebody who is
trusted (`dosimeter.audits.sign`), can.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any

import numpy as np

from dosimeter import geometry
from dosimeter._validate import FloatArray, InputError, IntArray, show
from dosimeter.audits.members_only.null_band import LEVEL, prediction_limit
from dosimeter.audits.result import Audit
from dosimeter.audits.scores.run import roc
from dosimeter.estimate import Estimate, Validity, number
from dosimeter.estimators import band
from dosimeter.estimators.advantage import advantage
from dosimeter.estimators.bayesian import bayesian
from dosimeter.estimators.belief import Advantage, epsilon_from_advantage
from dosimeter.estimators.claim import Marks, claim
from dosimeter.estimators.epsilon_star import epsilon_star
from dosimeter.estimators.gaussian import gaussian, mu_from_rates
from dosimeter.estimators.headline import Bins, rank_bins, wanted_edges
from dosimeter.estimators.lower_bound import VALIDITY, bound_of_bins
from dosimeter.estimators.one_run import guess, one_run_bound, one_run_mu_bound
from dosimeter.estimators.rank_betting import betting_bound, rank_betting
from dosimeter.estimators.ranked import largest_provable, logit_bound, ranked, walks_on
from dosimeter.estimators.rates import clopper_pearson, jeffreys
from dosimeter.evidence import MOST_RECORDS, Counts, OneRun, Scores, fair_coins, mask_hash

__all__ = ["Finding", "Standing", "Verification", "verify"]

MOST_BINS = 4096
MOST_RECOMPUTED = 5 * 10**7  # records
CLOSE = 1e-6  # what a sum in another order may change
ON_ONE_HALF = "chosen on one half, bounded on the other"
AT_FPR = "fixed at FPR "
_OF_ALL = ("lower-bound", "one-run")  # whose bins count all records of the audit, as the ROC curve does
_DAMAGED = (ArithmeticError, KeyError, TypeError, ValueError, IndexError, AttributeError)  # what bad evidence provokes


class Standing(StrEnum):
    """Whether a number follows from its evidence."""

    FOLLOWS = "follows"
    CONTRADICTED = "does not follow"
    UNKNOWN = "cannot be recomputed"


@dataclass(frozen=True)
class Finding:
    """One number of an audit, or one part of it, and whether it follows from the evidence."""

    subject: str
    standing: Standing
    reason: str
    stated: float | None = None
    recomputed: float | None = None

    def __str__(self) -> str:
        return f"{self.standing}: {self.subject}, {self.reason}"


@dataclass(frozen=True)
class Verification:
    """What verifying an audit found, one entry for each estimate and for each further part; the headline first.

    `most` is the largest ε that the headline could have proven with as many records, `auc` the area under the ROC
    curve, both from the evidence alone; None where the evidence does not say.
    """

    findings: tuple[Finding, ...]
    most: float | None
    auc: float | None

    @property
    def valid(self) -> bool:
        """Whether nothing was contradicted."""
        return not self.contradictions

    @property
    def contradictions(self) -> tuple[Finding, ...]:
        return tuple(f for f in self.findings if f.standing is Standing.CONTRADICTED)

    @property
    def headline(self) -> Finding:
        return self.findings[0]

    def of(self, subject: str) -> Finding | None:
        """The first finding about a subject."""
        return next((f for f in self.findings if f.subject == subject), None)


class _UnknownError(Exception):
    """The audit does not carry what this number could be recomputed from."""


class _WrongError(Exception):
    """The evidence contradicts the audit, or cannot be evidence at all."""


@dataclass(frozen=True)
class _Again:
    """A number as it comes out of its evidence."""

    epsilon: float
    low: float
    high: float
    validities: tuple[Validity, ...]
    neighbours: tuple[str | None, ...] | None = None
    most: float | None = None
    reason: str = "it is what the counts give"


def verify(audit: Audit, *, data: Scores | OneRun | None = None) -> Verification:
    """Recompute every bound of an audit from the evidence that it carries.

    Args:
        audit: The audit, for example from `Audit.from_json`.
        data: The scores that it was made of. With them also the evidence is recomputed.

    Returns:
        What was found, for each number.

    Raises:
        InputError: If `audit` is no audit, or `data` cannot be its data.

    >>> import numpy as np
    >>> from dosimeter.audits.scores import audit_scores
    >>> rng = np.random.default_rng(0)
    >>> audit = audit_scores(Scores(rng.normal(2, 1, 100), rng.normal(0, 1, 100)))
    >>> verify(audit).valid
    True
    """
    if not isinstance(audit, Audit):
        raise InputError(f"audit must be an Audit, got {show(audit)}; read it with Audit.from_json.")
    if data is not None and not isinstance(data, (Scores, OneRun)):
        raise InputError(f"data must be Scores or OneRun, got {show(data)}; build one of these first.")
    audit = Audit.from_dict(audit.to_dict())  # evidence as a file holds it, whoever built the audit
    found = [_finding(e, audit) for e in audit.estimates]
    parts = [part for part, _ in found]
    bins = next((b for e in audit.estimates if e.method in _OF_ALL for b in [_bins_or_none(e)] if b is not None), None)
    if audit.curve.get("fpr"):
        parts.append(_checked("curve", lambda: _curve_follows(audit, bins)))
    if _has_coins(audit):
        parts.append(_checked("coins", lambda: _coins(audit, bins)))
    if data is not None:
        parts += _from_data(audit, bins, data)
    auc = None if bins is None else _auc(bins)
    return Verification(tuple(parts), found[0][1], auc)


def _finding(estimate: Estimate, audit: Audit) -> tuple[Finding, float | None]:
    """Recompute one estimate; also the most that it could have been."""
    stated = estimate.epsilon
    try:
        again = _recompute(estimate, audit)
        _compare(estimate, again)
    except _UnknownError as error:
        return Finding(estimate.method, Standing.UNKNOWN, str(error), stated), None
    except _WrongError as error:
        return Finding(estimate.method, Standing.CONTRADICTED, str(error), stated), None
    except _DAMAGED as error:
        reason = f"its evidence is damaged ({show(str(error))})"
        return Finding(estimate.method, Standing.CONTRADICTED, reason, stated), None
    return Finding(estimate.method, Standing.FOLLOWS, again.reason, stated, again.epsilon), again.most


def _checked(subject: str, check: Callable[[], str]) -> Finding:
    try:
        return Finding(subject, Standing.FOLLOWS, check())
    except _UnknownError as error:
        return Finding(subject, Standing.UNKNOWN, str(error))
    except _WrongError as error:
        return Finding(subject, Standing.CONTRADICTED, str(error))
    except _DAMAGED as error:
        return Finding(subject, Standing.CONTRADICTED, f"it is damaged ({show(str(error))})")


def _compare(stated: Estimate, again: _Again) -> None:
    for name in ("epsilon", "low", "high"):
        here, there = getattr(stated, name), getattr(again, name)
        if not _close(here, there):
            raise _WrongError(f"{name} is stated as {number(here)}, the evidence gives {number(there)}")
    if stated.validity not in again.validities:
        raise _WrongError(
            f"validity is stated as {stated.validity}, the evidence allows {' or '.join(again.validities)}"
        )
    if again.neighbours is not None and stated.neighbours not in again.neighbours:
        raise _WrongError(f"neighbours is stated as {stated.neighbours}, the evidence is about {again.neighbours[0]}")
    most = stated.details.get("largest_provable")
    if again.most is not None and most is not None and not _close(most, again.most):
        raise _WrongError(f"largest_provable is stated as {show(most)}, it is {number(again.most)}")


def _close(a: float, b: float) -> bool:
    return a == b or abs(a - b) <= CLOSE * max(1.0, abs(a), abs(b))


# --- one estimate -----------------------------------------------------------------------------------------


def _recompute(e: Estimate, audit: Audit) -> _Again:
    if audit.schema == 1 and e.counts is None:
        raise _UnknownError("files of schema 1 carry no evidence")
    if e.confidence <= 0:
        raise _UnknownError("it has no confidence level")
    if "bins" in e.details:
        return _from_bins(e)
    if "paths" in e.details:
        return _from_paths(e)
    name = e.method.partition(",")[0] if e.method.startswith("panoramia") else e.method
    way = _WAYS.get(name)
    if way is None:
        raise _UnknownError(
            "it is not a bound and carries no evidence" if not _is_claimed(e) else "it carries no evidence"
        )
    return way(e, audit)


def _is_claimed(e: Estimate) -> bool:
    return e.validity.is_bound or e.validity in (Validity.CREDIBLE, Validity.ASSUMES_GAUSSIAN)


def _whole(values: Any, what: str, most: int = MOST_RECORDS) -> IntArray:
    """Counts from JSON: whole numbers that are not negative."""
    if not isinstance(values, list) or not all(type(v) is int and 0 <= v <= most for v in values):
        raise _WrongError(f"{what} must be a list of counts")
    return np.array(values, np.int64)


def _one(value: Any, what: str, most: int = MOST_RECORDS) -> int:
    return int(_whole([value], what, most)[0])


def _bins(e: Estimate) -> Bins:
    stored = e.details["bins"]
    records, members = (_whole(stored[name], f"bins.{name}") for name in ("records", "members"))
    if records.size != members.size or not 1 <= records.size <= MOST_BINS:
        raise _WrongError(f"bins must be two lists of one length, 1 to {MOST_BINS}")
    if (records < 1).any() or (members > records).any() or records.sum() > MOST_RECORDS:
        raise _WrongError("bins must hold at least one record each, and no more members than records")
    if not 0 < members.sum() < records.sum():
        raise _WrongError("bins must hold members and non-members")
    bins = Bins(records, members)
    _laid_out(bins)
    return bins


def _laid_out(bins: Bins) -> None:
    """Bins are cut at fixed ranks, or at the ends of a group of tied scores that such a rank falls into."""
    edges, cuts = bins.edges, wanted_edges(bins.total)
    tied = np.unique(np.searchsorted(edges, np.setdiff1d(cuts, edges), "right") - 1)
    ends = np.concatenate([edges[tied], edges[tied + 1]])
    if np.setdiff1d(edges, np.concatenate([cuts, ends])).size:
        raise _WrongError("bins are cut at ranks where none are cut")


def _bins_or_none(e: Estimate) -> Bins | None:
    try:
        return _bins(e) if "bins" in e.details else None
    except (_WrongError, KeyError, TypeError):
        return None


@lru_cache(maxsize=64)
def _bound_of(
    records: tuple[int, ...],
    members: tuple[int, ...],
    game: str,
    neighbours: str,
    delta: float,
    confidence: float,
    unit: str,
) -> Estimate:
    """The headline of these bins; kept, because gate, sign and verify often ask for the same one."""
    bins = Bins(np.array(records, np.int64), np.array(members, np.int64))
    return bound_of_bins(bins, game, neighbours, delta=delta, confidence=confidence, unit=unit)


def _from_bins(e: Estimate) -> _Again:
    bins, game, unit = _bins(e), e.details.get("game"), e.details.get("unit")
    if bins.total > MOST_RECOMPUTED:
        raise _UnknownError(f"recomputing it for {bins.total} records would take too long")
    if game not in VALIDITY or unit not in ("record", "person"):
        raise _WrongError(f"the game is {show(game)} with unit {show(unit)}, which is none that there is")
    after_training = e.validity is Validity.RANDOM_SPLIT  # such coins choose what is shown: a replacement
    measured = e.method == "one-run on generated non-members"  # c + ε is nobody's ε
    fits = e.neighbours is not None and (game != "coins" or (e.neighbours == "replace") is after_training)
    if not (e.neighbours is None if measured else fits):
        raise _WrongError(f"neighbours is {e.neighbours}, which this evidence cannot be about")
    counts = tuple(bins.records.tolist()), tuple(bins.members.tolist())
    again = _bound_of(*counts, game, e.neighbours or "add/remove", e.delta, e.confidence, unit)
    for name in ("tested", "learned", "allowance", "records"):
        if name in e.details and e.details[name] != again.details[name]:
            raise _WrongError(f"{name} is stated as {show(e.details[name])}, the bins give {show(again.details[name])}")
    epsilon, most = again.epsilon, float(again.details["largest_provable"])
    if measured:
        return _Again(epsilon, 0.0, math.inf, (Validity.MEASUREMENT,), None, most)
    allowed: tuple[Validity, ...] = (VALIDITY[game],)
    if e.method == "one-run, real non-members":
        allowed = (Validity.RANDOM_SPLIT, Validity.FINITE_SAMPLE)
    return _Again(epsilon, epsilon, math.inf, allowed, None, most, f"its {bins.records.size} bins of ranks give it")


def _from_paths(e: Estimate) -> _Again:
    records = _one(e.details["records"], "records")
    paths = {str(name): _whole(path, f"paths.{name}") for name, path in e.details["paths"].items()}
    walks = walks_on(paths, records, e.delta, 1 - e.confidence)
    low = max(w.epsilon for w in walks)
    order = "mixed" if len(paths) > 1 else next(iter(paths))
    most = largest_provable(records, e.delta, 1 - e.confidence, order=order)
    return _lower(low, (Validity.FINITE_SAMPLE,), ("add/remove",), most, "its right guesses at the checkpoints give it")


def _lower(
    low: float,
    validities: tuple[Validity, ...],
    neighbours: tuple[str | None, ...] | None = None,
    most: float | None = None,
    reason: str = "it is what the counts give",
) -> _Again:
    return _Again(low, low, math.inf, validities, neighbours, most, reason)


# --- error rates ------------------------------------------------------------------------------------------


def _from_rates(e: Estimate, _audit: Audit) -> _Again:
    """An estimator of error rates, at counts of one threshold or of the uniform band."""
    counts, how = e.counts, e.details.get("threshold_rule", "fixed in advance")
    if counts is None:
        raise _UnknownError("it carries no counts")
    allowed: tuple[Validity, ...] = (_NATURAL[e.method], Validity.EXPLORATORY)
    if how == "uniform":
        return _lower(_uniform(e, counts), allowed)
    if how == "chosen on the data that bounds it":
        allowed = (Validity.EXPLORATORY,)
    found = None
    for cells in _limits_at(counts, how):
        for sides in _sides(e):
            again = _at_counts(e, cells, sides)
            if found is None or (_close(again.low, e.low) and _close(again.high, e.high)):
                found = again
    assert found is not None
    return _Again(found.epsilon, found.low, found.high, allowed)


_NATURAL = {
    "clopper-pearson": Validity.INDEPENDENT_RUNS,
    "jeffreys": Validity.CREDIBLE,
    "bayesian": Validity.CREDIBLE,
    "gaussian": Validity.ASSUMES_GAUSSIAN,
    "advantage": Validity.INDEPENDENT_RUNS,
}


def _sides(e: Estimate) -> tuple[str, ...]:
    """Which intervals may have been asked for; one whose upper end is open may be either."""
    if e.method == "advantage":
        return ("lower",)
    if e.details.get("sides") in ("lower", "both"):
        return (e.details["sides"],)
    return ("both",) if math.isfinite(e.high) else ("lower", "both")


def _limits_at(counts: Counts, how: Any) -> list[Counts]:
    """The counts that limits are taken at: those of the threshold, or what a fixed FPR lets pass among tied scores."""
    if not isinstance(how, str) or not how.startswith(AT_FPR):
        return [counts]
    rate = float(how[len(AT_FPR) :].split()[0])
    total = counts.nonmembers
    passed = [k for k in {math.floor(rate * total * (1 + 1e-6)), math.floor(rate * total)} if counts.fp <= k <= total]
    return [*(Counts(tp=counts.tp, fn=counts.fn, fp=k, tn=total - k) for k in passed), counts]


def _at_counts(e: Estimate, counts: Counts, sides: str) -> Estimate:
    at: dict[str, Any] = {"delta": e.delta, "confidence": e.confidence}
    if e.method == "advantage":
        return advantage(counts, **at)
    ways = {"clopper-pearson": clopper_pearson, "jeffreys": jeffreys, "bayesian": bayesian, "gaussian": gaussian}
    return ways[e.method](counts, **at, sides=sides)


def _uniform(e: Estimate, counts: Counts) -> float:
    """The bound at one threshold of a band that holds at all of them."""
    tail = (1 - e.confidence) / 2
    fpr = band.upper_limits(np.array([counts.fp]), counts.nonmembers, tail)
    fnr = band.upper_limits(np.array([counts.fn]), counts.members, tail)
    if e.method == "gaussian":
        return float(geometry.epsilon_from_mu(float(mu_from_rates(fpr, fnr)[0]), e.delta))
    if e.method == "advantage":
        sure = max(0.0, float(1 - fpr[0] - fnr[0]))
        return max(0.0, float(geometry.log_ratio(1 + sure - 2 * e.delta, 1 - sure)))
    if e.method != "clopper-pearson":
        raise _WrongError(f"{e.method} has no uniform band")
    nothing = np.zeros(1)
    return float(geometry.epsilon_range((nothing, fpr), (nothing, fnr), e.delta)[0][0])


def _worst_point(e: Estimate, _audit: Audit) -> _Again:
    allowed, points = (Validity.INDEPENDENT_RUNS,), _one(e.details["points"], "points")
    if e.counts is None:
        return _lower(0.0, allowed)
    each = 1 - (1 - e.confidence) / max(points, 1)
    return _lower(clopper_pearson(e.counts, delta=e.delta, confidence=each).low, allowed, ("add/remove",))


# --- one run, bets and claims -----------------------------------------------------------------------------


def _fixed(e: Estimate, _audit: Audit) -> _Again:
    if e.details.get("selection") != "fixed":
        raise _UnknownError("it carries no bins of ranks")
    k_in, k_out, correct, records = (_one(e.details[n], n) for n in ("k_in", "k_out", "correct", "records"))
    guesses: dict[str, Any] = {"records": records, "guesses": k_in + k_out, "correct": correct}
    if e.method == "one-run f-DP":
        mu = one_run_mu_bound(**guesses, confidence=e.confidence)
        return _lower(float(geometry.epsilon_from_mu(mu, e.delta)), (Validity.ASSUMES_GAUSSIAN,), ("add/remove",))
    at: dict[str, Any] = {"delta": e.delta, "confidence": e.confidence, "term": e.details.get("term", "smaller")}
    only_in = min(k_in, k_out) == 0
    low = one_run_bound(**guesses, **at, only_in=only_in)
    most = one_run_bound(**{**guesses, "correct": k_in + k_out}, **at, only_in=only_in)
    return _lower(low, (Validity.FINITE_SAMPLE,), ("add/remove",), most)


def _bets(e: Estimate, _audit: Audit) -> _Again:
    corners = e.details["corners"]
    right, wrong = (_whole(corners[name], f"corners.{name}").astype(float) for name in ("right", "wrong"))
    guesses, correct, records = (_one(e.details[n], n) for n in ("guesses", "correct", "records"))
    if right.size != wrong.size or (np.diff(right) < 0).any() or (np.diff(wrong) < 0).any():
        raise _WrongError("corners must be counts of right and wrong guesses that do not fall")
    made = correct <= guesses <= records and (
        not right.size or (right[-1] <= correct and wrong[-1] <= guesses - correct)
    )
    if not made:
        raise _WrongError("corners hold more guesses than were made")
    level = 1 - e.confidence
    low = betting_bound(right, wrong, records, e.delta, level).epsilon
    top = betting_bound(np.array([float(records)]), np.zeros(1), records, e.delta, level).epsilon
    return _lower(low, (Validity.FINITE_SAMPLE,), ("add/remove",), top, "its corners of right guesses give it")


def _claim(e: Estimate, _audit: Audit) -> _Again:
    stored = e.details["marks"]
    runs = _whole(stored["runs"], "marks.runs").astype(float)
    counts = np.array(stored["counts"], dtype=float)
    if runs.size == 0 or runs.size > MOST_BINS or counts.shape[:3] != (runs.size, 2, 2) or counts.ndim != 4:
        raise _WrongError("marks must hold counts for each of their numbers of runs")
    if not 1 <= counts.shape[3] <= MOST_BINS or not np.isfinite(counts).all() or (counts < 0).any():
        raise _WrongError("marks must hold counts that are not negative")
    if (counts.sum(axis=1) > runs[:, None, None]).any() or runs.max() > _one(e.details["runs"], "runs"):
        raise _WrongError("marks hold more hits than there were runs")
    claimed = float(e.details["claimed_epsilon"])
    pairs = [(float(a), float(b)) for a, b in e.details["pairs"]]
    if not 1 <= len(pairs) <= MOST_BINS or pairs[0] != (claimed, e.delta):
        raise _WrongError("the first of the pairs must be the claim itself")
    marks, goal = Marks(runs, counts), -math.log1p(-e.confidence)
    if (marks.wealth(pairs) >= goal) != (e.details["rejected"] is True):
        raise _WrongError(f"rejected is stated as {show(e.details['rejected'])}, the bets say the opposite")
    low = marks.bound(claimed, e.delta, goal)
    most = _most_of_claim(int(e.details["runs"]), claimed, e.delta, e.confidence)
    return _lower(low, (Validity.INDEPENDENT_RUNS,), None, most, "the bets at its marks give it")


def _most_of_claim(runs: int, epsilon: float, delta: float, confidence: float) -> float:
    """What a perfect attack would have shown in as many runs, with scores of two values or of many."""
    if runs > 10**6:
        return math.inf
    coins = np.arange(runs) % 2 == 0
    found = [0.0]
    for spread in (0.0, 1.0):
        scores = spread * np.arange(runs) / max(runs, 1) + 2.0 * coins
        if 0 < coins.sum() < runs:
            found.append(claim(OneRun(scores, coins), epsilon=epsilon, delta=delta, confidence=confidence).low)
    return max(found)


# --- measurements -----------------------------------------------------------------------------------------


def _panoramia(e: Estimate, audit: Audit) -> _Again:
    level = 1 - e.confidence
    if e.details.get("throw_counts") is not None:
        return _throws(e, audit, level / 2)
    bound, selection = _strength(e.details["attack"], e, level if "baseline" not in e.details else level / 2)
    if "baseline" not in e.details:
        exact = (Validity.RANDOM_SPLIT, Validity.FINITE_SAMPLE)
        return _lower(bound, (Validity.EXPLORATORY,) if selection == "naive" else exact)
    without, _ = _strength(e.details["baseline"], e, level / 2)
    allowed = Validity.EXPLORATORY if selection == "naive" else Validity.MEASUREMENT
    return _Again(max(0.0, bound - without), 0.0, math.inf, (allowed,))


def _strength(stored: Mapping[str, Any], e: Estimate, level: float) -> tuple[float, Any]:
    """The bound of one set of scores from its guesses, or from its walk."""
    selection = e.details.get("selection")
    if selection == "ranked":
        if stored.get("path") is None:
            raise _UnknownError("it carries no path of right guesses")
        path = _whole(stored["path"], "path")
        walks = walks_on({"in": path}, _one(e.details["records"], "records"), 0.0, level)
        return max(w.epsilon for w in walks), selection
    guesses, correct = _one(stored["guesses"], "guesses"), _one(stored["correct"], "correct")
    if not 0 <= correct <= guesses:
        raise _WrongError("more guesses are right than were made")
    return max(0.0, float(logit_bound(guesses, correct, level))), selection


def _throws(e: Estimate, audit: Audit, level: float) -> _Again:
    """ε̃ from medians over the throws of the coins, 0 unless the attack stands out from the stand-ins."""
    if e.details.get("selection") == "ranked":
        raise _UnknownError("a walk for each throw of the coins would have to be kept")
    medians = []
    for name in ("baseline", "attack"):
        counts = [_whole(pair, "throw_counts") for pair in e.details["throw_counts"][name]]
        if not counts or any(pair.size != 2 or pair[1] > pair[0] for pair in counts):
            raise _WrongError("throw_counts must be pairs of guesses and right ones")
        table = np.array(counts)
        medians.append(float(np.median(np.maximum(0.0, logit_bound(table[:, 0], table[:, 1], level)))))
    for name, value in zip(("c_lb", "c_plus_epsilon_lb"), medians, strict=True):
        if not _close(float(e.details[name]), value):
            raise _WrongError(f"{name} is stated as {show(e.details[name])}, the throws give {number(value)}")
    passed = _stands_out(e, audit)
    if (e.details["stands_out"] is True) != passed:
        raise _WrongError(f"stands_out is stated as {show(e.details['stands_out'])}, the stand-ins say the opposite")
    guesses = max(int(pair[0]) for pair in e.details["throw_counts"]["attack"])
    most = max(0.0, float(logit_bound(guesses, guesses, level)) - medians[0])
    value = max(0.0, medians[1] - medians[0]) if passed else 0.0
    validity = Validity.EXPLORATORY if e.details.get("selection") == "naive" else Validity.MEASUREMENT
    return _Again(value, 0.0, math.inf, (validity,), None, most, "its counts in each throw of the coins give it")


def _stands_out(e: Estimate, audit: Audit) -> bool:
    verdict, null = e.details.get("verdict"), audit.details.get("null")
    if verdict is None or null is None:
        return float(e.details["null_p_value"]) <= 1 - e.confidence
    label = e.details["target"]
    rows = [row for row in audit.details["targets"] if row["name"] == label]
    if len(rows) != 1 or any(rows[0][name] != verdict[name] for name in ("auc", "first_part")):
        raise _WrongError("the verdict and the target's row speak of different values")
    level = min(1 - e.confidence, LEVEL) / 2
    firsts = np.array(null["first_part"], float)
    rate = float(firsts.mean())
    floor = math.sqrt(max(rate * (1 - rate), 0.0) / _one(e.details["records"], "records"))
    limits = prediction_limit(null["auc"], level), prediction_limit(firsts, level, floor=floor)
    return bool(verdict["auc"] > limits[0] or verdict["first_part"] > limits[1])


def _sensitivities(e: Estimate, _audit: Audit) -> _Again:
    if e.details.get("accountant") == "rdp":
        raise _UnknownError("the accountant's orders would have to be kept")
    low, high = (float(geometry.epsilon_from_mu(float(e.details["mu"][end]), e.delta)) for end in ("lowest", "highest"))
    return _Again(high, low, high, (Validity.MEASUREMENT,), reason="the stated μ gives it")


def _advantage_of_adversary(e: Estimate, _audit: Audit) -> _Again:
    stored = {key: value for key, value in e.details["advantage"].items() if key != "warnings"}
    stored = {key: math.inf if value is None else value for key, value in stored.items()}
    found = epsilon_from_advantage(Advantage(**stored), delta=e.delta, conversion=e.details["conversion"])
    return _Again(found.epsilon, found.low, found.high, (found.validity,), reason="the stated advantage gives it")


_WAYS: dict[str, Callable[[Estimate, Audit], _Again]] = {
    **dict.fromkeys(_NATURAL, _from_rates),
    "clopper-pearson, worst point": _worst_point,
    "one-run": _fixed,
    "one-run f-DP": _fixed,
    "rank betting": _bets,
    "claim": _claim,
    "panoramia": _panoramia,
    "sensitivities": _sensitivities,
    "advantage, trajectory": _advantage_of_adversary,
    "advantage, wins": _advantage_of_adversary,
}


# --- the curve and the coins ------------------------------------------------------------------------------


def _auc(bins: Bins) -> float:
    """The area under the ROC curve through the edges of the bins."""
    inside, outside = bins.members[::-1], (bins.records - bins.members)[::-1]
    reached = np.cumsum(inside)
    return float(((reached - inside / 2) * outside).sum() / (inside.sum() * outside.sum()))


def _curve_follows(audit: Audit, bins: Bins | None) -> str:
    curve = audit.curve
    if bins is None:
        raise _UnknownError("no bins of ranks are kept to compare it with")
    members = int(bins.members.sum())
    outside = bins.total - members
    fp, tp = (_counted(curve[name], total, name) for name, total in (("fpr", outside), ("tpr", members)))
    top_tp = np.concatenate([[0], np.cumsum(bins.members[::-1])])
    top_fp = np.concatenate([[0], np.cumsum((bins.records - bins.members)[::-1])])
    higher = (fp[:, None] < top_fp) & (tp[:, None] > top_tp)
    lower = (fp[:, None] > top_fp) & (tp[:, None] < top_tp)
    if higher.any() or lower.any():
        raise _WrongError("it does not pass through the bins of ranks")
    _no_bin_too_wide(bins, fp + tp)
    _band_follows(audit, fp, tp, outside, members)
    return f"its {fp.size} points fit the bins of ranks"


def _counted(shares: Sequence[float], total: int, name: str) -> IntArray:
    values = np.array(shares, float) * total
    whole = np.round(values)
    if (np.abs(values - whole) > 1e-6 * max(1.0, math.sqrt(total))).any():
        raise _WrongError(f"{name} holds shares that {total} records cannot give")
    return whole.astype(np.int64)


def _no_bin_too_wide(bins: Bins, ranks: IntArray) -> None:
    """A bin that spans a rank at which bins are cut holds one group of tied scores, so no threshold falls inside it."""
    edges = bins.edges
    cuts = wanted_edges(bins.total)
    spanning = np.setdiff1d(cuts, edges)
    wide = np.unique(np.searchsorted(edges, spanning, "right") - 1)
    inside = np.setdiff1d(bins.total - ranks, edges)
    if np.isin(np.searchsorted(edges, inside, "right") - 1, wide).any():
        raise _WrongError("a bin of ranks was left whole although a threshold falls inside it")


def _band_follows(audit: Audit, fp: IntArray, tp: IntArray, outside: int, members: int) -> None:
    stated = [np.array(audit.curve[name], float) for name in ("fpr_high", "tpr_low")]
    if (stated[0] == 1).all() and (stated[1] == 0).all():
        return
    tail = (1 - audit.headline.confidence) / 2
    again = band.upper_limits(fp, outside, tail), 1 - band.upper_limits(members - tp, members, tail)
    for name, here, there in zip(("fpr_high", "tpr_low"), stated, again, strict=True):
        if not np.allclose(here, there, rtol=0, atol=CLOSE):
            raise _WrongError(f"{name} is not the band of these counts")


def _has_coins(audit: Audit) -> bool:
    """Whether coins were drawn for this audit alone."""
    meta = audit.metadata
    return meta.get("kind") == "one-run" or (meta.get("kind") == "training" and meta.get("game") == "challenge")


def _coins(audit: Audit, bins: Bins | None) -> str:
    """Coins drawn from a seed that the audit names can be drawn again."""
    meta = audit.metadata
    seeds = meta.get("seeds")
    seed = seeds.get("coins") if isinstance(seeds, Mapping) else None
    if type(seed) is not int or bins is None:
        raise _UnknownError("the audit does not name the seed of its coins")
    coins = fair_coins(bins.total, seed)
    if mask_hash(coins) != meta.get("mask_hash") or int(coins.sum()) != int(bins.members.sum()):
        raise _WrongError("the seed draws other coins than those of the audit")
    return f"its seed draws these {coins.size} coins again"


# --- from the data ----------------------------------------------------------------------------------------


def _from_data(audit: Audit, bins: Bins | None, data: Scores | OneRun) -> list[Finding]:
    """The evidence itself, from the scores that it was counted in."""
    scores = data if isinstance(data, Scores) else data.as_scores()
    found = []
    if bins is not None:
        found.append(_checked("data: lower-bound", lambda: _same_bins(bins, data)))
    for e in audit.estimates:
        check = _data_check(e, audit, data, scores)
        if check is not None:
            found.append(_checked(f"data: {e.method}", check))
    if audit.curve.get("fpr"):
        found.append(_checked("data: curve", lambda: _same_curve(audit, scores)))
    if isinstance(data, OneRun) and data.groups is None and "mask_hash" in audit.metadata:
        found.append(_checked("data: coins", lambda: _same_mask(audit, data)))
    if not found:
        raise InputError("data holds scores, but this audit carries nothing that scores could give; leave data out.")
    return found


def _data_check(e: Estimate, audit: Audit, data: Scores | OneRun, scores: Scores) -> Callable[[], str] | None:
    at: dict[str, Any] = {"delta": e.delta, "confidence": e.confidence}
    if e.method in _NATURAL and e.counts is not None and e.threshold is not None:
        return lambda: _same_counts(e, audit, scores)
    if e.method.startswith("epsilon-star-") and scores.from_loss:
        return lambda: _same_number(
            e, epsilon_star(-scores.members, -scores.nonmembers, form=e.details["form"], resamples=0, **at).epsilon
        )
    if isinstance(data, Scores):
        return None
    if e.method == "ranked":
        order = "mixed" if len(e.details["paths"]) > 1 else next(iter(e.details["paths"]))
        return lambda: _same_number(e, ranked(data, order=order, **at).low)
    if e.method == "rank betting":
        return lambda: _same_number(e, rank_betting(data, **at).low)
    if e.method.startswith("one-run") and "k_in" in e.details:
        return lambda: _same_guesses(e, data)
    if e.method == "claim":
        pairs = [(float(a), float(b)) for a, b in e.details["pairs"]]
        return lambda: _same_number(e, claim(data, epsilon=pairs[0][0], profile=pairs, **at).low)
    return None


def _same_bins(bins: Bins, data: Scores | OneRun) -> str:
    if isinstance(data, OneRun):
        values, member = data.scores, data.included
    else:
        values = np.concatenate([data.members, data.nonmembers])
        member = np.arange(values.size) < data.members.size
    again = rank_bins(values, member)
    if not (np.array_equal(again.records, bins.records) and np.array_equal(again.members, bins.members)):
        raise _WrongError("the scores fall into other bins of ranks than the audit holds")
    return f"its bins of ranks are those of {values.size} scores"


def _same_counts(e: Estimate, audit: Audit, scores: Scores) -> str:
    if e.details.get("threshold_rule") == ON_ONE_HALF:
        scores = scores.split(int(audit.metadata["seed"]))[1]
    assert e.threshold is not None
    if scores.counts_at(e.threshold) != e.counts:
        raise _WrongError("the scores give other counts at its threshold")
    return "its counts are those of the scores"


def _same_number(e: Estimate, again: float) -> str:
    if not _close(e.epsilon, again):
        raise _WrongError(f"epsilon is stated as {number(e.epsilon)}, the scores give {number(again)}")
    return "it is what the scores give"


def _same_guesses(e: Estimate, data: OneRun) -> str:
    made = guess(data, k_in=_one(e.details["k_in"], "k_in"), k_out=_one(e.details["k_out"], "k_out"))
    if made.correct != e.details["correct"] or data.total != e.details["records"]:
        raise _WrongError("the scores give other right guesses")
    return "its right guesses are those of the scores"


def _same_curve(audit: Audit, scores: Scores) -> str:
    again = roc(scores, audit.headline.confidence)
    columns: list[tuple[Any, FloatArray]] = [(audit.curve[name], again[name]) for name in ("fpr", "tpr")]
    columns.append(([audit.curve["auc"]], np.array([again["auc"]])))
    for name in ("fpr", "tpr"):
        points = np.array([p[name] for p in again["tpr_at_fpr"]])
        columns.append(([p[name] for p in audit.curve["tpr_at_fpr"]], points))
    if any(len(here) != len(there) or not np.allclose(here, there, rtol=0, atol=1e-9) for here, there in columns):
        raise _WrongError("the scores have another ROC curve")
    return "it is that of the scores"


def _same_mask(audit: Audit, data: OneRun) -> str:
    if mask_hash(data.included) != audit.metadata["mask_hash"]:
        raise _WrongError("the data's coins are others than those of the audit")
    return "they have the hash that the audit names"
