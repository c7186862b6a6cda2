"""Two data sets that differ in one record, watched while a model trains with DP-SGD on one of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dosimeter import _validate as check
from dosimeter._validate import BoolArray, FloatArray, InputError, IntArray

RELATIONS = ("add/remove", "replace")  # how D and D' may differ


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

    def trained_on_d(self, memberships: npt.ArrayLike) -> BoolArray:
        """For each row of memberships (models, records) whether it is D; otherwise it is D'."""
        chosen = np.asarray(memberships, bool)
        return chosen[..., self.removed] if self.removed is not None else ~chosen[..., self.added]


@dataclass(frozen=True)
class Transcript:
    """What each step shows; Δ is the difference of the clipped sums of D and D' at the step's weights.

    `distances` are ‖Δ‖, `projections` ⟨noise, Δ⟩ with the noise that was added to the sum, `deviations` the standard
    deviation of that noise: arrays (steps,), or (repetitions, steps) from `stack`. A mini-batch without the record in
    which D and D' differ has distance 0. `canaries` are the observations of a recipe's Dirac canaries. `neighbours`
    says how D and D' differ, "add/remove" or "replace", where that is known.
    """

    distances: FloatArray
    projections: FloatArray
    deviations: FloatArray
    canaries: FloatArray | None = None
    neighbours: str | None = None

    def __post_init__(self) -> None:
        if self.neighbours is not None:
            check.choice("neighbours", self.neighbours, RELATIONS)
        for name in ("distances", "projections", "deviations", "canaries"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, np.asarray(getattr(self, name), np.float64))
        shapes = [array.shape for array in (self.distances, self.projections, self.deviations)]
        if len(set(shapes)) > 1 or not shapes[0]:
            raise InputError(
                f"distances, projections and deviations must have one shape (…, steps), got {shapes}; pass one number "
                "for each step."
            )

    @classmethod
    def stack(cls, transcripts: Iterable[Transcript]) -> Transcript:
        """Many repetitions as one transcript of arrays (repetitions, steps)."""
        given = list(transcripts)
        if not given:
            raise InputError("transcripts is empty; pass the transcript of each repetition.")
        for at, one in enumerate(given):
            if not isinstance(one, Transcript):
                raise InputError(f"transcripts[{at}] is {check.show(one)}; leave out the trainings that failed.")
            if one.distances.shape != given[0].distances.shape:
                raise InputError(
                    f"transcripts[{at}] has shape {one.distances.shape}, the first {given[0].distances.shape}; "
                    "stack trainings of equally many steps."
                )
            if one.neighbours != given[0].neighbours:
                raise InputError(
                    f"transcripts[{at}] is of neighbours {one.neighbours!r}, the first of {given[0].neighbours!r}; "
                    "stack trainings on one pair of data sets."
                )
        canaries = [one.canaries for one in given if one.canaries is not None]
        return cls(
            np.stack([one.distances for one in given]),
            np.stack([one.projections for one in given]),
            np.stack([one.deviations for one in given]),
            np.stack(canaries) if len(canaries) == len(given) else None,
            given[0].neighbours,
        )

    def log_odds(self, *, deviation: npt.ArrayLike | None = None, trained_on_d: npt.ArrayLike = True) -> FloatArray:
        """The log-odds for D after each step, from even prior odds.

        Each step adds log N(g̃; ĝ(D), σ²) − log N(g̃; ĝ(D'), σ²) = (2⟨noise, Δ⟩ ± ‖Δ‖²) / 2σ², + when trained on D, and
        nothing where Δ = 0. σ is what was added, unless `deviation` says otherwise. `trained_on_d` is one answer, or
        one for each repetition.
        """
        used = self.deviations if deviation is None else np.asarray(deviation, np.float64)
        worlds = np.asarray(trained_on_d, bool)
        if worlds.shape not in ((), self.distances.shape[:-1]):
            raise InputError(
                f"trained_on_d has shape {worlds.shape}, the transcript {self.distances.shape}; pass one answer for "
                "each repetition."
            )
        try:
            used = np.broadcast_to(used, self.distances.shape)
        except ValueError:
            raise InputError(
                f"deviation has shape {used.shape}, the transcript {self.distances.shape}; pass one number, or one "
                "for each step."
            ) from None
        differ = self.distances > 0
        silent = differ & ~(used > 0)
        if silent.any():
            raise InputError(
                f"the noise of step {int(np.argwhere(silent)[0][-1])} has deviation 0 although the data sets differ in "
                "it, so the log-odds are infinite; train with noise_multiplier above 0."
            )
        sign = np.where(worlds, 1.0, -1.0)[..., None]
        gains = 2 * self.projections + sign * self.distances**2
        terms = np.divide(gains, 2 * used**2, out=np.zeros_like(gains), where=differ)
        return np.cumsum(terms, axis=-1)
