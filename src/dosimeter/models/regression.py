"""Models that predict a number: residuals, and the squared residual as the loss."""

from __future__ import annotations

from typing import Any

import numpy as np

from dosimeter._validate import FloatArray, InputError
from dosimeter.models.black_box import BlackBox, asked_by, in_batches
from dosimeter.models.outputs import Losses, Outputs
from dosimeter.records import count

__all__ = ["Predictions", "standardised"]

BINS = 10
FEWEST_BINNED = 200  # records; fewer are standardised by one size
SMALLEST = 1e-12  # of the mean squared residual, so that no size is 0


class Predictions(BlackBox):
    """A model that gives one number for each record: a regressor, a module, an .onnx file or a function."""

    def __init__(self, model: Any, *, batch_size: int | None = None, device: Any = None) -> None:
        self.inner = asked_by(model, "predict", batch_size=batch_size, device=device)

    def outputs(self, X: Any) -> Outputs:
        """Refuse: numbers are neither logits nor probabilities."""
        raise InputError("a regression gives numbers, not outputs of classes; ask for losses.")

    def predictions(self, X: Any) -> FloatArray:
        """The number that the model predicts for each record."""
        found = np.empty(count(X))
        inner = self.inner
        for start, stop, values in in_batches(X, inner._ask, batch_size=inner.batch_size, expansion=inner.expansion):
            if values.ndim != 1:
                raise InputError(
                    f"the model predicts {values.shape[1]} numbers for each record, and the target is one; audit one "
                    "target at a time, with a function that returns its predictions."
                )
            found[start:stop] = values
        return found

    def losses(self, X: Any, y: Any) -> Losses:
        """Squared residuals, and the residuals themselves."""
        residuals = np.asarray(y, np.float64) - self.predictions(X)
        with np.errstate(over="ignore"):
            squared = residuals**2
        if not np.isfinite(squared).all():
            raise InputError("the model predicts numbers further from the target than floats can square; scale them.")
        return Losses(squared, 0, "predictions", signals=residuals)


def standardised(residuals: FloatArray, predictions: FloatArray) -> FloatArray:
    """Squared residuals in units of what is usual where predictions are alike.

    The usual size is the mean square in each tenth of the predictions. It is taken over all records, members or not, so
    it tells nothing about who is one.
    """
    squared = residuals**2
    if not squared.any():
        return squared
    bins = BINS if squared.size >= FEWEST_BINNED else 1
    edges = np.quantile(predictions, np.arange(1, bins) / bins)
    place = np.searchsorted(edges, predictions)
    size = np.bincount(place, squared, bins) / np.maximum(np.bincount(place, minlength=bins), 1)
    usual: FloatArray = np.maximum(size, SMALLEST * squared.mean())[place]
    return squared / usual
