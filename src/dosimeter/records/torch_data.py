"""Records of torch: a `Dataset` of pairs, or a `DataLoader` of one."""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np

from dosimeter._progress import Progress
from dosimeter._validate import InputError, show
from dosimeter.records.forms import Array, fetched

_LOOK = 1000


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
