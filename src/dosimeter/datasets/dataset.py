"""A data set as an audit needs it: records, labels, names, where it came from, and a fingerprint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from dosimeter import _validate as check
from dosimeter._validate import InputError, IntArray, show
from dosimeter.evidence import fair_coins
from dosimeter.records import fingerprint, take

Array: TypeAlias = npt.NDArray[Any]
Task: TypeAlias = Literal["tabular", "image", "text", "language"]
Pair: TypeAlias = tuple[Array, Array | None]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Records X (one row for each) and labels y (whole numbers that point into `class_names`).

    X is float32 for tables and images, and an array of strings for texts; y is None for language modelling.
    `raw` has what the source says of each record beside that (the columns before encoding, the source's own split),
    one entry for each record. `fingerprint` is the SHA-256 of X and y. All arrays are read-only.
    """

    name: str
    X: Array = field(repr=False)
    y: Array | None = field(repr=False)
    feature_names: tuple[str, ...] = field(repr=False)
    class_names: tuple[str, ...] = field(repr=False)
    source: str
    fingerprint: str
    task: Task
    raw: Mapping[str, Array] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        for values in (self.X, self.y, *(self.raw or {}).values()):
            if values is not None:
                if len(values) != len(self.X):
                    raise InputError(f"{self.name}: {len(values)} values for {len(self.X)} records; they must pair up.")
                values.flags.writeable = False
        if self.raw is not None:
            object.__setattr__(self, "raw", MappingProxyType(dict(self.raw)))

    def __reduce__(self) -> tuple[Any, ...]:
        raw = None if self.raw is None else dict(self.raw)
        names = (self.feature_names, self.class_names, self.source, self.fingerprint, self.task)
        return Dataset, (self.name, self.X, self.y, *names, raw)

    def __len__(self) -> int:
        return len(self.X)

    @property
    def pair(self) -> Pair:
        """(X, y), as audits and models take it."""
        return self.X, self.y

    def take(self, rows: Any) -> Dataset:
        """The records with these row numbers (or where this mask is True), in this order."""
        index = np.asarray(rows)
        if index.dtype == bool and index.shape == (len(self),):
            index = np.flatnonzero(index)
        if index.ndim != 1 or index.dtype.kind not in "iu" or index.size == 0:
            raise InputError(f"rows must be a flat list of row numbers or a mask of all rows, got {show(rows)}.")
        outside = (index < 0) | (index >= len(self))
        if outside.any():
            wrong = int(index[np.argmax(outside)])
            raise InputError(f"rows holds {wrong}, and {self.name} has rows 0 to {len(self) - 1}; take others.")
        X, y, raw = take(self.X, index), take(self.y, index), take(self.raw, index)
        return replace(self, X=X, y=y, raw=raw, fingerprint=fingerprint(X, y))


def split(dataset: Dataset, *, sizes: Sequence[int], seed: int) -> tuple[Dataset, ...]:
    """Draw disjoint parts of a data set at random, without replacement.

    The first part does not depend on how many parts follow.

    Args:
        dataset: The data set.
        sizes: The number of records in each part.
        seed: Decides the parts.

    Returns:
        The parts.

    Raises:
        InputError: If the sizes are not positive, or exceed the data set together.

    >>> from dosimeter.datasets import load
    >>> [len(part) for part in split(load("wine"), sizes=(100, 50), seed=0)]
    [100, 50]
    """
    _checked(dataset)
    if isinstance(sizes, (str, bytes)) or not isinstance(sizes, Sequence) or not sizes:
        raise InputError(f"sizes must be the sizes of the parts, got {show(sizes)}; pass e.g. (1000, 500).")
    counts = [check.whole(f"sizes[{i}]", size, 1, "pass a number of records") for i, size in enumerate(sizes)]
    if sum(counts) > len(dataset):
        raise InputError(
            f"sizes add up to {sum(counts)} but {dataset.name} has {len(dataset)} records; pass smaller sizes."
        )
    return tuple(dataset.take(rows) for rows in split_rows(len(dataset), counts, seed))


def split_rows(records: int, sizes: Sequence[int], seed: int) -> tuple[IntArray, ...]:
    """The row numbers of the parts that `split` draws, in the order in which they were drawn."""
    order: IntArray = _generator(seed).permutation(records)
    return tuple(order[end - size : end] for size, end in zip(sizes, np.cumsum(sizes), strict=True))


def half(dataset: Dataset, *, seed: int) -> tuple[Pair, Pair]:
    """Divide a data set into members and non-members: each record is a member by its own fair coin.

    The coins are `dosimeter.fair_coins(len(dataset), seed)`, so the mask can be drawn again from the seed alone.

    Args:
        dataset: The data set.
        seed: Decides the coins.

    Returns:
        Members and non-members, as pairs (X, y).

    Raises:
        InputError: If all records fall on one side.

    >>> from dosimeter.datasets import load
    >>> members, nonmembers = half(load("wine"), seed=0)
    >>> len(members[0]) + len(nonmembers[0])
    178
    """
    _checked(dataset)
    member = fair_coins(len(dataset), seed)
    if member.all() or not member.any():
        raise InputError(
            f"the coins of seed {seed} put all {len(dataset)} records on one side; pass another seed or more records."
        )
    X, y = dataset.pair
    return (X[member], None if y is None else y[member]), (X[~member], None if y is None else y[~member])


def _checked(dataset: object) -> None:
    if not isinstance(dataset, Dataset):
        raise InputError(f"dataset must be a Dataset, got {show(dataset)}; pass what dosimeter.datasets.load returns.")


def _generator(seed: int) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence(check.seed(seed)))
