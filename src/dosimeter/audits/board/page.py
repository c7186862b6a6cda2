"""A board as one static page: who keeps the limits, both ends of ε over time for each model, and every audit."""

from __future__ import annotations

import math
import os
from collections import Counter
from itertools import groupby
from pathlib import Path
from urllib.parse import quote

from dosimeter import _validate as check
from dosimeter._validate import InputError
from dosimeter.audits.board.read import Board, DamagedFile, Entry, Status
from dosimeter.audits.page.facts import Conclusion
from dosimeter.estimate import percent
from dosimeter.report.markup import (
    assemble,
    clean,
    epsilon,
    esc,
    paragraph,
    section,
    short,
    small,
    table,
    whose,
    write_page,
)

TICKS = (0, 0.5, 1, 2, 5, 10, 20, 50, 100, 1000)
HEIGHT, TOP, LEFT, RIGHT = 150, 12, 9.0, 98.0  # pixels, pixels, per cent, per cent
WORDS = {
    Conclusion.FAILED: "check failed",
    Conclusion.BROKEN: "leak proven, above the guarantee",
    Conclusion.LEAK: "leak proven",
    Conclusion.NONE: "none proven",
    Conclusion.MEASURED: "measured, not a bound",
}


def write_board(board: Board, path: Path) -> Path:
    """Write the page of a board; a link in its place is not written through.

    Raises:
        InputError: If the path is a link, or its folder does not exist.
    """
    if path.is_symlink():
        raise InputError(f"path {check.show(str(path))} is a symbolic link, which is not written through; remove it.")
    return write_page(board_page(board, path), path)


def board_page(board: Board, path: Path) -> str:
    """The page of a board as it stands at a path, from which its links lead."""
    parts = [_overview(board), _models(board), _audits(board, path), _damaged(board.damaged), _reading(board)]
    subtitle = f"{_count(len(board.entries), 'audit')} of {_count(len(_by_model(board)), 'model')} · {_limits(board)}"
    return assemble("Privacy audits", subtitle, parts, {}, script="board.js")


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _limits(board: Board) -> str:
    limits = board.limits
    told = [
        "" if limits.max_epsilon is None else f"ε proven at most {epsilon(limits.max_epsilon)}",
        "" if limits.min_confidence is None else f"confidence at least {percent(limits.min_confidence)}",
        "" if limits.require_neighbours is None else f"ε {whose(limits.require_neighbours)}",
    ]
    return f"limits: {', '.join(part for part in told if part)}" if limits.any else "no limit was given"


def _by_model(board: Board) -> list[tuple[str, list[Entry]]]:
    return [(name, list(group)) for name, group in groupby(board.entries, key=lambda e: e.model)]


# --- overview and filters ---------------------------------------------------------------------------------


def _overview(board: Board) -> str:
    statuses = Counter(entry.status for entry in board.entries)
    verdicts = Counter(entry.standing for entry in board.entries)
    tiles = [
        ("Fail the limits", statuses[Status.FAIL], "fail"),
        ("Undecided: could not have failed", statuses[Status.UNDECIDED], "undecided"),
        ("Keep the limits", statuses[Status.PASS], "pass"),
    ]
    if not board.limits.any:
        leaks = verdicts[Conclusion.LEAK] + verdicts[Conclusion.BROKEN]
        tiles = [
            ("Leak proven", leaks, "fail"),
            ("Check failed: nothing can be concluded", verdicts[Conclusion.FAILED], "undecided"),
            (
                "None proven, which is not proof of privacy",
                verdicts[Conclusion.NONE] + verdicts[Conclusion.MEASURED],
                "",
            ),
        ]
    cells = "".join(
        f'<div class="{kind}"><dt>{esc(name)}</dt><dd class="big">{number}</dd></div>' for name, number, kind in tiles
    )
    told = ", ".join(f"{WORDS[kind]}: {number}" for kind, number in verdicts.most_common())
    body = f'<dl class="cards">{cells}</dl>\n' + paragraph(f"By verdict: {told}." if told else "No audit was read.")
    if board.damaged:
        left_out = "is" if len(board.damaged) == 1 else "are"
        told = f"⚠ {_count(len(board.damaged), 'file')} could not be read and {left_out} not counted: see below."
        body += paragraph(told, "note")
    checked = (
        "Every bound was computed again from the evidence in its file."
        if board.verified
        else "The files were read strictly, but their bounds were not computed again: `dosimeter gate` and `dosimeter "
        "board --verify` do that."
    )
    return section("overview", "At a glance", body + paragraph(checked, "note") + _filters(board))


