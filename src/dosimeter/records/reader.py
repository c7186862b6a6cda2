"""Records and labels from arrays, files and torch datasets."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from dosimeter._progress import Progress
from dosimeter._validate import InputError, IntArray, show
from dosimeter.columns import pick, read_columns
from dosimeter.records.forms import Array, count, fetched, frame_numbers, labels, targets

LABEL_COLUMNS = ("label", "y", "target", "class")
_LOOK = 1000  # items of a torch dataset between two looks at the clock


def dataset(data: Any, *, label: str | None = None, any_target: bool = False) -> tuple[Any, Any]:
    """Read records X and labels y, and check them.

    A value of a table may be missing (NaN), since some models take that; none may be infinite.

    Args:
        data: A pair (X, y); the path of an .npz (arrays X and y, x and y, or features and labels), .csv or .parquet
            file (numeric columns and a label column); or a torch `Dataset` of pairs or a `DataLoader` of one, whose
            records come in the order of the dataset. For language models, which need no
            labels, a list of texts, a list of rows of token numbers, a tokenizer's output, or a pair (X, None).
        label: The label column of a table; by default the one called label, y, target or class.
        any_target: Whether y may also hold any numbers, or 0 and 1 for each of several labels.

    Returns:
        X and y; y is None where there are no labels.

    Raises:
        InputError: If there are no records, a value is infinite, or records and labels do not pair up.

    >>> X, y = dataset(([[0.0, 1.0], [2.0, 3.0]], ["no", "yes"]))
    >>> X.shape, y.tolist()
    ((2, 2), ['no', 'yes'])
    """
    data = unwrapped(data)
    if isinstance(data, (str, os.PathLike)):
        X, y = _from_file(data, label)
    elif label is not None:
        raise InputError(f"label names a column of a .csv or .parquet file, got {show(label)}; leave it out.")
    elif _is_texts(data):
        X, y = list(data), None
    elif _is_tokens(data):
        X, y = data, None
    elif isinstance(data, (tuple, list)) and len(data) == 2:
        X, y = data
    elif not isinstance(data, (tuple, list, np.ndarray, Mapping)) and is_indexed(data):
        X, y = from_items(data)
    else:
        raise InputError(
            "data must be a pair (X, y), the path of an .npz, .csv or .parquet file, or a torch dataset, got "
            f"{show(data)}; pass one of these."
        )
    X = _records(X)
    return X, None if y is None else (targets if any_target else labels)(y, count(X))


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


def _from_file(path: str | os.PathLike[str], label: str | None) -> tuple[Any, Any]:
    columns, features, target = _columns(path, label)
    if str(path).lower().endswith(".npz"):
        return columns[features[0]], columns[target]
    words = [name for name in features if columns[name].dtype.kind not in "biuf"]
    if words:
        raise InputError(f"{path} has columns that are not numbers: {show(words, 120)}; encode or remove them.")
    return np.stack([columns[name].astype(np.float64) for name in features], axis=1), columns[target]


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


def _is_texts(X: Any) -> bool:
    if isinstance(X, np.ndarray):
        return X.dtype.kind in "UT" and X.ndim == 1
    return isinstance(X, list) and bool(X) and all(isinstance(text, str) for text in X)


def _is_tokens(data: Any) -> bool:
    """A tokenizer's output, or a list of flat rows of whole numbers, which no pair (X, y) is."""
    if isinstance(data, Mapping):
        return "input_ids" in data
    try:
        rows = [np.asarray(fetched(row)) for row in data] if isinstance(data, list) else []
    except (ValueError, TypeError, OverflowError):
        return False
    return bool(rows) and all(row.ndim == 1 and row.size and row.dtype.kind in "iu" for row in rows)


def _records(X: Any) -> Any:
    """X as it is, refused when a number in it is infinite, or missing where records are not rows of a table."""
    X = unmasked(X) if isinstance(X, Mapping) else fetched(X)
    if _is_texts(X):
        return [str(text) for text in X]
    if hasattr(X, "iloc"):
        _refuse_infinite(~np.isinf(frame_numbers(X)))
        return X
    if hasattr(X, "tocsr"):
        X = X.tocsr()
        if not np.isfinite(X.data).all():
            raise InputError("X has values that are not finite; remove or repair these records first.")
        return X
    try:
        array = np.asarray(X)
    except (ValueError, TypeError, OverflowError):
        return _ragged(X)
    if array.dtype.kind == "O":
        return _ragged(X)
    if array.ndim < 2 or 0 in array.shape:
        raise InputError(f"X has shape {array.shape}; pass an array with one row for each record, at least one.")
    if array.dtype.kind not in "biuf":
        raise InputError(f"X must hold numbers, got type {array.dtype}; encode words as numbers first.")
    if array.dtype.kind == "f":
        _refuse_infinite(~np.isinf(array) if array.ndim == 2 else np.isfinite(array))
    return array


def _ragged(X: Any) -> list[Array]:
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


def _refuse_infinite(good: Array) -> None:
    bad = ~good.reshape(good.shape[0], -1).all(axis=1)
    if bad.any():
        raise InputError(
            f"X[{int(np.argmax(bad))}] has a value that is not finite ({int(bad.sum())} of {bad.size} records); "
            "remove or repair these records first."
        )


# --- (X, y) of whatever a caller passes ---------------------------------------------------------------------


def parted(name: str, data: Any, remedy: str = "pass X or (X, y)") -> tuple[Any, Any]:
    """X and y of a tuple (X, y) or a torch dataset, or X and None of anything else."""
    data = torch_pair(data)
    if not isinstance(data, tuple):
        return data, None
    if len(data) != 2:
        raise InputError(f"{name} as a tuple must be (X, y), got {len(data)} parts; {remedy}.")
    return data


def pair(name: str, data: Any, remedy: str) -> tuple[Any, Any]:
    """X and y of a pair (X, y), of a `Dataset` of this package, or of a torch `Dataset` or `DataLoader`."""
    found = torch_pair(getattr(data, "pair", data))
    if not isinstance(found, (tuple, list)) or len(found) != 2:
        raise InputError(f"{name} must be a pair (X, y), got {show(data)}; {remedy}.")
    return found[0], found[1]


# --- records of torch: a `Dataset` of pairs, or a `DataLoader` of one -------------------------------------


def unwrapped(data: Any) -> Any:
    """The dataset of a `DataLoader`; anything else as it is.

    A loader may shuffle. The records are then still those of the dataset in its own order, since rows and persons are
    named by it. A loader that takes only some of them, or makes something else of them, is refused.
    """
    torch: Any = sys.modules.get("torch")
    if torch is None or not isinstance(data, torch.utils.data.DataLoader):
        return data
    tools, held = torch.utils.data, data.dataset
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


def torch_pair(data: Any) -> Any:
    """(X, y) of a torch `Dataset` or `DataLoader`; anything else as it is."""
    torch: Any = sys.modules.get("torch")
    if torch is None or not isinstance(data, (torch.utils.data.Dataset, torch.utils.data.DataLoader)):
        return data
    held = unwrapped(data)
    if not is_indexed(held):
        raise InputError(f"{type(held).__name__} has no rows that can be read by number; pass arrays (X, y).")
    X, y = from_items(held)
    return fetched(X), fetched(y)


def is_indexed(data: Any) -> bool:
    """Whether records can be read one by one, by their number."""
    torch: Any = sys.modules.get("torch")
    if torch is not None and isinstance(data, torch.utils.data.IterableDataset):
        return False
    return hasattr(data, "__getitem__") and hasattr(data, "__len__") and not hasattr(data, "shape")


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
