"""One training run against the mechanism that it is claimed to be.

The claim is a whole trade-off curve, that of the mechanism, not one pair (ε, δ). The inverse asks how much noise the
run can have had: all noise multipliers of the mechanism are scaled by one factor, and the smallest factor that the run
rejects is turned into ε. This number holds only if the run is such a mechanism at all, so its validity is *assumes the
mechanism's family*.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dosimeter import _validate as check
from dosimeter._validate import InputError
from dosimeter.accounting.mechanism import (
    NOISE_RANGE,
    Composition,
    DpSgd,
    Mechanism,
    Neighbours,
    PhaseKind,
    gaussian_mu,
    mechanism,
)
from dosimeter.accounting.pld import COARSEST, LossProfile, grid_for, least_epsilon, resolvable
from dosimeter.accounting.profile import REFERENCE_DELTA
from dosimeter.estimate import Estimate, Validity, change, number, percent
from dosimeter.estimators.claim import Profile
from dosimeter.estimators.claim import claim as claim_of_runs
from dosimeter.estimators.ranked import guess
from dosimeter.estimators.rates import Looks, uniform_looks
from dosimeter.estimators.trade_off import TradeOffCurve, band_excess, recursion_rejects
from dosimeter.evidence import Counts, OneRun
from dosimeter.geometry import delta_from_mu, epsilon_from_mu

METHOD = "mechanism's family"
SHARES = (0.04, 0.2, 0.4)  # of the canaries that are guessed: few sure guesses, and many; decided before any score
POINTS = 200  # of a profile, from ε = 0 to where δ is TAIL
TAIL = 1e-11
CLOSE = 5e-4  # relative distance between the smallest rejected noise and one that is not rejected
FIRST, REACH = 1.25, 256.0  # the first factor on the noise that is tried, and the largest
_COARSER = 4.0  # grid of the search: a coarser curve is still an upper limit, and takes a quarter of the time
INDEPENDENT = (
    "given the coins, the scores of different canaries must be independent: so they are for Dirac canaries in DP-SGD "
    "once the gradients of the records are subtracted, and for few other attacks"
)


def claim(
    evidence: OneRun,
    *,
    epsilon: float | None = None,
    delta: float = 1e-5,
    confidence: float = 0.95,
    profile: Profile | None = None,
    thresholds: Sequence[float] | None = None,
    mechanism: Mechanism | None = None,
    independent: bool = False,
    guesses: Sequence[int] | None = None,
) -> Estimate:
    """Test a claimed guarantee on independent runs, or a claimed mechanism on the canaries of one run.

    Without `mechanism`, each record of `evidence` is one independent run, in the order of time, and the claim is
    (ε, δ) or a whole profile (`ClaimTest`). With `mechanism`, the records are the canaries of one training, and the
    claim is the exact trade-off curve of that mechanism.

    Args:
        evidence: Scores and fair coins.
        epsilon: The claimed ε of independent runs; a mechanism has its own.
        delta: The claimed δ; with a mechanism, where ε is read.
        confidence: One minus the probability of rejecting a claim that is true.
        profile: For independent runs: a function δ(ε), or pairs (ε, δ), to be tested as a whole.
        thresholds: For independent runs: thresholds fixed in advance, instead of learnt from the earlier scores.
        mechanism: What the one run is claimed to be: a `DpSgd` with Poisson batches, a `Gaussian` or a `Composition`.
        independent: Whether, given the coins, the scores of different canaries are independent under the claimed
            mechanism. They are for Dirac canaries whose records' gradients were subtracted. The test is then sharper.
        guesses: Numbers of guesses of the one run, fixed before the coins were looked at; None for 4, 20 and 40 % of
            the canaries. They share the level.

    Returns:
        An estimate; `details["rejected"]` is the verdict. For independent runs its ε is a bound. For one run it is the
        ε of the smallest noise that the run rejects, and holds only in the mechanism's family.

    Raises:
        InputError: If an argument is out of range, or arguments do not go together.

    >>> import numpy as np
    >>> from dosimeter import DpSgd, OneRun, fair_coins
    >>> coins = fair_coins(2000, seed=1)
    >>> run = OneRun(np.random.default_rng(0).normal(3 * coins), coins)  # a Gaussian mechanism of μ = 3
    >>> claim(run, mechanism=DpSgd(1.0, 1.0, 1)).details["rejected"]
    True
    """
    independent = check.flag("independent", independent)
    if mechanism is None:
        if independent or guesses is not None:
            raise InputError("independent and guesses are for a mechanism claimed of one run; pass mechanism=, too.")
        if epsilon is None:
            raise InputError("epsilon is missing; pass the claimed ε of independent runs, or the mechanism of one run.")
        return claim_of_runs(
            evidence, epsilon=epsilon, delta=delta, confidence=confidence, profile=profile, thresholds=thresholds
        )
    given = {"epsilon": epsilon, "profile": profile, "thresholds": thresholds}
    extra = [name for name, value in given.items() if value is not None]
    if extra:
        raise InputError(f"{extra[0]} is for independent runs, but a mechanism was claimed of one run; leave it out.")
    return claim_mechanism(
        evidence, mechanism, delta=delta, confidence=confidence, independent=independent, guesses=guesses
    )


def claim_mechanism(
    evidence: OneRun,
    value: Mechanism,
    *,
    delta: float = 1e-5,
    confidence: float = 0.95,
    independent: bool = False,
    guesses: Sequence[int] | None = None,
) -> Estimate:
    """Test a claimed mechanism on the canaries of one run; `claim` says what the arguments are."""
    if not isinstance(evidence, OneRun):
        raise InputError(f"evidence must be a OneRun, got {type(evidence).__name__}; build OneRun(scores, included).")
    value, independent = testable(value), check.flag("independent", independent)
    delta = check.delta(delta, zero=False, why_not_zero="the Gaussian mechanism has no finite ε at δ = 0")
    confidence = check.confidence(confidence)
    warnings = evidence.mask_warnings
    if independent:
        if guesses is not None:
            raise InputError("guesses are counted only where scores may depend on each other; leave independent out.")
        test: Looked | Guessed = Looked.at(evidence, 1.0 - confidence)
        warnings = (*warnings, INDEPENDENT)
    else:
        test = Guessed.at(evidence, guesses, 1.0 - confidence)
    found = least_noise(value, test.rejects)
    if isinstance(test, Looked):
        test = test.best(curve_of(_scaled(value, 1.0 if found.scale is None else found.scale)))
    low = 0.0 if found.scale is None else epsilon_at(value, found.scale, delta)
    return Estimate(
        epsilon=low,
        low=low,
        high=math.inf,
        delta=delta,
        confidence=confidence,
        method=METHOD,
        validity=Validity.ASSUMES_FAMILY,
        claim=_sentence(value, found, low, delta, confidence, evidence.unit),
        neighbours="add/remove",
        threshold=test.threshold,
        counts=test.counts,
        warnings=warnings,
        details={
            "rejected": found.rejected,
            "noise_scale": found.scale,
            "noise_multiplier": _noise_of(value, found.scale),
            "parts": parts_of(value),
            "records": evidence.total,
            "independent": independent,
            **test.details(),
        },
    )


# --- the two tests ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Guessed:
    """Right guesses at numbers fixed in advance, as (k_in, k_out, correct), which share the level."""

    records: int
    made: tuple[tuple[int, int, int], ...]
    level: float
    threshold: float | None = None
    counts: Counts | None = None

    @classmethod
    def at(cls, evidence: OneRun, guesses: Sequence[int] | None, level: float) -> Guessed:
        remedy = f"pass numbers of guesses, each at most {evidence.total}"
        given = [math.ceil(share * evidence.total) for share in SHARES] if guesses is None else guesses
        numbers = {check.whole("guesses", n, 1, remedy, evidence.total) for n in check.listed("guesses", given, remedy)}
        if not numbers:
            raise InputError(f"guesses is empty; {remedy}.")
        found = [guess(evidence, k_in=n - n // 2, k_out=n // 2) for n in sorted(numbers)]
        return cls(evidence.total, tuple((one.k_in, one.k_out, one.correct) for one in found), level)

    def rejects(self, curve: TradeOffCurve) -> bool:
        """Whether any of the numbers rejects the curve."""
        level = self.level / len(self.made)
        return any(
            recursion_rejects(curve, records=self.records, guesses=k_in + k_out, correct=correct, level=level)
            for k_in, k_out, correct in self.made
        )

    def details(self) -> dict[str, Any]:
        """What the test rests on."""
        return {"looks": [list(one) for one in self.made], "selection": "fixed"}


@dataclass(frozen=True)
class Looked:
    """Limits of both error rates at many thresholds, which all hold together."""

    looks: Looks
    evidence: OneRun | None = None
    threshold: float | None = None
    counts: Counts | None = None

    @classmethod
    def at(cls, evidence: OneRun, level: float) -> Looked:
        return cls(uniform_looks(evidence.as_scores(independent=True), level), evidence)

    def rejects(self, curve: TradeOffCurve) -> bool:
        """Whether the limits exceed the curve anywhere."""
        return bool(band_excess(curve, self.looks.fpr, self.looks.fnr).max() > 0.0)

    def best(self, curve: TradeOffCurve) -> Looked:
        """The test with the threshold that exceeds a curve most, and the counts there."""
        assert self.evidence is not None
        index = int(np.argmax(band_excess(curve, self.looks.fpr, self.looks.fnr)))
        at = float(self.looks.thresholds[index])
        return replace(self, threshold=at, counts=self.evidence.as_scores().counts_at(at))

    def details(self) -> dict[str, Any]:
        """What the test rests on, besides the counts."""
        return {"threshold_rule": "uniform"}


# --- the family -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LeastNoise:
    """Whether the mechanism itself is rejected, and the smallest factor on its noise that is; None if none is."""

    rejected: bool
    scale: float | None


def testable(value: Any) -> Mechanism:
    """Take a mechanism whose curve for adding or removing one record is known; refuse others."""
    found = mechanism(value)
    kinds = {phase.kind for phase in found.phases}
    if found.neighbours is not Neighbours.ADD_REMOVE or not kinds <= {PhaseKind.GAUSSIAN, PhaseKind.POISSON}:
        raise InputError(
            f"mechanism must be about adding or removing one record, with Poisson or full batches, got {found}; the "
            "coins of a run decide who is added."
        )
    return found


def curve_of(value: Mechanism, grid: float | None = None) -> TradeOffCurve:
    """Give the trade-off curve of a mechanism from points of its privacy profile."""
    phases = value.phases
    if any(phase.kind is not PhaseKind.GAUSSIAN for phase in phases):
        finest = grid_for(value, REFERENCE_DELTA)
        width = max(finest, min(_COARSER * finest, COARSEST)) if grid is None else grid
        if resolvable(phases, width):
            profile = LossProfile(value, width)
            epsilons = np.linspace(0.0, min(profile.epsilon(TAIL), 700.0), POINTS)
            return TradeOffCurve(epsilons, profile.deltas(epsilons))
    mu = gaussian_mu(phases)  # exact for full batches; where losses are beyond all use, sampling can only help
    epsilons = np.linspace(0.0, min(float(epsilon_from_mu(mu, TAIL)), 700.0), POINTS)
    return TradeOffCurve(epsilons, np.asarray(delta_from_mu(epsilons, mu), float))


def least_noise(value: Mechanism, rejects: Callable[[TradeOffCurve], bool]) -> LeastNoise:
    """Find the smallest factor on the noise that is rejected. More noise means a milder curve: it is rejected too."""

    def rejected(scale: float) -> bool:
        return rejects(curve_of(_scaled(value, scale)))

    first = rejected(1.0)
    step, near, far = (1 / FIRST if first else FIRST), 1.0, 1.0
    while True:
        far = near * step
        if not 1 / REACH < far < REACH or not _possible(value, far):
            return LeastNoise(first, near if first else None)
        if rejected(far) != first:
            break
        near, step = far, step * step
    low, high = (far, near) if first else (near, far)
    while high > low * (1 + CLOSE):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if rejected(middle) else (middle, high)
    return LeastNoise(first, high)


def epsilon_at(value: Mechanism, scale: float, delta: float) -> float:
    """Give an ε, never above the true one, of the mechanism with its noise scaled."""
    return least_epsilon(_scaled(value, scale), delta=delta)


def parts_of(value: Mechanism) -> list[list[float]]:
    """Noise multiplier, sampling rate and steps of each part, from which `of_parts` builds the mechanism again."""
    parts = value.parts if isinstance(value, Composition) else (value,)
    return [[p.noise_multiplier, p.sample_rate if isinstance(p, DpSgd) else 1.0, float(p.steps)] for p in parts]


def of_parts(parts: Any) -> Mechanism:
    """Build the mechanism that `parts_of` described."""
    rows = check.listed("parts", parts, "pass noise multiplier, sampling rate and steps of each part")
    if not all(isinstance(row, (list, tuple)) and len(row) == 3 for row in rows):
        raise InputError("parts must hold noise multiplier, sampling rate and steps of each part; pass three numbers.")
    return Composition(tuple(DpSgd(noise, rate, int(steps)) for noise, rate, steps in rows))


def _scaled(value: Mechanism, scale: float) -> Mechanism:
    if isinstance(value, Composition):
        return Composition(tuple(replace(part, noise_multiplier=part.noise_multiplier * scale) for part in value.parts))
    return replace(value, noise_multiplier=value.noise_multiplier * scale)


def _possible(value: Mechanism, scale: float) -> bool:
    noises = [row[0] * scale for row in parts_of(value)]
    return NOISE_RANGE[0] < min(noises) and max(noises) < NOISE_RANGE[1]


def _noise_of(value: Mechanism, scale: float | None) -> float | None:
    if scale is None or isinstance(value, Composition):
        return None
    return value.noise_multiplier * scale


def _sentence(value: Mechanism, found: LeastNoise, low: float, delta: float, confidence: float, unit: str) -> str:
    rows, sure = parts_of(value), f"with {percent(confidence)} confidence"
    if len(rows) == 1:
        ((noise, rate, steps),) = rows
        what = f"DP-SGD of {int(steps)} steps at sampling rate {number(rate)}"
        claimed, least = f"a noise multiplier of {number(noise)}", "its noise multiplier is below {} "
        size = None if found.scale is None else noise * found.scale
    else:
        what, claimed = f"the {len(rows)} claimed phases, all with one factor on their noise", "the noise as stated"
        least, size = "this factor is below {} ", found.scale
    verdict = (
        f"The claim of {claimed} is rejected {sure}"
        if found.rejected
        else f"The claim of {claimed} is not rejected at {percent(confidence)} confidence, which does not prove it"
    )
    if size is None or low <= 0.0:
        return f"{verdict}; even in the family of {what} the run shows no privacy loss (ε ≥ 0 at δ = {delta:g})."
    return (
        f"{verdict}. If the run is {what}, {sure} {least.format(number(size))}and the privacy loss for "
        f"{change('add/remove', unit)} at least ε = {number(low)} at δ = {delta:g}; without that assumption this "
        "number bounds nothing."
    )
