"""What an audit of gradients shows: the adversary's belief, the sensitivities, and ε′ beside the target."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np

from dosimeter.audits.gradients.result import (
    ChosenNeighbour,
    FinalBeliefs,
    GradientsDetails,
    GradientsMetadata,
    MeanBeliefs,
    MedianBeliefs,
    PrivacyTarget,
)
from dosimeter.audits.page import facts
from dosimeter.audits.page.facts import Step
from dosimeter.audits.parts import known
from dosimeter.audits.result import Audit
from dosimeter.estimate import percent
from dosimeter.report.canvas import ACCENT, INK, MEMBERS, MUTED, NONMEMBERS, WARNING, Canvas, Rows, Spec
from dosimeter.report.markup import Pictures, epsilon, figure, paragraph, section, share, short, small, table

__all__ = ["CHARTS", "sections", "steps"]

ON_D, ON_OTHER = "trained on D", "trained on D′"

T = TypeVar("T")


def _details(audit: Audit) -> GradientsDetails:
    return audit.details if isinstance(audit.details, GradientsDetails) else GradientsDetails()


def _target(audit: Audit) -> PrivacyTarget:
    return _details(audit).target or PrivacyTarget()


def _worlds(on_d: T | None, on_d_prime: T | None) -> list[tuple[str, T]]:
    """The worlds that had runs, by the names that the page gives them."""
    return [(name, values) for name, values in ((ON_D, on_d), (ON_OTHER, on_d_prime)) if values is not None]


# --- charts -----------------------------------------------------------------------------------------------


def _colors(canvas: Canvas, names: list[str]) -> tuple[Any, Any]:
    """Colour and dashes by world, with one legend."""
    alt = canvas.alt
    legend = alt.Legend(symbolType="stroke", columns=2, symbolSize=360, symbolOpacity=1, symbolFillColor="transparent")
    colors = [MEMBERS if name == ON_D else NONMEMBERS for name in names]
    dashes = [[1, 0] if name == ON_D else [5, 3] for name in names]
    color = alt.Color("world:N", scale=alt.Scale(domain=names, range=colors), legend=legend)
    dash = alt.StrokeDash("world:N", scale=alt.Scale(domain=names, range=dashes), legend=legend)
    return color, dash


def beliefs(canvas: Canvas, audit: Audit) -> Spec | None:
    """Beliefs in D over the steps: some runs, the median of each world, and the belief of the target."""
    alt = canvas.alt
    shown = _details(audit).trajectories
    if shown is None:
        return None
    steps = shown.step
    rows: Rows = []
    for run, (path, on_d) in enumerate(zip(shown.beliefs, shown.trained_on_d, strict=True)):
        world = ON_D if on_d else ON_OTHER
        rows += [{"x": s, "y": b, "run": run, "world": world} for s, b in zip(steps, path, strict=True)]
    medians: Rows = []
    names = []
    for world, values in _worlds(shown.median.on_d, shown.median.on_d_prime):
        names.append(world)
        medians += [
            {
                "x": s,
                "y": b,
                "world": world,
                "text": f"After step {s}, {world}: half of the runs believe in D with more than {share(b)}",
            }
            for s, b in zip(steps, values, strict=True)
        ]
    color, dash = _colors(canvas, names)
    x = alt.X(
        "x:Q", scale=alt.Scale(domain=[0, max(steps[-1], 1)], nice=False), title="step", axis=alt.Axis(tickMinStep=1)
    )
    y = alt.Y("y:Q", scale=alt.Scale(domain=[0, 1]), title="belief in D", axis=alt.Axis(format="~%", tickCount=5))
    layers = [
        canvas.chart(rows)
        .mark_line(strokeWidth=0.8, opacity=0.3)
        .encode(x=x, y=y, color=color, detail=alt.Detail("run:N")),
        canvas.chart(medians).mark_line(strokeWidth=2.6).encode(x=x, y=y, color=color, strokeDash=dash),
        *_limit(canvas, audit, "y"),
        canvas.hover(medians, x, y),
    ]
    return canvas.finish(alt.layer(*layers), 220 if canvas.phone else 300)


def _limit(canvas: Canvas, audit: Audit, axis: str) -> list[Any]:
    """A thin line at the belief that corresponds to the target ε."""
    belief = _target(audit).belief
    if belief is None:
        return []
    rule = canvas.chart([{"at": belief}]).mark_rule(color=MUTED, strokeDash=[2, 3])
    return [rule.encode(y=canvas.alt.Y("at:Q")) if axis == "y" else rule.encode(x=canvas.alt.X("at:Q"))]


def final_beliefs(canvas: Canvas, audit: Audit) -> Spec | None:
    """The shares of runs by the belief after the last step."""
    alt = canvas.alt
    final = _details(audit).final
    if final is None:
        return None
    groups = _worlds(final.on_d, final.on_d_prime)
    rows: Rows = []
    for world, heights in groups:
        rows += [{"x": e, "y": h, "world": world} for e, h in zip(final.edges, [*heights, heights[-1]], strict=True)]
    texts: Rows = []
    for at, (a, b) in enumerate(pairwise(final.edges)):
        told = ", ".join(f"{share(heights[at])} of the runs {world}" for world, heights in groups)
        top = max((heights[at] for _, heights in groups), default=0.0)
        texts.append({"x": (a + b) / 2, "y": top, "text": f"Belief {share(a)} to {share(b)}: {told}"})
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


def sensitivities(canvas: Canvas, audit: Audit) -> Spec | None:
    """Local sensitivity over the steps: median and the middle 90 % of the runs, below the global one."""
    alt = canvas.alt
    local = _details(audit).sensitivities
    if local is None:
        return None
    last = max(local.step[-1], 2)
    rows: Rows = [
        {
            "x": s,
            "y": m,
            "low": a,
            "high": b,
            "text": f"Step {s}: the median local sensitivity is {m:.4g}; nine of ten runs lie between {a:.4g} and "
            f"{b:.4g}",
        }
        for s, a, m, b in zip(local.step, local.low, local.median, local.high, strict=True)
    ]
    top = max(*local.high, local.limit or 0.0, 1e-9)
    x = alt.X("x:Q", scale=alt.Scale(domain=[1, last], nice=False), title="step")
    y = alt.Y(
        "y:Q",
        scale=alt.Scale(domain=[0, 1.1 * top], nice=False),
        title="distance of the clipped sums",
        axis=alt.Axis(tickCount=5),
    )
    layers = [
        canvas.chart(rows).mark_area(color=ACCENT, opacity=0.18).encode(x=x, y=alt.Y("low:Q"), y2=alt.Y2("high:Q")),
        canvas.chart(rows).mark_line(color=ACCENT, strokeWidth=2).encode(x=x, y=y),
    ]
    if local.limit is not None:
        mark = canvas.chart([{"y": local.limit, "x": last, "name": f"global: {local.limit:.4g}"}])
        layers += [
            mark.mark_rule(color=WARNING, strokeDash=[5, 3]).encode(y=y),
            mark.mark_text(align="right", dy=-9, color=WARNING).encode(x=x, y=y, text=alt.Text("name:N")),
        ]
    layers.append(canvas.hover(rows, x, y))
    return canvas.finish(alt.layer(*layers), 200 if canvas.phone else 260)


def epsilons(canvas: Canvas, audit: Audit) -> Spec | None:
    """Every ε′ with its interval, and the target."""
    alt = canvas.alt
    listed = _details(audit).epsilons
    if not listed:
        return None
    target = known(_target(audit).epsilon)
    ends = [known(end) for row in listed for end in (row.epsilon, row.low, row.high)]
    top = 1.12 * max(0.1, *(value for value in (*ends, target) if value < math.inf), 0.0)
    rows: Rows = []
    for row in listed:
        low, high, value = known(row.low), known(row.high), known(row.epsilon)
        interval = f"{epsilon(low)} to {epsilon(high)}" if high < math.inf else f"{epsilon(low)} or more"
        rows.append(
            {
                "row": short(row.phone if canvas.phone else row.name),
                "at": min(value, top),
                "low": min(low, top),
                "high": min(high, top),
                "text": f"{short(row.name)}: ε′ = {epsilon(value)} ({interval}; {short(row.validity)})",
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
        base.mark_rule(color=ACCENT, strokeWidth=3, opacity=0.45).encode(x=alt.X("low:Q"), x2=alt.X2("high:Q"), y=y),
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


# --- sections ---------------------------------------------------------------------------------------------


def sections(audit: Audit, pictures: Pictures) -> list[str]:
    """The adversary, the sensitivities, ε′ beside the target, and what only the losses show."""
    return [
        _adversary(audit, pictures),
        _sensitivities(audit, pictures),
        _epsilons(audit, pictures),
        _loss_adversary_and_accuracy(audit),
    ]


def steps(audit: Audit) -> list[Step]:
    """What would make this audit stronger: more runs, a neighbour that differs more."""
    meta, advice = audit.metadata, []
    runs = meta.repetitions if isinstance(meta, GradientsMetadata) else None
    if runs and (more := facts.more_step(audit, "Make more runs", "runs")) is not None:
        advice.append(Step(more.title, more.text, f"dosimeter.audit_gradients(…, repetitions={4 * runs})"))
    local = _details(audit).sensitivities
    if local is not None and local.limit:
        used = float(np.median(local.median)) / local.limit
        advice.append(
            Step(
                "Look for a pair of data sets that differ more",
                f"This pair uses {share(used)} of the sensitivity that the noise is scaled to; one that uses all of it "
                "would show the most.",
                "dosimeter.audit_gradients(…, universe=(X, y))",
            )
        )
    return advice


def _interval(low: float, high: float) -> str:
    return f"{low:.3g} to {high:.3g}"


def _level(audit: Audit) -> str:
    return f"{percent(audit.headline.confidence)} interval"


def _adversary(audit: Audit, pictures: Pictures) -> str:
    details = _details(audit)
    body = paragraph(
        "The adversary knows D, D′, every setting and every noisy gradient; only which of the two data sets was used "
        "is hidden. Nobody who sees less can do better: this is the worst case that differential privacy speaks of."
    )
    body += paragraph(_difference(details.neighbour or ChosenNeighbour()))
    body += figure("beliefs", "Belief in D over the steps", _paths_caption(audit), pictures)
    body += figure("final_beliefs", "Belief after the last step", _final_caption(details.final), pictures)
    lines = _success(details)
    if lines:
        heads = ("quantity", "value", _level(audit))
        body += table("How well the adversary tells D from D′", heads, lines, numeric=(1, 2))
    return section("adversary", "What the adversary comes to believe", body)


def _success(details: GradientsDetails) -> list[tuple[str, str, str]]:
    """The rows of the table of the adversary's success: advantages, and δ′."""
    lines = []
    success, above = details.advantage, details.delta_prime
    if success is not None:
        paths, wins = (
            _interval(success.trajectory_low, success.trajectory_high),
            _interval(success.counting_low, success.counting_high),
        )
        lines.append(("advantage, from the trajectories", f"{success.trajectory:.4g}", paths))
        lines.append(("advantage, from counted wins", f"{success.counting:.4g}", wins))
        if success.expected is not None:
            lines.append(("advantage at the full sensitivity, 2Φ(μ/2) − 1", f"{success.expected:.4g}", "–"))
    if above is not None:
        name = f"δ′, share of runs with belief above {share(above.belief)}"
        lines.append((name, f"{above.share:.4g}", _interval(above.low, above.high)))
        if above.expected is not None:
            lines.append(("δ′ expected from the trajectories", small(above.expected), "–"))
    return lines


