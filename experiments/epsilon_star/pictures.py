"""The figures, drawn with Altair as the reports are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dosimeter.estimators.goodness_of_fit import GoodnessOfFit

from ..shared import write_svg
from . import landscape

METRIC = "ε* speaks of the model instance, not of the DP ε of the mechanism that trained it."


def of_study(folder: Path, rows: list[dict[str, Any]]) -> dict[str, str]:
    """ε* of every repeat against the sample size, the exact value as a line."""
    from dosimeter.report.canvas import CATEGORIES, INK, Canvas

    canvas = Canvas(150)
    alt = canvas.alt
    forms = ["parametric", "empirical", "any rate"]
    color = alt.Color("form:N", sort=forms, scale=alt.Scale(domain=forms, range=list(CATEGORIES[:3])))
    x, offset = (
        alt.X("n:O", title="records of each kind", axis=alt.Axis(labelAngle=0)),
        alt.XOffset("form:N", sort=forms),
    )
    y = alt.Y("epsilon:Q", title="ε*", scale=alt.Scale(domain=[0, max(row["epsilon"] for row in rows)]))
    panels = []
    for name in dict.fromkeys(row["losses"] for row in rows):
        own = [row for row in rows if row["losses"] == name]
        dots = canvas.chart(own).mark_point(filled=True, size=18, opacity=0.7)
        exact = canvas.chart(own[:1]).mark_rule(color=INK, strokeDash=[5, 3]).encode(y=alt.Y("exact:Q"))
        layers = alt.layer(dots.encode(x=x, xOffset=offset, y=y, color=color), exact)
        panels.append(layers.properties(width=190, height=190, title=name))
    spec = canvas.finish(alt.concat(*panels, columns=3))
    repeats = 1 + max(row["repeat"] for row in rows)
    return {
        write_svg(folder, "study.svg", spec): (
            f"ε* of {repeats} repeats for normal and Gamma losses against the number of records; dashed: the exact "
            "value of the distributions (δ = 1e-5). Normal fits to transformed losses keep a bias; the largest "
            "empirical ratio without limits on the rates is the noisiest."
        )
    }


def of_ends(folder: Path, rows: list[dict[str, float]], n: int) -> dict[str, str]:
    """ln TPR/FPR against the false-positive rate: the exact curve among those of the repeats."""
    from dosimeter.report.canvas import INK, MEMBERS, WIDE, Canvas

    canvas = Canvas(WIDE)
    alt = canvas.alt
    x = alt.X("fpr:Q", scale=alt.Scale(type="log"), title="false-positive rate")
    y = alt.Y("value:Q", title="ln TPR/FPR")
    found = [row for row in rows if row["repeat"] >= 0]
    truth = [row for row in rows if row["repeat"] < 0]
    lines = canvas.chart(found).mark_line(color=MEMBERS, opacity=0.45, strokeWidth=1)
    exact = canvas.chart(truth).mark_line(color=INK, strokeWidth=2.2)
    repeats = 1 + int(max(row["repeat"] for row in rows))
    spec = canvas.finish(alt.layer(lines.encode(x=x, y=y, detail="repeat:N"), exact.encode(x=x, y=y)), 240)
    return {
        write_svg(folder, "ends.svg", spec): (
            f"Noise at the ends: ln TPR/FPR of normal losses in {repeats} repeats with {n} records of each kind (thin) "
            "and exactly (thick). The ratio rests on a handful of records where the rate is small."
        )
    }


def of_fits(folder: Path, data: str, fits: dict[str, GoodnessOfFit]) -> dict[str, str]:
    """KS p-values by sample size and number of components, a panel for each model and side."""
    from dosimeter.report.canvas import Canvas

    canvas = Canvas(260)
    alt = canvas.alt
    panels = []
    for name, fit in fits.items():
        cells = [
            {"components": int(c), "size": int(n), "p": float(fit.p_values[i, j])}
            for i, n in enumerate(fit.sample_sizes)
            for j, c in enumerate(fit.components)
        ]
        panel = (
            canvas.chart(cells)
            .mark_rect()
            .encode(
                x=alt.X("components:O", title="components", axis=alt.Axis(labelAngle=0, labelOverlap="parity")),
                y=alt.Y("size:O", title="samples", sort="descending"),
                color=alt.Color(
                    "p:Q", scale=alt.Scale(domain=[0, 1], scheme="blues"), legend=alt.Legend(title="p-value")
                ),
            )
        )
        panels.append(panel.properties(width=260, height=150, title=name))
    spec = canvas.finish(alt.concat(*panels, columns=2))
    return {
        write_svg(folder, "fits.svg", spec): (
            f"Two-sample KS p-values of normal mixtures against held-out losses of {data}, with and without DP-SGD; "
            "pale: rejected."
        )
    }


def of_landscape(folder: Path, which: str, data: str, outcomes: list[landscape.Outcome]) -> dict[str, str]:
    """The landscape with its frontier and the marginal densities."""
    from dosimeter.audits.compare.charts import landscape_chart
    from dosimeter.report.canvas import WIDE, Canvas

    spec = landscape_chart(Canvas(WIDE), landscape.points(outcomes))
    models = sum(len(o.epsilons) for o in outcomes)
    return {
        write_svg(folder, f"{which}.svg", spec): (
            f"Privacy-utility landscape of {data}: {models} models; a point is a strategy (mean over repeats, bars "
            f"from the smallest to the largest), dashed: the frontier; along the sides: densities by category. {METRIC}"
        )
    }
