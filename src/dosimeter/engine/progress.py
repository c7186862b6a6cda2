"""How far a run is and how long it may take: a bar on a terminal, else a line for every tenth."""

from __future__ import annotations

import sys
import time
from typing import Any


class Progress:
    """Counts finished tasks; everything goes to standard error."""

    def __init__(self, total: int, *, shown: bool = True) -> None:
        self.total, self.done, self.cached, self.failed = total, 0, 0, 0
        self._shown = shown and total > 0
        self._start = time.monotonic()
        self._tenth = 0
        self._bar: Any = None
        if self._shown and sys.stderr is not None and sys.stderr.isatty():
            self._bar = _bar(total)

    def begin(self) -> None:
        """The first task starts now; what went before does not count for the pace."""
        self._start = time.monotonic()

    def step(self, *, cached: bool = False, failed: bool = False) -> None:
        """One more task is finished."""
        self.done += 1
        self.cached += cached
        self.failed += failed
        if not self._shown:
            return
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=self.done, note=self._note())
        elif self.done * 10 // self.total > self._tenth or self.done == self.total:
            self._tenth = self.done * 10 // self.total
            self.say(f"{self.done} of {self.total} tasks ({self.done / self.total:.0%}){self._note()}")

    def say(self, message: str) -> None:
        """A line for the user, unless the run is silent."""
        if self._shown and sys.stderr is not None:
            print(f"dosimeter: {message}", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _note(self) -> str:
        parts = [f"{self.cached} from the store"] if self.cached else []
        if self.failed:
            parts.append(f"{self.failed} failed")
        if (left := self.seconds_left()) is not None and self.done < self.total:
            parts.append(f"about {duration(left)} left")
        elif self.done == self.total:
            parts.append(f"in {duration(time.monotonic() - self._start)}")
        return "".join(f", {part}" for part in parts)

    def seconds_left(self) -> float | None:
        """The remaining time at the pace so far, from the tasks that were computed; None before the first."""
        computed = self.done - self.cached
        if computed == 0:
            return None
        return (time.monotonic() - self._start) / computed * (self.total - self.done)


def duration(seconds: float) -> str:
    """A time span as people say it: 42 s, 12 min, 3 h 20 min."""
    if seconds < 90:
        return f"{seconds:.0f} s" if seconds >= 1 else f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def _bar(total: int) -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as Bar

    bar = Bar(
        TextColumn("dosimeter"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("tasks{task.fields[note]}"),
        console=Console(stderr=True, highlight=False),
        transient=False,
    )
    bar.add_task("tasks", total=total, note="")
    bar.start()
    return bar
