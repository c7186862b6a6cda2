"""The rows that an audit names, as those of the data set that its records were drawn from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeAlias, TypeVar

import numpy as np

from dosimeter._validate import IntArray
from dosimeter.audits.result import Audit
from dosimeter.pipelines.subjects import Places

COORDINATES = ("dirac", "dirac-gradients-only")  # canaries whose points are coordinates of a gradient, not records

Value = TypeVar("Value")
Changes: TypeAlias = Mapping[str, Callable[[Any], Any]]


def in_own_order(audit: Audit, places: Places, canaries: str | None = None) -> Audit:
    """Return the audit with every row number as the data set has it; crafted records stand after its last row."""
    if np.array_equal(places.rows, np.arange(places.total)):
        return audit
    rows, held_out = _Rows(places.rows, places.total), _Rows(places.held_out, places.total)

    def records(entries: Iterable[Any]) -> tuple[Any, ...]:
        return tuple(_changed(entry, {"record": rows}) for entry in entries)

    def pairs(entries: Iterable[Any]) -> tuple[tuple[int, int], ...]:
        return tuple((rows(first), held_out(second)) for first, second in entries)

    def points(positions: Iterable[int]) -> tuple[int, ...]:
        return tuple(rows(position) for position in positions)

    def neighbour(pair: Any) -> Any:
        return _changed(pair, {"removed": rows, "added": held_out})

    evidence = _changed(audit.guard.evidence, {"duplicate_pairs": pairs, "near_duplicate_pairs": pairs})
    metadata: Changes = {"neighbour": neighbour} | ({} if canaries in COORDINATES else {"points": points})
    details: Changes = {"neighbour": neighbour, "points": records, "candidates": records}
    return replace(
        audit,
        exposed=records(audit.exposed),
        guard=replace(audit.guard, evidence=evidence),
        metadata=_changed(audit.metadata, metadata),
        details=_changed(audit.details, details),
    )


class _Rows:
    """From positions to rows; what stands after the records stands after the data set."""

    def __init__(self, rows: IntArray, total: int) -> None:
        self.rows, self.total = rows, total

    def __call__(self, position: int) -> int:
        last = self.rows.size
        return int(self.rows[position]) if position < last else self.total + position - last


def _changed(part: Value, changes: Changes) -> Value:
    """A part of an audit with the fields that it has among these changed; None and text stay."""
    if is_dataclass(part) and not isinstance(part, type):
        names = {field.name for field in fields(part)}
        given = {name: getattr(part, name) for name in names & changes.keys()}
    elif isinstance(part, Mapping):
        given = {name: part[name] for name in part.keys() & changes.keys()}
    else:
        return part
    new = {name: changes[name](value) for name, value in given.items() if not isinstance(value, str | None)}
    if isinstance(part, Mapping) and not is_dataclass(part):
        return {**part, **new}  # type: ignore[return-value]
    return replace(part, **new)  # type: ignore[type-var]
