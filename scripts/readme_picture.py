"""Draw the README's pictures (`make picture`): bounds.svg from docs/coverage.json, audit.png from the demo's page.

Needs the extra `report`, and Chromium for the page.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path

import altair as alt

from dosimeter.cli.demo import demo
from dosimeter.report.pdf import find_chromium

ROOT = Path(__file__).parent.parent
GROUP = "Independent runs"  # of docs/coverage.json
SHOWN = {
    "lower_bound": "lower_bound (valid)",
    "clopper-pearson, uniform": "Clopper–Pearson, uniform band (valid)",
    "clopper-pearson, split": "Clopper–Pearson, split (valid)",
    "clopper-pearson, naive": "Clopper–Pearson, best threshold (not valid)",
    "bayesian, split": "Joint posterior, split (credible, not confidence)",
}


QUIET = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--hide-scrollbars"),
]
WIDTH, HEIGHT = 1060, 900  # the first screen of the page, to the end of its steps


def page(folder: Path) -> None:
    """The first screen of the demo's page: verdict, guard, cards, picture and steps."""
    chromium = find_chromium()
    with tempfile.TemporaryDirectory() as scratch:
        demo(folder=Path(scratch))
        shot = [
            f"--user-data-dir={scratch}/profile",
            f"--window-size={WIDTH},{HEIGHT}",
            f"--screenshot={folder / 'audit.png'}",
        ]
        address = Path(scratch, "audit.html").as_uri()
        subprocess.run(
            [chromium, *QUIET, *shot, "--virtual-time-budget=3000", address], check=True, capture_output=True
        )


def bounds(folder: Path) -> None:
    """Honest and uncorrected bounds side by side."""
    every = json.loads((ROOT / "docs" / "coverage.json").read_text())
    rows = [r for r in every if r["estimator"] in SHOWN and r["group"] == GROUP]
    sizes = f"{rows[0]['records']} + {rows[0]['records']} records"
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
        (left + line).properties(width=280, height=150, title=f"95 % bounds, {sizes}, no leak (5 % dashed)"),
        right.properties(width=280, height=150, title="What is proven when there is a leak"),
    ).configure(background="white")
    picture.save(folder / "bounds.svg")


def main() -> None:
    folder = ROOT / "docs" / "img"
    folder.mkdir(exist_ok=True)
    bounds(folder)
    page(folder)


if __name__ == "__main__":
    main()
