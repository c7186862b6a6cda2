"""Processes of this machine: one task each at a time, replaced when they die or hang."""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing import connection
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy.typing as npt

from dosimeter._validate import InputError
from dosimeter.engine.scratch import Scratch, read_shared, write_shared
from dosimeter.engine.store import full_or
from dosimeter.engine.tasks import Function, Task, function_name
from dosimeter.engine.work import (
    LOG_TAIL,
    WORKER,
    LostWorkersError,
    TaskOutcome,
    call,
    environment,
    forget_peak,
    killed,
    one_line,
    signal_name,
)

_PARKED_FOR = 60.0  # seconds that a worker waits for the next run before it leaves
_LONGEST_PAUSE = 2.0  # seconds between starts of processes that are killed as they start


class _Worker:
    def __init__(self, number: int, function: Function) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs,), name=f"dosimeter-{number}")
        with environment(WORKER), _interrupts_blocked(), _main_hidden(function):
            self.process.start()
        theirs.close()
        self.proven = False  # has been ready once

    def assign(self, number: int, folder: Path, function: Function, files: list[tuple[str, str]]) -> None:
        """Make ready for the tasks of a run; the worker answers when it is."""
        self.output = folder / f"output-{number}.txt"
        self.ready = False
        self.ticket: int | None = None
        self.started = 0.0
        with contextlib.suppress(OSError):  # a worker that is dead already is found by `wait`
            self.connection.send(("run", (str(self.output), function, files)))

    def park(self) -> bool:
        """Have an idle worker wait for another run; whether it could be told."""
        try:
            self.connection.send(("park", None))
        except OSError:
            return False
        return True

    def said(self) -> str:
        try:
            return self.output.read_text(encoding="utf-8", errors="replace")[-LOG_TAIL:]
        except OSError:
            return ""

    def kill(self) -> None:
        """End the worker and every process that its task has started."""
        try:
            if sys.platform == "win32" or self.process.pid is None or os.getpgid(self.process.pid) != self.process.pid:
                self.process.kill()
            else:
                os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.join()
        self.connection.close()
        with contextlib.suppress(OSError):
            self.output.unlink()


class _IdleWorkers:
    """Workers of earlier runs that wait for the next one; they end with this process."""

    def __init__(self) -> None:
        self._waiting: list[_Worker] = []
        atexit.register(self.close)

    def keep(self, worker: _Worker) -> None:
        """Hold on to a worker that was told to wait."""
        self._waiting.append(worker)

    def take(self) -> _Worker | None:
        """A worker that still waits."""
        while self._waiting:
            worker = self._waiting.pop()
            if worker.process.is_alive():
                return worker
            worker.kill()
        return None

    def close(self) -> None:
        """End all of them."""
        while self._waiting:
            self._waiting.pop().kill()


_idle = _IdleWorkers()  # one for the process: a worker outlives the run that started it, and the next run finds it here