def _difference(choice: ChosenNeighbour) -> str:
    why = ""
    if choice.distance is not None:
        why = f" Of all choices this one differs most: its {short(choice.by)} distance is {choice.distance:.4g}."
    if choice.removed is not None and choice.added is not None:
        return f"D′ is D with row {choice.removed} replaced by row {choice.added} of the other records.{why}"
    if choice.removed is not None:
        return f"D′ is D without row {choice.removed}.{why}"
    if choice.added is not None:
        return f"D′ is D with row {choice.added} of the other records added."
    return "Which record D and D′ differ in was not stated."


def _paths_caption(audit: Audit) -> str:
    paths, meta, belief = _details(audit).trajectories, audit.metadata, _target(audit).belief
    median = MedianBeliefs() if paths is None else paths.median
    ends = [f"{share(values[-1])} when {world}" for world, values in _worlds(median.on_d, median.on_d_prime)]
    runs = meta.repetitions if isinstance(meta, GradientsMetadata) else None
    allowed = (
        "" if belief is None else f" The dotted line is {share(belief)}, the belief that corresponds to the target ε."
    )
    return (
        f"Thin lines are {0 if paths is None else len(paths.run)} of {'all' if runs is None else runs} runs, thick "
        f"lines the medians, which end at {' and '.join(ends) or 'unknown'}.{allowed}"
    )


