"""What only an audit of a model has to show: how it was asked, what references or calibration gained."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from dosimeter.audits.page import facts
from dosimeter.audits.page.facts import Step
from dosimeter.audits.result import Audit
from dosimeter.audits.scores.result import ScoresDetails, ScoresMetadata
from dosimeter.estimate import Estimate, percent
from dosimeter.report.markup import bullets, epsilon, paragraph, section, share, table, whose

if TYPE_CHECKING:
    from dosimeter.report.canvas import Canvas, Spec
    from dosimeter.report.markup import Pictures

CHARTS: Mapping[str, Callable[[Canvas, Audit], Spec | None]] = {}


def sections(audit: Audit, pictures: Pictures) -> list[str]:
    """How the model was asked, where it did not give scores of classes; the attack beside the loss alone."""
    details, meta = audit.details, audit.metadata
    if not isinstance(details, ScoresDetails) or not isinstance(meta, ScoresMetadata):
        return []
    asked = _asked(meta)
    parts: list[str] = [section("asked", "How the model was asked", paragraph(asked))] if asked else []
    parts += [_despite(estimate) for estimate in audit.estimates if estimate.method == "propensity"]
    if not details.attacks:
        return parts
    return [*parts, _calibrated(audit, details) if meta.references is None else _references(audit, details, meta)]


def steps(audit: Audit) -> list[Step]:
    """What would make this audit stronger: reference models, more records, persons instead of records."""
    meta, unit = audit.metadata, facts.unit(audit)
    advice = []
    if isinstance(meta, ScoresMetadata) and not meta.references:
        advice.append(
            Step(
                "Compare with reference models",
                "An attack that knows how models answer without a record finds more, and the comparison does not "
                "weaken the bound.",
                "dosimeter.audit_model(model, …, train=train, references=16)",
            )
        )
    if (more := facts.more_step(audit, f"Audit more {unit}s", f"{unit}s")) is not None:
        advice.append(more)
    if unit == "record":
        advice.append(
            Step(
                "Audit persons, if a person has several records",
                "Then the loss of a person may be larger than that of a record.",
                "dosimeter.audit_model(model, …, groups=persons)",
            )
        )
    return advice


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


def _despite(estimate: Estimate) -> str:
    """What can be said although members and non-members differ."""
    body = paragraph(
        "Members and non-members differ without the model, so the headline may be the difference and not the model. "
        "Classifiers that never saw the model say how likely each record is a member. With these chances the guesses "
        "about pairs of a member and a non-member give a bound of their own."
    )
    return section(
        "despite", "What can be said despite the shift", body + paragraph(estimate.claim) + bullets(estimate.warnings)
    )


def _calibrated(audit: Audit, details: ScoresDetails) -> str:
    """The loss with and without calibration, for an audit of the model alone."""
    body = paragraph(
        "Some records are hard for every model, and a high loss on them says little. So the attack weighs the loss of "
        "a record with how far it is from that of similar records. What is usual was learned from all records without "
        "telling members from others, and this attack was fixed beforehand, so neither weakens the bound."
    )
    body += _side_by_side(audit, details, "The same model attacked with and without calibration.")
    return section("calibration", "What calibration bought", body)


def _references(audit: Audit, details: ScoresDetails, meta: ScoresMetadata) -> str:
    """Attacks side by side, for an audit that had reference models."""
    body = paragraph(
        f"The attack compares this model with {meta.references} reference models. None of them was told which records "
        "this model was trained on, so the comparison does not weaken the bound."
    )
    body += _side_by_side(audit, details, "The same model attacked with and without references.")
    if details.strength:
        body += paragraph(
            "Which attack to make was decided on the reference models alone, whose own records are known: each was "
            "attacked with the help of the others."
        )
        body += table(
            "How strong each attack is on the reference models, on average",
            (*COLUMNS, "taken"),
            [
                (
                    row.attack,
                    epsilon(row.epsilon),
                    f"{row.auc:.3g}",
                    share(row.tpr_at_1_percent),
                    share(row.tnr_at_1_percent),
                    "yes" if row.chosen else "no",
                )
                for row in details.strength
            ],
            numeric=range(1, 5),
        )
    return section("references", "What the reference models bought", body)


COLUMNS = ("attack", "ε at least", "AUC", "members found at 1 % false alarms", "non-members found at 1 % misses")


def _side_by_side(audit: Audit, details: ScoresDetails, title: str) -> str:
    return table(
        f"{title} Each ε is proven {whose(details.attacks[0].neighbours, facts.unit(audit))}, with "
        f"{percent(audit.headline.confidence)} confidence on its own.",
        COLUMNS,
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
