"""What is to be done (Task), what came of it (Result), and the key under which it is kept."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from dosimeter import _validate as check
from dosimeter._validate import InputError, show

Arrays: TypeAlias = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class Task:
    """Describe one computation: its name, its arguments (as JSON can hold them) and its seed.

    Tuples become lists and NumPy scalars become Python numbers, so that a task is the same before and after it is sent
    to another process.

    Args:
        name: What is computed.
        arguments: Numbers, texts, lists and dictionaries.
        seed: Seeds the global generators of the worker.

    Raises:
        InputError: For NaN, infinities, objects, and keys that are not texts.

    >>> Task("shadow", {"epochs": 5, "sizes": (1, 2)}, seed=7).arguments
    {'epochs': 5, 'sizes': [1, 2]}
    """

    name: str
    arguments: Mapping[str, Any]
    seed: int

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise InputError(f"name must be a text, got {show(self.name)}; name what the task does, e.g. 'shadow'.")
        if not isinstance(self.arguments, Mapping):
            raise InputError(f"arguments must be a mapping, got {show(self.arguments)}; pass e.g. {{'epochs': 5}}.")
        object.__setattr__(self, "arguments", _strict(self.arguments, "arguments"))
        object.__setattr__(self, "seed", check.seed(self.seed))


@dataclass(frozen=True)
class Result:
    """Hold what came of a task: arrays and info, or one line that says why there are none.

    Attributes:
        task: The task.
        arrays: What the function returned; None on an error.
        info: What else it returned; on an error `info["log"]` names the file with the whole log.
        error: Why there are no arrays.
        cached: Whether it was found in the store.
        key: Its name there.
    """

    task: Task
    arrays: Arrays | None
    info: dict[str, Any] = field(default_factory=dict)
    error: str | None = None
    cached: bool = False
    key: str | None = None


Function: TypeAlias = Callable[[Task, Mapping[str, npt.NDArray[Any]]], tuple[Mapping[str, Any], Mapping[str, Any]]]


def canonical(value: Any) -> str:
    """JSON with one spelling for one value: sorted keys, no spaces, ASCII."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def function_name(function: Any) -> str:
    """The name by which another process finds the function, or the class of a callable object.

    What such an object holds is not part of any key: a caller whose results depend on it says so in `version`.
    """
    found = function if hasattr(function, "__qualname__") else type(function)
    module, name = getattr(found, "__module__", None), getattr(found, "__qualname__", None)
    if not callable(function) or isinstance(function, partial) or not module or not name or "<" in name:
        raise InputError(
            f"function must be a top-level function of a module, got {show(function)}; other processes find it by its "
            "name, so put what it needs into the tasks' arguments or shared."
        )
    return f"{module}.{name}"


def checked_shared(shared: Any) -> Arrays:
    """The shared arrays, read-only, so that no task can change what another one sees."""
    if shared is None:
        return {}
    if not isinstance(shared, Mapping):
        raise InputError(f"shared must be a dictionary of arrays, got {show(shared)}; pass e.g. {{'x': x, 'y': y}}.")
    arrays = {}
    for name, value in shared.items():
        array = np.asarray(value)
        if not isinstance(name, str) or array.dtype.hasobject:
            raise InputError(
                f"shared[{show(name)}] has type {array.dtype}; pass arrays of numbers or text under names, no objects."
            )
        array = np.ascontiguousarray(array).reshape(array.shape).view()
        array.flags.writeable = False
        arrays[name] = array
    return arrays


def hash_of_arrays(shared: Mapping[str, npt.NDArray[Any]]) -> str:
    """SHA-256 of the names, types, shapes and contents of the arrays that all tasks share."""
    digest = hashlib.sha256()
    for name in sorted(shared):
        array = np.ascontiguousarray(shared[name])
        header = canonical([name, repr(np.lib.format.dtype_to_descr(array.dtype)), list(shared[name].shape)])
        digest.update(header.encode())
        if array.size:
            digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def key_of(function: Function, task: Task, *, version: str = "", shared_fingerprint: str = "") -> str:
    """Compute the key of a task in the store.

    Args:
        function: The function that computes it.
        task: The task.
        version: The caller's version of the function.
        shared_fingerprint: A hash of the shared arrays.

    Returns:
        64 hexadecimal digits. Another function name, version, argument, seed, datum or version of dosimeter gives
            another.

    >>> len(key_of(len, Task("shadow", {}, seed=7)))
    64
    """
    from dosimeter import __version__

    parts = [
        function_name(function),
        version,
        task.name,
        task.arguments,
        task.seed,
        shared_fingerprint or hash_of_arrays({}),
        __version__,
    ]
    return hashlib.sha256(canonical(parts).encode()).hexdigest()


def _strict(value: Any, where: str) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"{where} is {value}, which JSON cannot hold; pass a finite number, None or a text.")
    if isinstance(value, Mapping):
        for name in value:
            if not isinstance(name, str):
                raise InputError(f"{where} has the key {show(name)}; keys must be texts.")
        return {name: _strict(item, f"{where}[{name!r}]") for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(item, f"{where}[{index}]") for index, item in enumerate(value)]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise InputError(f"{where} is {show(value)}; pass numbers, texts, lists and dictionaries, and arrays in shared.")
