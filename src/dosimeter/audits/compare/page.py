"""Several audits side by side: a table, the bounds, and the privacy–utility landscape."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

import numpy as np

from dosimeter import _validate as check
from dosimeter._validate import FloatArray, InputError
from dosimeter.accounting import Guarantee
from dosimeter.audits.compare.landscape import density, frontier
from dosimeter.audits.page import facts
from dosimeter.audits.result import Audit
from dosimeter.estimate import Estimate
from dosimeter.report.canvas import Canvas, Rows
from dosimeter.report.markup import bullets, paragraph, section, table
from dosimeter.report.shell import Pictures, assemble, drawings, figure
from dosimeter.report.text import NOT_STATED, epsilon, share, short, whose
from dosimeter.report.theme import ACCENT, CATEGORIES, INK, NARROW, OPEN, SHAPES, WIDE

NAMED_POINTS = 12
FEWEST_FOR_DENSITY = 10  # points of a category: fewer have no density worth drawing
GRID_POINTS = 120


def compare_page(
    audits: Sequence[Audit],
    names: Sequence[str],
    utilities: Sequence[float] | None = None,
    *,
    categories: Sequence[str] | None = None,
    method: str | None = None,
    title: str = "Privacy audits compared",
) -> str:
    """A page that sets audits side by side.

    Audits with the same name are repeats of one strategy: the landscape shows their mean and their range. `utilities`
    (larger is better, one for each audit) adds the landscape; `categories` groups its points. Its ε is the guarantee
    where there is one, and the frontier is drawn through guarantees only: a small lower bound is not more privacy. A
    strategy without guarantee stands at its lower bound. `method` names an estimate whose value is drawn instead.
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


GUARANTEED, LOWER, VALUE = "guarantee", "lower bound, no guarantee", "estimate"


def _estimate(audit: Audit, name: str, method: str) -> Estimate:
    found = next((e for e in audit.estimates if e.method == method), None)
    if found is None:
        known = ", ".join(dict.fromkeys(e.method for e in audit.estimates))
        raise InputError(f"method {check.show(method)} is not in the audit {check.show(name)}; it has {known}.")
    return found


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


def strategies(
    shown: FloatArray, useful: FloatArray, names: list[str], groups: list[str], kinds: list[str]
) -> list[dict[str, Any]]:
    """One point for each name with a finite ε: mean and range of ε and utility, and whether it is on the frontier.

    Repeats with and without a guarantee are two points. A lower bound is on no frontier.
    """
    points: list[dict[str, Any]] = []
    for name, kind in dict.fromkeys(zip(names, kinds, strict=True)):
        at = [i for i, n in enumerate(names) if (n, kinds[i]) == (name, kind) and math.isfinite(shown[i])]
        if at:
            e, u = shown[at], useful[at]
            points.append(
                {
                    "name": name,
                    "group": groups[at[0]],
                    "kind": kind,
                    "repeats": len(at),
                    "epsilon": float(e.mean()),
                    "utility": float(u.mean()),
                    "epsilon_low": float(e.min()),
                    "epsilon_high": float(e.max()),
                    "utility_low": float(u.min()),
                    "utility_high": float(u.max()),
                    "frontier": False,
                }
            )
    ranked = [p for p in points if p["kind"] != LOWER]
    if ranked:
        for i in frontier([p["epsilon"] for p in ranked], [p["utility"] for p in ranked]).tolist():
            ranked[i]["frontier"] = True
    return points


def bounds_chart(canvas: Canvas, audits: list[Audit], names: list[str]) -> dict[str, Any]:
    """For each audit what the attack has shown, what the guarantee says, and the open stretch between."""
    alt = canvas.alt
    rows: Rows = []
    for audit, name in zip(audits, names, strict=True):
        lower, stated = facts.drawn(audit)
        high = stated.epsilon if stated is not None else math.inf
        rows.append({"row": name, "low": lower.low, "high": high, "text": f"{name}: {_known(audit)}"})
    finite = [v for r in rows for v in (r["low"], r["high"]) if math.isfinite(v)]
    top = max([*finite, 0.1]) * 1.08
    for row in rows:
        row["open"] = not math.isfinite(row["high"])
        row["low"], row["high"] = min(row["low"], top), min(row["high"], top)
    scale = alt.Scale(domain=[0, top], nice=False)
    relations = {facts.drawn(audit)[0].neighbours for audit in audits}
    act = whose(relations.pop()) if len(relations) == 1 else "each for its own neighbours"
    x = alt.X("low:Q", scale=scale, title=f"ε {act}".strip(), axis=alt.Axis(tickCount=6, grid=True))
    limit = 110 if canvas.phone else 220
    y = alt.Y(
        "row:N",
        sort=None,
        title=None,
        axis=alt.Axis(ticks=False, domain=False, labelColor=INK, labelLimit=limit, labelPadding=10),
    )
    base = canvas.chart(rows)
    layers = [
        base.mark_bar(height=9, color=OPEN).encode(x=x, x2="high:Q", y=y),
        base.mark_point(shape="triangle-right", filled=True, size=110, color=ACCENT, opacity=1).encode(x=x, y=y),
        base.transform_filter("!datum.open")
        .mark_point(shape="stroke", angle=90, size=200, strokeWidth=2.5, color=INK, opacity=1)
        .encode(x=alt.X("high:Q", scale=scale), y=y),
        canvas.hover(rows, x, y),
    ]
    return canvas.finish(alt.layer(*layers), 26 * len(set(names)) + 6)


