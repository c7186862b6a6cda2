"""Attacks on one number: the signal itself (Yeom et al. 2018) or its excess over other models (Watson et al. 2022)."""

from __future__ import annotations

from typing import Any

import numpy as np

from dosimeter._validate import BoolArray, FloatArray, IntArray, labels_of, matrix
from dosimeter.attacks.signals import Array, Need, blocks, counts, read_signals, require_models

WATSON_NEED = Need(inside=0, outside=1)


def loss(target: Any, *, labels: Any = None) -> FloatArray:
    """Take the signal itself as the score: Yeom's attack, one threshold on the loss for all records.

    With `labels` there is one threshold for each class, at a common quantile level: a record's score is the share of
    the records of its class and model whose signal is lower, ties counted half, (rank − ½)/size in (0, 1). Classes that
    are harder as a whole then do not look like non-members; a class of few records has few levels.

    Args:
        target: Signals (n,) or (T, n) of the target models, high for a likely member.
        labels: The class of each record.

    Returns:
        Scores of the target's shape.

    Raises:
        InputError: If a signal is not finite, or the labels do not pair up with the records.

    >>> loss([0.1, 0.9, 3.0, 4.0], labels=[0, 0, 1, 1]).tolist()
    [0.25, 0.75, 0.25, 0.75]
    """
    signals = matrix("target", target)
    if labels is None:
        return signals.astype(np.float64)
    classes = labels_of(labels, signals.shape[-1])
    levels = np.stack([_levels(row, classes) for row in np.atleast_2d(signals)])
    return levels[0] if signals.ndim == 1 else levels


def _levels(signals: Array, classes: IntArray) -> FloatArray:
    order = np.lexsort((signals, classes))
    values, groups = signals[order], classes[order]
    fresh = np.concatenate(([True], groups[1:] != groups[:-1]))
    tied = np.cumsum(fresh | np.concatenate(([True], values[1:] != values[:-1]))) - 1
    first = np.flatnonzero(fresh)[groups]  # where the class begins; codes are 0, 1, … in order
    ends = np.cumsum(np.bincount(tied))
    middle = (ends + np.concatenate(([0], ends[:-1]))) / 2  # half-way through each group of ties
    levels = np.empty(signals.size)
    levels[order] = (middle[tied] - first) / np.bincount(classes)[groups]
    return levels


def watson(target: Any, shadows: Any, included: Any) -> FloatArray:
    """Subtract from the signal its mean over the shadow models that were trained without the record.

    Args:
        target: Signals (n,) or (T, n) of the target models, high for a likely member.
        shadows: Signals (K, n) of the shadow models for the same records.
        included: Booleans (K, n): which shadow model was trained on which record.

    Returns:
        Scores of the target's shape, high for a likely member.

    Raises:
        InputError: If the arrays do not fit together, or a record is in every shadow model.

    >>> watson([3.0, 1.0], [[1.0, 0.0], [2.0, 5.0]], [[False, False], [False, True]]).tolist()
    [1.5, 1.0]
    """
    signals = read_signals(target, shadows, included)
    outside = counts(signals.included)[1]
    require_models("watson", WATSON_NEED, *counts(signals.included))
    scores = np.empty((len(signals.target), outside.size))
    for part in blocks(outside.size, max(len(scores), len(signals.shadows))):
        _, mean = _outside(signals.shadows[:, part], signals.included[:, part], outside[part])
        np.subtract(signals.target[:, part], mean, out=scores[:, part])
    return signals.shaped(scores)


def watson_rotated(outputs: Array, included: BoolArray) -> FloatArray:
    """Watson's scores (K, n) with each model as the target once and the other K − 1 as its shadow models."""
    models, records = outputs.shape
    outside = counts(included)[1]
    scores = np.empty((models, records))
    for part in blocks(records, models):
        own = ~included[:, part]
        gaps, _ = _outside(outputs[:, part], included[:, part], outside[part])
        # x − (n m − x)/(n − 1) = (x − m) n/(n − 1) where the target is one of the n models without the record
        scores[:, part] = gaps * np.where(own, outside[part] / np.maximum(outside[part] - 1, 1), 1.0)
    return scores


def _outside(signals: Array, included: BoolArray, count: IntArray) -> tuple[FloatArray, FloatArray]:
    """Distances from the mean of the models without the record, and that mean."""
    pivot = signals[0].astype(np.float64)
    x = np.subtract(signals, pivot, dtype=np.float64)
    mean = np.einsum("kb,kb->b", x, (~included).astype(np.float64)) / np.maximum(count, 1)
    return x - mean, mean + pivot
