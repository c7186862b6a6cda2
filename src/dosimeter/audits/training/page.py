"""What the page of a training audit shows: scores by coin, intervals side by side, the points, a claim's wealth."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from dosimeter._validate import IntArray
from dosimeter.audits.page import facts
from dosimeter.audits.page.appendix import distributions_chart
from dosimeter.audits.page.facts import Step
from dosimeter.audits.parts import known
from dosimeter.audits.result import Audit, TrainedMetadata
from dosimeter.audits.scores.result import Accuracy
from dosimeter.audits.training.result import IntervalRow, JointAgainstExact, PointRow, TrainingDetails, TrainingMetadata
from dosimeter.estimate import percent
from dosimeter.report.canvas import ACCENT, INK, MUTED, WARNING, Canvas, Rows, Spec
from dosimeter.report.markup import (
    Pictures,
    bullets,
    clean,
    epsilon,
    figure,
    paragraph,
    section,
    share,
    short,
    small,
    table,
)

__all__ = ["CHARTS", "interval_chart", "path_chart", "sections", "side_by_side", "steps", "training_notes"]

PATH_POINTS = 400
MOST_POINTS = 100
MOST_FAILURES = 10


def _parts(audit: Audit) -> tuple[TrainingDetails, TrainingMetadata]:
    assert isinstance(audit.details, TrainingDetails) and isinstance(audit.metadata, TrainingMetadata)
    return audit.details, audit.metadata


# --- charts -----------------------------------------------------------------------------------------------


def _scores(canvas: Canvas, audit: Audit) -> Spec | None:
    """Draw the scores with the point in and out, and the threshold that shadow models fixed."""
    spec, bins = distributions_chart(canvas, audit), audit.distributions
    if spec is None or bins is None or bins.threshold is None:
        return spec
    if not known(bins.edges[0]) <= bins.threshold <= known(bins.edges[-1]):
        return spec
    canvas.rows["threshold"] = [{"x": bins.threshold, "label": "threshold"}]
    place = {"field": "x", "type": "quantitative"}
    rule = {"mark": {"type": "rule", "color": INK, "strokeDash": [2, 2]}, "encoding": {"x": place}}
    text = {
        "mark": {"type": "text", "align": "left", "dx": 5, "color": INK},
        "encoding": {"x": place, "y": {"value": 8}, "text": {"field": "label", "type": "nominal"}},
    }
    spec["layer"] = [*spec["layer"], *({"data": {"name": "threshold"}, **mark} for mark in (rule, text))]
    return spec


def _intervals(canvas: Canvas, audit: Audit) -> Spec | None:
    return interval_chart(canvas, audit, _parts(audit)[0].intervals)


def _wealth(canvas: Canvas, audit: Audit) -> Spec | None:
    """Draw ln of the wealth of the bets against the claim, run by run, and where it rejects."""
    claim = _parts(audit)[0].claim
    if claim is None or not claim.log_wealth:
        return None
    path = [known(value) for value in claim.log_wealth]
    rows: Rows = [
        {"x": run, "y": path[run - 1], "text": f"Run {run}: wealth {_stake(path[run - 1])}"}
        for run in _thinned(len(path)).tolist()
    ]
    lines = [(claim.needed_log_wealth, "the claim is rejected here")]
    return path_chart(canvas, rows, "challenge run", "ln of the wealth", lines, left=True)


def _thinned(size: int) -> IntArray:
    """Run numbers from 1, all or evenly spaced."""
    return np.unique(np.linspace(1, size, min(size, PATH_POINTS)).round().astype(int))


def _stake(log: float) -> str:
    return f"{math.exp(min(log, 700.0)):.3g}"


CHARTS: Mapping[str, Callable[[Canvas, Audit], Spec | None]] = {
    "distributions": _scores,
    "intervals": _intervals,
    "wealth": _wealth,
}


# --- sections ---------------------------------------------------------------------------------------------


def sections(audit: Audit, pictures: Pictures) -> list[str]:
    """Tell how the audit was run; the claim; the intervals side by side; the points."""
    details, meta = _parts(audit)
    return [
        _how(meta),
        _claimed(audit, details, pictures),
        side_by_side(audit, details.intervals, details.joint, pictures),
        _challenged(details),
    ]


def steps(audit: Audit) -> list[Step]:
    """What would make this audit stronger: more runs, crafted points, more shadow models."""
    meta = _parts(audit)[1]
    advice = []
    if meta.runs and (more := facts.more_step(audit, "Make more runs", "coins")) is not None:
        advice.append(Step(more.title, more.text, f"dosimeter.audit_training(…, runs={4 * meta.runs})"))
    if meta.recipe is not None and not meta.canaries:
        advice.append(
            Step(
                "Challenge crafted records",
                "Records that no other record resembles are remembered best, so they show the most of what a training "
                "may leak.",
                'dosimeter.audit_training(…, canaries="mislabelled")',
            )
        )
    if meta.shadows:
        advice.append(
            Step(
                "Train more shadow models",
                f"{meta.shadows} of them calibrated the attack; more choose better points and a better threshold.",
                f"dosimeter.audit_training(…, shadows={4 * meta.shadows})",
            )
        )
    return advice


def _how(meta: TrainingMetadata) -> str:
    """What was trained, what the coins decided, and what went wrong."""
    points = len(meta.points)
    which = "one point" if points == 1 else f"{points} points"
    chose = f" on {which} that the caller named" if meta.select == "given" else f", chose {which}"
    made = f" Challenged points are crafted records ({short(meta.canaries)})." if meta.canaries else ""
    body = paragraph(
        f"{meta.shadows} shadow models were trained on random halves of the data. They calibrated the attack "
        f"({short(meta.attack)}){chose} and fixed a threshold.{made}"
    )
    if meta.game == "crossed":
        body += paragraph(
            f"Half of them did that; the other {meta.runs} were then attacked. A fair coin had decided for each of "
            "these models and each point whether the point was in."
        )
    elif meta.game == "replace":
        body += paragraph(
            f"Then {meta.runs} models were trained on all other records. In each of them a fair coin decided for each "
            "point whether it was in, or another record in its place. The runs differ only in these coins and in their "
            "random numbers."
        )
    else:
        body += paragraph(
            f"Then {meta.runs} models were trained on all other records. In each of them a fair coin decided for each "
            "point whether it was in. The runs differ only in these coins and in their random numbers."
        )
    used = meta.utility
    accuracies = [] if used is None else [("shadows", used.shadows), ("runs", used.runs)]
    return section("game", "How the audit was run", body + training_notes(meta, accuracies))


def _claimed(audit: Audit, details: TrainingDetails, pictures: Pictures) -> str:
    """The verdict on a claim and the path to it."""
    claim = details.claim
    if claim is None:
        return ""
    what = f"ε = {epsilon(claim.epsilon)} at δ = {small(claim.delta)}"
    if claim.rejected:
        lead = (
            f"The claim {what} was rejected after {claim.rejected_at} of at most {claim.budget} runs, and no further "
            "model was trained. This page makes only statements that hold at any time. It leaves out bounds that need "
            "a number of runs fixed in advance."
        )
    else:
        lead = f"The claim {what} was not rejected in {claim.budget} runs. That does not prove it."
    caption = (
        "Somebody who bets against a true claim multiplies their stake "
        f"{_stake(claim.needed_log_wealth)} times with a probability of at most "
        f"{share(1 - audit.headline.confidence)}, whenever they stop."
    )
    if claim.log_wealth:
        caption += f" The wealth ended at {_stake(known(claim.log_wealth[-1]))}."
    body = paragraph(lead) + figure("wealth", "Wealth of the bets against the claim", caption, pictures)
    return section("claim", "The claim, tested run by run", body)


def _challenged(details: TrainingDetails) -> str:
    """The challenged points, and the candidates that came next."""
    points = details.points
    if not points:
        return ""
    more = f" (the first {MOST_POINTS} of {len(points)})" if len(points) > MOST_POINTS else ""
    body = paragraph(
        "Record numbers are rows of the data. The weight says how well the attack could tell shadow models with the "
        "record from those without it. The counts are those of the attacked models, at the threshold that was fixed "
        "before. The bounds of all points hold at once. The list is sensitive: it names exposed records."
    )
    body += table(
        f"Challenged points{more}",
        ("record", "label", "weight", "found when in", "accused when out", "advantage", "ε at least"),
        [_point(point) for point in points[:MOST_POINTS]],
        numeric=(0, 2, 3, 4, 5, 6),
    )
    others = [candidate for candidate in details.candidates if not candidate.chosen]
    if others:
        body += table(
            "The next candidates",
            ("record", "weight"),
            [(candidate.record, share(candidate.weight)) for candidate in others],
            numeric=(0, 1),
        )
    return section("points", "The challenged points", body)


def _point(point: PointRow) -> tuple[object, ...]:
    return (
        point.record,
        point.label,
        "–" if point.weight is None else share(point.weight),
        f"{point.tp} of {point.tp + point.fn}",
        f"{point.fp} of {point.fp + point.tn}",
        "–" if point.advantage is None else f"{point.advantage:.3g}",
        "–" if point.epsilon is None else epsilon(point.epsilon),
    )


# --- shared with the pages of other audits that train -----------------------------------------------------


def interval_chart(canvas: Canvas, audit: Audit, intervals: Sequence[IntervalRow]) -> Spec | None:
    """Draw every method's interval on one axis; bounds that hold for any training stand out."""
    alt = canvas.alt
    if len(intervals) < 2:
        return None
    ends = [known(end) for row in intervals for end in (row.low, row.high)]
    stated = facts.guarantee(audit)
    ends += [stated.epsilon] if stated is not None else []
    top = max([v for v in ends if math.isfinite(v)] + [0.1]) * 1.08
    kinds = [
        "holds for any training",
        "not for any training" if canvas.phone else "not a confidence bound for any training",
    ]
    rows: Rows = []
    for row in intervals:
        low, high = known(row.low), known(row.high)
        span = f"ε ≥ {epsilon(low)}" if math.isinf(high) else f"ε from {epsilon(low)} to {epsilon(high)}"
        rows.append(
            {
                "row": clean(row.method),
                "low": min(low, top),
                "high": min(high, top),
                "kind": kinds[0] if row.validity.is_bound else kinds[1],
                "text": f"{clean(row.method)}: {span} ({clean(row.validity)})",
            }
        )
    scale = alt.Scale(domain=[0, top], nice=False)
    title = f"ε at δ = {small(intervals[0].delta)}"
    x = alt.X("low:Q", scale=scale, title=title, axis=alt.Axis(tickCount=6, grid=True))
    y = alt.Y("row:N", sort=None, title=None, axis=alt.Axis(ticks=False, domain=False, labelColor=INK, labelLimit=190))
    legend = alt.Legend(symbolType="square", columns=1 if canvas.phone else 2, symbolOpacity=1)
    color = alt.Color("kind:N", scale=alt.Scale(domain=kinds, range=[ACCENT, MUTED]), legend=legend)
    base = canvas.chart(rows)
    layers = [
        base.mark_bar(height=7, opacity=0.7).encode(x=x, x2=alt.X2("high:Q"), y=y, color=color),
        base.mark_tick(thickness=3, size=16).encode(x=x, y=y, color=color),
        canvas.hover(rows, x, y),
    ]
    if stated is not None and math.isfinite(stated.epsilon):
        limit = canvas.chart([{"low": stated.epsilon}])
        layers.insert(0, limit.mark_rule(color=INK, strokeDash=[9, 4]).encode(x=x))
    return canvas.finish(alt.layer(*layers), 24 * len(rows) + 4)


