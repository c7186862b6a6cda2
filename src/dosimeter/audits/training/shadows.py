"""What many trainings gave, and what is chosen with them: the records that an attack is tried on, and their scores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypedDict

import numpy as np
import numpy.typing as npt

from dosimeter import _validate as check
from dosimeter._persons import Persons
from dosimeter._validate import BoolArray, FloatArray, InputError, IntArray
from dosimeter.attacks import (
    best_attack,
    clip_bkd,
    leave_one_out,
    mislabelled,
    out_of_distribution,
    select_worst,
)
from dosimeter.attacks.table import SHADOW_ATTACKS
from dosimeter.audits.parts import StoreEntry
from dosimeter.audits.result import FailedTraining, Provenance, TrainingCounts
from dosimeter.audits.scores.result import Accuracy
from dosimeter.audits.training.repeatable import BY_CHANCE, Pipeline, TrainingOutcome
from dosimeter.audits.training.result import CandidateRow
from dosimeter.evidence import fair_coins
from dosimeter.models.outputs import Kind
from dosimeter.records.reader import torch_pair
from dosimeter.training.identity import Identity

HOPELESS = 8  # trainings: if none of the first ones worked, the others are not waited for
MODELS = {"shadow": "shadow models", "reference": "reference models", "run": "runs"}  # by stage


@dataclass(frozen=True)
class Trainings:
    """What a list of trainings gave: signals (models, records) of those that worked, and what happened to the rest.

    `kept` are the rows of memberships that worked, `asked` how many there were, `seen` how many came before the audit
    had enough, `accuracy` the means over models, `entries` how many models came from which entry of the store,
    `agreements` how well the outputs of each foreign training fit the labels of its members, and `kind` how the
    outputs were read.
    """

    kept: IntArray
    signals: FloatArray
    failed: tuple[FailedTraining, ...]
    asked: int
    seen: int
    cached: int
    accuracy: Accuracy
    entries: Mapping[str, int]
    stage: str = "run"
    agreements: tuple[float, ...] = ()
    kind: Kind | None = None

    def notes(self) -> list[str]:
        """What makes it doubtful that the outputs are answers of models trained on these records."""
        doubts = []
        if self.agreements and (middle := float(np.median(self.agreements))) < BY_CHANCE:
            doubts.append(
                f"the outputs of the {MODELS[self.stage]} fit the labels of the records they were trained on hardly "
                f"better than shuffled outputs would (median: {middle:.2g} standard deviations above chance): either "
                "these models learnt nothing, or row i of the outputs is not the answer for record i, and then a low "
                "bound says nothing about the training"
            )
        if self.agreements and self.stage != "run" and len(self.signals) > 1 and not np.ptp(self.signals, axis=0).any():
            doubts.append(
                f"all {len(self.signals)} {MODELS[self.stage]} gave the same outputs, though each should be trained on "
                "its own records: the training ignores its indices"
            )
        return doubts

    def require(self, least: int, what: str) -> None:
        """Refuse to continue with fewer trainings than an audit needs; the first failure says why."""
        if self.kept.size < least:
            why = f" The first failure: {self.failed[0].reason}" if self.failed else ""
            raise InputError(
                f"only {self.kept.size} of {self.seen} {what} worked, but at least {least} must; repair train or pass "
                f"more.{why}"
            )


def counted(asked: int, *, failed: int = 0, spared: int = 0) -> TrainingCounts:
    """Count trainings: asked = done + failed + spared, where a test that had enough spares some."""
    return TrainingCounts(asked=asked, done=asked - failed - spared, failed=failed, spared=spared)


def provenance(
    known: Identity | None, entries: Mapping[str, Mapping[str, int]], *, computed: int, cached: int
) -> Provenance:
    """Say what trainings are keyed by, how many were computed now, and each entry that came from the store.

    It is the only part of an audit in which one that was stopped and resumed differs from one that was not.
    """
    return Provenance(
        computed=computed,
        cached=cached,
        given=known is not None and known.given,
        key=None if known is None else known.text,
        versions=() if known is None else tuple(known.versions),
        entries=tuple(
            StoreEntry(key=key, models=models, stage=stage)
            for stage, taken in entries.items()
            for key, models in taken.items()
        ),
    )


class Tally(TypedDict):
    """The fields of `TrainedMetadata`."""

    trainings: TrainingCounts
    failed: tuple[FailedTraining, ...]
    provenance: Provenance


def tallied(stages: Mapping[str, Trainings], known: Identity | None) -> Tally:
    """The metadata that tell of all trainings of an audit."""
    parts = list(stages.values())
    asked, seen = sum(part.asked for part in parts), sum(part.seen for part in parts)
    failed, cached = tuple(failure for part in parts for failure in part.failed), sum(part.cached for part in parts)
    entries = {name: part.entries for name, part in stages.items()}
    return {
        "trainings": counted(asked, failed=len(failed), spared=asked - seen),
        "failed": failed,
        "provenance": provenance(known, entries, computed=seen - cached, cached=cached),
    }


def collect(
    outcomes: Generator[TrainingOutcome, None, None],
    memberships: BoolArray,
    *,
    stage: str,
    columns: IntArray | None = None,
    stop: Callable[[TrainingOutcome], bool] | None = None,
) -> Trainings:
    """Gather trainings, of which only `columns` are kept; `stop` may end them early, after the one it is shown.

    They also end early when the first few have all failed.
    """
    kept, signals, failed, shares, agreements = [], [], [], [], []
    entries: Counter[str] = Counter()
    cached = seen = 0
    kind: Kind | None = None
    for outcome in outcomes:
        seen += 1
        cached += outcome.cached
        kind = outcome.kind
        if outcome.cached and outcome.key is not None:
            entries[outcome.key] += 1
        if outcome.signals is None:
            failed.append(FailedTraining(stage, outcome.index, outcome.seed, outcome.failed))
        else:
            kept.append(outcome.index)
            signals.append(outcome.signals if columns is None else outcome.signals[columns])
            shares.append(outcome.accuracy)
            agreements += [] if outcome.agreement is None else [outcome.agreement]
        hopeless = not kept and len(failed) == HOPELESS
        if hopeless or (stop is not None and stop(outcome)):
            outcomes.close()
            break
    width = memberships.shape[1] if columns is None else columns.size
    return Trainings(
        np.array(kept, np.int64),
        np.array(signals) if signals else np.empty((0, width)),
        tuple(failed),
        asked=len(memberships),
        seen=seen,
        cached=cached,
        accuracy=_mean(shares),
        entries=dict(entries),
        stage=stage,
        agreements=tuple(agreements),
        kind=kind,
    )


def _mean(shares: list[tuple[float, float] | None]) -> Accuracy:
    known = [pair for pair in shares if pair is not None]
    if not known:
        return Accuracy(None, None)
    inside, outside = np.array(known).T
    left = outside[~np.isnan(outside)]
    return Accuracy(float(inside.mean()), float(left.mean()) if left.size else None)


# --- candidates and canaries, the worst of them, and their scores ------------------------------------------

CANARIES = ("mislabelled", "out-of-distribution", "clip-bkd")
SELECT = ("accuracy", "auc")
FEWEST_SHADOWS = 4  # one model with and one without the point to learn from, and one of each to be the target
MOST_REFERENCE_RECORDS = 2000  # further records whose signals an attack may compare with
SPARE = 8  # crafted canaries of which the worst are taken
SHOWN = 20  # candidates in the table of weights

AttackFunction = Callable[[FloatArray, FloatArray, BoolArray], npt.ArrayLike]


@dataclass(frozen=True)
class AttackScorer:
    """An attack that gives scores: one of the named ones, or the caller's function (target, shadows, included)."""

    name: str
    function: AttackFunction | None = None

    @classmethod
    def read(cls, attack: Any, shadows: int, *, log_odds: bool) -> AttackScorer:
        """Take the attack that was asked for; "auto" takes the best one for the number of shadow models.

        RMIA reads signals as log-odds, so the caller's own signals get LiRA instead.
        """
        if callable(attack):
            return cls(getattr(attack, "__name__", type(attack).__name__), attack)
        name = check.choice("attack", attack, ("auto", *SHADOW_ATTACKS))
        if name == "auto":
            best = best_attack(shadows)
            name = "lira" if best == "rmia" and not log_odds else best
        return cls(name)

    def scores(self, target: FloatArray, shadows: FloatArray, included: BoolArray) -> FloatArray:
        """Score targets (T, n) with the help of shadow models alone: no coin of a target influences them."""
        if self.function is None:
            return SHADOW_ATTACKS[self.name].scores(target, shadows, included)
        return self._checked([self.function(row, shadows, included) for row in target], target.shape)

    def pilot(self, shadows: FloatArray, included: BoolArray) -> FloatArray:
        """Score the shadow models themselves, each as the target of the others."""
        return leave_one_out(self.function or self.name, shadows, included)

    def _checked(self, scores: Any, shape: tuple[int, ...]) -> FloatArray:
        values = np.asarray(scores, np.float64)
        if values.shape != shape or not np.isfinite(values).all():
            raise InputError(
                f"attack {self.name} gave scores of shape {values.shape} for {shape}, or some that are not finite; "
                "return one finite number for each record of each target."
            )
        return values