class Local:
    """Worker processes, started anew (spawn) with one thread each; shared arrays are mapped from one set of files.

    With `keep`, idle workers wait a minute for the next such run instead of ending: importing torch takes seconds.
    """

    def __init__(
        self,
        function: Function,
        shared: Mapping[str, npt.NDArray[Any]],
        *,
        workers: int,
        timeout: float | None,
        keep: bool = False,
    ) -> None:
        self._function, self._timeout = function, timeout
        self._keep = keep and function.__module__ != "__main__"
        self._workers = self._allowed = workers
        self._crew: list[_Worker] = []
        self._count = self._false_starts = 0
        self._once_ready = False
        self._pause = 0.0  # seconds before the next process starts, after one was killed as it started
        self._scratch = Scratch()
        atexit.register(self.close)
        try:
            self._files = write_shared(self._scratch.folder, shared)
        except OSError as error:
            self.close()
            raise full_or(error, self._scratch.folder.parent) from None

    @property
    def size(self) -> int:
        return self._workers

    def allow(self, workers: int) -> None:
        self._allowed = min(self._workers, max(1, workers))
        for worker in [w for w in self._crew if w.ready and w.ticket is None]:
            if len(self._crew) > self._allowed:
                self._dismiss(worker)

    def staff(self, tasks: int) -> None:
        while len(self._crew) < min(self._allowed, tasks):
            time.sleep(self._pause)
            worker = (self._keep and _idle.take()) or _Worker(self._count, self._function)
            worker.assign(self._count, self._scratch.folder, self._function, self._files)
            self._crew.append(worker)
            self._count += 1

    def room(self) -> int:
        busy = sum(worker.ticket is not None for worker in self._crew)
        idle = sum(worker.ready and worker.ticket is None for worker in self._crew)
        return max(0, min(idle, self._allowed - busy))

    def submit(self, ticket: int, task: Task) -> None:
        worker = next(worker for worker in self._crew if worker.ready and worker.ticket is None)
        worker.ticket, worker.started = ticket, time.monotonic()
        with contextlib.suppress(OSError):  # a worker that has just died is found by `wait`
            worker.connection.send(("task", task))

    def wait(self, seconds: float | None = None) -> list[tuple[int, TaskOutcome]]:
        handles: dict[Any, _Worker] = {}
        for worker in self._crew:
            handles[worker.connection] = handles[worker.process.sentinel] = worker
        signalled = connection.wait(list(handles), self._patience(seconds))
        outcomes = []
        for worker in dict.fromkeys(handles[handle] for handle in signalled):
            outcomes += self._listen(worker)
        return outcomes + self._overdue()

    def close(self) -> None:
        atexit.unregister(self.close)
        while self._crew:
            worker = self._crew[-1]
            if self._keep and worker.ready and worker.ticket is None and worker.park():
                _idle.keep(self._crew.pop())
            else:
                self._dismiss(worker)
        self._scratch.close()

    def _patience(self, seconds: float | None) -> float | None:
        started = [worker.started for worker in self._crew if worker.ticket is not None]
        if self._timeout is None or not started:
            return seconds
        left = max(0.0, min(started) + self._timeout - time.monotonic())
        return left if seconds is None else min(left, seconds)

    def _listen(self, worker: _Worker) -> list[tuple[int, TaskOutcome]]:
        try:
            kind, content = worker.connection.recv() if worker.connection.poll() else ("dead", None)
        except (EOFError, OSError):
            kind, content = "dead", None
        if kind == "ready":
            worker.ready = worker.proven = self._once_ready = True
            self._false_starts, self._pause = 0, 0.0
            return []
        if kind == "broken":
            raise InputError(
                f"the workers cannot use {function_name(self._function)} ({content}); define it in a module or script "
                "that they can import."
            )
        ticket = worker.ticket
        if kind == "done" and ticket is not None and isinstance(content, TaskOutcome):
            worker.ticket = None
            return [(ticket, content)]
        return self._buried(worker)

    def _buried(self, worker: _Worker) -> list[tuple[int, TaskOutcome]]:
        worker.process.join()
        code, said = worker.process.exitcode, worker.said()
        self._dismiss(worker)
        if not worker.proven:  # one that has run before was about to leave when it was called back
            self._false_start(code)
        if worker.ticket is None:
            return []
        return [(worker.ticket, TaskOutcome(error=f"its process {_manner(code)}", log=said, lost=killed(code)))]

    def _false_start(self, code: int | None) -> None:
        """Count a process that ended before it was ready; give up when no process can start."""
        self._false_starts += 1
        if killed(code):
            self._pause = min(_LONGEST_PAUSE, max(0.1, 2 * self._pause))
            if self._false_starts > 10 + self._workers:
                raise LostWorkersError(
                    f"{self._false_starts} worker processes were ended from outside as they started (the last "
                    f"{_manner(code)}); look for what kills them, e.g. too little memory for {self._workers} of them"
                )
        elif not self._once_ready or self._false_starts > 10 + self._workers:
            raise InputError(f"the worker processes cannot start (exit code {code}): {self._why_not()}")

    def _why_not(self) -> str:
        if self._function.__module__ != "__main__":
            return "what they said stands above; repair it, or pass engine='inline'."
        return (
            f"they import the script that defines {function_name(self._function)}, so it must be a file that does its "
            "work under `if __name__ == '__main__':`; or pass engine='inline'."
        )

    def _overdue(self) -> list[tuple[int, TaskOutcome]]:
        if self._timeout is None:
            return []
        late = time.monotonic() - self._timeout
        outcomes = []
        for worker in [w for w in self._crew if w.ticket is not None and w.started <= late]:
            said = _last_words(worker)
            self._dismiss(worker)
            assert worker.ticket is not None
            outcomes.append((worker.ticket, TaskOutcome(error=f"it took longer than {self._timeout:g} s", log=said)))
        return outcomes

    def _dismiss(self, worker: _Worker) -> None:
        self._crew.remove(worker)
        worker.kill()


