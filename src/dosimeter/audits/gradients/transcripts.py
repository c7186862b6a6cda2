"""An audit from transcripts alone: what the DP adversary believed, and what that says of ε."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import dosimeter
from dosimeter import _validate as check
from dosimeter._validate import InputError
from dosimeter.accounting import Composition, DpSgd, Gaussian
from dosimeter.accounting.mechanism import Mechanism, gaussian_mu
from dosimeter.accounting.sensitivities import epsilon_from_sensitivities
from dosimeter.attacks.gradient import Transcripts
from dosimeter.audits.assemble import both_sides, guarantees, written
from dosimeter.audits.gradients import _summaries as summaries
from dosimeter.audits.gradients._transcript_checks import (
    batch_notes,
    noise_seen,
    refuse_repeats,
    without_amplification,
)
from dosimeter.audits.gradients.result import Advantages, GradientsDetails, GradientsMetadata
from dosimeter.audits.parts import ShiftEvidence
from dosimeter.audits.result import Audit, Guard, Roc
from dosimeter.audits.scores import audit_scores
from dosimeter.estimate import Estimate, change
from dosimeter.estimators.belief import (
    ONE_WORLD,
    advantage_from_trajectories,
    advantage_from_wins,
    epsilon_from_advantage,
    epsilon_from_beliefs,
)
from dosimeter.geometry import epsilon_from_mu
from dosimeter.identifiability import advantage_from_mu

__all__ = ["NOT_PRIVATE", "audit_transcripts", "with_warnings"]

BY_DESIGN = (
    "A coin decided which of two data sets a run was trained on, and they differ in one record: nothing but the "
    "training can tell the runs apart, so there is no shift to look for."
)
NOT_PRIVATE = (
    "the noise was scaled to the local sensitivity of this pair of data sets: it depends on the data, so the training "
    "is not differentially private, and the target ε is a yardstick, not a guarantee"
)
NO_BOUND = "no bound and no ROC curve: all runs were on one of the two data sets"


def audit_transcripts(
    transcripts: Transcripts,
    *,
    delta: float = 1e-5,
    mechanism: Mechanism | None = None,
    epsilon: float | None = None,
    confidence: float = 0.95,
    seed: int = 0,
    name: str | None = None,
) -> Audit:
    """Audit watched DP-SGD runs: beliefs, advantage, ε′ in several ways, and the bound that the beliefs prove.

    The adversary knows which records each batch holds. So the guarantee is counted without amplification by sampling,
    and for the neighbours that the runs compare. A bound needs runs on D and runs on D'. Where all runs are on D, as in
    the paper, the advantage along the trajectories is the headline. The noise is checked too: runs with less noise than
    they state get a warning, whichever data set they were trained on.

    Args:
        transcripts: What the adversary saw in each run. Every run must have a seed of its own.
        delta: The δ of bound and guarantee, above 0.
        mechanism: The training as the accountants read it. Leave it out where there is no guarantee.
        epsilon: The target to compare with, counted without amplification by sampling. The default is the ε of the
            mechanism.
        confidence: The confidence of every bound and interval.
        seed: Decides halves and draws of the methods that need them; the headline draws nothing.
        name: What the page calls the training.

    Returns:
        The audit. Its `details` hold the beliefs, ε′ in several ways and, as `details.noise`, the noise that was seen
        over the noise that the runs state.

    Raises:
        InputError: If two runs repeat each other's noise, or an argument cannot be used.

    Examples:
        >>> import numpy as np
        >>> from dosimeter.accounting import DpSgd
        >>> rng, worlds = np.random.default_rng(0), np.arange(60) % 2 == 0
        >>> held = rng.random((60, 8)) < 0.5  # Poisson batches: half of them hold the record, clipped to norm 1
        >>> seen = Transcripts(1.0 * held, 3.0 * rng.normal(size=(60, 8)) * held, 3.0, worlds, neighbours="add/remove")
        >>> audit = audit_transcripts(seen, delta=0.01, mechanism=DpSgd(3.0, sample_rate=0.5, steps=8))
        >>> audit.region.contradiction
        False
    """
    delta, epsilon, confidence, seed = _checked(transcripts, delta, mechanism, epsilon, confidence, seed)
    refuse_repeats(transcripts)
    noise, notes = noise_seen(transcripts, confidence)
    if mechanism is not None:
        mechanism, changed = without_amplification(mechanism, transcripts.neighbours, delta)
        notes += changed
    notes += batch_notes(transcripts, mechanism)
    relation = transcripts.neighbours if mechanism is None else str(mechanism.neighbours)
    mu = None if mechanism is None else gaussian_mu(mechanism.phases)
    if epsilon is None and mu is not None:
        epsilon = float(epsilon_from_mu(mu, delta))
    measured, advantages = _measured(transcripts, delta, confidence, mu)
    estimates, curve, left_out = _with_bounds(transcripts, measured, delta, confidence, seed)
    estimates = [_about(estimate, relation) for estimate in estimates]
    upper = () if mechanism is None else guarantees(mechanism, delta, [str(relation)])[0]
    region, risk = both_sides(estimates, upper)
    audit = Audit(
        estimates=tuple(estimates),
        guard=Guard(shift=False, checked=True, evidence=ShiftEvidence(reasons=(BY_DESIGN,))),
        risk=risk,
        curve=curve,
        upper=upper,
        region=region,
        details=GradientsDetails(
            target=summaries.privacy_target(epsilon, delta, mu),
            trajectories=summaries.belief_paths(transcripts),
            final=summaries.final_beliefs(transcripts),
            sensitivities=summaries.local_sensitivities(transcripts),
            epsilons=summaries.epsilon_rows(estimates),
            advantage=advantages,
            noise=noise,
            delta_prime=None if epsilon is None else summaries.beliefs_above_target(transcripts, epsilon, confidence),
        ),
        metadata=GradientsMetadata(
            kind="gradients",
            name=name,
            repetitions=transcripts.repetitions,
            trained_on_d=int(transcripts.trained_on_d.sum()),
            steps=transcripts.steps,
            neighbours=transcripts.neighbours or relation,
            delta=delta,
            confidence=confidence,
            mechanism=None if mechanism is None else written(mechanism),
            seed=seed,
            warnings=left_out,
            version=dosimeter.__version__,
        ),
    )
    return with_warnings(audit, notes)


def _checked(
    transcripts: Any, delta: Any, mechanism: Any, epsilon: Any, confidence: Any, seed: Any
) -> tuple[float, float | None, float, int]:
    """δ, ε, confidence and seed, or the refusal of the first argument that cannot be used."""
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
    return delta, epsilon, confidence, seed


def with_warnings(audit: Audit, warnings: Sequence[str]) -> Audit:
    """Add warnings to the headline and to the record of an audit, each once."""
    warnings = [text for text in warnings if text not in audit.headline.warnings]
    if not warnings:
        return audit
    head = replace(audit.headline, warnings=(*audit.headline.warnings, *warnings))
    return replace(
        audit,
        estimates=(head, *audit.estimates[1:]),
        metadata=replace(audit.metadata, warnings=(*audit.metadata.warnings, *warnings)),
    )


def _about(estimate: Estimate, relation: str | None) -> Estimate:
    """The estimate as one of the ε between the data sets of the runs, which is all that runs of two worlds know."""
    spoken = f" for {change(relation)}" if change(relation) else ""
    claim = estimate.claim.replace(f" for {change('add/remove')}", spoken, 1)
    return replace(estimate, neighbours=relation, claim=claim)


def _measured(
    seen: Transcripts, delta: float, confidence: float, mu: float | None
) -> tuple[list[Estimate], Advantages]:
    """ε′ from the sensitivities, the trajectories, the counted guesses and the largest belief; both advantages."""
    paths = advantage_from_trajectories(seen.distances, seen.deviations, confidence=confidence)
    wins = advantage_from_wins(seen.final, seen.trained_on_d, confidence=confidence)
    estimates = [
        epsilon_from_sensitivities(seen.distances, seen.deviations, delta=delta, confidence=confidence),
        epsilon_from_advantage(paths, delta=delta),
        epsilon_from_advantage(wins, delta=delta),
        epsilon_from_beliefs(seen.final, seen.trained_on_d, delta=delta, confidence=confidence),
    ]
    return estimates, Advantages(
        trajectory=paths.value,
        trajectory_low=paths.low,
        trajectory_high=paths.high,
        counting=wins.value,
        counting_low=wins.low,
        counting_high=wins.high,
        expected=None if mu is None else float(advantage_from_mu(mu)),
    )


def _with_bounds(
    seen: Transcripts, estimates: list[Estimate], delta: float, confidence: float, seed: int
) -> tuple[list[Estimate], Roc | None, tuple[str, ...]]:
    """The bounds of the final log-odds before the estimates, their ROC curve, and what had to be left out.

    The threshold of the estimators at one threshold is log-odds 0, the adversary's own, fixed before any run.
    """
    if seen.trained_on_d.any() and not seen.trained_on_d.all():
        scored = audit_scores(seen.scores(), delta=delta, confidence=confidence, threshold=0.0, seed=seed)
        return [*scored.estimates, *estimates], scored.curve, scored.metadata.warnings
    sensitivities, trajectory, *others = estimates
    first = replace(trajectory, warnings=(*trajectory.warnings, ONE_WORLD))
    return [first, sensitivities, *others], None, (NO_BOUND,)
