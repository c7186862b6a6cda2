"""How far long work is: a bar on a terminal, one line elsewhere; everything goes to standard error."""

from __future__ import annotations

import sys
from typing import Any

_PATIENCE = 5.0  # seconds before a person wants to know
_MANY = 50


class Progress:
    """Shows nothing until `announce`, or until `look` sees that the rest takes long."""

    def __init__(
        self, total: int | None, text: str, *, label: str | None = None, columns: tuple[Any, ...] = ()
    ) -> None:
        """`text` is the line and, unless there is a `label`, stands beside the bar; `columns` are rich's."""
        self.total, self.text, self.label, self.columns = total, text, label or text, columns
        self.done, self.announced = 0, False
        self.bar: Any = None

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.stop()

    def look(self, rows: int, seconds: float, size: int) -> None:
        """Decide from one batch of `size`, of which `rows` took `seconds`, whether the rest takes long."""
        assert self.total is not None
        left = self.total - self.done
        if not self.announced and (seconds / rows * left > _PATIENCE or left / size > _MANY):
            self.announce()

    def announce(self) -> None:
        """Show the bar, or write the line."""
        self.announced = True
        if sys.stderr.isatty():
            self.bar = started_bar(self.label, self.total, *self.columns)
        else:
            print(f"{self.text}.", file=sys.stderr, flush=True)

    def advance(self, done: int) -> None:
        """Say how much is done."""
        self.done = done
        if self.bar is not None:
            self.bar.update(self.bar.task_ids[0], completed=done)


def started_bar(label: str, total: int | None, *columns: Any, transient: bool = True, **fields: Any) -> Any:
    """A running bar of rich with one task; without columns, rich's own."""
    from rich.console import Console
    from rich.progress import Progress as Bar

    bar = Bar(*columns, console=Console(stderr=True, highlight=False), transient=transient)
    bar.add_task(label, total=total, **fields)
    bar.start()
    return bar
