"""The figures, drawn with Altair as the reports are."""

from __future__ import annotations

from typing import Any

from dosimeter.estimators.goodness_of_fit import GoodnessOfFit
from dosimeter.report.canvas import CATEGORIES, INK, WIDE, Canvas

from .landscape import Landscape
from .simulation import Ratio

Spec = dict[str, Any]
FORMS = ("parametric", "empirical")


def landscape(found: Landscape) -> Spec:
    """Figures 1 and 2: the points with their frontier and the marginal densities."""
    from dosimeter.audits.compare.charts import landscape_chart

    spec: Spec = landscape_chart(Canvas(WIDE), found.points)
    return spec


def ratios(found: list[Ratio]) -> Spec:
    """Figure 3: both ratios against (TPR + FPR)/2, exactly (a) and from one sample (b)."""
    canvas = Canvas(WIDE)
    alt = canvas.alt
    kinds = list(dict.fromkeys(r.kind for r in found))
    color = alt.Color("kind:N", sort=kinds, scale=alt.Scale(domain=kinds, range=list(CATEGORIES[:2])))
    x = alt.X("place:Q", title="(TPR + FPR)/2", scale=alt.Scale(domain=[0, 1]))
    y = alt.Y("value:Q", title="ln of the ratio")
    panels = []
    for title, repeat in (("a: exact", -1), ("b: from one sample", 0)):
        rows = [{"place": r.place, "value": r.value, "kind": r.kind} for r in found if r.repeat == repeat]
        chart = canvas.chart(rows).mark_point(filled=True, size=14).encode(x=x, y=y, color=color)
        panels.append(chart.properties(width=290, height=220, title=title))
    return canvas.finish(alt.hconcat(*panels).resolve_scale(y="shared"))


def study(rows: list[dict[str, Any]], names: list[str]) -> Spec:
    """Figures 4 and 5: ε* of every repeat against the sample size, the exact value as a line."""
    canvas = Canvas(150)
    alt = canvas.alt
    rows = [row for row in rows if row["form"] in FORMS and row["losses"] in names]
    color = alt.Color("form:N", sort=FORMS, scale=alt.Scale(domain=FORMS, range=list(CATEGORIES[:2])))
    x = alt.X("n:O", title="records of each kind", axis=alt.Axis(labelAngle=0))
    offset = alt.XOffset("form:N", sort=FORMS)
    y = alt.Y("epsilon:Q", title="ε*", scale=alt.Scale(domain=[0, max(row["epsilon"] for row in rows)]))
    panels = []
    for name in names:
        own = [row for row in rows if row["losses"] == name]
        dots = canvas.chart(own).mark_point(filled=True, size=18, opacity=0.7)
        exact = canvas.chart(own[:1]).mark_rule(color=INK, strokeDash=[5, 3]).encode(y=alt.Y("exact:Q"))
        layers = alt.layer(dots.encode(x=x, xOffset=offset, y=y, color=color), exact)
        panels.append(layers.properties(width=270, height=190, title=f"d = {name.rsplit('.', 1)[-1]}"))
    return canvas.finish(alt.concat(*panels, columns=2))


def fits(found: dict[str, GoodnessOfFit]) -> Spec:
    """Figure 6: KS p-values by sample size and number of components, without (a) and with DP-SGD (b)."""
    canvas = Canvas(260)
    alt = canvas.alt
    panels = []
    for name, fit in found.items():
        cells = [
            {"components": int(c), "size": int(n), "p": float(fit.p_values[i, j])}
            for i, n in enumerate(fit.sample_sizes)
            for j, c in enumerate(fit.components)
        ]
        x = alt.X("components:O", title="components", axis=alt.Axis(labelAngle=0, labelOverlap="parity"))
        y = alt.Y("size:O", title="samples", sort="descending")
        scale = alt.Scale(domain=[0, 1], scheme="blues")
        color = alt.Color("p:Q", scale=scale, legend=alt.Legend(title="p-value"))
        panel = canvas.chart(cells).mark_rect().encode(x=x, y=y, color=color)
        panels.append(panel.properties(width=260, height=150, title=name))
    return canvas.finish(alt.concat(*panels, columns=2))
