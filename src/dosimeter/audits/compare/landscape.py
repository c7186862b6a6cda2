"""The privacy–utility landscape: its points, its frontier and its marginal densities, as plain arithmetic."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from dosimeter import _validate as check
from dosimeter._validate import FloatArray, InputError, IntArray

__all__ = ["GUARANTEED", "LOWER", "VALUE", "Point", "bandwidth", "density", "frontier", "strategies"]

GUARANTEED, LOWER, VALUE = "guarantee", "lower bound, no guarantee", "estimate"


@dataclass(frozen=True)
class Point:
    """One strategy in the landscape: means and ranges over its repeats; `kind` says what its ε is."""

    name: str
    group: str
    kind: str
    repeats: int
    epsilon: float
    utility: float
    epsilon_low: float
    epsilon_high: float
    utility_low: float
    utility_high: float
    frontier: bool = False


def strategies(
    shown: FloatArray, useful: FloatArray, names: list[str], groups: list[str], kinds: list[str]
) -> list[Point]:
    """One point for each name with a finite ε: mean and range of ε and utility, and whether it is on the frontier.

    Repeats with and without a guarantee are two points. A lower bound is on no frontier.
    """
    points: list[Point] = []
    for name, kind in dict.fromkeys(zip(names, kinds, strict=True)):
        at = [i for i, n in enumerate(names) if (n, kinds[i]) == (name, kind) and math.isfinite(shown[i])]
        if at:
            e, u = shown[at], useful[at]
            points.append(
                Point(
                    name=name,
                    group=groups[at[0]],
                    kind=kind,
                    repeats=len(at),
                    epsilon=float(e.mean()),
                    utility=float(u.mean()),
                    epsilon_low=float(e.min()),
                    epsilon_high=float(e.max()),
                    utility_low=float(u.min()),
                    utility_high=float(u.max()),
                )
            )
    ranked = [i for i, p in enumerate(points) if p.kind != LOWER]
    if ranked:
        for i in frontier([points[i].epsilon for i in ranked], [points[i].utility for i in ranked]).tolist():
            points[ranked[i]] = replace(points[ranked[i]], frontier=True)
    return points


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
