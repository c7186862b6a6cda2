"""What the driver asks of a place where tasks run, and the simplest one: this process."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Protocol

import numpy.typing as npt

from dosimeter.engine.tasks import Function, Task
from dosimeter.engine.work import TaskOutcome, call


class WorkerPool(Protocol):
    """Takes tasks under ticket numbers and reports outcomes in the order of finishing; never retries by itself."""

    @property
    def size(self) -> int:
        """How many workers there may be."""

    def allow(self, workers: int) -> None:
        """Use at most this many workers from now on."""

    def staff(self, tasks: int) -> None:
        """Have workers at hand for this many unfinished tasks."""

    def room(self) -> int:
        """How many tasks may be submitted now."""

    def submit(self, ticket: int, task: Task) -> None:
        """Start a task, or have it start soon."""

    def wait(self, seconds: float | None = None) -> list[tuple[int, TaskOutcome]]:
        """Wait until something happens, or so many seconds; the finished tickets, perhaps none."""

    def close(self) -> None:
        """End whatever still runs, and clean up."""


def cores() -> int:
    """The processor cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


class Inline:
    """One task after the other in this process."""

    def __init__(self, function: Function, shared: Mapping[str, npt.NDArray[Any]]) -> None:
        self._function, self._shared = function, shared
        self._next: tuple[int, Task] | None = None

    @property
    def size(self) -> int:
        return 1

    def allow(self, workers: int) -> None:
        """One at a time is the least already."""

    def staff(self, tasks: int) -> None:
        """Nobody is needed."""

    def room(self) -> int:
        return 0 if self._next else 1

    def submit(self, ticket: int, task: Task) -> None:
        self._next = (ticket, task)

    def wait(self, seconds: float | None = None) -> list[tuple[int, TaskOutcome]]:
        assert self._next is not None, "wait without a task"
        (ticket, task), self._next = self._next, None
        return [(ticket, call(self._function, task, self._shared))]

    def close(self) -> None:
        self._next = None
