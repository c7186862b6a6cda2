"""The figures, drawn with Altair as the reports are."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from dosimeter import Audit
from dosimeter.geometry import boundary
from dosimeter.report.canvas import Canvas
from dosimeter.report.theme import ACCENT, CATEGORIES, INK, MEMBERS, MUTED, NARROW, WIDE

from ..shared import write_svg
from . import widths

NAMES = {"joint": "joint posterior", "jeffreys": "Jeffreys", "clopper_pearson": "Clopper–Pearson"}


def of_example(folder: Path) -> dict[str, str]:
    """Figures 1 to 3: the posterior of ε, and the joint posterior of the rates with regions of privacy."""
    return {
        write_svg(folder, "posterior.svg", _posterior()): (
            "Figure 1, worked example (FN 35, TP 65, FP 25, TN 75, δ = 0.05): the posterior density of ε, and the 95 % "
            "intervals of the three methods below it. The density integrates to 1; the paper's Eq. (12) lacks the "
            "arc-length factor and integrates to 0.889."
        ),
        write_svg(folder, "region.svg", _region()): (
            "Figures 2 and 3, worked example: draws from the joint posterior of both error rates, and the regions that "
            "(ε, δ)-DP allows for the ends of the joint interval. 2.5 % of the mass lies within the inner one, 97.5 % "
            "within the outer one. The rectangle is what two separate Clopper–Pearson intervals give."
        ),
    }


def _posterior() -> dict[str, Any]:
    canvas = Canvas(WIDE)
    alt = canvas.alt
    grid = np.linspace(0.0, 2.0, 401)
    found = widths.density(grid)
    rows = [{"epsilon": float(e), "density": float(d)} for e, d in zip(grid, found["density"], strict=True)]
    ends = widths.numbers()
    places = {name: -0.18 * (k + 1) for k, name in enumerate(NAMES)}
    bars = [
        {
            "epsilon": ends[f"worked_example.{name}.low"],
            "high": ends[f"worked_example.{name}.high"],
            "density": places[name],
            "name": NAMES[name],
        }
        for name in NAMES
    ]
    x = alt.X("epsilon:Q", title="ε", scale=alt.Scale(domain=[0, 2], nice=False))
    y = alt.Y("density:Q", title="density", axis=alt.Axis(values=[0, 0.5, 1, 1.5, 2]))
    area = canvas.chart(rows).mark_area(color=ACCENT, opacity=0.25, line={"color": ACCENT}).encode(x=x, y=y)
    base = canvas.chart(bars)
    spans = base.mark_rule(strokeWidth=4, color=MEMBERS).encode(x=x, x2="high:Q", y=y)
    texts = base.mark_text(align="left", dx=6).encode(x="high:Q", y=y, text="name:N")
    return canvas.finish(alt.layer(area, spans, texts), 260)


def _region() -> dict[str, Any]:
    canvas = Canvas(NARROW + 90)
    alt = canvas.alt
    rng = np.random.default_rng(0)
    cells = widths.EXAMPLE
    fnr = rng.beta(cells.fn + 0.5, cells.tp + 0.5, 1500)
    fpr = rng.beta(cells.fp + 0.5, cells.tn + 0.5, 1500)
    dots = [{"fnr": float(a), "fpr": float(b)} for a, b in zip(fnr, fpr, strict=True)]
    ends = widths.numbers()
    lines = []
    for end in ("low", "high"):
        epsilon = ends[f"worked_example.joint.{end}"]
        xs = np.linspace(0, 1, 201)
        lowest, _ = boundary(xs, epsilon, widths.EXAMPLE_DELTA)
        lines += [
            {"fnr": float(a), "fpr": float(b), "name": f"ε = {epsilon:.3f}"} for a, b in zip(xs, lowest, strict=True)
        ]
    box = _rectangle()
    x = alt.X("fnr:Q", title="false-negative rate", scale=alt.Scale(domain=[0, 1], nice=False))
    y = alt.Y("fpr:Q", title="false-positive rate", scale=alt.Scale(domain=[0, 1], nice=False))
    color = alt.Color("name:N", scale=alt.Scale(range=[INK, MEMBERS]))
    layers = [
        canvas.chart(dots).mark_point(filled=True, size=6, color=ACCENT, opacity=0.35).encode(x=x, y=y),
        canvas.chart([box]).mark_rect(fillOpacity=0, stroke=MUTED).encode(x=x, x2="fnr2:Q", y=y, y2="fpr2:Q"),
        canvas.chart(lines).mark_line(strokeWidth=1.8).encode(x=x, y=y, color=color),
    ]
    return canvas.finish(alt.layer(*layers), 380)


def _rectangle() -> dict[str, float]:
    """Both Clopper–Pearson intervals of the rates, each at half of the level."""
    from dosimeter.estimators.rates import clopper_pearson_limits, rectangle

    cells = widths.EXAMPLE
    fpr, fnr = rectangle(cells.fn, cells.tp, cells.fp, cells.tn, 1 - widths.CONFIDENCE, "both", clopper_pearson_limits)
    return {"fnr": float(fnr[0]), "fnr2": float(fnr[1]), "fpr": float(fpr[0]), "fpr2": float(fpr[1])}


def of_widths(folder: Path) -> dict[str, str]:
    """Figures 4, 5 and 7: widths against samples, and over the rates."""
    rows = [{**row, "method": NAMES[row["method"]]} for row in widths.against_samples()]
    canvas = Canvas(WIDE)
    alt = canvas.alt
    color = alt.Color("method:N", scale=alt.Scale(domain=list(NAMES.values()), range=list(CATEGORIES[:3])))
    log = alt.Scale(type="log", nice=False)
    x = alt.X("samples:Q", scale=log, title="samples", axis=alt.Axis(values=list(widths.SAMPLES)))
    y = alt.Y("width:Q", scale=alt.Scale(type="log"), title="width of the 95 % interval")
    lines = canvas.chart(rows).mark_line(point=True).encode(x=x, y=y, color=color)
    needed = widths.samples_for_width(0.35, 0.25, widths.EXAMPLE_DELTA)
    found = {
        write_svg(folder, "samples.svg", canvas.finish(lines, 260)): (
            "Figures 4 and 5: width of the interval for ε against the number of samples, at the rates of the worked "
            f"example. Clopper–Pearson needs {needed:.0f} samples to be as narrow as the joint posterior after 500."
        )
    }
    canvas = Canvas(NARROW)
    alt = canvas.alt
    cells = canvas.chart(widths.over_rates())
    axes = {"x": alt.X("fpr:O", title="false-positive rate"), "y": alt.Y("fnr:O", sort="descending", title="FNR")}

    def heat(field: str, title: str, form: str) -> Any:
        legend = alt.Legend(title=title, format=form, gradientLength=200)
        color = alt.Color(f"{field}:Q", scale=alt.Scale(scheme="blues"), legend=legend)
        return cells.mark_rect().encode(**axes, color=color).properties(width=260, height=260)

    both = alt.hconcat(heat("joint", "width, joint", ".1f"), heat("narrower", "narrower than Clopper–Pearson", ".0%"))
    shares = [row["narrower"] for row in widths.over_rates()]
    found[write_svg(folder, "rates.svg", canvas.finish(both.resolve_scale(color="independent")))] = (
        f"Figure 7: the joint interval's width over both error rates ({widths.GRID_SAMPLES} samples, δ = 1e-5, 95 %), "
        f"and how much narrower it is than Clopper–Pearson's: {min(shares):.0%} to {max(shares):.0%}. Part of that is "
        "coverage given up: credible is not confidence."
    )
    return found


def of_trainings(folder: Path, audits: dict[str, Audit]) -> dict[str, str]:
    """The intervals of every target, side by side."""
    rows = []
    methods = {"clopper-pearson": "Clopper–Pearson", "jeffreys": "Jeffreys", "bayesian": "joint posterior"}
    for name, audit in audits.items():
        for estimate in audit.estimates:
            if estimate.method in methods:
                span = {"low": estimate.low, "high": estimate.high}
                rows.append({"target": name, "method": methods[estimate.method], **span})
        rows.append({"target": name, "method": "headline", "low": audit.headline.low, "high": math.inf})
    top = 1.1 * max(value for row in rows for value in (row["low"], row["high"]) if math.isfinite(value))
    rows = [{**row, "high": min(row["high"], top)} for row in rows]
    canvas = Canvas(WIDE)
    alt = canvas.alt
    order = ["headline", *methods.values()]
    x = alt.X("low:Q", title="ε at δ = 1e-5", scale=alt.Scale(domain=[0, top], nice=False))
    y = alt.Y("method:N", sort=order, title=None)
    color = alt.Color("method:N", sort=order, scale=alt.Scale(domain=order, range=list(CATEGORIES[:4])), legend=None)
    bars = alt.Chart().mark_bar(height=8).encode(x=x, x2="high:Q", y=y, color=color).properties(width=440, height=84)
    facets = bars.facet(row=alt.Row("target:N", sort=list(audits), title=None), data=canvas.chart(rows).data)
    spec = canvas.finish(facets)
    return {
        write_svg(folder, "trainings.svg", spec): (
            "Intervals for each target at the threshold that shadow models fixed, and the headline, which is a lower "
            "bound over all thresholds. A bar that reaches the right edge has no upper end. Clopper–Pearson's "
            "intervals hold at their level; Jeffreys' and the joint posterior's are credible, which is less."
        )
    }
