"""Any model as one that can only be asked: outputs and losses, in batches that fit in memory."""

from __future__ import annotations

import os
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dosimeter import _validate as check
from dosimeter._progress import Progress
from dosimeter._validate import InputError, show
from dosimeter.models.outputs import (
    KINDS,
    Array,
    Kind,
    Losses,
    Outputs,
    array_of,
    checked,
    clip_warning,
    columns_of,
    infer_kind,
    losses_of,
    shaped,
)
from dosimeter.records import count, labels, take

BUDGET = 256 * 2**20  # bytes for one batch: its inputs, its outputs and what the model holds between them
_PROBE = 256
_MARGIN = (
    "the losses come from decision_function, a margin and not a probability: they rank records, but the scale "
    "of Epsilon* is the margin's"
)
_AGREEMENT = 1e-6


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

    def class_count(self, X: Any) -> int:
        """How many classes the model tells apart, from its answers for a few records.

        What kind of outputs they are is not decided on so few: logits of one record may look like probabilities.
        """
        _, _, values = next(iter(in_batches(X, self._ask, batch_size=self.batch_size, expansion=self.expansion)))
        return 2 if values.ndim == 1 else int(values.shape[1])

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
        for start, stop, values in in_batches(X, self._ask, batch_size=self.batch_size, expansion=self.expansion):
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


# --- batches that fit in memory ------------------------------------------------------------------------------


