"""Parents and workers of an audit are killed at random moments, also as they start: the same audit in the end."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import chaos_jobs
import pytest

from dosimeter.engine import Store

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks into /proc")


def entries(store):
    return {file.stem: file.stat().st_mtime_ns for file in store.glob("??/*.json")}


def begin(tmp_path):
    (tmp_path / "scratch").mkdir(exist_ok=True)
    environment = {**os.environ, "PYTHONPATH": chaos_jobs.PYTHONPATH, "TMPDIR": str(tmp_path / "scratch")}
    command = [sys.executable, chaos_jobs.__file__, str(tmp_path / "store"), "local"]
    with (tmp_path / "out").open("w") as out, (tmp_path / "err").open("w") as err:
        return subprocess.Popen(command, stdout=out, stderr=err, env=environment, start_new_session=True)


def workers_of(process, scratch):
    found = chaos_jobs.processes_in(scratch)
    return [pid for pid, line in found.items() if pid != process.pid and b"resource_tracker" not in line]


def strike(process, scratch, rng, tally):
    """Kill the parent, or one worker, or all of them at once; how many were killed."""
    workers, kind = workers_of(process, scratch), rng.random()
    if kind < 0.2:
        process.kill()
        tally("kills of a parent")
        return 1
    victims = workers if kind < 0.3 else workers[:1] if kind < 0.65 else workers[-1:]  # none while it starts
    for pid in victims:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
        tally("kills of a worker")
    return len(victims)


def gone(scratch, seconds=10.0):
    end = time.monotonic() + seconds
    while left := [line for line in chaos_jobs.processes_in(scratch).values() if b"resource_tracker" not in line]:
        assert time.monotonic() < end, left
        time.sleep(0.05)


@pytest.mark.slow
def test_an_audit_ends_the_same_after_any_kills(tmp_path, sizes, tally):
    rng = random.Random(int(os.environ.get("DOSIMETER_CHAOS_SEED", "5")))
    reference = chaos_jobs.facts(chaos_jobs.audit().to_json())
    kills, audits = 0, 0
    while kills < sizes.kills:
        folder = tmp_path / str(audits)
        folder.mkdir()
        kills += one_audit(folder, rng, sizes.kills - kills, tally, reference)
        audits += 1
    tally("audits that ended with the same bytes", audits)


def one_audit(folder, rng, most, tally, reference):
    """Kill an audit until it has ended; how many kills it took."""
    kills, seen = 0, {}
    while True:
        process = begin(folder)
        end = time.monotonic() + 300
        pause = rng.choice([0.3, 1.0, 2.0])  # some while it starts, some while it works
        while process.poll() is None:
            assert time.monotonic() < end, "no end"
            try:
                process.wait(rng.uniform(0.0, 2 * pause))
            except subprocess.TimeoutExpired:
                if kills < most:
                    kills += strike(process, folder / "scratch", rng, tally)
        kept = entries(folder / "store")
        changed = [key for key, written in seen.items() if kept.get(key) != written]
        assert not changed, "a stored training was lost or trained again"
        seen = kept
        said = (folder / "err").read_text()
        if process.returncode != -signal.SIGKILL:  # Python's own start of a worker whose parent is gone complains
            assert "Traceback" not in said, said
        gone(folder / "scratch")
        if process.returncode == 0:
            break
        assert process.returncode in (-signal.SIGKILL, 3), said
        tally("runs that gave up and said so", process.returncode == 3)
    assert chaos_jobs.facts((folder / "out").read_text()) == reference
    assert Store(folder / "store").verify() == []
    assert not (folder / "store" / "leases").exists()
    return kills
