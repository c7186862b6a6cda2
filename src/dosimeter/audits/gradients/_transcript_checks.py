"""Checks of watched runs: which guarantee their bound may be compared with, and whether their noise is as stated."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

import numpy as np
from scipy import special

from dosimeter._validate import InputError
from dosimeter.accounting import Composition, DpSgd, Gaussian, Neighbours, account
from dosimeter.accounting.mechanism import Mechanism, PhaseKind, Sampling
from dosimeter.attacks.gradient import Transcripts
from dosimeter.audits.gradients.result import NoiseSeen
from dosimeter.estimate import number, plain

KNOWN_BATCHES = (
    "the adversary knows which records each batch holds, so the guarantee is counted without amplification by sampling"
)
ZEROED_OUT = (
    "the guarantee is about a record that is zeroed out, the runs leave it out: no accountant counts shuffled batches "
    "for a record that is added or removed"
)
RARE = 1e-4  # how often runs with the stated noise are said to have too little, or too much


def without_amplification(mechanism: Mechanism, neighbours: str | None, delta: float) -> tuple[Mechanism, list[str]]:
    """Count a mechanism for an adversary who knows the batches and for the neighbours of the runs; say what changed."""
    parts = mechanism.parts if isinstance(mechanism, Composition) else (mechanism,)
    relation = mechanism.neighbours if neighbours is None else Neighbours(neighbours)
    assert relation is not None
    shuffled = any(part.sampling == Sampling.SHUFFLED and _rate(part) < 1 for part in parts)
    as_counted = Neighbours.ZERO_OUT if shuffled and relation is Neighbours.ADD_REMOVE else relation
    whole = tuple(_with_whole_batches(part, as_counted) for part in parts)
    used: Mechanism = whole[0] if len(whole) == 1 and not isinstance(mechanism, Composition) else Composition(whole)
    notes = []
    if any(phase.kind is not PhaseKind.GAUSSIAN for phase in mechanism.phases):
        notes.append(f"{KNOWN_BATCHES}; {_amplified(mechanism, delta)}")
    elif shuffled:
        notes.append(KNOWN_BATCHES)
    if as_counted is not relation:
        notes.append(ZEROED_OUT)
    elif relation.sensitivity != _sensitivity(mechanism):
        notes.append(
            f"the guarantee is counted for {relation} neighbours, as the data sets of the runs differ, and not "
            f"for {mechanism.neighbours}, as the mechanism was given"
        )
    return used, notes


def _sensitivity(mechanism: Mechanism) -> float:
    assert mechanism.neighbours is not None
    return mechanism.neighbours.sensitivity


def _with_whole_batches(part: Gaussian | DpSgd, relation: Neighbours) -> Gaussian | DpSgd:
    if isinstance(part, Gaussian) or part.sample_rate == 1 or part.sampling is Sampling.SHUFFLED:
        return replace(part, neighbours=relation)  # one batch of each shuffled pass holds the record
    return DpSgd(part.noise_multiplier, 1.0, part.steps, neighbours=relation)


def _rate(part: Gaussian | DpSgd) -> float:
    return part.sample_rate if isinstance(part, DpSgd) else 1.0


@lru_cache(maxsize=64)
def _amplified(mechanism: Mechanism, delta: float) -> str:
    proven = [one.epsilon for one in account(mechanism, delta=delta) if one.is_bound]
    least = min(proven, default=math.inf)
    return (
        f"the ε ≤ {number(least)} that the mechanism keeps with amplification is a promise against those who do not "
        "know the batches, which this audit does not test"
    )


def batch_notes(seen: Transcripts, mechanism: Mechanism | None) -> list[str]:
    """Warn where batches without the record were seen, and where the mechanism counts too few batches with it."""
    met = (seen.distances > 0).sum(axis=1)
    notes = []
    if mechanism is None and ((met > 0) & (met < seen.steps)).any():
        notes.append(
            "the adversary knows which batches held the record: set this ε beside guarantees without amplification by "
            "sampling only"
        )
    steps = math.inf if mechanism is None else sum(phase.steps for phase in mechanism.phases)
    if met.max() > steps:
        notes.append(
            f"a run met the record in {met.max()} steps, the mechanism counts {steps}: the guarantee is that of "
            "another training"
        )
    return notes


def refuse_repeats(seen: Transcripts) -> None:
    """Refuse runs of one world that share their noise to the last digit: they are one run, counted twice."""
    first: dict[tuple[bool, bytes], int] = {}
    for at in np.flatnonzero((seen.projections != 0).any(axis=1)).tolist():
        before = first.setdefault((bool(seen.trained_on_d[at]), seen.projections[at].tobytes()), at)
        if before != at:
            raise InputError(
                f"transcripts has the same noise in runs {before} and {at}, to the last digit, so they are not "
                "independent; give each run its own seed."
            )


def noise_seen(seen: Transcripts, confidence: float) -> tuple[NoiseSeen | None, list[str]]:
    """Measure the deviation of the noise along Δ over the stated one, and warn where the stated one cannot be true.

    Given all before it, ⟨noise, Δ⟩/(σ‖Δ‖) of a step with noise N(0, σ²) on each parameter is standard normal, so the
    squares of all of them add to a χ² variable, whatever the data and the model.
    """
    differ = seen.distances > 0
    count = int(differ.sum())
    if not count:
        return None, []
    unit = seen.projections[differ] / (seen.distances[differ] * seen.deviations[differ])
    total, level = float(np.square(unit).sum()), (1 - confidence) / 2
    low, high = (math.sqrt(total / special.chdtri(count, share)) for share in (level, 1 - level))
    ratio = math.sqrt(total / count)
    measured = NoiseSeen(count, ratio, low, plain(high), confidence)
    little, much = special.chdtr(count, total), special.chdtrc(count, total)
    told = (
        f"along the difference of the data sets the noise had {ratio:.3g} times the deviation that the runs state, "
        f"which the stated noise does in fewer than 1 of {1 / RARE:.0f} audits"
    )
    if little < RARE:
        return measured, [f"{told}: the training adds too little noise, and a guarantee that counts on it is void"]
    if much < RARE:
        return measured, [f"{told}: the training adds more noise than it states, or noise of another kind"]
    return measured, []
