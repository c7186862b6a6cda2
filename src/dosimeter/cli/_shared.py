"""What every command shares: where output goes, how numbers and errors look, the common options."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from dosimeter.estimate import Estimate, number, percent, plain

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)

JsonFlag = Annotated[bool, typer.Option("--json", help="Print the result as JSON on standard output, nothing else.")]
Delta = Annotated[float, typer.Option("--delta", help="δ of the guarantee that is tested, in [0, 1).")]
Confidence = Annotated[float, typer.Option("--confidence", help="Confidence level, in (0, 1).")]
Seed = Annotated[int, typer.Option("--seed", help="Seed of every random choice: the same seed gives the same number.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Show no progress and no notes; warnings and errors stay.")]


def _log(level: int) -> int:
    """Write what the logger "dosimeter" is told to standard error: -v what is done, -vv each task too."""
    import logging

    from dosimeter._progress import logger

    for handler in [one for one in logger.handlers if type(one) is logging.StreamHandler]:
        logger.removeHandler(handler)
    if level:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(asctime)s %(name)s: %(message)s", "%H:%M:%S"))
        logger.addHandler(handler)
    logger.setLevel({0: logging.NOTSET, 1: logging.INFO}.get(level, logging.DEBUG))
    return level


Verbose = Annotated[
    int,
    typer.Option(
        "--verbose", "-v", count=True, callback=_log, metavar="", help="Log what is done; -vv logs each task too."
    ),
]


def note(message: str, *, quiet: bool = False) -> None:
    """Tell people on standard error what happens, unless they asked for silence."""
    if not quiet:
        err.print(message, markup=False, soft_wrap=True)


def print_json(payload: Any) -> None:
    """Write strict JSON to standard output."""
    sys.stdout.write(json.dumps(plain(payload), ensure_ascii=False, allow_nan=False) + "\n")


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table for people on standard output; the first column is left-aligned, the rest as they come."""
    grid = Table(title=title, title_justify="left", header_style="bold")
    for place, name in enumerate(columns):
        grid.add_column(name, overflow="fold", no_wrap=place == 0)
    for row in rows:
        grid.add_row(*[str(cell) for cell in row])
    out.print(grid)


def interval(estimate: Estimate) -> str:
    """An estimate's interval as "[0.52, 1.27]"; an open upper end as "≥ 0.52"."""
    if estimate.high == float("inf"):
        return f"≥ {number(estimate.low)}"
    return f"[{number(estimate.low)}, {number(estimate.high)}]"


def whose(estimate: Estimate, unit: str = "record") -> str:
    """Whose ε an estimate is about, e.g. "replace one record"; a dash where it is not known.

    `unit` is that of the audit, for estimates that do not say it themselves.
    """
    if estimate.neighbours is None:
        return "–"
    return f"{estimate.neighbours} one {estimate.details.get('unit', unit)}"


def show_estimates(title: str, estimates: Sequence[Estimate]) -> None:
    """Print a row for each estimate with its validity, then the claims and the warnings in full."""
    table(
        title,
        ["method", "ε", "interval", "confidence", "whose ε", "validity"],
        [
            (e.method, number(e.epsilon), interval(e), percent(e.confidence), whose(e), str(e.validity))
            for e in estimates
        ],
    )
    for estimate in estimates:
        out.print(f"[bold]{estimate.method}[/]: {estimate.claim}", markup=True)
        for warning in estimate.warnings:
            err.print(f"warning ({estimate.method}): {warning}", markup=False)
