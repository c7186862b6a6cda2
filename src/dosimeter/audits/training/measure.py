"""How a training is attacked: shadow models calibrate the attack, then fair coins decide what it must guess.

There are three designs (`game`). "challenge" is IND-MIA of Zanella-Béguelin et al. (ICML 2023): all records but the
challenged ones are in every run, and a fair coin for each challenged point and run decides whether that point is in.
The fixed rest makes the runs alike but for the coins, and it is what the released model is trained on. "replace" is the
same with a substitute for each point, which is in where the point is not (replacing.py). "crossed" trains nothing
further: half of the shadow models chooses the points and calibrates the attack, the other half is attacked; its coins
are its own memberships. Leaving out one model at a time instead would let the coin of one model into the scores of the
others, and no theorem covers that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from dosimeter import _validate as check
from dosimeter._validate import BoolArray, FloatArray, InputError, IntArray
from dosimeter.audits.training.intervals import Claim, Evidence, check_budget, pilot_threshold
from dosimeter.audits.training.repeatable import Pipeline, TrainingOutcome
from dosimeter.audits.training.replacing import ReplacedPoints, choose_pairs
from dosimeter.audits.training.shadows import (
    FEWEST_SHADOWS,
    SELECT,
    AttackScorer,
    Candidates,
    ChallengedPoints,
    Trainings,
    choose,
    collect,
    find_candidates,
    halves,
    read_points,
)
from dosimeter.estimate import Level
from dosimeter.evidence import MOST_RECORDS, fair_coins

__all__ = ["AuditDesign", "AuditSetup", "Measured", "attacked_by_halves", "attacked_in_runs"]

GAMES = ("challenge", "replace", "crossed")
_SEEDS = ("masks", "shadows", "coins", "runs", "canaries", "columns")


@dataclass(frozen=True)
class AuditDesign:
    """The numbers of an audit, checked, and the seeds that follow from its one seed."""

    game: str
    shadows: int
    runs: int
    challenges: int
    select: str
    delta: float
    confidence: float
    seed: int

    @classmethod
    def checked(
        cls, *, game: Any, shadows: Any, runs: Any, challenges: Any, select: Any, delta: Any, confidence: Any, seed: Any
    ) -> AuditDesign:
        """Refuse what cannot be used."""
        game = check.choice("game", game, GAMES)
        least = 2 * FEWEST_SHADOWS if game == "crossed" else FEWEST_SHADOWS
        return cls(
            game,
            check.whole("shadows", shadows, least, f"{game} needs at least {least} shadow models, e.g. 64"),
            check.whole("runs", runs, 1, "pass the number of challenge trainings, e.g. 128"),
            check.whole("challenges", challenges, 1, "pass the number of points to challenge, e.g. 1", MOST_RECORDS),
            check.choice("select", select, SELECT),
            check.delta(delta),
            check.confidence(confidence),
            check.seed(seed),
        )

    @cached_property
    def seeds(self) -> dict[str, int]:
        """One seed for each thing that is drawn."""
        children = np.random.SeedSequence(self.seed).spawn(len(_SEEDS))
        return {name: int(child.generate_state(1)[0]) for name, child in zip(_SEEDS, children, strict=True)}

    @property
    def references(self) -> int:
        """How many shadow models calibrate the attack."""
        return self.shadows // 2 if self.game == "crossed" else self.shadows

    @property
    def targets(self) -> int:
        """How many models are attacked."""
        return self.shadows - self.references if self.game == "crossed" else self.runs

    @property
    def neighbours(self) -> str:
        """How two data sets differ that a coin decides between."""
        return "replace" if self.game == "replace" else "add/remove"

    def masks(self, records: int) -> BoolArray:
        """Draw who is in which shadow model: (shadows, records)."""
        return halves(self.shadows, records, self.seeds["masks"], paired=self.references)

    def coins(self, points: int) -> BoolArray:
        """Draw who is in which challenge run: (runs, points)."""
        return fair_coins(self.runs * points, self.seeds["coins"]).reshape(self.runs, points)

    def training_seeds(self, stage: str, count: int) -> list[int]:
        """One seed for each training, below 2^32 as scikit-learn wants; more trainings begin with the same ones."""
        return [int(s) for s in np.random.SeedSequence(self.seeds[stage]).generate_state(count)]


@dataclass(frozen=True)
class AuditSetup:
    """All that is known before anything is trained.

    `base` is the training without canaries. `points` are the units that the caller named, None where the worst
    candidates are to be chosen, and `count` how many are challenged.
    """

    base: Pipeline
    design: AuditDesign
    candidates: Candidates
    scorer: AttackScorer
    points: IntArray | None
    count: int
    claim: Claim | None

    @classmethod
    def read(
        cls, base: Pipeline, design: AuditDesign, *, attack: Any, points: Any, canaries: Any, claim: Any
    ) -> AuditSetup:
        """Refuse an audit that could not end well before anything is trained."""
        at: Level = {"delta": design.delta, "confidence": design.confidence}
        given = None if points is None else base.units_of(read_points(points, base.records))
        count = design.challenges if given is None else given.size
        tested = None if claim is None else Claim.read(claim, **at)
        if tested is not None and (design.game == "crossed" or count != 1):
            raise InputError(
                f"claim needs independent runs of one point, got game={design.game!r} with {count} "
                f"point{'' if count == 1 else 's'}; pass game='challenge' and challenges=1."
            )
        scorer = AttackScorer.read(attack, design.references, log_odds=base.signal is None and base.white_box is None)
        check_budget(design.targets * count, **at, claim=tested)
        if design.game != "crossed":
            _require_both_sides(design.coins(count))
        candidates = find_candidates(base, canaries, count, design.seeds["canaries"])
        if count > candidates.rows.size:
            raise InputError(f"challenges={count}, but there are {candidates.rows.size} candidates; ask for fewer.")
        taken = count * (2 if design.game == "replace" else 1)  # a substitute for each point
        if design.game != "crossed" and candidates.canaries is None and taken >= candidates.real:
            raise InputError(
                f"challenges={count} leaves no fixed record of {candidates.real}; ask for fewer or pass more data."
            )
        return cls(base, design, candidates, scorer, given, count, tested)

    @property
    def pipeline(self) -> Pipeline:
        """The training, with canaries among its records."""
        return self.candidates.pipeline

    @cached_property
    def masks(self) -> BoolArray:
        """Who is in which shadow model."""
        return self.design.masks(self.pipeline.units)

    def sizes(self) -> tuple[int, int]:
        """The fewest and the most records that an attacked model is trained on."""
        if self.design.game == "replace":  # all models have equally many
            size = self.candidates.real - (self.count if self.candidates.canaries is None else 0)
            return size, size
        if self.design.game == "challenge":
            rest = self.candidates.real - (self.count if self.candidates.canaries is None else 0)
            return rest, rest + self.count
        sizes = self.masks.sum(axis=1)
        return int(sizes.min()), int(sizes.max())

    def train_shadows(self) -> Trainings:
        """Train the shadow models."""
        seeds = self.design.training_seeds("shadows", self.design.shadows)
        return collect(self.pipeline.run(self.masks, seeds), self.masks, stage="shadow")


@dataclass(frozen=True)
class _Calibration:
    """What shadow models fix before the attack: the points, its signals and memberships, and a threshold."""

    scorer: AttackScorer
    challenged: ChallengedPoints
    signals: FloatArray
    included: BoolArray
    threshold: float
    pairs: ReplacedPoints | None = None

    def scores(self, signals: FloatArray) -> FloatArray:
        """Score the points from signals (models, columns), against their substitutes where they have some."""
        scores = self.scorer.scores(signals, self.signals, self.included)
        return scores[:, self.challenged.at] if self.pairs is None else self.pairs.margins(scores)

    def memberships(self, coins: BoolArray, units: int, real: int) -> BoolArray:
        """Who is in which run: all real records but the points, and these as the coins have it."""
        if self.pairs is not None:
            return self.pairs.memberships(coins, units, real)
        inside = np.zeros((len(coins), units), bool)
        inside[:, :real] = True
        inside[:, self.challenged.points] = coins
        return inside

    def unscored(self, shape: tuple[int, ...]) -> FloatArray:
        """The scores of models that failed: just below the threshold."""
        return np.full(shape, math.nextafter(self.threshold, -math.inf))


def _calibrate(setup: AuditSetup, shadows: Trainings) -> _Calibration:
    """Choose the points and the threshold from shadow models, each attacked with the help of the others."""
    shadows.require(FEWEST_SHADOWS, "shadow models that calibrate the attack")
    design, scorer, included = setup.design, setup.scorer, setup.masks[shadows.kept]
    if design.game == "replace":
        pairs = choose_pairs(
            shadows,
            included,
            setup.candidates,
            points=setup.points,
            count=setup.count,
            scorer=scorer,
            by=design.select,
            seed=design.seeds["columns"],
            delta=design.delta,
            confidence=design.confidence,
        )
        columns = pairs.chosen.columns
        return _Calibration(
            scorer, pairs.chosen, shadows.signals[:, columns], included[:, columns], pairs.threshold, pairs
        )
    challenged = choose(
        shadows,
        included,
        setup.candidates.rows,
        points=setup.points,
        count=setup.count,
        scorer=scorer,
        by=design.select,
        seed=design.seeds["columns"],
    )
    signals, included = shadows.signals[:, challenged.columns], included[:, challenged.columns]
    pilot, inside = scorer.pilot(signals, included)[:, challenged.at], included[:, challenged.at]
    threshold = pilot_threshold(pilot[inside], pilot[~inside], delta=design.delta, confidence=design.confidence)
    return _Calibration(scorer, challenged, signals, included, threshold)


@dataclass(frozen=True)
class Measured:
    """What the attack gave: its evidence, the points, and the runs that were trained for it, if any."""

    evidence: Evidence
    challenged: ChallengedPoints
    runs: Trainings | None
    pairs: ReplacedPoints | None = None

    @property
    def points(self) -> IntArray:
        """The points that coins decided about."""
        return self.challenged.points if self.pairs is None else self.pairs.points


def attacked_in_runs(setup: AuditSetup, shadows: Trainings) -> Measured:
    """Train further models, with each point or without it (or with its substitute) as coins decide, and attack them."""
    design, claim, pipeline = setup.design, setup.claim, setup.pipeline
    calibration = _calibrate(setup, shadows)
    columns = calibration.challenged.columns
    coins = design.coins(setup.count)
    memberships = calibration.memberships(coins, pipeline.units, setup.candidates.real)
    scores = calibration.unscored(coins.shape)

    def test(outcome: TrainingOutcome) -> bool:
        assert claim is not None
        run = outcome.index
        if outcome.signals is not None:
            scores[run] = calibration.scores(outcome.signals[None, columns])
        rejected = claim.update(float(scores[run, 0]), bool(coins[run, 0]))
        return rejected and 0 < coins[: run + 1].sum() <= run  # the curve needs runs with and without the point

    runs = collect(
        pipeline.run(memberships, design.training_seeds("runs", design.runs), kind=shadows.kind),
        memberships,
        stage="run",
        columns=columns,
        stop=None if claim is None else test,
    )
    runs.require(1, "challenge runs")
    check_budget(runs.kept.size * setup.count, delta=design.delta, confidence=design.confidence)
    if claim is None:
        scores[runs.kept] = calibration.scores(runs.signals)
    used = slice(0, runs.seen)
    at = calibration.threshold, design.seeds["coins"]
    evidence = Evidence(scores[used], coins[used], *at, pipeline.unit, design.neighbours)
    return Measured(evidence, calibration.challenged, runs, calibration.pairs)


def attacked_by_halves(setup: AuditSetup, shadows: Trainings) -> Measured:
    """Attack one half of the shadow models after calibration on the other half ("crossed")."""
    first = setup.design.references
    calibrating = shadows.kept < first
    calibration = _calibrate(
        setup, replace(shadows, kept=shadows.kept[calibrating], signals=shadows.signals[calibrating])
    )
    challenged = calibration.challenged
    targets = replace(shadows, kept=shadows.kept[~calibrating], signals=shadows.signals[~calibrating])
    targets.require(1, "shadow models that are attacked")
    coins = setup.masks[first:, challenged.points]
    _require_both_sides(coins)
    scores = calibration.unscored(coins.shape)
    scores[targets.kept - first] = calibration.scores(targets.signals[:, challenged.columns])
    return Measured(Evidence(scores, coins, calibration.threshold, unit=setup.pipeline.unit), challenged, None)


def _require_both_sides(coins: BoolArray) -> None:
    if coins.all() or not coins.any():
        raise InputError(f"all {coins.size} coins came up the same; train more models or pass another seed.")
