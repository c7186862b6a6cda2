"""Whose code it is: the caller's, which is read, or that of Python and installed packages, known by their version."""

from __future__ import annotations

import hashlib
import re
import site
import sys
import sysconfig
from collections.abc import Iterator
from functools import lru_cache
from importlib import metadata
from importlib.machinery import PathFinder
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

_ROOTS = tuple(
    {
        *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
        *site.getsitepackages(),
        site.getusersitepackages(),
    }
)
_OURS = "dosimeter"


def installed(module: ModuleType | None) -> bool:
    """Whether a module belongs to Python or to a package that other machines have too."""
    if module is None or module.__name__ in ("__main__", "__mp_main__"):
        return False
    file = getattr(module, "__file__", None)
    if module.__name__.partition(".")[0] == _OURS:
        return True
    if file is not None:
        return _in_libraries(str(file))
    parts = list(getattr(module, "__path__", ()))  # a namespace package has no file; one made by hand has neither
    known = (
        module.__name__.partition(".")[0] in sys.stdlib_module_names or getattr(module, "__spec__", None) is not None
    )
    return known and all(_in_libraries(str(part)) for part in parts)


def installed_code(code: CodeType, names: dict[str, Any]) -> bool:
    """Whether code with these globals stands in Python or an installed package, whatever its `__module__` says."""
    if code.co_filename.startswith("<frozen"):
        return True
    if code.co_filename.startswith("<"):  # made at run time, e.g. by dataclasses
        return installed(sys.modules.get(str(names.get("__name__"))))
    return str(names.get("__name__", "")).partition(".")[0] == _OURS or _in_libraries(code.co_filename)


@lru_cache(maxsize=4096)
def _in_libraries(file: str) -> bool:
    path = Path(file)
    return any(path.is_relative_to(root) for root in _ROOTS) or "dist-packages" in path.parts


@lru_cache(maxsize=1024)
def stamp(name: str) -> str:
    """What stands for the code of a module that is not read: a version, or else the hash of its file."""
    top = name.partition(".")[0]
    if top in sys.stdlib_module_names or top == _OURS:  # our own version is in every key
        return f"python {sys.version_info.major}.{sys.version_info.minor}"
    found = sorted(set(_distributions().get(top, ())))
    if found:
        return ", ".join(map(_version, found))
    file = getattr(sys.modules.get(name), "__file__", None)
    return f"file {file_hash(file)}" if file is not None else f"module {name}"


def file_hash(file: str) -> str:
    """SHA-256 of a file, or a word for one that cannot be read."""
    try:
        with Path(file).open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError:
        return "unreadable"


def source_of(text: str) -> Iterator[tuple[str, str]]:
    """Modules of the caller on the way to a dotted name, each with its file; nothing is imported."""
    if text.partition(".")[0] in sys.stdlib_module_names:
        return
    places: Any = None
    name = ""
    for part in text.split("."):
        name = f"{name}.{part}" if name else part
        loaded = sys.modules.get(name)
        try:
            spec = PathFinder.find_spec(name, places) if loaded is None else loaded.__spec__
        except (ImportError, ValueError, AttributeError):
            return
        file = getattr(loaded, "__file__", None) if loaded is not None else getattr(spec, "origin", None)
        if (loaded is None and spec is None) or name.partition(".")[0] == _OURS or _in_libraries(str(file)):
            return
        if loaded is not None and installed(loaded):
            return
        yield name, str(file)
        places = getattr(spec, "submodule_search_locations", None) or getattr(loaded, "__path__", None)
        if places is None:
            return


def foreign_parts(packages: frozenset[str]) -> list[tuple[str, Any]]:
    """Functions and objects of the caller that stand in these packages, or in those that they need, by their names.

    Functions that were made at run time have no file, and many libraries make some.
    """
    wanted = {name for package in packages for name in _family(package)} - {_OURS, "builtins"}
    found: dict[str, Any] = {}
    for name, module in sorted(sys.modules.items()):
        if name.partition(".")[0] not in wanted or type(module) is not ModuleType or not installed(module):
            continue
        for key, held in list(vars(module).items()):
            if type in type(held).__mro__ and vars(held).get("__module__") == name:
                inside = {f"{held.__qualname__}.{inner}": one for inner, one in vars(held).items()}
                found |= {path: one for path, one in inside.items() if _from_outside(one)}
            elif _from_outside(held) or _made_outside(type(held).__module__):
                found[f"{name}.{key}"] = held
    return sorted(found.items())


def _from_outside(held: Any) -> bool:
    """Whether this is a function, or a method of any kind, from a file of the caller."""
    inner = held.__func__ if type(held) in (staticmethod, classmethod) else held
    inner = inner.fget if type(inner) is property else inner
    if type(inner) is not FunctionType or inner.__code__.co_filename.startswith("<"):
        return False
    return not _in_libraries(inner.__code__.co_filename)


@lru_cache(maxsize=4096)
def _made_outside(name: Any) -> bool:
    """Whether the module of a class is the caller's; those that Cython makes up have no file."""
    home = sys.modules.get(name) if isinstance(name, str) else None
    if home is None or installed(home):
        return False
    return home.__name__ == "__main__" or getattr(home, "__file__", None) is not None


@lru_cache(maxsize=256)
def _family(package: str) -> frozenset[str]:
    """An installed package and all that it needs, as they are imported."""
    found, new = {package}, [package]
    while new:
        for distribution in _distributions().get(new.pop(), ()):
            for line in metadata.distribution(distribution).requires or ():
                needed = re.match(r"[\w.-]+", line)
                if needed is not None and "extra ==" not in line:
                    more = _imported_as().get(_plain_name(needed[0]), frozenset()) - found
                    found |= more
                    new += more
    return frozenset(found)


@lru_cache(maxsize=1)
def _imported_as() -> dict[str, frozenset[str]]:
    """What the packages of a distribution are called, by its name."""
    found: dict[str, set[str]] = {}
    for package, distributions in _distributions().items():
        for name in distributions:
            found.setdefault(_plain_name(name), set()).add(package)
    return {name: frozenset(packages) for name, packages in found.items()}


def _plain_name(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()


@lru_cache(maxsize=1)
def _distributions() -> dict[str, list[str]]:
    return dict(metadata.packages_distributions())


def _version(name: str) -> str:
    """Name and version; of a package installed from a folder also what was installed, as its version may stay."""
    found = metadata.distribution(name)
    text = f"{name} {found.version}"
    if found.read_text("direct_url.json") is None:
        return text
    rows = sorted(row for row in (found.read_text("RECORD") or "").splitlines() if not row.endswith(",,"))
    return f"{text} {hashlib.sha256(chr(10).join(rows).encode()).hexdigest()[:16]}"
