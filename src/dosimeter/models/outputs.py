"""What a model is asked to predict, what it answers, checked once, and the losses that follow from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast, get_args

import numpy as np
import numpy.typing as npt

from dosimeter import _validate as check
from dosimeter._validate import BoolArray, FloatArray, InputError, IntArray, show
from dosimeter.records import fetched, labels

Kind = Literal["logits", "log-probabilities", "probabilities"]
Answer = Literal["logits", "log-probabilities", "probabilities", "predictions", "labels"]
Array = npt.NDArray[Any]
Task = Literal["classification", "regression", "multi-label"]
KINDS: tuple[Kind, ...] = get_args(Kind)
TASKS: tuple[Task, ...] = get_args(Task)
_ROW_SUM_TOLERANCE = 1e-3
_ROUNDING = 1e-6  # a softmax in single precision may pass 0 or 1 by this much


@dataclass(frozen=True)
class Losses:
    """One loss for each record, low for a likely member, and what was lost on the way to it.

    `signals` are what attacks with reference models compare, where it is not minus the loss: true minus predicted
    numbers of a regression, or how stable labels are.
    """

    values: FloatArray
    clipped: int
    kind: Answer
    warnings: tuple[str, ...] = ()
    correct: BoolArray | None = field(default=None, repr=False)  # is the true class the model's first choice?
    signals: FloatArray | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Outputs:
    """A model's outputs: shape (n,) for class 1 of a binary model, or (n, classes).

    `classes` holds the label of each column; None means that the labels are the column numbers.
    """

    values: Array
    kind: Kind
    classes: tuple[Any, ...] | None = None
    warnings: tuple[str, ...] = ()

    def losses(self, y: Any) -> Losses:
        """The losses of the records whose true labels are `y`."""
        count = 2 if self.values.ndim == 1 else self.values.shape[1]
        columns = columns_of(labels(y, self.values.shape[0]), self.classes, count)
        values, clipped, correct = losses_of(self.values, self.kind, columns)
        return Losses(values, clipped, self.kind, (*self.warnings, *clip_warning(clipped, values.size)), correct)


def losses_of(values: Array, kind: Kind, columns: IntArray) -> tuple[FloatArray, int, BoolArray]:
    """Losses, how many were clipped, and whether the true class is the first choice, from checked outputs."""
    if kind == "probabilities":
        losses, clipped = losses_from_probabilities(values, columns)
    else:  # the loss does not change when a row is shifted, so log-probabilities are logits
        losses, clipped = losses_from_logits(values, columns), 0
    correct: BoolArray = losses < 0 if values.ndim == 1 else values.argmax(axis=1) == columns
    return losses, clipped, correct


def clip_warning(clipped: int, records: int) -> tuple[str, ...]:
    """The sentence that goes with clipped losses, or nothing."""
    if not clipped:
        return ()
    return (
        f"{clipped} of {records} records have a probability that rounded to 0 or 1; their losses were clipped and the "
        "tail beyond is lost; pass a model that gives logits to keep the tail",
    )


def array_of(raw: Any) -> Array:
    """A model's answer as an array; tensors are fetched from their device."""
    if isinstance(raw, (tuple, dict)):
        raise InputError(
            f"the model returns a {type(raw).__name__}, not an array; wrap it in a function that returns the outputs "
            "alone, of shape (n,) or (n, classes)."
        )
    try:
        return np.asarray(fetched(raw))
    except Exception as error:
        reason = "the rows have mixed lengths" if isinstance(raw, list) else show(str(error))
        raise InputError(f"the model's outputs cannot be read as an array ({reason}); return an array.") from None


def shaped(raw: Any, rows: int, start: int) -> Array:
    """A batch of outputs as a finite array of `rows` rows, (n, 1) flattened; `start` numbers the records."""
    array = array_of(raw)
    if array.dtype.kind not in "biuf":
        raise InputError(f"the model's outputs must be numbers, got an array of type {array.dtype}; convert to float.")
    if array.ndim not in (1, 2) or 0 in array.shape or array.shape[0] != rows:
        raise InputError(
            f"the model's outputs have shape {array.shape} for {rows} record(s); it must return {rows} row(s), of "
            f"shape ({rows},) or ({rows}, classes)."
        )
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    _refuse(np.isfinite(array), start, "has an output that is NaN or infinite", "repair the model or these records")
    if array.ndim == 2 and array.dtype == np.float64:
        with np.errstate(over="ignore"):
            spread = array.max(axis=1) - array.min(axis=1)
        _refuse(np.isfinite(spread), start, "has outputs further apart than the largest float", "scale them down")
    return array


