"""What an audit of a given size could prove, before anything is trained."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dosimeter import _validate as check
from dosimeter.estimate import Estimate
from dosimeter.estimators.lower_bound import largest_provable, lower_bound
from dosimeter.estimators.one_run import one_run, one_run_bound
from dosimeter.estimators.rates import clopper_pearson
from dosimeter.estimators.with_assumptions import bayesian, gaussian
from dosimeter.evidence import Counts, OneRun, Scores, fair_coins
from dosimeter.geometry import mu_from_epsilon

__all__ = ["ExpectedBound", "Power", "ProvableBound", "RecordsNeeded", "Size", "what_can_be_shown"]

MOST_SIMULATED = 2_000_000  # records in one simulated audit


@dataclass(frozen=True)
class Size:
    """The size of an audit: records for a split, and records and guesses of a one-run audit."""

    members: int
    nonmembers: int
    canaries: int
    guesses: int


@dataclass(frozen=True)
class ProvableBound:
    """What an attack that is right about every record would prove."""

    method: str
    epsilon: float
    validity: str
    setting: str


@dataclass(frozen=True)
class RecordsNeeded:
    """The fewest records with which a perfect attack could show ε; None where δ forbids it."""

    clopper_pearson_each: int | None
    one_run_guesses_at_delta_0: int | None


@dataclass(frozen=True)
class ExpectedBound:
    """The bounds of one estimator in simulated audits."""

    method: str
    mean: float
    lowest: float
    highest: float
    validity: str


@dataclass(frozen=True)
class Power:
    """What an audit can prove: the most for its size and, for a true ε, what is needed and what to expect."""

    budget: Size
    delta: float
    confidence: float
    largest_provable: tuple[ProvableBound, ...]
    true_epsilon: float | None = None
    needed: RecordsNeeded | None = None
    expected: tuple[ExpectedBound, ...] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values only."""
        return asdict(self)


def what_can_be_shown(
    *,
    members: int,
    nonmembers: int | None = None,
    canaries: int | None = None,
    guesses: int | None = None,
    epsilon: float | None = None,
    delta: float = 1e-5,
    confidence: float = 0.95,
    repeats: int = 20,
    seed: int = 0,
) -> Power:
    """Find the largest ε that each estimator could prove and, for a true ε, the bounds to expect.

    Args:
        members: Members with scores.
        nonmembers: Non-members; as many as members if None.
        canaries: Records of a one-run audit; members and non-members together if None.
        guesses: Guesses of the one-run audit, fixed in advance; one for each canary if None.
        epsilon: The true ε, at δ, of a Gaussian mechanism whose audits are simulated; None simulates nothing.
        delta: The δ of the guarantees that are tested.
        confidence: The confidence of every bound.
        repeats: Simulated audits.
        seed: Decides the simulated scores.

    Returns:
        What could be proven.

    Raises:
        InputError: If an argument is out of range.

    >>> round(what_can_be_shown(members=1000).largest_provable[1].epsilon, 1)
    5.8
    """
    size = _size(members, nonmembers, canaries, guesses)
    delta, confidence, seed = check.delta(delta), check.confidence(confidence), check.seed(seed)
    repeats = check.whole("repeats", repeats, 1, "pass the number of simulated audits", 10_000)
    largest = _largest(size, delta, confidence)
    if epsilon is None:
        return Power(size, delta, confidence, largest)
    epsilon = check.within("epsilon", epsilon, 0.0, math.inf, "pass the ε to be shown, e.g. 4", include="()")
    simulated = max(size.members + size.nonmembers, size.canaries)
    check.whole("members", simulated, 1, "simulate a smaller audit, or leave epsilon out", MOST_SIMULATED)
    if delta == 0:
        check.delta(delta, zero=False, why_not_zero="the simulated mechanism is Gaussian and has no ε at δ = 0")
    expected = _expected(size, epsilon, delta, confidence, repeats, seed)
    return Power(size, delta, confidence, largest, epsilon, _needed(epsilon, delta, confidence), expected)


def _size(members: int, nonmembers: int | None, canaries: int | None, guesses: int | None) -> Size:
    members = check.whole("members", members, 1, "pass the number of members", 10**9)
    nonmembers = members if nonmembers is None else check.whole("nonmembers", nonmembers, 1, "pass their number", 10**9)
    if canaries is None:
        canaries = min(members + nonmembers, 10**9)
    canaries = check.whole("canaries", canaries, 1, "pass the records of the one-run audit", 10**9)
    guesses = canaries if guesses is None else guesses
    guesses = check.whole("guesses", guesses, 1, "pass at most the number of canaries", canaries)
    return Size(members, nonmembers, canaries, guesses)


