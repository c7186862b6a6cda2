"""Small cards for notebooks: a heading, a line of ε that is drawn without any package, and sentences."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

_WIDTH, _HEIGHT, _LINE = 460, 44, 22
_LEFT, _RIGHT = 12, 448
PROVEN, ALLOWED, WARNING = "#0f766e", "#64748b", "#b45309"


@dataclass(frozen=True)
class Mark:
    """What is drawn on the line of ε: a span, or a point where both ends are the same."""

    low: float
    high: float
    colour: str
    text: str


def card(heading: str, marks: Sequence[Mark], lines: Iterable[str], *, table: str = "", alarm: str = "") -> str:
    """One card as HTML that loads nothing; every text is escaped, `table` is HTML already."""
    shown = "".join(f'<p style="margin:4px 0">{escape(line)}</p>' for line in lines if line)
    warned = f'<p style="margin:0 0 6px;color:{WARNING};font-weight:600">{escape(alarm)}</p>' if alarm else ""
    return (
        '<div class="dosimeter-card" style="max-width:46em;border:1px solid rgba(128,128,128,.4);border-radius:6px;'
        f'padding:10px 14px;margin:4px 0;line-height:1.4">{warned}'
        f'<div style="font-size:1.25em;font-weight:600">{escape(heading)}</div>'
        f"{line_of_epsilon(marks)}{_legend(marks)}{shown}{table}</div>"
    )


def line_of_epsilon(marks: Sequence[Mark]) -> str:
    """The ε axis from 0 with what is known about it, as SVG; an open end runs to the edge."""
    finite = [value for mark in marks for value in (mark.low, mark.high) if 0 < value < math.inf]
    top = 1.25 * max(finite, default=0.8)

    def at(value: float) -> float:
        return _LEFT + (_RIGHT - _LEFT) * min(value / top, 1.0)

    drawn = [
        f'<line x1="{_LEFT}" x2="{_RIGHT}" y1="{_LINE}" y2="{_LINE}" stroke="currentColor" stroke-opacity=".35"/>',
        *(_drawn(mark, at(mark.low), at(mark.high)) for mark in marks),
        _label(_LEFT, "0", "start"),
        _label(_RIGHT, f"ε = {top:.3g}", "end"),
    ]
    said = "; ".join(mark.text for mark in marks)
    return (
        f'<svg role="img" aria-label="{escape(said)}" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'style="display:block;max-width:100%;width:{_WIDTH}px;margin:6px 0">{"".join(drawn)}</svg>'
    )


def _legend(marks: Sequence[Mark]) -> str:
    said = "".join(
        f'<span style="margin-right:1.2em"><span style="color:{mark.colour}">■</span> {escape(mark.text)}</span>'
        for mark in marks
    )
    return f'<p style="margin:0 0 4px;font-size:.85em">{said}</p>'


def _drawn(mark: Mark, left: float, right: float) -> str:
    title = f"<title>{escape(mark.text)}</title>"
    if mark.low == mark.high:
        return f'<circle cx="{left:.1f}" cy="{_LINE}" r="5" fill="{mark.colour}">{title}</circle>'
    width = max(right - left, 1.0)
    return (
        f'<rect x="{left:.1f}" y="{_LINE - 5}" width="{width:.1f}" height="10" fill="{mark.colour}" '
        f'fill-opacity=".75">{title}</rect>'
    )


def _label(x: float, text: str, anchor: str) -> str:
    return (
        f'<text x="{x}" y="{_HEIGHT - 3}" font-size="11" text-anchor="{anchor}" fill="currentColor" '
        f'fill-opacity=".7">{escape(text)}</text>'
    )


def html_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A small table as HTML, folded, every cell escaped."""
    cell = 'style="text-align:left;padding:2px 10px 2px 0;vertical-align:top"'
    head = "".join(f"<th {cell}>{escape(name)}</th>" for name in columns)
    body = "".join("<tr>" + "".join(f"<td {cell}>{escape(text)}</td>" for text in row) + "</tr>" for row in rows)
    return (
        '<details style="margin-top:6px"><summary>every number</summary>'
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></details>"
    )
