"""The least noise for a target: ε, a tolerable belief, a tolerable advantage, a tolerable TPR at an FPR.

A search starts from a cheap answer (a closed form or the central limit) and follows the accountant's own function, so
that the noise it returns, put back into that accountant, never exceeds the target.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from scipy import special

from dosimeter import _validate as check
from dosimeter._validate import InputError
from dosimeter.accounting.accountants import ACCOUNTANTS, applicable
from dosimeter.accounting.mechanism import NOISE_RANGE, Mechanism, PhaseKind, dp_sgd
from dosimeter.accounting.pld import COARSEST, grid_for, pld
from dosimeter.accounting.profile import (
    REFERENCE_DELTA,
    Profile,
    advantage_from_profile,
    privacy_profile,
    tpr_from_profile,
)
from dosimeter.accounting.rdp import rdp
from dosimeter.geometry import mu_from_epsilon

_COARSER = 8.0
_CLOSE = 2e-6  # relative distance below the target at which the search ends


def noise_for_epsilon(
    epsilon: float,
    *,
    delta: float,
    sample_rate: float = 1.0,
    steps: int = 1,
    sampling: str = "poisson",
    neighbours: str | None = None,
    method: str | None = None,
    orders: Any = None,
) -> float:
    """Find the smallest noise multiplier whose ε is at most `epsilon`.

    Args:
        epsilon: The largest ε that is tolerable.
        delta: The δ of the guarantee.
        sample_rate: Batch size over records.
        steps: The number of steps.
        sampling: "poisson", "without-replacement" or "shuffled".
        neighbours: Whose ε; by default what the sampling can be bounded for.
        method: The accountant: by default "pld", or "rdp" for sampling without replacement.
        orders: Rényi orders, for "rdp" and "rdp-classic".

    Returns:
        The noise multiplier.

    Raises:
        InputError: If an argument is out of range, or no noise is enough.

    >>> round(noise_for_epsilon(2.0, delta=1e-5, sample_rate=0.02, steps=5000), 3)
    2.928
    """
    epsilon = check.within("epsilon", epsilon, 0.0, math.inf, "pass the ε to stay below, e.g. 8", include="()")
    delta = check.delta(delta, zero=False, why_not_zero="no amount of Gaussian noise gives a finite ε at δ = 0")
    make = _maker(sample_rate, steps, sampling, neighbours)
    possible = [name for name in applicable(make(1.0)) if name in ACCOUNTANTS]
    usual = "pld" if "pld" in possible else "rdp"
    method = check.choice("method", usual if method is None else method, possible)
    if orders is not None:
        conversion = {"rdp": "improved", "rdp-classic": "classic"}.get(method)
        if conversion is None:
            raise InputError(f'orders are for the methods "rdp" and "rdp-classic", not {method!r}; leave them out.')
        return _least_noise(
            lambda z: rdp(make(z), delta=delta, conversion=conversion, orders=orders).epsilon,
            epsilon,
            _guess(make, float(mu_from_epsilon(epsilon, delta))),
            "epsilon",
        )[0]
    mu = float(mu_from_epsilon(epsilon, delta))
    if method in ("pld", "gaussian") and _full_batch(make):
        return _closed_form(make, mu, lambda z: ACCOUNTANTS[method](make(z), delta).epsilon, epsilon)
    _refuse_what_needs_no_noise(make, "epsilon", delta, "δ", 0.0)
    guess = _guess(make, mu)
    if method != "pld":
        return _least_noise(lambda z: ACCOUNTANTS[method](make(z), delta).epsilon, epsilon, guess, "epsilon")[0]

    def coarse(noise: float) -> float:
        run = make(noise)
        grid = grid_for(run, delta)  # beyond the coarsest one no distribution is made, and none with millions of cells
        return pld(run, delta=delta, grid=min(_COARSER * grid, COARSEST) if grid <= COARSEST else None).epsilon

    return _two_grids(coarse, lambda z: pld(make(z), delta=delta).epsilon, epsilon, guess, "epsilon")


def noise_for_belief(
    belief: float,
    *,
    delta: float,
    prior: float = 0.5,
    sample_rate: float = 1.0,
    steps: int = 1,
    sampling: str = "poisson",
    neighbours: str | None = None,
    method: str | None = None,
    orders: Any = None,
) -> float:
    """Find the smallest noise multiplier under which no adversary's belief in a person's presence exceeds `belief`.

    The adversary starts at `prior` and knows everything else: ε = logit(belief) − logit(prior). The guarantee, and with
    it the limit on the belief, may fail with probability δ.

    Args:
        belief: The largest belief that is tolerable.
        delta: The δ of the guarantee.
        prior: What the adversary believes beforehand.
        sample_rate: Batch size over records.
        steps: The number of steps.
        sampling: "poisson", "without-replacement" or "shuffled".
        neighbours: Whose ε; by default what the sampling can be bounded for.
        method: The accountant: by default "pld", or "rdp" for sampling without replacement.
        orders: Rényi orders, for "rdp" and "rdp-classic".

    Returns:
        The noise multiplier.

    Raises:
        InputError: If an argument is out of range, or the belief is not above the prior.

    >>> round(noise_for_belief(0.9, delta=1e-5, sample_rate=0.02, steps=5000), 3)
    2.707
    """
    prior = check.within("prior", prior, 0.0, 1.0, "pass the belief before the model was seen, e.g. 0.5", include="()")
    remedy = f"pass a belief above the prior {prior:g}, which even infinite noise leaves, and below 1"
    belief = check.within("belief", belief, prior, 1.0, remedy, include="()")
    epsilon = math.log(belief / (1 - belief)) - math.log(prior / (1 - prior))
    return noise_for_epsilon(
        epsilon,
        delta=delta,
        sample_rate=sample_rate,
        steps=steps,
        sampling=sampling,
        neighbours=neighbours,
        method=method,
        orders=orders,
    )


def noise_for_advantage(
    advantage: float,
    *,
    sample_rate: float = 1.0,
    steps: int = 1,
    sampling: str = "poisson",
    neighbours: str | None = None,
) -> float:
    """Find the smallest noise multiplier under which no membership test has TPR − FPR above `advantage`.

    No δ is involved: the advantage is δ(0) of the whole privacy curve.

    Args:
        advantage: The largest advantage that is tolerable.
        sample_rate: Batch size over records.
        steps: The number of steps.
        sampling: "poisson", "without-replacement" or "shuffled".
        neighbours: Between which data sets; by default what the sampling can be bounded for.

    Returns:
        The noise multiplier.

    Raises:
        InputError: If an argument is out of range.

    >>> round(noise_for_advantage(0.1, sample_rate=0.02, steps=5000), 3)
    5.669
    """
    remedy = "pass the tolerable TPR − FPR, e.g. 0.1; 0 needs infinite noise and 1 needs none"
    advantage = check.within("advantage", advantage, 0.0, 1.0, remedy, include="()")
    make = _maker(sample_rate, steps, sampling, neighbours)
    mu = 2 * float(special.ndtri((1 + advantage) / 2))

    def value(noise: float) -> float:
        return advantage_from_profile(privacy_profile(make(noise)))

    def coarse(noise: float) -> float:
        return advantage_from_profile(_coarse_profile(make(noise)))

    if _full_batch(make):
        return _closed_form(make, mu, value, advantage)
    _refuse_what_needs_no_noise(make, "advantage", advantage, "the advantage", 0.0)
    return _two_grids(coarse, value, advantage, _guess(make, mu), "advantage")


def noise_for_tpr(
    tpr: float,
    *,
    fpr: float,
    sample_rate: float = 1.0,
    steps: int = 1,
    sampling: str = "poisson",
    neighbours: str | None = None,
) -> float:
    """Find the smallest noise multiplier under which no membership test has a TPR above `tpr` at the FPR `fpr`.

    Args:
        tpr: The largest true positive rate that is tolerable.
        fpr: The false positive rate that it is read at.
        sample_rate: Batch size over records.
        steps: The number of steps.
        sampling: "poisson", "without-replacement" or "shuffled".
        neighbours: Between which data sets; by default what the sampling can be bounded for.

    Returns:
        The noise multiplier.

    Raises:
        InputError: If an argument is out of range, or `tpr` is not above `fpr`.

    >>> round(noise_for_tpr(0.05, fpr=0.01, sample_rate=0.02, steps=5000), 3)
    2.195
    """
    fpr = check.within("fpr", fpr, 0.0, 1.0, "pass the false-positive rate, e.g. 0.01", include="()")
    remedy = f"pass a TPR above the FPR {fpr:g}, which even infinite noise leaves, and below 1"
    tpr = check.within("tpr", tpr, fpr, 1.0, remedy, include="()")
    make = _maker(sample_rate, steps, sampling, neighbours)
    mu = float(special.ndtri(tpr) - special.ndtri(fpr))

    def value(noise: float) -> float:
        return tpr_from_profile(privacy_profile(make(noise)), fpr)

    def coarse(noise: float) -> float:
        return tpr_from_profile(_coarse_profile(make(noise)), fpr)

    if _full_batch(make):
        return _closed_form(make, mu, lambda noise: float(special.ndtr(special.ndtri(fpr) + _mu(make, noise))), tpr)
    _refuse_what_needs_no_noise(make, "tpr", tpr, "the TPR", fpr)
    return _two_grids(coarse, value, tpr, _guess(make, mu), "tpr", floor=fpr)


# --- the search -------------------------------------------------------------------------------------------

Maker = Callable[[float], Mechanism]


def _maker(sample_rate: float, steps: int, sampling: str, neighbours: str | None) -> Maker:
    dp_sgd(1.0, sample_rate, steps, sampling, neighbours)  # refuses bad settings before any work
    return lambda noise: dp_sgd(noise, sample_rate, steps, sampling, neighbours)


def _full_batch(make: Maker) -> bool:
    return all(phase.kind is PhaseKind.GAUSSIAN for phase in make(1.0).phases)


def _mu(make: Maker, noise: float) -> float:
    return math.sqrt(math.fsum(phase.steps / phase.noise**2 for phase in make(noise).phases))


def _refuse_what_needs_no_noise(make: Maker, name: str, limit: float, what: str, fpr: float) -> None:
    """Poisson batches hide a record that is in none of them, whatever the noise."""
    (phase,) = make(1.0).phases
    if phase.kind not in (PhaseKind.POISSON, PhaseKind.POISSON_REPLACE):
        return
    seen = -math.expm1(phase.steps * math.log1p(-phase.rate))
    reachable = seen + (1 - seen) * fpr
    if limit >= reachable:
        raise InputError(
            f"{name} is too loose: a record is in some batch with probability {seen:.4g} only, so that {what} stays "
            f"below {reachable:.4g} without any noise; choose a stricter target."
        )


def _closed_form(make: Maker, mu: float, value: Callable[[float], float], target: float) -> float:
    """noise = √steps·sensitivity/μ, moved up by rounding errors until the target holds."""
    noise = min(max(_mu(make, 1.0) / max(mu, 1e-300), NOISE_RANGE[0]), NOISE_RANGE[1])
    nudge = 1e-15
    while value(noise) > target:
        if noise >= NOISE_RANGE[1]:
            raise InputError(f"the target {target:g} is too strict: a noise multiplier of {noise:g} does not reach it.")
        noise, nudge = min(noise * (1 + nudge), NOISE_RANGE[1]), nudge * 2
    return noise


def _guess(make: Maker, mu: float) -> float:
    """The noise at which the central limit of sampled steps has this μ."""
    mu = max(mu, 1e-9)
    total = 0.0
    for phase in make(1.0).phases:
        sensitivity = 1 / phase.noise
        ratio = mu / phase.rate / math.sqrt(phase.steps)
        spread = 2 * math.log(ratio) if ratio > 1e100 else math.log1p(ratio**2)
        total = max(total, sensitivity / math.sqrt(spread))
    return min(max(total, 10 * NOISE_RANGE[0]), NOISE_RANGE[1] / 10)


def _coarse_profile(value: Mechanism) -> Profile:
    if any(phase.kind is PhaseKind.WITHOUT_REPLACEMENT for phase in value.phases):
        return privacy_profile(value)
    return privacy_profile(value, grid=_COARSER * grid_for(value, REFERENCE_DELTA))


def _two_grids(
    coarse: Callable[[float], float],
    fine: Callable[[float], float],
    target: float,
    guess: float,
    name: str,
    *,
    floor: float = 0.0,
) -> float:
    """Most of the search on a coarse grid; its answer and slope then leave two or three steps for the fine one."""
    near, slope = _least_noise(coarse, target, guess, name, floor=floor, close=1e-5)
    return _least_noise(fine, target, near, name, floor=floor, slope=slope)[0]


def _least_noise(
    value: Callable[[float], float],
    target: float,
    guess: float,
    name: str,
    *,
    floor: float = 0.0,
    close: float = _CLOSE,
    slope: float = -1.0,
) -> tuple[float, float]:
    """The least noise with value(noise) ≤ target, for a value that falls towards `floor`, and the slope there.

    Secant steps on ln(value − floor) against ln noise, aimed a little below the target and kept inside the bracket.
    Where the value goes down in stairs, as that of a grid does at a large ε, the bracket is halved.
    """
    goal = math.log(target - floor)
    aim = goal - close / 2
    ends = (math.log(NOISE_RANGE[0]), math.log(NOISE_RANGE[1]))

    def height(log_noise: float) -> float:
        above = value(math.exp(log_noise)) - floor
        return math.log(above) if above > 0 else -math.inf

    low, high = -math.inf, math.inf  # too little noise, enough noise
    narrow = close / 2
    last: tuple[float, float] | None = None
    point = math.log(guess)
    for trial in range(200):
        here = height(point)
        if goal - close <= here <= goal or (here <= goal and point - low < narrow):
            return math.exp(point), slope
        if here > goal:
            low = max(low, point)
        else:
            high = min(high, point)
        if last is not None and all(map(math.isfinite, (here, last[1]))) and (here - last[1]) * (point - last[0]) < 0:
            slope = min(max((here - last[1]) / (point - last[0]), -1e6), -1e-3)
        stair = last is not None and here == last[1]
        step = (aim - here) / slope if math.isfinite(here) else math.copysign(1.0, here)
        last = (point, here)
        proposal = point + min(max(step, -2.0), 2.0)
        if not math.isfinite(high - low):
            if here > goal and point >= ends[1]:
                raise InputError(f"{name} is too strict: a noise multiplier of {NOISE_RANGE[1]:g} does not reach it.")
            if here <= goal and point <= ends[0]:
                raise InputError(f"{name} is too loose: a noise multiplier of {NOISE_RANGE[0]:g} stays below it.")
            at_least = 1e-3 * 2.0 ** min(trial, 10)  # a first step that fell short is not repeated
            away = max(abs(proposal - point), at_least)
            point = min(max(point + math.copysign(away, here - goal), ends[0]), ends[1])
        elif low < proposal < high and trial % 6 != 5 and not stair:
            point = proposal
        else:
            point = (low + high) / 2
        if high - low < narrow:
            break
    return math.exp(high), slope
