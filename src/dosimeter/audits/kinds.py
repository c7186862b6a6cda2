"""Every kind of audit that has something of its own to show: its typed result and its page.

A new kind is a folder with `result.py` (`DETAILS` and `METADATA`, two dataclasses) and `page.py` (`CHARTS` and
`sections`), and a row here. Modules are imported when they are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

from dosimeter.audits.result import Audit, Details, Metadata

if TYPE_CHECKING:
    from dosimeter.report.canvas import Canvas, Spec
    from dosimeter.report.markup import Pictures

__all__ = ["KINDS", "AuditKind", "KindPage", "page_of", "result_of"]


class KindPage(Protocol):
    """What the page module of a kind holds: makers of charts by name, and the sections that show them.

    It may also hold `steps(audit)`: what would make such an audit stronger, as a list of `page.facts.Step`;
    `quieter(audit)`: the step that leaks less, where that is not noise in a training; and `SUBJECT`, what is audited
    where that is not a training.
    """

    CHARTS: Mapping[str, Callable[[Canvas, Audit], Spec | None]]

    def sections(self, audit: Audit, pictures: Pictures) -> list[str]:
        """Sections that stand after the evidence, in order."""


@dataclass(frozen=True)
class AuditKind:
    """The modules of a kind; a kind without a page of its own shows what every audit shows."""

    result: str
    page: str | None = None


KINDS: dict[str | None, AuditKind] = {
    None: AuditKind("dosimeter.audits.scores.result", "dosimeter.audits.model.page"),
    "training": AuditKind("dosimeter.audits.training.result", "dosimeter.audits.training.page"),
    "one-run": AuditKind("dosimeter.audits.one_run.result", "dosimeter.audits.one_run.page"),
    "text": AuditKind("dosimeter.audits.text.result", "dosimeter.audits.text.page"),
    "gradients": AuditKind("dosimeter.audits.gradients.result", "dosimeter.audits.gradients.page"),
    "synthetic": AuditKind("dosimeter.audits.synthetic.result", "dosimeter.audits.synthetic.page"),
    "members-only": AuditKind("dosimeter.audits.members_only.result", "dosimeter.audits.members_only.page"),
}


def result_of(kind: str | None) -> tuple[type[Details], type[Metadata]]:
    """The classes of a kind's details and metadata."""
    module = import_module(KINDS[kind].result)
    return module.DETAILS, module.METADATA


def page_of(kind: str | None) -> KindPage | None:
    """The module that draws what only this kind has; None where there is none."""
    row = KINDS.get(kind)
    return None if row is None or row.page is None else cast(KindPage, import_module(row.page))
