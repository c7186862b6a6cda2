"""What the results of audits are made of: frozen dataclasses that are attributes in code and objects in JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Annotated, Any, TypeAlias

import numpy as np
import numpy.typing as npt
from annotated_types import Interval, MinLen

from dosimeter.estimate import plain

__all__ = ["Count", "Numbers", "Part", "Positive", "Rate", "Text", "known", "numbers"]

MOST = 10**12  # records, runs, guesses

Rate: TypeAlias = Annotated[float, Interval(ge=0.0, le=1.0)]
Positive: TypeAlias = Annotated[float, Interval(ge=0.0)]
Count: TypeAlias = Annotated[int, Interval(ge=0, le=MOST)]
Text: TypeAlias = Annotated[str, MinLen(1)]
Numbers: TypeAlias = tuple[float | None, ...]  # None where a number is infinite or missing, as in JSON


class Part(Mapping[str, Any]):
    """A typed part of an audit, the base of its dataclasses.

    The same class is built by the audit, written to JSON, checked when it is read back, and drawn on the page. It also
    reads as a mapping of its fields, so that `audit.metadata["seed"]` is `audit.metadata.seed`.
    """

    __slots__ = ()
    __pydantic_config__ = {"strict": True, "extra": "ignore"}  # noqa: RUF012  (what reads a file looks for it here)

    def __getitem__(self, name: str) -> Any:
        if name not in self._names():
            raise KeyError(name)
        return getattr(self, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def __len__(self) -> int:
        return len(self._names())

    @classmethod
    def _names(cls) -> tuple[str, ...]:
        return tuple(field.name for field in fields(cls))  # type: ignore[arg-type]

    def to_dict(self) -> dict[str, Any]:
        """Give the fields as strict JSON values."""
        return {name: plain(getattr(self, name)) for name in self}


def known(value: float | None) -> float:
    """Give a number that a part may hold as None because it is infinite."""
    return math.inf if value is None else value


def numbers(values: npt.ArrayLike) -> Numbers:
    """Take a column of numbers as a part holds it: None for an infinite or missing one."""
    return tuple(float(v) if np.isfinite(v) else None for v in np.asarray(values, float))
