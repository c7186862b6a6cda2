"""What is kept of an audit, plain enough for JSON, and what many audits say together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dosimeter import Audit

Row = Mapping[str, Any]
CURVE = ("recall", "precision", "bound")


def kept(audit: Audit, seed: int, trained: Mapping[str, Mapping[str, Any]], *, cpu_seconds: float) -> dict[str, Any]:
    """One audit. `trained` says of each target by name: epochs, dp, train and test; the least over-fitted first."""
    found = {target["name"]: target for target in audit.details["targets"]}
    real = audit.details["real"]
    bounds = {} if real is None else {row["name"]: row for row in real["targets"]}
    baseline, strength = audit.details["baseline"], audit.details["strength"]
    targets = []
    for name, told in trained.items():
        target = found[name]
        targets.append(
            {
                "name": name,
                **told,
                "epsilon": target["epsilon"],
                "stands_out": target["stands_out"],
                "c_eps_lb": target["c_plus_epsilon_lb"],
                "auc": target["auc"],
                "one_run": target["one_run"],
                "real": bounds[name]["epsilon"] if bounds else None,
                "real_one_run": bounds[name]["one_run"] if bounds else None,
                "curve": _curve(target["curve"]),
            }
        )
    first = next(iter(found.values()))
    longest = [target for target in targets if target["dp"] is None][-1]
    return {
        "seed": seed,
        "members": audit.metadata["members"],
        "generator": audit.metadata["generator"],
        "c_lb": first["c_lb"],
        "baseline_auc": baseline["auc"],
        "auc_limit": first["verdict"]["auc_limit"],
        "cpu_seconds": cpu_seconds,
        "real": longest["real"],
        "shift": audit.guard.shift if audit.guard.checked else None,
        "targets": targets,
        "baseline_curve": _curve(baseline["curve"]),
        "strength": {
            "size": [{"records": row["records"], "c_lb": row["c_lb"]} for row in strength["size"]],
            "helper": [{"helper": row["helper"], "c_lb": row["c_lb"]} for row in strength["helper"]],
            "rising": strength["rising"],
        },
    }


def _curve(curve: Mapping[str, Any]) -> dict[str, Any]:
    return {**{name: np.round(curve[name], 5).tolist() for name in CURVE}, "best": int(curve["best"])}


def sweep(row: Row) -> list[Row]:
    """The targets without DP, the shortest training first."""
    return [target for target in row["targets"] if target["dp"] is None]


def compared(row: Row, few: int | None = None) -> tuple[Row, Row]:
    """The target after so many epochs, or the shortest training, and the longest one, both without DP."""
    plain = sweep(row)
    return next((target for target in plain if target["epochs"] == few), plain[0]), plain[-1]


def rises(rows: Sequence[Row], few: int | None = None, column: str = "epsilon") -> float:
    """The share of seeds in which ε̃, or another column, is larger after the longest training than after few epochs."""
    pairs = [compared(row, few) for row in rows]
    return float(np.mean([last[column] > first[column] for first, last in pairs]))


def below_real(rows: Sequence[Row]) -> float:
    """The share of targets whose ε̃ is at most the best bound with real non-members on the same members."""
    targets = [target for row in rows for target in row["targets"]]
    return float(np.mean([t["epsilon"] <= max(t["real"], t["real_one_run"]) for t in targets]))


def below_guarantee(rows: Sequence[Row]) -> float:
    """The share of targets trained with DP-SGD whose ε̃ is at most the ε that they guarantee."""
    targets = [target for row in rows for target in row["targets"] if target["dp"] is not None]
    return float(np.mean([target["epsilon"] <= target["dp"] for target in targets]))


def private_below(rows: Sequence[Row]) -> float:
    """The share of seeds in which no target with DP has a larger ε̃ than the longest training without."""
    return float(
        np.mean([max(t["epsilon"] for t in row["targets"] if t["dp"]) <= sweep(row)[-1]["epsilon"] for row in rows])
    )


def by_target(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The targets of all seeds by name."""
    return {target["name"]: [row["targets"][at] for row in rows] for at, target in enumerate(rows[0]["targets"])}
