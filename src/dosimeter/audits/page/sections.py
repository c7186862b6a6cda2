"""The parts of the page that say what was found: verdict, region, meaning for a person, charts, groups, records."""

from __future__ import annotations

import math

import numpy as np

from dosimeter._validate import FloatArray
from dosimeter.accounting import Guarantee
from dosimeter.accounting.region import comparable
from dosimeter.audits.page import facts
from dosimeter.audits.page.charts import MOST_SUBGROUPS, ROC_POINTS, STAR_POINTS
from dosimeter.audits.part import known
from dosimeter.audits.result import Allowed, Audit, Subgroup
from dosimeter.estimate import Estimate, Validity, percent
from dosimeter.report.markup import bullets, esc, paragraph, section, table
from dosimeter.report.shell import Pictures, figure
from dosimeter.report.text import NOT_STATED, clean, epsilon, joined, share, short, small, value, whose

MOST_ROWS = 100


def guard(audit: Audit) -> str:
    """The verdict of the shift check, which stands above every ε."""
    found = audit.guard
    notes = [*found.evidence.reasons, *found.evidence.warnings]
    if found.shift:
        kind, what = "shift", "⚠ Warning: members and non-members differ even without the model."
        says = (
            f"{found} The numbers below may measure that difference and not what the model has learnt. Do not read "
            "them as privacy loss before members and non-members come from one distribution."
        )
    elif found.checked:
        kind, what, says = (
            "passed",
            "✓ Checked first: members and non-members look alike without the model.",
            str(found),
        )
    else:
        kind, what, says = (
            "",
            "Not checked: whether members and non-members differ.",
            str(found).removeprefix("Not checked: "),
        )
        says = says[:1].upper() + says[1:]
    notes = [note for note in notes if note.lower() not in says.lower()]
    role = ' role="alert"' if found.shift else ""
    return (
        f'<div class="guard {kind}"{role}>{paragraph(what, "what")}{paragraph(says)}'
        f"{''.join(paragraph(note, 'note') for note in notes)}</div>\n"
    )


def verdict(audit: Audit) -> str:
    """The headline's claim and the figures that belong to it."""
    head = audit.headline
    tiles = [*_lower_tiles(audit), _upper_tile(audit)]
    point = facts.tpr_at(audit, facts.SHOWN_FPR)
    if point is not None:
        limit = point.limit
        sure = (
            "these records are too few, or too dependent, for a limit"
            if limit is None
            else f"truly at least {share(limit)} with {percent(head.confidence)} confidence"
        )
        tiles.append((f"Measured: members found at {share(point.fpr)} false alarms", share(point.tpr), sure))
    cells = "".join(
        f'<div><dt>{esc(name)}</dt><dd class="big">{esc(big)}</dd><dd class="how">{esc(how)}</dd></div>'
        for name, big, how in tiles
    )
    doubt = ' class="shifted"' if audit.guard.shift else ""
    return section(
        "verdict",
        "Verdict",
        f'{guard(audit)}<div{doubt}>{paragraph(head.claim, "claim")}<dl class="figures">{cells}</dl></div>\n'
        f"{bullets(head.warnings, 'note') if head.warnings else ''}",
    )


def _lower_tiles(audit: Audit) -> list[tuple[str, str, str]]:
    """What the attack proves, for each kind of neighbours; a number that is not a bound is not called one."""
    head, unit = audit.headline, facts.unit(audit)
    if head.validity.is_bound:
        return [
            (
                "Proven by the attack",
                f"ε ≥ {epsilon(e.low)}",
                joined(
                    whose(e.neighbours, unit),
                    f"δ = {small(e.delta)}, {percent(e.confidence)} confidence",
                    str(e.validity),
                ),
            )
            for e in facts.bounds(audit)
        ]
    kind = "Measured" if head.validity == Validity.MEASUREMENT else "Estimated"
    how = joined(f"at δ = {small(head.delta)}", f"{head.validity}, not a bound on ε")
    return [(kind, f"{facts.symbol(head)} = {epsilon(head.epsilon)}", how)]


