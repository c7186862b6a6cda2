"""The Ray engine: the same bits, lost workers and nodes made good, nothing on standard output."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import engine_jobs as jobs
import numpy as np
import pytest

from dosimeter import InputError
from dosimeter.engine import LostWorkersError, Store, Task, driver, run, scratch

ray = pytest.importorskip("ray", reason="ray is not installed: pip install 'dosimeter[ray]'")

X = {"x": np.random.default_rng(0).normal(size=(700, 300))}


def bits(results):
    return [(r.task.seed, r.error, r.info, {n: a.tobytes() for n, a in (r.arrays or {}).items()}) for r in results]


@pytest.fixture(scope="module")
def cluster():
    """Three nodes of one core, with the tests' task functions on their path."""
    from ray.cluster_utils import Cluster

    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = jobs.PYTHONPATH
    options = {"num_cpus": 1, "object_store_memory": 100_000_000, "include_dashboard": False}
    started = Cluster(initialize_head=True, head_node_args={**options, "ray_client_server_port": 23790})
    for _ in range(2):
        started.add_node(num_cpus=1, object_store_memory=100_000_000)
    started.wait_for_nodes()
    ray.init(address=started.address, log_to_driver=False)
    yield started
    ray.shutdown()
    started.shutdown()
    if before is None:
        del os.environ["PYTHONPATH"]
    else:
        os.environ["PYTHONPATH"] = before


def test_the_same_bits_as_inline_and_every_mishap(cluster, tmp_path):
    todo = [Task("t", {}, seed) for seed in range(6)]
    inline = bits(run(jobs.matmul, todo, shared=X, engine="inline", progress=False))
    assert bits(run(jobs.matmul, todo, shared=X, engine="ray", progress=False)) == inline

    kinds = {2: "raise", 3: "hang", 4: "write"}
    todo = [Task("t", {"kind": kinds.get(seed)}, seed) for seed in range(6)]
    todo.append(Task("t", {"kind": "kill", "flag": str(tmp_path / "flag")}, 6))
    store = Store(tmp_path / "s")
    results = list(run(jobs.misbehave, todo, shared=X, engine="ray", store=store, timeout=4.0, progress=False))
    assert [r.error is None for r in results] == [True, True, False, False, False, True, True]
    assert results[2].error == "ValueError: no such luck"
    assert "it took longer than 4 s" in results[3].error
    assert "Traceback" in Path(results[2].info["log"]).read_text()
    assert len(store.ls()) == 4
    assert ray.is_initialized()  # what was there before stays


def test_a_task_whose_process_always_ends_ends_the_run(cluster, tmp_path, monkeypatch):
    """Ray cannot tell a crash from a kill, and a kill is no failed task."""
    monkeypatch.setattr(driver, "_PATIENCE", 2)
    monkeypatch.setattr(driver, "_PAUSE", 0.0)
    store, todo = Store(tmp_path / "s"), [Task("t", {}, 0), Task("t", {"kind": "exit"}, 1)]
    with pytest.raises(
        LostWorkersError, match=r"its worker or node was lost \(WorkerCrashedError\), \d times"
    ) as caught:
        list(run(jobs.misbehave, todo, shared=X, engine="ray", store=store, progress=False))
    assert "1 of 2 tasks are kept" in str(caught.value)


def test_tasks_wait_with_us_and_not_in_ray(cluster):
    from dosimeter.engine.ray import Ray

    for workers, most in ((None, 2 * int(ray.cluster_resources()["CPU"])), (2, 2)):
        pool = Ray(jobs.nothing, {}, address="ray", workers=workers, timeout=None)
        count = 0
        while pool.room():
            pool.submit(count, Task("t", {}, count))
            count += 1
        assert count == most
        waits = (pool.wait() for _ in range(30))  # each lasts ten seconds at most; a busy machine needs several
        assert len(next(filter(None, waits), [])) == 1
        pool.close()


CLIENT = """
import sys
import engine_jobs as jobs
from dosimeter.engine import Task, run
results = run(jobs.draw, [Task("t", {}, seed) for seed in range(4)], engine="ray://127.0.0.1:23790")
print([(r.error, r.arrays["values"].tolist()) for r in results])
"""


def test_a_remote_driver(cluster):
    pytest.importorskip("grpc", reason="Ray's client needs grpcio: pip install 'ray[client]'")
    for _ in range(2):  # Ray gives its client server 30 s to start, which a busy machine may miss once
        done = subprocess.run([sys.executable, "-c", CLIENT], capture_output=True, text=True, timeout=400, check=False)
        if "Initialization failure from server" not in done.stderr:
            break
    todo = [Task("t", {}, seed) for seed in range(4)]
    expected = [(None, r.arrays["values"].tolist()) for r in run(jobs.draw, todo, engine="inline", progress=False)]
    assert done.stdout == f"{expected}\n", done.stderr


def test_a_node_is_lost_and_the_run_finishes(cluster, tmp_path, capfd):
    side = tmp_path / "notes"
    todo = [Task("t", {"sleep": 0.5, "notes": str(side)}, seed) for seed in range(24)]
    victim = next(node for node in cluster.list_all_nodes() if node != cluster.head_node)
    lost = threading.Event()

    def lose():
        while not side.exists() or len(side.read_text().split()) < 6:
            time.sleep(0.05)
        cluster.remove_node(victim, allow_graceful=False)
        lost.set()

    thread = threading.Thread(target=lose)
    thread.start()
    results = list(run(jobs.draw, todo, engine="ray", progress=False))
    thread.join()
    assert lost.is_set()
    inline = run(jobs.draw, [Task("t", {}, seed) for seed in range(24)], engine="inline", progress=False)
    assert bits(results) == bits(inline)
    assert len(side.read_text().split()) >= 24


