"""`dosimeter estimate`: ε from the confusion counts of one attack."""

from __future__ import annotations

from typing import Annotated

import typer

from dosimeter.cli._shared import Confidence, Delta, JsonFlag, print_json, show_estimates


def estimate(
    tp: Annotated[int, typer.Option("--tp", help="Members guessed as members.")],
    fn: Annotated[int, typer.Option("--fn", help="Members guessed as non-members.")],
    fp: Annotated[int, typer.Option("--fp", help="Non-members guessed as members.")],
    tn: Annotated[int, typer.Option("--tn", help="Non-members guessed as non-members.")],
    delta: Delta = 1e-5,
    confidence: Confidence = 0.95,
    method: Annotated[
        str, typer.Option("--method", help="clopper-pearson, jeffreys, bayesian or gaussian.")
    ] = "clopper-pearson",
    sides: Annotated[str, typer.Option("--sides", help="lower (a lower bound) or both (an interval).")] = "lower",
    json: JsonFlag = False,
) -> None:
    """Estimate ε from the counts of one attack at a threshold fixed in advance.

    Example: 100 members and 100 non-members

        dosimeter estimate --tp 65 --fn 35 --fp 25 --tn 75 --delta 0.05 --sides both

    finds ε in [0.2952, 1.489] with 95 % confidence; with --method bayesian it is [0.5218, 1.267].
    """
    from dosimeter import _validate as check
    from dosimeter.estimators.rates import clopper_pearson, jeffreys
    from dosimeter.estimators.with_assumptions import bayesian, gaussian
    from dosimeter.evidence import Counts

    methods = {"clopper-pearson": clopper_pearson, "jeffreys": jeffreys, "bayesian": bayesian, "gaussian": gaussian}
    function = methods[check.choice("--method", method, tuple(methods))]
    result = function(Counts(tp=tp, fn=fn, fp=fp, tn=tn), delta=delta, confidence=confidence, sides=sides)
    if json:
        print_json(result.to_dict())
    else:
        show_estimates("Estimate from counts", [result])
