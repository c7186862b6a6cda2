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
from dosimeter.training.sources import file_hash, installed, installed_code, stamp

_PLAIN = frozenset({type(None), bool, int, float, complex, str, bytes, type(...), type(NotImplemented)})
_MAIN = ("__main__", "__mp_main__")
_NO_STATE = (logging.Logger, type(threading.Lock()), type(threading.RLock()))  # nothing in them changes a number
_OF_THE_CLASS = {"__dict__", "__weakref__", "__doc__", "__module__", "__qualname__", "_abc_impl", "__annotations__"}
_NOT_READ = {("sys", "path"), ("sys", "modules"), ("sys", "meta_path"), ("sys", "path_importer_cache")}
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

    def write(self, kind: str, content: str | bytes = b"") -> None:
        """One piece of the text, with its length, so that no two texts run together alike."""
        data = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
        self.digest.update(f"{kind} {len(data)}:".encode() + data)

    def feed(self, value: Any, place: Place, *, maybe: str | None = None) -> None:
        """Write a value, or its number, and leave what it holds to the queue."""
        if type(value) in _PLAIN:
            self.write(type(value).__name__, value if type(value) is bytes else repr(value))
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
        """Write what waits, then what the process gives: the command line and environment variables, where used."""
        self._drain()
        self.maybe = None
        if self.modules.intersection(_MAIN) and getattr(sys.modules["__main__"], "__file__", None) is not None:
            self.mentioned.add("argv")
        if not self.mentioned.isdisjoint(("argv", "parse_args", "parse_known_args")):
            self.write("command line", repr(sys.argv[1:]))
        if not self.mentioned.isdisjoint(("environ", "environb", "getenv", "getenvb")):
            self.write("environment", repr(_variables(self.texts | self.mentioned)))

    def _drain(self) -> None:
        while self.certain or self._promoted() or self.possible:
            item = self.certain.popleft() if self.certain else self.possible.pop(next(iter(self.possible)))
            self.maybe, self.settled = item.maybe, self.settled and item.maybe is not None
            self.write("is", str(self.numbers[id(item.value)]))
            _content(item.value, self, item.place)
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
        self.versions.add(found)
        self.write("version", found)

    def all_of(self, values: Iterable[Any], place: Place) -> None:
        for index, value in enumerate(values):
            self.feed(value, place / f"[{index}]")

    def attributes(self, values: dict[str, Any], place: Place) -> None:
        """Attributes by name: they have no order."""
        for name in sorted(values, key=str):
            self.write("attribute", str(name))
            self.feed(values[name], place / f".{name}")


def _variables(texts: set[str]) -> list[tuple[str, str]]:
    """Environment variables that these texts name, whole or (with an underscore at the seam) by an end."""
    whole = {text.lower() for text in texts}
    ends = [text.lower() for text in texts if len(text) > 2 and (text[0] == "_" or text[-1] == "_")]
    found = []
    for name, value in sorted(os.environ.items()):
        low = name.lower()
        if low in whole or any(low.startswith(end) or low.endswith(end) for end in ends):
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
        return
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
        walk.write("list of plain", repr(value))
        if len(value) <= 1000:
            walk.texts.update(item for item in value if type(item) is str)
    else:
        walk.write("list", str(len(value)))
        walk.all_of(value, place)


@_content.register
def _(value: dict, walk: _Walk, place: Place) -> None:  # type: ignore[type-arg]
    if type(value) is not dict:
        walk.feed(type(value), place / ".__class__")
        _state(value, walk, place)
        return
    walk.write("dict", str(len(value)))
    for key, item in value.items():
        walk.feed(key, place)
        walk.feed(item, place if type(item) in _PLAIN else place / f"[{key!r:.40}]")


@_content.register(set)
@_content.register(frozenset)
def _(value: Any, walk: _Walk, place: Place) -> None:
    walk.feed(type(value), place / ".__class__")
    plain = all(type(item) in _PLAIN for item in value)
    hashes = [repr(item).encode() if plain else walk.apart(item, place / "{…}") for item in value]
    walk.write("set", repr(sorted(hashes)))
    if plain and len(value) <= 1000:
        walk.texts.update(item for item in value if type(item) is str)
    walk.attributes(_attributes_of(value), place)


@_content.register(bytearray)
@_content.register(memoryview)
def _(value: Any, walk: _Walk, place: Place) -> None:
    walk.write("bytes", bytes(value))


@_content.register
def _(value: types.MappingProxyType, walk: _Walk, place: Place) -> None:  # type: ignore[type-arg]
    walk.feed(value.copy(), place)


@_content.register(type({}.keys()))
@_content.register(type({}.values()))
@_content.register(type({}.items()))
def _(value: Any, walk: _Walk, place: Place) -> None:
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