def checked(values: Array, kind: Kind, start: int) -> Array:
    """Outputs that are what `kind` says: probabilities in [0, 1] with rows that sum to 1."""
    if kind == "logits":
        return values
    if kind == "log-probabilities":
        if values.ndim == 1:
            raise InputError(
                "the model returns one log-probability for each record; return those of both classes, shape (n, 2), "
                "or the logit: one number loses the tail."
            )
        normal = _sums_to_one(np.exp(np.minimum(values, 1.0)))
        what = "has log-probabilities whose exponentials do not sum to 1"
        _refuse(normal, start, what, 'pass outputs="logits" if they are not normalised')
        return values
    _refuse(_in_unit(values), start, "has a probability outside [0, 1]", 'pass outputs="logits" if these are logits')
    if values.ndim == 2:
        what = "has probabilities that do not sum to 1"
        _refuse(_sums_to_one(values), start, what, "normalise the rows, or return logits")
    return values.clip(0, 1) if values.dtype.kind == "f" else values


def infer_kind(values: Array) -> tuple[Kind, str]:
    """What outputs of unstated kind are, with the reason."""
    unit = bool(_in_unit(values).all())
    if values.ndim == 1:
        if not unit:
            return "logits", "outputs taken for the logits of class 1, since some lie outside [0, 1]"
        return "probabilities", (
            'outputs taken for probabilities of class 1, since all lie in [0, 1]; pass outputs="logits" if they are not'
        )
    if not unit:
        return "logits", "outputs taken for logits, since some lie outside [0, 1]"
    normal = _sums_to_one(values)
    if normal.all():
        return "probabilities", "outputs taken for probabilities, since they lie in [0, 1] and the rows sum to 1"
    index = int(np.argmin(normal))
    raise InputError(
        f"the model's outputs lie in [0, 1] but do not sum to 1 (record {index}: {values[index].sum():.6g}); normalise "
        'the probabilities, or pass outputs="logits" if these are logits.'
    )


def _rounding(values: Array) -> float:
    return 8 * float(np.finfo(values.dtype).eps) if values.dtype.kind == "f" else 0.0


def _in_unit(values: Array) -> BoolArray:
    slack = max(_ROUNDING, _rounding(values))
    inside: BoolArray = (values >= -slack) & (values <= 1 + slack)
    return inside


def _sums_to_one(values: Array) -> BoolArray:
    near: BoolArray = np.abs(values.sum(axis=1, dtype=np.float64) - 1) <= max(_ROW_SUM_TOLERANCE, _rounding(values))
    return near


def columns_of(y: Array, classes: Sequence[Any] | None, count: int) -> IntArray:
    """The column of each label; `y` from `labels`, `count` the number of columns."""
    if classes is None:
        if y.dtype.kind == "U":
            raise InputError(
                f"labels[0] is {show(str(y[0]))}, but the model does not say which column that is; pass classes=, the "
                "label of each column, or labels that are column numbers."
            )
        good = (y >= 0) & (y < count)
        if not good.all():
            index = int(np.argmin(good))
            raise InputError(
                f"labels[{index}] is {y[index]}, outside the model's classes 0 to {count - 1}; pass classes=, the "
                "label of each column, if they have other names."
            )
        return y.astype(np.int64)
    if len(classes) != count:
        raise InputError(f"the model has {len(classes)} classes but {count} columns of outputs; they must agree.")
    known = {value: column for column, value in enumerate(classes)}
    unique, inverse = np.unique(y, return_inverse=True)
    columns = np.array([known.get(value, -1) for value in unique.tolist()], dtype=np.int64)[inverse]
    if columns.min() < 0:
        index = int(np.argmax(columns < 0))
        raise InputError(
            f"labels[{index}] is {show(y.tolist()[index])}, which is not one of the model's classes "
            f"({show(list(classes), 90)}); remove these records or correct the labels."
        )
    return columns


