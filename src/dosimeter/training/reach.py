"""A hash of everything that a value can reach: code, the globals it names, objects by their state, arrays by bytes.

The walk writes a canonical text into a digest. Numbers, texts and tuples are written where they stand. Everything that
has an identity is numbered when it is first met, waits in a queue, and is named by its number afterwards, so that
cycles end and nothing is deep. What only may be reached (the rest of a module that is handed around) waits in a second
queue, behind all that is reached for certain.

The text is the same in another process: no addresses, no hashes of Python, no order of sets.
"""

from __future__ import annotations

import builtins
import copyreg
import functools
import hashlib
import importlib
import importlib.util
import inspect
import io
import itertools
import logging
import os
import random
import re
import sys
import threading
import types
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from dosimeter.training.names import names_in, texts_in
from dosimeter.training.sources import file_hash, foreign_parts, installed, installed_code, source_of, stamp

_PLAIN = frozenset({type(None), bool, int, float, complex, str, bytes, type(...), type(NotImplemented)})
_NO_STATE = (logging.Logger, type(threading.Lock()), type(threading.RLock()))  # nothing in them changes a number
_OF_A_LOGGER = frozenset({*vars(logging.Logger("")), "manager"})
_OF_THE_CLASS = {
    *("__dict__", "__weakref__", "__doc__", "__module__", "__qualname__", "_abc_impl", "__abstractmethods__"),
    *("__firstlineno__", "__static_attributes__", "__signature__"),
}
_NOT_READ = {("sys", "path"), ("sys", "modules"), ("sys", "meta_path"), ("sys", "path_importer_cache")}
_COMMAND_LINE = frozenset(
    {
        *("argv", "orig_argv", "parse_args", "parse_known_args", "parse_intermixed_args", "docopt"),
        *("parse_known_intermixed_args", "parse_args_into_dataclasses"),
    }
)
_ENVIRONMENT = frozenset({"environ", "environb", "getenv", "getenvb", "expandvars"})
_ALL_VARIABLES = frozenset({"items", "keys", "values", "copy", "dict", "list", "sorted"})  # read more than one by name
_ANNOTATIONS = frozenset({"__annotations__", "get_type_hints", "get_annotations", "signature"})
_DOTTED = re.compile(r"[^\W\d]\w*([.:][^\W\d]\w*)+")
_MOST_TEXTS = 100_000
_MOST_OBJECTS = 3_000_000


class UnreachableStateError(Exception):
    """Something that can be reached has no state that could be hashed; the text says where and what it is."""


class Place(NamedTuple):
    """Where a value was met, for messages: how it is reached from the place before."""

    before: Place | None
    step: str

    def __truediv__(self, step: str) -> Place:
        return Place(self, step)

    def __str__(self) -> str:
        steps, place = [], self
        while place is not None:
            steps.append(place.step)
            place = place.before  # type: ignore[assignment]
        return "".join(reversed(steps if len(steps) <= 12 else [*steps[:8], " → …", *steps[-2:]]))


@dataclass(frozen=True)
class Reached:
    """What a walk found: the hash, the caller's modules, the versions it stands on, and installed things replaced."""

    digest: str
    modules: tuple[str, ...]
    versions: tuple[str, ...]
    replaced: tuple[str, ...]


def reach(value: Any, name: str, *, strict: bool = True) -> Reached:
    """Walk everything that `value` can reach.

    Raises:
        UnreachableStateError: If something that is reached has no state to hash and `strict` is set.
    """
    walk = _Walk(strict=strict)
    walk.feed(value, Place(None, name))
    walk.finish()
    return Reached(
        walk.digest.hexdigest(), tuple(sorted(walk.modules)), tuple(sorted(walk.versions)), tuple(sorted(walk.replaced))
    )


class _Item(NamedTuple):
    value: Any
    place: Place
    maybe: str | None  # reached only if code takes this attribute from a module; None: reached for certain


