"""`dosimeter selftest`: are the bounds honest on this machine?"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Annotated

import typer

from dosimeter.cli._shared import JsonFlag, Quiet, Seed, Verbose, err, out, print_json, table

if TYPE_CHECKING:
    from dosimeter.selftest import CoverageRow


def selftest(
    quick: Annotated[bool, typer.Option("--quick", help="Few trials, about half a minute.")] = False,
    trials: Annotated[
        int | None, typer.Option("--trials", help="Trials for each call and mechanism; audits have a third.")
    ] = None,
    records: Annotated[int | None, typer.Option("--records", help="Records of each kind in a trial.")] = None,
    seed: Seed = 0,
    quiet: Quiet = False,
    verbose: Verbose = 0,
    json: JsonFlag = False,
) -> None:
    """Rerun every estimator and audit where ε is known; exit code 1 if a valid bound breaks its level.

    Example: a check of about half a minute

        dosimeter selftest --quick

    prints a row for each call and mechanism: the truth, the mean bound, how often it was violated in how many trials.
    Without --quick there are more trials and records, and the Opacus hook too if it can be used; that takes minutes.
    """
    from rich.progress import track

    from dosimeter import selftest as study

    long = trials is None and not quick
    trials = trials if trials is not None else 6 if quick else 300
    records = records if records is not None else 200 if quick else 500
    work = study.rows(trials, records, seed, long=long)
    shown = track(
        work,
        "calls × mechanisms",
        total=study.count_rows(long),
        console=err,
        transient=True,
        disable=quiet or not err.is_terminal,
    )
    found = list(shown)
    failed = study.broken(found)
    if json:
        print_json({"rows": [row.to_dict() for row in found], "broken": [row.to_dict() for row in failed]})
    else:
        for title, group in groupby(found, lambda row: f"{row.group}: {row.mechanism}"):
            table(title, ["call", "truth", "mean bound", "above the truth", "claims to hold"], map(_cells, group))
        out.print("A bound that claims to hold may be above the truth in 5 % of the trials.")
        bounds = sum(row.is_bound for row in found)
        for row in failed:
            out.print(f"BROKEN: {row.estimator} on {row.mechanism}: {row.violations} of {row.trials}", style="bold red")
        out.print(f"{bounds - len(failed)} of {bounds} rows labelled as valid bounds keep their level.")
    raise typer.Exit(1 if failed else 0)


def _cells(row: CoverageRow) -> tuple[str, str, str, str, str]:
    seen = f"{row.violations} of {row.trials}"
    label = "yes" if row.is_bound else f"no: {row.validity}"
    return row.estimator, f"{row.truth:.4g}", f"{row.mean:.3f}", seen, label
