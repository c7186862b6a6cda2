"""What objects, containers, arrays and tensors hold."""

from __future__ import annotations

import copyreg
import inspect
import itertools
import logging
import random
import sys
import threading
import types
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from dosimeter.training.reach.sources import file_hash, installed
from dosimeter.training.reach.walk import (
    PLAIN,
    Place,
    StateWalk,
    content,
    home_of,
)

_NO_STATE = (logging.Logger, type(threading.Lock()), type(threading.RLock()))  # nothing in them changes a number
_OF_A_LOGGER = frozenset({*vars(logging.Logger("")), "manager"})


@content.register(object)
def _(value: Any, walk: StateWalk, place: Place) -> None:
    """Any other object: its class and its state, as copying or pickling would take them."""
    kind = type(value)
    walk.feed(kind, place / ".__class__")
    for base in kind.__mro__:
        special = _BY_NAME.get(f"{home_of(base)}.{base.__qualname__}")
        if special is not None:
            special(value, walk, place)
            return
    if isinstance(value, _NO_STATE) or any(value is stream for stream in streams()):
        walk.write("stateless", str(getattr(value, "name", "")))
        more = attributes_of(value) if isinstance(value, logging.Logger) else {}
        walk.attributes({name: held for name, held in more.items() if name not in _OF_A_LOGGER}, place)
        return
    if any(value is generator for generator in _seeded_generators()):
        walk.write("generator that every task seeds")
        return
    wrapped = inspect.getattr_static(value, "__wrapped__", None)
    if wrapped is not None:  # e.g. functools.lru_cache, which names itself only
        walk.feed(getattr(value, "__wrapped__", None), place)
        parameters = getattr(value, "cache_parameters", None)
        if callable(parameters):
            walk.feed(parameters(), place)
    write_state(value, walk, place)


def write_state(value: Any, walk: StateWalk, place: Place) -> None:
    kind = type(value)
    own = attributes_of(value)
    try:
        reducer = copyreg.dispatch_table.get(kind)
        parts = reducer(value) if reducer is not None else value.__reduce_ex__(4)
    except Exception:  # classes refuse in their own ways
        if own and not any(installed(sys.modules.get(home_of(base))) for base in kind.__mro__[:-1]):
            walk.attributes(own, place)
        else:
            walk.refuse(value, place)
        return
    if isinstance(parts, str):
        walk.write("named", f"{getattr(value, '__module__', None)}.{parts}")
        walk.version_of(getattr(value, "__module__", None) or home_of(kind))
        parts = (None, ())
    made, given, state, items, pairs = (*parts, None, None, None)[:5]
    walk.feed(made, place)
    walk.all_of(given, place)
    for held in state if isinstance(state, tuple) and len(state) == 2 else (state,):
        if isinstance(held, dict) and all(type(name) is str for name in held):
            walk.attributes(held, place)
        else:
            walk.feed(held, place)
    walk.all_of(items or (), place)
    for key, item in pairs or ():
        walk.feed(key, place)
        walk.feed(item, place / f"[{key!r:.40}]")
    if not installed(sys.modules.get(home_of(kind))):
        for name in sorted(own):  # what a __getstate__ leaves out is in this process all the same
            walk.write("attribute", name)
            walk.feed(own[name], place / f".{name}", maybe="")
        walk.feed(_of_the_base(value), place, maybe="")


def _of_the_base(value: Any) -> Any:
    """What an instance of a subclass of a built-in class or of an array holds as such, whatever its methods say."""
    if isinstance(value, np.ndarray):
        return np.ndarray.view(value, np.ndarray)
    if isinstance(value, int):
        return int.__format__(value, "x")
    if isinstance(value, float | complex):
        return (float if isinstance(value, float) else complex).__repr__(value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bytes | bytearray):
        return bytes(memoryview(value))
    if isinstance(value, list):
        return list(list.__iter__(value))
    if isinstance(value, tuple):
        return list(tuple.__iter__(value))
    return list(dict.items(value)) if isinstance(value, dict) else None


def attributes_of(value: Any) -> dict[str, Any]:
    found = dict(getattr(value, "__dict__", None) or {})
    for base in type(value).__mro__:
        slots = vars(base).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            full = f"_{base.__name__.lstrip('_')}{name}" if name.startswith("__") and not name.endswith("__") else name
            if full not in ("__dict__", "__weakref__") and hasattr(value, full):
                found[full] = getattr(value, full)
    return {str(name): held for name, held in found.items()}


def streams() -> tuple[Any, ...]:
    return (sys.stdin, sys.stdout, sys.stderr, sys.__stdin__, sys.__stdout__, sys.__stderr__)


def _seeded_generators() -> tuple[Any, ...]:
    torch = sys.modules.get("torch")
    held = (getattr(random, "_inst", None), getattr(np.random.mtrand, "_rand", None))
    return (*held, *(() if torch is None else (getattr(torch, "default_generator", None),)))


@content.register
def _(value: list, walk: StateWalk, place: Place) -> None:  # type: ignore[type-arg]
    if type(value) is not list:
        walk.feed(type(value), place / ".__class__")
        write_state(value, walk, place)
    elif all(type(item) in PLAIN for item in value):
        walk.plain("list", value, value)
    else:
        walk.write("list", str(len(value)))
        walk.all_of(value, place)