@dataclass
class _Walk:
    """The state of a walk; see the head of this file."""

    strict: bool = True
    digest: Any = field(default_factory=hashlib.sha256)
    numbers: dict[int, int] = field(default_factory=dict)
    kept: list[Any] = field(default_factory=list)  # what has a number stays alive, so that no other takes its address
    certain: deque[_Item] = field(default_factory=deque)
    possible: dict[int, _Item] = field(default_factory=dict)
    maybe: str | None = None
    settled: bool = True  # nothing certain was met since what is possible was looked through
    submodules: dict[str, tuple[types.ModuleType, Place]] = field(default_factory=dict)  # read only if named
    modules: set[str] = field(default_factory=set)
    versions: set[str] = field(default_factory=set)
    replaced: set[str] = field(default_factory=set)
    texts: set[str] = field(default_factory=set)
    mentioned: set[str] = field(default_factory=set)
    packages: set[str] = field(default_factory=set)  # installed ones that are reached
    libraries: dict[str, Place] = field(default_factory=dict)  # installed modules that are held
    described: list[tuple[Any, Place]] = field(default_factory=list)  # classes and functions of the caller

    def write(self, kind: str, content: str | bytes = b"") -> None:
        """One piece of the text, with its length, so that no two texts run together alike."""
        data = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
        self.digest.update(f"{kind} {len(data)}:".encode() + data)

    def feed(self, value: Any, place: Place, *, maybe: str | None = None) -> None:
        """Write a value, or its number, and leave what it holds to the queue."""
        if type(value) in _PLAIN:
            self.write(type(value).__name__, value if type(value) is bytes else _spelled(value))
            if type(value) is str and len(value) <= 100 and len(self.texts) < _MOST_TEXTS:
                self.texts.add(value)
            return
        if type(value) is tuple:
            self.write("tuple", str(len(value)))
            for index, part in enumerate(value):
                self.feed(part, place / f"[{index}]", maybe=maybe)
            return
        known, name = id(value) in self.numbers, maybe if self.maybe is None else self.maybe
        if not known:
            self.numbers[id(value)] = len(self.numbers)
            self.kept.append(value)
            if len(self.kept) > _MOST_OBJECTS:
                raise UnreachableStateError(f"{place} leads to more than {_MOST_OBJECTS} objects")
        if name is None and (not known or self.possible.pop(id(value), None) is not None):
            self.certain.append(_Item(value, place, None))
        elif not known:
            self.possible[id(value)] = _Item(value, place, name)
        self.write("object", str(self.numbers[id(value)]))

    def finish(self) -> None:
        """Write what waits, then what the process gives, where code reads it: the command line, the environment.

        A command line that code turned into values, e.g. by argparse, is among the values that are reached; as a whole
        it would also tell apart runs that differ in the engine or the name of a report.
        """
        self._drain()
        if self.strict:  # which modules are loaded differs between processes, so this is not compared among them
            self._named_by_texts()
            self._taken_from_libraries()
            self._replaced_inside()
        self._descriptions()
        if not self.mentioned.isdisjoint(_COMMAND_LINE):
            self.write("command line", repr(sys.argv[1:]))
        if not self.mentioned.isdisjoint(_ENVIRONMENT):
            several = not self.mentioned.isdisjoint(_ALL_VARIABLES)
            self.write("environment", repr(_variables(self.texts | self.mentioned, several=several)))

    def _named_by_texts(self) -> None:
        """Modules of the caller that texts name, e.g. "package.models.Net": libraries import what such texts say."""
        seen: set[str] = set()
        while new := sorted(text for text in self.texts - seen if _DOTTED.fullmatch(text)):
            seen |= self.texts
            for text in new:
                for name, file in source_of(text.replace(":", ".")):
                    self.write("named by a text", f"{name} {file_hash(file)}")
                    if (module := sys.modules.get(name)) is not None:
                        self.feed(module, Place(None, name), maybe="")
            self._drain()

    def _taken_from_libraries(self) -> None:
        """What code may take from installed modules that it holds, e.g. in a closure: whatever it mentions."""
        seen: set[tuple[str, str]] = set()
        while new := sorted({(name, one) for name in self.libraries for one in self._mentioned_in(name)} - seen):
            seen.update(new)
            for name, one in new:
                held, place = vars(sys.modules[name])[one], self.libraries[name] / f".{one}"
                self.write("taken", f"{name}.{one}")
                if type(held) is types.ModuleType and installed(held):
                    self.libraries.setdefault(held.__name__, place)
                else:
                    self.feed(held, place, maybe="")
            self._drain()

    def _mentioned_in(self, library: str) -> set[str]:
        if library.partition(".")[0] in sys.stdlib_module_names or library not in sys.modules:
            return set()
        return self.mentioned & vars(sys.modules[library]).keys()

    def _replaced_inside(self) -> None:
        """Functions of the caller that stand in the installed packages that are reached, whoever calls them there."""
        for name, held in foreign_parts(frozenset(self.packages)):
            self.replaced.add(name)
            self.write("replaced", name)
            self.feed(held, Place(None, name), maybe="")
        self._drain()

    def _descriptions(self) -> None:
        """Annotations and the texts of classes, where code reads such things."""
        for held, place in self.described:
            if not self.mentioned.isdisjoint(_ANNOTATIONS):
                self.feed(getattr(held, "__annotations__", None), place / ".__annotations__", maybe="")
            if isinstance(held, type) and not self.mentioned.isdisjoint(("__doc__", "getdoc")):
                self.feed(vars(held).get("__doc__"), place / ".__doc__", maybe="")
        self._drain()

    def _drain(self) -> None:
        while self.certain or self._promoted() or self.possible:
            item = self.certain.popleft() if self.certain else self.possible.pop(next(iter(self.possible)))
            self.maybe, self.settled = item.maybe, self.settled and item.maybe is not None
            self.write("is", str(self.numbers[id(item.value)]))
            try:
                _content.dispatch(type(item.value))(item.value, self, item.place)
            except UnreachableStateError:
                raise
            except Exception:  # objects of all kinds answer here, and some answer by raising
                self.refuse(item.value, item.place)
        self.maybe = None

    def _promoted(self) -> bool:
        """Whether something that was only possible is certain, now that all code that surely runs is known."""
        if self.settled:
            return False
        self.maybe, self.settled = None, True
        for name in sorted(self.submodules.keys() & self.mentioned):
            self.feed(*self.submodules.pop(name))
        for number, item in [pair for pair in self.possible.items() if pair[1].maybe in self.mentioned]:
            del self.possible[number]
            self.certain.append(item._replace(maybe=None))
        return bool(self.certain)

    def apart(self, value: Any, place: Place) -> bytes:
        """The hash of a value by itself, for the members of sets, which have no order."""
        alone = _Walk(self.strict, numbers=dict(self.numbers), maybe=self.maybe, kept=self.kept)
        alone.modules, alone.versions, alone.replaced = self.modules, self.versions, self.replaced
        alone.texts, alone.mentioned, alone.submodules = self.texts, self.mentioned, self.submodules
        alone.packages, alone.described, alone.libraries = self.packages, self.described, self.libraries
        alone.feed(value, place)
        alone._drain()
        return bytes(alone.digest.digest())

    def refuse(self, value: Any, place: Place) -> None:
        """Something without a state that could be hashed."""
        kind = type(value)
        name = kind.__qualname__ if _home(kind) == "builtins" else f"{_home(kind)}.{kind.__qualname__}"
        self.write("opaque", name)
        if self.maybe is None and self.strict:
            raise UnreachableStateError(f"{place} is a {name}")

    def version_of(self, module: str | None) -> None:
        """Write what stands for a module that is not read."""
        found = stamp(module or "builtins")
        self.packages.add((module or "builtins").partition(".")[0])
        self.versions.add(found)
        self.write("version", found)

    def plain(self, kind: str, value: Any, parts: Iterable[Any]) -> None:
        """Write a container of plain values at once."""
        self.write(f"{kind} of plain", repr(value))
        if len(value) <= 1000:
            self.texts.update(part for part in parts if type(part) is str)

    def all_of(self, values: Iterable[Any], place: Place) -> None:
        for index, value in enumerate(values):
            self.feed(value, place / f"[{index}]")

    def attributes(self, values: dict[str, Any], place: Place) -> None:
        """Attributes by name; their order counts, as code may go through all of them."""
        self.write("attributes", repr([str(name) for name in values]))
        for name in sorted(values, key=str):
            self.write("attribute", str(name))
            self.feed(values[name], place / f".{name}")


