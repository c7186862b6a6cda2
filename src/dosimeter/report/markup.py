"""HTML from values: everything escaped, one document shell with a strict content-security policy."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import resources
from typing import Any

from dosimeter.report.text import clean


def esc(value: object) -> str:
    """Any value as text for an element or a quoted attribute."""
    return html.escape(clean(value), quote=True)


@cache
def asset(name: str) -> str:
    """A style sheet or script that comes with the package."""
    return resources.files("dosimeter.report").joinpath(name).read_text(encoding="utf-8").strip()


def digest(text: str) -> str:
    """The hash by which a content-security policy allows one inline script or style."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def json_block(name: str, value: Any) -> str:
    """A value as a JSON data block that cannot end its own element."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return f'<script type="application/json" id="{esc(name)}">{text}</script>'


def paragraph(text: object, css_class: str = "") -> str:
    kind = f' class="{css_class}"' if css_class else ""
    return f"<p{kind}>{esc(text)}</p>"


def bullets(items: Iterable[object], css_class: str = "") -> str:
    kind = f' class="{css_class}"' if css_class else ""
    return f"<ul{kind}>" + "".join(f"<li>{esc(item)}</li>" for item in items) + "</ul>"


class Section(str):
    """A part of the page, which knows its heading."""

    name: str
    heading: str


def section(name: str, heading: str, body: str) -> Section:
    """A part of the page with its heading."""
    made = Section(
        f'<section id="{name}" aria-labelledby="{name}-h"><h2 id="{name}-h">{esc(heading)}</h2>\n{body}</section>\n'
    )
    made.name, made.heading = name, heading
    return made


def table(
    caption: str,
    header: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    numeric: Iterable[int] = (),
    css_class: str = "",
    marked: Iterable[int] = (),
) -> str:
    """A table in a box that scrolls by itself; the first cell of each row is its header.

    `numeric`: columns set in figures and to the right; `marked`: rows that stand out.
    """
    right, strong = set(numeric), set(marked)
    number = ' class="n"'
    head = "".join(f'<th scope="col"{number if i in right else ""}>{esc(h)}</th>' for i, h in enumerate(header))
    lines = []
    for index, row in enumerate(rows):
        cells = [f'<th scope="row"{number if 0 in right else ""}>{esc(row[0])}</th>']
        cells += [f"<td{number if i in right else ''}>{esc(cell)}</td>" for i, cell in enumerate(row[1:], start=1)]
        lines.append(f"<tr{' class=' + chr(34) + 'marked' + chr(34) if index in strong else ''}>{''.join(cells)}</tr>")
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{esc(caption)}">'
        f'<table class="{css_class}"><caption><span>{esc(caption)}</span></caption><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>\n"
    )


def document(title: str, body: str, contents: Sequence[tuple[str, str]], data: Any) -> str:
    """The whole file: policy, style, skip link, contents, body, data and one script."""
    style, script = asset("page.css"), asset("page.js")
    policy = (
        f"default-src 'none'; script-src {digest(script)}; style-src {digest(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    links = "".join(f'<li><a href="#{name}">{esc(heading)}</a></li>' for name, heading in contents)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<meta name="referrer" content="no-referrer">\n'
        f"<title>{esc(title)}</title>\n<style>{style}</style>\n</head>\n<body>\n"
        '<a class="skip" href="#main">Skip to the result</a>\n'
        f"{body.replace('<!--contents-->', f'<nav aria-label={chr(34)}Contents{chr(34)}><ol>{links}</ol></nav>')}"
        f"{json_block('chart-data', data)}\n<script>{script}</script>\n</body>\n</html>\n"
    )
