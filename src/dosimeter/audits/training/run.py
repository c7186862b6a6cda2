"""Audit a training pipeline: shadow models, the worst points, a game of coins, and what it proves about ε.

Two games. "challenge" is IND-MIA of Zanella-Béguelin et al. (ICML 2023): all records but the challenged ones are in
every run, and a fair coin for each challenged point and run decides whether that point is in. The fixed rest makes the
runs alike but for the coins, and it is what the released model is trained on. "crossed" trains nothing further: half of
the shadow models chooses the points and teaches the attack, the other half is attacked; its coins are its own masks.
Leaving out one model at a time instead would let the coin of one model into the scores of the others, and no theorem
covers that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import dosimeter
from dosimeter import _validate as check
from dosimeter._validate import BoolArray, FloatArray, InputError, IntArray
from dosimeter.audits.assemble import both_sides, guarantees
from dosimeter.audits.assemble import fingerprint
from dosimeter.audits.result import Audit
from dosimeter.audits.seeds import audit_seed
from dosimeter.audits.training import intervals
from dosimeter.audits.training.challenges import (
    FEWEST_SHADOWS,
    SELECT,
    Attack,
    Candidates,
    Chosen,
    candidates,
    choose,
    halves,
    read_points,
)
from dosimeter.audits.training.claims import Claim, check_budget
from dosimeter.audits.training.intervals import BY_COINS, Evidence
from dosimeter.audits.training.shadows import Row, Signal, Trainings, collect, model_name, pipeline, tallied
from dosimeter.engine import RunOptions
from dosimeter.estimate import Estimate
from dosimeter.evidence import MOST_RECORDS, fair_coins, mask_hash
from dosimeter.training import Recipe

GAMES = ("challenge", "crossed")


def audit_training(
    train: Any,
    data: Any,
    *,
    recipe: Recipe | None = None,
    signal: Signal | None = None,
    attack: Any = "auto",
    game: str = "challenge",
    shadows: int = 64,
    runs: int = 128,
    points: Any = None,
    challenges: int = 1,
    select: str = "accuracy",
    canaries: Any = None,
    claim: Any = None,
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
    """Audit a training that can be repeated: what it proves about the ε of the method, not of one model.

    `train` is a factory of torch modules, trained by `recipe` many at a time; or, without a recipe, any function
    `(indices, seed)` that trains on these rows of the data and returns a model. `data` is (X, y) or what
    `dosimeter.datasets.load` returns; `nonmembers`, another one, only serves to report accuracy. `signal(outputs, y)`
    gives a number for each record, high for a likely member; unless given it is the log-odds of the true class.

    `shadows` models are trained on random halves. From them come the attack ("auto", "lira", "lira-offline", "rmia",
    "rmia-online", "watson", "loss", or a function (target, shadows, included)), the `challenges` points that it tells
    best (`select` by "accuracy" or "auc"; or `points`, rows of the data; or `canaries`, "mislabelled",
    "out-of-distribution", "clip-bkd" or an (X, y) of your own, appended to the data), and a threshold. Then `game`
    decides what is played with them: "challenge" trains `runs` further models, "crossed" none.

    With `claim`, (ε, δ) or a profile, the runs of one point are tested as they come in and training stops as soon as
    the claim is rejected; then only the test's own statements are made, which hold at any time.

    With `groups`, the person behind each record, the points are persons: one coin and one score for each. The coins
    come from `seed`, which is fresh unless given, kept in the store and written into the result.

    With a `store` everything is kept, and the same call again trains nothing. The keys hold all that `train` can reach
    (its code, globals, objects by their state, modules, versions of libraries, the command line of a script), the data
    and `name`, but not files: change `name` when files that it reads change. A function that reaches something without
    a state to hash is refused unless `key` stands for it; change that text whenever the training changes.
    `metadata["provenance"]` lists what came from the store. A training that fails twice or gives NaN stands under
    `metadata["failed"]` with its seed, and the rest is trained; `metadata["trainings"]` says how many were asked for,
    done, failed, and spared by a test that had enough. Trainings whose process is killed from outside have not failed:
    see `dosimeter.engine.run`.

    >>> audit_training(factory, (X, y), recipe=Recipe(epochs=10), store=Store("store")).headline  # doctest: +SKIP
    """
    where = RunOptions(engine, workers, store, memory, timeout, progress)
    base = pipeline(
        train, data, recipe=recipe, signal=signal, nonmembers=nonmembers, where=where, key=key, name=name, groups=groups
    )
    same = (
        base.identity,
        game,
        check.show(points),
        challenges,
        check.show(canaries),
    )  # more models begin with the old ones
    seed = audit_seed(seed, where.store, "training", *same)
    setting = _Setting.checked(game, shadows, runs, points, challenges, select, canaries, delta, confidence, seed)
    known = None if points is None else base.units_of(read_points(points, base.records))
    count = setting.challenges if known is None else known.size
    tested = None if claim is None else Claim.read(claim, delta=setting.delta, confidence=setting.confidence)
    if tested is not None and (setting.game != "challenge" or count != 1):
        raise InputError(
            f"claim needs independent runs of one point, got game={setting.game!r} with {count} point(s); pass "
            "game='challenge' and challenges=1."
        )
    way = Attack.read(attack, setting.references, log_odds=signal is None)
    check_budget(setting.targets * count, delta=setting.delta, confidence=setting.confidence, claim=tested)
    if setting.game == "challenge":
        _on_both_sides(setting.coins(count))
    field = candidates(base, canaries, count, setting.seeds["canaries"])
    _room(field, count, setting.game)
    mechanism, notes = intervals.mechanism_of(recipe, *_sizes(field, count, setting))
    upper, missing = guarantees(mechanism, setting.delta, ["add/remove"], base.unit)
    notes += missing

    masks = setting.masks(field.pipeline.units)
    first = collect(
        field.pipeline.run(masks, setting.training_seeds("shadows", setting.shadows)), masks, stage="shadow"
    )
    table = _Table(field, first, masks, way, known, count, setting, tested)
    played = _challenge(table) if setting.game == "challenge" else _crossed(table)

    at: dict[str, Any] = {"delta": setting.delta, "confidence": setting.confidence}
    stopped = tested is not None and tested.test.rejected
    estimates: list[Estimate] = [] if tested is None else [tested.estimate(played.evidence)]
    if not stopped:
        estimates.append(intervals.headline(played.evidence, **at))
        estimates += intervals.at_threshold(played.evidence, **at)
        notes += intervals.threshold_notes(estimates)
    region, risk = both_sides(estimates, upper, base.unit)
    stages = {"shadow": first} if played.runs is None else {"shadow": first, "run": played.runs}
    notes += [note for part in stages.values() for note in part.notes()]
    if failed := sum(len(part.failed) for part in stages.values()):
        total = sum(part.seen for part in stages.values())
        notes.append(f"{failed} of {total} trainings failed; their seeds and reasons stand under failed")
    return Audit(
        estimates=tuple(estimates),
        guard=BY_COINS,
        risk=risk,
        curve=intervals.curve(played.evidence, setting.confidence, stopped=stopped),
        upper=upper,
        region=region,
        distributions=intervals.score_densities(played.evidence),
        details={
            "intervals": intervals.rows_of(estimates),
            "joint": intervals.joint_against_exact(estimates),
            "points": _point_rows(played, field, setting, bounds=not stopped),
            "candidates": played.chosen.table,
            "claim": None if tested is None else tested.details(setting.runs),
        },
        metadata={
            "kind": "training",
            "name": name,
            "model": model_name(train),
            "recipe": None if recipe is None else recipe.to_dict(),
            "game": setting.game,
            "attack": way.name,
            "shadows": setting.shadows,
            "runs": len(played.evidence.scores),
            "points": played.chosen.points.tolist(),
            "select": "given" if known is not None else setting.select,
            "canaries": field.canaries,
            "records": base.records,
            "unit": base.unit,
            "members": int(played.evidence.coins.sum()),
            "nonmembers": int((~played.evidence.coins).sum()),
            "utility": {"shadows": first.accuracy, "runs": None if played.runs is None else played.runs.accuracy},
            **tallied(stages, base.known),
            "seed": setting.seed,
            "seeds": {key: setting.seeds[key] for key in ("masks", "coins")},
            "mask_hash": mask_hash(played.evidence.coins.ravel()),
            "fingerprint": fingerprint(base.x, base.y),
            "mechanism": None if mechanism is None else repr(mechanism),
            "delta": setting.delta,
            "confidence": setting.confidence,
            "warnings": notes,
            "version": dosimeter.__version__,
        },
    )


@dataclass(frozen=True)
class _Setting:
    """The numbers of an audit, checked, and the seeds that follow from its one seed."""

    game: str
    shadows: int
    runs: int
    challenges: int
    select: str
    delta: float
    confidence: float
    seed: int
    seeds: dict[str, int]

    @classmethod
    def checked(
        cls,
        game: Any,
        shadows: Any,
        runs: Any,
        points: Any,
        challenges: Any,
        select: Any,
        canaries: Any,
        delta: Any,
        confidence: Any,
        seed: Any,
    ) -> _Setting:
        if points is not None and canaries is not None:
            raise InputError("points and canaries exclude each other; pass rows of the data or canaries, not both.")
        game = check.choice("game", game, GAMES)
        least = FEWEST_SHADOWS if game == "challenge" else 2 * FEWEST_SHADOWS
        remedy = f"{game} needs at least {least} shadow models, e.g. 64"
        seed = check.seed(seed)
        names = ("masks", "shadows", "coins", "runs", "canaries", "witnesses")
        children = np.random.SeedSequence(seed).spawn(len(names))
        return cls(
            game,
            check.whole("shadows", shadows, least, remedy),
            check.whole("runs", runs, 1, "pass the number of challenge trainings, e.g. 128"),
            check.whole("challenges", challenges, 1, "pass the number of points to challenge, e.g. 1", MOST_RECORDS),
            check.choice("select", select, SELECT),
            check.delta(delta),
            check.confidence(confidence),
            seed,
            {key: int(child.generate_state(1)[0]) for key, child in zip(names, children, strict=True)},
        )

    @property
    def references(self) -> int:
        """Shadow models that teach the attack."""
        return self.shadows if self.game == "challenge" else self.shadows // 2

    @property
    def targets(self) -> int:
        """Models that are attacked."""
        return self.runs if self.game == "challenge" else self.shadows - self.references

    def masks(self, records: int) -> BoolArray:
        """Who is in which shadow model: (shadows, records)."""
        return halves(self.shadows, records, self.seeds["masks"], paired=self.references)

    def coins(self, points: int) -> BoolArray:
        """Who is in which challenge run: (runs, points)."""
        return fair_coins(self.runs * points, self.seeds["coins"]).reshape(self.runs, points)

    def training_seeds(self, stage: str, count: int) -> list[int]:
        """One seed for each training, below 2^32 as scikit-learn wants; more trainings begin with the same ones."""
        return [int(s) for s in np.random.SeedSequence(self.seeds[stage]).generate_state(count)]


@dataclass(frozen=True)
class _Lesson:
    """What shadow models teach before a game: the points, the signals and masks of the attack, and a threshold."""

    attack: Attack
    chosen: Chosen
    known: FloatArray
    inside: BoolArray
    threshold: float

    def scores(self, signals: FloatArray) -> FloatArray:
        """Scores of the points from signals (models, columns)."""
        return self.attack.scores(signals, self.known, self.inside)[:, self.chosen.at]

    def unscored(self, shape: tuple[int, ...]) -> FloatArray:
        """Room for scores; a model that failed keeps this one, just below the threshold."""
        return np.full(shape, math.nextafter(self.threshold, -math.inf))


@dataclass(frozen=True)
class _Played:
    """What a game gave: its evidence, what it was played with, and the trainings it made."""

    evidence: Evidence
    chosen: Chosen
    runs: Trainings | None


@dataclass(frozen=True)
class _Table:
    """Where a game is played: candidates, shadow models with their masks, the attack, points asked for, a claim."""

    field: Candidates
    shadows: Trainings
    masks: BoolArray
    attack: Attack
    points: IntArray | None
    count: int
    setting: _Setting
    claim: Claim | None

    def taught(self, teachers: Trainings) -> _Lesson:
        """The points and the threshold that these shadow models choose, each attacked with the help of the others."""
        teachers.require(FEWEST_SHADOWS, "shadow models that teach the attack")
        included, setting = self.masks[teachers.kept], self.setting
        chosen = choose(
            teachers,
            included,
            self.field.rows,
            points=self.points,
            count=self.count,
            attack=self.attack,
            by=setting.select,
            seed=setting.seeds["witnesses"],
        )
        known, inside = teachers.signals[:, chosen.columns], included[:, chosen.columns]
        pilot, labels = self.attack.pilot(known, inside)[:, chosen.at], inside[:, chosen.at]
        threshold = intervals.pilot_threshold(
            pilot[labels], pilot[~labels], delta=setting.delta, confidence=setting.confidence
        )
        return _Lesson(self.attack, chosen, known, inside, threshold)


def _challenge(table: _Table) -> _Played:
    """Train with and without the points, by coins."""
    field, setting, claim = table.field, table.setting, table.claim
    lesson = table.taught(table.shadows)
    columns = lesson.chosen.columns
    coins = setting.coins(table.count)
    memberships = np.zeros((setting.runs, field.pipeline.units), bool)
    memberships[:, : field.real] = True
    memberships[:, lesson.chosen.points] = coins
    scores = lesson.unscored(coins.shape)

    def test(row: Row) -> bool:
        assert claim is not None
        if row.signals is not None:
            scores[row.index] = lesson.scores(row.signals[None, columns])
        rejected = claim.update(float(scores[row.index, 0]), bool(coins[row.index, 0]))
        return rejected and 0 < coins[: row.index + 1].sum() <= row.index  # runs of both kinds are to be shown

    runs = collect(
        field.pipeline.run(memberships, setting.training_seeds("runs", setting.runs)),
        memberships,
        stage="run",
        columns=columns,
        stop=None if claim is None else test,
    )
    runs.require(1, "challenge runs")
    worked = runs.kept.size * table.count
    check_budget(worked, delta=setting.delta, confidence=setting.confidence, claim=None)
    if claim is None:
        scores[runs.kept] = lesson.scores(runs.signals)
    used = slice(0, runs.seen)
    evidence = Evidence(scores[used], coins[used], lesson.threshold, setting.seeds["coins"], field.pipeline.unit)
    return _Played(evidence, lesson.chosen, runs)


def _crossed(table: _Table) -> _Played:
    """Attack one half of the shadow models with what the other half teaches."""
    shadows, first = table.shadows, table.setting.references
    teaching = shadows.kept < first
    lesson = table.taught(replace(shadows, kept=shadows.kept[teaching], signals=shadows.signals[teaching]))
    targets = replace(shadows, kept=shadows.kept[~teaching], signals=shadows.signals[~teaching])
    targets.require(1, "shadow models that are attacked")
    coins = table.masks[first:, lesson.chosen.points]
    _on_both_sides(coins)
    scores = lesson.unscored(coins.shape)
    scores[targets.kept - first] = lesson.scores(targets.signals[:, lesson.chosen.columns])
    return _Played(Evidence(scores, coins, lesson.threshold, unit=table.field.pipeline.unit), lesson.chosen, None)


def _on_both_sides(coins: BoolArray) -> None:
    if coins.all() or not coins.any():
        raise InputError(
            f"all {coins.size} coins of the game fell on one side; train more models or pass another seed."
        )


def _room(field: Candidates, count: int, game: str) -> None:
    if count > field.rows.size:
        raise InputError(f"challenges={count}, but there are {field.rows.size} candidates; ask for fewer.")
    if game == "challenge" and field.canaries is None and count >= field.real:
        raise InputError(f"challenges={count} leaves no fixed record of {field.real}; ask for fewer or pass more data.")


def _sizes(field: Candidates, count: int, setting: _Setting) -> tuple[int, int]:
    """The fewest and the most records that a model of the game is trained on."""
    if setting.game == "challenge":
        rest = field.real - (count if field.canaries is None else 0)
        return rest, rest + count
    sizes = setting.masks(field.pipeline.units).sum(axis=1)
    return int(sizes.min()), int(sizes.max())


def _point_rows(played: _Played, field: Candidates, setting: _Setting, *, bounds: bool) -> list[dict[str, Any]]:
    chosen = played.chosen
    found = intervals.by_point(played.evidence, delta=setting.delta, confidence=setting.confidence)
    advantage = found.advantage()
    return [
        {
            "record": int(point),
            "label": field.pipeline.label_of(int(point)),
            "weight": None if chosen.weights is None else float(chosen.weights[i]),
            "tp": int(found.tp[i]),
            "fn": int(found.fn[i]),
            "fp": int(found.fp[i]),
            "tn": int(found.tn[i]),
            "advantage": advantage[i],
            "epsilon": float(found.epsilon[i]) if bounds and math.isfinite(found.epsilon[i]) else None,
        }
        for i, point in enumerate(chosen.points)
    ]
