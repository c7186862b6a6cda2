"""What only one kind of audit has to show: its charts and its sections, each kind in a module of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Protocol, cast

from dosimeter.audits.result import Audit
from dosimeter.report.canvas import Canvas
from dosimeter.report.draw import Drawing

_MODULES = {
    "training": "dosimeter.audits.training.page",
    "one-run": "dosimeter.audits.training.page",
    "gradients": "dosimeter.audits.gradients.page",
    "members-only": "dosimeter.audits.members_only.page",
}


class Kind(Protocol):
    """What the module of a kind holds: makers of charts by name, and the sections that show them."""

    CHARTS: Mapping[str, Callable[[Canvas, Audit], dict[str, Any] | None]]

    def sections(self, audit: Audit, pictures: Mapping[str, Mapping[str, Drawing]]) -> list[str]:
        """Sections that stand after the verdict, in order."""


def kind_of(audit: Audit) -> Kind | None:
    """The module for this audit's kind; None for an audit of one model or of scores."""
    name = _MODULES.get(str(audit.metadata.get("kind")))
    return None if name is None else cast(Kind, import_module(name))