STARTS = """
import sys
import engine_jobs as jobs
from dosimeter.engine import Store, Task, run

if __name__ == "__main__":
    kinds = {2: "raise"}
    tasks = [Task("t", {"kind": kinds.get(seed)}, seed) for seed in range(5)]
    print([r.error is None for r in run(jobs.misbehave, tasks, engine="ray", workers=2, store=Store(sys.argv[1]))])
    import ray
    print(ray.is_initialized())
"""


def test_it_starts_a_cluster_and_stops_it_again(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(STARTS)
    environment = {**os.environ, "PYTHONPATH": jobs.PYTHONPATH, "RAY_ADDRESS": "local"}
    done = subprocess.run(
        [sys.executable, script, tmp_path / "store"],
        capture_output=True,
        text=True,
        env=environment,
        timeout=300,
        check=False,
    )
    assert done.stdout == "[True, True, False, True, True]\nFalse\n", done.stderr
    assert re.search(r"5 of 5 tasks in \d.*s, 1 failed \(see .*logs\)", done.stderr)


STOPPED = """
import sys
import engine_jobs as jobs
from dosimeter.engine import Store, Task, run

if __name__ == "__main__":
    tasks = [Task("t", {"notes": sys.argv[2], "sleep": 0.3}, seed) for seed in range(60)]
    list(run(jobs.draw, tasks, engine="ray", workers=2, store=Store(sys.argv[1])))
"""


def test_ctrl_c_keeps_what_is_done_and_leaves_no_cluster(tmp_path):
    script, notes, store = tmp_path / "script.py", tmp_path / "notes", Store(tmp_path / "store")
    script.write_text(STOPPED)
    environment = {**os.environ, "PYTHONPATH": jobs.PYTHONPATH, "RAY_ADDRESS": "local"}
    process = subprocess.Popen(
        [sys.executable, script, store.folder, notes],
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    end = time.monotonic() + 90
    while len(store.ls()) < 4:
        assert time.monotonic() < end and process.poll() is None
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=300)
    kept = len(store.ls())
    assert process.returncode not in (0, None) and 4 <= kept < 60
    assert f"stopped; {kept} of 60 tasks are kept in {store.folder}: run the same again to resume" in err
    assert store.verify() == []


# Ray's client tries three times, and waits 5, 10 and 15 s unless told otherwise.
QUICK = {"RAY_CLIENT_INITIAL_CONNECTION_TIMEOUT_S": "1", "RAY_CLIENT_MAX_CONNECTION_TIMEOUT_S": "1"}


@pytest.mark.slow
def test_a_cluster_that_is_not_there():
    code = (
        "import engine_jobs as jobs; from dosimeter.engine import Task, run;"
        "list(run(jobs.draw, [Task('t', {}, 0)], engine='ray://127.0.0.1:1', progress=False))"
    )
    environment = {**os.environ, "PYTHONPATH": jobs.PYTHONPATH, **QUICK}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=300, check=False
    )
    last = done.stderr.strip().splitlines()[-1]
    assert "InputError: engine='ray://127.0.0.1:1' cannot be reached" in last


def test_without_ray_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"pip install '\.\[ray\]'"):
        list(run(jobs.draw, [Task("t", {}, 0)], engine="ray", progress=False))
    with pytest.raises(InputError, match="engine must be"):
        run(jobs.draw, [Task("t", {}, 0)], engine="ray:host")


@pytest.mark.skipif(not Path("/proc").exists(), reason="looks into /proc")
def test_the_next_run_ends_what_a_killed_driver_left(tmp_path):
    """Ray's agents wait for a server that is gone with the driver."""
    script, notes, store = tmp_path / "script.py", tmp_path / "notes", Store(tmp_path / "store")
    script.write_text(STOPPED)
    (tmp_path / "scratch").mkdir()
    environment = {**os.environ, "PYTHONPATH": jobs.PYTHONPATH, "RAY_ADDRESS": "local", "RAY_TMPDIR": "/tmp"}
    environment["TMPDIR"] = str(tmp_path / "scratch")
    process = subprocess.Popen([sys.executable, script, store.folder, notes], env=environment)
    end = time.monotonic() + 90
    while len(store.ls()) < 2:
        assert time.monotonic() < end and process.poll() is None
        time.sleep(0.1)
    (folder,) = (tmp_path / "scratch").glob("dosimeter-run-*")
    known = [line.split()[1:] for line in (folder / "processes").read_text().splitlines()]
    assert len(known) >= 3
    process.kill()
    process.wait()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
        list(run(jobs.draw, [Task("t", {}, 0)], workers=1, progress=False))
    end = time.monotonic() + 5
    while left := [pid for pid, born in known if scratch._born(int(pid)) == born and alive(pid)]:
        assert time.monotonic() < end, left
        time.sleep(0.05)
    assert not folder.exists()


def alive(pid):
    return (scratch._fields(int(pid)) or "Z")[0] != "Z"
