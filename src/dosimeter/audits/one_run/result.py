"""What an audit with one training run says about itself, and what only it has to show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dosimeter._validate import InputError
from dosimeter.audits.parts import Count, Part
from dosimeter.audits.result import Details, TrainedMetadata
from dosimeter.audits.scores.result import Accuracy
from dosimeter.audits.training.result import CoinSeeds, IntervalRow

__all__ = ["DETAILS", "METADATA", "RECORDS_KNOWN", "GuessPath", "OneRunDetails", "OneRunMetadata", "OneRunUtility"]

RECORDS_KNOWN = "noisy gradients, records known"  # the attack of an adversary who subtracts the records' gradients


@dataclass(frozen=True)
class GuessPath(Part):
    """How many of the surest guesses were right, for some numbers of guesses."""

    guesses: tuple[Count, ...]
    correct: tuple[Count, ...]

    def __post_init__(self) -> None:
        if len(self.guesses) != len(self.correct) or any(
            not right <= made or made < 1 for made, right in zip(self.guesses, self.correct, strict=True)
        ):
            raise InputError("guesses: each number of guesses needs how many of them were right; write both.")


@dataclass(frozen=True)
class OneRunDetails(Details):
    """What an audit with one run shows: its intervals side by side, and its right guesses."""

    intervals: tuple[IntervalRow, ...] = ()
    guesses: GuessPath | None = None


@dataclass(frozen=True)
class OneRunUtility(Part):
    """The accuracy of the trained model."""

    runs: Accuracy | None = None


@dataclass(frozen=True, kw_only=True)
class OneRunMetadata(TrainedMetadata):
    """How the run was audited.

    `canaries` says what they were and `count` how many; `points` are their rows, persons, or coordinates of a gradient.
    `members` and `nonmembers` count coins; `mask_hash` is the hash of the coins, `fingerprint` that of the data.
    """

    recipe: Mapping[str, Any] | None = None
    attack: str | None = None
    shadows: Count | None = None
    canaries: str | None = None
    count: Count | None = None
    points: tuple[Count, ...] = ()
    utility: OneRunUtility | None = None
    seeds: CoinSeeds | None = None
    mask_hash: str | None = None
    fingerprint: str | None = None


DETAILS, METADATA = OneRunDetails, OneRunMetadata
