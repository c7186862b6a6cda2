"""The privacy–utility landscape: its frontier and its marginal densities, as plain arithmetic."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from dosimeter import _validate as check
from dosimeter._validate import FloatArray, InputError, IntArray


def frontier(epsilon: npt.ArrayLike, utility: npt.ArrayLike) -> IntArray:
    """Indices of the convex hull in the direction of smaller ε and larger utility, from the most private point on.

    Every mixture of two neighbours on it is reachable by tossing a coin, so a point below the line is beaten.
    """
    x = check.finite_array("epsilon", epsilon)
    y = check.finite_array("utility", utility)
    if x.size != y.size:
        raise InputError(f"utility has {y.size} values for {x.size} of epsilon; pass one pair for each point.")
    order = np.lexsort((-y, x))
    end = int(np.argmax(y[order]))  # the most private of the points with the largest utility
    chain: list[int] = []
    for i in order[: end + 1].tolist():
        if chain and x[i] == x[chain[-1]]:
            continue
        while len(chain) >= 2 and _turn(x, y, chain[-2], chain[-1], i) >= 0:
            chain.pop()
        chain.append(i)
    return np.array(chain, dtype=np.int64)


def _turn(x: FloatArray, y: FloatArray, a: int, b: int, c: int) -> float:
    """Above 0 where a → b → c turns left, 0 on a line."""
    return float((x[b] - x[a]) * (y[c] - y[a]) - (y[b] - y[a]) * (x[c] - x[a]))


def bandwidth(values: npt.ArrayLike) -> float:
    """Silverman's rule: 0.9 · min(standard deviation, IQR / 1.34) · n^(−1/5); 0 where all values are equal."""
    x = check.finite_array("values", values)
    if x.size < 2:
        return 0.0
    low, high = np.quantile(x, [0.25, 0.75])
    spreads = [s for s in (float(x.std(ddof=1)), float(high - low) / 1.34) if s > 0]
    return 0.9 * min(spreads) * float(x.size) ** -0.2 if spreads else 0.0


def density(values: npt.ArrayLike, grid: npt.ArrayLike, *, width: float | None = None) -> FloatArray:
    """Gaussian kernel density of `values` at each point of `grid`.

    Without `width` Silverman's rule decides, but not below a thousandth of the grid's span, which nobody could see;
    where it gives 0, one twentieth of the span does.
    """
    x = check.finite_array("values", values)
    points = check.finite_array("grid", grid)
    if width is None:
        span = float(np.ptp(points))
        width = max(bandwidth(x), span / 1000) if bandwidth(x) > 0 else (span or 1.0) / 20
    width = check.within("width", width, 0.0, math.inf, "pass a bandwidth above 0", include="()")
    z = np.clip((points[:, None] - x[None, :]) / width, -40.0, 40.0)
    return np.exp(-0.5 * z * z).sum(axis=1) / (x.size * width * math.sqrt(2 * math.pi))
