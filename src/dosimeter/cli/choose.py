"""`dosimeter choose`: from a tolerable risk to the noise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from dosimeter.cli._shared import JsonFlag, err, out, print_json, table
from dosimeter.cli.account import NeighboursOption, SamplingOption

if TYPE_CHECKING:
    from dosimeter.pipelines.noise import NoiseChoice


def choose(
    records: Annotated[int, typer.Option("--records", "-n", help="Number of training records.")],
    batch_size: Annotated[int, typer.Option("--batch-size", help="(Expected) records in a batch.")],
    epochs: Annotated[float, typer.Option("--epochs", help="Passes over the data.")],
    belief: Annotated[
        float | None,
        typer.Option(help="Nobody may become surer than this that a person is in the data, in (0.5, 1)."),
    ] = None,
    advantage: Annotated[float | None, typer.Option(help="No test may have TPR − FPR above this, in (0, 1).")] = None,
    tpr: Annotated[float | None, typer.Option(help="No test may find more than this share of the members…")] = None,
    fpr: Annotated[float | None, typer.Option(help="… at this false-positive rate; goes with --tpr.")] = None,
    epsilon: Annotated[float | None, typer.Option(help="ε may not be above this.")] = None,
    delta: Annotated[
        float | None, typer.Option(help="δ of the guarantee; 1/(n ln n) if not given.", show_default=False)
    ] = None,
    sampling: SamplingOption = "poisson",
    neighbours: NeighboursOption = None,
    json: JsonFlag = False,
) -> None:
    """Find the least noise for a risk that you can accept, and say what it means under every accountant.

    Give exactly one of `--belief`, `--advantage`, `--tpr` with `--fpr`, `--epsilon`.

    Example: nobody may become more than 75 % sure that a person is in the data

        dosimeter choose --belief 0.75 --records 10000 --batch-size 200 --epochs 100 --delta 1e-5

    answers with noise multiplier 4.918, ε ≤ 1.098 and the Opacus call to use.
    """
    from dosimeter.pipelines.noise import choose_noise

    answer = choose_noise(
        records=records,
        batch_size=batch_size,
        epochs=epochs,
        belief=belief,
        advantage=advantage,
        tpr=tpr,
        fpr=fpr,
        epsilon=epsilon,
        delta=delta,
        sampling=sampling,
        neighbours=neighbours,
    )
    if json:
        print_json(answer.to_dict())
        return
    _show(answer)


def _show(answer: NoiseChoice) -> None:
    from dosimeter.estimate import number

    aims = ", ".join(f"{name} {value:g}" for name, value in answer.target.items())
    rows: list[tuple[str, str]] = [
        ("noise multiplier", f"{answer.noise_multiplier:g}"),
        (f"ε ({answer.method})", number(answer.epsilon)),
        ("δ", f"{answer.delta:.4g}"),
        ("largest belief in membership (prior 50 %)", f"{answer.belief:.4f}"),
        ("largest advantage TPR − FPR", f"{answer.advantage:.4f}"),
    ]
    rows += [(f"largest TPR at FPR {item.fpr:g}", f"{item.tpr:.4f}") for item in answer.tpr]
    run = f"{answer.steps} steps, sample rate {answer.sample_rate:g}, sampling: {answer.sampling}"
    table(f"Noise for {aims} ({run})", ["quantity", "value"], rows)
    table(
        "What each accountant says about it",
        ["accountant", "ε", "proven bound"],
        [(item.method, number(item.epsilon), "yes" if item.is_bound else "no") for item in answer.guarantees],
    )
    out.print("Opacus:", markup=False)
    out.print(answer.opacus, markup=False, soft_wrap=True)
    if answer.sampling == "poisson":
        err.print("note: the bound needs Poisson batches; for shuffled batches pass --sampling shuffled", markup=False)
    err.print(
        f"note: the limit of the belief is exact for δ = 0; with δ = {answer.delta:.4g} a belief can exceed it, "
        "but only in rare cases",
        markup=False,
        soft_wrap=True,
    )