@dataclass(frozen=True)
class Candidates:
    """The pipeline with crafted records appended, how many units (records or persons) are real, and the candidates."""

    pipeline: Pipeline
    real: int
    rows: IntArray
    canaries: str | None


def find_candidates(pipeline: Pipeline, canaries: Any, count: int, seed: int, *, spare: int = SPARE) -> Candidates:
    """Take all records as candidates or, with canaries, these alone; they come after the real records.

    At least `spare` canaries are crafted, so that the worst of them can be taken.
    """
    real = pipeline.units
    if canaries is None:
        return Candidates(pipeline, real, np.arange(real), None)
    if isinstance(canaries, str):
        name = check.choice("canaries", canaries, CANARIES)
        if pipeline.recipe is None:
            raise InputError(
                f"canaries={name!r} are crafted rows, which a function of indices cannot see; craft them with "
                "dosimeter.attacks, append them to your data and name them by points=, or pass a recipe."
            )
        x, y = _crafted(name, pipeline, max(count, spare), count, seed)
    else:
        name = "given"
        x, y = _given(canaries, pipeline, count)
    both = replace(
        pipeline,
        x=np.concatenate([pipeline.x, x]),
        y=np.concatenate([pipeline.y, y]),
        persons=None if pipeline.persons is None else _with_canary_owners(pipeline.persons, len(x)),
    )
    return Candidates(both, real, np.arange(real, both.units), name)


