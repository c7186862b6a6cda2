"""Rules that a release must keep, checked against an audit."""

from __future__ import annotations

from dataclasses import dataclass
from xml.sax.saxutils import quoteattr

from dosimeter import _validate as check
from dosimeter._validate import InputError
from dosimeter.audits.audit import Audit
from dosimeter.estimate import Validity, number

NO_BOUND = (Validity.INSTANCE_METRIC, Validity.MEASUREMENT, Validity.EXPLORATORY)


@dataclass(frozen=True)
class Verdict:
    """One rule and whether the audit keeps it."""

    rule: str
    passed: bool
    reason: str

    def __str__(self) -> str:
        return f"{'pass' if self.passed else 'FAIL'}  {self.rule}: {self.reason}"


def gate(
    audit: Audit,
    *,
    max_epsilon: float | None = None,
    max_tpr_at_fpr: dict[float, float] | None = None,
    require_no_shift: bool = False,
) -> list[Verdict]:
    """Check an audit against limits; at least one rule must be given.

    `max_epsilon` limits the headline: a proven ε above it fails, and so does a measured one where the headline is no
    bound. `max_tpr_at_fpr` limits the *measured* TPR, which is stricter than its confidence limit. `require_no_shift`
    fails also where no shift check was made.
    """
    limits = max_tpr_at_fpr or {}
    if max_epsilon is None and not limits and not require_no_shift:
        raise InputError("gate needs a rule; pass --max-epsilon, --max-tpr-at-fpr FPR=TPR or --require-no-shift.")
    found = []
    if max_epsilon is not None:
        limit = check.within(
            "max_epsilon", max_epsilon, 0.0, float("inf"), "pass the largest ε that may be proven", include="[)"
        )
        head = audit.headline
        measured = head.validity in NO_BOUND
        shown = head.epsilon if measured else head.low
        says = f"measures ε = {number(shown)}" if measured else f"proves ε ≥ {number(shown)}"
        reason = f"the attack {says} at δ = {head.delta:g} ({head.validity})"
        found.append(Verdict(f"max-epsilon {limit:g}", shown <= limit, reason))
    for fpr, tpr in limits.items():
        limit = check.within("max_tpr_at_fpr", tpr, 0.0, 1.0, "pass e.g. 0.01=0.05")
        points = audit.curve.get("tpr_at_fpr") or []
        if not points:
            raise InputError(f"max_tpr_at_fpr names the FPR {fpr:g}, but this audit has no ROC curve; use max_epsilon.")
        point = next((p for p in points if abs(p["fpr"] - fpr) < 1e-12), None)
        if point is None:
            known = ", ".join(f"{p['fpr']:g}" for p in points)
            raise InputError(f"max_tpr_at_fpr names the FPR {fpr:g}, the audit has {known}; use one of these.")
        reason = f"the attack finds {100 * point['tpr']:.3g} % of the members at an FPR of {100 * fpr:g} %"
        found.append(Verdict(f"max-tpr-at-fpr {fpr:g}={limit:g}", point["tpr"] <= limit, reason))
    if require_no_shift:
        passed = audit.guard.checked and not audit.guard.shift
        found.append(Verdict("require-no-shift", passed, str(audit.guard)))
    return found


def junit(verdicts: list[Verdict]) -> str:
    """The verdicts as JUnit XML, for pipelines that show test results."""
    failures = sum(not v.passed for v in verdicts)
    cases = []
    for verdict in verdicts:
        head = f"  <testcase classname={quoteattr('dosimeter.gate')} name={quoteattr(verdict.rule)}"
        if verdict.passed:
            cases.append(head + "/>")
        else:
            cases.append(f"{head}>\n    <failure message={quoteattr(verdict.reason)}/>\n  </testcase>")
    body = "\n".join(cases)
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<testsuite name="dosimeter gate" tests="{len(verdicts)}" failures="{failures}">\n{body}\n</testsuite>\n'
    )
