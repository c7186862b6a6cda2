"""Epsilon* (Negoescu et al., 2024): the exact values behind the simulation study."""

from __future__ import annotations

from scipy import stats

from dosimeter.estimators.supremum import epsilon_star_from_tails


def results() -> dict[str, float]:
    """ε* of the study's loss distributions, without sampling noise."""
    found = {"normal.3": epsilon_star_from_tails(stats.norm(0, 1), stats.norm(3, 1), delta=1e-5)}
    for delta in (1e-5, 1e-3):
        for shift in (0, 1, 2, 3):
            found[f"gamma.{shift}.{delta:g}"] = epsilon_star_from_tails(
                stats.gamma(2, scale=5), stats.gamma(2 + shift, scale=5), delta=delta
            )
    return found
