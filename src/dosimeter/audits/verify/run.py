"""`verify`: every part of an audit against its evidence."""

from __future__ import annotations

from functools import partial

from dosimeter._validate import InputError, show
from dosimeter.audits.parts import known
from dosimeter.audits.result import Audit
from dosimeter.audits.verify.curve import (
    auc_of,
    bins_of_audit,
    coins_follow,
    counts_follow,
    curve_follows,
    has_coins,
)
from dosimeter.audits.verify.data import from_data
from dosimeter.audits.verify.finding import Recomputed, Verification, WrongError, close, compare, finding_of
from dosimeter.audits.verify.methods import recompute
from dosimeter.estimate import Estimate, number
from dosimeter.evidence import OneRun, Scores

__all__ = ["verify"]


def verify(audit: Audit, *, data: Scores | OneRun | None = None) -> Verification:
    """Recompute every bound of an audit from the evidence that it carries.

    Args:
        audit: The audit, for example from `Audit.from_json`.
        data: The scores that it was made of. With them also the evidence is recomputed.

    Returns:
        What was found, for each number.

    Raises:
        InputError: If `audit` is not an audit, or `data` cannot be its data.

    >>> import numpy as np
    >>> from dosimeter.audits.scores import audit_scores
    >>> rng = np.random.default_rng(0)
    >>> audit = audit_scores(Scores(rng.normal(2, 1, 100), rng.normal(0, 1, 100)))
    >>> verify(audit).valid
    True
    """
    if not isinstance(audit, Audit):
        raise InputError(f"audit must be an Audit, got {show(audit)}; read it with Audit.from_json.")
    if data is not None and not isinstance(data, (Scores, OneRun)):
        raise InputError(f"data must be Scores or OneRun, got {show(data)}; build one of these first.")
    audit = Audit.from_dict(audit.to_dict())  # evidence as a file holds it, however the audit was built
    parts = [finding_of(e.method, partial(_estimate_follows, e, audit), e.epsilon) for e in audit.estimates]
    if audit.schema > 1 and (audit.region is not None or audit.risk.would_allow is not None):
        parts.append(finding_of("risk", lambda: _risk_follows(audit)))
    bins, curve = bins_of_audit(audit), audit.curve
    if curve is not None:
        parts.append(finding_of("curve", lambda: curve_follows(audit, curve, bins)))
    if bins is not None:
        parts.append(finding_of("counts", lambda: counts_follow(audit, bins)))
    if has_coins(audit):
        parts.append(finding_of("coins", lambda: coins_follow(audit, bins)))
    if data is not None:
        parts += from_data(audit, bins, data)
    return Verification(tuple(parts), None if bins is None else auc_of(bins))


def _estimate_follows(estimate: Estimate, audit: Audit) -> Recomputed:
    again = recompute(estimate, audit)
    compare(estimate, again)
    return again


def _risk_follows(audit: Audit) -> str:
    """What is said to follow from the headline must be about the numbers that the audit holds."""
    region, allowed, head = audit.region, audit.risk.would_allow, audit.headline
    if region is not None and (region.lower not in audit.estimates or region.upper not in audit.upper):
        raise WrongError("the region of privacy is not one of the audit's own numbers")
    if allowed is not None and head.validity.is_bound and not close(known(allowed.epsilon), head.low):
        raise WrongError(f"it is about ε = {number(known(allowed.epsilon))}, the headline says {number(head.low)}")
    return "it is about the numbers of this audit"
