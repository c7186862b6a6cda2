"""Running tasks: order, bits, retries, limits, what the user reads."""

import functools
import os
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path

import engine_jobs as jobs
import numpy as np
import pytest

from dosimeter import InputError
from dosimeter._progress import TaskProgress, duration
from dosimeter.engine import DamagedEntryWarning, DiskFullError, Store, Task, run
from dosimeter.engine import driver as driver_module
from dosimeter.engine.work import Inline, one_line, seed_torch

X = {"x": np.arange(10.0)}


def tasks(count, **arguments):
    return [Task("t", arguments, seed) for seed in range(count)]


def bits(results):
    return [(r.task.seed, r.error, r.info, {n: a.tobytes() for n, a in (r.arrays or {}).items()}) for r in results]


def notes(path):
    return sorted(int(line) for line in Path(path).read_text().split())


def test_order_and_bits_on_every_engine():
    mixed = [Task("t", {"sleep": 0.05 * (seed % 3 == 0)}, seed) for seed in range(12)]
    inline = bits(run(jobs.draw, mixed, shared=X, engine="inline", progress=False))
    assert [seed for seed, *_ in inline] == list(range(12))
    for workers in (1, 2):
        assert bits(run(jobs.draw, mixed, shared=X, workers=workers, progress=False)) == inline
    backwards = bits(run(jobs.draw, mixed[::-1], shared=X, workers=2, progress=False))
    assert backwards[::-1] == inline
    assert len({tuple(arrays.values()) for *_, arrays in inline}) == 12


def test_products_have_the_same_bits_inline_and_in_workers():
    x = {"x": np.random.default_rng(0).normal(size=(700, 300))}
    inline = bits(run(jobs.matmul, tasks(3), shared=x, engine="inline", progress=False))
    assert bits(run(jobs.matmul, tasks(3), shared=x, workers=2, progress=False)) == inline
    assert inline[0][2] == {"threads": "1"}


def test_torch_is_seeded_also_for_the_task_that_imports_it():
    torch = pytest.importorskip("torch")
    expected = []
    for seed in range(3):
        torch.manual_seed(seed)
        expected.append(torch.randn(3).numpy())
    found = list(run(jobs.late_torch, tasks(3), engine="local", workers=2, progress=False))
    np.testing.assert_array_equal([result.arrays["values"] for result in found], expected)
    before = list(sys.meta_path)
    list(run(jobs.draw, tasks(1), engine="inline", progress=False))
    assert sys.meta_path == before


def test_torch_is_seeded_without_writing_stacks_down(monkeypatch):
    torch = pytest.importorskip("torch")
    torch.manual_seed(7)
    expected = torch.randn(5)
    monkeypatch.setattr("traceback.format_stack", lambda *_: pytest.fail("torch wrote the stack down"))
    if not torch.accelerator.is_available():
        seed_torch(torch, 7)
        assert torch.equal(torch.randn(5), expected)
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    asked = []
    monkeypatch.setattr(torch, "manual_seed", asked.append)
    seed_torch(torch, 8)
    assert asked == [8]


def test_inline_puts_back_what_it_changes():
    random.seed(5)
    before, threads = random.getstate(), os.environ.get("OMP_NUM_THREADS")
    list(run(jobs.draw, tasks(2), engine="inline", progress=False))
    assert random.getstate() == before
    assert os.environ.get("OMP_NUM_THREADS") == threads


def test_results_come_as_soon_as_those_before_them_are_there():
    start, arrived = time.monotonic(), []
    mixed = [Task("t", {"sleep": 0.0 if seed < 3 else 3.0}, seed) for seed in range(4)]
    for _ in run(jobs.draw, mixed, workers=1, progress=False):
        arrived.append(time.monotonic() - start)
    assert arrived[3] - arrived[2] > 2.5


@pytest.mark.parametrize("engine", ["inline", "local"])
def test_what_is_stored_is_not_computed_again(tmp_path, engine):
    store, side = Store(tmp_path / "s"), tmp_path / "notes"
    options = {"shared": X, "engine": engine, "workers": 1, "store": store, "progress": False}
    first = list(run(jobs.draw, tasks(5, notes=str(side)), **options))
    again = list(run(jobs.draw, tasks(7, notes=str(side)), **options))
    assert bits(again)[:5] == bits(first)
    assert [r.cached for r in again] == [True] * 5 + [False] * 2
    assert notes(side) == list(range(7))
    list(run(jobs.draw, tasks(2, notes=str(side)), **{**options, "shared": {"x": np.arange(11.0)}}))
    list(run(jobs.draw, tasks(2, notes=str(side)), **options, version="2"))
    assert len(notes(side)) == 11


