"""Workers that are killed from outside, also as they start, and tasks that find no memory: nothing counts as failed."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time

import engine_jobs as jobs
import numpy as np
import pytest

from dosimeter.engine import LostWorkersError, Store, Task, driver, leases, local, run, work
from dosimeter.training import train_command

pytestmark = [
    pytest.mark.once,  # no task here needs a package; test_engine_run.py is for every environment
    pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals"),
]


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(driver, "_PAUSE", 0.0)
    monkeypatch.setattr(local, "_LONGEST_PAUSE", 0.0)


def tasks(count, **arguments):
    return [Task("t", arguments, seed) for seed in range(count)]


def test_which_ends_come_from_outside():
    outside = [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGXCPU]
    assert all(work.killed(-number) for number in outside)
    own = [signal.SIGSEGV, signal.SIGABRT, signal.SIGFPE]
    assert not any(work.killed(code) for code in (None, 0, 1, 3, 137, *(-number for number in own)))


@pytest.mark.parametrize("kind", ["kill", "memory"])
def test_a_task_that_is_lost_four_times_has_not_failed(tmp_path, kind, capfd):
    todo = tasks(4)
    todo[2] = Task("t", {"kind": kind, "times": 4, "notes": str(tmp_path / "notes")}, 2)
    results = list(run(jobs.misbehave, todo, workers=2))
    assert [int(r.arrays["seed"][0]) for r in results] == list(range(4))
    assert len((tmp_path / "notes").read_text().split()) == 5
    assert "4 of 4 tasks" in (said := capfd.readouterr().err)
    assert "4 tried again after a kill or for want of memory" in said


@pytest.mark.parametrize(("kind", "engine"), [("kill", "local"), ("memory", "local"), ("memory", "inline")])
def test_one_that_cannot_run_ends_the_run_and_the_rest_is_kept(tmp_path, kind, engine):
    store, todo = Store(tmp_path / "s"), tasks(6)
    todo[4] = Task("t", {"kind": kind, "notes": str(tmp_path / "notes")}, 4)
    reason = "its process was ended by SIGKILL" if kind == "kill" else "MemoryError: no room"
    with pytest.raises(LostWorkersError, match=f"task 4 of .*{reason}, 6 times, at last with no other") as caught:
        list(run(jobs.misbehave, todo, workers=2, engine=engine, store=store, progress=False))
    assert len((tmp_path / "notes").read_text().split()) == 6
    kept = len(store.ls())
    assert kept >= 4
    assert f"{kept} of 6 tasks are kept in {store.folder}: run the same again" in str(caught.value)
    assert not (store.folder / "leases").exists()


def test_a_crash_is_still_the_tasks_own(tmp_path):
    results = list(run(jobs.misbehave, [Task("t", {"kind": "crash"}, 0), *tasks(2)], workers=1, progress=False))
    assert [r.error for r in results] == ["its process was ended by SIGSEGV", None, None]


def test_fewer_workers_after_a_kill_and_more_again_after_some_calm(monkeypatch, tmp_path):
    allowed, plain = [], local.Local.allow
    monkeypatch.setattr(local.Local, "allow", lambda pool, count: (allowed.append(count), plain(pool, count)))
    todo = tasks(150)  # the second kill may come late
    todo[3] = Task("t", {"kind": "kill", "times": 2, "notes": str(tmp_path / "notes")}, 3)
    assert all(r.error is None for r in run(jobs.misbehave, todo, workers=3, progress=False))
    assert allowed[0] == 1
    assert allowed[-1] > 2  # all again


def test_workers_killed_as_they_start_are_replaced(monkeypatch):
    plain, killed = local._Worker.__init__, []

    def start(worker, *given):
        plain(worker, *given)
        if len(killed) < 5:
            worker.process.kill()
            killed.append(worker)

    monkeypatch.setattr(local._Worker, "__init__", start)
    results = list(run(jobs.draw, tasks(4), workers=2, progress=False))
    assert [r.error for r in results] == [None] * 4
    assert len(killed) == 5


def test_workers_that_are_always_killed_as_they_start(monkeypatch, tmp_path):
    plain = local._Worker.__init__

    def start(worker, *given):
        plain(worker, *given)
        worker.process.kill()

    monkeypatch.setattr(local._Worker, "__init__", start)
    with pytest.raises(LostWorkersError, match="ended from outside as they started") as caught:
        list(run(jobs.draw, tasks(4), workers=1, store=Store(tmp_path), progress=False))
    assert "__main__" not in str(caught.value)
    assert "0 of 4 tasks are kept" in str(caught.value)


def test_many_kills_change_nothing():
    """A worker after every third result, whatever it does: no failure, the same bits."""
    found, kills = [], 0
    for result in run(jobs.draw, tasks(15, sleep=0.1), workers=2, progress=False):
        found.append(result)
        workers = [process for process in multiprocessing.active_children() if process.name.startswith("dosimeter")]
        if len(found) % 3 == 0 and workers:
            os.kill(workers[0].pid, signal.SIGKILL)
            kills += 1
    assert kills >= 3
    inline = run(jobs.draw, tasks(15), engine="inline", progress=False)
    for one, other in zip(found, inline, strict=True):
        assert one.error is None
        assert all((one.arrays[name] == other.arrays[name]).all() for name in other.arrays)


def test_a_command_that_is_killed_is_started_again(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        "import os, pathlib, sys\n"
        f"notes = pathlib.Path({str(tmp_path / 'notes')!r})\n"
        "with notes.open('a') as file: file.write('x')\n"
        "if len(notes.read_text()) < 4: os.kill(os.getpid(), 9)\n"
        "import numpy as np\n"
        "np.savez(sys.argv[3], outputs=np.ones(3))\n"
    )
    command = [sys.executable, str(script), "{indices}", "{seed}", "{out}"]
    (found,) = train_command(command, np.ones((1, 3), bool), [7])
    assert found.failed is None
    assert (tmp_path / "notes").read_text() == "xxxx"


# --- two processes, one store --------------------------------------------------------------------------------

SHARING = """
import sys
import engine_jobs as jobs
from dosimeter.engine import Store, Task, run

