"""What it means for people: a person, groups of people, the most exposed records, and what the audit cannot show."""

from __future__ import annotations

import math

import numpy as np

from dosimeter.accounting.region import comparable
from dosimeter.audits.page import facts
from dosimeter.audits.parts import known
from dosimeter.audits.result import Allowed, Audit, Subgroup
from dosimeter.estimate import Estimate, Validity, claim_of_bound, percent
from dosimeter.report.canvas import ACCENT, GRID, INK, MUTED, WARNING, Canvas, Rows, Spec
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
    short,
    small,
    table,
    value,
    whose,
)

MOST_ROWS = 100
FIRST = 5  # records that are shown without unfolding the list
MOST_SUBGROUPS = 25


def person(audit: Audit) -> str:
    """What was measured, what is proven, and what a guarantee would allow: three things, kept apart."""
    parts = [_measured(audit), _proven(audit), _allowed(audit)]
    if not any(parts):
        return ""
    lead = ""
    if all(parts):
        lead = paragraph(
            "Three things are easily mixed up. The attack measured how well it tells these members from these "
            "non-members. From that it is proven which guarantees the training cannot have. A guarantee, in turn, "
            "limits what any attack can do to a person."
        )
    return section("person", "What it means for a person", lead + "".join(parts))


def _measured(audit: Audit) -> str:
    lines = []
    for point in facts.tpr_points(audit):
        limit = point.limit
        lines.append(
            (
                f"Members found when {share(point.fpr)} of the non-members are accused",
                share(point.fpr),
                share(point.tpr),
                "no limit" if limit is None else f"at least {share(limit)}",
            )
        )
    ahead = lead(audit)
    if ahead is not None:
        question = "Share of members found minus share of non-members accused, at the best threshold"
        lines.append((question, share(0.0), share(ahead), "–"))
    if audit.curve is not None:
        question = "AUC: chance that a member scores above a non-member"
        lines.append((question, share(0.5), share(audit.curve.auc), "–"))
    if not lines:
        return ""
    sure = percent(audit.headline.confidence)
    return "<h3>Measured: what this attack did</h3>" + table(
        "By this attack, on these records; a better attack may do better",
        ("question", "by guessing", "measured", f"true value, {sure} each"),
        lines,
        numeric=(1, 2, 3),
    )


def _proven(audit: Audit) -> str:
    """Which guarantees are excluded, each with the counts that it rests on."""
    words = [clean(line) for line in audit.risk.words]
    if not words:
        return ""
    counts = [_counts_of(bound) for bound in facts.bounds(audit)]
    lines = [f"{line} {counts[i]}".strip() if i < len(counts) else line for i, line in enumerate(words)]
    return f"<h3>Proven: which guarantees are excluded</h3>{bullets(lines)}"


def _counts_of(bound: Estimate) -> str:
    """What a proven bound rests on, in counts: what its claim says after its first sentence."""
    unit = str(bound.details.get("unit") or "record")
    first = claim_of_bound(bound.low, bound.delta, bound.confidence, neighbours=bound.neighbours, unit=unit)
    return bound.claim.removeprefix(first).strip() if bound.claim.startswith(first) else ""


def _allowed(audit: Audit) -> str:
    """What a guarantee of a size allows: the smallest that is not excluded, and the one that was given."""
    risk, head = audit.risk, audit.headline
    columns: list[tuple[str, Allowed]] = []
    smallest = risk.would_allow
    if smallest is not None and smallest.epsilon and facts.bounds(audit):
        columns.append((f"if ε = {epsilon(head.low)} were guaranteed", smallest))
    stated = facts.drawn(audit)[1]
    if stated is not None and risk.upper is not None:
        apart = "" if comparable(head, stated) else f" {whose(stated.neighbours)}"
        columns.append((f"with the guarantee ε ≤ {epsilon(stated.epsilon)}{apart}", risk.upper))
    if not columns:
        return ""
    answers = zip(*(_answers(allowed) for _, allowed in columns), strict=True)
    lines = [
        (question, share(without), *map(share, row))
        for (question, without), row in zip(_questions(columns[0][1]), answers, strict=True)
    ]
    act = whose(head.neighbours, facts.unit(audit))
    body = paragraph(
        "No attack can do more than this to a person if the training has the guarantee. These are limits, not "
        "findings: an attack may stay far below them, and a measured value above one is a hint, not a proof."
        + (
            f" ε = {epsilon(head.low)}{' ' + act if act else ''} is the smallest guarantee that is not excluded."
            if len(columns) > 1 or stated is None
            else ""
        )
    )
    limits = table(
        "The most that a guarantee allows",
        ("question", "without any leak", *(name for name, _ in columns)),
        lines,
        numeric=range(1, 2 + len(columns)),
    )
    body += folded("The most that a guarantee allows, as a table", limits)
    words = [clean(line) for line in risk.upper_words]
    if words and stated is not None:
        first, *rest = (line[:1].upper() + line[1:].replace(" %", "\u00a0%") for line in words)
        body += paragraph(first) + (bullets(rest) if rest else "")
    return f"<h3>Allowed: what a guarantee means</h3>{body}"


