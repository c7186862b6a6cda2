"""What an audit of scores or of one trained model says about itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dosimeter.audits.parts import Count, Part, Positive, Rate
from dosimeter.audits.result import Details, TrainedMetadata

__all__ = [
    "DETAILS",
    "METADATA",
    "Accuracy",
    "AttackResult",
    "ErrorSize",
    "Fingerprints",
    "ReferenceStrength",
    "ScoresDetails",
    "ScoresMetadata",
]


@dataclass(frozen=True)
class Accuracy(Part):
    """The share of right answers on both sides; None where the outputs are not classes."""

    members: Rate | None
    nonmembers: Rate | None


@dataclass(frozen=True)
class ErrorSize(Part):
    """The root of the mean squared residual on both sides, where the model predicts numbers."""

    members: Positive
    nonmembers: Positive


@dataclass(frozen=True)
class Fingerprints(Part):
    """SHA-256 of the records of both sides."""

    members: str
    nonmembers: str


@dataclass(frozen=True)
class AttackResult(Part):
    """What one attack proves and finds on the audited model; each ε holds at the audit's confidence on its own."""

    attack: str
    epsilon: Positive | None
    neighbours: str | None
    auc: Rate
    tpr_at_1_percent: Rate
    tnr_at_1_percent: Rate
    headline: bool


@dataclass(frozen=True)
class ReferenceStrength(Part):
    """How strong an attack is on the reference models themselves: means over them, each attacked by the others."""

    attack: str
    epsilon: Positive
    auc: Rate
    tpr_at_1_percent: Rate
    tnr_at_1_percent: Rate
    chosen: bool


@dataclass(frozen=True)
class ScoresDetails(Details):
    """The attack of the headline beside the loss alone; with reference models, how it was chosen on them."""

    attacks: tuple[AttackResult, ...] = ()
    strength: tuple[ReferenceStrength, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ScoresMetadata(TrainedMetadata):
    """Scores alone fill the first three; the others tell of the model and its data.

    `queries` is how often a model that gives labels alone was asked about each record. `goodness_of_fit` says for each
    side how well a Gaussian mixture describes the losses (`GoodnessOfFit.to_dict`).
    """

    game: str | None = None
    attack: str | None = None
    references: Count | None = None
    from_loss: bool = False
    mask_hash: str | None = None
    task: str | None = None
    outputs: str | None = None
    queries: Count | None = None
    clipped: Count | None = None
    accuracy: Accuracy | None = None
    error: ErrorSize | None = None
    goodness_of_fit: Mapping[str, Mapping[str, Any]] | None = None
    fingerprint: Fingerprints | None = None


DETAILS, METADATA = ScoresDetails, ScoresMetadata
