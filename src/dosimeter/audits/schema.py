"""The file of an audit: what each field may hold.

`read` takes the values of a JSON file and refuses the first thing that cannot be true. What the numbers owe each other
is in `consistency`; whether they also follow from their evidence is for `verify`. `json_schema` gives the types as JSON
Schema for other programs.
"""

from __future__ import annotations

import json
from dataclasses import fields
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from dosimeter._validate import InputError, show
from dosimeter.accounting import Guarantee, PrivacyRegion
from dosimeter.audits.consistency import contradictions
from dosimeter.audits.parts import Count, Positive, ShiftEvidence, Text
from dosimeter.audits.result import (
    KINDS,
    SCHEMA,
    Audit,
    Details,
    Distributions,
    ExposedRecord,
    Guard,
    Metadata,
    Risk,
    Roc,
    StarCurve,
    Subgroup,
)
from dosimeter.audits.strict import checked
from dosimeter.estimate import Estimate

if TYPE_CHECKING:
    pass

__all__ = ["READ", "SCHEMA", "AuditFile", "EstimateFile", "json_schema", "read", "result_of"]

READ = (1, 2)
Json: TypeAlias = dict[str, object]  # an object of any fields


class _Closed(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class _Open(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow", frozen=True)


class CountsFile(_Closed):
    """Outcomes of the attack at one threshold."""

    tp: Count
    fn: Count
    fp: Count
    tn: Count


class EstimateFile(_Closed):
    """One number with its sentence; an unbounded end is null."""

    epsilon: Positive | None
    low: Positive | None
    high: Positive | None
    delta: Annotated[float, Field(ge=0.0, lt=1.0)]
    confidence: Annotated[float, Field(ge=0.0, lt=1.0)]
    method: Text
    validity: Literal[
        "finite-sample",
        "finite-sample, random split",
        "finite-sample, independent runs",
        "credible",
        "assumes Gaussian",
        "assumes the mechanism's family",
        "conditional on the propensity model",
        "asymptotic",
        "instance metric",
        "measurement",
        "exploratory",
    ]
    neighbours: Literal["add/remove", "replace", "zero-out"] | None = None
    claim: Text
    threshold: float | None
    counts: CountsFile | None
    warnings: list[str]
    details: Json


class GuardFile(_Closed):
    """What was checked before any number."""

    shift: bool
    checked: bool
    verdict: str
    evidence: ShiftEvidence


class GuaranteeFile(_Closed):
    """An accountant's upper bound; ε is null where it promises nothing."""

    epsilon: Positive | None
    delta: Annotated[float, Field(ge=0.0, le=1.0)]
    method: Text
    neighbours: str
    sampling: str
    is_bound: bool
    claim: str = ""
    warnings: list[str] = []
    details: Json


class RegionFile(_Open):
    """The headline and the tightest guarantee of the same neighbours."""

    lower: EstimateFile
    upper: GuaranteeFile


class AuditFile(_Closed):
    """What Audit.to_json and `dosimeter audit --json` write. An unbounded or missing number is null."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, title="dosimeter audit")

    schema_: Annotated[Literal[1, 2], Field(alias="schema")]
    estimates: Annotated[list[EstimateFile], Field(min_length=1, description="The headline first.")]
    guard: GuardFile
    risk: Risk
    curve: Roc | None
    upper: list[GuaranteeFile]
    region: RegionFile | None
    distributions: Distributions | None
    star: StarCurve | None
    subgroups: tuple[Subgroup, ...]
    exposed: tuple[ExposedRecord, ...]
    details: Json = {}
    metadata: Json


def read(values: Any, *, what: str = "the audit") -> Audit:
    """Take the values of an audit's JSON, or refuse them with the first thing that is wrong.

    Args:
        values: What `dosimeter.reading.strict_json` read.
        what: What the messages call it.

    Returns:
        The audit.

    Raises:
        InputError: If a field is missing, unknown, of another type or out of range, or if two fields contradict each
            other.
    """
    version = values.get("schema") if isinstance(values, dict) else None
    if not isinstance(values, dict):
        raise InputError(f"{what} must be a JSON object, got {show(values)}; write it with Audit.to_json.")
    if type(version) is not int or version not in READ:
        known = " and ".join(str(v) for v in READ)
        raise InputError(f"{what} has schema {show(version)}, this version reads {known}; write it again.")
    none = values.get("curve") == {}  # what version 1 wrote for no curve
    given = {**values, "curve": None} if none else values
    file = checked(AuditFile, given, what)
    kind = given["metadata"].get("kind")
    if not (kind is None or isinstance(kind, str)) or kind not in KINDS:
        known = ", ".join(str(k) for k in KINDS if k is not None)
        raise InputError(f"{what} has a bad metadata.kind, got {show(kind)}; the kinds are {known}.")
    details, metadata = result_of(kind)
    written = _with_notes(metadata, given["metadata"]) if version == 1 else given["metadata"]
    audit = Audit(
        estimates=tuple(Estimate.from_dict(e) for e in given["estimates"]),
        guard=Guard(file.guard.shift, file.guard.checked, file.guard.evidence),
        risk=file.risk,
        curve=file.curve,
        upper=tuple(Guarantee.from_dict(g) for g in given["upper"]),
        region=_region(given["region"], version),
        distributions=file.distributions,
        star=file.star,
        subgroups=file.subgroups,
        exposed=file.exposed,
        details=checked(details, given.get("details", {}), f"{what} (details)"),
        metadata=checked(metadata, written, f"{what} (metadata)"),
        schema=version,
    )
    problem = next(contradictions(file, audit, given), None)
    if problem is not None:
        raise InputError(f"{what} contradicts itself: {problem[:400]}; write it with Audit.to_json.")
    return audit


def _region(values: Any, version: int) -> PrivacyRegion | None:
    """The two ends; version 1 set some beside each other that are for different neighbours, and these are dropped."""
    if values is None:
        return None
    try:
        return PrivacyRegion(Estimate.from_dict(values["lower"]), Guarantee.from_dict(values["upper"]))
    except InputError:
        if version == 1:
            return None
        raise


def _counts_of_version_1(counts: Json) -> Json:
    """Version 1 counted trainings that were computed and cached; a failed one was computed, too."""
    made = [n for n in (counts.get(name, 0) for name in ("computed", "cached", "failed")) if type(n) is int and n >= 0]
    if len(made) < 3:
        return counts
    asked = max(made[0] + made[1], made[2])
    return {"asked": asked, "done": asked - made[2], "failed": made[2], "spared": 0}


def _with_notes(metadata: type[Metadata], values: Json) -> Json:
    """The metadata of version 1, where the caller's notes stood among the fields."""
    known = {field.name for field in fields(metadata)}
    own = {name: value for name, value in values.items() if name in known}
    if isinstance(counts := own.get("trainings"), dict) and "asked" not in counts:
        own["trainings"] = _counts_of_version_1(counts)
    return {**own, "notes": {name: value for name, value in values.items() if name not in known}}


def json_schema() -> str:
    """The schema of the current version as JSON Schema, as docs/audit.schema.json holds it."""
    schema = AuditFile.model_json_schema(by_alias=True)
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["description"] = str(AuditFile.__doc__)
    return json.dumps(schema, ensure_ascii=False, indent=2) + "\n"


def result_of(kind: str | None) -> tuple[type[Details], type[Metadata]]:
    """The classes of a kind's details and metadata."""
    module = import_module(f"dosimeter.audits.{KINDS[kind][0]}.result")
    return module.DETAILS, module.METADATA