def path_chart(
    canvas: Canvas, rows: Rows, across: str, up: str, lines: Sequence[tuple[float, str]], *, left: bool
) -> Spec:
    """Draw a curve with horizontal lines, named at the left or the right end."""
    alt = canvas.alt
    heights = [row["y"] for row in rows] + [level for level, _ in lines]
    gap = 0.06 * (max(heights) - min(heights)) or 0.1
    right = max(row["x"] for row in rows)
    x = alt.X("x:Q", title=across, scale=alt.Scale(domain=[0, right], nice=False), axis=alt.Axis(tickMinStep=1))
    span = [min(heights) - gap, max(heights) + 2 * gap]
    y = alt.Y("y:Q", title=up, scale=alt.Scale(domain=span, nice=False), axis=alt.Axis(tickCount=5, grid=True))
    marks = canvas.chart([{"y": level, "label": label, "x": 0 if left else right} for level, label in lines])
    side = {"align": "left", "dx": 6} if left else {"align": "right", "dx": -6}
    layers = [
        marks.mark_rule(color=WARNING, strokeDash=[5, 3]).encode(y=y),
        marks.mark_text(dy=-7, **side).encode(x=x, y=y, text=alt.Text("label:N")),
        canvas.chart(rows).mark_line(strokeWidth=1.8, color=ACCENT).encode(x=x, y=y),
        canvas.hover(rows, x, y),
    ]
    return canvas.finish(alt.layer(*layers), 200 if canvas.phone else 260)


