"""Which batches of a user's data loader hold a record: a watch on its batch sampler that changes nothing."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from dosimeter import _validate as check
from dosimeter._validate import InputError, require
from dosimeter.training.chain import torch_module

_NAME_THEM = "name the batches by in_batch=… instead"


class WatchedBatches:
    """Count for each step how often its batches held the record in row `index` of the loader's data set.

    Without an `index` the data set lacks the record, and its place in the batches is drawn as the loader would have
    drawn it: a Poisson coin for each batch, or one place in each shuffled pass. The place is independent of the
    training, so a run on D' and the place have the law of a run whose batches an adversary knows. The draws take fresh
    entropy: a place that a seed repeats in each run would tell the worlds apart.

    A step is matched to its batches by the number of its records, so that skipped batches, accumulated batches and
    batches in parts (`BatchMemoryManager`) find their step, and a step that did not come from the loader is noticed.
    """

    def __init__(self, loader: Any, index: int | None) -> None:
        data = torch_module().utils.data
        if not isinstance(loader, data.DataLoader):
            raise InputError(
                f"data_loader must be a DataLoader, got {check.show(loader)}; pass the one that make_private returned."
            )
        if loader.batch_sampler is None or isinstance(loader.dataset, data.IterableDataset):
            raise InputError(
                f"data_loader gives records without their rows, so its batches cannot be matched; {_NAME_THEM}."
            )
        self._ahead = loader.num_workers > 0  # workers fetch batches before the training asks for them
        if self._ahead and not getattr(loader, "in_order", True):
            raise InputError(f"data_loader has in_order=False, so batches come in any order; {_NAME_THEM}.")
        if index is not None:
            rows = len(loader.dataset)
            index = check.whole("index", index, 0, f"data_loader has rows 0 to {rows - 1}", rows - 1)
        self._at, self._owner = _logical(loader)
        self._index = index
        self._spare = int(getattr(loader.collate_fn, "rand_on_empty", False))  # records that may stand for none
        if index is None:
            _place(self._sampler)  # refuses what it cannot draw, before the training
        self._seen: deque[tuple[int, int]] = deque()
        self._on = False

    @property
    def _sampler(self) -> Any:
        return getattr(self._owner, self._at)

    def start(self) -> None:
        """Start to watch."""
        self._on = True
        self._seen.clear()
        self._inner = self._sampler
        # DataLoader.__setattr__ forbids a new sampler; this one yields what the old one does.
        object.__setattr__(self._owner, self._at, _Watched(self._inner, self._pass))

    def stop(self) -> None:
        """Restore the loader."""
        self._on = False
        object.__setattr__(self._owner, self._at, self._inner)

    def take(self, records: int, step: int) -> int:
        """Count how often the record is in the batches that `records` records of a step came from."""
        total = spare = count = taken = 0
        while self._seen and (not taken or total + spare < records):
            size, holds = self._seen.popleft() if self._ahead else self._seen.pop()
            if self._ahead and records and not size + self._spare:
                continue  # an empty batch that the training skipped
            total, count, taken = total + size, count + holds, taken + 1
            spare += 0 if size else self._spare
        if not self._ahead:
            self._seen.clear()
        if not taken:
            raise InputError(
                f"step {step}, counted from 0, came without a batch of data_loader; loop over the loader that "
                "make_private returned, and begin the loop, and a BatchMemoryManager, inside the with block."
            )
        if not total <= records <= total + spare:
            raise InputError(
                f"step {step}, counted from 0, has the gradients of {records} records, but data_loader gave {total}; "
                f"train on its batches as they come, or {_NAME_THEM}."
            )
        return count

    def _pass(self, sampler: Any) -> Iterator[Any]:
        """One pass over the batches, noted as they go."""
        if self._ahead:
            self._seen.clear()  # what a pass that was broken off fetched in advance
        holds = _place(sampler) if self._index is None else self._occurrences
        for number, rows in enumerate(sampler):
            if self._on:
                self._seen.append((len(rows), holds(number, rows)))
            yield rows

    def _occurrences(self, number: int, rows: Any) -> int:
        return sum(1 for row in rows if row == self._index)


class _Watched:
    """A batch sampler that behaves like the one it wraps."""

    def __init__(self, inner: Any, iterate: Callable[[Any], Iterator[Any]]) -> None:
        self._inner, self._iterate = inner, iterate

    def __iter__(self) -> Iterator[Any]:
        return self._iterate(self._inner)

    def __len__(self) -> int:
        return len(self._inner)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:  # Opacus asks for the kind of a sampler
        return self._inner.__class__


def _logical(loader: Any) -> tuple[str, Any]:
    """The attribute that holds the sampler of whole batches, and whose it is."""
    memory = require("opacus.utils.batch_memory_manager", extra="torch", caller="OpacusTranscript")
    if isinstance(loader.batch_sampler, memory.BatchSplittingSampler):
        return "sampler", loader.batch_sampler
    return "batch_sampler", loader


def _place(sampler: Any) -> Callable[[int, Any], int]:
    """Whether batch `number` of a pass has the place of a record that the data set lacks."""
    opacus = require("opacus.utils.uniform_sampler", extra="torch", caller="OpacusTranscript")
    data, rng = torch_module().utils.data, np.random.default_rng()
    if isinstance(sampler, opacus.UniformWithReplacementSampler):
        rate = float(sampler.sample_rate)
        return lambda number, rows: int(rng.random() < rate)
    if isinstance(sampler, data.BatchSampler) and len(sampler) == 1:
        return lambda number, rows: 1
    inner = getattr(sampler, "sampler", None)
    shuffled = isinstance(inner, data.SubsetRandomSampler) or (
        isinstance(inner, data.RandomSampler) and not inner.replacement
    )
    if not isinstance(sampler, data.BatchSampler) or not shuffled:
        raise InputError(
            "index is None, so the data set lacks the record, and its place can be drawn for Poisson, shuffled and "
            f"full batches only, not for {type(sampler if inner is None else inner).__name__}; {_NAME_THEM}."
        )
    assert inner is not None
    turn = int(rng.integers(len(inner) + 1)) // int(sampler.batch_size)
    return lambda number, rows: int(number == turn)
