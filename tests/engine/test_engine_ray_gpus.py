"""Tasks on Ray that take a GPU each. Ray counts the GPUs that it is told of, so the test needs none."""

import os
import subprocess
import sys

import engine_jobs as jobs
import pytest

pytest.importorskip("ray", reason="ray is not installed: pip install 'dosimeter[ray]'")

SCRIPT = """
import ray, sys
import engine_jobs as jobs
from dosimeter import InputError
from dosimeter.engine import Task, run
ray.init(address="local", num_cpus=3, num_gpus=2, include_dashboard=False, log_to_driver=False)
todo = [Task("t", {}, seed) for seed in range(3)]
found = list(run(jobs.gpus, todo, engine="ray", progress=False, gpus=1))
print([one.error for one in found], [one.arrays["gpus"].size for one in found])
try:
    list(run(jobs.gpus, todo, engine="ray", progress=False, gpus=3))
except InputError as error:
    print(error)
from dosimeter.engine.ray import Ray
print([Ray(jobs.gpus, {}, address="ray", workers=None, timeout=None, gpus=wanted).size for wanted in (0, 1, 2)])
"""


def test_each_task_gets_a_gpu_of_its_own():
    environment = {**os.environ, "PYTHONPATH": jobs.PYTHONPATH, "RAY_ADDRESS": ""}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, env=environment, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines() == [
        "[None, None, None] [1, 1, 1]",
        "device asks for 3 GPU for each training, and the cluster of engine='ray' has 2; start Ray with GPUs, or pass "
        "device='cpu'.",
        "[6, 4, 2]",  # twice as many as can run, so that none waits
    ]
