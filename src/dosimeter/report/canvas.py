"""Charts for pages: colours and type, a canvas to build a Vega-Lite specification on, and its drawing as plain SVG.

The page holds no charting library. A drawing is made here, by vl-convert, and its colours become the page's variables,
so that one drawing serves light, dark and print. Marks of a layer named "hover" are taken out of it and become a list
of places with a text each, which the page's own script shows under the pointer. So the charts are there without
JavaScript, in print, and under a content-security policy that allows one hashed script only.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias
from xml.etree import ElementTree

from dosimeter import _validate as check
from dosimeter._files import naming
from dosimeter._validate import InputError, require

# --- colours and type ---------------------------------------------------------------------------------------

INK = "#1b1f24"
MUTED = "#5a6470"
GRID = "#e4e7eb"
ACCENT = "#24527a"
MEMBERS = "#c1540c"
NONMEMBERS = "#0a72b0"
WARNING = "#a3290f"
OPEN = "#dfe3e8"
PAPER = "#fffffe"
GREEN = "#2b7a5b"
PURPLE = "#7d4f9e"

# Categories of a comparison: told apart by shape as well.
CATEGORIES = (NONMEMBERS, MEMBERS, GREEN, PURPLE, MUTED, INK)
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down")

# In the page each colour becomes a CSS variable, so that one drawing serves light, dark and print.
VARIABLES = {
    INK: "--ink",
    MUTED: "--muted",
    GRID: "--grid",
    ACCENT: "--accent",
    MEMBERS: "--members",
    NONMEMBERS: "--nonmembers",
    WARNING: "--warning",
    OPEN: "--open",
    PAPER: "--paper",
    GREEN: "--green",
    PURPLE: "--purple",
}

WIDE = 720
NARROW = 330
PHONE = 420  # a chart no wider than this is drawn for a phone


def config() -> dict[str, object]:
    """The Vega-Lite configuration that all charts share."""
    return {
        "background": PAPER,
        "font": "Helvetica, Arial, sans-serif",
        "padding": 4,
        "view": {"stroke": None},
        "axis": {
            "labelColor": MUTED,
            "titleColor": INK,
            "labelFontSize": 12,
            "titleFontSize": 12.5,
            "titleFontWeight": "normal",
            "titlePadding": 8,
            "gridColor": GRID,
            "domainColor": MUTED,
            "tickColor": MUTED,
            "tickSize": 4,
            "labelPadding": 4,
        },
        "legend": {
            "labelColor": INK,
            "labelFontSize": 12,
            "titleColor": INK,
            "symbolStrokeWidth": 2,
            "symbolSize": 120,
            "labelLimit": 0,
            "orient": "top",
            "title": None,
            "offset": 6,
            "rowPadding": 4,
            "columnPadding": 32,
        },
        "text": {"color": INK, "fontSize": 12},
    }


# --- the specification --------------------------------------------------------------------------------------

Spec: TypeAlias = dict[str, Any]  # Vega-Lite
Rows: TypeAlias = list[dict[str, Any]]


@dataclass
class Canvas:
    """One chart in the making. Data is kept aside by name: Altair would otherwise check every row of it.

    Channels are given as `alt.Text("label:N")`: for a plain string Altair goes through its whole schema, each time.
    """

    width: int
    alt: Any = field(default_factory=lambda: require("altair", extra="report", caller="dosimeter.report"))
    rows: dict[str, Rows] = field(default_factory=dict)

    @property
    def phone(self) -> bool:
        return self.width <= PHONE

    def chart(self, rows: Rows, **properties: Any) -> Any:
        """A chart of these rows."""
        name = f"data{len(self.rows)}"
        self.rows[name] = rows
        return self.alt.Chart(self.alt.NamedData(name=name), **properties)

    def hover(self, rows: Rows, x: Any, y: Any) -> Any:
        """The invisible layer of places and texts; rows have the fields of x and y, and `text`."""
        tooltip, said = self.alt.Tooltip("text:N", title="value"), self.alt.Description("text:N")
        points = self.chart(rows, name="hover").mark_point(opacity=0, size=60)
        return points.encode(x=x, y=y, tooltip=tooltip, description=said)

    def finish(self, chart: Any, height: int | None = None) -> Spec:
        """The specification with data and style; with a height, its width is that of the whole picture."""
        if height is not None:
            autosize = {"type": "fit-x", "contains": "padding"}
            chart = chart.properties(width=self.width, height=height, autosize=autosize)
        spec: Spec = chart.to_dict(validate=False)
        spec["datasets"] = self.rows
        spec["config"] = config()
        return spec


def decades(low: float, high: float) -> list[float]:
    """Powers of ten from `low` to `high`, both powers of ten; every second or third where there are many."""
    first, last = round(math.log10(low)), round(math.log10(high))
    step = 1 + (last - first) // 7
    return [10.0**k for k in range(last, first - 1, -step)][::-1]


# --- the drawing --------------------------------------------------------------------------------------------

SVG = "http://www.w3.org/2000/svg"
_HOVER = re.compile(r"\bhover\w*_marks\b")
_TRANSLATE = re.compile(r"translate\(\s*([-+.\de]+)[ ,]+([-+.\de]+)\s*\)")
_LONG_NUMBER = re.compile(r"-?\d+\.\d{3,}")
_DROPPED = {
    "class",
    "role",
    "aria-label",
    "aria-roledescription",
    "aria-hidden",
    "font-family",
    "pointer-events",
    "style",
}
_DEFAULTS = {"opacity": "1", "stroke-opacity": "1", "fill-opacity": "1", "font-weight": "normal"}


@dataclass(frozen=True)
class Drawing:
    """An SVG element as text and its hover points (x, y, text) in the units of its view box."""

    svg: str
    points: tuple[tuple[float, float, str], ...]


def draw(spec: Mapping[str, object], *, css_class: str) -> Drawing:
    """Draw a specification for the page."""
    vl = require("vl_convert", extra="report", caller="dosimeter.report")
    root = ElementTree.fromstring(vl.vegalite_to_svg(dict(spec)))
    points = tuple(_hover(root, 0.0, 0.0))
    _tidy(root)
    width, height = root.get("width", ""), root.get("height", "")
    root.attrib = {
        "class": css_class,
        "viewBox": root.get("viewBox", f"0 0 {width} {height}"),
        "width": width,
        "height": height,
        "aria-hidden": "true",
        "focusable": "false",
    }
    text = ElementTree.tostring(root, encoding="unicode")
    return Drawing(text.replace("svg:", "").replace(":svg=", "="), points)


def _hover(element: ElementTree.Element, x: float, y: float) -> Iterator[tuple[float, float, str]]:
    """The places of the hover marks, which are removed on the way."""
    for child in list(element):
        dx, dy = _shift(child)
        if _HOVER.search(child.get("class", "")):
            for mark in child:
                mx, my = _shift(mark)
                yield round(x + dx + mx, 1), round(y + dy + my, 1), mark.get("aria-label", "")
            element.remove(child)
        else:
            yield from _hover(child, x + dx, y + dy)


def _shift(element: ElementTree.Element) -> tuple[float, float]:
    match = _TRANSLATE.match(element.get("transform", ""))
    return (float(match[1]), float(match[2])) if match else (0.0, 0.0)


def _tidy(element: ElementTree.Element) -> None:
    """Colours become the page's variables; what the page does not need goes, and long decimals are cut."""
    for name, value in list(element.attrib.items()):
        if name in _DROPPED or _DEFAULTS.get(name) == value:
            del element.attrib[name]
        elif name in ("fill", "stroke") and value.lower() in VARIABLES:
            element.set(name, f"var({VARIABLES[value.lower()]})")
        elif name in ("d", "transform", "x", "y", "x1", "y1", "x2", "y2", "width", "height"):
            element.set(name, _LONG_NUMBER.sub(lambda m: f"{float(m[0]):.2f}", value))
    for child in list(element):
        _tidy(child)
        if _empty(child):
            element.remove(child)