def test_nothing_starts_when_everything_is_stored(tmp_path, monkeypatch):
    store = Store(tmp_path)
    list(run(jobs.draw, tasks(3), engine="inline", store=store, progress=False))
    monkeypatch.setattr(driver_module, "Inline", None)
    assert all(r.cached for r in run(jobs.draw, tasks(3), engine="inline", store=store, progress=False))


def test_a_damaged_entry_is_reported_and_computed_again(tmp_path):
    store, side = Store(tmp_path / "s"), tmp_path / "notes"
    options = {"engine": "inline", "store": store, "progress": False}
    first = bits(run(jobs.draw, tasks(4, notes=str(side)), **options))
    for number, suffix in enumerate(("npz", "json")):
        file = sorted(store.folder.rglob(f"*.{suffix}"))[number]
        content = bytearray(file.read_bytes())
        content[100] ^= 4
        file.write_bytes(content)
    with pytest.warns(DamagedEntryWarning, match="damaged"):
        again = list(run(jobs.draw, tasks(4, notes=str(side)), **options))
    assert bits(again) == first
    assert sum(r.cached for r in again) == 2
    assert len(notes(side)) == 6
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert all(r.cached for r in run(jobs.draw, tasks(4, notes=str(side)), **options))


@pytest.mark.parametrize("kind", ["exit", "kill", "raise", "leave"])
def test_one_mishap_is_made_good(tmp_path, kind):
    todo = tasks(6)
    todo[2] = Task("t", {"kind": kind, "flag": str(tmp_path / "flag"), "notes": str(tmp_path / "notes")}, 2)
    results = list(run(jobs.misbehave, todo, workers=2, progress=False))
    assert [int(r.arrays["seed"][0]) for r in results] == list(range(6))
    assert notes(tmp_path / "notes") == [2, 2]


@pytest.mark.parametrize(
    ("kind", "error", "log"),
    [
        ("exit", "its process died with exit code 3", "exit code 3"),
        ("crash", "its process was ended by SIGSEGV", "SIGSEGV"),
        ("raise", "ValueError: no such luck", "printed before the error"),
        ("leave", "SystemExit: gone", "sys.exit"),
        ("list", "TypeError: the task's function must return", "Traceback"),
        ("objects", "TypeError: arrays['a'] has type object", "Traceback"),
        ("write", "ValueError: assignment destination is read-only", "Traceback"),
    ],
)
@pytest.mark.once
@pytest.mark.parametrize("stored", [True, False])
def test_a_task_that_keeps_failing_does_not_stop_the_others(tmp_path, kind, error, log, stored):
    todo = tasks(5)
    todo[1] = Task("t", {"kind": kind, "notes": str(tmp_path / "notes")}, 1)
    store = Store(tmp_path / "s") if stored else None
    results = list(run(jobs.misbehave, todo, shared=X, workers=2, store=store, progress=False))
    assert [r.error is None for r in results] == [True, False, True, True, True]
    failed = results[1]
    assert failed.error.startswith(error)
    assert "\n" not in failed.error
    assert failed.arrays is None
    text = Path(failed.info["log"]).read_text()
    assert log in text
    assert notes(tmp_path / "notes") == [1, 1]
    if stored:
        assert Path(failed.info["log"]).parent == store.folder / "logs"
        assert len(store.ls()) == 4


def test_a_hanging_task_is_ended_and_tried_again(tmp_path):
    todo = tasks(5)
    todo[1] = Task("t", {"kind": "hang", "flag": str(tmp_path / "flag")}, 1)
    todo[3] = Task("t", {"kind": "hang"}, 3)
    start = time.monotonic()
    results = list(run(jobs.misbehave, todo, workers=2, timeout=1.0, store=Store(tmp_path / "s"), progress=False))
    assert time.monotonic() - start < 30
    assert [r.error for r in results] == [None, None, None, "it took longer than 1 s", None]
    text = Path(results[3].info["log"]).read_text()
    assert "going to sleep" in text
    assert "in misbehave" in text  # where it hung


