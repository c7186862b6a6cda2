"""Bayesian Estimation of Differential Privacy (Zanella-Béguelin et al., 2023): its numbers, tables and figures."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

from dosimeter import Audit, Counts
from dosimeter.engine import Store

from ..exhibits import Found
from ..shared import markdown
from . import trainings, widths

COVERAGE = Path(__file__).parents[2] / "docs" / "coverage.json"
COVERED = (
    "clopper-pearson, fixed",
    "clopper-pearson, uniform",
    "jeffreys, split",
    "bayesian, split",
    "bayesian, naive",
)
MECHANISMS = ("no leak", "Laplace ε=1", "Gaussian μ=1")
STEPS = {"mini": 50, "quick": 25, "full": 5}  # between error counts of 500 in Figure 5


def figure1(size: str, store: Store | None = None) -> Found:
    """The posterior of ε for a network trained with DP on CIFAR-10."""
    from . import pictures

    audit = _audits(size, store)["cifar10"]["dp"]
    point, stated = audit.details["points"][0], min(g.epsilon for g in audit.upper if g.is_bound)
    cells = Counts(fn=point["fn"], tp=point["tp"], fp=point["fp"], tn=point["tn"])
    ends = {name: widths.interval(name, cells, widths.DELTA, widths.CONFIDENCE) for name in widths.METHODS}
    spans = {name: high - low for name, (low, high) in ends.items()}
    numbers = {
        "figure1.below": float(ends["joint"][1] < stated),
        "figure1.narrower": float(spans["joint"] < spans["clopper_pearson"]),
    }
    caption = (
        f"A small CNN with ε = {stated:.1f} on {audit.metadata['runs']} challenge models: posterior density of ε at "
        "δ = 1e-5 at the threshold that shadow models fixed, and 90 % intervals of three methods."
    )
    return Found(numbers, figures={"figure1.svg": (caption, pictures.posterior(cells, ends))})


def figure2() -> Found:
    """The region of privacy."""
    from . import pictures

    forced = widths.forced_by_tests(1.0)
    caption = "Regions of (ε, δ)-DP at δ = 0.05; between the lines of one colour lie the rates that ε allows."
    numbers = {"figure2.forced": forced, "figure2.contained": float(forced <= 1.0 + 1e-9)}
    return Found(numbers, figures={"figure2.svg": (caption, pictures.regions())})


def section3() -> Found:
    """Section 3.1 and footnote 1."""
    numbers = {f"perfect.{name}": value for name, value in widths.perfect().items()}
    return Found(numbers | {"corner": widths.corner()})


def figure3() -> Found:
    """Section 3.2 and its figure."""
    from . import pictures

    found = widths.covered()
    numbers = {
        f"example.{name}.{end}": value
        for name, ends in widths.worked_example().items()
        for end, value in zip(("low", "high"), ends, strict=True)
    }
    numbers |= {"example.rectangle": 100 * found.rectangle, "example.regions": 100 * found.regions}
    caption = (
        "FN 35, TP 65, FP 25, TN 75, δ = 0.05: draws from the joint posterior, the regions of the ends of the joint "
        "interval, and the rectangle of two Jeffreys intervals."
    )
    numbers["example.mass"] = widths.mass()
    numbers["example.more"] = float(found.regions > found.rectangle >= 0.95)
    return Found(numbers, figures={"figure3.svg": (caption, pictures.rectangle())})


def figure4() -> Found:
    """Samples that an estimate within ± 0.15 takes."""
    from . import pictures

    needed = {name: widths.samples_needed(name) for name in widths.METHODS}
    numbers = {f"figure4.{name}": needed[name] for name in ("clopper_pearson", "joint")}
    numbers["figure4.saves"] = float(needed["joint"] < 0.5 * needed["jeffreys"] < 0.5 * needed["clopper_pearson"])
    caption = (
        "FPR = FNR = 40 %, δ = 1e-5: both ends of the 90 % interval for ε against the number of samples. Within ± 0.15 "
        f"after {needed['joint']:.0f} samples (joint), {needed['jeffreys']:.0f} (Jeffreys), "
        f"{needed['clopper_pearson']:.0f} (Clopper–Pearson)."
    )
    return Found(numbers, figures={"figure4.svg": (caption, pictures.samples())})


def figure5(size: str) -> Found:
    """Widths over all error rates."""
    from . import pictures

    rows = widths.over_rates(STEPS[size])
    gains = {
        n: [r[f"than_{n}"] for r in rows if r[f"than_{n}"] == r[f"than_{n}"]] for n in ("jeffreys", "clopper_pearson")
    }
    numbers = {f"figure5.{name}": 100 * max(values) for name, values in gains.items()}
    numbers["figure5.narrowest"] = float(all(min(values) > 0 for values in gains.values()))
    text = ", ".join(f"{min(v):.0%} to {max(v):.0%} narrower than {pictures.NAMES[n]}'s" for n, v in gains.items())
    caption = (
        f"Width of the joint interval for 1000 samples, δ = 1e-5, 90 %: {text}. Part of that is coverage given up."
    )
    cells = {(row["estimator"], row["mechanism"]): row for row in json.loads(COVERAGE.read_text(encoding="utf-8"))}
    lines = [
        [name, cells[name, MECHANISMS[0]]["validity"], *(f"{cells[name, m]['rate']:.1%}" for m in MECHANISMS)]
        for name in COVERED
    ]
    table = markdown(["method", "validity", *MECHANISMS], lines)
    title = "Coverage, from `make coverage-table`: how often the lower end is above the true ε (nominal 5 %)"
    return Found(numbers, {title: table}, {"figure5.svg": (caption, pictures.rates(rows))})


def _finite(values: Iterable[float]) -> list[float]:
    return [value for value in values if math.isfinite(value)]


def figure7() -> Found:
    """The joint posterior as trials grow."""
    from . import pictures

    rows = widths.growing()
    areas = [row["area"] for row in rows]
    table = [[f"{r['trials']:.0f}", f"[{r['low']:.3f}, {r['high']:.3f}]", f"{r['area']:.3f}"] for r in rows]
    numbers = {
        "figure7.first": float(areas[0] > 0.9),
        "figure7.shrinks": float(all(after < 0.7 * before for before, after in pairwise(areas))),
    }
    caption = "The region between the ends of the 95 % joint interval, at the rates of the worked example."
    title = "Rates of the worked example, δ = 0.05"
    return Found(
        numbers,
        {title: markdown(["trials", "joint interval", "area between its regions"], table)},
        {"figure7.svg": (caption, pictures.growing())},
    )


@lru_cache(maxsize=4)
def _audits(size: str, store: Store | None) -> dict[str, dict[str, Audit]]:
    """The audits of each data set by kind."""
    return {
        data: {kind: trainings.audit(size, data, kind, store) for kind in kinds}
        for data, kinds in trainings.CONFIG[size].items()
    }


def table2(size: str, store: Store | None = None) -> Found:
    """The end-to-end system on trained targets."""
    from . import pictures

    found = _audits(size, store)
    numbers = {}
    for data, audits in found.items():
        for kind, audit in audits.items():
            if audit.region is None:
                numbers[f"table2.{data}.{kind}.leaks"] = float(audit.headline.low > 0)
            else:
                numbers[f"table2.{data}.{kind}.below_guarantee"] = float(not audit.region.contradiction)
        if {"plain", "dp"} <= audits.keys():
            below = audits["dp"].headline.low < audits["plain"].headline.low
            numbers[f"table2.{data}.private_below"] = float(below)
    flat = {f"{data}, {kind}": audit for data, audits in found.items() for kind, audit in audits.items()}
    rows = [trainings.row(name, audit) for name, audit in flat.items()]
    table = markdown(list(rows[0]), [[str(cell) for cell in row.values()] for row in rows])
    title = "Intervals at 95 % and δ = 1e-5, threshold fixed on shadow models; the headline holds over all thresholds"
    caption = (
        "A bar that reaches the right edge has no upper end. Clopper–Pearson's intervals hold at their level; "
        "Jeffreys' and the joint posterior's are credible, which is less."
    )
    return Found(numbers, {title: table}, {"table2.svg": (caption, pictures.of_trainings(flat))})


PARTS = {
    "fig1": figure1,
    "fig2": figure2,
    "section3": section3,
    "fig3": figure3,
    "fig4": figure4,
    "fig5": figure5,
    "table2": table2,
    "fig7": figure7,
}
