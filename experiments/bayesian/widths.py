"""Intervals from counts alone: the worked example, the perfect attack, widths against samples and rates."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

from dosimeter import Counts, Estimate, bayesian, clopper_pearson, jeffreys
from dosimeter.estimators.limits import jeffreys_limits
from dosimeter.estimators.rates import rectangle
from dosimeter.estimators.with_assumptions import posterior_cdf, posterior_density
from dosimeter.geometry import boundary, epsilon_from_rates

METHODS: dict[str, Callable[..., Estimate]] = {
    "joint": bayesian,
    "jeffreys": jeffreys,
    "clopper_pearson": clopper_pearson,
}
EXAMPLE = Counts(fn=35, tp=65, fp=25, tn=75)  # Section 3.2
EXAMPLE_DELTA, EXAMPLE_CONFIDENCE = 0.05, 0.95
DELTA, CONFIDENCE = 1e-5, 0.9  # of Figures 4 and 5 and Table 2
SAMPLES = (50, 100, 200, 300, 500, 700, 1000, 1500, 2000, 3000, 5000)
GRID_SAMPLES = 1000
GROWING = (4, 40, 400, 4000)  # trials of Figure 7


def counts(fnr: float, fpr: float, samples: int) -> Counts:
    """Half of the samples members, half not, with these shares of errors."""
    side = samples // 2
    fn, fp = round(fnr * side), round(fpr * side)
    return Counts(fn=fn, tp=side - fn, fp=fp, tn=side - fp)


def interval(method: str, cells: Counts, delta: float, confidence: float) -> tuple[float, float]:
    """Both ends of the two-sided interval."""
    found = METHODS[method](cells, delta=delta, confidence=confidence, sides="both")
    return found.low, found.high


# --- Section 3 --------------------------------------------------------------------------------------------


def worked_example() -> dict[str, tuple[float, float]]:
    """The interval of each method for the tally of Section 3.2."""
    return {name: interval(name, EXAMPLE, EXAMPLE_DELTA, EXAMPLE_CONFIDENCE) for name in METHODS}


def perfect() -> dict[str, float]:
    """Lower ends at 90 % for an attack that is right in 2000 of 2000 trials (Section 3.1)."""
    cells, given = Counts(fn=0, tp=1000, fp=0, tn=1000), {"delta": DELTA, "confidence": CONFIDENCE}
    return {
        "two_sided": clopper_pearson(cells, sides="both", **given).low,
        "one_sided": clopper_pearson(cells, **given).low,
        "jeffreys": jeffreys(cells, **given).low,
    }


def corner() -> float:
    """The least ε over the rectangle of footnote 1."""
    return interval("clopper_pearson", Counts(tp=90, fp=0, tn=100, fn=10), DELTA, CONFIDENCE)[0]


@dataclass(frozen=True)
class Covered:
    """How much of the joint posterior Jeffreys' rectangle holds, and the regions that enclose it."""

    fnr: tuple[float, float]
    fpr: tuple[float, float]
    rectangle: float
    regions: float


def covered() -> Covered:
    """Section 3.2: the rectangle of both Jeffreys intervals, each at half of the level."""
    cells = EXAMPLE
    level = 1 - EXAMPLE_CONFIDENCE
    fpr, fnr = rectangle(cells.fn, cells.tp, cells.fp, cells.tn, level, "both", jeffreys_limits)
    inside = np.diff(stats.beta.cdf(fnr, cells.fn + 0.5, cells.tp + 0.5))[0]
    inside *= np.diff(stats.beta.cdf(fpr, cells.fp + 0.5, cells.tn + 0.5))[0]
    low, high = worked_example()["jeffreys"]
    between = posterior_cdf(cells, high, EXAMPLE_DELTA) - posterior_cdf(cells, low, EXAMPLE_DELTA)
    ends = [(float(pair[0]), float(pair[1])) for pair in (fnr, fpr)]
    return Covered(ends[0], ends[1], float(inside), float(between))


