"""A number and what may be claimed with it, in a sentence that says whose ε it is."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import wraps
from types import MappingProxyType
from typing import Any, TypedDict, TypeVar, cast

import numpy as np

from dosimeter import _validate as check
from dosimeter._card import ALLOWED, PROVEN, Mark, card
from dosimeter._validate import InputError, require
from dosimeter.evidence import Counts, Scores


class Level(TypedDict):
    """What every number of one audit is stated for."""

    delta: float
    confidence: float


class Validity(StrEnum):
    """Name what stands behind a number: a closed list, printed with every number.

    >>> Validity("finite-sample").is_bound, Validity("measurement").is_bound
    (True, False)
    """

    FINITE_SAMPLE = "finite-sample"
    RANDOM_SPLIT = "finite-sample, random split"
    INDEPENDENT_RUNS = "finite-sample, independent runs"
    CREDIBLE = "credible"
    ASSUMES_GAUSSIAN = "assumes Gaussian"
    ASSUMES_FAMILY = "assumes the mechanism's family"
    CONDITIONAL = "conditional on the propensity model"
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
    kind = type(value)
    if kind is float:  # most of what an audit holds: asked first, since a board reads a thousand of them
        return value if math.isfinite(value) else None
    if value is None or kind is str or kind is int or kind is bool:
        return value
    if isinstance(value, float | np.floating):
        number = float(value)
        return number if math.isfinite(number) else None
    if isinstance(value, np.ndarray | np.integer | np.bool_):
        return plain(value.tolist())
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        if set(map(type, value)) == {float} and math.isfinite(sum(value)):  # a long column of numbers
            return list(value)
        return [plain(v) for v in value]
    if hasattr(value, "to_dict") and not isinstance(value, type):
        return plain(value.to_dict())
    if value is None or isinstance(value, bool | int) or type(value) is str:
        return value
    return str(value)


@dataclass(frozen=True, repr=False)
class Estimate:
    """Hold one estimate of ε with its interval, its validity and the sentence that may be quoted.

    Args:
        epsilon: The headline number: the lower end for a bound, the value itself for a metric or measurement.
        low: The lower end of the interval.
        high: Its upper end; `inf` where nothing bounds ε from above.
        delta: The δ that belongs to ε.
        confidence: How often such an interval is right.
        method: The estimator.
        validity: What stands behind the number.
        claim: The sentence; `str()` gives it.
        threshold: Where the scores were cut, if one threshold was chosen.
        counts: The counts behind the number, if there are any.
        warnings: What a reader must know besides.
        details: What only this estimator has to say, in part the evidence that `verify` recomputes the number from.
        neighbours: Whose ε it is: of data sets that differ by adding or removing one record ("add/remove"), by
            replacing one ("replace"), or None where it is not known.

    Raises:
        ArithmeticError: If a number is NaN.

    >>> from dosimeter import Scores, lower_bound
    >>> bound = lower_bound(Scores(range(100, 200), range(100)))
    >>> bound.validity.is_bound, bound.neighbours
    (True, 'replace')
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

    def __repr__(self) -> str:
        return f"Estimate({self._facts()})"

    def _repr_html_(self) -> str:
        """Draw the card that a notebook shows."""
        return card(self._value(), self._marks(), [self._facts().partition(", ")[2], self.claim, *self.warnings])

    def _value(self) -> str:
        """The number as it may be written: only a bound is "at least"."""
        if math.isfinite(self.high):
            return f"ε = {number(self.epsilon)} in [{number(self.low)}, {number(self.high)}]"
        if self.validity.is_bound:
            return f"ε ≥ {number(self.low)}"
        observed = self.validity in (Validity.INSTANCE_METRIC, Validity.MEASUREMENT, Validity.EXPLORATORY)
        return f"ε ≈ {number(self.epsilon)}" if observed else f"ε ≥ {number(self.low)} ({self.validity})"

    def _facts(self) -> str:
        whose = () if self.neighbours is None else (f"{self.neighbours} one {self.details.get('unit', 'record')}",)
        level = f"δ = {self.delta:g}", percent(self.confidence)
        return ", ".join([self._value(), *level, *whose, f"{self.method} ({self.validity})"])

    def _marks(self) -> list[Mark]:
        """A proven bound excludes what is below it; anything else is an interval and a point."""
        if self.validity.is_bound and math.isinf(self.high):
            return [Mark(0.0, self.low, PROVEN, f"excluded by the attack: ε below {number(self.low)}")]
        span = Mark(self.low, self.high, ALLOWED, f"{number(self.low)} to {number(self.high)}")
        return [span, Mark(self.epsilon, self.epsilon, PROVEN, self._value())]

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
        """Draw the interval on the ε axis; an open upper end runs to the edge.

        Returns:
            An Altair chart, which a notebook shows.

        Raises:
            ImportError: If the extra report is not installed.
        """
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


