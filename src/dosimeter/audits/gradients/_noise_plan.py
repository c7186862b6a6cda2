"""The noise of a gradient audit: given or chosen for a target, and what the accountants make of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from dosimeter import _validate as check
from dosimeter._validate import InputError
from dosimeter.accounting import DpSgd, Gaussian, Neighbours, noise_for_belief, noise_for_epsilon
from dosimeter.accounting.mechanism import gaussian_mu
from dosimeter.audits.gradients._neighbouring import Neighbouring
from dosimeter.audits.gradients._transcript_checks import KNOWN_BATCHES
from dosimeter.audits.gradients.transcripts import NOT_PRIVATE
from dosimeter.geometry import epsilon_from_mu
from dosimeter.identifiability import epsilon_from_belief
from dosimeter.training import Privacy, Recipe

NOISES = ("global", "local")


@dataclass(frozen=True)
class NoisePlan:
    """The recipe with its noise, the mechanism that the accountants read, and the target ε.

    `chosen` says that the audit chose the noise, `private` that it has a guarantee.
    """

    recipe: Recipe
    privacy: Privacy
    mechanism: Gaussian | DpSgd
    sensitivity: float
    epsilon: float
    chosen: bool
    private: bool
    warnings: tuple[str, ...]

    @property
    def mu(self) -> float:
        """√Σ(Δf/σ)² of the noise in force: every mechanism here is a sequence of Gaussian steps."""
        return gaussian_mu(self.mechanism.phases)


def checked_recipe(recipe: Any, noise: Any, epsilon: Any, belief: Any) -> Privacy:
    """Give the DP-SGD of a recipe, or refuse what leaves its noise open or stated twice."""
    if not isinstance(recipe, Recipe):
        raise InputError(f"recipe must be a Recipe, got {check.show(recipe)}; pass Recipe(steps=30, dp=Privacy(…)).")
    if recipe.dp is None:
        raise InputError("recipe has no dp, so there is no noise to audit; pass Recipe(dp=Privacy(1.1, clip=3), …).")
    if noise is not None:
        check.choice("noise", noise, NOISES)
    if epsilon is not None and belief is not None:
        raise InputError(f"epsilon={check.show(epsilon)} and belief={check.show(belief)} are both given; pass one.")
    if recipe.dp.noise_multiplier == 0 and epsilon is None and belief is None:
        raise InputError(
            "recipe has a noise_multiplier of 0 and no target to choose it for; pass epsilon=…, belief=… or a noise."
        )
    return recipe.dp


def noise_plan(
    recipe: Recipe, pair: Neighbouring, noise: str | None, epsilon: float | None, belief: float | None, delta: float
) -> NoisePlan:
    """Choose the noise where the recipe has none, count it, and fix the target to compare with."""
    privacy = checked_recipe(recipe, noise, epsilon, belief)
    scale = noise or privacy.sensitivity
    private = scale == "global"
    if belief is not None:
        remedy = "pass a belief above the prior 0.5 and below 1, e.g. 0.9"
        belief = check.within("belief", belief, 0.5, 1.0, remedy, include="()")
    # Noise scaled to ‖Δ‖ has the sensitivity 1 in its own units; global noise counts in clipping norms.
    settings = _as_counted(recipe, pair.size, pair.relation if private else Neighbours.ADD_REMOVE)
    multiplier, chosen = privacy.noise_multiplier, privacy.noise_multiplier == 0
    if chosen and belief is not None:
        multiplier = noise_for_belief(belief, delta=delta, **settings)
    elif chosen:
        assert epsilon is not None
        multiplier = noise_for_epsilon(epsilon, delta=delta, **settings)
    mechanism = DpSgd(multiplier, **settings)
    target = epsilon if belief is None else float(epsilon_from_belief(belief))
    if target is None:
        target = float(epsilon_from_mu(gaussian_mu(mechanism.phases), delta))
    full = recipe.batch(pair.size) == pair.size
    used = replace(privacy, noise_multiplier=multiplier, sensitivity=scale)
    return NoisePlan(
        recipe=replace(recipe, dp=used),
        privacy=used,
        mechanism=mechanism,
        sensitivity=privacy.clip * pair.relation.sensitivity,
        epsilon=check.within("epsilon", target, 0.0, math.inf, "pass the ε that the training aims at", include="()"),
        chosen=chosen,
        private=private,
        warnings=() if private and full else (KNOWN_BATCHES if private else NOT_PRIVATE,),
    )


def _as_counted(recipe: Recipe, records: int, relation: Neighbours) -> dict[str, Any]:
    """The arguments of the accountants for an adversary who knows the batches: no amplification by sampling."""
    batch = recipe.batch(records)
    if recipe.sampling == "poisson" or batch == records:
        return {"sample_rate": 1.0, "steps": recipe.length(records), "neighbours": str(relation)}
    # A record is in one batch of each pass; dropping it leaves the other batches as they are, as zeroing it out does.
    kept = Neighbours.ZERO_OUT if relation is Neighbours.ADD_REMOVE else relation
    return {
        "sample_rate": 1 / math.ceil(records / batch),
        "steps": recipe.length(records),
        "sampling": "shuffled",
        "neighbours": str(kept),
    }
