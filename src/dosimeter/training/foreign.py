"""Trainings that are not ours: any function of indices and a seed, or a script that is started as a command."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dosimeter import _validate as check
from dosimeter import engine as engines
from dosimeter._validate import BoolArray, InputError, IntArray
from dosimeter.engine import Result, Store, Task
from dosimeter.engine.work import KilledError, killed, signal_name
from dosimeter.records import array, pair
from dosimeter.training import arguments
from dosimeter.training.asking import Observed, gpus_of, observed, predictor_of, require_device
from dosimeter.training.cargo import Arrays, Cargo, packed, unpacked
from dosimeter.training.identity import Identity, ambient, identity
from dosimeter.training.reach.sources import file_hash

PLACES = ("{indices}", "{outputs}")  # what a command must use; it may use {seed} too
SHORT = {"{out}": "{outputs}"}
_LARGEST_SCRIPT = 1_000_000  # bytes
_OF_A_SESSION = frozenset(  # differ from one shell to the next, and say nothing about a training
    {
        "PATH",
        "PWD",
        "OLDPWD",
        "HOME",
        "USER",
        "LOGNAME",
        "HOSTNAME",
        "SHELL",
        "SHLVL",
        "TERM",
        "TMPDIR",
        "TMP",
        "TEMP",
        "_",
    }
)


@dataclass(frozen=True)
class ForeignTrained:
    """Hold what one foreign training gave: outputs on the records asked for, or why it failed.

    Attributes:
        index: The row of `memberships`.
        seed: The seed that it was trained from.
        outputs: What the predictor answered.
        failed: Why there are no outputs.
        cached: Whether it was found in the store.
        key: Its name there.
        observed: What a function saw of the model, with `evaluate=Observed(…)`.
    """

    index: int
    seed: int
    outputs: npt.NDArray[Any] | None = None
    failed: str | None = None
    cached: bool = False
    key: str | None = None
    observed: npt.NDArray[np.float64] | None = None


def train_foreign(
    function: Callable[[IntArray, int], Any],
    memberships: npt.ArrayLike,
    seeds: npt.ArrayLike,
    evaluate: npt.ArrayLike | Observed,
    *,
    outputs: str | None = None,
    version: str = "",
    engine: str = "local",
    workers: int = 1,
    store: Store | None = None,
    key: str | Identity | None = None,
    memory: int | None = None,
    timeout: float | None = None,
    progress: bool = False,
    device: str | None = None,
    batch_size: int | None = None,
) -> Iterator[ForeignTrained]:
    """Call `function(indices, seed)` for each row of `memberships`, and ask the predictor that it returns.

    A predictor has `predict_proba`, `decision_function` or `predict`, is a torch module, or is itself a function of
    records. A module is asked in eval mode and without gradients, whatever mode it was left in. A training
    that raises is tried once more; then its model is marked as failed, and the others continue.

    A key of the store holds everything that the function can reach: its code, the globals and modules that it names,
    objects by their state, versions of libraries; but not the files that it reads: pass another `version` when these
    change. A function that reaches something without a state to hash, e.g. an open file, is refused; pass a `key` that
    stands for the function instead, and change it whenever the training changes.

    Args:
        function: Trains on the rows `indices` (ascending) from a seed, and returns a predictor.
        memberships: Booleans (models, records): who is trained on what.
        seeds: One seed for each model.
        evaluate: The records that every predictor is asked about; or `Observed(function, (X, y))` for a function that
            is given what was trained as well.
        outputs: The method of the predictor to call, instead of the first that it has.
        version: Part of the store's keys.
        engine: That of `dosimeter.engine.run`.
        workers: How many processes.
        store: Where finished trainings are kept.
        key: Stands for the function in the store's keys.
        memory: Bytes that all processes may use together.
        timeout: Seconds that one training may take.
        progress: Whether to show a bar.
        device: Where a torch module that the function returns is asked; None for where it is. On a Ray cluster each
            training gets a GPU of its own.
        batch_size: How many records such a module is asked about at once; 1024 if None.

    Returns:
        An iterator over the trainings in order, as they finish.

    Raises:
        InputError: If the arrays do not fit together, or the function cannot be kept in the store.

    >>> X = np.arange(6.0)
    >>> masks = [[1, 1, 0, 0, 1, 0], [0, 0, 1, 1, 0, 1]]
    >>> def train(indices, seed):
    ...     return lambda records: records - X[indices].mean()
    >>> [round(float(one.outputs[0]), 2) for one in train_foreign(train, masks, [0, 1], X, engine="inline")]
    [-1.67, -3.33]
    """
    if not callable(function):
        raise InputError(f"function must be callable, got {check.show(function)}; pass function(indices, seed).")
    chosen, numbers = _models(memberships, seeds)
    watch = evaluate if isinstance(evaluate, Observed) else None
    asked, labels = (evaluate, None) if watch is None else pair("evaluate", watch.records, "pass (X, y)")
    records = _records("evaluate", asked)
    count = check.whole("workers", workers, 1, "pass how many processes may work")
    engine = check.engine(engine)
    if not engine.startswith("ray"):
        require_device(device)
    inside = engine == "inline" or (engine == "local" and count == 1 and timeout is None)
    known = known_function(function, key, store, inside=inside)
    cargo = Cargo(function) if inside else Cargo.packed(function, known.modules)
    seen = None if watch is None else _watching(watch, inside=inside)
    if cargo is None:
        raise InputError(f"function cannot be sent to other processes: {check.show(function)}; pass engine='inline'.")
    kept = {"function": known.text, "settings": ambient() if inside else {}} if store is not None else _NOT_KEPT
    given = {**kept, "outputs": outputs, "records": chosen.shape[1]}
    shared = {"evaluate": records}
    if watch is not None:
        given["observed"] = identity(watch.function, strict=store is not None).text
        shared["labels"] = array("evaluate", labels)
    results = engines.run(
        TrainForeign(cargo, device, batch_size, seen),
        _tasks(given, chosen, numbers),
        shared=shared,
        engine="inline" if inside else engine,
        workers=count if engine == "local" or count > 1 else None,
        store=store,
        version=version,
        memory=memory,
        timeout=None if inside else timeout,
        progress=progress,
        gpus=gpus_of(device),
    )
    return _in_order(results)


def _watching(watch: Observed, *, inside: bool) -> Cargo:
    """The white-box function on its way to the tasks."""
    known = Identity("") if inside else identity(watch.function, strict=False)
    found = Cargo(watch.function) if inside else Cargo.packed(watch.function, known.modules)
    if found is None:
        raise InputError(
            f"the white-box function cannot be sent to other processes: {check.show(watch.function)}; pass "
            "engine='inline'."
        )
    return found


def known_function(function: Any, key: str | Identity | None, store: Store | None, *, inside: bool) -> Identity:
    """The function as keys of the store know it; without a store only the modules that must be sent along matter."""
    if isinstance(key, Identity):
        found = key
    elif store is None and inside:
        return Identity("")
    else:
        found = identity(function, key=key, strict=store is not None)
    if store is not None and found.replaced and not inside and not found.given:
        raise InputError(
            f"{found.replaced[0]} was replaced in this process, and others would use what is installed; pass "
            "engine='inline', or a class of your own."
        )
    return found


_NOT_KEPT: dict[str, Any] = {"function": None, "settings": {}}


def _records(name: str, values: Any) -> npt.NDArray[Any]:
    records = array(name, values)
    if records.ndim == 0 or records.size == 0 or records.dtype.kind == "O":
        raise InputError(
            f"{name} must be an array of records, got type {records.dtype}, shape {records.shape}; pass numbers or "
            "texts, at least one."
        )
    return records


def train_command(
    command: Sequence[str],
    memberships: npt.ArrayLike,
    seeds: npt.ArrayLike,
    *,
    output: str = "outputs",
    version: str = "",
    engine: str = "local",
    workers: int = 1,
    store: Store | None = None,
    timeout: float | None = None,
    progress: bool = False,
) -> Iterator[ForeignTrained]:
    """Start a command for each row of `memberships`, e.g. ["python", "train.py", "{indices}", "{seed}", "{outputs}"].

    Nothing goes through a shell. A command that fails, takes too long or writes no such array is started once more;
    then its model is marked as failed, with the end of its messages. A key of the store holds the command and the files
    that it names, e.g. the script, but not what these read: pass another `version` when that changes.

    Args:
        command: The program and its arguments. `{indices}` becomes the path of a .npy file with the rows to train on,
            ascending, `{seed}` the seed, which may be left out, and `{outputs}` (or `{out}`) the path of the .npz file
            that the command must write.
        memberships: Booleans (models, records): who is trained on what.
        seeds: One seed for each model.
        output: The name of the array in that file.
        version: Part of the store's keys.
        engine: That of `dosimeter.engine.run`.
        workers: How many processes.
        store: Where finished trainings are kept.
        timeout: Seconds that one command may take.
        progress: Whether to show a bar.

    Returns:
        An iterator over the trainings in order, as they finish.

    Raises:
        InputError: If the arrays do not fit together, or the command names none of the places.

    >>> for one in train_command(["python", "train.py", "{indices}", "{outputs}"], masks, [0, 1]):  # doctest: +SKIP
    ...     print(one.failed or one.outputs.shape)
    """
    if isinstance(command, str) or not len(command) or not all(isinstance(part, str) for part in command):
        raise InputError(
            f"command must be a list of texts, got {check.show(command)}; pass the program and its arguments."
        )
    check_places(command)
    if timeout is not None:
        timeout = check.within("timeout", timeout, 0.0, np.inf, "pass seconds", include="()")
    chosen, numbers = _models(memberships, seeds)
    count = check.whole("workers", workers, 1, "pass how many processes may work")
    given = {"command": list(command), "output": output, "records": chosen.shape[1], "timeout": timeout}
    if store is not None:
        given["files"] = named_files(command)
    results = engines.run(
        command_task,
        _tasks(given, chosen, numbers),
        engine="inline" if engine == "local" and count == 1 else engine,
        workers=count if engine == "local" or count > 1 else None,
        store=store,
        version=version,
        progress=progress,
    )
    return _in_order(results)


def named_files(command: Sequence[str], folder: Path = Path()) -> dict[str, str]:
    """Hashes of the files that a command names, from this folder: as a word, after "=", or as a module after -m.

    Environment variables that these files name are added with a "$" before them, where a file reads such.
    """
    named = [*command, *(part.partition("=")[2] for part in command if "=" in part)]
    for before, part in pairwise(command):
        if before == "-m":
            path = part.replace(".", "/")
            named += [f"{path}.py", f"{path}/__init__.py", f"{path}/__main__.py"]
    files = [part for part in named if part and (folder / part).is_file()]
    found = {part: file_hash(str(folder / part)) for part in files}
    for part in files:
        found |= _variables_in(folder / part)
    return found


def _variables_in(file: Path) -> dict[str, str]:
    """Environment variables that a script names, if it reads any; a shell names them with a dollar sign."""
    try:
        if file.stat().st_size > _LARGEST_SCRIPT:
            return {}
        text = file.read_text(encoding="utf-8")
    except (OSError, ValueError):  # a program, or data
        return {}
    words = set(re.findall(r"\w+", text))
    if words.isdisjoint(("environ", "getenv", "ENV", "env")):
        words = set(re.findall(r"\$\{?(\w+)", text))
    chosen = [name for name in os.environ if name in words and name not in _OF_A_SESSION]
    return {
        f"${name}": hashlib.sha256(os.environ[name].encode("utf-8", "surrogateescape")).hexdigest() for name in chosen
    }


def check_places(command: Sequence[str]) -> None:
    """Refuse a command that does not say where its rows and its outputs belong."""
    text = "\n".join(command)
    for short, place in SHORT.items():
        text = text.replace(short, place)
    missing = [place for place in PLACES if place not in text]
    if missing:
        raise InputError(f"command must use {' and '.join(PLACES)}, and lacks {' and '.join(missing)}; add that.")


def _models(memberships: npt.ArrayLike, seeds: npt.ArrayLike) -> tuple[BoolArray, list[int]]:
    shape = array("memberships", memberships).shape
    chosen = arguments.memberships(memberships, shape[1] if len(shape) == 2 else 0)
    return chosen, arguments.seeds(seeds, len(chosen))


def _tasks(given: dict[str, Any], chosen: BoolArray, seeds: list[int]) -> list[Task]:
    each = [{**given, "members": packed(row)} for row in chosen]
    return [Task("train", one, seed) for one, seed in zip(each, seeds, strict=True)]


def _in_order(results: Iterator[Result]) -> Iterator[ForeignTrained]:
    for index, result in enumerate(results):
        if result.arrays is None:
            failed = f"the training from seed {result.task.seed} failed: {result.error} (see {result.info['log']})"
            yield ForeignTrained(index, result.task.seed, failed=failed)
        else:
            found = result.arrays
            yield ForeignTrained(
                index,
                result.task.seed,
                found["outputs"],
                cached=result.cached,
                key=result.key,
                observed=found.get("observed"),
            )


class UnusableError(Exception):
    """A training gave no outputs that an audit can use."""


@dataclass(frozen=True)
class TrainForeign:
    """Calls the caller's function on the members of a task and asks the predictor that it returns."""

    function: Cargo
    device: str | None = None
    batch_size: int | None = None
    observe: Cargo | None = None

    def __call__(self, task: Task, shared: Arrays) -> tuple[dict[str, Any], dict[str, Any]]:
        """A pure function of the task and the shared arrays, if the caller's is one."""
        given, records = task.arguments, shared["evaluate"]
        rows = np.flatnonzero(unpacked(given["members"], given["records"]))
        predictor = self.function.opened()(rows, task.seed)
        ask = predictor_of(predictor, given["outputs"], self.device, self.batch_size)
        found = {"outputs": _checked(np.asarray(ask(records)), len(records))}
        if self.observe is not None:
            found["observed"] = observed(self.observe.opened(), predictor, records, shared["labels"])
        return found, {}


