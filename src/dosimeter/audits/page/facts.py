"""What the page says, as values: drawn from an audit once, used by charts, captions and tables alike."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from dosimeter._validate import FloatArray
from dosimeter.accounting import Guarantee, PrivacyRegion
from dosimeter.accounting.region import comparable
from dosimeter.audits.assemble import family
from dosimeter.audits.result import Audit, TprAtFpr
from dosimeter.estimate import Estimate, Validity, percent
from dosimeter.estimators.wording import claim_of_bound
from dosimeter.geometry import tradeoff

SHOWN_FPR = 0.01


def ordered(upper: Iterable[Guarantee]) -> list[Guarantee]:
    """Guarantees for reading: proven ones first, the tightest first."""
    return sorted(upper, key=lambda g: (not g.is_bound, g.epsilon))


def bounds(audit: Audit) -> list[Estimate]:
    """The proven lower bounds of the headline, each for neighbours of its own; none where it is not a bound."""
    return family(audit.estimates) if audit.headline.validity.is_bound else []


def symbol(estimate: Estimate) -> str:
    """How a number that is not a bound is written: ε̃ measured with a baseline, ε′ estimated."""
    return "ε̃" if estimate.validity == Validity.MEASUREMENT else "ε′"


def counts_of(bound: Estimate) -> str:
    """What a proven bound rests on, in counts: what its claim says after its first sentence."""
    unit = str(bound.details.get("unit") or "record")
    first = claim_of_bound(bound.low, bound.delta, bound.confidence, neighbours=bound.neighbours, unit=unit)
    return bound.claim.removeprefix(first).strip() if bound.claim.startswith(first) else ""


def unit(audit: Audit) -> str:
    """What the bound counts: a record or a person."""
    return str(audit.headline.details.get("unit") or "record")


def guarantee(audit: Audit, lower: Estimate | None = None) -> Guarantee | None:
    """The tightest proven upper bound for the same neighbours as this lower bound, by default the headline."""
    found = audit.headline if lower is None else lower
    if audit.region is not None:
        stated = audit.region.upper
        if stated.is_bound and comparable(found, stated):
            return stated
    proven = [g for g in ordered(audit.upper) if g.is_bound and comparable(found, g)]
    return proven[0] if proven else None


def other_guarantee(audit: Audit) -> Guarantee | None:
    """The tightest proven upper bound where none is for the neighbours of a lower bound: it stands beside none."""
    if any(guarantee(audit, lower) for lower in (bounds(audit) or audit.estimates[:1])):
        return None
    proven = [g for g in ordered(audit.upper) if g.is_bound]
    return proven[0] if proven else None


def drawn(audit: Audit) -> tuple[Estimate, Guarantee | None]:
    """The lower bound that stands in the picture of the region, with its guarantee: the first that has one."""
    pairs = [(lower, guarantee(audit, lower)) for lower in (bounds(audit) or audit.estimates[:1])]
    return next((pair for pair in pairs if pair[1] is not None), pairs[0])


def contradiction(lower: Estimate, stated: Guarantee | None) -> bool:
    """Whether the attack proves more than the guarantee allows."""
    return stated is not None and PrivacyRegion(lower, stated).contradiction


def tpr_points(audit: Audit) -> tuple[TprAtFpr, ...]:
    """TPR at the low FPRs of the curve."""
    return () if audit.curve is None else audit.curve.tpr_at_fpr


def tpr_at(audit: Audit, fpr: float) -> TprAtFpr | None:
    """The measured TPR at one of the curve's FPRs."""
    return next((p for p in tpr_points(audit) if math.isclose(p.fpr, fpr, rel_tol=1e-9)), None)


def most_tpr(fpr: FloatArray, epsilon: float, delta: float) -> FloatArray:
    """The largest TPR that (ε, δ) allows at each FPR."""
    return 1 - tradeoff(fpr, epsilon, delta)


@dataclass(frozen=True)
class RocLines:
    """The ROC curve as it is drawn: rates on a grid of FPRs, and where the axes begin."""

    fpr: FloatArray
    tpr: FloatArray
    tpr_low: FloatArray
    x_min: float
    y_min: float


