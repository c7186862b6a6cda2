"""Temporary folders: one that goes with its run or when the next looks around, and one for logs that stays a week."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dosimeter._files import naming
from dosimeter.engine.tasks import Arrays

_PREFIX = "dosimeter-run-"
_LOGS = "dosimeter-logs-"
_PROCESSES = "processes"
_WEEK = 7 * 86_400.0  # seconds that logs are kept


class Scratch:
    """A folder for one run. A killed process cannot remove its folder, but its lock is gone: so the next run knows."""

    def __init__(self) -> None:
        remove_abandoned()
        self.folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        self._lock = _locked(self.folder / "new", create=True)
        with contextlib.suppress(OSError):
            (self.folder / "new").replace(self.folder / "lock")  # under this name it is always held

    def note_processes(self, pids: Iterable[int]) -> None:
        """Remember processes that may outlive this one; the run that finds the folder abandoned ends them."""
        known = [f"{machine()} {pid} {born}" for pid in pids if (born := _born(pid)) is not None]
        with contextlib.suppress(OSError):
            (self.folder / _PROCESSES).write_text("\n".join(known))

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


class Logs:
    """The logs of a run's failed tasks; their folder is made for the first one, and old folders go then."""

    def __init__(self) -> None:
        self._folder: Path | None = None

    def write(self, name: str, text: str) -> Path:
        """Keep a text; the file's path."""
        if self._folder is None:
            _remove_old_logs()
            self._folder = Path(tempfile.mkdtemp(prefix=_LOGS))
        file = self._folder / f"{name}.txt"
        with naming(file):
            file.write_text(text, encoding="utf-8", errors="replace")
        return file


def write_shared(folder: Path, shared: Mapping[str, npt.NDArray[Any]]) -> list[tuple[str, str]]:
    """Write arrays as .npy files; pairs of name and file that `read_shared` takes."""
    files = []
    for index, (name, array) in enumerate(shared.items()):
        file = folder / f"shared-{index}.npy"
        with naming(file), file.open("wb") as stream:
            np.lib.format.write_array(stream, array, allow_pickle=False)
        files.append((name, str(file)))
    return files


def read_shared(files: list[tuple[str, str]]) -> Arrays:
    """The arrays, mapped read-only: all processes of a machine see the same pages."""
    shared: Arrays = {}
    for name, file in files:
        array = np.load(file, mmap_mode="r", allow_pickle=False) if _mappable(file) else np.load(file)
        shared[name] = np.asarray(array)
        shared[name].flags.writeable = False
    return shared


def _mappable(file: str) -> bool:
    with Path(file).open("rb") as stream:
        version = np.lib.format.read_magic(stream)
        header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = header(stream)
    return len(shape) > 0 and 0 not in shape and dtype.itemsize > 0


def _locked(file: Path, *, create: bool) -> int | None:
    """A descriptor that holds the lock of a file, or None if another process holds it or there is none."""
    if sys.platform == "win32":
        return None
    import fcntl

    try:
        descriptor = os.open(file, os.O_RDWR | (os.O_CREAT if create else 0))
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def remove_abandoned() -> None:
    """Remove the folders of runs that were killed, and end the processes that outlived them."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        lock = _locked(folder / "lock", create=False)
        if lock is not None:
            with contextlib.suppress(OSError, ValueError):
                _end_noted(folder)
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)


def machine() -> str:
    """What tells this machine, since it was started, from others and from itself before."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return platform.node().replace(" ", "-") or "unknown"


def descendants() -> set[int]:
    """The processes that this one has started, and theirs; none where the system does not tell."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        fields = _fields(int(folder.name))
        if fields:
            children.setdefault(int(fields[1]), []).append(int(folder.name))
    found: set[int] = set()
    waiting = [os.getpid()]
    while waiting:
        young = children.get(waiting.pop(), [])
        found.update(young)
        waiting += young
    return found


def _fields(pid: int) -> list[str]:
    """What /proc says of a process from its state on: the name before it may hold anything."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _born(pid: int) -> str | None:
    """When a process was started, which tells it from a later one with its number."""
    fields = _fields(pid)
    return fields[19] if len(fields) > 19 else None


def _end_noted(folder: Path) -> None:
    try:
        lines = (folder / _PROCESSES).read_text().splitlines()
    except OSError:
        return
    for line in lines:
        where, pid, born = line.split()
        if where == machine() and _born(int(pid)) == born:
            with contextlib.suppress(OSError):
                os.kill(int(pid), signal.SIGKILL)


def _remove_old_logs() -> None:
    for folder in Path(tempfile.gettempdir()).glob(f"{_LOGS}*"):
        with contextlib.suppress(OSError):
            if time.time() - folder.stat().st_mtime > _WEEK:
                shutil.rmtree(folder, ignore_errors=True)