def _checked(outputs: npt.NDArray[Any], count: int | None) -> npt.NDArray[Any]:
    if outputs.dtype.kind not in "biuf" or outputs.ndim == 0 or (count is not None and len(outputs) != count):
        shape = f"type {outputs.dtype}, shape {outputs.shape}"
        raise UnusableError(f"it gave outputs of {shape}, not one number or row per record")
    if not np.isfinite(outputs).all():
        raise UnusableError("its outputs are infinite or NaN")
    return outputs


def command_task(task: Task, shared: Arrays) -> tuple[dict[str, Any], dict[str, Any]]:
    """Starts the command of a task and reads what it wrote; `places` are further words to fill in."""
    given, timeout = task.arguments, task.arguments["timeout"]
    with tempfile.TemporaryDirectory(prefix="dosimeter-") as folder:
        rows, out = Path(folder) / "indices.npy", Path(folder) / "outputs.npz"
        np.save(rows, np.flatnonzero(unpacked(given["members"], given["records"])), allow_pickle=False)
        values = {"{indices}": str(rows), "{seed}": str(task.seed), "{outputs}": str(out), "{out}": str(out)}
        filled = [_filled(part, {**values, **given.get("places", {})}) for part in given["command"]]
        try:
            done = subprocess.run(
                filled, capture_output=True, text=True, errors="replace", timeout=timeout, check=False
            )
        except subprocess.TimeoutExpired:
            raise UnusableError(f"the command took more than {timeout:g} seconds") from None
        except OSError as error:
            raise UnusableError(f"the command could not be started: {error}") from None
        sys.stderr.write(done.stderr)
        ended = 128 - done.returncode if done.returncode > 128 else done.returncode  # as a shell reports a signal
        if killed(ended):
            raise KilledError(f"the command was ended by {signal_name(ended)}")
        if done.returncode:
            end = check.show(done.stderr.strip()[-200:], 220)
            raise UnusableError(f"the command ended with code {done.returncode}: {end}")
        return {"outputs": _checked(_written(out, given["output"]), None)}, {}


def _written(file: Path, name: str) -> npt.NDArray[Any]:
    """The array that a command wrote."""
    if not file.exists():
        raise UnusableError(f"the command wrote no file to {{outputs}}, so no array {name!r}")
    try:
        with zipfile.ZipFile(file):  # NumPy would read other files too, and some of them as something else
            pass
        with np.load(file, allow_pickle=False) as found:
            if name in found:
                return np.array(found[name])
            names = check.show(", ".join(found.files) or "nothing")
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise UnusableError(
            f"the command wrote no array {name!r} to {{outputs}}, which is not an .npz file of numbers: "
            f"{check.show(str(error))}"
        ) from None
    raise UnusableError(f"the command wrote no array {name!r} to {{outputs}}: it holds {names}")


def _filled(part: str, values: dict[str, str]) -> str:
    """All places at once, so that what is filled in is not searched for places again."""
    return re.sub("|".join(map(re.escape, values)), lambda found: values[found[0]], part)
