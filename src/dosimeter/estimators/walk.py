"""The exact calibration of the ranked walk: how often a Bernoulli walk passes a curved limit.

A walk of right guesses T_r is compared at checkpoints r with the binomial limit of a local level a: it crosses
where P[Bin(r, q) ≥ T_r] < a. `crossing` gives the probability that a Bernoulli(q) walk ever crosses, by a forward
recursion of its law with absorption. `local_levels` gives the a for which that is at most α, for *every* q of a
band of ε at once: on a short interval [q₁, q₂] the limits only rise with q and the walk only rises with q, so
the walk of q₂ against the limits of q₁ crosses at least as often as any q between against its own.

The product reads the answers from a table made by `scripts/calibration_tables.py`; beyond its last checkpoint
each further one adds at most a to the crossing probability, so no size is out of reach.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any, NamedTuple

import numpy as np
from scipy import fft, special

from dosimeter._validate import FloatArray, IntArray

RATIO = 1.2  # from one checkpoint to the next, up to TABLE_REACH
FAR_RATIO = 1.5  # beyond it
TABLE_REACH = 100_000
BAND_EDGES = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0)  # ε; the last band is open
_TAIL = 8.5  # standard deviations kept on either side; what is cut is counted as crossed


@cache
def _all_checkpoints() -> IntArray:
    points = [1]
    while points[-1] < 4 * 10**9:
        ratio = RATIO if points[-1] * RATIO <= TABLE_REACH else FAR_RATIO
        points.append(max(points[-1] + 1, int(points[-1] * ratio)))
    return np.array(points, dtype=np.int64)


def checkpoints(records: int) -> IntArray:
    """The numbers of guesses at which a walk over `records` records is checked."""
    points = _all_checkpoints()
    return points[: int(np.searchsorted(points, records, "right"))]


def limits(points: IntArray, q: FloatArray, level: FloatArray) -> IntArray:
    """For each row (q, level) and checkpoint r the smallest t with P[Bin(r, q) ≥ t] < level; r+1 if there is none."""
    r = points[None, :]
    q, level = q[:, None], level[:, None]

    def beyond(t: IntArray) -> Any:
        inside = np.clip(t, 1, r)
        return np.where(t > r, True, np.where(t < 1, False, special.betainc(inside, r - inside + 1, q) < level))

    # Cornish–Fisher lands next to the answer; a bracket around it is widened to [0, r+1] where it does not.
    z = -special.ndtri(level)
    spread = np.sqrt(r * q * (1 - q))
    guess = np.clip(np.ceil(r * q + z * spread + (1 - 2 * q) * (z * z - 1) / 6), 1, r).astype(np.int64)
    margin = (0.05 * spread).astype(np.int64) + 2
    low, high = np.maximum(guess - margin, 0), np.minimum(guess + margin, r + 1)
    low = np.where(beyond(low), 0, low)
    high = np.where(beyond(high), high, r + 1)
    while np.any(high - low > 1):
        middle = (low + high) // 2
        past = beyond(middle)
        high, low = np.where(past, middle, high), np.where(past, low, middle)
    return high


def _binomial_window(trials: int, q: FloatArray) -> tuple[IntArray, FloatArray]:
    """First value and probabilities of Bin(trials, q) around its mean, one row for each q."""
    spread = _TAIL * np.sqrt(trials * q * (1 - q)) + 8
    first = np.clip(np.floor(trials * q - spread), 0, trials).astype(np.int64)
    last = np.clip(np.ceil(trials * q + spread), 0, trials).astype(np.int64)
    value = first[:, None] + np.arange(int((last - first).max()) + 1)
    inside = np.minimum(value, trials)
    log_mass = (
        special.gammaln(trials + 1)
        - special.gammaln(inside + 1)
        - special.gammaln(trials - inside + 1)
        + special.xlogy(inside, q[:, None])
        + special.xlog1py(trials - inside, -q[:, None])
    )
    return first, np.where(value <= trials, np.exp(log_mass), 0.0)


def crossing(points: IntArray, bounds: IntArray, q: FloatArray) -> FloatArray:
    """P[T_r ≥ bound at r or before], for every checkpoint: rows of `bounds` (levels, q, checkpoints) → same shape.

    `bounds` has shape (levels, len(q), len(points)); all levels of one q share the law of the increments.
    """
    levels, rows, _ = bounds.shape
    crossed = np.zeros((levels, rows))
    result = np.empty(bounds.shape)
    state, low, before = np.ones((levels, rows, 1)), np.zeros(rows, np.int64), 0
    for k, r in enumerate(points):
        first, step = _binomial_window(int(r - before), q)
        size = state.shape[2] + step.shape[1] - 1
        length = fft.next_fast_len(size, real=True)
        moved = fft.irfft(fft.rfft(state, length) * fft.rfft(step, length), length)[..., :size]
        np.maximum(moved, 0.0, out=moved)
        base = low + first
        low = np.maximum(base, np.floor(r * q - _TAIL * np.sqrt(r * q * (1 - q)) - 8).astype(np.int64))
        width = int((bounds[:, :, k].max(axis=0) - low).max())
        index = (low - base)[:, None] + np.arange(max(width, 1))
        shown = np.take_along_axis(moved, np.broadcast_to(np.minimum(index, size - 1), (levels, *index.shape)), 2)
        value = low[:, None] + np.arange(index.shape[1])
        keep = (index < size) & (value < bounds[:, :, k, None])
        state = np.where(keep, shown, 0.0)
        crossed += np.maximum(moved.sum(axis=2) - state.sum(axis=2), 0.0)
        result[:, :, k] = crossed
        before = r
    return np.minimum(result, 1.0)


def exact_level(points: IntArray, alpha: float, q: float) -> float:
    """The largest local level a with which the walk of this one q crosses with probability ≤ alpha (reference)."""
    low, high = np.log(alpha / points.size), np.log(alpha)
    for _ in range(6):  # each pass cuts the bracket into ten
        tries = np.linspace(low, high, 11)
        bounds = limits(points, np.full(11, q), np.exp(tries))[:, None, :]
        good = crossing(points, bounds, np.array([q]))[:, 0, -1] <= alpha
        good[0] = True  # the union bound
        best = int(np.flatnonzero(good).max())
        low, high = tries[best], tries[min(best + 1, 10)]
    return float(np.exp(low))


class WalkLevels(NamedTuple):
    """`alpha[k, band, i]`: an upper limit of the crossing probability up to checkpoint k at local level `level[i]`."""

    level: FloatArray
    alpha: FloatArray


@cache
def level_table() -> WalkLevels:
    """The committed table."""
    source = resources.files("dosimeter.estimators").joinpath("walk_levels.npz")
    with source.open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
        return WalkLevels(stored["level"].astype(float), stored["alpha"].astype(float))


def local_levels(records: int, alphas: FloatArray) -> FloatArray:
    """One local level for each band of BAND_EDGES, each valid at its own alpha; 0 where alpha ≤ 0."""
    table = level_table()
    points = checkpoints(records).size
    tabulated = min(points, table.alpha.shape[0])
    further = (points - tabulated) * table.level
    budget = table.alpha[tabulated - 1] + further  # (bands, levels), rising with the level
    fits = np.sum(budget <= alphas[:, None], axis=1)
    found = np.where(fits > 0, table.level[np.maximum(fits - 1, 0)], 0.0)
    return np.maximum(found, np.maximum(alphas, 0.0) / points)
