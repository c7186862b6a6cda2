"""An audit in a notebook: a card, a table, single charts."""

from __future__ import annotations

from dataclasses import astuple, dataclass, fields
from typing import Any

from dosimeter._card import ALLOWED, Mark, card, html_table
from dosimeter._validate import InputError, require, show
from dosimeter.accounting import Guarantee
from dosimeter.audits.result import Audit
from dosimeter.estimate import Estimate, number, percent
from dosimeter.report.canvas import Spec

__all__ = ["Row", "audit_card", "chart", "chart_names", "frame", "rows", "short"]


@dataclass(frozen=True)
class Row:
    """One number of an audit, with what a reader needs to quote it."""

    kind: str
    method: str
    epsilon: float
    low: float
    high: float
    delta: float
    confidence: float | None
    neighbours: str | None
    unit: str
    validity: str
    is_bound: bool
    claim: str

    @property
    def whose(self) -> str:
        """Whose ε it is, e.g. "replace one record"."""
        return "–" if self.neighbours is None else f"{self.neighbours} one {self.unit}"

    @property
    def slug(self) -> str:
        """A name for programs: the method, and whose ε, since one method may stand for both neighbours."""
        words = self.method if self.neighbours is None else f"{self.method}_{self.neighbours}"
        return "".join(mark if mark.isalnum() else "_" for mark in words.lower())

    @property
    def value(self) -> str:
        """ε with what it is: at least for a proven lower bound, at most for a proven upper one."""
        if not self.is_bound:
            return f"≈ {number(self.epsilon)}"
        return f"≤ {number(self.high)}" if self.kind == "guarantee" else f"≥ {number(self.low)}"


def rows(audit: Audit) -> list[Row]:
    """Every estimate, the headline first, then every guarantee."""
    unit = audit.metadata.unit
    return [*(_estimate(one, unit) for one in audit.estimates), *(_guarantee(one, unit) for one in audit.upper)]


def _estimate(value: Estimate, unit: str) -> Row:
    unit = str(value.details.get("unit") or unit)
    ends = value.epsilon, value.low, value.high
    level = value.delta, value.confidence, value.neighbours
    return Row("estimate", value.method, *ends, *level, unit, str(value.validity), value.validity.is_bound, value.claim)


def _guarantee(value: Guarantee, unit: str) -> Row:
    validity = "proven" if value.is_bound else "approximation"
    ends = value.epsilon, 0.0, value.epsilon
    level = value.delta, None, value.neighbours
    return Row("guarantee", value.method, *ends, *level, unit, validity, value.is_bound, str(value))


def frame(audit: Audit) -> Any:
    """The rows as a pandas table."""
    pandas = require("pandas", extra="notebook", caller="Audit.to_frame")
    return pandas.DataFrame([astuple(row) for row in rows(audit)], columns=[field.name for field in fields(Row)])


def short(audit: Audit) -> str:
    """One line: the headline, how many numbers there are, and what the guard found."""
    head = repr(audit.headline).removeprefix("Estimate(").removesuffix(")")
    others = len(audit.estimates) + len(audit.upper) - 1
    checked = ("shift found" if audit.guard.shift else "no shift found") if audit.guard.checked else "shift not checked"
    return f"Audit({head}; {others} more numbers; {checked})"


def audit_card(audit: Audit) -> str:
    """The card: what the guard says first, then the headline beside the guarantee, every number, what it means."""
    headline = audit.headline
    marks = headline._marks()
    region = audit.region
    if region is not None and region.upper.is_bound:
        limit = region.upper.epsilon
        marks.append(Mark(limit, float("inf"), ALLOWED, f"excluded by the guarantee: ε above {number(limit)}"))
    table = html_table(
        ["method", "ε", "whose ε", "validity"], [(r.method, r.value, r.whose, r.validity) for r in rows(audit)]
    )
    level = f"δ = {headline.delta:g}, {percent(headline.confidence)}, {headline.validity}"
    guard = str(audit.guard)
    lines = [level, headline.claim, *([] if audit.guard.shift else [guard]), *audit.risk.words[:1]]
    clash = str(region) if region is not None and region.contradiction else ""
    return card(headline._value(), marks, lines, table=table, alarm=guard if audit.guard.shift else clash)


def chart_names(audit: Audit) -> tuple[str, ...]:
    """The charts that this audit has."""
    return tuple(_charts(audit))


def chart(audit: Audit, name: str | None) -> Any:
    """One chart of the page, as Altair has it."""
    altair = require("altair", extra="report", caller="Audit.plot")
    drawn = _charts(audit, name)
    if drawn:
        return altair.Chart.from_dict(next(iter(drawn.values())))
    if not (names := chart_names(audit)):
        raise InputError("this audit has no chart; Estimate.plot draws its headline.")
    raise InputError(f"name is {show(name)}; this audit has the charts {', '.join(names)}.")


def _charts(audit: Audit, only: str | None = None) -> dict[str, Spec]:
    require("altair", extra="report", caller="Audit.plot")
    from dosimeter.audits.page.write import charts

    return charts(audit, only=only)
