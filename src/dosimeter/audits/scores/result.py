"""What an audit of scores or of one trained model records of itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dosimeter.audits.part import Count, Part, Rate
from dosimeter.audits.result import Details, Metadata

__all__ = ["DETAILS", "METADATA", "Accuracy", "Fingerprints", "ScoresMetadata"]


@dataclass(frozen=True)
class Accuracy(Part):
    """The share of right answers on both sides; None where the outputs are not classes."""

    members: Rate | None
    nonmembers: Rate | None


@dataclass(frozen=True)
class Fingerprints(Part):
    """SHA-256 of the records of both sides."""

    members: str
    nonmembers: str


@dataclass(frozen=True, kw_only=True)
class ScoresMetadata(Metadata):
    """Scores alone fill the first three; the others tell of the model and its data.

    `goodness_of_fit` says for each side how well a Gaussian mixture describes the losses (`GoodnessOfFit.to_dict`).
    """

    game: str | None = None
    from_loss: bool = False
    mask_hash: str | None = None
    outputs: str | None = None
    clipped: Count | None = None
    accuracy: Accuracy | None = None
    goodness_of_fit: Mapping[str, Mapping[str, Any]] | None = None
    fingerprint: Fingerprints | None = None


DETAILS, METADATA = Details, ScoresMetadata
