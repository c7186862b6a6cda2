"""Belief, advantage, TPR at an FPR, PPV at a prior, reconstruction: formulas and their inverses.

Each quantity follows from one (ε, δ) pair, from the μ of a Gaussian mechanism, or from a whole curve δ(ε).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special

from dosimeter import _validate as check
from dosimeter._validate import FloatArray, InputError
from dosimeter.accounting.profile import advantage_from_profile, tpr_from_profile
from dosimeter.geometry import mu_from_epsilon, tradeoff, tradeoff_gaussian

ArrayLike = npt.ArrayLike
Profile = Callable[[float], float]

ADVANTAGES = ("generic", "tight", "classic", "yeom", "erlingsson")


def numbers_in(name: str, value: Any, low: float, high: float, remedy: str, include: str = "[]") -> FloatArray:
    """A number or array of numbers in an interval; +∞ passes where the interval reaches it."""
    try:
        array = np.asarray(value)
    except (ValueError, TypeError):
        array = np.asarray(None)
    if array.dtype.kind not in "iuf" or array.size == 0:
        raise InputError(f"{name} must be a number or an array of numbers, got {check.show(value)}; {remedy}.")
    numbers = array.astype(np.float64)
    above = numbers >= low if include[0] == "[" else numbers > low
    below = numbers <= high if include[1] == "]" else numbers < high
    bad = ~(above & below)
    if bad.any():
        first = numbers.reshape(-1)[int(np.argmax(bad.reshape(-1)))]
        raise InputError(f"{name} must be in {include[0]}{low:g}, {high:g}{include[1]}, got {first:g}; {remedy}.")
    return numbers


def checked_epsilon(value: Any) -> FloatArray:
    """ε, at least 0."""
    return numbers_in("epsilon", value, 0.0, math.inf, "pass an ε of at least 0")


def checked_prior(value: Any) -> FloatArray:
    """A chance of membership between 0 and 1."""
    return numbers_in("prior", value, 0.0, 1.0, "pass the probability of membership before the model is seen", "()")


# --- belief -----------------------------------------------------------------------------------------------


def belief_from_epsilon(epsilon: ArrayLike, *, prior: ArrayLike = 0.5) -> FloatArray:
    """Compute ρ_β, the largest posterior belief in membership under ε-DP: 1/(1 + e^{−ε}(1−π)/π) for a prior π.

    It holds for pure ε; with δ > 0 it may be exceeded with a small probability.

    Args:
        epsilon: ε, a number or an array.
        prior: π, the chance of membership before the model is seen.

    Returns:
        The belief, above the prior.

    Raises:
        InputError: If ε is negative or the prior is not between 0 and 1.

    >>> float(belief_from_epsilon(1.0))
    0.731...
    """
    e, p = checked_epsilon(epsilon), checked_prior(prior)
    result: FloatArray = special.expit(e + special.logit(p))
    return result


def epsilon_from_belief(belief: ArrayLike, *, prior: ArrayLike = 0.5) -> FloatArray:
    """Invert `belief_from_epsilon`: the ε of a largest belief is logit(belief) − logit(prior).

    Args:
        belief: The largest belief that is tolerable, from the prior up to 1.
        prior: The chance of membership before the model is seen.

    Returns:
        ε; infinite for a belief of 1.

    Raises:
        InputError: If a number is not a probability, or the belief is below the prior.

    >>> float(epsilon_from_belief(0.75))
    1.098...
    """
    p = checked_prior(prior)
    b = numbers_in("belief", belief, 0.0, 1.0, "pass a belief from the prior up to 1")
    if np.any(b < p):
        worst = float(np.min(np.broadcast_to(b, np.broadcast_shapes(b.shape, p.shape))))
        raise InputError(f"belief must be at least the prior {float(np.max(p)):g}, got {worst:g}; raise it.")
    with np.errstate(divide="ignore"):
        result: FloatArray = special.logit(b) - special.logit(p)
    return result


# --- advantage --------------------------------------------------------------------------------------------


def _classic_scale(delta: float) -> float:
    delta = check.delta(delta, zero=False, why_not_zero="the classic Gaussian formula divides by ln(1.25/δ)")
    return math.sqrt(2 * math.log(1.25 / delta))


def advantage_from_epsilon(epsilon: ArrayLike, *, delta: float = 0.0, method: str = "generic") -> FloatArray:
    """Compute ρ_α, the largest TPR − FPR that (ε, δ) allows, by one of five formulas.

    - "generic": (e^ε − 1 + 2δ)/(e^ε + 1), any mechanism, attained;
    - "tight": 2Φ(μ/2) − 1 for the Gaussian mechanism whose exact (ε, δ) this is;
    - "classic": 2Φ(ε/(2√(2 ln(1.25/δ)))) − 1 (Bernau et al. 2021, Theorem 3), the advantage at the noise of the
      textbook formula, not a bound for every Gaussian mechanism with this (ε, δ);
    - "yeom": e^ε − 1 + δ (Yeom et al. 2018), any mechanism, loose;
    - "erlingsson": 1 − e^{−ε}(1 − δ) (Erlingsson et al. 2019), any mechanism, loose.

    Args:
        epsilon: ε, a number or an array.
        delta: δ; "tight" and "classic" need one above 0.
        method: Which formula.

    Returns:
        The advantage, from 0 to 1.

    Raises:
        InputError: If a number is out of range or the formula is unknown.

    >>> float(advantage_from_epsilon(1.0))
    0.462...
    """
    e = checked_epsilon(epsilon)
    check.choice("method", method, ADVANTAGES)
    if method == "classic":
        result: FloatArray = special.erf(e / (2 * _classic_scale(delta)) / math.sqrt(2))
        return result
    if method == "tight":
        delta = check.delta(delta, zero=False, why_not_zero="the Gaussian mechanism has no finite ε at δ = 0")
        return advantage_from_mu(np.where(np.isinf(e), np.inf, mu_from_epsilon(np.where(np.isinf(e), 1.0, e), delta)))
    delta = check.delta(delta)
    if method == "yeom":
        with np.errstate(over="ignore"):
            return np.minimum(np.expm1(e) + delta, 1.0)
    if method == "erlingsson":
        return -np.expm1(-e) + delta * np.exp(-e)
    # (e^ε − 1 + 2δ)/(e^ε + 1) with both sides times e^{−ε}, so that nothing overflows
    return (-np.expm1(-e) + 2 * delta * np.exp(-e)) / (1 + np.exp(-e))


def epsilon_from_advantage(advantage: ArrayLike, *, delta: float = 0.0, method: str = "generic") -> FloatArray:
    """Invert `advantage_from_epsilon`, by the same five formulas; 0 where δ alone allows the advantage.

    "erlingsson" is ln((1−δ)/(1−advantage)), the lower bound of "That which we call private".

    Args:
        advantage: TPR − FPR, a number or an array.
        delta: δ; "tight" and "classic" need one above 0.
        method: Which formula.

    Returns:
        ε; infinite for an advantage of 1.

    Raises:
        InputError: If a number is out of range or the formula is unknown.

    >>> float(epsilon_from_advantage(0.5))
    1.098...
    """
    a = numbers_in(
        "advantage", advantage, 0.0, 1.0, "pass a TPR − FPR from 0 to 1; swap the test's answers if it is negative"
    )
    check.choice("method", method, ADVANTAGES)
    if method == "classic":
        result: FloatArray = 2 * _classic_scale(delta) * special.ndtri((1 + a) / 2)
        return result
    if method == "tight":
        from dosimeter.geometry import epsilon_from_mu

        delta = check.delta(delta, zero=False, why_not_zero="the Gaussian mechanism has no finite ε at δ = 0")
        mu = mu_from_advantage(a)
        return np.where(np.isinf(mu), np.inf, epsilon_from_mu(np.where(np.isinf(mu), 1.0, mu), delta))
    delta = check.delta(delta)
    with np.errstate(divide="ignore"):
        if method == "yeom":
            raw = np.log1p(a - delta)
        elif method == "erlingsson":
            raw = math.log1p(-delta) - np.log1p(-a)
        else:
            raw = np.log1p(a - 2 * delta) - np.log1p(-a)
    return np.maximum(raw, 0.0)


def advantage_from_mu(mu: ArrayLike) -> FloatArray:
    """Compute the advantage of the best test against a μ-Gaussian mechanism, 2Φ(μ/2) − 1.

    Args:
        mu: μ, which is √k/z for k full-batch steps with noise multiplier z.

    Returns:
        The largest TPR − FPR.

    Raises:
        InputError: If μ is negative.

    >>> float(advantage_from_mu(1.0))
    0.382...
    """
    m = numbers_in("mu", mu, 0.0, math.inf, "pass a μ of at least 0")
    result: FloatArray = special.erf(m / (2 * math.sqrt(2)))
    return result


def mu_from_advantage(advantage: ArrayLike) -> FloatArray:
    """Invert `advantage_from_mu`: 2Φ⁻¹((1 + advantage)/2).

    Args:
        advantage: TPR − FPR, a number or an array.

    Returns:
        μ; infinite for an advantage of 1.

    Raises:
        InputError: If the advantage is not from 0 to 1.

    >>> float(mu_from_advantage(0.5))
    1.348...
    """
    a = numbers_in(
        "advantage", advantage, 0.0, 1.0, "pass a TPR − FPR from 0 to 1; swap the test's answers if it is negative"
    )
    result: FloatArray = 2 * math.sqrt(2) * special.erfinv(a)
    return result


def advantage_from_rdp(rdp: ArrayLike, *, order: ArrayLike) -> FloatArray:
    """Compute the advantage against a Gaussian mechanism from its RDP: 2Φ(√(ε_RDP/(2a))) − 1 (Bernau et al. 2021).

    Args:
        rdp: ε_RDP, the Rényi divergence.
        order: Its order a, above 1.

    Returns:
        The largest TPR − FPR.

    Raises:
        InputError: If a number is out of range.

    >>> float(advantage_from_rdp(2.0, order=4.0))
    0.382...
    """
    r = numbers_in("rdp", rdp, 0.0, math.inf, "pass a Rényi divergence of at least 0")
    a = numbers_in("order", order, 1.0, math.inf, "pass the order of that divergence, above 1", "()")
    return advantage_from_mu(np.sqrt(2 * r / a))


# --- what a test can reach --------------------------------------------------------------------------------


def _one_source(epsilon: Any, mu: Any, profile: Any) -> None:
    given = [name for name, value in (("epsilon", epsilon), ("mu", mu), ("profile", profile)) if value is not None]
    if len(given) != 1:
        what = "none of them" if not given else " and ".join(given)
        raise InputError(f"pass exactly one of epsilon, mu and profile, got {what}.")
    if profile is not None and not callable(profile):
        raise InputError(f"profile must be a function δ(ε), got {check.show(profile)}; see accounting.privacy_profile.")


def tpr_at_fpr(
    fpr: ArrayLike,
    *,
    epsilon: ArrayLike | None = None,
    delta: float = 0.0,
    mu: ArrayLike | None = None,
    profile: Profile | None = None,
) -> FloatArray:
    """Compute the largest TPR of any membership test at a false-positive rate, under (ε, δ), μ or a curve δ(ε).

    From a curve it is the smallest value over ε of δ(ε) + e^ε·FPR, and of the mirrored test.

    Args:
        fpr: False-positive rates.
        epsilon: ε of a guarantee.
        delta: Its δ.
        mu: Instead of ε, the μ of a Gaussian mechanism.
        profile: Instead of both, a function δ(ε), e.g. `accounting.privacy_profile`.

    Returns:
        The true-positive rate for each FPR.

    Raises:
        InputError: If a number is out of range, or not exactly one of `epsilon`, `mu` and `profile` is given.

    >>> float(tpr_at_fpr(0.01, epsilon=2.0))
    0.0738...
    """
    _one_source(epsilon, mu, profile)
    x = numbers_in("fpr", fpr, 0.0, 1.0, "pass false-positive rates, e.g. 0.01")
    if profile is not None:
        return np.array([tpr_from_profile(profile, float(rate)) for rate in x.reshape(-1)]).reshape(x.shape)
    if mu is not None:
        shift: Any = numbers_in("mu", mu, 0.0, math.inf, "pass a finite μ of at least 0", "[)")
        return 1 - tradeoff_gaussian(x, shift)
    rates: Any
    values: Any
    rates, values = np.broadcast_arrays(x, np.minimum(checked_epsilon(epsilon), 700.0))
    return 1 - tradeoff(rates, values, check.delta(delta))


def advantage(
    *, epsilon: float | None = None, delta: float = 0.0, mu: float | None = None, profile: Profile | None = None
) -> float:
    """Compute the largest TPR − FPR under (ε, δ) for any mechanism, under μ, or under a curve (its δ(0)).

    Args:
        epsilon: ε of a guarantee.
        delta: Its δ.
        mu: Instead of ε, the μ of a Gaussian mechanism.
        profile: Instead of both, a function δ(ε).

    Returns:
        The advantage.

    Raises:
        InputError: If a number is out of range, or not exactly one of `epsilon`, `mu` and `profile` is given.

    >>> advantage(mu=1.0)
    0.382...
    """
    _one_source(epsilon, mu, profile)
    if profile is not None:
        return advantage_from_profile(profile)
    if mu is not None:
        return float(advantage_from_mu(mu))
    assert epsilon is not None
    return float(advantage_from_epsilon(epsilon, delta=delta))


def ppv(tpr: ArrayLike, fpr: ArrayLike, *, prior: ArrayLike) -> FloatArray:
    """Compute how many of those whom a test calls members are members: π·TPR/(π·TPR + (1−π)·FPR).

    Args:
        tpr: The true-positive rate of the test.
        fpr: Its false-positive rate.
        prior: π, the share of members among all who are tested.

    Returns:
        The positive predictive value; the prior where the test calls nobody.

    Raises:
        InputError: If a number is not a probability.

    >>> float(ppv(0.5, 0.1, prior=0.1))
    0.357...
    """
    t = numbers_in("tpr", tpr, 0.0, 1.0, "pass a true-positive rate")
    f = numbers_in("fpr", fpr, 0.0, 1.0, "pass a false-positive rate")
    p = checked_prior(prior)
    hits, alarms = p * t, (1 - p) * f
    called = hits + alarms
    return np.where(called > 0, hits / np.where(called > 0, called, 1.0), np.broadcast_to(p, called.shape))


def reconstruction_bound(
    baseline: ArrayLike,
    *,
    epsilon: ArrayLike | None = None,
    delta: float = 0.0,
    mu: ArrayLike | None = None,
    profile: Profile | None = None,
) -> FloatArray:
    """Compute the largest success of reconstruction or attribute inference: 1 − f(κ), where f is the trade-off curve.

    Args:
        baseline: κ, the chance of success without the model.
        epsilon: As in `tpr_at_fpr`, like the following.
        delta: The δ of ε.
        mu: Instead of ε.
        profile: Instead of both.

    Returns:
        The chance of success with the model.

    Raises:
        InputError: As `tpr_at_fpr`.

    >>> float(reconstruction_bound(0.1, epsilon=1.0))
    0.271...
    """
    x = numbers_in("baseline", baseline, 0.0, 1.0, "pass the chance of success without the model, e.g. 0.1")
    return tpr_at_fpr(x, epsilon=epsilon, delta=delta, mu=mu, profile=profile)