def roc_lines(audit: Audit, points: int) -> RocLines | None:
    """Measured TPR and its simultaneous lower limit on a logarithmic grid of FPRs, and where the axes begin.

    Both are steps: the TPR at FPR x is the largest reached with at most x, and the limit at x is the largest
    `tpr_low` whose `fpr_high` is at most x. The grid holds every marked FPR, so no marked point moves.
    """
    curve = audit.curve
    if curve is None:
        return None
    fpr, tpr, high, low = (np.array(line) for line in (curve.fpr, curve.tpr, curve.fpr_high, curve.tpr_low))
    marks = curve.tpr_at_fpr
    marked = [p.fpr for p in marks]
    fpr, tpr = np.append(fpr, marked), np.append(tpr, [p.tpr for p in marks])  # thinning may have dropped them
    smallest = float(fpr[fpr > 0].min()) if (fpr > 0).any() else 1e-3
    x_min = 10.0 ** math.floor(math.log10(max(min(smallest, 0.1), 1e-7)) + 1e-9)
    grid = np.unique(np.concatenate([np.geomspace(x_min, 1, points), [m for m in marked if m >= x_min], [x_min, 1.0]]))
    grid = grid[(grid >= x_min) & (grid <= 1)]
    measured, limit = _steps(fpr, tpr, grid), _steps(high, low, grid)
    positive = measured[measured > 0]
    start = float(positive.min()) if positive.size else 1.0
    y_min = 10.0 ** math.floor(math.log10(max(min(start, 0.1), x_min)) + 1e-9)
    return RocLines(grid, measured, limit, x_min, y_min)


def _steps(x: FloatArray, y: FloatArray, grid: FloatArray) -> FloatArray:
    """The largest y whose x is at most each grid point; 0 where there is none."""
    order = np.argsort(x, kind="stable")
    best = np.concatenate([[0.0], np.maximum.accumulate(y[order])])
    # A marked FPR such as 0.1 may differ from its count ratio in the last bit.
    return best[np.searchsorted(x[order], grid * (1 + 1e-12), side="right")]


def together(audit: Audit) -> str:
    """How surely the bounds of the groups hold: all at once, or, in an audit that does not say so, each alone."""
    rows = audit.subgroups
    joint = rows[0].joint_confidence if rows else None
    if joint is None:
        return "Each bound holds for its group alone, so the largest of them need not hold."
    which = "It holds" if len(rows) == 1 else f"All {len(rows)} bounds hold at once"
    return f"{which} with {percent(joint)} confidence."


@dataclass(frozen=True)
class StarLine:
    """The Epsilon* curve as it is drawn; `best` is the place of the supremum, if it is finite."""

    fpr: FloatArray
    fnr: FloatArray
    epsilon: FloatArray
    best: int | None


def star(audit: Audit, points: int) -> StarLine | None:
    """The Epsilon* curve by rising FPR where ε is finite and 0 < FPR < 1, thinned without losing the supremum.

    Where the audit lists the empirical form, its own point is the supremum: the curve was thinned and may have lost it.
    """
    curve = audit.star
    if curve is None:
        return None
    fpr, fnr, eps = (np.array(line, dtype=float) for line in (curve.fpr, curve.fnr, curve.epsilon))
    best: int = curve.best
    listed = next((e for e in audit.estimates if e.method == "epsilon-star-empirical"), None)
    if listed is not None:
        if not measurable(listed):
            return None
        fpr, fnr = np.append(fpr, listed.details["fpr"]), np.append(fnr, listed.details["fnr"])
        eps, best = np.append(eps, listed.epsilon), eps.size
    keep = np.flatnonzero(np.isfinite(eps) & (fpr > 0) & (fpr < 1))
    if keep.size == 0:
        return None
    keep = keep[np.argsort(fpr[keep], kind="stable")]
    at = np.flatnonzero(keep == best)
    if keep.size > points:
        even = np.linspace(0, keep.size - 1, points).round().astype(int)
        chosen = np.unique(np.concatenate([even, at]))
        at = np.searchsorted(chosen, at)
        keep = keep[chosen]
    return StarLine(fpr[keep], fnr[keep], eps[keep], int(at[0]) if at.size else None)


def measurable(estimate: Estimate) -> bool:
    """Whether an estimate has a value at all; Epsilon* has none where the losses cannot tell."""
    return bool(estimate.details.get("measurable", True))


def lead(audit: Audit) -> float | None:
    """The largest measured TPR − FPR over the thresholds of the curve."""
    curve = audit.curve
    return None if curve is None else float(np.max(np.subtract(curve.tpr, curve.fpr)).clip(0.0))