def _with_canary_owners(known: Persons, count: int) -> Persons:
    """The persons, and one more for each crafted record."""
    names = np.array([*(str(name) for name in known.names), *(f"canary {i}" for i in range(count))])
    return Persons(names, np.concatenate([known.place, known.names.size + np.arange(count)]))


def _crafted(name: str, pipeline: Pipeline, many: int, count: int, seed: int) -> tuple[Any, Any]:
    x, y = pipeline.x, pipeline.y
    classes = int(y.max()) + 1
    if name == "mislabelled":
        crafted = mislabelled(x, y, many, classes, seed)
    elif name == "out-of-distribution":
        crafted = out_of_distribution(x, many, seed, classes=classes)
    else:
        crafted = clip_bkd(x, y, count)  # copies of one point: none is worse than the others
    return crafted.X, crafted.y


def _given(canaries: Any, pipeline: Pipeline, count: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    canaries = torch_pair(canaries)
    if not isinstance(canaries, (tuple, list)) or len(canaries) != 2:
        raise InputError(
            f"canaries must be one of {', '.join(CANARIES)}, or a pair (X, y), got {check.show(canaries)}; pass one."
        )
    x, y = np.asarray(canaries[0]), np.asarray(canaries[1])
    if x.shape[1:] != pipeline.x.shape[1:] or y.shape != (len(x),):
        raise InputError(
            f"canaries has records of shape {x.shape} and labels of shape {y.shape}, but a record of the data has "
            f"shape {pipeline.x.shape[1:]}; pass records of that shape with one label each."
        )
    if len(x) < count:
        raise InputError(f"canaries holds {len(x)} records, but challenges={count}; pass as many or ask for fewer.")
    if y.dtype.kind not in pipeline.y.dtype.kind + "biu" or (y.dtype.kind in "biu" and y.min() < 0):
        raise InputError(f"canaries has labels of type {y.dtype}; pass the classes as whole numbers from 0.")
    return x.astype(pipeline.x.dtype, copy=False), y.astype(pipeline.y.dtype, copy=False)


def read_points(points: Any, records: int, name: str = "points") -> IntArray:
    """Read rows of the data, each named once."""
    rows = np.atleast_1d(check.any_array(name, points))
    if rows.ndim != 1 or not rows.size or rows.dtype.kind not in "iu":
        raise InputError(f"{name} must be row numbers of the data, got {check.show(points)}; pass e.g. [17, 4].")
    bad = (rows < 0) | (rows >= records)
    if bad.any():
        place = int(np.argmax(bad))
        raise InputError(f"{name}[{place}] is {rows[place]}, but the rows are 0 to {records - 1}; correct it.")
    if np.unique(rows).size < rows.size:
        raise InputError(f"{name} names a row twice, got {check.show(points)}; name each row once.")
    return rows.astype(np.int64)


def halves(models: int, records: int, seed: int, *, paired: int | None = None) -> BoolArray:
    """Draw who is in which shadow model: random halves, in pairs that share out the records.

    The second model of a pair has the records that the first does not have, so that 2m models hold each record exactly
    m times and an attack can learn about all of them. Only the first `paired` models (default: all) come in pairs. The
    others have an independent fair coin for each record, as models that are attacked must. More models begin with the
    same ones.
    """
    masks = fair_coins(models * records, seed).reshape(models, records)
    last = (models if paired is None else paired) // 2 * 2
    masks[1:last:2] = ~masks[0:last:2]
    empty = np.flatnonzero(~masks.any(axis=1))
    if empty.size:
        raise InputError(f"shadow model {empty[0]} would have none of the {records} records; pass more data.")
    return masks


def in_and_out(masks: BoolArray, least: int) -> BoolArray:
    """Say which records are in and out of at least this many models."""
    inside = masks.sum(axis=0)
    return (inside >= least) & (len(masks) - inside >= least)


def reference_columns(usable: IntArray, points: IntArray, seed: int) -> tuple[IntArray, IntArray]:
    """Choose the columns of signals that an attack sees: the points and some other usable records, at random.

    Returns the columns, sorted, and where the points are among them.
    """
    others = np.setdiff1d(usable, points)
    rng = np.random.default_rng(np.random.SeedSequence(seed))
    if others.size:
        others = rng.choice(others, min(MOST_REFERENCE_RECORDS, others.size), replace=False)
    columns = np.sort(np.concatenate([points, others]))
    return columns, np.searchsorted(columns, points)


@dataclass(frozen=True)
class ChallengedPoints:
    """The challenged rows, why they were chosen, and the columns of signals that their attack sees.

    `columns` are the points and some reference records; `at` is where the points are among them.
    """

    points: IntArray
    weights: FloatArray | None
    ranking: tuple[CandidateRow, ...]
    columns: IntArray
    at: IntArray


def choose(
    shadows: Trainings,
    masks: BoolArray,
    rows: IntArray,
    *,
    points: IntArray | None,
    count: int,
    scorer: AttackScorer,
    by: str,
    seed: int,
) -> ChallengedPoints:
    """Take the points given, or the worst candidates by SelectWorst (Zanella-Béguelin et al. 2023, Alg. 3)."""
    weights: FloatArray | None = None
    ranking: tuple[CandidateRow, ...] = ()
    usable = in_and_out(masks, 2)  # one to be the target and one to learn from, on each side
    if points is not None:
        least = 1 if scorer.name == "loss" else 2  # the loss learns nothing from the shadow models
        short = points[~in_and_out(masks[:, points], least)]
        if short.size:
            raise InputError(
                f"points: row {short[0]} is in {masks[:, short[0]].sum()} of the {len(masks)} shadow models; the "
                f"attack needs at least {least} with it and {least} without it; pass more shadows, e.g. 64."
            )
    else:
        tried = rows[usable[rows]]
        if tried.size < count:
            raise InputError(
                f"only {tried.size} of {rows.size} candidates are in and out of at least 2 of the {len(masks)} shadow "
                f"models, and challenges={count}; pass more shadows, e.g. 64."
            )
        shown = min(tried.size, max(count, SHOWN))
        worst = select_worst(shadows.signals[:, tried], masks[:, tried], shown, by=by)
        order = tried[worst.records]
        points, weights = order[:count], worst.weights[:count]
        ranking = tuple(
            CandidateRow(int(record), float(weight), chosen=place < count)
            for place, (record, weight) in enumerate(zip(order[:SHOWN], worst.weights[:SHOWN], strict=True))
        )
    return ChallengedPoints(points, weights, ranking, *reference_columns(np.flatnonzero(usable), points, seed))