def row_bytes(X: Any) -> int:
    """About how much memory one record takes."""
    records = count(X)
    if isinstance(getattr(X, "nbytes", None), int):
        return max(1, X.nbytes // records)
    shape: Any = getattr(X, "shape", ())
    if len(shape) > 1:  # tables and sparse matrices, which the model may make dense
        return int(8 * shape[1])
    first = X[0]
    return int(getattr(first, "nbytes", sys.getsizeof(first)))


def fitting(bytes_per_row: float, expansion: int) -> int:
    """How many rows fit, when a row grows by `expansion` inside the model."""
    return max(1, int(BUDGET // (expansion * max(1.0, bytes_per_row))))


def in_batches(
    X: Any,
    predict: Callable[[Any, int, int], Any],
    *,
    batch_size: int | None,
    expansion: int,
) -> Iterator[tuple[int, int, Any]]:
    """Start, stop and outputs of each batch.

    Without a batch size, a first small batch shows how large the outputs are, and a batch that does not fit is halved.
    """
    records, wide = count(X), row_bytes(X)
    size = batch_size or min(records, _PROBE, fitting(wide, expansion))
    known, start = batch_size is not None, 0
    with Progress(records, f"Asking the model about {records} records") as progress:
        while start < records:
            stop = min(start + size, records)
            began = time.monotonic()
            try:
                values = predict(take(X, slice(start, stop)), start, stop)
            except MemoryError:
                if batch_size is not None or size == 1:
                    raise InputError(
                        f"memory is short for a batch of {size} record(s); pass a smaller batch_size, or free memory."
                    ) from None
                size, known = max(1, size // 2), True
                continue
            if start:
                progress.look(stop - start, time.monotonic() - began, size)
            progress.advance(stop)
            yield start, stop, values
            if not known:
                size, known = fitting(wide + values.nbytes / (stop - start), expansion), True
            start = stop


# --- classifiers in the manner of scikit-learn, and plain functions ------------------------------------------


class Estimator(Batched):
    """A fitted classifier with predict_proba, or with decision_function alone.

    Probabilities round to 0 and 1. Where the classifier also has a decision_function whose softmax (or sigmoid) is
    predict_proba on the first batch, that is the logit, and it is asked instead: the tails stay.
    """

    def __init__(self, model: Any, *, batch_size: int | None = None) -> None:
        super().__init__(batch_size=batch_size)
        self.model, name = model, type(model).__name__
        self.method: str | None = None
        found = getattr(model, "classes_", None)
        if found is None:
            raise InputError(f"{name} has no classes_; fit it first, and pass a classifier.")
        if isinstance(found, list) and any(np.ndim(entry) for entry in found):
            raise InputError(f"{name} predicts several targets at once; audit one classifier for each target.")
        self.classes = tuple(np.asarray(found).tolist())
        if len(self.classes) < 2:
            raise InputError(f"{name} was fitted on one class ({show(self.classes)}); fit it on two or more.")
        if not hasattr(model, "predict_proba"):
            if getattr(model, "decision_function_shape", None) == "ovo" and len(self.classes) > 2:
                raise InputError(
                    f'{name} compares classes in pairs; set decision_function_shape="ovr" to get one margin per class.'
                )
            self.method, self.kind, self.warnings = "decision_function", "logits", (_MARGIN,)

    def _predict(self, rows: Any) -> Any:
        if self.method is None:
            self._choose(rows)
        assert self.method is not None
        return getattr(self.model, self.method)(rows)

    def _choose(self, rows: Any) -> None:
        """predict_proba, unless decision_function is seen to be its logit."""
        probabilities = array_of(self.model.predict_proba(rows))
        if hasattr(self.model, "decision_function"):
            margins = array_of(self.model.decision_function(rows))
            if _are_logits(margins, probabilities):
                self.method, self.kind = "decision_function", "logits"
                return
        self.method, self.kind = "predict_proba", "probabilities"


def _are_logits(margins: Array, probabilities: Array) -> bool:
    """Whether the softmax of the margins is the probabilities, as far as their rounding lets one see."""
    if margins.ndim == 1:
        margins = np.stack([np.zeros_like(margins), margins], axis=1)
    if margins.shape != probabilities.shape or margins.dtype.kind != "f" or probabilities.dtype.kind != "f":
        return False
    if not (np.isfinite(margins).all() and np.isfinite(probabilities).all()):
        return False
    with np.errstate(over="ignore", under="ignore"):
        shifted = margins - margins.max(axis=1, keepdims=True)
        expected = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    step = float(np.finfo(probabilities.dtype).eps)
    seen = (probabilities > 4096 * step) & (probabilities < 0.99)
    if not seen.any():
        return False
    given = probabilities[seen].astype(np.float64)
    slack = _AGREEMENT + 16 * step / given
    return bool((np.abs(np.log(given) - expected[seen]) <= slack).all())


class Function(Batched):
    """Any callable X -> outputs of shape (n,) or (n, classes)."""

    def __init__(self, function: Callable[[Any], Any], **options: Any) -> None:
        super().__init__(**options)
        self.function = function

    def _predict(self, rows: Any) -> Any:
        return self.function(rows)


# --- from whatever a person calls their model to a BlackBox --------------------------------------------------


def access(
    model: Any,
    *,
    batch_size: int | None = None,
    device: Any = None,
    outputs: Kind | None = None,
    classes: Sequence[Any] | None = None,
) -> BlackBox:
    """Get black-box access to a model.

    Args:
        model: A fitted scikit-learn classifier, a torch module, the path of an .onnx file, a
            `HuggingFace(model, tokenizer)`, a function from X to outputs, or a BlackBox, which is returned as it is.
        batch_size: Records in a batch; by default what fits memory.
        device: Where a module or file runs.
        outputs: What a function, module or file returns: "logits", "log-probabilities" or "probabilities". Without it
            the first batch decides, and a warning states the decision.
        classes: The label of each column; without it labels are column numbers.

    Returns:
        The black box, which gives outputs and losses.

    Raises:
        InputError: If the model is of no known kind.

    >>> import numpy as np
    >>> box = access(lambda X: np.tile([0.25, 0.75], (len(X), 1)), outputs="probabilities")
    >>> box.losses(np.zeros((2, 3)), [1, 0]).values.round(2).tolist()
    [-1.1, 1.1]
    """
    stated = {"outputs": outputs, "classes": classes}
    if isinstance(model, BlackBox):
        _refuse_options("a BlackBox that is already built", {"batch_size": batch_size, "device": device, **stated})
        return model
    if isinstance(model, type):
        raise InputError(f"model is the class {model.__name__}; pass a fitted object of it.")
    if isinstance(model, (str, os.PathLike)):
        path = Path(model)
        if path.suffix.lower() != ".onnx":
            raise InputError(
                f"model is the file {path}, and only .onnx files are read, since loading others may run code; export "
                "the model to ONNX, or load it yourself and pass the object."
            )
        from dosimeter.models.onnx_file import OnnxFile

        return OnnxFile(path, batch_size=batch_size, device=device, **stated)
    torch: Any = sys.modules.get("torch")
    if torch is not None and isinstance(model, torch.nn.Module):
        transformers: Any = sys.modules.get("transformers")
        if transformers is not None and isinstance(model, transformers.PreTrainedModel):
            raise InputError(
                f"{type(model).__name__} is a Hugging Face model; pass dosimeter.models.HuggingFace(model, tokenizer)."
            )
        from dosimeter.models.torch_module import TorchModule

        return TorchModule(model, batch_size=batch_size, device=device, **stated)
    if hasattr(model, "predict_proba") or hasattr(model, "decision_function"):
        _refuse_options("a scikit-learn classifier", {"device": device, **stated})
        return Estimator(model, batch_size=batch_size)
    if callable(model):
        _refuse_options("a function", {"device": device})
        return Function(model, batch_size=batch_size, **stated)
    if hasattr(model, "predict"):
        raise InputError(
            f"{type(model).__name__} has neither predict_proba nor decision_function; pass a classifier, or a function "
            "that returns probabilities or logits; audit_model takes labels alone with outputs='labels'."
        )
    raise InputError(
        f"model must be a classifier, a torch module, a path to an .onnx file, a HuggingFace(model, tokenizer) or a "
        f"function, got {show(model)}; pass one of these."
    )


def asked_by(model: Any, method: str | None = None, *, batch_size: int | None = None, device: Any = None) -> Batched:
    """A model as a function of batches; what its answers mean is for the caller to know.

    Of an estimator in the manner of scikit-learn `method` is asked; modules, files and functions have one answer.
    """
    if isinstance(model, Batched):
        return model
    if method is not None and hasattr(model, method) and not isinstance(model, BlackBox):
        _refuse_options("a scikit-learn estimator", {"device": device})
        return Function(getattr(model, method), batch_size=batch_size)
    if hasattr(model, "predict") and not callable(model):
        raise InputError(f"{type(model).__name__} has no {method or 'output of several labels'}; pass a function.")
    box = access(model, batch_size=batch_size, device=device)
    if not isinstance(box, Batched):
        raise InputError(f"{type(model).__name__} gives neither numbers nor labels; pass another kind of model.")
    return box


def _refuse_options(what: str, options: dict[str, Any]) -> None:
    for name, value in options.items():
        if value is not None:
            raise InputError(f"{name} has no meaning for {what}, got {show(value)}; leave it out.")
