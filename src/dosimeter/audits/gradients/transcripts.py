"""An audit from transcripts alone: what the DP adversary believed, and what that says of ε."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

import dosimeter
from dosimeter import _validate as check
from dosimeter._validate import FloatArray, InputError
from dosimeter.accounting import Composition, DpSgd, Gaussian
from dosimeter.accounting.mechanism import Mechanism, gaussian_mu
from dosimeter.accounting.sensitivities import epsilon_from_sensitivities
from dosimeter.attacks.gradient import Transcripts
from dosimeter.audits.assemble import both_sides, guarantees
from dosimeter.audits.gradients.transcript_checks import batch_notes, counted, noise_seen, refuse_repeats
from dosimeter.audits.result import Audit, Guard
from dosimeter.audits.scores import audit_scores
from dosimeter.estimate import Estimate, plain
from dosimeter.estimators.belief import (
    ONE_WORLD,
    advantage_from_trajectories,
    advantage_from_wins,
    delta_prime,
    epsilon_from_advantage,
    epsilon_from_beliefs,
)
from dosimeter.estimators.wording import change
from dosimeter.geometry import epsilon_from_mu
from dosimeter.identifiability import advantage_from_epsilon, advantage_from_mu, belief_from_epsilon

SHOWN_RUNS, SHOWN_STEPS, BINS = 40, 120, 40
BY_DESIGN = (
    "A coin decided which of two data sets a run was trained on, and they differ in one record: nothing but the "
    "training can tell the runs apart, so there is no shift to look for."
)
NOT_PRIVATE = (
    "the noise was scaled to the local sensitivity of this pair of data sets: it depends on the data, so the training "
    "is not differentially private, and the target ε is a yardstick and no guarantee"
)


def audit_transcripts(
    transcripts: Transcripts,
    *,
    delta: float,
    mechanism: Mechanism | None = None,
    epsilon: float | None = None,
    confidence: float = 0.95,
    seed: int = 0,
    name: str | None = None,
) -> Audit:
    """Audit watched DP-SGD runs: beliefs, advantage, ε′ in several ways, and the bound that the beliefs prove.

    The adversary knows which records each batch holds, so the guarantee is counted without amplification by sampling,
    and for the neighbours that the runs compare. A bound needs runs on D and runs on D'; the paper's runs are all on D,
    and then the advantage along the trajectories is the headline. The noise itself is looked at too: runs with less
    noise than they state get a warning, whichever world they are from.

    Args:
        transcripts: What the adversary saw in each run, each with its own seed.
        delta: The δ of bound and guarantee, above 0.
        mechanism: The training as the accountants read it; leave it out where there is no guarantee.
        epsilon: The target to compare with, by default that of the mechanism; without amplification by sampling.
        confidence: The level of the limits.
        seed: For methods that draw.
        name: What the page calls the training.

    Returns:
        The audit, with bound, ε′ in several ways and, in `details["noise"]`, the noise that was seen over the stated.

    Raises:
        InputError: For runs that repeat one another's noise, and for arguments outside their range.

    Examples:
        >>> import numpy as np
        >>> from dosimeter.accounting import DpSgd
        >>> rng, worlds = np.random.default_rng(0), np.arange(60) % 2 == 0
        >>> held = rng.random((60, 8)) < 0.5  # Poisson batches: half of them hold the record, clipped to norm 1
        >>> seen = Transcripts(1.0 * held, 3.0 * rng.normal(size=(60, 8)) * held, 3.0, worlds, neighbours="add/remove")
        >>> audit = audit_transcripts(seen, delta=0.01, mechanism=DpSgd(3.0, sample_rate=0.5, steps=8))
        >>> audit.region["contradiction"]
        False
    """
    if not isinstance(transcripts, Transcripts):
        raise InputError(
            f"transcripts must be Transcripts, got {check.show(transcripts)}; build Transcripts.from_runs(…) first."
        )
    delta = check.delta(delta, zero=False, why_not_zero="the Gaussian mechanism has no finite ε at δ = 0")
    confidence, seed = check.confidence(confidence), check.seed(seed)
    if mechanism is not None and not isinstance(mechanism, (DpSgd, Gaussian, Composition)):
        raise InputError(f"mechanism must be DpSgd, Gaussian or Composition, got {check.show(mechanism)}; pass one.")
    if epsilon is not None:
        epsilon = check.within("epsilon", epsilon, 0.0, math.inf, "pass the ε that the training aims at", include="()")
    refuse_repeats(transcripts)
    noise, notes = noise_seen(transcripts, confidence)
    if mechanism is not None:
        mechanism, changed = counted(mechanism, transcripts.neighbours, delta)
        notes += changed
    notes += batch_notes(transcripts, mechanism)
    relation = transcripts.neighbours if mechanism is None else str(mechanism.neighbours)
    mu = None if mechanism is None else gaussian_mu(mechanism.phases)
    if epsilon is None and mu is not None:
        epsilon = float(epsilon_from_mu(mu, delta))
    estimates, found = _estimates(transcripts, delta, confidence, seed)
    estimates, curve, left_out = _with_bounds(transcripts, estimates, delta, confidence, seed)
    estimates = [_about(estimate, relation) for estimate in estimates]
    upper = () if mechanism is None else guarantees(mechanism, delta, [str(relation)])[0]
    region, risk = both_sides(estimates, upper)
    details: dict[str, Any] = {
        "target": _target(epsilon, delta, mu),
        "trajectories": _trajectories(transcripts),
        "final": _final(transcripts),
        "sensitivities": _sensitivities(transcripts),
        "epsilons": _rows(estimates),
        "advantage": {**found, "expected": None if mu is None else float(advantage_from_mu(mu))},
        "noise": noise,
    }
    if epsilon is not None:
        details["delta_prime"] = _delta_prime(transcripts, epsilon, confidence)
    audit = Audit(
        estimates=tuple(estimates),
        guard=Guard(shift=False, checked=True, evidence={"reasons": [BY_DESIGN]}),
        risk=risk,
        curve=curve,
        upper=upper,
        region=region,
        details=details,
        metadata={
            "kind": "gradients",
            "name": name,
            "repetitions": transcripts.repetitions,
            "trained_on_d": int(transcripts.trained_on_d.sum()),
            "steps": transcripts.steps,
            "neighbours": transcripts.neighbours or relation,
            "delta": delta,
            "confidence": confidence,
            "mechanism": None if mechanism is None else repr(mechanism),
            "seed": seed,
            "warnings": left_out,
            "version": dosimeter.__version__,
        },
    )
    return with_warnings(audit, notes)


def with_warnings(audit: Audit, warnings: list[str]) -> Audit:
    """The audit with warnings at its headline and in its record, each once."""
    warnings = [text for text in warnings if text not in audit.headline.warnings]
    if not warnings:
        return audit
    head = replace(audit.headline, warnings=(*audit.headline.warnings, *warnings))
    return replace(
        audit,
        estimates=(head, *audit.estimates[1:]),
        metadata={**audit.metadata, "warnings": [*audit.metadata["warnings"], *warnings]},
    )


def _about(found: Estimate, relation: str | None) -> Estimate:
    """The estimate as one of the ε between the data sets of the runs, which is all that runs of two worlds know."""
    spoken = f" for {change(relation)}" if change(relation) else ""
    return replace(found, neighbours=relation, claim=found.claim.replace(f" for {change('add/remove')}", spoken, 1))


def _estimates(
    seen: Transcripts, delta: float, confidence: float, seed: int
) -> tuple[list[Estimate], dict[str, float]]:
    """ε′ from the sensitivities, the trajectories, the counted guesses and the largest belief; both advantages."""
    paths = advantage_from_trajectories(seen.distances, seen.deviations, confidence=confidence)
    wins = advantage_from_wins(seen.final, seen.trained_on_d, confidence=confidence)
    estimates = [
        epsilon_from_sensitivities(seen.distances, seen.deviations, delta=delta, confidence=confidence),
        epsilon_from_advantage(paths, delta=delta),
        epsilon_from_advantage(wins, delta=delta),
        epsilon_from_beliefs(seen.final, seen.trained_on_d, delta=delta, confidence=confidence),
    ]
    return estimates, {
        "trajectory": paths.value,
        "trajectory_low": paths.low,
        "trajectory_high": paths.high,
        "counting": wins.value,
        "counting_low": wins.low,
        "counting_high": wins.high,
    }


def _with_bounds(
    seen: Transcripts, estimates: list[Estimate], delta: float, confidence: float, seed: int
) -> tuple[list[Estimate], Mapping[str, Any], list[str]]:
    """The bounds of the final log-odds before the estimates, their ROC curve, and what had to be left out.

    The threshold of the estimators at one threshold is log-odds 0, the adversary's own, fixed before any run.
    """
    if seen.trained_on_d.any() and not seen.trained_on_d.all():
        scored = audit_scores(seen.scores(), delta=delta, confidence=confidence, threshold=0.0, seed=seed)
        return [*scored.estimates, *estimates], scored.curve, list(scored.metadata["warnings"])
    sensitivities, trajectory, *others = estimates
    first = replace(trajectory, warnings=(*trajectory.warnings, ONE_WORLD))
    return [first, sensitivities, *others], {}, ["no bound and no ROC curve: all runs were on one of the two data sets"]


def _target(epsilon: float | None, delta: float, mu: float | None) -> dict[str, Any]:
    return {
        "epsilon": epsilon,
        "delta": delta,
        "mu": mu,
        "belief": float(belief_from_epsilon(epsilon)) if epsilon is not None else None,
        "advantage": None if mu is None else float(advantage_from_mu(mu)),
        "advantage_classic": float(advantage_from_epsilon(epsilon, delta=delta, method="classic"))
        if epsilon is not None
        else None,
    }


def _by_world(seen: Transcripts, reduce: Any) -> dict[str, Any]:
    """What `reduce` makes of the rows of each world; None for a world without runs."""
    worlds = {"on_d": seen.trained_on_d, "on_d_prime": ~seen.trained_on_d}
    return {key: reduce(rows) if rows.any() else None for key, rows in worlds.items()}


def _trajectories(seen: Transcripts) -> dict[str, Any]:
    """Beliefs of some runs and the medians of all, from the prior ½ on, thinned for a screen."""
    beliefs = np.concatenate([np.full((seen.repetitions, 1), 0.5), seen.beliefs], axis=1)
    steps = np.unique(np.linspace(0, seen.steps, min(SHOWN_STEPS, seen.steps + 1)).round().astype(int))
    runs = np.unique(np.linspace(0, seen.repetitions - 1, min(SHOWN_RUNS, seen.repetitions)).round().astype(int))
    return {
        "step": steps,
        "run": runs,
        "beliefs": beliefs[np.ix_(runs, steps)].round(4),
        "trained_on_d": seen.trained_on_d[runs],
        "median": _by_world(seen, lambda rows: np.median(beliefs[np.ix_(rows, steps)], axis=0)),
    }


def _final(seen: Transcripts) -> dict[str, Any]:
    edges = np.linspace(0.0, 1.0, BINS + 1)
    last = seen.beliefs[:, -1]

    def shares(rows: Any) -> FloatArray:
        return np.histogram(last[rows], edges)[0] / np.count_nonzero(rows)

    means = _by_world(seen, lambda rows: float(last[rows].mean()))
    return {"edges": edges, **_by_world(seen, shares), "mean": means}


def _sensitivities(seen: Transcripts) -> dict[str, Any]:
    steps = np.unique(np.linspace(1, seen.steps, min(SHOWN_STEPS, seen.steps)).round().astype(int))
    low, median, high = np.quantile(seen.distances[:, steps - 1], [0.05, 0.5, 0.95], axis=0)
    return {
        "step": steps,
        "low": low,
        "median": median,
        "high": high,
        "global": seen.sensitivity,
        "largest": float(seen.distances.max()),
    }


ROWS = {
    "lower-bound": ("bound that the beliefs prove", "bound, beliefs"),
    "sensitivities": ("sensitivities, worst run", "sensitivities"),
    "advantage, trajectory": ("advantage along the trajectories", "trajectories"),
    "advantage, wins": ("advantage by counted guesses", "counted guesses"),
    "beliefs": ("largest belief (a sample maximum)", "largest belief"),
}


def _rows(estimates: list[Estimate]) -> list[dict[str, Any]]:
    """ε′ in each way for the chart."""
    return [
        {
            "name": ROWS[e.method][0],
            "phone": ROWS[e.method][1],
            "epsilon": plain(e.epsilon),
            "low": plain(e.epsilon if e.method == "beliefs" else e.low),
            "high": plain(e.epsilon if e.method == "beliefs" else e.high),
            "validity": str(e.validity),
        }
        for e in estimates
        if e.method in ROWS
    ]


def _delta_prime(seen: Transcripts, epsilon: float, confidence: float) -> Mapping[str, Any]:
    found = delta_prime(
        seen.final,
        seen.trained_on_d,
        epsilon=epsilon,
        distances=seen.distances,
        deviations=seen.deviations,
        confidence=confidence,
    )
    values = found.to_dict()
    return {**values, "share_low": values["low"], "share_high": values["high"]}
