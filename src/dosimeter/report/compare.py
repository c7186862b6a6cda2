"""Several audits side by side: a table, the bounds, and the privacy–utility landscape."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dosimeter import _validate as check
from dosimeter._validate import FloatArray, InputError
from dosimeter.audits.audit import Audit
from dosimeter.estimate import Validity
from dosimeter.report import facts
from dosimeter.report.canvas import Canvas, Rows
from dosimeter.report.draw import Drawing
from dosimeter.report.landscape import density, frontier
from dosimeter.report.markup import bullets, paragraph, section, table
from dosimeter.report.page import assemble, drawings
from dosimeter.report.sections import figure
from dosimeter.report.text import NOT_STATED, epsilon, share, short
from dosimeter.report.theme import ACCENT, CATEGORIES, INK, NARROW, OPEN, SHAPES, WIDE

NAMED_POINTS = 12
GRID_POINTS = 120

Pictures = Mapping[str, Mapping[str, Drawing]]


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
    (larger is better, one for each audit) adds the landscape; `categories` groups its points. ε is the headline's lower
    bound, or that of the estimate named by `method`.
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

    points = None if useful is None else strategies(shown, useful, labels, groups)
    specs = {}
    for width_name, width in (("wide", WIDE), ("narrow", NARROW)):
        specs[width_name] = {"bounds": bounds_chart(Canvas(width), audits, labels)}
        if points:
            specs[width_name]["landscape"] = landscape_chart(Canvas(width), points)
    pictures = drawings(specs)
    parts = [
        _overview(audits, labels, useful, shown, method),
        _bounds(audits, labels, pictures),
        _landscape(points, int(np.isinf(shown).sum()), pictures) if points is not None else "",
        _claims(audits, labels),
    ]
    return assemble(title, f"{len(audits)} audits", parts, pictures)


def _same_length(name: str, values: Any, audits: list[Audit]) -> None:
    if len(values) != len(audits):
        raise InputError(f"{name} has {len(values)} entries for {len(audits)} audits; pass one for each audit.")


def _epsilon(audit: Audit, name: str, method: str | None) -> float:
    if method is None:
        return audit.headline.low
    found = next((e for e in audit.estimates if e.method == method), None)
    if found is None:
        known = ", ".join(e.method for e in audit.estimates)
        raise InputError(f"method {check.show(method)} is not in the audit {check.show(name)}; it has {known}.")
    return found.epsilon


def strategies(shown: FloatArray, useful: FloatArray, names: list[str], groups: list[str]) -> list[dict[str, Any]]:
    """One point for each name with a finite ε: mean and range of ε and utility, and whether it is on the frontier."""
    points: list[dict[str, Any]] = []
    for name in dict.fromkeys(names):
        at = [i for i, n in enumerate(names) if n == name and math.isfinite(shown[i])]
        if at:
            e, u = shown[at], useful[at]
            points.append(
                {
                    "name": name,
                    "group": groups[at[0]],
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
    if points:
        for i in frontier([p["epsilon"] for p in points], [p["utility"] for p in points]).tolist():
            points[i]["frontier"] = True
    return points


def bounds_chart(canvas: Canvas, audits: list[Audit], names: list[str]) -> dict[str, Any]:
    """For each audit what the attack has shown, what the guarantee says, and the open stretch between."""
    alt = canvas.alt
    rows: Rows = []
    for audit, name in zip(audits, names, strict=True):
        stated = facts.guarantee(audit)
        high = stated.epsilon if stated is not None else math.inf
        end = f"guarantee ε ≤ {epsilon(high)}" if stated is not None else "no guarantee stated"
        text = f"{name}: attack ε ≥ {epsilon(audit.headline.low)}, {end}"
        rows.append({"row": name, "low": audit.headline.low, "high": high, "text": text})
    finite = [v for r in rows for v in (r["low"], r["high"]) if math.isfinite(v)]
    top = max([*finite, 0.1]) * 1.08
    for row in rows:
        row["open"] = not math.isfinite(row["high"])
        row["low"], row["high"] = min(row["low"], top), min(row["high"], top)
    scale = alt.Scale(domain=[0, top], nice=False)
    x = alt.X("low:Q", scale=scale, title="ε", axis=alt.Axis(tickCount=6, grid=True))
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
    groups = list(dict.fromkeys(p["group"] for p in points))
    x_domain = _span([p[k] for p in points for k in ("epsilon_low", "epsilon_high")])
    y_domain = _span([p[k] for p in points for k in ("utility_low", "utility_high")])
    main_width, side, height = (190, 56, 240) if canvas.phone else (535, 100, 340)
    ticks = alt.Axis(tickCount=4 if canvas.phone else 7, labelExpr="datum.value < 0 ? '' : datum.label")
    x = alt.X(
        "epsilon:Q",
        scale=alt.Scale(domain=x_domain, nice=False, zero=False),
        title="ε shown (smaller is better)",
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
        base.mark_point(filled=True, size=85, opacity=1).encode(x=x, y=y, color=color, shape=shape),
    ]
    if len(points) <= NAMED_POINTS:
        for end in (False, True):  # names stay inside the picture: left of the points in the right half
            rows = [p for p in points if (p["epsilon"] > sum(x_domain) / 2) == end]
            align = {"align": "right", "dx": -9} if end else {"align": "left", "dx": 9}
            text = canvas.chart(rows).mark_text(dy=-8, limit=main_width // 2, **align)
            layers.append(text.encode(x=x, y=y, text="name:N"))
    layers.append(canvas.hover(texts, x, y))
    main = alt.layer(*layers).properties(width=main_width, height=height)
    above = _marginal(canvas, points, groups, "epsilon", x_domain, color).properties(
        width=main_width, height=side // 2 + 10
    )
    beside = _marginal(canvas, points, groups, "utility", y_domain, color).properties(width=side, height=height)
    return canvas.finish(alt.vconcat(above, alt.hconcat(main, beside, spacing=6), spacing=4))


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
    text = f"{p['name']}: ε {epsilon(p['epsilon'])}, utility {p['utility']:.4g}"
    if p["repeats"] > 1:
        text += (
            f" (means of {p['repeats']}; ε {epsilon(p['epsilon_low'])} to {epsilon(p['epsilon_high'])}, "
            f"utility {p['utility_low']:.4g} to {p['utility_high']:.4g})"
        )
    return text + (", on the frontier" if p["frontier"] else "")


def _guard(audit: Audit) -> str:
    return "⚠ shift" if audit.guard.shift else ("no shift" if audit.guard.checked else "not checked")


def _overview(
    audits: list[Audit], names: list[str], useful: FloatArray | None, shown: FloatArray, method: str | None
) -> str:
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
    lowest, highest = int(np.argmin(shown)), int(np.argmax(shown))
    if len(audits) > 1:
        body += paragraph(
            f"The attacks have shown from ε ≥ {epsilon(shown[lowest])} ({names[lowest]}) to "
            f"ε ≥ {epsilon(shown[highest])} ({names[highest]}). "
            "A smaller bound is not evidence of more privacy: the attack may only have been weaker.",
            "claim",
        )
    lines = []
    for i, (audit, name) in enumerate(zip(audits, names, strict=True)):
        stated, point = facts.guarantee(audit), facts.tpr_at(audit, facts.SHOWN_FPR)
        metric = next((e for e in audit.estimates if e.validity == Validity.INSTANCE_METRIC), None)
        auc = audit.curve.get("auc")
        lines.append(
            (
                name,
                _guard(audit),
                epsilon(audit.headline.low),
                NOT_STATED if stated is None else epsilon(stated.epsilon),
                "–" if metric is None else epsilon(metric.epsilon),
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
        "Epsilon*",
        "AUC",
        f"TPR at FPR {share(facts.SHOWN_FPR)}",
    ]
    header += [] if useful is None else ["utility"]
    body += table("Audits side by side", header, lines, numeric=range(2, len(header)))
    if method is not None:
        body += paragraph(f"The landscape uses the estimate {method}.", "note")
    return section("overview", "Side by side", body)


def _bounds(audits: list[Audit], names: list[str], pictures: Pictures) -> str:
    parts = []
    for audit, name in zip(audits, names, strict=True):
        stated = facts.guarantee(audit)
        top = "no guarantee" if stated is None else f"at most {epsilon(stated.epsilon)}"
        parts.append(f"{name}: at least {epsilon(audit.headline.low)}, {top}")
    more = "; the rest in the table above" if len(parts) > 6 else ""
    caption = (
        "Triangle: shown by the attack. Stroke: the guarantee. Between them nothing is known. "
        f"{'; '.join(parts[:6])}{more}."
    )
    return section("bounds", "What is known of each", figure("bounds", "Bounds on ε", caption, pictures, by="y"))


def _landscape(points: list[dict[str, Any]], infinite: int, pictures: Pictures) -> str:
    best = sorted((p for p in points if p["frontier"]), key=lambda p: p["epsilon"])
    line = "; ".join(f"{p['name']} (ε {epsilon(p['epsilon'])}, utility {p['utility']:.4g})" for p in best[:12])
    caption = (
        f"On the frontier (dashed), from the most private on: {line}. "
        "Along the sides: densities by category, drawn to equal height."
    )
    notes = [f"{infinite} audit(s) with an infinite ε are left out of the picture."] if infinite else []
    body = figure("landscape", "Privacy–utility landscape", caption, pictures, by="both")
    body += table(
        "Points of the landscape",
        ("strategy", "category", "repeats", "ε", "utility", "on the frontier"),
        [
            (
                p["name"],
                p["group"],
                p["repeats"],
                epsilon(p["epsilon"]),
                f"{p['utility']:.4g}",
                "yes" if p["frontier"] else "no",
            )
            for p in points
        ],
        numeric=(2, 3, 4),
    )
    return section("landscape", "Privacy and utility", body + (bullets(notes, "note") if notes else ""))


def _claims(audits: list[Audit], names: list[str]) -> str:
    lines = [(n, _guard(a), a.headline.validity, a.headline.claim) for a, n in zip(audits, names, strict=True)]
    header = ("audit", "shift check", "validity", "claim")
    return section(
        "claims", "What may be claimed", table("The headline of each audit", header, lines, css_class="claims")
    )
