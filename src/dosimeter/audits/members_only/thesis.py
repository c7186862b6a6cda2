"""PANORAMIA as the thesis defines it (Kazmi 2024, ch. 5 to 8), to compare its numbers: every threshold, no correction.

The baseline sees a record and the loss of a helper that was trained as the target is, on generated records. The attack
sees the record and the target's loss. Each bound is the largest over all thresholds of one draw of the coins, and ε̃ is
their difference, whatever reference models say. O(1) is the one-run audit on the target's losses alone, with both
thresholds chosen on the audit itself (§8, "implementation of O(1)").
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dosimeter._validate import FloatArray, InputError
from dosimeter.attacks.stacked import answers
from dosimeter.audits.members_only.measure import recall_curve
from dosimeter.audits.members_only.pair_classifier import Answers, PairClassifier, Trainer
from dosimeter.audits.members_only.records import AuditRecords, RecordSet, coin_evidence
from dosimeter.audits.members_only.result import ThesisResult, ThesisTarget
from dosimeter.engine import RunOptions
from dosimeter.estimate import Estimate, Validity, number, percent
from dosimeter.estimators.panoramia import panoramia
from dosimeter.estimators.ranked import fewest_right, logit_bound
from dosimeter.evidence import OneRun
from dosimeter.models import access
from dosimeter.models.fresh import fresh_copy

PROTOCOLS = ("honest", "thesis")
MOST_NUMBERS = 600  # of guesses of either kind that O(1) tries; all of them up to this many


@dataclass(frozen=True, eq=False)
class ThesisAudit:
    """The estimates of every target, ε̃ and then O(1), and what the page shows."""

    estimates: tuple[Estimate, ...]
    result: ThesisResult
    helpers: Mapping[str, Answers | None]  # by what they were trained on; their losses alone
    warnings: tuple[str, ...]


def helper_trainer(model: Any, given: Trainer | None) -> tuple[Trainer | None, str]:
    """How to train a helper as the target was trained, and in words; None for the small default model."""
    if given is not None:
        return given, "trained by helper_train"
    if hasattr(model, "get_params") and hasattr(model, "fit"):
        words = f"a new {type(model).__name__} with the target's settings"
        return lambda X, y, seed: fresh_copy(model, seed).fit(X, y), words
    return None, "a small default model, because the target cannot be trained again; pass helper_train"


def thesis_audit(
    targets: Mapping[str, Any],
    asked: Mapping[str, Answers],
    classifier: PairClassifier,
    real: AuditRecords | None,
    *,
    helper_train: Trainer | None,
    confidence: float,
    seed: int,
    coins: int,
    run: RunOptions,
) -> ThesisAudit:
    """ε̃ and O(1) of every target, with one helper on generated records, trained as the first target is.

    Helpers of the same kind on real non-members, and none, are there to compare baselines.
    """
    trainer, words = helper_trainer(next(iter(targets.values())), helper_train)

    def helper_on(part: RecordSet, kind: str) -> Answers:
        try:
            return _loss(classifier.ask_trained(part, seed=seed, trainer=trainer))
        except InputError:
            raise
        except Exception as error:
            raise InputError(
                f"the helper could not be trained on {kind} ({type(error).__name__}: {error}); pass "
                "helper_train, a function (X, y, seed) -> model."
            ) from error

    helper = helper_on(classifier.records.for_helper, "generated records")
    helpers: dict[str, Answers | None] = {"none": None, "generated": helper}
    if real is not None:
        helpers["real"] = helper_on(real.for_helper, "real non-members")
    baseline = classifier.score(helper)
    shown = coin_evidence(*baseline, seed=coins)
    rows, measured, runs = [], [], []
    for name, model in targets.items():
        own = _loss(asked[name])
        attack = classifier.score(own)
        estimate = panoramia(
            baseline=shown,
            attack=coin_evidence(*attack, seed=coins),
            confidence=confidence,
            guesses="naive",
            resamples=0,
        )
        losses = _real_losses(model, real, run) if real is not None else np.split(own.audit[:, 0], 2)
        one = _both_thresholds(coin_evidence(-losses[0], -losses[1], seed=coins), 1.0 - confidence)
        label = name if len(targets) > 1 else ""
        measured.append(_labelled(estimate, label))
        runs.append(_one_run(one, label, confidence, real is not None))
        rows.append(
            ThesisTarget(
                name=name,
                epsilon=estimate.epsilon,
                c_plus_epsilon_lb=float(estimate.details["c_plus_epsilon_lb"]),
                recall=float(estimate.details["attack"]["recall"]),
                one_run=one,
                curve=recall_curve(attack, (1.0 - confidence) / 2, coins),
            )
        )
    c_lb = float(measured[0].details["c_lb"])
    curve = recall_curve(baseline, (1.0 - confidence) / 2, coins)
    result = ThesisResult(words, c_lb, curve, "real" if real is not None else "generated", tuple(rows))
    warnings = () if trainer is not None else (f"the helper of the thesis's protocol is {words}",)
    return ThesisAudit((*measured, *runs), result, helpers, warnings)


def _loss(told: Answers) -> Answers:
    """The loss alone, the first column."""
    return Answers(told.train[:, :1], told.audit[:, :1])


def _real_losses(model: Any, real: AuditRecords, run: RunOptions) -> list[FloatArray]:
    box = access(model, batch_size=run.batch_size, device=run.device)
    return [answers(box, side.X, side.y)[:, 0] for side in (real.audit.members, real.audit.nonmembers)]


def _both_thresholds(evidence: OneRun, level: float) -> float:
    """The largest bound over numbers of "in" and of "out" guesses, as the thesis takes it."""
    right_in, right_out = fewest_right(evidence)
    steps = np.arange(evidence.total + 1)
    if steps.size > MOST_NUMBERS:
        steps = np.unique(np.geomspace(1, evidence.total, MOST_NUMBERS).astype(np.int64))
        steps = np.concatenate([[0], steps])
    k_in, k_out = np.meshgrid(steps, steps, indexing="ij")
    made = k_in + k_out
    fits = (made > 0) & (made <= evidence.total)
    right = (right_in[k_in] + right_out[k_out])[fits]
    guesses = made[fits]
    worth = 2 * right > guesses
    if not worth.any():
        return 0.0
    return max(0.0, float(logit_bound(guesses[worth], right[worth], level).max()))


def _labelled(estimate: Estimate, label: str) -> Estimate:
    values = (
        f"{number(estimate.details['c_plus_epsilon_lb'])} with the model, {number(estimate.details['c_lb'])} without it"
    )
    return replace(
        estimate,
        method="panoramia, thesis",
        validity=Validity.EXPLORATORY,
        claim=f"{f'{label}: ' if label else ''}As the thesis computes it, ε̃ = {number(estimate.epsilon)} ({values}): "
        "the best of all thresholds on the same data, which reproduces the paper and proves nothing.",
        details={**estimate.details, "target": label or "model"},
    )


def _one_run(value: float, label: str, confidence: float, real: bool) -> Estimate:
    what = "real" if real else "generated"
    return Estimate(
        epsilon=value,
        low=0.0,
        high=math.inf,
        delta=0.0,
        confidence=confidence,
        method="one-run, thesis",
        validity=Validity.EXPLORATORY,
        claim=f"{f'{label}: ' if label else ''}O(1) on the model's losses, {what} non-members, gives "
        f"ε = {number(value)} at {percent(confidence)}: the best of all pairs of thresholds on the same data, which "
        "reproduces the paper and proves nothing.",
        details={"target": label or "model", "nonmembers": what},
    )
