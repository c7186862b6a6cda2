"""Which attack an audit makes, decided before the labels of the target are looked at, and what it finds.

With reference models the attack is chosen on the references. Without any, the signals are calibrated by those of other
records: the scores are then a function of the model's answers and of the records, so no bound is weakened.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypedDict

import numpy as np

from dosimeter import _validate as check
from dosimeter._validate import FloatArray, InputError, IntArray
from dosimeter.attacks import leave_one_out
from dosimeter.attacks.calibration import FEWEST as FEWEST_CALIBRATED
from dosimeter.attacks.table import CALIBRATED, SHADOW_ATTACKS
from dosimeter.audits.model.pool import Pool
from dosimeter.audits.model.question import signals_of
from dosimeter.audits.model.references import ReferenceSignals
from dosimeter.audits.result import Audit
from dosimeter.audits.scores import audit_scores
from dosimeter.audits.scores.result import AttackResult, ReferenceStrength, ScoresDetails, ScoresMetadata
from dosimeter.audits.shift.blind import features_of
from dosimeter.audits.shift.records import read_records, thumbnails
from dosimeter.audits.training.shadows import tallied
from dosimeter.estimate import Validity
from dosimeter.estimators.headline import rank_bins
from dosimeter.estimators.limits import threshold_at_fpr
from dosimeter.estimators.lower_bound import prove
from dosimeter.evidence import OneRun, Scores
from dosimeter.models import Losses

__all__ = [
    "At",
    "Attacked",
    "Target",
    "attack_alone",
    "attack_with_references",
    "read_attack",
    "read_similar",
    "sides_of",
]

ONLINE = ("rmia-online", "lira", "loss")  # InfoRMIA ranks the records of one model as RMIA does
FEWEST = 6  # references: a target, its counterpart, and two with and two without each record to learn from
MOST_CELLS = 40_000_000  # of a table that records are compared in: a few hundred megabytes
TRIED = 8  # references that are attacked to choose
LOW = 0.01
RESOLVED = 1e-4  # squared residuals, in usual ones, below which nothing is told apart
MEDIAN_SQUARE = 0.4549  # of a standard normal
FURTHEST = 300.0  # minus the log-likelihood of a residual, where exponentials of all models are still told apart


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


def attack_with_references(target: Target, attack: str, references: ReferenceSignals) -> Attacked:
    """The audit by an attack that compares the model with reference models."""
    pool, trained = target.pool, references.trained
    chosen, strength = choose_attack(attack, references, pool, target.aggregate, **target.at)
    audit, sharper = target.attacked(chosen, attack_scores(chosen, target.signals, references, pool))
    others = other_scores(chosen, strength, target.signals, references, pool)
    assert isinstance(audit.metadata, ScoresMetadata) and isinstance(audit.details, ScoresDetails)
    meta = audit.metadata
    if trained is not None:
        meta = replace(meta, **tallied({"reference": trained}, references.known))
    audit = replace(
        audit,
        details=replace(audit.details, strength=strength),
        metadata=replace(
            meta,
            references=len(references.signals),
            warnings=(*meta.warnings, *(() if trained is None else trained.notes())),
        ),
    )
    found = [sides_of(target.evidence_of(scores)) for scores in others]
    return Attacked(audit, sharper, [*found, sides_of(target.evidence)])


def choose_attack(
    attack: str, references: ReferenceSignals, pool: Pool, aggregate: str, *, delta: float, confidence: float
) -> tuple[str, tuple[ReferenceStrength, ...]]:
    """Take the attack asked for; for "auto" the one that proves most about the references, each left out once.

    The references' own masks are known and independent of the target's, so the choice costs the bound nothing.
    """
    if not references.online or len(references.signals) < FEWEST:
        unchosen = "rmia-online" if references.online else "rmia"
        return (unchosen if attack == "auto" else attack), ()
    names = ONLINE if references.signals_are_losses else ONLINE[:-1]  # the loss attack then reads something else
    tried = (
        _strength(name, references, pool, aggregate, delta=delta, confidence=confidence)
        for name in (names if attack == "auto" else (attack,))
    )
    rows = [row for row in tried if row is not None]
    if not rows:
        return attack, ()
    best = max(rows, key=lambda row: (row.epsilon, row.tpr_at_1_percent, row.auc))
    return best.attack, tuple(replace(row, chosen=row is best) for row in rows)


@dataclass(frozen=True)
class SignalView:
    """The signals that one attack reads: log-odds as they are, or what it needs of residuals.

    LiRA compares residuals, with their signs, under two Gaussians. RMIA takes their Gaussian likelihood, in units of
    what is usual for references without the record. The others take squared residuals.
    """

    name: str
    usual: float | None  # squared residual; None for signals that are log-odds

    @classmethod
    def of(cls, name: str, references: ReferenceSignals, pool: Pool) -> SignalView:
        """How this attack reads the signals of these references."""
        if pool.task != "regression":
            return cls(name, None)
        squared = references.signals[~references.included] ** 2
        for size in (np.median(squared) / MEDIAN_SQUARE, squared.mean()):
            if size > 0:
                return cls(name, float(size))
        return cls(name, 1.0)

    @property
    def options(self) -> dict[str, Any]:
        """Options of the attack that the signals ask for."""
        return {"scale": "log"} if self.usual is not None and "rmia" in self.name else {}

    def __call__(self, signals: FloatArray) -> FloatArray:
        if self.usual is None or self.name == "lira":
            return signals
        squared = signals**2 / self.usual
        if "rmia" in self.name:
            return -np.minimum(squared / 2, FURTHEST)
        return -np.log(squared + RESOLVED) if self.name == "lira-offline" else -squared


def _strength(
    name: str, references: ReferenceSignals, pool: Pool, aggregate: str, *, delta: float, confidence: float
) -> ReferenceStrength | None:
    """How much an attack finds out about the references; None where too few are left for it, with one left out."""
    view = SignalView.of(name, references, pool)
    try:
        scores = leave_one_out(name, view(references.signals), references.included, **view.options)
    except InputError:
        return None
    found = []
    for values, included in zip(scores[:TRIED], references.included[:TRIED], strict=True):
        evidence = OneRun(values, included, None, pool.persons, aggregate)
        sides = evidence.as_scores()
        bins = rank_bins(evidence.scores, evidence.included)
        bound = prove(bins, "coins", "add/remove", delta, 1 - confidence).epsilon
        found.append((bound, sides.auc, tpr_at(sides), tnr_at(sides)))
    epsilon, auc, tpr, tnr = (float(mean) for mean in np.mean(found, axis=0))
    return ReferenceStrength(name, epsilon, auc, tpr, tnr, chosen=False)


def attack_scores(name: str, target: FloatArray, references: ReferenceSignals, pool: Pool) -> FloatArray:
    """Scores of the records, members first, from the target's signals and the references."""
    view = SignalView.of(name, references, pool)
    return SHADOW_ATTACKS[name].scores(view(target), view(references.signals), references.included, **view.options)


