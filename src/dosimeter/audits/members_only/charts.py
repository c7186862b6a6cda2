"""The charts of a members-only audit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dosimeter.audits.members_only.result import MembersOnlyDetails, RecallCurve
from dosimeter.audits.result import Audit
from dosimeter.report.canvas import ACCENT, CATEGORIES, MUTED, NONMEMBERS, SHAPES, WARNING, Canvas, Rows, Spec
from dosimeter.report.markup import epsilon, share, short

BASELINE = "best baseline"
MOST_LINES = 5


def _details(audit: Audit) -> MembersOnlyDetails:
    assert isinstance(audit.details, MembersOnlyDetails)
    return audit.details


def _curves(details: MembersOnlyDetails) -> list[tuple[str, RecallCurve]]:
    """Names and curves: the baseline's, then those of the first targets."""
    return [(BASELINE, details.baseline.curve), *((short(t.name), t.curve) for t in details.targets[:MOST_LINES])]


def _by_recall(
    canvas: Canvas,
    audit: Audit,
    column: Callable[[RecallCurve], tuple[float, ...]],
    title: str,
    show: Callable[[float], str],
    *,
    zero: bool,
) -> Spec:
    """A column of the curves against recall, the place of the largest bound marked on each line."""
    alt = canvas.alt
    names, rows, marks = [], [], []
    for name, curve in _curves(_details(audit)):
        names.append(name)
        points = sorted(zip(curve.recall, column(curve), curve.guesses, strict=True), key=lambda p: p[2])
        line: Rows = [
            {"x": x, "y": y, "what": name, "text": f"{name}: recall {share(x)}, {k} guesses: {title} {show(y)}"}
            for x, y, k in points
        ]
        rows += line
        mark = {"x": curve.recall[curve.best], "y": column(curve)[curve.best], "what": name}
        marks.append({**mark, "text": f"{name}: largest bound {epsilon(curve.bound[curve.best])}"})
    colors = [MUTED, *CATEGORIES][: len(names)]
    x = alt.X(
        "x:Q",
        scale=alt.Scale(domain=[0, 1], nice=False),
        title="recall (members found)",
        axis=alt.Axis(format="~%", tickCount=5),
    )
    y = alt.Y("y:Q", title=title, scale=alt.Scale(zero=zero), axis=alt.Axis(tickCount=5))
    legend = alt.Legend(columns=1 if canvas.phone else min(4, len(names)))
    color = alt.Color("what:N", scale=alt.Scale(domain=names, range=colors), legend=legend)
    shape = alt.Shape("what:N", scale=alt.Scale(domain=names, range=list(SHAPES[: len(names)])), legend=legend)
    layers = [
        canvas.chart(rows).mark_line(strokeWidth=1.6).encode(x=x, y=y, color=color),
        canvas.chart(marks).mark_point(filled=True, size=90, opacity=1).encode(x=x, y=y, color=color, shape=shape),
        canvas.hover(rows + marks, x, y),
    ]
    return canvas.finish(alt.layer(*layers), 240 if canvas.phone else 300)


def precision_recall(canvas: Canvas, audit: Audit) -> Spec | None:
    """Precision of "member" guesses against recall, with and without the model."""
    return _by_recall(canvas, audit, lambda curve: curve.precision, "precision", share, zero=False)


def bound_recall(canvas: Canvas, audit: Audit) -> Spec | None:
    """The bound at each recall, for that recall alone."""
    return _by_recall(canvas, audit, lambda curve: curve.bound, "bound at this recall", epsilon, zero=True)


def reference_models(canvas: Canvas, audit: Audit) -> Spec | None:
    """AUC of the attack with each reference model and with each target, and the limit between."""
    alt = canvas.alt
    details = _details(audit)
    null, test = details.null, details.targets[0].verdict
    if null is None or test is None:
        return None
    rows: Rows = [
        {"row": "reference models", "at": auc, "kind": "never saw the members", "text": f"{short(name)}: AUC {auc:.4g}"}
        for name, auc in zip(null.names, null.auc, strict=True)
    ]
    for target in details.targets:
        kind, name = "stands out" if target.stands_out else "does not stand out", short(target.name)
        rows.append({"row": name, "at": target.auc, "kind": kind, "text": f"{name}: AUC {target.auc:.4g}, {kind}"})
    x = alt.X(
        "at:Q",
        scale=alt.Scale(zero=False),
        title="AUC of the attack" if canvas.phone else "AUC of the attack, members against generated records",
    )
    y = alt.Y("row:N", sort=None, title=None, axis=alt.Axis(ticks=False, domain=False, labelLimit=170))
    domain = ["never saw the members", "does not stand out", "stands out"]
    legend = alt.Legend(columns=1 if canvas.phone else 3)
    color = alt.Color("kind:N", scale=alt.Scale(domain=domain, range=[MUTED, ACCENT, WARNING]), legend=legend)
    shape = alt.Shape(
        "kind:N", scale=alt.Scale(domain=domain, range=["circle", "square", "triangle-up"]), legend=legend
    )
    layers = [
        canvas.chart([{"at": test.auc_limit}]).mark_rule(color=MUTED, strokeDash=[4, 3]).encode(x=x),
        canvas.chart(rows).mark_point(filled=True, size=80, opacity=0.85).encode(x=x, y=y, color=color, shape=shape),
        canvas.hover(rows, x, y),
    ]
    return canvas.finish(alt.layer(*layers), 30 * (1 + len(details.targets)) + 8)


