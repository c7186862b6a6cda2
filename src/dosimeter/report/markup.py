"""Pages from values: numbers and names as text, HTML in which everything is escaped, one shell with a strict policy."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from dosimeter import _files
from dosimeter import _validate as check
from dosimeter._validate import InputError
from dosimeter.estimate import change, number
from dosimeter.report.canvas import Drawing, Spec, draw
from dosimeter.report.glossary import TERMS

# --- numbers and names --------------------------------------------------------------------------------------

NOT_STATED = "not stated"
LONGEST = 400
_WORDS = {"auc": "AUC", "tpr": "TPR", "fpr": "FPR", "dp": "DP", "cpu": "CPU", "sha256": "SHA-256"}
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ufffe\uffff]")


def clean(value: object) -> str:
    """Any value as text that HTML, XML and JSON can hold: no control characters, no lone surrogates.

    Line and paragraph separators go as well: a chart's title becomes part of a program that they would break.
    """
    text = str(value).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return _CONTROL.sub("\ufffd", text)


def short(value: object) -> str:
    """A name that came with the data, as text of limited length."""
    text = clean(value)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def share(value: float | None) -> str:
    """A probability in percent with three digits, never rounded to certainty."""
    if value is None or math.isnan(value):
        return "unknown"
    if 0.999 < value < 1:
        return ">\u00a099.9\u00a0%"
    return f"{100 * value:.3g}\u00a0%"


def epsilon(value: float | None) -> str:
    """An ε: four digits, ∞ for an infinite or missing number."""
    return number(math.inf if value is None else float(value))


def whose(neighbours: str | None, unit: str = "record") -> str:
    """Whose ε a number is, e.g. "for replacing one record"; "" where it is not known."""
    if neighbours is None:
        return ""
    return f"for {change(neighbours, unit) or f'{clean(neighbours)} neighbours'}"


def joined(*parts: str) -> str:
    """Parts of a note, those that are there."""
    return "; ".join(part for part in parts if part)


def small(value: float) -> str:
    """A δ or p-value: plain where short, else with a power of ten."""
    return f"{value:.3g}" if value == 0 or value >= 1e-3 else f"{value:.3g}".replace("e-0", "e-")


def label(key: object) -> str:
    """A key of a mapping as words."""
    text = " ".join(_WORDS.get(word, word) for word in short(key).replace("_", " ").split(" "))
    return (text[:1].upper() + text[1:]).replace("P value", "p-value")


def value(item: Any) -> str:
    """A value of the metadata on one line."""
    if item is None or item == "":
        return NOT_STATED
    if isinstance(item, (bool, np.bool_)):
        return "yes" if item else "no"
    if isinstance(item, (float, np.floating)):
        return f"{float(item):.6g}"
    if isinstance(item, np.ndarray):
        item = item.tolist()
    if isinstance(item, (list, tuple)):
        shown = ", ".join(value(v) for v in item[:12])
        return f"{shown}, … ({len(item)} values)" if len(item) > 12 else shown or "none"
    if isinstance(item, Mapping):
        return "; ".join(f"{short(k)} = {value(v)}" for k, v in list(item.items())[:12]) or "none"
    return short(item)


def rows(values: Mapping[str, object]) -> list[tuple[str, str]]:
    """A mapping as (name, text) rows, one level of nesting opened."""
    opened: list[tuple[str, str]] = []
    for key, item in values.items():
        if isinstance(item, Mapping) and item:
            opened += [(f"{label(key)}: {short(k).replace('_', ' ')}", value(v)) for k, v in item.items()]
        else:
            opened.append((label(key), value(item)))
    return opened


def thousands(number: int) -> str:
    """A whole number with a space between groups of three digits."""
    return f"{number:,}".replace(",", " ")


# --- HTML ---------------------------------------------------------------------------------------------------


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


def explained(text: object) -> str:
    """Text for an element, in which the first use of each word of the glossary leads to its definition."""
    seen: set[str] = set()

    def link(match: re.Match[str]) -> str:
        word = _WORD_OF[html.unescape(match[0])]
        if word in seen:
            return match[0]
        seen.add(word)
        name = _term_id(word)
        return f'<a class="term" href="#{name}" aria-describedby="{name}">{match[0]}</a>'

    return _FORMS.sub(link, esc(text))


def _term_id(word: str) -> str:
    return "term-" + re.sub(r"[^a-z]+", "-", word.partition(",")[0].lower().replace("δ", "delta")).strip("-")


_WORD_OF = {form: term.word for term in TERMS.values() for form in term.forms}
_FORMS = re.compile(
    r"(?<![\w-])(?:" + "|".join(re.escape(esc(f)) for f in sorted(_WORD_OF, key=len, reverse=True)) + r")(?![\w-])"
)


def words() -> Section:
    """The words that links of the page lead to, with their definitions."""
    rows = "".join(
        f'<div><dt>{esc(term.word)}</dt><dd id="{_term_id(term.word)}">{esc(term.meaning)}</dd></div>'
        for term in TERMS.values()
    )
    return section("words", "Words", folded("What the words mean", f'<dl class="words">{rows}</dl>'))


def paragraph(text: object, css_class: str = "", *, terms: bool = False) -> str:
    """A paragraph; with `terms` its words are explained."""
    kind = f' class="{css_class}"' if css_class else ""
    return f"<p{kind}>{explained(text) if terms else esc(text)}</p>"


def bullets(items: Iterable[object], css_class: str = "", *, terms: bool = False) -> str:
    """A list; with `terms` its words are explained."""
    kind = f' class="{css_class}"' if css_class else ""
    return f"<ul{kind}>" + "".join(f"<li>{explained(item) if terms else esc(item)}</li>" for item in items) + "</ul>"


def folded(summary: str, body: str) -> str:
    """A part for experts, which opens when it is asked for, and in print."""
    return f"<details><summary>{esc(summary)}</summary>\n{body}</details>\n" if body else ""


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
    """A table; the first cell of each row is its header. On a phone each row becomes a block with its columns named.

    `numeric`: columns set in figures and to the right; `marked`: rows that stand out. The roles keep it a table for
    screen readers where the style sheet makes blocks of its rows.
    """
    right, strong = set(numeric), set(marked)
    number = ' class="n"'
    head = "".join(
        f'<th scope="col" role="columnheader"{number if i in right else ""}>{esc(h)}</th>' for i, h in enumerate(header)
    )
    lines = []
    for index, row in enumerate(rows):
        cells = [f'<th scope="row" role="rowheader"{number if 0 in right else ""}>{esc(row[0])}</th>']
        cells += [
            f'<td role="cell" data-label="{esc(header[i])}"{number if i in right else ""}>{esc(cell)}</td>'
            for i, cell in enumerate(row[1:], start=1)
        ]
        kind = ' class="marked"' if index in strong else ""
        lines.append(f'<tr role="row"{kind}>{"".join(cells)}</tr>')
    return (
        f'<table class="{css_class}" role="table"><caption>{esc(caption)}</caption>'
        f'<thead role="rowgroup"><tr role="row">{head}</tr></thead>'
        f'<tbody role="rowgroup">{"".join(lines)}</tbody></table>\n'
    )


def document(title: str, body: str, contents: Sequence[tuple[str, str]], data: Any, script_name: str) -> str:
    """The whole file: policy, style, skip link, contents, body, data and one script."""
    style, script = asset("page.css"), asset(script_name)
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


# --- the page -----------------------------------------------------------------------------------------------

Pictures = Mapping[str, Mapping[str, Drawing]]  # by chart and width


def drawings(specs: Mapping[str, Mapping[str, Spec]]) -> Pictures:
    """Drawings by chart and width from specifications by width and chart."""
    drawn: dict[str, dict[str, Drawing]] = {}
    for width, group in specs.items():
        for name, spec in group.items():
            drawn.setdefault(name, {})[width] = draw(spec, css_class=width)
    return drawn


def figure(name: str, title: str, caption: str, pictures: Pictures, *, by: str = "x") -> str:
    """A chart in both widths with its text alternative; `by`: the axis along which the pointer looks for a value."""
    if name not in pictures:
        return ""
    both = "".join(drawing.svg for drawing in pictures[name].values())
    return (
        f'<figure aria-labelledby="{name}-caption"><div class="plot" data-chart="{name}" data-name="{esc(title)}" '
        f'data-by="{by}">{both}</div>'
        f'<figcaption id="{name}-caption"><strong>{esc(title)}.</strong> {esc(caption)}</figcaption></figure>\n'
    )


def assemble(title: str, subtitle: str, parts: Iterable[str], pictures: Pictures, *, script: str = "page.js") -> str:
    """The page from its parts: header, contents, main, footer."""
    shown = [part for part in (*parts, words()) if part]
    headings = [(part.name, part.heading) for part in shown if isinstance(part, Section)]
    data = {name: {width: [list(p) for p in d.points] for width, d in by.items()} for name, by in pictures.items()}
    lead = f'<p class="sub">{esc(subtitle)}</p>' if subtitle else ""
    body = (
        f'<header><h1>{esc(title)}</h1>{lead}</header>\n<main id="main" tabindex="-1">\n'
        f"{''.join(shown[:1])}<!--contents-->\n{''.join(shown[1:])}</main>\n"
        "<footer><p>Made by dosimeter. This file is complete: it loads nothing and sends nothing.</p></footer>\n"
    )
    return document(clean(title), body, headings, data, script)


def write_page(text: str, path: str | Path) -> Path:
    """Write a page where its folder exists."""
    target = Path(path)
    if not target.parent.is_dir() or target.is_dir():
        raise InputError(f"path {check.show(str(path))} cannot be written: give a file name in a folder that exists.")
    _files.write_text(target, text)
    return target
