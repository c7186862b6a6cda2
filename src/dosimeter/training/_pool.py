"""Tasks in processes of one thread each: pure functions of a task and of arrays that all of them share."""

from __future__ import annotations

import atexit
import multiprocessing
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

Arrays = Mapping[str, np.ndarray[Any, Any]]
Task = Callable[[Any, Arrays], Any]

# Memory that a step frees is kept for the next one: mapping it anew costs more than the arithmetic of a small model.
WORKER = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=2000000000:glibc.malloc.trim_threshold=8000000000",
}

DIED = (
    "worker processes died twice: a script that trains must do so under `if __name__ == '__main__':`, and memory must "
    "suffice for all of them; pass processes=1 to train in this process."
)

_pools: dict[int, ProcessPoolExecutor] = {}


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run(function: Task, tasks: Sequence[Any], shared: Arrays, processes: int) -> Iterator[Any]:
    """Results in the order of the tasks, as they come; at most two tasks a process are under way.

    The processes live on for the next call. When one dies, the tasks under way are tried once more in new ones.
    """
    if processes <= 1:
        for task in tasks:
            yield function(task, shared)
        return
    with tempfile.TemporaryDirectory(prefix="dosimeter-") as folder:
        for name, array in shared.items():
            np.save(Path(folder) / f"{name}.npy", array, allow_pickle=False)
        names = tuple(shared)
        under_way: dict[int, Future[Any]] = {}
        retried, done = False, 0
        try:
            while done < len(tasks):
                try:
                    for at in range(done, min(done + 2 * processes, len(tasks))):
                        if at not in under_way:
                            with _environment():
                                under_way[at] = _pool(processes).submit(_call, function, tasks[at], folder, names)
                    result = under_way.pop(done).result()
                except BrokenProcessPool as error:
                    _drop(processes)
                    under_way.clear()
                    if retried:
                        raise RuntimeError(DIED) from error
                    retried = True
                    continue
                yield result
                done += 1
        finally:
            for future in under_way.values():
                future.cancel()


def _call(function: Task, task: Any, folder: str, names: tuple[str, ...]) -> Any:
    return function(task, _opened(folder, names))


@lru_cache(maxsize=1)
def _opened(folder: str, names: tuple[str, ...]) -> Arrays:
    # "c": pages are shared until written to, and torch takes only what can be written to.
    return {name: np.load(Path(folder) / f"{name}.npy", mmap_mode="c", allow_pickle=False) for name in names}


def _pool(processes: int) -> ProcessPoolExecutor:
    if processes not in _pools:
        for other in list(_pools):
            _drop(other)
        _pools[processes] = ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"))
    return _pools[processes]


def _drop(processes: int) -> None:
    pool = _pools.pop(processes, None)
    if pool is not None:
        pool.shutdown(wait=False, cancel_futures=True)


@atexit.register
def close() -> None:
    """End the processes."""
    for processes in list(_pools):
        _drop(processes)


@contextmanager
def _environment() -> Iterator[None]:
    before = {name: os.environ.get(name) for name in WORKER}
    os.environ.update(WORKER)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
