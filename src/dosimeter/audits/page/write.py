"""One audit as one self-contained page, as a PDF, or as pictures."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from dosimeter import _validate as check
from dosimeter._validate import InputError, require
from dosimeter.audits.page import appendix, evidence, first, people
from dosimeter.audits.page.facts import page_of
from dosimeter.audits.result import Audit
from dosimeter.reading import writing
from dosimeter.report.canvas import NARROW, WIDE, Canvas, Spec
from dosimeter.report.markup import assemble, drawings, short, thousands, value, write_page
from dosimeter.report.pdf import print_pdf

FORMATS = ("png", "svg")
CHARTS: dict[str, Callable[[Canvas, Audit], Spec | None]] = {
    "region": first.region_chart,
    "accountants": evidence.accountants_chart,
    "roc": evidence.roc_chart,
    "distributions": appendix.distributions_chart,
    "star": appendix.star_chart,
    "subgroups": people.subgroups_chart,
}


def charts(audit: Audit, *, width: int = WIDE) -> dict[str, Spec]:
    """Vega-Lite specifications by name: those of `CHARTS`, and those that its kind adds.

    `width` is the full width in pixels; up to 420 the charts are laid out for a phone. Every chart has a layer named
    "hover": invisible points that carry a text, shown as tooltip by Vega and by the page.
    """
    kind = page_of(audit.metadata.kind)
    makers = CHARTS | dict(kind.CHARTS if kind is not None else {})
    found = {name: make(Canvas(width), audit) for name, make in makers.items()}
    return {name: chart for name, chart in found.items() if chart is not None}


def to_html(audit: Audit, *, title: str | None = None) -> str:
    """The audit as one HTML file that loads nothing from anywhere."""
    audit = _checked(audit, "report.to_html")
    pictures = drawings({"wide": charts(audit, width=WIDE), "narrow": charts(audit, width=NARROW)})
    name = audit.metadata.name or audit.metadata.model
    heading = title or (f"Privacy audit: {short(name)}" if name else "Privacy audit")
    kind = page_of(audit.metadata.kind)
    parts = [
        first.first_screen(audit, pictures),
        evidence.evidence(audit, pictures),
        evidence.roc(audit, pictures),
        *(kind.sections(audit, pictures) if kind is not None else ()),
        people.person(audit),
        people.subgroups(audit, pictures),
        people.exposed(audit),
        people.limits(audit),
        appendix.distributions(audit, pictures),
        appendix.star(audit, pictures),
        appendix.numbers(audit),
        appendix.method(audit),
        appendix.nist(audit),
        appendix.data(audit),
    ]
    return assemble(heading, _subtitle(audit), parts, pictures)


def _subtitle(audit: Audit) -> str:
    meta, said = audit.metadata, []
    by_coins = meta.kind in ("training", "one-run", "gradients", "text") or getattr(meta, "game", None) == "coins"
    if meta.members is not None and meta.nonmembers is not None and by_coins:
        said = [f"{thousands(meta.members)} coins said in", f"{thousands(meta.nonmembers)} out"]
    elif meta.members is not None:
        said = [f"{thousands(meta.members)} members"]
        said += [] if meta.nonmembers is None else [f"{thousands(meta.nonmembers)} non-members"]
    said += [value(meta.notes[key]) for key in ("created", "date") if meta.notes.get(key)]
    return " · ".join([*said, f"dosimeter {short(meta.version)}"] if meta.version else said)


def _checked(audit: Any, caller: str) -> Audit:
    if not isinstance(audit, Audit):
        raise InputError(f"audit must be an Audit, got {check.show(audit)}; pass what an audit function returned.")
    require("altair", extra="report", caller=caller)
    require("vl_convert", extra="report", caller=caller)
    return audit


def write_html(audit: Audit, path: str | Path, *, title: str | None = None) -> Path:
    """Write the page to a file and return its path."""
    return write_page(to_html(audit, title=title), path)


def write_pdf(audit: Audit, path: str | Path, *, title: str | None = None) -> Path:
    """Write the page as a PDF through Chromium, with everything unfolded, and return its path."""
    return print_pdf(to_html(audit, title=title), path)


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
