"""The tables, as Markdown: target models, what was measured of them, DP-SGD, and the silence without a leak."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dosimeter.estimators.limits import clopper_pearson_limits

from ..shared import markdown
from .summary import Row, by_target

Found = Mapping[str, Sequence[Row]]
NAMES = {"adult": "Adult", "images": "CIFAR-10, 8 × 8", "text": "WikiText-2", "table": "breast cancer"}
UNITS = {"text": "loss per token"}


def span(values: Sequence[float | None], digits: int = 3) -> str:
    """Mean and range, or a dash where nothing was measured."""
    there = [value for value in values if value is not None]
    if not there:
        return "–"
    mean, low, high = (f"{value:.{digits}f}" for value in (np.mean(there), min(there), max(there)))
    return mean if low == high else f"{mean} ({low} to {high})"


def of_targets(found: Found) -> dict[str, str]:
    """Table 7.1: how each target was trained, and how well it does on members and on others."""
    rows = []
    for kind, audits in found.items():
        for name, targets in by_target(audits).items():
            rows.append(
                [
                    NAMES[kind],
                    f"{audits[0]['members']}",
                    f"{name}, {targets[0]['epochs']} epochs" if targets[0]["dp"] else name,
                    UNITS.get(kind, "accuracy"),
                    span([target["train"] for target in targets]),
                    span([target["test"] for target in targets]),
                    f"{len(audits)}",
                ]
            )
    header = ["data", "members", "target", "unit", "on members", "on other records", "seeds"]
    return {"Table 7.1: the target models, mean and range over seeds": markdown(header, rows)}


def of_audits(found: Found) -> dict[str, str]:
    """Table 8.1: the bounds, ε̃, and what other ways give for the same target."""
    rows = []
    for kind, audits in found.items():
        c_lb = span([row["c_lb"] for row in audits])
        for name, targets in by_target(audits).items():
            rows.append(
                [
                    NAMES[kind],
                    name,
                    c_lb,
                    span([target["c_eps_lb"] for target in targets]),
                    span([target["epsilon"] for target in targets]),
                    f"{sum(target['epsilon'] > 0 for target in targets)} of {len(targets)}",
                    span([target.get("real") for target in targets]),
                    span([target.get("real_one_run") for target in targets]),
                    span([target.get("one_run") for target in targets]),
                ]
            )
    header = [
        "data",
        "target",
        "c_lb",
        "{c+ε}_lb",
        "ε̃, a measurement",
        "ε̃ above 0",
        "RM;RN, ε ≥",
        "one run, real non-members, ε ≥",
        "one run, generated, c + ε ≥",
    ]
    title = "Table 8.1: what is measured of each target, 95 % confidence, mean and range over seeds"
    return {title: markdown(header, rows)}


def of_private(found: Found) -> dict[str, str]:
    """Targets trained with DP-SGD beside the same training without: ε̃ and the guarantee."""
    rows = []
    for kind, audits in found.items():
        groups = by_target(audits)
        if not any(targets[0]["dp"] for targets in groups.values()):
            continue
        longest = max(targets[0]["epochs"] for targets in groups.values())
        for targets in groups.values():
            if targets[0]["epochs"] != longest:
                continue
            rows.append(
                [
                    NAMES[kind],
                    f"{targets[0]['dp']:g}" if targets[0]["dp"] else "none",
                    span([target["epsilon"] for target in targets]),
                    span([target.get("real") for target in targets]),
                    span([target["train"] for target in targets]),
                    span([target["test"] for target in targets]),
                ]
            )
    header = ["data", "guaranteed ε (δ = 1e-5)", "ε̃", "RM;RN, ε ≥", "accuracy on members", "on other records"]
    return {"DP-SGD: ε̃ beside the guarantee, the longest training": markdown(header, rows)} if rows else {}


def of_silence(audits: Mapping[int, Sequence[Row]]) -> dict[str, str]:
    """How often ε̃ was 0 for networks that never saw the members, with a Clopper–Pearson interval."""
    rows = []
    for members, found in audits.items():
        silent, total = sum(row["epsilon"] == 0.0 for row in found), len(found)
        low, high = (float(end) for end in clopper_pearson_limits(silent, total, 0.025))
        largest = max(row["epsilon"] for row in found)
        rows.append(
            [
                f"{members}",
                f"{total}",
                f"{silent}",
                f"{silent / total:.1%} ({low:.1%} to {high:.1%})",
                f"{largest:.3f}",
                f"{np.mean([row['cpu_seconds'] for row in found]):.1f}",
            ]
        )
    header = ["members", "audits", "ε̃ = 0", "share, 95 % interval", "largest ε̃", "CPU seconds an audit"]
    return {"Networks on Adult that never saw the members: ε̃ has to be 0": markdown(header, rows)} if rows else {}


def of_controls(found: Found) -> dict[str, str]:
    """ε̃ of models on images and texts that never saw the members, one by one."""
    rows = [
        [NAMES[kind], f"{audit['seed']}", target["name"], f"{target['epsilon']:.3f}"]
        for kind, audits in found.items()
        for audit in audits
        for target in audit["targets"]
    ]
    header = ["data", "seed", "target", "ε̃"]
    return {"Models on images and texts that never saw the members: ε̃ should be 0": markdown(header, rows)}


def of_cost(found: Found) -> dict[str, str]:
    """CPU seconds of an audit of all targets, and how good the generated records are."""
    rows: list[list[Any]] = [
        [
            NAMES[kind],
            str(audits[0].get("generator", "–")),
            f"{len(audits[0]['targets'])}",
            span([row["baseline_auc"] for row in audits]),
            span([row["auc_limit"] for row in audits]),
            span([row["cpu_seconds"] for row in audits], 0),
            f"{sum(row.get('strength', {}).get('rising', False) for row in audits)} of {len(audits)}",
        ]
        for kind, audits in found.items()
    ]
    header = [
        "data",
        "generator",
        "targets",
        "AUC of the best baseline",
        "limit for a target's AUC",
        "CPU seconds of the audit",
        "baseline still rising",
    ]
    return {"The audits: baseline and cost": markdown(header, rows)}
