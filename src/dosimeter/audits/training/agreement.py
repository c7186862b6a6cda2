"""Whether the outputs of a training belong to its records: in another order they fit the labels by chance alone."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import log_softmax
from scipy.stats import rankdata

from dosimeter._validate import IntArray

FEWEST_MEMBERS = 16  # fewer can hardly tell right answers from shuffled ones
MOST_MEMBERS = 5000  # evenly spread; more would only cost time
BY_CHANCE = 3.0  # standard deviations; shuffled answers reach it about once in 700 times


def agreement(outputs: npt.NDArray[Any], labels: IntArray) -> float | None:
    """Say by how many standard deviations outputs fit their labels better than shuffled ones; None if too few.

    Outputs are (n,) or (n, 1) for class 1 of two, or (n, classes). Each class ranks the records by its own column, and
    a record counts with its rank in the column of its label; mean and variance of the sum over all orders of the labels
    are those of Hoeffding (1951). Only the order within a column counts, so a model that always answers with the most
    frequent class, but with less certainty where it is wrong, agrees too.
    """
    step = max(1, -(-len(outputs) // MOST_MEMBERS))
    outputs, labels = outputs[::step], labels[::step]
    count = len(outputs)
    if count < FEWEST_MEMBERS:
        return None
    if outputs.ndim == 2 and outputs.shape[1] == 1:
        outputs = outputs[:, 0]
    columns = np.stack([-outputs, outputs], axis=1) if outputs.ndim == 1 else outputs
    if outputs.ndim == 2 and (columns.min() < 0 or columns.max() > 1):
        columns = log_softmax(columns.astype(np.float64), axis=1)
    ranks = rankdata(columns, axis=0)
    shares = np.bincount(labels, minlength=ranks.shape[1]) / count
    deviations = ranks - (ranks @ shares)[:, None]
    variance = count / (count - 1) * float((deviations**2 @ shares).sum())
    if variance <= 0:
        return 0.0  # all records have the same outputs, or all the same label
    total = float(ranks[np.arange(count), labels].sum())
    return (total - count * (count + 1) / 2) / math.sqrt(variance)