def density(epsilon: npt.NDArray[np.float64], cells: Counts = EXAMPLE, delta: float = EXAMPLE_DELTA) -> dict[str, Any]:
    """The posterior of ε: its density and the mass at 0."""
    return {
        "epsilon": epsilon,
        "density": posterior_density(cells, epsilon, delta),
        "mass_at_0": float(posterior_cdf(cells, 0.0, delta)),
    }


def mass() -> float:
    """Density and mass at 0 of the worked example together."""
    curve = density(np.linspace(0.0, 4.0, 4001))
    return curve["mass_at_0"] + float(np.trapezoid(curve["density"], curve["epsilon"]))


# --- Figure 2 ---------------------------------------------------------------------------------------------


def forced_by_tests(epsilon: float = 1.0, delta: float = 0.05, draws: int = 200_000) -> float:
    """The largest ε that tests of a mechanism force which is exactly (ε, δ)-DP.

    The mechanism tells its input with probability δ and is randomised response otherwise. The tests guess "member" at
    each of its four outputs with a probability of their own.
    """
    keep = np.exp(epsilon) / (1 + np.exp(epsilon))
    member = np.array([delta, (1 - delta) * keep, (1 - delta) * (1 - keep), 0.0])
    rng = np.random.default_rng(0)
    guess = rng.random((draws, 4)) ** rng.choice([1.0, 20.0, 0.05], (draws, 4))  # many of them nearly 0 or 1
    return float(epsilon_from_rates(guess @ member[::-1], 1 - guess @ member, delta).max())


# --- Figures 4, 5 and 7 -----------------------------------------------------------------------------------


def against_samples(fnr: float = 0.4, fpr: float = 0.4) -> list[dict[str, Any]]:
    """Ends of the intervals at the same rates and more and more samples."""
    rows = []
    for samples in SAMPLES:
        for name in METHODS:
            low, high = interval(name, counts(fnr, fpr, samples), DELTA, CONFIDENCE)
            rows.append({"samples": samples, "method": name, "low": low, "high": high})
    return rows


def samples_needed(method: str, half_width: float = 0.15, tried: Iterable[int] = range(200, 3000, 10)) -> float:
    """The samples, in steps of 10, after which the interval at FNR = FPR = 40 % is as narrow as ± 0.15."""
    for samples in tried:
        low, high = interval(method, counts(0.4, 0.4, samples), DELTA, CONFIDENCE)
        if high - low <= 2 * half_width:
            return float(samples)
    return float("inf")


def over_rates(step: int) -> list[dict[str, float]]:
    """Widths of the three intervals at every `step`-th pair of error counts of 500 + 500, and how they compare."""
    side = GRID_SAMPLES // 2
    errors = sorted({*range(0, side + 1, step), 1, 2, 5, side - 5, side - 2, side - 1, side})
    rows = []
    for fn in errors:
        for fp in errors:
            cells = Counts(fn=fn, tp=side - fn, fp=fp, tn=side - fp)
            widths = {name: _width(name, cells) for name in METHODS}
            row = {"fnr": fn / side, "fpr": fp / side, **widths}
            for name in ("jeffreys", "clopper_pearson"):
                finite = np.isfinite(widths[name]) and widths[name] > 0
                row[f"than_{name}"] = 1 - widths["joint"] / widths[name] if finite else float("nan")
            rows.append(row)
    return rows


def _width(method: str, cells: Counts) -> float:
    low, high = interval(method, cells, DELTA, CONFIDENCE)
    return high - low


def area(low: float, high: float, delta: float, steps: int = 2000) -> float:
    """The area of R(high, δ) without R(low, δ)."""
    middles = (np.arange(steps) + 0.5) / steps
    inside = [1 - 2 * float(np.mean(boundary(middles, epsilon, delta)[0])) for epsilon in (low, high)]
    return inside[1] - inside[0]


def growing() -> list[dict[str, float]]:
    """Figure 7: the interval and its area for more and more trials at the rates of the worked example."""
    rows = []
    for trials in GROWING:
        cells = counts(0.35, 0.25, trials)
        low, high = interval("joint", cells, EXAMPLE_DELTA, EXAMPLE_CONFIDENCE)
        rows.append({"trials": trials, "low": low, "high": high, "area": area(low, high, EXAMPLE_DELTA)})
    return rows