def landscape_chart(canvas: Canvas, points: list[dict[str, Any]]) -> dict[str, Any]:
    """ε against utility with the frontier, and the density of each by category along the sides."""
    alt = canvas.alt
    points = [{"kind": VALUE, **p} for p in points]
    groups = list(dict.fromkeys(p["group"] for p in points))
    x_domain = _span([p[k] for p in points for k in ("epsilon_low", "epsilon_high")])
    y_domain = _span([p[k] for p in points for k in ("utility_low", "utility_high")])
    main_width, side, height = (190, 56, 240) if canvas.phone else (535, 100, 340)
    ticks = alt.Axis(tickCount=4 if canvas.phone else 7, labelExpr="datum.value < 0 ? '' : datum.label")
    x = alt.X(
        "epsilon:Q",
        scale=alt.Scale(domain=x_domain, nice=False, zero=False),
        title=_axis(points),
        axis=ticks,
    )
    y = alt.Y(
        "utility:Q",
        scale=alt.Scale(domain=y_domain, nice=False, zero=False),
        title="utility (larger is better)",
        axis=alt.Axis(tickCount=6),
    )
    legend = alt.Legend(columns=1 if canvas.phone else 3, symbolOpacity=1) if len(groups) > 1 else None
    color = alt.Color("group:N", scale=alt.Scale(domain=groups, range=list(CATEGORIES[: len(groups)])), legend=legend)
    shape = alt.Shape("group:N", scale=alt.Scale(domain=groups, range=list(SHAPES[: len(groups)])), legend=legend)
    texts: Rows = [{**p, "text": _point_text(p)} for p in points]
    line = sorted((p for p in points if p["frontier"]), key=lambda p: p["epsilon"])
    base = canvas.chart(texts)
    layers = [
        canvas.chart(line).mark_line(color=INK, strokeDash=[6, 3], strokeWidth=1.4).encode(x=x, y=y, order="epsilon:Q"),
        base.mark_rule(opacity=0.6).encode(x=alt.X("epsilon_low:Q"), x2="epsilon_high:Q", y=y, color=color),
        base.mark_rule(opacity=0.6).encode(x=x, y=alt.Y("utility_low:Q"), y2="utility_high:Q", color=color),
        base.transform_filter(f"datum.kind != '{LOWER}'")
        .mark_point(filled=True, size=85, opacity=1)
        .encode(x=x, y=y, color=color, shape=shape),
        base.transform_filter(f"datum.kind == '{LOWER}'")
        .mark_point(filled=False, size=85, opacity=1, strokeWidth=1.8)
        .encode(x=x, y=y, color=color, shape=shape),
    ]
    if any(p["kind"] == LOWER for p in points):  # the true ε lies anywhere between the bound and the right edge
        open_ended = [{**p, "edge": x_domain[1]} for p in points if p["kind"] == LOWER]
        arrow = canvas.chart(open_ended).mark_rule(strokeDash=[2, 3], opacity=0.7)
        layers.insert(0, arrow.encode(x=x, x2="edge:Q", y=y, color=color))
    if len(points) <= NAMED_POINTS:
        for end in (False, True):  # names stay inside the picture: left of the points in the right half
            rows = [p for p in points if (p["epsilon"] > sum(x_domain) / 2) == end]
            align = {"align": "right", "dx": -9} if end else {"align": "left", "dx": 9}
            text = canvas.chart(rows).mark_text(dy=-8, limit=main_width // 2, **align)
            layers.append(text.encode(x=x, y=y, text="name:N"))
    layers.append(canvas.hover(texts, x, y))
    dense = _dense(points)
    if not dense:
        return canvas.finish(alt.layer(*layers), height)
    main = alt.layer(*layers).properties(width=main_width, height=height)
    above = _marginal(canvas, points, dense, "epsilon", x_domain, color).properties(
        width=main_width, height=side // 2 + 10
    )
    beside = _marginal(canvas, points, dense, "utility", y_domain, color).properties(width=side, height=height)
    return canvas.finish(alt.vconcat(above, alt.hconcat(main, beside, spacing=6), spacing=4))


def _axis(points: Rows) -> str:
    """What the ε axis shows; only a guarantee or a value is better when smaller."""
    kinds = {p["kind"] for p in points}
    if kinds == {GUARANTEED}:
        return "ε guaranteed (smaller is better)"
    if kinds == {VALUE}:
        return "ε estimated"
    return "ε proven from below (no ranking)" if kinds == {LOWER} else "ε guaranteed; open marks: ε at least"


def _dense(points: Rows) -> list[str]:
    """The categories with enough points for a density."""
    groups = [p["group"] for p in points]
    return [g for g in dict.fromkeys(groups) if groups.count(g) >= FEWEST_FOR_DENSITY]


def _span(values: list[float]) -> list[float]:
    low, high = min(values), max(values)
    room = 0.06 * (high - low) or 0.1 * abs(high) or 0.1
    return [low - room, high + room]


def _marginal(canvas: Canvas, points: Rows, groups: list[str], key: str, domain: list[float], color: Any) -> Any:
    """The kernel density of one quantity by category, along its axis."""
    alt = canvas.alt
    grid = np.linspace(domain[0], domain[1], GRID_POINTS)
    rows: Rows = []
    for group in groups:
        heights = density([p[key] for p in points if p["group"] == group], grid)
        heights = heights / heights.max()  # one narrow group would flatten all others
        rows += [{key: float(g), "density": float(h), "group": group} for g, h in zip(grid, heights, strict=True)]
    along = {"scale": alt.Scale(domain=domain, nice=False, zero=False), "axis": None}
    height = {"axis": None, "stack": None}
    if key == "epsilon":
        channels = {"x": alt.X(f"{key}:Q", **along), "y": alt.Y("density:Q", **height)}
        mark = {"orient": "vertical"}
    else:
        channels = {"y": alt.Y(f"{key}:Q", **along), "x": alt.X("density:Q", **height)}
        mark = {"orient": "horizontal"}
    return canvas.chart(rows).mark_area(opacity=0.3, **mark).encode(color=color, **channels)


def _point_text(p: Mapping[str, Any]) -> str:
    text = f"{p['name']}: ε {epsilon(p['epsilon'])} ({p['kind']}), utility {p['utility']:.4g}"
    if p["repeats"] > 1:
        text += (
            f" (means of {p['repeats']}; ε {epsilon(p['epsilon_low'])} to {epsilon(p['epsilon_high'])}, "
            f"utility {p['utility_low']:.4g} to {p['utility_high']:.4g})"
        )
    return text + (", on the frontier" if p["frontier"] else "")


def _known(audit: Audit) -> str:
    """Both ends of one ε in words."""
    lower, stated = facts.drawn(audit)
    if lower.validity.is_bound:
        low = f"proven ε ≥ {epsilon(lower.low)}"
    else:
        low = f"{facts.symbol(lower)} = {epsilon(lower.epsilon)} ({lower.validity}, not a bound)"
    top = "no guarantee" if stated is None else f"guaranteed ε ≤ {epsilon(stated.epsilon)}"
    act = whose(lower.neighbours, facts.unit(audit))
    return f"{low}, {top}" + (f", {act}" if act else "")


def _guard(audit: Audit) -> str:
    return "⚠ shift" if audit.guard.shift else ("no shift" if audit.guard.checked else "not checked")


def _overview(audits: list[Audit], names: list[str], useful: FloatArray | None) -> str:
    shifted = [name for audit, name in zip(audits, names, strict=True) if audit.guard.shift]
    body = ""
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
                "–" if point is None else share(point["tpr"]),
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
    parts = [f"{name}: {_known(audit)}" for audit, name in zip(audits, names, strict=True)]
    more = "; the rest in the table above" if len(parts) > 6 else ""
    caption = (
        "Triangle: proven by the attack. Stroke: the guarantee, for the same neighbours. Between them nothing is "
        f"known. {'; '.join(parts[:6])}{more}."
    )
    return section("bounds", "What is known of each", figure("bounds", "Bounds on ε", caption, pictures, by="y"))


def _landscape(points: list[dict[str, Any]], method: str | None, infinite: int, pictures: Pictures) -> str:
    best = sorted((p for p in points if p["frontier"]), key=lambda p: p["epsilon"])
    line = "; ".join(f"{p['name']} (ε {epsilon(p['epsilon'])}, utility {p['utility']:.4g})" for p in best[:12])
    open_ended = [p["name"] for p in points if p["kind"] == LOWER]
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
    if _dense(points):
        caption += "Along the sides: densities by category, drawn to equal height."
    notes = [f"Left out of the picture, because ε is infinite: {infinite} of the audits."] if infinite else []
    body = figure("landscape", "Privacy–utility landscape", caption.strip(), pictures, by="both")
    body += table(
        "Points of the landscape",
        ("strategy", "category", "repeats", "ε", "which is", "utility", "on the frontier"),
        [
            (
                p["name"],
                p["group"],
                p["repeats"],
                f"{'≥ ' if p['kind'] == LOWER else ''}{epsilon(p['epsilon'])}",
                "a " + p["kind"] if p["kind"] != VALUE else "an estimate",
                f"{p['utility']:.4g}",
                "yes" if p["frontier"] else "no",
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
        "claims", "What may be claimed", table("The bounds of each audit", header, lines, css_class="claims")
    )
