"""`dosimeter gate`: an exit code for a release pipeline."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dosimeter.cli._shared import JsonFlag, out, print_json
from dosimeter.cli.verify import AUDIT_HELP, DATA_HELP, read_data

if TYPE_CHECKING:
    from dosimeter.audits.gate import Verdict

OPTIONS = {
    "max_epsilon": "--max-epsilon",
    "max_delta": "--max-delta",
    "min_confidence": "--min-confidence",
    "max_tpr_at_fpr": "--max-tpr-at-fpr",
    "require_neighbours": "--require-neighbours",
    "require_no_shift": "--require-no-shift",
}


def gate(
    file: Annotated[Path, typer.Argument(help=AUDIT_HELP)],
    max_epsilon: Annotated[
        float | None, typer.Option("--max-epsilon", help="Fail if more than this ε is proven.")
    ] = None,
    max_delta: Annotated[float, typer.Option("--max-delta", help="Fail if the ε stands at a larger δ.")] = 1e-3,
    min_confidence: Annotated[
        float | None, typer.Option("--min-confidence", help="Fail if the headline has less confidence, e.g. 0.95.")
    ] = None,
    max_tpr_at_fpr: Annotated[
        list[str] | None,
        typer.Option(
            "--max-tpr-at-fpr",
            help="FPR=TPR, e.g. 0.01=0.05; may be repeated, for one FPR the strictest counts.",
            show_default=False,
        ),
    ] = None,
    require_neighbours: Annotated[
        str | None,
        typer.Option("--require-neighbours", help="Whose ε is limited: add/remove or replace."),
    ] = None,
    require_no_shift: Annotated[
        bool,
        typer.Option(
            "--require-no-shift", help="Deprecated: a shift fails anyway. Fails also if nobody looked for one."
        ),
    ] = False,
    allow_shift: Annotated[bool, typer.Option("--allow-shift", help="Let a shift that was found through.")] = False,
    allow_undecided: Annotated[
        bool, typer.Option("--allow-undecided", help="Let an audit through that could not have failed.")
    ] = False,
    allow_failed: Annotated[
        bool, typer.Option("--allow-failed", help="Let an audit with failed trainings through.")
    ] = False,
    allow_unverified: Annotated[
        bool, typer.Option("--allow-unverified", help="Let an audit through whose headline carries no evidence.")
    ] = False,
    data: Annotated[Path | None, typer.Option("--data", help=DATA_HELP)] = None,
    public_key: Annotated[
        Path | None,
        typer.Option("--public-key", help="Who must have signed the audit: an Ed25519 key in PEM."),
    ] = None,
    signature: Annotated[
        Path | None, typer.Option("--signature", help="The signature, if it is not beside the audit as FILE.sig.")
    ] = None,
    junit: Annotated[Path | None, typer.Option("--junit", help="Also write the verdicts as JUnit XML.")] = None,
    markdown: Annotated[
        Path | None, typer.Option("--markdown", help="Also write the verdicts as a Markdown table.")
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Verify an audit and check it against limits: one line for each rule.

    Exit code 0: every rule is kept. 1: one is broken or undecided. 2: this is not a valid audit.

    Example: fail a release whose model proves more than ε = 2

        dosimeter audit scores.npz --json > audit.json

        dosimeter gate audit.json --max-epsilon 2 --max-tpr-at-fpr 0.01=0.05
    """
    import warnings

    from dosimeter._validate import InputError
    from dosimeter.audits.gate import gate as check
    from dosimeter.audits.gate import junit as to_junit
    from dosimeter.audits.gate import markdown as to_markdown
    from dosimeter.audits.gate import passed
    from dosimeter.audits.result import Audit
    from dosimeter.reading import read_text, writing

    text = read_text(file)
    audit = Audit.from_json(text)
    limits: dict[str, Any] = {
        "max_epsilon": max_epsilon,
        "max_delta": max_delta,
        "min_confidence": min_confidence,
        "max_tpr_at_fpr": _pairs(max_tpr_at_fpr or []),
        "require_neighbours": require_neighbours,
        "require_no_shift": require_no_shift,
    }
    signed = _signature(text, file, public_key, signature)
    evidence = None if data is None else read_data(data, audit)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            verdicts = check(
                audit,
                **limits,
                allow_shift=allow_shift,
                allow_undecided=allow_undecided,
                allow_failed=allow_failed,
                allow_unverified=allow_unverified,
                data=evidence,
            )
    except InputError as error:
        raise InputError(_as_options(str(error))) from None
    verdicts.append(signed)
    if require_no_shift:
        from dosimeter.cli._shared import err

        err.print(
            "note: --require-no-shift is deprecated: a shift fails anyway, it only asks that somebody looked for one",
            markup=False,
            soft_wrap=True,
        )
    if junit is not None:
        with writing(junit):
            junit.write_text(to_junit(verdicts), encoding="utf-8")
    if markdown is not None:
        with writing(markdown):
            markdown.write_text(to_markdown(verdicts, name=file.name), encoding="utf-8")
    if json:
        print_json(
            [{"rule": v.rule, "outcome": str(v.outcome), "passed": v.passed, "reason": v.reason} for v in verdicts]
        )
    else:
        for verdict in verdicts:
            out.print(str(verdict), markup=False, soft_wrap=True)
    raise typer.Exit(0 if passed(verdicts) else 1)


def _signature(text: str, file: Path, public_key: Path | None, signature: Path | None) -> Verdict:
    """Who made the file: checked where a key is given, else said to be unknown."""
    from dosimeter._validate import InputError
    from dosimeter.audits.gate import Outcome, Verdict
    from dosimeter.audits.sign import ENDING, check_signature, read_signature

    beside = signature or file.with_name(file.name + ENDING)
    if public_key is None:
        if signature is not None:
            raise InputError("--signature needs the key that it was made with; pass --public-key too.")
        there = f"{beside.name} was not checked, pass --public-key" if beside.exists() else "it is not signed"
        return Verdict("signature", Outcome.NOTE, f"nothing proves who made this file: {there}")
    if not beside.is_file():
        raise InputError(f"{file} is not signed: there is no {beside.name}; sign it with `dosimeter sign`.")
    check_signature(text, read_signature(beside), public_key)
    return Verdict("signature", Outcome.PASS, f"the holder of {public_key.name} signed these values")


def _as_options(message: str) -> str:
    """A message of the Python function in the words of the command line."""
    for name, option in OPTIONS.items():
        message = message.replace(name, option)
    return message.replace("{0.01: 0.05}", "0.01=0.05").replace("{FPR: TPR}, e.g. ", "FPR=TPR, e.g. ")


def _pairs(texts: list[str]) -> dict[float, float]:
    """FPR=TPR pairs; of several for one FPR the strictest."""
    from dosimeter._validate import InputError

    pairs: dict[float, float] = {}
    for text in texts:
        left, _, right = text.partition("=")
        try:
            fpr, tpr = float(left), float(right)
        except ValueError:
            raise InputError(f"--max-tpr-at-fpr must be FPR=TPR, got {text!r}; pass e.g. 0.01=0.05.") from None
        if not (0 <= fpr <= 1 and 0 <= tpr <= 1):
            raise InputError(f"--max-tpr-at-fpr must be two shares in [0, 1], got {text!r}; pass e.g. 0.01=0.05.")
        pairs[fpr] = min(tpr, pairs.get(fpr, 1.0))
    return pairs
