"""`dosimeter panoramia`: a measurement from members and generated non-members."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dosimeter.cli._shared import Confidence, JsonFlag, Seed, print_json, show_estimates


def panoramia(
    file: Annotated[
        Path,
        typer.Argument(help="Arrays or columns baseline, attack (scores) and included (0/1): .npz, .csv, .parquet."),
    ],
    confidence: Confidence = 0.95,
    guesses: Annotated[
        str, typer.Option("--guesses", help="ranked, naive (the thesis, not valid), or a number fixed in advance.")
    ] = "ranked",
    real_nonmembers: Annotated[
        bool, typer.Option("--real-nonmembers", help="The non-members are real ones: no baseline, a true lower bound.")
    ] = False,
    seed: Seed = 0,
    json: JsonFlag = False,
) -> None:
    """Measure ε̃ from the scores of a baseline (sees the record) and an attack (sees the model's outputs too).

    Example: 4000 records, a baseline that sees a little and an attack that sees much more

        python -c "import numpy as np, dosimeter as dm; np.savez('game.npz',
            included=(coins := dm.fair_coins(4000, seed=1)),
            baseline=np.random.default_rng(0).normal(0.3 * coins),
            attack=np.random.default_rng(1).normal(1.5 * coins))"

        dosimeter panoramia game.npz

    measures ε̃ = 2.15 and shows the two bounds that it is the difference of.
    """
    from dosimeter.cli.one_run import guesses_option
    from dosimeter.columns import pick, read_columns
    from dosimeter.estimators.panoramia import panoramia as estimate
    from dosimeter.evidence import OneRun

    columns = read_columns(file)
    pick(columns, file, ("attack", "included") if real_nonmembers else ("baseline", "attack", "included"))
    baseline = None if real_nonmembers else OneRun(columns["baseline"], columns["included"])
    result = estimate(
        baseline=baseline,
        attack=OneRun(columns["attack"], columns["included"]),
        confidence=confidence,
        guesses=guesses_option(guesses),  # type: ignore[arg-type]  # a pair is refused by the estimator
        seed=seed,
    )
    if json:
        print_json(result.to_dict())
    else:
        show_estimates("PANORAMIA", [result])
