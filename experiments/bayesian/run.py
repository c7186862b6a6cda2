"""Bayesian Estimation of Differential Privacy (Zanella-Béguelin et al., 2023): the intervals that it prints."""

from __future__ import annotations

from dosimeter import Counts, bayesian, clopper_pearson, jeffreys

METHODS = {"joint": bayesian, "jeffreys": jeffreys, "clopper_pearson": clopper_pearson}


def results() -> dict[str, float]:
    """The worked example and the perfect attack."""
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
    return found
