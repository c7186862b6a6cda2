"""Disks that fill up and limits on file sizes: one sentence, no half file, and the next run resumes."""

import errno
import os
import random
import subprocess
import sys

import chaos_jobs
import pytest

from dosimeter.engine import DiskFullError, Store, Task, run

TASKS = [Task("t", {"size": 10 + 40 * seed}, seed) for seed in range(10)]
OPTIONS = {"engine": "inline", "progress": False}


def bits(results):
    return [result.arrays["values"].tobytes() for result in results]


def test_a_disk_that_is_full_at_any_write(tmp_path, sizes, tally, monkeypatch):
    rng, plain = random.Random(2), os.fsync
    reference = bits(run(chaos_jobs.draw, TASKS, **OPTIONS))
    for number in range(sizes.full):
        store, left = Store(tmp_path / str(number)), rng.randrange(30)

        def full(descriptor):
            nonlocal left
            left -= 1
            if left < 0:
                raise OSError(errno.ENOSPC, "No space left on device")
            return plain(descriptor)

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            try:
                list(run(chaos_jobs.draw, TASKS, store=store, **OPTIONS))
            except DiskFullError as error:
                assert "is full; make space and run the same again" in str(error)
                tally("full disks")
        assert not list(store.folder.rglob(".tmp*"))
        kept = len(store.ls())
        again = list(run(chaos_jobs.draw, TASKS, store=store, **OPTIONS))
        assert sum(result.cached for result in again) == kept
        assert bits(again) == reference
        assert store.verify() == []


LIMITED = """
import resource, sys
import chaos_jobs, test_disk
from dosimeter.engine import Store, run

resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)
try:
    list(run(chaos_jobs.draw, test_disk.TASKS, store=Store(sys.argv[1]), **test_disk.OPTIONS))
except OSError as error:
    print(error)
    sys.exit(4)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX limits")
def test_a_limit_on_the_size_of_files(tmp_path, sizes, tally):
    rng = random.Random(4)
    reference = bits(run(chaos_jobs.draw, TASKS, **OPTIONS))
    for number in range(sizes.limits):
        store = Store(tmp_path / str(number))
        command = [sys.executable, "-c", LIMITED, str(store.folder), str(rng.randrange(200, 3200))]
        environment = {**os.environ, "PYTHONPATH": chaos_jobs.PYTHONPATH}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 4, done.stderr
        assert "File too large" in done.stdout
        assert str(store.folder) in done.stdout
        assert done.stderr == ""
        assert not list(store.folder.rglob(".tmp*"))
        assert bits(run(chaos_jobs.draw, TASKS, store=store, **OPTIONS)) == reference
        tally("limits on file sizes")
