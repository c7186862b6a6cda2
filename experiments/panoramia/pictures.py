"""The figures, drawn with Altair as the reports are: a panel for each kind of data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dosimeter.report.canvas import CATEGORIES, INK, MUTED, SHAPES, Canvas

from ..shared import write_svg
from .summary import Row, by_target, sweep
from .tables import NAMES, Found

PANEL = 250
MEASURE = "ε̃ (a measurement)"
BOUND = "RM;RN (a bound, real non-members)"
RUN = "one run, real non-members (a bound)"


def _color(alt: Any, names: Sequence[str], *, baseline: bool = False) -> tuple[Any, Any]:
    colors = [MUTED, *CATEGORIES] if baseline else [*CATEGORIES]
    domain = list(names)
    legend = alt.Legend(columns=2)
    color = alt.Color("what:N", scale=alt.Scale(domain=domain, range=colors[: len(domain)]), legend=legend)
    shape = alt.Shape("what:N", scale=alt.Scale(domain=domain, range=list(SHAPES[: len(domain)])), legend=legend)
    return color, shape


def _panels(canvas: Canvas, charts: list[tuple[str, Any]]) -> dict[str, Any]:
    drawn = [chart.properties(width=PANEL, height=200, title=title) for title, chart in charts]
    return canvas.finish(canvas.alt.concat(*drawn, columns=3).resolve_scale(color="independent", shape="independent"))


def of_strength(folder: Path, found: Found) -> dict[str, str]:
    """Figure 8.1: c_lb against the training records of the baseline, and by helper."""
    kinds = {kind: rows for kind, rows in found.items() if "strength" in rows[0]}
    if not kinds:
        return {}
    canvas = Canvas(PANEL)
    alt = canvas.alt
    charts = []
    for kind, audits in kinds.items():
        points = [
            {"x": row["records"], "y": row["c_lb"], "seed": audit["seed"]}
            for audit in audits
            for row in audit["strength"]["size"]
        ]
        sizes = sorted({point["x"] for point in points})
        means = [{"x": x, "y": float(np.mean([p["y"] for p in points if p["x"] == x]))} for x in sizes]
        x = alt.X(
            "x:Q",
            title="training records of the baseline",
            scale=alt.Scale(type="log", nice=False, padding=8),
            axis=alt.Axis(values=sizes, format="~s", grid=False),
        )
        y = alt.Y("y:Q", title="c_lb", scale=alt.Scale(zero=True))
        thin = canvas.chart(points).mark_line(color=CATEGORIES[0], opacity=0.3, strokeWidth=1)
        thick = canvas.chart(means).mark_line(color=CATEGORIES[0], strokeWidth=2.4, point={"color": CATEGORIES[0]})
        charts.append((NAMES[kind], alt.layer(thin.encode(x=x, y=y, detail="seed:N"), thick.encode(x=x, y=y))))
        variants = [
            {"what": row["helper"].replace("all that the baseline sees except a reference model", "no reference")}
            | {"y": row["c_lb"], "seed": audit["seed"]}
            for audit in audits
            for row in audit["strength"]["helper"]
        ]
        dots = canvas.chart(variants).mark_point(filled=True, size=45, opacity=0.7, color=CATEGORIES[1])
        names = list(dict.fromkeys(variant["what"] for variant in variants))
        up = alt.Y("what:N", sort=names, title=None, axis=alt.Axis(labelLimit=190, ticks=False))
        charts.append(
            (f"{NAMES[kind]}, by helper", dots.encode(x=alt.X("y:Q", title="c_lb", scale=alt.Scale(zero=True)), y=up))
        )
    drawn = [chart.properties(width=PANEL, height=170, title=title) for title, chart in charts]
    return {
        write_svg(folder, "strength.svg", canvas.finish(alt.concat(*drawn, columns=2))): (
            "Figure 8.1, strength of the baseline: c_lb against the records that it was trained on (thin: each seed, "
            "thick: mean), and with no helper, one trained on generated records, one trained on real non-members, and "
            "with all that the baseline sees except a reference model. Where the line still rises, c_lb is too "
            "low and ε̃ too high."
        )
    }


def of_curves(folder: Path, found: Found) -> dict[str, str]:
    """Figures 8.2 and 8.3: bound and precision against recall of one audit, the largest bound marked."""
    kinds = {kind: rows[0] for kind, rows in found.items() if "baseline_curve" in rows[0]}
    if not kinds:
        return {}
    seeds = ", ".join(f"{NAMES[kind]} seed {row['seed']}" for kind, row in kinds.items())
    texts = {
        "bound": "Figure 8.2, bound against recall: each point holds at 97.5 % for its own recall alone",
        "precision": "Figure 8.3, precision against recall",
    }
    return {
        write_svg(folder, f"{column}_recall.svg", _by_recall(kinds, column)): (
            f"{text}; marks: where the bound of a line is largest. The best baseline, and the networks that were "
            f"trained shortest and longest ({seeds})."
        )
        for column, text in texts.items()
    }


def _by_recall(kinds: dict[str, Row], column: str) -> dict[str, Any]:
    canvas = Canvas(PANEL)
    alt = canvas.alt
    charts = []
    for kind, row in kinds.items():
        shown = [("best baseline", row["baseline_curve"])]
        shown += [(target["name"], target["curve"]) for target in (sweep(row)[0], sweep(row)[-1])]
        lines, marks = [], []
        for name, curve in shown:
            points = [
                {"x": x, "y": y, "what": name, "at": at}
                for at, (x, y) in enumerate(zip(curve["recall"], curve[column], strict=True))
            ]
            lines += points
            marks.append(points[curve["best"]])
        x = alt.X("x:Q", title="recall", scale=alt.Scale(domain=[0, 1], nice=False), axis=alt.Axis(format="~%"))
        y = alt.Y("y:Q", title="bound" if column == "bound" else column, scale=alt.Scale(zero=column == "bound"))
        color, shape = _color(alt, [name for name, _ in shown], baseline=True)
        line = canvas.chart(lines).mark_line(strokeWidth=1.5).encode(x=x, y=y, color=color, order="at:Q")
        mark = canvas.chart(marks).mark_point(filled=True, size=90, opacity=1)
        charts.append((NAMES[kind], alt.layer(line, mark.encode(x=x, y=y, color=color, shape=shape))))
    return _panels(canvas, charts)


def of_real(folder: Path, found: Found) -> dict[str, str]:
    """Figure 8.6: ε̃ beside what real non-members give, for every target."""
    kinds = {kind: rows for kind, rows in found.items() if rows[0]["targets"][0].get("real") is not None}
    if not kinds:
        return {}
    canvas = Canvas(PANEL)
    alt = canvas.alt
    fields = {MEASURE: "epsilon", BOUND: "real", RUN: "real_one_run"}
    charts = []
    for kind, audits in kinds.items():
        points, means = [], []
        for name, targets in by_target(audits).items():
            for what, field in fields.items():
                values = [target[field] for target in targets]
                points += [{"x": name, "y": value, "what": what} for value in values]
                means.append({"x": name, "y": float(np.mean(values)), "what": what})
        names = list(by_target(audits))
        x = alt.X("x:N", sort=names, title=None, axis=alt.Axis(labelAngle=-40))
        y = alt.Y("y:Q", title="ε", scale=alt.Scale(zero=True))
        color, shape = _color(alt, list(fields))
        offset = alt.XOffset("what:N", sort=list(fields))
        dots = canvas.chart(points).mark_point(filled=True, size=16, opacity=0.45)
        ticks = canvas.chart(means).mark_point(filled=True, size=80, opacity=1)
        charts.append(
            (
                NAMES[kind],
                alt.layer(
                    dots.encode(x=x, y=y, xOffset=offset, color=color, shape=shape),
                    ticks.encode(x=x, y=y, xOffset=offset, color=color, shape=shape),
                ),
            )
        )
    drawn = [chart.properties(width=90 + 55 * len(found[kind][0]["targets"]), height=220, title=title)
             for kind, (title, chart) in zip(kinds, charts, strict=True)]  # fmt: skip
    return {
        write_svg(folder, "real.svg", canvas.finish(alt.concat(*drawn, columns=1))): (
            "Figure 8.6, generated against real non-members: ε̃ of each target and what the same attack proves with "
            "real non-members in place of generated ones, by guesses of members alone (RM;RN) and by guesses of both "
            "kinds with abstention (one run). Small marks: seeds; large ones: means."
        )
    }


def of_sweep(folder: Path, found: Found) -> dict[str, str]:
    """ε̃ against the epochs of training: mean and range over the seeds."""
    canvas = Canvas(PANEL)
    alt = canvas.alt
    charts = []
    for kind, audits in found.items():
        rows = []
        for targets in zip(*map(sweep, audits), strict=True):
            values = [target["epsilon"] for target in targets]
            rows.append(
                {
                    "x": targets[0]["epochs"],
                    "y": float(np.mean(values)),
                    "low": min(values),
                    "high": max(values),
                }
            )
        epochs = [row["x"] for row in rows]
        x = alt.X(
            "x:Q",
            title="epochs",
            scale=alt.Scale(type="log", nice=False, padding=8),
            axis=alt.Axis(values=epochs, grid=False),
        )
        y = alt.Y("y:Q", title=MEASURE, scale=alt.Scale(zero=True))
        base = canvas.chart(rows)
        band = base.mark_area(color=CATEGORIES[0], opacity=0.2)
        line = base.mark_line(color=CATEGORIES[0], point={"color": CATEGORIES[0]})
        layers = alt.layer(band.encode(x=x, y=alt.Y("low:Q", title=MEASURE), y2="high:Q"), line.encode(x=x, y=y))
        charts.append((f"{NAMES[kind]}, {len(audits)} seeds", layers))
    return {
        write_svg(folder, "sweep.svg", _panels(canvas, charts)): (
            "Over-fitting: ε̃ against the epochs of training, mean and range over the seeds."
        )
    }


def of_private(folder: Path, found: Found) -> dict[str, str]:
    """ε̃ of networks with DP-SGD beside their guarantee."""
    kinds = {kind: rows for kind, rows in found.items() if any(target["dp"] for target in rows[0]["targets"])}
    if not kinds:
        return {}
    canvas = Canvas(PANEL)
    alt = canvas.alt
    charts = []
    for kind, audits in kinds.items():
        groups = [targets for targets in by_target(audits).values() if targets[0]["dp"]]
        longest = [sweep(row)[-1] for row in audits]
        names = [f"{targets[0]['dp']:g}" for targets in groups] + ["none"]
        points = [
            {"x": name, "y": target["epsilon"], "what": MEASURE}
            for name, targets in zip(names, [*groups, longest], strict=True)
            for target in targets
        ]
        limits = [
            {"x": name, "y": targets[0]["dp"], "what": "guarantee"}
            for name, targets in zip(names, groups, strict=False)
        ]
        x = alt.X("x:N", sort=names, title="guaranteed ε", axis=alt.Axis(labelAngle=0))
        y = alt.Y(
            "y:Q",
            title="ε",
            scale=alt.Scale(type="symlog", constant=0.1),
            axis=alt.Axis(values=[0, 0.1, 0.3, 1, 3, 10], format="~g"),
        )
        color = alt.Color("what:N", scale=alt.Scale(domain=[MEASURE, "guarantee"], range=[CATEGORIES[0], INK]))
        dots = canvas.chart(points).mark_point(filled=True, size=40, opacity=0.6).encode(x=x, y=y, color=color)
        ticks = canvas.chart(limits).mark_tick(thickness=3, width=40).encode(x=x, y=y, color=color)
        charts.append((NAMES[kind], alt.layer(dots, ticks)))
    return {
        write_svg(folder, "private.svg", _panels(canvas, charts)): (
            "DP-SGD: ε̃ of networks with a guarantee (bars) and of the same training without one. A measured ε̃ far "
            "below the guarantee does not say that the guarantee is loose: the attack may be weak."
        )
    }