def test_retries_can_be_none_or_many(tmp_path):
    for retries in (0, 3):
        todo = [Task("t", {"kind": "raise", "notes": str(tmp_path / f"notes{retries}")}, 0)]
        (_,) = run(jobs.misbehave, todo, engine="inline", retries=retries, progress=False)
        assert notes(tmp_path / f"notes{retries}") == [0] * (retries + 1)


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(not Path("/proc").exists(), reason="looks into /proc")
def test_a_command_ends_with_its_task(tmp_path):
    todo = [Task("t", {"kind": "command", "pid": str(tmp_path / "pid")}, 0)]
    (result,) = run(jobs.misbehave, todo, workers=1, timeout=1.0, retries=0, progress=False)
    assert result.error == "it took longer than 1 s"
    assert not alive((tmp_path / "pid").read_text())


def test_leaving_the_loop_ends_the_workers():
    results = run(jobs.draw, tasks(10, sleep=0.2), workers=2, progress=False)
    next(results)
    assert len(children()) == 2
    results.close()
    assert children() == []


def children():
    import multiprocessing

    return [process for process in multiprocessing.active_children() if process.name.startswith("dosimeter")]


def test_workers_are_not_more_than_tasks():
    results = run(jobs.draw, tasks(1, sleep=0.5), workers=4, progress=False)
    counted = []
    watcher = threading.Timer(0.4, lambda: counted.append(len(children())))
    watcher.start()
    list(results)
    watcher.join()
    assert counted == [1]


def test_info_is_the_same_fresh_and_stored(tmp_path):
    store = Store(tmp_path)
    fresh, stored = (next(run(jobs.odd_info, tasks(1), engine="inline", store=store, progress=False)) for _ in "ab")
    assert fresh.info == stored.info == {"loss": None, "pair": [1, 2], "array": [0, 1]}
    assert fresh.arrays["a"].shape == stored.arrays["a"].shape == ()
    assert stored.cached


MB = 10**6


def together(results):
    """How many tasks overlapped at most."""
    spans = [r.arrays["span"] for r in results]
    return max(sum(a <= start < b for a, b in spans) for start, _ in spans)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="measures memory through /proc")
@pytest.mark.slow
def test_memory_decides_how_many_run_at_once():
    todo = tasks(6, bytes=150 * MB, sleep=0.7)
    ballast = np.ones(500 * MB // 8)  # the parent's own memory must not be taken for the workers'
    assert together(list(run(jobs.allocate, todo, workers=2, memory=350 * MB, progress=False))) == 1
    long = tasks(4, bytes=150 * MB, sleep=3.0)  # a busy machine starts the second worker late
    assert together(list(run(jobs.allocate, long, workers=2, memory=2000 * MB, progress=False))) == 2
    assert ballast[0] == 1
    with pytest.warns(
        UserWarning, match=r"one task of engine_jobs.allocate needs \d+ MB, more than the limit of 100 MB"
    ):
        assert len(list(run(jobs.allocate, todo[:2], workers=2, memory=100 * MB, progress=False))) == 2


def test_results_that_wait_long_wait_on_the_disk(monkeypatch):
    monkeypatch.setattr(driver_module, "_IN_MEMORY", 1000)
    todo = [Task("t", {"sleep": 1.0 * (seed == 0), "size": 100}, seed) for seed in range(12)]
    results = run(jobs.draw, todo, workers=2, progress=False)
    first = next(results)
    frame = results.gi_frame.f_locals["self"]
    assert sum(isinstance(found, driver_module._OnDisk) for found in frame._finished.values()) >= 8
    spill = frame._spill.folder
    assert bits([first, *results]) == bits(run(jobs.draw, todo, engine="inline", progress=False))
    assert not spill.exists()


def resident():
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="measures memory through /proc")
@pytest.mark.parametrize("engine", ["inline", "local"])
@pytest.mark.slow
def test_memory_stays_flat_over_ten_thousand_tasks(engine):
    marks = []
    for count, result in enumerate(run(jobs.draw, tasks(10_000, size=2000), engine=engine, workers=2, progress=False)):
        if count in (2_000, 9_999):
            marks.append(resident())
        assert result.task.seed == count
    assert marks[1] - marks[0] < 20 * MB  # the results together are 160 MB


