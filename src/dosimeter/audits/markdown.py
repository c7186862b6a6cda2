"""An audit as Markdown: for model cards, pull requests and the summaries of pipelines."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence

from dosimeter import _validate as check
from dosimeter._validate import InputError
from dosimeter.audits.notebook import rows
from dosimeter.audits.result import Audit
from dosimeter.estimate import percent

__all__ = ["markdown", "markdown_table", "model_card", "plain_text"]

_SPECIAL = str.maketrans({mark: f"\\{mark}" for mark in "\\`*_[]<>|#"})


def markdown(audit: Audit) -> str:
    """The check for a shift before any number, then the headline, every number, what it means, and how to check it."""
    headline, meta = audit.headline, audit.metadata
    name = meta.name or meta.model
    parts = [f"## Privacy audit{f': {plain_text(name)}' if name else ''}"]
    guard = plain_text(str(audit.guard))
    parts.append(f"**{guard}**" if audit.guard.shift else guard)
    parts.append(f"**{plain_text(headline.claim)}** Validity: {headline.validity}.")
    parts += [f"> {plain_text(warning)}" for warning in headline.warnings]
    if audit.region is not None:
        parts.append(plain_text(str(audit.region)))
    parts.append(f"### Every number, at δ = {headline.delta:g}")
    parts.append(_numbers(audit))
    if audit.curve is not None and audit.curve.tpr_at_fpr:
        sure = percent(headline.confidence)
        parts.append(f"Measured by this attack: AUC {audit.curve.auc:.4f}.")
        points = [(_share(p.fpr), _share(p.tpr), _share(p.limit)) for p in audit.curve.tpr_at_fpr]
        parts.append(markdown_table(["FPR", "TPR measured", f"true TPR at least ({sure} each)"], points))
    if audit.risk.words:
        parts += ["### What it means for a person", "\n".join(f"- {plain_text(line)}" for line in audit.risk.words)]
    parts.append(_limits(audit))
    return "\n\n".join(parts) + "\n"


def _numbers(audit: Audit) -> str:
    numbers = rows(audit)
    columns = ["method", "ε", "whose ε", "validity"]
    return markdown_table(columns, [(row.method, row.value, row.whose, row.validity) for row in numbers])


def _limits(audit: Audit) -> str:
    version = f" Made by dosimeter {audit.metadata.version}." if audit.metadata.version else ""
    return (
        "A lower bound near 0 is not evidence of privacy: the attack may be weak, or the records few. Only a guarantee "
        f"says that ε is at most something.{version} `dosimeter verify audit.json` recomputes every bound."
    )


def _share(value: float | None) -> str:
    return "no limit" if value is None else f"{100 * value:.3g} %"


def markdown_table(columns: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table whose cells are escaped."""
    shown = [[plain_text(cell) for cell in line] for line in (columns, *lines)]
    shown.insert(1, ["---"] * len(columns))
    return "\n".join(f"| {' | '.join(line)} |" for line in shown)


def plain_text(text: object) -> str:
    """A text that Markdown shows as it is, on one line."""
    return " ".join(str(text).split()).translate(_SPECIAL)


def model_card(audit: Audit, model: str, dataset: str, task: str) -> str:
    """The audit with the metadata of a Hugging Face model card in front of it."""
    name, data, kind = _named("model", model), _named("dataset", dataset), _named("task", task)
    index = [
        {
            "name": name,
            "results": [
                {
                    "task": {"type": kind},
                    "dataset": {
                        "type": "".join(mark if mark.isalnum() else "_" for mark in data.lower()),
                        "name": data,
                    },
                    "metrics": list(_metrics(audit)),
                }
            ],
        }
    ]
    # JSON is YAML, so no text in it can break out of its place.
    head = ["---", "tags:", "- privacy-audit", f"model-index: {json.dumps(index, ensure_ascii=False)}", "---"]
    return "\n".join(head) + "\n\n" + markdown(audit)


def _named(argument: str, value: str) -> str:
    if not check.text(argument, value).strip():
        raise InputError(f"{argument} is empty; pass a name.")
    return value


def _metrics(audit: Audit) -> Iterable[Mapping[str, object]]:
    """Each finite number, with whose ε it is and what stands behind it in its name."""
    for row in rows(audit):
        value = row.high if row.kind == "guarantee" else row.epsilon
        if math.isfinite(value):
            side = {True: "at most" if row.kind == "guarantee" else "at least", False: "about"}[row.is_bound]
            text = f"ε {side}, {row.whose}, δ = {row.delta:g}, {row.method} ({row.validity})"
            yield {"type": f"epsilon_{row.slug}", "value": value, "name": text}
    if audit.curve is not None:
        yield {"type": "membership_auc", "value": audit.curve.auc, "name": "AUC of the membership attack, measured"}