def _refuse(good: Any, start: int, what: str, remedy: str) -> None:
    """Refuse outputs of which a record is not good; counted over the batch at hand."""
    if not good.all():
        rows = good.reshape(good.shape[0], -1).all(axis=1)
        raise InputError(f"the model's answer for record {start + int(np.argmin(rows))} {what}; {remedy}.")


# --- the loss of Epsilon*: minus the log-odds of the true class; low means member --------------------------


def losses_from_logits(logits: Any, labels: Any) -> FloatArray:
    """Losses of records from a model's logits; no tail is lost.

    `logits` of shape (n,) are log-odds of class 1 and `labels` are 0 or 1; of shape (n, classes) they are the
    unnormalised log-probabilities of the classes. The loss is −(z_y − logsumexp of the other logits).
    """
    values, classes = _outputs("logits", logits)
    scores = values.astype(np.float64)
    truth = _labels(labels, scores.shape[0], classes)
    if scores.ndim == 1:
        return (1.0 - 2.0 * truth) * scores
    rows = np.arange(truth.size)
    own = scores[rows, truth]
    scores[rows, truth] = -np.inf
    peak = scores.max(axis=1)
    with np.errstate(over="ignore"):  # a gap beyond the largest float is refused below
        np.subtract(scores, peak[:, None], out=scores)
        loss: FloatArray = np.log(np.exp(scores, out=scores).sum(axis=1)) + (peak - own)
    _first_bad("logits", np.isfinite(loss), "gives a loss beyond the largest float", "scale the logits down")
    return loss


def losses_from_probabilities(probabilities: Any, labels: Any) -> tuple[FloatArray, int]:
    """Losses of records from a model's probabilities, and how many records were clipped.

    `probabilities` of shape (n,) are P[class 1]; of shape (n, classes) they have one row for each record. A probability
    of the true class (or of all the others together) below the distance between 1 and the next smaller number of the
    given dtype is raised to that distance: there 0 and 1 can no longer be told from their neighbours. Logits have no
    such limit; prefer `losses_from_logits`.
    """
    values, classes = _outputs("probabilities", probabilities)
    kind = values.dtype if values.dtype.kind == "f" else np.dtype(np.float64)
    given = values.astype(np.float64)
    truth = _labels(labels, given.shape[0], classes)
    inside: BoolArray = np.asarray(((given >= 0) & (given <= 1)).reshape(truth.size, -1).all(axis=1))
    _first_bad("probabilities", inside, "has a value outside [0, 1]", "pass probabilities, or use losses_from_logits")
    if given.ndim == 1:
        own, other = np.where(truth == 1, given, 1.0 - given), np.where(truth == 1, 1.0 - given, given)
    else:
        tolerance = max(_ROW_SUM_TOLERANCE, 8 * float(np.finfo(kind).eps))
        near = np.abs(given.sum(axis=1) - 1.0) <= tolerance
        _first_bad("probabilities", near, "does not sum to 1", "normalise the rows")
        rows = np.arange(truth.size)
        own = given[rows, truth]
        given[rows, truth] = 0.0
        other = given.sum(axis=1)  # not 1 − own, which rounds to 0 long before the sum does
    distance = float(np.finfo(kind).epsneg)
    clipped = int(np.count_nonzero((own < distance) | (other < distance)))
    loss: FloatArray = np.log(np.maximum(other, distance)) - np.log(np.maximum(own, distance))
    return loss, clipped


