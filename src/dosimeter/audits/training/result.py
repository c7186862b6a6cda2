"""What an audit of a training says about itself, and what only it has to show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dosimeter.audits.parts import Count, Numbers, Part, Positive
from dosimeter.audits.result import Details, TrainedMetadata
from dosimeter.audits.scores.result import Accuracy
from dosimeter.estimate import Validity

__all__ = [
    "DETAILS",
    "METADATA",
    "CandidateRow",
    "CoinSeeds",
    "IntervalRow",
    "JointAgainstExact",
    "PointRow",
    "TestedClaim",
    "TrainingDetails",
    "TrainingMetadata",
    "TrainingUtility",
]


@dataclass(frozen=True)
class IntervalRow(Part):
    """The interval of one method, None for an end at infinity."""

    method: str
    low: Positive | None
    high: Positive | None
    validity: Validity
    delta: float


@dataclass(frozen=True)
class JointAgainstExact(Part):
    """The interval of the joint posterior beside Clopper–Pearson's.

    `narrower` is the share by which the joint one is narrower; None where a width is infinite. `caveat` says what the
    narrower interval costs.
    """

    joint: Numbers
    exact: Numbers
    joint_width: float | None
    exact_width: float | None
    narrower: float | None
    caveat: str


@dataclass(frozen=True)
class PointRow(Part):
    """One challenged point: how exposed it was in the shadow models, and the attack's counts at the threshold.

    `epsilon` is a bound that all points keep together; None in an audit that a claim stopped. `substitute` is the
    record that is in where this one is not, in the replace-one game.
    """

    record: Count
    label: str
    weight: float | None
    tp: Count
    fn: Count
    fp: Count
    tn: Count
    advantage: float | None
    epsilon: Positive | None
    substitute: Count | None = None


@dataclass(frozen=True)
class CandidateRow(Part):
    """A record that could be challenged, and how well shadow models with and without it were told apart."""

    record: Count
    weight: float
    chosen: bool


@dataclass(frozen=True)
class TestedClaim(Part):
    """A claimed guarantee and its test: the logarithm of the wealth after each run, and the one that rejects.

    `budget` is the largest number of runs, `rejected_at` the run that rejected the claim.
    """

    __test__ = False  # pytest must not take it for a test

    epsilon: Positive
    delta: float
    rejected: bool
    rejected_at: Count | None
    budget: Count
    log_wealth: Numbers
    needed_log_wealth: float


@dataclass(frozen=True)
class TrainingDetails(Details):
    """What an audit of a training shows: its intervals side by side, its points, and a claim that it tested."""

    intervals: tuple[IntervalRow, ...] = ()
    joint: JointAgainstExact | None = None
    points: tuple[PointRow, ...] = ()
    candidates: tuple[CandidateRow, ...] = ()
    claim: TestedClaim | None = None


@dataclass(frozen=True)
class TrainingUtility(Part):
    """The accuracy of the shadow models and of the runs, as means over models."""

    shadows: Accuracy | None = None
    runs: Accuracy | None = None


@dataclass(frozen=True)
class CoinSeeds(Part):
    """The seeds of the shadow models' memberships and of the coins; None where there were none."""

    masks: int | None = None
    coins: int | None = None


@dataclass(frozen=True, kw_only=True)
class TrainingMetadata(TrainedMetadata):
    """How the training was audited.

    `members` and `nonmembers` count coins; `points` are rows of the data, or persons; `select` is "given" where the
    caller named the points; `mask_hash` is the hash of the coins, `fingerprint` that of the data.
    """

    recipe: Mapping[str, Any] | None = None
    game: str | None = None
    attack: str | None = None
    shadows: Count | None = None
    runs: Count | None = None
    points: tuple[Count, ...] = ()
    select: str | None = None
    canaries: str | None = None
    utility: TrainingUtility | None = None
    seeds: CoinSeeds | None = None
    mask_hash: str | None = None
    fingerprint: str | None = None


DETAILS, METADATA = TrainingDetails, TrainingMetadata
