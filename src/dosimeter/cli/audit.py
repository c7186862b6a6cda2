"""`dosimeter audit`: an audit from a file of scores or losses."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from dosimeter.cli._shared import Confidence, Delta, JsonFlag, Seed, err, interval, out, print_json, table
from dosimeter.estimate import Estimate, number, percent

if TYPE_CHECKING:
    from dosimeter.audits.audit import Audit

FILE_HELP = (
    ".npz with arrays members, nonmembers (scores, higher = member) or member_losses, nonmember_losses; "
    ".csv or .parquet with columns score|loss and member (0/1)."
)


def threshold_option(text: str | None) -> str | float | None:
    """A threshold from the command line: a name or a number."""
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        return text


def audit(
    file: Annotated[Path, typer.Argument(help=FILE_HELP)],
    delta: Delta = 1e-5,
    confidence: Confidence = 0.95,
    threshold: Annotated[
        str | None, typer.Option("--threshold", help="uniform, split, naive or a number; the headline needs none.")
    ] = None,
    fpr: Annotated[
        float | None, typer.Option("--fpr", help="Work at this false-positive rate, fixed in advance.")
    ] = None,
    seed: Seed = 0,
    json: JsonFlag = False,
) -> None:
    """Audit from scores or losses: an honest lower bound on ε, Epsilon* (from losses), ROC and what it means.

    Example: 1000 members and 1000 non-members, scores from a Gaussian mechanism of μ = 1

        python -c "import numpy as np; np.savez('scores.npz',
            members=np.random.default_rng(0).normal(1, 1, 1000),
            nonmembers=np.random.default_rng(1).normal(0, 1, 1000))"

        dosimeter audit scores.npz --delta 1e-5

    proves ε ≥ 1.707 with 95 % confidence; the truth is 4.377.
    """
    from dosimeter.audits.scores import audit_scores
    from dosimeter.evidence import Scores

    result = audit_scores(
        Scores.from_file(file),
        delta=delta,
        confidence=confidence,
        threshold=threshold_option(threshold),
        fpr=fpr,
        seed=seed,
    )
    if json:
        print_json(result.to_dict())
        return
    _show(result)


def _show(result: Audit) -> None:
    """The headline, what was not checked, every estimate with its claim, the ROC, and what it means."""
    headline, *others = result.estimates
    out.print(headline.claim, style="bold", markup=False)
    err.print(str(result.guard), markup=False)
    confidence = percent(headline.confidence)
    table(
        f"Every estimate at δ = {headline.delta:g}, {confidence}",
        ["method", "ε", "validity"],
        [(e.method, _value(e), str(e.validity)) for e in result.estimates],
    )
    _listed((estimate.method, estimate.claim) for estimate in others)
    table(
        f"ROC: AUC {result.curve['auc']:.4f}",
        ["FPR", "TPR", f"TPR at least ({confidence})"],
        [tuple(f"{100 * p[rate]:.3g} %" for rate in ("fpr", "tpr", "tpr_low")) for p in result.curve["tpr_at_fpr"]],
    )
    first, *consequences = result.risk["words"]
    out.print(first, style="bold", markup=False)
    _listed(("·", line) for line in consequences)
    for estimate in result.estimates:
        for warning in estimate.warnings:
            err.print(f"warning ({estimate.method}): {warning}", markup=False, soft_wrap=True)
    for warning in result.metadata["warnings"]:
        err.print(f"note: {warning}", markup=False, soft_wrap=True)


def _value(estimate: Estimate) -> str:
    """A bound as "≥ 1.7", a metric with its interval as "4.8 [3.6, 5.8]"."""
    if estimate.epsilon == estimate.low:
        return interval(estimate)
    return f"{number(estimate.epsilon)} {interval(estimate)}"


def _listed(lines: Iterable[tuple[str, str]]) -> None:
    """Paragraphs with their labels in the margin."""
    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True, style="bold")
    grid.add_column()
    for label, text in lines:
        grid.add_row(label, Text(text))
    out.print(grid)
