"""The rows that an audit names, as those of the data set that its records were drawn from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from dosimeter._validate import IntArray
from dosimeter.audits.one_run.run import DIRAC, GRADIENTS_ONLY
from dosimeter.audits.result import Audit
from dosimeter.pipelines.subjects import Places


def in_own_order(audit: Audit, places: Places, canaries: str | None = None) -> Audit:
    """The audit with every row number as the data set has it; crafted records stand after its last row."""
    if np.array_equal(places.rows, np.arange(places.total)):
        return audit
    rows, metadata, details = _Rows(places.rows, places.total), dict(audit.metadata), dict(audit.details)
    held_out = _Rows(places.held_out, places.total)
    if "points" in metadata and canaries not in (DIRAC, GRADIENTS_ONLY):  # those are coordinates of a gradient
        metadata["points"] = [rows(point) for point in metadata["points"]]
    for name in ("points", "candidates"):
        if name in details:
            details[name] = _each(details[name], "record", rows)
    for part in (metadata, details):
        if isinstance(part.get("neighbour"), Mapping):
            part["neighbour"] = {
                **part["neighbour"],
                "removed": rows(part["neighbour"]["removed"]),
                "added": held_out(part["neighbour"]["added"]),
            }
    evidence = dict(audit.guard.evidence)
    for name in ("duplicate_pairs", "near_duplicate_pairs"):
        if evidence.get(name):
            evidence[name] = [[rows(first), held_out(second)] for first, second in evidence[name]]
    return replace(
        audit,
        exposed=tuple(_each(audit.exposed, "record", rows)),
        guard=replace(audit.guard, evidence=evidence),
        metadata=metadata,
        details=details,
    )


class _Rows:
    """From positions to rows; what stands after the records stands after the data set."""

    def __init__(self, rows: IntArray, total: int) -> None:
        self.rows, self.total = rows, total

    def __call__(self, position: int | None) -> int | None:
        if position is None:
            return None
        last = self.rows.size
        return int(self.rows[position]) if position < last else self.total + position - last


def _each(entries: Iterable[Mapping[str, Any]], name: str, rows: _Rows) -> list[dict[str, Any]]:
    return [{**entry, name: rows(entry[name])} for entry in entries]