def _upper_tile(audit: Audit) -> tuple[str, str, str]:
    stated = facts.drawn(audit)[1]
    beside = stated or facts.other_guarantee(audit)
    if beside is None:
        return "Guaranteed by the training", NOT_STATED, "no proven upper bound was given"
    apart = "" if stated is not None else "another ε than the attack's"
    how = joined(
        whose(beside.neighbours),
        f"δ = {small(beside.delta)}",
        f"proven by {clean(beside.method)}",
        apart,
    )
    return "Guaranteed by the training", f"ε ≤ {epsilon(beside.epsilon)}", how


def region(audit: Audit, drawings: Pictures) -> str:
    """Lower and upper bounds of the same neighbours, and what is open between."""
    body = "".join(paragraph(line) for line in _ends(audit))
    reach = audit.headline.details.get("largest_provable")
    if facts.bounds(audit) and isinstance(reach, (int, float)) and math.isfinite(reach):
        unit = facts.unit(audit)
        body += paragraph(
            f"With this many {unit}s even a perfect attack would have proven about ε ≥ {epsilon(reach)} "
            f"{whose(audit.headline.neighbours, unit)}. A small number is not evidence of privacy.",
            "note",
        )
    lower, stated = facts.drawn(audit)
    same = [g for g in audit.upper if comparable(lower, g)]
    caption = (
        f"On a logarithmic axis, all {whose(lower.neighbours, facts.unit(audit)) or 'for the same neighbours'}: values "
        f"of ε below {epsilon(lower.low)} are excluded by the attack; "
        f"{len(same)} accountants exclude values "
        f"above theirs, the tightest proven one above {epsilon(stated.epsilon) if stated else '∞'}. "
        "Thin lines are formulas without proof."
    )
    body += figure("region", "Region of privacy", caption, drawings, by="y")
    warnings = () if audit.region is None else audit.region.warnings
    body += bullets(warnings, "note") if warnings else ""
    if audit.upper:
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
        upper = table(caption, header, [line[:columns] for line in lines], numeric=(1,))
        body += f"<details><summary>The upper bounds as a table</summary>{upper}</details>\n"
    return section("region", "Region of privacy", body)


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
    lead = facts.lead(audit)
    if lead is not None:
        question = "Share of members found minus share of non-members accused, at the best threshold"
        lines.append((question, share(0.0), share(lead), "–"))
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
        css_class="risk",
    )


def _proven(audit: Audit) -> str:
    """Which guarantees are excluded, each with the counts that it rests on."""
    words = [clean(line) for line in audit.risk.words]
    if not words:
        return ""
    counts = [facts.counts_of(bound) for bound in facts.bounds(audit)]
    lines = [f"{line} {counts[i]}".strip() if i < len(counts) else line for i, line in enumerate(words)]
    return f"<h3>Proven: which guarantees are excluded</h3>{bullets(lines)}"


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
    body += table(
        "The most that a guarantee allows",
        ("question", "without any leak", *(name for name, _ in columns)),
        lines,
        numeric=range(1, 2 + len(columns)),
        css_class="risk",
    )
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


def roc(audit: Audit, drawings: Pictures) -> str:
    """The ROC curve and its text alternative."""
    lines = facts.roc_lines(audit, ROC_POINTS)
    if lines is None or audit.curve is None:
        return ""
    parts = [f"TPR {share(p.tpr)} at FPR {share(p.fpr)}" for p in audit.curve.tpr_at_fpr]
    caption = (
        f"Area under the curve {audit.curve.auc:.4g}. "
        + (f"{'; '.join(parts)} (dots). " if parts else "")
        + "Dotted: guessing."
    )
    ends = [f"TNR {share(p.tnr)} at FNR {share(p.fnr)}" for p in audit.curve.tnr_at_fnr]
    if ends:
        caption += f" At the other end of the curve, non-members are told for sure: {'; '.join(ends)}."
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


