"""Colours and type of the charts: one list for pictures, and the names the page uses for light and dark."""

from __future__ import annotations

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
