"""`dosimeter account`: the same run, every accountant."""

from __future__ import annotations

from typing import Annotated

import typer

from dosimeter.cli._shared import JsonFlag, err, out, print_json, table

NoiseMultiplier = Annotated[
    float, typer.Option("--noise-multiplier", "-z", help="Standard deviation of the noise over the clipping norm.")
]
SampleRate = Annotated[float, typer.Option("--sample-rate", "-q", help="Batch size over number of records, in (0, 1].")]
Steps = Annotated[int, typer.Option("--steps", help="Number of noisy steps.")]
SamplingOption = Annotated[
    str, typer.Option("--sampling", help="How batches are drawn: poisson, without-replacement or shuffled.")
]
NeighboursOption = Annotated[
    str | None,
    typer.Option(
        "--neighbours",
        help="add/remove, replace or zero-out; by default what the sampling can be bounded for.",
        show_default=False,
    ),
]


def account(
    noise_multiplier: NoiseMultiplier,
    sample_rate: SampleRate = 1.0,
    steps: Steps = 1,
    delta: Annotated[float, typer.Option("--delta", help="δ of the guarantee, in (0, 1).")] = 1e-5,
    sampling: SamplingOption = "poisson",
    neighbours: NeighboursOption = None,
    method: Annotated[
        list[str] | None, typer.Option("--method", help="Only this accountant; may be repeated.", show_default=False)
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Print the ε of one DP-SGD run under every accountant, and say which of them are proven bounds.

    Example: batches of 200 from 10 000 records for 100 epochs with noise multiplier 1.06

        dosimeter account --noise-multiplier 1.06 --sample-rate 0.02 --steps 5000 --delta 1e-5

    prints ε ≤ 8.413 by privacy-loss distributions, 9.111 by Rényi DP and 8412 by naive composition.
    """
    from dosimeter.accounting import account as accountants
    from dosimeter.estimate import number

    results = accountants(
        noise_multiplier=noise_multiplier,
        sample_rate=sample_rate,
        steps=steps,
        delta=delta,
        sampling=sampling,
        neighbours=neighbours,
        methods=method or None,
    )
    if json:
        print_json([result.to_dict() for result in results])
        return
    first = results[0]
    table(
        f"ε at δ = {delta:g}, {first.neighbours} neighbours, sampling: {first.sampling}",
        ["accountant", "ε", "proven bound"],
        [(result.method, number(result.epsilon), "yes" if result.is_bound else "no") for result in results],
    )
    proven = [result for result in results if result.is_bound]
    if proven:
        out.print(str(min(proven, key=lambda result: result.epsilon)), soft_wrap=True, markup=False)
    for result in results:
        for warning in result.warnings:
            err.print(f"warning ({result.method}): {warning}", markup=False, soft_wrap=True)