def _filters(board: Board) -> str:
    """Choices that the page's own script applies; without it everything is shown and they stay hidden."""
    choices = {
        "model": [name for name, _ in _by_model(board)],
        "verdict": list(dict.fromkeys(WORDS[entry.standing] for entry in board.entries)),
        "gate": list(dict.fromkeys(str(entry.status) for entry in board.entries)),
        "kind": list(dict.fromkeys(entry.kind for entry in board.entries)),
    }
    fields = "".join(
        f'<label>{esc(name)} <select data-filter="{name}"><option value="">all</option>'
        + "".join(f"<option>{esc(short(option))}</option>" for option in options)
        + "</select></label>"
        for name, options in choices.items()
    )
    return (
        f'<div class="filters" role="search" aria-label="Filter the audits" hidden>{fields}'
        '<label>text <input type="search" data-filter="text"></label>'
        '<p role="status" aria-live="polite"></p></div>\n'
    )


# --- over time --------------------------------------------------------------------------------------------


def _models(board: Board) -> str:
    numbers = {entry.path: number for number, entry in enumerate(board.entries)}
    body = paragraph(
        "For each model, its audits in the order of time. Circle: ε proven, at least this. Stroke: ε guaranteed, at "
        "most this. A dashed line says that nothing limits ε from above; a diamond is a measurement and bounds "
        "nothing. An ε for replacing one record and one for adding or removing one are different numbers: the table "
        "says which it is.",
        "note",
    )
    for name, entries in _by_model(board):
        body += _timeline(name, entries, numbers)
    return section("models", "Over time, by model", body)


def _timeline(name: str, entries: list[Entry], numbers: dict[str, int]) -> str:
    ends = [v for e in entries for v in (e.proven, e.measured, e.guaranteed) if v is not None and math.isfinite(v)]
    top = 1.15 * max([1.0, *ends])
    marks = "".join(
        _mark(entry, numbers[entry.path], _across(place, len(entries)), top) for place, entry in enumerate(entries)
    )
    first, last = entries[0], entries[-1]
    told = f"{_count(len(entries), 'audit')}, {_day(first)} ({short(first.version)})"
    if len(entries) > 1:
        told += f" to {_day(last)} ({short(last.version)})"
    told += f". The last: {_ends(last)}."
    return (
        f'<figure class="timeline" data-model="{esc(short(name))}"><h3>{esc(short(name))}</h3>'
        f'<svg width="100%" height="{HEIGHT + 6}" role="img" aria-label="{esc(told)}">{_grid(top)}{marks}</svg>'
        f"<figcaption>{esc(told)}</figcaption></figure>\n"
    )


def _across(place: int, count: int) -> str:
    at = (LEFT + RIGHT) / 2 if count == 1 else LEFT + 2 + (RIGHT - LEFT - 4) * place / (count - 1)
    return f"{at:.2f}%"


def _height(value: float, top: float) -> float:
    """Where an ε stands, in pixels from above; equal steps are nearly equal factors, and 0 has a place."""
    return HEIGHT - (HEIGHT - TOP) * math.log1p(min(value, top)) / math.log1p(top)


def _grid(top: float) -> str:
    lines, last = "", math.inf
    for tick in TICKS:
        y = _height(tick, top)
        if tick > top or last - y < 16:
            continue
        last = y
        lines += (
            f'<line x1="{LEFT}%" x2="{RIGHT}%" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>'
            f'<text x="{LEFT - 1}%" y="{y + 4:.1f}" text-anchor="end">{tick:g}</text>'
        )
    return f'<text x="0" y="{TOP}">ε</text>{lines}'


def _mark(entry: Entry, number: int, x: str, top: float) -> str:
    """Both ends of one ε and the stretch between them."""
    low = entry.proven if entry.proven is not None else entry.measured
    assert low is not None
    open_ended = entry.guaranteed is None or math.isinf(entry.guaranteed)
    y_low, y_high = _height(low, top), _height(top if entry.guaranteed is None else entry.guaranteed, top)
    kind = {Status.FAIL: "fail", Status.UNDECIDED: "undecided"}.get(entry.status, "kept")
    shapes = ""
    if entry.proven is not None:
        dash = ' stroke-dasharray="2 3"' if open_ended else ""
        shapes += f'<line x1="{x}" x2="{x}" y1="{y_low:.1f}" y2="{y_high:.1f}" class="span"{dash}/>'
        shapes += f'<circle cx="{x}" cy="{y_low:.1f}" r="4.5"/>'
    else:
        shapes += f'<svg x="{x}" y="{y_low:.1f}" overflow="visible"><path d="M0 -6L6 0L0 6L-6 0Z"/></svg>'
    if not open_ended:
        shapes += f'<svg x="{x}" y="{y_high:.1f}" overflow="visible"><path class="top" d="M-6 0H6"/></svg>'
    title = f"{short(entry.version)}, {_day(entry)}: {_ends(entry)}; {WORDS[entry.standing]}; gate: {entry.status}"
    return f'<g data-i="{number}" class="{kind}"><title>{esc(title)}</title>{shapes}</g>'


