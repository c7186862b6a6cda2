"""The reference models of `dosimeter audit`: which files they are, their masks, and what asking them would take."""

from __future__ import annotations

import glob
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from dosimeter.cli._shared import out, print_json, table

SAMPLE = 500  # records that are asked to time a model

Patterns = Annotated[
    list[str] | None,
    typer.Option("--references", help="Reference models: .onnx files or a pattern in quotes, e.g. 'refs/*.onnx'."),
]
Masks = Annotated[
    Path | None,
    typer.Option(
        "--reference-masks",
        help="Who is in which reference: .npz with one array (references, records), members first, then non-members; "
        "rows in the order of the file names, 2 before 10. Without it they saw none of the records.",
    ),
]
Attack = Annotated[
    str | None,
    typer.Option("--attack", help="The attack; by default the best on the references, or the calibrated loss."),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print how many references would be asked, and about how long it takes.")
]


@dataclass(frozen=True, eq=False)
class References:
    """The files of reference models and the mask of each, as they were named on the command line."""

    files: tuple[Path, ...]
    masks: Any = None
    attack: str | None = None

    def keywords(self) -> dict[str, Any]:
        """The arguments that `audit_model` takes; none where there are no references."""
        given = {
            "references": [str(file) for file in self.files] or None,
            "reference_masks": self.masks,
            "attack": self.attack,
        }
        return {name: value for name, value in given.items() if value is not None}


def read_references(patterns: Sequence[str] | None, masks: Path | None, attack: str | None) -> References:
    """Find the files of the references, and read their masks."""
    from dosimeter._validate import InputError
    from dosimeter.attacks.table import CALIBRATED

    if not patterns:
        needs_none = attack is None or attack in ("auto", "loss", *CALIBRATED)
        alone = "--reference-masks" if masks is not None else None if needs_none else f"--attack {attack}"
        if alone is not None:
            raise InputError(f"{alone} is for reference models, and none were named; pass them with --references.")
        return References((), attack=attack)
    files: list[Path] = []
    for pattern in patterns:
        names = glob.glob(pattern)  # noqa: PTH207 - Path.glob takes no absolute pattern
        found = [Path(name) for name in names] or [Path(pattern)]
        if not found[0].is_file():
            raise InputError(f"--references {pattern} names no file; check the path, and put a pattern in quotes.")
        files += sorted(found, key=_by_number)
    other = next((file for file in files if file.suffix.lower() != ".onnx"), None)
    if other is not None:
        raise InputError(f"--references takes .onnx files, got {other}; convert that model or narrow the pattern.")
    twice = next((file for file in files if files.count(file) > 1), None)
    if twice is not None:
        raise InputError(f"--references names {twice} more than once; pass each model once.")
    return References(tuple(files), None if masks is None else _masks(masks, len(files)), attack)


def _masks(file: Path, models: int) -> Any:
    from dosimeter._validate import InputError
    from dosimeter.columns import read_columns

    if file.suffix.lower() != ".npz":
        raise InputError(f"--reference-masks must be an .npz file, got {file}; write it with numpy.savez.")
    arrays = read_columns(file)
    if len(arrays) != 1:
        raise InputError(
            f"{file} must hold one array of masks, it holds {', '.join(sorted(arrays)) or 'none'}; write one array "
            "(references, records)."
        )
    masks = next(iter(arrays.values()))
    if masks.ndim != 2 or len(masks) != models:
        raise InputError(
            f"{file} holds masks of shape {masks.shape} for {models} references; pass one row for each reference."
        )
    return masks


def _by_number(file: Path) -> list[tuple[int, str]]:
    """A key that puts ref2 before ref10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", str(file))]


def show_plan(
    model: Path, references: References, members: tuple[Any, Any], nonmembers: tuple[Any, Any], *, json: bool
) -> None:
    """Print how much the audit would ask of which models; each kind is timed on a few records.

    What cannot be used is found here as the audit would find it.
    """
    from dosimeter._progress import duration
    from dosimeter.audits.model.attack import read_attack
    from dosimeter.audits.model.pool import read_pool
    from dosimeter.audits.model.references import read_references as checked
    from dosimeter.engine import RunOptions

    read_attack(references.attack or "auto")
    pool = read_pool(members, nonmembers, None, None, mask_seed=None, groups=None)
    if references.files:
        given = [str(file) for file in references.files]
        checked(str(model), pool, given, masks=references.masks, run=RunOptions(), seed=0)
    each = [_seconds(file, members, pool.size) for file in (model, *references.files[:1])]
    seconds = each[0] + len(references.files) * each[-1]
    if json:
        print_json(
            {
                "records": pool.size,
                "references": len(references.files),
                "masks": references.masks is not None,
                "outputs": pool.size * (1 + len(references.files)),
                "seconds": seconds,
            }
        )
        return
    table(
        f"Plan: audit of {model}",
        ["what", "how much"],
        [
            ("records", pool.size),
            ("references", f"{len(references.files)} ({_known(references)})" if references.files else "none"),
            ("outputs", f"{pool.size * (1 + len(references.files))} of {1 + len(references.files)} models"),
            ("expected time", f"about {duration(seconds)} to ask the models; the estimates come on top"),
        ],
    )
    for file, mask in zip(references.files, () if references.masks is None else references.masks, strict=False):
        out.print(f"{file}: trained on {int(mask.sum())} of the records", markup=False, soft_wrap=True)


def _known(references: References) -> str:
    return "trained on none of the records" if references.masks is None else "their records are in the masks"


def _seconds(file: Path, records: tuple[Any, Any], size: int) -> float:
    """How long a model takes for `size` records, from a few of them."""
    import numpy as np

    from dosimeter.models import access
    from dosimeter.records import count, take

    X, y = records
    rows = np.arange(min(SAMPLE, count(X)))
    box = access(str(file))
    start = time.perf_counter()
    box.losses(take(X, rows), None if y is None else y[rows])
    return (time.perf_counter() - start) * size / rows.size
