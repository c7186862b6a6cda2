"""How far a run is and how long all of it may take: a bar on a terminal, else one line when it is through."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from dosimeter._progress import logger, next_stage, started_bar


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
