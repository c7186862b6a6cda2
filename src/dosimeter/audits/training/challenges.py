"""The records that are challenged: candidates and canaries, who is in which model, the worst points, their scores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from dosimeter import _validate as check
from dosimeter._validate import BoolArray, FloatArray, InputError, IntArray
from dosimeter.attacks import (
    best_attack,
    clip_bkd,
    leave_one_out,
    mislabelled,
    out_of_distribution,
    rotation,
    select_worst,
)
from dosimeter.audits.training.shadows import Pipeline, Trainings
from dosimeter.evidence import Persons, fair_coins

ATTACKS: dict[str, tuple[str, dict[str, str]]] = {
    "loss": ("loss", {}),
    "watson": ("watson", {}),
    "lira": ("lira", {}),
    "lira-offline": ("lira", {"mode": "offline"}),
    "rmia": ("rmia", {}),
    "rmia-online": ("rmia", {"mode": "online"}),
}
CANARIES = ("mislabelled", "out-of-distribution", "clip-bkd")
SELECT = ("accuracy", "auc")
FEWEST_SHADOWS = 4  # one model with and one without the point to learn from, and one of each to be the target
WITNESSES = 2000  # further records whose signals the attacks may compare with
SPARE = 8  # crafted canaries of which the worst are taken
SHOWN = 20  # candidates in the table of weights

AttackFunction = Callable[[FloatArray, FloatArray, BoolArray], npt.ArrayLike]


@dataclass(frozen=True)
class Attack:
    """An attack by name with its options, or a function (target, shadows, included) of the caller's."""

    name: str
    function: AttackFunction | None = None

    @classmethod
    def read(cls, attack: Any, shadows: int, *, log_odds: bool) -> Attack:
        """The attack asked for; "auto" takes the one that suits the number of shadow models.

        RMIA reads signals as log-odds, so signals of the caller's own get LiRA instead.
        """
        if callable(attack):
            return cls(getattr(attack, "__name__", type(attack).__name__), attack)
        name = check.choice("attack", attack, ("auto", *ATTACKS))
        if name == "auto":
            best = best_attack(shadows)
            name = "lira" if best == "rmia" and not log_odds else best
        return cls(name)

    def scores(self, target: FloatArray, shadows: FloatArray, included: BoolArray) -> FloatArray:
        """Scores of targets (T, n), from shadow models alone: no coin of a target has a part in them."""
        if self.function is None:
            kind, options = ATTACKS[self.name]
            return rotation.ATTACKS[kind](target, shadows, included, **options)
        found = [self.function(row, shadows, included) for row in target]
        return self._checked(found, target.shape)

    def pilot(self, shadows: FloatArray, included: BoolArray) -> FloatArray:
        """Scores of the shadow models themselves, each as the target of the others."""
        kind, options = ATTACKS[self.name] if self.function is None else (self.function, {})
        return leave_one_out(kind, shadows, included, **options)

    def _checked(self, scores: Any, shape: tuple[int, ...]) -> FloatArray:
        found = np.asarray(scores, np.float64)
        if found.shape != shape or not np.isfinite(found).all():
            raise InputError(
                f"attack {self.name} gave scores of shape {found.shape} for {shape}, or some that are not finite; "
                "return one finite number for each record of each target."
            )
        return found


@dataclass(frozen=True)
class Candidates:
    """The pipeline with crafted records appended, how many units (records or persons) are real, and the candidates."""

    pipeline: Pipeline
    real: int
    rows: IntArray
    canaries: str | None


def candidates(pipeline: Pipeline, canaries: Any, count: int, seed: int, *, spare: int = SPARE) -> Candidates:
    """All records as candidates; with canaries, these alone: they stand after the real records.

    At least `spare` canaries are crafted, so that the worst of them can be taken.
    """
    real = pipeline.units
    if canaries is None:
        return Candidates(pipeline, real, np.arange(real), None)
    if isinstance(canaries, str):
        name = check.choice("canaries", canaries, CANARIES)
        if pipeline.recipe is None:
            raise InputError(
                f"canaries={name!r} are crafted rows that a function of indices cannot see; craft them with "
                "dosimeter.attacks, append them to your data and name them by points=, or pass a recipe."
            )
        x, y = _crafted(name, pipeline, max(count, spare), count, seed)
    else:
        name = "given"
        x, y = _given(canaries, pipeline, count)
    both = replace(
        pipeline,
        x=np.concatenate([pipeline.x, x]),
        y=np.concatenate([pipeline.y, y]),
        persons=None if pipeline.persons is None else _with_strangers(pipeline.persons, len(x)),
    )
    return Candidates(both, real, np.arange(real, both.units), name)


def _with_strangers(known: Persons, count: int) -> Persons:
    """The persons, and one more for each crafted record."""
    names = np.array([*(str(name) for name in known.names), *(f"canary {i}" for i in range(count))])
    return Persons(names, np.concatenate([known.place, known.names.size + np.arange(count)]))


def _crafted(name: str, pipeline: Pipeline, many: int, count: int, seed: int) -> tuple[Any, Any]:
    x, y = pipeline.x, pipeline.y
    classes = int(y.max()) + 1
    if name == "mislabelled":
        found = mislabelled(x, y, many, classes, seed)
    elif name == "out-of-distribution":
        found = out_of_distribution(x, many, seed, classes=classes)
    else:
        found = clip_bkd(x, y, count)  # copies of one point: there is no worst among them
    return found.X, found.y


