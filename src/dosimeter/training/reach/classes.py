"""What classes and modules hold; of installed ones the version counts, and what somebody has replaced in them."""

from __future__ import annotations

import re
import sys
import types
from typing import Any

from dosimeter.training.reach.walk import PLAIN, Place, Walk, content, home_of
from dosimeter.training.sources import file_hash, installed, installed_code

_OF_THE_CLASS = {"__dict__", "__weakref__", "__doc__", "__module__", "__qualname__", "_abc_impl", "__annotations__"}


@content.register
def _(value: type, walk: Walk, place: Place) -> None:
    for base in value.__mro__:
        home = home_of(base)
        walk.write("class", f"{home}.{base.__qualname__}")
        library = installed(sys.modules.get(home))
        if library:
            walk.version_of(home)
        else:
            walk.modules.add(home)
        if library and (base is not value or found_at(home, base.__qualname__) is value):
            if home != "builtins":
                _library_class(base, walk, place)
            continue
        for name, member in sorted(vars(base).items()):
            if name not in _OF_THE_CLASS and (not is_dunder(name) or _matters(member)):
                walk.write("member", name)
                walk.feed(member, place / f".{name}", maybe="" if library else None)
    if type(value) is not type:
        walk.feed(type(value), place / ".__class__")


def _library_class(kind: type, walk: Walk, place: Place) -> None:
    """Members of an installed class that somebody may have replaced: functions of the caller, and plain values."""
    replaced_members(kind, walk, place)
    for name, member in sorted(vars(kind).items()):
        if type(member) in PLAIN and not is_dunder(name):
            walk.write("member", name)
            walk.feed(member, place / f".{name}")


def replaced_members(kind: type, walk: Walk, place: Place) -> None:
    for name, member in sorted(vars(kind).items()):
        inner = member.__func__ if isinstance(member, staticmethod | classmethod) else member
        inner = inner.fget if isinstance(inner, property) else inner
        if isinstance(inner, types.FunctionType) and not installed_code(inner.__code__, inner.__globals__):
            walk.replaced.add(f"{kind.__qualname__}.{name}")
            walk.write("member", name)
            walk.feed(member, place / f".{name}")


def _matters(member: Any) -> bool:
    """Whether a member with two underscores on both sides is a method or a plain value, not made by a library."""
    return isinstance(member, types.FunctionType | staticmethod | classmethod | property) or type(member) in PLAIN


def is_dunder(name: str) -> bool:
    return re.fullmatch(r"__\w+__", name) is not None


def found_at(module: str | None, path: str) -> Any:
    """What stands under a name in a module, or None."""
    value: Any = sys.modules.get(module or "")
    for name in path.split("."):
        value = getattr(value, "__dict__", {}).get(name)
    return value.__func__ if isinstance(value, staticmethod | classmethod) else value


@content.register
def _(value: types.ModuleType, walk: Walk, place: Place) -> None:
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
        elif not is_dunder(name):
            walk.write("member", name)
            walk.feed(held, place / f".{name}", maybe=name)
