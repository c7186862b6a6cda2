"""Which attack an audit with reference models makes, decided on the references alone, and its scores."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from dosimeter import _validate as check
from dosimeter._validate import FloatArray
from dosimeter.attacks import leave_one_out
from dosimeter.attacks.table import SHADOW_ATTACKS
from dosimeter.audits.model.pool import Pool
from dosimeter.audits.model.references import ReferenceSignals
from dosimeter.audits.scores.result import AttackResult, Strength
from dosimeter.estimators.lower_bound import lower_bound
from dosimeter.estimators.thresholds import threshold_at_fpr
from dosimeter.evidence import OneRun, Scores

__all__ = ["attack_result", "attack_scores", "choose_attack", "read_attack"]

ONLINE = ("rmia-online", "lira", "loss")  # InfoRMIA ranks the records of one model as RMIA does
FEWEST = 6  # references: a target, its counterpart, and two with and two without each record to learn from
TRIED = 8  # references that are attacked to choose
LOW = 0.01


def read_attack(attack: Any) -> str:
    """The name of the attack, or "auto"."""
    return check.choice("attack", attack, ("auto", *SHADOW_ATTACKS))


def choose_attack(
    attack: str, references: ReferenceSignals, pool: Pool, aggregate: str, *, delta: float, confidence: float
) -> tuple[str, tuple[Strength, ...]]:
    """Take the attack asked for; for "auto" the one that proves most about the references, each left out once.

    The references' own masks are known and independent of the target's, so the choice costs the bound nothing.
    """
    if not references.online or len(references.signals) < FEWEST:
        unchosen = "rmia-online" if references.online else "rmia"
        return (unchosen if attack == "auto" else attack), ()
    names = ONLINE if attack == "auto" else (attack,)
    rows = [_strength(name, references, pool, aggregate, delta=delta, confidence=confidence) for name in names]
    best = max(rows, key=lambda row: (row.epsilon, row.tpr_at_1_percent, row.auc))
    return best.attack, tuple(replace(row, chosen=row is best) for row in rows)


def _strength(
    name: str, references: ReferenceSignals, pool: Pool, aggregate: str, *, delta: float, confidence: float
) -> Strength:
    scores = leave_one_out(name, references.signals, references.included)
    found = []
    for values, included in zip(scores[:TRIED], references.included[:TRIED], strict=True):
        evidence = OneRun(values, included, None, pool.persons, aggregate)
        sides = evidence.as_scores()
        bound = lower_bound(evidence, delta=delta, confidence=confidence).low
        found.append((bound, sides.auc, tpr_at(sides)))
    epsilon, auc, tpr = np.mean(found, axis=0)
    return Strength(name, float(epsilon), float(auc), float(tpr), chosen=False)


def attack_scores(name: str, target: FloatArray, references: ReferenceSignals) -> FloatArray:
    """Scores of the records, members first, from the target's signals and the references."""
    return SHADOW_ATTACKS[name].scores(target, references.signals, references.included)


def tpr_at(scores: Scores, fpr: float = LOW) -> float:
    """The measured share of members found at a measured FPR."""
    return scores.counts_at(threshold_at_fpr(scores, fpr)).tpr


def tnr_at(scores: Scores, fnr: float = LOW) -> float:
    """The measured share of non-members that are told for sure, at a measured FNR."""
    return tpr_at(Scores(-scores.nonmembers, -scores.members), fnr)


def attack_result(name: str, evidence: Scores | OneRun, bound: Any, *, headline: bool) -> AttackResult:
    """One row of what attacks prove and find on the audited model."""
    sides = evidence if isinstance(evidence, Scores) else evidence.as_scores()
    return AttackResult(name, bound.low, bound.neighbours, sides.auc, tpr_at(sides), tnr_at(sides), headline)
