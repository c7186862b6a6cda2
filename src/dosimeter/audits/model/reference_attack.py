"""The attack with reference models: chosen on the references, before the labels of the target are looked at."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dosimeter._validate import FloatArray, InputError
from dosimeter.attacks import leave_one_out
from dosimeter.attacks.table import SHADOW_ATTACKS
from dosimeter.audits.model.attack import Attacked, Target, sides_of, tnr_at, tpr_at
from dosimeter.audits.model.pool import Pool
from dosimeter.audits.model.references import ReferenceSignals
from dosimeter.audits.scores.result import ReferenceStrength, ScoresDetails, ScoresMetadata
from dosimeter.audits.training.shadows import tallied
from dosimeter.estimators.headline import rank_bins
from dosimeter.estimators.lower_bound import prove
from dosimeter.evidence import OneRun

ONLINE = ("rmia-online", "lira", "loss")  # InfoRMIA ranks the records of one model as RMIA does
FEWEST = 6  # references: a target, its counterpart, and two with and two without each record to learn from
TRIED = 8  # references that are attacked to choose
RESOLVED = 1e-4  # squared residuals, in usual ones, below which nothing is told apart
MEDIAN_SQUARE = 0.4549  # of a standard normal
FURTHEST = 300.0  # minus the log-likelihood of a residual, where exponentials of all models are still told apart


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
    sides = [sides_of(target.evidence_of(scores)) for scores in others]
    return Attacked(audit, sharper, [*sides, sides_of(target.evidence)])


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
    strengths = []
    for values, included in zip(scores[:TRIED], references.included[:TRIED], strict=True):
        evidence = OneRun(values, included, None, pool.persons, aggregate)
        sides = evidence.as_scores()
        bins = rank_bins(evidence.scores, evidence.included)
        bound = prove(bins, "coins", "add/remove", delta, 1 - confidence).epsilon
        strengths.append((bound, sides.auc, tpr_at(sides), tnr_at(sides)))
    epsilon, auc, tpr, tnr = (float(mean) for mean in np.mean(strengths, axis=0))
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
