"""The evidence that estimates carry in their details, as typed values.

`of` reads what a kind of evidence needs and ignores the rest of the details.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias, TypeVar

from annotated_types import Interval, MaxLen, MinLen
from pydantic import Field

from dosimeter._validate import InputError
from dosimeter.audits.parts import Part, Positive, Rate, Text
from dosimeter.audits.strict import checked
from dosimeter.audits.verify.finding import WrongError
from dosimeter.estimate import Estimate, plain
from dosimeter.evidence import MOST_RECORDS

__all__ = [
    "AdversaryEvidence",
    "AtThreshold",
    "BetEvidence",
    "BinEvidence",
    "ClaimEvidence",
    "CoinNotes",
    "FamilyEvidence",
    "FixedGuesses",
    "MembersOnlyNotes",
    "PanoramiaEvidence",
    "PathEvidence",
    "PropensityEvidence",
    "SensitivityEvidence",
    "Side",
    "Throws",
    "WorstPoint",
    "of",
    "read",
]

MOST_BINS = 4096
MOST_THROWS = 100_000

Records: TypeAlias = Annotated[int, Interval(ge=0, le=MOST_RECORDS)]
Column: TypeAlias = Annotated[tuple[Records, ...], MinLen(1), MaxLen(MOST_BINS)]
Steps: TypeAlias = Annotated[float, Interval(ge=1, le=10**6)]
Path: TypeAlias = Annotated[tuple[Records, ...], MaxLen(100_000)]

T = TypeVar("T", bound=Part)


@dataclass(frozen=True)
class BinCounts(Part):
    """How many records, and how many members among them, fall into each bin of ranks, the lowest scores first."""

    records: Column
    members: Column


@dataclass(frozen=True)
class Tested(Part):
    """How many records were tested at both ends of the ranking, and how many of them were members."""

    upper: int
    upper_members: int
    lower: int
    lower_members: int


@dataclass(frozen=True)
class BinEvidence(Part):
    """What the bound of a whole ranking rests on; the last four follow from bins and version."""

    bins: BinCounts
    game: Literal["coins", "split", "runs"]
    unit: Annotated[str, Field(pattern=r"^(record|person|[1-9][0-9]{0,3}-record group)$")]
    version: Annotated[int, Interval(ge=1, le=10**6)] = 1
    records: int | None = None
    tested: Tested | None = None
    learned: object = None
    allowance: object = None


@dataclass(frozen=True)
class PathEvidence(Part):
    """Right guesses at the checkpoints of walks down the ranking, by the order of guessing."""

    records: Records
    paths: Annotated[dict[str, Path], MinLen(1), MaxLen(8)]


@dataclass(frozen=True)
class AtThreshold(Part):
    """How the threshold of an estimate of error rates was chosen, and which ends of its interval were asked for."""

    threshold_rule: str = "fixed in advance"
    sides: Literal["lower", "both"] | None = None


@dataclass(frozen=True)
class WorstPoint(Part):
    """How many points share the level."""

    points: Records


@dataclass(frozen=True)
class FixedGuesses(Part):
    """Guesses about coins whose number was fixed in advance."""

    k_in: Records
    k_out: Records
    correct: Records
    records: Records
    term: str = "smaller"


@dataclass(frozen=True)
class FamilyEvidence(Part):
    """A mechanism that one run was tested against: noise, sampling rate and steps of its parts; guesses, if counted."""

    parts: Annotated[tuple[tuple[float, Rate, Steps], ...], MinLen(1), MaxLen(8)]
    records: Records
    independent: bool
    rejected: bool
    noise_scale: Positive | None = None
    looks: Annotated[tuple[tuple[Records, Records, Records], ...], MaxLen(100)] = ()


@dataclass(frozen=True)
class Corners(Part):
    """Right and wrong guesses where the bets were settled."""

    right: Path
    wrong: Path


@dataclass(frozen=True)
class BetEvidence(Part):
    """What bets down the ranking rest on."""

    corners: Corners
    guesses: Records
    correct: Records
    records: Records


@dataclass(frozen=True)
class MarkCounts(Part):
    """Numbers of runs, and for each what was won and lost by then: (wins/losses, in/out, τ)."""

    runs: Column
    counts: Annotated[tuple[tuple[tuple[Column, ...], ...], ...], MinLen(1), MaxLen(MOST_BINS)]


@dataclass(frozen=True)
class ClaimEvidence(Part):
    """What the test of a claim rests on; the first of the pairs (ε, δ) is the claim itself."""

    marks: MarkCounts
    runs: Records
    claimed_epsilon: Positive
    pairs: Annotated[tuple[tuple[Positive, Rate], ...], MinLen(1), MaxLen(MOST_BINS)]
    rejected: bool


@dataclass(frozen=True)
class Side(Part):
    """The guesses of one set of scores, or its walk."""

    guesses: Records
    correct: Records
    path: Path | None = None


@dataclass(frozen=True)
class Throws(Part):
    """Guesses made and right in each draw of the coins."""

    baseline: Annotated[tuple[tuple[Records, Records], ...], MinLen(1), MaxLen(MOST_THROWS)]
    attack: Annotated[tuple[tuple[Records, Records], ...], MinLen(1), MaxLen(MOST_THROWS)]


@dataclass(frozen=True)
class NullVerdict(Part):
    """What the target scored beside the reference models."""

    auc: float
    first_part: float


@dataclass(frozen=True)
class PanoramiaEvidence(Part):
    """What ε̃ rests on: the attack, the baseline if there is one, and the draws of the coins if there are several."""

    attack: Side | None = None
    baseline: Side | None = None
    selection: str | int | None = None
    records: Records = 0
    throw_counts: Throws | None = None
    c_lb: float | None = None
    c_plus_epsilon_lb: float | None = None
    stands_out: bool | None = None
    null_p_value: Rate | None = None
    verdict: NullVerdict | None = None
    target: str | None = None


Table: TypeAlias = Annotated[tuple[int, ...], MaxLen(10_000)]


@dataclass(frozen=True)
class PropensityEvidence(Part):
    """Guesses and right guesses by block of confidence and step of log-odds; what limits and slack cost."""

    table: tuple[Table, Table, Table, Table]
    records: Records
    spent: Rate = 0.0
    slack: Positive = 0.0


@dataclass(frozen=True)
class TargetNotes(Part):
    """What a members-only audit tells of one target."""

    name: str
    auc: float
    first_part: float


@dataclass(frozen=True)
class NullNotes(Part):
    """What the reference models of a members-only audit scored, and those that learnt from half as many records."""

    auc: Annotated[tuple[float, ...], MaxLen(MOST_THROWS)]
    first_part: Annotated[tuple[float, ...], MaxLen(MOST_THROWS)]
    smaller_auc: Annotated[tuple[float, ...], MaxLen(MOST_THROWS)] = ()
    smaller_first_part: Annotated[tuple[float, ...], MaxLen(MOST_THROWS)] = ()
    more: Positive = 0.0


@dataclass(frozen=True)
class MembersOnlyNotes(Part):
    """What a members-only audit's details say of its reference models and targets."""

    null: NullNotes | None = None
    targets: tuple[TargetNotes, ...] = ()


