"""What audits have in common: a seed; and beside the headline guarantees, region, risk, ROC curve and densities.

The types of what is measured, of what it means for a person and of the densities come first.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from itertools import takewhile
from typing import Any

import numpy as np
import numpy.typing as npt

from dosimeter import _validate as check
from dosimeter._validate import FloatArray, InputError
from dosimeter.accounting import Composition, DpSgd, Gaussian, Guarantee, PrivacyRegion, account
from dosimeter.accounting.mechanism import Mechanism, with_neighbours
from dosimeter.audits.parts import Numbers, Part, Positive, Rate
from dosimeter.engine import Store
from dosimeter.estimate import Estimate, plain
from dosimeter.estimators.limits import band_limits, threshold_at_fpr, tpr_limit
from dosimeter.evidence import Scores, fresh_seed
from dosimeter.identifiability import risk_from_epsilon, risk_in_words

BINS = 60
LOW_FPRS = (0.001, 0.01, 0.1)
CURVE_POINTS = 400


def numbers(values: npt.ArrayLike) -> Numbers:
    """Take a column of numbers as a part holds it: None for an infinite or missing one."""
    return tuple(float(v) if np.isfinite(v) else None for v in np.asarray(values, float))


# --- what was measured -------------------------------------------------------------------------------------


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
    """The measured TNR at one FNR, the other end of the ROC curve: non-members that are recognised for sure.

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


# --- what it means for a person ----------------------------------------------------------------------------


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


# --- what the charts and tables show -----------------------------------------------------------------------


@dataclass(frozen=True)
class Distributions(Part):
    """Densities of losses or scores between the edges of common bins."""

    edges: Numbers
    members: Numbers
    nonmembers: Numbers
    name: str = "loss"
    threshold: float | None = None


def audit_seed(seed: Any, store: Store | None, *what: Any) -> int:
    """Take the seed given, or draw a fresh one: a constant is not a coin.

    A store keeps a fresh seed under `what`, the things that make this audit the same one, so that an audit that was
    interrupted resumes with its own coins.
    """
    if seed is not None:
        return check.seed(seed)
    if store is None:
        return fresh_seed()
    key = hashlib.sha256(("seed of an audit: " + repr(what)).encode()).hexdigest()
    for _ in range(2):
        kept = store.get(key)
        if kept is not None:
            return int(kept[0]["seed"])
        store.put(key, {"seed": np.array(fresh_seed())}, {"what": "the seed of an audit"})
    return fresh_seed()  # the store loses what it is given; the audit still has its own coins


def guarantees(
    mechanism: Mechanism | None, delta: float, relations: Iterable[str], unit: str = "record"
) -> tuple[tuple[Guarantee, ...], list[str]]:
    """What the accountants promise for each of these neighbours, and notes on what does not fit the bound.

    A mechanism that can be bounded for none of them keeps its own neighbours.
    """
    if mechanism is None:
        return (), []
    if delta == 0:
        raise InputError("delta is 0, but an accountant's ε needs delta above 0; pass e.g. 1e-5, or train without DP.")
    proven: list[Guarantee] = []
    notes: list[str] = []
    if unit != "record":
        notes.append(
            f"the accountants' guarantee is for one record, the bound for one {unit}: they are not set side by side"
        )
    for relation in dict.fromkeys(relations):
        try:
            proven += account(with_neighbours(mechanism, relation), delta=delta)
        except InputError as error:
            notes.append(f"no guarantee for {relation} neighbours stands beside the bound: {error}")
    return tuple(proven or account(mechanism, delta=delta)), notes


def tightest(upper: Sequence[Guarantee], neighbours: str | None) -> Guarantee | None:
    """The smallest proven guarantee for these neighbours."""
    proven = (g for g in upper if g.is_bound and g.neighbours == neighbours)
    return min(proven, key=lambda g: g.epsilon, default=None)


def risk_of(estimates: Sequence[Estimate]) -> Risk:
    """Which guarantees the headline excludes, in words, and what one of the smallest size left would allow.

    A number that is not a bound excludes none.
    """
    head = estimates[0]
    if not head.validity.is_bound:
        return Risk((f"No guarantee is excluded: the headline is not a bound (validity: {head.validity}).",))
    told = [
        risk_in_words(
            e.low,
            e.delta,
            side="lower",
            neighbours=e.neighbours,
            unit=str(e.details.get("unit", "record")),
            confidence=e.confidence,
        )
        for e in family(estimates)
    ]
    longest = max(told, key=len)
    words = (*(lines[0] for lines in told), *longest[1:])
    return Risk(words, would_allow=Allowed.of(risk_from_epsilon(head.low, head.delta)))


def family(estimates: Sequence[Estimate]) -> list[Estimate]:
    """The headline and, right behind it, the same bound for other neighbours."""
    return list(takewhile(lambda estimate: estimate.method == estimates[0].method, estimates))


