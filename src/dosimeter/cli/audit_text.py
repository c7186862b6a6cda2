"""`dosimeter audit-text`: a fine-tuned language model in a folder, audited by its canary sheet."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dosimeter.cli._shared import Confidence, Delta, JsonFlag, note, out, print_json, table

Noise = Annotated[
    float | None, typer.Option("--noise-multiplier", help="The model was trained with DP-SGD of this noise.")
]


def audit_text(
    model: Annotated[Path, typer.Argument(help="The folder of the fine-tuned model, or of its adapter.")],
    sheet: Annotated[Path, typer.Option("--sheet", help="The sheet that `dosimeter canaries` wrote.")],
    base: Annotated[
        Path | None, typer.Option("--base", help="The folder of the model that the training started from.")
    ] = None,
    tokenizer: Annotated[
        Path | None, typer.Option("--tokenizer", help="The folder of the tokenizer, if it is not the model's.")
    ] = None,
    score: Annotated[
        str, typer.Option("--score", help="Score of the headline, decided beforehand: ratio, loss, min-k++, wbc, …")
    ] = "ratio",
    expected_hash: Annotated[
        str | None,
        typer.Option(
            "--expected-hash", help="The hash of the sheet, or of its coins, as written down before the training."
        ),
    ] = None,
    exposure: Annotated[int, typer.Option("--exposure", help="Other secrets to compare with; 0 for none.")] = 63,
    noise_multiplier: Noise = None,
    sample_rate: Annotated[float, typer.Option("--sample-rate", help="Sampling rate of that training.")] = 1.0,
    steps: Annotated[int, typer.Option("--steps", help="Steps of that training.")] = 1,
    show_records: Annotated[
        bool, typer.Option("--show-records", help="Let the page show texts of your own records (--kind records).")
    ] = False,
    device: Annotated[str | None, typer.Option("--device", help="Where to run the models, e.g. cuda.")] = None,
    delta: Delta = 1e-5,
    confidence: Confidence = 0.95,
    html: Annotated[Path | None, typer.Option("--html", help="Also write the page here.")] = None,
    json: JsonFlag = False,
) -> None:
    """Audit a language model that was fine-tuned on the texts of a canary sheet.

    Models are read from folders on this machine, from .safetensors files only; nothing is fetched, and no text leaves
    the machine.

    Example:

        dosimeter audit-text tuned --sheet sheet.jsonl --base base --html page.html
    """
    from dosimeter.accounting import DpSgd
    from dosimeter.audits.text.files import load_model, load_tokenizer
    from dosimeter.audits.text.run import audit_canaries, read_sheet
    from dosimeter.cli._shared import show_audit

    found = read_sheet(sheet, expected_hash)
    coder = load_tokenizer(tokenizer or model, base)
    other = None if base is None else load_model(base)
    tuned = load_model(model, base)
    result = audit_canaries(
        tuned,
        coder,
        found,
        base=other,
        score=score,
        mechanism=None if noise_multiplier is None else DpSgd(noise_multiplier, sample_rate, steps),
        exposure=exposure,
        show_records=show_records,
        delta=delta,
        confidence=confidence,
        name=model.name,
        device=device,
    )
    if html is not None:
        result.to_html(html)
        note(f"written: {html}")
    if json:
        print_json(result.to_dict())
        return
    show_audit(result)
    _memorised(result.details)


def _memorised(details: object) -> None:
    from dosimeter.audits.text.memorised import how_tried, null_bits
    from dosimeter.audits.text.result import TextDetails

    assert isinstance(details, TextDetails)
    if (found := details.exposure) is not None:
        rows = [("model", found.target), ("base model", found.base)]
        table(
            f"Measured: mean exposure in bits (never seen: {null_bits(found.references):.2f}, at most {found.cap:.3g})",
            ["", "canaries in", "canaries out"],
            [(name, *(_bits(v) for v in (s.mean_inside, s.mean_outside))) for name, s in rows if s is not None],
        )
    if (got := details.extraction) is not None:
        table(
            f"Measured: secrets that the model writes ({got.inside} in, {got.outside} out)",
            ["how", "in", "out", "base, in", "base, out"],
            [
                (
                    how_tried(row),
                    *("–" if v is None else v for v in (row.inside, row.outside, row.base_inside, row.base_outside)),
                )
                for row in got.rows
            ],
        )
    out.print(f"score of the headline: {details.scores[0].name} ({details.scores[0].sentence})", markup=False)


def _bits(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
