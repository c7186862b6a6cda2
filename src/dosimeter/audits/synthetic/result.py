"""What an audit of a synthetic data set records of itself, and what only it has to show."""

from __future__ import annotations

from dataclasses import dataclass

from dosimeter.audits.parts import Count, Part, Positive, Rate, Text
from dosimeter.audits.result import Details, TrainedMetadata
from dosimeter.audits.scores.result import AttackResult
from dosimeter.audits.training.result import CoinSeeds

__all__ = [
    "DETAILS",
    "METADATA",
    "CopyCounts",
    "Criterion",
    "Disclosure",
    "PublishedRows",
    "SyntheticDetails",
    "SyntheticMetadata",
    "TrainedOn",
    "UtilityReport",
]


@dataclass(frozen=True)
class PublishedRows(Part):
    """How many rows were published, from how many members, and how many of these had a coin.

    `perfect` is about the ε that a perfect attack on as many units would have proven.
    """

    rows: Count
    members: Count
    audited: Count
    always_in: Count
    perfect: Positive

    @property
    def per_member(self) -> float:
        """How many rows were published for each member."""
        return self.rows / max(self.members, 1)


@dataclass(frozen=True)
class CopyCounts(Part):
    """Published rows that equal a record, or nearly; those of records that were never in are the control.

    `inside` and `outside` count records with a copy; `near_inside` and `near_outside` those with a row nearer than
    `near_limit`. Pairs are a record's row and a published row, the first few: they name members.
    """

    rows: Count
    inside: Count
    inside_of: Count
    outside: Count
    outside_of: Count
    near_inside: Count
    near_outside: Count
    near_limit: Positive
    p_value: Rate | None
    pairs: tuple[tuple[Count, Count], ...] = ()


@dataclass(frozen=True)
class Disclosure(Part):
    """How often an attack succeeds on records that were in, and on a control of records that were not.

    `difference_low` is a lower limit of the difference of both rates, for records drawn at random, at the audit's
    confidence. `p_value` is exact: it is that of "who was in has nothing to do with it"; None where tries
    depend on each other, as queries do and records of one person.
    """

    inside: Count
    inside_of: Count
    outside: Count
    outside_of: Count
    difference: float
    difference_low: float
    p_value: Rate | None


@dataclass(frozen=True)
class Criterion(Part):
    """One of the three criteria that regulators ask about, and what an attack of its kind found.

    `baseline` is the success of the same guess without the release: the most frequent value, or a real record that was
    never in. Both are None where the attack has none.
    """

    criterion: Text
    attack: Text
    found: Disclosure
    column: str | None = None
    majority: Rate | None = None
    baseline: Rate | None = None


@dataclass(frozen=True)
class TrainedOn(Part):
    """A classifier or regression tested on real records that were never in: trained on the release, or on members."""

    target: Text
    measure: Text
    synthetic: float
    real: float
    tested: Count


@dataclass(frozen=True)
class UtilityReport(Part):
    """How like the members the release is, each between 0 and 1, 1 the best.

    `shapes` is the mean over columns of 1 − the largest difference of distribution functions (numbers) or 1 − half the
    sum of differences of shares (words); `trends` the mean over pairs of columns. `worst` are the columns of the
    lowest shapes.
    """

    shapes: Rate | None = None
    trends: Rate | None = None
    worst: tuple[tuple[str, float], ...] = ()
    trained: TrainedOn | None = None


@dataclass(frozen=True)
class SyntheticDetails(Details):
    """What an audit of a synthetic data set shows."""

    published: PublishedRows | None = None
    attacks: tuple[AttackResult, ...] = ()
    copies: CopyCounts | None = None
    criteria: tuple[Criterion, ...] = ()
    utility: UtilityReport | None = None


@dataclass(frozen=True, kw_only=True)
class SyntheticMetadata(TrainedMetadata):
    """How the release was audited.

    `game` is "coins" where the generator ran inside the audit, "split" for a release that existed. `records` counts
    real records, `members` and `nonmembers` units whose coin said in and out, or members and held-out units. `columns`
    says what each column was taken for.
    """

    game: str | None = None
    attack: str | None = None
    references: Count | None = None
    runs: Count | None = None
    rows: Count | None = None
    columns: tuple[tuple[str, str], ...] = ()
    seeds: CoinSeeds | None = None
    mask_hash: str | None = None
    fingerprint: str | None = None


DETAILS, METADATA = SyntheticDetails, SyntheticMetadata