def training_notes(meta: TrainedMetadata, accuracies: Sequence[tuple[str, Accuracy | None]]) -> str:
    """Tell how many trainings were computed, how accurate the models are, and which trainings failed."""
    body = ""
    if meta.trainings is not None and meta.provenance is not None:
        body += paragraph(
            f"Trainings: {meta.provenance.computed} computed now, {meta.provenance.cached} taken from the store, "
            f"{meta.trainings.failed} failed.",
            "note",
        )
    told = [f"{what}: {text}" for what, accuracy in accuracies if accuracy is not None and (text := _shares(accuracy))]
    if told:
        body += paragraph(f"Accuracy, mean over models. {'; '.join(told)}.", "note")
    failed = meta.failed or ()
    if failed:
        shown = [f"{f.stage} {f.index}, seed {f.seed}: {short(f.reason)}" for f in failed[:MOST_FAILURES]]
        more = [f"… and {len(failed) - MOST_FAILURES} more"] if len(failed) > MOST_FAILURES else []
        body += f"<h3>Trainings that failed</h3>{bullets([*shown, *more], 'note')}"
    return body


def _shares(accuracy: Accuracy) -> str:
    sides = ((accuracy.members, "of their members"), (accuracy.nonmembers, "of other records"))
    return ", ".join(f"{share(value)} {whose}" for value, whose in sides if value is not None)