def other_scores(
    chosen: str, strength: tuple[ReferenceStrength, ...], target: FloatArray, references: ReferenceSignals, pool: Pool
) -> list[FloatArray]:
    """Scores by the attacks that were tried on the references and not taken, but for the loss."""
    names = [row.attack for row in strength if row.attack not in (chosen, "loss")]
    return [attack_scores(name, target, references, pool) for name in names]


def tpr_at(scores: Scores, fpr: float = LOW) -> float:
    """The measured share of members found at a measured FPR."""
    return scores.counts_at(threshold_at_fpr(scores, fpr)).tpr


def tnr_at(scores: Scores, fnr: float = LOW) -> float:
    """The measured share of non-members that are told for sure, at a measured FNR."""
    return tpr_at(Scores(-scores.nonmembers, -scores.members), fnr)


def sides_of(evidence: Scores | OneRun) -> Scores:
    """Scores of members and of non-members, whatever is known about their labels."""
    return evidence if isinstance(evidence, Scores) else evidence.as_scores()


def attack_result(name: str, evidence: Scores | OneRun, bound: Any, *, headline: bool) -> AttackResult:
    """One row of what attacks prove and find on the audited model."""
    sides = sides_of(evidence)
    return AttackResult(name, bound.low, bound.neighbours, sides.auc, tpr_at(sides), tnr_at(sides), headline)
