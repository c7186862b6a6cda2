"""What needs no training: the adversary against a Gaussian mechanism in one or more dimensions, and Table 3."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import optimize

from dosimeter.datasets import sensitivity
from dosimeter.identifiability import advantage_from_epsilon, belief_from_epsilon, epsilon_from_belief
from dosimeter.training import Transcript

DRAWS = 400_000
SEED = 0


def classic_deviation(epsilon: float, delta: float) -> float:
    """σ of the classic Gaussian mechanism at sensitivity 1, Eq. (1)."""
    return math.sqrt(2 * math.log(1.25 / delta)) / epsilon


def boundary(deviation: float) -> float:
    """The result at which the adversary changes sides, with f(D) = 0 and f(D′) = 1."""

    def log_odds(result: float) -> float:
        # Δ = f(D) − f(D′) = −1, and the noise of a run on D is the result itself.
        return float(Transcript(np.ones(1), np.array([-result]), np.full(1, deviation)).log_odds()[-1])

    return float(optimize.brentq(log_odds, -5.0, 6.0))


@dataclass(frozen=True)
class Played:
    """Many games against one mechanism: how often the adversary was right, and how often too sure."""

    advantage: float
    above: float
    """The share of beliefs in the truth above ρ_β of the mechanism's ε."""


def play(epsilon: float, delta: float, dimensions: int = 1) -> Played:
    """Play DRAWS games with f(D) = (0, …, 0), f(D′) = (1, …, 1), the noise of Eq. (1) and the library's adversary."""
    rng = np.random.default_rng(np.random.SeedSequence([SEED, dimensions]))
    apart = math.sqrt(dimensions)
    deviation = apart * classic_deviation(epsilon, delta)
    worlds = rng.random(DRAWS) < 0.5
    along = apart * deviation * rng.normal(size=(DRAWS, 1))  # ⟨noise, Δ⟩: all that the adversary reads of the noise
    seen = Transcript(np.full((DRAWS, 1), apart), along, np.full((DRAWS, 1), deviation))
    odds = seen.log_odds(trained_on_d=worlds)[:, -1]
    in_truth = np.where(worlds, odds, -odds)
    return Played(float(2 * np.mean(in_truth > 0) - 1), float(np.mean(in_truth > epsilon)))


def pairs_compared(records: int) -> int:
    """How many distances the search for the most dissimilar record takes."""
    count = 0

    def counting(first: np.ndarray, second: np.ndarray) -> np.ndarray:
        nonlocal count
        count += len(first) * len(second)
        away: np.ndarray = np.abs(first[:, None, 0] - second[None, :, 0])
        return away

    x = np.random.default_rng(SEED).random((records, 1))
    sensitivity.unbounded(x, distance=counting, block=16)
    return count


def table3(beliefs: tuple[float, ...], delta: float) -> dict[float, tuple[float, float]]:
    """ε and ρ_α of each belief."""
    epsilons = {belief: float(epsilon_from_belief(belief)) for belief in beliefs}
    return {
        b: (epsilon, float(advantage_from_epsilon(epsilon, delta=delta, method="classic")))
        for b, epsilon in epsilons.items()
    }


def curves(deltas: tuple[float, ...], largest: float = 6.0) -> list[dict[str, object]]:
    """ρ_β and, for each δ, ρ_α against ε."""
    grid = np.linspace(0.01, largest, 120)
    lines = {"belief at most, any δ": belief_from_epsilon(grid)}
    for delta in deltas:
        lines[f"advantage, δ = {delta:g}"] = advantage_from_epsilon(grid, delta=delta, method="classic")
    return [
        {"epsilon": float(e), "value": float(v), "what": what}
        for what, values in lines.items()
        for e, v in zip(grid, values, strict=True)
    ]