def _questions(risk: Allowed) -> list[tuple[str, float]]:
    """What is asked about a person, and the answer without any leak."""
    return [
        *((f"Belief that a person is in the data, if it was {share(b.prior)} before", b.prior) for b in risk.belief),
        *((f"Members found at {share(t.fpr)} false alarms", t.fpr) for t in risk.tpr),
        ("Share of members found minus share of false alarms", 0.0),
        *(
            (f"Success of guessing a hidden attribute, {share(r.baseline)} without the model", r.baseline)
            for r in risk.reconstruction
        ),
    ]


def _answers(risk: Allowed) -> list[float]:
    """What a guarantee allows, in the order of the questions."""
    return [
        *(b.belief for b in risk.belief),
        *(t.tpr for t in risk.tpr),
        risk.advantage,
        *(r.success for r in risk.reconstruction),
    ]


def lead(audit: Audit) -> float | None:
    """The largest measured TPR − FPR over the thresholds of the curve."""
    curve = audit.curve
    return None if curve is None else float(np.max(np.subtract(curve.tpr, curve.fpr)).clip(0.0))


def subgroups_chart(canvas: Canvas, audit: Audit) -> Spec | None:
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
        axis=alt.Axis(
            ticks=False, domain=False, labelColor=INK, labelLimit=110 if canvas.phone else 220, labelPadding=11
        ),
    )
    legend = alt.Legend(columns=1 if canvas.phone else 2)
    color = alt.Color("kind:N", scale=alt.Scale(domain=kinds, range=[ACCENT, WARNING]), legend=legend)
    shape = alt.Shape("kind:N", scale=alt.Scale(domain=kinds, range=["circle", "triangle-up"]), legend=legend)
    base = canvas.chart(rows)
    whole = canvas.chart([{"at": min(audit.headline.low, top)}])
    layers = [
        whole.mark_rule(color=MUTED, strokeDash=[4, 3]).encode(x=x),
        base.mark_rule(color=GRID, strokeWidth=1.5).encode(x=alt.X("zero:Q"), x2=alt.X2("at:Q"), y=y),
        base.mark_point(filled=True, size=80, opacity=1).encode(x=x, y=y, color=color, shape=shape),
        canvas.hover(rows, x, y),
    ]
    return canvas.finish(alt.layer(*layers), 24 * len(rows) + 4)


def together(audit: Audit) -> str:
    """How surely the bounds of the groups hold: all at once, or, in an audit that does not say so, each alone."""
    rows = audit.subgroups
    joint = rows[0].joint_confidence if rows else None
    if joint is None:
        return "Each bound holds for its group alone, so the largest of them need not hold."
    which = "It holds" if len(rows) == 1 else f"All {len(rows)} bounds hold at once"
    return f"{which} with {percent(joint)} confidence."


