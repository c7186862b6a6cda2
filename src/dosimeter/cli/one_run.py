"""`dosimeter one-run`: a lower bound from one training run with randomly included records."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dosimeter.cli._shared import Confidence, Delta, JsonFlag, print_json, show_estimates


def one_run(
    file: Annotated[Path, typer.Argument(help="Arrays or columns scores and included (0/1): .npz, .csv, .parquet.")],
    delta: Delta = 1e-5,
    confidence: Confidence = 0.95,
    guesses: Annotated[
        str, typer.Option("--guesses", help="learned, ranked, a number r fixed in advance, or K_IN,K_OUT.")
    ] = "learned",
    method: Annotated[str, typer.Option("--method", help="binomial, betting or f-dp (assumes Gaussian).")] = "binomial",
    term: Annotated[str, typer.Option("--term", help="δ-term at a fixed r: smaller, steinke or coupling.")] = "smaller",
    mask_seed: Annotated[
        int | None, typer.Option("--mask-seed", help="Seed of dosimeter.fair_coins; the mask is checked against it.")
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Bound ε from one run: an independent fair coin put each audit record into the training set or left it out.

    Example: 1000 records, included by the coins of seed 1, with scores from a Gaussian mechanism of μ = 1

        python -c "import numpy as np, dosimeter as dm; np.savez('canaries.npz',
            included=(coins := dm.fair_coins(1000, seed=1)),
            scores=np.random.default_rng(0).normal(coins, 1))"

        dosimeter one-run canaries.npz --delta 1e-5 --mask-seed 1

    proves ε ≥ 1.466 for adding or removing one record with 95 % confidence; the truth is 4.377.
    """
    from dosimeter.estimators.one_run import one_run as estimate
    from dosimeter.evidence import OneRun

    evidence = OneRun.from_file(file, mask_seed=mask_seed)
    result = estimate(
        evidence,
        delta=delta,
        confidence=confidence,
        guesses=guesses_option(guesses),
        method=method,
        term=term,
    )
    if json:
        print_json(result.to_dict())
    else:
        show_estimates(f"One run, {evidence.total} audit records", [result])


def guesses_option(text: str) -> str | int | tuple[int, int]:
    """`--guesses` as the library takes it: a name, one number, or a pair."""
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        return text
    if len(numbers) > 2:
        return text
    return numbers[0] if len(numbers) == 1 else (numbers[0], numbers[1])
