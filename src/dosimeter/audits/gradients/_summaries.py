"""What the page draws of watched runs: their beliefs, their sensitivities and every ε′, thinned for a screen."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dosimeter._validate import BoolArray, FloatArray
from dosimeter.attacks.gradient import Transcripts
from dosimeter.audits.gradients.result import (
    BeliefPaths,
    BeliefsAboveTarget,
    EpsilonRow,
    FinalBeliefs,
    LocalSensitivities,
    MeanBeliefs,
    MedianBeliefs,
    PrivacyTarget,
)
from dosimeter.estimate import Estimate, plain
from dosimeter.estimators.belief import delta_prime
from dosimeter.identifiability import advantage_from_epsilon, advantage_from_mu, belief_from_epsilon

SHOWN_RUNS, SHOWN_STEPS, BINS = 40, 120, 40

NAMES = {  # by the method of the estimate: its name in the chart, and a shorter one for a phone
    "lower-bound": ("bound that the beliefs prove", "bound, beliefs"),
    "sensitivities": ("sensitivities, worst run", "sensitivities"),
    "advantage, trajectory": ("advantage along the trajectories", "trajectories"),
    "advantage, wins": ("advantage by counted guesses", "counted guesses"),
    "beliefs": ("largest belief (a sample maximum)", "largest belief"),
}


def privacy_target(epsilon: float | None, delta: float, mu: float | None) -> PrivacyTarget:
    """Say what the target (ε, δ) and noise of this μ allow the adversary."""
    advantage = None if mu is None else float(advantage_from_mu(mu))
    if epsilon is None:
        return PrivacyTarget(delta=delta, mu=mu, advantage=advantage)
    return PrivacyTarget(
        epsilon=epsilon,
        delta=delta,
        mu=mu,
        belief=float(belief_from_epsilon(epsilon)),
        advantage=advantage,
        advantage_classic=float(advantage_from_epsilon(epsilon, delta=delta, method="classic")),
    )


def belief_paths(seen: Transcripts) -> BeliefPaths:
    """Give the beliefs of some runs and the medians of all, from the prior ½ on."""
    beliefs = np.concatenate([np.full((seen.repetitions, 1), 0.5), seen.beliefs], axis=1)
    steps = _evenly(0, seen.steps, SHOWN_STEPS)
    runs = _evenly(0, seen.repetitions - 1, SHOWN_RUNS)

    def median(rows: BoolArray) -> tuple[float, ...] | None:
        return _floats(np.median(beliefs[np.ix_(rows, steps)], axis=0)) if rows.any() else None

    return BeliefPaths(
        step=tuple(steps.tolist()),
        run=tuple(runs.tolist()),
        beliefs=tuple(_floats(path) for path in beliefs[np.ix_(runs, steps)].round(4)),
        trained_on_d=tuple(seen.trained_on_d[runs].tolist()),
        median=MedianBeliefs(median(seen.trained_on_d), median(~seen.trained_on_d)),
    )


def final_beliefs(seen: Transcripts) -> FinalBeliefs:
    """Give the shares of runs by their final belief, and the mean in each world."""
    edges = np.linspace(0.0, 1.0, BINS + 1)
    last = seen.beliefs[:, -1]

    def shares(rows: BoolArray) -> tuple[float, ...] | None:
        return _floats(np.histogram(last[rows], edges)[0] / np.count_nonzero(rows)) if rows.any() else None

    def mean(rows: BoolArray) -> float | None:
        return float(last[rows].mean()) if rows.any() else None

    on_d, on_d_prime = seen.trained_on_d, ~seen.trained_on_d
    return FinalBeliefs(_floats(edges), shares(on_d), shares(on_d_prime), MeanBeliefs(mean(on_d), mean(on_d_prime)))


def local_sensitivities(seen: Transcripts) -> LocalSensitivities:
    """Give the local sensitivity over the steps: its median and the middle 90 % of the runs."""
    steps = _evenly(1, seen.steps, SHOWN_STEPS)
    low, median, high = np.quantile(seen.distances[:, steps - 1], [0.05, 0.5, 0.95], axis=0)
    return LocalSensitivities(
        step=tuple(steps.tolist()),
        low=_floats(low),
        median=_floats(median),
        high=_floats(high),
        limit=seen.sensitivity,
        largest=float(seen.distances.max()),
    )


def epsilon_rows(estimates: Sequence[Estimate]) -> tuple[EpsilonRow, ...]:
    """Give every ε′ for the chart; the largest belief has no interval."""
    rows = []
    for estimate in estimates:
        if estimate.method not in NAMES:
            continue
        alone = estimate.method == "beliefs"
        name, phone = NAMES[estimate.method]
        rows.append(
            EpsilonRow(
                name=name,
                phone=phone,
                epsilon=plain(estimate.epsilon),
                low=plain(estimate.epsilon if alone else estimate.low),
                high=plain(estimate.epsilon if alone else estimate.high),
                validity=str(estimate.validity),
            )
        )
    return tuple(rows)


def beliefs_above_target(seen: Transcripts, epsilon: float, confidence: float) -> BeliefsAboveTarget:
    """Count how often the belief in the truth ended above that of the target ε."""
    excess = delta_prime(
        seen.final,
        seen.trained_on_d,
        epsilon=epsilon,
        distances=seen.distances,
        deviations=seen.deviations,
        confidence=confidence,
    )
    return BeliefsAboveTarget(**vars(excess), share_low=excess.low, share_high=excess.high)


def _evenly(first: int, last: int, most: int) -> npt.NDArray[np.intp]:
    """At most this many whole numbers from first to last, evenly spaced."""
    return np.unique(np.linspace(first, last, min(most, last - first + 1)).round().astype(np.intp))


def _floats(values: FloatArray) -> tuple[float, ...]:
    return tuple(values.tolist())
