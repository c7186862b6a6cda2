"""Audit a training with one run: canaries put in by fair coins, one model, guesses, a bound.

Steinke, Nasr and Jagielski (2023). The coins come from a stored seed before anything is trained, and their hash is kept
with the result, so that nobody can choose them afterwards. Reference models, if any, have their own coins: they tell
the attack nothing about the coins of the run.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any, Unpack

import numpy as np

import dosimeter
from dosimeter import _validate as check
from dosimeter._progress import stages
from dosimeter._validate import BoolArray, FloatArray, InputError, IntArray
from dosimeter.accounting import DpSgd
from dosimeter.accounting.claims import claim_mechanism
from dosimeter.attacks.table import read_white_box
from dosimeter.audits.assemble import audit_seed, both_sides, guarantees, written
from dosimeter.audits.one_run.result import RECORDS_KNOWN, GuessPath, OneRunDetails, OneRunMetadata, OneRunUtility
from dosimeter.audits.result import Audit
from dosimeter.audits.training import intervals
from dosimeter.audits.training.intervals import check_budget
from dosimeter.audits.training.repeatable import Pipeline, PipelineKeywords, TrainingOutcome, model_name, pipeline
from dosimeter.audits.training.result import CoinSeeds
from dosimeter.audits.training.shadows import (
    FEWEST_SHADOWS,
    AttackScorer,
    Trainings,
    collect,
    find_candidates,
    halves,
    in_and_out,
    read_points,
    reference_columns,
    tallied,
)
from dosimeter.engine import RunOptions
from dosimeter.engine.options import own_keywords
from dosimeter.estimate import Estimate, Level, plain
from dosimeter.estimators.one_run import one_run
from dosimeter.estimators.ranked import ranked
from dosimeter.evidence import OneRun, fair_coins, mask_hash
from dosimeter.records import fingerprint
from dosimeter.training import Dirac, Recipe

__all__ = ["DIRAC", "GRADIENTS_ONLY", "audit_one_run", "path_of_guesses"]

MOST_CANARIES = 1000  # taken when no number is given: more would change the training itself
FEWEST_GUESSES = 20
DIRAC, GRADIENTS_ONLY = "dirac", "dirac-gradients-only"  # an adversary who knows the records, and one who does not
STEPS, FEWEST_DRAWN = 200, 10  # of the drawn path of guesses
_SEEDS = ("canaries", "coins", "run", "masks", "shadows", "columns")
_DEFAULTS = {"signal": None, "nonmembers": None, "key": None}


def audit_one_run(
    train: Any,
    data: Any,
    *,
    recipe: Recipe | None = None,
    canaries: Any = None,
    count: int | None = None,
    included: Any = None,
    expected_hash: str | None = None,
    attack: Any = "auto",
    shadows: int = 0,
    groups: Any = None,
    delta: float = 1e-5,
    confidence: float = 0.95,
    seed: int | None = None,
    name: str | None = None,
    run: RunOptions | None = None,
    **options: Unpack[PipelineKeywords],
) -> Audit:
    """Audit a training with a single run in which fair coins decide which canaries are in.

    All records that are not canaries are in. One run proves less than many, but it costs one training. The more
    canaries there are, the more it can prove.

    Args:
        train: A factory of torch modules, which `recipe` trains. Without a recipe, any function (indices, seed) that
            trains on these rows of the data and returns a model.
        data: (X, y), or what `dosimeter.datasets.load` returns.
        recipe: How the module is trained.
        canaries: Rows of the data; or "mislabelled", "out-of-distribution" or "clip-bkd" for `count` crafted records;
            or your own (X, y); None takes `count` rows at random. "dirac" is a white-box audit of DP-SGD: each canary
            is a gradient of norm `clip` at its own coordinate (`training.Dirac`), and the adversary sees the noisy
            gradients. They know the records and subtract their gradients; with "dirac-gradients-only" they do not, and
            the gradients of the records are further noise. No record of the data is left out.
        count: How many canaries; None for 1000, or half of the data if that is less.
        included: A saved mask of coins, to run an audit again; None draws the coins from the seed.
        expected_hash: The `mask_hash` of the first audit's metadata: another mask is refused.
        attack: As in `audit_training`; without reference models the signal itself is the score.
        shadows: How many reference models to train on random halves of the data. They sharpen the scores.
        groups: The person behind each record. There is then one coin and one score for each person.
        delta: The δ of the guarantees that are tested.
        confidence: The confidence of every bound.
        seed: Decides canaries, coins and trainings. None draws a fresh one, which the store and the result keep.
        name: What to call the training. It is part of the keys of the store.
        run: Where trainings run, and where they are kept.
        **options: `signal`, `nonmembers` and `key`, as in `audit_training`.

    Returns:
        The audit, its headline first.

    Raises:
        InputError: If an argument cannot be used, before anything is trained; or if the training failed.

    >>> import numpy as np
    >>> def train(indices, seed):  # a model that remembers its members
    ...     outputs = np.random.default_rng(seed).normal(size=60)
    ...     outputs[indices] += 5
    ...     return lambda records: outputs
    >>> data, here = (np.zeros((60, 1)), np.zeros(60)), RunOptions(engine="inline", progress=False)
    >>> audit_one_run(train, data, count=60, signal=lambda outputs, y: outputs, seed=0, run=here).headline.low > 1
    True
    """
    delta, confidence = check.delta(delta), check.confidence(confidence)
    own, rest = own_keywords(options, _DEFAULTS)
    where = RunOptions.read(run, rest, caller="audit_one_run")
    attack, white_box = read_white_box(attack)
    base = pipeline(train, data, recipe=recipe, where=where, name=name, groups=groups, white_box=white_box, **own)
    shadows = check.whole("shadows", shadows, 0, "pass the number of reference models, 0 for none")
    scorer = _scorer(attack, shadows, log_odds=base.signal is None and white_box is None)
    seed = audit_seed(seed, where.store, "one run", base.identity, check.show(canaries), count)
    children = np.random.SeedSequence(seed).spawn(len(_SEEDS))
    seeds = {key: int(child.generate_state(1)[0]) for key, child in zip(_SEEDS, children, strict=True)}
    chosen = _canaries(base, canaries, count, shadows, seeds["canaries"])
    coins, coin_seed = _coins(included, expected_hash, chosen.rows.size, seeds["coins"])
    check_budget(coins.size, delta=delta, confidence=confidence)
    members = _members(base, chosen, coins)
    mechanism, notes = intervals.mechanism_of(recipe, int(members.sum()), int(members.sum()))
    upper, missing = guarantees(mechanism, delta, ["add/remove"], base.unit)

    with stages({"the run": 1, "reference models": shadows}):
        scores, trained = _scored(chosen, coins, members, scorer, shadows, seeds)
    evidence = OneRun(scores, coins, coin_seed, None if base.persons is None else np.arange(coins.size))
    estimates = _estimates(evidence, delta, confidence)
    if chosen.subtract:
        estimates += _in_family(evidence, mechanism, delta, confidence)
    region, risk = both_sides(estimates, upper, base.unit)
    return Audit(
        estimates=tuple(estimates),
        guard=intervals.BY_COINS,
        risk=risk,
        curve=intervals.curve(intervals.Evidence(scores[None], coins[None], 0.0), confidence),
        upper=upper,
        region=region,
        distributions=intervals.score_densities(evidence),
        details=OneRunDetails(intervals=intervals.rows_of(estimates), guesses=path_of_guesses(scores, coins)),
        metadata=OneRunMetadata(
            kind="one-run",
            name=name,
            model=model_name(train),
            recipe=None if recipe is None else plain(recipe.to_dict()),
            attack=_attack_name(chosen, scorer) if white_box is None else f"{white_box.label}, {scorer.name}",
            shadows=shadows,
            canaries=chosen.kind,
            count=coins.size,
            members=int(coins.sum()),
            nonmembers=int((~coins).sum()),
            points=tuple(chosen.rows.tolist()),
            records=base.records,
            unit=base.unit,
            utility=OneRunUtility(trained["run"].accuracy),
            **tallied(trained, base.known),
            seed=seed,
            seeds=CoinSeeds(seeds["masks"] if shadows else None, coin_seed),
            mask_hash=mask_hash(coins),
            fingerprint=fingerprint(base.contents, base.y),
            mechanism=None if mechanism is None else written(mechanism),
            delta=delta,
            confidence=confidence,
            warnings=(*notes, *missing, *(note for part in trained.values() for note in part.notes())),
            version=dosimeter.__version__,
        ),
    )


def _scorer(attack: Any, shadows: int, *, log_odds: bool) -> AttackScorer:
    """Take the attack, if there are enough reference models for it."""
    if 0 < shadows < FEWEST_SHADOWS:
        raise InputError(f"shadows must be 0 or at least {FEWEST_SHADOWS}, got {shadows}; pass e.g. 16.")
    scorer = AttackScorer.read(attack, shadows, log_odds=log_odds)
    if not shadows and scorer.name != "loss":
        raise InputError(
            f"attack={scorer.name!r} needs reference models, got shadows=0; pass e.g. shadows=16, or attack='loss'."
        )
    return scorer


@dataclass(frozen=True)
class _Canaries:
    """The pipeline with crafted records appended, the rows of the canaries (or coordinates), and what they are."""

    pipeline: Pipeline
    rows: IntArray
    kind: str
    white_box: bool = False
    subtract: bool = False


def _canaries(base: Pipeline, canaries: Any, count: Any, shadows: int, seed: int) -> _Canaries:
    """Choose, read or craft the canaries."""
    if isinstance(canaries, str) and canaries in (DIRAC, GRADIENTS_ONLY):
        places = _coordinates(base, count, shadows, seed)
        return _Canaries(base, places, "Dirac gradients", white_box=True, subtract=canaries == DIRAC)
    if count is not None:
        count = check.whole("count", count, 1, "pass the number of canaries, e.g. 1000")
    if canaries is None:
        wanted = min(MOST_CANARIES, max(1, base.units // 2)) if count is None else count
        if wanted > base.units:
            raise InputError(f"count={wanted}, but the data have {base.units} {base.unit}s; ask for fewer canaries.")
        rng = np.random.default_rng(np.random.SeedSequence(seed))
        rows = np.sort(rng.choice(base.units, wanted, replace=False))
        return _Canaries(base, rows, "random rows" if base.persons is None else "random persons")
    pair = isinstance(canaries, (tuple, list)) and len(canaries) == 2 and all(np.ndim(part) for part in canaries)
    if not isinstance(canaries, str) and not pair:
        rows = base.units_of(read_points(canaries, base.records, "canaries"))
        if count is not None and count != rows.size:
            raise InputError(f"count={count}, but canaries names {rows.size} rows; leave count out.")
        return _Canaries(base, rows, "given rows")
    wanted = len(canaries[0]) if pair else (min(MOST_CANARIES, base.units // 2) if count is None else count)
    candidates = find_candidates(base, canaries, wanted, seed, spare=0)
    rows = candidates.rows if count is None else candidates.rows[:count]
    return _Canaries(candidates.pipeline, rows, str(candidates.canaries))


def _coordinates(base: Pipeline, count: Any, shadows: int, seed: int) -> IntArray:
    """Choose the coordinates of Dirac canaries: parameters of the model at random, each at most once."""
    if base.persons is not None:
        raise InputError("groups name persons behind records, but Dirac canaries are gradients; leave groups out.")
    if base.recipe is None or base.recipe.dp is None or base.recipe.dp.sensitivity != "global":
        raise InputError("canaries='dirac' are gradients in DP-SGD; pass recipe=Recipe(dp=Privacy(…), …).")
    if shadows:
        raise InputError(f"canaries='dirac' are seen in the gradients, got shadows={shadows}; leave shadows at 0.")
    parameters = sum(part.numel() for part in base.train().parameters() if part.requires_grad)
    wanted = min(MOST_CANARIES, parameters) if count is None else count
    wanted = check.whole("count", wanted, 1, f"pass at most {parameters}, the parameters of the model", parameters)
    return np.sort(np.random.default_rng(np.random.SeedSequence(seed)).choice(parameters, wanted, replace=False))


def _coins(included: Any, expected: Any, count: int, seed: int) -> tuple[BoolArray, int | None]:
    """Draw the coins from the seed, or read a saved mask; check them against the hash that was kept of it."""
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


def _members(base: Pipeline, canaries: _Canaries, coins: BoolArray) -> BoolArray:
    """Who is in the run: (1, units)."""
    if coins.all() or not coins.any():
        raise InputError(f"all {coins.size} coins came up the same; pass more canaries.")
    members = np.zeros((1, canaries.pipeline.units), bool)
    members[0, : base.units] = True
    if not canaries.white_box:
        members[0, canaries.rows] = coins
    if not members.any():
        raise InputError(
            "no record is left to train on: every row is a canary and every coin says out; pass more data."
        )
    return members


def _scored(
    canaries: _Canaries,
    coins: BoolArray,
    members: BoolArray,
    scorer: AttackScorer,
    shadows: int,
    seeds: dict[str, int],
) -> tuple[FloatArray, dict[str, Trainings]]:
    """Train the model and the reference models, and score each canary; also the trainings by stage."""
    trainable, rows = canaries.pipeline, canaries.rows
    if canaries.white_box:
        assert trainable.recipe is not None
        dirac = Dirac(tuple(rows.tolist()), tuple(coins.tolist()), canaries.subtract)
        trainable = replace(trainable, recipe=replace(trainable.recipe, canaries=dirac))
    observed: list[FloatArray | None] = []
    trained = collect(_noting(trainable.run(members, [seeds["run"]]), observed), members, stage="run")
    trained.require(1, "runs")
    if canaries.white_box:
        assert observed[0] is not None
        return observed[0], {"run": trained}
    if shadows:
        scores, references = _with_references(trainable, trained, rows, scorer, shadows, seeds)
        return scores, {"run": trained, "reference": references}
    none = np.empty((0, rows.size))
    return scorer.scores(trained.signals[:, rows], none, none.astype(bool))[0], {"run": trained}


def _noting(
    outcomes: Generator[TrainingOutcome, None, None], observed: list[FloatArray | None]
) -> Generator[TrainingOutcome, None, None]:
    """The outcomes as they come; what was seen of Dirac canaries is noted."""
    with contextlib.closing(outcomes):
        for outcome in outcomes:
            observed.append(outcome.canaries)
            yield outcome


def _with_references(
    trainable: Pipeline, trained: Trainings, rows: IntArray, scorer: AttackScorer, shadows: int, seeds: dict[str, int]
) -> tuple[FloatArray, Trainings]:
    """Score the canaries by an attack that learns from reference models."""
    masks = halves(shadows, trainable.units, seeds["masks"])
    numbers = [int(s) for s in np.random.SeedSequence(seeds["shadows"]).generate_state(shadows)]
    references = collect(trainable.run(masks, numbers, kind=trained.kind), masks, stage="reference")
    references.require(FEWEST_SHADOWS, "reference models")
    included = masks[references.kept]
    usable = in_and_out(included, 1)
    if not usable[rows].all():
        bad = rows[~usable[rows]]
        raise InputError(
            f"canary row {bad[0]} is in all or none of the {len(included)} reference models ({bad.size} such rows); "
            "pass more shadows, e.g. 32."
        )
    columns, at = reference_columns(np.flatnonzero(usable), rows, seeds["columns"])
    scores = scorer.scores(trained.signals[:, columns], references.signals[:, columns], included[:, columns])
    return scores[0, at], references


def _estimates(evidence: OneRun, delta: float, confidence: float) -> list[Estimate]:
    """The headline, the walk and the bets; then a number of guesses fixed in advance, a tenth of the canaries."""
    at: Level = {"delta": delta, "confidence": confidence}
    guesses = min(evidence.total, max(FEWEST_GUESSES, evidence.total // 10))
    estimates = [
        one_run(evidence, **at),
        ranked(evidence, **at),
        one_run(evidence, **at, method="betting"),
        one_run(evidence, **at, guesses=guesses),
    ]
    if delta > 0:
        estimates.append(one_run(evidence, **at, guesses=guesses, method="f-dp"))
    return estimates


def _in_family(evidence: OneRun, mechanism: DpSgd | None, delta: float, confidence: float) -> list[Estimate]:
    """The ε of the smallest noise that the run rejects, where the mechanism has a curve for adding one record.

    The coordinates of Dirac canaries have independent noise, and nothing else is left there.
    """
    if mechanism is None or delta == 0.0 or (mechanism.sampling != "poisson" and mechanism.sample_rate < 1):
        return []
    claimed = DpSgd(mechanism.noise_multiplier, mechanism.sample_rate, mechanism.steps)
    return [claim_mechanism(evidence, claimed, delta=delta, confidence=confidence, independent=True)]


def _attack_name(canaries: _Canaries, scorer: AttackScorer) -> str:
    if not canaries.white_box:
        return scorer.name
    return RECORDS_KNOWN if canaries.subtract else "noisy gradients"


def path_of_guesses(scores: FloatArray, coins: BoolArray) -> GuessPath:
    """Count right guesses among the r surest, half "in" from the top and half "out" from the bottom, for some r."""
    order = np.argsort(-scores, kind="stable")
    right_in = np.concatenate([[0], np.cumsum(coins[order])])
    right_out = np.concatenate([[0], np.cumsum(~coins[order[::-1]])])
    first = min(coins.size, FEWEST_DRAWN)
    guesses = np.unique(np.linspace(first, coins.size, STEPS).round().astype(np.int64))
    correct = right_in[guesses - guesses // 2] + right_out[guesses // 2]
    return GuessPath(tuple(guesses.tolist()), tuple(correct.tolist()))