def _day(entry: Entry) -> str:
    return entry.when.date().isoformat()


def _ends(entry: Entry) -> str:
    if entry.proven is None:
        low = f"{epsilon(entry.measured)} measured, not a bound"
    else:
        low = f"ε ≥ {epsilon(entry.proven)} proven"
    high = "no guarantee" if entry.guaranteed is None else f"ε ≤ {epsilon(entry.guaranteed)} guaranteed"
    act = whose(entry.neighbours, entry.unit)
    return f"{low}, {high}" + (f", {act}" if act else "")


# --- every audit ------------------------------------------------------------------------------------------


def _audits(board: Board, path: Path) -> str:
    header = ("model", "version", "date", "verdict", "ε at least", "ε at most", "whose ε", "gate", "files")
    head = "".join(f'<th scope="col" role="columnheader">{esc(name)}</th>' for name in header)
    rows = "".join(_row(board, entry, number, path, header) for number, entry in enumerate(board.entries))
    caption = "Every audit, by model and time"
    body = (
        f'<table class="board" role="table"><caption>{esc(caption)}</caption><thead role="rowgroup"><tr role="row">'
        f'{head}</tr></thead><tbody role="rowgroup">{rows}</tbody></table>\n'
    )
    return section("audits", "Every audit", body if board.entries else paragraph("No audit was read."))


def _row(board: Board, entry: Entry, number: int, path: Path, header: tuple[str, ...]) -> str:
    low = epsilon(entry.proven) if entry.proven is not None else f"({epsilon(entry.measured)} measured)"
    links = [("JSON", entry.path), *([("page", entry.page)] if entry.page is not None else [])]
    cells = [
        esc(short(entry.version)),
        esc(_day(entry)) + ("" if entry.dated else " (file)"),
        esc(WORDS[entry.standing]),
        esc(low),
        esc("not stated" if entry.guaranteed is None else epsilon(entry.guaranteed)),
        esc(f"{entry.neighbours or 'not stated'}, one {entry.unit}, δ = {small(entry.delta)}"),
        f"<strong>{esc(entry.status)}</strong>" + "".join(f"<br>{esc(short(reason))}" for reason in entry.reasons),
        " ".join(f'<a href="{_href(board, path, name)}">{label}</a>' for label, name in reversed(links)),
    ]
    inside = "".join(
        f'<td role="cell" data-label="{esc(name)}">{cell}</td>' for name, cell in zip(header[1:], cells, strict=True)
    )
    kind = ' class="marked"' if entry.status is Status.FAIL else ""
    return (
        f'<tr role="row" data-i="{number}" data-model="{esc(short(entry.model))}" '
        f'data-verdict="{esc(WORDS[entry.standing])}" data-gate="{entry.status}" data-kind="{esc(entry.kind)}"{kind}>'
        f'<th scope="row" role="rowheader">{esc(short(entry.model))}</th>{inside}</tr>'
    )


def _href(board: Board, path: Path, name: str) -> str:
    """A relative address, which cannot be taken for another scheme or another host."""
    target = os.path.relpath(os.path.join(board.folder, name), path.parent)  # noqa: PTH118
    return esc("./" + quote(target.replace(os.sep, "/"), safe="/"))


def _damaged(files: tuple[DamagedFile, ...]) -> str:
    if not files:
        return ""
    lines = [(short(file.path), short(clean(file.reason))) for file in files]
    body = table("Files that are not audits, or not valid ones", ("file", "value"), lines, css_class="keys")
    return section("damaged", "Files that could not be read", body)


def _reading(board: Board) -> str:
    return section(
        "reading",
        "How to read this",
        paragraph(
            "An ε that an attack proves is a lower bound: the loss is at least this large, with the confidence of the "
            "audit. A small one is not evidence of privacy, and “none proven” is never “none”. A guarantee is an upper "
            "bound. Undecided is an audit that could not have broken the limit, so it has not kept it either."
        )
        + paragraph(
            "Model, version and date are those of the audit's metadata (name, model_version, created); where they are "
            "missing, the names and times of the files stand in, marked “file”.",
            "note",
        ),
    )