def subgroups(audit: Audit, drawings: Pictures) -> str:
    """Bounds for each group, with those flagged after correction."""
    groups = audit.subgroups
    if not groups:
        return ""
    flagged = [g for g in groups if g.flagged]
    names = ", ".join(short(f"{g.group} = {g.value}") for g in flagged[:5])
    if flagged:
        verb = "is" if len(flagged) == 1 else "are"
        lead = (
            f"{len(flagged)} of {len(groups)} groups {verb} more exposed than the rest, "
            f"after correction for their number: {names}{' …' if len(flagged) > 5 else ''}."
        )
    else:
        lead = (
            f"None of the {len(groups)} groups is shown to be more exposed than the rest, "
            "after correction for their number."
        )
    top = max(groups, key=lambda g: known(g.epsilon))
    sure = together(audit)
    act = whose(top.neighbours, facts.unit(audit))
    caption = (
        f"The largest bound is ε ≥ {epsilon(top.epsilon)} for {short(top.group)} = {short(top.value)}"
        f"{', ' + act if act else ''}. "
        f"{sure} The dashed line is the bound "
        f"of all records, ε ≥ {epsilon(audit.headline.low)}. Triangles are flagged groups."
        + (f" The {MOST_SUBGROUPS} groups with the largest bounds are drawn." if len(groups) > MOST_SUBGROUPS else "")
    )
    shown = groups[:MOST_ROWS]
    body = paragraph(lead) + figure("subgroups", "Bound by group", caption, drawings, by="y")
    listed = table(
        _counted(f"Groups, and the ε proven for each{', ' + act if act else ''}. {sure}", len(shown), len(groups)),
        ("group", "members", "non-members", "ε at least", "AUC", "p-value", "p-value, corrected", "flagged"),
        [_group_row(g) for g in shown],
        numeric=range(1, 7),
        marked=[i for i, g in enumerate(shown) if g.flagged],
    )
    body += folded(f"All {len(shown)} groups as a table" if len(shown) == len(groups) else "Groups as a table", listed)
    return section("subgroups", "Groups of people", body)


def _group_row(g: Subgroup) -> tuple[str, ...]:
    return (
        short(f"{g.group} = {g.value}"),
        str(g.members),
        str(g.nonmembers),
        epsilon(g.epsilon),
        "–" if g.auc is None else f"{g.auc:.3g}",
        small(g.p_value),
        "–" if g.adjusted_p_value is None else small(g.adjusted_p_value),
        "⚠ yes" if g.flagged else "no",
    )


def exposed(audit: Audit) -> str:
    """The records that the attack points at most surely."""
    records = audit.exposed
    if not records:
        return ""
    shown = records[:MOST_ROWS]
    body = paragraph(
        "The members that the attack recognises most surely. A small false-positive rate means "
        "that hardly any outsider looks as "
        "much like a member as this record does. The list itself is sensitive: it names members. The risk of all "
        "records is in the table of `risk_table` (`--records`), which is not part of this page or of the JSON."
    )
    header = ("record", "label", "score", "false-positive rate at its score")
    lines = [(value(r.record), value(r.label), value(r.score), share(r.threshold_fpr)) for r in shown]
    body += table(f"The first {min(FIRST, len(lines))}", header, lines[:FIRST], numeric=(2, 3))
    if len(lines) > FIRST:
        rest = table(_counted("Most exposed records", len(shown), len(records)), header, lines, numeric=(2, 3))
        body += folded(f"All {len(lines)} of the list", rest)
    return section("exposed", "Most exposed records", body)


def _counted(caption: str, shown: int, total: int) -> str:
    return caption if shown == total else f"{caption} (the first {shown} of {total})"


def limits(audit: Audit) -> str:
    """What this audit cannot show."""
    head = audit.headline
    lines = [
        "That the model is private. A lower bound says what this attack has proven; "
        "a better attack, or more records, may prove more.",
        "What stronger attackers can do: those who see gradients, train models of their own, or plant records.",
        "The risk of each single person. The bound speaks of the records that were tried; "
        "one unusual record may be more exposed than all of them.",
        "Anything about people who resemble the members but were not in the data: "
        "what a model has learnt about a whole population is not measured here.",
        "The loss from other releases made from the same data. Losses add up over models, versions and statistics.",
    ]
    if not audit.guard.checked:
        lines.insert(
            0,
            "Whether members and non-members come from one distribution: it was not checked, "
            "and if they do not, no number here is about privacy.",
        )
    if head.validity.is_bound and head.low == 0:
        lines.insert(0, "Anything above chance: the bound is 0, which is not evidence of privacy.")
    if head.validity == Validity.RANDOM_SPLIT:
        lines.append(
            "Whether members and non-members are a random split of one population: the headline rests on it. A mask of "
            "fair coins, drawn before the training, would make it certain."
        )
    if head.validity == Validity.INDEPENDENT_RUNS:
        lines.append("Whether every score comes from a run of its own: the headline rests on it.")
    if any(e.validity == Validity.INSTANCE_METRIC for e in audit.estimates):
        lines.append("The DP ε of the training method from Epsilon*: that number is about this one model.")
    if audit.upper:
        lines.append(
            "Whether the training code does what its parameters say: "
            "the accountants were given the parameters, not the code."
        )
    else:
        lines.append("An upper limit: no guarantee was given, so the true loss may be anything above the bound.")
    return section("limits", "What this audit cannot show", bullets(lines, terms=True))
