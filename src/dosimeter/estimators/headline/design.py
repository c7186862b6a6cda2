"""How far a test can be expected to get: decides what is worth revealing, never what is rejected."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import special

from dosimeter._validate import FloatArray, IntArray

DESIGN = 0.9  # the first test is designed for this share of what can be expected
STEPS = 16  # weights are whole numbers up to this
_HEAVIEST = 6.0  # log-odds beyond a design that still add weight
_GRID = np.concatenate([np.linspace(0, 0.5, 11), np.geomspace(0.55, 11, 40)])
_Z = 1.645

Lost = Callable[[FloatArray, FloatArray, FloatArray, FloatArray], FloatArray]


def reach(
    records: FloatArray,
    odds: FloatArray,
    sign: FloatArray,
    base: FloatArray,
    *,
    lost: Lost | None = None,
    two_sided: bool = False,
) -> float:
    """The log odds ratio that a weighted test of these bins is expected to reject.

    `odds` says how far each bin leans to its guess, `sign` is +1 where the guess is "member" and −1 where it is
    "non-member", `base` the log-odds of the guess where nothing leaks. `lost(grid, weight, records, sign)` is what δ
    takes from the drift. A two-sided test shares the odds ratio between its ends.
    """
    if not records.size:
        return 0.0
    order = np.argsort(-odds, kind="stable")
    records, odds, sign, base = records[order], odds[order], sign[order], base[order]
    grid = (_GRID / 2 if two_sided else _GRID)[:, None]
    weight = np.maximum(odds - grid, 0.0)
    mass = weight * records
    limit = special.expit(grid + base)
    drift = (mass * (special.expit(odds + base) - limit)).sum(1)
    variance = (mass * weight * limit * (1 - limit)).sum(1)
    if lost is not None:
        drift = drift - lost(_GRID, weight, records, sign)
    good = drift >= _Z * np.sqrt(variance) + 1e-12
    return float(_GRID[np.flatnonzero(good).max()]) if good.any() else 0.0


def whole_weights(excess: FloatArray) -> IntArray:
    """Whole weights up to STEPS, in proportion to how far bins lie beyond a design; all 1 if none does."""
    capped = np.clip(excess, 0.0, _HEAVIEST)
    if not capped.size or capped.max() <= 0:
        return np.ones(capped.size, np.int64)
    weights = np.where(capped > 0, np.maximum(np.round(capped / capped.max() * STEPS), 1), 0).astype(np.int64)
    return np.asarray(weights // np.gcd.reduce(weights))  # the smaller, the shorter the exact law
