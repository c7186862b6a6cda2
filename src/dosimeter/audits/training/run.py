"""Audit a training pipeline: shadow models, the worst points, fair coins, and what they prove about ε."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Unpack

import dosimeter
from dosimeter import _validate as check
from dosimeter._progress import stages
from dosimeter._validate import InputError
from dosimeter.attacks.table import read_white_box
from dosimeter.audits.assemble import audit_seed, both_sides, guarantees, written
from dosimeter.audits.result import Audit
from dosimeter.audits.training import intervals
from dosimeter.audits.training.measure import AuditDesign, AuditSetup, Measured, attacked_by_halves, attacked_in_runs
from dosimeter.audits.training.repeatable import PipelineKeywords, model_name, pipeline
from dosimeter.audits.training.result import CoinSeeds, PointRow, TrainingDetails, TrainingMetadata, TrainingUtility
from dosimeter.audits.training.shadows import Trainings, tallied
from dosimeter.engine import RunOptions
from dosimeter.engine.options import own_keywords
from dosimeter.estimate import Estimate, plain
from dosimeter.evidence import mask_hash
from dosimeter.records import fingerprint
from dosimeter.training import Recipe

__all__ = ["TrainingKeywords", "audit_training"]

_DEFAULTS = {"signal": None, "nonmembers": None, "key": None, "challenges": 1, "select": "accuracy"}


class TrainingKeywords(PipelineKeywords, total=False):
    """Rare arguments of `audit_training`."""

    challenges: int
    select: str


def audit_training(
    train: Any,
    data: Any,
    *,
    recipe: Recipe | None = None,
    attack: Any = "auto",
    game: str = "challenge",
    shadows: int = 64,
    runs: int = 128,
    points: Any = None,
    canaries: Any = None,
    claim: Any = None,
    groups: Any = None,
    delta: float = 1e-5,
    confidence: float = 0.95,
    seed: int | None = None,
    name: str | None = None,
    run: RunOptions | None = None,
    **options: Unpack[TrainingKeywords],
) -> Audit:
    """Audit a training that can be repeated.

    The bound is for the ε of the training method, not of one model. `shadows` models are trained on random halves of
    the data. They choose the points that the attack recognises best, and calibrate it. Then `runs` further models are
    trained, and a fair coin decides for each of them whether each point is in.

    With a store, finished trainings are kept, and the same call again trains nothing. The keys hold all that `train`
    can reach (its code, globals, objects by their state, modules, versions of libraries, the command line of a
    script), the data and `name`, but not files: change `name` when files that it reads change. A training that fails
    twice or gives NaN is listed in `metadata.failed`, and the audit continues without it.

    Args:
        train: A factory of torch modules, which `recipe` trains many at a time. Without a recipe, any function
            (indices, seed) that trains on these rows of the data and returns a model.
        data: (X, y), or what `dosimeter.datasets.load` returns.
        recipe: How the modules are trained.
        attack: "auto", "lira", "lira-offline", "rmia", "rmia-online", "watson", "loss", or a function
            (target, shadows, included) that returns scores. "last-layer-gradient" and `attacks.WhiteBox(function)` are
            given the model itself, where it was trained.
        game: "challenge" trains `runs` further models and attacks them: a coin decides whether a point is in. "replace"
            does the same, but where a point is not in, another record is: the bound is for replacing one record.
            "crossed" trains no further models and attacks half of the shadow models.
        shadows: How many shadow models to train.
        runs: How many models to attack in a challenge.
        points: Rows of the data to challenge; None chooses the most exposed ones.
        canaries: Records to append to the data and to challenge instead: "mislabelled", "out-of-distribution",
            "clip-bkd", or your own (X, y).
        claim: A guarantee to test, (ε, δ) or a profile δ(ε). Training stops as soon as the runs of one point reject
            it; then the audit makes only the statements of this test, which hold at any time.
        groups: The person behind each record. The points are then persons, with one coin and one score for each.
        delta: The δ of the guarantees that are tested.
        confidence: The confidence of every bound.
        seed: Decides coins, memberships and trainings. None draws a fresh one, which the store and the result keep.
        name: What to call the training. It is part of the keys of the store.
        run: Where trainings run, and where they are kept.
        **options: `challenges`, how many points to choose (1), and `select`, by "accuracy" or "auc" of the attack.
            `signal`, a function (outputs, y) that gives one number for each record, high for a likely member; the
            default is the log-odds of the true class. `nonmembers`, further records (X, y) to report accuracy on.
            `key`, a text for the keys of the store that stands for a function whose state cannot be hashed; change it
            whenever the training changes.

    Returns:
        The audit, its headline first. `metadata` says how many trainings there were, which failed, and what came from
        the store.

    Raises:
        InputError: If an argument cannot be used, before anything is trained; or if too many trainings failed.

    >>> import numpy as np
    >>> def train(indices, seed):  # a model that remembers its members
    ...     outputs = np.random.default_rng(seed).normal(size=60)
    ...     outputs[indices] += 5
    ...     return lambda records: outputs
    >>> data, here = (np.zeros((60, 1)), np.zeros(60)), RunOptions(engine="inline", progress=False)
    >>> options = {"signal": lambda outputs, y: outputs, "shadows": 8, "runs": 64, "seed": 0}
    >>> audit_training(train, data, run=here, **options).headline.low > 1
    True
    """
    own, rest = own_keywords(options, _DEFAULTS)
    where = RunOptions.read(run, rest, caller="audit_training")
    select, challenges = own.pop("select"), own.pop("challenges")
    attack, white_box = read_white_box(attack)
    base = pipeline(train, data, recipe=recipe, where=where, name=name, groups=groups, white_box=white_box, **own)
    if points is not None and canaries is not None:
        raise InputError("points and canaries exclude each other; pass rows of the data or canaries, not both.")
    # More models begin with the old ones, so their numbers are not part of what makes an audit the same.
    same = (base.identity, game, check.show(points), challenges, check.show(canaries))
    design = AuditDesign.checked(
        game=game,
        shadows=shadows,
        runs=runs,
        challenges=challenges,
        select=select,
        delta=delta,
        confidence=confidence,
        seed=audit_seed(seed, where.store, "training", *same),
    )
    setup = AuditSetup.read(base, design, attack=attack, points=points, canaries=canaries, claim=claim)
    mechanism, notes = intervals.mechanism_of(recipe, *setup.sizes())
    upper, missing = guarantees(mechanism, design.delta, [design.neighbours], base.unit)

    in_runs = design.game != "crossed"
    with stages({"shadow models": design.shadows, "runs": design.runs if in_runs else 0}):
        first = setup.train_shadows()
        measured = attacked_in_runs(setup, first) if in_runs else attacked_by_halves(setup, first)
    stopped = setup.claim is not None and setup.claim.test.rejected
    estimates, doubts = _estimates(setup, measured, stopped=stopped)
    region, risk = both_sides(estimates, upper, base.unit)
    evidence = measured.evidence
    return Audit(
        estimates=tuple(estimates),
        guard=intervals.BY_COINS,
        risk=risk,
        curve=intervals.curve(evidence, design.confidence, stopped=stopped),
        upper=upper,
        region=region,
        distributions=intervals.score_densities(evidence.one_run(), evidence.threshold),
        details=TrainingDetails(
            intervals=intervals.rows_of(estimates),
            joint=intervals.joint_against_exact(estimates),
            points=_point_rows(setup, measured, bounds=not stopped),
            candidates=measured.challenged.ranking,
            claim=None if setup.claim is None else setup.claim.result(design.runs),
        ),
        metadata=replace(
            _metadata(setup, first, measured),
            mechanism=None if mechanism is None else written(mechanism),
            warnings=(*notes, *missing, *doubts, *_training_notes(first, measured.runs)),
        ),
    )


def _estimates(setup: AuditSetup, measured: Measured, *, stopped: bool) -> tuple[list[Estimate], list[str]]:
    """The estimates, the headline first, and notes on them; after a stop only what holds at any time."""
    evidence, design = measured.evidence, setup.design
    estimates = [] if setup.claim is None else [setup.claim.estimate(evidence)]
    if stopped:
        return estimates, []
    estimates.append(intervals.headline(evidence, delta=design.delta, confidence=design.confidence))
    estimates += intervals.at_threshold(evidence, delta=design.delta, confidence=design.confidence)
    return estimates, intervals.threshold_notes(estimates)


def _training_notes(*stages: Trainings | None) -> list[str]:
    done = [stage for stage in stages if stage is not None]
    notes = [note for stage in done for note in stage.notes()]
    if failed := sum(len(stage.failed) for stage in done):
        total = sum(stage.seen for stage in done)
        notes.append(f"{failed} of {total} trainings failed; metadata.failed lists their seeds and reasons")
    return notes


def _metadata(setup: AuditSetup, shadows: Trainings, measured: Measured) -> TrainingMetadata:
    base, design, evidence, runs = setup.base, setup.design, measured.evidence, measured.runs
    stages = {"shadow": shadows} if runs is None else {"shadow": shadows, "run": runs}
    return TrainingMetadata(
        kind="training",
        name=base.name,
        model=model_name(base.train),
        recipe=None if base.recipe is None else plain(base.recipe.to_dict()),
        game=design.game,
        attack=setup.scorer.name if base.white_box is None else f"{base.white_box.label}, {setup.scorer.name}",
        shadows=design.shadows,
        runs=len(evidence.scores),
        points=tuple(measured.points.tolist()),
        select="given" if setup.points is not None else design.select,
        canaries=setup.candidates.canaries,
        records=base.records,
        unit=base.unit,
        members=int(evidence.coins.sum()),
        nonmembers=int((~evidence.coins).sum()),
        utility=TrainingUtility(shadows.accuracy, None if runs is None else runs.accuracy),
        **tallied(stages, base.known),
        seed=design.seed,
        seeds=CoinSeeds(design.seeds["masks"], design.seeds["coins"]),
        mask_hash=mask_hash(evidence.coins.ravel()),
        fingerprint=fingerprint(base.contents, base.y),
        delta=design.delta,
        confidence=design.confidence,
        version=dosimeter.__version__,
    )


def _point_rows(setup: AuditSetup, measured: Measured, *, bounds: bool) -> tuple[PointRow, ...]:
    challenged, design = measured.challenged, setup.design
    by_point = intervals.by_point(measured.evidence, delta=design.delta, confidence=design.confidence)
    advantage = by_point.advantage()
    return tuple(
        PointRow(
            record=int(point),
            label=setup.pipeline.label_of(int(point)),
            weight=None if challenged.weights is None else float(challenged.weights[i]),
            tp=int(by_point.tp[i]),
            fn=int(by_point.fn[i]),
            fp=int(by_point.fp[i]),
            tn=int(by_point.tn[i]),
            advantage=advantage[i],
            epsilon=float(by_point.epsilon[i]) if bounds and math.isfinite(by_point.epsilon[i]) else None,
            substitute=None if measured.pairs is None else int(measured.pairs.substitutes[i]),
        )
        for i, point in enumerate(measured.points)
    )