_BY_NAME: dict[str, Callable[[Any, _Walk, Place], None]] = {"torch.Tensor": _tensor, "os._Environ": _environment}


# --- functions, methods, classes and modules --------------------------------------------------------------


@_content.register
def _(value: types.FunctionType, walk: _Walk, place: Place) -> None:
    walk.write("function", f"{value.__module__}.{value.__qualname__}")
    if not installed_code(value.__code__, value.__globals__):
        _own_code(value, walk, place)
    else:
        home = value.__globals__.get("__name__")
        walk.version_of(home)
        if value.__module__ == home and _found(home, value.__qualname__) is value:
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
    named = names_in(code)
    if walk.maybe is None:
        walk.mentioned |= named.mentioned
    for path in named.paths:
        walk.write("global", ".".join(path))
        first, held = path[0], space.get("__builtins__", builtins)
        known = vars(held) if isinstance(held, types.ModuleType) else held
        if first in space or first in known:
            _along(space[first] if first in space else known[first], path, walk, place)
    for level, module, wanted in named.imports:
        _imported(level, module, wanted, space, walk, place)
    by_name = named.any_of("modules", "import_module", "__import__")
    if named.any_of("globals", "eval", "exec") or (by_name and named.any_of("__name__")):
        _all_globals(space, walk, place)
    if by_name:
        _modules_in_texts(code, walk, place)


def _along(value: Any, path: tuple[str, ...], walk: _Walk, place: Place) -> None:
    """Follow `module.module.name` as far as it leads through modules, and write what stands there."""
    place, rest = place / f" → {path[0]}", path[1:]
    while isinstance(value, types.ModuleType) and rest:
        name = rest[0]
        found = vars(value).get(name, _MISSING)
        if found is _MISSING and isinstance(inspect.getattr_static(type(value), name, None), property):
            found = getattr(value, name)
        if found is _MISSING:
            break
        library = installed(value)
        walk.write("attribute", name)
        if library:
            walk.version_of(value.__name__)
            if (value.__name__, name) in _NOT_READ:
                return
        else:
            walk.modules.add(value.__name__)
        place, rest, value = place / f".{name}", rest[1:], found
        if library and not isinstance(found, _CODE):
            walk.feed(value, place, maybe="")  # the state of a library counts where it can be read
            return
    walk.feed(value, place)


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
    for one in wanted if found is not None else ():
        loaded = f"{name}.{one}" in sys.modules
        if (loaded or one not in vars(found)) and (part := _own_module(f"{name}.{one}", walk)) is not None:
            walk.feed(part, place / f" → {part.__name__}")


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


@_content.register
def _(value: property, walk: _Walk, place: Place) -> None:
    walk.feed((value.fget, value.fset, value.fdel), place)


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
        if library and (base is not value or _found(home, base.__qualname__) is value):
            if home != "builtins":
                _library_class(base, walk, place)
            continue
        for name, member in sorted(vars(base).items()):
            if name not in _OF_THE_CLASS and (not _dunder(name) or _matters(member)):
                walk.write("member", name)
                walk.feed(member, place / f".{name}", maybe="" if library else None)
    if type(value) is not type:
        walk.feed(type(value), place / ".__class__")


def _home(kind: type) -> str:
    """The module of a class; some of those in C have none."""
    return kind.__module__ if isinstance(kind.__module__, str) else "builtins"


def _library_class(kind: type, walk: _Walk, place: Place) -> None:
    """Members of an installed class that somebody has replaced: functions of the caller, and plain values."""
    for name, member in sorted(vars(kind).items()):
        inner = member.__func__ if isinstance(member, staticmethod | classmethod) else member
        inner = inner.fget if isinstance(inner, property) else inner
        if isinstance(inner, types.FunctionType) and not installed_code(inner.__code__, inner.__globals__):
            walk.replaced.add(f"{kind.__qualname__}.{name}")
            walk.write("member", name)
            walk.feed(member, place / f".{name}")
        elif type(inner) in _PLAIN and not _dunder(name):
            walk.write("member", name)
            walk.feed(member, place / f".{name}")


def _matters(member: Any) -> bool:
    """Whether a member with two underscores on both sides is a method or a plain value, not made by a library."""
    return isinstance(member, types.FunctionType | staticmethod | classmethod | property) or type(member) in _PLAIN


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
        return
    walk.modules.add(value.__name__)
    file = getattr(value, "__file__", None)
    walk.write("source", "none" if file is None else file_hash(file))
    for name, held in sorted(vars(value).items()):
        if isinstance(held, types.ModuleType) and held.__name__ == f"{value.__name__}.{name}":
            walk.submodules[name] = (held, place / f".{name}")  # which are loaded depends on what has run
        elif not _dunder(name):
            walk.write("member", name)
            walk.feed(held, place / f".{name}", maybe=name)
