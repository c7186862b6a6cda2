"""Lower bounds on ε from one training run with randomly included records.

Each of m audit records is put into the training set by an independent fair coin. From the output alone the
auditor guesses "in" for the highest scores and "out" for the lowest, and abstains in between. Under ε every
guess is right with probability at most q = 1/(1+e^−ε), whatever the training algorithm does.

Four ways to turn right guesses into ε: the binomial tail with the δ-term of Steinke, Nasr and Jagielski (2023) or
with the coupling term m·δ/(1+e^ε); the ranked walk over all numbers of guesses (`ranked`); rank betting, also over
all of them (`rank_betting`); and the f-DP recursion of Mahloujifar, Melis and Chaudhuri (2025).
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import special

from dosimeter import _validate as check
from dosimeter import geometry
from dosimeter._validate import BoolArray, FloatArray, InputError
from dosimeter.estimate import Estimate, Validity, number, percent, proven
from dosimeter.estimators.lower_bound import lower_bound
from dosimeter.estimators.ranked import Guesses, guess, logit_bound, rank_betting, ranked
from dosimeter.evidence import MOST_RECORDS, OneRun

TERMS = ("smaller", "steinke", "coupling")
METHODS = ("binomial", "betting", "f-dp")
SCANS = ("learned", "ranked")
STEPS = 5000  # of the f-DP recursion, which nearly always stops after about 50; cutting it short is conservative


# --- the binomial tail with a δ-term ----------------------------------------------------------------------
def _tail(least: float, trials: float, miss: float) -> float:
    """P[Bin(trials, 1 − miss) ≥ least]."""
    if least <= 0:
        return 1.0
    return float(special.betaincc(trials - least + 1.0, least, miss))


def _stirling_error(n: float) -> float:
    """ln n! minus Stirling's formula, n ≥ 1."""
    if n < 16:
        return math.lgamma(n + 1) - (n + 0.5) * math.log(n) + n - 0.5 * math.log(2 * math.pi)
    square = 1.0 / (n * n)
    return (1 / 12 - square * (1 / 360 - square * (1 / 1260 - square / 1680))) / n


def _log_pmf(k: float, trials: float, miss: float) -> float:
    """ln P[Bin(trials, 1 − miss) = k], by Stirling's error so that nothing cancels at 1e9 trials."""
    if k < 0 or k > trials:
        return -math.inf
    if k == 0:
        return trials * math.log(miss)
    if k == trials:
        return trials * math.log1p(-miss)
    rest = trials - k
    mean = trials * (1.0 - miss)
    excess = k - mean
    deviance = k * math.log1p(excess / mean) + rest * math.log1p(-excess / (trials * miss))
    stirling = _stirling_error(trials) - _stirling_error(k) - _stirling_error(rest)
    return stirling - deviance + 0.5 * math.log(trials / (2 * math.pi * k * rest))


def _window_mean(correct: float, width: float, trials: float, miss: float) -> float:
    """P[v−i ≤ Bin < v] / i for a window of i counts below v."""
    if width == 1.0:
        return math.exp(_log_pmf(correct - 1.0, trials, miss))
    return (_tail(correct - width, trials, miss) - _tail(correct, trials, miss)) / width


