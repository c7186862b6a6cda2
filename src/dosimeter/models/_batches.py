"""Records in batches that fit in memory, with progress when it takes long."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dosimeter._validate import InputError, show

BUDGET = 256 * 2**20  # bytes for the inputs, outputs and what lies between of one batch
_PROBE = 256
_PATIENCE = 5.0  # seconds before a person wants to know
_MANY = 50


def count(X: Any) -> int:
    """The number of records."""
    if isinstance(X, (str, Mapping)) or not hasattr(X, "__getitem__") or getattr(X, "shape", True) == ():
        raise InputError(f"X must be an array or a list of records, got {show(X)}; pass one row a record.")
    size = int(X.shape[0]) if hasattr(X, "shape") else len(X)
    if size == 0:
        raise InputError("X holds no record; pass at least one.")
    return size


def take(X: Any, start: int, stop: int) -> Any:
    """Records start to stop, of an array, a list, a table or a sparse matrix."""
    return X.iloc[start:stop] if hasattr(X, "iloc") else X[start:stop]


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
    with Progress(records, "Asking the model about {} records") as progress:
        while start < records:
            stop = min(start + size, records)
            began = time.monotonic()
            try:
                values = predict(take(X, start, stop), start, stop)
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


class Progress:
    """A bar on a terminal, one line elsewhere; nothing at all for short work."""

    def __init__(self, total: int, text: str) -> None:
        self.total, self.text, self.done = total, text.format(total), 0
        self.announced, self.bar, self.task = False, None, None  # type: tuple[bool, Any, Any]

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.stop()

    def look(self, rows: int, seconds: float, size: int) -> None:
        """Decide from one batch whether the rest takes long."""
        left = self.total - self.done
        if self.announced or not (seconds / rows * left > _PATIENCE or left / size > _MANY):
            return
        self.announced = True
        if not sys.stderr.isatty():
            print(f"{self.text}.", file=sys.stderr, flush=True)
            return
        from rich.console import Console
        from rich.progress import Progress as Bar

        self.bar = Bar(console=Console(stderr=True), transient=True)
        self.task = self.bar.add_task(self.text, total=self.total)
        self.bar.start()

    def advance(self, done: int) -> None:
        """Say how many records are done."""
        self.done = done
        if self.bar is not None:
            self.bar.update(self.task, completed=done)
