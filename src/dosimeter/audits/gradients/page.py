"""What an audit of gradients shows: the adversary's belief, the sensitivities, and ε′ beside the target."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from dosimeter.audits.page import facts
from dosimeter.audits.result import Audit
from dosimeter.estimate import percent
from dosimeter.report.canvas import Canvas, Rows
from dosimeter.report.draw import Drawing
from dosimeter.report.markup import paragraph, section, table
from dosimeter.report.shell import figure
from dosimeter.report.text import epsilon, share, short, small
from dosimeter.report.theme import ACCENT, INK, MEMBERS, MUTED, NONMEMBERS, WARNING

ON_D, ON_OTHER = "trained on D", "trained on D′"
WORLDS = ((ON_D, "on_d"), (ON_OTHER, "on_d_prime"))


def _worlds(found: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [(name, found[key]) for name, key in WORLDS if found.get(key) is not None]


def _colors(canvas: Canvas, names: list[str]) -> tuple[Any, Any]:
    """Colour and dashes by world, with one legend."""
    alt = canvas.alt
    legend = alt.Legend(symbolType="stroke", columns=2, symbolSize=360, symbolOpacity=1, symbolFillColor="transparent")
    colors = dict(zip((ON_D, ON_OTHER), (MEMBERS, NONMEMBERS), strict=True))
    dashes = dict(zip((ON_D, ON_OTHER), ([1, 0], [5, 3]), strict=True))
    color = alt.Color("world:N", scale=alt.Scale(domain=names, range=[colors[n] for n in names]), legend=legend)
    dash = alt.StrokeDash("world:N", scale=alt.Scale(domain=names, range=[dashes[n] for n in names]), legend=legend)
    return color, dash


def beliefs(canvas: Canvas, audit: Audit) -> dict[str, Any] | None:
    """Beliefs in D over the steps: some runs, the median of each world, and the belief that the target allows."""
    alt = canvas.alt
    found = audit.details.get("trajectories")
    if not found:
        return None
    steps = [int(s) for s in found["step"]]
    rows: Rows = []
    for run, (path, on_d) in enumerate(zip(found["beliefs"], found["trained_on_d"], strict=True)):
        world = ON_D if on_d else ON_OTHER
        rows += [{"x": s, "y": float(b), "run": run, "world": world} for s, b in zip(steps, path, strict=True)]
    medians: Rows = []
    names = []
    for world, values in _worlds(found["median"]):
        names.append(world)
        medians += [
            {
                "x": s,
                "y": float(b),
                "world": world,
                "text": f"After step {s}, {world}: half of the runs believe in D with more than {share(float(b))}",
            }
            for s, b in zip(steps, values, strict=True)
        ]
    color, dash = _colors(canvas, names)
    x = alt.X(
        "x:Q", scale=alt.Scale(domain=[0, max(steps[-1], 1)], nice=False), title="step", axis=alt.Axis(tickMinStep=1)
    )
    y = alt.Y("y:Q", scale=alt.Scale(domain=[0, 1]), title="belief in D", axis=alt.Axis(format="~%", tickCount=5))
    layers = [
        canvas.chart(rows).mark_line(strokeWidth=0.8, opacity=0.3).encode(x=x, y=y, color=color, detail="run:N"),
        canvas.chart(medians).mark_line(strokeWidth=2.6).encode(x=x, y=y, color=color, strokeDash=dash),
        *_limit(canvas, audit, "y"),
        canvas.hover(medians, x, y),
    ]
    return canvas.finish(alt.layer(*layers), 220 if canvas.phone else 300)


def _limit(canvas: Canvas, audit: Audit, axis: str) -> list[Any]:
    """A thin line at the belief that the target ε stands for."""
    belief = (audit.details.get("target") or {}).get("belief")
    if belief is None:
        return []
    place = canvas.alt.Y("at:Q") if axis == "y" else canvas.alt.X("at:Q")
    return [canvas.chart([{"at": belief}]).mark_rule(color=MUTED, strokeDash=[2, 3]).encode(**{axis: place})]


def final_beliefs(canvas: Canvas, audit: Audit) -> dict[str, Any] | None:
    """The shares of runs by the belief after the last step."""
    alt = canvas.alt
    found = audit.details.get("final")
    if not found:
        return None
    edges = [float(e) for e in found["edges"]]
    groups = [(name, [float(v) for v in values]) for name, values in _worlds(found)]
    rows: Rows = []
    for world, heights in groups:
        rows += [{"x": e, "y": h, "world": world} for e, h in zip(edges, [*heights, heights[-1]], strict=True)]
    texts: Rows = []
    for at, (a, b) in enumerate(pairwise(edges)):
        told = ", ".join(f"{share(heights[at])} of the runs {world}" for world, heights in groups)
        texts.append(
            {"x": (a + b) / 2, "y": max(h[at] for _, h in groups), "text": f"Belief {share(a)} to {share(b)}: {told}"}
        )
    color, dash = _colors(canvas, [name for name, _ in groups])
    x = alt.X("x:Q", scale=alt.Scale(domain=[0, 1]), title="final belief in D", axis=alt.Axis(format="~%", tickCount=5))
    y = alt.Y("y:Q", title="share of runs", axis=alt.Axis(format="~%", tickCount=5), stack=None)
    base = canvas.chart(rows)
    layers = [
        base.mark_area(interpolate="step-after", opacity=0.18).encode(x=x, y=y, color=color),
        base.mark_line(interpolate="step-after", strokeWidth=1.8).encode(x=x, y=y, color=color, strokeDash=dash),
        *_limit(canvas, audit, "x"),
        canvas.hover(texts, x, y),
    ]
    return canvas.finish(alt.layer(*layers), 200 if canvas.phone else 260)


def sensitivities(canvas: Canvas, audit: Audit) -> dict[str, Any] | None:
    """Local sensitivity over the steps: median and the middle 90 % of the runs, below the global one."""
    alt = canvas.alt
    found = audit.details.get("sensitivities")
    if not found:
        return None
    steps = [int(s) for s in found["step"]]
    rows: Rows = [
        {
            "x": s,
            "y": float(m),
            "low": float(a),
            "high": float(b),
            "text": f"Step {s}: the median local sensitivity is {float(m):.4g}; nine of ten runs lie between "
            f"{float(a):.4g} and {float(b):.4g}",
        }
        for s, a, m, b in zip(steps, found["low"], found["median"], found["high"], strict=True)
    ]
    tops = [*(r["high"] for r in rows), found.get("global") or 0.0, 1e-9]
    x = alt.X("x:Q", scale=alt.Scale(domain=[1, max(steps[-1], 2)], nice=False), title="step")
    y = alt.Y(
        "y:Q",
        scale=alt.Scale(domain=[0, 1.1 * max(tops)], nice=False),
        title="distance of the clipped sums",
        axis=alt.Axis(tickCount=5),
    )
    layers = [
        canvas.chart(rows).mark_area(color=ACCENT, opacity=0.18).encode(x=x, y=alt.Y("low:Q"), y2="high:Q"),
        canvas.chart(rows).mark_line(color=ACCENT, strokeWidth=2).encode(x=x, y=y),
    ]
    if found.get("global") is not None:
        mark = canvas.chart([{"y": found["global"], "x": max(steps[-1], 2), "name": f"global: {found['global']:.4g}"}])
        layers += [
            mark.mark_rule(color=WARNING, strokeDash=[5, 3]).encode(y=y),
            mark.mark_text(align="right", dy=-9, color=WARNING).encode(x=x, y=y, text="name:N"),
        ]
    layers.append(canvas.hover(rows, x, y))
    return canvas.finish(alt.layer(*layers), 200 if canvas.phone else 260)


def epsilons(canvas: Canvas, audit: Audit) -> dict[str, Any] | None:
    """ε′ by each way with its interval, and the target."""
    alt = canvas.alt
    found = audit.details.get("epsilons")
    if not found:
        return None
    target = facts.known((audit.details.get("target") or {}).get("epsilon"))
    numbers = [facts.known(row[key]) for row in found for key in ("epsilon", "low", "high")] + [target]
    top = 1.12 * max([v for v in numbers if v < math.inf] + [0.1])
    rows: Rows = []
    for row in found:
        low, high, value = (facts.known(row[key]) for key in ("low", "high", "epsilon"))
        ends = f"{epsilon(low)} to {epsilon(high)}" if high < math.inf else f"{epsilon(low)} or more"
        rows.append(
            {
                "row": short(row["phone" if canvas.phone else "name"]),
                "at": min(value, top),
                "low": min(low, top),
                "high": min(high, top),
                "text": f"{short(row['name'])}: ε′ = {epsilon(value)} ({ends}; {short(row['validity'])})",
            }
        )
    x = alt.X("at:Q", title="ε", scale=alt.Scale(domain=[0, top], nice=False), axis=alt.Axis(tickCount=6, grid=True))
    y = alt.Y(
        "row:N",
        title=None,
        sort=None,
        axis=alt.Axis(ticks=False, domain=False, labelColor=INK, labelLimit=120 if canvas.phone else 260),
    )
    base = canvas.chart(rows)
    layers = [
        base.mark_rule(color=ACCENT, strokeWidth=3, opacity=0.45).encode(x=alt.X("low:Q"), x2="high:Q", y=y),
        base.mark_point(filled=True, size=80, opacity=1, color=ACCENT).encode(x=x, y=y),
        canvas.hover(rows, x, y),
    ]
    if target < math.inf:
        layers.insert(0, canvas.chart([{"at": target}]).mark_rule(color=WARNING, strokeDash=[5, 3]).encode(x=x))
    return canvas.finish(alt.layer(*layers), 26 * len(rows) + 8)


CHARTS = {
    "beliefs": beliefs,
    "final_beliefs": final_beliefs,
    "sensitivities": sensitivities,
    "epsilons": epsilons,
}


def sections(audit: Audit, pictures: Mapping[str, Mapping[str, Drawing]]) -> list[str]:
    """The adversary, the sensitivities, and ε′ beside the target."""
    return [_adversary(audit, pictures), _sensitivities(audit, pictures), _epsilons(audit, pictures), _others(audit)]


def _interval(found: Mapping[str, Any], name: str) -> str:
    low, high = found.get(f"{name}_low"), found.get(f"{name}_high")
    return "–" if low is None or high is None else f"{float(low):.3g} to {float(high):.3g}"


def _adversary(audit: Audit, pictures: Mapping[str, Mapping[str, Drawing]]) -> str:
    details = audit.details
    target, runs = details.get("target") or {}, audit.metadata.get("repetitions")
    body = paragraph(
        "The adversary knows D, D′, every setting and every noisy gradient; only which of the two data sets was used "
        "is hidden. Nobody who sees less can do better: this is the worst case that differential privacy speaks of."
    )
    body += paragraph(_difference(details.get("neighbour") or {}))
    ends = [
        f"{share(float(values[-1]))} when {world}"
        for world, values in _worlds((details.get("trajectories") or {}).get("median") or {})
    ]
    belief = target.get("belief")
    allowed = "" if belief is None else f" The dotted line is the belief {share(belief)} that the target ε stands for."
    body += figure(
        "beliefs",
        "Belief in D over the steps",
        f"Thin lines are {len((details.get('trajectories') or {}).get('run', ()))} of {runs} runs, thick ones the "
        f"medians, which end at {' and '.join(ends) or 'unknown'}.{allowed}",
        pictures,
    )
    body += figure("final_beliefs", "Belief after the last step", _final_caption(audit), pictures)
    found = details.get("advantage") or {}
    lines = []
    if found:
        lines.append(("advantage, from the trajectories", f"{found['trajectory']:.4g}", _interval(found, "trajectory")))
        lines.append(("advantage, from counted wins", f"{found['counting']:.4g}", _interval(found, "counting")))
        if found.get("expected") is not None:
            lines.append(("advantage at the full sensitivity, 2Φ(μ/2) − 1", f"{found['expected']:.4g}", "–"))
    shift = details.get("delta_prime") or {}
    if shift:
        lines.append(
            (f"δ′, share of runs with belief above {share(belief)}", f"{shift['share']:.4g}", _interval(shift, "share"))
        )
        lines.append(("δ′ expected from the trajectories", small(float(shift["expected"])), "–"))
    if lines:
        body += table(
            "How well the adversary tells D from D′",
            ("quantity", "value", f"{percent(audit.headline.confidence)} interval"),
            lines,
            numeric=(1, 2),
        )
    return section("adversary", "What the adversary comes to believe", body)


def _difference(neighbour: Mapping[str, Any]) -> str:
    removed, added, away, by = (neighbour.get(key) for key in ("removed", "added", "distance", "by"))
    told = (
        "" if away is None else f" Of all choices this one differs most: its {short(by)} distance is {float(away):.4g}."
    )
    if removed is not None and added is not None:
        return f"D′ is D with row {removed} replaced by row {added} of the other records.{told}"
    if removed is not None:
        return f"D′ is D without row {removed}.{told}"
    if added is not None:
        return f"D′ is D with row {added} of the other records added."
    return "Which record D and D′ differ in was not stated."


def _final_caption(audit: Audit) -> str:
    found = audit.details.get("final") or {}
    means = [
        f"{share(float(found['mean'][key]))} for runs {name}" for name, key in WORLDS if found.get(key) is not None
    ]
    return f"The mean final belief is {' and '.join(means)}. Without any observation the belief is 50 %."


def _sensitivities(audit: Audit, pictures: Mapping[str, Mapping[str, Drawing]]) -> str:
    found = audit.details.get("sensitivities")
    if not found:
        return ""
    middle, limit = float(np.median(np.array(found["median"], float))), found.get("global")
    lead = (
        f"The distance of the clipped sums of D and D′ in a step is the local sensitivity of this pair, {middle:.4g} "
        "in the median step."
    )
    if limit is not None:
        lead += (
            f" The noise of a guarantee is scaled to the largest possible one, {float(limit):.4g}; this pair uses "
            f"{share(middle / float(limit))} of it."
        )
    caption = (
        "Line: the median of the runs; shaded: the middle 90 %"
        + ("" if limit is None else "; dashed: the global sensitivity, which clipping enforces")
        + "."
    )
    body = paragraph(lead) + figure("sensitivities", "Local sensitivity over the steps", caption, pictures)
    return section("sensitivities", "How much of the noise was needed", body)


def _epsilons(audit: Audit, pictures: Mapping[str, Mapping[str, Drawing]]) -> str:
    found = audit.details.get("epsilons")
    if not found:
        return ""
    target = audit.details.get("target") or {}
    goal = epsilon(target.get("epsilon"))
    body = paragraph(
        f"The target is ε = {goal} at δ = {small(audit.headline.delta)}. What the runs themselves say of ε is ε′, in "
        "several ways; the sensitivities and the trajectories know the noise, the bounds do not."
    )
    body += figure(
        "epsilons", "ε′ beside the target", f"Dots with intervals; dashed: the target ε = {goal}.", pictures, by="y"
    )
    return section("epsilons", "ε′ beside the target", body)


def _others(audit: Audit) -> str:
    yeom, utility = audit.details.get("yeom"), audit.details.get("utility")
    body = ""
    if yeom:
        body += paragraph(
            "An adversary who sees only the losses of the finished model calls a record a member if its loss is at "
            f"most the mean training loss. Their advantage is {float(yeom['advantage']):.3g}; that of the adversary "
            f"who reads the gradients is {float((audit.details.get('advantage') or {}).get('trajectory', 0.0)):.3g}."
        )
        lines = [("measured, mean of the models", f"{yeom['advantage']:.4g}", _interval(yeom, "advantage"))]
        lines += [
            (f"bound: {name}", f"{float(yeom[key]):.4g}", "–")
            for key, name in (
                ("bound_yeom", "e^ε − 1 + δ"),
                ("bound_generic", "any mechanism"),
                ("bound_gaussian", "2Φ(μ/2) − 1"),
            )
            if yeom.get(key) is not None
        ]
        body += table(
            f"Loss-threshold adversary on the same models, {yeom['members']} members and {yeom['nonmembers']} others",
            ("advantage", "value", f"{percent(audit.headline.confidence)} interval"),
            lines,
            numeric=(1, 2),
        )
    if utility:
        body += paragraph(
            f"On average the models classify {share(utility['accuracy'])} of {utility['records']} test records "
            f"correctly (middle 90 % of the models: {share(utility['low'])} to {share(utility['high'])}), with noise "
            f"scaled to the {short((audit.details.get('target') or {}).get('noise', 'global'))} sensitivity."
        )
    return section("others", "Loss-threshold adversary and utility", body) if body else ""
