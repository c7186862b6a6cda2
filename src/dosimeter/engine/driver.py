"""Runs tasks in a pool: looks into the store first, keeps what is finished, retries what failed, answers in order."""

from __future__ import annotations

import time
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy.typing as npt

from dosimeter import _validate as check
from dosimeter._progress import TaskProgress
from dosimeter._validate import InputError, show
from dosimeter.engine.leases import Leases
from dosimeter.engine.scratch import Logs, Scratch
from dosimeter.engine.store import Store
from dosimeter.engine.tasks import Arrays, Function, Result, Task, checked_shared, function_name, hash_of_arrays, key_of
from dosimeter.engine.work import Inline, LostWorkersError, TaskOutcome, WorkerPool, cores

_IN_MEMORY = 256_000_000  # bytes of results that wait for their turn in memory; further ones wait on the disk
_PATIENCE = 6  # times that a task may be lost to kills or want of memory, the last time alone
_PAUSE = 0.25  # seconds before a lost task runs alone; doubled each time, so that a shortage of memory can pass
_CALM = 4  # finished tasks per worker before one more worker is tried
_MANY = 2**31  # workers, as good as no limit
_POLL = 0.3  # seconds between looks at tasks that another process has in hand


def run(
    function: Function,
    tasks: Iterable[Task],
    *,
    shared: Mapping[str, npt.NDArray[Any]] | None = None,
    engine: str = "local",
    workers: int | None = None,
    store: Store | None = None,
    version: str = "",
    retries: int = 1,
    timeout: float | None = None,
    memory: int | None = None,
    progress: bool = True,
    keep_workers: bool = False,
    gpus: int = 0,
) -> Iterator[Result]:
    """Run `function(task, shared)` for every task; the results come in the order of the tasks.

    A task that raises, whose worker crashes or that takes too long is tried again up to `retries` times; then its
    result has an `error`, and the others continue. A task whose worker is killed from outside, or that finds no memory,
    has not failed: it is tried again with fewer workers. The log of a task that failed is kept with the store, or else
    for a week in a temporary folder; its result names the file. Processes that use one store at the same time share the
    tasks.

    Args:
        function: A top-level function that returns `(arrays, info)`.
        tasks: What to run.
        shared: Arrays that every task may read.
        engine: "local" (processes), "inline" (this process), "ray" (joins a cluster or starts one here) or
            "ray://host:port".
        workers: How many processes; None for one for each core.
        store: What it holds is not computed again.
        version: Part of the store's keys; change it with the function.
        retries: How often a failed task is tried again.
        timeout: Seconds that one task may take.
        memory: Bytes that all workers may use together: the first task is measured alone, then as many run as fit.
        progress: Whether to show a bar.
        keep_workers: Whether local processes wait a minute for the next run that keeps them.
        gpus: How many GPUs of a Ray cluster each task takes.

    Returns:
        An iterator over the results, each as soon as it and those before it are there.

    Raises:
        InputError: If an argument is out of range, or the workers cannot import the function.
        LostWorkersError: If a task cannot run even alone, because its worker is killed again and again.

    >>> import numpy as np
    >>> def square(task, shared):
    ...     return {"x": shared["x"] ** task.arguments["power"]}, {}
    >>> tasks = [Task("power", {"power": power}, seed=0) for power in (2, 3)]
    >>> [result.arrays["x"].tolist() for result in run(square, tasks, shared={"x": np.arange(3)}, engine="inline")]
    [[0, 1, 4], [0, 1, 8]]
    """
    name = function_name(function)
    todo = _checked_tasks(tasks)
    engine = check.engine(engine)
    if store is not None and not isinstance(store, Store):
        raise InputError(f"store must be a Store, got {show(store)}; pass Store('folder').")
    if not isinstance(version, str):
        raise InputError(f"version must be a text, got {show(version)}; pass e.g. '1'.")
    retries = check.whole("retries", retries, 0, "pass how often a failed task is tried again, e.g. 1")
    workers, timeout, memory = _checked_limits(engine, workers, timeout, memory)
    arrays = checked_shared(shared)
    print_ = hash_of_arrays(arrays) if store is not None else ""

    def open_pool() -> WorkerPool:
        if engine == "inline":
            return Inline(function, arrays)
        if engine == "local":
            from dosimeter.engine.local import Local

            return Local(function, arrays, workers=workers or cores(), timeout=timeout, keep=keep_workers)
        from dosimeter.engine.ray import Ray

        return Ray(function, arrays, address=engine, workers=workers, timeout=timeout, gpus=gpus)

    keys = [key_of(function, task, version=version, shared_fingerprint=print_) for task in todo] if store else None
    run_ = _Run(name, todo, keys, store, open_pool, retries, memory, TaskProgress(len(todo), shown=bool(progress)))
    return run_.results()