def _final_caption(final: FinalBeliefs | None) -> str:
    mean = MeanBeliefs() if final is None else final.mean
    means = [f"{share(value)} for runs {world}" for world, value in _worlds(mean.on_d, mean.on_d_prime)]
    return f"The mean final belief is {' and '.join(means) or 'unknown'}. Without any observation the belief is 50 %."


def _sensitivities(audit: Audit, pictures: Pictures) -> str:
    local = _details(audit).sensitivities
    if local is None:
        return ""
    middle = float(np.median(local.median))
    lead = (
        f"The distance of the clipped sums of D and D′ in a step is the local sensitivity of this pair, {middle:.4g} "
        "in the median step."
    )
    caption = "Line: the median of the runs; shaded: the middle 90 %"
    if local.limit is not None:
        lead += (
            f" The noise of a guarantee is scaled to the largest possible one, {local.limit:.4g}; this pair uses "
            f"{share(middle / local.limit)} of it."
        )
        caption += "; dashed: the global sensitivity, which clipping enforces"
    body = paragraph(lead) + figure("sensitivities", "Local sensitivity over the steps", f"{caption}.", pictures)
    return section("sensitivities", "How much of the noise was needed", body)


def _epsilons(audit: Audit, pictures: Pictures) -> str:
    if not _details(audit).epsilons:
        return ""
    goal = _target(audit).epsilon
    aim, dashed = "No target was stated.", ""
    if goal is not None:
        aim = f"The target is ε = {epsilon(goal)} at δ = {small(audit.headline.delta)}."
        dashed = f"; dashed: the target ε = {epsilon(goal)}"
    body = paragraph(
        f"{aim} ε′ is what the runs themselves say of ε, measured in several ways. The sensitivities and the "
        "trajectories use the noise that the training states; a bound does not."
    )
    caption = f"Dots with intervals{dashed}."
    body += figure("epsilons", "ε′ beside the target", caption, pictures, by="y")
    return section("epsilons", "ε′ beside the target", body)


