"""A Ray cluster: joined if there is one, started on this machine if not; shared arrays go to its object store once."""

from __future__ import annotations

import contextlib
import faulthandler
import io
import logging
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy.typing as npt

from dosimeter._validate import InputError, require
from dosimeter.engine.scratch import Scratch, descendants, remove_abandoned
from dosimeter.engine.tasks import Function, Task
from dosimeter.engine.work import LOG_TAIL, WORKER, TaskOutcome, call, environment, one_line

# Ray prints notices of lost workers on standard output, which belongs to results; the driver reports them itself.
_SILENCED = "RAY_DEDUP_LOGS_SKIP_REGEX"
_NOTICES = r"^A worker died or was killed|^The node with node id|^\(raylet"


class Ray:
    """Tasks of one core each, and of so many GPUs. At most twice as many as can run are handed over at a time.

    "ray" joins the cluster that RAY_ADDRESS names, else one that runs on this machine, else it starts one here
    (always, if RAY_ADDRESS is "local").
    """

    def __init__(
        self,
        function: Function,
        shared: Mapping[str, npt.NDArray[Any]],
        *,
        address: str,
        workers: int | None,
        timeout: float | None,
        gpus: int = 0,
    ) -> None:
        with environment({} if _SILENCED in os.environ else {_SILENCED: _NOTICES}):
            self._ray = require("ray", extra="ray", caller=f"engine={address!r}")
        self._workers, self._timeout, self._gpus = workers, timeout, gpus
        self._allowed: int | None = None
        self._running: dict[Any, tuple[int, float]] = {}  # ticket and time of submission
        self._function = function
        self._scratch: Scratch | None = None
        remove_abandoned()
        self._before = descendants()
        self._started = self._connect(address)
        try:
            self._require_gpus(address)
            self._shared = self._ray.put(dict(shared)) if shared else {}
            settings = {"env_vars": WORKER}
            self._call = self._ray.remote(num_cpus=1, num_gpus=gpus, max_retries=0, runtime_env=settings)(_remote)
            self._limit = self._ceiling()
            self._note()
        except BaseException:
            self.close()
            raise

    @property
    def size(self) -> int:
        return self._limit

    def allow(self, workers: int) -> None:
        self._allowed = max(1, workers)

    def staff(self, tasks: int) -> None:
        """Ray starts and replaces its workers by itself."""

    def room(self) -> int:
        limit = self._limit if self._allowed is None else min(self._limit, self._allowed)
        return max(0, limit - len(self._running))

    def submit(self, ticket: int, task: Task) -> None:
        reference = self._call.remote(self._function, task, self._shared, self._timeout)
        self._running[reference] = (ticket, time.monotonic())

    def wait(self, seconds: float | None = None) -> list[tuple[int, TaskOutcome]]:
        finished, _ = self._ray.wait(list(self._running), num_returns=1, timeout=min(10.0, seconds or 10.0))
        outcomes = []
        for reference in finished:
            ticket, submitted = self._running.pop(reference)
            try:
                outcome = self._ray.get(reference)
            except self._ray.exceptions.RayError as error:
                outcome = self._failure(error, time.monotonic() - submitted)
            outcomes.append((ticket, outcome))
        if time.monotonic() - self._asked > 5.0:
            self._limit = self._ceiling()
            self._note()
        return outcomes

    def _note(self) -> None:
        """Remember the processes of a cluster that we have started: its agents outlive a driver that is killed."""
        if self._scratch is not None:
            self._scratch.note_processes(descendants() - self._before)

    def close(self) -> None:
        for reference in self._running:
            with contextlib.suppress(Exception):  # whatever cannot be cancelled has ended
                self._ray.cancel(reference, force=True)
        self._running.clear()
        if self._started:
            self._started = False
            self._ray.shutdown()
        if self._scratch is not None:
            self._scratch.close()

    def _failure(self, error: Exception, elapsed: float) -> TaskOutcome:
        if isinstance(error, self._ray.exceptions.RayTaskError):
            error = getattr(error, "cause", None) or error
        if not isinstance(error, self._ray.exceptions.RayError):
            return TaskOutcome(error=one_line(error), log=str(error))
        if isinstance(error, self._ray.exceptions.OwnerDiedError):
            # Ray's notice for nodes that this process does not answer, e.g. because only one side asks for a token:
            # a cluster that was found turns Ray's authentication on, an address that was given leaves it as it is.
            reason = "its node could not fetch the shared arrays from this process (OwnerDiedError); set RAY_ADDRESS "
            return TaskOutcome(error=reason + "and RAY_AUTH_MODE as they are on the cluster", log=str(error))
        # A task that takes too long ends its own process, which Ray cannot tell from one that was killed.
        late = self._timeout is not None and elapsed >= self._timeout
        or_late = f", or it took longer than {self._timeout:g} s" if late else ""
        reason = f"its worker or node was lost ({type(error).__name__}){or_late}"
        return TaskOutcome(error=reason, log=str(error), lost=not late)

    def _connect(self, address: str) -> bool:
        """Join or start a cluster; whether it is ours to leave again."""
        if self._ray.is_initialized():
            return False
        options = {"log_to_driver": False, "logging_level": logging.ERROR}
        try:
            named = address if address != "ray" else os.environ.get("RAY_ADDRESS", "auto")
            if named not in ("auto", "local"):
                self._ray.init(address=named, **options)
            elif named == "local" or not self._joined(options):
                self._scratch = Scratch()
                self._ray.init(address="local", num_cpus=self._workers, include_dashboard=False, **options)
        except (ConnectionError, ImportError, RuntimeError, ValueError, OSError) as error:
            raise InputError(
                f"engine={address!r} cannot be reached ({one_line(error, 200)}); check that the cluster runs and that "
                "its Ray and Python versions are those of this machine."
            ) from None
        return True

    def _joined(self, options: Mapping[str, Any]) -> bool:
        """Join a cluster that runs on this machine, if there is one."""
        try:
            self._ray.init(address="auto", **options)
        except ConnectionError:
            return False
        return True

    def _require_gpus(self, address: str) -> None:
        """Refuse a cluster without GPUs where tasks ask for some: they would wait for ever."""
        found = int(self._ray.cluster_resources().get("GPU", 0))
        if found < self._gpus:
            raise InputError(
                f"device asks for {self._gpus} GPU for each training, and the cluster of engine={address!r} has "
                f"{found}; start Ray with GPUs, or pass device='cpu'."
            )

    def _ceiling(self) -> int:
        """Cores of the cluster as it is now: nodes come and go."""
        self._asked = time.monotonic()
        resources = self._ray.cluster_resources()
        cores = int(resources.get("CPU", 1))
        if self._gpus:
            cores = max(1, min(cores, int(resources.get("GPU", 0)) // self._gpus))
        if self._workers is not None and self._workers < cores:
            return self._workers
        return 2 * max(1, cores)


def _remote(
    function: Function, task: Task, shared: Mapping[str, npt.NDArray[Any]], timeout: float | None
) -> TaskOutcome:
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said), _ends_after(timeout):
        outcome = call(function, task, shared)
    log = f"{said.getvalue()[-LOG_TAIL:]}\n{outcome.log}".strip("\n")
    return replace(outcome, log=log)


@contextmanager
def _ends_after(timeout: float | None) -> Iterator[None]:
    """End this process when the block takes longer."""
    if timeout is None:
        yield
        return
    # The clock runs outside Python's lock, so that it also ends a task that hangs in compiled code.
    with Path(os.devnull).open("w") as nowhere:
        faulthandler.dump_traceback_later(timeout, exit=True, file=nowhere)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()