def _manner(code: int | None) -> str:
    return f"was ended by {signal_name(code)}" if code is not None and code < 0 else f"died with exit code {code}"


def _last_words(worker: _Worker) -> str:
    """What a hanging worker has printed, and where it hangs."""
    if sys.platform != "win32" and worker.process.pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker.process.pid, signal.SIGUSR1)
            time.sleep(0.1)
    return worker.said()


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """A child inherits the mask: Ctrl-C is for the parent, which then ends its workers."""
    if sys.platform == "win32":
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _main_hidden(function: Function) -> Iterator[None]:
    """Keep a new process from importing the calling script, unless the function stands there.

    A script without `if __name__ == "__main__":` would otherwise run again in every worker.
    """
    main = sys.modules["__main__"]
    if function.__module__ == "__main__":
        yield
        return
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _serve(pipe: connection.Connection) -> None:
    """The life of a worker: runs and their tasks, until its pipe is closed or nobody needs it."""
    if sys.platform != "win32":
        os.setsid()
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    output, function, shared, patience = os.devnull, None, None, None
    with contextlib.suppress(EOFError, ConnectionError):
        while pipe.poll(patience):
            try:
                kind, content = pipe.recv()
            except (EOFError, ConnectionError):
                return
            except Exception as error:  # the function is pickled by its name, which may not be found here
                pipe.send(("broken", one_line(error)))
                return
            if kind == "task":
                assert function is not None and shared is not None
                _forget_output()
                pipe.send(("done", _with_output(call(function, content, shared), output)))
            elif kind == "run":
                output, function, files = content
                _redirect(output)
                tempfile.tempdir = str(Path(output).parent)  # what a killed task leaves goes with the run
                forget_peak()
                shared, patience = read_shared(files), None
                pipe.send(("ready", None))
            else:
                _redirect(os.devnull)
                tempfile.tempdir = None
                function, shared, patience = None, None, _PARKED_FOR


def _leave_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    if sys.platform != "win32":
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _redirect(output: str) -> None:
    descriptor = os.open(output, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    os.close(descriptor)
    sys.stdout = open(1, "w", encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="replace", closefd=False, buffering=1)  # noqa: SIM115
    faulthandler.enable()
    if sys.platform != "win32":
        faulthandler.register(signal.SIGUSR1)


def _forget_output() -> None:
    os.ftruncate(1, 0)


def _with_output(outcome: TaskOutcome, output: str) -> TaskOutcome:
    sys.stdout.flush()
    sys.stderr.flush()
    if os.fstat(1).st_size == 0:
        return outcome
    said = Path(output).read_text(encoding="utf-8", errors="replace")[-LOG_TAIL:]
    return TaskOutcome(outcome.arrays, outcome.info, outcome.error, f"{said}\n{outcome.log}".lstrip("\n"), outcome.peak)
