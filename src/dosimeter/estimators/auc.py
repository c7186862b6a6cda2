"""The area under the ROC curve with its standard error."""

from __future__ import annotations

import math

import numpy as np

from dosimeter.evidence import Scores


def auc_with_error(scores: Scores) -> tuple[float, float]:
    """The AUC and its standard error (DeLong, DeLong and Clarke-Pearson 1988), asymptotic.

    Where all placements agree (perfect separation, or all scores equal) that error is 0, which is not a measure of
    anything; a binomial error with half a miss added to the smaller side stands in for it.
    """
    from scipy.stats import rankdata  # slow to import, and only some audits need it

    m, n = scores.members.size, scores.nonmembers.size
    both = rankdata(np.concatenate([scores.members, scores.nonmembers]))
    above = (both[:m] - rankdata(scores.members)) / n
    below = 1 - (both[m:] - rankdata(scores.nonmembers)) / m
    auc = float(above.mean())
    variance = (above.var(ddof=1) / m if m > 1 else 0.25) + (below.var(ddof=1) / n if n > 1 else 0.25)
    if variance <= 1e-15:
        few = min(m, n)
        shrunk = (few * auc + 0.5) / (few + 1)
        variance = shrunk * (1 - shrunk) / few
    return auc, math.sqrt(variance)
