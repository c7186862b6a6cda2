"""The figures, drawn with Altair as the reports are."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dosimeter import Counts
from dosimeter.geometry import boundary
from dosimeter.report.canvas import ACCENT, CATEGORIES, INK, MEMBERS, MUTED, NARROW, WIDE, Canvas

from . import widths

NAMES = {"joint": "joint posterior", "jeffreys": "Jeffreys", "clopper_pearson": "Clopper–Pearson"}
Spec = dict[str, Any]


def posterior(cells: Counts, ends: dict[str, tuple[float, float]]) -> Spec:
    """Figure 1: the posterior density of ε, and the intervals of the three methods below it."""
    canvas = Canvas(WIDE)
    alt = canvas.alt
    top = 1.2 * max(high for _, high in ends.values() if math.isfinite(high))
    grid = np.linspace(0.0, top, 401)
    curve = widths.density(grid, cells, widths.DELTA)["density"]
    rows = [{"epsilon": float(e), "density": float(d)} for e, d in zip(grid, curve, strict=True)]
    step = 0.09 * float(curve.max())
    bars = [
        {"epsilon": low, "high": min(high, top), "density": -step * (at + 1), "name": NAMES[name]}
        for at, (name, (low, high)) in enumerate(ends.items())
    ]
    x = alt.X("epsilon:Q", title="ε", scale=alt.Scale(domain=[0, top], nice=False))
    y = alt.Y("density:Q", title="density")
    area = canvas.chart(rows).mark_area(color=ACCENT, opacity=0.25, line={"color": ACCENT}).encode(x=x, y=y)
    base = canvas.chart(bars)
    spans = base.mark_rule(strokeWidth=4, color=MEMBERS).encode(x=x, x2="high:Q", y=y)
    texts = base.mark_text(align="left", dx=6).encode(x="high:Q", y=y, text="name:N")
    return canvas.finish(alt.layer(area, spans, texts), 260)


def regions() -> Spec:
    """Figure 2: which pairs of error rates (ε, δ)-DP allows."""
    canvas = Canvas(NARROW + 90)
    alt = canvas.alt
    xs = np.linspace(0, 1, 201)
    rows = []
    for epsilon in (0.0, 0.5, 1.0, 2.0, 4.0):
        lowest, highest = boundary(xs, epsilon, widths.EXAMPLE_DELTA)
        for side, ys in (("lower", lowest), ("upper", highest)):
            pairs = zip(xs, ys, strict=True)
            rows += [{"fnr": float(a), "fpr": float(b), "side": side, "name": f"ε = {epsilon:g}"} for a, b in pairs]
    return canvas.finish(_curves(canvas, rows, alt.Detail("side:N")), 380)


def _curves(canvas: Canvas, rows: list[dict[str, Any]], detail: Any) -> Any:
    alt = canvas.alt
    color = alt.Color("name:N", scale=alt.Scale(range=list(CATEGORIES[:5])))
    x, y = _rates(canvas)
    return canvas.chart(rows).mark_line(strokeWidth=1.8).encode(x=x, y=y, color=color, detail=detail)


def _rates(canvas: Canvas) -> tuple[Any, Any]:
    alt = canvas.alt
    unit = alt.Scale(domain=[0, 1], nice=False)
    return alt.X("fnr:Q", title="false-negative rate", scale=unit), alt.Y("fpr:Q", title="FPR", scale=unit)


def rectangle() -> Spec:
    """Figure 3: draws from the joint posterior, the regions of the joint interval, and Jeffreys' rectangle."""
    canvas = Canvas(NARROW + 90)
    alt = canvas.alt
    rng, cells, found = np.random.default_rng(0), widths.EXAMPLE, widths.covered()
    fnr = rng.beta(cells.fn + 0.5, cells.tp + 0.5, 1500)
    fpr = rng.beta(cells.fp + 0.5, cells.tn + 0.5, 1500)
    dots = [{"fnr": float(a), "fpr": float(b)} for a, b in zip(fnr, fpr, strict=True)]
    lines = []
    for epsilon in widths.worked_example()["joint"]:
        xs = np.linspace(0, 1, 201)
        lowest, _ = boundary(xs, epsilon, widths.EXAMPLE_DELTA)
        pairs = zip(xs, lowest, strict=True)
        lines += [{"fnr": float(a), "fpr": float(b), "name": f"ε = {epsilon:.3f}"} for a, b in pairs]
    box = {"fnr": found.fnr[0], "fnr2": found.fnr[1], "fpr": found.fpr[0], "fpr2": found.fpr[1]}
    x, y = _rates(canvas)
    color = alt.Color("name:N", scale=alt.Scale(range=[INK, MEMBERS]))
    layers = [
        canvas.chart(dots).mark_point(filled=True, size=6, color=ACCENT, opacity=0.35).encode(x=x, y=y),
        canvas.chart([box]).mark_rect(fillOpacity=0, stroke=MUTED).encode(x=x, x2="fnr2:Q", y=y, y2="fpr2:Q"),
        canvas.chart(lines).mark_line(strokeWidth=1.8).encode(x=x, y=y, color=color),
    ]
    return canvas.finish(alt.layer(*layers), 380)


