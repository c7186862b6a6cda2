"""Quantifying identifiability (Bernau et al., 2021): Table 3, from posterior belief to ε and classic advantage."""

from __future__ import annotations

from dosimeter.identifiability import advantage_from_epsilon, epsilon_from_belief


def results() -> dict[str, float]:
    """ε for a belief, and the advantage of Theorem 3 at both δ of the paper."""
    found: dict[str, float] = {}
    for belief in (0.75, 0.9, 0.99):
        epsilon = float(epsilon_from_belief(belief))
        found[f"table3.{belief}.epsilon"] = epsilon
        for delta in (0.01, 0.001):
            found[f"table3.{belief}.{delta}.advantage"] = float(
                advantage_from_epsilon(epsilon, delta=delta, method="classic")
            )
    return found
