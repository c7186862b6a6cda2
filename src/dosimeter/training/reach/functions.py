"""What functions and code reach: the globals they name, what they import, and what they find by text."""

from __future__ import annotations

import builtins
import functools
import importlib
import importlib.util
import inspect
import io
import re
import sys
import types
from collections.abc import Iterable
from typing import Any

from dosimeter.training.reach.classes import found_at, is_dunder, replaced_members
from dosimeter.training.reach.names import names_in, texts_in
from dosimeter.training.reach.objects import attributes_of, streams
from dosimeter.training.reach.sources import installed, installed_code
from dosimeter.training.reach.walk import (
    COMMAND_LINE,
    DOTTED,
    ENVIRONMENT,
    PLAIN,
    Place,
    StateWalk,
    UnreachableStateError,
    content,
    home_of,
)

_NOT_READ = {("sys", "path"), ("sys", "modules"), ("sys", "meta_path"), ("sys", "path_importer_cache")}


@content.register
def _(value: types.FunctionType, walk: StateWalk, place: Place) -> None:
    walk.write("function", f"{value.__module__}.{value.__qualname__}")
    if not installed_code(value.__code__, value.__globals__):
        _own_code(value, walk, place)
    else:
        home = value.__globals__.get("__name__")
        walk.version_of(home)
        if walk.maybe is None and value.__name__ in COMMAND_LINE | ENVIRONMENT:
            walk.mentioned.add(value.__name__)  # whatever it is called by those who call it
        if value.__module__ == home and found_at(home, value.__qualname__) is value:
            given = (*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values())
            walk.feed(tuple(one for one in given if type(one) in PLAIN), place / " (defaults)")
            return
    walk.feed(value.__defaults__, place / " (defaults)")
    walk.feed(value.__kwdefaults__, place / " (defaults)")
    walk.attributes(value.__dict__, place)
    for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
        walk.write("closure", name)
        walk.feed(cell, place / f" → {name}")


def _own_code(function: types.FunctionType, walk: StateWalk, place: Place) -> None:
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
    return frozenset(words | {text for text in texts if DOTTED.fullmatch(text)})


def _along(value: Any, path: tuple[str, ...], walk: StateWalk, place: Place) -> None:
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
    return kind is types.SimpleNamespace or (kind.__name__ == "Namespace" and home_of(kind) == "argparse")


_MISSING: Any = object()
_CODE = (types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.MethodType, type)


def _imported(
    level: int, module: str, wanted: tuple[str, ...], space: dict[str, Any], walk: StateWalk, place: Place
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


def _replaced_in(module: types.ModuleType | None, names: Iterable[str], walk: StateWalk, place: Place) -> None:
    """Functions and classes of the caller that stand in an installed module, or on its classes, in place of others."""
    for name in sorted(set(names) | (walk.mentioned & vars(module).keys()) if module is not None else ()):
        held = vars(module).get(name)
        if isinstance(held, types.FunctionType) and not installed_code(held.__code__, held.__globals__):
            walk.replaced.add(f"{getattr(module, '__name__', '')}.{name}")
            walk.feed(held, place / f" → {name}")
        elif isinstance(held, type):
            for base in held.__mro__:
                if not installed(sys.modules.get(home_of(base))):
                    walk.feed(base, place / f" → {name}")
                else:
                    replaced_members(base, walk, place / f" → {name}")


def _own_module(name: str, walk: StateWalk) -> types.ModuleType | None:
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


def _all_globals(space: dict[str, Any], walk: StateWalk, place: Place) -> None:
    """Code that finds globals by text may reach all of them."""
    for name in sorted(space):
        if not is_dunder(name):
            walk.write("global", name)
            walk.feed(space[name], place / f" → {name}", maybe=name)


def _modules_in_texts(code: types.CodeType, walk: StateWalk, place: Place) -> None:
    """Code that finds modules by text may reach those that its texts name."""
    for text in sorted(texts_in(code)):
        if re.fullmatch(r"\w+(\.\w+)*", text) and (text in sys.modules or "." in text):
            _imported(0, text, (), {}, walk, place)


@content.register
def _(value: types.CodeType, walk: StateWalk, place: Place) -> None:
    walk.write("code", value.co_code)
    walk.write("exceptions", value.co_exceptiontable)
    shape = (value.co_argcount, value.co_posonlyargcount, value.co_kwonlyargcount, value.co_flags)
    walk.write("names", repr((*shape, value.co_names, value.co_varnames, value.co_freevars, value.co_cellvars)))
    for constant in value.co_consts:
        if isinstance(constant, types.CodeType):
            content(constant, walk, place)
        else:
            walk.write("constant", _constant(constant))


def _constant(value: Any) -> str:
    """A constant of code as text, sets in order; equal constants need not be one object in every process."""
    if isinstance(value, tuple):
        return f"({', '.join(map(_constant, value))})"
    if isinstance(value, frozenset):
        return f"{{{', '.join(sorted(map(_constant, value)))}}}"
    return f"{type(value).__name__} {value!r}"


@content.register
def _(value: types.CellType, walk: StateWalk, place: Place) -> None:
    try:
        walk.feed(value.cell_contents, place)
    except ValueError:  # still empty
        walk.write("empty")


@content.register
def _(value: types.MethodType, walk: StateWalk, place: Place) -> None:
    walk.feed(value.__func__, place)
    walk.feed(value.__self__, place / ".__self__")


@content.register(types.BuiltinFunctionType)
@content.register(types.MethodWrapperType)
def _(value: Any, walk: StateWalk, place: Place) -> None:
    walk.write("built-in", f"{getattr(value, '__module__', None)}.{value.__qualname__}")
    held = value.__self__
    if isinstance(held, types.ModuleType | None):
        walk.version_of(getattr(value, "__module__", None) or getattr(held, "__name__", None))
    else:
        walk.feed(held, place / ".__self__")


@content.register(types.MethodDescriptorType)
@content.register(types.WrapperDescriptorType)
@content.register(types.GetSetDescriptorType)
@content.register(types.MemberDescriptorType)
@content.register(types.ClassMethodDescriptorType)
def _(value: Any, walk: StateWalk, place: Place) -> None:
    walk.write("slot", f"{value.__objclass__.__module__}.{value.__qualname__}")


@content.register(staticmethod)
@content.register(classmethod)
def _(value: Any, walk: StateWalk, place: Place) -> None:
    walk.write(type(value).__name__)
    walk.feed(value.__func__, place)
    _wrapper(value, walk, place)


@content.register
def _(value: property, walk: StateWalk, place: Place) -> None:
    walk.feed((value.fget, value.fset, value.fdel), place)
    _wrapper(value, walk, place)


def _wrapper(value: Any, walk: StateWalk, place: Place) -> None:
    """Attributes that were given to a wrapper of a function, and its class if that is the caller's."""
    walk.attributes({name: held for name, held in attributes_of(value).items() if not is_dunder(name)}, place)
    if type(value) not in (staticmethod, classmethod, property):
        walk.feed(type(value), place / ".__class__")


@content.register(io.IOBase)
@content.register(types.GeneratorType)
@content.register(types.CoroutineType)
@content.register(types.AsyncGeneratorType)
def _(value: Any, walk: StateWalk, place: Place) -> None:
    if any(value is stream for stream in streams()):
        walk.write("stream")
    else:
        walk.refuse(value, place)
