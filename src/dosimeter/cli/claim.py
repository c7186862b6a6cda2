"""`dosimeter claim`: an anytime-valid test of a claimed guarantee."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from dosimeter.cli._shared import Confidence, Delta, JsonFlag, print_json, show_estimates


def claim(
    file: Annotated[
        Path,
        typer.Argument(
            help="Arrays or columns scores and included (0/1): independent runs, the earliest first, or with --one-run "
            "the canaries of one run."
        ),
    ],
    epsilon: Annotated[float | None, typer.Option("--epsilon", help="The claimed ε of independent runs.")] = None,
    delta: Delta = 1e-5,
    confidence: Confidence = 0.95,
    mu: Annotated[float | None, typer.Option("--mu", help="Claim the whole curve of a μ-Gaussian mechanism.")] = None,
    noise_multiplier: Annotated[
        float | None, typer.Option("--noise-multiplier", help="Claim the whole curve of this DP-SGD run (accountant).")
    ] = None,
    sample_rate: Annotated[float, typer.Option("--sample-rate", help="Sampling rate of that run.")] = 1.0,
    steps: Annotated[int, typer.Option("--steps", help="Steps of that run.")] = 1,
    one_run: Annotated[
        bool, typer.Option("--one-run", help="The records are the canaries of one run, claimed to be this DP-SGD.")
    ] = False,
    independent: Annotated[
        bool,
        typer.Option(
            "--independent",
            help="With --one-run: given the coins, scores of different canaries are independent (Dirac canaries whose "
            "records' gradients were subtracted). The test is then sharper.",
        ),
    ] = False,
    json: JsonFlag = False,
) -> None:
    """Does the pipeline break its claim? Look as often as you like; exit code 1 when the claim is rejected.

    Each record is one training run: the attack's score and whether the challenge record was in, by a fair coin.
    With --one-run the records are the canaries of a single run, each in by a fair coin, and the claim is the whole
    trade-off curve of DP-SGD with --noise-multiplier, --sample-rate and --steps. It is then tested once.

    Example: a pipeline that claims ε = 1, the curve of a Gaussian mechanism of μ = 0.27, but really has μ = 1

        python -c "import numpy as np, dosimeter as dm; np.savez('runs.npz',
            included=(coins := dm.fair_coins(1000, seed=1)),
            scores=np.random.default_rng(0).normal(coins, 1))"

        dosimeter claim runs.npz --epsilon 1 --delta 1e-5 --mu 0.27

    rejects the claim at run 186, so its exit code is 1.
    """
    from dosimeter.accounting.claims import claim as test
    from dosimeter.evidence import OneRun

    options: dict[str, Any] = {"delta": delta, "confidence": confidence}
    if one_run:
        options |= {"mechanism": _mechanism(epsilon, mu, noise_multiplier, sample_rate, steps)}
    else:
        options |= {"epsilon": epsilon, "profile": _profile(mu, noise_multiplier, sample_rate, steps)}
    result = test(OneRun.from_file(file), independent=independent, **options)
    if json:
        print_json(result.to_dict())
    else:
        show_estimates("Test of the claim", [result])
    raise typer.Exit(1 if result.details["rejected"] else 0)


def _mechanism(
    epsilon: float | None, mu: float | None, noise_multiplier: float | None, sample_rate: float, steps: int
) -> Any:
    """What one run is claimed to be."""
    from dosimeter._validate import InputError
    from dosimeter.accounting import DpSgd

    given = next((name for name, value in (("--epsilon", epsilon), ("--mu", mu)) if value is not None), None)
    if given is not None:
        raise InputError(f"{given} is for independent runs; with --one-run pass --noise-multiplier and leave it out.")
    if noise_multiplier is None:
        raise InputError("--one-run needs the claimed mechanism; pass --noise-multiplier, --sample-rate and --steps.")
    return DpSgd(noise_multiplier, sample_rate, steps)


def _profile(mu: float | None, noise_multiplier: float | None, sample_rate: float, steps: int) -> Any:
    """The whole curve that independent runs are claimed to have, or None."""
    from dosimeter._validate import InputError
    from dosimeter.accounting import DpSgd, privacy_profile
    from dosimeter.estimators.claim import gaussian_profile

    if mu is not None and noise_multiplier is not None:
        raise InputError(f"--mu {mu} and --noise-multiplier {noise_multiplier} exclude each other; pass one of them.")
    if mu is not None:
        return gaussian_profile(mu)
    return None if noise_multiplier is None else privacy_profile(DpSgd(noise_multiplier, sample_rate, steps))
