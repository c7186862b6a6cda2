"""The words that a page explains where they stand, with the definitions of docs/glossary.md."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["TERMS", "Term"]


@dataclass(frozen=True)
class Term:
    """A word, what it means, and how it is written in sentences."""

    word: str
    meaning: str
    forms: tuple[str, ...]


_ROWS: tuple[tuple[str, str, str], ...] = (
    (
        "privacy loss, ε",
        "exchanging a training set for its neighbour makes no output likelier than by the factor e^ε, except with a "
        "probability δ",
        "privacy loss|ε",
    ),
    ("δ", "the small probability with which the factor e^ε may be exceeded", "δ"),
    ("confidence", "how often the method is right: at 95 %, at most 1 of 20 such audits states too much", "confidence"),
    (
        "bound",
        "an estimate that holds with the stated confidence: ε is at least this (lower) or at most this (upper)",
        "bounds|bound",
    ),
    ("guarantee", "an upper bound on ε that an accountant proves for all data", "guarantees|guarantee"),
    ("accountant", "a method that computes a guarantee from the noise of a training", "accountants|accountant"),
    (
        "measurement",
        "an estimate that was observed and bounds nothing, such as ε̃ of PANORAMIA",
        "measurement",
    ),
    ("validity", "what stands behind an estimate, one of a closed list", "validity"),
    (
        "unit",
        "what one coin and one score belong to: a record, or with groups= a person with all their records",
        "unit of privacy|unit",
    ),
    ("member", "a record that the model was trained on", "members|member"),
    (
        "non-member",
        "a record that the model was not trained on; a held-out one is of the same kind as the members",
        "non-members|non-member",
    ),
    (
        "neighbours",
        "two training sets that differ in one unit: one set has it and the other does not (add/remove), or it is "
        "exchanged for another (replace)",
        "neighbours|replacing one record|replacing one person|adding or removing one record|"
        "adding or removing one person",
    ),
    (
        "coin",
        "a random bit, in or out with probability ½ each, drawn for a unit before training and independent of "
        "everything else (fair_coins)",
        "fair coins|fair coin|coins|coin",
    ),
    (
        "canary",
        "a unit that a coin put into the training set or left out, so that the audit can guess its coin; it may be "
        "crafted",
        "canaries|canary",
    ),
    ("attack", "a rule that turns outputs of a model into scores", "attack"),
    ("score", "a number for a unit, higher for a likelier member; minus the loss is one", "scores|score"),
    ("shift", "a difference between members and non-members that shows without the model", "shift"),
    ("guard", "the check for a shift, made before any number", "guard|shift check"),
    (
        "false-positive rate",
        "the share of non-members that an attack takes for members (FPR, false alarms)",
        "false-positive rate|false alarms|FPR",
    ),
    ("true-positive rate", "the share of members that an attack finds (TPR)", "true-positive rate|TPR"),
    ("AUC", "the chance that a random member scores above a random non-member; ½ is guessing", "AUC"),
    ("headline", "the first estimate of an audit: the one to report", "headline"),
    ("ceiling", 'about what a perfect attack on as many units would prove (details["largest_provable"])', "ceiling"),
    (
        "reference model",
        "a model trained for comparison with the target; what it was trained on is known and does not depend on the "
        "target's coins",
        "reference models|reference model",
    ),
    (
        "shadow model",
        "a reference model of audit_training, trained like the target on a random half of the data",
        "shadow models|shadow model",
    ),
    (
        "Epsilon*",
        "the ε that a model's error rates force, as measured on its losses: it describes one trained model and bounds "
        "nothing",
        "Epsilon*",
    ),
    (
        "random split",
        "chance alone decided which records of one population are members, in fixed numbers",
        "random split",
    ),
    ("independent runs", "every score comes from its own training", "independent runs"),
    (
        "exploratory",
        "a validity: something that the method needs is missing, so the number may suggest something and proves "
        "nothing",
        "exploratory",
    ),
    ("undecided", "what a gate says when the audit could not have broken the limit", "undecided"),
    (
        "baseline",
        "in audit_members_only, the attack without the target: a reference model takes its place",
        "baseline",
    ),
    (
        "stands out",
        "in audit_members_only, the attack does better with the target than a limit that the reference models set",
        "stands out|stand out",
    ),
)

TERMS = {word: Term(word, meaning, tuple(forms.split("|"))) for word, meaning, forms in _ROWS}
