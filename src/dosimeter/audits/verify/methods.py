"""How each method is recomputed: one table."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from dosimeter.audits.result import Audit
from dosimeter.audits.verify.finding import Recomputed, UnknownError
from dosimeter.audits.verify.guesses import bets, claimed, in_family, one_run
from dosimeter.audits.verify.measured import adversary, panoramia, propensity, sensitivities
from dosimeter.audits.verify.ranks import GENERATED, REAL, from_bins, from_paths
from dosimeter.audits.verify.rates import NATURAL, from_rates, worst_point
from dosimeter.estimate import Estimate, Validity

__all__ = ["METHODS", "recompute"]

Method: TypeAlias = Callable[[Estimate, Audit], Recomputed]

METHODS: dict[str, Method] = {
    "lower-bound": from_bins,
    GENERATED: from_bins,
    REAL: from_bins,
    "ranked": from_paths,
    "one-run": one_run,
    "one-run f-DP": one_run,
    "rank betting": bets,
    "claim": claimed,
    "mechanism's family": in_family,
    **dict.fromkeys(NATURAL, from_rates),
    "clopper-pearson, worst point": worst_point,
    "panoramia": panoramia,
    "propensity": propensity,
    "sensitivities": sensitivities,
    "advantage, trajectory": adversary,
    "advantage, wins": adversary,
}
_CLAIMED = (Validity.CREDIBLE, Validity.ASSUMES_GAUSSIAN, Validity.ASSUMES_FAMILY, Validity.CONDITIONAL)


def recompute(e: Estimate, audit: Audit) -> Recomputed:
    """A number from the evidence that it carries; the method alone decides what evidence that is."""
    if audit.schema == 1 and (e is audit.headline or e.counts is None):
        raise UnknownError("files of schema 1 carry no evidence for it")
    if e.confidence <= 0:
        raise UnknownError("it has no confidence level")
    # A members-only audit names the target of each ε̃ after a comma.
    method = METHODS.get(e.method.partition(",")[0] if e.method.startswith("panoramia") else e.method)
    if method is None:
        claimed_ = e.validity.is_bound or e.validity in _CLAIMED
        raise UnknownError("it carries no evidence" if claimed_ else "it is not a bound and carries no evidence")
    return method(e, audit)
