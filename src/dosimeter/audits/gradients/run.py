"""Audit DP-SGD by the adversary that differential privacy speaks of: one who reads every noisy gradient.

Bernau et al. (2021): D' is the neighbour of D that differs most from it; many trainings on D or on D', by a fair coin;
after each step the adversary updates his belief in D. How often he ends up right is the identifiability of the one
record in which D and D' differ, and ε′ is what his success says of ε.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from dosimeter import _validate as check
from dosimeter._validate import BoolArray, FloatArray, InputError
from dosimeter.accounting import DpSgd, Gaussian, Neighbours, noise_for_belief, noise_for_epsilon
from dosimeter.accounting.mechanism import gaussian_mu
from dosimeter.attacks.gradient import Transcripts
from dosimeter.audits.gradients.loss_adversary import Asked, answers, asked_records, loss_adversary, utility
from dosimeter.audits.gradients.neighbouring import Distance, Neighbouring, neighbouring
from dosimeter.audits.gradients.transcript_checks import KNOWN_BATCHES
from dosimeter.audits.gradients.transcripts import NOT_PRIVATE, audit_transcripts, with_warnings
from dosimeter.audits.assemble import fingerprint
from dosimeter.audits.result import Audit
from dosimeter.audits.seeds import audit_seed
from dosimeter.audits.training.shadows import counted, provenance
from dosimeter.engine import Store
from dosimeter.evidence import fair_coins
from dosimeter.geometry import epsilon_from_mu
from dosimeter.identifiability import advantage_from_mu, epsilon_from_belief
from dosimeter.training import Model, Recipe, Trained, Transcript, train_many
from dosimeter.training.chain import chain
from dosimeter.training.groups import started
from dosimeter.training.identity import identity

NOISES = ("global", "local")
WORKING_SET = 8_000_000  # bytes of activations and weights of models that train together


def audit_gradients(
    factory: Callable[[], Any] | Model,
    data: tuple[npt.ArrayLike, npt.ArrayLike],
    *,
    recipe: Recipe,
    universe: Any = None,
    neighbours: str = "bounded",
    distance: Distance = "hamming",
    neighbour: Any = None,
    noise: str | None = None,
    repetitions: int = 1000,
    epsilon: float | None = None,
    belief: float | None = None,
    delta: float | None = None,
    confidence: float = 0.95,
    both_worlds: bool = True,
    engine: str = "local",
    workers: int | None = None,
    store: Store | None = None,
    key: str | None = None,
    memory: int | None = None,
    progress: bool = True,
    seed: int | None = None,
    test: Any = None,
    name: str | None = None,
) -> Audit:
    """Train `repetitions` models under observation and audit what the noisy gradients gave away.

    `factory` returns a new torch module, `data` is D as (X, y), `recipe` has the clipping norm and the noise in its
    `dp`. D' replaces a record of D by the one of `universe` (X, y) that is farthest from it by `distance`, or drops the
    record that is farthest from all others (`neighbours="unbounded"`, no universe needed). `neighbour` names D'
    instead: `Neighbour(removed=row of data, added=row of universe)`, or D' itself as (X, y).

    With a `noise_multiplier` of 0 in the recipe the noise is chosen: the least one that keeps ε at `epsilon`, or at
    that of a tolerable `belief`. Otherwise these are the target that the measured ε′ is set beside. `noise="local"`
    scales the noise of each step to ‖Δ‖ instead of the global sensitivity: closer to ε, and **not** differentially
    private.
    `delta` defaults to 1/|D|. Each run is on D or on D' by a fair coin, which every bound needs; `both_worlds=False`
    trains all on D, as the paper does. `test` is (X, y): with it the audit tells the accuracy, and Yeom's
    loss-threshold adversary is tried on the same models. A `store` keeps the trainings; `key` is as for
    `audit_training`.

    >>> recipe = Recipe(steps=30, batch_size=None, learning_rate=0.005, dp=Privacy(0.0, clip=3.0))  # doctest: +SKIP
    >>> audit = audit_gradients(net, (X, y), recipe=recipe, universe=(X2, y2), belief=0.9)  # doctest: +SKIP
    """
    repetitions = check.whole("repetitions", repetitions, 2, "pass how many models to train, e.g. 1000")
    confidence = check.confidence(confidence)
    both_worlds, progress = check.flag("both_worlds", both_worlds), check.flag("progress", progress)
    if not callable(factory):
        raise InputError(f"factory must be a function that returns a new module, got {check.show(factory)}.")
    _checked_recipe(recipe, noise, epsilon, belief)
    pair = neighbouring(
        data, universe, neighbours=neighbours, distance=distance, neighbour=neighbour, progress=progress
    )
    rate = check.delta(1 / pair.size if delta is None else delta, zero=False, why_not_zero="ε′ needs a δ above 0")
    plan = _plan(recipe, pair, noise, epsilon, belief, rate)
    known = identity(factory, key=key) if store is not None or key is not None else None
    same = "" if known is None else known.text, repr(plan.recipe), repetitions, pair.size, name
    seed = audit_seed(seed, store, "gradients", *same, fingerprint(pair.x, pair.y))
    asked = asked_records(pair, test, universe, seed)
    worlds, seeds, coins = _worlds(repetitions, both_worlds, seed)
    trained = train_many(
        factory,
        plan.recipe,
        (pair.x, pair.y),
        pair.members(worlds),
        seeds,
        evaluate_on=None if asked is None else asked.pair,
        group=together(factory, plan.recipe, pair.size, repetitions),
        neighbour=pair.neighbour,
        engine=engine,
        processes=workers,
        store=store,
        key=known,
        memory=memory,
        progress=progress,
    )
    found = _collect(trained, factory, plan.recipe, pair, worlds, asked)
    seen = Transcripts.from_runs(found.transcripts, worlds, sensitivity=plan.sensitivity, neighbours=str(pair.relation))
    audit = audit_transcripts(
        seen,
        delta=rate,
        mechanism=plan.mechanism if plan.private else None,
        epsilon=plan.epsilon,
        confidence=confidence,
        seed=seed,
        name=name,
    )
    completed = _completed(audit, plan, pair, found, asked, confidence, coins)
    computed = repetitions - found.cached
    origin = provenance(known, {"repetition": found.entries}, computed=computed, cached=found.cached)
    completed = replace(completed, metadata={**completed.metadata, "provenance": origin})
    return with_warnings(completed, plan.warnings)


# --- what is run ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Plan:
    """The recipe with its noise, what the accountants make of it, and the target."""

    recipe: Recipe
    mechanism: Gaussian | DpSgd
    sensitivity: float
    epsilon: float
    chosen: bool
    private: bool
    warnings: list[str]

    @property
    def mu(self) -> float:
        """√Σ(Δf/σ)² of the noise in force: every mechanism here is a sequence of Gaussian steps."""
        return gaussian_mu(self.mechanism.phases)


def _checked_recipe(recipe: Any, noise: Any, epsilon: Any, belief: Any) -> None:
    if not isinstance(recipe, Recipe):
        raise InputError(f"recipe must be a Recipe, got {check.show(recipe)}; pass Recipe(steps=30, dp=Privacy(…)).")
    if recipe.dp is None:
        raise InputError("recipe has no dp, so there is no noise to audit; pass Recipe(dp=Privacy(1.1, clip=3), …).")
    if noise is not None:
        check.choice("noise", noise, NOISES)
    if epsilon is not None and belief is not None:
        raise InputError(f"epsilon={check.show(epsilon)} and belief={check.show(belief)} are both given; pass one.")
    if recipe.dp.noise_multiplier == 0 and epsilon is None and belief is None:
        raise InputError(
            "recipe has a noise_multiplier of 0 and no target to choose it for; pass epsilon=…, belief=… or a noise."
        )


def _plan(
    recipe: Recipe, pair: Neighbouring, noise: str | None, epsilon: float | None, belief: float | None, delta: float
) -> _Plan:
    assert recipe.dp is not None
    scale = noise or recipe.dp.sensitivity
    private = scale == "global"
    if belief is not None:
        remedy = "pass a belief above the prior 0.5 and below 1, e.g. 0.9"
        belief = check.within("belief", belief, 0.5, 1.0, remedy, include="()")
    # Noise scaled to ‖Δ‖ has the sensitivity 1 in its own units; global noise counts in clipping norms.
    run = _run(recipe, pair.size, pair.relation if private else Neighbours.ADD_REMOVE)
    multiplier, chosen = recipe.dp.noise_multiplier, recipe.dp.noise_multiplier == 0
    if chosen and belief is not None:
        multiplier = noise_for_belief(belief, delta=delta, **run)
    elif chosen:
        assert epsilon is not None
        multiplier = noise_for_epsilon(epsilon, delta=delta, **run)
    mechanism = DpSgd(multiplier, **run)
    target = epsilon if belief is None else float(epsilon_from_belief(belief))
    if target is None:
        target = float(epsilon_from_mu(gaussian_mu(mechanism.phases), delta))
    target = check.within("epsilon", target, 0.0, math.inf, "pass the ε that the training aims at", include="()")
    full = recipe.batch(pair.size) == pair.size
    return _Plan(
        replace(recipe, dp=replace(recipe.dp, noise_multiplier=multiplier, sensitivity=scale)),
        mechanism,
        recipe.dp.clip * pair.relation.sensitivity,
        target,
        chosen,
        private,
        [] if private and full else [KNOWN_BATCHES if private else NOT_PRIVATE],
    )


def _run(recipe: Recipe, records: int, relation: Neighbours) -> dict[str, Any]:
    """The run as an adversary who knows the batches meets it: every step in which the record may be counts whole."""
    batch = recipe.batch(records)
    if recipe.sampling == "poisson" or batch == records:
        return {"sample_rate": 1.0, "steps": recipe.length(records), "neighbours": str(relation)}
    # A record is in one batch of each pass; dropping it leaves the other batches as they are, as zeroing it out does.
    kept = Neighbours.ZERO_OUT if relation is Neighbours.ADD_REMOVE else relation
    return {
        "sample_rate": 1 / math.ceil(records / batch),
        "steps": recipe.length(records),
        "sampling": "shuffled",
        "neighbours": str(kept),
    }


def _worlds(repetitions: int, both: bool, seed: int) -> tuple[BoolArray, list[int], int | None]:
    """Which runs are on D, the seed of each model, and the seed of the coins.

    Runs on D come first: models that train together then share their records, and seeds do not know their place.
    """
    for_coins, for_models = np.random.SeedSequence([seed, 7]).spawn(2)
    seeds = (for_models.generate_state(repetitions, np.uint64) >> np.uint64(1)).tolist()
    if not both:
        return np.ones(repetitions, bool), seeds, None
    coins = int(for_coins.generate_state(1)[0])
    worlds = np.sort(fair_coins(repetitions, coins))[::-1]
    if worlds.all() or not worlds.any():
        raise InputError(
            f"the coins of seed {seed} put all {repetitions} repetitions into one world; pass more repetitions."
        )
    return worlds, seeds, coins


def together(factory: Any, recipe: Recipe, batch: int, repetitions: int) -> int | None:
    """How many dense models on one full batch train together: as many as fit into WORKING_SET, 4 to 128; else None.

    They share their records, so that only activations and weights count. It depends on sizes alone: a run repeats.
    """
    layers = chain(started(factory, 0))
    if not isinstance(layers, list) or recipe.batch(batch) < batch:
        return None
    weights = sum(layer.outputs * (layer.inputs + 1) for layer in layers)
    numbers = 3 * weights + 2 * batch * sum(layer.outputs for layer in layers)
    size = 2 ** round(math.log2(max(WORKING_SET / (4 * numbers), 1)))
    return int(min(max(size, 4), 128, max(1, repetitions // 2)))


# --- what came of it -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Found:
    """What the trainings left: transcripts, and by model Yeom's advantage and the accuracy on both sides."""

    transcripts: list[Transcript]
    yeom: FloatArray
    accuracy: FloatArray
    training_accuracy: FloatArray
    cached: int
    how: str
    entries: dict[str, int]


