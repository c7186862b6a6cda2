"""What stands beside the bins of ranks: the ROC curve, counts at thresholds, numbers of records, and the coins."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dosimeter._validate import IntArray
from dosimeter.audits.result import Audit, Roc
from dosimeter.audits.verify.evidence import AtThreshold, CoinNotes, of, read
from dosimeter.audits.verify.finding import CLOSE, UnknownError, WrongError
from dosimeter.audits.verify.ranks import bins_or_none
from dosimeter.audits.verify.rates import NATURAL, ON_ONE_HALF
from dosimeter.estimate import Estimate, plain
from dosimeter.estimators.headline import Bins, wanted_edges
from dosimeter.estimators.limits import band_limits
from dosimeter.evidence import fair_coins, mask_hash

__all__ = ["auc_of", "bins_of_audit", "coins_follow", "counts_follow", "curve_follows", "has_coins"]

_OF_ALL = ("lower-bound", "one-run")  # whose bins count all records of the audit, as the ROC curve does


def bins_of_audit(audit: Audit) -> Bins | None:
    """The bins of ranks of all records, if an estimate carries them."""
    carried = (bins_or_none(e) for e in audit.estimates if e.method in _OF_ALL)
    return next((bins for bins in carried if bins is not None), None)


def auc_of(bins: Bins) -> float:
    """The area under the ROC curve through the edges of the bins."""
    inside, outside = bins.members[::-1], (bins.records - bins.members)[::-1]
    reached = np.cumsum(inside)
    return float(((reached - inside / 2) * outside).sum() / (inside.sum() * outside.sum()))


def curve_follows(audit: Audit, curve: Roc, bins: Bins | None) -> str:
    """The curve passes through the bins, and its band is that of its counts."""
    if bins is None:
        raise UnknownError("no bins of ranks are kept to compare it with")
    members = int(bins.members.sum())
    outside = bins.total - members
    fp, tp = _counted(curve.fpr, outside, "fpr"), _counted(curve.tpr, members, "tpr")
    if _crosses(bins, fp, tp):
        raise WrongError("it does not pass through the bins of ranks")
    _no_bin_too_wide(bins, fp + tp)
    _band_follows(curve, audit.headline.confidence, fp, tp, outside, members)
    return f"its {fp.size} points fit the bins of ranks"


def _counted(shares: Sequence[float], total: int, name: str) -> IntArray:
    values = np.array(shares, float) * total
    whole = np.round(values)
    if (np.abs(values - whole) > 1e-6 * max(1.0, math.sqrt(total))).any():
        raise WrongError(f"{name} holds shares that {total} records cannot give")
    return whole.astype(np.int64)


def _crosses(bins: Bins, fp: IntArray, tp: IntArray) -> bool:
    """Whether a threshold cannot lie in one ranking with the edges of the bins."""
    top_tp = np.concatenate([[0], np.cumsum(bins.members[::-1])])
    top_fp = np.concatenate([[0], np.cumsum((bins.records - bins.members)[::-1])])
    higher = (fp[:, None] < top_fp) & (tp[:, None] > top_tp)
    lower = (fp[:, None] > top_fp) & (tp[:, None] < top_tp)
    return bool(higher.any() or lower.any())


def _no_bin_too_wide(bins: Bins, ranks: IntArray) -> None:
    """A bin that spans a rank at which bins are cut holds one group of tied scores, so no threshold falls inside it."""
    edges = bins.edges
    cuts = wanted_edges(bins.total)
    spanning = np.setdiff1d(cuts, edges)
    wide = np.unique(np.searchsorted(edges, spanning, "right") - 1)
    inside = np.setdiff1d(bins.total - ranks, edges)
    if np.isin(np.searchsorted(edges, inside, "right") - 1, wide).any():
        raise WrongError("a threshold falls inside a bin of ranks that was not divided")


def _band_follows(curve: Roc, confidence: float, fp: IntArray, tp: IntArray, outside: int, members: int) -> None:
    stated = np.array(curve.fpr_high, float), np.array(curve.tpr_low, float)
    if (stated[0] == 1).all() and (stated[1] == 0).all():
        return
    tail = (1 - confidence) / 2
    again = band_limits(fp, outside, tail), 1 - band_limits(members - tp, members, tail)
    for name, here, there in zip(("fpr_high", "tpr_low"), stated, again, strict=True):
        if not np.allclose(here, there, rtol=0, atol=CLOSE):
            raise WrongError(f"{name} is not the band of these counts")


def counts_follow(audit: Audit, bins: Bins) -> str:
    """Every number that counts the same records as the bins agrees with them."""
    members = int(bins.members.sum())
    sizes = members, bins.total - members
    for estimate in audit.estimates:
        _counts_fit(estimate, bins, sizes)
    meta = audit.metadata
    if meta.kind is None:
        told = meta.members, meta.nonmembers
        if any(here is not None and here != there for here, there in zip(told, sizes, strict=True)):
            raise WrongError(f"metadata states {told[0]} members and {told[1]} non-members, the bins hold others")
        for estimate in audit.estimates:
            own = bins_or_none(estimate) if estimate.method == "lower-bound" else None
            if own is not None and not _same(own, bins):
                raise WrongError("its lower bounds rest on different rankings")
    return f"every count is one of {sizes[0]} members and {sizes[1]} non-members in these bins"


def _same(a: Bins, b: Bins) -> bool:
    return np.array_equal(a.records, b.records) and np.array_equal(a.members, b.members)


def _counts_fit(e: Estimate, bins: Bins, sizes: tuple[int, int]) -> None:
    if e.counts is None or e.method not in NATURAL or of(AtThreshold, e).threshold_rule == ON_ONE_HALF:
        return
    if (e.counts.members, e.counts.nonmembers) != sizes:
        raise WrongError(f"the counts of {e.method} are of another number of records than the bins of ranks")
    fp, tp = np.array([e.counts.fp]), np.array([e.counts.tp])
    if _crosses(bins, fp, tp):
        raise WrongError(f"the counts of {e.method} do not fit the bins of ranks")
    _no_bin_too_wide(bins, fp + tp)


def has_coins(audit: Audit) -> bool:
    """Whether coins were drawn for this audit alone."""
    kind, game = audit.metadata.kind, getattr(audit.metadata, "game", None)
    return kind in ("one-run", "text") or (kind, game) in (("training", "challenge"), ("synthetic", "coins"))


def coins_follow(audit: Audit, bins: Bins | None) -> str:
    """Coins drawn from a seed that the audit names can be drawn again."""
    meta = read(CoinNotes, plain(audit.metadata), "the audit's metadata")
    if meta.seeds is None or meta.seeds.coins is None or bins is None:
        raise UnknownError("the audit does not name the seed of its coins")
    coins = fair_coins(bins.total, meta.seeds.coins)
    if mask_hash(coins) != meta.mask_hash or int(coins.sum()) != int(bins.members.sum()):
        raise WrongError("the seed draws other coins than those of the audit")
    return f"its seed draws these {coins.size} coins again"
