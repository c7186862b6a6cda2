"""`dosimeter choose`: from what is tolerable to the noise."""

from __future__ import annotations

import math
from typing import Annotated, Any

import typer

from dosimeter._validate import InputError
from dosimeter.cli._shared import JsonFlag, err, out, print_json, table
from dosimeter.cli.account import NeighboursOption, SamplingOption


def choose(
    records: Annotated[int, typer.Option("--records", "-n", help="Number of training records.")],
    batch_size: Annotated[int, typer.Option("--batch-size", help="(Expected) records in a batch.")],
    epochs: Annotated[float, typer.Option("--epochs", help="Passes over the data.")],
    belief: Annotated[
        float | None, typer.Option(help="Nobody's presence may be believed with more than this, in (0.5, 1).")
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
    """Find the noise for what is tolerable, and say what it means under every accountant.

    Give exactly one of `--belief`, `--advantage`, `--tpr` with `--fpr`, `--epsilon`.

    Example: nobody's presence may be believed with more than 75 %

        dosimeter choose --belief 0.75 --records 10000 --batch-size 200 --epochs 100 --delta 1e-5

    answers with noise multiplier 4.918, ε ≤ 1.098 and the Opacus call to use.
    """
    answer = answer_for(
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
        print_json(answer)
        return
    _show(answer)


def answer_for(
    *,
    records: int,
    batch_size: int,
    epochs: float,
    belief: float | None = None,
    advantage: float | None = None,
    tpr: float | None = None,
    fpr: float | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    sampling: str = "poisson",
    neighbours: str | None = None,
) -> dict[str, Any]:
    """The noise multiplier for one stated tolerance, rounded up to four digits, and everything it implies."""
    from dosimeter import _validate as check
    from dosimeter import accounting, identifiability

    records = check.whole("records", records, 3, "pass the number of training records", 10**12)
    batch_size = check.whole("batch_size", batch_size, 1, "pass at most the number of records", records)
    epochs = check.within("epochs", epochs, 0.0, 1e9, "pass the passes over the data, e.g. 100", include="(]")
    if delta is None:
        delta = 1 / (records * math.log(records))
    delta = check.delta(delta, zero=False, why_not_zero="no amount of Gaussian noise gives a finite ε at δ = 0")
    run: dict[str, Any] = {
        "sample_rate": batch_size / records,
        "steps": max(1, math.ceil(epochs * records / batch_size - 1e-9)),
        "sampling": sampling,
        "neighbours": neighbours,
    }
    target = _target(belief, advantage, tpr, fpr, epsilon)
    if belief is not None:
        noise = accounting.noise_for_belief(belief, delta=delta, **run)
    elif advantage is not None:
        noise = accounting.noise_for_advantage(advantage, **run)
    elif tpr is not None and fpr is not None:
        noise = accounting.noise_for_tpr(tpr, fpr=fpr, **run)
    else:
        assert epsilon is not None
        noise = accounting.noise_for_epsilon(epsilon, delta=delta, **run)
    noise = _round_up(noise)
    mechanism = accounting.DpSgd(noise, **run)
    guarantees = accounting.account(mechanism, delta=delta)
    best = min((item for item in guarantees if item.is_bound), key=lambda item: item.epsilon)
    profile = accounting.privacy_profile(mechanism)
    rates = sorted({0.001, 0.01, 0.1} | ({fpr} if fpr is not None else set()))
    return {
        "target": target,
        "noise_multiplier": noise,
        "epsilon": best.epsilon,
        "delta": delta,
        "method": best.method,
        "belief": float(identifiability.belief_from_epsilon(best.epsilon)),
        "advantage": identifiability.advantage(profile=profile),
        "tpr": [{"fpr": rate, "tpr": float(identifiability.tpr_at_fpr(rate, profile=profile))} for rate in rates],
        "records": records,
        "batch_size": batch_size,
        "epochs": epochs,
        "sample_rate": run["sample_rate"],
        "steps": run["steps"],
        "sampling": str(mechanism.sampling),
        "neighbours": str(mechanism.neighbours),
        "guarantees": [item.to_dict() for item in guarantees],
        "opacus": _opacus(noise, str(mechanism.sampling)),
    }


def _target(
    belief: float | None, advantage: float | None, tpr: float | None, fpr: float | None, epsilon: float | None
) -> dict[str, float]:
    given = {
        name: value
        for name, value in (("belief", belief), ("advantage", advantage), ("tpr", tpr), ("epsilon", epsilon))
        if value is not None
    }
    if len(given) != 1:
        what = "none" if not given else " and ".join(given)
        raise InputError(f"give exactly one of --belief, --advantage, --tpr (with --fpr) and --epsilon, got {what}.")
    if (tpr is None) != (fpr is None):
        raise InputError("--tpr and --fpr go together: the share of members found at a false-positive rate.")
    return given if fpr is None else {**given, "fpr": fpr}


def _round_up(noise: float) -> float:
    """Four digits, never less noise."""
    scale = 10.0 ** (3 - math.floor(math.log10(noise)))
    units = math.floor(noise * scale)
    while float(f"{units / scale:.6g}") < noise:
        units += 1
    return float(f"{units / scale:.6g}")


def _opacus(noise: float, sampling: str) -> str:
    return (
        "PrivacyEngine(accountant='prv').make_private(module=model, optimizer=optimizer, data_loader=loader, "
        f"noise_multiplier={noise:g}, max_grad_norm=1.0, poisson_sampling={sampling == 'poisson'})"
    )


def _show(answer: dict[str, Any]) -> None:
    from dosimeter.accounting import Guarantee
    from dosimeter.estimate import number

    aims = ", ".join(f"{name} {value:g}" for name, value in answer["target"].items())
    rows: list[tuple[str, str]] = [
        ("noise multiplier", f"{answer['noise_multiplier']:g}"),
        (f"ε ({answer['method']})", number(answer["epsilon"])),
        ("δ", f"{answer['delta']:.4g}"),
        ("largest belief in membership (prior 50 %)", f"{answer['belief']:.4f}"),
        ("largest advantage TPR − FPR", f"{answer['advantage']:.4f}"),
    ]
    rows += [(f"largest TPR at FPR {item['fpr']:g}", f"{item['tpr']:.4f}") for item in answer["tpr"]]
    run = f"{answer['steps']} steps, sample rate {answer['sample_rate']:g}, sampling: {answer['sampling']}"
    table(f"Noise for {aims} ({run})", ["quantity", "value"], rows)
    guarantees = [Guarantee.from_dict(item) for item in answer["guarantees"]]
    table(
        "What each accountant says about it",
        ["accountant", "ε", "proven bound"],
        [(item.method, number(item.epsilon), "yes" if item.is_bound else "no") for item in guarantees],
    )
    out.print("Opacus:", markup=False)
    out.print(answer["opacus"], markup=False, soft_wrap=True)
    if answer["sampling"] == "poisson":
        err.print("note: the bound needs Poisson batches; with shuffled batches say --sampling shuffled", markup=False)
    err.print(
        f"note: the belief holds for pure ε; with δ = {answer['delta']:.4g} it can rarely be exceeded", markup=False
    )
