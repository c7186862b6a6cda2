"""`dosimeter audit-synthetic`: a published table beside the records that it was made from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from dosimeter.cli._shared import Confidence, Delta, JsonFlag, Seed, err, out, print_json, table


def audit_synthetic(
    real: Annotated[Path, typer.Argument(help="The records that the release was made from: .csv or .parquet.")],
    synthetic: Annotated[Path, typer.Argument(help="The published rows, with the same columns.")],
    holdout: Annotated[
        Path | None,
        typer.Option(
            "--holdout", help="Records of the same kind that were held out at random, never given to the generator."
        ),
    ] = None,
    secret: Annotated[
        list[str] | None,
        typer.Option("--secret", help="A column to guess from the others; may be given several times."),
    ] = None,
    target: Annotated[
        str | None, typer.Option("--target", help="The column that a model is trained to predict (default: the last).")
    ] = None,
    group: Annotated[
        str | None, typer.Option("--group", help="The column that names the person; it is not compared.")
    ] = None,
    delta: Delta = 1e-5,
    confidence: Confidence = 0.95,
    html: Annotated[Path | None, typer.Option("--html", help="Also write the page here.")] = None,
    records: Annotated[
        Path | None,
        typer.Option(
            "--records", help="Also write the risk of every record here, .parquet or .csv. Sensitive: it names members."
        ),
    ] = None,
    seed: Seed = 0,
    json: JsonFlag = False,
) -> None:
    """Audit a synthetic table that exists: a bound on ε for replacing one record, copies, utility, regulators'
    criteria.

    It needs records that were held out at random before the generator was fitted. With the generator itself,
    `dosimeter.audit_synthetic(generate, data)` proves more and assumes less.

    Example: a release that copies its records

        python -c "import numpy as np; x = np.random.default_rng(0).normal(size=(3000, 3)).round(4);
            [np.savetxt(f, rows, '%g', ',', header='a,b,c', comments='') for f, rows in
             (('real.csv', x[:1000]), ('holdout.csv', x[1000:2000]), ('synthetic.csv', x[:500]))]"

        dosimeter audit-synthetic real.csv synthetic.csv --holdout holdout.csv --html page.html
    """
    from dosimeter._validate import InputError
    from dosimeter.audits.synthetic import audit_synthetic as audit

    if holdout is None:
        raise InputError(
            "--holdout is missing: without records that were never in, closeness to the release cannot be told from "
            "what "
            "the population looks like; pass records that were held out at random."
        )
    paths = {"real": real, "synthetic": synthetic, "--holdout": holdout}
    same = next((n for n, p in paths.items() if n != "synthetic" and p.resolve() == synthetic.resolve()), None)
    if same is not None or real.resolve() == holdout.resolve():
        raise InputError(f"{synthetic if same else real} is given twice; pass three different files.")
    sides, groups = _read(real, synthetic, holdout, group)
    result = audit(
        synthetic=sides[1],
        members=sides[0],
        nonmembers=sides[2],
        groups=groups,
        secret=secret or None,
        target=target,
        delta=delta,
        confidence=confidence,
        seed=seed,
        name=synthetic.name,
    )
    if html is not None:
        from dosimeter.audits.page import write_html

        write_html(result, html)
    if records is not None:
        from dosimeter.audits.result import write_risk

        write_risk(result.risk_table(), records)
        err.print(f"{records} says how exposed each record is; it names members, so keep it safe.", markup=False)
    if json:
        print_json(result.to_dict())
        return
    show(result)


def _read(real: Path, synthetic: Path, holdout: Path, group: str | None) -> tuple[list[Any], Any]:
    """The columns of the three files, and the persons behind members and held-out records."""
    from dosimeter._validate import InputError
    from dosimeter.columns import read_columns

    sides = [read_columns(path, missing=True) for path in (real, synthetic, holdout)]
    if group is None:
        return sides, None
    for path, columns in ((real, sides[0]), (holdout, sides[2])):
        if group not in columns:
            raise InputError(f"{path} has no column {group!r}, which --group names; name the column with the person.")
    ids = sides[0].pop(group), sides[2].pop(group)
    sides[1].pop(group, None)
    return sides, ids


def show(result: Any) -> None:
    """Print the headline, copies, criteria and utility for people."""
    from dosimeter.audits.synthetic.disclosure import not_stated

    err.print(str(result.guard), markup=False)
    for estimate in result.estimates:
        out.print(estimate.claim, style="bold" if estimate is result.headline else None, markup=False)
        for warning in estimate.warnings:
            err.print(f"warning ({estimate.method}): {warning}", markup=False, soft_wrap=True)
    details = result.details
    unit = result.metadata.unit
    out.print(f"A perfect attack on as many {unit}s would have proven about ε ≥ {details.published.perfect:.4g}.")
    copies = details.copies
    rows = [("exact copies", copies.inside, copies.inside_of, copies.outside, copies.outside_of)]
    rows += [
        (
            one.criterion if one.column is None else f"{one.criterion}: {one.column}",
            one.found.inside,
            one.found.inside_of,
            one.found.outside,
            one.found.outside_of,
        )
        for one in details.criteria
    ]
    table(
        "Success on records that were in, and on the control",
        ["", "were in", "control", "difference in points"],
        [(name, f"{a} of {n}", f"{b} of {m}", f"{100 * (a / n - b / m):+.1f}") for name, a, n, b, m in rows],
    )
    for sentence in not_stated(details.criteria):
        out.print(sentence, markup=False)
    found = details.utility
    if found is not None and found.shapes is not None:
        told = [("column shapes", f"{found.shapes:.3f}")]
        if found.trends is not None:
            told.append(("pairs of columns", f"{found.trends:.3f}"))
        if found.trained is not None:
            one = found.trained
            told.append(
                (
                    f"model of {one.target}: {one.measure}",
                    f"{one.synthetic:.3f} ({one.real:.3f} trained on the members)",
                )
            )
        table("Utility, 1 is the best", ["", "value"], told)
    for warning in result.metadata.warnings:
        err.print(f"note: {warning}", markup=False, soft_wrap=True)
