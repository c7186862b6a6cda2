"""Intervals from counts alone: the worked example, the perfect attack, and widths against samples and rates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dosimeter import Counts, Estimate, bayesian, clopper_pearson, jeffreys
from dosimeter.estimators.bayesian import posterior_cdf, posterior_density

METHODS: dict[str, Callable[..., Estimate]] = {
    "joint": bayesian,
    "jeffreys": jeffreys,
    "clopper_pearson": clopper_pearson,
}
EXAMPLE = Counts(fn=35, tp=65, fp=25, tn=75)
EXAMPLE_DELTA, CONFIDENCE, DELTA = 0.05, 0.95, 1e-5
SAMPLES = (100, 200, 300, 500, 700, 1000, 1500, 2000, 3000, 5000)
RATES = tuple(round(0.05 * k, 2) for k in range(1, 10))
GRID_SAMPLES = 1000
FEW_SAMPLES, FEW_CONFIDENCE = 100, 0.9
SOUGHT, STEP = 500, 20


def numbers() -> dict[str, float]:
    """What the paper prints of the worked example and the perfect attack."""
    found: dict[str, float] = {}
    for name, method in METHODS.items():
        interval = method(EXAMPLE, delta=EXAMPLE_DELTA, confidence=CONFIDENCE, sides="both")
        found[f"worked_example.{name}.low"], found[f"worked_example.{name}.high"] = interval.low, interval.high
    perfect = Counts(fn=0, tp=1000, fp=0, tn=1000)
    arguments: dict[str, Any] = {"delta": DELTA, "confidence": 0.9}
    found["perfect.clopper_pearson.two_sided"] = clopper_pearson(perfect, sides="both", **arguments).low
    found["perfect.clopper_pearson.one_sided"] = clopper_pearson(perfect, **arguments).low
    found["perfect.jeffreys.one_sided"] = jeffreys(perfect, **arguments).low
    return found


def claims() -> dict[str, float]:
    """Figure 1's density as a whole, what "narrower" comes to over the rates, and the samples that it saves."""
    curve = density(np.linspace(0.0, 4.0, 4001))
    mass = curve["mass_at_0"] + float(np.trapezoid(curve["density"], curve["epsilon"]))
    shares = [row["narrower"] for row in over_rates()]
    return {
        "figure1.mass": mass,
        "narrower.smallest": min(shares),
        "narrower.largest": max(shares),
        "narrower.few": max(row["narrower"] for row in over_rates(FEW_SAMPLES, FEW_CONFIDENCE)),
        "samples.worked_example": samples_for_width(0.35, 0.25, EXAMPLE_DELTA),
        "samples.near_chance": samples_for_width(0.45, 0.5, DELTA),
    }


def counts(fnr: float, fpr: float, samples: int) -> Counts:
    """Half of the samples members, half not, with these shares of errors."""
    side = samples // 2
    fn, fp = round(fnr * side), round(fpr * side)
    return Counts(fn=fn, tp=side - fn, fp=fp, tn=side - fp)


def width(
    method: str, fnr: float, fpr: float, samples: int, delta: float = DELTA, confidence: float = CONFIDENCE
) -> float:
    """Of the two-sided interval."""
    found = METHODS[method](counts(fnr, fpr, samples), delta=delta, confidence=confidence, sides="both")
    return found.high - found.low


def density(epsilon: Any) -> dict[str, Any]:
    """The posterior of ε for the worked example: its density and the mass at 0."""
    return {
        "epsilon": epsilon,
        "density": posterior_density(EXAMPLE, epsilon, EXAMPLE_DELTA),
        "mass_at_0": float(posterior_cdf(EXAMPLE, 0.0, EXAMPLE_DELTA)),
    }


def against_samples(fnr: float = 0.35, fpr: float = 0.25, delta: float = EXAMPLE_DELTA) -> list[dict[str, Any]]:
    """Widths of the three methods at the same rates and more and more samples."""
    return [
        {"samples": samples, "method": name, "width": width(name, fnr, fpr, samples, delta)}
        for samples in SAMPLES
        for name in METHODS
    ]


def over_rates(samples: int = GRID_SAMPLES, confidence: float = CONFIDENCE) -> list[dict[str, float]]:
    """Widths over FPR and FNR, and how much narrower the joint posterior's interval is than Clopper–Pearson's."""
    found = []
    for fnr in RATES:
        for fpr in RATES:
            given = (fnr, fpr, samples, DELTA, confidence)
            joint, exact = (width(name, *given) for name in ("joint", "clopper_pearson"))
            found.append({"fnr": fnr, "fpr": fpr, "joint": joint, "exact": exact, "narrower": 1 - joint / exact})
    return found


def samples_for_width(fnr: float, fpr: float, delta: float) -> float:
    """The samples after which Clopper–Pearson's interval is as narrow as the joint one after 500, in steps of 20."""
    wanted = width("joint", fnr, fpr, SOUGHT, delta)
    tried = range(SOUGHT, 10 * SOUGHT, STEP)
    return float(next(n for n in tried if width("clopper_pearson", fnr, fpr, n, delta) <= wanted))
