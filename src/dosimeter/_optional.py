"""Packages that are extras: asked for by name, before any work is done."""

from __future__ import annotations

import importlib
from types import ModuleType


def require(module: str, *, extra: str, caller: str) -> ModuleType:
    """Import a module of an extra, or say which extra to install."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise ImportError(f"{caller} needs {package}: pip install 'dosimeter[{extra}]'") from error