def _largest(size: Size, delta: float, confidence: float) -> tuple[ProvableBound, ...]:
    """What a perfect attack, right about every record, would prove."""
    perfect = Counts(tp=size.members, fn=0, fp=0, tn=size.nonmembers)
    rows = []
    if size.members + size.nonmembers <= MOST_SIMULATED:
        every = np.arange(float(size.members + size.nonmembers))
        scores = Scores(every[size.nonmembers :], every[: size.nonmembers])
        for neighbours in ("replace", "add/remove"):
            bound = lower_bound(scores, delta=delta, confidence=confidence, neighbours=neighbours)
            name = f"lower_bound, {neighbours}"
            rows.append(ProvableBound(name, bound.low, str(bound.validity), "one model, random split"))
    for name, estimate in (
        ("clopper_pearson", clopper_pearson(perfect, delta=delta, confidence=confidence)),
        ("bayesian", bayesian(perfect, delta=delta, confidence=confidence)),
    ):
        rows.append(ProvableBound(name, estimate.low, str(estimate.validity), "one threshold fixed in advance"))
    if size.canaries <= MOST_SIMULATED:
        coins = largest_provable(size.canaries // 2, size.canaries, "coins", "add/remove", delta, 1 - confidence)
        rows.append(ProvableBound("lower_bound, coins", coins, "finite-sample", "one run, a fair coin for each canary"))
    guesses = size.guesses
    single = one_run_bound(records=size.canaries, guesses=guesses, correct=guesses, delta=delta, confidence=confidence)
    setting = f"one run, {guesses} guesses fixed in advance"
    return (*rows, ProvableBound("one_run", float(single), "finite-sample", setting))


def _needed(epsilon: float, delta: float, confidence: float) -> RecordsNeeded:
    """How many records a perfect attack needs.

    Clopper–Pearson: each rate's upper limit is 1 − (α/2)^{1/n} and must be (1−δ)/(1+e^ε). One run, at δ = 0: a^{1/r}
    must be e^ε/(1+e^ε), that is ε = −ln(a^{−1/r} − 1).
    """
    level = 1 - confidence
    limit = (1 - delta) / (1 + math.exp(min(epsilon, 700.0)))
    right = -math.log1p(math.exp(-epsilon))
    return RecordsNeeded(
        clopper_pearson_each=math.ceil(math.log(level / 2) / math.log1p(-limit)) if limit < 1 else None,
        one_run_guesses_at_delta_0=math.ceil(math.log(level) / right) if right < 0 else None,
    )


def _expected(
    size: Size, epsilon: float, delta: float, confidence: float, repeats: int, seed: int
) -> tuple[ExpectedBound, ...]:
    """Bounds from simulated audits of the Gaussian mechanism that has exactly this (ε, δ), by its best attack."""
    mu = float(mu_from_epsilon(epsilon, delta))
    common: dict[str, Any] = {"delta": delta, "confidence": confidence}
    rate: dict[str, Callable[[Scores], Estimate]] = {
        "lower_bound, replace": lambda s: lower_bound(s, **common),
        "lower_bound, add/remove": lambda s: lower_bound(s, neighbours="add/remove", **common),
        "clopper_pearson, split": lambda s: clopper_pearson(s, threshold="split", **common),
        "bayesian, split": lambda s: bayesian(s, threshold="split", **common),
        "gaussian": lambda s: gaussian(s, **common),
    }
    single: dict[str, Callable[[OneRun], Estimate]] = {
        "lower_bound, coins": lambda s: lower_bound(s, **common),
        "one_run": lambda s: one_run(s, **common),
        f"one_run, {size.guesses} guesses": lambda s: one_run(s, guesses=size.guesses, **common),
    }
    bounds: dict[str, list[Estimate]] = {name: [] for name in (*rate, *single)}
    for child in np.random.SeedSequence(seed).spawn(repeats):
        rng = np.random.default_rng(child)
        scores = Scores(rng.normal(mu, 1, size.members), rng.normal(0, 1, size.nonmembers))
        mask_seed = int(rng.integers(2**31))
        included = fair_coins(size.canaries, mask_seed)
        trial = OneRun(rng.normal(0, 1, size.canaries) + mu * included, included, mask_seed)
        for name, method in rate.items():
            bounds[name].append(method(scores))
        for name, guess in single.items():
            bounds[name].append(guess(trial))
    return tuple(_summary(name, estimates) for name, estimates in bounds.items())


def _summary(name: str, estimates: list[Estimate]) -> ExpectedBound:
    lows = [estimate.low for estimate in estimates]
    return ExpectedBound(name, float(np.mean(lows)), min(lows), max(lows), str(estimates[-1].validity))
