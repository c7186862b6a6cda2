"""The shell of a page: header, contents, parts, footer, and the drawings of both widths."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from dosimeter import _files
from dosimeter import _validate as check
from dosimeter._validate import InputError
from dosimeter.report.canvas import Spec
from dosimeter.report.draw import Drawing, draw
from dosimeter.report.markup import Section, document, esc
from dosimeter.report.text import clean

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


def assemble(title: str, subtitle: str, parts: Iterable[str], pictures: Pictures) -> str:
    """The page from its parts: header, contents, main, footer."""
    shown = [part for part in parts if part]
    headings = [(part.name, part.heading) for part in shown if isinstance(part, Section)]
    data = {name: {width: [list(p) for p in d.points] for width, d in by.items()} for name, by in pictures.items()}
    lead = f'<p class="sub">{esc(subtitle)}</p>' if subtitle else ""
    body = (
        f'<header><h1>{esc(title)}</h1>{lead}</header>\n<main id="main" tabindex="-1">\n'
        f"{''.join(shown[:1])}<!--contents-->\n{''.join(shown[1:])}</main>\n"
        "<footer><p>Made by dosimeter. This file is complete: it loads nothing and sends nothing.</p></footer>\n"
    )
    return document(clean(title), body, headings, data)


def write_page(text: str, path: str | Path) -> Path:
    """Write a page where its folder exists."""
    target = Path(path)
    if not target.parent.is_dir() or target.is_dir():
        raise InputError(f"path {check.show(str(path))} cannot be written: give a file name in a folder that exists.")
    _files.write_text(target, text)
    return target