def distributions(audit: Audit, drawings: Pictures) -> str:
    """The losses of both groups."""
    bins = audit.distributions
    if bins is None:
        return ""
    edges, members, nonmembers = (np.array(v, float) for v in (bins.edges, bins.members, bins.nonmembers))
    widths, middles, name = np.diff(edges), (edges[1:] + edges[:-1]) / 2, short(bins.name)

    def mean(heights: FloatArray) -> float:
        masses = widths * heights
        return float((masses * middles).sum() / (masses.sum() or 1.0))

    overlap = float((widths * np.minimum(members, nonmembers)).sum())
    caption = (
        f"Mean {name} about {mean(members):.4g} for members (solid) and "
        f"{mean(nonmembers):.4g} for non-members (dashed); "
        f"the two overlap by {share(min(overlap, 1.0))}. The attack sees only this difference."
    )
    return section(
        "distributions",
        "Where the difference is",
        figure("distributions", f"Distribution of the {name}", caption, drawings),
    )


def star(audit: Audit, drawings: Pictures) -> str:
    """The Epsilon* curve, or why there is none."""
    listed = [e for e in audit.estimates if e.method.startswith("epsilon-star")]
    found = facts.star(audit, STAR_POINTS)
    if found is None and (audit.star is None or not listed):
        return ""
    body = paragraph(
        "Epsilon* describes this one trained model. It does not bound the DP ε of the method that trained it."
    )
    for e in listed:
        if not facts.measurable(e):
            body += paragraph(e.claim, "note")
    if found is None:
        return section("star", "Epsilon* along the thresholds", body)
    best = found.best
    if best is None:
        top = "The largest value is not finite and so not drawn."
    else:
        top = (
            f"The largest value, the empirical form of Epsilon*, is {epsilon(float(found.epsilon[best]))} "
            f"at FPR {share(float(found.fpr[best]))} and "
            f"FNR {share(float(found.fnr[best]))} (diamond)."
        )
    caption = (
        "ε that the measured rates force at each threshold, "
        f"from FPR {share(float(found.fpr.min()))} to {share(float(found.fpr.max()))}. {top}"
    )
    fitted = next((e for e in listed if e.method.endswith("parametric") and facts.measurable(e)), None)
    if fitted is not None:
        caption += f" The parametric form, from normal fits, is {epsilon(fitted.epsilon)}."
    return section("star", "Epsilon* along the thresholds", body + figure("star", "Epsilon* curve", caption, drawings))


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
    together = facts.together(audit)
    act = whose(top.neighbours, facts.unit(audit))
    caption = (
        f"The largest bound is ε ≥ {epsilon(top.epsilon)} for {short(top.group)} = {short(top.value)}"
        f"{', ' + act if act else ''}. "
        f"{together} The dashed line is the bound "
        f"of all records, ε ≥ {epsilon(audit.headline.low)}. Triangles are flagged groups."
        + (f" The {MOST_SUBGROUPS} groups with the largest bounds are drawn." if len(groups) > MOST_SUBGROUPS else "")
    )
    shown = groups[:MOST_ROWS]
    body = paragraph(lead) + figure("subgroups", "Bound by group", caption, drawings, by="y")
    body += table(
        _counted(f"Groups, and the ε proven for each{', ' + act if act else ''}. {together}", len(shown), len(groups)),
        ("group", "members", "non-members", "ε at least", "AUC", "p-value", "p-value, corrected", "flagged"),
        [_group_row(g) for g in shown],
        numeric=range(1, 7),
        marked=[i for i, g in enumerate(shown) if g.flagged],
    )
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
    found = audit.exposed
    if not found:
        return ""
    shown = found[:MOST_ROWS]
    body = paragraph(
        "The members that the attack recognises most surely. A small false-positive rate means "
        "that hardly any outsider looks as "
        "much like a member as this record does. The list itself is sensitive: it names members. The risk of all "
        "records is in the table of `risk_table` (`--records`), which is not part of this page or of the JSON."
    )
    body += table(
        _counted("Most exposed records", len(shown), len(found)),
        ("record", "label", "score", "false-positive rate at its score"),
        [(value(r.record), value(r.label), value(r.score), share(r.threshold_fpr)) for r in shown],
        numeric=(2, 3),
    )
    return section("exposed", "Most exposed records", body)


def _counted(caption: str, shown: int, total: int) -> str:
    return caption if shown == total else f"{caption} (the first {shown} of {total})"
