"""How far long work is: a bar on a terminal, one line elsewhere; everything goes to standard error.

What happens is also told to the logger "dosimeter", for `-v` and for programs that keep a log.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

_PATIENCE = 5.0  # seconds before a person wants to know
_MANY = 50

logger = logging.getLogger("dosimeter")
logger.addHandler(logging.NullHandler())


@dataclass(frozen=True)
class Stage:
    """One part of an audit: its name, its place, how many trainings it has, and how many come after it."""

    name: str
    place: int
    total: int
    trainings: int
    later: int

    def __str__(self) -> str:
        return self.name if self.total == 1 else f"{self.name} ({self.place} of {self.total})"


_plan: ContextVar[Iterator[Stage] | None] = ContextVar("plan", default=None)
_quiet: ContextVar[bool] = ContextVar("quiet", default=False)


@contextmanager
def stages(plan: Mapping[str, int]) -> Iterator[None]:
    """Say which parts are to come, in their order, with the number of trainings in each.

    Each run of tasks inside the block takes the next one, so that its progress can say which it is and when all is
    done.
    """
    left = {name: count for name, count in plan.items() if count > 0}
    sizes = list(left.values())
    parts = [
        Stage(name, place, len(left), count, sum(sizes[place:])) for place, (name, count) in enumerate(left.items(), 1)
    ]
    token = _plan.set(iter(parts))
    try:
        yield
    finally:
        _plan.reset(token)


def next_stage() -> Stage | None:
    """The part that begins now; None where nobody said what is to come."""
    plan = _plan.get()
    return None if plan is None else next(plan, None)


@contextmanager
def silence(quiet: bool = True) -> Iterator[None]:
    """Show no progress inside the block."""
    token = _quiet.set(quiet)
    try:
        yield
    finally:
        _quiet.reset(token)


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
        logger.info("%s.", self.text)
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
        if _quiet.get():
            return
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
