"""How far long work is: a bar on a terminal, one line elsewhere; everything goes to standard error.

What happens is also told to the logger "dosimeter", for `-v` and for programs that keep a log.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
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


class TaskProgress:
    """Counts finished tasks; everything goes to standard error."""

    def __init__(self, total: int, *, shown: bool = True) -> None:
        self.total, self.done, self.cached, self.failed, self.lost = total, 0, 0, 0, 0
        self.stage = next_stage() if total > 0 else None
        self._shown = shown and total > 0
        self._start = self._last = time.monotonic()
        self._logs = ""
        self._closed = False
        self._bar: Any = None
        if self._shown and sys.stderr is not None and sys.stderr.isatty():
            self._bar = _bar("dosimeter" if self.stage is None else f"dosimeter: {self.stage}", total)
        logger.info("%s%d tasks", self._place(), total)

    def begin(self) -> None:
        """The first task starts now; what went before does not count for the pace."""
        self._start = time.monotonic()

    def step(self, *, cached: bool = False, log: str | None = None) -> None:
        """One more task is finished; one that failed has a log."""
        self._last = time.monotonic()
        self.done += 1
        self.cached += cached
        if log is not None:
            self.failed += 1
            self._logs = str(Path(log).parent)
        logger.debug("%stask %d of %d%s", self._place(), self.done, self.total, self._note())
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=self.done, note=self._note())

    def close(self, message: str | None = None) -> None:
        """Take the bar away, or write the one line of a run that is over; `message` is said instead of it."""
        if self._closed:
            return
        self._closed = True
        barred, shown = self._bar is not None, self._shown and sys.stderr is not None
        if barred:
            self._bar.stop()
            self._bar = None
        if message is None and (self.failed if barred else self.done):
            where = f" (see {self._logs})" if self.failed else ""
            message = f"{self._place()}{self.done} of {self.total} tasks{self._spent()}{where}{self._rest()}"
        if message is None:
            return
        if shown:
            print(f"dosimeter: {message}", file=sys.stderr, flush=True)
        else:
            logger.info(message)

    def _place(self) -> str:
        return "" if self.stage is None else f"{self.stage}: "

    def _rest(self) -> str:
        """What is still to come after this stage, for those who see no bar."""
        left = self.seconds_left_for_all()
        return f"; about {duration(left)} left for the rest" if left and self.done == self.total else ""

    def _note(self) -> str:
        left = self.seconds_left_for_all()
        if not left:
            return self._spent()
        whole = " for all" if self.stage is not None and self.stage.total > 1 else ""
        return self._counts() + f", about {duration(left)} left{whole}"

    def _spent(self) -> str:
        return f" in {duration(self._last - self._start)}{self._counts()}"

    def _counts(self) -> str:
        stored = f", {self.cached} from the store" if self.cached else ""
        lost = f", {self.lost} tried again after a kill or for want of memory" if self.lost else ""
        return stored + lost + (f", {self.failed} failed" if self.failed else "")

    def seconds_left(self) -> float | None:
        """The remaining time at the pace so far, from the tasks that were computed; None before the first."""
        computed = self.done - self.cached
        if computed == 0:
            return None
        return (time.monotonic() - self._start) / computed * (self.total - self.done)

    def seconds_left_for_all(self) -> float | None:
        """The remaining time with the stages that come after this one, if a training there takes as long as here."""
        here, computed = self.seconds_left(), self.done - self.cached
        if here is None or self.stage is None or self.total == 0:
            return here
        each = (time.monotonic() - self._start) / computed * self.total / self.stage.trainings
        return here + each * self.stage.later


def duration(seconds: float) -> str:
    """A time span as people say it: 42 s, 12 min, 3 h 20 min."""
    if seconds < 90:
        return f"{seconds:.0f} s" if seconds >= 1 else f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def _bar(label: str, total: int) -> Any:
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn

    note = TextColumn("tasks{task.fields[note]}")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), note)
    return started_bar(label, total, *columns, transient=False, note="")
