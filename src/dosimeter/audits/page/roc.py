"""The ROC curve on logarithmic axes, with the part of it that the headline counts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from dosimeter._validate import FloatArray
from dosimeter.audits.page import facts
from dosimeter.audits.result import Audit
from dosimeter.estimate import percent
from dosimeter.geometry import tradeoff
from dosimeter.report.canvas import ACCENT, INK, MEMBERS, MUTED, PAPER, Canvas, Rows, Spec, decades
from dosimeter.report.markup import Pictures, epsilon, figure, section, share

ROC_POINTS = 240


def most_tpr(fpr: FloatArray, epsilon: float, delta: float) -> FloatArray:
    """The largest TPR that (ε, δ) allows at each FPR."""
    return 1 - tradeoff(fpr, epsilon, delta)


@dataclass(frozen=True)
class RocLines:
    """The ROC curve as it is drawn: rates on a grid of FPRs, and where the axes begin."""

    fpr: FloatArray
    tpr: FloatArray
    tpr_low: FloatArray
    x_min: float
    y_min: float


def roc_lines(audit: Audit, points: int) -> RocLines | None:
    """Measured TPR and its simultaneous lower limit on a logarithmic grid of FPRs, and where the axes begin.

    Both are steps: the TPR at FPR x is the largest reached with at most x, and the limit at x is the largest
    `tpr_low` whose `fpr_high` is at most x. The grid holds every marked FPR, so no marked point moves.
    """
    curve = audit.curve
    if curve is None:
        return None
    fpr, tpr, high, low = (np.array(line) for line in (curve.fpr, curve.tpr, curve.fpr_high, curve.tpr_low))
    marks = curve.tpr_at_fpr
    marked = [p.fpr for p in marks]
    fpr, tpr = np.append(fpr, marked), np.append(tpr, [p.tpr for p in marks])  # thinning may have dropped them
    smallest = float(fpr[fpr > 0].min()) if (fpr > 0).any() else 1e-3
    x_min = 10.0 ** math.floor(math.log10(max(min(smallest, 0.1), 1e-7)) + 1e-9)
    grid = np.unique(np.concatenate([np.geomspace(x_min, 1, points), [m for m in marked if m >= x_min], [x_min, 1.0]]))
    grid = grid[(grid >= x_min) & (grid <= 1)]
    measured, limit = _steps(fpr, tpr, grid), _steps(high, low, grid)
    positive = measured[measured > 0]
    start = float(positive.min()) if positive.size else 1.0
    y_min = 10.0 ** math.floor(math.log10(max(min(start, 0.1), x_min)) + 1e-9)
    return RocLines(grid, measured, limit, x_min, y_min)


def _steps(x: FloatArray, y: FloatArray, grid: FloatArray) -> FloatArray:
    """The largest y whose x is at most each grid point; 0 where there is none."""
    order = np.argsort(x, kind="stable")
    best = np.concatenate([[0.0], np.maximum.accumulate(y[order])])
    # A marked FPR such as 0.1 may differ from its count ratio in the last bit.
    return best[np.searchsorted(x[order], grid * (1 + 1e-12), side="right")]


def roc_chart(canvas: Canvas, audit: Audit) -> Spec | None:
    """ROC on log axes: measured, its simultaneous lower limit, chance, and what the guarantee allows."""
    alt = canvas.alt
    lines = roc_lines(audit, ROC_POINTS)
    if lines is None:
        return None
    x_min, y_min = lines.x_min, lines.y_min
    area = [
        {"x": float(x), "high": float(max(t, y_min)), "low": float(max(b, y_min))}
        for x, t, b in zip(lines.fpr, lines.tpr, lines.tpr_low, strict=True)
    ]
    ends = headline_ends(audit)  # an end that the axes do not reach is marked at their edge
    named: Rows = [{"x": max(e.fpr, x_min), "y": max(e.tpr, y_min), "text": e.text} for e in ends]
    rows, styles = _roc_rows(audit, lines, area, ends)
    marks, texts = _roc_texts(audit, lines)

    def axis(name: str, title: str, low: float) -> Any:
        ticks = alt.Axis(values=decades(low, 1.0), format="~%", grid=True)
        scale = alt.Scale(type="log", domain=[low, 1], nice=False)
        return getattr(alt, name.upper())(f"{name}:Q", scale=scale, title=f"{title} (logarithmic)", axis=ticks)

    x, y = axis("x", "false-positive rate", x_min), axis("y", "true-positive rate", y_min)
    names, dashes, colors = (list(column) for column in zip(*styles, strict=True))
    legend = alt.Legend(symbolType="stroke", columns=1 if canvas.phone else 3, symbolSize=360)
    layers = [
        canvas.chart(area)
        .mark_area(interpolate="step-after", color=ACCENT, opacity=0.13)
        .encode(x=x, y=alt.Y("low:Q"), y2="high:Q"),
        canvas.chart(rows)
        .mark_line(interpolate="linear")
        .encode(
            x=x,
            y=y,
            detail="part:N",
            strokeWidth=alt.condition(f"datum.what == '{COUNTED}'", alt.value(4.5), alt.value(1.8)),
            color=alt.Color("what:N", scale=alt.Scale(domain=names, range=colors), legend=legend),
            strokeDash=alt.StrokeDash("what:N", scale=alt.Scale(domain=names, range=dashes), legend=legend),
        ),
        canvas.chart(marks)
        .mark_point(filled=True, size=55, color=ACCENT, opacity=1, stroke=PAPER, strokeWidth=1.2)
        .encode(x=x, y=y),
        canvas.chart(named)
        .mark_point(shape="diamond", filled=True, size=150, color=MEMBERS, opacity=1, stroke=PAPER, strokeWidth=1.2)
        .encode(x=x, y=y),
        canvas.hover(sorted([*texts, *named, *marks], key=lambda r: r["x"]), x, y),
    ]
    return canvas.finish(alt.layer(*layers), 280 if canvas.phone else 400)


COUNTED = "counted by the headline"
LineStyle: TypeAlias = tuple[str, list[int], str]  # name, dashes, colour


def _roc_rows(audit: Audit, lines: RocLines, area: Rows, ends: Sequence[HeadlineEnd]) -> tuple[Rows, list[LineStyle]]:
    """The points of every line of the ROC, and how each line is drawn."""
    y_min = lines.y_min
    styles: list[LineStyle] = [
        ("this attack", [1, 0], ACCENT),
        ("true curve above this", [5, 3], ACCENT),
        ("guessing", [1, 3], MUTED),
    ]
    measured, limit, chance = (name for name, _, _ in styles)
    rows: Rows = [{"x": r["x"], "y": r["high"], "what": measured} for r in area if r["high"] > y_min]
    rows += [{"x": r["x"], "y": r["low"], "what": limit} for r in area if r["low"] > y_min]
    first = max(lines.x_min, y_min)
    rows += [{"x": float(v), "y": float(v), "what": chance} for v in np.geomspace(first, 1, 9)]
    tight = facts.guarantee(audit)
    if tight is not None and tight.epsilon < math.inf:
        allowed, most = "allowed by the guarantee", most_tpr(lines.fpr, tight.epsilon, tight.delta)
        pairs = zip(lines.fpr, most, strict=True)
        rows += [{"x": float(x), "y": float(y), "what": allowed} for x, y in pairs if y >= y_min]
        styles.append((allowed, [9, 4], INK))
    counted: Rows = []
    for number, end in enumerate(ends):
        part = [r for r in area if (end.from_left and r["x"] <= end.fpr) or (end.to_right and r["x"] >= end.fpr)]
        counted += [{"x": r["x"], "y": r["high"], "what": COUNTED, "part": number} for r in part if r["high"] > y_min]
    if counted:
        styles.append((COUNTED, [1, 0], MEMBERS))
    return rows + counted, styles


def _roc_texts(audit: Audit, lines: RocLines) -> tuple[Rows, Rows]:
    """The points at low false-positive rates, and what is said of every point of the curve."""
    sure = share(audit.headline.confidence)
    marks: Rows = [
        {
            "x": p.fpr,
            "y": p.tpr,
            "text": f"At FPR {share(p.fpr)} the attack finds {share(p.tpr)} of the members"
            + ("" if (b := p.limit) is None else f" (truly at least {share(b)}, {sure}, this FPR alone)"),
        }
        for p in facts.tpr_points(audit)
        if p.tpr >= lines.y_min and p.fpr >= lines.x_min
    ]
    texts: Rows = [
        {
            "x": float(x),
            "y": float(max(t, lines.y_min)),
            "text": f"FPR {share(float(x))}: TPR {share(float(t))}, true TPR at least {share(float(b))} "
            f"({sure}, all thresholds)",
        }
        for x, t, b in zip(lines.fpr, lines.tpr, lines.tpr_low, strict=True)
    ]
    return marks, texts


@dataclass(frozen=True)
class HeadlineEnd:
    """A place on the ROC curve that the headline counts up to, from the left or from the right, or its threshold."""

    fpr: float
    tpr: float
    text: str
    from_left: bool = False
    to_right: bool = False


def headline_ends(audit: Audit) -> list[HeadlineEnd]:
    """Where the headline's counts end on the curve; none where they are not the ends of the ranking.

    The bins of the evidence hold the ranks in rising order, so the counts of the headline are looked up there.
    """
    head, curve = audit.headline, audit.curve
    if curve is None:
        return []
    if head.counts is not None and head.counts.members and head.counts.nonmembers:
        fpr, tpr = head.counts.fp / head.counts.nonmembers, head.counts.tp / head.counts.members
        return [HeadlineEnd(fpr, tpr, f"The headline's threshold: FPR {share(fpr)}, TPR {share(tpr)}")]
    tested, bins = head.details.get("tested"), head.details.get("bins")
    if not isinstance(tested, Mapping) or not isinstance(bins, Mapping):
        return []
    records, members = np.array(bins["records"]), np.array(bins["members"])
    inside, outside = int(members.sum()), int(records.sum() - members.sum())
    found = []
    for end, order in (("upper", slice(None, None, -1)), ("lower", slice(None))):
        count, right = tested[end], tested[f"{end}_members"]
        at = int(np.searchsorted(np.cumsum(records[order]), count))
        if not count or not inside or not outside or at >= records.size:
            continue
        if (np.cumsum(records[order])[at], np.cumsum(members[order])[at]) != (count, right):
            continue  # they do not reach the end of the ranking
        fpr, tpr = (count - right) / outside, right / inside
        which = "most" if end == "upper" else "least"
        text = f"Counted by the headline: the {count} that look {which} like members, {right} of them members"
        upper = end == "upper"
        place = (fpr, tpr) if upper else (1 - fpr, 1 - tpr)
        found.append(HeadlineEnd(*place, text, from_left=upper, to_right=not upper))
    return found


def roc(audit: Audit, drawings: Pictures) -> str:
    """The ROC curve and its text alternative."""
    lines = roc_lines(audit, ROC_POINTS)
    if lines is None or audit.curve is None:
        return ""
    parts = [f"TPR {share(p.tpr)} at FPR {share(p.fpr)}" for p in audit.curve.tpr_at_fpr]
    caption = (
        f"Area under the curve {audit.curve.auc:.4g}. "
        + (f"{'; '.join(parts)} (dots). " if parts else "")
        + "Dotted: guessing."
    )
    if parts := [f"TNR {share(p.tnr)} at FNR {share(p.fnr)}" for p in audit.curve.tnr_at_fnr]:
        caption += f" At the other end of the curve, non-members are told for sure: {'; '.join(parts)}."
    if ends := headline_ends(audit):
        thick = any(e.from_left or e.to_right for e in ends)
        caption += f" {'Thick, up to the diamonds' if thick else 'Diamond'}: {'; '.join(e.text for e in ends)}."
    if lines.tpr_low.max() > 0:
        caption += (
            f" Shaded: with {percent(audit.headline.confidence)} confidence the true curve lies nowhere "
            "below the dashed line, at all thresholds at once. The limits take the records of each kind as drawn at "
            "random: for one trained model, members from those that it was trained on, non-members from those that it "
            "has not seen."
        )
    stated = facts.guarantee(audit)
    if stated is not None and math.isfinite(stated.epsilon):
        caption += f" Long dashes: the most that the guarantee ε ≤ {epsilon(stated.epsilon)} allows any attack."
    return section(
        "roc", "How well members are recognised", figure("roc", "ROC curve on logarithmic axes", caption, drawings)
    )