def _spelled(value: Any) -> str:
    """A plain value; Python does not spell very long numbers out."""
    return hex(value) if type(value) is int else repr(value)


def _variables(texts: set[str], *, several: bool) -> list[tuple[str, str]]:
    """Environment variables that these texts name: whole, word by word, or (with an underscore at the seam) by an end.

    Where code looks at `several`, any text of three letters within a name counts.
    """
    whole = {text.lower() for text in texts}
    ends = [text for text in whole if len(text) > 2 and (text[0] == "_" or text[-1] == "_")]
    inside = [text for text in whole if len(text) > 2] if several else []
    found = []
    for name, value in sorted(os.environ.items()):
        low = name.lower()
        words = low.split("_")
        if (
            low in whole
            or (len(words) > 1 and whole.issuperset(words))
            or any(low.startswith(end) or low.endswith(end) for end in ends)
            or any(text in low for text in inside)
        ):
            found.append((name, value))
    return found


# --- what a value holds, by its type ----------------------------------------------------------------------


@functools.singledispatch
def _content(value: Any, walk: _Walk, place: Place) -> None:
    """Any other object: its class and its state, as copying or pickling would take them."""
    kind = type(value)
    walk.feed(kind, place / ".__class__")
    for base in kind.__mro__:
        special = _BY_NAME.get(f"{_home(base)}.{base.__qualname__}")
        if special is not None:
            special(value, walk, place)
            return
    if isinstance(value, _NO_STATE) or any(value is stream for stream in _streams()):
        walk.write("stateless", str(getattr(value, "name", "")))
        more = _attributes_of(value) if isinstance(value, logging.Logger) else {}
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
    _state(value, walk, place)


