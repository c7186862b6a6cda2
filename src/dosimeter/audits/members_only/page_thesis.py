"""The part of the page on the thesis's own protocol: both values, what each may claim, and a chart of every recall."""

from __future__ import annotations

import numpy as np

from dosimeter.audits.members_only.result import MembersOnlyDetails, RecallCurve
from dosimeter.audits.result import Audit
from dosimeter.report.canvas import ACCENT, MUTED, WARNING, Canvas, Rows, Spec
from dosimeter.report.markup import Pictures, epsilon, figure, paragraph, section, share, short, table

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


def every_recall(details: MembersOnlyDetails, pictures: Pictures) -> str:
    """The figure of both bounds and their difference, with what it may claim."""
    name = short(details.targets[0].name)
    return figure(
        "difference-recall",
        "Both bounds and their difference",
        f"For {name}: the bound without the model (c_lb), with it ({{c+ε}}_lb), and ε̃, their difference, at each "
        "recall. Every point holds for its own recall alone; the best of them is not a bound.",
        pictures,
    )


def thesis_section(details: MembersOnlyDetails) -> str:
    """Both protocols side by side; empty where only the honest one was asked for."""
    found = details.thesis
    if found is None:
        return ""
    body = paragraph(
        "The thesis takes the best of all thresholds on the audit itself, and does not compare with reference models. "
        "Its ε̃ and O(1) reproduce the paper and prove nothing: with no leak at all such bounds are above 0 in 21 % to "
        "30 % of audits instead of 2.5 %. The honest ε̃ beside it fixes the number of guesses on other records and is 0 "
        "unless the model stands out. It is a measurement."
    )
    honest = {target.name: target for target in details.targets}
    body += table(
        f"Thesis: c_lb = {epsilon(found.c_lb)} with a helper that is {found.helper}",
        (
            "model",
            "ε̃ (thesis)",
            "{c+ε}_lb (thesis)",
            "at recall",
            f"O(1), {found.nonmembers} non-members",
            "ε̃ (honest)",
        ),
        [
            (
                short(row.name),
                epsilon(row.epsilon),
                epsilon(row.c_plus_epsilon_lb),
                share(row.recall),
                epsilon(row.one_run),
                epsilon(honest[row.name].epsilon),
            )
            for row in found.targets
        ],
        numeric=range(1, 6),
    )
    return section("thesis", "As the thesis has it", body)
