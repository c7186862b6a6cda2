"""Several audits side by side: a table, the bounds, and the privacy–utility landscape."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeGuard

import numpy as np

from dosimeter import _validate as check
from dosimeter._validate import FloatArray, InputError
from dosimeter.accounting import Guarantee
from dosimeter.audits.compare.charts import bounds_chart, dense_groups, known_of, landscape_chart
from dosimeter.audits.compare.landscape import GUARANTEED, LOWER, VALUE, Point, strategies
from dosimeter.audits.page import facts
from dosimeter.audits.page.facts import Conclusion
from dosimeter.audits.result import Audit
from dosimeter.estimate import Estimate
from dosimeter.report.canvas import CATEGORIES, NARROW, WIDE, Canvas
from dosimeter.report.markup import (
    NOT_STATED,
    Pictures,
    assemble,
    bullets,
    drawings,
    epsilon,
    figure,
    folded,
    paragraph,
    section,
    share,
    short,
    table,
    whose,
)


def compare_page(
    audits: Sequence[Audit],
    names: Sequence[str],
    utilities: Sequence[float] | None = None,
    *,
    categories: Sequence[str] | None = None,
    method: str | None = None,
    title: str = "Privacy audits compared",
) -> str:
    """Make a page that sets audits side by side.

    Audits with the same name are repeats of one strategy: the landscape of privacy and utility shows their mean and
    their range. Its ε is the guarantee where there is one, and the frontier is drawn through guarantees only: a small
    lower bound is not more privacy. A strategy without a guarantee stands at its lower bound.

    Args:
        audits: The audits, at least one.
        names: A name for each.
        utilities: A number for each, larger is better, e.g. the accuracy; None leaves the landscape out.
        categories: Groups the points of the landscape by colour.
        method: An estimate whose value is drawn in the landscape instead.
        title: The heading.

    Returns:
        The text of one HTML file.

    Raises:
        InputError: If there is no audit, a list has another length, or an audit lacks `method`.

    >>> from dosimeter import Scores, audit_scores
    >>> one = audit_scores(Scores([2.0, 3.0], [0.0, 1.0]))
    >>> compare_page([one, one], ["first", "second"])[:15]
    '<!DOCTYPE html>'
    """
    audits, labels = list(audits), [short(name) for name in names]
    if not audits or any(not isinstance(a, Audit) for a in audits):
        raise InputError("audits must be a list with at least one Audit; pass what the audit functions returned.")
    _same_length("names", labels, audits)
    shown = np.array([_epsilon(a, name, method) for a, name in zip(audits, labels, strict=True)])
    useful = None if utilities is None else check.finite_array("utilities", utilities)
    groups = ["all"] * len(audits) if categories is None else [short(c) for c in categories]
    _same_length("categories", groups, audits)
    if useful is not None:
        _same_length("utilities", useful, audits)
    if len(set(groups)) > len(CATEGORIES):
        raise InputError(f"categories has {len(set(groups))} different names; use at most {len(CATEGORIES)}.")

    kinds = [_kind(a, method) for a in audits]
    points = None if useful is None else strategies(shown, useful, labels, groups, kinds)
    specs = {}
    for width_name, width in (("wide", WIDE), ("narrow", NARROW)):
        specs[width_name] = {"bounds": bounds_chart(Canvas(width), audits, labels)}
        if points:
            specs[width_name]["landscape"] = landscape_chart(Canvas(width), points)
    pictures = drawings(specs)
    parts = [
        _overview(audits, labels, useful),
        _bounds(audits, labels, pictures),
        _landscape(points, method, int(np.isinf(shown).sum()), pictures) if points is not None else "",
        _claims(audits, labels),
    ]
    return assemble(title, f"{len(audits)} audits", parts, pictures)


def _same_length(name: str, values: Any, audits: list[Audit]) -> None:
    if len(values) != len(audits):
        raise InputError(f"{name} has {len(values)} entries for {len(audits)} audits; pass one for each audit.")


def _estimate(audit: Audit, name: str, method: str) -> Estimate:
    estimate = next((e for e in audit.estimates if e.method == method), None)
    if estimate is None:
        known = ", ".join(dict.fromkeys(e.method for e in audit.estimates))
        raise InputError(f"method {check.show(method)} is not in the audit {check.show(name)}; it has {known}.")
    return estimate


def _epsilon(audit: Audit, name: str, method: str | None) -> float:
    """The ε of an audit in the landscape: its guarantee, else its lower bound, or the value of a named estimate."""
    if method is not None:
        return _estimate(audit, name, method).epsilon
    stated = facts.drawn(audit)[1]
    return stated.epsilon if _has_guarantee(stated) else audit.headline.epsilon


def _has_guarantee(stated: Guarantee | None) -> TypeGuard[Guarantee]:
    return stated is not None and math.isfinite(stated.epsilon)


def _kind(audit: Audit, method: str | None) -> str:
    """What the ε of an audit in the landscape is; only guarantees and values can be ranked."""
    if method is not None:
        return LOWER if _estimate(audit, "", method).high == math.inf else VALUE
    return GUARANTEED if _has_guarantee(facts.drawn(audit)[1]) else LOWER


def _guard(audit: Audit) -> str:
    return "⚠ shift" if audit.guard.shift else ("no shift" if audit.guard.checked else "not checked")


_SAID = {
    Conclusion.BROKEN: "leak proven, above the guarantee",
    Conclusion.LEAK: "leak proven",
    Conclusion.FAILED: "check failed, nothing can be concluded",
    Conclusion.NONE: "no leak proven, which is not proof of privacy",
    Conclusion.MEASURED: "measured, which bounds nothing",
}


def _verdicts(audits: list[Audit], names: list[str]) -> str:
    """The verdict on each, the gravest first, in words and colour and without any ε."""
    conclusions = [facts.conclusion(audit) for audit in audits]
    lines = []
    for kind, said in _SAID.items():
        those = [name for name, conclusion in zip(names, conclusions, strict=True) if conclusion is kind]
        if those:
            more = f" and {len(those) - 6} more" if len(those) > 6 else ""
            lines.append(f"{', '.join(those[:6])}{more}: {said}.")
    worst = next(kind for kind in _SAID if kind in conclusions)
    return f'<div class="verdict {worst}">{"".join(map(paragraph, lines))}</div>\n'


def _overview(audits: list[Audit], names: list[str], useful: FloatArray | None) -> str:
    shifted = [name for audit, name in zip(audits, names, strict=True) if audit.guard.shift]
    body = _verdicts(audits, names)
    if shifted:
        body += (
            '<div class="guard shift" role="alert">'
            + paragraph("⚠ Warning: members and non-members differ even without the model.", "what")
            + paragraph(
                f"The numbers of {', '.join(shifted)} may measure that difference and not what the model has learnt."
            )
            + "</div>\n"
        )
    lows = [a.headline.low for a in audits]
    if len(audits) > 1 and all(facts.bounds(a) for a in audits):
        lowest, highest = int(np.argmin(lows)), int(np.argmax(lows))
        kinds = {a.headline.neighbours for a in audits}
        spoken = whose(kinds.pop()) if len(kinds) == 1 else "each for its own neighbours, see the table"
        body += paragraph(
            f"The attacks prove from ε ≥ {epsilon(lows[lowest])} ({names[lowest]}) to "
            f"ε ≥ {epsilon(lows[highest])} ({names[highest]}){' ' + spoken if spoken else ''}. "
            "A smaller bound is not evidence of more privacy: the attack may only have been weaker.",
            "claim",
        )
    lines = []
    relations = {whose(facts.drawn(a)[0].neighbours, facts.unit(a)) or "–" for a in audits}
    mixed = len(relations) > 1
    for i, (audit, name) in enumerate(zip(audits, names, strict=True)):
        (lower, stated), point = facts.drawn(audit), facts.tpr_at(audit, facts.SHOWN_FPR)
        metric = next((e for e in audit.estimates if e.method == "epsilon-star-parametric"), None)
        auc = None if audit.curve is None else audit.curve.auc
        lines.append(
            (
                name,
                _guard(audit),
                epsilon(lower.low) if lower.validity.is_bound else "no bound",
                NOT_STATED if stated is None else epsilon(stated.epsilon),
                *([whose(lower.neighbours, facts.unit(audit)) or "–"] if mixed else []),
                "–" if metric is None else epsilon(metric.epsilon) if facts.measurable(metric) else "cannot tell",
                "–" if auc is None else f"{auc:.4g}",
                "–" if point is None else share(point.tpr),
                *([] if useful is None else [f"{useful[i]:.4g}"]),
            )
        )
    header = [
        "audit",
        "shift check",
        "ε at least",
        "ε at most",
        *(["whose ε"] if mixed else []),
        "Epsilon* (parametric)",
        "AUC",
        f"TPR at FPR {share(facts.SHOWN_FPR)}",
    ]
    header += [] if useful is None else ["utility"]
    act = relations.pop()
    caption = "Audits side by side" + ("" if mixed or act == "–" else f"; ε at least and at most are {act}")
    body += table(caption, header, lines, numeric=[i for i, name in enumerate(header) if i > 1 and name != "whose ε"])
    return section("overview", "Side by side", body)


def _bounds(audits: list[Audit], names: list[str], pictures: Pictures) -> str:
    parts = [f"{name}: {known_of(audit)}" for audit, name in zip(audits, names, strict=True)]
    more = "; the rest in the table above" if len(parts) > 6 else ""
    caption = (
        "Triangle: proven by the attack. Stroke: the guarantee, for the same neighbours. Between them nothing is "
        f"known. {'; '.join(parts[:6])}{more}."
    )
    return section("bounds", "What is known of each", figure("bounds", "Bounds on ε", caption, pictures, by="y"))


def _landscape(points: list[Point], method: str | None, infinite: int, pictures: Pictures) -> str:
    best = sorted((p for p in points if p.frontier), key=lambda p: p.epsilon)
    line = "; ".join(f"{p.name} (ε {epsilon(p.epsilon)}, utility {p.utility:.4g})" for p in best[:12])
    open_ended = [p.name for p in points if p.kind == LOWER]
    caption = ""
    if best:
        caption += f"On the frontier{' (dashed), from the smallest ε on' if len(best) > 1 else ''}: {line}. "
    if open_ended and method is None:
        caption += (
            f"Open marks stand at a lower bound, because no guarantee is known ({', '.join(open_ended)}): the true ε "
            "lies anywhere to the right, so they are on no frontier. "
        )
    elif open_ended:
        caption += f"The estimate {method} is a lower bound: a smaller one is not more private. "
    elif method is not None:
        caption += f"ε is the estimate {method}. "
    if dense_groups(points):
        caption += "Along the sides: densities by category, drawn to equal height."
    notes = [f"Left out of the picture, because ε is infinite: {infinite} of the audits."] if infinite else []
    body = figure("landscape", "Privacy–utility landscape", caption.strip(), pictures, by="both")
    body += table(
        "Points of the landscape",
        ("strategy", "category", "repeats", "ε", "which is", "utility", "on the frontier"),
        [
            (
                p.name,
                p.group,
                p.repeats,
                f"{'≥ ' if p.kind == LOWER else ''}{epsilon(p.epsilon)}",
                "a " + p.kind if p.kind != VALUE else "an estimate",
                f"{p.utility:.4g}",
                "yes" if p.frontier else "no",
            )
            for p in points
        ],
        numeric=(2, 3, 5),
    )
    return section("landscape", "Privacy and utility", body + (bullets(notes, "note") if notes else ""))


def _claims(audits: list[Audit], names: list[str]) -> str:
    lines = [
        (n, _guard(a), e.validity, e.claim)
        for a, n in zip(audits, names, strict=True)
        for e in (facts.bounds(a) or a.estimates[:1])
    ]
    header = ("audit", "shift check", "validity", "claim")
    return section(
        "claims",
        "What may be claimed",
        folded("The bounds of each audit", table("The bounds of each audit", header, lines, css_class="claims")),
    )