def _state(value: Any, walk: _Walk, place: Place) -> None:
    kind = type(value)
    own = _attributes_of(value)
    try:
        reducer = copyreg.dispatch_table.get(kind)
        parts = reducer(value) if reducer is not None else value.__reduce_ex__(4)
    except Exception:  # classes refuse in their own ways
        if own and not any(installed(sys.modules.get(_home(base))) for base in kind.__mro__[:-1]):
            walk.attributes(own, place)
        else:
            walk.refuse(value, place)
        return
    if isinstance(parts, str):
        walk.write("named", f"{getattr(value, '__module__', None)}.{parts}")
        walk.version_of(getattr(value, "__module__", None) or _home(kind))
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
    if not installed(sys.modules.get(_home(kind))):
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


def _attributes_of(value: Any) -> dict[str, Any]:
    found = dict(getattr(value, "__dict__", None) or {})
    for base in type(value).__mro__:
        slots = vars(base).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            full = f"_{base.__name__.lstrip('_')}{name}" if name.startswith("__") and not name.endswith("__") else name
            if full not in ("__dict__", "__weakref__") and hasattr(value, full):
                found[full] = getattr(value, full)
    return {str(name): held for name, held in found.items()}


def _streams() -> tuple[Any, ...]:
    return (sys.stdin, sys.stdout, sys.stderr, sys.__stdin__, sys.__stdout__, sys.__stderr__)


def _seeded_generators() -> tuple[Any, ...]:
    torch = sys.modules.get("torch")
    held = (getattr(random, "_inst", None), getattr(np.random.mtrand, "_rand", None))
    return (*held, *(() if torch is None else (getattr(torch, "default_generator", None),)))


@_content.register
def _(value: list, walk: _Walk, place: Place) -> None:  # type: ignore[type-arg]
    if type(value) is not list:
        walk.feed(type(value), place / ".__class__")
        _state(value, walk, place)
    elif all(type(item) in _PLAIN for item in value):
        walk.plain("list", value, value)
    else:
        walk.write("list", str(len(value)))
        walk.all_of(value, place)


@_content.register
def _(value: dict, walk: _Walk, place: Place) -> None:  # type: ignore[type-arg]
    if type(value) is not dict:
        walk.feed(type(value), place / ".__class__")
        _state(value, walk, place)
        return
    if all(type(key) in _PLAIN and type(item) in _PLAIN for key, item in value.items()):
        walk.plain("dict", value, itertools.chain(value, value.values()))
        return
    walk.write("dict", str(len(value)))
    for key, item in value.items():
        walk.feed(key, place)
        walk.feed(item, place if type(item) in _PLAIN else place / f"[{key!r:.40}]")


@_content.register(set)
@_content.register(frozenset)
def _(value: Any, walk: _Walk, place: Place) -> None:
    walk.feed(type(value), place / ".__class__")
    items = list((set if isinstance(value, set) else frozenset).__iter__(value))
    plain = all(type(item) in _PLAIN for item in items)
    hashes = [repr(item).encode() if plain else walk.apart(item, place / "{…}") for item in items]
    walk.write("set", repr(sorted(hashes)))
    if plain and len(items) <= 1000:
        walk.texts.update(item for item in items if type(item) is str)
    walk.attributes(_attributes_of(value), place)


@_content.register(bytearray)
@_content.register(memoryview)
def _(value: Any, walk: _Walk, place: Place) -> None:
    form = f"{value.format} {value.shape}" if isinstance(value, memoryview) else ""
    walk.write(f"{type(value).__name__} {form}", bytes(value))
    walk.attributes(_attributes_of(value), place)


