"""Who computes what: claims on the tasks of a store, so that processes that share it share the work.

A run has one file in the store's folder `leases/`; a claim is a hard link to it under the key of the task, which the
file system makes once or not at all. The run holds a lock on the file and touches it every few seconds while it works,
and all its claims with it. A claim is void when its owner is dead (its lock is free, on the same machine at once) or
silent for a minute. Claims only save work: where they cannot be made, or two runs compute the same task after all,
results are the same, since a store takes them whole or not at all.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
import threading
from pathlib import Path

from dosimeter.engine.scratch import machine

HEARTBEAT = 5.0  # seconds
EXPIRES = 60.0  # seconds of silence after which a claim is void
_NEW = "new-"
_PROCESS = secrets.token_hex(8)


class Leases:
    """The claims of one run; nothing is written before the first."""

    def __init__(self, store: Path) -> None:
        self._folder = store / "leases"
        self._own: Path | None = None
        self._descriptor = -1
        self._possible, self._nameless = sys.platform != "win32", hasattr(os, "O_TMPFILE")
        self._held: set[str] = set()
        self._closed, self._touching = threading.Event(), threading.Lock()
        self.working = False  # only then does the file show signs of life: an idle owner must not keep others waiting

    def claim(self, key: str) -> bool:
        """Take a task, or say that another living process has it."""
        own = self._file()
        if own is None or key in self._held:
            return True
        lease = self._folder / key
        for _ in range(2):
            try:
                os.link(own, lease)
            except FileExistsError:
                if self._mine(lease):
                    return True
                if not self._void(lease):
                    return False
            except OSError:  # no links on this file system, no permission, no space: every process for itself
                return True
            else:
                self._held.add(key)
                return True
        return False

    def release(self, key: str) -> None:
        """Give a task back, finished or not."""
        if key in self._held:
            self._held.discard(key)
            lease = self._folder / key
            with contextlib.suppress(OSError):
                if os.lstat(lease).st_ino == os.fstat(self._descriptor).st_ino:  # another may have taken it over
                    lease.unlink()

    def close(self) -> None:
        """Give everything back."""
        self._closed.set()
        for key in list(self._held):
            self.release(key)
        self._possible = False
        if self._own is not None:
            self._sweep()
            with contextlib.suppress(OSError):
                self._own.unlink()
            with self._touching:
                os.close(self._descriptor)
            self._own = None
            with contextlib.suppress(OSError):  # another run may be using it
                self._folder.rmdir()

    def _file(self) -> Path | None:
        """Our file, made and locked when it is first asked for; None where that is not possible."""
        if self._own is not None or not self._possible:
            return self._own
        own = self._folder / f"run-{secrets.token_hex(8)}"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            if self._folder.is_symlink():
                raise NotADirectoryError
            self._descriptor, named = _unseen(own, nameless=self._nameless)
        except OSError:
            self._possible = False
            return None
        with contextlib.suppress(OSError):
            os.write(self._descriptor, f"{machine()} {_PROCESS}".encode())
        try:
            self._possible = _locked(self._descriptor)
            _show(self._descriptor, named, own)
        except OSError:
            self._possible = False
        if not self._possible:
            os.close(self._descriptor)
            with contextlib.suppress(OSError):
                own.unlink(missing_ok=True)
                if named is not None:
                    named.unlink(missing_ok=True)
            if named is None:  # a file without a name could not be given one here
                self._possible, self._nameless = True, False
                return self._file()
            return None
        self._own = own
        self._sweep()
        threading.Thread(target=self._beat, daemon=True, name="dosimeter-lease").start()
        return own

    def _sweep(self) -> None:
        """Remove what killed runs have left."""
        with contextlib.suppress(OSError):
            for other in list(self._folder.iterdir()):
                if other != self._own:
                    self._void(other)

    def _beat(self) -> None:
        while not self._closed.wait(HEARTBEAT):
            with self._touching, contextlib.suppress(OSError):
                if self.working and not self._closed.is_set():
                    os.utime(self._descriptor)

    def _mine(self, lease: Path) -> bool:
        """Whether another run of this process has it, which cannot continue before this one does."""
        return _content(lease).split()[1:] == [_PROCESS]

    def _void(self, lease: Path) -> bool:
        """Remove the claim of an owner that is dead or silent; whether it is gone."""
        with contextlib.suppress(OSError):
            os.utime(self._descriptor)
        try:
            descriptor = os.open(lease, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        try:
            found = os.fstat(descriptor)
            silent = os.fstat(self._descriptor).st_mtime - found.st_mtime > EXPIRES  # both by the clock of the disk
            # A lock that is free may be one that another machine holds and this one cannot see.
            free = not lease.name.startswith(_NEW) and _locked(descriptor)
            dead = free and _content(lease).split()[:1] in ([], [machine()])
            if (dead or silent) and os.lstat(lease).st_ino == found.st_ino:
                lease.unlink()
                return True
        except FileNotFoundError:
            return True
        except OSError:
            pass
        finally:
            os.close(descriptor)
        return False


def _unseen(own: Path, *, nameless: bool) -> tuple[int, Path | None]:
    """A new file that nobody takes for a dead one before it is locked: without a name, or with one that says so.

    Where the file system has files without a name, nothing of it is left if the process is killed before `_show`.
    """
    if nameless:
        with contextlib.suppress(OSError):
            return os.open(own.parent, os.O_RDWR | os.O_TMPFILE, 0o644), None
    named = own.with_name(f"{_NEW}{own.name}")
    return os.open(named, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644), named


def _show(descriptor: int, named: Path | None, own: Path) -> None:
    """Give the file of `_unseen` its name."""
    if named is not None:
        named.replace(own)
    else:  # a directory is given only because Python then follows the link to the open file
        os.link(f"/proc/self/fd/{descriptor}", own, src_dir_fd=descriptor, follow_symlinks=True)


def _content(lease: Path) -> str:
    try:
        descriptor = os.open(lease, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        try:
            return os.read(descriptor, 200).decode(errors="replace")
        finally:
            os.close(descriptor)
    except OSError:
        return ""


def _locked(descriptor: int) -> bool:
    if sys.platform == "win32":
        return False
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
