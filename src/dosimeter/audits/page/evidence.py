"""The evidence: the counts that the headline rests on, and both ends of ε."""

from __future__ import annotations

import math
from collections.abc import Mapping

from dosimeter.accounting import Guarantee
from dosimeter.accounting.region import comparable
from dosimeter.audits.page import facts
from dosimeter.audits.result import Audit
from dosimeter.estimate import Estimate, percent
from dosimeter.report.canvas import ACCENT, INK, MUTED, OPEN, WARNING, Canvas, Rows, Spec, decades
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
        caption = "What the headline counts; the others taught the test its weights, and a guess is right in half"
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
    found = facts.bounds(audit)
    if not found:
        head = audit.headline
        number = f"{facts.symbol(head)} = {epsilon(head.epsilon)}"
        lines = [f"{number} is not a bound (validity: {head.validity}), so no value of ε is excluded from below."]
        _, stated = facts.drawn(audit)
        if stated is not None:
            lines.append(f"The accountants prove ε ≤ {epsilon(stated.epsilon)} {whose(stated.neighbours)}.")
        return lines
    lines = [_end(lower, facts.guarantee(audit, lower), facts.unit(audit)) for lower in found]
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

    attack = "attack" if canvas.phone else f"attack ({clean(lower.method)})"
    rows: Rows = [
        {
            "row": attack,
            "kind": "excluded by the attack",
            "at": place(low),
            "edge": left,
            "shown": epsilon(low),
            "text": f"The attack: ε ≥ {epsilon(low)} ({lower.validity})",
        }
    ]
    for g in uppers:
        proven = "excluded by a guarantee" if g.is_bound else "a formula, not proven"
        sign = "≤" if g.is_bound else "≈"
        note = "" if g.is_bound else ", not a proven bound"
        text = f"{clean(g.method)}: ε {sign} {epsilon(g.epsilon)}{note}"
        rows.append(
            {
                "row": clean(g.method),
                "kind": proven,
                "at": place(g.epsilon),
                "edge": right,
                "shown": epsilon(g.epsilon),
                "text": text,
            }
        )
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
        .encode(x=x, x2="edge:Q", y=y, color=color)
        .transform_filter("datum.kind != 'a formula, not proven'"),
        base.mark_bar(height=1.5, opacity=0.8)
        .encode(x=x, x2="edge:Q", y=y, color=color)
        .transform_filter("datum.kind == 'a formula, not proven'"),
        base.mark_text(align="left", dx=6)
        .encode(x=x, y=y, text="shown:N")
        .transform_filter("datum.kind == 'excluded by the attack'"),
        base.mark_text(align="right", dx=-6)
        .encode(x=x, y=y, text="shown:N")
        .transform_filter("datum.kind != 'excluded by the attack'"),
        canvas.hover(rows, x, y),
    ]
    if tight is not None and tight.epsilon < math.inf:
        ends = sorted((place(low), place(tight.epsilon)))
        box = canvas.chart([{"from": ends[0], "to": ends[1], "kind": between}])
        band = box.mark_rect(opacity=0.3 if clash else 1)
        layers.insert(0, band.encode(x=alt.X("from:Q", scale=scale), x2="to:Q", color=color))
    return canvas.finish(alt.layer(*layers), 22 * len(rows) + 4)
