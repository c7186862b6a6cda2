"""What many trainings gave: their signals in one table, which of them failed, and what came from a store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import TypedDict

import numpy as np

from dosimeter._validate import BoolArray, FloatArray, InputError, IntArray
from dosimeter.audits.result import FailedTraining, Provenance, StoreEntry, TrainingCounts
from dosimeter.audits.scores.result import Accuracy
from dosimeter.audits.training.agreement import BY_CHANCE
from dosimeter.audits.training.repeatable import TrainingOutcome
from dosimeter.models.outputs import Kind
from dosimeter.training.identity import Identity

__all__ = ["Trainings", "collect", "counted", "provenance", "tallied"]

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
