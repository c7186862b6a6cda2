"""The whole privacy curve δ(ε) of a mechanism, and what attackers can reach under it."""

from __future__ import annotations

import math
from collections.abc import Callable

from dosimeter import _validate as check
from dosimeter.accounting.mechanism import Mechanism, PhaseKind, gaussian_mu, mechanism
from dosimeter.accounting.pld import LossProfile, grid_for, resolvable
from dosimeter.accounting.rdp import rdp_delta
from dosimeter.geometry import delta_from_mu

Profile = Callable[[float], float]
REFERENCE_DELTA = 1e-5  # where the grid of a curve is chosen when no δ is in question


def privacy_profile(value: Mechanism, *, grid: float | None = None) -> Profile:
    """Give the privacy curve δ(ε) of a mechanism as a function of ε ≥ 0.

    It is exact for full batches; else it is an upper bound by the tightest accountant: the privacy-loss distribution
    for Poisson batches, Rényi DP for batches without replacement.

    Args:
        value: The mechanism.
        grid: The width of the grid of losses; by default it suits the mechanism.

    Returns:
        A function from ε to δ.

    Raises:
        InputError: If the mechanism cannot be accounted for.

    >>> from dosimeter import Gaussian
    >>> round(float(privacy_profile(Gaussian(1.0))(1.0)), 4)
    0.1269
    """
    value = mechanism(value)
    phases = value.phases
    kinds = {phase.kind for phase in phases}
    if kinds == {PhaseKind.GAUSSIAN}:
        mu = gaussian_mu(phases)
        return lambda epsilon: float(delta_from_mu(epsilon, mu))
    if PhaseKind.WITHOUT_REPLACEMENT in kinds:
        return lambda epsilon: rdp_delta(value, epsilon)
    grid = grid_for(value, REFERENCE_DELTA) if grid is None else grid
    if resolvable(phases, grid):
        return LossProfile(value, grid).delta
    unsampled = gaussian_mu(phases)  # sampling can only help
    if PhaseKind.POISSON_REPLACE in kinds:
        return lambda epsilon: float(delta_from_mu(epsilon, unsampled))
    return lambda epsilon: min(float(delta_from_mu(epsilon, unsampled)), rdp_delta(value, epsilon))


def tpr_from_profile(profile: Profile, fpr: float) -> float:
    """The largest TPR at an FPR: the smallest value over ε of δ(ε) + e^ε·FPR and 1 − e^{−ε}(1 − δ(ε) − FPR).

    Both are one function of signed ε, convex in e^ε, and every value of it is a bound, so a bounded search is safe.
    The curve is asked for ε ≥ 0 only.
    """
    from scipy import optimize

    fpr = check.within("fpr", fpr, 0.0, 1.0, "pass a false-positive rate, e.g. 0.01")

    def bound(signed: float) -> float:
        delta = min(1.0, max(0.0, float(profile(abs(signed)))))
        if signed >= 0:
            return delta + math.exp(signed) * fpr
        return 1 - math.exp(signed) * (1 - delta - fpr)

    at_zero = bound(0.0)
    gap = at_zero - fpr
    if fpr >= 1:
        return 1.0
    # Outside these ends the bound is above its value at ε = 0.
    lowest = math.log(max(1 - at_zero, 1e-12))
    highest = math.log1p(gap / fpr) if fpr > 0 else 700.0
    found = optimize.minimize_scalar(
        bound, bounds=(lowest, max(highest, 1e-9)), method="bounded", options={"xatol": 1e-6}
    )
    return min(1.0, at_zero, float(found.fun))


def advantage_from_profile(profile: Profile) -> float:
    """The largest TPR − FPR: δ(0)."""
    return min(1.0, max(0.0, float(profile(0.0))))