_ACTS = {"add/remove": "adding or removing", "replace": "replacing", "zero-out": "zeroing out"}


def change(neighbours: str | None, unit: str = "record") -> str:
    """The change that a guarantee hides, e.g. "replacing one record"; "" where it is not known."""
    return f"{_ACTS[neighbours]} one {unit}" if neighbours in _ACTS else ""


def claim_of_bound(
    epsilon: float, delta: float, confidence: float, *, neighbours: str | None = None, unit: str = "record"
) -> str:
    """The sentence of a proven lower bound."""
    of = f" for {change(neighbours, unit)}" if neighbours else ""
    if epsilon <= 0:
        return (
            f"At δ = {delta:g} the attack proves no privacy loss{of} with {percent(confidence)} confidence (ε ≥ 0); "
            "that is not proof of privacy."
        )
    sure = f"With {percent(confidence)} confidence"
    return f"{sure} the privacy loss{of} is at least ε = {number(epsilon)} at δ = {delta:g}."


def odds_of(confidence: float) -> str:
    """The share of audits that a confidence level lets go wrong, e.g. "1 of 20 audits"."""
    every = 1 / (1 - confidence)
    if abs(every - round(every)) < 1e-6 * every:
        return f"1 of {round(every)} audits"
    return f"{100 * (1 - confidence):.3g} % of audits"


def proven(
    low: float,
    delta: float,
    confidence: float,
    method: str,
    validity: Validity,
    addition: str = "",
    *,
    neighbours: str | None = None,
    unit: str = "record",
    **fields: Any,
) -> Estimate:
    """The estimate of a lower bound: nothing bounds ε from above; `addition` follows its sentence."""
    claim = claim_of_bound(low, delta, confidence, neighbours=neighbours, unit=unit) + addition
    return Estimate(low, low, math.inf, delta, confidence, method, validity, claim, neighbours=neighbours, **fields)


ONE_MODEL = (
    "the scores come from one model, so they depend on each other, and this method counts them as independent; "
    "pass Scores(independent=True) if every score comes from a training of its own"
)


def as_if_independent(estimate: Estimate, why: str = ONE_MODEL) -> Estimate:
    """The same number without its claim to a level: its method needs independent scores, which these are not."""
    if estimate.validity is Validity.EXPLORATORY:
        return replace(estimate, warnings=(*estimate.warnings, why))
    return replace(
        estimate,
        validity=Validity.EXPLORATORY,
        claim=f"If the scores were independent, which nothing guarantees: {estimate.claim}",
        warnings=(*estimate.warnings, why),
    )


_OfRates = TypeVar("_OfRates", bound=Callable[..., Estimate])


def for_rates(estimator: _OfRates) -> _OfRates:
    """Let an estimator of error rates say whose ε it bounds, and that one model's scores are not independent."""

    @wraps(estimator)
    def labelled(evidence: Any, **options: Any) -> Estimate:
        found = estimator(evidence, **options)
        if not isinstance(evidence, Scores):
            return found
        if evidence.independent:
            return replace(found, neighbours="add/remove")
        return as_if_independent(replace(found, neighbours="replace"))

    return cast(_OfRates, labelled)