def _given(canaries: Any, pipeline: Pipeline, count: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    if not isinstance(canaries, (tuple, list)) or len(canaries) != 2:
        raise InputError(
            f"canaries must be one of {', '.join(CANARIES)}, or a pair (X, y), got {check.show(canaries)}; pass one."
        )
    x, y = np.asarray(canaries[0]), np.asarray(canaries[1])
    if x.shape[1:] != pipeline.x.shape[1:] or y.shape != (len(x),):
        raise InputError(
            f"canaries has records of shape {x.shape} and labels of shape {y.shape}; the data's records have shape "
            f"{pipeline.x.shape[1:]}: pass records of that shape with one label each."
        )
    if len(x) < count:
        raise InputError(f"canaries holds {len(x)} records, but challenges={count}; pass as many or ask for fewer.")
    if y.dtype.kind not in pipeline.y.dtype.kind + "biu" or (y.dtype.kind in "biu" and y.min() < 0):
        raise InputError(f"canaries has labels of type {y.dtype}; pass the classes as whole numbers from 0.")
    return x.astype(pipeline.x.dtype, copy=False), y.astype(pipeline.y.dtype, copy=False)


def read_points(points: Any, records: int, name: str = "points") -> IntArray:
    """Rows of the data, each named once."""
    found = np.atleast_1d(check.any_array(name, points))
    if found.ndim != 1 or not found.size or found.dtype.kind not in "iu":
        raise InputError(f"{name} must be row numbers of the data, got {check.show(points)}; pass e.g. [17, 4].")
    bad = (found < 0) | (found >= records)
    if bad.any():
        place = int(np.argmax(bad))
        raise InputError(f"{name}[{place}] is {found[place]}, but the rows are 0 to {records - 1}; correct it.")
    if np.unique(found).size < found.size:
        raise InputError(f"{name} names a row twice, got {check.show(points)}; name each row once.")
    return found.astype(np.int64)


def halves(models: int, records: int, seed: int, *, paired: int | None = None) -> BoolArray:
    """Who is in which shadow model: random halves, in pairs that share out the records.

    The second model of a pair has the records that the first has not, so that 2m models hold each record exactly m
    times and an attack can learn about all of them. Only the first `paired` models (default: all) come in pairs; the
    others have an independent fair coin for each record, as models that are attacked must. More models begin with the
    same ones.
    """
    masks = fair_coins(models * records, seed).reshape(models, records)
    last = (models if paired is None else paired) // 2 * 2
    masks[1:last:2] = ~masks[0:last:2]
    empty = np.flatnonzero(~masks.any(axis=1))
    if empty.size:
        raise InputError(f"shadow model {empty[0]} would have none of the {records} records; pass more data.")
    return masks


def served(masks: BoolArray, least: int) -> BoolArray:
    """Which records are in and out of at least this many models."""
    inside = masks.sum(axis=0)
    return (inside >= least) & (len(masks) - inside >= least)


def witnesses(usable: IntArray, points: IntArray, seed: int) -> IntArray:
    """Some of the usable records other than the points, at random."""
    others = np.setdiff1d(usable, points)
    rng = np.random.default_rng(np.random.SeedSequence(seed))
    return rng.choice(others, min(WITNESSES, others.size), replace=False) if others.size else others


@dataclass(frozen=True)
class Chosen:
    """The challenged rows, why they were taken, and the columns of signals that their attack looks at.

    `columns` are the points and some further records, the witnesses; `at` is where the points stand in them.
    """

    points: IntArray
    weights: FloatArray | None
    table: list[dict[str, Any]]
    columns: IntArray
    at: IntArray


def choose(
    shadows: Trainings,
    masks: BoolArray,
    rows: IntArray,
    *,
    points: IntArray | None,
    count: int,
    attack: Attack,
    by: str,
    seed: int,
) -> Chosen:
    """The points given, or the worst of the candidates by SelectWorst (Zanella-Béguelin et al. 2023, Alg. 3)."""
    weights, table = None, []
    known = served(masks, 2)  # one to be the target and one to learn from, on each side
    if points is not None:
        least = 1 if attack.name == "loss" else 2  # which learns nothing from the shadow models
        short = points[~served(masks[:, points], least)]
        if short.size:
            raise InputError(
                f"points: row {short[0]} is in {masks[:, short[0]].sum()} of the {len(masks)} shadow models; the "
                f"attack needs {least} with it and {least} without it at the least, so pass more shadows, e.g. 64."
            )
    if points is None:
        usable = rows[known[rows]]
        if usable.size < count:
            raise InputError(
                f"only {usable.size} of {rows.size} candidates are in and out of at least 2 of the {len(masks)} shadow "
                f"models, and challenges={count}; pass more shadows, e.g. 64."
            )
        shown = min(usable.size, max(count, SHOWN))
        worst = select_worst(shadows.signals[:, usable], masks[:, usable], shown, by=by)
        order = usable[worst.records]
        points, weights = order[:count], worst.weights[:count]
        table = [
            {"record": int(record), "weight": float(weight), "chosen": place < count}
            for place, (record, weight) in enumerate(zip(order[:SHOWN], worst.weights[:SHOWN], strict=True))
        ]
    columns = np.sort(np.concatenate([points, witnesses(np.flatnonzero(known), points, seed)]))
    return Chosen(points, weights, table, columns, np.searchsorted(columns, points))
