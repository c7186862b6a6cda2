"""Audit a training with one run: canaries put in by fair coins, one model, guesses, a bound.

Steinke, Nasr and Jagielski (2023). The coins come from a stored seed before anything is trained, and their hash is kept
with the result, so that nobody can choose them afterwards. Reference models, if any, have coins of their own: they
teach the attack nothing about the coins of the run.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

import dosimeter
from dosimeter import _validate as check
from dosimeter._validate import BoolArray, FloatArray, InputError, IntArray
from dosimeter.audits.assemble import both_sides, guarantees
from dosimeter.audits.assemble import distributions, fingerprint
from dosimeter.audits.result import Audit
from dosimeter.audits.seeds import audit_seed
from dosimeter.audits.training import intervals
from dosimeter.audits.training.challenges import (
    FEWEST_SHADOWS,
    Attack,
    candidates,
    halves,
    read_points,
    served,
    witnesses,
)
from dosimeter.audits.training.claims import check_budget
from dosimeter.audits.training.intervals import BY_COINS, Evidence
from dosimeter.audits.training.shadows import (
    Pipeline,
    Row,
    Signal,
    Trainings,
    collect,
    model_name,
    pipeline,
    tallied,
)
from dosimeter.engine import RunOptions
from dosimeter.estimate import Estimate
from dosimeter.estimators.one_run import one_run
from dosimeter.estimators.ranked import ranked
from dosimeter.evidence import OneRun, fair_coins, mask_hash
from dosimeter.training import Dirac, Recipe

MOST_CANARIES = 1000  # taken when no number is given: more would change the training itself
FEWEST_GUESSES = 20
DIRAC = "dirac"
STEPS, FEWEST_DRAWN = 200, 10  # of the drawn path of guesses


def audit_one_run(
    train: Any,
    data: Any,
    *,
    recipe: Recipe | None = None,
    signal: Signal | None = None,
    canaries: Any = None,
    count: int | None = None,
    included: Any = None,
    expected_hash: str | None = None,
    attack: Any = "auto",
    shadows: int = 0,
    nonmembers: Any = None,
    delta: float = 1e-5,
    confidence: float = 0.95,
    engine: str = "local",
    workers: int | None = None,
    store: Any = None,
    key: str | None = None,
    memory: int | None = None,
    timeout: float | None = None,
    progress: bool = True,
    groups: Any = None,
    seed: int | None = None,
    name: str | None = None,
) -> Audit:
    """Audit a training with a single run in which fair coins decide which canaries are in.

    `train`, `data`, `recipe`, `signal` and where it runs are as for `audit_training`. `canaries` are rows of the data,
    or "mislabelled", "out-of-distribution" or "clip-bkd" for `count` crafted ones, or an (X, y) of your own; None takes
    `count` rows at random, 1000 or half of the data if no number is given. All other records are in. `shadows`
    reference models, trained on random halves, sharpen the scores; without any the signal itself is the score.
    "dirac" is a white-box audit of DP-SGD: the canaries are gradients of norm `clip` at a coordinate of their own
    (`training.Dirac`), and the adversary sees the noisy gradients, in which the records' own gradients are further
    noise to it; no record of the data is left out.

    With `groups`, the person behind each record, there is one coin and one score for each person. The coins come from
    `seed`, which is fresh unless given, kept in the store and written into the result. To run an audit again from a
    mask that was saved, pass it as `included` with the `expected_hash` of the first audit's metadata: another mask is
    refused. One run proves less than many, but costs one training; the guesses it may use grow with the number of
    canaries.

    >>> audit_one_run(factory, (X, y), recipe=Recipe(epochs=10), canaries="mislabelled", count=500)  # doctest: +SKIP
    """
    delta, confidence = check.delta(delta), check.confidence(confidence)
    shadows = check.whole("shadows", shadows, 0, "pass the number of reference models, 0 for none")
    if 0 < shadows < FEWEST_SHADOWS:
        raise InputError(f"shadows must be 0 or at least {FEWEST_SHADOWS}, got {shadows}; pass e.g. 16.")
    where = RunOptions(engine, workers, store, memory, timeout, progress)
    base = pipeline(
        train, data, recipe=recipe, signal=signal, nonmembers=nonmembers, where=where, key=key, name=name, groups=groups
    )
    way = Attack.read(attack, shadows, log_odds=signal is None)
    if not shadows and way.name != "loss":
        raise InputError(f"attack={way.name!r} needs reference models, got shadows=0; pass e.g. shadows=16, or 'loss'.")
    seed = audit_seed(seed, where.store, "one run", base.identity, check.show(canaries), count)
    children = np.random.SeedSequence(seed).spawn(6)
    seeds = {
        key: int(child.generate_state(1)[0])
        for key, child in zip(("canaries", "coins", "run", "masks", "shadows", "witnesses"), children, strict=True)
    }
    white_box = isinstance(canaries, str) and canaries == DIRAC
    if white_box and groups is not None:
        raise InputError("groups name persons behind records, but Dirac canaries are gradients; leave groups out.")
    if white_box:
        field, rows, kind = base, _coordinates(base, count, shadows, seeds["canaries"]), "Dirac gradients"
    else:
        field, rows, kind = _canaries(base, canaries, count, seeds["canaries"])
    coins, coin_seed = _coins(included, expected_hash, rows.size, seeds["coins"])
    check_budget(rows.size, delta=delta, confidence=confidence, claim=None)
    if coins.all() or not coins.any():
        raise InputError(f"all {coins.size} coins fell on one side; pass more canaries.")
    members = np.zeros((1, field.units), bool)
    members[0, : base.units] = True
    if not white_box:
        members[0, rows] = coins
    if not members.any():
        raise InputError("no record is left to train on: every row is a canary and no coin fell on in; pass more data.")
    mechanism, notes = intervals.mechanism_of(recipe, int(members.sum()), int(members.sum()))
    upper, missing = guarantees(mechanism, delta, ["add/remove"], base.unit)
    notes += missing

    if white_box:
        assert recipe is not None
        field = replace(base, recipe=replace(recipe, canaries=Dirac(tuple(rows.tolist()), tuple(coins.tolist()))))
    run = field.run(members, [seeds["run"]])
    observed: list[FloatArray | None] = []
    trained = collect(_noting(run, observed), members, stage="run")
    trained.require(1, "runs")
    stages = {"run": trained}
    if white_box:
        assert observed[0] is not None
        scores = observed[0]
    elif shadows:
        scores, stages["reference"] = _with_references(field, trained.signals, rows, way, shadows, seeds)
    else:
        scores = way.scores(trained.signals[:, rows], np.empty((0, rows.size)), np.empty((0, rows.size), bool))[0]
    notes += [note for part in stages.values() for note in part.notes()]
    evidence = OneRun(scores, coins, coin_seed, None if base.persons is None else np.arange(coins.size))
    estimates = _estimates(evidence, delta, confidence)
    region, risk = both_sides(estimates, upper, base.unit)
    inside = evidence.as_scores()
    return Audit(
        estimates=tuple(estimates),
        guard=BY_COINS,
        risk=risk,
        curve=intervals.curve(Evidence(scores[None], coins[None], 0.0), confidence),
        upper=upper,
        region=region,
        distributions={**distributions(inside.members, inside.nonmembers), "name": "score"},
        details={
            "intervals": intervals.rows_of(estimates),
            "guesses": path_of_guesses(scores, coins),
        },
        metadata={
            "kind": "one-run",
            "name": name,
            "model": model_name(train),
            "recipe": None if recipe is None else recipe.to_dict(),
            "attack": "noisy gradients" if white_box else way.name,
            "shadows": shadows,
            "canaries": kind,
            "count": int(rows.size),
            "members": int(coins.sum()),
            "nonmembers": int((~coins).sum()),
            "points": rows.tolist(),
            "records": base.records,
            "unit": base.unit,
            "utility": {"runs": trained.accuracy},
            **tallied(stages, base.known),
            "seed": seed,
            "seeds": {"coins": coin_seed, "masks": seeds["masks"] if shadows else None},
            "mask_hash": mask_hash(coins),
            "fingerprint": fingerprint(base.x, base.y),
            "mechanism": None if mechanism is None else repr(mechanism),
            "delta": delta,
            "confidence": confidence,
            "warnings": notes,
            "version": dosimeter.__version__,
        },
    )


def _canaries(base: Pipeline, canaries: Any, count: Any, seed: int) -> tuple[Pipeline, IntArray, str]:
    """The pipeline with crafted records appended, the rows of the canaries, and what they are."""
    if count is not None:
        count = check.whole("count", count, 1, "pass the number of canaries, e.g. 1000")
    if canaries is None:
        wanted = min(MOST_CANARIES, max(1, base.units // 2)) if count is None else count
        if wanted > base.units:
            raise InputError(f"count={wanted}, but the data have {base.units} {base.unit}s; ask for fewer canaries.")
        rng = np.random.default_rng(np.random.SeedSequence(seed))
        rows = np.sort(rng.choice(base.units, wanted, replace=False))
        return base, rows, "random rows" if base.persons is None else "random persons"
    pair = isinstance(canaries, (tuple, list)) and len(canaries) == 2 and all(np.ndim(part) for part in canaries)
    if not isinstance(canaries, str) and not pair:
        rows = base.units_of(read_points(canaries, base.records, "canaries"))
        if count is not None and count != rows.size:
            raise InputError(f"count={count}, but canaries names {rows.size} rows; leave count out.")
        return base, rows, "given rows"
    wanted = len(canaries[0]) if pair else (min(MOST_CANARIES, base.units // 2) if count is None else count)
    field = candidates(base, canaries, wanted, seed, spare=0)
    rows = field.rows if count is None else field.rows[:count]
    return field.pipeline, rows, str(field.canaries)


def _coordinates(base: Pipeline, count: Any, shadows: int, seed: int) -> IntArray:
    """The coordinates of Dirac canaries: parameters of the model at random, each at most once."""
    if base.recipe is None or base.recipe.dp is None or base.recipe.dp.sensitivity != "global":
        raise InputError("canaries='dirac' are gradients in DP-SGD; pass recipe=Recipe(dp=Privacy(…), …).")
    if shadows:
        raise InputError(f"canaries='dirac' are seen in the gradients, got shadows={shadows}; leave shadows at 0.")
    parameters = sum(part.numel() for part in base.train().parameters() if part.requires_grad)
    wanted = min(MOST_CANARIES, parameters) if count is None else count
    wanted = check.whole("count", wanted, 1, f"pass at most {parameters}, the parameters of the model", parameters)
    return np.sort(np.random.default_rng(np.random.SeedSequence(seed)).choice(parameters, wanted, replace=False))


def _noting(rows: Generator[Row, None, None], observed: list[FloatArray | None]) -> Generator[Row, None, None]:
    """The rows as they come; what was seen of Dirac canaries is noted."""
    with contextlib.closing(rows):
        for row in rows:
            observed.append(row.canaries)
            yield row


def _coins(included: Any, expected: Any, count: int, seed: int) -> tuple[BoolArray, int | None]:
    """The coins from the seed, or a saved mask; checked against the hash that was kept of it."""
    coins = fair_coins(count, seed) if included is None else check.bits("included", included)
    if coins.size != count:
        raise InputError(f"included has {coins.size} coins for {count} canaries; pass the mask of the same audit.")
    if expected is not None and not (isinstance(expected, str) and mask_hash(coins) == expected):
        raise InputError(
            f"expected_hash is {check.show(expected)}, but the mask has {mask_hash(coins)[:16]}…: it is another mask; "
            "pass that of the audit, or its seed and canaries."
        )
    same = included is None or np.array_equal(coins, fair_coins(count, seed))
    return coins, seed if same else None


def _with_references(
    field: Pipeline, run: FloatArray, rows: IntArray, attack: Attack, shadows: int, seeds: dict[str, int]
) -> tuple[FloatArray, Trainings]:
    """Scores of the canaries by an attack that learns from reference models."""
    masks = halves(shadows, field.units, seeds["masks"])
    numbers = [int(s) for s in np.random.SeedSequence(seeds["shadows"]).generate_state(shadows)]
    found = collect(field.run(masks, numbers), masks, stage="reference")
    found.require(FEWEST_SHADOWS, "reference models")
    included = masks[found.kept]
    usable = served(included, 1)
    if not usable[rows].all():
        bad = rows[~usable[rows]]
        raise InputError(
            f"canary row {bad[0]} is in all or none of the {len(included)} reference models ({bad.size} such rows); "
            "pass more shadows, e.g. 32."
        )
    columns = np.sort(np.concatenate([rows, witnesses(np.flatnonzero(usable), rows, seeds["witnesses"])]))
    at = np.searchsorted(columns, rows)
    return attack.scores(run[:, columns], found.signals[:, columns], included[:, columns])[0, at], found


def _estimates(evidence: OneRun, delta: float, confidence: float) -> list[Estimate]:
    """The headline, the walk and the bets; then a number of guesses fixed in advance, a tenth of the canaries."""
    at: dict[str, Any] = {"delta": delta, "confidence": confidence}
    guesses = min(evidence.total, max(FEWEST_GUESSES, evidence.total // 10))
    found = [
        one_run(evidence, **at),
        ranked(evidence, **at),
        one_run(evidence, **at, method="betting"),
        one_run(evidence, **at, guesses=guesses),
    ]
    if delta > 0:
        found.append(one_run(evidence, **at, guesses=guesses, method="f-dp"))
    return found


def path_of_guesses(scores: FloatArray, coins: BoolArray) -> dict[str, npt.NDArray[Any]]:
    """Right guesses among the r surest, half of them "in" from the top and half "out" from the bottom, for some r."""
    order = np.argsort(-scores, kind="stable")
    right_in = np.concatenate([[0], np.cumsum(coins[order])])
    right_out = np.concatenate([[0], np.cumsum(~coins[order[::-1]])])
    first = min(coins.size, FEWEST_DRAWN)
    guesses = np.unique(np.linspace(first, coins.size, STEPS).round().astype(np.int64))
    return {"guesses": guesses, "correct": right_in[guesses - guesses // 2] + right_out[guesses // 2]}
