"""Privacy-loss distributions of composed mechanisms. The only file that knows dp-accounting.

The distribution is discretised so that its δ is never below the true one; the grid is chosen from the cheap RDP answer.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np

from dosimeter import _validate as check
from dosimeter._validate import FloatArray, InputError
from dosimeter.accounting.composition import advanced, naive
from dosimeter.accounting.mechanism import (
    Guarantee,
    Mechanism,
    Phase,
    PhaseKind,
    gaussian_mu,
    guarantee,
    mechanism,
    only,
)
from dosimeter.accounting.rdp import rdp, rough_epsilon
from dosimeter.accounting.zcdp import zcdp
from dosimeter.geometry import epsilon_from_mu

_KINDS = (PhaseKind.GAUSSIAN, PhaseKind.POISSON, PhaseKind.POISSON_REPLACE)
_STEPS_OF_GRID = (1.0, 1.25, 1.6, 2.0, 2.5, 3.2, 4.0, 5.0, 6.4, 8.0)
_MOST_CELLS = 150_000  # of one step's distribution, whose cells are computed one by one
COARSEST = 1.0  # a wider cell means an ε in the hundred thousands, where a distribution is of no use
_FEWEST_CELLS = 4
_STEPS_AT_ONCE = 30_000
_ROUNDING = 1e-16  # rounding error of δ for each composed step, fifty times what was measured with known mechanisms


def grid_for(value: Mechanism, delta: float) -> float:
    """The width of a cell: about 1e-4 of the ε that a cheap accountant gives, within [1e-5, 1e-3].

    Beyond ε = 200, and where one step alone would need too many cells, it grows. It is rounded down to ten values in
    a decade, so that nearby mechanisms share a grid and calibration sees a smooth function.
    """
    phases = value.phases
    epsilon = rough_epsilon(phases, delta)
    wanted = max(min(max(epsilon * 1e-4, 1e-5), 1e-3), epsilon * 5e-6)
    spread = max(1 / (2 * phase.noise**2) + 10 / phase.noise for phase in phases)
    wanted = max(wanted, spread / _MOST_CELLS)
    decade = 10.0 ** math.floor(math.log10(wanted) + 1e-9)
    return decade * max(step for step in _STEPS_OF_GRID if step * decade <= wanted * (1 + 1e-9))


def resolvable(phases: tuple[Phase, ...], grid: float) -> bool:
    """Whether cells of this width show the loss of a single step, and the loss is not beyond all use."""
    sampled = [phase for phase in phases if phase.kind is not PhaseKind.GAUSSIAN]
    reach = [min(1 / (2 * phase.noise**2) + 10 / phase.noise, 700.0) for phase in sampled]
    losses = [math.log1p(phase.rate * math.expm1(high)) for phase, high in zip(sampled, reach, strict=True)]
    return grid <= COARSEST and all(loss >= _FEWEST_CELLS * grid for loss in losses)


@contextmanager
def _quiet() -> Iterator[None]:
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


@lru_cache(maxsize=4)
def _distribution(phases: tuple[Phase, ...], grid: float, pessimistic: bool = True) -> Any:
    from dp_accounting import NeighboringRelation
    from dp_accounting.pld import privacy_loss_distribution

    total: Any = None
    with _quiet():
        for phase in phases:
            replace = phase.kind is PhaseKind.POISSON_REPLACE
            relation = NeighboringRelation.REPLACE_ONE if replace else NeighboringRelation.ADD_OR_REMOVE_ONE
            # dp-accounting moves a replaced record from −1 to +1, so it wants the noise over the clipping norm.
            deviation = 2 * phase.noise if replace else phase.noise
            if phase.kind is PhaseKind.GAUSSIAN:
                deviation /= math.sqrt(phase.steps)
            part = privacy_loss_distribution.from_gaussian_mechanism(
                deviation,
                value_discretization_interval=grid,
                sampling_prob=phase.rate,
                neighboring_relation=relation,
                pessimistic_estimate=pessimistic,
                use_connect_dots=pessimistic,  # the tighter discretisation has no lower form
            )
            if phase.kind is not PhaseKind.GAUSSIAN:
                part = _repeat(part, phase.steps)
            total = part if total is None else total.compose(part)
    return total


def _repeat(part: Any, steps: int) -> Any:
    """Compose with itself. The library's tail bound is loose for very many steps at once, so these go in two stages."""
    if steps <= _STEPS_AT_ONCE:
        return part.self_compose(steps)
    first = math.isqrt(steps)
    rest = steps - first * (steps // first)
    whole = _repeat(_repeat(part, first), steps // first)
    return whole.compose(part.self_compose(rest)) if rest else whole


def _rounding(phases: tuple[Phase, ...]) -> float:
    return _ROUNDING * max(100, sum(phase.steps for phase in phases if phase.kind is not PhaseKind.GAUSSIAN))


class LossProfile:
    """δ(ε) of a mechanism from its privacy-loss distribution: an upper bound at every real ε."""

    def __init__(self, value: Mechanism, grid: float) -> None:
        self._phases = only(value, _KINDS, "pld")
        self._distribution = _distribution(self._phases, grid)
        self._slack = _rounding(self._phases)
        self.grid = grid

    def deltas(self, epsilons: FloatArray) -> FloatArray:
        """The δ at many ε, which is faster than one by one."""
        found = np.asarray(self._distribution.get_delta_for_epsilon(np.asarray(epsilons, float).tolist()), float)
        return np.minimum(1.0, found + self._slack)

    def delta(self, epsilon: float) -> float:
        """The δ at one ε, at most 1."""
        return min(1.0, float(self._distribution.get_delta_for_epsilon(float(epsilon))) + self._slack)

    def epsilon(self, delta: float) -> float:
        """The smallest ε ≥ 0 at δ; infinite where δ is below what double precision resolves."""
        if delta <= self._slack:
            return math.inf
        return float(self._distribution.get_epsilon_for_delta(delta - self._slack))


def least_epsilon(value: Mechanism, *, delta: float) -> float:
    """Give an ε that is at most the true one at δ: the losses of the distribution are rounded down instead of up.

    Each step loses half a cell, so the cells are as narrow as can be paid for, up to 0.01 for all steps together.
    """
    phases = only(mechanism(value), _KINDS, "pld")
    if all(phase.kind is PhaseKind.GAUSSIAN for phase in phases):
        return exact(value, delta=delta).epsilon
    sampled = [phase for phase in phases if phase.kind is not PhaseKind.GAUSSIAN]
    narrowest = max(1 / (2 * phase.noise**2) + 10 / phase.noise for phase in phases) / _MOST_CELLS
    wanted = 0.02 / sum(phase.steps for phase in sampled)
    grid = min(grid_for(value, delta), max(wanted, narrowest))
    if not resolvable(phases, grid):
        return 0.0
    below = _distribution(phases, grid, pessimistic=False)
    return max(0.0, float(below.get_epsilon_for_delta(delta + _rounding(phases))))


def pld(value: Mechanism, *, delta: float, grid: float | None = None, method: str = "pld") -> Guarantee:
    """Bound ε by the privacy-loss distribution of all steps; for full batches, by the exact Gaussian formula.

    Where rounding or a coarse grid would make it larger than what RDP or composition shows, their bound is reported, as
    the details say.

    Args:
        value: The mechanism.
        delta: The δ of the guarantee.
        grid: The width of the grid of losses; by default it suits the mechanism.
        method: A name for the guarantee.

    Returns:
        The guarantee.

    Raises:
        InputError: If an argument is out of range, or these neighbours have no such bound.

    >>> from dosimeter import DpSgd
    >>> round(pld(DpSgd(1.1, 0.02, 5000), delta=1e-5).epsilon, 2)
    7.86
    """
    value = mechanism(value)
    delta = check.delta(delta, zero=False, why_not_zero="the Gaussian mechanism has no finite ε at δ = 0")
    phases = only(value, _KINDS, method)
    if all(phase.kind is PhaseKind.GAUSSIAN for phase in phases):
        return exact(value, delta=delta, method=method)
    if grid is None:
        grid = grid_for(value, delta)
    else:
        remedy = "pass the width of a cell of the privacy loss, e.g. 1e-4"
        grid = check.within("grid", grid, 1e-6, COARSEST, remedy)
    epsilon, source = math.inf, "none"
    if resolvable(phases, grid):
        epsilon, source = LossProfile(value, grid).epsilon(delta), "privacy-loss distribution"
    warnings: tuple[str, ...] = ()
    if delta < 100 * _rounding(phases):
        warnings = (f"δ = {delta:g} is near the rounding error of the distribution; the RDP bound may be as good",)
    if epsilon == math.inf or (epsilon > 0 and rough_epsilon(phases, delta) < 1.05 * epsilon):
        other = min(_cheap_bounds(value, phases, delta), key=lambda bound: bound.epsilon)
        if other.epsilon < epsilon:
            epsilon, source = other.epsilon, other.method
    return guarantee(value, epsilon, delta, method, details={"grid": grid, "source": source}, warnings=warnings)


def _cheap_bounds(value: Mechanism, phases: tuple[Phase, ...], delta: float) -> list[Guarantee]:
    if any(phase.kind is PhaseKind.POISSON_REPLACE for phase in phases):
        return [zcdp(value, delta=delta)]
    return [
        rdp(value, delta=delta),
        zcdp(value, delta=delta),
        naive(value, delta=delta, gaussian="exact"),
        advanced(value, delta=delta, gaussian="exact"),
    ]


def exact(value: Mechanism, *, delta: float, method: str = "gaussian") -> Guarantee:
    """Give the exact ε of full-batch steps: together they are one Gaussian mechanism with μ = √Σ steps/noise².

    Args:
        value: The mechanism.
        delta: The δ of the guarantee.
        method: A name for the guarantee.

    Returns:
        The guarantee.

    Raises:
        InputError: If an argument is out of range, or the steps do not see every record.

    >>> from dosimeter import Gaussian
    >>> round(exact(Gaussian(1.0), delta=1e-5).epsilon, 3)
    4.377
    """
    value = mechanism(value)
    delta = check.delta(delta, zero=False, why_not_zero="the Gaussian mechanism has no finite ε at δ = 0")
    mu = gaussian_mu(only(value, (PhaseKind.GAUSSIAN,), method))
    if mu > 1e7:
        raise InputError(f"noise_multiplier is so small that μ = {mu:.3g}; add noise before asking for an ε.")
    epsilon = float(epsilon_from_mu(mu, delta))
    return guarantee(value, epsilon, delta, method, details={"mu": mu, "source": "exact Gaussian"})
