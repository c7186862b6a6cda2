"""Records in files, in datasets of torch, and as a tokenizer gives them."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from dosimeter._progress import Progress
from dosimeter._validate import InputError, IntArray, show
from dosimeter.columns import listed, pick, read_columns
from dosimeter.records.reader import Array, fetched, labels

LABEL_COLUMNS = ("label", "y", "target", "class")
MOST_WORDS = 100  # of a column, each of which becomes a column of numbers
_LOOK = 1000  # items of a torch dataset between two looks at the clock


def file_labels(path: str | os.PathLike[str], *, label: str | None = None) -> Array:
    """The labels of a file that `dataset` could take, in its order; what the records are does not matter."""
    columns, _, target = _columns(path, label, missing=True)
    return labels(columns[target], len(columns[target]))


def _columns(
    path: str | os.PathLike[str], label: str | None, *, missing: bool = False
) -> tuple[dict[str, Array], list[str], str]:
    """The arrays of a file, the names of those with features, and the name of the one with labels."""
    columns = read_columns(path, missing=missing)
    if str(path).lower().endswith(".npz"):
        if label is not None:
            raise InputError(f"label names a column of a table, and {path} is an .npz file; leave it out.")
        features, target = pick(columns, path, ("X", "y"), ("x", "y"), ("features", "labels"))
        return columns, [features], target
    names = [name for name in ((label,) if label is not None else LABEL_COLUMNS) if name in columns]
    if len(names) != 1:
        found = "several of them" if names else f"only {show(list(columns), 90)}"
        raise InputError(
            f"{path} must have one label column ({label or ', '.join(LABEL_COLUMNS)}) and has {found}; name it with "
            "--label (in Python, label=…)."
        )
    if len(columns) == 1:
        raise InputError(f"{path} has a label column and no other; add the feature columns.")
    if columns[names[0]].size == 0:
        raise InputError(f"{path} has a header and no record; write it again.")
    return columns, [name for name in columns if name != names[0]], names[0]


def from_file(path: str | os.PathLike[str], label: str | None) -> tuple[Any, Any]:
    """X and y of a file."""
    columns, features, target = _columns(path, label)
    if str(path).lower().endswith(".npz"):
        return columns[features[0]], columns[target]
    words = [name for name in features if columns[name].dtype.kind not in "biuf"]
    if words:
        raise InputError(f"{path} has columns that are not numbers: {show(words, 120)}; encode or remove them.")
    return np.stack([columns[name].astype(np.float64) for name in features], axis=1), columns[target]


class NumericTable(NamedTuple):
    """A table as numbers, its labels, the names of its columns, and what became of words and gaps."""

    X: Array
    y: Array
    columns: tuple[str, ...]
    note: str


def numeric_table(path: str | os.PathLike[str], label: str | None = None) -> NumericTable:
    """Read a table for models of numbers: a column of 0 and 1 for each word; gaps get the median and are marked.

    Neither labels nor who is a member have a part in it: every record is coded the same way.

    Raises:
        InputError: If a column has more than MOST_WORDS different words, or the file cannot be read.
    """
    columns, features, target = _columns(path, label, missing=True)
    coded: dict[str, Array] = {}
    words, gaps = [], []
    for name in features:
        values = columns[name]
        if values.dtype.kind not in "biuf":
            coded.update(_one_for_each_word(path, name, values))
            words.append(name)
            continue
        numbers = values.astype(np.float64)
        absent = np.isnan(numbers)
        coded[name] = np.where(absent, np.median(numbers[~absent]) if not absent.all() else 0.0, numbers)
        if absent.any():
            coded[f"{name} is missing"] = absent.astype(np.float64)
            gaps.append(name)
    found = [f"{listed(words)} as a column of 0 and 1 for each word"] * bool(words)
    found += [f"gaps of {listed(gaps)} filled with the median, and marked"] * bool(gaps)
    X = np.stack(list(coded.values()), axis=1)
    return NumericTable(X, labels(columns[target], len(X)), tuple(coded), "; ".join(found))


def _one_for_each_word(path: str | os.PathLike[str], name: str, values: Array) -> dict[str, Array]:
    """A column for each word; one is enough where there are two, and a gap is a word like others."""
    names = np.array(["" if value is None else str(value) for value in values.tolist()])
    known, codes = np.unique(names, return_inverse=True)
    if known.size > MOST_WORDS:
        raise InputError(
            f"{path} has {known.size} different words in the column {show(name)}, and at most {MOST_WORDS} become "
            "columns of numbers; leave the column out, or put fewer words in it."
        )
    chosen = range(1, 2) if known.size == 2 else range(known.size)
    return {f"{name} is {known[at] or 'missing'}": (codes == at).astype(np.float64) for at in chosen}


def unmasked(encoding: Mapping[str, Any]) -> list[IntArray]:
    """The token rows of a tokenizer's output, without what its attention mask leaves out."""
    if "input_ids" not in encoding:
        raise InputError(f"X is a mapping without input_ids, got {show(list(encoding))}; pass a tokenizer's output.")
    ids = [np.asarray(fetched(row)) for row in fetched(encoding["input_ids"])]
    if any(row.ndim != 1 for row in ids):
        raise InputError("input_ids must hold a row for each text; pass the tokenizer a list of texts.")
    if "attention_mask" not in encoding:
        return ids
    masks = [np.asarray(fetched(row)).astype(bool) for row in fetched(encoding["attention_mask"])]
    if [mask.shape for mask in masks] != [row.shape for row in ids]:
        raise InputError("attention_mask has another shape than input_ids; pass the tokenizer's output as it is.")
    return [row[mask] for row, mask in zip(ids, masks, strict=True)]


