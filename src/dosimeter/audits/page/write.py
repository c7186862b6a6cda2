"""One audit as one self-contained page, or as pictures."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from dosimeter import _files
from dosimeter import _validate as check
from dosimeter._optional import require
from dosimeter._validate import InputError
from dosimeter.audits.page import record, sections
from dosimeter.audits.page.charts import charts
from dosimeter.audits.page.kinds import kind_of
from dosimeter.audits.result import Audit
from dosimeter.reading import writing
from dosimeter.report.draw import Drawing, draw
from dosimeter.report.markup import document, esc
from dosimeter.report.text import clean, short, value
from dosimeter.report.theme import NARROW, WIDE

FORMATS = ("png", "svg")
_SECTION = re.compile(r'<section id="([\w-]+)" aria-labelledby="[\w-]+"><h2 id="[\w-]+">(.*?)</h2>')


def drawings(specs: Mapping[str, Mapping[str, dict[str, Any]]]) -> dict[str, dict[str, Drawing]]:
    """Drawings by chart and width from specifications by width and chart."""
    found: dict[str, dict[str, Drawing]] = {}
    for width, group in specs.items():
        for name, spec in group.items():
            found.setdefault(name, {})[width] = draw(spec, css_class=width)
    return found


def assemble(title: str, subtitle: str, parts: Iterable[str], pictures: Mapping[str, Mapping[str, Drawing]]) -> str:
    """The page from its parts: header, contents, main, footer."""
    shown = [part for part in parts if part]
    headings = [found for part in shown for found in _SECTION.findall(part)]
    data = {name: {width: [list(p) for p in d.points] for width, d in by.items()} for name, by in pictures.items()}
    lead = f'<p class="sub">{esc(subtitle)}</p>' if subtitle else ""
    body = (
        f'<header><h1>{esc(title)}</h1>{lead}</header>\n<main id="main" tabindex="-1">\n'
        f"{''.join(shown[:1])}<!--contents-->\n{''.join(shown[1:])}</main>\n"
        "<footer><p>Made by dosimeter. This file is complete: it loads nothing and sends nothing.</p></footer>\n"
    )
    return document(clean(title), body, headings, data)


def to_html(audit: Audit, *, title: str | None = None) -> str:
    """The audit as one HTML file that loads nothing from anywhere."""
    audit = _checked(audit, "report.to_html")
    pictures = drawings({"wide": charts(audit, width=WIDE), "narrow": charts(audit, width=NARROW)})
    name = audit.metadata.get("name") or audit.metadata.get("model")
    heading = title or (f"Privacy audit: {short(name)}" if isinstance(name, str) else "Privacy audit")
    kind = kind_of(audit)
    parts = [
        sections.verdict(audit),
        *(kind.sections(audit, pictures) if kind is not None else ()),
        sections.region(audit, pictures),
        sections.person(audit),
        sections.roc(audit, pictures),
        sections.distributions(audit, pictures),
        sections.star(audit, pictures),
        sections.subgroups(audit, pictures),
        sections.exposed(audit),
        record.numbers(audit),
        record.method(audit),
        record.limits(audit),
        record.nist(audit),
    ]
    return assemble(heading, _subtitle(audit), parts, pictures)


def _subtitle(audit: Audit) -> str:
    meta = audit.metadata
    counts = [meta.get(key) for key in ("members", "nonmembers")]
    found = []
    if all(isinstance(count, int) for count in counts):
        by_coins = meta.get("kind") in ("training", "one-run", "gradients")
        words = ("{} coins said in", "{} out") if by_coins else ("{} members", "{} non-members")
        found = [text.format(f"{n:,}".replace(",", " ")) for text, n in zip(words, counts, strict=True)]
    elif isinstance(counts[0], int):
        found = [f"{counts[0]:,} members".replace(",", " ")]
    found += [value(meta[key]) for key in ("created", "date") if meta.get(key)]
    if meta.get("version"):
        found.append(f"dosimeter {short(meta['version'])}")
    return " · ".join(found)


def _checked(audit: Any, caller: str) -> Audit:
    if not isinstance(audit, Audit):
        raise InputError(f"audit must be an Audit, got {check.show(audit)}; pass what an audit function returned.")
    require("altair", extra="report", caller=caller)
    require("vl_convert", extra="report", caller=caller)
    return audit


def write_html(audit: Audit, path: str | Path, *, title: str | None = None) -> Path:
    """Write the page to a file and return its path."""
    return write_text(to_html(audit, title=title), path)


def write_text(text: str, path: str | Path) -> Path:
    """Write a page where its folder exists."""
    target = Path(path)
    if not target.parent.is_dir() or target.is_dir():
        raise InputError(f"path {check.show(str(path))} cannot be written: give a file name in a folder that exists.")
    _files.write_text(target, text)
    return target


def write_png(audit: Audit, folder: str | Path, *, scale: float = 2.0, formats: Iterable[str] = ("png",)) -> list[Path]:
    """Write every chart to a folder, as PNG and, if asked, as SVG, without a browser; returns the files."""
    audit = _checked(audit, "report.write_png")
    vl = require("vl_convert", extra="report", caller="report.write_png")
    scale = check.within("scale", scale, 0.1, 10.0, "pass the number of pixels for each point, e.g. 2")
    wanted = [check.choice("formats", kind, FORMATS) for kind in ((formats,) if isinstance(formats, str) else formats)]
    target = Path(folder)
    if target.exists() and not target.is_dir():
        raise InputError(f"folder {check.show(str(folder))} is a file; give the name of a folder.")
    target.mkdir(parents=True, exist_ok=True)
    written = []
    for name, spec in charts(audit).items():
        for kind in wanted:
            file = target / f"{name}.{kind}"
            image = vl.vegalite_to_png(spec, scale=scale) if kind == "png" else vl.vegalite_to_svg(spec).encode("utf-8")
            with writing(file):
                file.write_bytes(image)
            written.append(file)
    return written
