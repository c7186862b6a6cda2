"""The parts of the page that say what was found: verdict, region, meaning for a person, charts, groups, records."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from dosimeter.accounting import Guarantee
from dosimeter.audits.audit import Audit
from dosimeter.estimate import percent
from dosimeter.identifiability import risk_from_epsilon, risk_in_words
from dosimeter.report import facts
from dosimeter.report.charts import MOST_SUBGROUPS, ROC_POINTS, STAR_POINTS
from dosimeter.report.draw import Drawing
from dosimeter.report.markup import bullets, esc, paragraph, section, table
from dosimeter.report.text import NOT_STATED, clean, epsilon, share, short, small, value

MOST_ROWS = 100


def figure(name: str, title: str, caption: str, drawings: Mapping[str, Mapping[str, Drawing]], *, by: str = "x") -> str:
    """A chart in both widths with its text alternative; `by`: the axis along which the pointer looks for a value."""
    if name not in drawings:
        return ""
    pictures = "".join(drawing.svg for drawing in drawings[name].values())
    return (
        f'<figure aria-labelledby="{name}-caption"><div class="plot" data-chart="{name}" data-name="{esc(title)}" '
        f'data-by="{by}">{pictures}</div>'
        f'<figcaption id="{name}-caption"><strong>{esc(title)}.</strong> {esc(caption)}</figcaption></figure>\n'
    )


def guard(audit: Audit) -> str:
    """The verdict of the shift check, which stands above every ε."""
    found = audit.guard
    notes = [str(text) for key in ("reasons", "warnings") for text in found.evidence.get(key) or ()]
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
    head, stated = audit.headline, facts.guarantee(audit)
    at = f"δ = {small(head.delta)}"
    tiles = [
        (
            "Shown by the attack",
            f"ε ≥ {epsilon(head.low)}",
            f"{at}, {percent(head.confidence)} confidence; {head.validity}",
        )
    ]
    if stated is None:
        tiles.append(("Guaranteed by the training", NOT_STATED, "no proven upper bound was given"))
    else:
        tiles.append(
            (
                "Guaranteed by the training",
                f"ε ≤ {epsilon(stated.epsilon)}",
                f"δ = {small(stated.delta)}; proven by {clean(stated.method)}",
            )
        )
    point = facts.tpr_at(audit, facts.SHOWN_FPR)
    if point is not None:
        limit = facts.limit_of(point)
        sure = (
            "measured; these records are too few, or too dependent, for a limit"
            if limit is None
            else f"measured; truly at least {share(limit)} with {percent(head.confidence)} confidence"
        )
        tiles.append((f"Members found at {share(point['fpr'])} false alarms", share(point["tpr"]), sure))
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


def region(audit: Audit, drawings: Mapping[str, Mapping[str, Drawing]]) -> str:
    """Lower and upper bounds, and what is open between."""
    head, stated = audit.headline, facts.guarantee(audit)
    low = epsilon(head.low)
    if facts.contradiction(audit) and stated is not None:
        lead = (
            f"The attack has shown ε ≥ {low}, the guarantee says ε ≤ {epsilon(stated.epsilon)}. "
            "Both cannot hold: the training does "
            f"not keep its guarantee, or the {percent(head.confidence)} bound has missed."
        )
    elif stated is None:
        lead = f"The attack has shown ε ≥ {low}. No guarantee was given, so nothing bounds ε from above."
    elif math.isinf(stated.epsilon):
        lead = (
            f"The attack has shown ε ≥ {low}. The accountants can promise nothing (ε ≤ ∞), "
            "so nothing bounds ε from above."
        )
    else:
        lead = (
            f"The attack has shown ε ≥ {low}, the guarantee says ε ≤ {epsilon(stated.epsilon)}. "
            "Nothing is known in between."
        )
    body = paragraph(lead)
    reach = head.details.get("largest_provable")
    if isinstance(reach, (int, float)) and math.isfinite(reach):
        body += paragraph(
            f"With this many records even a perfect attack could not have shown more than ε ≥ {epsilon(reach)}. "
            "A small number is not evidence of privacy.",
            "note",
        )
    caption = (
        f"On a logarithmic axis: values of ε below {low} are excluded by the attack; "
        f"{len(audit.upper)} accountants exclude values "
        f"above theirs, the tightest proven one above {epsilon(stated.epsilon) if stated else '∞'}. "
        "Thin lines are formulas without proof."
    )
    body += figure("region", "Region of privacy", caption, drawings, by="y")
    warnings = list((audit.region or {}).get("warnings") or ())
    body += bullets(warnings, "note") if warnings else ""
    if audit.upper:
        same = {(g.delta, g.neighbours, g.sampling) for g in audit.upper}
        lines = [
            (g.method, epsilon(g.epsilon), "yes" if g.is_bound else "no", _terms(g)) for g in facts.ordered(audit.upper)
        ]
        caption = (
            f"Upper bounds for the same training run, {_terms(audit.upper[0])}"
            if len(same) == 1
            else "Upper bounds by accountant"
        )
        columns = 3 if len(same) == 1 else 4
        header = ("accountant", "ε", "proven", "for")[:columns]
        bounds = table(caption, header, [line[:columns] for line in lines], numeric=(1,))
        body += f"<details><summary>The same as a table</summary>{bounds}</details>\n"
    return section("region", "Region of privacy", body)


def _terms(g: Guarantee) -> str:
    return f"δ = {small(g.delta)}, {g.neighbours} neighbours, {g.sampling} sampling"


def person(audit: Audit) -> str:
    """What the two ends mean for one person, as a table and in words."""
    head, stated = audit.headline, facts.guarantee(audit)
    shown = audit.risk
    if "belief" not in shown:
        return ""
    allowed = None if stated is None else risk_from_epsilon(stated.epsilon, stated.delta)
    lines = []

    def add(question: str, without: float, measured: str, low: float, key: str, index: int, field: str) -> None:
        limit = "no limit known" if allowed is None else share(allowed[key][index][field])
        lines.append((question, share(without), measured, share(low), limit))

    for i, item in enumerate(shown["belief"]):
        add(
            f"Belief that the person is in the data, from {share(item['prior'])} before",
            item["prior"],
            "–",
            item["belief"],
            "belief",
            i,
            "belief",
        )
    for i, item in enumerate(shown["tpr"]):
        point = facts.tpr_at(audit, item["fpr"])
        limit = None if point is None else facts.limit_of(point)
        measured = "–" if point is None else share(point["tpr"])
        measured += "" if limit is None else f" (≥\u00a0{share(limit)})"
        add(
            f"Members found when {share(item['fpr'])} of outsiders are accused",
            item["fpr"],
            measured,
            item["tpr"],
            "tpr",
            i,
            "tpr",
        )
    most = "no limit known" if allowed is None else share(allowed["advantage"])
    lines.append(("Best lead of hits over false alarms", share(0.0), "–", share(shown["advantage"]), most))
    for i, item in enumerate(shown["reconstruction"]):
        add(
            f"Success of guessing a hidden attribute, {share(item['baseline'])} without the model",
            item["baseline"],
            "–",
            item["success"],
            "reconstruction",
            i,
            "success",
        )
    end = "–" if stated is None else f"ε ≤ {epsilon(stated.epsilon)}"
    body = paragraph(
        "Two readings of the same scale. What the attack has shown can no longer be ruled out by any guarantee; "
        "what the guarantee allows is "
        "the most that anybody can ever do, with any attack."
    )
    body += table(
        "Risk for a person from both sides",
        (
            "question",
            "without any leak",
            "measured",
            f"cannot be ruled out any more (ε ≥ {epsilon(head.low)})",
            f"most that is allowed ({end})",
        ),
        lines,
        numeric=(1, 2, 3, 4),
        css_class="risk",
    )
    words = [_words("What the attack has shown", list(shown.get("words") or ()))]
    if stated is not None:
        words.append(_words("What the guarantee allows", risk_in_words(stated.epsilon, stated.delta, side="upper")))
    return section("person", "What it means for a person", body + f'<div class="sides">{"".join(words)}</div>')


def _words(heading: str, sentences: list[str]) -> str:
    if not sentences:
        return ""
    first, *rest = (s[:1].upper() + s[1:].replace(" %", "\u00a0%") for s in map(clean, sentences))
    return f"<div><h3>{esc(heading)}</h3>{paragraph(first)}{bullets(rest) if rest else ''}</div>"


def roc(audit: Audit, drawings: Mapping[str, Mapping[str, Drawing]]) -> str:
    """The ROC curve and its text alternative."""
    lines = facts.roc_lines(audit, ROC_POINTS)
    if lines is None:
        return ""
    parts = [f"TPR {share(p['tpr'])} at FPR {share(p['fpr'])}" for p in facts.tpr_points(audit)]
    auc = audit.curve.get("auc")
    caption = (
        (f"Area under the curve {auc:.4g}. " if auc is not None else "")
        + (f"{'; '.join(parts)} (dots). " if parts else "")
        + f"Shaded: with {percent(audit.headline.confidence)} confidence the true curve lies nowhere "
        "below the dashed line, at all thresholds at once. "
        "Dotted: guessing. The limits take the records of each kind as drawn at random: for one trained model, members "
        "from those that it was trained on, non-members from those that it has not seen."
    )
    stated = facts.guarantee(audit)
    if stated is not None and math.isfinite(stated.epsilon):
        caption += f" Long dashes: the most that ε ≤ {epsilon(stated.epsilon)} allows."
    return section(
        "roc", "How well members are told apart", figure("roc", "ROC curve on logarithmic axes", caption, drawings)
    )


def distributions(audit: Audit, drawings: Mapping[str, Mapping[str, Drawing]]) -> str:
    """The losses of both groups."""
    found = audit.distributions
    if not found:
        return ""
    edges = [float(v) for v in found["edges"]]
    name = short(found.get("name", "loss"))

    def mean(heights: Any) -> float:
        masses = [(b - a) * float(h) for a, b, h in zip(edges[:-1], edges[1:], heights, strict=True)]
        middles = [(a + b) / 2 for a, b in pairwise(edges)]
        return sum(m * x for m, x in zip(masses, middles, strict=True)) / (sum(masses) or 1.0)

    overlap = sum(
        (b - a) * min(float(m), float(n))
        for a, b, m, n in zip(edges[:-1], edges[1:], found["members"], found["nonmembers"], strict=True)
    )
    caption = (
        f"Mean {name} about {mean(found['members']):.4g} for members (solid) and "
        f"{mean(found['nonmembers']):.4g} for non-members (dashed); "
        f"the two overlap by {share(min(overlap, 1.0))}. The attack sees only this difference."
    )
    return section(
        "distributions",
        "Where the difference is",
        figure("distributions", f"Distribution of the {name}", caption, drawings),
    )


def star(audit: Audit, drawings: Mapping[str, Mapping[str, Drawing]]) -> str:
    """The Epsilon* curve."""
    found = facts.star(audit, STAR_POINTS)
    if found is None:
        return ""
    best = found["best"]
    if best is None:
        top = "The supremum is not finite and so not drawn."
    else:
        top = (
            f"The supremum is ε = {epsilon(float(found['epsilon'][best]))} "
            f"at FPR {share(float(found['fpr'][best]))} and "
            f"FNR {share(float(found['fnr'][best]))} (diamond)."
        )
    caption = (
        "ε that the measured rates force at each threshold, "
        f"from FPR {share(float(found['fpr'].min()))} to {share(float(found['fpr'].max()))}. {top}"
    )
    body = paragraph(
        "Epsilon* describes this one trained model. It is not a bound on the DP ε of the method that trained it."
    )
    return section("star", "Epsilon* along the thresholds", body + figure("star", "Epsilon* curve", caption, drawings))


def subgroups(audit: Audit, drawings: Mapping[str, Mapping[str, Drawing]]) -> str:
    """Bounds for each group, with those flagged after correction."""
    groups = audit.subgroups
    if not groups:
        return ""
    flagged = [g for g in groups if g.get("flagged")]
    names = ", ".join(short(f"{g['group']} = {g['value']}") for g in flagged[:5])
    if flagged:
        lead = (
            f"{len(flagged)} of {len(groups)} groups are more exposed than the rest, "
            f"after correction for their number: {names}{' …' if len(flagged) > 5 else ''}."
        )
    else:
        lead = (
            f"None of the {len(groups)} groups is shown to be more exposed than the rest, "
            "after correction for their number."
        )
    top = max(groups, key=lambda g: facts.known(g.get("epsilon")))
    together = facts.together(audit)
    caption = (
        f"The largest bound is ε ≥ {epsilon(top.get('epsilon'))} for {short(top['group'])} = {short(top['value'])}. "
        f"{together} The dashed line is the bound "
        f"of all records, ε ≥ {epsilon(audit.headline.low)}. Triangles are flagged groups."
        + (f" The {MOST_SUBGROUPS} groups with the largest bounds are drawn." if len(groups) > MOST_SUBGROUPS else "")
    )
    columns = (
        ("members", "members", str),
        ("nonmembers", "non-members", str),
        ("epsilon", "ε at least", epsilon),
        ("advantage", "advantage", share),
        ("auc", "AUC", lambda v: f"{v:.3g}"),
        ("p_value", "p-value", small),
        ("adjusted_p_value", "p-value, corrected", small),
    )
    used = [c for c in columns if c[0] == "epsilon" or any(g.get(c[0]) is not None for g in groups)]

    def cell(group: Mapping[str, Any], key: str, show: Any) -> str:
        item = group.get(key)
        return show(item) if item is not None or key == "epsilon" else "–"

    body = paragraph(lead) + figure("subgroups", "Bound by group", caption, drawings, by="y")
    shown = groups[:MOST_ROWS]
    body += table(
        _counted(f"Groups and what was shown for each. {together}", len(shown), len(groups)),
        ("group", *(c[1] for c in used), "flagged"),
        [
            (
                short(f"{g['group']} = {g['value']}"),
                *(cell(g, c[0], c[2]) for c in used),
                "⚠ yes" if g.get("flagged") else "no",
            )
            for g in shown
        ],
        numeric=range(1, len(used) + 1),
        marked=[i for i, g in enumerate(shown) if g.get("flagged")],
    )
    return section("subgroups", "Groups of people", body)


def exposed(audit: Audit) -> str:
    """The records that the attack points at most surely."""
    found = audit.exposed
    if not found:
        return ""
    shown = found[:MOST_ROWS]
    body = paragraph(
        "The members that the attack recognises most surely. A small false-positive rate means "
        "that hardly any outsider looks as "
        "much like a member as this record does. The list itself is sensitive: it names members."
    )
    body += table(
        _counted("Most exposed records", len(shown), len(found)),
        ("record", "label", "score", "false-positive rate at its score"),
        [
            (value(r.get("record")), value(r.get("label")), value(r.get("score")), share(r.get("threshold_fpr")))
            for r in shown
        ],
        numeric=(2, 3),
    )
    return section("exposed", "Most exposed records", body)


def _counted(caption: str, shown: int, total: int) -> str:
    return caption if shown == total else f"{caption} (the first {shown} of {total})"
