"""Bounds of whole rankings: from bins of ranks, and from walks down the ranking."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

import numpy as np

from dosimeter._validate import show
from dosimeter.audits.result import Audit
from dosimeter.audits.verify.evidence import BinEvidence, PathEvidence, of
from dosimeter.audits.verify.finding import Recomputed, UnknownError, WrongError, close, compare, lower
from dosimeter.estimate import Estimate, Validity, number
from dosimeter.estimators.headline import VERSION, Bins, wanted_edges
from dosimeter.estimators.lower_bound import VALIDITY, bound_of_bins
from dosimeter.estimators.ranked import largest_provable, walks_on
from dosimeter.evidence import MOST_RECORDS

__all__ = ["bins_of", "bins_or_none", "from_bins", "from_paths"]

MOST_RECOMPUTED = 5 * 10**7  # records
GENERATED = "one-run on generated non-members"
REAL = "one-run, real non-members"


def bins_of(evidence: BinEvidence) -> Bins:
    """The bins, refused where no ranking can be cut into them."""
    records = np.array(evidence.bins.records, np.int64)
    members = np.array(evidence.bins.members, np.int64)
    if records.size != members.size:
        raise WrongError("bins must be two lists of one length")
    if (records < 1).any() or (members > records).any() or records.sum() > MOST_RECORDS:
        raise WrongError("bins must hold at least one record each, and no more members than records")
    if not 0 < members.sum() < records.sum():
        raise WrongError("bins must hold members and non-members")
    bins = Bins(records, members)
    _laid_out(bins)
    return bins


def _laid_out(bins: Bins) -> None:
    """Bins are cut at fixed ranks, or at the ends of a group of tied scores that such a rank falls into."""
    edges, cuts = bins.edges, wanted_edges(bins.total)
    tied = np.unique(np.searchsorted(edges, np.setdiff1d(cuts, edges), "right") - 1)
    ends = np.concatenate([edges[tied], edges[tied + 1]])
    if np.setdiff1d(edges, np.concatenate([cuts, ends])).size:
        raise WrongError("bins begin at ranks where no bin can begin")


def bins_or_none(estimate: Estimate) -> Bins | None:
    """The bins that an estimate carries, if it carries any that can be."""
    if "bins" not in estimate.details:
        return None
    try:
        return bins_of(of(BinEvidence, estimate))
    except WrongError:
        return None


@lru_cache(maxsize=64)
def _bound_of(
    records: tuple[int, ...],
    members: tuple[int, ...],
    game: str,
    neighbours: str,
    delta: float,
    confidence: float,
    unit: str,
) -> Estimate:
    """The headline of these bins; kept, because gate, sign and verify often ask for the same one."""
    bins = Bins(np.array(records, np.int64), np.array(members, np.int64))
    return bound_of_bins(bins, game, neighbours, delta=delta, confidence=confidence, unit=unit)


def from_bins(e: Estimate, audit: Audit) -> Recomputed:
    """The bound of a whole ranking."""
    if "bins" not in e.details:
        raise UnknownError("it carries no bins of ranks")
    evidence = of(BinEvidence, e)
    bins, game = bins_of(evidence), evidence.game
    if bins.total > MOST_RECOMPUTED:
        raise UnknownError(f"recomputing it for {bins.total} records would take too long")
    after_training = e.method == REAL  # such coins choose what is shown: a replacement
    measured = e.method == GENERATED  # c + ε is nobody's ε
    replacing = after_training or getattr(audit.metadata, "game", None) == "replace"
    fits = e.neighbours is not None and (game != "coins" or (e.neighbours == "replace") is replacing)
    if not (e.neighbours is None if measured else fits):
        raise WrongError(f"neighbours is {e.neighbours}, which this evidence cannot be about")
    counts = tuple(bins.records.tolist()), tuple(bins.members.tolist())
    again = _bound_of(*counts, game, e.neighbours or "add/remove", e.delta, e.confidence, evidence.unit)
    epsilon, most = again.epsilon, float(again.details["largest_provable"])
    if measured:
        recomputed = Recomputed(epsilon, 0.0, math.inf, (Validity.MEASUREMENT,), None, most)
    else:
        allowed = Validity.RANDOM_SPLIT if after_training else VALIDITY[game]
        recomputed = lower(epsilon, (allowed,), None, most, f"its {bins.records.size} bins of ranks give it")
    if evidence.version != VERSION:
        return _of_version(evidence.version, e, recomputed)
    _same_summary(e, again)
    return recomputed


def _of_version(version: int, e: Estimate, recomputed: Recomputed) -> Recomputed:
    """What another version of the headline gave: the same number follows, another one cannot be recomputed here.

    Neither a lower nor a higher one may be let through: who wants to pass a limit would name an old version.
    """
    recomputed = replace(recomputed, other_version=True)
    if close(e.epsilon, recomputed.epsilon):
        return recomputed
    # What no version changes must still be right.
    compare(e, replace(recomputed, epsilon=e.epsilon, low=0.0 if e.validity is Validity.MEASUREMENT else e.epsilon))
    raise UnknownError(
        f"it was made by version {version} of the headline, which is not recomputable here; "
        f"version {VERSION} gives ε ≥ {number(recomputed.epsilon)} from the same bins"
    )


def _same_summary(e: Estimate, again: Estimate) -> None:
    """What an estimate says of its own test must be what the bins give."""
    for name in ("tested", "learned", "allowance", "records"):
        if name in e.details and e.details[name] != again.details[name]:
            raise WrongError(f"{name} is stated as {show(e.details[name])}, the bins give {show(again.details[name])}")


def from_paths(e: Estimate, _audit: Audit) -> Recomputed:
    """The bound of walks down the ranking."""
    if "paths" not in e.details:
        raise UnknownError("it carries no path of right guesses")
    evidence = of(PathEvidence, e)
    paths = {name: np.array(path, np.int64) for name, path in evidence.paths.items()}
    walks = walks_on(paths, evidence.records, e.delta, 1 - e.confidence)
    low = max(w.epsilon for w in walks)
    order = "mixed" if len(paths) > 1 else next(iter(paths))
    most = largest_provable(evidence.records, e.delta, 1 - e.confidence, order=order)
    return lower(low, (Validity.FINITE_SAMPLE,), ("add/remove",), most, "its right guesses at the checkpoints give it")
