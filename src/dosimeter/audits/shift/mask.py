"""Does the mask of a one-run audit look like independent fair coins?"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.special import bdtr, gammaln

from dosimeter._validate import FloatArray, InputError
from dosimeter.audits.parts import MaskCheck
from dosimeter.audits.result import p_in_words
from dosimeter.evidence import OneRun

MASK_LEVEL = 0.001


def check_mask(one_run: OneRun) -> MaskCheck:
    """Compare the inclusion mask of a one-run audit with independent fair coins: balance and runs, both exact.

    Args:
        one_run: The scores and the mask.

    Returns:
        Both p-values, the counts behind them, and warnings where coins hardly ever fall so.

    Raises:
        InputError: If it is not a OneRun.

    >>> from dosimeter.evidence import fair_coins
    >>> check_mask(OneRun(np.zeros(200), fair_coins(200, seed=3), 3)).warnings
    ()
    """
    if not isinstance(one_run, OneRun):
        raise InputError(
            f"one_run must be a OneRun, got {type(one_run).__name__}; build OneRun(scores, included) first."
        )
    mask = one_run.included
    inside, total = int(mask.sum()), mask.size
    runs = 1 + int(np.count_nonzero(mask[1:] != mask[:-1]))
    balance_p = min(1.0, 2 * float(bdtr(min(inside, total - inside), total, 0.5)))
    runs_p = _runs_p(runs, inside, total - inside)
    warnings = list(one_run.mask_warnings)
    if one_run.mask_seed is None and runs_p < MASK_LEVEL:
        warnings.append(
            f"the mask changes {runs - 1} times over {total} records, which independent coins hardly ever do "
            f"({p_in_words(runs_p)}): harmless if the records were sorted after the draw, but a mask that was not "
            "drawn by coins breaks the bound"
        )
    return MaskCheck(
        records=total,
        included=inside,
        share=inside / total,
        balance_p=balance_p,
        runs=runs,
        runs_p=runs_p,
        seed_checked=one_run.mask_seed is not None,
        warnings=tuple(warnings),
    )


def _runs_p(runs: int, inside: int, outside: int) -> float:
    """Two-sided p-value of the number of runs given the counts (Wald and Wolfowitz 1940), from its exact law."""
    number = np.arange(2, 2 * min(inside, outside) + 2)
    k = number // 2
    # An even number of runs is k of each kind, starting with either; an odd one is k + 1 of one kind, k of the other.
    even = math.log(2) + _log_choose(inside - 1, k - 1) + _log_choose(outside - 1, k - 1)
    odd = np.logaddexp(
        _log_choose(inside - 1, k) + _log_choose(outside - 1, k - 1),
        _log_choose(inside - 1, k - 1) + _log_choose(outside - 1, k),
    )
    law = np.exp(np.where(number % 2 == 0, even, odd) - _log_choose(inside + outside, np.array(inside)))
    return min(1.0, 2 * min(float(law[number <= runs].sum()), float(law[number >= runs].sum())))


def _log_choose(n: int, k: Any) -> FloatArray:
    with np.errstate(invalid="ignore"):
        value = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
    return np.asarray(np.where(k > n, -np.inf, value))
