"""Classifiers in the manner of scikit-learn, known by their methods."""

from __future__ import annotations

from typing import Any

import numpy as np

from dosimeter._validate import InputError, show
from dosimeter.models.black_box import Batched
from dosimeter.models.outputs import Array, array_of

_MARGIN = (
    "the losses come from decision_function, a margin and not a probability: they rank records, but the scale "
    "of Epsilon* is the margin's"
)
_AGREEMENT = 1e-6


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
