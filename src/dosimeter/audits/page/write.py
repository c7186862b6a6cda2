"""One audit as one self-contained page, or as pictures."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dosimeter import _validate as check
from dosimeter._optional import require
from dosimeter._validate import InputError
from dosimeter.audits.kinds import page_of
from dosimeter.audits.page import record, sections
from dosimeter.audits.page.charts import charts
from dosimeter.audits.result import Audit
from dosimeter.reading import writing
from dosimeter.report.shell import assemble, drawings, write_page
from dosimeter.report.text import short, thousands, value
from dosimeter.report.theme import NARROW, WIDE

FORMATS = ("png", "svg")


def to_html(audit: Audit, *, title: str | None = None) -> str:
    """The audit as one HTML file that loads nothing from anywhere."""
    audit = _checked(audit, "report.to_html")
    pictures = drawings({"wide": charts(audit, width=WIDE), "narrow": charts(audit, width=NARROW)})
    name = audit.metadata.name or audit.metadata.model
    heading = title or (f"Privacy audit: {short(name)}" if name else "Privacy audit")
    kind = page_of(audit.metadata.kind)
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
    meta, said = audit.metadata, []
    by_coins = meta.kind in ("training", "one-run", "gradients")
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
