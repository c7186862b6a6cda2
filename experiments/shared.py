"""What several experiments need: a data set or its substitute, progress messages, tables, pictures on the disk."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path
from typing import Any

from dosimeter import InputError
from dosimeter._validate import require
from dosimeter.datasets import Dataset, load

_UNSEEN = re.compile(r' (?:aria-[a-z]+|role|class|pointer-events)="[^"]*"')
_PLACE = re.compile(r' (?:d|transform)="[^"]*"')
_LONG = re.compile(r"(\.\d\d)\d+")


def first_available(names: list[str]) -> Dataset:
    """The first of these data sets that is there, without a download; the last one's error if none is."""
    for name in names[:-1]:
        try:
            return load(name, download=False)
        except InputError:
            continue
    return load(names[-1], download=False)


def announce(text: str) -> None:
    """Say with the time what comes next: a full run takes hours."""
    print(f"{time.strftime('%H:%M')} {text}", file=sys.stderr, flush=True)


def plain(text: str) -> str:
    """Text whose asterisks are asterisks (ε*) and whose bars do not end a cell."""
    return text.replace("*", r"\*").replace("|", r"\|")


def markdown(header: list[str], rows: list[list[str]]) -> str:
    """A table of plain texts: asterisks (ε*) and bars in them stay what they are."""
    lines = [[plain(cell) for cell in line] for line in (header, *rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in [lines[0], ["---"] * len(header), *lines[1:]])


def write_svg(folder: Path, name: str, spec: dict[str, Any]) -> str:
    """Draw a Vega-Lite specification into the folder, without what no eye can see; the name of the file."""
    vl = require("vl_convert", extra="report", caller="figures")
    folder.mkdir(parents=True, exist_ok=True)
    drawing = _UNSEEN.sub("", vl.vegalite_to_svg(spec))
    drawing = _PLACE.sub(lambda place: _LONG.sub(r"\1", place[0]), drawing)
    (folder / name).write_text(drawing, encoding="utf-8")
    return name
