"""The uniform band: one-sided binomial limits for a rate that hold at all thresholds at once.

If k of n scores lie at or above a threshold, the true rate there is at most V_(k+1), the next order statistic of n
uniforms. So the limits B(1−a; j, n−j+1) for V_(j) hold at every threshold if they hold for all orders j together;
the local level a is chosen so that this fails with probability ≤ α. `violation` computes that probability exactly,
as that of a binomial process N(u) falling below j at the points u_j = B(1−a; j, n−j+1).

Above ALL_ORDERS only a dense choice of orders is controlled; a count between two of them takes the next one.
The product reads a table made by `scripts/calibration_tables.py`; beyond it the union bound over the orders is used.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import fft, special

from dosimeter._validate import FloatArray, IntArray

ALL_ORDERS = 2000
_DENSE_END = 500
_TAIL = 8.5


@cache
def orders(n: int) -> IntArray:
    """The orders j that the band controls: all of a small sample, else the ends and steps of 1 % (2 % beyond 1e6)."""
    if n <= ALL_ORDERS:
        return np.arange(1, n + 1)
    ratio = 1.01 if n <= 10**6 else 1.02
    steps = int(np.log(n / 2 / _DENSE_END) / np.log(ratio)) + 1
    inner = np.unique((_DENSE_END * ratio ** np.arange(1, steps + 1)).astype(np.int64))
    lower = np.concatenate([np.arange(1, _DENSE_END + 1), inner[inner <= n // 2]])
    return np.unique(np.concatenate([lower, n + 1 - lower]))


def violation(n: int, level: FloatArray) -> FloatArray:
    """P[some controlled limit fails] for each local level: exact, by Poissonisation and absorption."""
    points = orders(n)
    u = special.betainccinv(points[None, :], n - points[None, :] + 1, level[:, None])
    log_total = special.xlogy(n, n) - n - special.gammaln(n + 1)  # P[Poisson(n) = n]
    state = np.ones((level.size, 1))  # law of N at the last point, from `floor` upwards
    floor, failed, before = 0, np.zeros(level.size), np.zeros(level.size)
    for k, j in enumerate(points):
        first, step = _poisson_window(n * (u[:, k] - before))
        size = state.shape[1] + step.shape[1] - 1
        length = fft.next_fast_len(size, real=True)
        moved = fft.irfft(fft.rfft(state, length) * fft.rfft(step, length), length)[:, :size]
        np.maximum(moved, 0.0, out=moved)
        value = floor + first[:, None] + np.arange(size)
        rest = n * (1 - u[:, k])
        left = np.maximum(n - value, 0)
        log_end = special.xlogy(left, rest[:, None]) - rest[:, None] - special.gammaln(left + 1) - log_total
        lost = (value < j) & (value <= n)
        failed += np.sum(np.where(lost, moved * np.exp(log_end), 0.0), axis=1)
        top = int(np.max(np.minimum(n * u[:, k] + _TAIL * np.sqrt(n * u[:, k] * (1 - u[:, k])) + 8, n)))
        index = (j - floor) - first[:, None] + np.arange(max(top - j + 1, 1))
        inside = (index >= 0) & (index < size) & (j + np.arange(index.shape[1]) <= n)
        state = np.where(inside, np.take_along_axis(moved, np.clip(index, 0, size - 1), 1), 0.0)
        floor, before = int(j), u[:, k]
    return np.minimum(failed, 1.0)


def _poisson_window(mean: FloatArray) -> tuple[IntArray, FloatArray]:
    """First value and probabilities of Poisson(mean) around its mean, one row for each mean."""
    spread = _TAIL * np.sqrt(mean) + 12
    first = np.maximum(np.floor(mean - spread), 0).astype(np.int64)
    value = first[:, None] + np.arange(int(np.max(np.ceil(mean + spread) - first)) + 1)
    mass = np.exp(special.xlogy(value, mean[:, None]) - mean[:, None] - special.gammaln(value + 1))
    return first, mass


class BandLevels(NamedTuple):
    """`alpha[i, k]`: the violation probability of `size[i]` records at local level `level[k]`."""

    size: IntArray
    level: FloatArray
    alpha: FloatArray


@cache
def level_table() -> BandLevels:
    """The committed table."""
    source = resources.files("dosimeter.estimators").joinpath("band_levels.npz")
    with source.open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
        return BandLevels(stored["size"].astype(np.int64), stored["level"].astype(float), stored["alpha"].astype(float))


def local_level(n: int, alpha: float) -> float:
    """A local level with which all limits of n records hold together with probability ≥ 1 − alpha.

    Between two sizes of the table the worse one counts, with 1 % on top; the union bound is the last resort.
    """
    table = level_table()
    union = alpha / orders(n).size
    above = int(np.searchsorted(table.size, n))
    if above == table.size.size:
        return union
    if table.size[above] == n:
        needed = table.alpha[above]
    else:
        needed = 1.01 * np.maximum(table.alpha[above - 1], table.alpha[above])
    fits = int(np.sum(needed <= alpha))
    return max(union, float(table.level[fits - 1])) if fits else union


def upper_limits(k: npt.ArrayLike, n: int, alpha: float) -> FloatArray:
    """Limits for the true rate where k of n records are counted, valid for all k together at 1 − alpha."""
    points = orders(n)
    following = np.searchsorted(points, np.asarray(k) + 1)
    limit = special.betainccinv(points, n - points + 1, local_level(n, alpha))
    return np.append(limit, 1.0)[following]
