"""The result of an audit as one value, and the typed parts that every kind of audit has.

What only one kind has stands in that kind's folder: `audits/<kind>/result.py`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dosimeter._validate import InputError
from dosimeter.accounting import Guarantee, PrivacyRegion
from dosimeter.audits.part import Count, Numbers, Part, Positive, Rate, Text
from dosimeter.audits.record_risk import RecordRisk
from dosimeter.audits.shift.guard import Guard
from dosimeter.estimate import Estimate, plain
from dosimeter.reading import strict_json

__all__ = [
    "SCHEMA",
    "Allowed",
    "Audit",
    "Details",
    "Distributions",
    "ExposedRecord",
    "FailedTraining",
    "Guard",
    "Metadata",
    "Provenance",
    "Risk",
    "Roc",
    "StarCurve",
    "Subgroup",
    "TnrAtFnr",
    "TprAtFpr",
    "TrainedMetadata",
    "TrainingCounts",
]

SCHEMA = 2  # the version of the files that are written


@dataclass(frozen=True)
class TprAtFpr(Part):
    """The measured TPR at one FPR, and a limit for the true one.

    With the audit's confidence the test at `limit_threshold` has a true FPR of at most `fpr` and a true TPR of at least
    `tpr_low`; without that threshold there is no limit.
    """

    fpr: Rate
    tpr: Rate
    tpr_low: Rate
    threshold: float | None
    limit_threshold: float | None = None

    @property
    def limit(self) -> float | None:
        """The TPR that a test with this true FPR is sure to reach; None where no threshold could be placed for it."""
        return None if self.limit_threshold is None else self.tpr_low


@dataclass(frozen=True)
class TnrAtFnr(Part):
    """The measured TNR at one FNR, the other end of the ROC curve: non-members that are told for sure.

    With the audit's confidence the test at `limit_threshold` has a true FNR of at most `fnr` and a true TNR of at least
    `tnr_low`; without that threshold there is no limit.
    """

    fnr: Rate
    tnr: Rate
    tnr_low: Rate
    threshold: float | None
    limit_threshold: float | None = None

    @property
    def limit(self) -> float | None:
        """The TNR that a test with this true FNR is sure to reach; None where no threshold could be placed for it."""
        return None if self.limit_threshold is None else self.tnr_low


@dataclass(frozen=True)
class Roc(Part):
    """The ROC curve, thinned for a screen, and its simultaneous lower band (`fpr_high`, `tpr_low`).

    `tnr_at_fnr` is the other end of the same curve; files of older versions do not have it.
    """

    auc: Rate
    threshold: Numbers
    fpr: tuple[Rate, ...]
    tpr: tuple[Rate, ...]
    fpr_high: tuple[Rate, ...]
    tpr_low: tuple[Rate, ...]
    tpr_at_fpr: tuple[TprAtFpr, ...] = ()
    tnr_at_fnr: tuple[TnrAtFnr, ...] = ()


@dataclass(frozen=True)
class AllowedBelief(Part):
    """How sure an attacker who was `prior` sure may become that a person is in the data."""

    prior: Rate
    belief: Rate


@dataclass(frozen=True)
class AllowedPrecision(Part):
    """The share of accusations that may be right if a share `prior` of the accused are members."""

    prior: Rate
    ppv: Rate


@dataclass(frozen=True)
class AllowedTpr(Part):
    """The share of members that may be found at one FPR."""

    fpr: Rate
    tpr: Rate
    ppv: tuple[AllowedPrecision, ...] = ()


@dataclass(frozen=True)
class AllowedReconstruction(Part):
    """The success that guessing a hidden attribute may have, and what it has without the model."""

    baseline: Rate
    success: Rate


@dataclass(frozen=True)
class AllowedByGaussian(Part):
    """What a Gaussian mechanism of the same ε allows."""

    mu: float | None
    advantage: Rate
    tpr: tuple[AllowedTpr, ...]


@dataclass(frozen=True)
class Allowed(Part):
    """The most that any attack can do to a person if a guarantee (ε, δ) holds."""

    epsilon: Positive | None
    delta: float
    advantage: Rate
    belief: tuple[AllowedBelief, ...]
    tpr: tuple[AllowedTpr, ...]
    reconstruction: tuple[AllowedReconstruction, ...]
    gaussian: AllowedByGaussian | None = None

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Allowed:
        """Take what `identifiability.risk_from_epsilon` gives."""
        gaussian = values["gaussian"]
        return cls(
            epsilon=values["epsilon"],
            delta=values["delta"],
            advantage=values["advantage"],
            belief=tuple(AllowedBelief(**item) for item in values["belief"]),
            tpr=tuple(
                AllowedTpr(item["fpr"], item["tpr"], tuple(AllowedPrecision(**p) for p in item["ppv"]))
                for item in values["tpr"]
            ),
            reconstruction=tuple(AllowedReconstruction(**item) for item in values["reconstruction"]),
            gaussian=gaussian
            and AllowedByGaussian(
                plain(gaussian["mu"]), gaussian["advantage"], tuple(AllowedTpr(**item) for item in gaussian["tpr"])
            ),
        )


@dataclass(frozen=True)
class Risk(Part):
    """What the audit means for a person.

    `words` say which guarantees are excluded; `would_allow` is what one of the smallest size left would allow; `upper`
    and `upper_words` are what the training's own guarantee allows, where it has one.
    """

    words: tuple[str, ...]
    would_allow: Allowed | None = None
    upper: Allowed | None = None
    upper_words: tuple[str, ...] = ()


@dataclass(frozen=True)
class Distributions(Part):
    """Densities of losses or scores between the edges of common bins."""

    edges: Numbers
    members: Numbers
    nonmembers: Numbers
    name: str = "loss"
    threshold: float | None = None


@dataclass(frozen=True)
class StarCurve(Part):
    """The ε that each pair of measured rates forces along the thresholds; `best` is where it is largest."""

    fpr: tuple[Rate, ...]
    fnr: tuple[Rate, ...]
    epsilon: Numbers
    best: Count


@dataclass(frozen=True)
class Subgroup(Part):
    """The bound of one class or group of people.

    The bounds of all groups hold at once with `joint_confidence`; `flagged` says that the group is more exposed than
    the rest, after correction for their number.
    """

    group: str
    value: str
    members: Count
    nonmembers: Count
    epsilon: Positive | None
    p_value: Rate
    flagged: bool
    neighbours: str | None = None
    auc: Rate | None = None
    adjusted_p_value: Rate | None = None
    joint_confidence: Rate | None = None


@dataclass(frozen=True)
class ExposedRecord(Part):
    """A member that the attack is surest of: its row, or the id of a person."""

    record: Count | Text | float
    score: float
    threshold_fpr: Rate
    label: str


@dataclass(frozen=True)
class TrainingCounts(Part):
    """How many trainings were asked for, done, failed, and spared by a test that had enough."""

    asked: Count = 0
    done: Count = 0
    failed: Count = 0
    spared: Count = 0


@dataclass(frozen=True)
class FailedTraining(Part):
    """A training that failed, and why."""

    stage: str
    index: int
    seed: int
    reason: str | None


@dataclass(frozen=True)
class StoreEntry(Part):
    """What was taken from the store: its key, and how many models it held."""

    key: str
    models: Count
    stage: str | None = None


@dataclass(frozen=True)
class Provenance(Part):
    """What was computed and what came from the store, under which key."""

    computed: Count
    cached: Count
    given: bool = False
    key: str | None = None
    versions: tuple[str, ...] = ()
    entries: tuple[StoreEntry, ...] = ()


@dataclass(frozen=True)
class Details(Part):
    """What only one kind of audit has to show; its class stands in the folder of the kind."""


@dataclass(frozen=True, kw_only=True)
class Metadata(Part):
    """What was run, on what, with which seed and version; each kind adds its own.

    `notes` are what the caller wants on the page, e.g. {"unit_of_privacy": "one person"}. They can be asked for like
    fields: `metadata["unit_of_privacy"]`.
    """

    kind: str | None = None
    name: str | None = None
    model: str | None = None
    members: Count | None = None
    nonmembers: Count | None = None
    records: Count | None = None
    unit: str = "record"
    delta: float | None = None
    confidence: float | None = None
    seed: int | None = None
    mechanism: str | None = None
    warnings: tuple[str, ...] = ()
    version: str = ""
    notes: Mapping[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return self.notes[name] if name in self.notes else super().__getitem__(name)


@dataclass(frozen=True, kw_only=True)
class TrainedMetadata(Metadata):
    """The metadata of an audit that trains models: how many, which failed, and what came from a store."""

    trainings: TrainingCounts | None = None
    failed: tuple[FailedTraining, ...] | None = None
    provenance: Provenance | None = None


@dataclass(frozen=True)
class Audit:
    """Hold what an audit found: bounds (the headline first), what was checked, what it means, what the charts need.

    Every part is a dataclass, written to JSON, read back and drawn through the same types.

    Args:
        estimates: The numbers, the headline first.
        guard: What was checked before any number.
        risk: What it means for a person.
        curve: The ROC curve; None where there is none.
        upper: What accountants guarantee for the same training.
        region: The headline and the tightest guarantee of the same neighbours, where there is one.
        distributions: Densities of the losses or scores.
        star: Epsilon* along the thresholds.
        subgroups: The bounds of groups of people, the most exposed first.
        exposed: The members that the attack is surest of, first.
        details: What only this kind of audit has to show.
        metadata: What was run, on what, with which seed and version.
        schema: The version of the file that it was read from; 1 has no evidence to verify.
        record_risk: The risk of every record, for `risk_table`. It names members, so it is never written to JSON.

    Raises:
        InputError: If there is no estimate.
    """

    estimates: tuple[Estimate, ...]
    guard: Guard
    risk: Risk
    curve: Roc | None = None
    upper: tuple[Guarantee, ...] = ()
    region: PrivacyRegion | None = None
    distributions: Distributions | None = None
    star: StarCurve | None = None
    subgroups: tuple[Subgroup, ...] = ()
    exposed: tuple[ExposedRecord, ...] = ()
    details: Details = field(default_factory=Details)
    metadata: Metadata = field(default_factory=Metadata)
    schema: int = SCHEMA
    record_risk: RecordRisk | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.estimates:
            raise InputError("estimates is empty; an audit needs at least its headline.")

    @property
    def headline(self) -> Estimate:
        """The first estimate: the one to quote."""
        return self.estimates[0]

    @property
    def records(self) -> tuple[ExposedRecord, ...]:
        """The members that the attack is surest of; `risk_table` has all records."""
        return self.exposed

    def risk_table(self) -> Any:
        """Give the risk of every record as a pyarrow table, the most exposed first.

        The table is sensitive: it names members and says how surely each is recognised. It is not part of the JSON, so
        an audit that was read from a file does not have it.

        Returns:
            A table with a row for each record, or person: `index` (the row in `data`, in members or in nonmembers, or
            the person), `member`, `label`, `score`, `share_of_nonmembers` (with a score at least as high) and, where
            several attacks were made, `agreement`: the share of them that hardly any non-member (5 %) scores as high
            under.

        Raises:
            InputError: If the audit has no records: it was read from a file, or its kind attacks trainings.

        >>> audit.risk_table().to_pandas()  # doctest: +SKIP
        """
        if self.record_risk is None:
            raise InputError(
                "this audit does not hold its records (they are never written to a file); call the audit again."
            )
        return self.record_risk.table()

    @property
    def provenance(self) -> Provenance | None:
        """What was computed and what came from a store; None for an audit that trains nothing."""
        return self.metadata.provenance if isinstance(self.metadata, TrainedMetadata) else None

    def __str__(self) -> str:
        lines = [self.headline.claim, str(self.guard)]
        lines += [f"{e.method} ({e.validity}): {e.claim}" for e in self.estimates[1:]]
        return "\n".join([*lines, *self.risk.words])

    def to_dict(self) -> dict[str, Any]:
        """Give everything as strict JSON values."""
        return {
            "schema": self.schema,
            "estimates": [e.to_dict() for e in self.estimates],
            "guard": self.guard.to_dict(),
            "risk": plain(self.risk),
            "curve": plain(self.curve),
            "upper": [g.to_dict() for g in self.upper],
            "region": None if self.region is None else self.region.to_dict(),
            "distributions": plain(self.distributions),
            "star": plain(self.star),
            "subgroups": plain(self.subgroups),
            "exposed": plain(self.exposed),
            "details": plain(self.details),
            "metadata": self.metadata.to_dict(),  # a note of the same name must not stand in for a field
        }

    def to_json(self) -> str:
        """Give strict JSON that `from_json` reads back."""
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False)

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Write one self-contained page for people."""
        from dosimeter.audits.page import write_html

        write_html(self, Path(path))

    @classmethod
    def from_json(cls, text: str | bytes) -> Audit:
        """Read back what `to_json` wrote, strictly: types, ranges, and numbers that agree with each other.

        Whether the bounds follow from their evidence is for `dosimeter.audits.verify.verify`.

        Args:
            text: The JSON of an audit, of this version's schema or of an earlier one.

        Returns:
            The audit. One of schema 1 does not say whose ε its bounds are: their `neighbours` are None.

        Raises:
            InputError: If the text is not JSON, not an audit, or contradicts itself.
        """
        return cls.from_dict(strict_json(text, what="the audit"))

    @classmethod
    def from_dict(cls, values: Any) -> Audit:
        """Read back what `to_dict` wrote, as strictly as `from_json`."""
        from dosimeter.audits import schema  # pydantic is needed to read a file only

        return schema.read(values)
