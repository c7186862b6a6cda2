"""Bayesian Estimation of Differential Privacy (Zanella-Béguelin et al., 2023): its intervals, figures and trainings."""

from __future__ import annotations

import json
from pathlib import Path

from dosimeter import Audit, InputError
from dosimeter.engine import Store

from . import trainings, widths

COVERAGE = Path(__file__).parents[2] / "docs" / "coverage.json"
COVERED = (
    "clopper-pearson, fixed",
    "clopper-pearson, uniform",
    "jeffreys, split",
    "bayesian, split",
    "bayesian, naive",
)
COMPARED = ("adult",)  # audited with as many models as a width is worth comparing for
MECHANISMS = ("no leak", "Laplace ε=1", "Gaussian μ=1")


def _audits(size: str, store: Store | None) -> dict[str, dict[str, Audit] | Exception]:
    """The audits of each data set by kind, or what is missing for them."""
    found: dict[str, dict[str, Audit] | Exception] = {}
    for data, kinds in trainings.CONFIG[size].items():
        try:
            found[data] = {kind: trainings.audit(size, data, kind, store) for kind in kinds}
        except (ImportError, InputError) as error:
            found[data] = error
    return found


def _finished(size: str, store: Store | None) -> dict[str, Audit]:
    """All audits that could be run, by name."""
    return {
        f"{data}, {kind}": audit
        for data, audits in _audits(size, store).items()
        if not isinstance(audits, Exception)
        for kind, audit in audits.items()
    }


def results(size: str = "mini", store: Store | None = None) -> dict[str, float | Exception]:
    """The paper's printed numbers, its claims on widths, and what the trainings of a size show."""
    found: dict[str, float | Exception] = {**widths.numbers(), **widths.claims()}
    for data, audits in _audits(size, store).items():
        if isinstance(audits, Exception):
            found[data] = audits
            continue
        for kind, audit in audits.items():
            if data in COMPARED:
                found[f"{data}.{kind}.narrower"] = trainings.narrower(audit)
            if audit.region is None:
                found[f"{data}.{kind}.leaks"] = float(audit.headline.low > 0)
            else:
                found[f"{data}.{kind}.below_guarantee"] = float(not audit.region["contradiction"])
        if {"plain", "dp"} <= audits.keys():
            found[f"{data}.private_below"] = float(audits["dp"].headline.low < audits["plain"].headline.low)
    return found


def tables(size: str = "mini", store: Store | None = None) -> dict[str, str]:
    """The setting of Table 2 with our targets, and how often each method's lower end is above the truth."""
    rows = [trainings.row(name, audit) for name, audit in _finished(size, store).items()]
    found = {"Coverage: how often the lower bound is above the true ε (nominal 5 %)": _coverage()}
    if rows:
        found["Trainings, scaled down: intervals at 95 % and δ = 1e-5, threshold fixed on shadow models"] = _table(rows)
    return found


def _coverage() -> str:
    cells = {(row["estimator"], row["mechanism"]): row for row in json.loads(COVERAGE.read_text(encoding="utf-8"))}
    rows = [
        {"method": name, "validity": cells[name, MECHANISMS[0]]["validity"]}
        | {mechanism: f"{cells[name, mechanism]['rate']:.1%}" for mechanism in MECHANISMS}
        for name in COVERED
    ]
    return f"{_table(rows)}\n\nFrom `docs/coverage.json`, which `make coverage-table` makes."


def _table(rows: list[dict[str, str]]) -> str:
    head = [f"| {' | '.join(rows[0])} |", f"|{'---|' * len(rows[0])}"]
    return "\n".join([*head, *(f"| {' | '.join(map(str, row.values()))} |" for row in rows)])


def figures(size: str, folder: Path, store: Store | None = None) -> dict[str, str]:
    """Pictures in `folder`: their captions by file name."""
    from . import pictures

    found = pictures.of_example(folder) | pictures.of_widths(folder)
    audits = _finished(size, store)
    return found | (pictures.of_trainings(folder, audits) if audits else {})
