"""What a model is asked to predict: one class, a number, or several labels at once."""

from __future__ import annotations

from typing import Any, Literal, cast, get_args

import numpy as np

from dosimeter import _validate as check
from dosimeter._validate import InputError, show
from dosimeter.records import Array

__all__ = ["TASKS", "Task", "task_of"]

Task = Literal["classification", "regression", "multi-label"]
TASKS: tuple[Task, ...] = get_args(Task)


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