if __name__ == "__main__":
    store, notes, engine, count, sleep = sys.argv[1:]
    tasks = [Task("t", {"notes": notes, "sleep": float(sleep)}, seed) for seed in range(int(count))]
    print("go", flush=True)
    results = list(run(jobs.draw, tasks, workers=2, engine=engine, store=Store(store), progress=False))
    assert all(r.error is None for r in results)
    print(sum(not r.cached for r in results), [r.arrays["values"].tolist() for r in results])
"""


@pytest.fixture
def share(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SHARING)
    environment = {**os.environ, "PYTHONPATH": jobs.PYTHONPATH}
    started = []

    def begin(engine="inline", count=20, sleep=0.1):
        arguments = [sys.executable, script, tmp_path / "store", tmp_path / "notes", engine, count, sleep]
        process = subprocess.Popen(
            [*map(str, arguments)], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
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
    return sorted(int(line) for line in file.read_text().split()) if file.exists() else []


@pytest.mark.parametrize("engine", ["inline", "local"])
def test_two_processes_share_the_work(tmp_path, share, engine):
    both = [share(engine, sleep=0.3), share(engine, sleep=0.3)]
    outs = [process.communicate(timeout=300) for process in both]
    assert [process.returncode for process in both] == [0, 0], outs
    counts, values = zip(*(out.split(" ", 1) for out, _ in outs), strict=True)
    assert computed(tmp_path) == list(range(20))  # each once
    assert sum(map(int, counts)) == 20
    assert values[0] == values[1]
    assert not (tmp_path / "store" / "leases").exists()


def test_what_a_killed_process_had_in_hand_is_taken_over_at_once(tmp_path, share):
    first = share("inline", 4, 30)
    while not computed(tmp_path):
        time.sleep(0.02)
    assert len(list((tmp_path / "store" / "leases").iterdir())) == 2
    first.kill()
    first.wait()
    todo = [Task("t", {"notes": str(tmp_path / "notes"), "sleep": 30.0}, seed) for seed in range(4)]
    start, own = time.monotonic(), driver.Leases(tmp_path / "store")
    key = driver.key_of(jobs.draw, todo[0])
    assert own.claim(key)
    assert time.monotonic() - start < 2
    own.close()
    assert not (tmp_path / "store" / "leases").exists()


def test_a_living_owner_is_waited_for_and_a_dead_one_replaced(tmp_path, share):
    first = share("inline", 3, 4)
    while not computed(tmp_path):
        time.sleep(0.02)
    second = share("inline", 3, 4)
    while len(computed(tmp_path)) < 2:
        time.sleep(0.02)
    assert computed(tmp_path) == [0, 1]  # the second has begun with what is free
    first.kill()
    _, err = second.communicate(timeout=300)
    assert second.returncode == 0, err
    assert set(computed(tmp_path)) == {0, 1, 2}
    assert len(computed(tmp_path)) <= 4


# --- errors name their file ----------------------------------------------------------------------------------

LIMITED = """
import resource, sys
import numpy as np
import engine_jobs as jobs
from dosimeter.engine import Store, Task, run

if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
    size, shared = (10_000, {}) if sys.argv[2] == "store" else (5, {"x": np.zeros(100_000)})
    todo = [Task("t", {"size": size if seed == 2 else 5}, seed) for seed in range(4)]
    try:
        list(run(jobs.draw, todo, workers=1, shared=shared, store=Store(sys.argv[1]), progress=False))
    except OSError as error:
        print(error)
"""


@pytest.mark.parametrize("where", ["store", "shared"])
def test_a_limit_on_file_sizes_names_the_file(tmp_path, where):
    script = tmp_path / "script.py"
    script.write_text(LIMITED)
    environment = {**os.environ, "PYTHONPATH": jobs.PYTHONPATH}
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "store"), where],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if where == "store":
        assert "File too large for the limit on file sizes (ulimit -f): '" in done.stdout, done.stderr
        assert ".npz'" in done.stdout
    else:
        assert "shared-0.npy cannot be written (" in done.stdout, done.stderr
    assert len(Store(tmp_path / "store").ls()) == (2 if where == "store" else 0)
    assert not list((tmp_path / "store").rglob(".tmp*"))


@pytest.mark.parametrize("nameless", [True, False])
def test_a_run_killed_before_its_claims_leaves_nothing_that_stays(tmp_path, monkeypatch, nameless):
    """Where files need no name until they are locked, a kill in between leaves nothing at all."""
    first, second = driver.Leases(tmp_path), driver.Leases(tmp_path)
    first._nameless = nameless
    monkeypatch.setattr(leases, "_show", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        first.claim("a")
    monkeypatch.undo()
    assert second.claim("a")
    second.close()
    assert (tmp_path / "leases").exists() == (not nameless)


def test_claims_work_without_files_that_have_no_name(tmp_path, monkeypatch):
    def refused(*arguments, **keywords):
        raise OSError("no /proc here")

    first, second = driver.Leases(tmp_path), driver.Leases(tmp_path)
    link = os.link
    monkeypatch.setattr(os, "link", lambda *a, **k: refused() if "/proc/" in str(a[0]) else link(*a, **k))
    assert first.claim("a") and second.claim("b")
    assert sorted(p.name[:4] for p in (tmp_path / "leases").iterdir()) == ["a", "b", "run-", "run-"]
    first.close()
    second.close()
    assert not (tmp_path / "leases").exists()
