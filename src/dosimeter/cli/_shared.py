"""What every command shares: where output goes, how numbers and errors look, the common options."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dosimeter.estimate import Estimate, Validity, number, percent, plain

if TYPE_CHECKING:
    from dosimeter.audits.result import Audit

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)

JsonFlag = Annotated[bool, typer.Option("--json", help="Print the result as JSON on standard output, nothing else.")]
Delta = Annotated[float, typer.Option("--delta", help="δ of the guarantee that is tested, in [0, 1).")]
Confidence = Annotated[float, typer.Option("--confidence", help="Confidence level, in (0, 1).")]
Seed = Annotated[int, typer.Option("--seed", help="Seed of every random choice: the same seed gives the same number.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Show no progress and no notes; warnings and errors stay.")]


def _log(level: int) -> int:
    """Write what the logger "dosimeter" is told to standard error: -v what is done, -vv each task too."""
    import logging

    from dosimeter._progress import logger

    for handler in [one for one in logger.handlers if type(one) is logging.StreamHandler]:
        logger.removeHandler(handler)
    if level:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(asctime)s %(name)s: %(message)s", "%H:%M:%S"))
        logger.addHandler(handler)
    logger.setLevel({0: logging.NOTSET, 1: logging.INFO}.get(level, logging.DEBUG))
    return level


Verbose = Annotated[
    int,
    typer.Option(
        "--verbose", "-v", count=True, callback=_log, metavar="", help="Log what is done; -vv logs each task too."
    ),
]


def note(message: str, *, quiet: bool = False) -> None:
    """Tell people on standard error what happens, unless they asked for silence."""
    if not quiet:
        err.print(message, markup=False, soft_wrap=True)


def print_json(payload: Any) -> None:
    """Write strict JSON to standard output."""
    sys.stdout.write(json.dumps(plain(payload), ensure_ascii=False, allow_nan=False) + "\n")


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table for people on standard output; the first column is left-aligned, the rest as they come."""
    grid = Table(title=title, title_justify="left", header_style="bold")
    for place, name in enumerate(columns):
        grid.add_column(name, overflow="fold", no_wrap=place == 0)
    for row in rows:
        grid.add_row(*[str(cell) for cell in row])
    out.print(grid)


def interval(estimate: Estimate) -> str:
    """An estimate's interval as "[0.52, 1.27]"; an open upper end as "≥ 0.52"."""
    if estimate.high == float("inf"):
        return f"≥ {number(estimate.low)}"
    return f"[{number(estimate.low)}, {number(estimate.high)}]"


def whose(estimate: Estimate, unit: str = "record") -> str:
    """Whose ε an estimate is about, e.g. "replace one record"; a dash where it is not known.

    `unit` is that of the audit, for estimates that do not say it themselves.
    """
    if estimate.neighbours is None:
        return "–"
    return f"{estimate.neighbours} one {estimate.details.get('unit', unit)}"


def show_estimates(title: str, estimates: Sequence[Estimate]) -> None:
    """Print a row for each estimate with its validity, then the claims and the warnings in full."""
    table(
        title,
        ["method", "ε", "interval", "confidence", "whose ε", "validity"],
        [
            (e.method, number(e.epsilon), interval(e), percent(e.confidence), whose(e), str(e.validity))
            for e in estimates
        ],
    )
    for estimate in estimates:
        out.print(f"[bold]{estimate.method}[/]: {estimate.claim}", markup=True)
        for warning in estimate.warnings:
            err.print(f"warning ({estimate.method}): {warning}", markup=False)


def show_audit(result: Audit) -> None:
    """What is proven, what was measured and what a guarantee would allow, apart; then every estimate, and warnings."""
    headline, *others = result.estimates
    err.print(str(result.guard), markup=False)
    out.print(headline.claim, style="bold", markup=False)
    _warn([headline])
    confidence = percent(headline.confidence)
    table(
        f"Every estimate at δ = {headline.delta:g}, {confidence}",
        ["method", "ε", "whose ε", "validity"],
        [(e.method, _value(e), whose(e, result.metadata.unit), str(e.validity)) for e in result.estimates],
    )
    _listed((estimate.method, estimate.claim) for estimate in others)
    if result.curve is not None:
        table(
            f"Measured by this attack: AUC {result.curve.auc:.4f}",
            ["FPR", "TPR measured", f"true TPR at least ({confidence} each)"],
            [_rates(point.fpr, point.tpr, point.limit) for point in result.curve.tpr_at_fpr],
        )
        if result.curve.tnr_at_fnr:
            table(
                "The other end: non-members that are recognised for sure",
                ["FNR", "TNR measured", f"true TNR at least ({confidence} each)"],
                [_rates(point.fnr, point.tnr, point.limit) for point in result.curve.tnr_at_fnr],
            )
    _words("Proven", result.risk.words)
    if result.region is not None:
        out.print(str(result.region), markup=False)
    _words("Allowed by the guarantee", result.risk.upper_words)
    _warn(others, known=headline.warnings)
    for warning in result.metadata.warnings:
        err.print(f"note: {warning}", markup=False, soft_wrap=True)


def _warn(estimates: Sequence[Estimate], known: Sequence[str] = ()) -> None:
    """Each warning once, with the methods that it belongs to; those that were `known` are not said again."""
    methods: dict[str, list[str]] = {}
    for estimate in estimates:
        for warning in estimate.warnings:
            if warning not in known:
                methods.setdefault(warning, []).append(estimate.method)
    for warning, names in methods.items():
        err.print(f"warning ({', '.join(dict.fromkeys(names))}): {warning}", markup=False, soft_wrap=True)


def _words(heading: str, lines: Sequence[str]) -> None:
    if lines:
        out.print(heading, style="bold", markup=False)
        _listed(("·", line) for line in lines)


def _rates(*shown: float | None) -> tuple[str, ...]:
    """A rate, the one measured at it, and what a test with the first as its true rate is sure to reach."""
    return tuple("no limit" if rate is None else f"{100 * rate:.3g} %" for rate in shown)


def _value(estimate: Estimate) -> str:
    """A bound as "≥ 1.7", a metric with its interval as "4.8 [3.6, 5.8]", a measurement alone."""
    if not estimate.details.get("measurable", True):
        return "cannot tell"
    if estimate.validity == Validity.MEASUREMENT:
        return number(estimate.epsilon)
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
