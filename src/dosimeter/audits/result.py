"""The result of an audit as one value: its numbers, its guard, its metadata, and the risk of every record.

The parts that it holds are in `parts.py`; what only one kind of audit has stands in `audits/<kind>/result.py`. A new
kind is a folder with `result.py` (`DETAILS` and `METADATA`, two dataclasses) and `page.py` (`CHARTS` and `sections`),
and a row in `KINDS`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dosimeter._files import naming, write_text
from dosimeter._validate import BoolArray, FloatArray, InputError
from dosimeter.accounting import Guarantee, PrivacyRegion
from dosimeter.audits.assemble import Allowed, Distributions, Risk, Roc, TnrAtFnr, TprAtFpr
from dosimeter.audits.outputs import AuditOutputs
from dosimeter.audits.parts import (
    Count,
    ExposedRecord,
    FailedTraining,
    Part,
    Provenance,
    ShiftEvidence,
    StarCurve,
    Subgroup,
    TrainingCounts,
)
from dosimeter.estimate import Estimate, percent, plain
from dosimeter.evidence import Scores
from dosimeter.reading import strict_json

__all__ = [
    "KINDS",
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
    "RecordRisk",
    "Risk",
    "Roc",
    "StarCurve",
    "Subgroup",
    "TnrAtFnr",
    "TprAtFpr",
    "TrainedMetadata",
    "TrainingCounts",
    "p_in_words",
    "write_risk",
]

SCHEMA = 2  # the version of the files that are written
KINDS = {  # every kind of audit: the folder with its `result.py`, and that with its `page.py`
    None: ("scores", "model"),
    "training": ("training", "training"),
    "one-run": ("one_run", "one_run"),
    "text": ("text", "text"),
    "gradients": ("gradients", "gradients"),
    "synthetic": ("synthetic", "synthetic"),
    "members-only": ("members_only", "members_only"),
}
HARDLY_ANY = 0.05  # non-members that score as high, where an attack agrees that a record is exposed


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
class Guard:
    """Say what was checked before any number: whether members and non-members differ without the model.

    Args:
        shift: Whether they do.
        checked: Whether anybody looked.
        evidence: What was found; a mapping of its fields is taken too.
    """

    shift: bool
    checked: bool
    evidence: ShiftEvidence = ShiftEvidence()  # noqa: RUF009  (it is frozen)

    def __post_init__(self) -> None:
        if not isinstance(self.evidence, ShiftEvidence):
            object.__setattr__(self, "evidence", ShiftEvidence(**self.evidence))

    def __str__(self) -> str:
        evidence = self.evidence
        if not self.checked:
            reasons = evidence.reasons or (
                "only scores were given, so a difference between the members' and the non-members' "
                "distributions cannot be told from leakage.",
            )
            return "Not checked: " + " ".join(reasons)
        told = _told(evidence)
        if told is None:
            return "Members and non-members differ even without the model." if self.shift else "No shift was found."
        if not self.shift:
            verdict = (
                f"No shift was found: a classifier that never saw the model tells members from non-members with {told}."
            )
        elif at_most(evidence.p_value, evidence.level):
            verdict = (
                "Members and non-members differ even without the model: a classifier that never saw it tells them "
                f"apart with {told}; every ε below is suspect."
            )
        else:
            balance = "" if evidence.class_balance_p is None else f" ({p_in_words(evidence.class_balance_p)})"
            verdict = (
                "Members and non-members differ even without the model: their classes are distributed differently"
                f"{balance}; every ε below is suspect."
            )
        return verdict + (
            f" {copies_in_words(evidence.duplicates, evidence.nonmembers or 0)}." if evidence.duplicates else ""
        )

    def to_dict(self) -> dict[str, object]:
        """Give strict JSON values, with the verdict in words."""
        return {"shift": self.shift, "checked": self.checked, "verdict": str(self), "evidence": plain(self.evidence)}


def _told(evidence: ShiftEvidence) -> str | None:
    """The AUC of the blind baseline in words, where there is one."""
    if evidence.auc is None:
        return None
    parts = []
    if evidence.confidence is not None and evidence.auc_low is not None and evidence.auc_high is not None:
        parts.append(f"{percent(evidence.confidence)} interval {evidence.auc_low:.2f}–{evidence.auc_high:.2f}")
    if evidence.p_value is not None:
        parts.append(p_in_words(evidence.p_value))
    return f"AUC {evidence.auc:.2f}" + (f" ({', '.join(parts)})" if parts else "")


def at_most(p_value: float | None, level: float | None) -> bool:
    """Whether a test was made and rejects at this level."""
    return p_value is not None and level is not None and p_value <= level


def share_in_words(count: int, total: int) -> str:
    """So many of the non-members, for a sentence."""
    return f"{count} of {total} non-members ({100 * count / total:.3g} %)"


def copies_in_words(count: int, total: int) -> str:
    """How many non-members are exact copies of members, for a sentence."""
    copies = "is an exact copy of a member" if count == 1 else "are exact copies of members"
    return f"{share_in_words(count, total)} {copies}"


def p_in_words(p_value: float) -> str:
    """A p-value for a sentence."""
    return "p < 0.0001" if p_value < 1e-4 else f"p = {p_value:.2g}"


@dataclass(frozen=True, eq=False)
class RecordRisk:
    """One row for each record or person, members first.

    `share` is the share of non-members with a score at least as high, the record itself among them if it is one.
    `agreement` is the share of all attacks made under which that share is at most 5 %; None where there was one.
    """

    index: npt.NDArray[Any]
    member: BoolArray
    label: tuple[str, ...] | None
    score: FloatArray
    share: FloatArray
    agreement: FloatArray | None

    @classmethod
    def of(
        cls,
        scores: Scores,
        names: tuple[Any, Any],
        labels: tuple[str, ...] | None = None,
        others: Sequence[Scores] = (),
    ) -> RecordRisk:
        """Rank all records by the attack of the headline, and count how many of the `others` agree."""
        share = _share(scores)
        agreement = None
        if others:
            agreement = np.mean([_share(one) <= HARDLY_ANY for one in (scores, *others)], axis=0)
        return cls(
            np.concatenate([np.asarray(side) for side in names]),
            np.arange(share.size) < scores.members.size,
            labels,
            np.concatenate([scores.members, scores.nonmembers]),
            share,
            agreement,
        )

    def table(self) -> Any:
        """The rows as a pyarrow table, the most exposed first."""
        import pyarrow

        order = np.lexsort((np.arange(self.score.size), -self.score))
        columns = {"index": self.index[order], "member": self.member[order]}
        if self.label is not None:
            columns["label"] = np.array(self.label)[order]
        columns |= {"score": self.score[order], "share_of_nonmembers": self.share[order]}
        if self.agreement is not None:
            columns["agreement"] = self.agreement[order]
        return pyarrow.table({name: pyarrow.array(values.tolist()) for name, values in columns.items()})


def _share(scores: Scores) -> FloatArray:
    both = np.concatenate([scores.members, scores.nonmembers])
    below = np.searchsorted(scores.sorted_nonmembers, both, "left")
    share: FloatArray = 1 - below / scores.nonmembers.size
    return share


def write_risk(table: Any, path: str | Path) -> Path:
    """Write a risk table to a .parquet or .csv file that only its owner may read."""
    file = Path(path)
    kind = file.suffix.lower()
    if kind not in (".parquet", ".csv"):
        raise InputError(f"{file} is neither a .parquet nor a .csv file; name it e.g. risk.parquet.")
    with naming(file):
        file.touch(mode=0o600)
        if kind == ".parquet":
            from pyarrow import parquet

            parquet.write_table(table, file)
        else:
            from pyarrow import csv

            csv.write_csv(table, file)
    return file


@dataclass(frozen=True, repr=False)
class Audit(AuditOutputs):
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

    >>> from dosimeter import Scores, audit_scores
    >>> audit = audit_scores(Scores([2.0, 3.0], [0.0, 1.0]))
    >>> Audit.from_json(audit.to_json()).headline == audit.headline
    True
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
    def records(self) -> Any:
        """The risk of every record as a pyarrow table: `risk_table()`. `exposed` has the most exposed members."""
        return self.risk_table()

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

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """Give strict JSON that `from_json` reads back, and write it to a file if one is named."""
        loose = json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False)
        text = loose.encode("utf-8", "replace").decode()  # no file takes half of a surrogate pair
        if path is not None:
            write_text(path, text + "\n")
        return text

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Write one self-contained page for people."""
        from dosimeter.audits.page import write_html

        write_html(self, Path(path))

    def to_pdf(self, path: str | os.PathLike[str]) -> None:
        """Write the page as a PDF, with everything unfolded.

        Args:
            path: The file to write.

        Raises:
            InputError: If no Chromium or Chrome is installed, which prints the page; `DOSIMETER_CHROMIUM` may name one.

        >>> audit.to_pdf("audit.pdf")  # doctest: +SKIP
        """
        from dosimeter.audits.page import write_pdf

        write_pdf(self, Path(path))

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
