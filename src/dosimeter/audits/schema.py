"""The file of an audit: what each field may hold, and what its numbers owe each other.

`read` takes the values of a JSON file and refuses the first thing that cannot be true. Whether the numbers also follow
from their evidence is for `dosimeter.audits.verify`. `json_schema` gives the same as JSON Schema for other programs.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dosimeter._validate import InputError, show
from dosimeter.audits.result import SCHEMA
from dosimeter.estimate import Validity, number, percent

__all__ = ["READ", "SCHEMA", "AuditFile", "EstimateFile", "json_schema", "read"]

READ = (1, 2)
KINDS = ("training", "one-run", "gradients", "members-only")
MOST = 10**12  # records, runs, guesses

Finite = Annotated[float, Field(allow_inf_nan=False)]
Rate = Annotated[float, Field(ge=0.0, le=1.0)]
Positive = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0, le=MOST)]
Text = Annotated[str, Field(min_length=1)]


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
        "asymptotic",
        "instance metric",
        "measurement",
        "exploratory",
    ]
    neighbours: Literal["add/remove", "replace", "zero-out"] | None = None
    claim: Text
    threshold: Finite | None
    counts: CountsFile | None
    warnings: list[str]
    details: dict[str, Any]


class GuardFile(_Closed):
    """What was checked before any number."""

    shift: bool
    checked: bool
    verdict: str
    evidence: dict[str, Any]


class RiskFile(_Open):
    """What the bound means for a person."""

    words: list[str]
    upper_words: list[str] = []
    upper: dict[str, Any] | None = None


class TprFile(_Open):
    """The measured TPR at one FPR."""

    fpr: Rate
    tpr: Rate
    tpr_low: Rate
    threshold: Finite | None


class CurveFile(_Open):
    """The ROC curve, thinned for a screen; empty where there is none."""

    auc: Rate | None = None
    threshold: list[Finite | None] | None = None
    fpr: list[Rate] | None = None
    tpr: list[Rate] | None = None
    fpr_high: list[Rate] | None = None
    tpr_low: list[Rate] | None = None
    tpr_at_fpr: list[TprFile] = []


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
    details: dict[str, Any]


class DistributionsFile(_Open):
    """Densities of the losses or scores in bins."""

    edges: list[Finite | None]
    members: list[Finite | None]
    nonmembers: list[Finite | None]


class StarFile(_Open):
    """ε forced along the thresholds; `best` is the index of the largest."""

    fpr: list[Rate]
    fnr: list[Rate]
    epsilon: list[Finite | None]
    best: Annotated[int, Field(ge=0)]


class SubgroupFile(_Open):
    """The bound of one class or group of people."""

    group: str
    value: str
    members: Count
    nonmembers: Count
    epsilon: Positive | None
    p_value: Rate
    flagged: bool


class ExposedFile(_Open):
    """A member that the attack is surest of."""

    record: Count | Text | Finite  # a row, or the id of a person
    score: Finite
    threshold_fpr: Rate
    label: str


class TrainingsFile(_Open):
    """How many trainings there were asked for, done, failed, and spared by a test that had enough."""

    asked: Count = 0
    done: Count = 0
    failed: Count = 0
    spared: Count = 0


class MetadataFile(_Open):
    """What was run, on what, with which seed and version."""

    kind: Literal["training", "one-run", "gradients", "members-only"] | None = None
    trainings: TrainingsFile | None = None
    failed: list[dict[str, Any]] | None = None
    warnings: list[str] = []


class AuditFile(_Closed):
    """What Audit.to_json and `dosimeter audit --json` write. An unbounded or missing number is null."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, title="dosimeter audit")

    schema_: Annotated[Literal[1, 2], Field(alias="schema")]
    estimates: Annotated[list[EstimateFile], Field(min_length=1, description="The headline first.")]
    guard: GuardFile
    risk: RiskFile
    curve: CurveFile
    upper: list[GuaranteeFile]
    region: dict[str, Any] | None
    distributions: DistributionsFile | None
    star: StarFile | None
    subgroups: list[SubgroupFile]
    exposed: list[ExposedFile]
    details: dict[str, Any] = {}
    metadata: MetadataFile