class Counting(Inline):
    """Keeps what it is given until it holds four tasks or there are no more."""

    most = 0

    def __init__(self, function, shared):
        super().__init__(function, shared)
        self.held = []

    def room(self):
        return 4 - len(self.held)

    def submit(self, ticket, task):
        self.held.append((ticket, task))
        Counting.most = max(Counting.most, len(self.held))

    def wait(self, seconds=None):
        self._next = self.held.pop()  # the last one first
        return super().wait(seconds)


def test_tasks_do_not_pile_up(monkeypatch):
    monkeypatch.setattr(driver_module, "Inline", Counting)
    assert [r.task.seed for r in run(jobs.draw, tasks(500), engine="inline", progress=False)] == list(range(500))
    assert Counting.most == 4


def test_one_line_of_progress(capfd, tmp_path):
    options = {"engine": "inline", "store": Store(tmp_path)}
    list(run(jobs.draw, tasks(30), **options))
    list(run(jobs.draw, tasks(50), **options))
    list(run(jobs.draw, tasks(5), engine="inline", progress=False))
    results = run(jobs.draw, tasks(9, size=7), **options)
    next(results)
    results.close()
    out, err = capfd.readouterr()
    assert out == ""
    first, second, left = err.splitlines()
    assert re.fullmatch(r"dosimeter: 30 of 30 tasks in \d.*s", first)
    assert re.fullmatch(r"dosimeter: 50 of 50 tasks in \d.*s, 30 from the store", second)
    assert re.fullmatch(r"dosimeter: 1 of 9 tasks in \d.*s", left)


@pytest.mark.parametrize("engine", ["inline", "local"])
def test_only_failed_tasks_leave_something(tmp_path, monkeypatch, capfd, engine):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(driver_module, "_IN_MEMORY", 10)
    old, recent = tmp_path / "dosimeter-logs-old", tmp_path / "dosimeter-logs-recent"
    for folder, age in ((old, 8), (recent, 6)):
        folder.mkdir()
        (folder / "task-0.txt").write_text("a story")
        then = time.time() - age * 86_400
        os.utime(folder, (then, then))
    mishap = Task("t", {"kind": "raise", "flag": str(tmp_path / "flag")}, 9)
    options = {"shared": X, "engine": engine, "workers": 2}
    assert all(r.error is None for r in run(jobs.misbehave, [mishap, *tasks(5)], progress=False, **options))
    (tmp_path / "flag").unlink()
    assert sorted(tmp_path.iterdir()) == [old, recent]  # a task that fails once leaves nothing
    hopeless = Task("t", {"kind": "raise"}, 9)
    results = list(run(jobs.misbehave, [hopeless, *tasks(3), hopeless], **options))
    (folder,) = set(tmp_path.iterdir()) - {recent}
    logs = [Path(r.info["log"]) for r in results if r.error is not None]
    assert sorted(folder.iterdir()) == logs and len(logs) == 2
    assert all("no such\nluck" in log.read_text() for log in logs)
    assert f", 2 failed (see {folder})\n" in capfd.readouterr().err


def test_what_a_killed_task_leaves_goes_with_the_run(tmp_path):
    todo = Task("t", {"kind": "litter", "names": str(tmp_path / "names")}, 0)
    (result,) = run(jobs.misbehave, [todo], workers=1, retries=0, progress=False)
    assert result.error == "its process died with exit code 3"
    assert not Path((tmp_path / "names").read_text()).exists()