def baseline_size(canvas: Canvas, audit: Audit) -> Spec | None:
    """c_lb against the number of records that the baseline was trained on."""
    alt = canvas.alt
    rows: Rows = [
        {
            "x": float(size.records),
            "y": size.c_lb,
            "text": f"trained on {size.records} records: c_lb {epsilon(size.c_lb)}, AUC {size.auc:.3g}",
        }
        for size in _details(audit).strength.size
    ]
    if len(rows) < 2:
        return None
    x = alt.X("x:Q", scale=alt.Scale(type="log", nice=False, padding=8), title="training records (logarithmic)",
              axis=alt.Axis(values=[r["x"] for r in rows], format="~s", grid=False))  # fmt: skip
    y = alt.Y("y:Q", title="c_lb", axis=alt.Axis(tickCount=4), scale=alt.Scale(zero=True))
    base = canvas.chart(rows)
    layers = [
        base.mark_line(color=NONMEMBERS, strokeWidth=1.6).encode(x=x, y=y),
        base.mark_point(color=NONMEMBERS, filled=True, size=70, opacity=1).encode(x=x, y=y),
        canvas.hover(rows, x, y),
    ]
    return canvas.finish(alt.layer(*layers), 180 if canvas.phone else 220)


def propensity_chart(canvas: Canvas, audit: Audit) -> Spec | None:
    """How often the likelier record of a pair was the member, against the chance that the baseline gave it."""
    assert isinstance(audit.details, MembersOnlyDetails)
    check = audit.details.propensities
    if check is None:
        return None
    alt = canvas.alt
    rows: Rows = [
        {
            "x": row.predicted,
            "y": row.share,
            "low": row.low,
            "high": row.high,
            "text": f"{row.pairs} pairs: predicted {share(row.predicted)}, found {share(row.share)}, "
            f"limits {share(row.low)} to {share(row.high)}",
        }
        for row in check.bins
    ]
    scale = alt.Scale(domain=[min(0.4, min(row.low for row in check.bins)), 1.0], nice=False)
    x = alt.X("x:Q", scale=scale, title="predicted chance", axis=alt.Axis(format="~%", tickCount=5))
    y = alt.Y("y:Q", scale=scale, title="share found", axis=alt.Axis(format="~%", tickCount=5))
    base = canvas.chart(rows)
    line: Rows = [{"x": at, "y": at} for at in scale.domain]
    layers = [
        canvas.chart(line).mark_line(color=MUTED, strokeDash=[4, 3]).encode(x=x, y=y),
        base.mark_rule(color=ACCENT).encode(x=x, y=alt.Y("low:Q", scale=scale), y2="high:Q"),
        base.mark_point(color=ACCENT, filled=True, size=60, opacity=1).encode(x=x, y=y),
        canvas.hover(rows, x, y),
    ]
    return canvas.finish(alt.layer(*layers), 220 if canvas.phone else 260)


LINES = ("c_lb", "{c+ε}_lb", "ε̃")


def _first(details: MembersOnlyDetails) -> tuple[RecallCurve, RecallCurve]:
    """The curves of the baseline and of the first target, by the protocol that comes first."""
    if details.thesis is not None:
        return details.thesis.curve, details.thesis.targets[0].curve
    return details.baseline.curve, details.targets[0].curve


def difference_recall(canvas: Canvas, audit: Audit) -> Spec | None:
    """c_lb, {c+ε}_lb and their difference at every recall (Figures 7.1, 8.1 and 8.2 of the thesis)."""
    assert isinstance(audit.details, MembersOnlyDetails)
    alt = canvas.alt
    without, both = _first(audit.details)
    recall = np.unique(np.concatenate([without.recall, both.recall]))
    bounds = [_at(curve, recall) for curve in (without, both)]
    values = [*bounds, np.maximum(0.0, bounds[1] - bounds[0])]
    rows: Rows = [
        {"x": float(x), "y": float(y), "what": name, "text": f"recall {share(float(x))}: {name} {epsilon(float(y))}"}
        for name, line in zip(LINES, values, strict=True)
        for x, y in zip(recall, line, strict=True)
    ]
    x = alt.X(
        "x:Q",
        scale=alt.Scale(domain=[0, 1], nice=False),
        title="recall (members found)",
        axis=alt.Axis(format="~%", tickCount=5),
    )
    y = alt.Y("y:Q", title="at this recall", scale=alt.Scale(zero=True), axis=alt.Axis(tickCount=5))
    color = alt.Color(
        "what:N", scale=alt.Scale(domain=list(LINES), range=[MUTED, ACCENT, WARNING]), legend=alt.Legend()
    )
    dash = alt.StrokeDash("what:N", scale=alt.Scale(domain=list(LINES), range=[[4, 3], [1, 0], [1, 0]]), legend=None)
    layers = [
        canvas.chart(rows).mark_line(strokeWidth=1.6).encode(x=x, y=y, color=color, strokeDash=dash),
        canvas.hover(rows, x, y),
    ]
    return canvas.finish(alt.layer(*layers), 240 if canvas.phone else 300)


def _at(curve: RecallCurve, recall: np.typing.NDArray[np.float64]) -> np.typing.NDArray[np.float64]:
    """The bound at each recall: that of the fewest guesses that reach it, never between two thresholds."""
    order = np.argsort(curve.guesses, kind="stable")
    reached = np.asarray(curve.recall)[order]
    place = np.minimum(np.searchsorted(reached, recall - 1e-12), reached.size - 1)
    return np.asarray(curve.bound, np.float64)[order][place]
