"""Does an attack do better with the model than with models that never saw the audit members?

Each reference model, trained without the audit members, takes the target's place in the same attack. If the target has
not learnt from those members either, it is one more model of that kind, and the attack does as well with it as with the
others, except by chance. The target stands out where its value lies above the prediction limit of their values.

Two statistics are tested, each at half of the level: the area under the ROC curve, and the area under its first part,
where a leak of few records shows. Both are over all records of the audit, shown or not, so they do not depend on coins.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import special

from dosimeter._validate import FloatArray, InputError
from dosimeter.audits.members_only.result import ReferenceTest
from dosimeter.evidence import Scores

FIRST_PART = 0.05  # false-positive rates up to this one
FEWEST = 3  # reference models
LEVEL = 0.02  # at which a target without a leak stands out


class Pair(NamedTuple):
    """Scores of the audit members and of the non-members beside them; higher means member."""

    members: FloatArray
    nonmembers: FloatArray

    @property
    def auc(self) -> float:
        return Scores(self.members, self.nonmembers).auc

    @property
    def first_part(self) -> float:
        """Mean TPR over the FPRs up to FIRST_PART; tied scores count as one group."""
        curve = Scores(self.members, self.nonmembers).curve
        fpr = np.concatenate([[0.0], curve.fp / self.nonmembers.size])
        tpr = np.concatenate([[0.0], curve.tp / self.members.size])
        grid = np.linspace(0.0, FIRST_PART, 201)
        return float(np.interp(grid, fpr, tpr).mean())


def prediction_limit(values: npt.ArrayLike, level: float, *, floor: float = 0.0) -> float:
    """The limit that the value of one more model passes with probability `level`, if values are normal.

    mean + t·s·√(2 + 1/K), t the quantile of Student's law with K − 1 degrees of freedom. The reference models learn
    from one pool of members and the target may have learnt from others: the error of the pool, which they share, is
    taken to be as large as the error that is their own. `floor` is the least that s can be.
    """
    array = np.asarray(values, np.float64)
    if array.size < FEWEST:
        raise InputError(f"references must be at least {FEWEST} to give a limit, got {array.size}; train more.")
    t = float(special.stdtrit(array.size - 1, 1.0 - level))
    return float(array.mean() + t * max(floor, float(array.std(ddof=1))) * math.sqrt(2.0 + 1.0 / array.size))


def judge(target: Pair, references: Sequence[Pair], *, level: float) -> ReferenceTest:
    """Compare a target with the reference models; a target without a leak stands out with probability `level`."""
    auc_limit = prediction_limit([r.auc for r in references], level / 2)
    firsts = np.array([r.first_part for r in references])
    rate = float(firsts.mean())
    # The first part is made of few records: its error is at least that of as many coins.
    floor = math.sqrt(rate * (1.0 - rate) / target.members.size)
    first_limit = prediction_limit(firsts, level / 2, floor=floor)
    auc, first = target.auc, target.first_part
    return ReferenceTest(auc > auc_limit or first > first_limit, auc, auc_limit, first, first_limit)
