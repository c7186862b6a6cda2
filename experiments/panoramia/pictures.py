"""The figures, as Vega-Lite specifications: a panel for each thing that is compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dosimeter.report.canvas import CATEGORIES, MUTED, SHAPES, Canvas

from .summary import Row, right_guesses

PANEL = 300
BASELINE = "baseline"


def _lines(row: Row) -> dict[str, Row]:
    """The thesis's curves of one audit: the baseline's, then those of the targets."""
    return {BASELINE: row["thesis"]["curve"]} | {t["name"]: t["thesis"]["curve"] for t in row["targets"]}


def _color(alt: Any, names: Sequence[str]) -> tuple[Any, Any]:
    colors = [MUTED if name == BASELINE else None for name in names]
    free = iter(CATEGORIES)
    scale = alt.Scale(domain=list(names), range=[color or next(free) for color in colors])
    legend = alt.Legend(columns=2)
    shape = alt.Shape("what:N", scale=alt.Scale(domain=list(names), range=list(SHAPES[: len(names)])), legend=legend)
    return alt.Color("what:N", scale=scale, legend=legend), shape


def of_recall(row: Row, column: str) -> dict[str, Any]:
    """Figures 8.1 and 8.2: precision or bound against recall of one audit, the largest bound marked."""
    canvas = Canvas(PANEL)
    alt = canvas.alt
    lines, marks = [], []
    curves = _lines(row)
    for name, curve in curves.items():
        points = [
            {"x": x, "y": y, "what": name, "at": at}
            for at, (x, y) in enumerate(zip(curve["recall"], curve[column], strict=True))
        ]
        lines += points
        marks.append(points[curve["best"]])
    x = alt.X("x:Q", title="recall", scale=alt.Scale(domain=[0, 1], nice=False))
    title = "{c+ε}_lb or c_lb" if column == "bound" else column
    y = alt.Y("y:Q", title=title, scale=alt.Scale(zero=column == "bound"))
    color, shape = _color(alt, list(curves))
    drawn = canvas.chart(lines).mark_line(strokeWidth=1.5).encode(x=x, y=y, color=color, order="at:Q")
    mark = canvas.chart(marks).mark_point(filled=True, size=90, opacity=1).encode(x=x, y=y, color=color, shape=shape)
    return canvas.finish(alt.layer(drawn, mark).properties(width=PANEL, height=220))


def of_guesses(row: Row) -> dict[str, Any]:
    """Figure 8.3: right guesses against all guesses."""
    canvas = Canvas(PANEL)
    alt = canvas.alt
    curves = _lines(row)
    lines = [
        {"x": made, "y": right, "what": name}
        for name, curve in curves.items()
        for made, right in zip(curve["guesses"], right_guesses(curve), strict=True)
    ]
    color, _ = _color(alt, list(curves))
    x, y = alt.X("x:Q", title="guesses"), alt.Y("y:Q", title="true positives")
    drawn = canvas.chart(lines).mark_line(strokeWidth=1.5).encode(x=x, y=y, color=color, order="x:Q")
    return canvas.finish(drawn.properties(width=PANEL, height=220))


def of_strength(rows: Sequence[Row]) -> dict[str, Any]:
    """Figure 7.1: c_lb against the training records of the baseline, each seed."""
    canvas = Canvas(PANEL)
    alt = canvas.alt
    points = [
        {"x": at["records"], "y": at["c_lb"], "seed": row["seed"]} for row in rows for at in row["strength"]["size"]
    ]
    x = alt.X("x:Q", title="training records of the baseline", scale=alt.Scale(type="log", nice=False, padding=8))
    drawn = canvas.chart(points).mark_line(color=CATEGORIES[0], point={"color": CATEGORIES[0]})
    return canvas.finish(
        drawn.encode(x=x, y=alt.Y("y:Q", title="c_lb"), detail="seed:N").properties(width=PANEL, height=200)
    )


def of_losses(losses: Mapping[str, Mapping[str, Sequence[float]]]) -> dict[str, Any]:
    """Figures 8.4 and 8.5: the distribution functions of the losses under each model."""
    canvas = Canvas(PANEL)
    alt = canvas.alt
    panels = []
    for model, sides in losses.items():
        rows = [
            {"x": value, "y": float(level), "what": side}
            for side, values in sides.items()
            for value, level in zip(values, np.linspace(0, 1, len(values)), strict=True)
        ]
        color, _ = _color(alt, list(sides))
        line = canvas.chart(rows).mark_line(strokeWidth=1.5)
        x, y = alt.X("x:Q", title="loss", scale=alt.Scale(zero=False)), alt.Y("y:Q", title="share below")
        panels.append(line.encode(x=x, y=y, color=color, order="y:Q").properties(width=200, height=150, title=model))
    return canvas.finish(alt.concat(*panels, columns=2))


def of_bounds(row: Row) -> dict[str, Any]:
    """Figure 8.6: {c+ε}_lb of each target beside c_lb."""
    canvas = Canvas(PANEL)
    alt = canvas.alt
    points = [{"x": t["name"], "y": t["thesis"]["c_eps_lb"]} for t in row["targets"]]
    x = alt.X("x:N", sort=[point["x"] for point in points], title=None, axis=alt.Axis(labelAngle=-30))
    bars = canvas.chart(points).mark_bar(color=CATEGORIES[0], width=26).encode(x=x, y=alt.Y("y:Q", title="{c+ε}_lb"))
    rule = canvas.chart([{"y": row["thesis"]["c_lb"]}]).mark_rule(color=MUTED, strokeDash=[4, 3]).encode(y="y:Q")
    return canvas.finish(alt.layer(bars, rule).properties(width=PANEL, height=200))