def _collect(
    trained: Iterable[Trained],
    factory: Any,
    recipe: Recipe,
    pair: Neighbouring,
    worlds: BoolArray,
    asked: Asked | None,
) -> _Found:
    members = pair.members(np.array([False, True]))
    transcripts: list[Transcript] = []
    rows: list[tuple[float, float, float]] = []
    cached, how = 0, ""
    entries: Counter[str] = Counter()
    for one in trained:
        if one.failed is not None:
            raise InputError(_failure(one, factory, recipe, pair, bool(worlds[one.index])))
        assert one.transcript is not None
        transcripts.append(one.transcript)
        cached, how = cached + one.cached, str(one.plan)
        if one.cached and one.key is not None:
            entries[one.key] += 1
        if asked is not None:
            assert one.outputs is not None
            rows.append(answers(one.outputs, asked, members[int(worlds[one.index])]))
    columns = np.array(rows).reshape(-1, 3).T
    return _Found(transcripts, columns[0], columns[1], columns[2], cached, how, dict(entries))


def _failure(one: Trained, factory: Any, recipe: Recipe, pair: Neighbouring, on_d: bool) -> str:
    """Which step of a failed training was the first to give gradients that are not finite, found by halving."""
    where = f"repetition {one.index} (seed {one.seed}, trained on {'D' if on_d else 'D′'})"
    if "NaN" not in str(one.failed):
        return f"{where} failed: {one.failed}."
    members = pair.members(np.array([on_d]))
    low, high = 0, recipe.length(int(members.sum()))
    while high - low > 1:
        middle = (low + high) // 2
        part = replace(recipe, epochs=None, steps=middle)
        again = train_many(
            factory, part, (pair.x, pair.y), members, [one.seed], neighbour=pair.neighbour, engine="inline"
        )
        if next(iter(again)).failed is None:
            low = middle
        else:
            high = middle
    return (
        f"the gradients of {where} became infinite or NaN in step {high - 1}, counted from 0; lower learning_rate, or "
        "look for records that the model cannot take."
    )