def _checked_limits(
    engine: str, workers: int | None, timeout: float | None, memory: int | None
) -> tuple[int | None, float | None, int | None]:
    if workers is not None:
        workers = check.whole("workers", workers, 1, "pass the number of processes, or None for one for each core")
    if timeout is not None:
        timeout = check.within("timeout", timeout, 0.0, float("inf"), "pass seconds, or None", include="()")
        if engine == "inline":
            raise InputError("timeout needs a process that can be ended; use engine='local' or pass timeout=None.")
    if memory is not None:
        memory = check.whole("memory", memory, 1, "pass bytes, e.g. 8 * 10**9")
    return workers, timeout, memory


@dataclass(frozen=True)
class _OnDisk:
    """A finished result that waits for its turn in a store."""

    cached: bool


class _Run:
    def __init__(
        self,
        name: str,
        tasks: list[Task],
        keys: list[str] | None,
        store: Store | None,
        open_pool: Callable[[], WorkerPool],
        retries: int,
        memory: int | None,
        progress: TaskProgress,
    ) -> None:
        self._name, self._tasks, self._keys, self._store = name, tasks, keys, store
        self._open_pool, self._retries, self._memory, self._progress = open_pool, retries, memory, progress
        self._pool: WorkerPool | None = None
        self._begun = False
        self._again: deque[int] = deque()
        self._turn = self._next = self._running = self._peak = self._held = 0
        self._failures: Counter[int] = Counter()
        self._losses: Counter[int] = Counter()
        self._fit: int | None = None  # workers that the memory is enough for
        self._pace: int | None = None  # workers that are tried after a loss
        self._calm = 0
        self._elsewhere: deque[int] = deque()  # another process has them in hand
        self._leases = Leases(store.folder) if store is not None and store.claims else None
        self._finished: dict[int, Result | _OnDisk] = {}
        self._spill: Scratch | None = None
        self._logs: Logs | None = None

    def results(self) -> Iterator[Result]:
        try:
            for turn in range(len(self._tasks)):
                self._works(True)
                result = self._result(turn)
                self._works(False)
                yield result if self._keys is None else replace(result, key=self._keys[turn])
        except KeyboardInterrupt:
            message = f"stopped; {self._kept()}"
            self._progress.close(message)
            raise KeyboardInterrupt(message) from None
        except LostWorkersError as error:
            self._progress.close("stopped")
            raise LostWorkersError(f"{error}; {self._kept()}") from None
        finally:
            self._progress.close()
            if self._leases is not None:
                self._leases.close()
            if self._pool is not None:
                self._pool.close()
            if self._spill is not None:
                self._spill.close()

    def _result(self, turn: int) -> Result:
        self._turn = turn
        while True:
            while turn not in self._finished:
                self._advance()
            found = self._finished.pop(turn)
            if isinstance(found, Result):
                self._held -= _size(found.arrays)
                return found
            loaded = self._shelf().get(self._key(turn))
            if loaded is not None:
                return Result(self._tasks[turn], *loaded, cached=found.cached)
            self._progress.done -= 1
            self._progress.cached -= found.cached
            self._again.appendleft(turn)

    def _advance(self) -> None:
        """Hand over as many tasks as there is room for, then wait for something to happen."""
        while self._pool is None or self._pool.room() > 0:
            index = self._next_index()
            if index is None:
                break
            if self._pool is None:
                self._pool = self._open_pool()
                if self._memory is not None:
                    self._fit = 1
                    self._limit()
                self._again.appendleft(index)
                break
            if not self._begun:
                self._begun = True
                self._progress.begin()
            self._pool.submit(index, self._tasks[index])
            self._running += 1
        if self._running + len(self._again) + len(self._tasks) - self._next == 0:
            if self._turn not in self._finished:
                time.sleep(_POLL)  # only other processes are at work
            return
        if self._pool is None:
            return
        self._pool.staff(self._running + len(self._again) + len(self._tasks) - self._next)
        if self._running == 0 and self._pool.room() > 0:
            return
        for index, outcome in self._pool.wait(_POLL if self._elsewhere else None):
            self._running -= 1
            self._settle(index, outcome)

    def _next_index(self) -> int | None:
        if self._again:
            return self._again.popleft()
        while self._next < len(self._tasks):
            self._next += 1
            if self._ours(self._next - 1):
                return self._next - 1
        for _ in range(len(self._elsewhere)):
            index = self._elsewhere.popleft()
            if self._ours(index):
                return index
        return None

    def _ours(self, index: int) -> bool:
        """Whether to compute a task now: it is not stored, and no other process is at it."""
        if self._store is None:
            return True
        key = self._key(index)
        if key not in self._store:
            if self._leases is None:
                return True
            if not self._leases.claim(key):
                self._elsewhere.append(index)
                return False
            if key not in self._store:  # it may have been finished just before it was given back
                return True
            self._leases.release(key)
        self._finished[index] = _OnDisk(cached=True)
        self._progress.step(cached=True)
        return False

    def _works(self, now: bool) -> None:
        if self._leases is not None:
            self._leases.working = now

    def _settle(self, index: int, outcome: TaskOutcome) -> None:
        self._measure(outcome)
        if outcome.lost:
            self._lose(index, outcome)
            return
        if outcome.error is not None:
            self._failures[index] += 1
            if self._failures[index] <= self._retries:
                self._again.append(index)
                return
            log = self._log(index, f"{outcome.error}\n\n{outcome.log}")
            self._finished[index] = Result(self._tasks[index], None, {"log": log}, outcome.error)
            self._progress.step(log=log)
        else:
            self._keep(index, outcome)
            self._recover()
        if self._leases is not None:
            self._leases.release(self._key(index))

    def _lose(self, index: int, outcome: TaskOutcome) -> None:
        """Run a task again, with fewer beside it: being killed or short of memory is not the fault of the task."""
        assert self._pool is not None
        self._losses[index] += 1
        self._progress.lost += 1
        alone = min(self._pace or self._pool.size, self._fit or self._pool.size) == 1
        if self._losses[index] >= _PATIENCE and alone:
            log = self._log(index, f"{outcome.error}\n\n{outcome.log}")
            raise LostWorkersError(
                f"task {index} of {self._name} could not run: {outcome.error}, {self._losses[index]} times, at last "
                f"with no other beside it (see {log}); make room in memory and on the disk, or look for what ends "
                "processes here"
            )
        self._pace = max(1, (self._pace or self._pool.size) // 2)
        self._calm = 0
        self._limit()
        if self._running == 0:
            time.sleep(min(10.0, _PAUSE * 2 ** self._losses[index]))
        self._again.append(index)

    def _recover(self) -> None:
        """One more worker after some calm."""
        self._calm += 1
        if self._pace is not None and self._calm >= _CALM * self._pace:
            assert self._pool is not None
            self._pace = self._pace + 1 if self._pace + 1 < self._pool.size else None
            self._calm = 0
            self._limit()

    def _limit(self) -> None:
        assert self._pool is not None
        self._pool.allow(min(self._pace or _MANY, self._fit or _MANY))

    def _keep(self, index: int, outcome: TaskOutcome) -> None:
        assert outcome.arrays is not None
        if self._store is not None:
            self._store.put(self._key(index), outcome.arrays, outcome.info)
            if outcome.log:
                self._log(index, outcome.log)
        size = _size(outcome.arrays)
        if index == self._turn or self._held + size <= _IN_MEMORY:
            self._held += size
            self._finished[index] = Result(self._tasks[index], outcome.arrays, outcome.info)
        else:
            if self._store is None:
                self._shelf().put(self._key(index), outcome.arrays, outcome.info)
            self._finished[index] = _OnDisk(cached=False)
        self._progress.step()

    def _measure(self, outcome: TaskOutcome) -> None:
        if self._memory is None or outcome.peak <= self._peak or self._pool is None:
            return
        if outcome.peak > self._memory >= self._peak:
            warnings.warn(
                f"one task of {self._name} needs {outcome.peak / 1e6:.0f} MB, more than the limit of "
                f"{self._memory / 1e6:.0f} MB; they run one at a time.",
                UserWarning,
                stacklevel=2,
            )
        self._peak = outcome.peak
        self._fit = max(1, self._memory // self._peak)
        self._limit()

    def _key(self, index: int) -> str:
        return f"{index:064x}" if self._keys is None else self._keys[index]

    def _shelf(self) -> Store:
        """Where results wait on the disk: the store, or a temporary one."""
        if self._store is not None:
            return self._store
        if self._spill is None:
            self._spill = Scratch()
        return Store(self._spill.folder / "results")

    def _log(self, index: int, text: str) -> str:
        if self._store is not None:
            try:
                return str(self._store.log(self._key(index), text))
            except OSError:  # a full disk must not hide why the task failed
                pass
        if self._logs is None:
            self._logs = Logs()
        return str(self._logs.write(f"task-{index}", text))

    def _kept(self) -> str:
        """What is safe, and how to resume."""
        progress = self._progress
        if self._store is None or self._keys is None:
            return f"after {progress.done} of {progress.total} tasks nothing is kept without a store."
        kept = sum(key in self._store for key in self._keys)  # the last one may be stored but not yet counted
        where = f"{kept} of {progress.total} tasks are kept in {self._store.folder}"
        return f"{where}: run the same again to resume from there."


def _size(arrays: Arrays | None) -> int:
    return sum(array.nbytes for array in (arrays or {}).values())


def _checked_tasks(tasks: Any) -> list[Task]:
    try:
        todo = list(tasks)
    except TypeError:
        raise InputError(
            f"tasks must be a list of Task, got {show(tasks)}; pass e.g. [Task('shadow', {{}}, 0)]."
        ) from None
    for index, task in enumerate(todo):
        if not isinstance(task, Task):
            raise InputError(f"tasks[{index}] is {show(task)}; pass Task(name, arguments, seed).")
    return todo
