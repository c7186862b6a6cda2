"""Draw docs/img/bounds.svg from docs/coverage.json (needs the extra `report`)."""

from __future__ import annotations

import json
from pathlib import Path

import altair as alt

ROOT = Path(__file__).parent.parent
SHOWN = {
    "lower_bound": "lower_bound (valid)",
    "clopper-pearson, uniform": "Clopper–Pearson, uniform band (valid)",
    "clopper-pearson, split": "Clopper–Pearson, split (valid)",
    "clopper-pearson, naive": "Clopper–Pearson, best threshold (not valid)",
    "bayesian, naive": "Bayesian, best threshold (not valid)",
}


def main() -> None:
    rows = [r for r in json.loads((ROOT / "docs" / "coverage.json").read_text()) if r["estimator"] in SHOWN]
    for row in rows:
        row["name"], row["kind"] = SHOWN[row["estimator"]], "valid bound" if row["is_bound"] else "not a bound"
    colour = alt.Color(
        "kind:N", title=None, scale=alt.Scale(domain=["valid bound", "not a bound"], range=["#1b6ca8", "#d1782f"])
    )
    name = alt.Y("name:N", sort=list(SHOWN.values()), title=None, axis=alt.Axis(labelLimit=320))
    false = alt.Chart(alt.Data(values=[r for r in rows if r["mechanism"] == "no leak"]))
    left = false.mark_bar().encode(
        x=alt.X("rate:Q", title="claims a leak where there is none", axis=alt.Axis(format="%")), y=name, color=colour
    )
    line = alt.Chart(alt.Data(values=[{"rate": 0.05}])).mark_rule(strokeDash=[4, 3]).encode(x="rate:Q")
    shown = alt.Chart(alt.Data(values=[r for r in rows if r["mechanism"] == "Gaussian μ=1"]))
    right = shown.mark_bar().encode(
        x=alt.X("mean:Q", title="mean bound on ε, Gaussian mechanism (true ε = 4.38)"),
        y=name.axis(None),
        color=colour,
    )
    picture = alt.hconcat(
        (left + line).properties(width=280, height=150, title="95 % bounds, 1000 + 1000 records, no leak (5 % dashed)"),
        right.properties(width=280, height=150, title="What is proven when there is a leak"),
    ).configure(background="white")
    (ROOT / "docs" / "img").mkdir(exist_ok=True)
    picture.save(ROOT / "docs" / "img" / "bounds.svg")


if __name__ == "__main__":
    main()
