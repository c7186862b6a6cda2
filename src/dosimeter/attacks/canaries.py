"""Crafted records that a model can hardly learn without having seen them: challenge points for an audit."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dosimeter import _validate as check
from dosimeter._validate import FloatArray, InputError, IntArray, labels_of
from dosimeter.attacks.signals import Array, blocks

KINDS = ("corners", "marginals")
MOST_COLUMNS = 8192  # of ClipBKD: its matrix of products is that large squared
RIDGE = 1e-3


class Canaries(NamedTuple):
    """Hold features and labels of the canaries, and one sentence on what they are.

    Attributes:
        X: The features.
        y: The labels, or None.
        description: What they are.
    """

    X: Array
    y: Array | None
    description: str


def mislabelled(X: Any, y: Any, count: int, classes: Any, seed: int) -> Canaries:
    """Take different records of the data, each with a random label other than its own.

    Args:
        X: The records.
        y: Their labels.
        count: How many canaries.
        classes: The number of classes (labels 0, 1, …) or the list of labels.
        seed: Decides the records and labels.

    Returns:
        The canaries.

    Raises:
        InputError: If there are fewer records than canaries, or fewer than two classes.

    >>> canaries = mislabelled([[0.0], [1.0], [2.0]], [0, 1, 0], count=2, classes=2, seed=0)
    >>> canaries.X.ravel().tolist(), canaries.y.tolist()
    ([1.0, 2.0], [0, 1])
    """
    rows, labels = _records(X), _labels(y, len(X))
    values = _classes(classes, 2)
    codes = _codes(labels, values)
    wanted = check.whole("count", count, 1, f"pass at most the {len(rows)} records", len(rows))
    rng = np.random.default_rng(np.random.SeedSequence(check.seed(seed)))
    chosen = np.sort(rng.choice(len(rows), wanted, replace=False))
    wrong = (codes[chosen] + rng.integers(1, values.size, wanted)) % values.size
    return Canaries(
        rows[chosen].copy(),
        values[wrong],
        f"{wanted} records of the data, each with a random label that is not its own",
    )


def out_of_distribution(X: Any, count: int, seed: int, *, classes: Any = None, kind: str = "corners") -> Canaries:
    """Craft records unlike the data but within the range of every feature.

    Args:
        X: The records.
        count: How many canaries.
        seed: Decides the features and labels.
        classes: A number or a list, from which labels are drawn; without it there are none.
        kind: "corners": every feature is its smallest or its largest observed value, by a fair coin; an image becomes
            black-and-white noise. "marginals": every feature is that of a random record, drawn anew for each feature,
            so each alone looks right and only their dependence is gone.

    Returns:
        The canaries.

    Raises:
        InputError: If the records are not numbers, or an argument is out of range.

    >>> out_of_distribution([[0.0, 5.0], [1.0, 7.0]], count=2, seed=0).X.tolist()
    [[1.0, 5.0], [0.0, 5.0]]
    """
    rows = _records(X)
    check.choice("kind", kind, KINDS)
    wanted = check.whole("count", count, 1, "pass the number of canaries")
    rng = np.random.default_rng(np.random.SeedSequence(check.seed(seed)))
    flat = rows.reshape(len(rows), -1)
    if kind == "corners":
        crafted = np.where(rng.random((wanted, flat.shape[1])) < 0.5, flat.min(axis=0), flat.max(axis=0))
        what = "every feature at its smallest or largest value by a fair coin"
    else:
        crafted = flat[rng.integers(0, len(flat), (wanted, flat.shape[1])), np.arange(flat.shape[1])]
        what = "every feature from a random record, drawn anew for each feature"
    labels = None if classes is None else rng.choice(_classes(classes, 1), wanted)
    named = "no label" if classes is None else "a random label"
    return Canaries(
        crafted.reshape(wanted, *rows.shape[1:]).astype(rows.dtype),
        labels,
        f"{wanted} records with {what}, and {named}",
    )


def clip_bkd(X: Any, y: Any, count: int = 1, *, scale: float = 1.0) -> Canaries:
    """Craft copies of a point that clipping cannot weaken: ClipBKD (Jagielski, Ullman and Oprea 2020, Alg. 2).

    The point lies along the right singular vector of the data with the smallest singular value, so its gradient stands
    apart from all others. Its label is the one that a ridge regression on the data gives the least score, hence a wrong
    one. The sign of the vector makes its largest entry positive. Features may leave their observed range; they are
    floats.

    Args:
        X: The records.
        y: Their labels.
        count: How many copies.
        scale: The length of the point over that of the mean record.

    Returns:
        The canaries.

    Raises:
        InputError: If there are fewer than two classes, or the records hold only zeros.

    >>> clip_bkd([[3.0, 0.1], [-3.0, 0.1]], [0, 1]).X.round(1).tolist()
    [[0.0, 3.0]]
    """
    rows, labels = _records(X), _labels(y, len(X))
    wanted = check.whole("count", count, 1, "pass the number of copies")
    times = check.within("scale", scale, 0.0, np.inf, "pass a positive length, e.g. 1", include="()")
    values, codes = np.unique(labels, return_inverse=True)
    if values.size < 2:
        raise InputError(f"y holds only the label {values[0]}; a wrong label needs at least 2 classes.")
    sums = _sums(rows.reshape(len(rows), -1), codes, values.size)
    if sums.length == 0:
        raise InputError("X holds only zeros, so no direction and no length can be taken from it; pass other records.")
    point = times * sums.length * _least_direction(sums)
    label = values[int(np.argmin(_ridge_scores(sums, point)))]
    kept = rows.dtype if rows.dtype.kind == "f" else np.dtype(np.float64)
    repeated = np.repeat(point.reshape(1, *rows.shape[1:]), wanted, axis=0).astype(kept)
    return Canaries(
        repeated,
        np.full(wanted, label),
        f"{wanted} copies of one point along the direction in which the data varies least, {times:g} times as long as "
        "the mean record, with the label that a linear model holds least likely (ClipBKD)",
    )


class _Sums(NamedTuple):
    """Of the records: products (d, d), sums for each class (classes, d), how many of each, and the mean length."""

    products: FloatArray
    by_class: FloatArray
    sizes: FloatArray
    length: float


def _sums(flat: Array, codes: IntArray, classes: int) -> _Sums:
    """In blocks of records, so that no copy of the data is made."""
    columns = flat.shape[1]
    if columns > MOST_COLUMNS:
        raise InputError(f"X has {columns} features, above {MOST_COLUMNS}; reduce them first.")
    products, by_class, length = np.zeros((columns, columns)), np.zeros((classes, columns)), 0.0
    for part in blocks(len(flat), columns):
        rows = flat[part].astype(np.float64)
        products += rows.T @ rows
        by_class += (codes[part] == np.arange(classes)[:, None]).astype(np.float64) @ rows
        length += float(np.sqrt(np.einsum("nd,nd->n", rows, rows)).sum())
    return _Sums(products, by_class, np.bincount(codes, minlength=classes).astype(np.float64), length / len(flat))


def _least_direction(sums: _Sums) -> FloatArray:
    from scipy.linalg import eigh

    _, vectors = eigh(sums.products, subset_by_index=[0, 0])
    vector: FloatArray = vectors[:, 0]
    return vector * np.sign(vector[np.argmax(np.abs(vector))])


def _ridge_scores(sums: _Sums, point: FloatArray) -> FloatArray:
    """Scores of every class at the point, by least squares on one centred indicator for each class."""
    total = sums.sizes.sum()
    share, centre = sums.sizes / total, sums.by_class.sum(axis=0) / total
    products = sums.products - total * np.outer(centre, centre)
    products[np.diag_indices_from(products)] += RIDGE * max(float(np.trace(products)) / len(products), 1e-12)
    weights = np.linalg.solve(products, (sums.by_class - sums.sizes[:, None] * centre).T)
    result: FloatArray = share + (point - centre) @ weights
    return result


def _records(X: Any) -> Array:
    try:
        rows = np.asarray(X)
    except (ValueError, TypeError):
        raise InputError("X must be an array of records; its rows have mixed lengths.") from None
    if rows.ndim < 2 or rows.size == 0 or rows.dtype.kind not in "biuf":
        raise InputError(
            f"X must hold numbers in one row for each record, got shape {rows.shape} of type {rows.dtype}; reshape or "
            "encode it."
        )
    if rows.dtype.kind == "f" and not np.isfinite(rows).all():
        index = tuple(int(i) for i in np.argwhere(~np.isfinite(rows))[0])
        raise InputError(f"X{list(index)} is {rows[index]}; repair or remove record {index[0]}.")
    return rows


def _labels(y: Any, records: int) -> Array:
    labels_of(y, records, "y")
    return np.asarray(y)


def _classes(classes: Any, fewest: int) -> Array:
    if np.ndim(classes) == 0:
        return np.arange(check.whole("classes", classes, fewest, "pass the number of classes"))
    values = np.unique(np.asarray(classes))
    if values.size < fewest:
        raise InputError(f"classes has {values.size} label(s), fewer than {fewest}; name all labels.")
    return values


def _codes(labels: Array, values: Array) -> IntArray:
    codes = np.minimum(np.searchsorted(values, labels), values.size - 1)
    unknown = values[codes] != labels
    if unknown.any():
        index = int(np.argmax(unknown))
        raise InputError(f"y[{index}] is {labels[index]}, which is not among the {values.size} classes; add it.")
    return codes.astype(np.int64)
