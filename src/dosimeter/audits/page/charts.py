"""The charts of an audit as Vega-Lite specifications, made through Altair.

Every chart has a layer named "hover": invisible points that carry a text, shown as tooltip by Vega and by the page.
Data is cut to the axes beforehand, so nothing needs clipping.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dosimeter._validate import FloatArray
from dosimeter.accounting.region import comparable
from dosimeter.audits.kinds import page_of
from dosimeter.audits.page import facts
from dosimeter.audits.part import known
from dosimeter.audits.result import Audit
from dosimeter.report.canvas import Canvas, Rows, Spec, decades
from dosimeter.report.text import clean, epsilon, share, short, small, whose
from dosimeter.report.theme import ACCENT, GRID, INK, MEMBERS, MUTED, NONMEMBERS, OPEN, PAPER, WARNING, WIDE

ROC_POINTS = 240
STAR_POINTS = 400
MOST_SUBGROUPS = 25


def charts(audit: Audit, *, width: int = WIDE) -> dict[str, Spec]:
    """Vega-Lite specifications by name: region, roc, distributions, star, subgroups, and those of its kind.

    `width` is the full width in pixels; up to 420 the charts are laid out for a phone.
    """
    makers = {"region": region, "roc": roc, "distributions": distributions, "star": star, "subgroups": subgroups}
    if (kind := page_of(audit.metadata.kind)) is not None:
        makers |= kind.CHARTS
    found = {name: make(Canvas(width), audit) for name, make in makers.items()}
    return {name: chart for name, chart in found.items() if chart is not None}


def _floats(values: Any) -> FloatArray:
    """A list that may hold None (an infinite number in JSON) as floats, NaN for None."""
    return np.array(values, dtype=np.float64)


def region(canvas: Canvas, audit: Audit) -> Spec | None:
    """What the attack excludes from below, what each accountant excludes from above, and what is open between."""
    alt = canvas.alt
    lower, tight = facts.drawn(audit)
    uppers = facts.ordered(g for g in audit.upper if comparable(lower, g))
    if not uppers or not lower.validity.is_bound:
        return None
    low = lower.low
    finite = [g.epsilon for g in uppers if 0 < g.epsilon < math.inf] + [v for v in (low,) if 0 < v < math.inf]
    left = 10.0 ** math.floor(math.log10(min(finite, default=1.0) / 1.5))
    right = 10.0 ** math.ceil(math.log10(max(finite, default=1.0) * 1.5))

    def place(value: float) -> float:
        return min(max(value, left), right)

    attack = "attack" if canvas.phone else f"attack ({clean(lower.method)})"
    rows: Rows = [
        {
            "row": attack,
            "kind": "excluded by the attack",
            "at": place(low),
            "edge": left,
            "shown": epsilon(low),
            "text": f"The attack: ε ≥ {epsilon(low)} ({lower.validity})",
        }
    ]
    for g in uppers:
        proven = "excluded by a guarantee" if g.is_bound else "a formula, not proven"
        sign = "≤" if g.is_bound else "≈"
        note = "" if g.is_bound else ", not a proven bound"
        text = f"{clean(g.method)}: ε {sign} {epsilon(g.epsilon)}{note}"
        rows.append(
            {
                "row": clean(g.method),
                "kind": proven,
                "at": place(g.epsilon),
                "edge": right,
                "shown": epsilon(g.epsilon),
                "text": text,
            }
        )
    clash = facts.contradiction(lower, tight)
    between = "both claim this: a contradiction" if clash else "nothing is known in between"
    kinds = ["excluded by the attack", between, "excluded by a guarantee", "a formula, not proven"]
    scale = alt.Scale(type="log", domain=[left, right], nice=False)
    x = alt.X(
        "at:Q",
        scale=scale,
        title=f"ε {whose(lower.neighbours, facts.unit(audit))} (logarithmic)",
        axis=alt.Axis(values=decades(left, right), format="~g", grid=True),
    )
    y = alt.Y("row:N", sort=None, title=None, axis=alt.Axis(ticks=False, domain=False, labelColor=INK, labelLimit=170))
    color = alt.Color(
        "kind:N",
        scale=alt.Scale(domain=kinds, range=[ACCENT, WARNING if clash else OPEN, INK, MUTED]),
        legend=alt.Legend(symbolType="square", columns=1 if canvas.phone else 2, symbolOpacity=1),
    )
    base = canvas.chart(rows)
    # A number stands at the open end of its bar: right of the attack's, left of a guarantee's.
    layers = [
        base.mark_bar(height=9, opacity=0.75)
        .encode(x=x, x2="edge:Q", y=y, color=color)
        .transform_filter("datum.kind != 'a formula, not proven'"),
        base.mark_bar(height=1.5, opacity=0.8)
        .encode(x=x, x2="edge:Q", y=y, color=color)
        .transform_filter("datum.kind == 'a formula, not proven'"),
        base.mark_text(align="left", dx=6)
        .encode(x=x, y=y, text="shown:N")
        .transform_filter("datum.kind == 'excluded by the attack'"),
        base.mark_text(align="right", dx=-6)
        .encode(x=x, y=y, text="shown:N")
        .transform_filter("datum.kind != 'excluded by the attack'"),
        canvas.hover(rows, x, y),
    ]
    if tight is not None and tight.epsilon < math.inf:
        ends = sorted((place(low), place(tight.epsilon)))
        box = canvas.chart([{"from": ends[0], "to": ends[1], "kind": between}])
        band = box.mark_rect(opacity=0.3 if clash else 1)
        layers.insert(0, band.encode(x=alt.X("from:Q", scale=scale), x2="to:Q", color=color))
    return canvas.finish(alt.layer(*layers), 22 * len(rows) + 4)


def roc(canvas: Canvas, audit: Audit) -> Spec | None:
    """ROC on log axes: measured, its simultaneous lower limit, chance, and what the guarantee allows."""
    alt = canvas.alt
    lines = facts.roc_lines(audit, ROC_POINTS)
    if lines is None:
        return None
    grid, tpr, low, x_min, y_min = lines.fpr, lines.tpr, lines.tpr_low, lines.x_min, lines.y_min
    measured, limit, chance, allowed = "this attack", "true curve above this", "guessing", "allowed by the guarantee"
    tight = facts.guarantee(audit)
    sure = share(audit.headline.confidence)
    area = [
        {"x": float(x), "high": float(max(t, y_min)), "low": float(max(b, y_min))}
        for x, t, b in zip(grid, tpr, low, strict=True)
    ]
    rows: Rows = [{"x": r["x"], "y": r["high"], "what": measured} for r in area if r["high"] > y_min]
    rows += [{"x": r["x"], "y": r["low"], "what": limit} for r in area if r["low"] > y_min]
    first = max(x_min, y_min)
    rows += [{"x": float(v), "y": float(v), "what": chance} for v in np.geomspace(first, 1, 9)]
    names, dashes, colors = [measured, limit, chance], [[1, 0], [5, 3], [1, 3]], [ACCENT, ACCENT, MUTED]
    if tight is not None and tight.epsilon < math.inf:
        most = facts.most_tpr(grid, tight.epsilon, tight.delta)
        rows += [{"x": float(x), "y": float(y), "what": allowed} for x, y in zip(grid, most, strict=True) if y >= y_min]
        names, dashes, colors = [*names, allowed], [*dashes, [9, 4]], [*colors, INK]
    marks: Rows = [
        {
            "x": p.fpr,
            "y": p.tpr,
            "text": f"At FPR {share(p.fpr)} the attack finds {share(p.tpr)} of the members"
            + ("" if (b := p.limit) is None else f" (truly at least {share(b)}, {sure}, this FPR alone)"),
        }
        for p in facts.tpr_points(audit)
        if p.tpr >= y_min and p.fpr >= x_min
    ]
    texts: Rows = [
        {
            "x": r["x"],
            "y": r["high"],
            "text": f"FPR {share(r['x'])}: TPR {share(float(t))}, true TPR at least {share(float(b))} "
            f"({sure}, all thresholds)",
        }
        for r, t, b in zip(area, tpr, low, strict=True)
    ]

    def axis(low: float) -> Any:
        return alt.Axis(values=decades(low, 1.0), format="~%", grid=True)

    x = alt.X(
        "x:Q",
        scale=alt.Scale(type="log", domain=[x_min, 1], nice=False),
        title="false-positive rate (logarithmic)",
        axis=axis(x_min),
    )
    y = alt.Y(
        "y:Q",
        scale=alt.Scale(type="log", domain=[y_min, 1], nice=False),
        title="true-positive rate (logarithmic)",
        axis=axis(y_min),
    )
    legend = alt.Legend(symbolType="stroke", columns=1 if canvas.phone else len(names), symbolSize=360)
    layers = [
        canvas.chart(area)
        .mark_area(interpolate="step-after", color=ACCENT, opacity=0.13)
        .encode(x=x, y=alt.Y("low:Q"), y2="high:Q"),
        canvas.chart(rows)
        .mark_line(interpolate="linear", strokeWidth=1.8)
        .encode(
            x=x,
            y=y,
            color=alt.Color("what:N", scale=alt.Scale(domain=names, range=colors), legend=legend),
            strokeDash=alt.StrokeDash("what:N", scale=alt.Scale(domain=names, range=dashes), legend=legend),
        ),
        canvas.chart(marks)
        .mark_point(filled=True, size=55, color=ACCENT, opacity=1, stroke=PAPER, strokeWidth=1.2)
        .encode(x=x, y=y),
        canvas.hover(sorted(texts + marks, key=lambda r: r["x"]), x, y),
    ]
    return canvas.finish(alt.layer(*layers), 280 if canvas.phone else 400)


def distributions(canvas: Canvas, audit: Audit) -> Spec | None:
    """Densities of the members' and the non-members' losses."""
    alt = canvas.alt
    bins = audit.distributions
    if bins is None:
        return None
    edges, name = _floats(bins.edges), short(bins.name)
    groups = {"members": _floats(bins.members), "non-members": _floats(bins.nonmembers)}
    rows: Rows = []
    for group, heights in groups.items():
        steps = np.append(heights, heights[-1])
        rows += [{"x": float(e), "y": float(h), "group": group} for e, h in zip(edges, steps, strict=True)]
    texts: Rows = [
        {
            "x": float((a + b) / 2),
            "y": float(max(m, n)),
            "text": f"{name} {a:.4g} to {b:.4g}: density {m:.3g} for members, {n:.3g} for non-members",
        }
        for a, b, m, n in zip(edges[:-1], edges[1:], *groups.values(), strict=True)
    ]
    domain = list(groups)
    scale = alt.Scale(domain=domain, range=[MEMBERS, NONMEMBERS])
    x = alt.X("x:Q", scale=alt.Scale(domain=[float(edges[0]), float(edges[-1])], nice=False), title=name)
    y = alt.Y("y:Q", title="density", axis=alt.Axis(tickCount=5), stack=None)
    base = canvas.chart(rows)
    legend = alt.Legend(symbolType="stroke", columns=2, symbolSize=360, symbolOpacity=1, symbolFillColor="transparent")
    color = alt.Color("group:N", scale=scale, legend=legend)
    layers = [
        base.mark_area(interpolate="step-after", opacity=0.2).encode(x=x, y=y, color=color),
        base.mark_line(interpolate="step-after", strokeWidth=1.8).encode(
            x=x,
            y=y,
            color=color,
            strokeDash=alt.StrokeDash("group:N", scale=alt.Scale(domain=domain, range=[[1, 0], [5, 3]]), legend=legend),
        ),
        canvas.hover(texts, x, y),
    ]
    return canvas.finish(alt.layer(*layers), 200 if canvas.phone else 260)


def star(canvas: Canvas, audit: Audit) -> Spec | None:
    """ε forced by the pair of rates at each threshold, with the supremum marked."""
    alt = canvas.alt
    line = facts.star(audit, STAR_POINTS)
    if line is None:
        return None
    fpr, fnr, eps, best = line.fpr, line.fnr, line.epsilon, line.best
    odds = np.log10(fpr / (1 - fpr))
    rows: Rows = [
        {"x": float(x), "y": float(e), "text": f"FPR {share(float(t))}, FNR {share(float(n))}: ε = {epsilon(float(e))}"}
        for x, t, n, e in zip(odds, fpr, fnr, eps, strict=True)
    ]
    low, high = float(odds.min()), float(odds.max())
    marks = [10.0**-k for k in range(6, 0, -1)] + [0.5] + [1 - 10.0**-k for k in range(1, 7)]
    ticks = [t for t in (math.log10(r / (1 - r)) for r in marks) if low - 0.05 <= t <= high + 0.05]
    x = alt.X(
        "x:Q",
        scale=alt.Scale(domain=[min([low, *ticks]), max([high, low + 1e-6, *ticks])], nice=False),
        title="false-positive rate of the threshold (log-odds)",
        axis=alt.Axis(values=ticks or [low], labelExpr="format(1 / (1 + pow(10, -datum.value)), '.4~%')"),
    )
    top = float(eps.max())
    y = alt.Y(
        "y:Q", title="ε forced", scale=alt.Scale(domain=[0, top * 1.15 or 1.0], nice=False), axis=alt.Axis(tickCount=5)
    )
    layers = [canvas.chart(rows).mark_line(strokeWidth=1.6, color=ACCENT).encode(x=x, y=y)]
    if best is not None:
        mark = {**rows[best], "label": f"largest: {epsilon(float(eps[best]))}"}
        right = mark["x"] > low + 0.6 * (high - low)
        point = canvas.chart([mark])
        layers += [
            point.mark_rule(color=MUTED, strokeDash=[2, 3]).encode(x=x),
            point.mark_point(shape="diamond", filled=True, size=130, color=WARNING, opacity=1).encode(x=x, y=y),
            point.mark_text(
                align="right" if right else "left", dx=-10 if right else 10, dy=-9, fontWeight="bold"
            ).encode(x=x, y=y, text="label:N"),
        ]
    layers.append(canvas.hover(rows, x, y))
    return canvas.finish(alt.layer(*layers), 200 if canvas.phone else 260)


def subgroups(canvas: Canvas, audit: Audit) -> Spec | None:
    """The bound of each subgroup; flagged ones by shape and colour."""
    alt = canvas.alt
    shown = sorted(audit.subgroups, key=lambda g: -known(g.epsilon))[:MOST_SUBGROUPS]
    if not shown:
        return None
    finite = [known(g.epsilon) for g in shown]
    top = max([v for v in [*finite, audit.headline.low] if v < math.inf] + [0.1]) * 1.12
    rows: Rows = []
    for group, eps in zip(shown, finite, strict=True):
        name = short(f"{group.group} = {group.value}")
        kind = "flagged: more exposed than the rest" if group.flagged else "not flagged"
        text = f"{name}: ε ≥ {epsilon(eps)}, p = {small(group.p_value)}, {kind}"
        rows.append({"row": name, "at": min(eps, top), "kind": kind, "text": text, "zero": 0})
    kinds = ["not flagged", "flagged: more exposed than the rest"]
    x = alt.X(
        "at:Q",
        title="ε proven for this group (lower bound)",
        scale=alt.Scale(domain=[0, top], nice=False),
        axis=alt.Axis(tickCount=5, grid=True),
    )
    y = alt.Y(
        "row:N",
        title=None,
        sort=None,
        axis=alt.Axis(ticks=False, domain=False, labelColor=INK, labelLimit=110 if canvas.phone else 220),
    )
    legend = alt.Legend(columns=1 if canvas.phone else 2)
    color = alt.Color("kind:N", scale=alt.Scale(domain=kinds, range=[ACCENT, WARNING]), legend=legend)
    shape = alt.Shape("kind:N", scale=alt.Scale(domain=kinds, range=["circle", "triangle-up"]), legend=legend)
    base = canvas.chart(rows)
    whole = canvas.chart([{"at": min(audit.headline.low, top)}])
    layers = [
        whole.mark_rule(color=MUTED, strokeDash=[4, 3]).encode(x=x),
        base.mark_rule(color=GRID, strokeWidth=1.5).encode(x=alt.X("zero:Q"), x2="at:Q", y=y),
        base.mark_point(filled=True, size=80, opacity=1).encode(x=x, y=y, color=color, shape=shape),
        canvas.hover(rows, x, y),
    ]
    return canvas.finish(alt.layer(*layers), 24 * len(rows) + 4)
