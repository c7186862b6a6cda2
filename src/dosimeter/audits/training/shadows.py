"""Trainings of an audit as rows of signals: one number for each record, high for a likely member."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from dosimeter import _validate as check
from dosimeter._validate import BoolArray, FloatArray, InputError, IntArray
from dosimeter.audits.training.agreement import BY_CHANCE, agreement
from dosimeter.engine import RunOptions
from dosimeter.engine.pool import cores
from dosimeter.evidence import Persons, persons
from dosimeter.models.outputs import Kind, checked, infer_kind, losses_of
from dosimeter.records import class_numbers, pair
from dosimeter.training import Recipe, arguments, train_foreign, train_many
from dosimeter.training.identity import Identity, identity

FEWEST_JUDGED = 30  # records that an accuracy is worth telling for
HOPELESS = 8  # trainings of which none worked: the others are not waited for
MODELS = {"shadow": "shadow models", "reference": "reference models", "run": "runs"}  # by stage

Signal = Callable[[npt.NDArray[Any], npt.NDArray[Any]], npt.ArrayLike]


@dataclass(frozen=True)
class Row:
    """One training: the signals of all records, or why there are none; correct answers where outputs are classes.

    `canaries` is what an adversary with the noisy gradients sees of the recipe's Dirac canaries, `key` the name of what
    was found in the store, `agreement` how well the outputs of a foreign training suit the labels of its members.
    """

    index: int
    seed: int
    signals: FloatArray | None
    failed: str | None
    cached: bool
    correct: BoolArray | None
    canaries: FloatArray | None = None
    key: str | None = None
    accuracy: tuple[float, float] | None = None
    agreement: float | None = None


@dataclass(frozen=True)
class Pipeline:
    """A training that can be repeated, the records it may use, and how a model's outputs become signals.

    With a `recipe`, `train` makes a torch module and the batched engine trains it; without one, `train(indices, seed)`
    returns a predictor. `held` are further records, for accuracy alone. `known` is what `train` was when the audit
    began, for the keys of a store: trainings in this process may change what it reaches. `name` and the labels are
    part of these keys too, since a function does not tell what files it reads. With `persons` the units that are in or
    out are persons: memberships have a column, and rows a signal, for each of them.
    """

    train: Any
    recipe: Recipe | None
    x: npt.NDArray[Any]
    y: npt.NDArray[Any]
    held: tuple[npt.NDArray[Any], npt.NDArray[Any]] | None
    signal: Signal | None
    where: RunOptions
    known: Identity | None = None
    name: str | None = None
    persons: Persons | None = None
    _kind: list[Kind] = field(default_factory=list, init=False, repr=False, compare=False)

    @property
    def records(self) -> int:
        return len(self.x)

    @property
    def units(self) -> int:
        """How many persons or, where nobody owns several records, records there are."""
        return self.records if self.persons is None else self.persons.names.size

    @property
    def unit(self) -> str:
        """What is in or out: "record" or "person"."""
        return "record" if self.persons is None else "person"

    @property
    def identity(self) -> str:
        """What makes this pipeline the same one in another process, as far as its records and settings go."""
        data = hashlib.sha256()
        for part in (self.x, self.y, *(() if self.persons is None else (self.persons.place,))):
            data.update(f"{part.shape}{part.dtype}".encode() + np.ascontiguousarray(part).tobytes())
        known = "" if self.known is None else self.known.text
        return f"{known} {self.name} {self.recipe!r} {data.hexdigest()}"

    def label_of(self, unit: int) -> str:
        """The label of a record, or of a person's first record."""
        return str(self.y[unit if self.persons is None else int(np.argmax(self.persons.place == unit))])

    def units_of(self, rows: IntArray) -> IntArray:
        """The records themselves, or the persons behind them."""
        return rows if self.persons is None else np.unique(self.persons.place[rows])

    def run(self, memberships: BoolArray, seeds: list[int]) -> Generator[Row, None, None]:
        """Train one model for each row of memberships; rows come in order, as soon as they are there."""
        if self.persons is not None:
            memberships = memberships[:, self.persons.place]
        asked = self.x if self.held is None else np.concatenate([self.x, self.held[0]])
        where = self.where
        common: dict[str, Any] = {
            "engine": where.engine,
            "store": where.store,
            "key": self.known,
            "memory": where.memory,
            "timeout": where.timeout,
            "progress": where.progress,
        }
        found: Iterator[Any]
        if self.recipe is not None:
            on = "data" if self.held is None else asked
            data = (self.x, self.y)
            found = train_many(
                self.train, self.recipe, data, memberships, seeds, evaluate_on=on, processes=where.workers, **common
            )
        else:
            count = where.workers if where.workers is not None else cores()
            found = train_foreign(
                self.train, memberships, seeds, asked, version=self._version(), processes=count, **common
            )
        return self._rows(found, memberships)

    def _rows(self, found: Any, memberships: BoolArray) -> Generator[Row, None, None]:
        try:
            for one in found:
                row = self._row(one, memberships[one.index])
                yield replace(row, accuracy=_accuracy(row.correct, memberships[row.index]))
        finally:
            found.close()  # ends the trainings under way when nobody wants the rest

    def _version(self) -> str:
        labels = hashlib.sha256(np.ascontiguousarray(self.y).tobytes()).hexdigest()[:16]
        return f"{self.name or ''} {labels}"

    def _row(self, one: Any, members: BoolArray) -> Row:
        if one.failed is not None:
            return Row(one.index, one.seed, None, one.failed, False, None)
        try:
            signals, correct = self._signals(np.asarray(one.outputs))
        except _UnusableError as error:
            reason = f"the training from seed {one.seed} {error}"
            return Row(one.index, one.seed, None, reason, one.cached, None, key=one.key)
        transcript = getattr(one, "transcript", None)
        seen = None if transcript is None else transcript.canaries
        fits = None
        if self.recipe is None and self.signal is None:  # outputs for a signal of the caller's may be anything
            fits = agreement(np.asarray(one.outputs)[: self.records][members], self.y[members].astype(np.int64))
        return Row(one.index, one.seed, signals, None, one.cached, correct, seen, one.key, agreement=fits)

    def _signals(self, outputs: npt.NDArray[Any]) -> tuple[FloatArray, BoolArray | None]:
        y = self.y if self.held is None else np.concatenate([self.y, self.held[1]])
        values = outputs[:, 0] if outputs.ndim == 2 and outputs.shape[1] == 1 else outputs
        if self.signal is None:
            classes = int(y.max()) + 1
            if values.ndim == 1 and classes > 2:
                raise _UnusableError(
                    f"gave one number a record for {classes} classes: return probabilities or logits, or pass signal="
                )
            if values.ndim > 2 or (values.shape[1] if values.ndim == 2 else 2) < classes:
                raise _UnusableError(
                    f"gave outputs of shape {outputs.shape} for {classes} classes: one may be missing from its members"
                )
            if not self._kind:  # the first model decides for all, so that all are read alike
                self._kind.append("logits" if self.recipe is not None else _inferred(values))
            losses, _, correct = losses_of(_as(values, self._kind[0]), self._kind[0], y.astype(np.int64))
            return self._by_unit(-losses[: self.records]), correct
        try:
            signals = np.asarray(self.signal(outputs[: self.records], self.y), np.float64)
        except Exception as error:  # the function is the caller's
            raise InputError(
                f"signal raised {type(error).__name__}: {check.show(str(error), 160)}; repair it."
            ) from error
        if signals.shape != (self.records,):
            raise InputError(
                f"signal gave shape {signals.shape} for {self.records} records; it must return one number a record."
            )
        if not np.isfinite(signals).all():
            raise _UnusableError("gave signals that are infinite or NaN")
        classes_of = values.ndim == 2 and y.dtype.kind in "biu" and y.min() >= 0 and y.max() < values.shape[1]
        return self._by_unit(signals), values.argmax(axis=1) == y if classes_of else None

    def _by_unit(self, signals: FloatArray) -> FloatArray:
        """The mean of a person's signals."""
        if self.persons is None:
            return signals
        place = self.persons.place
        return np.asarray(np.bincount(place, signals) / np.bincount(place))


