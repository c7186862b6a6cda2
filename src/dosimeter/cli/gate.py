"""`dosimeter gate`: an exit code for a release pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dosimeter.cli._shared import JsonFlag, err, out, print_json
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
DEPRECATED = (
    "note: --require-no-shift is deprecated: a shift fails anyway; the option only requires that the check was made"
)


MaxEpsilon = Annotated[float | None, typer.Option("--max-epsilon", help="Fail if more than this ε is proven.")]
MaxDelta = Annotated[float, typer.Option("--max-delta", help="Fail if the ε is stated at a larger δ.")]
MinConfidence = Annotated[
    float | None, typer.Option("--min-confidence", help="Fail if the headline has less confidence, e.g. 0.95.")
]
MaxTpr = Annotated[
    list[str] | None,
    typer.Option(
        "--max-tpr-at-fpr",
        help="FPR=TPR, e.g. 0.01=0.05; may be repeated, for one FPR the strictest counts.",
        show_default=False,
    ),
]
Neighbours = Annotated[
    str | None, typer.Option("--require-neighbours", help="Whose ε is limited: add/remove or replace.")
]
NoShift = Annotated[
    bool,
    typer.Option("--require-no-shift", help="Deprecated: a shift fails anyway. Fails also if the check was not made."),
]
AllowShift = Annotated[bool, typer.Option("--allow-shift", help="Let an audit through although a shift was found.")]
AllowUndecided = Annotated[
    bool, typer.Option("--allow-undecided", help="Let an audit through that could not have failed.")
]
AllowFailed = Annotated[bool, typer.Option("--allow-failed", help="Let an audit with failed trainings through.")]
AllowUnverified = Annotated[
    bool, typer.Option("--allow-unverified", help="Let an audit through whose headline carries no evidence.")
]
DataFile = Annotated[Path | None, typer.Option("--data", help=DATA_HELP)]
PublicKey = Annotated[
    Path | None, typer.Option("--public-key", help="Who must have signed the audit: an Ed25519 key in PEM.")
]
SignatureFile = Annotated[
    Path | None, typer.Option("--signature", help="The signature, if it is not beside the audit as FILE.sig.")
]
JunitFile = Annotated[Path | None, typer.Option("--junit", help="Also write the verdicts as JUnit XML.")]
MarkdownFile = Annotated[Path | None, typer.Option("--markdown", help="Also write the verdicts as a Markdown table.")]


def gate(
    file: Annotated[Path, typer.Argument(help=AUDIT_HELP)],
    max_epsilon: MaxEpsilon = None,
    max_delta: MaxDelta = 1e-3,
    min_confidence: MinConfidence = None,
    max_tpr_at_fpr: MaxTpr = None,
    require_neighbours: Neighbours = None,
    require_no_shift: NoShift = False,
    allow_shift: AllowShift = False,
    allow_undecided: AllowUndecided = False,
    allow_failed: AllowFailed = False,
    allow_unverified: AllowUnverified = False,
    data: DataFile = None,
    public_key: PublicKey = None,
    signature: SignatureFile = None,
    junit: JunitFile = None,
    markdown: MarkdownFile = None,
    json: JsonFlag = False,
) -> None:
    """Verify an audit and check it against limits: one line for each rule.

    Exit code 0: every rule is kept. 1: one is broken or undecided. 2: this is not a valid audit.

    Example: fail a release whose model proves more than ε = 2

        dosimeter audit scores.npz --json > audit.json

        dosimeter gate audit.json --max-epsilon 2 --max-tpr-at-fpr 0.01=0.05
    """
    import warnings

    from dosimeter.audits.gate import gate as check
    from dosimeter.audits.gate import passed
    from dosimeter.audits.result import Audit
    from dosimeter.reading import read_text

    text = read_text(file)
    audit = Audit.from_json(text)
    signed = _signature(text, file, public_key, signature)
    evidence = None if data is None else read_data(data, audit)
    with in_options(), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        verdicts = check(
            audit,
            max_epsilon=max_epsilon,
            max_delta=max_delta,
            min_confidence=min_confidence,
            max_tpr_at_fpr=_pairs(max_tpr_at_fpr or []),
            require_neighbours=require_neighbours,
            require_no_shift=require_no_shift,
            allow_shift=allow_shift,
            allow_undecided=allow_undecided,
            allow_failed=allow_failed,
            allow_unverified=allow_unverified,
            data=evidence,
        )
    verdicts.append(signed)
    if require_no_shift:
        err.print(DEPRECATED, markup=False, soft_wrap=True)
    _write(verdicts, file.name, junit, markdown)
    _print(verdicts, json=json)
    raise typer.Exit(0 if passed(verdicts) else 1)


def _write(verdicts: list[Verdict], name: str, junit: Path | None, markdown: Path | None) -> None:
    """The verdicts in the files that a pipeline asked for."""
    from dosimeter._files import naming
    from dosimeter.audits.gate import junit as to_junit
    from dosimeter.audits.gate import markdown as to_markdown

    if junit is not None:
        with naming(junit):
            junit.write_text(to_junit(verdicts), encoding="utf-8")
    if markdown is not None:
        with naming(markdown):
            markdown.write_text(to_markdown(verdicts, name=name), encoding="utf-8")


def _print(verdicts: list[Verdict], *, json: bool) -> None:
    if json:
        print_json(
            [{"rule": v.rule, "outcome": str(v.outcome), "passed": v.passed, "reason": v.reason} for v in verdicts]
        )
        return
    for verdict in verdicts:
        out.print(str(verdict), markup=False, soft_wrap=True)


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


@contextmanager
def in_options() -> Iterator[None]:
    """Say a refusal of the Python function in the words of the command line."""
    from dosimeter._validate import InputError

    try:
        yield
    except InputError as error:
        message = str(error)
        for name, option in OPTIONS.items():
            message = message.replace(name, option)
        message = message.replace("{0.01: 0.05}", "0.01=0.05").replace("{FPR: TPR}, e.g. ", "FPR=TPR, e.g. ")
        raise InputError(message) from None


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
