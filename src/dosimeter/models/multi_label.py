"""Models that give several labels at once: the loss is that of all labels together."""

from __future__ import annotations

from typing import Any

import numpy as np

from dosimeter._validate import FloatArray, InputError, show
from dosimeter.models.black_box import BlackBox, asked_by, in_batches
from dosimeter.models.outputs import KINDS, Array, Kind, Losses, Outputs, clip_warning
from dosimeter.records import count

__all__ = ["MultiLabel"]

SMALLEST = float(np.finfo(np.float64).epsneg)
LARGEST = 700.0  # a sum of cross-entropies whose exponential is still a float


class MultiLabel(BlackBox):
    """A model with a probability or a logit for each label, shape (n, labels).

    A scikit-learn estimator may give a list of arrays, one for each label. The loss is minus the log-odds of all true
    labels together: it ranks records as the sum of the labels' cross-entropies does.
    """

    def __init__(
        self, model: Any, *, batch_size: int | None = None, device: Any = None, outputs: Kind | None = None
    ) -> None:
        self.kind: Kind | None = outputs
        method = "decision_function" if not hasattr(model, "predict_proba") else "predict_proba"
        self.estimator = method if hasattr(model, method) else None
        if self.estimator is not None:
            self.kind = "logits" if self.estimator == "decision_function" else "probabilities"
        self.inner = asked_by(
            _LabelColumns(model, method) if self.estimator else model, batch_size=batch_size, device=device
        )

    def outputs(self, X: Any) -> Outputs:
        """Refuse: one row of outputs is not a distribution over classes."""
        raise InputError("several labels at once are not one class for each record; ask for losses.")

    def losses(self, X: Any, y: Any) -> Losses:
        """Losses of all labels together; an answer is right where every label is."""
        truth = np.asarray(y)
        losses, correct = np.empty(count(X)), np.empty(count(X), bool)
        inner, clipped = self.inner, 0
        for start, stop, values in in_batches(X, inner._ask, batch_size=inner.batch_size, expansion=inner.expansion):
            rows = truth[start:stop]
            if values.shape != rows.shape:
                raise InputError(
                    f"the model's outputs have shape {('n', *values.shape[1:])} for {rows.shape[1]} labels; return one "
                    "number for each label."
                )
            logits, more = self._logits(values)
            clipped += more
            losses[start:stop] = _joint(logits, rows)
            correct[start:stop] = ((logits > 0) == (rows == 1)).all(axis=1)
        return Losses(losses, clipped, self.kind or KINDS[0], clip_warning(clipped, losses.size), correct)

    def _logits(self, values: Array) -> tuple[FloatArray, int]:
        """The logit of each label, and in how many records a probability rounded to 0 or 1."""
        given = values.astype(np.float64)
        inside = bool(((given >= 0) & (given <= 1)).all())
        if self.kind is None:
            self.kind = "probabilities" if inside else "logits"
        if self.kind == "logits":
            return given, 0
        if self.kind != "probabilities" or not inside:
            raise InputError(
                f"the model's outputs must be {self.kind} of each label, got values from {given.min():g} to "
                f"{given.max():g}; pass outputs='logits' if these are logits."
            )
        kept = given.clip(SMALLEST, 1 - SMALLEST)
        return np.log(kept) - np.log1p(-kept), int((kept != given).any(axis=1).sum())


def _joint(logits: FloatArray, truth: Array) -> FloatArray:
    """Minus the log-odds that all labels are as they are: ln(e^S − 1), S the sum of the cross-entropies."""
    signed = np.where(truth == 1, logits, -logits)
    total = np.logaddexp(0.0, -signed).sum(axis=1)
    small = np.minimum(np.maximum(total, np.finfo(float).tiny), LARGEST)
    joint: FloatArray = np.where(total < LARGEST, np.log(np.expm1(small)), total)
    return joint


class _LabelColumns:
    """The probability of 1 for each label from an estimator, which may give one array for each label."""

    def __init__(self, model: Any, method: str) -> None:
        self.model, self.method = model, method

    def __call__(self, rows: Any) -> Any:
        answer = getattr(self.model, self.method)(rows)
        if not isinstance(answer, (list, tuple)):
            return answer
        classes = getattr(self.model, "classes_", None) or [None] * len(answer)
        return np.stack([self._of_one(*one) for one in zip(answer, classes, strict=True)], axis=1)

    def _of_one(self, answer: Any, classes: Any) -> Array:
        array = np.asarray(answer)
        if array.ndim == 1 or self.method == "decision_function":
            return array.reshape(len(array))
        known = [0, 1] if classes is None else np.asarray(classes).astype(int).tolist()
        if not set(known) <= {0, 1}:
            raise InputError(f"a label has the classes {show(known)}; several labels at once are 0 or 1 each.")
        return array[:, known.index(1)] if 1 in known else np.zeros(len(array))