class _UnusableError(Exception):
    """Outputs of one training that give no signals."""


def _inferred(values: npt.NDArray[Any]) -> Kind:
    try:
        return infer_kind(values)[0]
    except InputError as error:
        raise InputError(f"{error} For an audit of trainings pass signal=, a function (outputs, y).") from None


def _as(values: npt.NDArray[Any], kind: Kind) -> npt.NDArray[Any]:
    """Outputs that are what the first model's were; a model that differs has failed."""
    try:
        return checked(values, kind, 0)
    except InputError as error:
        raise _UnusableError(f"gave outputs that are not {kind} as the first model's were: {error}") from None


@dataclass
class Trainings:
    """What a list of trainings gave: signals (models, records) of those that worked, and what happened to the rest.

    `kept` are the rows of memberships that worked, `asked` how many there were, `seen` how many came before the audit
    had enough, `accuracy` the means over models, `found` how many models came from which entry of the store, `fits` how
    well the outputs of each foreign training suit the labels of its members.
    """

    kept: IntArray
    signals: FloatArray
    failed: list[dict[str, Any]]
    asked: int
    seen: int
    cached: int
    accuracy: dict[str, float | None]
    found: dict[str, int]
    stage: str = "run"
    fits: tuple[float, ...] = ()

    def notes(self) -> list[str]:
        """What makes it doubtful that the outputs are answers of models trained on these records."""
        found = []
        if self.fits and (middle := float(np.median(self.fits))) < BY_CHANCE:
            found.append(
                f"the outputs of the {MODELS[self.stage]} suit the labels of the very records they were trained on "
                f"hardly better than shuffled outputs would ({middle:.2g} standard deviations in the median): either "
                "these models learnt nothing, or row i of the outputs is not the answer for record i, and then a low "
                "bound says nothing about the training"
            )
        if self.fits and self.stage != "run" and len(self.signals) > 1 and not np.ptp(self.signals, axis=0).any():
            found.append(
                f"all {len(self.signals)} {MODELS[self.stage]} gave the same outputs, though each was to be trained on "
                "records of its own: the training does not heed its indices"
            )
        return found

    def require(self, least: int, what: str) -> None:
        """Refuse to go on with fewer trainings than an audit needs; the first failure says why."""
        if self.kept.size < least:
            why = f": {self.failed[0]['reason']}" if self.failed else ""
            raise InputError(
                f"only {self.kept.size} of {self.seen} {what} worked and at least {least} are needed; repair train or "
                f"pass more. The first that failed{why}"
            )


