"""The loss of Epsilon*: minus the log-odds that a model gives to the true class. Low means member."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dosimeter import _validate as check
from dosimeter._validate import BoolArray, FloatArray, InputError, IntArray

_ROW_SUM_TOLERANCE = 1e-3


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
