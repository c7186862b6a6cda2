"""What was run and what it guarantees, as values: accountants read a mechanism and answer with a `Guarantee`.

`noise_multiplier` is the standard deviation of the noise divided by the clipping norm C of one record's
contribution, as in Opacus and TensorFlow Privacy. How far two neighbouring data sets can pull the sum apart is
then a matter of the neighbours: C when a record is added, removed or zeroed out, 2C when it is replaced.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple

from dosimeter import _validate as check
from dosimeter._card import ALLOWED, Mark, card
from dosimeter._validate import InputError
from dosimeter.estimate import number, plain

NOISE_RANGE = (1e-6, 1e9)  # below there is no noise to speak of, above no signal
SMALLEST_RATE = 1e-12  # one of a trillion records; the square of a rate near 1e-160 would vanish, and δ with it


class Neighbours(StrEnum):
    """Which data sets the guarantee compares."""

    ADD_REMOVE = "add/remove"
    REPLACE = "replace"
    ZERO_OUT = "zero-out"

    @property
    def sensitivity(self) -> float:
        """How far the sum of clipped contributions can move, in clipping norms."""
        return 2.0 if self is Neighbours.REPLACE else 1.0


class Sampling(StrEnum):
    """How the batch of a step is drawn."""

    FULL_BATCH = "full batch"
    POISSON = "poisson"
    WITHOUT_REPLACEMENT = "without-replacement"
    SHUFFLED = "shuffled"


class PhaseKind(StrEnum):
    """What an accountant has to bound in one phase."""

    GAUSSIAN = "gaussian"
    POISSON = "poisson"
    POISSON_REPLACE = "poisson, replace"
    WITHOUT_REPLACEMENT = "without replacement"


class Phase(NamedTuple):
    """Equal steps in the form that accountants read: `noise` is the noise over the sensitivity."""

    kind: PhaseKind
    noise: float
    rate: float
    steps: int


def _noise(value: Any) -> float:
    remedy = "pass the noise's standard deviation divided by the clipping norm, e.g. 1.1"
    return check.within("noise_multiplier", value, *NOISE_RANGE, remedy)


def _steps(value: Any) -> int:
    return check.whole("steps", value, 1, "pass the number of noisy steps, e.g. 5000", 10**12)


@dataclass(frozen=True)
class Gaussian:
    """Describe Gaussian mechanisms that each see every record: full-batch DP-SGD, or one noisy sum.

    Args:
        noise_multiplier: The standard deviation of the noise over the sensitivity.
        steps: How many of them are composed.
        neighbours: Whose ε: "add/remove", "replace" or "zero-out".

    Raises:
        InputError: If a number is out of range.

    >>> Gaussian(2.0, steps=4).phases[0].steps
    4
    """

    noise_multiplier: float
    steps: int = 1
    neighbours: Neighbours = Neighbours.ADD_REMOVE

    def __post_init__(self) -> None:
        object.__setattr__(self, "noise_multiplier", _noise(self.noise_multiplier))
        object.__setattr__(self, "steps", _steps(self.steps))
        object.__setattr__(
            self, "neighbours", Neighbours(check.choice("neighbours", self.neighbours, list(Neighbours)))
        )

    @property
    def mu(self) -> float:
        """The one Gaussian mechanism that all steps amount to: μ = √steps · sensitivity / noise multiplier."""
        return math.sqrt(self.steps) * self.neighbours.sensitivity / self.noise_multiplier

    @property
    def sampling(self) -> str:
        return str(Sampling.FULL_BATCH)

    @property
    def phases(self) -> tuple[Phase, ...]:
        return (Phase(PhaseKind.GAUSSIAN, self.noise_multiplier / self.neighbours.sensitivity, 1.0, self.steps),)


_NATURAL = {
    Sampling.POISSON: Neighbours.ADD_REMOVE,
    Sampling.WITHOUT_REPLACEMENT: Neighbours.REPLACE,
    Sampling.SHUFFLED: Neighbours.ZERO_OUT,
}
_IMPOSSIBLE = {
    (Sampling.WITHOUT_REPLACEMENT, Neighbours.ADD_REMOVE): "batches of a fixed size drawn without replacement change "
    'by a whole record when one is removed; use neighbours="replace"',
    (Sampling.WITHOUT_REPLACEMENT, Neighbours.ZERO_OUT): "the amplification theorem for sampling without replacement "
    'compares replaced records; use neighbours="replace"',
    (Sampling.SHUFFLED, Neighbours.ADD_REMOVE): "removing a record from a shuffled pass shifts every later batch; use "
    'neighbours="zero-out" or "replace"',
}


@dataclass(frozen=True)
class DpSgd:
    """Describe DP-SGD: noisy steps on batches that each record is in with probability `sample_rate`.

    Args:
        noise_multiplier: The standard deviation of the noise over the clipping norm.
        sample_rate: Batch size over records, in (0, 1].
        steps: The number of noisy steps.
        sampling: How batches are drawn: "poisson", "without-replacement" or "shuffled".
        neighbours: Whose ε. By default what the sampling can be bounded for: "add/remove" for Poisson batches,
            "replace" for batches without replacement, "zero-out" for shuffled passes over the data.

    Raises:
        InputError: If a number is out of range, or the neighbours do not suit the sampling.

    >>> DpSgd(1.1, 0.02, 5000).neighbours.value
    'add/remove'
    """

    noise_multiplier: float
    sample_rate: float
    steps: int
    sampling: Sampling = Sampling.POISSON
    neighbours: Neighbours | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "noise_multiplier", _noise(self.noise_multiplier))
        remedy = "pass batch size / number of records, e.g. 0.02"
        rate = check.within("sample_rate", self.sample_rate, 0.0, 1.0, remedy, include="(]")
        check.within("sample_rate", rate, SMALLEST_RATE, 1.0, remedy)
        object.__setattr__(self, "sample_rate", rate)
        object.__setattr__(self, "steps", _steps(self.steps))
        options = [str(kind) for kind in _NATURAL]
        sampling = Sampling(check.choice("sampling", self.sampling, options))
        object.__setattr__(self, "sampling", sampling)
        given = _NATURAL[sampling] if self.neighbours is None else self.neighbours
        neighbours = Neighbours(check.choice("neighbours", given, list(Neighbours)))
        object.__setattr__(self, "neighbours", neighbours)
        if rate < 1 and (sampling, neighbours) in _IMPOSSIBLE:
            why = _IMPOSSIBLE[sampling, neighbours]
            raise InputError(
                f"neighbours={str(neighbours)!r} cannot be bounded with sampling={str(sampling)!r}: {why}."
            )

    @property
    def visits(self) -> int:
        """The most often one record is used when the data are shuffled and passed over, counting begun passes."""
        batches = max(1, math.floor(1 / self.sample_rate + 1e-9))
        return math.ceil(self.steps / batches)

    @property
    def phases(self) -> tuple[Phase, ...]:
        assert self.neighbours is not None
        noise = self.noise_multiplier / self.neighbours.sensitivity
        if self.sample_rate == 1:
            return (Phase(PhaseKind.GAUSSIAN, noise, 1.0, self.steps),)
        if self.sampling is Sampling.SHUFFLED:
            return (Phase(PhaseKind.GAUSSIAN, noise, 1.0, self.visits),)
        if self.sampling is Sampling.WITHOUT_REPLACEMENT:
            return (Phase(PhaseKind.WITHOUT_REPLACEMENT, noise, self.sample_rate, self.steps),)
        kind = PhaseKind.POISSON_REPLACE if self.neighbours is Neighbours.REPLACE else PhaseKind.POISSON
        return (Phase(kind, noise, self.sample_rate, self.steps),)


@dataclass(frozen=True)
class Composition:
    """Compose several mechanisms that run one after the other on the same data, e.g. phases with different noise.

    Args:
        parts: The mechanisms, in their order.

    Raises:
        InputError: If there is no part, or the parts have different neighbours.

    >>> Composition((DpSgd(1.0, 0.01, 100), Gaussian(10.0))).neighbours
    <Neighbours.ADD_REMOVE: 'add/remove'>
    """

    parts: tuple[Gaussian | DpSgd, ...]

    def __post_init__(self) -> None:
        remedy = "pass a tuple of Gaussian or DpSgd values"
        parts = tuple(check.listed("parts", self.parts, remedy))
        if not parts:
            raise InputError(f"parts is empty; {remedy}.")
        for index, part in enumerate(parts):
            if not isinstance(part, (Gaussian, DpSgd)):
                raise InputError(f"parts[{index}] is {check.show(part)}; {remedy}.")
        relations = {str(part.neighbours) for part in parts}
        if len(relations) > 1:
            raise InputError(
                f"parts compare different neighbours ({', '.join(sorted(relations))}); give all parts the same."
            )
        object.__setattr__(self, "parts", parts)

    @property
    def neighbours(self) -> Neighbours:
        relation = self.parts[0].neighbours
        assert relation is not None
        return relation

    @property
    def sampling(self) -> str:
        return " then ".join(dict.fromkeys(str(part.sampling) for part in self.parts))

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The phases of all parts; equal phases are gathered, because the order does not matter."""
        gathered: dict[tuple[PhaseKind, float, float], int] = {}
        for part in self.parts:
            for kind, noise, rate, steps in part.phases:
                gathered[kind, noise, rate] = gathered.get((kind, noise, rate), 0) + steps
        return tuple(Phase(*key, steps) for key, steps in gathered.items())