def counted(asked: int, *, failed: int = 0, spared: int = 0) -> dict[str, int]:
    """What `metadata["trainings"]` says: asked = done + failed + spared, where a test that had enough spares some."""
    return {"asked": asked, "done": asked - failed - spared, "failed": failed, "spared": spared}


def provenance(
    known: Identity | None, entries: Mapping[str, Mapping[str, int]], *, computed: int, cached: int
) -> dict[str, Any]:
    """What `metadata["provenance"]` says: what trainings are keyed by, how many were computed now, each entry found.

    It is the only part of an audit in which one that was stopped and resumed differs from one that was not.
    """
    return {
        "key": None if known is None else known.text,
        "given": known is not None and known.given,
        "versions": [] if known is None else list(known.versions),
        "computed": computed,
        "cached": cached,
        "entries": [
            {"stage": stage, "key": key, "models": models}
            for stage, found in entries.items()
            for key, models in found.items()
        ],
    }


def tallied(stages: Mapping[str, Trainings], known: Identity | None) -> dict[str, Any]:
    """The metadata that tell of all trainings of an audit."""
    parts = list(stages.values())
    asked, seen = sum(part.asked for part in parts), sum(part.seen for part in parts)
    failed, cached = [failure for part in parts for failure in part.failed], sum(part.cached for part in parts)
    entries = {name: part.found for name, part in stages.items()}
    return {
        "trainings": counted(asked, failed=len(failed), spared=asked - seen),
        "provenance": provenance(known, entries, computed=seen - cached, cached=cached),
        "failed": failed,
    }


