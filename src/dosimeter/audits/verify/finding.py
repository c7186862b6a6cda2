"""What verifying finds, and the two ways in which a number does not follow from its evidence."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from dosimeter._validate import show
from dosimeter.estimate import Estimate, Validity, number

__all__ = [
    "CLOSE",
    "Finding",
    "Recomputed",
    "Standing",
    "UnknownError",
    "Verification",
    "WrongError",
    "close",
    "compare",
    "finding_of",
    "lower",
]

CLOSE = 1e-6  # what a sum in another order may change
_DAMAGED = (ArithmeticError, KeyError, TypeError, ValueError, IndexError, AttributeError)  # what bad evidence provokes


class Standing(StrEnum):
    """Whether a number follows from its evidence."""

    FOLLOWS = "follows"
    CONTRADICTED = "does not follow"
    UNKNOWN = "cannot be recomputed"


@dataclass(frozen=True)
class Finding:
    """One number of an audit, or one part of it, and whether it follows from the evidence.

    `most` is the largest ε that could have been proven with as many records; None where the evidence does not say.
    """

    subject: str
    standing: Standing
    reason: str
    stated: float | None = None
    recomputed: float | None = None
    most: float | None = None

    def __str__(self) -> str:
        return f"{self.standing}: {self.subject}, {self.reason}"


@dataclass(frozen=True)
class Verification:
    """Hold what verifying an audit found.

    Args:
        findings: One for each estimate, in their order, the headline first; then one for each further part.
        auc: The area under the ROC curve, from the evidence alone; None where it does not say.
    """

    findings: tuple[Finding, ...]
    auc: float | None

    @property
    def valid(self) -> bool:
        """Whether nothing was contradicted."""
        return not self.contradictions

    @property
    def contradictions(self) -> tuple[Finding, ...]:
        """The findings that something does not follow."""
        return tuple(f for f in self.findings if f.standing is Standing.CONTRADICTED)

    @property
    def headline(self) -> Finding:
        """What was found about the headline."""
        return self.findings[0]

    @property
    def most(self) -> float | None:
        """The largest ε that the headline could have proven with as many records; None where nothing says so."""
        return self.headline.most

    def of(self, subject: str) -> Finding | None:
        """Give the first finding about a subject."""
        return next((f for f in self.findings if f.subject == subject), None)


class UnknownError(Exception):
    """The audit does not carry what this number could be recomputed from."""


class WrongError(Exception):
    """The evidence contradicts the audit, or cannot be evidence at all."""


@dataclass(frozen=True)
class Recomputed:
    """A number as it comes out of its evidence; None for neighbours says that the evidence is about any.

    `other_version` says that the file was made by another version of the same bound, with a ceiling of its own.
    """

    epsilon: float
    low: float
    high: float
    validities: tuple[Validity, ...]
    neighbours: tuple[str | None, ...] | None = None
    most: float | None = None
    reason: str = "it is what the counts give"
    other_version: bool = False


def lower(
    low: float,
    validities: tuple[Validity, ...],
    neighbours: tuple[str | None, ...] | None = None,
    most: float | None = None,
    reason: str = "it is what the counts give",
) -> Recomputed:
    """A lower bound, which is its own low end."""
    return Recomputed(low, low, math.inf, validities, neighbours, most, reason)


def finding_of(subject: str, check: Callable[[], str | Recomputed], stated: float | None = None) -> Finding:
    """Run a check, which returns a reason or a recomputed number, or raises why the stated one does not follow."""
    try:
        again = check()
    except UnknownError as error:
        return Finding(subject, Standing.UNKNOWN, str(error), stated)
    except WrongError as error:
        return Finding(subject, Standing.CONTRADICTED, str(error), stated)
    except _DAMAGED as error:
        return Finding(subject, Standing.CONTRADICTED, f"its evidence is damaged ({show(str(error))})", stated)
    if isinstance(again, str):
        return Finding(subject, Standing.FOLLOWS, again)
    return Finding(subject, Standing.FOLLOWS, again.reason, stated, again.epsilon, again.most)


def compare(stated: Estimate, again: Recomputed) -> None:
    """Refuse an estimate that differs from what its evidence gives."""
    for name in ("epsilon", "low", "high"):
        here, there = getattr(stated, name), getattr(again, name)
        if not close(here, there):
            raise WrongError(f"{name} is stated as {number(here)}, the evidence gives {number(there)}")
    if stated.validity not in again.validities:
        raise WrongError(
            f"validity is stated as {stated.validity}, the evidence allows {' or '.join(again.validities)}"
        )
    if again.neighbours is not None and stated.neighbours not in again.neighbours:
        raise WrongError(f"neighbours is stated as {stated.neighbours}, the evidence is about {again.neighbours[0]}")
    most = stated.details.get("largest_provable")
    if again.most is not None and most is not None and not again.other_version and not close(most, again.most):
        raise WrongError(f"largest_provable is stated as {show(most)}, it is {number(again.most)}")


def close(a: float, b: float) -> bool:
    """Whether two numbers differ by no more than the order of a sum can change."""
    return a == b or abs(a - b) <= CLOSE * max(1.0, abs(a), abs(b))