def _widest_mean(correct: float, trials: float, miss: float) -> float:
    """The i in 1…v for which P[v−i ≤ Bin < v] / i is largest.

    The ratio is the running mean of the pmf walked down from v − 1. The pmf has one mode, so the mean rises as
    long as the next term is above it: the maximum is found by binary search, in O(log v) incomplete betas.
    """
    mode = math.floor((trials + 1.0) * (1.0 - miss))
    if correct <= mode:
        return 1.0
    low = max(1.0, correct - 1.0 - mode)
    spread = math.sqrt(trials * miss * (1.0 - miss))
    high = min(correct, math.ceil(low + 9.0 * spread + 10.0))
    while low < high:
        middle = float((low + high) // 2)
        if math.exp(_log_pmf(correct - middle - 1.0, trials, miss)) <= _window_mean(correct, middle, trials, miss):
            high = middle
        else:
            low = middle + 1.0
    return low


def one_run_p_value(
    *,
    records: int,
    guesses: int,
    correct: int,
    epsilon: float,
    delta: float,
    term: str = "smaller",
    only_in: bool = False,
) -> float:
    """The p-value of "(ε, δ)-DP" when `correct` of `guesses` guesses about `records` audit records were right.

    P[Bin(r,q) ≥ v] plus a δ-term: "steinke" is 2mδ·max_i P[v−i ≤ Bin(r,q) < v]/i (Steinke et al. 2023, Thm. 5.2),
    "coupling" is mδ/(1+e^ε), halved by `only_in` when all guesses are of one kind; "smaller" takes the smaller.
    """
    m, r, v = _check_guesses(records, guesses, correct)
    value = check.within("epsilon", epsilon, 0.0, math.inf, "pass the ε to be tested", include="[)")
    d = check.delta(delta)
    name = check.choice("term", term, TERMS)
    miss = float(special.expit(-value))
    if v == 0 or miss == 0.0:
        return 1.0
    extra = math.inf
    if name != "coupling":
        extra = 2.0 * m * d * _window_mean(v, _widest_mean(v, r, miss), r, miss)
    if name != "steinke":
        extra = min(extra, m * d * miss * (0.5 if only_in else 1.0))
    return min(1.0, _tail(v, r, miss) + extra)


def one_run_bound(
    *,
    records: int,
    guesses: int,
    correct: int,
    delta: float,
    confidence: float = 0.95,
    term: str = "smaller",
    only_in: bool = False,
) -> float:
    """The largest ε whose p-value is at most 1 − confidence; the number of guesses must be fixed in advance."""
    m, r, v = _check_guesses(records, guesses, correct)
    d = check.delta(delta)
    level = 1.0 - check.confidence(confidence)
    name = check.choice("term", term, TERMS)
    limit = float(logit_bound(r, v, level))
    if d == 0.0 or limit <= 0.0:
        return max(0.0, limit)
    # The smaller of two p-values rejects what either of them rejects.
    steinke = 0.0 if name == "coupling" else _steinke_bound(v, r, 2.0 * m * d, limit, level)
    coupling = 0.0 if name == "steinke" else _coupling_bound(v, r, m * d * (0.5 if only_in else 1.0), limit, level)
    return max(steinke, coupling)


def _steinke_bound(correct: float, trials: float, cost: float, limit: float, level: float) -> float:
    """The largest ε in [0, limit] with tail + cost·max_i mean_i ≤ level.

    For one window i the derivative of tail + cost·mean_i with respect to q is
    trials·(b(v−1)(1 − cost/i) + b(v−i−1)·cost/i), b the pmf of one trial fewer: it changes its sign at most once,
    from + to −, and the value ends at 1. So each window rejects an interval from 0 on, and the bound is the smallest
    of their ends: start at `limit`, take the worst window there, move to its end, and so on down; if that has not
    arrived after a few windows, bracket the end.
    """

    def p_value(e: float, width: float | None = None) -> float:
        miss = float(special.expit(-e))
        i = _widest_mean(correct, trials, miss) if width is None else width
        return _tail(correct, trials, miss) + cost * _window_mean(correct, i, trials, miss)

    if p_value(0.0) > level:
        return 0.0
    here = limit
    for _ in range(4):
        width = _widest_mean(correct, trials, float(special.expit(-here)))
        if p_value(here, width) <= level * (1.0 + 1e-13):
            return here
        here = _root(functools.partial(_log_gap, p_value, level, width), 0.0, here)
    if p_value(here) <= level * (1.0 + 1e-13):
        return here
    return _root(functools.partial(_log_gap, p_value, level, None), 0.0, here)


def _log_gap(
    p_value: Callable[[float, float | None], float], level: float, width: float | None, epsilon: float
) -> float:
    """ln(p-value/level), nearly straight where the p-value spans many powers of ten."""
    return math.log(max(p_value(epsilon, width), 1e-300)) - math.log(level)


def _coupling_bound(correct: float, trials: float, cost: float, limit: float, level: float) -> float:
    """The largest ε in [0, limit] with tail + cost·(1 − q) ≤ level.

    The derivative with respect to q is trials·b(v−1) − cost, b the pmf of one trial fewer, which has one peak, at
    (v−1)/(r−1): up to there the value falls to its only minimum and rises, and beyond its next maximum it
    falls to 1. So what is rejected is an interval around the minimum.
    """
    peak = limit if correct == trials else math.log(max(correct - 1.0, 1e-300) / (trials - correct))

    def slope(e: float) -> float:
        log_pmf = _log_pmf(correct - 1.0, trials - 1.0, float(special.expit(-e)))
        return math.log(trials) + log_pmf - math.log(cost)

    def gap(e: float) -> float:
        miss = float(special.expit(-e))
        return _tail(correct, trials, miss) + cost * miss - level

    top = max(0.0, min(limit, peak))
    if slope(top) <= 0.0:
        return 0.0
    bottom = 0.0 if slope(0.0) >= 0.0 else _root(slope, 0.0, top)
    if gap(bottom) > 0.0:
        return 0.0
    return limit if gap(limit) <= 0.0 else _root(gap, bottom, limit)


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    from scipy.optimize import brentq

    return float(brentq(function, low, high, xtol=1e-14, rtol=1e-14))


def _check_guesses(records: Any, guesses: Any, correct: Any) -> tuple[int, int, int]:
    m = check.whole("records", records, 1, "pass the number of audit records", MOST_RECORDS)
    r = check.whole("guesses", guesses, 1, "pass the number of guesses, at most the number of records", m)
    v = check.whole("correct", correct, 0, "pass the number of right guesses", r)
    return m, r, v


# --- f-DP in one run --------------------------------------------------------------------------------------
def one_run_mu_bound(*, records: int, guesses: int, correct: int, confidence: float = 0.95) -> float:
    """The largest μ that is rejected by the f-DP recursion for μ-Gaussian DP (Mahloujifar et al. 2025).

    For the number of guesses fixed in advance. It tends to z(t·g·p) − z(t·g·(1−p)) for many records, where g is the
    share of records guessed, p the share of right guesses and t the level: it does not reach the truth.
    """
    m, r, v = _check_guesses(records, guesses, correct)
    level = 1.0 - check.confidence(confidence)
    low, high = 0.0, 1.0
    if not _mu_rejected(np.zeros(1), m, r, v, level)[0]:
        return 0.0
    while _mu_rejected(np.array([high]), m, r, v, level)[0]:
        low, high = high, 2 * high
    while high - low > 1e-12 * max(1.0, high):
        grid = np.linspace(low, high, 34)
        still = int(np.argmin(np.append(_mu_rejected(grid[1:-1], m, r, v, level), False)))
        low, high = float(grid[still]), float(grid[still + 1])
    return low


def _mu_rejected(mu: FloatArray, records: int, guesses: int, correct: int, level: float) -> BoolArray:
    """Whether r_0 + h_0 > c'/m, for several μ at once; both grow, and stay as they are once h has stopped."""
    right = np.full_like(mu, level * correct / records)
    wrong = np.full_like(mu, level * (guesses - correct) / records)
    goal = guesses / records
    rejected = right + wrong > goal
    active = np.flatnonzero(~rejected)
    for i in range(correct - 1, max(-1, correct - 1 - STEPS), -1):
        r, h = right[active], wrong[active]
        step = np.maximum(special.ndtr(special.ndtri(r) - mu[active]) - h, 0.0)
        right[active] = r + i / (guesses - i) * step
        wrong[active] = h + step
        above = right[active] + wrong[active] > goal
        rejected[active[above]] = True
        active = active[~above & (step > 0.0)]
        if active.size == 0:
            break
    return rejected


# --- the audit --------------------------------------------------------------------------------------------
def one_run(
    evidence: OneRun,
    *,
    delta: float = 0.0,
    confidence: float = 0.95,
    guesses: str | int | tuple[int, int] = "learned",
    term: str = "smaller",
    method: str = "binomial",
) -> Estimate:
    """Bound ε from below from one training run, for adding or removing one record.

    Args:
        evidence: Scores of records that fair coins put in or left out.
        delta: The δ of the guarantee that is tested.
        confidence: The confidence of the bound.
        guesses: "learned" (`lower_bound`), "ranked" (valid for every number of guesses at once), a number r that was
            fixed before the coins were looked at (the ⌈r/2⌉ highest scores are guessed "in", the ⌊r/2⌋ lowest "out"),
            or a pair (k_in, k_out).
        term: The δ-term of the binomial tail at a fixed number of guesses: "steinke", "coupling" or the "smaller".
        method: "binomial", "betting" (over every number of guesses, so it takes none) or "f-dp" (assumes Gaussian,
            needs a fixed number).

    Returns:
        The bound.

    Raises:
        InputError: If an argument is out of range, or guesses and method do not go together.

    >>> import numpy as np
    >>> from dosimeter import fair_coins
    >>> coins = fair_coins(2000, seed=1)
    >>> round(one_run(OneRun(np.random.default_rng(0).normal(coins, 1), coins), guesses=200).low, 1)
    1.6
    """
    if not isinstance(evidence, OneRun):
        raise InputError(f"evidence must be a OneRun, got {type(evidence).__name__}; build OneRun(scores, included).")
    delta, confidence = check.delta(delta), check.confidence(confidence)
    check.choice("term", term, TERMS)
    way = check.choice("method", method, METHODS)
    counts = None if isinstance(guesses, str) else _split_guesses(guesses, evidence.total)
    if counts is None:
        check.choice("guesses", guesses, SCANS)
        if way == "f-dp":
            raise InputError(
                f"guesses is {guesses!r}, but method 'f-dp' needs a number fixed in advance; pass e.g. 100."
            )
        if way == "betting":
            return rank_betting(evidence, delta=delta, confidence=confidence)
        return _scanned(evidence, delta, confidence, str(guesses))
    if way == "betting":
        raise InputError(f"guesses is {check.show(guesses)}, but method 'betting' bets on every number; use 'ranked'.")
    made = guess(evidence, k_in=counts[0], k_out=counts[1])
    warnings = evidence.mask_warnings
    if made.cut_tied:
        tie = "scores are tied where guessing stops; as few of these guesses as possible were taken to be right"
        warnings = (*warnings, tie)
    build = _fixed if way == "binomial" else _gaussian
    return build(evidence.total, made, delta, confidence, term, warnings)


def _split_guesses(guesses: Any, records: int) -> tuple[int, int]:
    remedy = f"pass at most the {records} records there are"
    if isinstance(guesses, (tuple, list)):
        if len(guesses) != 2:
            raise InputError(f"guesses must be a pair (k_in, k_out), got {check.show(guesses)}; pass two numbers.")
        k_in, k_out = (check.whole(f"guesses[{i}]", k, 0, remedy) for i, k in enumerate(guesses))
    else:
        r = check.whole("guesses", guesses, 1, remedy)
        k_in, k_out = r - r // 2, r // 2
    if not 1 <= k_in + k_out <= records:
        raise InputError(f"guesses asks for {k_in + k_out} guesses about {records} records; {remedy}, and at least 1.")
    return k_in, k_out


def _scanned(evidence: OneRun, delta: float, confidence: float, how: str) -> Estimate:
    found = (lower_bound if how == "learned" else ranked)(evidence, delta=delta, confidence=confidence)
    return dataclasses.replace(found, method="one-run", details={**found.details, "selection": how})


def _fixed(
    records: int, made: Guesses, delta: float, confidence: float, term: str, warnings: tuple[str, ...]
) -> Estimate:
    total = made.k_in + made.k_out
    epsilon = one_run_bound(
        records=records,
        guesses=total,
        correct=made.correct,
        delta=delta,
        confidence=confidence,
        term=term,
        only_in=min(made.k_in, made.k_out) == 0,
    )
    return proven(
        epsilon,
        delta,
        confidence,
        "one-run",
        Validity.FINITE_SAMPLE,
        f" {made.correct} of {total} guesses about {records} audit records were right, the number fixed in advance.",
        neighbours="add/remove",
        warnings=warnings,
        details=_details(records, made) | {"term": term},
    )


def _gaussian(
    records: int, made: Guesses, delta: float, confidence: float, _term: str, warnings: tuple[str, ...]
) -> Estimate:
    d = check.delta(delta, zero=False, why_not_zero="a Gaussian mechanism has no finite ε there")
    total = made.k_in + made.k_out
    mu = one_run_mu_bound(records=records, guesses=total, correct=made.correct, confidence=confidence)
    epsilon = float(geometry.epsilon_from_mu(mu, d))
    return Estimate(
        epsilon=epsilon,
        low=epsilon,
        high=math.inf,
        delta=d,
        confidence=confidence,
        method="one-run f-DP",
        validity=Validity.ASSUMES_GAUSSIAN,
        claim=f"With {percent(confidence)} confidence the training run is not μ-Gaussian-DP for any μ below "
        f"{number(mu)}; if it is Gaussian-DP at all, ε ≥ {number(epsilon)} at δ = {d:g} ({made.correct} of {total} "
        f"guesses about {records} audit records were right).",
        neighbours="add/remove",
        warnings=warnings,
        details=_details(records, made) | {"mu": mu},
    )


def _details(records: int, made: Guesses) -> dict[str, Any]:
    return {
        "records": records,
        "guesses": made.k_in + made.k_out,
        "correct": made.correct,
        "k_in": made.k_in,
        "k_out": made.k_out,
        "selection": "fixed",
    }
