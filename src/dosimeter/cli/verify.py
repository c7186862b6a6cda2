"""`dosimeter verify`: does every number of an audit follow from the evidence that it carries?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dosimeter.cli._shared import JsonFlag, out, print_json

if TYPE_CHECKING:
    from dosimeter.audits.result import Audit
    from dosimeter.evidence import OneRun, Scores

AUDIT_HELP = "The audit: JSON written by `dosimeter audit --json` or Audit.to_json."
DATA_HELP = "The scores, losses or one-run scores that the audit was made of: its evidence is then recomputed too."


def verify(
    file: Annotated[Path, typer.Argument(help=AUDIT_HELP)],
    data: Annotated[Path | None, typer.Option("--data", help=DATA_HELP)] = None,
    json: JsonFlag = False,
) -> None:
    """Recompute every bound of an audit from the counts that it carries, offline.

    Exit code 0: every number that can be recomputed follows. 2: this is not a valid audit. Numbers that are not
    bounds, such as Epsilon\\*, need the data.

    Example: an audit, and the scores that it was made of

        dosimeter audit scores.npz --json > audit.json

        dosimeter verify audit.json --data scores.npz
    """
    from dosimeter.audits.result import Audit
    from dosimeter.audits.verify import verify as check
    from dosimeter.reading import read_text

    audit = Audit.from_json(read_text(file))
    found = check(audit, data=None if data is None else read_data(data, audit))
    if json:
        print_json(
            {
                "valid": found.valid,
                "largest_provable": found.most,
                "findings": [
                    {
                        "subject": f.subject,
                        "standing": str(f.standing),
                        "reason": f.reason,
                        "stated": f.stated,
                        "recomputed": f.recomputed,
                    }
                    for f in found.findings
                ],
            }
        )
    else:
        width = max(len(f.standing) for f in found.findings)
        for finding in found.findings:
            line = f"{finding.standing:{width}}  {finding.subject}: {finding.reason}"
            out.print(line, markup=False, soft_wrap=True)
        out.print(_summary(found.valid, len(found.contradictions)), markup=False, soft_wrap=True)
    raise typer.Exit(0 if found.valid else 2)


def _summary(valid: bool, wrong: int) -> str:
    if valid:
        return "Valid: no number contradicts its evidence. Only a signature can say who made the file."
    parts = "1 of its parts does" if wrong == 1 else f"{wrong} of its parts do"
    return f"Not a valid audit: {parts} not follow from the evidence."


def read_data(path: Path, audit: Audit) -> Scores | OneRun:
    """The data of an audit, as its headline says that it was drawn."""
    from dosimeter.columns import read_columns
    from dosimeter.evidence import OneRun, Scores

    game = next((e.details["game"] for e in audit.estimates if "game" in e.details), None)
    if "included" in read_columns(path):
        return OneRun.from_file(path)
    return Scores.from_file(path, independent=game == "runs")