@_content.register
def _(value: types.MappingProxyType, walk: _Walk, place: Place) -> None:  # type: ignore[type-arg]
    walk.feed(value.copy(), place)


@_content.register(type({}.keys()))
@_content.register(type({}.values()))
@_content.register(type({}.items()))
def _(value: Any, walk: _Walk, place: Place) -> None:
    walk.write(type(value).__name__, str(len(value)))
    walk.all_of(value, place)


@_content.register
def _(value: weakref.ref, walk: _Walk, place: Place) -> None:  # type: ignore[type-arg]
    walk.feed(value(), place)


@_content.register(weakref.WeakKeyDictionary)
@_content.register(weakref.WeakValueDictionary)
def _(value: Any, walk: _Walk, place: Place) -> None:
    walk.all_of(sorted(walk.apart(pair, place) for pair in list(value.items())), place)


@_content.register
def _(value: np.ndarray, walk: _Walk, place: Place) -> None:
    if type(value) is not np.ndarray and not isinstance(value, np.memmap):
        walk.feed(type(value), place / ".__class__")
        _state(value, walk, place)
        return
    walk.write("array", f"{np.lib.format.dtype_to_descr(value.dtype)!r} {value.shape}")
    if value.dtype.hasobject:
        walk.feed(value.tolist(), place)
    elif value.size:
        walk.digest.update(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data)


@_content.register
def _(value: np.generic, walk: _Walk, place: Place) -> None:
    walk.feed(np.asarray(value), place)


@_content.register
def _(value: np.ufunc, walk: _Walk, place: Place) -> None:
    if getattr(np, value.__name__, None) is value:
        walk.write("ufunc", value.__name__)
        walk.version_of("numpy")
    elif inspect.ismodule(home := sys.modules.get("scipy.special")) and getattr(home, value.__name__, None) is value:
        walk.write("ufunc", value.__name__)
        walk.version_of("scipy")
    else:  # numpy.frompyfunc hides its function
        walk.refuse(value, place)


def _tensor(value: Any, walk: _Walk, place: Place) -> None:
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


def _environment(value: Any, walk: _Walk, place: Place) -> None:
    """`os.environ` itself: which variables count is known at the end."""
    walk.mentioned.add("environ")


def _shared_memory(value: Any, walk: _Walk, place: Place) -> None:
    """Memory that other processes write to: a pickle has its name only."""
    walk.refuse(value, place)


def _library_file(value: Any, walk: _Walk, place: Place) -> None:
    """A library in C that was loaded by hand: its file."""
    walk.write("library", f"{value._name} {file_hash(str(value._name))}")


_BY_NAME: dict[str, Callable[[Any, _Walk, Place], None]] = {
    "torch.Tensor": _tensor,
    "os._Environ": _environment,
    "multiprocessing.shared_memory.SharedMemory": _shared_memory,
    "ctypes.CDLL": _library_file,
}


# --- functions, methods, classes and modules --------------------------------------------------------------


@_content.register
def _(value: types.FunctionType, walk: _Walk, place: Place) -> None:
    walk.write("function", f"{value.__module__}.{value.__qualname__}")
    if not installed_code(value.__code__, value.__globals__):
        _own_code(value, walk, place)
    else:
        home = value.__globals__.get("__name__")
        walk.version_of(home)
        if walk.maybe is None and value.__name__ in _COMMAND_LINE | _ENVIRONMENT:
            walk.mentioned.add(value.__name__)  # whatever it is called by those who call it
        if value.__module__ == home and _found(home, value.__qualname__) is value:
            given = (*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values())
            walk.feed(tuple(one for one in given if type(one) in _PLAIN), place / " (defaults)")
            return
    walk.feed(value.__defaults__, place / " (defaults)")
    walk.feed(value.__kwdefaults__, place / " (defaults)")
    walk.attributes(value.__dict__, place)
    for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
        walk.write("closure", name)
        walk.feed(cell, place / f" → {name}")


