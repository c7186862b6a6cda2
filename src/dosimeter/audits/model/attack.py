"""What the model is asked, and which attack is made of its answers: decided before the target's labels are looked at.

With reference models the attack is chosen on the references, in `reference_attack`. Without any, the signals are
calibrated by those of other records: the scores are then a function of the model's answers and of the records, so no
bound is weakened.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypedDict, cast

import numpy as np

from dosimeter import _validate as check
from dosimeter._validate import FloatArray, InputError, IntArray
from dosimeter.attacks.calibration import FEWEST as FEWEST_CALIBRATED
from dosimeter.attacks.table import CALIBRATED, SHADOW_ATTACKS
from dosimeter.audits.model.pool import Pool
from dosimeter.audits.result import Audit
from dosimeter.audits.scores import audit_scores
from dosimeter.audits.scores.result import AttackResult, ScoresDetails, ScoresMetadata
from dosimeter.audits.shift.blind import features_of
from dosimeter.audits.shift.records import read_records, thumbnails
from dosimeter.estimate import Validity
from dosimeter.estimators.limits import threshold_at_fpr
from dosimeter.evidence import OneRun, Scores
from dosimeter.models import BlackBox, HardLabels, Losses, MultiLabel, Perturbation, Predictions, access
from dosimeter.models.outputs import KINDS, Kind, Task
from dosimeter.models.regression import standardised
from dosimeter.records import take

__all__ = [
    "PLAIN",
    "QUERIES",
    "At",
    "Attacked",
    "Question",
    "Target",
    "attack_alone",
    "digests",
    "read_attack",
    "read_question",
    "read_similar",
    "sides_of",
    "signals_of",
]
QUERIES = 32  # for each record, where a model gives labels alone
MOST_QUERIES = 10_000


@dataclass(frozen=True)
class Question:
    """How every model of an audit is asked.

    `queries` is how often a model that gives labels alone is asked about each record, None for a model that gives
    scores. `outputs` says what a function, module or file returns, where the caller said so.
    """

    task: Task = "classification"
    queries: int | None = None
    perturbation: Perturbation | None = None
    outputs: Kind | None = None

    @property
    def signals_are_losses(self) -> bool:
        """Whether attacks with references read minus the losses."""
        return self.queries is None and self.task != "regression"

    def box(self, model: Any, *, batch_size: int | None = None, device: Any = None) -> BlackBox:
        """A model as it is asked."""
        where: dict[str, Any] = {"batch_size": batch_size, "device": device}
        if self.queries is not None:
            return HardLabels(model, self.perturbation, queries=self.queries, **where)
        if self.task == "regression":
            return Predictions(model, **where)
        if self.task == "multi-label":
            return MultiLabel(model, outputs=self.outputs, **where)
        return access(model, outputs=self.outputs, **where)

    def ask(self, box: BlackBox, pool: Pool) -> tuple[Losses, Losses]:
        """The losses of both sides.

        Perturbed records are asked about in the order of their content, as the references are, so that each record is
        perturbed alike for all models. The residuals of both sides are standardised together.
        """
        if self.queries is not None:
            order = np.argsort(digests(pool), kind="stable")
            X, y = pool.joined()
            return _parted(box.losses(take(X, order), y[order]), order, len(pool.inside[1]))
        inside, outside = box.losses(*pool.inside), box.losses(*pool.outside)
        if self.task != "regression":
            return inside, outside
        residuals = signals_of((inside, outside))
        values = standardised(residuals, np.concatenate([pool.inside[1], pool.outside[1]]) - residuals)
        cut = inside.values.size
        return replace(inside, values=values[:cut]), replace(outside, values=values[cut:])

    def signals(self, model: Any, X: Any, y: Any) -> FloatArray:
        """The signal of each record under a reference: log-odds of its label, or its residual.

        A label that a reference never met gets the lowest log-odds.
        """
        box = self.box(model)
        classes = None if self.task != "classification" or self.queries is not None else getattr(box, "classes", None)
        if classes is None:
            return _signals(box.losses(X, y))
        met = np.isin(y, np.asarray(classes))
        values = np.empty(met.size)
        values[met] = -box.losses(take(X, np.flatnonzero(met)), y[met]).values
        values[~met] = values[met].min()
        return values


PLAIN = Question()


def read_question(
    task: Task, pool: Pool, *, outputs: Any = None, queries: Any = None, seed: int
) -> tuple[Question, tuple[str, ...]]:
    """Check how the model may be asked, and what is worth a note on the page."""
    if outputs != "labels":
        if queries is not None:
            raise InputError("queries counts questions to a model that gives labels alone; pass outputs='labels' too.")
        stated = None if outputs is None else check.choice("outputs", outputs, (*KINDS, "labels"))
        if stated is not None and task == "regression":
            raise InputError(f"outputs is {stated!r}, but a regression predicts numbers; leave outputs out.")
        return Question(task, outputs=cast(Kind | None, stated)), ()
    if task != "classification":
        raise InputError(f"outputs='labels' is for one class for each record, and the task is {task}; leave it out.")
    if pool.labels is None:
        raise InputError("outputs='labels' compares answers with true labels; pass (X, y).")
    budget = QUERIES if queries is None else queries
    asked = check.whole("queries", budget, 1, f"pass how often to ask about each record, e.g. {QUERIES}", MOST_QUERIES)
    perturbation = None if asked == 1 else Perturbation.of(pool.joined()[0], seed)
    note = (
        f"the model was asked for labels alone, {asked} {'time' if asked == 1 else 'times'} for each record "
        f"({asked * pool.size} questions)"
    )
    return Question(task, asked, perturbation), (note,)


def signals_of(losses: tuple[Losses, Losses]) -> FloatArray:
    """The signals of both sides, members first."""
    return np.concatenate([_signals(side) for side in losses])


def _signals(losses: Losses) -> FloatArray:
    return -losses.values if losses.signals is None else losses.signals


def _parted(losses: Losses, order: Any, members: int) -> tuple[Losses, Losses]:
    """Losses of ordered records as those of the members and of the others."""
    assert losses.correct is not None and losses.signals is not None
    back = np.argsort(order)
    values, correct, signals = losses.values[back], losses.correct[back], losses.signals[back]
    return (
        replace(losses, values=values[:members], correct=correct[:members], signals=signals[:members]),
        replace(losses, values=values[members:], correct=correct[members:], signals=signals[members:]),
    )


def digests(pool: Pool) -> Any:
    """A digest of each record with its label; equal records have equal ones."""
    X, y = pool.joined()
    rows = (row + _label_bytes(label) for row, label in zip(_rows(X), y, strict=True))
    return np.array([hashlib.blake2b(row, digest_size=16).hexdigest() for row in rows])


def _label_bytes(label: Any) -> bytes:
    return np.ascontiguousarray(label).tobytes() if np.ndim(label) else str(label).encode()


def _rows(X: Any) -> Iterator[bytes]:
    """The content of each record."""
    if hasattr(X, "iloc"):
        from pandas.util import hash_pandas_object

        return (int(value).to_bytes(8, "little") for value in hash_pandas_object(X, index=False))
    if hasattr(X, "tocsr"):
        return (X[i].indices.tobytes() + X[i].data.tobytes() for i in range(X.shape[0]))
    if isinstance(X, list):
        return (row.encode() if isinstance(row, str) else np.asarray(row).tobytes() for row in X)
    return (np.ascontiguousarray(row).tobytes() for row in np.asarray(X))


MOST_CELLS = 40_000_000  # of a table that records are compared in: a few hundred megabytes
LOW = 0.01


def read_attack(attack: Any) -> str:
    """The name of the attack, or "auto"."""
    return check.choice("attack", attack, ("auto", *SHADOW_ATTACKS, *CALIBRATED))


class Attacked(NamedTuple):
    """The audit by the attack of the headline, its evidence, and the scores of the other attacks.

    The other attacks only say where attacks agree.
    """

    audit: Audit
    evidence: Scores | OneRun
    others: list[Scores]


class At(TypedDict):
    """What every bound of an audit is for."""

    delta: float
    confidence: float


@dataclass(frozen=True, eq=False)
class Target:
    """The audited model, asked: its losses on the records, the evidence of the loss attack, and the audit by it.

    `given` holds the arguments of `audit_scores` that the caller passed.
    """

    pool: Pool
    losses: tuple[Losses, Losses]
    evidence: Scores | OneRun
    audit: Audit
    aggregate: str
    at: At
    given: Mapping[str, Any]

    @property
    def signals(self) -> FloatArray:
        """The signals of both sides, members first."""
        return signals_of(self.losses)

    def evidence_of(self, scores: FloatArray) -> Scores | OneRun:
        """Scores of the records, members first, with what is known about their labels."""
        size = self.losses[0].values.size
        return self.pool.evidence(scores[:size], scores[size:], self.aggregate, from_loss=False)

    def attacked(self, attack: str, scores: FloatArray) -> tuple[Audit, Scores | OneRun]:
        """The audit by these scores; Epsilon* and a row of the loss attack stay beside it."""
        sharper = self.evidence_of(scores)
        audit = audit_scores(sharper, **self.at, **self.given)
        stars = tuple(estimate for estimate in self.audit.estimates if estimate.validity == Validity.INSTANCE_METRIC)
        rows = (
            attack_result(attack, sharper, audit.headline, headline=True),
            attack_result("loss", self.evidence, self.audit.headline, headline=False),
        )
        assert isinstance(audit.metadata, ScoresMetadata)
        return (
            replace(
                audit,
                estimates=(*audit.estimates, *stars),
                details=ScoresDetails(attacks=rows),
                metadata=replace(audit.metadata, attack=attack),
            ),
            sharper,
        )


class Similar(NamedTuple):
    """What tells records that are alike, members first, and the attack that calibrates by it."""

    attack: str
    features: FloatArray
    classes: IntArray


def read_similar(attack: str, pool: Pool) -> Similar | None:
    """What the signals are calibrated by, without reference models; None for the loss as it is.

    Whether there are records enough, and whether they can be read, depends on the records alone: who is a member has
    no part in which attack is made.
    """
    if attack == "loss":
        return None
    try:
        if pool.labels is None or pool.size < FEWEST_CALIBRATED:
            raise InputError(
                f"attack={attack!r} compares a record with others like it, and takes labels and {FEWEST_CALIBRATED} "
                "records; pass them, or attack='loss'."
            )
        records = read_records(pool.inside[0], pool.outside[0], pool.guard_labels())
        if records.kind == "tabular" and pool.size * records.members.shape[1] > MOST_CELLS:
            raise InputError(f"attack={attack!r} takes tables of {MOST_CELLS} values at most; pass attack='loss'.")
    except InputError:
        if attack == "auto":
            return None
        raise
    sides = records.members, records.nonmembers
    if records.kind == "image":
        sides = thumbnails(sides[0]), thumbnails(sides[1])
    assert records.labels is not None
    chosen = "calibrated" if attack == "auto" else attack
    return Similar(chosen, features_of(records.kind, *sides), np.concatenate(records.labels))


def attack_alone(target: Target, similar: Similar | None) -> Attacked:
    """The audit without reference models: by the calibrated signals, or by the loss as it is."""
    if similar is None:
        return Attacked(target.audit, target.evidence, [])
    row = CALIBRATED[similar.attack]
    signals = -np.concatenate([side.values for side in target.losses])
    scores = row.function(signals, similar.features, labels=similar.classes, **row.preset)
    audit, evidence = target.attacked(similar.attack, scores)
    return Attacked(audit, evidence, [sides_of(target.evidence)])


def tpr_at(scores: Scores, fpr: float = LOW) -> float:
    """The measured share of members found at a measured FPR."""
    return scores.counts_at(threshold_at_fpr(scores, fpr)).tpr


def tnr_at(scores: Scores, fnr: float = LOW) -> float:
    """The measured share of non-members that are recognised for sure, at a measured FNR."""
    return tpr_at(Scores(-scores.nonmembers, -scores.members), fnr)


def sides_of(evidence: Scores | OneRun) -> Scores:
    """Scores of members and of non-members, whatever is known about their labels."""
    return evidence if isinstance(evidence, Scores) else evidence.as_scores()


def attack_result(name: str, evidence: Scores | OneRun, bound: Any, *, headline: bool) -> AttackResult:
    """One row of what attacks prove and find on the audited model."""
    sides = sides_of(evidence)
    return AttackResult(name, bound.low, bound.neighbours, sides.auc, tpr_at(sides), tnr_at(sides), headline)
