"""The headline: one lower bound on ε for any scores, valid over all thresholds or numbers of guesses at once."""

from __future__ import annotations

from dataclasses import replace

from dosimeter import _validate as check
from dosimeter.estimate import Estimate
from dosimeter.estimators.ranked import claim_of_bound, ranked
from dosimeter.estimators.rates import clopper_pearson
from dosimeter.evidence import OneRun, Scores

UNEQUAL = 2.0  # beyond this ratio of pool sizes the walk's fair coins leave too much of the larger pool unused


def lower_bound(evidence: Scores | OneRun, *, delta: float = 0.0, confidence: float = 0.95, seed: int = 0) -> Estimate:
    """The bound to report: the ranked walk; for pools of unequal size the better of it and the uniform band.

    Which way is taken depends on the sizes alone, never on a score; where both are, each gets half of the level.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> lower_bound(Scores(rng.normal(1, 1, 1000), rng.normal(0, 1, 1000)), delta=1e-5).method
    'ranked'
    """
    delta, confidence = check.delta(delta), check.confidence(confidence)
    if isinstance(evidence, Scores):
        sizes = sorted((evidence.members.size, evidence.nonmembers.size))
        if sizes[1] > UNEQUAL * sizes[0]:
            half = (1 + confidence) / 2
            walk = ranked(evidence, delta=delta, confidence=half, seed=seed)
            band = clopper_pearson(evidence, delta=delta, confidence=half)
            return _better(walk, band, confidence)
    return ranked(evidence, delta=delta, confidence=confidence, seed=seed)


def _better(walk: Estimate, band: Estimate, confidence: float) -> Estimate:
    chosen = band if band.low > walk.low else walk
    return replace(
        chosen,
        confidence=confidence,
        method="uniform" if chosen is band else "ranked",
        claim=claim_of_bound(chosen.low, chosen.delta, confidence) + " This holds at all thresholds at once.",
        details={**chosen.details, "ways": {"ranked": walk.low, "uniform": band.low}},
    )
