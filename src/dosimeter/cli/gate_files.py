"""`dosimeter-gate-files`: the gate as a pre-commit hook, which passes its options and then several files."""

from __future__ import annotations

import sys
from pathlib import Path


def main() -> None:
    """Run `dosimeter gate` for each file; the exit code is the largest, and 0 if there are no files."""
    from dosimeter.cli import main as dosimeter

    options, files = split(sys.argv[1:])
    worst = 0
    for file in files:
        print(f"{file}:", flush=True)
        sys.argv = ["dosimeter", "gate", file, *options]
        try:
            dosimeter()
        except SystemExit as stopped:
            worst = max(worst, int(stopped.code or 0))
    sys.exit(worst)


def split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Tell the options from the files, which stand last and end in .json."""
    first = len(arguments)
    while first and Path(arguments[first - 1]).suffix == ".json":
        first -= 1
    return arguments[:first], arguments[first:]
