"""Trainings that are not ours: any function of indices and a seed, or a script that is started as a command."""

from __future__ import annotations

import subprocess
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dosimeter import _validate as check
from dosimeter._validate import InputError, IntArray
from dosimeter.training import _pool, arguments

PLACES = ("{indices}", "{seed}", "{out}")


@dataclass(frozen=True)
class ForeignTrained:
    """What one foreign training gave: outputs on the records asked for, or why it failed."""

    index: int
    seed: int
    outputs: npt.NDArray[Any] | None = None
    failed: str | None = None


def train_foreign(
    function: Callable[[IntArray, int], Any],
    memberships: npt.ArrayLike,
    seeds: npt.ArrayLike,
    evaluate: npt.ArrayLike,
    *,
    outputs: str | None = None,
    processes: int = 1,
) -> Iterator[ForeignTrained]:
    """Call `function(indices, seed)` for each row of `memberships`; the predictor it returns answers for `evaluate`.

    A predictor has `predict_proba`, `decision_function` or `predict`, tried in this order (`outputs` names another
    method), or is itself a function of records. Results come in order. With several processes the function must be one
    that they can import. An exception marks its model as failed and the others go on.
    """
    if not callable(function):
        raise InputError(f"function must be callable as function(indices, seed), got {check.show(function)}.")
    chosen, numbers = _models(memberships, seeds)
    records = np.asarray(evaluate)
    if records.ndim == 0 or records.size == 0 or records.dtype.kind == "O":
        raise InputError(f"evaluate must be an array of records, got type {records.dtype}, shape {records.shape}.")
    count = check.whole("processes", processes, 1, "pass how many processes may work")
    shared = {"members": np.packbits(chosen, axis=1), "evaluate": records}
    tasks = [(function, model, seed, chosen.shape[1], outputs) for model, seed in enumerate(numbers)]
    return _in_order(_pool.run(_function_task, tasks, shared, min(count, len(tasks))), numbers)


def train_command(
    command: Sequence[str],
    memberships: npt.ArrayLike,
    seeds: npt.ArrayLike,
    *,
    output: str = "outputs",
    processes: int = 1,
    timeout: float | None = None,
) -> Iterator[ForeignTrained]:
    """Start a command for each row of `memberships`, e.g. ["python", "train.py", "{indices}", "{seed}", "{out}"].

    `{indices}` becomes the path of a .npy file with the rows to train on, `{seed}` the seed, and `{out}` the path where
    the command must write an .npz file with the array named by `output`. Nothing goes through a shell. A command that
    fails, exceeds `timeout` seconds or writes no such array marks its model as failed, with the end of its messages.
    """
    if isinstance(command, str) or not len(command) or not all(isinstance(part, str) for part in command):
        raise InputError(
            f"command must be a list of texts, got {check.show(command)}; pass the program and its arguments."
        )
    missing = [place for place in PLACES if not any(place in part for part in command)]
    if missing:
        raise InputError(f"command must use {', '.join(PLACES)}, and lacks {', '.join(missing)}.")
    if timeout is not None:
        timeout = check.within("timeout", timeout, 0.0, np.inf, "pass seconds", include="()")
    chosen, numbers = _models(memberships, seeds)
    count = check.whole("processes", processes, 1, "pass how many processes may work")
    shared = {"members": np.packbits(chosen, axis=1)}
    tasks = [(list(command), model, seed, chosen.shape[1], output, timeout) for model, seed in enumerate(numbers)]
    return _in_order(_pool.run(_command_task, tasks, shared, min(count, len(tasks))), numbers)


def _models(memberships: npt.ArrayLike, seeds: npt.ArrayLike) -> tuple[npt.NDArray[np.bool_], list[int]]:
    shape = np.shape(memberships)
    chosen = arguments.memberships(memberships, shape[1] if len(shape) == 2 else 0)
    return chosen, arguments.seeds(seeds, len(chosen))


def _in_order(results: Iterator[dict[str, Any]], seeds: list[int]) -> Iterator[ForeignTrained]:
    for index, (seed, found) in enumerate(zip(seeds, results, strict=True)):
        yield ForeignTrained(index, seed, **found)


def _indices(shared: _pool.Arrays, model: int, count: int) -> IntArray:
    return np.flatnonzero(np.unpackbits(shared["members"][model], count=count))


def _function_task(task: Any, shared: _pool.Arrays) -> dict[str, Any]:
    function, model, seed, count, name = task
    try:
        predictor = function(_indices(shared, model, count), seed)
        return _checked(np.asarray(_ask(predictor, name)(shared["evaluate"])), len(shared["evaluate"]), seed)
    except Exception as error:  # the training is the user's
        return {"failed": f"the training from seed {seed} raised {type(error).__name__}: {check.show(str(error), 200)}"}


def _ask(predictor: Any, name: str | None) -> Callable[[Any], Any]:
    if name is not None:
        return getattr(predictor, name)
    for method in ("predict_proba", "decision_function", "predict"):
        if callable(getattr(predictor, method, None)):
            return getattr(predictor, method)
    if not callable(predictor):
        raise TypeError(f"the function returned {check.show(predictor)}, which cannot be asked")
    return predictor


def _checked(outputs: npt.NDArray[Any], count: int | None, seed: int) -> dict[str, Any]:
    if outputs.dtype.kind not in "biuf" or outputs.ndim == 0 or (count is not None and len(outputs) != count):
        shape = f"type {outputs.dtype}, shape {outputs.shape}"
        return {"failed": f"the training from seed {seed} gave outputs of {shape}, not one number or row a record"}
    if not np.isfinite(outputs).all():
        return {"failed": f"the outputs of the training from seed {seed} are infinite or NaN"}
    return {"outputs": outputs}


def _command_task(task: Any, shared: _pool.Arrays) -> dict[str, Any]:
    command, model, seed, count, name, timeout = task
    with tempfile.TemporaryDirectory(prefix="dosimeter-") as folder:
        rows, out = Path(folder) / "indices.npy", Path(folder) / "outputs.npz"
        np.save(rows, _indices(shared, model, count), allow_pickle=False)
        values = {"{indices}": str(rows), "{seed}": str(seed), "{out}": str(out)}
        filled = [_filled(part, values) for part in command]
        try:
            done = subprocess.run(
                filled, capture_output=True, text=True, errors="replace", timeout=timeout, check=False
            )
        except subprocess.TimeoutExpired:
            return {"failed": f"the command for seed {seed} took more than {timeout:g} seconds"}
        except OSError as error:
            return {"failed": f"the command for seed {seed} could not be started: {error}"}
        if done.returncode:
            end = check.show(done.stderr.strip()[-200:], 220)
            return {"failed": f"the command for seed {seed} ended with code {done.returncode}: {end}"}
        try:
            with np.load(out, allow_pickle=False) as file:
                found = np.array(file[name])
        except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
            return {
                "failed": f"the command for seed {seed} wrote no array {name!r} to {{out}}: {check.show(str(error))}"
            }
    return _checked(found, None, seed)


def _filled(part: str, values: dict[str, str]) -> str:
    for place, value in values.items():
        part = part.replace(place, value)
    return part
