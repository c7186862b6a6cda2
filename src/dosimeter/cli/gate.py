"""`dosimeter gate`: an exit code for a release pipeline."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dosimeter.cli._shared import JsonFlag, out, print_json


def gate(
    file: Annotated[Path, typer.Argument(help="The audit: JSON written by `dosimeter audit --json` or Audit.to_json.")],
    max_epsilon: Annotated[
        float | None, typer.Option("--max-epsilon", help="Fail if more than this ε is proven.")
    ] = None,
    max_tpr_at_fpr: Annotated[
        list[str] | None,
        typer.Option("--max-tpr-at-fpr", help="FPR=TPR, e.g. 0.01=0.05; may be repeated.", show_default=False),
    ] = None,
    require_no_shift: Annotated[
        bool, typer.Option("--require-no-shift", help="Fail if a shift was found, or none was looked for.")
    ] = False,
    junit: Annotated[Path | None, typer.Option("--junit", help="Also write the verdicts as JUnit XML.")] = None,
    json: JsonFlag = False,
) -> None:
    """Check an audit against limits: one line a rule, exit code 1 if one is broken.

    Example: fail a release whose model proves more than ε = 2

        dosimeter audit scores.npz --json > audit.json

        dosimeter gate audit.json --max-epsilon 2 --max-tpr-at-fpr 0.01=0.05
    """
    from dosimeter.audits.audit import Audit
    from dosimeter.audits.gate import gate as check
    from dosimeter.audits.gate import junit as to_junit
    from dosimeter.reading import read_text, writing

    verdicts = check(
        Audit.from_json(read_text(file)),
        max_epsilon=max_epsilon,
        max_tpr_at_fpr=_pairs(max_tpr_at_fpr or []),
        require_no_shift=require_no_shift,
    )
    if junit is not None:
        with writing(junit):
            junit.write_text(to_junit(verdicts), encoding="utf-8")
    if json:
        print_json([{"rule": v.rule, "passed": v.passed, "reason": v.reason} for v in verdicts])
    else:
        for verdict in verdicts:
            out.print(str(verdict), markup=False, soft_wrap=True)
    raise typer.Exit(0 if all(v.passed for v in verdicts) else 1)


def _pairs(texts: list[str]) -> dict[float, float]:
    from dosimeter._validate import InputError

    pairs = {}
    for text in texts:
        left, _, right = text.partition("=")
        try:
            pairs[float(left)] = float(right)
        except ValueError:
            raise InputError(f"--max-tpr-at-fpr must be FPR=TPR, got {text!r}; pass e.g. 0.01=0.05.") from None
    return pairs