@dataclass(frozen=True)
class Ends(Part):
    """The smallest and the largest μ that the sensitivities of the runs give."""

    lowest: Positive
    highest: Positive | None


@dataclass(frozen=True)
class SensitivityEvidence(Part):
    """What the ε of measured sensitivities rests on."""

    accountant: str | None = None
    mu: Ends | None = None


@dataclass(frozen=True)
class AdvantageNotes(Part):
    """The advantage of an adversary as an estimate carries it; null is infinite."""

    value: float
    low: float
    high: float
    standard_error: float | None
    confidence: Annotated[float, Interval(gt=0.0, lt=1.0)]
    estimator: Literal["wins", "trajectory"]
    repetitions: Annotated[int, Interval(ge=1, le=MOST_RECORDS)]
    both_worlds: bool = True


@dataclass(frozen=True)
class AdversaryEvidence(Part):
    """What the ε of an adversary's advantage rests on."""

    advantage: AdvantageNotes
    conversion: Text


@dataclass(frozen=True)
class SeedOfCoins(Part):
    """The seed that coins were drawn from."""

    coins: Annotated[int, Interval(ge=0)] | None = None


@dataclass(frozen=True)
class CoinNotes(Part):
    """What the metadata of an audit tells of the coins that were drawn for it."""

    seeds: SeedOfCoins | None = None
    mask_hash: str | None = None


def of(kind: type[T], estimate: Estimate) -> T:
    """The evidence of an estimate as a kind of evidence; refused where it cannot be that."""
    return read(kind, plain(estimate.details), "its evidence")


def read(kind: type[T], values: object, what: str) -> T:
    """Values as a kind of evidence; refused where they cannot be that."""
    try:
        return checked(kind, values, what, "it cannot be evidence")
    except InputError as error:
        raise WrongError(str(error).removesuffix(".")) from None