def side_by_side(
    audit: Audit, intervals: Sequence[IntervalRow], joint: JointAgainstExact | None, pictures: Pictures
) -> str:
    """Show all intervals on one axis, and the joint one against the exact one."""
    if len(intervals) < 2:
        return ""
    body = "" if joint is None else _comparison(joint)
    caption = (
        f"Each bar is one method at {percent(audit.headline.confidence)}. A bar that reaches the right edge has no "
        "upper end. Upper ends are about this attack at its threshold, never about what a better attack could show. "
        "Grey: not a confidence bound for any training."
    )
    stated = facts.guarantee(audit)
    if stated is not None and math.isfinite(stated.epsilon):
        caption += f" Dashes: the guarantee, ε ≤ {epsilon(stated.epsilon)}."
    body += figure("intervals", "Intervals by method", caption, pictures, by="y")
    return section("intervals", "The methods side by side", body)


def _comparison(joint: JointAgainstExact) -> str:
    if joint.narrower is None or joint.joint_width is None or joint.exact_width is None:
        said = "Clopper–Pearson's interval has no upper end here, so the widths cannot be compared."
    elif joint.narrower > 0:
        said = (
            f"The interval of the joint posterior is {share(joint.narrower)} narrower than Clopper–Pearson's "
            f"({joint.joint_width:.3g} against {joint.exact_width:.3g})."
        )
    else:
        said = "The interval of the joint posterior is not narrower than Clopper–Pearson's."
    return paragraph(said) + paragraph(f"The price: {clean(joint.caveat)}.", "note")
