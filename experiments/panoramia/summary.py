"""What is kept of an audit, plain enough for JSON, and what many audits say together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from dosimeter import Audit

Row = Mapping[str, Any]
CURVE = ("recall", "precision", "bound", "guesses")


class Remembered:
    """A generator that remembers what it learnt from, its fitted self and what it made: figures show them."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.members: Any = None
        self.made: Any = None
        self.name, self.minimum = inner.name, inner.minimum

    def fit(self, members: Any, *, seed: int) -> Remembered:
        """Fit the generator within."""
        self.members, self.inner = members, self.inner.fit(members, seed=seed)
        return self

    def sample(self, count: int, *, seed: int) -> Any:
        """Sample from it."""
        self.made = self.inner.sample(count, seed=seed)
        return self.made


def quantiles(losses: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, list[float]]]:
    """41 quantiles of the losses, by model and by kind of record."""
    levels = np.linspace(0.0, 1.0, 41)
    return {
        model: {side: np.round(np.quantile(values, levels), 4).tolist() for side, values in told.items()}
        for model, told in losses.items()
    }


def kept(audit: Audit, seed: int, trained: Mapping[str, Mapping[str, Any]], *, cpu_seconds: float) -> dict[str, Any]:
    """One audit. `trained` says of each target by name: epochs, dp, train and test; the least over-fitted first.

    `thesis` holds what its own protocol gives, if the audit was asked for it: c_lb, {c+ε}_lb, ε̃ and O(1).
    """
    found = {target["name"]: target for target in audit.details["targets"]}
    real, thesis, null = audit.details["real"], audit.details["thesis"], audit.details["null"]
    bounds = {} if real is None else {row["name"]: row for row in real["targets"]}
    theirs = {} if thesis is None else {row["name"]: row for row in thesis["targets"]}
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
                "first_part": target["first_part"],
                "one_run": target["one_run"],
                "real": bounds[name]["epsilon"] if bounds else None,
                "real_one_run": bounds[name]["one_run"] if bounds else None,
                "thesis": _theirs(theirs[name]) if theirs else None,
            }
        )
    first = next(iter(found.values()))
    return {
        "seed": seed,
        "members": audit.metadata["members"],
        "generator": audit.metadata["generator"],
        "c_lb": first["c_lb"],
        "baseline_auc": baseline["auc"],
        "auc_limit": None if null is None else first["verdict"]["auc_limit"],
        "null": None if null is None else null.to_dict(),
        "cpu_seconds": cpu_seconds,
        "real": targets[-1]["real"],
        "shift": audit.guard.shift if audit.guard.checked else None,
        "targets": targets,
        "thesis": None if thesis is None else {"c_lb": thesis["c_lb"], "curve": _curve(thesis["curve"])},
        "strength": {
            "size": [{"records": row["records"], "c_lb": row["c_lb"]} for row in strength["size"]],
            "helper": {row["helper"]: row["c_lb"] for row in strength["helper"]},
            "rising": strength["rising"],
        },
    }


def _theirs(target: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "epsilon": target["epsilon"],
        "c_eps_lb": target["c_plus_epsilon_lb"],
        "one_run": target["one_run"],
        "curve": _curve(target["curve"]),
    }


def _curve(curve: Mapping[str, Any]) -> dict[str, Any]:
    return {**{name: np.round(curve[name], 5).tolist() for name in CURVE}, "best": int(curve["best"])}


def mean(rows: Sequence[Row], target: int, *path: str) -> float:
    """The mean over seeds of a number of one target, named by its place and the keys that lead to it."""
    values = []
    for row in rows:
        found: Any = row["targets"][target]
        for key in path:
            found = found[key]
        values.append(found)
    return float(np.mean(values))


def rises(rows: Sequence[Row], *path: str) -> bool:
    """Whether the mean over seeds of a number rises with every longer training without DP."""
    plain = [at for at, target in enumerate(rows[0]["targets"]) if target["dp"] is None]
    means = [mean(rows, at, *path) for at in plain]
    return all(before < after for before, after in pairwise(means))


def at_recall(curve: Row, recall: float) -> float:
    """The precision of a curve at a recall."""
    return float(np.interp(recall, curve["recall"], curve["precision"]))


def right_guesses(curve: Row) -> list[float]:
    """How many guesses are right, for every number of guesses."""
    return [made * share for made, share in zip(curve["guesses"], curve["precision"], strict=True)]


def by_target(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The targets of all seeds by name."""
    return {target["name"]: [row["targets"][at] for row in rows] for at, target in enumerate(rows[0]["targets"])}
