"""For experts: losses and Epsilon*, every number with its claim, how it was run, NIST SP 800-226, and the JSON."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dosimeter._validate import FloatArray
from dosimeter.audits.page import facts
from dosimeter.audits.result import Audit
from dosimeter.estimate import Estimate, Validity, percent
from dosimeter.report.canvas import ACCENT, MEMBERS, MUTED, NONMEMBERS, WARNING, Canvas, Rows, Spec
from dosimeter.report.markup import (
    NOT_STATED,
    Pictures,
    bullets,
    epsilon,
    esc,
    figure,
    folded,
    paragraph,
    rows,
    section,
    share,
    short,
    small,
    table,
    value,
    whose,
)

STAR_POINTS = 400

MEANING = {
    Validity.FINITE_SAMPLE: "a confidence bound for any mechanism, at this sample size",
    Validity.RANDOM_SPLIT: "a confidence bound for any mechanism if chance alone decided which records were members",
    Validity.INDEPENDENT_RUNS: "a confidence bound for any mechanism if every score comes from a run of its own",
    Validity.CREDIBLE: "a posterior probability under a stated prior, not a confidence",
    Validity.ASSUMES_GAUSSIAN: "holds only if the mechanism is Gaussian",
    Validity.ASSUMES_FAMILY: "holds only if the training is the stated mechanism, with some amount of noise",
    Validity.CONDITIONAL: "holds only if each record's chance of being a member, before the model is asked, is right",
    Validity.ASYMPTOTIC: "holds for large samples, approximately",
    Validity.INSTANCE_METRIC: "describes this one trained model, not the method that trained it",
    Validity.MEASUREMENT: "a measured difference, not a bound",
    Validity.EXPLORATORY: (
        "not to be claimed: the largest of several values, or computed as if dependent scores were independent"
    ),
}

# Field of NIST SP 800-226, and the keys of the metadata that fill it; docs/page.md lists them for callers.
FIELDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Unit of privacy", ("unit_of_privacy",)),
    ("Neighbouring relation", ("neighbours", "neighbouring_relation")),
    ("Privacy parameters ε and δ", ("guarantee",)),
    ("Trust model", ("trust_model",)),
    ("Mechanism and noise", ("mechanism", "noise_multiplier")),
    ("Clipping and sensitivity", ("clipping", "clip", "clip_norm", "max_grad_norm", "sensitivity")),
    ("Sampling of batches", ("sampling", "sample_rate")),
    ("Composition over steps", ("steps", "epochs")),
    ("Composition of releases", ("composition", "releases")),
    ("Choices made on the private data (tuning)", ("tuning", "hyperparameters")),
    ("Floating point and random numbers", ("floating_point", "random_numbers")),
    ("Side channels", ("side_channels", "timing")),
    ("Data collection and access", ("data_collection", "data_source")),
)


def _interval(e: Estimate) -> str:
    if e.validity == Validity.MEASUREMENT or not facts.measurable(e):
        return "–"
    return f"{epsilon(e.low)} to {epsilon(e.high)}" if math.isfinite(e.high) else f"{epsilon(e.low)} or more"


def numbers(audit: Audit) -> str:
    """Every number with its validity and claim."""
    lines = [
        (
            e.method,
            epsilon(e.epsilon) if facts.measurable(e) else "cannot tell",
            _interval(e),
            whose(e.neighbours, facts.unit(audit)) or "–",
            e.validity,
            " ".join([e.claim, *(f"Note: {w}." for w in (w.rstrip(".") for w in e.warnings))]),
        )
        for e in audit.estimates
    ]
    used = dict.fromkeys(e.validity for e in audit.estimates)
    levels = sorted({(e.delta, e.confidence) for e in audit.estimates})
    at = " and ".join(f"δ = {small(d)} and {percent(c)}" for d, c in levels)
    body = paragraph(
        f"The first row is the headline; all are at {at}. An ε for replacing one record and an ε for adding or "
        "removing one are different numbers. "
        "Do not pick the largest: each number has its own meaning and its own chance of error."
    )
    listed = table(
        "Every number, what stands behind it, and the sentence that may be quoted",
        ("method", "ε", "interval", "whose ε", "validity", "claim"),
        lines,
        numeric=(1,),
        css_class="claims",
    )
    listed += table(
        "What the validity labels mean", ("label", "meaning"), [(v, MEANING[v]) for v in used], css_class="keys"
    )
    body += folded(f"All {len(lines)} numbers as a table", listed)
    return section("numbers", "Every number and what it may claim", body)


def method(audit: Audit) -> str:
    """Method, data fingerprint, seeds and versions, as the audit recorded them; mixtures of losses apart."""
    meta = audit.metadata
    apart = ("warnings", "notes", "goodness_of_fit")
    fields = {name: item for name, item in meta.items() if name not in apart and item is not None}
    body = table(
        "What was run, on what, with which seed and version",
        ("item", "value"),
        rows({**fields, **meta.notes}),
        css_class="keys",
    )
    body = folded("What was run, on what, with which seed and version", body)
    checked = {name: item for name, item in audit.guard.evidence.items() if item is not None and item != ()}
    if checked:
        listed = table("Evidence of the shift check", ("item", "value"), rows(checked), css_class="keys")
        body += folded("Evidence of the shift check", listed)
    body += folded("Mixtures of normals that were fitted to the losses", _mixtures(meta.get("goodness_of_fit")))
    if meta.warnings:
        body += f"<h3>Left out</h3>{bullets(meta.warnings)}"
    return section("method", "Method, data, seeds and versions", body)


def _mixtures(fits: Any) -> str:
    """The mixtures behind the parametric form of Epsilon*: how well each fits, and its weights."""
    lines: list[tuple[str, ...]] = []
    for side, fit in (fits or {}).items():
        if "mixtures" not in fit:
            lines.append((short(side), "–", "–", "–", value(fit.get("not_fitted"))))
            continue
        for count, mixture, p_value in zip(fit["components"], fit["mixtures"], fit["p_values"][0], strict=True):
            parts = zip(mixture["weights"], mixture["means"], mixture["sds"], strict=True)
            shape = "; ".join(f"{w:.3g} of N({m:.3g}, {s:.3g})" for w, m, s in parts)
            likely = "–" if p_value is None else small(p_value)
            lines.append((short(side), str(count), likely, str(fit["held_out"]), shape))
    header = ("losses of", "components", "p-value (KS)", "held out", "weights, means and standard deviations")
    return table("Fits of the transformed losses", header, lines, numeric=(1, 2, 3)) if lines else ""


def nist(audit: Audit) -> str:
    """The fields that an evaluation after NIST SP 800-226 asks for, filled or marked as not stated."""
    known: dict[str, object] = {}
    stated = facts.drawn(audit)[1] or facts.other_guarantee(audit)
    if stated is not None:
        known = {
            "neighbours": stated.neighbours,
            "sampling": stated.sampling,
            "guarantee": f"ε ≤ {epsilon(stated.epsilon)} at δ = {small(stated.delta)}, by {stated.method}",
        }
    meta = audit.metadata
    recipe = meta.get("recipe")
    for source in (recipe, recipe.get("dp") if isinstance(recipe, Mapping) else None):
        known |= {k: v for k, v in source.items() if v is not None} if isinstance(source, Mapping) else {}
    known |= {name: item for name, item in {**meta, **meta.notes}.items() if item is not None}
    for source in (meta.notes[name] for name in ("dp", "statement") if name in meta.notes):
        known |= source if isinstance(source, Mapping) else {}
    known.setdefault("unit_of_privacy", f"one {meta.unit}")
    lines = []
    for field, keys in FIELDS:
        filled = [(k, known[k]) for k in keys if k in known]
        text = (
            value(filled[0][1])
            if len(filled) == 1
            else "; ".join(f"{k.replace('_', ' ')} {value(v)}" for k, v in filled)
        )
        lines.append((field, text or NOT_STATED, keys[0]))
    missing = [i for i, line in enumerate(lines) if line[1] == NOT_STATED]
    body = paragraph(
        "NIST SP 800-226 (Guidelines for Evaluating Differential Privacy Guarantees) asks for the following. "
        f"Stated to the audit: {len(lines) - len(missing)} of {len(lines)}."
    )
    listed = table(
        "Fields of an evaluation of a differential privacy guarantee, and the key of the metadata that fills each",
        ("field", "stated", "key"),
        lines,
        css_class="keys",
    )
    return section("nist", "Fields of NIST SP 800-226", body + folded(f"The {len(lines)} fields", listed))


def data(audit: Audit) -> str:
    """The audit itself, to be saved from the page: what `dosimeter verify` recomputes."""
    text = audit.to_json().encode("utf-8", "replace")
    link = (
        f'<p><a download="audit.json" href="data:application/json;base64,{base64.b64encode(text).decode()}">Save the '
        f"audit as JSON</a> ({len(text) / 1000:.0f} kB). {esc(_CHECKS)}</p>"
    )
    return section("data", "The audit as JSON", link)


_CHECKS = (
    "It holds the evidence: `dosimeter verify audit.json` computes every bound again, and `dosimeter gate` holds it to "
    "limits."
)


# --- losses and Epsilon* ----------------------------------------------------------------------------------


def _floats(values: Any) -> FloatArray:
    """A list that may hold None (an infinite number in JSON) as floats, NaN for None."""
    return np.array(values, dtype=np.float64)


def distributions_chart(canvas: Canvas, audit: Audit) -> Spec | None:
    """Densities of the members' and the non-members' losses."""
    alt = canvas.alt
    bins = audit.distributions
    if bins is None:
        return None
    edges, name = _floats(bins.edges), short(bins.name)
    groups = {"members": _floats(bins.members), "non-members": _floats(bins.nonmembers)}
    rows: Rows = []
    for group, heights in groups.items():
        steps = np.append(heights, heights[-1])
        rows += [{"x": float(e), "y": float(h), "group": group} for e, h in zip(edges, steps, strict=True)]
    texts: Rows = [
        {
            "x": float((a + b) / 2),
            "y": float(max(m, n)),
            "text": f"{name} {a:.4g} to {b:.4g}: density {m:.3g} for members, {n:.3g} for non-members",
        }
        for a, b, m, n in zip(edges[:-1], edges[1:], *groups.values(), strict=True)
    ]
    domain = list(groups)
    scale = alt.Scale(domain=domain, range=[MEMBERS, NONMEMBERS])
    x = alt.X("x:Q", scale=alt.Scale(domain=[float(edges[0]), float(edges[-1])], nice=False), title=name)
    y = alt.Y("y:Q", title="density", axis=alt.Axis(tickCount=5), stack=None)
    base = canvas.chart(rows)
    legend = alt.Legend(symbolType="stroke", columns=2, symbolSize=360, symbolOpacity=1, symbolFillColor="transparent")
    color = alt.Color("group:N", scale=scale, legend=legend)
    layers = [
        base.mark_area(interpolate="step-after", opacity=0.2).encode(x=x, y=y, color=color),
        base.mark_line(interpolate="step-after", strokeWidth=1.8).encode(
            x=x,
            y=y,
            color=color,
            strokeDash=alt.StrokeDash("group:N", scale=alt.Scale(domain=domain, range=[[1, 0], [5, 3]]), legend=legend),
        ),
        canvas.hover(texts, x, y),
    ]
    return canvas.finish(alt.layer(*layers), 200 if canvas.phone else 260)


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


@dataclass(frozen=True)
class StarLine:
    """The Epsilon* curve as it is drawn; `best` is the place of the supremum, if it is finite."""

    fpr: FloatArray
    fnr: FloatArray
    epsilon: FloatArray
    best: int | None


def star_line(audit: Audit, points: int) -> StarLine | None:
    """The Epsilon* curve by rising FPR where ε is finite and 0 < FPR < 1, thinned without losing the supremum.

    Where the audit lists the empirical form, its own point is the supremum: the curve was thinned and may have lost it.
    """
    curve = audit.star
    if curve is None:
        return None
    fpr, fnr, eps = (np.array(line, dtype=float) for line in (curve.fpr, curve.fnr, curve.epsilon))
    best: int = curve.best
    listed = next((e for e in audit.estimates if e.method == "epsilon-star-empirical"), None)
    if listed is not None:
        if not facts.measurable(listed):
            return None
        fpr, fnr = np.append(fpr, listed.details["fpr"]), np.append(fnr, listed.details["fnr"])
        eps, best = np.append(eps, listed.epsilon), eps.size
    keep = np.flatnonzero(np.isfinite(eps) & (fpr > 0) & (fpr < 1))
    if keep.size == 0:
        return None
    keep = keep[np.argsort(fpr[keep], kind="stable")]
    at = np.flatnonzero(keep == best)
    if keep.size > points:
        even = np.linspace(0, keep.size - 1, points).round().astype(int)
        chosen = np.unique(np.concatenate([even, at]))
        at = np.searchsorted(chosen, at)
        keep = keep[chosen]
    return StarLine(fpr[keep], fnr[keep], eps[keep], int(at[0]) if at.size else None)


def star_chart(canvas: Canvas, audit: Audit) -> Spec | None:
    """ε forced by the pair of rates at each threshold, with the supremum marked."""
    alt = canvas.alt
    line = star_line(audit, STAR_POINTS)
    if line is None:
        return None
    fpr, fnr, eps, best = line.fpr, line.fnr, line.epsilon, line.best
    odds = np.log10(fpr / (1 - fpr))
    rows: Rows = [
        {"x": float(x), "y": float(e), "text": f"FPR {share(float(t))}, FNR {share(float(n))}: ε = {epsilon(float(e))}"}
        for x, t, n, e in zip(odds, fpr, fnr, eps, strict=True)
    ]
    low, high = float(odds.min()), float(odds.max())
    marks = [10.0**-k for k in range(6, 0, -1)] + [0.5] + [1 - 10.0**-k for k in range(1, 7)]
    ticks = [t for t in (math.log10(r / (1 - r)) for r in marks) if low - 0.05 <= t <= high + 0.05]
    x = alt.X(
        "x:Q",
        scale=alt.Scale(domain=[min([low, *ticks]), max([high, low + 1e-6, *ticks])], nice=False),
        title="false-positive rate of the threshold (log-odds)",
        axis=alt.Axis(values=ticks or [low], labelExpr="format(1 / (1 + pow(10, -datum.value)), '.4~%')"),
    )
    top = float(eps.max())
    y = alt.Y(
        "y:Q", title="ε forced", scale=alt.Scale(domain=[0, top * 1.15 or 1.0], nice=False), axis=alt.Axis(tickCount=5)
    )
    layers = [canvas.chart(rows).mark_line(strokeWidth=1.6, color=ACCENT).encode(x=x, y=y)]
    if best is not None:
        mark = {**rows[best], "label": f"largest: {epsilon(float(eps[best]))}"}
        right = mark["x"] > low + 0.6 * (high - low)
        point = canvas.chart([mark])
        layers += [
            point.mark_rule(color=MUTED, strokeDash=[2, 3]).encode(x=x),
            point.mark_point(shape="diamond", filled=True, size=130, color=WARNING, opacity=1).encode(x=x, y=y),
            point.mark_text(
                align="right" if right else "left", dx=-10 if right else 10, dy=-9, fontWeight="bold"
            ).encode(x=x, y=y, text=alt.Text("label:N")),
        ]
    layers.append(canvas.hover(rows, x, y))
    return canvas.finish(alt.layer(*layers), 200 if canvas.phone else 260)


def star(audit: Audit, drawings: Pictures) -> str:
    """The Epsilon* curve, or why there is none."""
    listed = [e for e in audit.estimates if e.method.startswith("epsilon-star")]
    points = star_line(audit, STAR_POINTS)
    if points is None and (audit.star is None or not listed):
        return ""
    body = paragraph(
        "Epsilon* describes this one trained model. It does not bound the DP ε of the method that trained it."
    )
    for e in listed:
        if not facts.measurable(e):
            body += paragraph(e.claim, "note")
    if points is None:
        return section("star", "Epsilon* along the thresholds", body)
    best = points.best
    if best is None:
        top = "The largest value is not finite and so not drawn."
    else:
        top = (
            f"The largest value, the empirical form of Epsilon*, is {epsilon(float(points.epsilon[best]))} "
            f"at FPR {share(float(points.fpr[best]))} and "
            f"FNR {share(float(points.fnr[best]))} (diamond)."
        )
    caption = (
        "ε that the measured rates force at each threshold, "
        f"from FPR {share(float(points.fpr.min()))} to {share(float(points.fpr.max()))}. {top}"
    )
    fitted = next((e for e in listed if e.method.endswith("parametric") and facts.measurable(e)), None)
    if fitted is not None:
        caption += f" The parametric form, from normal fits, is {epsilon(fitted.epsilon)}."
    return section("star", "Epsilon* along the thresholds", body + figure("star", "Epsilon* curve", caption, drawings))
