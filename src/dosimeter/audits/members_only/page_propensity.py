"""The part of the page on a baseline for each record: what it proves, on which condition, and how that was checked."""

from __future__ import annotations

from dosimeter.audits.members_only.result import MembersOnlyDetails, PropensityCheck
from dosimeter.audits.result import Audit
from dosimeter.report.canvas import ACCENT, MUTED, Canvas, Rows, Spec
from dosimeter.report.markup import Pictures, epsilon, figure, paragraph, section, share, short, table


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


def by_record(details: MembersOnlyDetails, pictures: Pictures) -> str:
    """The bounds of a baseline for each record, and the check of their condition."""
    check = details.propensities
    if check is None:
        return ""
    body = paragraph(
        "ε̃ subtracts one number for all records. Here every pair of a member and a generated record counts with its "
        "own chance, which the baselines give without the model. The result is a lower bound on ε if these chances "
        "are right; the last column needs only their order to be right."
    )
    body += table(
        "Bound on the ε of replacing one record, conditional on the chances",
        ("model", "if the chances are right", "if their order is right"),
        [
            (short(target.name), epsilon(target.by_record), epsilon(target.by_order))
            for target in details.targets
            if target.by_record is not None and target.by_order is not None
        ],
        numeric=(1, 2),
        marked=[i for i, target in enumerate(details.targets) if target.by_record],
    )
    body += paragraph(_checked(check), "note" if _doubtful(check) else "")
    body += figure(
        "propensities",
        "Chances and shares",
        "Pairs by the chance that the likelier record is the member: how often it was, with limits that hold for all "
        "points together. On the dashed line the chances are right.",
        pictures,
    )
    return section("by-record", "A baseline for each record", body)


def _doubtful(check: PropensityCheck) -> bool:
    return not check.calibrated or max(check.controls, default=1.0) > 0


def _checked(check: PropensityCheck) -> str:
    fit = (
        "The chances agree with who the members are, within the limits below."
        if check.calibrated
        else "The chances do not agree with who the members are, so the condition fails."
    )
    if not check.controls:
        return f"{fit} There were no reference models to try the same bound on."
    largest = max(check.controls)
    if largest == 0:
        return f"{fit} For all {len(check.controls)} reference models, which never saw these members, the bound is 0."
    above = sum(value > 0 for value in check.controls)
    return (
        f"{fit} For {above} of {len(check.controls)} reference models, which never saw these members, the bound is "
        f"above 0, up to {epsilon(largest)}. This was subtracted from every bound above."
    )