def _own_code(function: types.FunctionType, walk: _Walk, place: Place) -> None:
    code, space = function.__code__, function.__globals__
    home = str(space.get("__name__"))
    walk.modules.add(home)
    walk.feed(code, place)
    walk.described.append((function, place))
    named = names_in(code)
    walk.texts |= _words_in(code)
    if walk.maybe is None:
        walk.mentioned |= named.mentioned
        if walk.strict and named.any_of("f_back", "f_locals"):
            raise UnreachableStateError(f"{place} reads the frames of its callers")
    for path in named.paths:
        walk.write("global", ".".join(path))
        first, held = path[0], space.get("__builtins__", builtins)
        known = vars(held) if isinstance(held, types.ModuleType) else held
        if first in space or first in known:
            _along(space[first] if first in space else known[first], path, walk, place)
    for level, module, wanted in named.imports:
        _imported(level, module, wanted, space, walk, place)
    by_name = named.any_of("modules", "import_module", "__import__")
    by_text = named.any_of("globals", "eval", "exec", "__globals__", "f_globals")
    if by_text or (by_name and named.any_of("__name__")):
        _all_globals(space, walk, place)
    if by_name:
        _modules_in_texts(code, walk, place)


@functools.lru_cache(maxsize=4096)
def _words_in(code: types.CodeType) -> frozenset[str]:
    """The texts of code that name modules, and the words in all that are short."""
    texts = [text for text in texts_in(code) if len(text) <= 200]
    words = {word for text in texts for word in re.findall(r"\w+", text)}
    return frozenset(words | {text for text in texts if _DOTTED.fullmatch(text)})


def _along(value: Any, path: tuple[str, ...], walk: _Walk, place: Place) -> None:
    """Follow `module.module.name` as far as it leads through modules and namespaces, and write what stands there."""
    place, rest = place / f" → {path[0]}", path[1:]
    while rest and (isinstance(value, types.ModuleType) or _is_namespace(value)):
        name = rest[0]
        found = vars(value).get(name, _MISSING)
        if found is _MISSING and isinstance(inspect.getattr_static(type(value), name, None), property):
            found = getattr(value, name)
        if found is _MISSING:
            break
        walk.write("attribute", name)
        module = value if isinstance(value, types.ModuleType) else None
        library = module is not None and installed(module)
        if module is not None and library:
            walk.version_of(module.__name__)
            if (module.__name__, name) in _NOT_READ:
                return
        elif module is not None:
            walk.modules.add(module.__name__)
        place, rest, value = place / f".{name}", rest[1:], found
        if library and not isinstance(found, _CODE):
            walk.feed(value, place, maybe="")  # the state of a library counts where it can be read
            return
    walk.feed(value, place)


def _is_namespace(value: Any) -> bool:
    """Whether this is an object with attributes and nothing else: code that takes one of them reaches no other."""
    kind = type(value)
    return kind is types.SimpleNamespace or (kind.__name__ == "Namespace" and _home(kind) == "argparse")


_MISSING: Any = object()
_CODE = (types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.MethodType, type)


def _imported(
    level: int, module: str, wanted: tuple[str, ...], space: dict[str, Any], walk: _Walk, place: Place
) -> None:
    """Modules that code imports when it runs: the caller's are imported now and read, of others the version counts."""
    name = module
    if level:
        try:
            name = importlib.util.resolve_name("." * level + module, str(space.get("__package__") or ""))
        except ImportError:
            return
    parts = name.split(".")
    for count in range(1, len(parts) + 1):
        walk.write("import", ".".join(parts[:count]))
        found = _own_module(".".join(parts[:count]), walk)
        if found is not None:
            walk.feed(found, place / f" → {found.__name__}")
    if found is None:
        _replaced_in(sys.modules.get(name), wanted, walk, place)
        return
    for one in wanted:
        loaded = f"{name}.{one}" in sys.modules
        if (loaded or one not in vars(found)) and (part := _own_module(f"{name}.{one}", walk)) is not None:
            walk.feed(part, place / f" → {part.__name__}")


def _replaced_in(module: types.ModuleType | None, names: Iterable[str], walk: _Walk, place: Place) -> None:
    """Functions and classes of the caller that stand in an installed module, or on its classes, in place of others."""
    for name in sorted(set(names) | (walk.mentioned & vars(module).keys()) if module is not None else ()):
        held = vars(module).get(name)
        if isinstance(held, types.FunctionType) and not installed_code(held.__code__, held.__globals__):
            walk.replaced.add(f"{getattr(module, '__name__', '')}.{name}")
            walk.feed(held, place / f" → {name}")
        elif isinstance(held, type):
            for base in held.__mro__:
                if not installed(sys.modules.get(_home(base))):
                    walk.feed(base, place / f" → {name}")
                else:
                    _replaced_members(base, walk, place / f" → {name}")


