"""What classes and modules hold; of installed ones the version counts, and what somebody has replaced in them."""

from __future__ import annotations

import re
import sys
import types
from typing import Any

from dosimeter.training.reach.sources import file_hash, installed, installed_code
from dosimeter.training.reach.walk import (
    PLAIN,
    Place,
    StateWalk,
    content,
    home_of,
)

_OF_THE_CLASS = {
    *("__dict__", "__weakref__", "__doc__", "__module__", "__qualname__", "_abc_impl", "__abstractmethods__"),
    *("__firstlineno__", "__static_attributes__", "__signature__"),
}


@content.register
def _(value: type, walk: StateWalk, place: Place) -> None:
    for base in value.__mro__:
        home = home_of(base)
        walk.write("class", f"{home}.{base.__qualname__}")
        library = installed(sys.modules.get(home))
        if library:
            walk.version_of(home)
        else:
            walk.modules.add(home)
            walk.described.append((base, place))
        if library and (base is not value or found_at(home, base.__qualname__) is value):
            if home != "builtins":
                _library_class(base, walk, place)
            continue
        for name, member in sorted(vars(base).items()):
            if name not in _OF_THE_CLASS and (not is_dunder(name) or _matters(name, member)):
                walk.write("member", name)
                certain = not library and (not is_dunder(name) or isinstance(member, _METHODS))
                walk.feed(member, place / f".{name}", maybe=None if certain else "")
    if type(value) is not type:
        walk.feed(type(value), place / ".__class__")


def _library_class(kind: type, walk: StateWalk, place: Place) -> None:
    """Members of an installed class that somebody may have replaced: functions of the caller, and plain values."""
    replaced_members(kind, walk, place)
    for name, member in sorted(vars(kind).items()):
        if type(member) in PLAIN and not is_dunder(name):
            walk.write("member", name)
            walk.feed(member, place / f".{name}")
        elif isinstance(member, types.FunctionType):  # which may be one of another class
            walk.write("method", f"{name} {member.__module__}.{member.__qualname__}")


def replaced_members(kind: type, walk: StateWalk, place: Place) -> None:
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
    if isinstance(member, _METHODS) or type(member) in PLAIN:
        return True
    return name != "__annotations__" and (not name.startswith("__pydantic_") or name == "__pydantic_fields__")


def is_dunder(name: str) -> bool:
    return re.fullmatch(r"__\w+__", name) is not None


def found_at(module: str | None, path: str) -> Any:
    """What stands under a name in a module, or None."""
    value: Any = sys.modules.get(module or "")
    for name in path.split("."):
        value = getattr(value, "__dict__", {}).get(name)
    return value.__func__ if isinstance(value, staticmethod | classmethod) else value


@content.register
def _(value: types.ModuleType, walk: StateWalk, place: Place) -> None:
    walk.write("module", value.__name__)
    if installed(value):
        walk.version_of(value.__name__)
        walk.libraries.setdefault(value.__name__, place)
        return
    walk.modules.add(value.__name__)
    file = vars(value).get("__file__")
    walk.write("source", "none" if file is None else file_hash(file))
    if type(value) is not types.ModuleType and not installed(sys.modules.get(home_of(type(value)))):
        walk.feed(type(value), place / ".__class__")
    if "__getattr__" in vars(value):
        walk.feed(vars(value)["__getattr__"], place / ".__getattr__")
    for name, held in sorted(vars(value).items()):
        if isinstance(held, types.ModuleType) and held.__name__ == f"{value.__name__}.{name}":
            walk.submodules[name] = (held, place / f".{name}")  # which are loaded depends on what has run
        elif not is_dunder(name):
            walk.write("member", name)
            walk.feed(held, place / f".{name}", maybe=name)
