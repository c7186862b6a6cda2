"""Audits that a command of their own computed: rows of results.json, each with a key, in the form of `summary.kept`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..exhibits import SIZES, NotRunError

FILE = Path(__file__).resolve().parent / "results.json"


def rows(key: str, size: str) -> list[dict[str, Any]]:
    """The rows of a key, of this size or a larger one; NotRunError where there is none."""
    kept = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else []
    known = [row for row in kept if row["key"] == key and SIZES.index(row.get("size", "quick")) >= SIZES.index(size)]
    if not known:
        raise NotRunError("not yet run at this size")
    return known