def _own_module(name: str, walk: _Walk) -> types.ModuleType | None:
    """The caller's module of this name; None for others, whose version is written, and for none at all."""
    if name.partition(".")[0] in sys.stdlib_module_names:
        walk.version_of(name)
        return None
    found = sys.modules.get(name)
    try:
        spec = None if found is not None else importlib.util.find_spec(name)
    except (ImportError, ValueError, AttributeError):
        spec = None
    if found is None and spec is None:
        walk.write("missing", name)
        return None
    if found is not None:
        library = installed(found)
    else:
        assert spec is not None
        shell = types.ModuleType(name)
        shell.__spec__, shell.__file__ = spec, spec.origin
        library = installed(shell)
    if library:
        walk.version_of(name)
        return None
    try:
        return found or importlib.import_module(name)
    except Exception:  # the code may be ready for that
        walk.write("missing", name)
        return None


def _all_globals(space: dict[str, Any], walk: _Walk, place: Place) -> None:
    """Code that finds globals by text may reach all of them."""
    for name in sorted(space):
        if not _dunder(name):
            walk.write("global", name)
            walk.feed(space[name], place / f" → {name}", maybe=name)


def _modules_in_texts(code: types.CodeType, walk: _Walk, place: Place) -> None:
    """Code that finds modules by text may reach those that its texts name."""
    for text in sorted(texts_in(code)):
        if re.fullmatch(r"\w+(\.\w+)*", text) and (text in sys.modules or "." in text):
            _imported(0, text, (), {}, walk, place)


@_content.register
def _(value: types.CodeType, walk: _Walk, place: Place) -> None:
    walk.write("code", value.co_code)
    walk.write("exceptions", value.co_exceptiontable)
    shape = (value.co_argcount, value.co_posonlyargcount, value.co_kwonlyargcount, value.co_flags)
    walk.write("names", repr((*shape, value.co_names, value.co_varnames, value.co_freevars, value.co_cellvars)))
    for constant in value.co_consts:
        if isinstance(constant, types.CodeType):
            _content(constant, walk, place)
        else:
            walk.write("constant", _constant(constant))


def _constant(value: Any) -> str:
    """A constant of code as text, sets in order; equal constants need not be one object in every process."""
    if isinstance(value, tuple):
        return f"({', '.join(map(_constant, value))})"
    if isinstance(value, frozenset):
        return f"{{{', '.join(sorted(map(_constant, value)))}}}"
    return f"{type(value).__name__} {value!r}"


@_content.register
def _(value: types.CellType, walk: _Walk, place: Place) -> None:
    try:
        walk.feed(value.cell_contents, place)
    except ValueError:  # still empty
        walk.write("empty")


@_content.register
def _(value: types.MethodType, walk: _Walk, place: Place) -> None:
    walk.feed(value.__func__, place)
    walk.feed(value.__self__, place / ".__self__")


@_content.register(types.BuiltinFunctionType)
@_content.register(types.MethodWrapperType)
def _(value: Any, walk: _Walk, place: Place) -> None:
    walk.write("built-in", f"{getattr(value, '__module__', None)}.{value.__qualname__}")
    held = value.__self__
    if isinstance(held, types.ModuleType | None):
        walk.version_of(getattr(value, "__module__", None) or getattr(held, "__name__", None))
    else:
        walk.feed(held, place / ".__self__")


@_content.register(types.MethodDescriptorType)
@_content.register(types.WrapperDescriptorType)
@_content.register(types.GetSetDescriptorType)
@_content.register(types.MemberDescriptorType)
@_content.register(types.ClassMethodDescriptorType)
def _(value: Any, walk: _Walk, place: Place) -> None:
    walk.write("slot", f"{value.__objclass__.__module__}.{value.__qualname__}")


@_content.register(staticmethod)
@_content.register(classmethod)
def _(value: Any, walk: _Walk, place: Place) -> None:
    walk.write(type(value).__name__)
    walk.feed(value.__func__, place)
    _wrapper(value, walk, place)


@_content.register
def _(value: property, walk: _Walk, place: Place) -> None:
    walk.feed((value.fget, value.fset, value.fdel), place)
    _wrapper(value, walk, place)


def _wrapper(value: Any, walk: _Walk, place: Place) -> None:
    """Attributes that were given to a wrapper of a function, and its class if that is the caller's."""
    walk.attributes({name: held for name, held in _attributes_of(value).items() if not _dunder(name)}, place)
    if type(value) not in (staticmethod, classmethod, property):
        walk.feed(type(value), place / ".__class__")


