"""A baseline for each record: the bound on ε if the baselines' log-odds say how likely each record is a member.

The log-odds of a record are the mean over all baselines, each of which sees the records and a reference model. The same
bound for each reference model in the target's place is the control: those never saw the audit members, so what is
proven about them is an error of the log-odds. The largest of these is subtracted from every target's bound.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dosimeter._validate import FloatArray
from dosimeter.audits.members_only.pair_classifier import Pair
from dosimeter.audits.members_only.result import PropensityBin, PropensityCheck
from dosimeter.estimate import Estimate, number
from dosimeter.estimators.propensity import propensity_bound
from dosimeter.estimators.propensity_run import PropensityRun, reliability

UNCALIBRATED = "the baselines' chances do not agree with who the members are, so the condition of this bound fails"


@dataclass(frozen=True, eq=False)
class PropensityBounds:
    """The bounds of every target, those that need the order of the log-odds alone, and the check of the log-odds."""

    estimates: tuple[Estimate, ...]
    ordered: tuple[float, ...]
    check: PropensityCheck


def propensity_bounds(attacks: Mapping[str, Pair], baselines: Sequence[Pair], confidence: float) -> PropensityBounds:
    """Bound ε of each target from all pairs, every record with its own log-odds."""
    controls = tuple(
        propensity_bound(_evidence(own, [b for b in baselines if b is not own]), confidence=confidence).epsilon
        for own in baselines
        if len(baselines) > 1
    )
    slack = max(controls, default=0.0)
    runs = [replace(_evidence(pair, baselines), slack=slack) for pair in attacks.values()]
    agreed = reliability(runs[0], level=1.0 - confidence)
    check = PropensityCheck(tuple(PropensityBin(*row) for row in agreed.bins), agreed.calibrated, controls)
    estimates = tuple(
        _labelled(propensity_bound(run, confidence=confidence), name if len(attacks) > 1 else "", check)
        for name, run in zip(attacks, runs, strict=True)
    )
    ordered = tuple(propensity_bound(run.ordered(), confidence=confidence).epsilon for run in runs)
    return PropensityBounds(estimates, ordered, check)


def _evidence(attack: Pair, baselines: Sequence[Pair]) -> PropensityRun:
    """What the attack says beyond the baselines, pair by pair; both give log-odds, so that they can be subtracted."""
    odds: list[FloatArray] = [np.mean([pair[side] for pair in baselines], axis=0) for side in (0, 1)]
    return PropensityRun.from_pairs((attack[0] - odds[0], attack[1] - odds[1]), (odds[0], odds[1]))


def _labelled(estimate: Estimate, name: str, check: PropensityCheck) -> Estimate:
    """The estimate with the target's name, and with what speaks against its condition."""
    warnings = [] if check.calibrated else [UNCALIBRATED]
    shown = max(check.controls, default=0.0)
    if shown > 0:
        warnings.append(
            f"the same bound for a reference model that never saw these members is {number(shown)}, so models know "
            "something of the records that the baselines do not; this was subtracted"
        )
    if not check.controls:
        warnings.append("there are no reference models, so nothing shows how much a model without a leak would get")
    return replace(
        estimate,
        claim=f"{name}: {estimate.claim}" if name else estimate.claim,
        warnings=(*estimate.warnings, *warnings),
        details={**estimate.details, "target": name or "model"},
    )
