"""Whose code it is: the caller's, which is read, or that of Python and installed packages, known by their version."""

from __future__ import annotations

import hashlib
import site
import sys
import sysconfig
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from types import CodeType, ModuleType
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