def _empty(element: ElementTree.Element) -> bool:
    tag = element.tag.rpartition("}")[2]
    if tag == "g":
        return len(element) == 0
    if tag == "path":
        return not element.get("d") or element.get("d") == "M0,0h0v0h0Z"
    return tag in ("text", "tspan") and not element.text and len(element) == 0


ElementTree.register_namespace("svg", SVG)


FORMATS = ("png", "svg")


def write_pictures(
    specs: Mapping[str, Spec], folder: str | Path, *, scale: float = 2.0, formats: Iterable[str] = ("png",)
) -> list[Path]:
    """Write each specification to a folder under its name, as PNG or SVG, without a browser; returns the files."""
    vl = require("vl_convert", extra="report", caller="report.write_png")
    scale = check.within("scale", scale, 0.1, 10.0, "pass the number of pixels for each point, e.g. 2")
    wanted = [check.choice("formats", kind, FORMATS) for kind in ((formats,) if isinstance(formats, str) else formats)]
    target = Path(folder)
    if target.exists() and not target.is_dir():
        raise InputError(f"folder {check.show(str(folder))} is a file; give the name of a folder.")
    target.mkdir(parents=True, exist_ok=True)
    written = []
    for name, spec in specs.items():
        for kind in wanted:
            file = target / f"{name}.{kind}"
            image = vl.vegalite_to_png(spec, scale=scale) if kind == "png" else vl.vegalite_to_svg(spec).encode("utf-8")
            with naming(file):
                file.write_bytes(image)
            written.append(file)
    return written
