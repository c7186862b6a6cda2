"""Bayesian Estimation of Differential Privacy (Zanella-Béguelin et al., 2023): the intervals that it prints."""

from __future__ import annotations

import numpy as np

from dosimeter import Counts, bayesian, clopper_pearson, jeffreys

METHODS = {"joint": bayesian, "jeffreys": jeffreys, "clopper_pearson": clopper_pearson}


def results() -> dict[str, float]:
    """The worked example, the perfect attack, and how much narrower the joint interval is."""
    found: dict[str, float] = {}
    example = Counts(fn=35, tp=65, fp=25, tn=75)
    for name, method in METHODS.items():
        interval = method(example, delta=0.05, confidence=0.95, sides="both")
        found[f"worked_example.{name}.low"], found[f"worked_example.{name}.high"] = interval.low, interval.high
    perfect = Counts(fn=0, tp=1000, fp=0, tn=1000)
    arguments = {"delta": 1e-5, "confidence": 0.9}
    found["perfect.clopper_pearson.two_sided"] = clopper_pearson(perfect, sides="both", **arguments).low
    found["perfect.clopper_pearson.one_sided"] = clopper_pearson(perfect, **arguments).low
    found["perfect.jeffreys.one_sided"] = jeffreys(perfect, **arguments).low
    found["samples.joint_500_over_clopper_pearson_1500"] = _width(bayesian, 500) / _width(clopper_pearson, 1500)
    widths = [1 - _width(bayesian, n) / _width(clopper_pearson, n) for n in (250, 500, 1000, 2000)]
    found["narrower.mean"] = float(np.mean(widths))
    return found


def _width(method, n: int) -> float:
    """Width of the 95 % interval at FNR = .35, FPR = .25, n records of each kind, δ = 1e-5."""
    fn, fp = round(0.35 * n), round(0.25 * n)
    found = method(Counts(fn=fn, tp=n - fn, fp=fp, tn=n - fp), delta=1e-5, confidence=0.95, sides="both")
    return found.high - found.low
