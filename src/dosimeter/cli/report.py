"""`dosimeter report`: a page or pictures from a stored audit."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dosimeter.cli._shared import err


def report(
    file: Annotated[Path, typer.Argument(help="The audit: JSON written by `dosimeter audit --json` or Audit.to_json.")],
    html: Annotated[Path | None, typer.Option("--html", help="Write the page here (default: audit.html).")] = None,
    png: Annotated[Path | None, typer.Option("--png", help="Write the charts as PNG files into this folder.")] = None,
) -> None:
    """Draw the page, or the charts, of an audit that was stored as JSON.

    Example: a page from a stored audit

        dosimeter audit scores.npz --json > audit.json

        dosimeter report audit.json --html audit.html
    """
    from dosimeter._validate import InputError, show
    from dosimeter.audits.page import write_html, write_png
    from dosimeter.audits.result import Audit
    from dosimeter.reading import read_text

    audit = Audit.from_json(read_text(file))
    if html is None and png is None:
        html = Path("audit.html")
    try:
        if html is not None:
            write_html(audit, html)
            err.print(f"written: {html}", markup=False)
        if png is not None:
            write_png(audit, png)
            err.print(f"written: charts in {png}", markup=False)
    except InputError:
        raise
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise InputError(
            f"{file} holds details that cannot be drawn ({show(error)}); write it again with Audit.to_json."
        ) from None
