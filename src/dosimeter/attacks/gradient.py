"""The DP adversary of Bernau et al. (2021): they know D, D' and the noise, and read each noisy gradient of a run.

With Δ the difference of the clipped sums of D and D' at a step's weights, and noise of deviation σ on the sum, the step
adds (2⟨noise, Δ⟩ ± ‖Δ‖²)/(2σ²) to the log-odds for D, + when the run trained on D. All beliefs are kept as log-odds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special

from dosimeter import _validate as check
from dosimeter._validate import BoolArray, FloatArray, InputError
from dosimeter.estimators.belief import in_noise, information, per_step, sensitivities, wins_from_log_odds
from dosimeter.evidence import Scores
from dosimeter.identifiability import advantage_from_epsilon
from dosimeter.training.neighbour import RELATIONS, Transcript

__all__ = ["Transcripts", "advantage_limits", "log_odds_from_gradients"]

_AT_ONCE = 1 << 22  # numbers of a gradient log that are held in double precision at once
_ROUNDING = 1e-4  # by which a norm in single precision may exceed the limit it was clipped to


@dataclass(frozen=True, eq=False)
class Transcripts:
    """Hold what the adversary saw in all runs: arrays (repetitions, steps), and which data set each run trained on.

    Args:
        distances: ‖Δ‖ of each step, the local sensitivity; 0 where the batch does not hold the differing record.
        projections: ⟨noise, Δ⟩ with the noise that was added to the sum.
        deviations: The standard deviation of that noise: one number, one for each step, or an array like the others.
        trained_on_d: For each run whether it was trained on D; otherwise it was trained on D'.
        sensitivity: The global sensitivity; every distance is then checked against it.
        neighbours: How D and D' differ, "add/remove" or "replace". A bound from these runs is about that ε.

    Raises:
        InputError: If the arrays do not fit together, or hold what no clipped and noisy run can show.

    Examples:
        >>> seen = Transcripts([[1.0, 1.0], [1.0, 0.0]], [[0.5, -1.0], [2.0, 0.0]], 2.0, [True, False])
        >>> seen.log_odds[:, -1].round(3).tolist()
        [0.125, 0.375]
    """

    distances: FloatArray
    projections: FloatArray
    deviations: FloatArray
    trained_on_d: BoolArray
    sensitivity: float | None = None
    neighbours: str | None = None

    def __post_init__(self) -> None:
        if self.neighbours is not None:
            check.choice("neighbours", self.neighbours, RELATIONS)
        distances, deviations = sensitivities(self.distances, self.deviations)
        projections = per_step("projections", self.projections)
        if projections.shape != distances.shape:
            raise InputError(
                f"projections has shape {projections.shape} but distances has {distances.shape}; they must agree."
            )
        world = check.bits("trained_on_d", self.trained_on_d)
        if world.size != distances.shape[0]:
            raise InputError(
                f"trained_on_d has {world.size} entries for {distances.shape[0]} repetitions; pass one for each."
            )
        if self.sensitivity is not None:
            remedy = "pass the clipping norm, or twice it when a record is replaced"
            limit = check.within("sensitivity", self.sensitivity, 0.0, math.inf, remedy, include="()")
            object.__setattr__(self, "sensitivity", limit)
            _refuse_at(
                distances > limit * (1 + _ROUNDING),
                lambda at: f"distances is {distances[at]:g}, above the global sensitivity {limit:g},",
                "the clipped sums and the clipping norm do not belong together",
            )
        loose = (distances == 0) & (projections != 0)
        _refuse_at(
            loose,
            lambda at: f"projections is {projections[at]:g} although distances is 0",
            "a projection on a zero difference must be 0",
        )
        for name, array in (
            ("distances", distances),
            ("projections", projections),
            ("deviations", deviations),
            ("trained_on_d", world),
        ):
            object.__setattr__(self, name, check.frozen(array, getattr(self, name)))
        _refuse_at(
            ~np.isfinite(self.log_odds),
            lambda at: f"deviations is {deviations[at]:g}, so small that the log-odds overflow,",
            "add noise",
        )

    @classmethod
    def from_runs(
        cls,
        runs: Iterable[Transcript],
        trained_on_d: Any,
        *,
        deviations: Any = None,
        sensitivity: float | None = None,
        neighbours: str | None = None,
    ) -> Transcripts:
        """Put together the transcripts that `train_many(..., neighbour=...)` and the Opacus hook leave.

        Args:
            runs: The transcript of each training.
            trained_on_d: For each training whether it was on D.
            deviations: Replace those of the transcripts: what a guarantee claims of a training that adds less noise, or
                none.
            sensitivity: The global sensitivity, to check every distance against.
            neighbours: How D and D' differ; needed where the transcripts do not say it.

        Returns:
            All runs as one value.

        Raises:
            InputError: If the transcripts differ in length or neighbours, or contradict an argument.
        """
        seen = Transcript.stack(runs)
        noise = seen.deviations if deviations is None else deviations
        if neighbours is not None and seen.neighbours not in (None, neighbours):
            raise InputError(
                f"neighbours={check.show(neighbours)}, but the runs are of {seen.neighbours!r}; leave it out."
            )
        relation = seen.neighbours if neighbours is None else neighbours
        return cls(seen.distances, seen.projections, noise, trained_on_d, sensitivity, relation)

    @classmethod
    def from_gradients(
        cls,
        sums_d: Any,
        sums_d_prime: Any,
        noisy: Any,
        *,
        deviations: Any,
        trained_on_d: Any,
        sensitivity: float | None = None,
    ) -> Transcripts:
        """Read logs of shape (repetitions, steps, dims): both clipped sums, and the noisy sum that was applied.

        Args:
            sums_d: The clipped sums of D at the weights of each step.
            sums_d_prime: The clipped sums of D' at the same weights.
            noisy: The noisy sums that the training applied.
            deviations: The standard deviation of the noise on the sum.
            trained_on_d: For each run whether it was on D.
            sensitivity: The global sensitivity, to check every distance against.

        Returns:
            All runs as one value.

        Raises:
            InputError: If the logs cannot be read, differ in shape, or hold a number that is not finite.
        """
        logs = _logs(sums_d, sums_d_prime, noisy)
        runs, steps, _ = logs[0].shape
        world = check.bits("trained_on_d", trained_on_d)
        if world.size != runs:
            raise InputError(f"trained_on_d has {world.size} entries for {runs} repetitions; pass one for each.")
        distances, projections = np.empty((runs, steps)), np.empty((runs, steps))
        for rows, (on_d, on_d_prime, seen) in _in_blocks(logs):
            difference = on_d - on_d_prime
            noise = seen - np.where(world[rows, None, None], on_d, on_d_prime)
            distances[rows] = np.sqrt(np.einsum("rsd,rsd->rs", difference, difference))
            projections[rows] = np.einsum("rsd,rsd->rs", noise, difference)
        return cls(distances, projections, deviations, world, sensitivity)

    @property
    def repetitions(self) -> int:
        return int(self.distances.shape[0])

    @property
    def steps(self) -> int:
        return int(self.distances.shape[1])

    @cached_property
    def log_odds(self) -> FloatArray:
        """Log-odds for D after each step, from even prior odds."""
        seen = Transcript(self.distances, self.projections, self.deviations)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # refused by name at construction
            return check.frozen(seen.log_odds(trained_on_d=self.trained_on_d), ())

    @property
    def final(self) -> FloatArray:
        """Log-odds for D after the last step."""
        return self.log_odds[:, -1]

    @cached_property
    def beliefs(self) -> FloatArray:
        """The belief in D after each step."""
        return check.frozen(special.expit(self.log_odds), ())

    @property
    def guesses(self) -> FloatArray:
        """The final guess: 1 for D, 0 for D', ½ at log-odds 0, where a coin decides."""
        return (np.sign(self.final) + 1) / 2

    @cached_property
    def wins(self) -> FloatArray:
        """1 for a right final guess, 0 for a wrong one, ½ at log-odds 0."""
        return check.frozen(wins_from_log_odds(self.final, self.trained_on_d), ())

    @cached_property
    def information(self) -> FloatArray:
        """s = Σ LS²/σ² of each run: given the trajectory, the log-odds in favour of the truth are N(s/2, s)."""
        return check.frozen(information(self.distances, self.deviations), ())

    def scores(self) -> Scores:
        """Final log-odds as scores: runs on D are the members, runs on D' the non-members."""
        if self.trained_on_d.all() or not self.trained_on_d.any():
            used = "D" if self.trained_on_d.all() else "D'"
            raise InputError(f"trained_on_d says that every run used {used}; scores need runs in both worlds.")
        return Scores(self.final[self.trained_on_d], self.final[~self.trained_on_d], independent=True)


