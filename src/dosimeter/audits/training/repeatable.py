"""A training that can be repeated: its records, and how the outputs of each model become signals.

A signal is one number for each record, high for a likely member.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import log_softmax

from dosimeter import _validate as check
from dosimeter._persons import Persons, persons
from dosimeter._validate import BoolArray, FloatArray, InputError, IntArray
from dosimeter.attacks.white_box import WhiteBox
from dosimeter.engine import RunOptions
from dosimeter.engine.options import RunKeywords
from dosimeter.engine.work import cores
from dosimeter.estimators.limits import average_ranks
from dosimeter.models.outputs import Kind, checked, infer_kind, losses_of
from dosimeter.records import class_codes, count, fingerprint, joined, pair, take
from dosimeter.training import Observed, Recipe, arguments, train_foreign, train_many
from dosimeter.training.asking import predictor_of, require_device
from dosimeter.training.identity import Identity, identity

# --- do outputs belong to their records? In another order they fit the labels by chance alone ---------------
FEWEST_MEMBERS = 16  # fewer can hardly tell right answers from shuffled ones
MOST_MEMBERS = 5000  # evenly spread; more would only cost time
BY_CHANCE = 3.0  # standard deviations; shuffled answers reach it about once in 700 times


def agreement(outputs: npt.NDArray[Any], labels: IntArray) -> float | None:
    """Say by how many standard deviations outputs fit their labels better than shuffled ones; None if too few.

    Outputs are (n,) or (n, 1) for class 1 of two, or (n, classes). Each class ranks the records by its own column, and
    a record counts with its rank in the column of its label; mean and variance of the sum over all orders of the labels
    are those of Hoeffding (1951). Only the order within a column counts, so a model that always answers with the most
    frequent class, but with less certainty where it is wrong, agrees too.
    """
    step = max(1, -(-len(outputs) // MOST_MEMBERS))
    outputs, labels = outputs[::step], labels[::step]
    count = len(outputs)
    if count < FEWEST_MEMBERS:
        return None
    if outputs.ndim == 2 and outputs.shape[1] == 1:
        outputs = outputs[:, 0]
    columns = np.stack([-outputs, outputs], axis=1) if outputs.ndim == 1 else outputs
    if outputs.ndim == 2 and (columns.min() < 0 or columns.max() > 1):
        columns = log_softmax(columns.astype(np.float64), axis=1)
    ranks = np.stack([average_ranks(column) for column in columns.T], axis=1)
    shares = np.bincount(labels, minlength=ranks.shape[1]) / count
    deviations = ranks - (ranks @ shares)[:, None]
    variance = count / (count - 1) * float((deviations**2 @ shares).sum())
    if variance <= 0:
        return 0.0  # all records have the same outputs, or all the same label
    total = float(ranks[np.arange(count), labels].sum())
    return (total - count * (count + 1) / 2) / math.sqrt(variance)


# --- a training as the audit sees it -----------------------------------------------------------------------
FEWEST_JUDGED = 30  # records; an accuracy on fewer says little

Signal = Callable[[npt.NDArray[Any], npt.NDArray[Any]], npt.ArrayLike]


class PipelineKeywords(RunKeywords, total=False):
    """Rare arguments that every audit of a training takes."""

    signal: Signal | None
    nonmembers: Any
    key: str | None


@dataclass(frozen=True)
class TrainingOutcome:
    """One training: the signals of all records, or why there are none.

    `correct` are right answers, where outputs are classes, and `accuracy` their shares on members and other records.
    `canaries` is what an adversary with the noisy gradients sees of the recipe's Dirac canaries. `key` names the entry
    of the store that it came from. `agreement` says how well the outputs of a foreign training fit the labels of its
    members. `kind` is how its outputs were read.
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
    kind: Kind | None = None


