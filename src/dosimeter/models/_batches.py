"""Records in batches that fit in memory, with progress when it takes long."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from dosimeter._progress import Progress
from dosimeter._validate import InputError
from dosimeter.records import count, take

BUDGET = 256 * 2**20  # bytes for the inputs, outputs and what lies between of one batch
_PROBE = 256


def row_bytes(X: Any) -> int:
    """About how much memory one record takes."""
    records = count(X)
    if isinstance(getattr(X, "nbytes", None), int):
        return max(1, X.nbytes // records)
    shape: Any = getattr(X, "shape", ())
    if len(shape) > 1:  # tables and sparse matrices, which the model may make dense
        return int(8 * shape[1])
    first = X[0]
    return int(getattr(first, "nbytes", sys.getsizeof(first)))


def fitting(bytes_per_row: float, expansion: int) -> int:
    """How many rows fit, when a row grows by `expansion` inside the model."""
    return max(1, int(BUDGET // (expansion * max(1.0, bytes_per_row))))


def run(
    X: Any,
    predict: Callable[[Any, int, int], Any],
    *,
    batch_size: int | None,
    expansion: int,
) -> Iterator[tuple[int, int, Any]]:
    """Start, stop and outputs of each batch.

    Without a batch size, a first small batch shows how large the outputs are, and a batch that does not fit is halved.
    """
    records, wide = count(X), row_bytes(X)
    size = batch_size or min(records, _PROBE, fitting(wide, expansion))
    known, start = batch_size is not None, 0
    with Progress(records, f"Asking the model about {records} records") as progress:
        while start < records:
            stop = min(start + size, records)
            began = time.monotonic()
            try:
                values = predict(take(X, slice(start, stop)), start, stop)
            except MemoryError:
                if batch_size is not None or size == 1:
                    raise InputError(
                        f"memory is short for a batch of {size} record(s); pass a smaller batch_size, or free memory."
                    ) from None
                size, known = max(1, size // 2), True
                continue
            if start:
                progress.look(stop - start, time.monotonic() - began, size)
            progress.advance(stop)
            yield start, stop, values
            if not known:
                size, known = fitting(wide + values.nbytes / (stop - start), expansion), True
            start = stop
