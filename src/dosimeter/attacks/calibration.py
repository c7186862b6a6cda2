"""Calibration without other models: how far a signal lies above those of similar records.

The idea of quantile regression (Bertran et al. 2023) and of difficulty calibration (Watson et al. 2022), for somebody
who has one model and no known non-members: what is usual for a record is learned from all records of the pool, members
and others alike, without knowing which are which. So a score is a function of the model's answers and of the records,
never of the coins or of the split, and every bound on such scores holds as it does for the signals themselves.

Rows with the same features and class fall into the same fold, and rows are sorted by their content first: two copies
of a record with one signal get one score, wherever they stood. Otherwise the place of a copy would tell its side.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from dosimeter import _validate as check
from dosimeter._validate import FloatArray, InputError, IntArray, labels_of, matrix
from dosimeter.engine.threads import one_thread
from dosimeter.estimators.limits import average_ranks

WAYS = ("quantile", "neighbours", "class")
FEWEST = 200  # records: with fewer, trees and neighbours say little of what is usual
FOLDS = 3
MOST_FITTED = 20_000  # records that the trees, or the neighbours, of one fold are taken from
MOST_COLUMNS = 64
NEIGHBOURS = 20
ITSELF = 4.0  # weight of the signal beside its excess, see `calibrated`


def calibrated(target: Any, features: Any, *, labels: Any = None, by: str = "quantile") -> FloatArray:
    """Score records by the signal and by how far it exceeds what is usual for such records.

    Both are put on one scale by their ranks, and the signal counts four times: a record that a model gets badly wrong
    is hardly a member, however hard such records are. What is usual is learned from the other records, whoever they
    are:

    - "quantile": the median that boosted trees predict from features and class, fitted on other folds.
    - "neighbours": the mean over the 20 nearest records of the class.
    - "class": the median of the class.

    Of more than 64 features those are taken that go with the signal most.

    Args:
        target: Signals (n,) of the target model, high for a likely member.
        features: Features (n, d) of the records; NaN is a missing value.
        labels: The class of each record.
        by: "quantile", "neighbours" or "class".

    Returns:
        Scores (n,), high for a likely member.

    Raises:
        InputError: If arrays do not pair up, or there are fewer than 200 records.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> hard, member = rng.normal(size=1000), np.arange(1000) < 500
    >>> scores = calibrated(3 * hard + member + rng.normal(size=1000), hard)
    >>> bool(scores[member].mean() > scores[~member].mean() + 0.5)
    True
    """
    signals = matrix("target", target, dimensions=(1,)).astype(np.float64)
    inputs = _features(features, signals.size)
    classes = np.zeros(signals.size, np.int64) if labels is None else labels_of(labels, signals.size)
    way = check.choice("by", by, WAYS)
    if signals.size < FEWEST:
        raise InputError(f"target holds {signals.size} records, and what is usual takes {FEWEST}; use the signal.")
    inputs = _telling(inputs, signals)
    same = _copies(inputs, classes)
    order = np.lexsort((signals, same))
    usual = np.empty(signals.size)
    if way == "class":
        usual = _of_class(signals, classes, most=int(classes.max()))[classes]
    else:
        learn = _by_trees if way == "quantile" else _by_neighbours
        usual[order] = learn(signals[order], inputs[order], classes[order], same[order])
    return ITSELF * normal_scores(signals) + normal_scores(signals - usual)


def normal_scores(values: FloatArray) -> FloatArray:
    """The quantiles of a standard normal at the ranks of the values; equal values get equal ones."""
    return np.asarray(ndtri((average_ranks(values) - 0.5) / values.size), np.float64)


def _features(features: Any, records: int) -> FloatArray:
    try:
        array = np.asarray(features, np.float64)
    except (ValueError, TypeError):
        raise InputError("features must be a table of numbers, NaN where one is missing; encode its columns.") from None
    array = array[:, None] if array.ndim == 1 else array
    if array.ndim != 2 or len(array) != records:
        raise InputError(f"features has shape {array.shape} for {records} signals; pass one row for each.")
    if np.isinf(array).any():
        raise InputError("features holds an infinite value; repair it, or write NaN for a missing one.")
    return array + 0.0  # one zero, not two


def _copies(inputs: FloatArray, classes: IntArray) -> IntArray:
    """A number for each record that records of the same content share, in an order of their content."""
    rows = np.ascontiguousarray(np.column_stack([classes, inputs]))
    content: npt.NDArray[Any] = rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1]))).reshape(-1)
    return np.unique(content, return_inverse=True)[1].reshape(-1).astype(np.int64)


def _of_class(signals: FloatArray, classes: IntArray, most: int) -> FloatArray:
    """The median of each class, that of all records where a class has none."""
    medians = np.full(most + 1, np.median(signals))
    order = np.argsort(classes, kind="stable")
    found, starts = np.unique(classes[order], return_index=True)
    for one, values in zip(found, np.split(signals[order], starts[1:]), strict=True):
        medians[one] = np.median(values)
    return medians


def _by_trees(signals: FloatArray, inputs: FloatArray, classes: IntArray, same: IntArray) -> FloatArray:
    """The median that trees fitted on the other folds predict for each record."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    fold = same % FOLDS
    every = max(1, -(-signals.size // MOST_FITTED))
    usual = np.empty(signals.size)
    for held in range(FOLDS):
        fitted = (fold != held) & (same // FOLDS % every == 0)
        inside = fold == held
        if not inside.any():
            continue
        if not fitted.any():
            usual[inside] = np.median(signals)
            continue
        trees = HistGradientBoostingRegressor(
            loss="absolute_error",  # the median, of a leaf too; asked for as a quantile it takes longer
            max_iter=60,
            max_leaf_nodes=15,
            max_bins=63,
            early_stopping=False,
            random_state=0,
        )
        medians = _of_class(signals[fitted], classes[fitted], most=int(classes.max()))
        seen = np.column_stack([inputs, medians[classes]])  # easy classes are parted from hard ones at one cut
        with one_thread():
            usual[inside] = trees.fit(seen[fitted], signals[fitted]).predict(seen[inside])
    return usual


def _telling(inputs: FloatArray, signals: FloatArray) -> FloatArray:
    """The columns that go with the signal most, where there are many."""
    if inputs.shape[1] <= MOST_COLUMNS:
        return inputs
    known = _standardised(inputs)
    together = np.abs((signals - signals.mean()) @ known)
    together = np.round(together / max(together.max(), 1e-300), 9)  # the order of the rows must not decide
    return inputs[:, np.sort(np.argsort(-together, kind="stable")[:MOST_COLUMNS])]


def _by_neighbours(signals: FloatArray, inputs: FloatArray, classes: IntArray, same: IntArray) -> FloatArray:
    """The mean signal of the nearest other records of the class."""
    from sklearn.neighbors import NearestNeighbors

    known = _standardised(inputs)
    every = max(1, -(-signals.size // MOST_FITTED))
    usual = np.empty(signals.size)
    for one in range(int(classes.max()) + 1):
        own = np.flatnonzero(classes == one)
        asked = own[same[own] % every == 0] if own.size > MOST_FITTED else own
        if asked.size < 2:
            usual[own] = np.median(signals)
            continue
        count = min(NEIGHBOURS, asked.size - 1)
        near = NearestNeighbors(n_neighbors=count + 1).fit(known[asked]).kneighbors(known[own], return_distance=False)
        around = signals[asked][near]
        itself = np.isin(own, asked)  # or a copy of it
        usual[own] = np.where(itself, (around.sum(axis=1) - signals[own]) / count, around.mean(axis=1))
    return usual


def _standardised(inputs: FloatArray) -> FloatArray:
    """Columns of mean 0 and deviation 1 where they are known, 0 where a value is missing."""
    known = ~np.isnan(inputs)
    count = np.maximum(known.sum(axis=0), 1)
    apart = np.where(known, inputs - np.where(known, inputs, 0.0).sum(axis=0) / count, 0.0)
    spread = np.sqrt((apart**2).sum(axis=0) / count)
    return np.asarray(apart / np.where(spread > 0, spread, 1.0))