@dataclass(frozen=True)
class Pipeline:
    """A training that can be repeated, the records it may use, and how a model's outputs become signals.

    With a `recipe`, `train` makes a torch module and the batched engine trains it. Without one, `train(indices, seed)`
    returns a predictor. `held` are further records, for accuracy alone. `known` is what `train` was when the audit
    began, for the keys of a store: trainings in this process may change what it reaches. `name` and the labels are
    part of these keys too, since a function does not tell which files it reads. With `persons` the units that are in
    or out are persons: memberships have one column, and outcomes one signal, for each of them. `classes` are the
    names of the classes where the labels were words. With a `white_box` its function makes the signals.
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
    classes: tuple[str, ...] | None = None
    white_box: WhiteBox | None = None

    @property
    def contents(self) -> Any:
        """The records as the caller gave them; `x` holds row numbers where they are a table of mixed columns."""
        return take(self.train.table, slice(0, self.records)) if isinstance(self.train, TableTraining) else self.x

    @property
    def records(self) -> int:
        return len(self.x)

    @property
    def units(self) -> int:
        """How many persons there are or, where nobody owns several records, how many records."""
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
        if isinstance(self.train, TableTraining):
            data.update(fingerprint(self.train.table, None).encode())
        known = "" if self.known is None else self.known.text
        return f"{known} {self.name} {self.recipe!r} {data.hexdigest()}"

    def label_of(self, unit: int) -> str:
        """The label of a record, or of a person's first record."""
        label = self.y[unit if self.persons is None else int(np.argmax(self.persons.place == unit))]
        return str(label) if self.classes is None else self.classes[int(label)]

    def units_of(self, rows: IntArray) -> IntArray:
        """The records themselves, or the persons behind them."""
        return rows if self.persons is None else np.unique(self.persons.place[rows])

    def run(
        self, memberships: BoolArray, seeds: list[int], *, kind: Kind | None = None
    ) -> Generator[TrainingOutcome, None, None]:
        """Train one model for each row of memberships; outcomes come in order, each as soon as it is there.

        `kind` says how outputs are read; None infers it from the first model and reads all others alike.
        """
        if self.persons is not None:
            memberships = memberships[:, self.persons.place]
        asked: Any = self.x if self.held is None else np.concatenate([self.x, self.held[0]])
        where = self.where
        common: dict[str, Any] = {
            "engine": where.engine,
            "store": where.store,
            "key": self.known,
            "memory": where.memory,
            "timeout": where.timeout,
            "progress": where.progress,
        }
        models: Iterator[Any]
        if self.recipe is not None:
            on: Any = "data" if self.held is None else asked
            data = (self.x, self.y)
            recipe = self.recipe.on(where.device)
            if self.white_box is not None:
                on = Observed(self.white_box.function, "data" if self.held is None else (asked, self._labels))
            models = train_many(
                self.train, recipe, data, memberships, seeds, evaluate_on=on, workers=where.workers, **common
            )
        else:
            count = where.workers if where.workers is not None else cores()
            if self.white_box is not None:
                asked = Observed(self.white_box.function, (asked, self._labels))
            models = train_foreign(
                self.train,
                memberships,
                seeds,
                asked,
                version=self._version(),
                workers=count,
                device=where.device,
                batch_size=where.batch_size,
                **common,
            )
        return self._outcomes(models, memberships, kind)

    def _outcomes(
        self, models: Any, memberships: BoolArray, kind: Kind | None
    ) -> Generator[TrainingOutcome, None, None]:
        try:
            for one in models:
                members = memberships[one.index]
                outcome = self._outcome(one, members, kind)
                kind = outcome.kind
                yield replace(outcome, accuracy=_accuracy(outcome.correct, members))
        finally:
            models.close()  # stops the trainings under way when the rest is not wanted

    def _version(self) -> str:
        labels = hashlib.sha256(np.ascontiguousarray(self.y).tobytes()).hexdigest()[:16]
        return f"{self.name or ''} {labels}"

    def _outcome(self, one: Any, members: BoolArray, kind: Kind | None) -> TrainingOutcome:
        if one.failed is not None:
            return TrainingOutcome(one.index, one.seed, None, one.failed, False, None, kind=kind)
        outputs = np.asarray(one.outputs)
        try:
            kind = self._kind(outputs, kind)
            signals, correct = self._own_signals(outputs) if kind is None else self._losses(outputs, kind)
        except _UnusableError as error:
            reason = f"the training from seed {one.seed} {error}"
            return TrainingOutcome(one.index, one.seed, None, reason, one.cached, None, key=one.key, kind=kind)
        if one.observed is not None:
            signals = np.asarray(one.observed, np.float64)[: self.records]
        transcript = getattr(one, "transcript", None)
        fit = None
        if self.recipe is None and self.signal is None:  # the caller's own signal may read anything from the outputs
            fit = agreement(outputs[: self.records][members], self.y[members].astype(np.int64))
        return TrainingOutcome(
            one.index,
            one.seed,
            self._by_unit(signals),
            None,
            one.cached,
            correct,
            canaries=None if transcript is None else transcript.canaries,
            key=one.key,
            agreement=fit,
            kind=kind,
        )

    def _kind(self, outputs: npt.NDArray[Any], kind: Kind | None) -> Kind | None:
        """How to read these outputs, as the first model's were; None where the caller's `signal` reads them."""
        if self.signal is not None:
            return None
        values, classes = _one_column(outputs), int(self._labels.max()) + 1
        if values.ndim == 1 and classes > 2:
            raise _UnusableError(
                f"gave one number per record for {classes} classes: return probabilities or logits, or pass signal="
            )
        if values.ndim > 2 or (values.shape[1] if values.ndim == 2 else 2) < classes:
            raise _UnusableError(
                f"gave outputs of shape {outputs.shape} for {classes} classes: its members may lack one of them"
            )
        return kind or ("logits" if self.recipe is not None else _inferred(values))

    @property
    def _labels(self) -> npt.NDArray[Any]:
        """The labels of all records that a model is asked about."""
        return self.y if self.held is None else np.concatenate([self.y, self.held[1]])

    def _losses(self, outputs: npt.NDArray[Any], kind: Kind) -> tuple[FloatArray, BoolArray | None]:
        """The log-odds of the true class as signals, and which answers are right."""
        values = _as_kind(_one_column(outputs), kind)
        losses, _, correct = losses_of(values, kind, self._labels.astype(np.int64))
        return -losses[: self.records], correct

    def _own_signals(self, outputs: npt.NDArray[Any]) -> tuple[FloatArray, BoolArray | None]:
        """What the caller's function makes of the outputs, and which answers are right if they are classes."""
        assert self.signal is not None
        try:
            signals = np.asarray(self.signal(outputs[: self.records], self.y), np.float64)
        except Exception as error:  # the function is the caller's
            raise InputError(
                f"signal raised {type(error).__name__}: {check.show(str(error), 160)}; repair it."
            ) from error
        if signals.shape != (self.records,):
            raise InputError(
                f"signal gave shape {signals.shape} for {self.records} records; it must return one number per record."
            )
        if not np.isfinite(signals).all():
            raise _UnusableError("gave signals that are infinite or NaN")
        values, y = _one_column(outputs), self._labels
        are_classes = values.ndim == 2 and y.dtype.kind in "biu" and y.min() >= 0 and y.max() < values.shape[1]
        return signals, values.argmax(axis=1) == y if are_classes else None

    def _by_unit(self, signals: FloatArray) -> FloatArray:
        """The mean of a person's signals."""
        if self.persons is None:
            return signals
        place = self.persons.place
        return np.asarray(np.bincount(place, signals) / np.bincount(place))


