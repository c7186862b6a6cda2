"""Audit DP-SGD by the adversary that differential privacy speaks of: one who reads every noisy gradient.

Bernau et al. (2021): D' is the neighbour of D that differs most from it. Many models are trained on D or on D', by a
fair coin, and after each step the adversary updates their belief in D. How often they end up right is the
identifiability of the one record in which D and D' differ, and ε′ is what their success says of ε.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Unpack

import numpy.typing as npt

from dosimeter import _validate as check
from dosimeter._progress import stages
from dosimeter._validate import InputError
from dosimeter.attacks.gradient import Transcripts
from dosimeter.audits.assemble import audit_seed
from dosimeter.audits.gradients._loss_adversary import AskedRecords, asked_records, loss_adversary, utility
from dosimeter.audits.gradients._neighbouring import Distance, Neighbouring, neighbouring
from dosimeter.audits.gradients._noise_plan import NoisePlan, checked_recipe, noise_plan
from dosimeter.audits.gradients._runs import WatchedRuns, Worlds, collect_runs, draw_worlds, models_together
from dosimeter.audits.gradients.result import GradientsDetails, GradientsMetadata
from dosimeter.audits.gradients.transcripts import audit_transcripts, with_warnings
from dosimeter.audits.result import Audit, TrainingCounts
from dosimeter.engine import RunOptions
from dosimeter.engine.options import RunKeywords
from dosimeter.identifiability import advantage_from_mu
from dosimeter.records import fingerprint
from dosimeter.training import Model, Neighbour, Recipe, train_many
from dosimeter.training.identity import Identity, identity

__all__ = ["GradientKeywords", "audit_gradients"]


class GradientKeywords(RunKeywords, total=False):
    """What else `audit_gradients` takes; the keywords that `run=` has replaced work for one more version."""

    both_worlds: bool
    over: str
    test: tuple[npt.ArrayLike, npt.ArrayLike] | None
    key: str | None


def audit_gradients(
    factory: Callable[[], Any] | Model,
    data: tuple[npt.ArrayLike, npt.ArrayLike],
    *,
    recipe: Recipe,
    universe: tuple[npt.ArrayLike, npt.ArrayLike] | None = None,
    neighbours: str = "bounded",
    distance: Distance = "hamming",
    neighbour: Neighbour | tuple[npt.ArrayLike, npt.ArrayLike] | None = None,
    noise: str | None = None,
    repetitions: int = 1000,
    epsilon: float | None = None,
    belief: float | None = None,
    delta: float = 1e-5,
    confidence: float = 0.95,
    seed: int | None = None,
    name: str | None = None,
    run: RunOptions | None = None,
    **options: Unpack[GradientKeywords],
) -> Audit:
    """Train many models with DP-SGD under observation, and audit what their noisy gradients gave away.

    D' is D with one record replaced, or without one. Each model is trained on D or on D' by a fair coin, and the
    adversary, who knows everything but the coin, reads every noisy gradient. The adversary knows the batches too, so
    the guarantee is counted without amplification by sampling.

    With a `noise_multiplier` of 0 in the recipe the audit chooses the noise: the least that keeps ε at `epsilon`, or
    the belief at `belief`. Otherwise these two are only the target with which the measured ε′ is compared.

    Args:
        factory: Returns a new torch module.
        data: D as (X, y).
        recipe: How to train, with the clipping norm and the noise in its `dp`.
        universe: Records (X, y) from which D' takes the one that replaces a record of D.
        neighbours: "bounded" replaces one record, by default the one farthest from a record of the universe;
            "unbounded" removes one, by default the one farthest from all others, and needs no universe.
        distance: How far two records are apart: "hamming", "manhattan", "euclidean", "cosine", "ssim" or a function.
        neighbour: Names D' instead: `Neighbour(removed=row of data, added=row of universe)`, or D' itself as (X, y).
        noise: "global" scales the noise to the global sensitivity, "local" to ‖Δ‖ of each step, which is closer to ε
            and **not** differentially private. The default is what the recipe says.
        repetitions: How many models to train.
        epsilon: The target ε.
        belief: The target as a tolerable belief, above 0.5, instead of ε.
        delta: The δ of bound and guarantee, above 0.
        confidence: The confidence of every bound and interval.
        seed: Decides the coins and the models. The default is fresh and is written into the result.
        name: What the page calls the training.
        run: Where to train, and what is kept of the trainings.
        **options: `both_worlds=False` trains all models on D, as the paper does; no bound can be proven then.
            `over="xy"` measures distances over records and labels: records with different labels are farther apart
            than all with equal ones, and `distance` decides among them. `test` is (X, y): with it the audit reports the
            accuracy and tries Yeom's loss-threshold adversary on the same models. `key` names the factory in a store,
            as for `audit_training`.

    Returns:
        The audit: the bound first, then ε′ from the sensitivities, the advantage and the beliefs.

    Raises:
        InputError: If an argument cannot be used, or a training fails.

    Examples:
        >>> recipe = Recipe(steps=30, batch_size=None, learning_rate=0.005, dp=Privacy(0.0, clip=3.0))  # doctest: +SKIP
        >>> audit = audit_gradients(net, (X, y), recipe=recipe, universe=(X2, y2), belief=0.9)  # doctest: +SKIP
    """
    rest: dict[str, Any] = dict(options)
    both_worlds = check.flag("both_worlds", rest.pop("both_worlds", True))
    test, key, over = rest.pop("test", None), rest.pop("key", None), rest.pop("over", "x")
    where = RunOptions.read(run, rest, caller="audit_gradients")
    repetitions = check.whole("repetitions", repetitions, 2, "pass how many models to train, e.g. 1000")
    confidence = check.confidence(confidence)
    delta = check.delta(delta, zero=False, why_not_zero="ε′ needs a δ above 0")
    if not callable(factory):
        raise InputError(f"factory must be a function that returns a new module, got {check.show(factory)}.")
    checked_recipe(recipe, noise, epsilon, belief)
    pair = neighbouring(
        data,
        universe,
        neighbours=neighbours,
        distance=distance,
        neighbour=neighbour,
        over=over,
        progress=where.progress,
    )
    plan = noise_plan(recipe, pair, noise, epsilon, belief, delta)
    known = identity(factory, key=key) if where.store is not None or key is not None else None
    same = "" if known is None else known.text, repr(plan.recipe), repetitions, pair.size, name
    seed = audit_seed(seed, where.store, "gradients", *same, fingerprint(pair.x, pair.y))
    asked = asked_records(pair, test, universe, seed)
    worlds = draw_worlds(repetitions, both_worlds, seed)
    with stages({"observed trainings": len(worlds.seeds)}):
        runs = _trained(factory, plan.recipe, pair, worlds, asked, known, where)
    seen = Transcripts.from_runs(
        runs.transcripts, worlds.trained_on_d, sensitivity=plan.sensitivity, neighbours=str(pair.relation)
    )
    audit = audit_transcripts(
        seen,
        delta=delta,
        mechanism=plan.mechanism if plan.private else None,
        epsilon=plan.epsilon,
        confidence=confidence,
        seed=seed,
        name=name,
    )
    return with_warnings(_completed(audit, plan, pair, runs, asked, worlds, known), plan.warnings)


def _trained(
    factory: Any,
    recipe: Recipe,
    pair: Neighbouring,
    worlds: Worlds,
    asked: AskedRecords | None,
    known: Identity | None,
    where: RunOptions,
) -> WatchedRuns:
    """Train all models where and how the options say."""
    trained = train_many(
        factory,
        recipe.on(where.device),
        (pair.x, pair.y),
        pair.members(worlds.trained_on_d),
        worlds.seeds,
        evaluate_on=None if asked is None else asked.pair,
        group=models_together(factory, recipe, pair.size, len(worlds.seeds)),
        neighbour=pair.neighbour,
        engine=where.engine,
        workers=where.workers,
        store=where.store,
        key=known,
        memory=where.memory,
        timeout=where.timeout,
        progress=where.progress,
    )
    return collect_runs(trained, factory, recipe, pair, worlds, asked)


def _completed(
    audit: Audit,
    plan: NoisePlan,
    pair: Neighbouring,
    runs: WatchedRuns,
    asked: AskedRecords | None,
    worlds: Worlds,
    known: Identity | None,
) -> Audit:
    """Add what only the audit knows that trained the models: the noise, the neighbour, losses and accuracy."""
    details, meta = audit.details, audit.metadata
    assert isinstance(details, GradientsDetails) and isinstance(meta, GradientsMetadata)
    assert details.target is not None and details.advantage is not None
    expected = float(advantage_from_mu(plan.mu))
    details = replace(
        details,
        target=replace(
            details.target,
            mu=plan.mu,
            advantage=expected,
            noise=plan.privacy.sensitivity,
            noise_multiplier=plan.privacy.noise_multiplier,
            noise_over_sensitivity=plan.mechanism.phases[0].noise,
            chosen=plan.chosen,
        ),
        advantage=replace(details.advantage, expected=expected),
        neighbour=pair.choice,
    )
    if asked is not None:
        details = replace(
            details,
            yeom=loss_adversary(
                runs.yeom,
                members=pair.size,
                nonmembers=asked.outside,
                epsilon=plan.epsilon if plan.private else None,
                delta=audit.headline.delta,
                mu=plan.mu,
                confidence=audit.headline.confidence,
            ),
            training_accuracy=float(runs.training_accuracy.mean()),
            utility=utility(runs.accuracy, asked.outside) if asked.is_test else None,
        )
    count = len(runs.transcripts)
    meta = replace(
        meta,
        records=pair.size,
        neighbours=str(pair.relation),
        neighbour=pair.choice,
        recipe=plan.recipe.to_dict(),
        clipping=f"norm {plan.privacy.clip:g}",
        sensitivity=plan.privacy.sensitivity,
        mechanism=repr(plan.mechanism) if plan.private else None,
        training=runs.how,
        trainings=TrainingCounts(asked=count, done=count),
        coins_seed=worlds.coins,
        fingerprint=fingerprint(pair.x[: pair.size], pair.y[: pair.size]),
        provenance=runs.provenance(known),
    )
    return replace(audit, details=details, metadata=meta)
