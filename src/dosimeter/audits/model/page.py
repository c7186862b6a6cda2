"""What only an audit of a model has to show: how it was asked, what references bought, how the attack was chosen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from dosimeter.audits.page import facts
from dosimeter.audits.result import Audit
from dosimeter.audits.scores.result import ScoresDetails, ScoresMetadata
from dosimeter.estimate import percent
from dosimeter.report.markup import paragraph, section, table
from dosimeter.report.text import epsilon, share, whose

if TYPE_CHECKING:
    from dosimeter.report.canvas import Canvas, Spec
    from dosimeter.report.shell import Pictures

CHARTS: Mapping[str, Callable[[Canvas, Audit], Spec | None]] = {}


def sections(audit: Audit, pictures: Pictures) -> list[str]:
    """How the model was asked, where it did not give scores of classes; attacks side by side, with references."""
    details, meta = audit.details, audit.metadata
    if not isinstance(details, ScoresDetails) or not isinstance(meta, ScoresMetadata):
        return []
    asked = _asked(meta)
    found: list[str] = [section("asked", "How the model was asked", paragraph(asked))] if asked else []
    return [*found, _references(audit, details, meta)] if details.attacks else found


def _asked(meta: ScoresMetadata) -> str:
    """What the attack saw, for models that do not give scores of classes; "" for others."""
    if meta.task == "regression":
        off = ""
        if meta.error is not None:
            off = (
                f" Its predictions are off by {meta.error.members:.4g} on members and {meta.error.nonmembers:.4g} on "
                "non-members (root mean square)."
            )
        return (
            f"The model predicts numbers.{off} The attack sees how far each prediction is from the truth, in units of "
            "what is usual where predictions are alike; members and non-members decide together what is usual."
        )
    right = meta.accuracy
    rates = ""
    if right is not None and right.members is not None and right.nonmembers is not None:
        rates = f" {share(right.members)} of the members and {share(right.nonmembers)} of the non-members are right."
    if meta.queries is not None:
        return (
            f"The model gave labels alone, {meta.queries} for each record: for the record itself and for copies that "
            f"were perturbed at random. The attack sees which of these answers are right.{rates}"
        )
    if meta.task == "multi-label":
        return (
            "The model gives several labels at once, and the attack sees how likely all true labels together are."
            f"{rates.replace(' are right', ' have all labels right')}"
        )
    return ""


def _references(audit: Audit, details: ScoresDetails, meta: ScoresMetadata) -> str:
    """Attacks side by side, for an audit that had reference models."""
    body = paragraph(
        f"The attack compares this model with {meta.references} reference models. None of them was told which records "
        "this model was trained on, so the comparison does not weaken the bound."
    )
    body += table(
        f"The same model attacked with and without references. Each ε is proven "
        f"{whose(details.attacks[0].neighbours, facts.unit(audit))}, with "
        f"{percent(audit.headline.confidence)} confidence on its own.",
        ("attack", "ε at least", "AUC", "members found at 1 % false alarms", "non-members found at 1 % misses"),
        [
            (
                f"{row.attack} (headline)" if row.headline else row.attack,
                epsilon(row.epsilon),
                f"{row.auc:.3g}",
                share(row.tpr_at_1_percent),
                share(row.tnr_at_1_percent),
            )
            for row in details.attacks
        ],
        numeric=range(1, 5),
    )
    if details.strength:
        body += paragraph(
            "Which attack to make was decided on the reference models alone, whose own records are known: each was "
            "attacked with the help of the others."
        )
        body += table(
            "How strong each attack is on the reference models, on average",
            ("attack", "ε at least", "AUC", "members found at 1 % false alarms", "taken"),
            [
                (row.attack, epsilon(row.epsilon), f"{row.auc:.3g}", share(row.tpr_at_1_percent), _taken(row.chosen))
                for row in details.strength
            ],
            numeric=range(1, 4),
        )
    return section("references", "What the reference models bought", body)


def _taken(chosen: bool) -> str:
    return "yes" if chosen else "no"
