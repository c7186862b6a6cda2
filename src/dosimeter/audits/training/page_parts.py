"""What the pages of training audits and of one-run audits share."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dosimeter.audits.page import facts
from dosimeter.audits.parts import known
from dosimeter.audits.result import Audit, TrainedMetadata
from dosimeter.audits.scores.result import Accuracy
from dosimeter.audits.training.result import IntervalRow, JointAgainstExact
from dosimeter.estimate import percent
from dosimeter.report.canvas import ACCENT, INK, MUTED, WARNING, Canvas, Rows, Spec
from dosimeter.report.markup import Pictures, bullets, clean, epsilon, figure, paragraph, section, share, short, small

__all__ = ["interval_chart", "path_chart", "side_by_side", "training_notes"]

MOST_FAILURES = 10


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
        base.mark_bar(height=7, opacity=0.7).encode(x=x, x2="high:Q", y=y, color=color),
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
        marks.mark_text(dy=-7, **side).encode(x=x, y=y, text="label:N"),
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
