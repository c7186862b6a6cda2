"""`dosimeter claim`: an anytime-valid test of a claimed guarantee."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from dosimeter.cli._shared import Confidence, Delta, JsonFlag, print_json, show_estimates


def claim(
    file: Annotated[
        Path,
        typer.Argument(help="Independent runs, the earliest first: arrays or columns scores and included (0/1)."),
    ],
    epsilon: Annotated[float, typer.Option("--epsilon", help="The claimed ε.")],
    delta: Delta = 1e-5,
    confidence: Confidence = 0.95,
    mu: Annotated[float | None, typer.Option("--mu", help="Claim the whole curve of a μ-Gaussian mechanism.")] = None,
    noise_multiplier: Annotated[
        float | None, typer.Option("--noise-multiplier", help="Claim the whole curve of this DP-SGD run (accountant).")
    ] = None,
    sample_rate: Annotated[float, typer.Option("--sample-rate", help="Sampling rate of that run.")] = 1.0,
    steps: Annotated[int, typer.Option("--steps", help="Steps of that run.")] = 1,
    json: JsonFlag = False,
) -> None:
    """Does the pipeline break its claim? Look as often as you like; exit code 1 when the claim is rejected.

    Each record is one training run: the attack's score and whether the challenge record was in, by a fair coin.

    Example: a pipeline that claims ε = 1, the curve of a Gaussian mechanism of μ = 0.27, but really has μ = 1

        python -c "import numpy as np, dosimeter as dm; np.savez('runs.npz',
            included=(coins := dm.fair_coins(1000, seed=1)),
            scores=np.random.default_rng(0).normal(coins, 1))"

        dosimeter claim runs.npz --epsilon 1 --delta 1e-5 --mu 0.27

    rejects the claim at run 186, so its exit code is 1.
    """
    from dosimeter._validate import InputError
    from dosimeter.estimators.claim import claim as test
    from dosimeter.estimators.claim import gaussian_profile
    from dosimeter.evidence import OneRun

    profile: Any = None
    if mu is not None and noise_multiplier is not None:
        raise InputError(f"--mu {mu} and --noise-multiplier {noise_multiplier} exclude each other; pass one of them.")
    if mu is not None:
        profile = gaussian_profile(mu)
    elif noise_multiplier is not None:
        from dosimeter.accounting import DpSgd, privacy_profile

        profile = privacy_profile(DpSgd(noise_multiplier, sample_rate, steps))
    result = test(OneRun.from_file(file), epsilon=epsilon, delta=delta, confidence=confidence, profile=profile)
    if json:
        print_json(result.to_dict())
    else:
        show_estimates("Test of the claim", [result])
    raise typer.Exit(1 if result.details["rejected"] else 0)
