"""How one task runs in its process: one thread, seeded, measured, errors caught; and the pool that runs them here."""

from __future__ import annotations

import contextlib
import errno
import importlib.abc
import importlib.util
import os
import random
import signal
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from dosimeter._validate import show
from dosimeter.engine.tasks import Arrays, Function, Task
from dosimeter.engine.threads import one_thread
from dosimeter.estimate import plain

_NO_ROOM = (errno.ENOMEM, errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC))
_NO_MEMORY = "DefaultCPUAllocator: can't allocate memory"  # torch raises a RuntimeError
# Signals by which a process ends itself; any other one came from outside: a person, a scheduler, or the system
# when memory runs out.
_OWN = ("SIGSEGV", "SIGABRT", "SIGBUS", "SIGILL", "SIGFPE", "SIGTRAP", "SIGSYS")
LOG_TAIL = 20_000  # characters of a task's output that are kept
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
ONE_THREAD = dict.fromkeys(_THREADS, "1")
# Memory that a task frees is kept for the next: mapping it anew costs more than the arithmetic of a small model.
WORKER = {
    **ONE_THREAD,
    "GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=2000000000:glibc.malloc.trim_threshold=8000000000",
}


@dataclass(frozen=True)
class TaskOutcome:
    """What a pool reports of a ticket: arrays and info, or an error line with its log.

    `lost` says that the machine ended it (a kill, no memory): nothing is known of the task, which may run next time.
    """

    arrays: Arrays | None = None
    info: dict[str, Any] = field(default_factory=dict)
    error: str | None = None
    log: str = ""
    peak: int = 0
    lost: bool = False


class KilledError(Exception):
    """Raised by a task whose own child process was ended from outside: the task is tried again, as if it were lost."""


class LostWorkersError(ChildProcessError):
    """Processes were killed from outside, or had no memory, again and again; what is finished is kept in the store."""


def call(function: Function, task: Task, shared: Mapping[str, npt.NDArray[Any]]) -> TaskOutcome:
    """The function's answer, checked; an exception becomes one line and its traceback."""
    try:
        with _one_thread(), _seeded(task.seed):
            arrays, info = _checked(function(task, shared))
    except (Exception, SystemExit) as error:
        lost = isinstance(error, (KilledError, MemoryError)) or _NO_MEMORY in str(error)
        lost = lost or (isinstance(error, OSError) and error.errno in _NO_ROOM)
        return TaskOutcome(error=one_line(error), log=traceback.format_exc(), peak=peak_memory(), lost=lost)
    return TaskOutcome(arrays=arrays, info=info, peak=peak_memory())


def signal_name(code: int) -> str:
    """The name of the signal that a negative exit code stands for."""
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def killed(code: int | None) -> bool:
    """Whether an exit code says that the process was ended from outside."""
    return code is not None and code < 0 and signal_name(code) not in _OWN


def one_line(error: BaseException, limit: int = 300) -> str:
    """An exception as one line, cut in the middle: its end says what to do."""
    text = " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(":")
    head = limit * 3 // 5
    return text if len(text) <= limit else f"{text[:head]} … {text[head + 3 - limit :]}"


def peak_memory() -> int:
    """The most memory in bytes that this process has held at once.

    Linux carries the figure of getrusage over from the process that started this one; the high-water mark is its own.
    """
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    if sys.platform == "win32":
        return 0
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def forget_peak() -> None:
    """Measure `peak_memory` from now on, where the system can."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


@contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for as long as the block runs."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _checked(answer: Any) -> tuple[Arrays, dict[str, Any]]:
    if not isinstance(answer, tuple) or len(answer) != 2 or not all(isinstance(part, Mapping) for part in answer):
        raise TypeError(f"the task's function must return (arrays, info), two dictionaries, got {show(answer)}")
    arrays = {}
    for name, value in answer[0].items():
        array = np.asarray(value)
        if not isinstance(name, str) or not name or array.dtype.hasobject:
            raise TypeError(f"arrays[{show(name)}] has type {array.dtype}; return arrays of numbers under names")
        arrays[name] = array
    return arrays, plain(answer[1])


@contextmanager
def _one_thread() -> Iterator[None]:
    torch = sys.modules.get("torch")
    before = torch.get_num_threads() if torch is not None else 1
    # The variables reach libraries that the function itself loads, and the commands that it starts.
    with environment(ONE_THREAD), one_thread():
        if torch is not None and before != 1:
            torch.set_num_threads(1)
        try:
            yield
        finally:
            if torch is not None and before != 1:
                torch.set_num_threads(before)


def seed_torch(torch: Any, seed: int) -> None:
    """Do what torch.manual_seed does, at a hundredth of its cost where there is no accelerator.

    For every kind of accelerator that is not in use yet, torch writes down the whole stack of calls, which takes longer
    than a step of a small training.
    """
    accelerator = getattr(torch, "accelerator", None)  # since 2.6
    if accelerator is None or accelerator.is_available():
        torch.manual_seed(seed)
    else:
        torch.default_generator.manual_seed(seed)


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seed the global generators, for code that draws from them; put back what was there."""
    before, numpy_before = random.getstate(), np.random.get_state()  # noqa: NPY002 (the global state is what is meant)
    torch = sys.modules.get("torch")
    torch_before = torch.get_rng_state() if torch is not None else None
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    late = None
    if torch is not None:
        seed_torch(torch, seed % 2**63)
    else:
        late = _SeedsTorch(seed % 2**63)
        sys.meta_path.insert(0, late)
    try:
        yield
    finally:
        if late in sys.meta_path:
            sys.meta_path.remove(late)
        random.setstate(before)
        np.random.set_state(numpy_before)  # noqa: NPY002
        if torch is not None and torch_before is not None:
            torch.set_rng_state(torch_before)


class _SeedsTorch(importlib.abc.MetaPathFinder):
    """Seeds torch as soon as a task imports it: the first task of a process must draw what any other would."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def run_and_seed(module: ModuleType) -> None:
                run(module)
                seed_torch(module, self._seed)

            spec.loader.exec_module = run_and_seed  # type: ignore[method-assign]
        return spec


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
        """Wait until something happens, at most `seconds`; the finished tickets, perhaps none."""

    def close(self) -> None:
        """End what still runs, and clean up."""


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
