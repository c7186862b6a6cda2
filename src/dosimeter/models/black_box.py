"""A model that can only be asked: outputs and losses in batches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from dosimeter import _validate as check
from dosimeter._validate import InputError, show
from dosimeter.models import _batches
from dosimeter.models.outputs import (
    KINDS,
    Array,
    Kind,
    Losses,
    Outputs,
    checked,
    clip_warning,
    columns_of,
    infer_kind,
    losses_of,
    shaped,
)
from dosimeter.records import count, labels


class BlackBox(ABC):
    """A model seen through its answers alone."""

    @abstractmethod
    def outputs(self, X: Any) -> Outputs:
        """The model's outputs for all records of X."""

    def losses(self, X: Any, y: Any) -> Losses:
        """Minus the log-odds of the true class, for each record."""
        return self.outputs(X).losses(y)


class Batched(BlackBox):
    """A BlackBox that answers a few records at a time; a subclass gives `_predict`.

    The kind of the outputs is stated, or inferred from the first batch and then kept, so that members and non-members
    are always read alike.
    """

    expansion = 8  # memory inside the model, as a multiple of a record's input and output

    def __init__(
        self,
        *,
        batch_size: int | None = None,
        outputs: Kind | None = None,
        classes: Sequence[Any] | None = None,
    ) -> None:
        self.batch_size = checked_batch_size(batch_size)
        if outputs is not None:
            check.choice("outputs", outputs, KINDS)
        self.kind: Kind | None = outputs
        self.classes = None if classes is None else _classes(classes)
        self.warnings: tuple[str, ...] = ()

    @abstractmethod
    def _predict(self, rows: Any) -> Any:
        """The outputs for a few records."""

    def outputs(self, X: Any) -> Outputs:
        """The model's outputs for all records of X."""
        answers = list(self._answers(X))
        return Outputs(np.concatenate([values for *_, values in answers]), answers[0][2], self.classes, self.warnings)

    def losses(self, X: Any, y: Any) -> Losses:
        """The losses of the records, without keeping the outputs."""
        truth = labels(y, count(X))
        losses, correct = np.empty(truth.size), np.empty(truth.size, dtype=bool)
        clipped, columns, kind = 0, np.empty(0, dtype=np.int64), KINDS[0]
        for start, stop, kind, values in self._answers(X):
            if start == 0:  # there is always a first batch
                columns = columns_of(truth, self.classes, _width(values))
            losses[start:stop], more, correct[start:stop] = losses_of(values, kind, columns[start:stop])
            clipped += more
        return Losses(losses, clipped, kind, (*self.warnings, *clip_warning(clipped, truth.size)), correct)

    def _answers(self, X: Any) -> Iterator[tuple[int, int, Kind, Array]]:
        """Start, stop, kind and checked outputs of each batch."""
        shape: tuple[int, ...] | None = None
        for start, stop, values in _batches.run(X, self._ask, batch_size=self.batch_size, expansion=self.expansion):
            if self.kind is None:
                self.kind, reason = infer_kind(values)
                self.warnings = (*self.warnings, reason)
            shape = values.shape[1:] if shape is None else shape
            if values.shape[1:] != shape:
                raise InputError(
                    f"the model's outputs change their shape, {('n', *shape)} for record 0 but "
                    f"{('n', *values.shape[1:])} for record {start}; return one shape always."
                )
            if self.classes is not None and len(self.classes) != _width(values):
                raise InputError(
                    f"the model returns {_width(values)} columns of outputs but has {len(self.classes)} classes "
                    f"({show(list(self.classes))}); they must agree."
                )
            yield start, stop, self.kind, checked(values, self.kind, start)

    def _ask(self, rows: Any, start: int, stop: int) -> Array:
        try:
            raw = self._predict(rows)
        except (InputError, ImportError, MemoryError):
            raise
        except Exception as error:
            raise InputError(
                f"the model failed on records {start} to {stop - 1} ({type(error).__name__}: {show(str(error), 160)}); "
                "check that it is fitted and takes records of this shape and type."
            ) from error
        return shaped(raw, stop - start, start)


def checked_batch_size(value: Any) -> int | None:
    """A batch size of at least 1, or None: chosen to fit memory."""
    remedy = "pass how many records go through the model at once"
    return None if value is None else check.whole("batch_size", value, 1, remedy)


def _width(values: Array) -> int:
    return 2 if values.ndim == 1 else int(values.shape[1])


def _classes(classes: Sequence[Any]) -> tuple[Any, ...]:
    array = labels(classes)
    if np.unique(array).size != array.size or array.size < 2:
        raise InputError(f"classes must be at least two different labels, got {show(list(classes))}; name each column.")
    return tuple(array.tolist())
