"""A Vega-Lite specification as a drawing for the page: plain SVG whose colours follow the page, and its hover points.

The page holds no charting library. The drawing is made here, by vl-convert; marks of a layer named "hover" are taken
out of it and become a list of places with a text each, which the page's own script shows under the pointer. So the
charts are there without JavaScript, in print, and under a content-security policy that allows one hashed script only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from xml.etree import ElementTree

from dosimeter._optional import require
from dosimeter.report.theme import VARIABLES

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
    found = _TRANSLATE.match(element.get("transform", ""))
    return (float(found[1]), float(found[2])) if found else (0.0, 0.0)


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
    return tag == "text" and not element.text


ElementTree.register_namespace("svg", SVG)
