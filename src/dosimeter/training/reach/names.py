"""What the code of a function names: globals with the attributes taken from them, imports, and texts."""

from __future__ import annotations

import dis
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType
from typing import Any

_WORD = re.compile(r"\w{1,100}")


@dataclass(frozen=True)
class Names:
    """Names in a code object and in those within it.

    `paths` are globals with the attributes taken from them, e.g. ("config", "model", "width"). `imports` are
    (level, module, names) of import statements. `mentioned` is every name and every text that could be one.
    """

    paths: tuple[tuple[str, ...], ...]
    imports: tuple[tuple[int, str, tuple[str, ...]], ...]
    mentioned: frozenset[str]

    def any_of(self, *names: str) -> bool:
        return not self.mentioned.isdisjoint(names)


@lru_cache(maxsize=4096)
def names_in(code: CodeType) -> Names:
    """The names of a code object."""
    paths: set[tuple[str, ...]] = set()
    imports: set[tuple[int, str, tuple[str, ...]]] = set()
    mentioned: set[str] = set()
    for one in _nested(code):
        mentioned.update(one.co_names)
        _read(one, paths, imports)
    mentioned.update(text for text in texts_in(code) if _WORD.fullmatch(text))
    return Names(tuple(sorted(paths)), tuple(sorted(imports)), frozenset(mentioned))


def texts_in(code: CodeType) -> set[str]:
    """The texts of a code object and of those within it."""
    return {text for one in _nested(code) for text in _texts(one.co_consts)}


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)


def _texts(constants: Any) -> Iterator[str]:
    for constant in constants:
        if isinstance(constant, str):
            yield constant
        elif isinstance(constant, tuple | frozenset):
            yield from _texts(constant)


def _read(code: CodeType, paths: set[tuple[str, ...]], imports: set[tuple[int, str, tuple[str, ...]]]) -> None:
    path: tuple[str, ...] = ()
    constants: list[Any] = [0, None]
    for step in dis.get_instructions(code):
        if path and step.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            path = (*path, step.argval)
            continue
        if path:
            paths.add(path)
            path = ()
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"):
            path = (step.argval,)
        elif step.opname == "IMPORT_NAME":
            level, wanted = constants[-2:]
            imports.add((level if isinstance(level, int) else 0, step.argval, tuple(wanted or ())))
        elif step.opname.startswith(("LOAD_CONST", "LOAD_SMALL_INT")):
            constants = [constants[-1], step.argval]
    if path:
        paths.add(path)