def _outputs(name: str, values: Any) -> tuple[npt.NDArray[Any], int]:
    """A model's outputs as a finite array of shape (n,) or (n, classes), and the number of classes."""
    try:
        array = np.asarray(values)
    except (ValueError, TypeError, OverflowError):
        raise InputError(f"{name} must be an array of numbers; its rows have mixed lengths.") from None
    if array.dtype.kind not in "biuf":
        raise InputError(f"{name} must hold numbers, got an array of type {array.dtype}; convert it to float first.")
    if array.ndim not in (1, 2) or 0 in array.shape:
        raise InputError(
            f"{name} must have shape (n,) or (n, classes), got {array.shape}; pass one row of outputs for each record."
        )
    if array.ndim == 2 and array.shape[1] == 1:
        raise InputError(f"{name} has shape {array.shape}; pass shape (n,) for a binary model: the output of class 1.")
    finite = np.isfinite(array).reshape(array.shape[0], -1).all(axis=1)
    _first_bad(name, finite, "is not finite", "remove or repair these records first")
    return array, 2 if array.ndim == 1 else array.shape[1]


def _labels(labels: Any, records: int, classes: int) -> IntArray:
    array = check.finite_array("labels", labels)
    if array.size != records:
        raise InputError(f"labels has {array.size} records but the outputs have {records}; they must pair up.")
    good = (array >= 0) & (array < classes) & (array == np.floor(array))
    if not good.all():
        index = int(np.argmin(good))
        raise InputError(
            f"labels[{index}] is {array[index]:g}; labels must be whole numbers from 0 to {classes - 1}, the classes."
        )
    return array.astype(np.int64)


def _first_bad(name: str, good: BoolArray, what: str, remedy: str) -> None:
    if not good.all():
        count = int(np.count_nonzero(~good))
        raise InputError(f"{name}[{int(np.argmin(good))}] {what} ({count} of {good.size} records); {remedy}.")


# --- the task: one class, a number, or several labels at once ---------------------------------------------


def task_of(model: Any, y: Array | None, asked: Any = None) -> Task:
    """Find out what a model predicts, from the model and from the type of its target.

    Args:
        model: Whatever `access` takes.
        y: The targets as `dosimeter.records.targets` gives them; None for a language model.
        asked: What the caller says it is; None to find out.

    Returns:
        The task.

    Raises:
        InputError: If model, target and what was said do not fit each other.

    >>> import numpy as np
    >>> task_of(lambda rows: rows[:, 0], np.array([0.5, 1.25]))
    'regression'
    """
    stated = None if asked is None else check.choice("task", asked, TASKS)
    if y is None:
        if stated not in (None, "classification"):
            raise InputError(f"task is {stated!r}, but there is no target; pass (X, y).")
        return "classification"
    shown = "multi-label" if y.ndim == 2 else "regression" if y.dtype.kind == "f" else None
    task = stated or shown or ("regression" if _predicts_numbers(model) else "classification")
    if (task == "multi-label") != (y.ndim == 2):
        raise InputError(
            f"the target has shape {y.shape}, and the task is {task}; several labels at once take a column of 0 and 1 "
            "for each label, everything else one value for each record."
        )
    if task == "regression":
        _refuse_for_regression(model, y)
    elif task == "classification" and y.dtype.kind == "f":
        at = int(np.argmax(y != np.floor(y)))
        raise InputError(f"labels[{at}] is {y[at]:g}; labels must be whole numbers or strings.")
    elif _predicts_numbers(model):
        raise InputError(
            f"{type(model).__name__} predicts numbers and is not a classifier; leave task out, or pass a classifier."
        )
    return cast(Task, task)


def _refuse_for_regression(model: Any, y: Array) -> None:
    if _is_classifier(model):
        at = int(np.argmax(y != np.floor(y))) if y.dtype.kind == "f" else 0
        raise InputError(
            f"{type(model).__name__} is a classifier, and a target such as {show(y[at].item())} is for a regression; "
            "pass class labels, or a model that predicts numbers."
        )
    if y.dtype.kind not in "iuf":
        raise InputError(
            f"labels[0] is {show(str(y[0]))}, and the model predicts numbers; pass a target of numbers, or a "
            "classifier."
        )


def _is_classifier(model: Any) -> bool:
    return any(hasattr(model, name) for name in ("classes_", "predict_proba", "decision_function"))


def _predicts_numbers(model: Any) -> bool:
    """Whether a model in the manner of scikit-learn has a `predict` and no classes; a function does not tell."""
    return hasattr(model, "predict") and not callable(model) and not _is_classifier(model)
