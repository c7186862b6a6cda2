"""Task functions for the tests; worker processes import this module by its name."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

# For scripts that import this module, and the package that the tests run with.
PYTHONPATH = os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])


def note(task):
    """One line in a side file for every computation."""
    if "notes" in task.arguments:
        with Path(task.arguments["notes"]).open("a") as file:
            file.write(f"{task.seed}\n")


def draw(task, shared):
    note(task)
    time.sleep(task.arguments.get("sleep", 0.0))
    rng = np.random.default_rng(task.seed)
    size = task.arguments.get("size", 5)
    values = rng.normal(size=size) * task.arguments.get("scale", 1.0)
    offset = shared["x"].sum() if "x" in shared else 0.0
    careless = np.random.rand(2)  # noqa: NPY002 (as in code that was never meant to be repeated)
    return {"values": values + offset, "careless": careless}, {"seed": task.seed}


def matmul(task, shared):
    rng = np.random.default_rng(task.seed)
    return {"product": rng.normal(size=(60, 700)) @ shared["x"]}, {"threads": os.environ["OMP_NUM_THREADS"]}


def other(task, shared):
    return draw(task, shared)


def nothing(task, shared):
    return {}, {}


def misbehave(task, shared):
    """Does as it is told, in the first attempt only if there is a flag file."""
    note(task)
    kind, flag = task.arguments.get("kind"), task.arguments.get("flag")
    if flag is not None:
        try:
            Path(flag).touch(exist_ok=False)
        except FileExistsError:
            kind = None
    times = task.arguments.get("times")
    if times is not None and len(Path(task.arguments["notes"]).read_text().split()) > times:
        kind = None
    if kind == "exit":
        os._exit(3)
    elif kind == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    elif kind == "memory":
        raise MemoryError("no room")
    elif kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif kind == "hang":
        print("going to sleep", flush=True)
        time.sleep(600)
    elif kind == "litter":
        Path(task.arguments["names"]).write_text(tempfile.mkdtemp())
        os._exit(3)
    elif kind == "raise":
        print("printed before the error")
        raise ValueError("no such\nluck")
    elif kind == "leave":
        sys.exit("gone")
    elif kind == "list":
        return [1, 2]
    elif kind == "objects":
        return {"a": np.array([{}], dtype=object)}, {}
    elif kind == "write":
        shared["x"][0] = 1.0
    elif kind == "command":
        child = subprocess.Popen(["sleep", "600"])
        Path(task.arguments["pid"]).write_text(str(child.pid))
        child.wait()
    return {"seed": np.array([task.seed])}, {}


def allocate(task, shared):
    block = np.ones(int(task.arguments["bytes"]) // 8)
    start = time.time()
    time.sleep(task.arguments.get("sleep", 0.0))
    return {"span": np.array([start, time.time()])}, {"sum": float(block.sum()), "pid": os.getpid()}


def odd_info(task, shared):
    return {"a": np.float32(2.0)}, {"loss": float("nan"), "pair": (1, np.int64(2)), "array": np.arange(2)}


def late_torch(task, shared):
    import torch

    return {"values": torch.randn(3).numpy()}, {}


def gpus(task, shared):
    """Which GPUs Ray gave to the task."""
    import ray

    return {"gpus": np.array(ray.get_gpu_ids(), dtype=np.int64)}, {}