def log_odds_from_gradients(sums_d: Any, sums_d_prime: Any, noisy: Any, *, deviations: Any) -> FloatArray:
    """Compute the log-odds for D after each step from logs, without knowing which data set was used.

    Each step adds ⟨noisy − (ĝ(D) + ĝ(D'))/2, Δ⟩/σ², the difference of two Gaussian log-likelihoods.

    Args:
        sums_d: The clipped sums of D, (repetitions, steps, dims).
        sums_d_prime: The clipped sums of D'.
        noisy: The noisy sums that the training applied.
        deviations: The standard deviation of the noise on the sum.

    Returns:
        The log-odds, (repetitions, steps).

    Raises:
        InputError: If the logs cannot be read, or the noise is so small that the log-odds overflow.
    """
    logs = _logs(sums_d, sums_d_prime, noisy)
    shape = (logs[0].shape[0], logs[0].shape[1])
    distances, inner = np.empty(shape), np.empty(shape)
    for rows, (on_d, on_d_prime, seen) in _in_blocks(logs):
        difference = on_d - on_d_prime
        distances[rows] = np.abs(difference).max(axis=2)
        inner[rows] = np.einsum("rsd,rsd->rs", seen - on_d_prime - difference / 2, difference)
    _, sigma = sensitivities(distances, deviations)
    terms = in_noise(in_noise(inner, sigma), sigma)
    _refuse_at(
        ~np.isfinite(terms), lambda at: f"deviations is {sigma[at]:g}, so small that the log-odds overflow", "add noise"
    )
    return np.cumsum(terms, axis=1)


