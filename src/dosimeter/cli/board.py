"""`dosimeter board`: one page for a folder of audits."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dosimeter.cli._shared import Quiet, err, out
from dosimeter.cli.gate import MaxDelta, MaxEpsilon, MinConfidence, Neighbours


def board(
    folder: Annotated[Path, typer.Argument(help="A folder with the JSON files of audits; folders in it are read too.")],
    html: Annotated[
        Path | None, typer.Option("--html", help="Write the page here (default: board.html in the folder).")
    ] = None,
    max_epsilon: MaxEpsilon = None,
    max_delta: MaxDelta = 1e-3,
    min_confidence: MinConfidence = None,
    require_neighbours: Neighbours = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Compute every bound again, as a gate does; seconds for each audit.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Put all audits of a folder on one page: both ends of ε over time, by model, and which keep the limits.

    Files that are not valid audits are listed. Links are not followed. Exit code 0: the page was written.

    Example: three models of the last releases, held to ε = 2

        dosimeter board audits/ --max-epsilon 2
    """
    from dosimeter.audits.board import board as read
    from dosimeter.cli.gate import in_options

    with in_options():
        found = read(
            folder,
            max_epsilon=max_epsilon,
            max_delta=max_delta,
            min_confidence=min_confidence,
            require_neighbours=require_neighbours,
            recompute=verify,
            progress=not quiet,
        )
    page = found.to_html(html)
    for file in found.damaged:
        err.print(f"warning: {file.path} was not read: {file.reason}", markup=False, soft_wrap=True)
    statuses = [str(entry.status) for entry in found.entries]
    counts = ", ".join(f"{statuses.count(status)} {status}" for status in dict.fromkeys(statuses))
    out.print(f"{len(found.entries)} audits ({counts or 'none'}), {len(found.damaged)} files not read", markup=False)
    out.print(f"Written: {page}", markup=False, soft_wrap=True)