class _UnusableError(Exception):
    """Outputs of one training that give no signals."""


def _one_column(outputs: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return outputs[:, 0] if outputs.ndim == 2 and outputs.shape[1] == 1 else outputs


def _inferred(values: npt.NDArray[Any]) -> Kind:
    try:
        return infer_kind(values)[0]
    except InputError as error:
        raise InputError(f"{error} For an audit of trainings pass signal=, a function (outputs, y).") from None


def _as_kind(values: npt.NDArray[Any], kind: Kind) -> npt.NDArray[Any]:
    """Outputs of the first model's kind; a model whose outputs are of another kind has failed."""
    try:
        return checked(values, kind, 0)
    except InputError as error:
        raise _UnusableError(f"gave outputs that are not {kind} as the first model's were: {error}") from None


def _accuracy(correct: BoolArray | None, members: BoolArray) -> tuple[float, float] | None:
    """Shares of right answers on the members, and on the held-out records or, without any, on those left out."""
    if correct is None:
        return None
    own = correct[: members.size]
    other = correct[members.size :] if correct.size > members.size else own[~members]
    return float(own[members].mean()), float(other.mean()) if other.size >= FEWEST_JUDGED else float("nan")


def model_name(train: Any) -> str:
    """What to call a factory or a function."""
    return str(getattr(train, "name", None) or getattr(train, "__name__", type(train).__name__))


def pipeline(
    train: Any,
    data: Any,
    *,
    recipe: Recipe | None,
    signal: Signal | None = None,
    nonmembers: Any = None,
    where: RunOptions,
    key: str | None = None,
    name: str | None = None,
    groups: Any = None,
    white_box: WhiteBox | None = None,
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
    if recipe is not None and not where.engine.startswith("ray"):  # a cluster may have what this machine lacks
        require_device(recipe.on(where.device).device)
    classes = signal is None or recipe is not None
    x, y, names = _records("data", data, recipe, classes)
    held = None
    if nonmembers is not None:
        held = _records("nonmembers", nonmembers, recipe, classes, names)[:2]
    if _is_frame(x) or (held is not None and _is_frame(held[0])):
        train, x, held = _by_row_numbers(train, x, held)
    if held is not None and held[0].shape[1:] != x.shape[1:]:
        raise InputError(
            f"nonmembers has records of shape {held[0].shape[1:]}, data of {x.shape[1:]}; pass records of one shape."
        )
    owners = None if groups is None else persons("groups", groups, len(x))
    known = identity(train, key=key) if where.store is not None or key is not None else None
    if white_box is not None and (signal is not None or isinstance(train, TableTraining)):
        why = "signal reads outputs" if signal is not None else "records are a table with named columns"
        raise InputError(f"attack={white_box.label!r} is given the model and arrays, but {why}; leave one of them out.")
    return Pipeline(train, recipe, x, y, held, signal, where, known, name, owners, names, white_box)


@dataclass(frozen=True, eq=False)
class TableTraining:
    """The caller's training on a table of mixed columns: the model that it returns is asked by row numbers.

    The engine then moves row numbers alone, and the model still sees rows of the table as the caller gave it.
    """

    train: Callable[[IntArray, int], Any]
    table: Any

    @property
    def name(self) -> str:
        """What to call the caller's training."""
        return model_name(self.train)

    def __call__(self, rows: IntArray, seed: int) -> Callable[[IntArray], Any]:
        ask = predictor_of(self.train(rows, seed))
        return lambda places: ask(take(self.table, places))


def _is_frame(x: Any) -> bool:
    return hasattr(x, "iloc")


def _by_row_numbers(train: Any, x: Any, held: tuple[Any, Any] | None) -> tuple[Any, Any, tuple[Any, Any] | None]:
    """The same training, and row numbers of one table in place of the records."""
    if held is None:
        return TableTraining(train, x), np.arange(count(x)), None
    if not _is_frame(x) or not _is_frame(held[0]):
        raise InputError("one of data and nonmembers is a table with named columns, the other is not; pass two tables.")
    table = TableTraining(train, joined(x, held[0]))
    rows = np.arange(count(table.table))
    return table, rows[: count(x)], (rows[count(x) :], held[1])


def _records(
    name: str, data: Any, recipe: Recipe | None, classes: bool, names: tuple[str, ...] | None = None
) -> tuple[Any, npt.NDArray[Any], tuple[str, ...] | None]:
    """Records, labels as numbers, and the names of the classes where the labels are words."""
    features, labels = pair(name, data, "pass records and their labels")
    if recipe is not None:
        return (*arguments.records((features, labels)), None)
    x = features if _is_frame(features) and hasattr(features, "columns") else np.asarray(features)
    if not _is_frame(x) and (x.ndim == 0 or x.size == 0 or x.dtype.hasobject):
        raise InputError(f"{name}: X must be an array of records, got type {x.dtype} and shape {x.shape}; convert it.")
    if classes or np.asarray(labels).dtype.kind in "UTO":
        return (x, *class_codes(f"{name}: y", labels, count(x), names))
    y = check.finite_array(f"{name}: y", labels)
    if y.size != len(x):
        raise InputError(f"{name} has {len(x)} records but {y.size} labels; pass one label for each record.")
    return x, np.asarray(labels), None
