"""What an ε means for a person: belief, advantage, TPR at an FPR, PPV at a prior, reconstruction.

Each quantity follows from one (ε, δ) pair, from the μ of a Gaussian mechanism, or from a whole curve δ(ε). One pair
says much less than the curve it was read from: at low FPR the difference is tenfold. All functions take numbers or
arrays.
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


def _numbers(name: str, value: Any, low: float, high: float, remedy: str, include: str = "[]") -> FloatArray:
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


def _epsilon(value: Any) -> FloatArray:
    return _numbers("epsilon", value, 0.0, math.inf, "pass an ε of at least 0")


def _prior(value: Any) -> FloatArray:
    return _numbers("prior", value, 0.0, 1.0, "pass the probability of membership before the model is seen", "()")


# --- belief -----------------------------------------------------------------------------------------------


def belief_from_epsilon(epsilon: ArrayLike, *, prior: ArrayLike = 0.5) -> FloatArray:
    """ρ_β: the largest posterior belief in membership under ε-DP, 1/(1 + e^{−ε}(1−π)/π) for a prior π.

    It holds for pure ε; with δ > 0 it may be exceeded with a small probability.
    """
    e, p = _epsilon(epsilon), _prior(prior)
    result: FloatArray = special.expit(e + special.logit(p))
    return result


def epsilon_from_belief(belief: ArrayLike, *, prior: ArrayLike = 0.5) -> FloatArray:
    """The ε whose largest posterior belief is `belief`: logit(belief) − logit(prior)."""
    p = _prior(prior)
    b = _numbers("belief", belief, 0.0, 1.0, "pass a belief from the prior up to 1")
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
    """ρ_α: the largest TPR − FPR that (ε, δ) allows, by one of five formulas.

    - "generic": (e^ε − 1 + 2δ)/(e^ε + 1), any mechanism, attained;
    - "tight": 2Φ(μ/2) − 1 for the Gaussian mechanism whose exact (ε, δ) this is;
    - "classic": 2Φ(ε/(2√(2 ln(1.25/δ)))) − 1 (Bernau et al. 2021, Theorem 3), the advantage at the noise of the
      textbook formula, not a bound for every Gaussian mechanism with this (ε, δ);
    - "yeom": e^ε − 1 + δ (Yeom et al. 2018), any mechanism, loose;
    - "erlingsson": 1 − e^{−ε}(1 − δ) (Erlingsson et al. 2019), any mechanism, loose.
    """
    e = _epsilon(epsilon)
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
    """The ε whose `advantage_from_epsilon` this is, by the same five formulas; 0 where δ alone allows it.

    "erlingsson" is ln((1−δ)/(1−advantage)), the lower bound of "That which we call private".
    """
    a = _numbers(
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
    """2Φ(μ/2) − 1: the advantage of the best test against a μ-Gaussian mechanism (μ = √k/z for k full-batch steps)."""
    m = _numbers("mu", mu, 0.0, math.inf, "pass a μ of at least 0")
    result: FloatArray = special.erf(m / (2 * math.sqrt(2)))
    return result


def mu_from_advantage(advantage: ArrayLike) -> FloatArray:
    """The μ of the Gaussian mechanism with this advantage: 2Φ⁻¹((1 + advantage)/2)."""
    a = _numbers(
        "advantage", advantage, 0.0, 1.0, "pass a TPR − FPR from 0 to 1; swap the test's answers if it is negative"
    )
    result: FloatArray = 2 * math.sqrt(2) * special.erfinv(a)
    return result


def advantage_from_rdp(rdp: ArrayLike, *, order: ArrayLike) -> FloatArray:
    """2Φ(√(ε_RDP/(2a))) − 1 for a Gaussian mechanism with Rényi divergence ε_RDP at order a (Bernau et al. 2021)."""
    r = _numbers("rdp", rdp, 0.0, math.inf, "pass a Rényi divergence of at least 0")
    a = _numbers("order", order, 1.0, math.inf, "pass the order of that divergence, above 1", "()")
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
    """The largest TPR of any membership test at a false-positive rate, under (ε, δ), μ, or a whole curve δ(ε).

    From a curve it is the smallest value over ε of δ(ε) + e^ε·FPR, and of the mirrored test.
    """
    _one_source(epsilon, mu, profile)
    x = _numbers("fpr", fpr, 0.0, 1.0, "pass false-positive rates, e.g. 0.01")
    if profile is not None:
        return np.array([tpr_from_profile(profile, float(rate)) for rate in x.reshape(-1)]).reshape(x.shape)
    if mu is not None:
        shift: Any = _numbers("mu", mu, 0.0, math.inf, "pass a finite μ of at least 0", "[)")
        return 1 - tradeoff_gaussian(x, shift)
    rates: Any
    values: Any
    rates, values = np.broadcast_arrays(x, np.minimum(_epsilon(epsilon), 700.0))
    return 1 - tradeoff(rates, values, check.delta(delta))


def advantage(
    *, epsilon: float | None = None, delta: float = 0.0, mu: float | None = None, profile: Profile | None = None
) -> float:
    """The largest TPR − FPR under (ε, δ) for any mechanism, under μ, or under a whole curve (its δ(0))."""
    _one_source(epsilon, mu, profile)
    if profile is not None:
        return advantage_from_profile(profile)
    if mu is not None:
        return float(advantage_from_mu(mu))
    assert epsilon is not None
    return float(advantage_from_epsilon(epsilon, delta=delta))


def ppv(tpr: ArrayLike, fpr: ArrayLike, *, prior: ArrayLike) -> FloatArray:
    """Members among those a test calls members: π·TPR/(π·TPR + (1−π)·FPR); the prior if it calls nobody."""
    t = _numbers("tpr", tpr, 0.0, 1.0, "pass a true-positive rate")
    f = _numbers("fpr", fpr, 0.0, 1.0, "pass a false-positive rate")
    p = _prior(prior)
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
    """The largest success of reconstruction or attribute inference: 1 − f(κ), κ the success without the model."""
    x = _numbers("baseline", baseline, 0.0, 1.0, "pass the chance of success without the model, e.g. 0.1")
    return tpr_at_fpr(x, epsilon=epsilon, delta=delta, mu=mu, profile=profile)


# --- in words ---------------------------------------------------------------------------------------------

PRIORS = (0.01, 0.5)
FPRS = (0.001, 0.01, 0.1)


def risk_from_epsilon(
    epsilon: float,
    delta: float = 0.0,
    *,
    priors: Sequence[float] = PRIORS,
    fprs: Sequence[float] = FPRS,
) -> dict[str, Any]:
    """What (ε, δ) allows against one person, for any mechanism and, with δ > 0, for a Gaussian one of the same ε.

    Plain JSON values: `belief` for each prior; `tpr` and `ppv` at each FPR; `advantage`; `reconstruction` at baselines
    of the priors; `gaussian` with μ, advantage and TPRs, or None.
    """
    e = float(_epsilon(epsilon))
    delta = check.delta(delta)
    p = _prior(priors)
    x = _numbers("fprs", fprs, 0.0, 1.0, "pass false-positive rates, e.g. 0.01")
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
    risk = risk_from_epsilon(epsilon, delta, priors=priors, fprs=fprs)
    at = f"at δ = {delta:g}" + (f" for {act}" if (act := change(neighbours, unit)) else "")
    if side == "upper":
        return _allowed(risk, at)
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
