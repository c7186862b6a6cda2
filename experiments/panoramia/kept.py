"""The audits of all seeds of an experiment: two at a time, each kept in the store, so that a stopped run resumes."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dosimeter import InputError
from dosimeter.engine import Result, Store, Task, run

from ..shared import announce

ROOT = Path(__file__).resolve().parents[2]
FILES = {
    "adult": "adult",
    "table": "adult",
    "silent": "adult",
    "generators": "generators",
    "language": "language",
    "short_text": "texts",
    "silent_text": "texts",
}
ASKED = {"silent": "silent"}  # the function of the file; `audited` where nothing is said
# By kind; raise one when its rows get other numbers.
VERSIONS = {"generators": "3", "language": "4", "adult": "5", "table": "5"}
VERSION = "4"  # of the other kinds: audits with reference models
SEEDS = ("first_seed", "seeds")  # of the settings: they say which tasks there are, not what a task does


def of_seed(task: Task, shared: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """One audit: what the file of its kind makes of settings and seed."""
    module = importlib.import_module(f"{__package__}.{FILES[task.name]}")
    return {}, getattr(module, ASKED.get(task.name, "audited"))(task.arguments, task.seed)


def rows(
    kind: str, settings: Mapping[str, Any], store: Store | None, *, engine: str = "local", workers: int | None = None
) -> Iterator[dict[str, Any]]:
    """What came of each seed, in their order, as soon as it is there."""
    arguments = {name: value for name, value in settings.items() if name not in SEEDS}
    first = settings["first_seed"]
    tasks = [Task(kind, arguments, seed) for seed in range(first, first + settings["seeds"])]
    if str(ROOT) not in sys.path:  # where other processes find this module
        sys.path.append(str(ROOT))
    given: dict[str, Any] = {
        "engine": engine,
        "workers": workers,
        "store": store,
        "version": VERSIONS.get(kind, VERSION),
    }
    announce(f"panoramia: {kind}, {len(tasks)} audits")
    for result in run(of_seed, tasks, **given, retries=0, progress=store is not None):
        yield _answer(result)


def _answer(result: Result) -> dict[str, Any]:
    """The row; an error of another process is raised as what it was there."""
    if result.error is None:
        return result.info
    kind, _, text = result.error.partition(": ")
    if kind == "InputError":
        raise InputError(text)
    if kind in ("ImportError", "ModuleNotFoundError"):
        raise ImportError(text)
    raise RuntimeError(f"{result.task.name}, seed {result.task.seed}: {result.error} ({result.info.get('log')})")
