"""Checks that the fields of an audit's file agree with each other."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from dosimeter._validate import show
from dosimeter.audits.parts import ShiftEvidence
from dosimeter.audits.result import Audit, Roc, TprAtFpr, TrainedMetadata
from dosimeter.estimate import Estimate, Validity, number, percent

if TYPE_CHECKING:
    from dosimeter.audits.schema import AuditFile

__all__ = ["contradictions"]


def contradictions(file: AuditFile, audit: Audit, given: object) -> Iterator[str]:
    """What in an audit cannot be true beside the rest of it, the gravest first."""
    for index, estimate in enumerate(audit.estimates):
        for problem in _of_estimate(estimate, audit.schema):
            yield f"estimates[{index}] ({estimate.method}): {problem}"
    if audit.schema > 1:
        yield from _of_order(audit)
        if str(audit.guard) != file.guard.verdict:
            yield f"guard.verdict is {show(file.guard.verdict)}, its evidence says {show(str(audit.guard))}"
        unknown = next(_unknown(given, audit.to_dict()), None)
        if unknown is not None:
            yield f"{unknown} is a field that no audit has"
    yield from _of_guard(audit)
    if audit.curve is not None:
        yield from _of_curve(audit.curve, audit.headline.confidence)
    yield from _of_drawings(audit)
    yield from _of_trainings(audit)


def _unknown(given: object, known: object, path: str = "") -> Iterator[str]:
    """The fields of a file that do not come back when the audit is written again."""
    if isinstance(given, dict) and isinstance(known, dict):
        for name, value in given.items():
            place = f"{path}.{name}" if path else name
            if name not in known:
                yield place[:120]
            elif isinstance(value, (dict, list)):
                yield from _unknown(value, known[name], place)
    elif isinstance(given, list) and isinstance(known, list) and not {dict, list}.isdisjoint(map(type, given)):
        for index, (value, again) in enumerate(zip(given, known, strict=False)):
            if isinstance(value, (dict, list)):
                yield from _unknown(value, again, f"{path}[{index}]")


def _of_estimate(e: Estimate, version: int) -> Iterator[str]:
    epsilon, low, high, validity = e.epsilon, e.low, e.high, e.validity
    if low > high:
        yield f"low is {number(low)}, above high, {number(high)}"
    if (validity.is_bound or validity is Validity.CREDIBLE) and epsilon != low:
        yield f"epsilon is {number(epsilon)}, but a lower bound is its low end, {number(low)}"
    if validity.is_bound and e.confidence == 0:
        yield "a bound needs a confidence above 0"
    if version > 1:
        yield from _of_claim(e)


_NUMBER = r"(∞|\d+(?:\.\d+)?(?:e[+-]?\d+)?)"
_EPSILON = re.compile(rf"(?:ε|ε̃|ε'|ε′) (?:≥|=|≤|lies in \[|in \[) ?{_NUMBER}")
_DELTA = re.compile(rf"δ = {_NUMBER}")
_SHARE = r"([\d.]+(?:e[+-]?\d+)?) %"
_CONFIDENCE = re.compile(rf"{_SHARE} (?:confidence|posterior)|posterior probability {_SHARE}")


def _of_claim(e: Estimate) -> Iterator[str]:
    """The sentence must say the numbers beside it: its δ, its confidence, its ε and no unknown one."""
    epsilon, low, high = e.epsilon, e.low, e.high
    stated = {text.rstrip(".") for text in _DELTA.findall(e.claim)}
    if stated - {f"{e.delta:g}", f"{e.delta:.3g}"}:
        yield f"the claim speaks of δ = {min(stated - {f'{e.delta:g}'})}, delta is {e.delta:g}"
    levels = {f"{a or b} %" for a, b in _CONFIDENCE.findall(e.claim)}
    if levels - {percent(e.confidence)}:
        yield f"the claim speaks of {min(levels - {percent(e.confidence)})}, confidence is {percent(e.confidence)}"
    said = {text.rstrip(".") for text in _EPSILON.findall(e.claim)}
    main = {number(v) for v in (epsilon, low)}
    if said and not said & main:
        yield f"the claim says ε = {min(said)}, the estimate {number(epsilon)}"
    if e.validity.is_bound and not said:
        yield f"the claim does not say the ε that it proves, {number(low)}"
    details = (v for v in e.details.values() if isinstance(v, int | float) and not isinstance(v, bool))
    known = main | {number(high)} | {number(float(v)) for v in details}
    if said - known:
        yield f"the claim says ε = {min(said - known)}, which stands nowhere in the estimate"


def _of_order(audit: Audit) -> Iterator[str]:
    """The headline stands first: which one it is depends on the kind of audit."""
    kind, first = audit.metadata.kind, audit.headline
    game = first.details.get("game")
    wanted = _headlines(audit)
    if first.method not in wanted:
        names = " or ".join(wanted)
        yield f"the headline of {_named(kind)} must be {names}, the first estimate is {first.method}"
    if kind == "one-run" and first.details.get("selection") != "learned":
        yield "the headline of a one-run audit must be one-run with learned guesses"
    if game == "split" and kind not in (None, "synthetic"):
        yield f"the headline of {_named(kind)} cannot rest on a random split"
    if game == "split" and first.neighbours != "replace":
        yield f"the headline of one model is for replacing a record, the first estimate is for {first.neighbours}"
    if kind is None:
        yield from _of_scores(audit)


def _headlines(audit: Audit) -> tuple[str, ...]:
    """The methods that may stand first."""
    kind, methods = audit.metadata.kind, {e.method for e in audit.estimates}
    if kind != "gradients":
        return _FIRST[kind]
    runs, on_d = (getattr(audit.metadata, name, None) for name in ("repetitions", "trained_on_d"))
    both = isinstance(runs, int) and isinstance(on_d, int) and 0 < on_d < runs
    return ("lower-bound",) if both or "lower-bound" in methods else ("advantage, trajectory",)


_FIRST = {
    None: ("lower-bound",),
    "training": ("claim", "lower-bound"),
    "one-run": ("one-run",),
    "members-only": ("panoramia",),
    "text": ("lower-bound",),
    "synthetic": ("lower-bound",),
}


def _named(kind: str | None) -> str:
    return "an audit of scores" if kind is None else f"a {kind} audit"


def _of_scores(audit: Audit) -> Iterator[str]:
    """An audit of scores has their ROC curve, and one δ, one confidence and one game for all of them."""
    meta, first = audit.metadata, audit.headline
    if audit.curve is None:
        yield "curve is missing, which every audit of scores has"
    for name, told, stated in (
        ("delta", meta.delta, first.delta),
        ("confidence", meta.confidence, first.confidence),
        ("game", getattr(meta, "game", None), first.details.get("game")),
    ):
        if told is not None and stated is not None and told != stated:
            yield f"metadata.{name} is {show(told)}, the headline's is {show(stated)}"
    for other in audit.estimates[1:]:
        if other.method == first.method and (other.delta, other.confidence) != (first.delta, first.confidence):
            yield "its lower bounds have more than one δ or confidence"


def _of_guard(audit: Audit) -> Iterator[str]:
    guard, evidence = audit.guard, audit.guard.evidence
    if guard.shift and not guard.checked:
        yield "guard: a shift that was found must have been checked for"
    if evidence.p_value is None:
        if guard.checked and audit.schema > 1 and audit.headline.validity is Validity.RANDOM_SPLIT:
            yield "guard: checked is true, but no p-value says what was found"
        if audit.schema > 1 and evidence.auc is not None:
            yield "guard.evidence: it holds an AUC without its p-value"
        return
    if not guard.checked:
        yield "guard: checked is false, but its evidence holds a p-value"
    if evidence.level is None:
        yield "guard.evidence: level must be a number"
        return
    below = any(p is not None and p <= evidence.level for p in (evidence.p_value, evidence.class_balance_p))
    if below != guard.shift:
        yield f"guard: shift is {str(guard.shift).lower()}, its p-values say {str(below).lower()}"
    if audit.schema > 1:
        yield from _of_tests(evidence)
        rests = audit.headline.validity is Validity.RANDOM_SPLIT or audit.metadata.kind == "members-only"
        if rests and evidence.confidence is not None and evidence.confidence > audit.headline.confidence:
            yield "guard.evidence: a check at more confidence than the audit's finds less than the audit asks for"


def _of_tests(evidence: ShiftEvidence) -> Iterator[str]:
    """The level is shared by the tests made, and the p-value is that of the better half."""
    tests = 1 if evidence.class_balance_p is None else 2
    if (
        evidence.confidence is None
        or evidence.level is None
        or abs(evidence.level * tests - (1 - evidence.confidence)) > 1e-9
    ):
        yield "guard.evidence: level must be 1 − confidence, shared by the tests made"
    if evidence.auc is None or evidence.auc_low is None or evidence.auc_high is None:
        yield "guard.evidence: a p-value needs the AUC that it is about, with its interval"
    elif not evidence.auc_low <= evidence.auc <= evidence.auc_high:
        yield "guard.evidence: the AUC must lie in its interval"
    if not evidence.candidates:
        return
    best = min(1.0, 2 * min(half.p_value for half in evidence.candidates))
    mean = sum(half.auc for half in evidence.candidates) / len(evidence.candidates)
    if evidence.p_value is not None and abs(best - evidence.p_value) > 1e-9:
        yield "guard.evidence: p_value must be twice the smaller one of its halves"
    if evidence.auc is not None and abs(mean - evidence.auc) > 1e-9:
        yield "guard.evidence: auc must be the mean of its halves"


def _of_curve(curve: Roc, confidence: float) -> Iterator[str]:
    columns = (curve.threshold, curve.fpr, curve.tpr, curve.fpr_high, curve.tpr_low)
    if len({len(values) for values in columns}) != 1 or not curve.fpr:
        yield "curve: its columns must be of one length, at least 1"
        return
    for name in ("fpr", "tpr"):
        if any(b < a for a, b in pairwise(getattr(curve, name))):
            yield f"curve: {name} must not fall along the curve"
            return
    rates = [p.fpr for p in curve.tpr_at_fpr]
    if any(b <= a for a, b in pairwise(rates)):
        yield "curve: the points of tpr_at_fpr must rise in fpr, each named once"
        return
    for point in curve.tpr_at_fpr:
        yield from _of_point(point, curve.fpr, curve.tpr)
        if confidence >= 0.9 and point.tpr_low > point.tpr + 1e-9:
            yield f"curve: tpr_low at fpr {point.fpr:g} is {point.tpr_low:g}, above tpr"
    yield from _of_other_end(curve, confidence)
    lowest, highest = _auc_range(curve.fpr, curve.tpr)
    if not lowest - 1e-9 <= curve.auc <= highest + 1e-9:
        yield f"curve: auc is {curve.auc:.4f}, the curve allows {lowest:.4f} to {highest:.4f}"


def _of_other_end(curve: Roc, confidence: float) -> Iterator[str]:
    """The points of TNR at low FNRs, which are those of the curve seen from its other end."""
    if any(b.fnr <= a.fnr for a, b in pairwise(curve.tnr_at_fnr)):
        yield "curve: the points of tnr_at_fnr must rise in fnr, each named once"
        return
    fnr, tnr = [1 - rate for rate in reversed(curve.tpr)], [1 - rate for rate in reversed(curve.fpr)]
    for point in curve.tnr_at_fnr:
        edge = point.fnr * (1 + 1e-9) + 1e-12
        least = max((t for f, t in zip(fnr, tnr, strict=True) if f <= edge), default=0.0)
        most = min((t for f, t in zip(fnr, tnr, strict=True) if f > edge), default=1.0)
        if not least - 1e-9 <= point.tnr <= most + 1e-9:
            yield f"curve: tnr at fnr {point.fnr:g} is {point.tnr:g}, the curve allows {least:g} to {most:g}"
        if confidence >= 0.9 and point.tnr_low > point.tnr + 1e-9:
            yield f"curve: tnr_low at fnr {point.fnr:g} is {point.tnr_low:g}, above tnr"


def _of_point(point: TprAtFpr, fpr: Sequence[float], tpr: Sequence[float]) -> Iterator[str]:
    """A point lies between the vertices of the curve around its FPR."""
    edge = point.fpr * (1 + 1e-9)
    least = max((t for f, t in zip(fpr, tpr, strict=True) if f <= edge), default=0.0)
    most = min((t for f, t in zip(fpr, tpr, strict=True) if f > edge), default=1.0)
    if not least - 1e-9 <= point.tpr <= most + 1e-9:
        yield f"curve: tpr at fpr {point.fpr:g} is {point.tpr:g}, the curve allows {least:g} to {most:g}"


def _auc_range(fpr: Sequence[float], tpr: Sequence[float]) -> tuple[float, float]:
    """The least and the largest area under a rising curve through these points, (0, 0) and (1, 1)."""
    x, y = [0.0, *fpr, 1.0], [0.0, *tpr, 1.0]
    steps = list(zip(pairwise(x), pairwise(y), strict=True))
    return sum((b - a) * s for (a, b), (s, _) in steps), sum((b - a) * t for (a, b), (_, t) in steps)


def _of_drawings(audit: Audit) -> Iterator[str]:
    star, bins = audit.star, audit.distributions
    if star is not None:
        sizes = {len(star.fpr), len(star.fnr), len(star.epsilon)}
        if len(sizes) != 1 or star.best >= len(star.fpr):
            yield "star: its columns must be of one length, and best one of their places"
    if bins is not None and not len(bins.edges) - 1 == len(bins.members) == len(bins.nonmembers):
        yield "distributions: members and nonmembers need one value for each bin between two edges"


def _of_trainings(audit: Audit) -> Iterator[str]:
    meta = audit.metadata
    if not isinstance(meta, TrainedMetadata) or meta.kind not in ("training", "one-run") or audit.schema == 1:
        return
    counts = meta.trainings
    if counts is None:
        yield f"metadata: a {meta.kind} audit must say how many trainings there were and failed"
        return
    told = counts.done + counts.failed + counts.spared
    if counts.asked != told:
        yield f"metadata: {counts.asked} trainings were asked for, {told} are accounted for"
    elif meta.failed is not None and len(meta.failed) != counts.failed:
        yield f"metadata: {len(meta.failed)} failed trainings are listed, {counts.failed} are counted"
