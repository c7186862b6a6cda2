"""Two data sets that differ in one record, watched while a model trains with DP-SGD on one of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dosimeter import _validate as check
from dosimeter._validate import FloatArray, InputError, IntArray


@dataclass(frozen=True)
class Neighbour:
    """D' is D without the record in row `removed` and with the one in row `added`; either may be None."""

    removed: int | None = None
    added: int | None = None

    def __post_init__(self) -> None:
        if self.removed is None and self.added is None:
            raise InputError("removed and added are both None; name the row in which the data sets differ.")
        for name in ("removed", "added"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, check.whole(name, value, 0, "pass the row of a record in the data"))

    def rows_and_signs(self) -> tuple[IntArray, FloatArray]:
        """The records whose signed clipped gradients make ĝ(D) − ĝ(D')."""
        pairs = [(row, sign) for row, sign in ((self.removed, 1.0), (self.added, -1.0)) if row is not None]
        return np.array([row for row, _ in pairs]), np.array([sign for _, sign in pairs])


@dataclass(frozen=True)
class Transcript:
    """What each full-batch step shows: Δ is the difference of the clipped sums of D and D' at the step's weights.

    `distances` are ‖Δ‖, `projections` ⟨noise, Δ⟩ with the noise that was added to the sum.
    """

    distances: FloatArray
    projections: FloatArray

    @classmethod
    def empty(cls, steps: int) -> Transcript:
        """Room for the steps of a training."""
        return cls(np.zeros(steps), np.zeros(steps))

    def log_odds(self, *, deviation: npt.ArrayLike, trained_on_d: bool = True) -> FloatArray:
        """The log-odds for D after each step, for noise of this standard deviation on the sum and even prior odds.

        Each step adds log N(g̃; ĝ(D), σ²) − log N(g̃; ĝ(D'), σ²) = (2⟨noise, Δ⟩ ± ‖Δ‖²) / 2σ², + when trained on D.
        """
        sign = 1.0 if trained_on_d else -1.0
        terms = (2 * self.projections + sign * self.distances**2) / (2 * np.asarray(deviation, float) ** 2)
        return np.cumsum(terms)
