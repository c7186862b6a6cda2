"""`dosimeter report`: a page, pictures or Markdown from a stored audit."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dosimeter.cli._shared import err


def report(
    file: Annotated[Path, typer.Argument(help="The audit: JSON written by `dosimeter audit --json` or Audit.to_json.")],
    html: Annotated[Path | None, typer.Option("--html", help="Write the page here (default: audit.html).")] = None,
    pdf: Annotated[
        Path | None, typer.Option("--pdf", help="Print the page to this file; needs Chromium or Chrome.")
    ] = None,
    png: Annotated[Path | None, typer.Option("--png", help="Write the charts as PNG files into this folder.")] = None,
    markdown: Annotated[Path | None, typer.Option("--markdown", help="Write Markdown for a model card here.")] = None,
) -> None:
    """Draw the page, or the charts, of an audit that was stored as JSON, or write it as Markdown.

    Example: a page from a stored audit

        dosimeter audit scores.npz --json > audit.json

        dosimeter report audit.json --html audit.html
    """
    from dosimeter._files import write_text
    from dosimeter._validate import InputError, show
    from dosimeter.audits.page import write_html, write_pdf, write_png
    from dosimeter.audits.result import Audit
    from dosimeter.reading import read_text

    audit = Audit.from_json(read_text(file))
    if html is None and png is None and markdown is None and pdf is None:
        html = Path("audit.html")
    try:
        if markdown is not None:
            write_text(markdown, audit.to_markdown())
            err.print(f"written: {markdown}", markup=False)
        if html is not None:
            write_html(audit, html)
            err.print(f"written: {html}", markup=False)
        if pdf is not None:
            write_pdf(audit, pdf)
            err.print(f"written: {pdf}", markup=False)
        if png is not None:
            write_png(audit, png)
            err.print(f"written: charts in {png}", markup=False)
    except InputError:
        raise
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise InputError(
            f"{file} holds details that cannot be drawn ({show(error)}); write it again with Audit.to_json."
        ) from None
