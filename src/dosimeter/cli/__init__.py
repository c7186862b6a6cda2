"""The command line: `dosimeter COMMAND`, one file for each; this one gathers them and answers errors."""

from __future__ import annotations

import io
import os
import sys
from typing import Annotated, Any, cast

import typer

from dosimeter import __version__
from dosimeter._validate import InputError, sentence
from dosimeter.cli._shared import err, out
from dosimeter.cli.account import account
from dosimeter.cli.audit import audit
from dosimeter.cli.audit_synthetic import audit_synthetic
from dosimeter.cli.audit_text import audit_text
from dosimeter.cli.board import board
from dosimeter.cli.canaries import canaries
from dosimeter.cli.choose import choose
from dosimeter.cli.claim import claim
from dosimeter.cli.demo import demo
from dosimeter.cli.estimate import estimate
from dosimeter.cli.gate import gate
from dosimeter.cli.one_run import one_run
from dosimeter.cli.panoramia import panoramia
from dosimeter.cli.plan import plan
from dosimeter.cli.report import report
from dosimeter.cli.run import run
from dosimeter.cli.selftest import selftest
from dosimeter.cli.sign import sign
from dosimeter.cli.store import store
from dosimeter.cli.verify import verify

app = typer.Typer(
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
COMMANDS = (
    *(demo, audit, audit_synthetic, audit_text, canaries, estimate, one_run, panoramia, account, choose, claim),
    *(run, report, board),
    *(verify, gate, sign, plan, selftest),
)
for command in COMMANDS:
    app.command(name=command.__name__.replace("_", "-"))(command)
app.add_typer(store, name="store")


def _version(wanted: bool) -> None:
    if wanted:
        out.print(f"dosimeter {__version__}", markup=False)
        raise typer.Exit


Version = Annotated[
    bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_version)
]


@app.callback()
def common(version: Version = False) -> None:
    """How much privacy has this machine-learning model really cost the people in its training data?

    Example: three models on bundled data, then your own scores

        dosimeter demo

        dosimeter audit scores.npz --html audit.html
    """


# Typer carries its own copy of click in newer versions; the common base of its usage errors is found either way.
_USAGE_ERROR = cast(
    type[typer.BadParameter], [base for base in typer.BadParameter.__mro__ if hasattr(base, "format_message")][-1]
)


def main() -> None:
    """Run a command; bad input is one line on standard error and exit code 2, never a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # ε on a terminal that cannot show it: \u03b5, which JSON reads too
            stream.reconfigure(errors="backslashreplace")
    try:
        code = _command()(sys.argv[1:] or ["--help"], prog_name="dosimeter", standalone_mode=False)
    except InputError as error:
        code = _refuse(str(error))
    except _USAGE_ERROR as error:
        code = _refuse(error.format_message())
    except ChildProcessError as error:  # workers were killed: the same command resumes from what is kept
        code = _refuse(str(error), 3)
    except (ImportError, OSError) as error:
        code = _refuse(str(error))
    except MemoryError as error:
        code = _refuse(f"memory ran out ({str(error) or 'no details'}); take fewer records, or free memory.")
    except (KeyboardInterrupt, typer.Abort):
        err.print("stopped")
        code = 130
    sys.exit(_flushed(code or 0))


def _command() -> Any:
    """The commands as click has them; help shows no type beside a flag, which takes no value."""
    command = typer.main.get_command(app)
    waiting: list[Any] = [command]
    while waiting:
        one = waiting.pop()
        waiting += getattr(one, "commands", {}).values()
        for option in one.get_params(typer.Context(one)):  # with --help, which click makes once and keeps
            if getattr(option, "is_flag", False):
                option.metavar = ""
    return command


def _flushed(code: int) -> int:
    """The exit code, once all output is out: a full disk is an error, a reader that went away is none."""
    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left would fail again at the exit
        if not isinstance(error, BrokenPipeError):
            return _refuse(f"standard output cannot be written ({error.strerror}); give it another place.")
    return code


def _refuse(message: str, code: int = 2) -> int:
    err.print("error: " + sentence(" ".join(message.split())), markup=False, soft_wrap=True)
    return code
