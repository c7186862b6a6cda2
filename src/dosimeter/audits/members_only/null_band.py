"""Does an attack do better with the model than with models that never saw the audit members?

Each stand-in, a model that was trained without the audit members, takes the target's place in the same attack. If the
target has not learnt from them either, it is one more model of that kind, and its attack does as well as theirs but for
chance. The target passes where its value lies above the prediction limit of the stand-ins' values.

Two statistics are looked at, each at half of the level: the area under the ROC curve, and the area under its first
part, where a leak of few records shows. Both are over all records of the audit, shown or not: no coin enters.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from dosimeter._validate import FloatArray, InputError
from dosimeter.evidence import Scores

FIRST_PART = 0.05
FEWEST = 3
LEVEL = 0.02  # at which a target without a leak stands out


class Pair(NamedTuple):
    """Scores of the audit members and of the generated records beside them; higher means member."""

    real: FloatArray
    made: FloatArray

    @property
    def auc(self) -> float:
        return Scores(self.real, self.made).auc

    @property
    def first_part(self) -> float:
        """Mean TPR over the FPRs up to FIRST_PART, tied scores in one go."""
        curve = Scores(self.real, self.made).curve
        fpr = np.concatenate([[0.0], curve.fp / self.made.size])
        tpr = np.concatenate([[0.0], curve.tp / self.real.size])
        grid = np.linspace(0.0, FIRST_PART, 201)
        return float(np.interp(grid, fpr, tpr).mean())


class Verdict(NamedTuple):
    """Whether a target stands out from the stand-ins, and by which statistic."""

    stands_out: bool
    auc: float
    auc_limit: float
    first_part: float
    first_part_limit: float

    def to_dict(self) -> dict[str, Any]:
        return self._asdict()


def prediction_limit(values: Any, level: float, *, floor: float = 0.0) -> float:
    """The limit that the value of one more model passes with probability `level`, if values are normal.

    mean + t·s·√(2 + 1/K), t the quantile of Student's law with K − 1 degrees of freedom. The stand-ins learn from one
    pool of members and the target may have learnt from others: the error of the pool, which they share, is taken to be
    as large as the error that is their own. `floor` is the least that s can be.
    """
    array = np.asarray(values, np.float64)
    if array.size < FEWEST:
        raise InputError(f"references must be at least {FEWEST} to give a limit, got {array.size}; train more.")
    t = float(special.stdtrit(array.size - 1, 1.0 - level))
    return float(array.mean() + t * max(floor, float(array.std(ddof=1))) * math.sqrt(2.0 + 1.0 / array.size))


def judge(target: Pair, stand_ins: Sequence[Pair], *, level: float) -> Verdict:
    """Compare a target with the stand-ins; a target without a leak stands out with probability `level`."""
    auc_limit = prediction_limit([s.auc for s in stand_ins], level / 2)
    firsts = np.array([s.first_part for s in stand_ins])
    rate = float(firsts.mean())
    # The first part is made of few records: its error is at least that of as many coins.
    floor = math.sqrt(rate * (1.0 - rate) / target.real.size)
    first_limit = prediction_limit(firsts, level / 2, floor=floor)
    auc, first = target.auc, target.first_part
    return Verdict(auc > auc_limit or first > first_limit, auc, auc_limit, first, first_limit)
