"""`dosimeter audit`: an audit from a file of scores or losses, or of a model in an .onnx file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dosimeter._progress import silence
from dosimeter.cli._references import Attack, DryRun, Masks, Patterns, read_references, show_plan
from dosimeter.cli._shared import (
    Confidence,
    Delta,
    JsonFlag,
    Quiet,
    Seed,
    Verbose,
    err,
    note,
    print_json,
    show_audit,
)
from dosimeter.columns import ColumnNames

if TYPE_CHECKING:
    from dosimeter.audits.result import Audit

FILE_HELP = (
    "A model as .onnx (with --members and --nonmembers), or scores: .npz with arrays members, nonmembers (higher = "
    "member) or member_losses, nonmember_losses; .csv, .csv.gz or .parquet with columns score|loss and member (0/1, "
    "yes/no, true/false)."
)


def threshold_option(text: str | None) -> str | float | None:
    """A threshold from the command line: a name or a number."""
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        return text


Members = Annotated[
    Path | None, typer.Option("--members", help="Training records of the model: .npz (X, y), .csv or .parquet.")
]
Nonmembers = Annotated[
    Path | None, typer.Option("--nonmembers", help="Held-out records from the same distribution, same format.")
]
Label = Annotated[str | None, typer.Option("--label", help="The label column of a .csv or .parquet file.")]
ScoreColumn = Annotated[
    str | None, typer.Option("--score-column", help="The column of the scores, if it is not called score or loss.")
]
LossColumn = Annotated[
    str | None, typer.Option("--loss-column", help="The column of the losses (low = member), if not called loss.")
]
MemberColumn = Annotated[
    str | None, typer.Option("--member-column", help="The column that says who is a member, if not member or is_train.")
]
GroupColumn = Annotated[
    str | None, typer.Option("--group-column", help="The column that names the person behind a record, if not group.")
]
Noise = Annotated[
    float | None, typer.Option("--noise-multiplier", help="The model was trained with DP-SGD of this noise.")
]
Strict = Annotated[
    bool, typer.Option("--strict", help="Refuse every number if members and non-members differ without the model.")
]


MarkdownFile = Annotated[
    Path | None, typer.Option("--markdown", help="Also write the result as Markdown, for a model card or a summary.")
]


@dataclass(frozen=True)
class _OfModel:
    """The options that only an audit of a model takes."""

    members: Path | None
    nonmembers: Path | None
    label: str | None
    noise_multiplier: float | None
    sample_rate: float
    steps: int
    strict: bool
    references: Sequence[str] | None
    masks: Path | None
    attack: str | None
    dry_run: bool

    def given(self) -> list[str]:
        """The options that were passed."""
        single = {
            "--members": self.members,
            "--nonmembers": self.nonmembers,
            "--label": self.label,
            "--noise-multiplier": self.noise_multiplier,
            "--references": self.references or None,
            "--reference-masks": self.masks,
            "--attack": self.attack,
        }
        flags = ["--strict"] * self.strict + ["--dry-run"] * self.dry_run
        return [name for name, value in single.items() if value is not None] + flags


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
    members: Members = None,
    nonmembers: Nonmembers = None,
    label: Label = None,
    score_column: ScoreColumn = None,
    loss_column: LossColumn = None,
    member_column: MemberColumn = None,
    group_column: GroupColumn = None,
    noise_multiplier: Noise = None,
    sample_rate: Annotated[float, typer.Option("--sample-rate", help="Sampling rate of that training.")] = 1.0,
    steps: Annotated[int, typer.Option("--steps", help="Steps of that training.")] = 1,
    strict: Strict = False,
    references: Patterns = None,
    reference_masks: Masks = None,
    attack: Attack = None,
    dry_run: DryRun = False,
    html: Annotated[Path | None, typer.Option("--html", help="Also write the page here.")] = None,
    png: Annotated[Path | None, typer.Option("--png", help="Also write the charts as PNG into this folder.")] = None,
    markdown: MarkdownFile = None,
    records: Annotated[
        Path | None,
        typer.Option(
            "--records",
            help="Also write the risk of every record here, .parquet or .csv. Sensitive: the file names members.",
        ),
    ] = None,
    seed: Seed = 0,
    quiet: Quiet = False,
    verbose: Verbose = 0,
    json: JsonFlag = False,
) -> None:
    """Audit from scores or losses, or a model: an honest lower bound on ε, Epsilon*, ROC and what it means.

    Reference models of the same kind sharpen the attack on a model:
    `dosimeter audit model.onnx --members in.npz --nonmembers out.npz --references 'refs/*.onnx'
    --reference-masks masks.npz`.

    Example: 1000 members and 1000 non-members, scores from a Gaussian mechanism of μ = 1

        python -c "import numpy as np; np.savez('scores.npz',
            members=np.random.default_rng(0).normal(1, 1, 1000),
            nonmembers=np.random.default_rng(1).normal(0, 1, 1000))"

        dosimeter audit scores.npz --delta 1e-5

    proves ε ≥ 3.4 for replacing one record with 95 % confidence; the truth is 6.573.
    """
    options: dict[str, Any] = {
        "delta": delta,
        "confidence": confidence,
        "threshold": threshold_option(threshold),
        "fpr": fpr,
        "seed": seed,
    }
    made = references, reference_masks, attack, dry_run
    of_model = _OfModel(members, nonmembers, label, noise_multiplier, sample_rate, steps, strict, *made)
    if dry_run and file.suffix.lower() == ".onnx":
        _plan(file, of_model, json=json)
        return
    columns = ColumnNames(score_column, loss_column, member_column, group_column)
    if file.suffix.lower() == ".onnx":
        with silence(quiet):
            result = _model(file, of_model, columns, options)
    else:
        result = _scores(file, of_model, columns, options)
    if html is not None or png is not None:
        from dosimeter.audits.page import write_html, write_png

        if html is not None:
            write_html(result, html)
        if png is not None:
            write_png(result, png)
    if markdown is not None:
        from dosimeter._files import write_text

        write_text(markdown, result.to_markdown())
    if records is not None:
        from dosimeter.audits.result import write_risk

        write_risk(result.risk_table(), records)
        note(f"{records} says how exposed each record is; it names members, so keep it safe.", quiet=quiet)
    if json:
        print_json(result.to_dict())
        return
    show_audit(result)


def _model(file: Path, given: _OfModel, columns: ColumnNames, options: Mapping[str, Any]) -> Audit:
    from dosimeter._validate import InputError
    from dosimeter.accounting import DpSgd
    from dosimeter.audits.model import audit_model

    if named := [name for name, column in asdict(columns).items() if column is not None]:
        raise InputError(f"--{named[0]}-column is for a table of scores, but {file} is a model; leave it out.")
    members, nonmembers = _records(file, given)
    made = read_references(given.references, given.masks, given.attack).keywords()
    noise = given.noise_multiplier
    return audit_model(
        str(file),
        members=members,
        nonmembers=nonmembers,
        mechanism=None if noise is None else DpSgd(noise, given.sample_rate, given.steps),
        guard="strict" if given.strict else True,
        **made,
        **options,
    )


def _plan(file: Path, given: _OfModel, *, json: bool) -> None:
    members, nonmembers = _records(file, given)
    show_plan(file, read_references(given.references, given.masks, given.attack), members, nonmembers, json=json)


def _records(file: Path, given: _OfModel) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    """The members and the non-members of a model."""
    from dosimeter._validate import InputError
    from dosimeter.models import dataset

    if given.members is None or given.nonmembers is None:
        raise InputError(f"{file} is a model; pass its records with --members and --nonmembers.")
    first, second = (dataset(side, label=given.label, any_target=True) for side in (given.members, given.nonmembers))
    return first, second


def _scores(file: Path, given: _OfModel, columns: ColumnNames, options: Mapping[str, Any]) -> Audit:
    from dosimeter._validate import InputError
    from dosimeter.audits.scores import audit_scores
    from dosimeter.evidence import Scores

    extra = given.given()
    if extra:
        raise InputError(f"{extra[0]} needs a model, but {file} is not an .onnx file; leave it out or pass a model.")
    scores = Scores.from_file(file, score=columns.score, loss=columns.loss, member=columns.member, group=columns.group)
    if columns.score is not None and scores.from_loss:
        err.print(f"note: {columns.score} is read as losses: a low value means member.", markup=False)
    return audit_scores(scores, **options)