Mechanism = Gaussian | DpSgd | Composition


def mechanism(value: Any) -> Mechanism:
    """A mechanism, or a sequence of mechanisms as their composition; anything else is refused."""
    if isinstance(value, (Gaussian, DpSgd, Composition)):
        return value
    if isinstance(value, (tuple, list)):
        return Composition(tuple(value))
    raise InputError(
        f"mechanism must be a Gaussian, a DpSgd or a Composition, got {check.show(value)}; build one first."
    )


def with_neighbours(value: Mechanism, neighbours: str) -> Mechanism:
    """The same mechanism, to be bounded for other neighbours; refused where its sampling cannot be."""
    if isinstance(value, Composition):
        return Composition(tuple(replace(part, neighbours=Neighbours(neighbours)) for part in value.parts))
    return replace(value, neighbours=Neighbours(neighbours))


def only(value: Mechanism, kinds: tuple[PhaseKind, ...], method: str) -> tuple[Phase, ...]:
    """The phases of a mechanism if the method can bound every one of them, else a refusal."""
    phases = value.phases
    for phase in phases:
        if phase.kind not in kinds:
            able = ", ".join(str(kind) for kind in kinds)
            raise InputError(f"method {method} cannot bound sampling {str(phase.kind)!r}; it can bound {able}.")
    return phases


def gaussian_mu(phases: tuple[Phase, ...]) -> float:
    """μ of Gaussian phases composed: √Σ steps/noise²."""
    return math.sqrt(math.fsum(phase.steps / phase.noise**2 for phase in phases))


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


def dp_sgd(
    noise_multiplier: float, sample_rate: float, steps: int, sampling: str = "poisson", neighbours: str | None = None
) -> DpSgd:
    """DpSgd from plain strings; the checks are in the value itself."""
    return DpSgd(noise_multiplier, sample_rate, steps, sampling, neighbours)  # type: ignore[arg-type]
