"""The charts that set audits side by side: the bounds of each, and the privacy–utility landscape."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

import numpy as np

from dosimeter.audits.compare.landscape import GUARANTEED, LOWER, VALUE, Point, density
from dosimeter.audits.page import facts
from dosimeter.audits.result import Audit
from dosimeter.report.canvas import ACCENT, CATEGORIES, INK, OPEN, SHAPES, Canvas, Rows, Spec
from dosimeter.report.markup import epsilon, whose

NAMED_POINTS = 12
FEWEST_FOR_DENSITY = 10  # points of a category: fewer have no density worth drawing
GRID_POINTS = 120


def bounds_chart(canvas: Canvas, audits: list[Audit], names: list[str]) -> Spec:
    """For each audit what the attack has shown, what the guarantee says, and the open stretch between."""
    alt = canvas.alt
    rows: Rows = []
    for audit, name in zip(audits, names, strict=True):
        lower, stated = facts.drawn(audit)
        high = stated.epsilon if stated is not None else math.inf
        rows.append({"row": name, "low": lower.low, "high": high, "text": f"{name}: {known_of(audit)}"})
    finite = [v for r in rows for v in (r["low"], r["high"]) if math.isfinite(v)]
    top = max([*finite, 0.1]) * 1.08
    for row in rows:
        row["open"] = not math.isfinite(row["high"])
        row["low"], row["high"] = min(row["low"], top), min(row["high"], top)
    scale = alt.Scale(domain=[0, top], nice=False)
    relations = {facts.drawn(audit)[0].neighbours for audit in audits}
    act = whose(relations.pop()) if len(relations) == 1 else "each for its own neighbours"
    x = alt.X("low:Q", scale=scale, title=f"ε {act}".strip(), axis=alt.Axis(tickCount=6, grid=True))
    limit = 110 if canvas.phone else 220
    y = alt.Y(
        "row:N",
        sort=None,
        title=None,
        axis=alt.Axis(ticks=False, domain=False, labelColor=INK, labelLimit=limit, labelPadding=10),
    )
    base = canvas.chart(rows)
    layers = [
        base.mark_bar(height=9, color=OPEN).encode(x=x, x2=alt.X2("high:Q"), y=y),
        base.mark_point(shape="triangle-right", filled=True, size=110, color=ACCENT, opacity=1).encode(x=x, y=y),
        base.transform_filter("!datum.open")
        .mark_point(shape="stroke", angle=90, size=200, strokeWidth=2.5, color=INK, opacity=1)
        .encode(x=alt.X("high:Q", scale=scale), y=y),
        canvas.hover(rows, x, y),
    ]
    return canvas.finish(alt.layer(*layers), 26 * len(set(names)) + 6)


def landscape_chart(canvas: Canvas, points: list[Point]) -> Spec:
    """ε against utility with the frontier, and the density of each by category along the sides."""
    alt = canvas.alt
    groups = list(dict.fromkeys(p.group for p in points))
    x_domain = _span([end for p in points for end in (p.epsilon_low, p.epsilon_high)])
    y_domain = _span([end for p in points for end in (p.utility_low, p.utility_high)])
    main_width, side, height = (190, 56, 240) if canvas.phone else (535, 100, 340)
    ticks = alt.Axis(tickCount=4 if canvas.phone else 7, labelExpr="datum.value < 0 ? '' : datum.label")
    x = alt.X(
        "epsilon:Q",
        scale=alt.Scale(domain=x_domain, nice=False, zero=False),
        title=_axis(points),
        axis=ticks,
    )
    y = alt.Y(
        "utility:Q",
        scale=alt.Scale(domain=y_domain, nice=False, zero=False),
        title="utility (larger is better)",
        axis=alt.Axis(tickCount=6),
    )
    legend = alt.Legend(columns=1 if canvas.phone else 3, symbolOpacity=1) if len(groups) > 1 else None
    color = alt.Color("group:N", scale=alt.Scale(domain=groups, range=list(CATEGORIES[: len(groups)])), legend=legend)
    shape = alt.Shape("group:N", scale=alt.Scale(domain=groups, range=list(SHAPES[: len(groups)])), legend=legend)
    texts: Rows = [{**asdict(p), "text": _point_text(p)} for p in points]
    line = [asdict(p) for p in sorted((p for p in points if p.frontier), key=lambda p: p.epsilon)]
    base = canvas.chart(texts)
    layers = [
        canvas.chart(line)
        .mark_line(color=INK, strokeDash=[6, 3], strokeWidth=1.4)
        .encode(x=x, y=y, order=alt.Order("epsilon:Q")),
        base.mark_rule(opacity=0.6).encode(x=alt.X("epsilon_low:Q"), x2=alt.X2("epsilon_high:Q"), y=y, color=color),
        base.mark_rule(opacity=0.6).encode(x=x, y=alt.Y("utility_low:Q"), y2=alt.Y2("utility_high:Q"), color=color),
        base.transform_filter(f"datum.kind != '{LOWER}'")
        .mark_point(filled=True, size=85, opacity=1)
        .encode(x=x, y=y, color=color, shape=shape),
        base.transform_filter(f"datum.kind == '{LOWER}'")
        .mark_point(filled=False, size=85, opacity=1, strokeWidth=1.8)
        .encode(x=x, y=y, color=color, shape=shape),
    ]
    if any(p.kind == LOWER for p in points):  # the true ε lies anywhere between the bound and the right edge
        open_ended = [{**asdict(p), "edge": x_domain[1]} for p in points if p.kind == LOWER]
        arrow = canvas.chart(open_ended).mark_rule(strokeDash=[2, 3], opacity=0.7)
        layers.insert(0, arrow.encode(x=x, x2=alt.X2("edge:Q"), y=y, color=color))
    if len(points) <= NAMED_POINTS:
        for end in (False, True):  # names stay inside the picture: left of the points in the right half
            rows = [asdict(p) for p in points if (p.epsilon > sum(x_domain) / 2) == end]
            align = {"align": "right", "dx": -9} if end else {"align": "left", "dx": 9}
            text = canvas.chart(rows).mark_text(dy=-8, limit=main_width // 2, **align)
            layers.append(text.encode(x=x, y=y, text=alt.Text("name:N")))
    layers.append(canvas.hover(texts, x, y))
    dense = dense_groups(points)
    if not dense:
        return canvas.finish(alt.layer(*layers), height)
    main = alt.layer(*layers).properties(width=main_width, height=height)
    above = _marginal(canvas, points, dense, "epsilon", x_domain, color).properties(
        width=main_width, height=side // 2 + 10
    )
    beside = _marginal(canvas, points, dense, "utility", y_domain, color).properties(width=side, height=height)
    return canvas.finish(alt.vconcat(above, alt.hconcat(main, beside, spacing=6), spacing=4))


def _axis(points: list[Point]) -> str:
    """What the ε axis shows; only a guarantee or a value is better when smaller."""
    kinds = {p.kind for p in points}
    if kinds == {GUARANTEED}:
        return "ε guaranteed (smaller is better)"
    if kinds == {VALUE}:
        return "ε estimated"
    return "ε proven from below (no ranking)" if kinds == {LOWER} else "ε guaranteed; open marks: ε at least"


def dense_groups(points: list[Point]) -> list[str]:
    """The categories with enough points for a density."""
    groups = [p.group for p in points]
    return [g for g in dict.fromkeys(groups) if groups.count(g) >= FEWEST_FOR_DENSITY]


def _span(values: list[float]) -> list[float]:
    low, high = min(values), max(values)
    room = 0.06 * (high - low) or 0.1 * abs(high) or 0.1
    return [low - room, high + room]


def _marginal(canvas: Canvas, points: list[Point], groups: list[str], key: str, domain: list[float], color: Any) -> Any:
    """The kernel density of one quantity by category, along its axis."""
    alt = canvas.alt
    grid = np.linspace(domain[0], domain[1], GRID_POINTS)
    rows: Rows = []
    for group in groups:
        heights = density([getattr(p, key) for p in points if p.group == group], grid)
        heights = heights / heights.max()  # one narrow group would flatten all others
        rows += [{key: float(g), "density": float(h), "group": group} for g, h in zip(grid, heights, strict=True)]
    along = {"scale": alt.Scale(domain=domain, nice=False, zero=False), "axis": None}
    height = {"axis": None, "stack": None}
    if key == "epsilon":
        channels = {"x": alt.X(f"{key}:Q", **along), "y": alt.Y("density:Q", **height)}
        mark = {"orient": "vertical"}
    else:
        channels = {"y": alt.Y(f"{key}:Q", **along), "x": alt.X("density:Q", **height)}
        mark = {"orient": "horizontal"}
    return canvas.chart(rows).mark_area(opacity=0.3, **mark).encode(color=color, **channels)


def _point_text(p: Point) -> str:
    text = f"{p.name}: ε {epsilon(p.epsilon)} ({p.kind}), utility {p.utility:.4g}"
    if p.repeats > 1:
        text += (
            f" (means of {p.repeats}; ε {epsilon(p.epsilon_low)} to {epsilon(p.epsilon_high)}, "
            f"utility {p.utility_low:.4g} to {p.utility_high:.4g})"
        )
    return text + (", on the frontier" if p.frontier else "")


def known_of(audit: Audit) -> str:
    """Both ends of one ε in words."""
    lower, stated = facts.drawn(audit)
    if lower.validity.is_bound:
        low = f"proven ε ≥ {epsilon(lower.low)}"
    else:
        low = f"{facts.symbol(lower)} = {epsilon(lower.epsilon)} ({lower.validity}, not a bound)"
    top = "no guarantee" if stated is None else f"guaranteed ε ≤ {epsilon(stated.epsilon)}"
    act = whose(lower.neighbours, facts.unit(audit))
    return f"{low}, {top}" + (f", {act}" if act else "")
