"""The figures, under the numbers that the paper gives them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import special, stats

from dosimeter.identifiability import advantage_from_mu
from dosimeter.report.canvas import CATEGORIES, INK, MUTED, NARROW, WIDE, Canvas

from .closed import classic_deviation, curves
from .pairs import Watched
from .trained import BELIEF, CLIP, STEPS, Cell, noise

Spec = dict[str, Any]


def _colours(canvas: Canvas, field: str, names: Sequence[str], **legend: Any) -> Any:
    alt = canvas.alt
    scale = alt.Scale(domain=list(names), range=list(CATEGORIES[: len(names)]))
    return alt.Color(f"{field}:N", sort=list(names), scale=scale, legend=alt.Legend(labelLimit=300, **legend))


def _densities(deviation: float) -> list[dict[str, Any]]:
    grid = np.linspace(-3 * deviation, 1 + 3 * deviation, 241)
    lines = {"M(D)": stats.norm.pdf(grid, 0, deviation), "M(D′)": stats.norm.pdf(grid, 1, deviation)}
    return [
        {"r": float(r), "value": float(v), "what": what}
        for what, values in lines.items()
        for r, v in zip(grid, values, strict=True)
    ]


def decision(deviation: float) -> Spec:
    """Figure 1: the two densities, and the two beliefs."""
    canvas = Canvas(NARROW)
    alt = canvas.alt
    dense = _densities(deviation)
    grid = np.array([row["r"] for row in dense if row["what"] == "M(D)"])
    in_d = special.expit((1 - 2 * grid) / (2 * deviation**2))
    beliefs = [
        {"r": float(r), "value": float(v), "what": what}
        for what, values in (("M(D)", in_d), ("M(D′)", 1 - in_d))
        for r, v in zip(grid, values, strict=True)
    ]
    x, color = alt.X("r:Q", title="result r"), _colours(canvas, "what", ("M(D)", "M(D′)"))
    panels = [
        canvas.chart(rows).mark_line(strokeWidth=2).encode(x=x, y=alt.Y("value:Q", title=title), color=color)
        for rows, title in ((dense, "density"), (beliefs, "belief"))
    ]
    rule = canvas.chart([{"r": 0.5}]).mark_rule(color=MUTED, strokeDash=[4, 3]).encode(x=x)
    return canvas.finish(alt.hconcat(*(alt.layer(p, rule).properties(width=300, height=190) for p in panels)))


def errors(epsilons: Sequence[float], delta: float) -> Spec:
    """Figure 2: where the adversary errs, for a weak and a strong guarantee."""
    canvas = Canvas(NARROW)
    alt = canvas.alt
    x, y = alt.X("r:Q", title="result r"), alt.Y("value:Q", title="density")
    panels = []
    for epsilon in epsilons:
        rows = _densities(classic_deviation(epsilon, delta))
        wrong = [row for row in rows if (row["what"] == "M(D)") == (row["r"] > 0.5)]
        color = _colours(canvas, "what", ("M(D)", "M(D′)"))
        lines = canvas.chart(rows).mark_line(strokeWidth=2).encode(x=x, y=y, color=color)
        areas = canvas.chart(wrong).mark_area(opacity=0.35).encode(x=x, y=y, color=color)
        panels.append(alt.layer(areas, lines).properties(width=300, height=190, title=f"ε = {epsilon:g}"))
    return canvas.finish(alt.hconcat(*panels))


def meaning(deltas: tuple[float, ...]) -> Spec:
    """Figure 3: the bound on the belief and the expected advantage against ε."""
    canvas = Canvas(WIDE)
    alt = canvas.alt
    rows = curves(deltas)
    names = list(dict.fromkeys(str(row["what"]) for row in rows))
    chart = canvas.chart(rows).mark_line(strokeWidth=2)
    chart = chart.encode(
        x=alt.X("epsilon:Q", title="ε"), y=alt.Y("value:Q", title=None), color=_colours(canvas, "what", names)
    )
    return canvas.finish(chart, 240)


def of_pairs(watched: Sequence[Watched]) -> Spec:
    """Figure 4: the medians of all steps for each pair, and the middle 90 % of the runs."""
    canvas = Canvas(WIDE)
    alt = canvas.alt
    order = [w.name for w in watched]
    dots = [
        {"pair": w.name, "value": float(v), "labels": "equal labels" if w.pair.same_label else "different labels"}
        for w in watched
        for v in w.median
    ]
    spans = [{"pair": w.name, "low": float(w.low.min()), "high": float(w.high.max())} for w in watched]
    x = alt.X("pair:N", sort=order, title=None, axis=alt.Axis(labelAngle=-20))
    y = alt.Y("value:Q", title="local sensitivity", scale=alt.Scale(domain=[0, 2 * CLIP]))
    color = _colours(canvas, "labels", ("equal labels", "different labels"))
    rules = canvas.chart(spans).mark_rule(color=MUTED).encode(x=x, y=alt.Y("low:Q"), y2="high:Q")
    ticks = canvas.chart(dots).mark_tick(thickness=2, size=26, orient="horizontal").encode(x=x, y=y, color=color)
    return canvas.finish(alt.layer(rules, ticks), 240)


def sensitivities(cells: Sequence[Cell]) -> Spec:
    """Figure 5: the median local sensitivity in each step of four ways, and the two global ones."""
    canvas = Canvas(WIDE)
    alt = canvas.alt
    rows = []
    for cell in cells:
        seen = cell.details.sensitivities
        assert seen is not None
        rows += [
            {"step": int(s), "value": float(v), "way": f"{cell.way.short}: local sensitivity"}
            for s, v in zip(seen.step, seen.median, strict=True)
        ]
    limits = [{"value": CLIP, "text": "global, unbounded"}, {"value": 2 * CLIP, "text": "global, bounded"}]
    names = list(dict.fromkeys(str(row["way"]) for row in rows))
    x, y = alt.X("step:Q", title="step"), alt.Y("value:Q", title="sensitivity")
    lines = (
        canvas.chart(rows).mark_line(strokeWidth=2).encode(x=x, y=y, color=_colours(canvas, "way", names, columns=2))
    )
    rules = canvas.chart(limits).mark_rule(color=INK, strokeDash=[5, 3]).encode(y=y)
    texts = canvas.chart([{**row, "step": STEPS} for row in limits])
    named = texts.mark_text(align="right", dy=-6, color=INK).encode(x=x, y=y, text="text:N")
    return canvas.finish(alt.layer(lines, rules, named), 260)


def in_truth(cell: Cell) -> tuple[np.ndarray, np.ndarray]:
    """The shares of runs by their final belief in the data set that they were trained on: bin centres and shares."""
    final = cell.details.final
    assert final is not None and final.on_d is not None and final.on_d_prime is not None
    weight = cell.audit.metadata["trained_on_d"] / cell.runs
    shares = weight * np.array(final.on_d) + (1 - weight) * np.array(final.on_d_prime)[::-1]
    edges = np.array(final.edges)
    return (edges[1:] + edges[:-1]) / 2, shares


def beliefs(cells: Sequence[Cell]) -> Spec:
    """Figure 6, panels a to c: the final beliefs in the truth of four ways."""
    canvas = Canvas(WIDE)
    alt = canvas.alt
    rows = [
        {"belief": float(b), "share": float(s), "way": cell.way.short}
        for cell in cells
        for b, s in zip(*in_truth(cell), strict=True)
    ]
    x = alt.X("belief:Q", title="final belief in the truth", scale=alt.Scale(domain=[0, 1]))
    y = alt.Y("share:Q", title="share of the runs")
    names = [cell.way.short for cell in cells]
    lines = canvas.chart(rows).mark_line(strokeWidth=2).encode(x=x, y=y, color=_colours(canvas, "way", names))
    rule = canvas.chart([{"belief": BELIEF}]).mark_rule(color=INK, strokeDash=[5, 3]).encode(x=x)
    return canvas.finish(alt.layer(lines, rule), 240)


def accuracies(values: dict[str, float]) -> Spec:
    """Figure 6d: the mean test accuracy of four ways, and without noise."""
    canvas = Canvas(WIDE)
    alt = canvas.alt
    rows = [{"way": way, "accuracy": value} for way, value in values.items()]
    x = alt.X("way:N", sort=list(values), title=None, axis=alt.Axis(labelAngle=0))
    y = alt.Y("accuracy:Q", title="test accuracy", scale=alt.Scale(domain=[0, 1]))
    return canvas.finish(canvas.chart(rows).mark_bar(color=CATEGORIES[0], size=36).encode(x=x, y=y), 220)


def targets(cells: Sequence[Cell]) -> Spec:
    """Figures 7 to 9: ε′ in three ways against ε, and both adversaries' advantages."""
    canvas = Canvas(NARROW)
    alt = canvas.alt
    ways = {"a: sensitivities": "by_sensitivities", "b: largest belief": "by_beliefs", "c: advantage": "by_advantage"}
    kinds = ("LS", "GS", "target")
    color = _colours(canvas, "kind", kinds)
    x = alt.X("epsilon:Q", title="target ε")
    panels = []
    for title, name in ways.items():
        rows = [{"epsilon": c.epsilon, "value": float(getattr(c, name)), "kind": c.way.short.split()[0]} for c in cells]
        rows += [{"epsilon": c.epsilon, "value": c.epsilon, "kind": "target"} for c in cells if c.way.scale == "local"]
        panels.append(_line(canvas, rows, x, "ε′", color, title))
    rows = []
    for cell in cells:
        yeom = cell.details.yeom
        assert yeom is not None
        kind = cell.way.short.split()[0]
        rows.append({"epsilon": cell.epsilon, "value": cell.advantage, "kind": f"DP adversary, {kind}"})
        rows.append({"epsilon": cell.epsilon, "value": yeom.advantage, "kind": f"loss adversary, {kind}"})
        if cell.way.scale == "local":
            mu = STEPS**0.5 / noise(cell.way.belief, cell.delta)
            rows.append({"epsilon": cell.epsilon, "value": float(advantage_from_mu(mu)), "kind": "at most, this noise"})
    names = list(dict.fromkeys(str(row["kind"]) for row in rows))
    panels.append(_line(canvas, rows, x, "advantage", _colours(canvas, "kind", names, columns=2), "d: adversaries"))
    chart = alt.concat(*panels, columns=2).resolve_scale(color="independent")
    return canvas.finish(chart)


def _line(canvas: Canvas, rows: list[dict[str, Any]], x: Any, title: str, color: Any, name: str) -> Any:
    y = canvas.alt.Y("value:Q", title=title)
    chart = canvas.chart(rows).mark_line(point=True, strokeWidth=1.6).encode(x=x, y=y, color=color)
    return chart.properties(width=290, height=190, title=name)
