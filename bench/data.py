"""The inputs, the same in every process: drawn from a seed, members first."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

DELTA = 1e-5


@lru_cache(maxsize=2)
def scores(members: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """As many N(1, 1) scores of members and N(0, 1) scores of non-members: exactly 1-GDP, ε = 4.377 at δ = 1e-5."""
    rng = np.random.default_rng(seed)
    return rng.normal(1.0, 1.0, members), rng.normal(0.0, 1.0, members)


@lru_cache(maxsize=2)
def canaries(records: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores N(S, 1) and the fair coins S."""
    rng = np.random.default_rng(0)
    included = rng.random(records) < 0.5
    return rng.normal(0.0, 1.0, records) + included, included


@lru_cache(maxsize=2)
def losses(members: int) -> tuple[np.ndarray, np.ndarray]:
    """Losses of members and of non-members, the members' lower."""
    rng = np.random.default_rng(0)
    return rng.normal(-1.0, 1.0, members), rng.normal(0.0, 1.0, members)