def both_sides(
    estimates: Sequence[Estimate], upper: Sequence[Guarantee], unit: str = "record"
) -> tuple[PrivacyRegion | None, Risk]:
    """Region and risk: what the headline excludes and, with a guarantee of the same neighbours, what that allows.

    Where the headline has no such guarantee, a second bound with the same validity may have one.
    """
    risk = risk_of(estimates)
    for lower in family(estimates) if unit == "record" else ():
        best = tightest(upper, lower.neighbours)
        if best is not None:
            allowed = replace(
                risk,
                upper=Allowed.of(risk_from_epsilon(best.epsilon, best.delta)),
                upper_words=tuple(risk_in_words(best.epsilon, best.delta, side="upper", neighbours=best.neighbours)),
            )
            return PrivacyRegion(lower=lower, upper=best), allowed
    return None, risk


def roc(scores: Scores, confidence: float) -> Roc:
    """The ROC curve thinned for a screen, its simultaneous lower band, AUC, and the TPR at low FPRs.

    The band is a pair of limits at each threshold: with the stated confidence, at every one of them the true FPR is
    at most `fpr_high` and the true TPR at least `tpr_low`. `tpr_at_fpr` has a limit for each named FPR alone: with the
    stated confidence the test at `limit_threshold` has a true FPR of at most `fpr` and a true TPR of at least
    `tpr_low` (`tpr_limit`); `tnr_at_fnr` is the same with both kinds exchanged. For one trained model all of them are
    about that model: the members tried are a random sample of its training records, the non-members one of records
    that it has not seen.
    """
    curve = scores.curve
    keep = _thin(curve.fp, curve.tp, scores.nonmembers.size, scores.members.size)
    fp, tp = curve.fp[keep], curve.tp[keep]
    alpha = 1 - confidence
    return Roc(
        auc=scores.auc,
        threshold=numbers(curve.thresholds[keep]),
        fpr=tuple((fp / scores.nonmembers.size).tolist()),
        tpr=tuple((tp / scores.members.size).tolist()),
        fpr_high=tuple(band_limits(fp, scores.nonmembers.size, alpha / 2).tolist()),
        tpr_low=tuple((1 - band_limits(scores.members.size - tp, scores.members.size, alpha / 2)).tolist()),
        tpr_at_fpr=tuple(_tpr_at(scores, fpr, confidence) for fpr in LOW_FPRS),
        tnr_at_fnr=tuple(_tnr_at(scores, fnr, confidence) for fnr in LOW_FPRS),
    )


def _thin(fp: Any, tp: Any, nonmembers: int, members: int) -> Any:
    """Indices of at most about 3 · CURVE_POINTS thresholds: even on a log FPR, a linear FPR and a linear TPR axis."""
    if fp.size <= 3 * CURVE_POINTS:
        return np.arange(fp.size)
    grid = np.linspace(0, 1, CURVE_POINTS)
    marks = [
        np.searchsorted(fp, nonmembers ** (grid - 1) * nonmembers, "right") - 1,
        np.searchsorted(fp, grid * nonmembers, "right") - 1,
        np.searchsorted(tp, grid * members),
        np.array([0, fp.size - 1]),
    ]
    return np.unique(np.clip(np.concatenate(marks), 0, fp.size - 1))


def _tpr_at(scores: Scores, fpr: float, confidence: float) -> TprAtFpr:
    """The measured TPR at a measured FPR, and a limit for the true one at a true FPR, which needs another threshold."""
    threshold, limit = threshold_at_fpr(scores, fpr), tpr_limit(scores, fpr, confidence)
    return TprAtFpr(
        fpr=fpr,
        tpr=scores.counts_at(threshold).tpr,
        tpr_low=limit.tpr,
        threshold=plain(threshold),
        limit_threshold=plain(limit.threshold),
    )


def _tnr_at(scores: Scores, fnr: float, confidence: float) -> TnrAtFnr:
    """The same at the other end: with members and non-members exchanged, low scores are the telling ones."""
    turned = Scores(-scores.nonmembers, -scores.members)
    point = _tpr_at(turned, fnr, confidence)
    return TnrAtFnr(
        fnr=fnr,
        tnr=point.tpr,
        tnr_low=point.tpr_low,
        threshold=None if point.threshold is None else -point.threshold,
        limit_threshold=None if point.limit_threshold is None else -point.limit_threshold,
    )


def distributions(members: FloatArray, nonmembers: FloatArray) -> Distributions:
    """Densities of both losses in common bins, over all but the outer 0.1 % of each side."""
    pooled = np.concatenate([members, nonmembers])
    low, high = np.quantile(pooled, [0.001, 0.999])
    if not low < high:
        low, high = low - 0.5, high + 0.5
    edges = np.linspace(low, high, BINS + 1)
    width = edges[1] - edges[0]
    shares = [np.histogram(np.clip(v, low, high), edges)[0] / (v.size * width) for v in (members, nonmembers)]
    return Distributions(numbers(edges), numbers(shares[0]), numbers(shares[1]))


def written(mechanism: Mechanism) -> str:
    """A mechanism as it would be written in code: the repr of its fields would put enum reprs on the page."""

    def value(item: Any) -> str:
        if isinstance(item, (DpSgd, Gaussian, Composition)):
            return written(item)
        if isinstance(item, tuple):
            inner = ", ".join(map(value, item))
            return f"({inner},)" if len(item) == 1 else f"({inner})"
        return repr(item.value) if isinstance(item, StrEnum) else repr(item)

    inside = ", ".join(f"{part.name}={value(getattr(mechanism, part.name))}" for part in fields(mechanism))
    return f"{type(mechanism).__name__}({inside})"