# --- the audit --------------------------------------------------------------------------------------------


def _completed(
    audit: Audit,
    plan: _Plan,
    pair: Neighbouring,
    found: _Found,
    asked: Asked | None,
    confidence: float,
    coins: int | None,
) -> Audit:
    dp = plan.recipe.dp
    assert dp is not None
    expected = float(advantage_from_mu(plan.mu))
    target = {
        **audit.details["target"],
        "mu": plan.mu,
        "advantage": expected,
        "noise": dp.sensitivity,
        "noise_multiplier": dp.noise_multiplier,
        "noise_over_sensitivity": plan.mechanism.phases[0].noise,
        "chosen": plan.chosen,
    }
    details = {
        **audit.details,
        "target": target,
        "advantage": {**audit.details["advantage"], "expected": expected},
        "neighbour": pair.to_dict(),
    }
    if asked is not None:
        details["yeom"] = loss_adversary(
            found.yeom,
            members=pair.size,
            nonmembers=asked.outside,
            epsilon=plan.epsilon if plan.private else None,
            delta=audit.headline.delta,
            mu=plan.mu,
            confidence=confidence,
        )
        details["training_accuracy"] = float(found.training_accuracy.mean())
        if asked.is_test:
            details["utility"] = utility(found.accuracy, asked.outside)
    return replace(
        audit,
        details=details,
        metadata={
            **audit.metadata,
            "records": pair.size,
            "neighbours": str(pair.relation),
            "neighbour": pair.to_dict(),
            "recipe": plan.recipe.to_dict(),
            "clipping": f"norm {dp.clip:g}",
            "sensitivity": dp.sensitivity,
            "mechanism": repr(plan.mechanism) if plan.private else None,
            "training": found.how,
            "trainings": counted(len(found.transcripts)),
            "coins_seed": coins,
            "fingerprint": fingerprint(pair.x[: pair.size], pair.y[: pair.size]),
        },
    )