def collect(
    rows: Generator[Row, None, None],
    memberships: BoolArray,
    *,
    stage: str,
    columns: IntArray | None = None,
    stop: Callable[[Row], bool] | None = None,
) -> Trainings:
    """Gather trainings, of which only `columns` are kept; `stop` may end them early, after the row it is shown.

    They end early too when the first few have all failed.
    """
    kept, signals, failed, shares, fits = [], [], [], [], []
    found: Counter[str] = Counter()
    cached = seen = 0
    for row in rows:
        seen += 1
        cached += row.cached
        if row.cached and row.key is not None:
            found[row.key] += 1
        if row.signals is None:
            failed.append({"stage": stage, "index": row.index, "seed": row.seed, "reason": row.failed})
        else:
            kept.append(row.index)
            signals.append(row.signals if columns is None else row.signals[columns])
            shares.append(row.accuracy)
            fits += [] if row.agreement is None else [row.agreement]
        hopeless = not kept and len(failed) == HOPELESS
        if hopeless or (stop is not None and stop(row)):
            rows.close()
            break
    width = memberships.shape[1] if columns is None else columns.size
    table = np.array(signals) if signals else np.empty((0, width))
    counts = len(memberships), seen, cached, _mean(shares), dict(found)
    return Trainings(np.array(kept, np.int64), table, failed, *counts, stage, tuple(fits))


def _accuracy(correct: BoolArray | None, members: BoolArray) -> tuple[float, float] | None:
    """Shares of right answers on the members, and on the held-out records, or else on those left out if not too few."""
    if correct is None:
        return None
    own = correct[: members.size]
    other = correct[members.size :] if correct.size > members.size else own[~members]
    return float(own[members].mean()), float(other.mean()) if other.size >= FEWEST_JUDGED else float("nan")


def _mean(shares: list[tuple[float, float] | None]) -> dict[str, float | None]:
    known = [pair for pair in shares if pair is not None]
    if not known:
        return {"members": None, "nonmembers": None}
    inside, outside = np.array(known).T
    left = outside[~np.isnan(outside)]
    return {"members": float(inside.mean()), "nonmembers": float(left.mean()) if left.size else None}


def model_name(train: Any) -> str:
    """What to call a factory or a function."""
    return str(getattr(train, "name", None) or getattr(train, "__name__", type(train).__name__))


def pipeline(
    train: Any,
    data: Any,
    *,
    recipe: Recipe | None,
    signal: Signal | None,
    nonmembers: Any,
    where: RunOptions,
    key: str | None,
    name: str | None,
    groups: Any = None,
) -> Pipeline:
    """A pipeline from the arguments of an audit, all checked before anything is trained."""
    if not callable(train):
        raise InputError(
            f"train must be a function, got {check.show(train)}; pass a module factory with recipe=, or a function "
            "(indices, seed) that returns a model."
        )
    if recipe is not None and not isinstance(recipe, Recipe):
        raise InputError(f"recipe must be a Recipe or None, got {check.show(recipe)}; pass e.g. Recipe(epochs=10).")
    if signal is not None and not callable(signal):
        raise InputError(
            f"signal must be a function (outputs, y) or None, got {check.show(signal)}; pass one of these."
        )
    if name is not None and not isinstance(name, str):
        raise InputError(f"name must be a text or None, got {check.show(name)}; pass e.g. 'adult mlp'.")
    classes = signal is None or recipe is not None
    x, y = _records("data", data, recipe, classes)
    held = None if nonmembers is None else _records("nonmembers", nonmembers, recipe, classes)
    if held is not None and held[0].shape[1:] != x.shape[1:]:
        raise InputError(
            f"nonmembers has records of shape {held[0].shape[1:]}, data of {x.shape[1:]}; pass the same kind."
        )
    behind = None if groups is None else persons("groups", groups, len(x))
    known = identity(train, key=key) if where.store is not None or key is not None else None
    return Pipeline(train, recipe, x, y, held, signal, where, known, name, behind)


def _records(name: str, data: Any, recipe: Recipe | None, classes: bool) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    features, labels = pair(name, data, "pass records and their labels")
    if recipe is not None:
        return arguments.records((features, labels))
    x = np.asarray(features)
    if x.ndim == 0 or x.size == 0 or x.dtype.hasobject:
        raise InputError(f"{name}: X must be an array of records, got type {x.dtype} and shape {x.shape}; convert it.")
    if classes:
        return x, class_numbers(f"{name}: y", labels, len(x))
    y = check.finite_array(f"{name}: y", labels)
    if y.size != len(x):
        raise InputError(f"{name} has {len(x)} records but {y.size} labels; they must pair up.")
    return x, np.asarray(labels)