def read(values: Any, *, what: str = "the audit") -> AuditFile:
    """Take the values of an audit's JSON, or refuse them with the first thing that is wrong.

    Args:
        values: What `dosimeter.reading.strict_json` read.
        what: What the messages call it.

    Returns:
        The file as typed values.

    Raises:
        InputError: If a field is missing, of another type or out of range, or if two fields contradict each other.
    """
    version = values.get("schema") if isinstance(values, dict) else None
    if not isinstance(values, dict):
        raise InputError(f"{what} must be a JSON object, got {show(values)}; write it with Audit.to_json.")
    if type(version) is not int or version not in READ:
        known = " and ".join(str(v) for v in READ)
        raise InputError(f"{what} has schema {show(version)}, this version reads {known}; write it again.")
    try:
        file = AuditFile.model_validate(values)
    except ValidationError as error:
        raise InputError(f"{what} {_first(error)}; write it with Audit.to_json.") from None
    problem = next(_contradictions(file), None)
    if problem is not None:
        raise InputError(f"{what} contradicts itself: {problem[:400]}; write it with Audit.to_json.")
    return file


def json_schema() -> str:
    """The schema of the current version as JSON Schema, as docs/audit.schema.json holds it."""
    found = AuditFile.model_json_schema(by_alias=True)
    found["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    found["description"] = str(AuditFile.__doc__)
    return json.dumps(found, ensure_ascii=False, indent=2) + "\n"


def _first(error: ValidationError) -> str:
    """The first fault that pydantic found, as "field: what is wrong, got value"."""
    found = error.errors(include_url=False)[0]
    place = ".".join(str(part) for part in found["loc"] if not str(part).startswith(("constrained", "function-")))
    message = found["msg"][:1].lower() + found["msg"][1:]
    got = "" if found["type"] == "missing" else f", got {show(found['input'])}"
    return f"has a bad {place[:120] or 'value'} ({message[:160]}{got})"


# --- what the fields owe each other -----------------------------------------------------------------------


def _contradictions(file: AuditFile) -> Iterator[str]:
    for index, estimate in enumerate(file.estimates):
        for problem in _of_estimate(estimate, file.schema_):
            yield f"estimates[{index}] ({estimate.method}): {problem}"
    if file.schema_ > 1:
        yield from _of_order(file)
    yield from _of_guard(file)
    yield from _of_curve(file.curve, file.estimates[0].confidence)
    yield from _of_drawings(file)
    yield from _of_trainings(file)


def _of_estimate(e: EstimateFile, version: int) -> Iterator[str]:
    epsilon, low, high = (math.inf if v is None else v for v in (e.epsilon, e.low, e.high))
    validity = Validity(e.validity)
    if low > high:
        yield f"low is {number(low)}, above high, {number(high)}"
    if (validity.is_bound or validity is Validity.CREDIBLE) and epsilon != low:
        yield f"epsilon is {number(epsilon)}, but a lower bound is its low end, {number(low)}"
    if validity.is_bound and e.confidence == 0:
        yield "a bound needs a confidence above 0"
    if version > 1:
        yield from _of_claim(e, epsilon, low, high)


_NUMBER = r"(∞|\d+(?:\.\d+)?(?:e[+-]?\d+)?)"
_EPSILON = re.compile(rf"(?:ε|ε̃|ε'|ε′) (?:≥|=|≤|lies in \[|in \[) ?{_NUMBER}")
_DELTA = re.compile(rf"δ = {_NUMBER}")
_SHARE = r"([\d.]+(?:e[+-]?\d+)?) %"
_CONFIDENCE = re.compile(rf"{_SHARE} (?:confidence|posterior)|posterior probability {_SHARE}")


def _of_claim(e: EstimateFile, epsilon: float, low: float, high: float) -> Iterator[str]:
    """The sentence must say the numbers beside it: its δ, its confidence, its ε and no unknown one."""
    stated = {found.rstrip(".") for found in _DELTA.findall(e.claim)}
    if stated - {f"{e.delta:g}", f"{e.delta:.3g}"}:
        yield f"the claim speaks of δ = {min(stated - {f'{e.delta:g}'})}, delta is {e.delta:g}"
    levels = {f"{a or b} %" for a, b in _CONFIDENCE.findall(e.claim)}
    if levels - {percent(e.confidence)}:
        yield f"the claim speaks of {min(levels - {percent(e.confidence)})}, confidence is {percent(e.confidence)}"
    said = {found.rstrip(".") for found in _EPSILON.findall(e.claim)}
    main = {number(v) for v in (epsilon, low)}
    if said and not said & main:
        yield f"the claim says ε = {min(said)}, the estimate {number(epsilon)}"
    if Validity(e.validity).is_bound and not said:
        yield f"the claim does not say the ε that it proves, {number(low)}"
    known = main | {number(high)} | {number(v) for v in _numbers_in(e.details)}
    if said - known:
        yield f"the claim says ε = {min(said - known)}, which stands nowhere in the estimate"


def _numbers_in(details: dict[str, Any]) -> Iterator[float]:
    for value in details.values():
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield float(value)


def _of_order(file: AuditFile) -> Iterator[str]:
    """The headline stands first: which one it is depends on the kind of audit."""
    kind, methods = file.metadata.kind, [e.method for e in file.estimates]
    first = file.estimates[0]
    if kind is None and first.method != "lower-bound":
        yield f"the headline must be lower-bound, the first estimate is {first.method}"
    if kind is None and first.details.get("game") == "split" and first.neighbours != "replace":
        yield f"the headline of one model is for replacing a record, the first estimate is for {first.neighbours}"
    if kind == "training" and first.method not in ("claim", "lower-bound"):
        yield f"the headline of a training must be claim or lower-bound, the first estimate is {first.method}"
    if kind == "one-run" and (first.method != "one-run" or first.details.get("selection") != "learned"):
        yield "the headline of a one-run audit must be one-run with learned guesses"
    if kind == "members-only" and first.method != "panoramia":
        yield f"the headline of a members-only audit must be panoramia, the first estimate is {first.method}"
    if kind == "gradients":
        runs, on_d = (getattr(file.metadata, name, None) for name in ("repetitions", "trained_on_d"))
        both = isinstance(runs, int) and isinstance(on_d, int) and 0 < on_d < runs
        wanted = "lower-bound" if both or "lower-bound" in methods else "advantage, trajectory"
        if first.method != wanted:
            yield f"the headline of these gradients must be {wanted}, the first estimate is {first.method}"


def _of_guard(file: AuditFile) -> Iterator[str]:
    guard, found = file.guard, file.guard.evidence
    if guard.shift and not guard.checked:
        yield "guard: a shift that was found must have been checked for"
    tests = [found.get(name) for name in ("p_value", "class_balance_p")]
    if any(p is not None and not (type(p) in (int, float) and 0 <= p <= 1) for p in tests):
        yield "guard.evidence: a p-value must be a number in [0, 1]"
        return
    level = found.get("level")
    if found.get("p_value") is not None:
        if type(level) not in (int, float):
            yield "guard.evidence: level must be a number"
            return
        if not guard.checked:
            yield "guard: checked is false, but its evidence holds a p-value"
        below = any(p is not None and p <= level for p in tests)
        if below != guard.shift:
            yield f"guard: shift is {str(guard.shift).lower()}, its p-values say {str(below).lower()}"
    elif guard.checked and file.schema_ > 1 and _is_split(file):
        yield "guard: checked is true, but no p-value says what was found"


def _is_split(file: AuditFile) -> bool:
    """Whether members and non-members were given, so that they may differ without the model."""
    return file.metadata.kind is None and Validity(file.estimates[0].validity) is Validity.RANDOM_SPLIT


def _of_curve(curve: CurveFile, confidence: float) -> Iterator[str]:
    arrays = {name: getattr(curve, name) for name in ("threshold", "fpr", "tpr", "fpr_high", "tpr_low")}
    given = {name: values for name, values in arrays.items() if values is not None}
    if not given:
        if curve.tpr_at_fpr:
            yield "curve: tpr_at_fpr is given without a curve"
        return
    if "fpr" not in given or "tpr" not in given or curve.auc is None:
        yield "curve: auc, fpr and tpr belong together"
        return
    if len({len(values) for values in given.values()}) != 1 or not given["fpr"]:
        yield "curve: its columns must be of one length, at least 1"
        return
    for name in ("fpr", "tpr"):
        if any(b < a for a, b in pairwise(given[name])):
            yield f"curve: {name} must not fall along the curve"
            return
    rates = [p.fpr for p in curve.tpr_at_fpr]
    if any(b <= a for a, b in pairwise(rates)):
        yield "curve: the points of tpr_at_fpr must rise in fpr, each named once"
        return
    for point in curve.tpr_at_fpr:
        yield from _of_point(point, given["fpr"], given["tpr"])
        if confidence >= 0.9 and point.tpr_low > point.tpr + 1e-9:
            yield f"curve: tpr_low at fpr {point.fpr:g} is {point.tpr_low:g}, above tpr"
    lowest, highest = _auc_range(given["fpr"], given["tpr"])
    if not lowest - 1e-9 <= curve.auc <= highest + 1e-9:
        yield f"curve: auc is {curve.auc:.4f}, the curve allows {lowest:.4f} to {highest:.4f}"


def _of_point(point: TprFile, fpr: list[float], tpr: list[float]) -> Iterator[str]:
    """A point lies between the vertices of the curve around its FPR."""
    edge = point.fpr * (1 + 1e-9)
    least = max((t for f, t in zip(fpr, tpr, strict=True) if f <= edge), default=0.0)
    most = min((t for f, t in zip(fpr, tpr, strict=True) if f > edge), default=1.0)
    if not least - 1e-9 <= point.tpr <= most + 1e-9:
        yield f"curve: tpr at fpr {point.fpr:g} is {point.tpr:g}, the curve allows {least:g} to {most:g}"


def _auc_range(fpr: list[float], tpr: list[float]) -> tuple[float, float]:
    """The least and the largest area under a rising curve through these points, (0, 0) and (1, 1)."""
    x, y = [0.0, *fpr, 1.0], [0.0, *tpr, 1.0]
    steps = list(zip(pairwise(x), pairwise(y), strict=True))
    return sum((b - a) * s for (a, b), (s, _) in steps), sum((b - a) * t for (a, b), (_, t) in steps)


def _of_drawings(file: AuditFile) -> Iterator[str]:
    if file.star is not None:
        sizes = {len(file.star.fpr), len(file.star.fnr), len(file.star.epsilon)}
        if len(sizes) != 1 or file.star.best >= len(file.star.fpr):
            yield "star: its columns must be of one length, and best one of their places"
    if file.distributions is not None:
        d = file.distributions
        if not len(d.edges) - 1 == len(d.members) == len(d.nonmembers):
            yield "distributions: members and nonmembers need one value for each bin between two edges"


def _of_trainings(file: AuditFile) -> Iterator[str]:
    meta = file.metadata
    if meta.kind not in ("training", "one-run") or file.schema_ == 1:
        return
    if meta.trainings is None:
        yield f"metadata: a {meta.kind} audit must say how many trainings there were and failed"
    elif (counts := meta.trainings) and counts.asked != counts.done + counts.failed + counts.spared:
        told = counts.done + counts.failed + counts.spared
        yield f"metadata: {counts.asked} trainings were asked for, {told} are told of"
    elif meta.failed is not None and len(meta.failed) != meta.trainings.failed:
        yield f"metadata: {len(meta.failed)} failed trainings are listed, {meta.trainings.failed} are counted"
