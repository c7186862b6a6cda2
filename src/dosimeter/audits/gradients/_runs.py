"""The trainings of a gradient audit: which data set each one uses, and what they leave."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dosimeter._validate import BoolArray, FloatArray, InputError
from dosimeter.audits.gradients._loss_adversary import AskedRecords, answers
from dosimeter.audits.gradients._neighbouring import Neighbouring
from dosimeter.audits.parts import StoreEntry
from dosimeter.audits.result import Provenance
from dosimeter.evidence import fair_coins
from dosimeter.training import Recipe, Trained, Transcript, train_many
from dosimeter.training.chain import chain
from dosimeter.training.groups import started
from dosimeter.training.identity import Identity

WORKING_SET = 8_000_000  # bytes of activations and weights of models that train together


@dataclass(frozen=True, eq=False)
class Worlds:
    """Which runs are on D, the seed of each model, and the seed of the coins; None where no coin was thrown."""

    trained_on_d: BoolArray
    seeds: list[int]
    coins: int | None


def draw_worlds(repetitions: int, both: bool, seed: int) -> Worlds:
    """Throw a coin for each run.

    Runs on D come first: models that train together then share their records, and seeds do not know their place.
    """
    for_coins, for_models = np.random.SeedSequence([seed, 7]).spawn(2)
    seeds = (for_models.generate_state(repetitions, np.uint64) >> np.uint64(1)).tolist()
    if not both:
        return Worlds(np.ones(repetitions, bool), seeds, None)
    coins = int(for_coins.generate_state(1)[0])
    on_d = np.sort(fair_coins(repetitions, coins))[::-1]
    if on_d.all() or not on_d.any():
        raise InputError(
            f"the coins of seed {seed} put all {repetitions} repetitions into one world; pass more repetitions."
        )
    return Worlds(on_d, seeds, coins)


def models_together(factory: Any, recipe: Recipe, batch: int, repetitions: int) -> int | None:
    """Say how many dense models on one full batch train together: as many as fit into WORKING_SET, 4 to 128.

    They share their records, so that only activations and weights count. It depends on sizes alone: a run repeats.
    None leaves it to the trainer.
    """
    layers = chain(started(factory, 0))
    if not isinstance(layers, list) or recipe.batch(batch) < batch:
        return None
    weights = sum(layer.outputs * (layer.inputs + 1) for layer in layers)
    numbers = 3 * weights + 2 * batch * sum(layer.outputs for layer in layers)
    size = 2 ** round(math.log2(max(WORKING_SET / (4 * numbers), 1)))
    return int(min(max(size, 4), 128, max(1, repetitions // 2)))


@dataclass(frozen=True, eq=False)
class WatchedRuns:
    """What the trainings left: their transcripts and, for each model, Yeom's advantage and both accuracies."""

    transcripts: list[Transcript]
    yeom: FloatArray
    accuracy: FloatArray
    training_accuracy: FloatArray
    cached: int
    how: str
    entries: tuple[StoreEntry, ...]

    def provenance(self, known: Identity | None) -> Provenance:
        """What was computed now, and what came from the store."""
        return Provenance(
            computed=len(self.transcripts) - self.cached,
            cached=self.cached,
            given=known is not None and known.given,
            key=None if known is None else known.text,
            versions=() if known is None else tuple(known.versions),
            entries=self.entries,
        )


def collect_runs(
    trained: Iterable[Trained],
    factory: Any,
    recipe: Recipe,
    pair: Neighbouring,
    worlds: Worlds,
    asked: AskedRecords | None,
) -> WatchedRuns:
    """Gather all trainings; the first that failed is refused, with the step in which it failed."""
    members = pair.members(np.array([False, True]))
    transcripts: list[Transcript] = []
    rows: list[tuple[float, float, float]] = []
    cached, how = 0, ""
    models: Counter[str] = Counter()
    for one in trained:
        on_d = bool(worlds.trained_on_d[one.index])
        if one.failed is not None:
            raise InputError(_failure(one, factory, recipe, pair, on_d))
        assert one.transcript is not None
        transcripts.append(one.transcript)
        cached, how = cached + one.cached, str(one.plan)
        if one.cached and one.key is not None:
            models[one.key] += 1
        if asked is not None:
            assert one.outputs is not None
            rows.append(answers(one.outputs, asked, members[int(on_d)]))
    yeom, accuracy, training_accuracy = np.array(rows).reshape(-1, 3).T
    entries = tuple(StoreEntry(key, count, "repetition") for key, count in models.items())
    return WatchedRuns(transcripts, yeom, accuracy, training_accuracy, cached, how, entries)


def _failure(one: Trained, factory: Any, recipe: Recipe, pair: Neighbouring, on_d: bool) -> str:
    """Say which step of a failed training was the first to give gradients that are not finite; halving finds it."""
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
