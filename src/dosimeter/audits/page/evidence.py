"""The evidence: the counts that the headline rests on, both ends of ε, and the ROC curve on logarithmic axes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from dosimeter._validate import FloatArray
from dosimeter.accounting import Guarantee
from dosimeter.accounting.region import comparable
from dosimeter.audits.page import facts
from dosimeter.audits.result import Audit
from dosimeter.estimate import Estimate, percent
from dosimeter.geometry import tradeoff
from dosimeter.report.canvas import ACCENT, INK, MEMBERS, MUTED, OPEN, PAPER, WARNING, Canvas, Rows, Spec, decades
from dosimeter.report.markup import (
    Pictures,
    bullets,
    clean,
    epsilon,
    figure,
    folded,
    paragraph,
    section,
    share,
    small,
    table,
    whose,
)


def evidence(audit: Audit, pictures: Pictures) -> str:
    """The counts behind the headline, both ends of each ε, and the accountants for experts."""
    head, unit = audit.headline, facts.unit(audit)
    body = paragraph(head.claim, "claim", terms=True)
    others = [e for e in audit.estimates[1:] if e.validity.is_bound and e.low > 0 and e not in facts.bounds(audit)]
    if not facts.bounds(audit):
        body += "".join(paragraph(e.claim) for e in others)
    body += _counts(head, unit)
    body += "".join(paragraph(line) for line in _ends(audit))
    reach = facts.ceiling(head)
    if facts.bounds(audit) and reach is not None:
        body += paragraph(
            f"With this many {unit}s even a perfect attack would have proven about ε ≥ {epsilon(reach)} "
            f"{whose(head.neighbours, unit)}. A small number is not evidence of privacy.",
            "note",
        )
    warnings = () if audit.region is None else audit.region.warnings
    body += bullets(warnings, "note") if warnings else ""
    body += folded("Upper bounds by accountant", _upper(audit, pictures))
    return section("evidence", "The evidence in counts", body)


def _counts(head: Estimate, unit: str) -> str:
    """What the attack was right about, as it was counted: at both ends of the ranking, or at one threshold."""
    tested, counts = head.details.get("tested"), head.counts
    if isinstance(tested, Mapping) and tested.get("upper", 0) + tested.get("lower", 0) > 0:
        names = (
            (f"{unit}s that looked most like members", "upper"),
            (f"{unit}s that looked least like members", "lower"),
        )
        lines = [
            (name, str(tested[end]), str(tested[f"{end}_members"]), share(tested[f"{end}_members"] / tested[end]))
            for name, end in names
            if tested[end]
        ]
        header = ("which", "counted", "were members", "share")
        caption = "What the headline counts; the others set the weights of its test. Guessing is right half the time"
        return table(caption, header, lines, numeric=(1, 2, 3))
    if counts is None or not counts.members or not counts.nonmembers:
        return ""
    lines = [
        ("members", str(counts.members), str(counts.tp), share(counts.tp / counts.members)),
        ("non-members", str(counts.nonmembers), str(counts.fp), share(counts.fp / counts.nonmembers)),
    ]
    header = ("who", "tried", "called members", "share")
    return table("What the attack said at its threshold", header, lines, numeric=(1, 2, 3))


def _upper(audit: Audit, pictures: Pictures) -> str:
    """Every accountant, as a picture and as a table; "" where none was asked."""
    if not audit.upper:
        return ""
    lower, stated = facts.drawn(audit)
    same = [g for g in audit.upper if comparable(lower, g)]
    caption = (
        f"On a logarithmic axis, all {whose(lower.neighbours, facts.unit(audit)) or 'for the same neighbours'}: values "
        f"of ε below {epsilon(lower.low)} are excluded by the attack; "
        f"{len(same)} accountants exclude values "
        f"above theirs, the tightest proven one above {epsilon(stated.epsilon) if stated else '∞'}. "
        "Thin lines are formulas without proof."
    )
    body = figure("accountants", "Region of privacy by accountant", caption, pictures, by="y")
    alike = {(g.delta, g.neighbours, g.sampling) for g in audit.upper}
    lines = [
        (g.method, epsilon(g.epsilon), "yes" if g.is_bound else "no", _terms(g)) for g in facts.ordered(audit.upper)
    ]
    caption = (
        f"Upper bounds for the same training run, {_terms(audit.upper[0])}"
        if len(alike) == 1
        else "Upper bounds by accountant"
    )
    columns = 3 if len(alike) == 1 else 4
    header = ("accountant", "ε", "proven", "for")[:columns]
    return body + table(caption, header, [line[:columns] for line in lines], numeric=(1,))


def _ends(audit: Audit) -> list[str]:
    """A sentence for each lower bound: what stands beside it from above, and what follows."""
    bounds = facts.bounds(audit)
    if not bounds:
        head = audit.headline
        number = f"{facts.symbol(head)} = {epsilon(head.epsilon)}"
        lines = [f"{number} is not a bound (validity: {head.validity}), so no value of ε is excluded from below."]
        _, stated = facts.drawn(audit)
        if stated is not None:
            lines.append(f"The accountants prove ε ≤ {epsilon(stated.epsilon)} {whose(stated.neighbours)}.")
        return lines
    lines = [_end(lower, facts.guarantee(audit, lower), facts.unit(audit)) for lower in bounds]
    apart = facts.other_guarantee(audit)
    if apart is not None:
        lines.append(
            f"The accountants prove ε ≤ {epsilon(apart.epsilon)} {whose(apart.neighbours)}. That is another ε, so it "
            "does not stand beside the attack's."
        )
    return lines


def _end(lower: Estimate, stated: Guarantee | None, unit: str) -> str:
    act = whose(lower.neighbours, unit)
    lead = f"{act[:1].upper()}{act[1:]} the" if act else "The"
    lead += f" attack proves ε ≥ {epsilon(lower.low)}"
    if stated is None:
        return f"{lead}. No guarantee {act + ' ' if act else ''}was given, so nothing bounds this ε from above."
    if math.isinf(stated.epsilon):
        return f"{lead}. The accountants can promise nothing (ε ≤ ∞), so nothing bounds this ε from above."
    lead += f", the accountants prove ε ≤ {epsilon(stated.epsilon)}."
    if facts.contradiction(lower, stated):
        sure = percent(lower.confidence)
        return f"{lead} Both cannot hold: the training does not keep its guarantee, or the {sure} bound has missed."
    return f"{lead} Nothing is known in between."


def _terms(g: Guarantee) -> str:
    return f"δ = {small(g.delta)}, {g.neighbours} neighbours, {g.sampling} sampling"


def accountants_chart(canvas: Canvas, audit: Audit) -> Spec | None:
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

    def bar(row: str, kind: str, value: float, edge: float, text: str) -> dict[str, Any]:
        return {"row": row, "kind": kind, "at": place(value), "edge": edge, "shown": epsilon(value), "text": text}

    attack = "attack" if canvas.phone else f"attack ({clean(lower.method)})"
    said = f"The attack: ε ≥ {epsilon(low)} ({lower.validity})"
    rows: Rows = [bar(attack, "excluded by the attack", low, left, said)]
    for g in uppers:
        proven = "excluded by a guarantee" if g.is_bound else "a formula, not proven"
        sign, note = ("≤", "") if g.is_bound else ("≈", ", not a proven bound")
        said = f"{clean(g.method)}: ε {sign} {epsilon(g.epsilon)}{note}"
        rows.append(bar(clean(g.method), proven, g.epsilon, right, said))
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
        .encode(x=x, x2=alt.X2("edge:Q"), y=y, color=color)
        .transform_filter("datum.kind != 'a formula, not proven'"),
        base.mark_bar(height=1.5, opacity=0.8)
        .encode(x=x, x2=alt.X2("edge:Q"), y=y, color=color)
        .transform_filter("datum.kind == 'a formula, not proven'"),
        base.mark_text(align="left", dx=6)
        .encode(x=x, y=y, text=alt.Text("shown:N"))
        .transform_filter("datum.kind == 'excluded by the attack'"),
        base.mark_text(align="right", dx=-6)
        .encode(x=x, y=y, text=alt.Text("shown:N"))
        .transform_filter("datum.kind != 'excluded by the attack'"),
        canvas.hover(rows, x, y),
    ]
    if tight is not None and tight.epsilon < math.inf:
        ends = sorted((place(low), place(tight.epsilon)))
        box = canvas.chart([{"from": ends[0], "to": ends[1], "kind": between}])
        band = box.mark_rect(opacity=0.3 if clash else 1)
        layers.insert(0, band.encode(x=alt.X("from:Q", scale=scale), x2=alt.X2("to:Q"), color=color))
    return canvas.finish(alt.layer(*layers), 22 * len(rows) + 4)


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
        .encode(x=x, y=alt.Y("low:Q"), y2=alt.Y2("high:Q")),
        canvas.chart(rows)
        .mark_line(interpolate="linear")
        .encode(
            x=x,
            y=y,
            detail=alt.Detail("part:N"),
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
    ends = []
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
        ends.append(HeadlineEnd(*place, text, from_left=upper, to_right=not upper))
    return ends


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
        caption += f" At the other end of the curve, non-members are recognised for sure: {'; '.join(parts)}."
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
