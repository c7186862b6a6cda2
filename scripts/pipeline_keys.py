"""Write the tables of docs/pipelines.md from the models: `python scripts/pipeline_keys.py`."""

from __future__ import annotations

import sys
from itertools import groupby
from pathlib import Path

from dosimeter.pipelines.config import TAKES
from dosimeter.pipelines.keys import Key, keys

PAGE = Path(__file__).parent.parent / "docs" / "pipelines.md"
START, END = "<!-- keys -->", "<!-- /keys -->"


def tables() -> str:
    """A table for each section."""
    parts = []
    for section, found in groupby(keys(), key=lambda key: key.section):
        listed = list(found)
        parts.append(f"### {f'[{section}]' if section else 'Before the first section'}")
        rows = ["| key | type | default | example | meaning |", "|---|---|---|---|---|", *map(row, listed)]
        parts.append("\n".join(rows))
    return "\n\n".join(parts)


def row(key: Key) -> str:
    """One setting as a row."""
    only = "" if set(key.audits) == set(TAKES) else f" (only for {', '.join(key.audits)})"
    cells = [f"`{key.name}`", key.type, key.default, f"`{key.example}`", key.meaning + only]
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def page(text: str) -> str:
    """The page with its tables made again."""
    before, after = text.split(START)[0], text.split(END)[1]
    return f"{before}{START}\n\n{tables()}\n\n{END}{after}"


if __name__ == "__main__":
    made = page(PAGE.read_text(encoding="utf-8"))
    if "--check" in sys.argv:
        sys.exit(made != PAGE.read_text(encoding="utf-8"))
    PAGE.write_text(made, encoding="utf-8")
