"""Where tasks run and what is kept of them: many seeded tasks on this machine or a Ray cluster, nothing lost.

    from dosimeter.engine import Store, Task, run

    tasks = [Task("shadow", {"epochs": 5}, seed) for seed in range(64)]
    for result in run(train, tasks, shared={"x": x, "y": y}, store=Store("store"), version="1"):
        ...

`train(task, shared)` is a top-level function that returns `(arrays, info)`. The same task gives the same bits on every
engine as long as the function draws its randomness from `task.seed`, because every engine computes with one thread.
"""

from dosimeter.engine.driver import run
from dosimeter.engine.options import RunOptions
from dosimeter.engine.store import DamagedEntryWarning, DiskFullError, Entry, Removed, Store
from dosimeter.engine.tasks import Result, Task, key_of
from dosimeter.engine.work import LostWorkersError

__all__ = [
    "DamagedEntryWarning",
    "DiskFullError",
    "Entry",
    "LostWorkersError",
    "Removed",
    "Result",
    "RunOptions",
    "Store",
    "Task",
    "key_of",
    "run",
]