def test_remaining_time(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    progress = TaskProgress(10, shown=False)
    for _ in range(4):
        progress.step(cached=True)
    assert progress.seconds_left() is None
    now[0] = 100.0
    progress.begin()
    now[0] = 106.0
    progress.step()
    progress.step()
    assert progress.seconds_left() == 12.0
    spans = [duration(s) for s in (0.25, 42, 89, 600, 12_000)]
    assert spans == ["0.2 s", "42 s", "89 s", "10 min", "3 h 20 min"]


def test_a_bar_on_a_terminal():
    import pty

    parent, child = pty.openpty()
    code = (
        "import engine_jobs as jobs; from dosimeter.engine import run, Task;"
        "list(run(jobs.draw, [Task('t', {}, s) for s in range(7)], engine='inline'))"
    )
    environment = {**os.environ, "PYTHONPATH": jobs.PYTHONPATH, "TERM": "xterm", "COLUMNS": "100"}
    done = subprocess.run(
        [sys.executable, "-c", code], stderr=child, stdout=subprocess.PIPE, env=environment, check=True
    )
    os.close(child)
    text = os.read(parent, 100_000).decode()
    os.close(parent)
    assert "7/7" in text
    assert done.stdout == b""


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"engine": "cluster"}, "engine must be inline, local, ray or ray://host:port, got 'cluster'"),
        ({"engine": None}, "engine must be"),
        ({"workers": 0}, "workers must be at least 1"),
        ({"store": "folder"}, r"pass Store\('folder'\)"),
        ({"version": 1}, "version must be a text"),
        ({"retries": -1}, "retries must be at least 0"),
        ({"timeout": 0}, "timeout must be in"),
        ({"timeout": 5, "engine": "inline"}, "timeout needs a process"),
        ({"memory": 0}, "memory must be at least 1"),
        ({"shared": [1]}, "shared must be a dictionary"),
    ],
)
def test_bad_options_are_refused_before_any_work(options, says):
    with pytest.raises(InputError, match=says):
        run(jobs.draw, tasks(1), **options)


def test_bad_functions_and_tasks():
    for function in (lambda task, shared: None, 3, None, functools.partial(jobs.draw)):
        with pytest.raises(InputError, match="function must be a top-level function"):
            run(function, tasks(1))
    with pytest.raises(InputError, match=r"tasks\[1\] is 5"):
        run(jobs.draw, [*tasks(1), 5])
    with pytest.raises(InputError, match="tasks must be a list"):
        run(jobs.draw, 5)
    assert list(run(jobs.draw, [])) == []


UNGUARDED = """
from dosimeter.engine import Task, run
def work(task, shared):
    return {}, {}
print([r.error for r in run(work, [Task("t", {}, 0)], workers=1, progress=False)])
"""


def test_a_script_without_a_guard_is_told_so(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(UNGUARDED)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 1
    assert "if __name__ == '__main__':" in done.stderr.splitlines()[-1]
    done = subprocess.run(
        [sys.executable, "-"], input=UNGUARDED, capture_output=True, text=True, timeout=300, check=False
    )
    assert "must be a file" in done.stderr.splitlines()[-1]


def test_a_script_without_a_guard_may_use_functions_of_modules(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "from engine_jobs import nothing\n"
        "from dosimeter.engine import Task, run\n"
        "print([r.error for r in run(nothing, [Task('t', {}, 0)], workers=1, progress=False)])\n"
    )
    environment = {**os.environ, "PYTHONPATH": jobs.PYTHONPATH}
    for source in ([str(script)], ["-"]):
        done = subprocess.run(
            [sys.executable, *source],
            input=script.read_text(),
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
            env=environment,
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "[None]\n", "")


def test_a_full_disk_stops_the_run_with_one_sentence(tmp_path, monkeypatch):
    store, real, calls = Store(tmp_path / "s"), os.fsync, []

    def full(descriptor):
        calls.append(descriptor)
        if len(calls) > 7:
            raise OSError(28, "No space left on device")
        return real(descriptor)

    options = {"workers": 2, "store": store, "progress": False}
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(DiskFullError, match="is full; make space and run the same again"):
            list(run(jobs.draw, tasks(8), **options))
    assert children() == []
    assert not list(store.folder.rglob(".tmp*"))
    kept = len(store.ls())
    assert 1 <= kept < 8
    again = list(run(jobs.draw, tasks(8), **options))
    assert sum(r.cached for r in again) == kept
    assert bits(again) == bits(run(jobs.draw, tasks(8), engine="inline", progress=False))


def test_a_long_error_keeps_its_beginning_and_what_to_do():
    error = InputError(f"x is not there ({'why ' * 200}); pass folder= or set DOSIMETER_DATA to it.")
    text = one_line(error)
    assert len(text) <= 300 and text.startswith("InputError: x is not there (why")
    assert text.endswith("; pass folder= or set DOSIMETER_DATA to it.") and text.count(" … ") <= 2
    assert one_line(KeyError()) == "KeyError" and one_line(ValueError("a\nb")) == "ValueError: a b"