def ragged(X: Any) -> list[Array]:
    """Token arrays of different lengths."""
    try:
        rows = [np.asarray(fetched(row)) for row in X]
    except (ValueError, TypeError, OverflowError):
        rows = []
    good = [row.ndim == 1 and row.dtype.kind in "iu" for row in rows]
    if not good or not all(good):
        at = good.index(False) if good else 0
        raise InputError(
            f"X[{at}] is neither a row of numbers nor of tokens; rows of mixed length must be token numbers."
        )
    return rows


# --- records of torch: a `Dataset` of pairs, or a `DataLoader` of one -------------------------------------
def unwrapped(data: Any) -> Any:
    """The dataset of a `DataLoader`; a dataset as it is.

    A loader may shuffle. The records are then still those of the dataset in its own order, since rows and persons are
    named by it. A loader that takes only some of them, or makes something else of them, is refused.
    """
    tools: Any = sys.modules["torch"].utils.data
    if not isinstance(data, tools.DataLoader):
        return data
    held = data.dataset
    if isinstance(held, tools.IterableDataset):
        raise InputError("the DataLoader reads an IterableDataset, which has no rows; pass arrays (X, y).")
    sampler = data.sampler
    whole = isinstance(sampler, tools.SequentialSampler) or (
        isinstance(sampler, tools.RandomSampler) and not sampler.replacement and sampler.num_samples == len(held)
    )
    if not whole or (data.batch_sampler is not None and type(data.batch_sampler) is not tools.BatchSampler):
        raise InputError(
            "the DataLoader has a sampler of its own, so which records it takes is not known; pass a Dataset, e.g. "
            "torch.utils.data.Subset(dataset, rows)."
        )
    if data.collate_fn not in (tools.default_collate, tools.default_convert):
        raise InputError(
            "the DataLoader has a collate_fn of its own, which makes something else of the records; pass a Dataset "
            "whose items are pairs (x, y)."
        )
    return held


def _length(data: Any) -> int:
    try:
        return len(data)
    except Exception as error:
        raise InputError(f"the dataset has no length ({type(error).__name__}); pass arrays (X, y).") from None


def from_items(data: Any) -> tuple[Any, Any]:
    """Records of a dataset that gives pairs (x, y) by index."""
    tensors = getattr(data, "tensors", None)
    if isinstance(tensors, tuple):
        if len(tensors) != 2:
            raise InputError(f"the dataset holds {len(tensors)} tensors; it must hold two, the records and the labels.")
        return tensors[0], tensors[1]
    first: list[Array] = []
    second: list[Any] = []
    began = time.monotonic()
    size = _length(data)
    with Progress(size, f"Reading {size} records") as progress:
        for index in range(size):
            x, y = _pair(data[index], index)
            if first and first[0].shape != x.shape:
                raise InputError(
                    f"the dataset's item {index} has shape {x.shape} and item 0 {first[0].shape}; resize them."
                )
            first.append(x)
            second.append(y)
            if index % _LOOK == _LOOK - 1:
                progress.look(index + 1, time.monotonic() - began, _LOOK)
                progress.advance(index + 1)
    if not first:
        raise InputError("the dataset holds no record; pass at least one.")
    return np.stack(first), np.asarray(second)


def _pair(item: Any, index: int) -> tuple[Array, Any]:
    if not isinstance(item, (tuple, list)) or len(item) != 2:
        raise InputError(f"the dataset's item {index} is not a pair (x, y), got {show(item)}; return pairs.")
    x, y = np.asarray(fetched(item[0])), np.asarray(fetched(item[1]))
    if y.size != 1:
        raise InputError(
            f"the dataset's item {index} has a label of shape {y.shape}; return one label for each record."
        )
    return x, y.item()
