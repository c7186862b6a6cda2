"""Models that give labels alone: whether the answer is right, and whether it stays right as the record is perturbed.

Choquette-Choo, Tramèr, Carlini and Papernot, "Label-only membership inference attacks" (2021). They score a record by
how far around it the right answer reaches. That suits images. In a table it mostly finds records that are easy anyway:
there a right answer that the records around do not share is the memorised one. This score was chosen on over-fitted
trees, forests and boosting, where it proved more in most cases; on eight fresh splits, a forest and a tree on four
data sets, it proves ε of 1.9 to 4.7 (`bench/calibration.py --labels`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dosimeter._validate import BoolArray, FloatArray, InputError, show
from dosimeter.models.black_box import Batched, BlackBox, Function, asked_by, in_batches
from dosimeter.models.outputs import Array, Losses, Outputs, infer_kind
from dosimeter.models.perturbation import Perturbation
from dosimeter.records import count, fetched, labels

__all__ = ["HardLabels"]


class HardLabels(BlackBox):
    """A model that is asked for labels, `queries` times for each record: once as it is, then perturbed.

    The stability of a record is the log-odds of the share of right answers, in which the record itself weighs as much
    as all its perturbed copies together: it is above 0 where the record itself is answered right. Attacks with
    references compare it. The loss is minus the stability for images; for rows of a table the copies count the other
    way round.
    """

    def __init__(
        self,
        model: Any,
        perturbation: Perturbation | None,
        *,
        queries: int = 1,
        batch_size: int | None = None,
        device: Any = None,
    ) -> None:
        self.inner: Batched = asked_by(model, "predict", batch_size=batch_size, device=device)
        self.perturbation, self.queries = perturbation, queries

    def outputs(self, X: Any) -> Outputs:
        """Refuse: there are no scores to see."""
        raise InputError("only labels are asked of this model; ask for losses.")

    def losses(self, X: Any, y: Any) -> Losses:
        """Losses from labels alone."""
        truth = labels(y, count(X))
        right = self._right(X, truth)
        copies = self.queries - 1
        kept: FloatArray = np.zeros(truth.size)
        for number in range(copies):
            assert self.perturbation is not None
            kept += self._right(self.perturbation.copy(X, number, copies), truth)
        stability = _log_odds(right, kept, copies)
        calibrated = self.perturbation is not None and self.perturbation.table
        values = -(_log_odds(right, copies - kept, copies) if calibrated else stability)
        return Losses(values, 0, "labels", correct=right, signals=stability)

    def _right(self, X: Any, truth: Array) -> BoolArray:
        found = np.empty(truth.size, bool)
        inner = self.inner
        for start, stop, answers in in_batches(X, self._ask, batch_size=inner.batch_size, expansion=inner.expansion):
            found[start:stop] = answers == truth[start:stop]
            if start == 0 and answers.dtype.kind != truth.dtype.kind:
                raise InputError(
                    f"the model answers {show(answers[0].item())} where the labels are such as "
                    f"{show(truth[0].item())}; pass labels of the kind that the model gives."
                )
        return found

    def _ask(self, rows: Any, start: int, stop: int) -> Array:
        inner = self.inner
        try:
            raw = np.asarray(fetched(inner._predict(rows)))
        except (InputError, ImportError, MemoryError):
            raise
        except Exception as error:
            raise InputError(
                f"the model failed on records {start} to {stop - 1} ({type(error).__name__}: {show(str(error), 160)}); "
                "check that it is fitted and takes records of this shape and type."
            ) from error
        if raw.ndim == 2 and raw.shape[1] > 1:  # scores: the label is the highest one
            names = inner.classes or tuple(range(raw.shape[1]))
            raw = np.asarray(names)[raw.argmax(axis=1)]
        elif raw.dtype.kind == "f" and not isinstance(inner, Function):  # one score for each record, of class 1
            raw = raw.reshape(-1) > (0.5 if infer_kind(raw.reshape(-1))[0] == "probabilities" else 0.0)
        elif raw.dtype.kind == "f" and (raw != np.floor(raw)).any():
            wrong = raw[raw != np.floor(raw)][0]
            raise InputError(
                f"the model answers {wrong:g}, which is not a label; pass a model that gives labels, or leave "
                "outputs='labels' out."
            )
        return labels(raw, stop - start)


def _log_odds(right: BoolArray, copies_for: FloatArray, copies: int) -> FloatArray:
    """Log-odds of the share of answers that speak for a member, the record itself weighing as much as all copies."""
    weight = max(copies, 1)
    share = (weight * right + copies_for + 0.5) / (weight + copies + 1)
    odds: FloatArray = np.log(share) - np.log1p(-share)
    return odds
