"""ε' of the DP adversary: from final beliefs and from the advantage, and δ', the share of beliefs above ρ_β.

The adversary watches the noisy gradients of DP-SGD and keeps log-odds for D against D' (Bernau et al. 2021). Step i
with local sensitivity LS_i and noise of deviation σ_i moves them by a normal variable; given the whole trajectory
they end at N(s/2, s) in favour of the truth, s = Σ LS_i²/σ_i². What follows from s alone has far less variance than
counting guesses. The third way, from the sensitivities, is `accounting.sensitivities`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from dosimeter import _validate as check
from dosimeter import geometry
from dosimeter._validate import BoolArray, FloatArray, InputError
from dosimeter.estimate import Estimate, Validity, number, percent, plain
from dosimeter.estimators.limits import clopper_pearson_limits
from dosimeter.estimators.lower_bound import lower_bound
from dosimeter.estimators.with_assumptions import ASSUMPTION, mu_from_rates
from dosimeter.evidence import Scores

CONVERSIONS = ("gaussian", "classic", "generic")
MAXIMUM = "the largest of all beliefs grows with the number of runs: it is neither an estimate of ε nor a bound on it"
CLASSIC = (
    "the classic formula inverts the advantage at the noise of the textbook Gaussian mechanism, which is proven for "
    "ε < 1 only; other noise with the same (ε, δ) has another advantage"
)
ONE_WORLD = (
    "all runs were trained on the same one of the two data sets: 2·wins/runs − 1 is the advantage only if the "
    "adversary wins as often in the other world"
)
_COINS = 4.5  # standard deviations of a fair coin's count within which the two worlds count as balanced


# --- what the adversary saw -------------------------------------------------------------------------------


def per_step(name: str, values: Any, *, shape: tuple[int, int] | None = None) -> FloatArray:
    """Finite numbers of shape (repetitions, steps); one number or one row stands for all where `shape` is given."""
    try:
        raw = np.asarray(values)
    except (ValueError, TypeError):
        raise InputError(f"{name} must be an array (repetitions, steps); its rows have mixed lengths.") from None
    if raw.dtype.kind not in "biuf" or np.ma.is_masked(values):
        raise InputError(f"{name} must hold numbers, got {check.show(values)}; pass an array (repetitions, steps).")
    array = raw.astype(np.float64)
    if shape is not None:
        try:
            array = np.array(np.broadcast_to(array, shape))
        except ValueError:
            wanted = f"{shape[0]} repetitions and {shape[1]} steps"
            raise InputError(f"{name} has shape {raw.shape}, which does not fit {wanted}; they must agree.") from None
    if array.ndim != 2 or array.size == 0:
        raise InputError(f"{name} must have shape (repetitions, steps), got {raw.shape}; pass a row for each run.")
    if not np.isfinite(array).all():
        repetition, step = np.argwhere(~np.isfinite(array))[0]
        count = int((~np.isfinite(array)).sum())
        raise InputError(
            f"{name} is {array[repetition, step]} at step {step} of repetition {repetition}, and {count} of "
            f"{array.size} values are not finite; repair or leave out these runs."
        )
    return array


def sensitivities(distances: Any, deviations: Any) -> tuple[FloatArray, FloatArray]:
    """Checked (LS, σ) of every step; σ may be 0 only where LS is 0, where the step tells nothing."""
    d = per_step("distances", distances)
    sigma = per_step("deviations", deviations, shape=d.shape)
    for name, values in (("distances", d), ("deviations", sigma)):
        if (values < 0).any():
            repetition, step = np.argwhere(values < 0)[0]
            found = f"{name} is {values[repetition, step]:g} at step {step} of repetition {repetition}"
            raise InputError(f"{found}; it must be at least 0.")
    bare = (sigma == 0) & (d > 0)
    if bare.any():
        repetition, step = np.argwhere(bare)[0]
        raise InputError(
            f"deviations is 0 at step {step} of repetition {repetition}, where the data sets differ by "
            f"{d[repetition, step]:g}: without noise the adversary is certain; pass a run with noise, or "
            "the deviations that a guarantee claims."
        )
    return d, sigma


def in_noise(values: FloatArray, deviations: FloatArray) -> FloatArray:
    """values / σ, and 0 where σ is 0."""
    with np.errstate(over="ignore"):
        return np.where(deviations > 0, values / np.where(deviations > 0, deviations, 1.0), 0.0)


def information(distances: Any, deviations: Any) -> FloatArray:
    """s = Σ_i LS_i²/σ_i² of each repetition: all its steps together are one Gaussian mechanism with μ = √s."""
    steps = in_noise(*sensitivities(distances, deviations))
    with np.errstate(over="ignore"):
        total: FloatArray = np.square(steps).sum(axis=1)
    if not np.isfinite(total).all():
        repetition = int(np.argmax(~np.isfinite(total)))
        raise InputError(f"deviations is so small in repetition {repetition} that Σ LS²/σ² overflows; add noise.")
    return total


def _in_favour(log_odds: Any, trained_on_d: Any) -> tuple[FloatArray, BoolArray]:
    """Final log-odds in favour of the data set that was really used, and the world of each run."""
    final = log_odds
    if np.ndim(log_odds) == 2:
        final = per_step("log_odds", log_odds)[:, -1]
    values, world = check.finite_array("log_odds", final), check.bits("trained_on_d", trained_on_d)
    if values.size != world.size:
        raise InputError(
            f"log_odds has {values.size} repetitions but trained_on_d has {world.size}; they must pair up."
        )
    return np.where(world, values, -values), world


# --- from beliefs -----------------------------------------------------------------------------------------


def epsilon_from_beliefs(log_odds: Any, trained_on_d: Any, *, delta: float, confidence: float = 0.95) -> Estimate:
    """The paper's ε' = ln(β/(1−β)) of the largest final belief β in the truth: a sample maximum, exploratory.

    `log_odds` for D are of shape (repetitions,) or (repetitions, steps), whose last column counts. The bound that the
    same log-odds prove is `bound_from_beliefs`.
    """
    delta, confidence = check.delta(delta), check.confidence(confidence)
    values, _ = _in_favour(log_odds, trained_on_d)
    best = int(np.argmax(values))
    epsilon = max(0.0, float(values[best]))
    covered = float((1 - confidence) ** (1 / values.size))
    return Estimate(
        epsilon=epsilon,
        low=0.0,
        high=math.inf,
        delta=delta,
        confidence=confidence,
        method="beliefs",
        validity=Validity.EXPLORATORY,
        claim=f"The largest belief in the truth after {values.size} runs was {special.expit(epsilon):.4g}, as under "
        f"ε' = {number(epsilon)}; a sample maximum is neither an estimate nor a bound.",
        warnings=(MAXIMUM,),
        details={
            "belief": float(special.expit(epsilon)),
            "repetition": best,
            "repetitions": values.size,
            "share_below": covered,  # of all runs, at least this share stays below the maximum, at `confidence`
            "quantiles": {f"{q:g}": float(np.quantile(values, q)) for q in (0.5, 0.9, 0.99)},
        },
    )


def bound_from_beliefs(
    log_odds: Any, trained_on_d: Any, *, delta: float, confidence: float = 0.95, neighbours: str = "add/remove"
) -> Estimate:
    """The lower bound on ε that final log-odds prove as scores of runs on D (members) and on D' (non-members).

    `neighbours` says how D and D' differ.
    """
    values, world = _in_favour(log_odds, trained_on_d)
    if world.all() or not world.any():
        used = "D" if world.all() else "D'"
        raise InputError(f"trained_on_d says that every run used {used}; a bound needs runs in both worlds.")
    return lower_bound(
        Scores(values[world], -values[~world], independent=True),
        delta=delta,
        confidence=confidence,
        neighbours=neighbours,
    )


# --- from the advantage -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Advantage:
    """2·P[the adversary's guess is right] − 1 with its interval, and how it was estimated.

    `estimator` is "wins" (counted guesses, exact interval) or "trajectory" (mean of 2Φ(√s/2) − 1 over the runs, normal
    interval). `standard_error` is that of `value`.
    """

    value: float
    low: float
    high: float
    standard_error: float
    confidence: float
    estimator: str
    repetitions: int
    both_worlds: bool = True
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain JSON values."""
        return {name: plain(value) for name, value in vars(self).items()}


def wins_from_log_odds(log_odds: Any, trained_on_d: Any) -> FloatArray:
    """1 for each run in which the sign of the final log-odds is right, 0 where it is wrong, ½ at log-odds 0."""
    values, _ = _in_favour(log_odds, trained_on_d)
    return (np.sign(values) + 1) / 2


def advantage_from_wins(log_odds: Any, trained_on_d: Any, *, confidence: float = 0.95) -> Advantage:
    """The advantage by counting right guesses, with Clopper–Pearson limits.

    A run with log-odds 0 is half a win; the lower limit counts it as lost and the upper one as won. Worlds drawn
    by fair coins, or half of the runs each, share one interval; otherwise each world has its own and the level is
    halved.
    """
    confidence = check.confidence(confidence)
    wins, (_, world) = wins_from_log_odds(log_odds, trained_on_d), _in_favour(log_odds, trained_on_d)
    runs, on_d = wins.size, int(world.sum())
    fewest, most = wins == 1, wins >= 0.5
    tail = (1 - confidence) / 2
    both = 0 < on_d < runs
    if not both or abs(2 * on_d - runs) <= _COINS * math.sqrt(runs):
        value, error = 2 * float(wins.mean()) - 1, 2 * float(wins.std()) / math.sqrt(runs)
        low = 2 * float(clopper_pearson_limits(fewest.sum(), runs, tail)[0]) - 1
        high = 2 * float(clopper_pearson_limits(most.sum(), runs, tail)[1]) - 1
    else:
        parts, sizes = (wins[world], wins[~world]), [on_d, runs - on_d]
        value = sum(float(part.mean()) for part in parts) - 1
        error = math.sqrt(sum(float(part.var()) / part.size for part in parts))
        hits = [np.array([side[world].sum(), side[~world].sum()]) for side in (fewest, most)]
        low = float(clopper_pearson_limits(hits[0], sizes, tail / 2)[0].sum()) - 1
        high = float(clopper_pearson_limits(hits[1], sizes, tail / 2)[1].sum()) - 1
    warnings = () if both else (ONE_WORLD,)
    return Advantage(value, min(low, value), max(high, value), error, confidence, "wins", runs, both, warnings)


def advantage_from_trajectories(distances: Any, deviations: Any, *, confidence: float = 0.95) -> Advantage:
    """The mean over the runs of 2Φ(√s/2) − 1, the advantage given each trajectory, with a Student interval.

    With noise scaled to the local sensitivity every s is the same and the interval is a point.
    """
    confidence = check.confidence(confidence)
    # δ(0) of the μ-Gaussian mechanism is its advantage, 2Φ(μ/2) − 1
    values = geometry.delta_from_mu(0.0, np.sqrt(information(distances, deviations)))
    value, runs = float(values.mean()), values.size
    if runs == 1:
        return Advantage(value, 0.0, 1.0, math.inf, confidence, "trajectory", 1, warnings=("one run has no spread",))
    error = float(values.std(ddof=1)) / math.sqrt(runs)
    reach = float(special.stdtrit(runs - 1, (1 + confidence) / 2)) * error
    return Advantage(value, max(0.0, value - reach), min(1.0, value + reach), error, confidence, "trajectory", runs)


def epsilon_from_advantage(advantage: Advantage, *, delta: float, conversion: str = "gaussian") -> Estimate:
    """ε' from an advantage and its interval, through one of three formulas.

    - "gaussian": μ = 2Φ⁻¹((1 + advantage)/2), then the exact ε of the μ-Gaussian mechanism;
    - "classic": √(2 ln(1.25/δ))·μ, the inverse of Bernau et al. 2021, Theorem 3, with the factor 2 its Eq. (6) lacks;
    - "generic": ln((1 + advantage − 2δ)/(1 − advantage)), what the advantage forces on any mechanism.
    """
    if not isinstance(advantage, Advantage):
        raise InputError(
            f"advantage must be an Advantage, got {check.show(advantage)}; pass what advantage_from_trajectories or "
            "advantage_from_wins returns."
        )
    conversion = check.choice("conversion", conversion, CONVERSIONS)
    if conversion == "generic":
        delta = check.delta(delta)
    else:
        delta = check.delta(delta, zero=False, why_not_zero="a Gaussian mechanism has no finite ε at δ = 0")
    shares = np.clip([advantage.low, advantage.value, advantage.high], 0.0, 1.0)
    low, epsilon, high = (float(e) for e in _epsilon(shares, delta, conversion))
    counted = advantage.estimator == "wins"
    exact = counted and conversion == "generic" and advantage.both_worlds
    validity = Validity.ASSUMES_GAUSSIAN
    if conversion == "generic":
        validity = Validity.INDEPENDENT_RUNS if exact else Validity.ASYMPTOTIC
        validity = validity if advantage.both_worlds else Validity.EXPLORATORY
    warned = {"gaussian": (ASSUMPTION,), "classic": (CLASSIC, ASSUMPTION), "generic": ()}[conversion]
    how = f"{advantage.repetitions} guesses" if counted else f"{advantage.repetitions} trajectories"
    span = f"[{advantage.low:.4g}, {advantage.high:.4g}]"
    shown = f"The adversary's advantage over {how} is {advantage.value:.4g} ({percent(advantage.confidence)} {span})"
    if conversion == "generic":
        claim = f"{shown}, and an advantage of {shares[0]:.4g} forces ε ≥ {number(low)} at δ = {delta:g}."
        epsilon, high = low, math.inf
    else:
        formula = "a Gaussian mechanism" if conversion == "gaussian" else "the classic formula"
        claim = f"{shown}, which in {formula} means ε' = {number(epsilon)} at δ = {delta:g}."
    return Estimate(
        epsilon=epsilon,
        low=low,
        high=high,
        delta=delta,
        confidence=advantage.confidence,
        method=f"advantage, {advantage.estimator}",
        validity=validity,
        claim=claim,
        warnings=(*advantage.warnings, *warned),
        details={"conversion": conversion, "advantage": advantage.to_dict()},
    )


def _epsilon(shares: FloatArray, delta: float, conversion: str) -> FloatArray:
    if conversion == "generic":
        return np.maximum(geometry.log_ratio(1 + shares - 2 * delta, 1 - shares), 0.0)
    certain = shares >= 1
    errors = np.where(certain, 0.5, (1 - shares) / 2)
    mu = mu_from_rates(errors, errors)
    found = (
        geometry.epsilon_from_mu(mu, delta) if conversion == "gaussian" else math.sqrt(2 * math.log(1.25 / delta)) * mu
    )
    return np.where(certain, np.inf, found)


# --- beliefs above ρ_β ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BeliefExcess:
    """δ': how often the belief in the truth ends above ρ_β = 1/(1+e^{−ε}), and how often it should.

    `expected` is P[log-odds > ε], the mean of Φ((s/2 − ε)/√s) over the trajectories, or None without them. It lies
    above δ under tight noise: δ is this probability less e^ε times that of the same beliefs in the other world.
    """

    share: float
    low: float
    high: float
    expected: float | None
    epsilon: float
    belief: float
    repetitions: int
    confidence: float

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain JSON values."""
        return {name: plain(value) for name, value in vars(self).items()}


def excess_probability(s: Any, epsilon: float) -> FloatArray:
    """P[log-odds > ε] for log-odds ~ N(s/2, s); a run that tells nothing (s = 0) stays at log-odds 0."""
    total = np.asarray(s, float)
    spread = np.sqrt(np.where(total > 0, total, 1.0))
    tail: FloatArray = special.ndtr((total / 2 - epsilon) / spread)
    return np.where(total > 0, tail, float(epsilon < 0))


def delta_prime(
    log_odds: Any,
    trained_on_d: Any,
    *,
    epsilon: float,
    distances: Any = None,
    deviations: Any = None,
    confidence: float = 0.95,
) -> BeliefExcess:
    """δ' with its Clopper–Pearson interval; with `distances` and `deviations` also what theory expects."""
    epsilon = check.within("epsilon", epsilon, 0.0, math.inf, "pass the ε whose belief ρ_β is the limit")
    confidence = check.confidence(confidence)
    values, _ = _in_favour(log_odds, trained_on_d)
    if (distances is None) != (deviations is None):
        given = "distances" if deviations is None else "deviations"
        raise InputError(f"only {given} is given; pass distances and deviations together, or neither.")
    expected = None
    if distances is not None:
        s = information(distances, deviations)
        if s.size != values.size:
            raise InputError(f"distances has {s.size} repetitions but log_odds has {values.size}; they must pair up.")
        expected = float(excess_probability(s, epsilon).mean())
    above = int((values > epsilon).sum())
    low, high = clopper_pearson_limits(above, values.size, (1 - confidence) / 2)
    return BeliefExcess(
        share=above / values.size,
        low=float(low),
        high=float(high),
        expected=expected,
        epsilon=epsilon,
        belief=float(special.expit(epsilon)),
        repetitions=values.size,
        confidence=confidence,
    )
