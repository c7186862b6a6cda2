"""What goes to another process: the caller's functions with the modules they use, and the members of a model."""

from __future__ import annotations

import base64
import importlib
import pickle
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from dosimeter._validate import BoolArray
from dosimeter.training.reach import reach
from dosimeter.training.reach.sources import installed

Arrays = Mapping[str, npt.NDArray[Any]]  # what all tasks of a run share


@dataclass(frozen=True)
class Cargo:
    """A function of the caller on its way to another process: pickled by value, or as it is within this process.

    `states` are hashes of modules that could not be taken along; they must be the same where the function arrives.
    """

    content: Any
    states: tuple[tuple[str, str], ...] = ()

    @classmethod
    def packed(cls, value: Any, modules: Sequence[str] = ()) -> Cargo | None:
        """Pickle a value for another process; None if that cannot be done.

        The code and the values of these modules of the caller go along: another machine may lack them, a waiting
        process may know them in an older form, and one that imports them anew misses what was changed since.
        """
        own = [name for name in modules if name in sys.modules and not installed(sys.modules[name])]
        own = [name for name in own if name != "__main__"]  # always goes by value
        content = _dumped(value, own)
        if content is None and own:
            own = [name for name in own if _dumped(value, [name]) is not None]
            content = _dumped(value, own)
        if content is None:
            own, content = [], _dumped(value, [])
        if content is None:
            return None
        left = [name for name in modules if name in sys.modules and name not in own and name != "__main__"]
        return cls(content, tuple((name, _state(name)) for name in left if not installed(sys.modules[name])))

    def opened(self) -> Any:
        """The function; in another process its modules are compared with those of the caller."""
        return _opened(self.content, self.states) if isinstance(self.content, bytes) else self.content


class ChangedModuleError(Exception):
    """A module has other values in a worker process than in the process that called."""


def _dumped(value: Any, modules: Sequence[str]) -> bytes | None:
    import cloudpickle

    registered = []
    try:
        for name in modules:
            cloudpickle.register_pickle_by_value(sys.modules[name])
            registered.append(name)
        return bytes(cloudpickle.dumps(value))
    except Exception:  # whatever the value refers to may refuse in its own way
        return None
    finally:
        for name in registered:
            cloudpickle.unregister_pickle_by_value(sys.modules[name])


def _state(name: str) -> str:
    return reach(importlib.import_module(name), name, strict=False).digest


@lru_cache(maxsize=1)
def _opened(content: bytes, states: tuple[tuple[str, str], ...]) -> Any:
    found = pickle.loads(content)  # noqa: S301 made by the process that started this one
    for name, state in states:
        if _state(name) != state:
            raise ChangedModuleError(
                f"the module {name} has other values in a new process than in the one that called, and cannot be sent "
                "there; pass engine='inline', or set these values when the module is imported"
            )
    return found


def packed(row: BoolArray) -> str:
    """The members of a model as text."""
    return base64.b64encode(np.packbits(row).tobytes()).decode()


def unpacked(text: str, count: int) -> BoolArray:
    """What `packed` wrote."""
    return np.unpackbits(np.frombuffer(base64.b64decode(text), np.uint8), count=count).astype(bool)
