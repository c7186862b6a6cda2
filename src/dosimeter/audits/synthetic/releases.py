"""Releases through the engine: one task for each, kept in the store, counted, and read into one form."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dosimeter import _validate as check
from dosimeter import engine as engines
from dosimeter._validate import BoolArray, InputError
from dosimeter.audits.result import FailedTraining, Provenance, TrainingCounts
from dosimeter.audits.synthetic.rows import Rows, packed, read_release, unpacked
from dosimeter.audits.training.shadows import counted, provenance
from dosimeter.engine import Result, RunOptions, Task
from dosimeter.engine.tasks import hash_of_arrays
from dosimeter.records import take
from dosimeter.training import cargo as packing
from dosimeter.training.cargo import Cargo
from dosimeter.training.foreign import known_function
from dosimeter.training.identity import Identity, ambient

__all__ = ["Made", "Source", "make_releases"]

STAGES = ("release", "reference")


@dataclass(frozen=True, eq=False)
class Source:
    """Real records in the caller's form, the same ones as rows, and columns of theirs that are not looked at."""

    records: Any
    rows: Rows
    left_out: tuple[str, ...]

    def some(self, members: Any) -> Any:
        """The records of one fit, in the form that they came in."""
        return _some(self.records, members)


@dataclass(frozen=True, eq=False)
class Made:
    """The releases in order, None where the generator failed, and what became of all of them."""

    releases: tuple[Rows | None, ...]
    trainings: TrainingCounts
    failed: tuple[FailedTraining, ...]
    provenance: Provenance


def make_releases(
    generate: Callable[[Any, int], Any],
    source: Source,
    members: BoolArray,
    seeds: Sequence[int],
    *,
    audited: int,
    key: str | None,
    run: RunOptions,
) -> Made:
    """Fit and sample once for each row of `members` (releases, records); the first `audited` are not references."""
    inside = run.engine == "inline" or (run.engine == "local" and run.workers == 1 and run.timeout is None)
    known = known_function(generate, key, run.store, inside=inside)
    load = (generate, source.records, source.rows.take(slice(0, 2)), source.left_out)
    cargo = Cargo(load) if inside else Cargo.packed(load, known.modules)
    if cargo is None:
        raise InputError(
            f"generate cannot be sent to other processes: {check.show(generate)}; pass run=RunOptions(engine='inline')."
        )
    given: dict[str, object] = {"records": members.shape[1]}
    if run.store is not None:
        given |= {
            "function": known.text,
            "settings": ambient() if inside else {},
            "data": hash_of_arrays(packed(source.rows)),
        }
    tasks = [
        Task(STAGES[place >= audited], {**given, "members": packing.packed(row)}, seed)
        for place, (row, seed) in enumerate(zip(members, seeds, strict=True))
    ]
    results = engines.run(
        MakeRelease(cargo),
        tasks,
        engine="inline" if inside else run.engine,
        workers=run.workers,
        store=run.store,
        memory=run.memory,
        timeout=None if inside else run.timeout,
        progress=run.progress,
    )
    return _made(list(_until_hopeless(results, audited)), source.rows, audited, len(tasks), known)


@dataclass(frozen=True)
class MakeRelease:
    """Calls the caller's generator on the members of a task; everything it learns, it learns from these."""

    load: Cargo

    def __call__(self, task: Task, shared: Mapping[str, npt.NDArray[Any]]) -> tuple[dict[str, Any], dict[str, Any]]:
        """A pure function of the task, if the generator is one."""
        generate, records, like, left_out = self.load.opened()
        rows = np.flatnonzero(packing.unpacked(task.arguments["members"], task.arguments["records"]))
        made = generate(_some(records, rows), task.seed)
        return packed(read_release(made, like, "what generate returned", left_out=left_out)), {}


def _some(records: Any, rows: Any) -> Any:
    if isinstance(records, tuple):
        return tuple(_some(part, rows) for part in records)
    rows_taken = take(records, rows)
    return rows_taken.reset_index(drop=True) if hasattr(rows_taken, "reset_index") else rows_taken


def _until_hopeless(results: Any, audited: int) -> Any:
    """The results in order; an audited release that failed ends them, what is finished stays in the store."""
    for place, result in enumerate(results):
        if place < audited and result.arrays is None:
            results.close()
            what = str(result.error).removeprefix("InputError: ").rstrip(".")
            raise InputError(f"generate failed on the audited release: {what} (see {result.info['log']}); repair it.")
        yield result


def _made(results: Sequence[Result], like: Rows, audited: int, asked: int, known: Identity) -> Made:
    releases = tuple(None if r.arrays is None else unpacked(r.arrays, like) for r in results)
    failed = tuple(
        FailedTraining(STAGES[place >= audited], place, r.task.seed, f"{r.error} (see {r.info['log']})")
        for place, r in enumerate(results)
        if r.arrays is None
    )
    entries: dict[str, dict[str, int]] = {stage: {} for stage in STAGES}
    for place, r in enumerate(results):
        if r.cached and r.key is not None:
            entries[STAGES[place >= audited]][r.key] = 1
    cached = sum(r.cached for r in results)
    told = provenance(known, entries, computed=len(results) - cached, cached=cached)
    return Made(releases, counted(asked, failed=len(failed)), failed, told)
