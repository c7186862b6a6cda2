"""`dosimeter selftest`: are the bounds honest on this machine?"""

from __future__ import annotations

from typing import Annotated

import typer

from dosimeter.cli._shared import JsonFlag, Seed, err, out, print_json, table


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
    found = list(track(work, total=total, description="estimators × mechanisms", console=err, transient=True))
    failed = study.broken(found)
    if json:
        print_json({"rows": [row.to_dict() for row in found], "broken": [row.to_dict() for row in failed]})
    else:
        table(
            f"How often is the 95 % bound above the truth? ({found[0].trials} trials)",
            ["estimator", "mechanism", "true ε", "mean bound", "violations", "nominal", "validity"],
            [
                (
                    row.estimator,
                    row.mechanism,
                    f"{row.truth:.4g}",
                    f"{row.mean:.3f}",
                    f"{100 * row.rate:.1f} % ± {100 * row.error:.1f}",
                    f"{100 * row.nominal:.3g} %",
                    row.validity,
                )
                for row in found
            ],
        )
        bounds = sum(row.is_bound for row in found)
        for row in failed:
            out.print(f"BROKEN: {row.estimator} on {row.mechanism}: {row.violations} of {row.trials}", style="bold red")
        out.print(f"{bounds - len(failed)} of {bounds} rows labelled as valid bounds keep their level.")
    raise typer.Exit(1 if failed else 0)
