"""Several processes work on one store at once, and some are killed: each training once, the same audit for all."""

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import chaos_jobs
import pytest

from dosimeter.engine import Store

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs file locks")


@pytest.mark.once
def test_processes_that_share_a_store(tmp_path, sizes, tally):
    rng = random.Random(8)
    reference = chaos_jobs.facts(chaos_jobs.audit().to_json())
    for number in range(sizes.writers):
        store = tmp_path / str(number)
        environment = {**os.environ, "PYTHONPATH": chaos_jobs.PYTHONPATH}
        command = [sys.executable, chaos_jobs.__file__, str(store), "inline"]
        processes = [
            subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for _ in range(3)
        ]
        while not list(Path(store).glob("??/*.json")):
            time.sleep(0.02)
        time.sleep(rng.uniform(0.0, 1.0))
        victim = processes.pop()
        victim.kill()
        victim.communicate()
        tally("kills of one of several writers")
        computed = 0
        for process in processes:
            out, err = process.communicate(timeout=180)
            assert process.returncode == 0, err
            assert err == ""
            found = chaos_jobs.facts(out)
            assert found == reference
            computed += chaos_jobs.json.loads(out)["metadata"]["provenance"]["computed"]
        tally("audits of processes that share a store", len(processes))
        assert computed <= chaos_jobs.SHADOWS + chaos_jobs.RUNS  # no training twice
        assert Store(store).verify() == []
        assert not (store / "leases").exists()
