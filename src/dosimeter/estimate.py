"""A number and what may be claimed with it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any

import numpy as np

from dosimeter import _validate as check
from dosimeter._optional import require
from dosimeter._validate import InputError
from dosimeter.evidence import Counts


class Validity(StrEnum):
    """What stands behind a number: a closed list, printed with every number."""

    FINITE_SAMPLE = "finite-sample"
    RANDOM_SPLIT = "finite-sample, random split"
    INDEPENDENT_RUNS = "finite-sample, independent runs"
    CREDIBLE = "credible"
    ASSUMES_GAUSSIAN = "assumes Gaussian"
    ASSUMES_FAMILY = "assumes the mechanism's family"
    ASYMPTOTIC = "asymptotic"
    INSTANCE_METRIC = "instance metric"
    MEASUREMENT = "measurement"
    EXPLORATORY = "exploratory"

    @property
    def is_bound(self) -> bool:
        """Whether the number is a confidence bound for any mechanism, with no further assumption about it."""
        return self in (Validity.FINITE_SAMPLE, Validity.RANDOM_SPLIT, Validity.INDEPENDENT_RUNS)


def plain(value: Any) -> Any:
    """A value as strict JSON can hold it: lists and Python scalars, None for an infinite or missing number.

    A value with `to_dict` becomes that, any other unknown object its text.
    """
    if isinstance(value, float | np.floating):
        number = float(value)
        return number if math.isfinite(number) else None
    if isinstance(value, np.ndarray | np.integer | np.bool_):
        return plain(value.tolist())
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(v) for v in value]
    if hasattr(value, "to_dict") and not isinstance(value, type):
        return plain(value.to_dict())
    if value is None or isinstance(value, bool | int) or type(value) is str:
        return value
    return str(value)


@dataclass(frozen=True)
class Estimate:
    """One estimate of ε with its interval, its validity and the sentence that may be quoted.

    `epsilon` is the headline number: the lower end for a bound, the value itself for a metric or measurement.
    `high` is `inf` where nothing bounds ε from above. `neighbours` says whose ε it is: of data sets that differ by
    adding or removing one record ("add/remove"), by replacing one ("replace"), or None where it is not known.
    """

    epsilon: float
    low: float
    high: float
    delta: float
    confidence: float
    method: str
    validity: Validity
    claim: str
    threshold: float | None = None
    counts: Counts | None = None
    warnings: tuple[str, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
    neighbours: str | None = None

    def __post_init__(self) -> None:
        for name in ("epsilon", "low", "high", "delta", "confidence"):
            number = float(getattr(self, name))
            if math.isnan(number):
                raise ArithmeticError(f"{self.method}: {name} came out as NaN; please report this as a bug")
            object.__setattr__(self, name, number + 0.0)  # -0.0 prints badly
        object.__setattr__(self, "warnings", tuple(self.warnings))
        object.__setattr__(self, "details", MappingProxyType(dict(self.details)))

    def __str__(self) -> str:
        return self.claim

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain JSON values; an unbounded end is None."""
        return {
            "epsilon": plain(self.epsilon),
            "low": plain(self.low),
            "high": plain(self.high),
            "delta": self.delta,
            "confidence": self.confidence,
            "method": self.method,
            "validity": str(self.validity),
            "neighbours": self.neighbours,
            "claim": self.claim,
            "threshold": plain(self.threshold),
            "counts": None if self.counts is None else self.counts.to_dict(),
            "warnings": list(self.warnings),
            "details": plain(self.details),
        }

    def plot(self) -> Any:
        """The interval on the ε axis, as an Altair chart; an open upper end runs to the edge."""
        altair = require("altair", extra="report", caller="Estimate.plot")
        edge = self.high if math.isfinite(self.high) else 2 * max(self.epsilon, 1.0)
        row = {"method": self.method, "low": self.low, "high": edge, "epsilon": self.epsilon, "claim": self.claim}
        base = altair.Chart(altair.Data(values=[row]), title=f"{self.method} ({self.validity})")
        place = altair.Y("method:N", title=None, axis=None)
        span = base.mark_rule(strokeWidth=3).encode(
            x=altair.X("low:Q", title=f"ε at δ = {self.delta:g}", scale=altair.Scale(zero=True)), x2="high:Q", y=place
        )
        return span + base.mark_point(filled=True, size=90).encode(x="epsilon:Q", y=place, tooltip=["claim:N"])

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Estimate:
        """Read back what `to_dict` wrote.

        Raises:
            InputError: If a field is missing, unknown or of another type.
        """
        required = ("epsilon", "low", "high", "delta", "confidence", "method", "validity", "claim")
        optional = ("neighbours", "threshold", "counts", "warnings", "details")
        found = check.fields("the estimate", values, required, optional)
        counts, threshold = found.get("counts"), found.get("threshold")
        remedy = "write a number"
        ends = {
            name: math.inf
            if found[name] is None and name != "low"
            else check.within(name, found[name], 0, math.inf, remedy)
            for name in ("epsilon", "low", "high")
        }
        if ends["low"] > ends["high"]:
            raise InputError(f"low is {ends['low']:g}, above high, {ends['high']:g}; pass what to_dict returned.")
        neighbours = found.get("neighbours")
        return cls(
            epsilon=ends["epsilon"],
            low=ends["low"],
            high=ends["high"],
            delta=check.real("delta", found["delta"], remedy),
            confidence=check.real("confidence", found["confidence"], remedy),
            method=check.text("method", found["method"]),
            validity=Validity(check.choice("validity", found["validity"], list(Validity))),
            claim=check.text("claim", found["claim"]),
            neighbours=None if neighbours is None else check.text("neighbours", neighbours),
            threshold=None if threshold is None else check.real("threshold", threshold, remedy),
            counts=None if counts is None else Counts(**check.fields("counts", counts, ("tp", "fn", "fp", "tn"))),
            warnings=check.texts("warnings", found.get("warnings", ())),
            details=check.mapping("details", found.get("details"), "pass what to_dict returned"),
        )


def percent(confidence: float) -> str:
    """0.95 as "95 %"."""
    return f"{100 * confidence:.10g} %"


def number(value: float) -> str:
    """An ε for a sentence: four significant digits, 0 and ∞ as such."""
    if math.isinf(value):
        return "∞"
    return "0" if value == 0 else f"{value:.4g}"
