"""ε → belief, advantage, TPR at an FPR, PPV at a prior, reconstruction, and all of it in sentences.

Each quantity follows from one (ε, δ) pair, from the μ of a Gaussian mechanism, or from a whole curve δ(ε).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special

from dosimeter import _validate as check
from dosimeter._validate import FloatArray, InputError
from dosimeter.accounting.profile import advantage_from_profile, tpr_from_profile
from dosimeter.estimate import change, percent
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


# --- advantage --------------------------------------------------------------------------------------------


def classic_scale(delta: float) -> float:
    """The noise of the textbook formula over that of ε = 1."""
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
        result: FloatArray = special.erf(e / (2 * classic_scale(delta)) / math.sqrt(2))
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


# --- for one person, as numbers and in sentences -----------------------------------------------------------

PRIORS = (0.01, 0.5)
FPRS = (0.001, 0.01, 0.1)


def risk_from_epsilon(
    epsilon: float,
    delta: float = 0.0,
    *,
    priors: Sequence[float] = PRIORS,
    fprs: Sequence[float] = FPRS,
) -> dict[str, Any]:
    """Compute what (ε, δ) allows against one person.

    Args:
        epsilon: ε of a guarantee.
        delta: Its δ.
        priors: Chances of membership before the model is seen.
        fprs: False-positive rates of tests.

    Returns:
        JSON values: `belief` for each prior; `tpr` and `ppv` at each FPR; `advantage`; `reconstruction` at baselines of
            the priors, all for any mechanism; `gaussian` with μ, advantage and TPRs for a Gaussian mechanism of the
            same ε, or None at δ = 0.

    Raises:
        InputError: If a number is out of range.

    >>> risk_from_epsilon(1.0, 1e-5)["belief"][1]
    {'prior': 0.5, 'belief': 0.731...}
    """
    return _risk(*_checked(epsilon, delta, priors, fprs))


def _checked(epsilon: Any, delta: Any, priors: Any, fprs: Any) -> tuple[float, float, FloatArray, FloatArray]:
    e, delta, p = float(checked_epsilon(epsilon)), check.delta(delta), checked_prior(priors)
    return e, delta, p, numbers_in("fprs", fprs, 0.0, 1.0, "pass false-positive rates, e.g. 0.01")


def _risk(e: float, delta: float, p: FloatArray, x: FloatArray) -> dict[str, Any]:
    tpr = tpr_at_fpr(x, epsilon=e, delta=delta)
    beliefs = belief_from_epsilon(e, prior=p)
    guesses = reconstruction_bound(p, epsilon=e, delta=delta)
    gaussian: dict[str, Any] | None = None
    if delta > 0 and math.isfinite(e):
        mu = float(mu_from_epsilon(e, delta))
        rates = tpr_at_fpr(x, mu=mu)
        gaussian = {
            "mu": mu,
            "advantage": float(advantage_from_mu(mu)),
            "tpr": [{"fpr": float(f), "tpr": float(t)} for f, t in zip(x, rates, strict=True)],
        }
    return {
        "epsilon": e if math.isfinite(e) else None,
        "delta": delta,
        "advantage": float(advantage_from_epsilon(e, delta=delta)),
        "belief": [{"prior": float(a), "belief": float(b)} for a, b in zip(p, beliefs, strict=True)],
        "tpr": [
            {
                "fpr": float(f),
                "tpr": float(t),
                "ppv": [{"prior": float(a), "ppv": float(ppv(t, f, prior=a))} for a in p],
            }
            for f, t in zip(x, tpr, strict=True)
        ],
        "reconstruction": [{"baseline": float(a), "success": float(s)} for a, s in zip(p, guesses, strict=True)],
        "gaussian": gaussian,
    }


def _share(value: float) -> str:
    """A probability for a sentence: three digits, and never rounded up to certainty."""
    if 0.999 < value < 1:
        return "more than 99.9 %"
    return f"{100 * value:.3g} %"


def risk_in_words(
    epsilon: float,
    delta: float = 0.0,
    *,
    priors: Sequence[float] = PRIORS,
    fprs: Sequence[float] = FPRS,
    side: str = "upper",
    neighbours: str | None = None,
    unit: str = "record",
    confidence: float | None = None,
) -> list[str]:
    """Say in sentences what an ε means: what a guarantee allows, or which guarantees a lower bound excludes.

    A lower bound excludes guarantees and nothing else: it does not say how many members a test finds. So only
    `side="upper"` speaks of tests and beliefs.

    Args:
        epsilon: The ε of the guarantee, or the lower bound.
        delta: Its δ.
        priors: Chances of membership before the model is seen.
        fprs: False-positive rates of tests.
        side: "upper" for a guarantee, "lower" for what an attack has proven.
        neighbours: Whose ε it is, "add/remove" or "replace"; None leaves it unsaid.
        unit: What is added, removed or replaced: "record" or "person".
        confidence: The confidence of the lower bound; None leaves it unsaid.

    Returns:
        The sentences, the most important first.

    Raises:
        InputError: If a number is out of range or `side` has another name.

    >>> risk_in_words(1.7, 1e-5, side="lower", neighbours="replace")[0]
    'No training with a guarantee below ε = 1.7 at δ = 1e-05 for replacing one record explains what was seen.'
    """
    check.choice("side", side, ("upper", "lower"))
    e, delta, p, x = _checked(epsilon, delta, priors, fprs)
    at = f"at δ = {delta:g}" + (f" for {act}" if (act := change(neighbours, unit)) else "")
    if side == "upper":
        return _allowed(_risk(e, delta, p, x), at)
    return _excluded(epsilon, at, "No" if confidence is None else f"With {percent(confidence)} confidence no")


def _excluded(epsilon: float, at: str, no: str) -> list[str]:
    """What a lower bound says: which guarantees the training cannot have."""
    if epsilon == 0:
        return [f"No guarantee {at} is excluded: nothing was proven. That is not evidence of privacy."]
    which = "a finite guarantee" if math.isinf(epsilon) else f"a guarantee below ε = {epsilon:.4g}"
    return [
        f"{no} training with {which} {at} explains what was seen.",
        "This excludes guarantees. It does not say how many members a test finds, or how sure anybody can be of one "
        "person.",
    ]


def _allowed(risk: Mapping[str, Any], at: str) -> list[str]:
    """What a guarantee of this size still allows, the numbers of `risk_from_epsilon` one by one."""
    if risk["epsilon"] is None:
        return [f"A guarantee of ε = ∞ {at} excludes nothing: a test may find every member and accuse nobody else."]
    lines = [f"A guarantee of ε = {risk['epsilon']:.4g} {at} allows at most this:"]
    exceeded = " (in rare cases more, since δ > 0)" if risk["delta"] > 0 else ""
    for item in risk["belief"]:
        lines.append(
            f"an observer who puts the chance that a person is in the data at {_share(item['prior'])} may raise it to "
            f"{_share(item['belief'])}{exceeded}."
        )
    for item in risk["tpr"]:
        rare = item["ppv"][0]
        lines.append(
            f"a test with {_share(item['fpr'])} false alarms may find {_share(item['tpr'])} of the members; if "
            f"{_share(rare['prior'])} of the candidates are members, {_share(rare['ppv'])} of those it names are."
        )
    lines.append(
        f"the share of members that a test finds may exceed its false alarms by {100 * risk['advantage']:.3g} "
        "percentage points."
    )
    if risk["gaussian"] is not None:
        middle = risk["gaussian"]["tpr"][len(risk["gaussian"]["tpr"]) // 2]
        lines.append(
            f"Gaussian noise with exactly this guarantee allows less: {100 * risk['gaussian']['advantage']:.3g} "
            f"percentage points, and {_share(middle['tpr'])} of the members at {_share(middle['fpr'])} false alarms."
        )
    return lines
