"""What an audit of a language model records of itself, and what only it has to show."""

from __future__ import annotations

from dataclasses import dataclass

from dosimeter._validate import InputError
from dosimeter.audits.one_run.result import GuessPath
from dosimeter.audits.parts import Count, Numbers, Part, Positive, Rate
from dosimeter.audits.result import Details, Metadata
from dosimeter.audits.training.result import CoinSeeds

__all__ = [
    "DETAILS",
    "METADATA",
    "AtRisk",
    "Exposure",
    "Extraction",
    "ExtractionRow",
    "Look",
    "ScoreRow",
    "Sides",
    "TextDetails",
    "TextMetadata",
]


@dataclass(frozen=True)
class ScoreRow(Part):
    """One score on this run: only that of the headline was fixed beforehand, the others are measurements."""

    name: str
    sentence: str
    auc: Rate
    tpr_at_1_percent: Rate
    headline: bool


@dataclass(frozen=True)
class Sides(Part):
    """Means over canaries that are in and over those that are out, with their numbers."""

    inside: Count
    outside: Count
    mean_inside: float | None
    mean_outside: float | None


@dataclass(frozen=True)
class Exposure(Part):
    """Exposure in bits by sampling: `references` other secrets for each of some canaries, so at most `cap` bits.

    Secrets that were never seen have a mean of about 1.4 bits (`memorised.null_bits`). `bits` belong to the canaries
    whose rows are `canaries`.
    """

    references: Count
    cap: Positive
    target: Sides
    base: Sides | None
    canaries: tuple[Count, ...]
    bits: Numbers

    def __post_init__(self) -> None:
        if len(self.canaries) != len(self.bits):
            raise InputError("exposure: canaries and bits must be of one length; write both.")


@dataclass(frozen=True)
class ExtractionRow(Part):
    """How many secrets greedy decoding writes, or so many tries find with the stated chance."""

    tries: str
    inside: Count
    outside: Count
    base_inside: Count | None
    base_outside: Count | None


@dataclass(frozen=True)
class Extraction(Part):
    """Secrets that the model writes after their prefix, of `inside` canaries that are in and `outside` that are out."""

    inside: Count
    outside: Count
    chance: Rate
    rows: tuple[ExtractionRow, ...]

    def __post_init__(self) -> None:
        for row in self.rows:
            counts = ((row.inside, self.inside), (row.outside, self.outside))
            base = ((row.base_inside, self.inside), (row.base_outside, self.outside))
            if any(hits is not None and hits > most for hits, most in (*counts, *base)):
                raise InputError("extraction: more secrets were extracted than there are canaries; write the counts.")


@dataclass(frozen=True)
class Look(Part):
    """What the audit would have said after some steps; only the last look is the headline."""

    step: Count
    epsilon: Positive
    auc: Rate
    mean_inside: float
    mean_outside: float


@dataclass(frozen=True)
class AtRisk(Part):
    """A canary that is in and stands out: its row in the sheet, its secret if that may be shown, and its score."""

    canary: Count
    text: str
    score: float
    tries: Positive | None
    greedy: bool


@dataclass(frozen=True)
class TextDetails(Details):
    """What an audit of a language model shows besides its bound."""

    scores: tuple[ScoreRow, ...] = ()
    guesses: GuessPath | None = None
    exposure: Exposure | None = None
    extraction: Extraction | None = None
    looks: tuple[Look, ...] = ()
    at_risk: tuple[AtRisk, ...] = ()


@dataclass(frozen=True, kw_only=True)
class TextMetadata(Metadata):
    """How the model was audited.

    `canaries` says how they were made, `count` how many texts there are and `copies` how often each was trained on.
    `members` and `nonmembers` count coins. `score` is that of the headline and `chosen` how it was decided on.
    `sheet_hash` is the hash of the sheet, `mask_hash` that of the coins.
    """

    base: str | None = None
    score: str | None = None
    chosen: str | None = None
    canaries: str | None = None
    count: Count | None = None
    copies: Count | None = None
    tokens: Count | None = None
    step: Count | None = None
    seeds: CoinSeeds | None = None
    sheet_hash: str | None = None
    mask_hash: str | None = None


DETAILS, METADATA = TextDetails, TextMetadata