def advantage_limits(*, epsilon: float, delta: float) -> dict[str, float]:
    """Compute the largest advantage that (ε, δ) allows, by several theorems.

    Args:
        epsilon: The ε of the guarantee.
        delta: Its δ.

    Returns:
        By name: "generic" for any mechanism, "yeom" for the looser e^ε − 1 + δ and, where δ > 0, "tight" for Gaussian
        noise of exactly this (ε, δ) and "classic" for Theorem 3 of Bernau et al. 2021.

    Raises:
        InputError: If ε or δ is out of range.
    """
    delta = check.delta(delta)
    methods = ("generic", "yeom", *(("tight", "classic") if delta > 0 else ()))
    return {method: float(advantage_from_epsilon(epsilon, delta=delta, method=method)) for method in methods}


# --- reading logs -----------------------------------------------------------------------------------------


def _refuse_at(bad: BoolArray, describe: Callable[[tuple[int, int]], str], remedy: str) -> None:
    """Refuse the first bad entry of an array (repetitions, steps) by its step and repetition."""
    if bad.any():
        repetition, step = (int(index) for index in np.argwhere(bad)[0])
        raise InputError(f"{describe((repetition, step))} at step {step} of repetition {repetition}; {remedy}.")


def _logs(*arrays: Any) -> list[npt.NDArray[Any]]:
    logs: list[npt.NDArray[Any]] = []
    for name, values in zip(("sums_d", "sums_d_prime", "noisy"), arrays, strict=True):
        try:
            log = np.asarray(values)
        except (ValueError, TypeError, RuntimeError):  # torch refuses tensors that record gradients
            raise InputError(
                f"{name} cannot be read as an array (repetitions, steps, dims); pass numbers of one shape, detached."
            ) from None
        if log.dtype.kind not in "biuf" or log.ndim != 3 or log.size == 0:
            raise InputError(f"{name} must hold numbers (repetitions, steps, dims), got shape {log.shape} {log.dtype}.")
        if logs and log.shape != logs[0].shape:
            raise InputError(f"{name} has shape {log.shape} but sums_d has {logs[0].shape}; they must agree.")
        logs.append(log)
    for name, log in zip(("sums_d", "sums_d_prime", "noisy"), logs, strict=True):
        for rows, (part,) in _in_blocks([log]):
            bad = ~np.isfinite(part)
            if bad.any():
                run, step, entry = (int(index) for index in np.argwhere(bad)[0])
                raise InputError(
                    f"{name} is {part[run, step, entry]} at step {step} of repetition {rows.start + run}, entry "
                    f"{entry}; repair or leave out this run."
                )
    return logs


def _in_blocks(logs: list[npt.NDArray[Any]]) -> Iterator[tuple[slice, list[FloatArray]]]:
    """Some repetitions at a time, in double precision."""
    runs, steps, dims = logs[0].shape
    size = max(1, _AT_ONCE // (steps * dims))
    for start in range(0, runs, size):
        rows = slice(start, min(start + size, runs))
        yield rows, [np.asarray(log[rows], dtype=np.float64) for log in logs]