@content.register
def _(value: dict, walk: StateWalk, place: Place) -> None:  # type: ignore[type-arg]
    if type(value) is not dict:
        walk.feed(type(value), place / ".__class__")
        write_state(value, walk, place)
        return
    if all(type(key) in PLAIN and type(item) in PLAIN for key, item in value.items()):
        walk.plain("dict", value, itertools.chain(value, value.values()))
        return
    walk.write("dict", str(len(value)))
    for key, item in value.items():
        walk.feed(key, place)
        walk.feed(item, place if type(item) in PLAIN else place / f"[{key!r:.40}]")


@content.register(set)
@content.register(frozenset)
def _(value: Any, walk: StateWalk, place: Place) -> None:
    walk.feed(type(value), place / ".__class__")
    items = list((set if isinstance(value, set) else frozenset).__iter__(value))
    plain = all(type(item) in PLAIN for item in items)
    hashes = [repr(item).encode() if plain else walk.apart(item, place / "{…}") for item in items]
    walk.write("set", repr(sorted(hashes)))
    if plain and len(items) <= 1000:
        walk.texts.update(item for item in items if type(item) is str)
    walk.attributes(attributes_of(value), place)


@content.register(bytearray)
@content.register(memoryview)
def _(value: Any, walk: StateWalk, place: Place) -> None:
    form = f"{value.format} {value.shape}" if isinstance(value, memoryview) else ""
    walk.write(f"{type(value).__name__} {form}", bytes(value))
    walk.attributes(attributes_of(value), place)


@content.register
def _(value: types.MappingProxyType, walk: StateWalk, place: Place) -> None:  # type: ignore[type-arg]
    walk.feed(value.copy(), place)


@content.register(type({}.keys()))
@content.register(type({}.values()))
@content.register(type({}.items()))
def _(value: Any, walk: StateWalk, place: Place) -> None:
    walk.write(type(value).__name__, str(len(value)))
    walk.all_of(value, place)


@content.register
def _(value: weakref.ref, walk: StateWalk, place: Place) -> None:  # type: ignore[type-arg]
    walk.feed(value(), place)


@content.register(weakref.WeakKeyDictionary)
@content.register(weakref.WeakValueDictionary)
def _(value: Any, walk: StateWalk, place: Place) -> None:
    walk.all_of(sorted(walk.apart(pair, place) for pair in list(value.items())), place)


@content.register
def _(value: np.ndarray, walk: StateWalk, place: Place) -> None:
    if type(value) is not np.ndarray and not isinstance(value, np.memmap):
        walk.feed(type(value), place / ".__class__")
        write_state(value, walk, place)
        return
    walk.write("array", f"{np.lib.format.dtype_to_descr(value.dtype)!r} {value.shape}")
    if value.dtype.hasobject:
        walk.feed(value.tolist(), place)
    elif value.size:
        walk.digest.update(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data)


@content.register
def _(value: np.generic, walk: StateWalk, place: Place) -> None:
    walk.feed(np.asarray(value), place)


@content.register
def _(value: np.ufunc, walk: StateWalk, place: Place) -> None:
    if getattr(np, value.__name__, None) is value:
        walk.write("ufunc", value.__name__)
        walk.version_of("numpy")
    elif inspect.ismodule(home := sys.modules.get("scipy.special")) and getattr(home, value.__name__, None) is value:
        walk.write("ufunc", value.__name__)
        walk.version_of("scipy")
    else:  # numpy.frompyfunc hides its function
        walk.refuse(value, place)


def _tensor(value: Any, walk: StateWalk, place: Place) -> None:
    """A torch tensor: what it is and its bytes."""
    torch = sys.modules["torch"]
    part = value.detach()
    walk.write("tensor", f"{part.dtype} {tuple(part.shape)} {part.layout} {part.device.type} {value.requires_grad}")
    if part.device.type == "meta":
        return
    if part.layout in (torch.sparse_csr, torch.sparse_csc, torch.sparse_coo):
        part = part.to_dense()
    if part.is_quantized or part.layout is not torch.strided:
        walk.refuse(value, place)
        return
    flat = part.resolve_conj().resolve_neg().cpu().contiguous().reshape(-1)
    if flat.numel():
        walk.digest.update(flat.view(torch.uint8).numpy().data)
    walk.attributes(getattr(value, "__dict__", None) or {}, place)
    if value.is_leaf and value.grad is not None:
        walk.feed(value.grad, place / ".grad")


def _environment(value: Any, walk: StateWalk, place: Place) -> None:
    """`os.environ` itself: which variables count is known at the end."""
    walk.mentioned.add("environ")


def _shared_memory(value: Any, walk: StateWalk, place: Place) -> None:
    """Memory that other processes write to: a pickle has its name only."""
    walk.refuse(value, place)


def _library_file(value: Any, walk: StateWalk, place: Place) -> None:
    """A library in C that was loaded by hand: its file."""
    walk.write("library", f"{value._name} {file_hash(str(value._name))}")


_BY_NAME: dict[str, Callable[[Any, StateWalk, Place], None]] = {
    "torch.Tensor": _tensor,
    "os._Environ": _environment,
    "multiprocessing.shared_memory.SharedMemory": _shared_memory,
    "ctypes.CDLL": _library_file,
}
