"""The tables, as Markdown: target models, what both protocols measure of them, baselines, and the silence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dosimeter.estimators.limits import clopper_pearson_limits

from ..shared import markdown
from .summary import Row, by_target


def span(values: Sequence[float | None], digits: int = 3) -> str:
    """Mean and range, or a dash where nothing was measured."""
    there = [value for value in values if value is not None]
    if not there:
        return "–"
    mean, low, high = (f"{value:.{digits}f}" for value in (np.mean(there), min(there), max(there)))
    return mean if low == high else f"{mean} ({low} to {high})"


def of_targets(rows: Sequence[Row], unit: str) -> str:
    """How each target was trained, and how well it does on members and on others."""
    found = [
        [name, f"{rows[0]['members']}", span([t["train"] for t in targets]), span([t["test"] for t in targets])]
        for name, targets in by_target(rows).items()
    ]
    return markdown(["target", "members", f"{unit}, members", f"{unit}, other records"], found)


def of_audits(rows: Sequence[Row]) -> str:
    """The thesis's protocol and ours side by side, and what real non-members give."""
    found = [
        [
            name,
            span([row["thesis"]["c_lb"] for row in rows]),
            span([target["thesis"]["c_eps_lb"] for target in targets]),
            span([target["thesis"]["epsilon"] for target in targets]),
            span([target["thesis"]["one_run"] for target in targets]),
            span([target["epsilon"] for target in targets]),
            f"{sum(target['stands_out'] for target in targets)} of {len(targets)}",
            span([target["real"] for target in targets]),
            span([target["real_one_run"] for target in targets]),
        ]
        for name, targets in by_target(rows).items()
    ]
    header = [
        "target",
        "c_lb, thesis",
        "{c+ε}_lb, thesis",
        "ε̃, thesis",
        "O(1), thesis",
        "ε̃, ours (a measurement)",
        "stands out",
        "RM;RN, ε ≥",
        "one run, real non-members, ε ≥",
    ]
    return markdown(header, found)


def of_helpers(rows: Sequence[Row]) -> str:
    """c_lb of baselines that see one helper or none."""
    names = list(rows[0]["strength"]["helper"])
    return markdown(["baseline", "c_lb"], [[n, span([row["strength"]["helper"][n] for row in rows])] for n in names])


def of_cost(rows: Sequence[Row]) -> str:
    """CPU seconds of an audit of all targets, and how well generated records are told from members."""
    found = [
        [
            str(rows[0]["generator"]),
            span([row.get("judge_auc") for row in rows]),
            span([row["baseline_auc"] for row in rows]),
            span([row["auc_limit"] for row in rows]),
            span([row["cpu_seconds"] for row in rows], 0),
            f"{sum(row['strength']['rising'] for row in rows)} of {len(rows)}",
        ]
    ]
    header = [
        "generator",
        "AUC of the judge",
        "AUC of the best baseline",
        "limit for a target's AUC",
        "CPU seconds",
        "baseline still rising",
    ]
    return markdown(header, found)


def of_silence(audits: dict[str, Sequence[float]]) -> str:
    """How often ε̃ was 0 for models that never saw the members, with a Clopper–Pearson interval."""
    rows = []
    for name, found in audits.items():
        silent, total = sum(value == 0.0 for value in found), len(found)
        low, high = (float(end) for end in clopper_pearson_limits(silent, total, 0.025))
        rows.append(
            [name, f"{total}", f"{silent}", f"{silent / total:.1%} ({low:.1%} to {high:.1%})", f"{max(found):.3f}"]
        )
    return markdown(["models that never saw the members", "audits", "ε̃ = 0", "share, 95 % interval", "largest ε̃"], rows)


def of_generators(columns: Mapping[str, Sequence[Row]]) -> str:
    """What the judge says of each generator, and how near its records come to those that it learnt from."""
    rows = [
        [
            name,
            span([one["auc"] for one in some]),
            span([one["distance"] for one in some]),
            span([100 * one["copies"] for one in some], 1),
            span([one["seconds"] for one in some], 1),
        ]
        for name, some in columns.items()
    ]
    header = ["generator", "AUC of the judge", "distance to the nearest member, median", "copies, %", "CPU seconds"]
    return markdown(header, rows)


def of_image_generators(rows: Sequence[Row]) -> str:
    """What the audit says of its generators of images."""
    found = [
        [
            f"{row['data']}, {row['side']} × {row['side']}",
            f"{row['steps']}",
            f"{row['judge_auc']:.3f}",
            "yes" if row["decides"] else "no",
            f"{row['nearest']:.3f}",
            f"{row['nearest_real']:.3f}",
        ]
        for row in rows
    ]
    header = [
        "images",
        "steps of training",
        "AUC of the judge",
        "the generator decides",
        "correlation with the nearest member, generated",
        "the same, members with others",
    ]
    return markdown(header, found)


def of_maps(found: Sequence[Row]) -> str:
    """Judges of images that start farther along the way from noise, with one low-pass map for both kinds of images."""
    rows = [
        [f"{one['start']:g}", f"{one['share']:g}", *(f"{one[n]:.3f}" for n in ("auc", "nearest", "nearest_real"))]
        for one in found
    ]
    header = [
        "start",
        "share of the frequencies that is kept",
        "AUC of the judge",
        "correlation with the nearest member, generated",
        "the same, fresh images",
    ]
    return markdown(header, rows)


def of_trials(rows: Sequence[Row]) -> str:
    """What a judge tells of images that were made and mapped in other ways."""
    found = [
        [
            f"{row['data']}, {row['side']} × {row['side']}",
            one["prediction"],
            f"{one['steps']}",
            one["map"],
            f"{one['numbers']}",
            *(f"{one[n]:.3f}" for n in ("auc", "nearest", "nearest_real")),
        ]
        for row in rows
        for one in row["tried"]
    ]
    header = [
        "images",
        "the network gives",
        "training steps",
        "map",
        "numbers that are kept of an image",
        "AUC of the judge",
        "correlation with the nearest member, generated",
        "the same, fresh images",
    ]
    return markdown(header, found)
