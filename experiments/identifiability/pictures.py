"""The figures: what ε means, beliefs and sensitivities over the steps, and ε′ three ways against ε."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from dosimeter.audits.page import charts
from dosimeter.identifiability import advantage_from_epsilon, belief_from_epsilon
from dosimeter.report.canvas import CATEGORIES, MUTED, NARROW, SHAPES, Canvas

from ..shared import write_svg

DELTAS = (0.01, 0.001)
WAYS = {
    "epsilon_sensitivities": "sensitivities (Figure 7)",
    "epsilon_beliefs": "largest belief (Figure 8)",
    "epsilon_advantage": "advantage (Figure 9)",
}
OF_ONE = {
    "beliefs": "Figure 4: beliefs in the truth, step by step",
    "final_beliefs": "Figure 5: beliefs after the last step",
    "sensitivities": "Figure 6: sensitivities over the steps against the global one",
}


def of_meaning(folder: Path) -> dict[str, str]:
    """Figure 3: the largest belief and the advantage that ε stands for."""
    canvas = Canvas(NARROW)
    alt, grid = canvas.alt, np.linspace(0, 8, 161)
    lines = {"ρ, the bound on the belief": belief_from_epsilon(grid)}
    for delta in DELTAS:
        lines[f"advantage, δ = {delta:g}, the paper's noise"] = advantage_from_epsilon(
            grid, delta=delta, method="classic"
        )
    lines["advantage at most, δ = 0"] = advantage_from_epsilon(grid)
    rows = [
        {"epsilon": float(e), "value": float(v), "what": what}
        for what, values in lines.items()
        for e, v in zip(grid, values, strict=True)
    ]
    scale = alt.Scale(domain=list(lines), range=list(CATEGORIES[: len(lines)]))
    color = alt.Color("what:N", title=None, scale=scale, legend=alt.Legend(orient="right", labelLimit=300))
    chart = canvas.chart(rows).mark_line(strokeWidth=2).properties(width=360, height=240)
    chart = chart.encode(x=alt.X("epsilon:Q", title="ε"), y=alt.Y("value:Q", title=None), color=color)
    return {
        write_svg(folder, "meaning.svg", canvas.finish(chart)): (
            "Figure 3: what ε means. The bound on the adversary's belief, and their expected advantage: with the noise "
            "of the classic Gaussian mechanism (the paper's Theorem 3), and at most."
        )
    }


def of_runs(folder: Path, rows: list[dict[str, Any]]) -> dict[str, str]:
    """Figures 4 to 6 for each data set: global noise on replaced records at ρ = 0.9."""
    found = {}
    for row in rows:
        if (row["neighbours"], row["noise"], row["belief"]) == ("bounded", "global", 0.9):
            drawn = charts(row["audit"])
            for name, text in OF_ONE.items():
                file = write_svg(folder, f"{name}_{row['data']}.svg", drawn[name])
                found[file] = f"{text}: {row['data']}, bounded neighbours, global noise, ρ = 0.9."
    return dict(sorted(found.items(), key=lambda item: item[1].split(",")[0]))


def of_targets(folder: Path, rows: list[dict[str, Any]]) -> dict[str, str]:
    """Figures 7 to 9: ε′ of each way against the target ε, for each data set."""
    points = [
        {"epsilon": row["epsilon"], "measured": row[key], "data": row["data"], "way": way}
        for row in rows
        if (row["neighbours"], row["noise"]) == ("bounded", "global")
        for key, way in WAYS.items()
    ]
    canvas = Canvas(NARROW)
    alt = canvas.alt
    names = list(dict.fromkeys(row["data"] for row in rows))
    x = alt.X("epsilon:Q", title="target ε")
    base = alt.Chart().properties(width=190, height=190)
    marks = {
        "color": alt.Color("data:N", title=None, scale=alt.Scale(domain=names, range=list(CATEGORIES[: len(names)]))),
        "shape": alt.Shape("data:N", title=None, scale=alt.Scale(domain=names, range=list(SHAPES[: len(names)]))),
    }
    layers = (
        base.mark_line(color=MUTED, strokeDash=[4, 3]).encode(x=x, y=alt.Y("epsilon:Q", title="ε′")),
        base.mark_line(strokeWidth=1.6).encode(x=x, y="measured:Q", color=marks["color"]),
        base.mark_point(filled=True, size=60, opacity=1).encode(x=x, y="measured:Q", **marks),
    )
    ways = alt.Column("way:N", title=None, sort=list(WAYS.values()))
    spec = canvas.finish(alt.layer(*layers).facet(column=ways, data=canvas.chart(points).data))
    return {
        write_svg(folder, "targets.svg", spec): (
            "Figures 7 to 9: ε′ three ways against the target ε (dashed: equal); bounded neighbours, global noise. The "
            "largest belief is a sample maximum."
        )
    }
