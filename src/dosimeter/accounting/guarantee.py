"""An ε from an accountant and whether it is a proven bound."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from dosimeter import _validate as check
from dosimeter._card import ALLOWED, Mark, card
from dosimeter.accounting.mechanism import Mechanism
from dosimeter.estimate import number, plain


@dataclass(frozen=True, repr=False)
class Guarantee:
    """Hold (ε, δ) of a mechanism by one accountant.

    Attributes:
        epsilon: The ε; `inf` where the accountant can promise nothing.
        delta: The δ that it holds for.
        method: The accountant.
        neighbours: Whose ε: "add/remove", "replace" or "zero-out".
        sampling: How batches were drawn.
        is_bound: False for an approximation, or for a formula outside the range it is proven for.
        details: What the accountant computed on the way.
        warnings: What a reader must know before quoting it.

    >>> from dosimeter import account
    >>> account(noise_multiplier=1.1, sample_rate=0.02, steps=5000, delta=1e-5, methods=["pld"])[0].is_bound
    True
    """

    epsilon: float
    delta: float
    method: str
    neighbours: str
    sampling: str
    is_bound: bool
    details: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("epsilon", "delta"):
            value = float(getattr(self, name))
            if math.isnan(value):
                raise ArithmeticError(f"{self.method}: {name} came out as NaN; please report this as a bug")
            object.__setattr__(self, name, value + 0.0)
        object.__setattr__(self, "neighbours", str(self.neighbours))
        object.__setattr__(self, "sampling", str(self.sampling))
        object.__setattr__(self, "is_bound", bool(self.is_bound))
        object.__setattr__(self, "warnings", tuple(self.warnings))
        object.__setattr__(self, "details", MappingProxyType(dict(self.details)))

    def __str__(self) -> str:
        where = (
            f"at δ = {self.delta:g} for {self.neighbours} neighbours and {_SAMPLING.get(self.sampling, self.sampling)}"
        )
        if self.is_bound:
            return f"The accountant {self.method} proves ε ≤ {number(self.epsilon)} {where}."
        return f"The formula {self.method} gives ε ≈ {number(self.epsilon)} {where}; that is not a proven bound."

    def __repr__(self) -> str:
        sampling = _SAMPLING.get(self.sampling, self.sampling)
        return f"Guarantee({self._value()}, δ = {self.delta:g}, {self.method}, {self.neighbours}, {sampling})"

    def _repr_html_(self) -> str:
        """Draw the card that a notebook shows."""
        mark = Mark(self.epsilon, math.inf, ALLOWED, f"excluded by the guarantee: ε above {number(self.epsilon)}")
        formula = Mark(self.epsilon, self.epsilon, ALLOWED, self._value())
        return card(self._value(), [mark if self.is_bound else formula], [str(self), *self.warnings])

    def _value(self) -> str:
        return f"ε {'≤' if self.is_bound else '≈'} {number(self.epsilon)}"

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain JSON values; an infinite ε is None."""
        return {
            "epsilon": plain(self.epsilon),
            "delta": self.delta,
            "method": self.method,
            "neighbours": self.neighbours,
            "sampling": self.sampling,
            "is_bound": self.is_bound,
            "claim": str(self),
            "warnings": list(self.warnings),
            "details": plain(self.details),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Guarantee:
        """Read back what `to_dict` wrote.

        Raises:
            InputError: If a field is missing, unknown or of another type.
        """
        required = ("epsilon", "delta", "method", "neighbours", "sampling", "is_bound")
        found = check.fields("the guarantee", values, required, ("claim", "warnings", "details"))
        epsilon, remedy = found["epsilon"], "write a number"
        return cls(
            epsilon=math.inf if epsilon is None else check.real("epsilon", epsilon, remedy),
            delta=check.real("delta", found["delta"], remedy),
            method=check.text("method", found["method"]),
            neighbours=check.text("neighbours", found["neighbours"]),
            sampling=check.text("sampling", found["sampling"]),
            is_bound=check.flag("is_bound", found["is_bound"]),
            details=check.mapping("details", found.get("details"), "pass what to_dict returned"),
            warnings=check.texts("warnings", found.get("warnings", ())),
        )


_SAMPLING = {
    "full batch": "full batches",
    "poisson": "Poisson batches",
    "without-replacement": "batches without replacement",
    "shuffled": "shuffled batches",
}


def guarantee(
    value: Mechanism,
    epsilon: float,
    delta: float,
    method: str,
    *,
    is_bound: bool = True,
    details: Mapping[str, Any] | None = None,
    warnings: tuple[str, ...] = (),
) -> Guarantee:
    """A Guarantee that takes neighbours and sampling from the mechanism."""
    return Guarantee(
        epsilon, delta, method, str(value.neighbours), str(value.sampling), is_bound, details or {}, warnings
    )