@_content.register(io.IOBase)
@_content.register(types.GeneratorType)
@_content.register(types.CoroutineType)
@_content.register(types.AsyncGeneratorType)
def _(value: Any, walk: _Walk, place: Place) -> None:
    if any(value is stream for stream in _streams()):
        walk.write("stream")
    else:
        walk.refuse(value, place)


@_content.register
def _(value: type, walk: _Walk, place: Place) -> None:
    for base in value.__mro__:
        home = _home(base)
        walk.write("class", f"{home}.{base.__qualname__}")
        library = installed(sys.modules.get(home))
        if library:
            walk.version_of(home)
        else:
            walk.modules.add(home)
            walk.described.append((base, place))
        if library and (base is not value or _found(home, base.__qualname__) is value):
            if home != "builtins":
                _library_class(base, walk, place)
            continue
        for name, member in sorted(vars(base).items()):
            if name not in _OF_THE_CLASS and (not _dunder(name) or _matters(name, member)):
                walk.write("member", name)
                certain = not library and (not _dunder(name) or isinstance(member, _METHODS))
                walk.feed(member, place / f".{name}", maybe=None if certain else "")
    if type(value) is not type:
        walk.feed(type(value), place / ".__class__")


def _home(kind: type) -> str:
    """The module of a class; some of those in C have none."""
    return kind.__module__ if isinstance(kind.__module__, str) else "builtins"


def _library_class(kind: type, walk: _Walk, place: Place) -> None:
    """Members of an installed class that somebody may have replaced: functions of the caller, and plain values."""
    _replaced_members(kind, walk, place)
    for name, member in sorted(vars(kind).items()):
        if type(member) in _PLAIN and not _dunder(name):
            walk.write("member", name)
            walk.feed(member, place / f".{name}")
        elif isinstance(member, types.FunctionType):  # which may be one of another class
            walk.write("method", f"{name} {member.__module__}.{member.__qualname__}")


def _replaced_members(kind: type, walk: _Walk, place: Place) -> None:
    for name, member in sorted(vars(kind).items()):
        inner = member.__func__ if isinstance(member, staticmethod | classmethod) else member
        inner = inner.fget if isinstance(inner, property) else inner
        if isinstance(inner, types.FunctionType) and not installed_code(inner.__code__, inner.__globals__):
            walk.replaced.add(f"{kind.__qualname__}.{name}")
            walk.write("member", name)
            walk.feed(member, place / f".{name}")


_METHODS = (types.FunctionType, staticmethod, classmethod, property)


def _matters(name: str, member: Any) -> bool:
    """Whether a member with two underscores on both sides may change what the class does.

    pydantic keeps much about a class, some of it with addresses; the fields are what the caller wrote.
    """
    if isinstance(member, _METHODS) or type(member) in _PLAIN:
        return True
    return name != "__annotations__" and (not name.startswith("__pydantic_") or name == "__pydantic_fields__")


def _dunder(name: str) -> bool:
    return re.fullmatch(r"__\w+__", name) is not None


def _found(module: str | None, path: str) -> Any:
    """What stands under a name in a module, or None."""
    value: Any = sys.modules.get(module or "")
    for name in path.split("."):
        value = getattr(value, "__dict__", {}).get(name)
    return value.__func__ if isinstance(value, staticmethod | classmethod) else value


@_content.register
def _(value: types.ModuleType, walk: _Walk, place: Place) -> None:
    walk.write("module", value.__name__)
    if installed(value):
        walk.version_of(value.__name__)
        walk.libraries.setdefault(value.__name__, place)
        return
    walk.modules.add(value.__name__)
    file = vars(value).get("__file__")
    walk.write("source", "none" if file is None else file_hash(file))
    if type(value) is not types.ModuleType and not installed(sys.modules.get(_home(type(value)))):
        walk.feed(type(value), place / ".__class__")
    if "__getattr__" in vars(value):
        walk.feed(vars(value)["__getattr__"], place / ".__getattr__")
    for name, held in sorted(vars(value).items()):
        if isinstance(held, types.ModuleType) and held.__name__ == f"{value.__name__}.{name}":
            walk.submodules[name] = (held, place / f".{name}")  # which are loaded depends on what has run
        elif not _dunder(name):
            walk.write("member", name)
            walk.feed(held, place / f".{name}", maybe=name)
