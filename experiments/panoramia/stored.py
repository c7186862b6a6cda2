"""Audits that a command of their own computed: rows of results.json, each with a key, in the form of `summary.kept`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..exhibits import SIZES, NotRunError

FILE = Path(__file__).resolve().parent / "results.json"
SAME = ("key", "size", "seed", "data", "side", "dp")  # what tells one row from another


def kept() -> list[dict[str, Any]]:
    """All rows."""
    return json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else []


def rows(key: str, size: str) -> list[dict[str, Any]]:
    """The rows of a key, of this size or else of the next larger one that there is; NotRunError where there is none."""
    for other in SIZES[SIZES.index(size) :]:
        known = [row for row in kept() if row["key"] == key and row.get("size", "quick") == other]
        if known:
            return known
    raise NotRunError("not yet run at this size")


def keep(new: Sequence[Mapping[str, Any]]) -> None:
    """Write rows, in the place of those that are of the same; the file is whole or as it was."""
    mine = {_of(row) for row in new}
    found = [row for row in kept() if _of(row) not in mine] + [dict(row) for row in new]
    temporary = FILE.with_suffix(".tmp")
    lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in found)
    temporary.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    temporary.replace(FILE)


def _of(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row.get(name) for name in SAME)