def samples() -> Spec:
    """Figure 4: ends of the intervals against the number of samples."""
    canvas = Canvas(WIDE)
    alt = canvas.alt
    rows = [
        {"samples": row["samples"], "end": row[end], "side": end, "method": NAMES[row["method"]]}
        for row in widths.against_samples()
        for end in ("low", "high")
    ]
    color = alt.Color("method:N", scale=alt.Scale(domain=list(NAMES.values()), range=list(CATEGORIES[:3])))
    x = alt.X("samples:Q", scale=alt.Scale(type="log", nice=False), axis=alt.Axis(values=list(widths.SAMPLES)))
    y = alt.Y("end:Q", title="ends of the 90 % interval for ε")
    lines = canvas.chart(rows).mark_line(point=True).encode(x=x, y=y, color=color, detail="side:N")
    return canvas.finish(lines, 300)


def rates(rows: list[dict[str, float]]) -> Spec:
    """Figure 5: the joint interval's width over both error rates, and how much narrower it is than the others."""
    canvas = Canvas(NARROW)
    alt = canvas.alt
    shown = [row for row in rows if round(row["fnr"] * 20, 6) % 1 == 0 and round(row["fpr"] * 20, 6) % 1 == 0]
    cells = canvas.chart([{k: v if math.isfinite(v) else None for k, v in row.items()} for row in shown])
    ticks = alt.Axis(values=[0, 0.2, 0.4, 0.6, 0.8, 1])
    axes = {
        "x": alt.X("fpr:O", title="false-positive rate", axis=ticks),
        "y": alt.Y("fnr:O", sort="descending", title="FNR", axis=ticks),
    }

    def heat(field: str, title: str, form: str) -> Any:
        legend = alt.Legend(title=title, format=form, gradientLength=180)
        color = alt.Color(f"{field}:Q", scale=alt.Scale(scheme="blues"), legend=legend)
        return cells.mark_rect().encode(**axes, color=color).properties(width=210, height=210)

    charts = (
        heat("joint", "width, joint", ".1f"),
        heat("than_jeffreys", "than Jeffreys", ".0%"),
        heat("than_clopper_pearson", "than Clopper–Pearson", ".0%"),
    )
    return canvas.finish(alt.hconcat(*charts).resolve_scale(color="independent"))


def growing() -> Spec:
    """Figure 7: the region between the ends of the joint interval, for more and more trials."""
    canvas = Canvas(NARROW)
    alt = canvas.alt
    xs = np.linspace(0, 1, 201)
    rows = []
    for found in widths.growing():
        inner, outer = (boundary(xs, found[end], widths.EXAMPLE_DELTA)[0] for end in ("low", "high"))
        name = f"{found['trials']:.0f} trials"
        rows += [
            {"fnr": float(a), "fpr": float(c), "above": float(b), "trials": name}
            for a, b, c in zip(xs, inner, outer, strict=True)
        ]
    x, y = _rates(canvas)
    area = canvas.alt.Chart().mark_area(opacity=0.5, color=ACCENT).encode(x=x, y=y, y2="above:Q")
    order = [f"{trials} trials" for trials in widths.GROWING]
    facets = area.properties(width=150, height=150).facet(
        column=alt.Column("trials:N", sort=order, title=None), data=canvas.chart(rows).data
    )
    return canvas.finish(facets)


def of_targets(spans: dict[str, dict[str, tuple[float, float]]]) -> Spec:
    """The intervals of every target, side by side: both ends by method and target."""
    rows = [
        {"target": target, "method": method, "low": low, "high": high}
        for target, own in spans.items()
        for method, (low, high) in own.items()
    ]
    top = 1.1 * max(value for row in rows for value in (row["low"], row["high"]) if math.isfinite(value))
    rows = [{**row, "high": min(row["high"], top)} for row in rows]
    canvas = Canvas(WIDE)
    alt = canvas.alt
    order = list(dict.fromkeys(row["method"] for row in rows))
    x = alt.X("low:Q", title="ε at δ = 1e-5", scale=alt.Scale(domain=[0, top], nice=False))
    y = alt.Y("method:N", sort=order, title=None)
    color = alt.Color("method:N", sort=order, scale=alt.Scale(domain=order, range=list(CATEGORIES[:4])), legend=None)
    bars = alt.Chart().mark_bar(height=8).encode(x=x, x2="high:Q", y=y, color=color).properties(width=440, height=84)
    facets = bars.facet(row=alt.Row("target:N", sort=list(spans), title=None), data=canvas.chart(rows).data)
    return canvas.finish(facets)