def _loss_adversary_and_accuracy(audit: Audit) -> str:
    details = _details(audit)
    yeom, accuracy, body = details.yeom, details.utility, ""
    if yeom is not None:
        beside = ""
        if details.advantage is not None:
            beside = f"; that of the adversary who reads the gradients is {details.advantage.trajectory:.3g}"
        body += paragraph(
            "An adversary who sees only the losses of the finished model calls a record a member if its loss is at "
            f"most the mean training loss. Their advantage is {yeom.advantage:.3g}{beside}."
        )
        lines = [
            (
                "measured, mean of the models",
                f"{yeom.advantage:.4g}",
                _interval(yeom.advantage_low, yeom.advantage_high),
            )
        ]
        bounds = (
            ("e^ε − 1 + δ", yeom.bound_yeom),
            ("any mechanism", yeom.bound_generic),
            ("2Φ(μ/2) − 1", yeom.bound_gaussian),
        )
        lines += [(f"bound: {name}", f"{bound:.4g}", "–") for name, bound in bounds if bound is not None]
        body += table(
            f"Loss-threshold adversary on the same models, {yeom.members} members and {yeom.nonmembers} others",
            ("advantage", "value", _level(audit)),
            lines,
            numeric=(1, 2),
        )
    if accuracy is not None:
        scaled = _target(audit).noise or "global"
        body += paragraph(
            f"On average the models classify {share(accuracy.accuracy)} of {accuracy.records} test records correctly "
            f"(middle 90 % of the models: {share(accuracy.low)} to {share(accuracy.high)}), with noise scaled to the "
            f"{short(scaled)} sensitivity."
        )
    return section("others", "Loss-threshold adversary and utility", body) if body else ""
