"""What models are asked about each record, and how an answer becomes a signal: the same for target and references."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from dosimeter import _validate as check
from dosimeter._validate import FloatArray, InputError
from dosimeter.audits.model.pool import Pool
from dosimeter.models import BlackBox, HardLabels, Losses, MultiLabel, Perturbation, Predictions, access
from dosimeter.models.outputs import KINDS, Kind, Task
from dosimeter.models.regression import standardised
from dosimeter.records import take

__all__ = ["PLAIN", "QUERIES", "Question", "digests", "read_question", "signals_of"]

QUERIES = 32  # for each record, where a model gives labels alone
MOST_QUERIES = 10_000


@dataclass(frozen=True)
class Question:
    """How every model of an audit is asked.

    `queries` is how often a model that gives labels alone is asked about each record, None for a model that gives
    scores. `outputs` says what a function, module or file returns, where the caller said so.
    """

    task: Task = "classification"
    queries: int | None = None
    perturbation: Perturbation | None = None
    outputs: Kind | None = None

    @property
    def signals_are_losses(self) -> bool:
        """Whether attacks with references read minus the losses."""
        return self.queries is None and self.task != "regression"

    def box(self, model: Any, *, batch_size: int | None = None, device: Any = None) -> BlackBox:
        """A model as it is asked."""
        where: dict[str, Any] = {"batch_size": batch_size, "device": device}
        if self.queries is not None:
            return HardLabels(model, self.perturbation, queries=self.queries, **where)
        if self.task == "regression":
            return Predictions(model, **where)
        if self.task == "multi-label":
            return MultiLabel(model, outputs=self.outputs, **where)
        return access(model, outputs=self.outputs, **where)

    def ask(self, box: BlackBox, pool: Pool) -> tuple[Losses, Losses]:
        """The losses of both sides.

        Perturbed records are asked about in the order of their content, as the references are, so that each record is
        perturbed alike for all models. The residuals of both sides are standardised together.
        """
        if self.queries is not None:
            order = np.argsort(digests(pool), kind="stable")
            X, y = pool.joined()
            return _parted(box.losses(take(X, order), y[order]), order, len(pool.inside[1]))
        inside, outside = box.losses(*pool.inside), box.losses(*pool.outside)
        if self.task != "regression":
            return inside, outside
        residuals = signals_of((inside, outside))
        values = standardised(residuals, np.concatenate([pool.inside[1], pool.outside[1]]) - residuals)
        cut = inside.values.size
        return replace(inside, values=values[:cut]), replace(outside, values=values[cut:])

    def signals(self, model: Any, X: Any, y: Any) -> FloatArray:
        """The signal of each record under a reference: log-odds of its label, or its residual.

        A label that a reference never met gets the lowest log-odds.
        """
        box = self.box(model)
        classes = None if self.task != "classification" or self.queries is not None else getattr(box, "classes", None)
        if classes is None:
            return _signals(box.losses(X, y))
        met = np.isin(y, np.asarray(classes))
        values = np.empty(met.size)
        values[met] = -box.losses(take(X, np.flatnonzero(met)), y[met]).values
        values[~met] = values[met].min()
        return values


PLAIN = Question()


def read_question(
    task: Task, pool: Pool, *, outputs: Any = None, queries: Any = None, seed: int
) -> tuple[Question, tuple[str, ...]]:
    """Check how the model may be asked, and what is worth a note on the page."""
    if outputs != "labels":
        if queries is not None:
            raise InputError("queries counts questions to a model that gives labels alone; pass outputs='labels' too.")
        stated = None if outputs is None else check.choice("outputs", outputs, (*KINDS, "labels"))
        if stated is not None and task == "regression":
            raise InputError(f"outputs is {stated!r}, but a regression predicts numbers; leave outputs out.")
        return Question(task, outputs=cast(Kind | None, stated)), ()
    if task != "classification":
        raise InputError(f"outputs='labels' is for one class for each record, and the task is {task}; leave it out.")
    if pool.labels is None:
        raise InputError("outputs='labels' compares answers with true labels; pass (X, y).")
    budget = QUERIES if queries is None else queries
    asked = check.whole("queries", budget, 1, f"pass how often to ask about each record, e.g. {QUERIES}", MOST_QUERIES)
    perturbation = None if asked == 1 else Perturbation.of(pool.joined()[0], seed)
    note = (
        f"the model was asked for labels alone, {asked} {'time' if asked == 1 else 'times'} for each record "
        f"({asked * pool.size} questions)"
    )
    return Question(task, asked, perturbation), (note,)


def signals_of(losses: tuple[Losses, Losses]) -> FloatArray:
    """The signals of both sides, members first."""
    return np.concatenate([_signals(side) for side in losses])


def _signals(losses: Losses) -> FloatArray:
    return -losses.values if losses.signals is None else losses.signals


def _parted(losses: Losses, order: Any, members: int) -> tuple[Losses, Losses]:
    """Losses of ordered records as those of the members and of the others."""
    assert losses.correct is not None and losses.signals is not None
    back = np.argsort(order)
    values, correct, signals = losses.values[back], losses.correct[back], losses.signals[back]
    return (
        replace(losses, values=values[:members], correct=correct[:members], signals=signals[:members]),
        replace(losses, values=values[members:], correct=correct[members:], signals=signals[members:]),
    )


def digests(pool: Pool) -> Any:
    """A digest of each record with its label; equal records have equal ones."""
    X, y = pool.joined()
    rows = (row + _label_bytes(label) for row, label in zip(_rows(X), y, strict=True))
    return np.array([hashlib.blake2b(row, digest_size=16).hexdigest() for row in rows])


def _label_bytes(label: Any) -> bytes:
    return np.ascontiguousarray(label).tobytes() if np.ndim(label) else str(label).encode()


def _rows(X: Any) -> Iterator[bytes]:
    """The content of each record."""
    if hasattr(X, "iloc"):
        from pandas.util import hash_pandas_object

        return (int(value).to_bytes(8, "little") for value in hash_pandas_object(X, index=False))
    if hasattr(X, "tocsr"):
        return (X[i].indices.tobytes() + X[i].data.tobytes() for i in range(X.shape[0]))
    if isinstance(X, list):
        return (row.encode() if isinstance(row, str) else np.asarray(row).tobytes() for row in X)
    return (np.ascontiguousarray(row).tobytes() for row in np.asarray(X))
