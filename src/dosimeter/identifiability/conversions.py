"""What is tolerable → ε: the inverses of `meaning`, for choosing a guarantee; and the advantage from an RDP."""

from __future__ import annotations

import math

import numpy as np
from scipy import special

from dosimeter import _validate as check
from dosimeter._validate import FloatArray, InputError
from dosimeter.geometry import epsilon_from_mu
from dosimeter.identifiability.meaning import (
    ADVANTAGES,
    ArrayLike,
    advantage_from_mu,
    checked_prior,
    classic_scale,
    numbers_in,
)


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
        result: FloatArray = 2 * classic_scale(delta) * special.ndtri((1 + a) / 2)
        return result
    if method == "tight":
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
