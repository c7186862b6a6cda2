"""Rules that a release must keep, checked against an audit that is verified first."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from xml.sax.saxutils import quoteattr

from dosimeter import _validate as check
from dosimeter._validate import InputError
from dosimeter.audits.result import Audit, TprAtFpr, TrainedMetadata
from dosimeter.audits.verify import Finding, Standing, Verification, verify
from dosimeter.audits.verify.curve import bins_of_audit
from dosimeter.estimate import Estimate, Validity, change, number, percent
from dosimeter.estimators.headline import Bins
from dosimeter.evidence import OneRun, Scores

__all__ = ["InvalidAuditError", "Outcome", "Verdict", "gate", "junit", "markdown", "passed"]

MAX_DELTA = 1e-3
MOST_FAILED = 0.01  # of the trainings
REVERSED = 3.5  # standard errors of the AUC below one half: chance in 1 of 4000 audits
MOST_CONFIDENCE = 0.999  # beyond it a bound says so little that a limit can be kept by asking for more confidence
NO_BOUND = (Validity.INSTANCE_METRIC, Validity.MEASUREMENT, Validity.EXPLORATORY)
NEIGHBOURS = ("add/remove", "replace")


class InvalidAuditError(InputError):
    """An audit whose numbers do not follow from its evidence: no rule was checked."""


class Outcome(StrEnum):
    """The outcome of a rule. A note is not a rule: it says what nobody checked."""

    PASS = "pass"
    FAIL = "FAIL"
    UNDECIDED = "UNDECIDED"
    NOTE = "note"


@dataclass(frozen=True)
class Verdict:
    """One rule, its outcome, and why."""

    rule: str
    outcome: Outcome
    reason: str

    @property
    def passed(self) -> bool:
        """Whether the rule does not stop a release."""
        return self.outcome in (Outcome.PASS, Outcome.NOTE)

    def __str__(self) -> str:
        return f"{self.outcome}  {self.rule}: {self.reason}"


@dataclass(frozen=True)
class _Rules:
    """The limits, and what is let through although it would stop a release."""

    max_epsilon: float | None
    max_delta: float
    min_confidence: float | None
    max_tpr_at_fpr: Mapping[float, float]
    neighbours: str | None
    no_shift: bool
    allowed: frozenset[str]

    @property
    def any(self) -> bool:
        """Whether a limit was given at all; the one of δ always is."""
        limits = (self.max_epsilon, self.min_confidence, self.neighbours)
        return any(limit is not None for limit in limits) or bool(self.max_tpr_at_fpr) or self.no_shift


@dataclass(frozen=True)
class _Case:
    """An audit before its rules, and the estimate that limits apply to with what verifying found of it."""

    audit: Audit
    verification: Verification
    rules: _Rules
    limited: Estimate
    finding: Finding
    bins: Bins | None


def gate(
    audit: Audit,
    *,
    max_epsilon: float | None = None,
    max_delta: float = MAX_DELTA,
    min_confidence: float | None = None,
    max_tpr_at_fpr: Mapping[float, float] | None = None,
    require_neighbours: str | None = None,
    require_no_shift: bool = False,
    allow_shift: bool = False,
    allow_undecided: bool = False,
    allow_failed: bool = False,
    allow_unverified: bool = False,
    data: Scores | OneRun | None = None,
    verification: Verification | None = None,
) -> list[Verdict]:
    """Verify an audit, then check it against limits.

    A limit is kept if the audit could have found that it is broken and did not. Where it could not, because even a
    perfect attack on so few records proves no more than the limit, because a confidence above 99.9 % lets little be
    proven, or because the scores are all equal or the wrong way round, the rule is undecided, which does not pass. A
    shift that was found, a δ above `max_delta`, more than 1 % of failed trainings and a headline without evidence fail
    whether or not a limit is given for them.

    Args:
        audit: The audit.
        max_epsilon: The largest ε that the headline may prove. Where it is not a bound, the largest that it may
            measure or that a bound beside it may prove.
        max_delta: The largest δ at which that ε may stand.
        min_confidence: The least confidence of the headline.
        max_tpr_at_fpr: The largest *measured* TPR at each of some FPRs, e.g. {0.01: 0.05}.
        require_neighbours: Whose ε is limited: "add/remove" or "replace". An audit that bounds both is held to that
            bound; one that bounds the other alone fails.
        require_no_shift: Deprecated: a shift that was found fails anyway. Fails also where nobody looked for one.
        allow_shift: Let an audit through in which members and non-members differ without the model.
        allow_undecided: Let undecided rules through.
        allow_failed: Let failed trainings through.
        allow_unverified: Let an audit through that carries no evidence for its headline, such as one of schema 1.
        data: The scores that the audit was made of, to verify its evidence too.
        verification: What `verify` found, where that was done already.

    Returns:
        One verdict for each rule, those that were asked for first, and notes on what nobody checked.

    Raises:
        InvalidAuditError: If a number of the audit does not follow from its evidence.
        InputError: If no limit is given, or one cannot be a limit.

    >>> import numpy as np
    >>> from dosimeter.audits.scores import audit_scores
    >>> rng = np.random.default_rng(0)
    >>> audit = audit_scores(Scores(rng.normal(2, 1, 200), rng.normal(0, 1, 200)))
    >>> print(gate(audit, max_epsilon=1)[0].outcome)
    FAIL
    """
    if require_no_shift:
        warnings.warn(
            "require_no_shift is deprecated: a shift that was found fails anyway; it only requires that the check "
            "was made",
            DeprecationWarning,
            stacklevel=2,
        )
    allowed = {
        "shift": allow_shift,
        "undecided": allow_undecided,
        "failed": allow_failed,
        "unverified": allow_unverified,
    }
    rules = _Rules(
        None if max_epsilon is None else _limit("max_epsilon", max_epsilon, float("inf"), "the largest ε to let pass"),
        _limit("max_delta", max_delta, 1.0, "the largest δ to let pass, e.g. 1e-3"),
        None if min_confidence is None else check.confidence(min_confidence),
        _tpr_limits(max_tpr_at_fpr),
        None if require_neighbours is None else check.choice("require_neighbours", require_neighbours, NEIGHBOURS),
        check.flag("require_no_shift", require_no_shift),
        frozenset(name for name, value in allowed.items() if check.flag(f"allow_{name}", value)),
    )
    if not rules.any:
        raise InputError("gate needs a limit; pass max_epsilon, max_tpr_at_fpr, min_confidence or require_neighbours.")
    return _judge(audit, verify(audit, data=data) if verification is None else verification, rules)


def _judge(audit: Audit, verification: Verification, rules: _Rules) -> list[Verdict]:
    """Every rule against an audit whose numbers follow from its evidence."""
    if not verification.valid:
        first = verification.contradictions[0]
        raise InvalidAuditError(f"the audit is not valid: {first.subject}: {first.reason}. No rule was checked.")
    index = _limited(audit, rules)
    case = _Case(audit, verification, rules, audit.estimates[index], verification.findings[index], bins_of_audit(audit))
    return [verdict for rule in _RULES for verdict in rule(case)]


def passed(verdicts: list[Verdict]) -> bool:
    """Whether no rule stops the release."""
    return all(v.passed for v in verdicts)


def _limit(name: str, value: Any, most: float, what: str) -> float:
    return check.within(name, value, 0.0, most, f"pass {what}", include="[)" if most == float("inf") else "[]")


def _tpr_limits(given: Any) -> dict[float, float]:
    limits: dict[float, float] = {}
    if given is not None and not isinstance(given, Mapping):
        raise InputError(f"max_tpr_at_fpr must be a mapping, got {check.show(given)}; pass e.g. {{0.01: 0.05}}.")
    for fpr, tpr in (given or {}).items():
        remedy = "pass {FPR: TPR}, e.g. {0.01: 0.05}"
        rate = check.within("max_tpr_at_fpr", fpr, 0.0, 1.0, remedy)
        limits[rate] = min(limits.get(rate, 1.0), check.within("max_tpr_at_fpr", tpr, 0.0, 1.0, remedy))
    return limits


# --- the rules --------------------------------------------------------------------------------------------


def _undecided(rules: _Rules, rule: str, reason: str) -> Verdict:
    """Undecided, unless that was allowed; then a note says what was let through."""
    if "undecided" in rules.allowed:
        return Verdict(rule, Outcome.NOTE, f"undecided, and let through: {reason}")
    return Verdict(rule, Outcome.UNDECIDED, reason)


def _judged(rules: _Rules, name: str, rule: str, kept: bool, reason: str) -> Verdict:
    if kept:
        return Verdict(rule, Outcome.PASS, reason)
    if name in rules.allowed:
        return Verdict(rule, Outcome.NOTE, f"let through: {reason}")
    return Verdict(rule, Outcome.FAIL, reason)


def _limited(audit: Audit, rules: _Rules) -> int:
    """The place of the estimate that limits apply to.

    It is the headline, or the same bound for the neighbours that are asked for. Where the headline is not a bound, a
    bound beside it that proves more stands in for it.
    """
    head, places = audit.headline, range(len(audit.estimates))
    if rules.neighbours is not None and head.neighbours != rules.neighbours:
        same = [i for i in places if _is_like(audit.estimates[i], head, rules.neighbours)]
        return max(same, key=lambda i: audit.estimates[i].low, default=0)
    if head.validity.is_bound:
        return 0
    more = [i for i in places if audit.estimates[i].validity.is_bound and audit.estimates[i].low > head.epsilon]
    return max(more, key=lambda i: audit.estimates[i].low, default=0)


def _is_like(estimate: Estimate, head: Estimate, neighbours: str) -> bool:
    return estimate.method == head.method and estimate.neighbours == neighbours and estimate.validity.is_bound


def _epsilon(case: _Case) -> Iterator[Verdict]:
    limited, rules, limit = case.limited, case.rules, case.rules.max_epsilon
    if limit is None:
        return
    rule = f"max-epsilon {limit:g}"
    says = "measures ε =" if limited.validity in NO_BOUND else "proves ε ≥"
    of = f" for {change(limited.neighbours, str(limited.details.get('unit', 'record')))}" if limited.neighbours else ""
    reason = f"the attack {says} {number(limited.epsilon)}{of} at δ = {limited.delta:g} ({limited.validity})"
    most = case.finding.most
    if limited.epsilon > limit:
        yield Verdict(rule, Outcome.FAIL, reason)
    elif most is not None and most <= limit:
        size = f"{reason}, but even a perfect attack on as many records would have proven about {number(most)}"
        yield _undecided(rules, rule, f"{size}; audit more records")
    elif limited.confidence > MOST_CONFIDENCE:
        sure = f"{reason}, but with {percent(limited.confidence)} confidence, at which an attack can show little"
        yield _undecided(rules, rule, f"{sure}; audit with at most {percent(MOST_CONFIDENCE)}")
    elif (auc := _reversed(case)) is not None:
        yield _undecided(rules, rule, f"{reason}, but the scores look the wrong way round (AUC {auc:.2f}); negate them")
    elif case.bins is not None and case.bins.records.size == 1:
        yield _undecided(rules, rule, f"{reason}, but all scores are equal: no attack was made; look at its scores")
    else:
        yield Verdict(rule, Outcome.PASS, reason)


def _reversed(case: _Case) -> float | None:
    """The AUC if it lies so far below one half that the scores must be the wrong way round."""
    sizes, curve = _sizes(case), case.audit.curve
    measured = None if curve is None else curve.auc
    auc = measured if case.verification.auc is None else case.verification.auc
    if auc is None or sizes is None:
        return None
    error = ((sum(sizes) + 1) / (12 * sizes[0] * sizes[1])) ** 0.5  # of the rank sum where nothing leaks
    return auc if auc < 0.5 - REVERSED * error else None


def _sizes(case: _Case) -> tuple[int, int] | None:
    """How many members and non-members were ranked, or guessed at one threshold."""
    if case.bins is not None:
        inside = int(case.bins.members.sum())
        return inside, case.bins.total - inside
    counts = next((e.counts for e in case.audit.estimates if e.counts is not None), None)
    return None if counts is None else (counts.members, counts.nonmembers)


def _tpr(case: _Case) -> Iterator[Verdict]:
    points = () if case.audit.curve is None else case.audit.curve.tpr_at_fpr
    for fpr, limit in case.rules.max_tpr_at_fpr.items():
        if not points:
            raise InputError(f"max_tpr_at_fpr names the FPR {fpr:g}, but this audit has no ROC curve; use max_epsilon.")
        point = next((p for p in points if abs(p.fpr - fpr) < 1e-12), None)
        if point is None:
            known = ", ".join(f"{p.fpr:g}" for p in points)
            raise InputError(f"max_tpr_at_fpr names the FPR {fpr:g}, the audit has {known}; use one of these.")
        yield _tpr_at(case, point, limit)


def _tpr_at(case: _Case, point: TprAtFpr, limit: float) -> Verdict:
    rule = f"max-tpr-at-fpr {point.fpr:g}={limit:g}"
    reason = f"the attack finds {100 * point.tpr:.3g} % of the members at an FPR of {100 * point.fpr:g} %"
    curve, sizes = case.verification.of("curve"), _sizes(case)
    if point.tpr > limit:
        return Verdict(rule, Outcome.FAIL, reason)
    if curve is None or curve.standing is not Standing.FOLLOWS:
        return _judged(case.rules, "unverified", rule, False, f"{reason}, but the curve carries no evidence")
    if sizes is not None and point.fpr * sizes[1] < 1:
        few = f"{reason}, but {sizes[1]} non-members are too few to measure it there"
        return _undecided(case.rules, rule, few)
    if (auc := _reversed(case)) is not None:
        return _undecided(case.rules, rule, f"{reason}, but the scores look the wrong way round (AUC {auc:.2f})")
    return Verdict(rule, Outcome.PASS, reason)


def _delta(case: _Case) -> Iterator[Verdict]:
    delta, most = case.limited.delta, case.rules.max_delta
    outcome = Outcome.PASS if delta <= most else Outcome.FAIL
    yield Verdict(f"max-delta {most:g}", outcome, f"the headline stands at δ = {delta:g}")


def _confidence(case: _Case) -> Iterator[Verdict]:
    level, least = case.limited.confidence, case.rules.min_confidence
    if least is not None:
        outcome = Outcome.PASS if level >= least - 1e-12 else Outcome.FAIL
        yield Verdict(f"min-confidence {least:g}", outcome, f"the headline holds with {percent(level)}")


def _neighbours(case: _Case) -> Iterator[Verdict]:
    has, wanted = case.limited.neighbours, case.rules.neighbours
    if wanted is not None:
        outcome = Outcome.PASS if has == wanted else Outcome.FAIL
        reason = f"the bound is for {change(has)}" if has else "the audit does not say whose ε it bounds"
        yield Verdict(f"require-neighbours {wanted}", outcome, reason)


def _shift(case: _Case) -> Iterator[Verdict]:
    guard, rules = case.audit.guard, case.rules
    if guard.shift:
        yield _judged(rules, "shift", "no shift", False, str(guard))
    elif not guard.checked and rules.no_shift:
        yield Verdict("require-no-shift", Outcome.FAIL, str(guard))
    elif not guard.checked:
        yield Verdict("shift", Outcome.NOTE, str(guard))
    else:
        yield Verdict("no shift", Outcome.PASS, str(guard))


def _trainings(case: _Case) -> Iterator[Verdict]:
    meta = case.audit.metadata
    counts = meta.trainings if isinstance(meta, TrainedMetadata) else None
    if counts is None:
        return
    lost = max(counts.asked - counts.done - counts.spared, counts.failed)
    total = max(counts.asked, lost)
    if total == 0:
        return
    rule = f"failed trainings at most {percent(MOST_FAILED)}"
    reason = f"{lost} of {total} trainings failed or are missing"
    yield _judged(case.rules, "failed", rule, lost <= MOST_FAILED * total, reason)


def _verified(case: _Case) -> Iterator[Verdict]:
    """The headline and the estimate that limits apply to must both follow from evidence."""
    both = (case.verification.headline, case.finding)
    worst = next((f for f in both if f.standing is not Standing.FOLLOWS), case.finding)
    kept = worst.standing is Standing.FOLLOWS
    yield _judged(case.rules, "unverified", "verified", kept, f"{worst.subject}: {worst.reason}")


_Rule = Callable[[_Case], Iterator[Verdict]]
_RULES: tuple[_Rule, ...] = (_epsilon, _tpr, _confidence, _neighbours, _delta, _shift, _trainings, _verified)


# --- for pipelines ----------------------------------------------------------------------------------------


def junit(verdicts: list[Verdict]) -> str:
    """The verdicts as JUnit XML, for pipelines that show test results; notes are skipped tests."""
    failures = sum(not v.passed for v in verdicts)
    skipped = sum(v.outcome is Outcome.NOTE for v in verdicts)
    cases = []
    for verdict in verdicts:
        head = f"  <testcase classname={quoteattr('dosimeter.gate')} name={quoteattr(_printable(verdict.rule))}"
        message = quoteattr(_printable(verdict.reason))
        if verdict.outcome is Outcome.PASS:
            cases.append(head + "/>")
        elif verdict.outcome is Outcome.NOTE:
            cases.append(f"{head}>\n    <skipped message={message}/>\n  </testcase>")
        else:
            kind = quoteattr(str(verdict.outcome).lower())
            cases.append(f"{head}>\n    <failure type={kind} message={message}/>\n  </testcase>")
    body = "\n".join(cases)
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<testsuite name="dosimeter gate" tests="{len(verdicts)}" failures="{failures}" skipped="{skipped}">\n'
        f"{body}\n</testsuite>\n"
    )


def _printable(text: str) -> str:
    """Without characters that XML cannot hold."""
    return "".join(c if c.isprintable() or c == " " else "�" for c in text)


def markdown(verdicts: list[Verdict], *, name: str = "the audit") -> str:
    """The verdicts as a Markdown table, for a pull request or a job summary."""
    state = "passes" if passed(verdicts) else "does not pass"
    lines = [f"### dosimeter gate: {_cell(name)} {state}", "", "| | rule | reason |", "|---|---|---|"]
    lines += [f"| {v.outcome} | {_cell(v.rule)} | {_cell(v.reason)} |" for v in verdicts]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    """Text that stays text in a cell of a Markdown table."""
    shown = "".join(f"\\{c}" if c in "\\`*_[]<>|!#~" else c for c in _printable(" ".join(text.split())))
    return shown.replace("&", "&amp;")
