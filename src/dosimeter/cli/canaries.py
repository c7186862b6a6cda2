"""`dosimeter canaries`: texts and coins for an audit of a fine-tuning, before it is run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dosimeter.cli._shared import JsonFlag, note, out, print_json

if TYPE_CHECKING:
    from dosimeter.audits.text import CanarySheet

Like = Annotated[
    Path | None,
    typer.Option("--like", help="Texts of the kind that the training has: .jsonl (a field of text), or .txt (lines)."),
]
Field = Annotated[str, typer.Option("--field", help="The field of a .jsonl file that holds the text.")]
GroupField = Annotated[
    str | None, typer.Option("--group-field", help="The field with the person behind each record (--kind records).")
]


def canaries(
    output: Annotated[Path, typer.Option("--out", help="The sheet, as .jsonl. It says who is in: keep it safe.")],
    count: Annotated[int | None, typer.Option("--count", help="How many canaries; 1000, or all records.")] = None,
    like: Like = None,
    field: Field = "text",
    tokenizer: Annotated[
        Path | None, typer.Option("--tokenizer", help="A folder with the model's tokenizer: secrets are its words.")
    ] = None,
    kind: Annotated[str, typer.Option("--kind", help="suffix, random, names, or records (your texts).")] = "suffix",
    length: Annotated[int, typer.Option("--length", help="Tokens of a secret, 8 to 25.")] = 12,
    prefix: Annotated[
        int | None, typer.Option("--prefix", help="Words that lead to a secret; 24, or fewer for short texts.")
    ] = None,
    copies: Annotated[
        int, typer.Option("--copies", help="How often each canary that is in is trained on; k audits groups of k.")
    ] = 1,
    group_field: GroupField = None,
    training: Annotated[
        Path | None, typer.Option("--training", help="Also write the texts to train on here, as .jsonl.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", help="Seed of texts and coins; fresh if not given.", show_default=False)
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Make canaries and flip their coins before a language model is fine-tuned.

    Train on the texts that are in (`--training`), then `dosimeter audit-text`. Write down the hash that is printed.

    Example: 300 canaries like some letters

        python -c "import json; print('\\n'.join(json.dumps({'text': f'Dear reader, letter {n} says that all is well '
            'with us here'}) for n in range(400)))" > train.jsonl

        dosimeter canaries --count 300 --like train.jsonl --length 8 --prefix 5 --out sheet.jsonl --seed 1

    says how many are in, and what a perfect attack on so many could prove.
    """
    from dosimeter._files import write_text
    from dosimeter._validate import InputError
    from dosimeter.audits.text.files import load_tokenizer, read_jsonl, text_lines
    from dosimeter.audits.text.sheet import canary_sheet

    if group_field is not None and kind != "records":
        raise InputError(
            f"--group-field names the persons behind records of your own, and the kind is {kind}; pass --kind records."
        )
    rows = None if like is None else read_jsonl(like, field, group_field)
    sheet = canary_sheet(
        count,
        like=None if rows is None else rows.texts,
        tokenizer=None if tokenizer is None else load_tokenizer(tokenizer),
        kind=kind,
        length=length,
        prefix=prefix,
        copies=copies,
        groups=None if rows is None else rows.groups,
        seed=seed,
    )
    _keep(sheet, output)
    if training is not None:
        _private(training)
        write_text(training, text_lines(sheet.training_texts([] if rows is None else rows.texts), field))
    if json:
        print_json(_facts(sheet))
        return
    _show(sheet, output)
    note(f"written: {output}" + ("" if training is None else f" and {training}"))


def _keep(sheet: CanarySheet, output: Path) -> None:
    """Save the sheet; never over another one, whose coins nobody could draw again."""
    from dosimeter._validate import InputError
    from dosimeter.reading import read_text

    if output.exists() and sheet.hash not in read_text(output):
        raise InputError(
            f"{output} holds another sheet or something else; a sheet that a training has used cannot be made again: "
            "write to another file, or remove this one."
        )
    sheet.save(output)


def _private(path: Path) -> None:
    """Let only its owner read a file that is about to say who is in."""
    from dosimeter._files import naming

    with naming(path):
        path.touch(mode=0o600)


def _facts(sheet: CanarySheet) -> dict[str, object]:
    from dosimeter.estimators.lower_bound import largest_provable

    units = len(sheet) if sheet.groups is None else len(set(sheet.groups))
    return {
        "kind": sheet.kind,
        "count": len(sheet),
        "included": int(sheet.included.sum()),
        "copies": sheet.copies,
        "unit": sheet.unit,
        "hash": sheet.hash,
        "mask_hash": sheet.mask_hash,
        "largest_provable": largest_provable(units // 2, units, "coins", "add/remove", 1e-5, 0.05),
    }


def _show(sheet: CanarySheet, output: Path) -> None:
    facts = _facts(sheet)
    lines = [
        f"{len(sheet)} texts, {facts['included']} of them in by fair coins; the unit is one {sheet.unit}.",
        f"hash of the sheet: {sheet.hash}",
        f"hash of the coins: {sheet.mask_hash}",
        f"A perfect attack on so many could prove ε ≥ {facts['largest_provable']:.2f} at δ = 1e-05, with 95 %.",
    ]
    for line in lines:
        out.print(line, markup=False, soft_wrap=True)
