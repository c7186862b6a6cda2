"""What an (ε, δ) means for one person, as numbers and in sentences."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dosimeter import _validate as check
from dosimeter.estimate import change, percent
from dosimeter.geometry import mu_from_epsilon
from dosimeter.identifiability.formulas import (
    advantage_from_epsilon,
    advantage_from_mu,
    belief_from_epsilon,
    checked_epsilon,
    checked_prior,
    numbers_in,
    ppv,
    reconstruction_bound,
    tpr_at_fpr,
)

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
    e = float(checked_epsilon(epsilon))
    delta = check.delta(delta)
    p = checked_prior(priors)
    x = numbers_in("fprs", fprs, 0.0, 1.0, "pass false-positive rates, e.g. 0.01")
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
