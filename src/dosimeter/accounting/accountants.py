"""All accountants at once: the same run, many ε; and the least noise for an ε by one of them.

The search for noise starts from a cheap answer (a closed form or the central limit) and follows the accountant's own
function, so that the noise it returns, put back into that accountant, never exceeds the target.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from dosimeter import _validate as check
from dosimeter._validate import InputError
from dosimeter.accounting.composition import advanced, by_epochs, naive
from dosimeter.accounting.gdp import gdp_clt
from dosimeter.accounting.mechanism import (
    NOISE_RANGE,
    DpSgd,
    Guarantee,
    Mechanism,
    PhaseKind,
    Sampling,
    dp_sgd,
    mechanism,
)
from dosimeter.accounting.pld import COARSEST, exact, grid_for, pld
from dosimeter.accounting.rdp import rdp
from dosimeter.accounting.zcdp import zcdp
from dosimeter.geometry import mu_from_epsilon

Accountant = Callable[[Mechanism, float], Guarantee]

ACCOUNTANTS: dict[str, Accountant] = {
    "naive": lambda m, d: naive(m, delta=d),
    "naive-exact": lambda m, d: naive(m, delta=d, gaussian="exact"),
    "advanced": lambda m, d: advanced(m, delta=d),
    "advanced-exact": lambda m, d: advanced(m, delta=d, gaussian="exact"),
    "zcdp-classic": lambda m, d: zcdp(m, delta=d, conversion="classic"),
    "zcdp": lambda m, d: zcdp(m, delta=d),
    "rdp-classic": lambda m, d: rdp(m, delta=d, conversion="classic"),
    "rdp": lambda m, d: rdp(m, delta=d),
    "pld": lambda m, d: pld(m, delta=d),
    "gaussian": lambda m, d: exact(m, delta=d),
}
"""Accountants whose value is a proven bound, save where the classic Gaussian step fails, which they flag."""


def _epochs(accountant: Callable[..., Guarantee], method: str, **options: Any) -> Accountant:
    def account_by_epochs(value: Mechanism, delta: float) -> Guarantee:
        assert isinstance(value, DpSgd)
        shuffled, warnings = by_epochs(value)
        result = accountant(shuffled, delta=delta, method=method, **options)
        return Guarantee(
            result.epsilon,
            delta,
            method,
            str(value.neighbours),
            str(value.sampling),
            result.is_bound and not warnings,
            {**result.details, "visits": shuffled.visits},
            (*warnings, *result.warnings),
        )

    return account_by_epochs


def _as_if_poisson(value: Mechanism, delta: float) -> Guarantee:
    assert isinstance(value, DpSgd)
    result = pld(DpSgd(value.noise_multiplier, value.sample_rate, value.steps), delta=delta)
    warning = "accounts as if the batches were Poisson samples; for shuffled batches nobody has proven this value"
    return Guarantee(
        result.epsilon,
        delta,
        "pld-as-if-poisson",
        str(value.neighbours),
        str(value.sampling),
        False,
        result.details,
        (warning,),
    )


FORMULAS: dict[str, Accountant] = {
    "naive-epochs": _epochs(naive, "naive-epochs"),
    "advanced-epochs": _epochs(advanced, "advanced-epochs", mean="square", split=0.5),
    "zcdp-epochs": _epochs(zcdp, "zcdp-epochs", conversion="classic"),
    "gdp-clt": lambda m, d: gdp_clt(m, delta=d),
    "pld-as-if-poisson": _as_if_poisson,
}
"""Values that other tools and papers print for such runs; not bounds for the sampling they are printed for."""


def applicable(value: Mechanism) -> list[str]:
    """The names of the accountants and formulas that say something about a mechanism."""
    kinds = {phase.kind for phase in value.phases}
    names = list(ACCOUNTANTS)
    if PhaseKind.POISSON_REPLACE in kinds:
        names = ["zcdp-classic", "zcdp", "pld"]
    if PhaseKind.WITHOUT_REPLACEMENT in kinds:
        names.remove("pld")
    if kinds != {PhaseKind.GAUSSIAN} and "gaussian" in names:
        names.remove("gaussian")
    if isinstance(value, DpSgd) and value.sample_rate < 1:
        if value.sampling is Sampling.SHUFFLED:
            names.append("pld-as-if-poisson")
        elif PhaseKind.POISSON in kinds:
            names += ["naive-epochs", "advanced-epochs", "zcdp-epochs"]
    if PhaseKind.POISSON in kinds:
        names.append("gdp-clt")
    return names


def account(
    value: Mechanism | Sequence[Mechanism] | None = None,
    *,
    delta: float,
    noise_multiplier: float | None = None,
    sample_rate: float = 1.0,
    steps: int = 1,
    sampling: str = "poisson",
    neighbours: str | None = None,
    methods: Sequence[str] | None = None,
) -> list[Guarantee]:
    """Ask every accountant about one run.

    Give a mechanism, a list of mechanisms that are composed, or the numbers of DP-SGD.

    Args:
        value: The mechanism, or a list of them.
        delta: The δ of the guarantees.
        noise_multiplier: Instead of a mechanism: the noise of DP-SGD over its clipping norm.
        sample_rate: Batch size over records.
        steps: The number of steps.
        sampling: "poisson", "without-replacement" or "shuffled".
        neighbours: Whose ε; by default what the sampling can be bounded for.
        methods: The accountants to ask; by default all that can say something.

    Returns:
        One guarantee for each accountant. Formulas that are printed elsewhere but are not bounds have `is_bound` False.

    Raises:
        InputError: If both or neither of a mechanism and its numbers are given, or an argument is out of range.

    >>> found = account(noise_multiplier=1.1, sample_rate=0.02, steps=5000, delta=1e-5, methods=["rdp", "pld"])
    >>> for guarantee in found:
    ...     print(guarantee.method, round(guarantee.epsilon, 2))
    rdp 8.51
    pld 7.86
    """
    if value is None:
        if noise_multiplier is None:
            raise InputError("noise_multiplier is missing; pass it, or a mechanism such as DpSgd(1.1, 0.02, 5000).")
        value = dp_sgd(noise_multiplier, sample_rate, steps, sampling, neighbours)
    elif noise_multiplier is not None:
        raise InputError("noise_multiplier and a mechanism were both given; pass one of them.")
    run = mechanism(value)
    delta = check.delta(delta, zero=False, why_not_zero="the Gaussian mechanism has no finite ε at δ = 0")
    possible = applicable(run)
    if isinstance(methods, str):
        methods = [methods]
    if not isinstance(methods, (list, tuple, type(None))):
        raise InputError(f"methods must be a list of names, got {check.show(methods)}; pass e.g. ['pld'].")
    wanted = possible if methods is None else [check.choice("methods", name, possible) for name in methods]
    everything = {**ACCOUNTANTS, **FORMULAS}
    return [everything[name](run, delta) for name in wanted]


COARSER = 8.0
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
    make = maker(sample_rate, steps, sampling, neighbours)
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
            first_noise(make, float(mu_from_epsilon(epsilon, delta))),
            "epsilon",
        )[0]
    mu = float(mu_from_epsilon(epsilon, delta))
    if method in ("pld", "gaussian") and full_batch(make):
        return closed_form(make, mu, lambda z: ACCOUNTANTS[method](make(z), delta).epsilon, epsilon)
    refuse_what_needs_no_noise(make, "epsilon", delta, "δ", 0.0)
    guess = first_noise(make, mu)
    if method != "pld":
        return _least_noise(lambda z: ACCOUNTANTS[method](make(z), delta).epsilon, epsilon, guess, "epsilon")[0]

    def coarse(noise: float) -> float:
        run = make(noise)
        grid = grid_for(run, delta)  # beyond the coarsest one no distribution is made, and none with millions of cells
        return pld(run, delta=delta, grid=min(COARSER * grid, COARSEST) if grid <= COARSEST else None).epsilon

    return two_grids(coarse, lambda z: pld(make(z), delta=delta).epsilon, epsilon, guess, "epsilon")


# --- the search -------------------------------------------------------------------------------------------
Maker = Callable[[float], Mechanism]


def maker(sample_rate: float, steps: int, sampling: str, neighbours: str | None) -> Maker:
    """The run as a function of its noise."""
    dp_sgd(1.0, sample_rate, steps, sampling, neighbours)  # refuses bad settings before any work
    return lambda noise: dp_sgd(noise, sample_rate, steps, sampling, neighbours)


def full_batch(make: Maker) -> bool:
    """Whether every step sees every record."""
    return all(phase.kind is PhaseKind.GAUSSIAN for phase in make(1.0).phases)


def mu_of(make: Maker, noise: float) -> float:
    """μ of full batches with this noise."""
    return math.sqrt(math.fsum(phase.steps / phase.noise**2 for phase in make(noise).phases))


def refuse_what_needs_no_noise(make: Maker, name: str, limit: float, what: str, fpr: float) -> None:
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


def closed_form(make: Maker, mu: float, value: Callable[[float], float], target: float) -> float:
    """noise = √steps·sensitivity/μ, moved up by rounding errors until the target holds."""
    noise = min(max(mu_of(make, 1.0) / max(mu, 1e-300), NOISE_RANGE[0]), NOISE_RANGE[1])
    nudge = 1e-15
    while value(noise) > target:
        if noise >= NOISE_RANGE[1]:
            raise InputError(f"the target {target:g} is too strict: a noise multiplier of {noise:g} does not reach it.")
        noise, nudge = min(noise * (1 + nudge), NOISE_RANGE[1]), nudge * 2
    return noise


def first_noise(make: Maker, mu: float) -> float:
    """The noise at which the central limit of sampled steps has this μ."""
    mu = max(mu, 1e-9)
    total = 0.0
    for phase in make(1.0).phases:
        sensitivity = 1 / phase.noise
        ratio = mu / phase.rate / math.sqrt(phase.steps)
        spread = 2 * math.log(ratio) if ratio > 1e100 else math.log1p(ratio**2)
        total = max(total, sensitivity / math.sqrt(spread))
    return min(max(total, 10 * NOISE_RANGE[0]), NOISE_RANGE[1] / 10)


def two_grids(
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
