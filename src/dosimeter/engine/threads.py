"""One thread for the numeric libraries of this process: those of small fits mostly wait for each other."""

from __future__ import annotations

import sys
from typing import Any


class _Libraries:
    """The loaded numeric libraries, looked for again only after an import: that takes longer than a small fit."""

    def __init__(self) -> None:
        self._controller: Any = None
        self._modules = 0

    def limited(self) -> Any:
        if len(sys.modules) != self._modules:
            import threadpoolctl

            self._controller = threadpoolctl.ThreadpoolController()
            self._modules = len(sys.modules)
        return self._controller.limit(limits=1)


_libraries = _Libraries()


def one_thread() -> Any:
    """Hold BLAS and OpenMP to one thread, as the context of a `with` block."""
    return _libraries.limited()
