"""`dosimeter selftest`: are the bounds honest on this machine?"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Annotated

import typer

from dosimeter.cli._shared import JsonFlag, Seed, err, out, print_json, table

if TYPE_CHECKING:
    from dosimeter.selftest import Row


def selftest(
    quick: Annotated[bool, typer.Option("--quick", help="Few trials, under half a minute.")] = False,
    trials: Annotated[int | None, typer.Option("--trials", help="Trials for each estimator and mechanism.")] = None,
    records: Annotated[int | None, typer.Option("--records", help="Records of each kind in a trial.")] = None,
    seed: Seed = 0,
    json: JsonFlag = False,
) -> None:
    """Rerun every estimator on mechanisms whose ε is known; exit code 1 if a valid bound breaks its level.

    Example: a check of every estimator that takes less than half a minute

        dosimeter selftest --quick

    prints a row for each estimator and mechanism: the truth, the mean bound, how often it was violated.
    """
    from rich.progress import track

    from dosimeter import selftest as study

    total = sum(len(estimators) * len(mechanisms) for estimators, mechanisms in study.GROUPS)
    trials = trials if trials is not None else 50 if quick else 500
    records = records if records is not None else 200 if quick else 1000
    work = study.rows(trials, records, seed)
    shown = track(
        work,
        "estimators × mechanisms",
        total=total,
        console=err,
        transient=True,
        disable=not err.is_terminal,
    )
    found = list(shown)
    failed = study.broken(found)
    if json:
        print_json({"rows": [row.to_dict() for row in found], "broken": [row.to_dict() for row in failed]})
    else:
        for title, group in groupby(found, lambda row: f"{row.mechanism}: the true ε is {row.truth:.4g}"):
            table(title, ["estimator", "mean bound", "above the truth", "claims to hold"], map(_cells, group))
        out.print(f"{trials} trials each; a bound that claims to hold may be above the truth in 5 % of them.")
        bounds = sum(row.is_bound for row in found)
        for row in failed:
            out.print(f"BROKEN: {row.estimator} on {row.mechanism}: {row.violations} of {row.trials}", style="bold red")
        out.print(f"{bounds - len(failed)} of {bounds} rows labelled as valid bounds keep their level.")
    raise typer.Exit(1 if failed else 0)


def _cells(row: Row) -> tuple[str, str, str, str]:
    rate = f"{100 * row.rate:.1f} % ± {100 * row.error:.1f}"
    return row.estimator, f"{row.mean:.3f}", rate, "yes" if row.is_bound else f"no: {row.validity}"
