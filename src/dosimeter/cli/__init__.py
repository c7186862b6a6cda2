"""The command line: `dosimeter COMMAND`. One file a command; this one gathers them and answers errors."""

from __future__ import annotations

import sys

import click
import typer

from dosimeter._validate import InputError
from dosimeter.cli._shared import err

app = typer.Typer(
    help="How much privacy has this machine-learning model really cost the people in its training data?",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Run a command; bad input is one line on standard error and exit code 2, never a traceback."""
    try:
        code = app(standalone_mode=False)
    except InputError as error:
        code = _refuse(str(error))
    except click.ClickException as error:
        code = _refuse(error.format_message())
    except (ImportError, FileNotFoundError, PermissionError, IsADirectoryError) as error:
        code = _refuse(str(error))
    except (KeyboardInterrupt, click.exceptions.Abort):
        err.print("stopped")
        code = 130
    sys.exit(code or 0)


def _refuse(message: str) -> int:
    err.print("error: " + " ".join(message.split()), markup=False, soft_wrap=True)
    return 2
