"""A run that is killed or interrupted at any moment: nothing is lost, nothing is left running."""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import engine_jobs as jobs
import pytest

from dosimeter.engine import Store, Task, local, run

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")

SCRIPT = """
import sys
import engine_jobs as jobs
from dosimeter.engine import Store, Task, run

if __name__ == "__main__":
    folder, notes, count, sleep = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
    tasks = [Task("t", {"notes": notes, "sleep": sleep, "size": 3000}, seed) for seed in range(count)]
    print("go", flush=True)
    for result in run(jobs.draw, tasks, workers=2, store=Store(folder) if folder else None):
        assert result.error is None
    print("done", flush=True)
"""


def _hear_ctrl_c() -> None:
    """A shell's background job ignores Ctrl-C and hands that on; the runs here must hear it however the tests began."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.fixture
def start(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    environment = {**os.environ, "PYTHONPATH": jobs.PYTHONPATH, "TMPDIR": str(scratch)}
    started = []

    def begin(store, *, count=60, sleep=0.03):
        arguments = [sys.executable, script, store, tmp_path / "notes", str(count), str(sleep)]
        process = subprocess.Popen(
            [*map(str, arguments)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=_hear_ctrl_c,
        )
        started.append(process)
        assert process.stdout.readline() == "go\n"
        return process

    yield begin
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def computed(tmp_path):
    file = tmp_path / "notes"
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def workers_of(script):
    """Python processes that have this run's scratch folder in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"TMPDIR={script.parent / 'scratch'}".encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def wait_until_gone(tmp_path, seconds=5.0):
    end = time.monotonic() + seconds
    while workers_of(tmp_path / "script.py"):
        assert time.monotonic() < end, "a process is left"
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").exists(), reason="looks into /proc")
def test_killed_at_random_moments_and_resumed(tmp_path, start):
    rng = random.Random(3)
    store = Store(tmp_path / "store")
    kills = 0
    for _ in range(10):
        before = len(computed(tmp_path))
        process = start(store.folder, sleep=0.06)
        while len(computed(tmp_path)) == before and process.poll() is None:
            time.sleep(0.01)
        time.sleep(rng.uniform(0.0, 0.25))
        if process.poll() is not None:
            break
        process.send_signal(signal.SIGKILL)
        process.wait()
        kills += 1
        wait_until_gone(tmp_path)  # workers see that their parent is gone
        stored, before = {entry.info["seed"] for entry in store.ls()}, len(computed(tmp_path))
    assert kills >= 6
    process = start(store.folder, sleep=0.06)
    out, err = process.communicate(timeout=300)
    assert (process.returncode, out) == (0, "done\n"), err
    assert not stored & set(computed(tmp_path)[before:])  # only what was not stored
    assert store.verify() == []
    tasks = [Task("t", {"notes": str(tmp_path / "notes"), "sleep": 0.06, "size": 3000}, seed) for seed in range(60)]
    found = list(run(jobs.draw, tasks, engine="inline", store=store, progress=False))
    assert all(result.cached for result in found)
    fresh = [Task("t", {"size": 3000}, seed) for seed in range(60)]
    for one, other in zip(found, run(jobs.draw, fresh, engine="inline", progress=False), strict=True):
        assert {n: a.tobytes() for n, a in one.arrays.items()} == {n: a.tobytes() for n, a in other.arrays.items()}
    assert len(computed(tmp_path)) <= 60 + 2 * kills  # a kill loses at most what the two workers held
    assert not list((tmp_path / "scratch").glob("dosimeter-*"))  # folders of killed runs are tidied up


@pytest.mark.skipif(not Path("/proc").exists(), reason="looks into /proc")
@pytest.mark.parametrize("whole_group", [True, False])
def test_ctrl_c(tmp_path, start, whole_group):
    store = Store(tmp_path / "store")
    process = start(store.folder, sleep=0.3)
    while len(computed(tmp_path)) < 5:
        time.sleep(0.05)
    if whole_group:  # as a terminal does it
        os.killpg(process.pid, signal.SIGINT)
    else:
        process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=10)
    assert process.returncode not in (0, None)
    kept = len(store.ls())
    assert kept >= 1
    assert f"dosimeter: stopped; {kept} of 60 tasks are kept in {store.folder}: run the same again to resume" in err
    assert err.count("Traceback") == 1  # the script's own KeyboardInterrupt, none of a worker
    wait_until_gone(tmp_path)
    assert store.verify() == []
    assert not list(store.folder.rglob(".tmp*"))
    assert not list((tmp_path / "scratch").glob("dosimeter-*"))


def test_ctrl_c_without_a_store(tmp_path, start):
    process = start("", sleep=0.3)
    while len(computed(tmp_path)) < 3:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=10)
    assert "nothing is kept without a store" in err


def test_workers_that_are_killed_from_outside_are_replaced(tmp_path):
    import multiprocessing

    results = run(jobs.draw, [Task("t", {"sleep": 0.1}, seed) for seed in range(20)], workers=2, progress=False)
    collected = [next(results)]
    for process in multiprocessing.active_children():
        if process.name.startswith("dosimeter"):
            os.kill(process.pid, signal.SIGKILL)
    collected += results
    assert [result.error for result in collected] == [None] * 20


@pytest.fixture
def nobody_waits():
    yield
    local._idle.close()


@pytest.mark.usefixtures("nobody_waits")
@pytest.mark.parametrize("moment", ["before the call", "after the call"])
def test_workers_that_leave_as_they_are_called_back_are_replaced(monkeypatch, moment):
    """One that has waited its minute ends, and the next run may still have found it alive."""
    tasks = [Task("t", {"sleep": 0.3}, seed) for seed in range(4)]
    first = list(run(jobs.draw, tasks, workers=2, keep_workers=True))
    plain, left = local._Worker.assign, []

    def leaves(worker, *given):
        if worker.proven and moment == "before the call":
            worker.process.kill()
            worker.process.join()
        plain(worker, *given)
        if worker.proven:
            worker.process.kill()
            left.append(worker)

    monkeypatch.setattr(local._Worker, "assign", leaves)
    again = list(run(jobs.draw, tasks, workers=2, keep_workers=True))
    assert left
    assert [one.error for one in again] == [None] * 4
    assert all((a.arrays["values"] == b.arrays["values"]).all() for a, b in zip(first, again, strict=True))


def test_a_live_run_keeps_its_scratch_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # runs of other processes come and go in the usual one
    first = run(jobs.draw, [Task("t", {}, seed) for seed in range(3)], workers=1, progress=False)
    next(first)
    mine = set(Path(tempfile.gettempdir()).glob("dosimeter-run-*"))
    list(run(jobs.draw, [Task("t", {}, 0)], workers=1, progress=False))
    assert mine
    assert mine <= set(Path(tempfile.gettempdir()).glob("dosimeter-run-*"))
    first.close()
