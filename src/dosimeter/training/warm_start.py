"""Initial weights that make a canary stand out, for black-box audits of DP-SGD.

Annamalai and De Cristofaro, "Nearly tight black-box auditing of differentially private machine learning" (2024): a
model that already fits records of this kind has small gradients on them, so the gradient of a canary, clipped to the
same norm, is most of what the noisy sums still hold. The guarantee of DP-SGD is for every initial weight, the worst
included, so a bound from such a start is a bound on the same ε.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dosimeter import _validate as check
from dosimeter._validate import InputError
from dosimeter.records import pair
from dosimeter.training.batched import train_many
from dosimeter.training.recipe import Recipe

LONG = Recipe(optimiser="adam", learning_rate=2e-3, epochs=30, batch_size=64)


@dataclass(frozen=True, eq=False)
class WarmStart:
    """A factory whose modules all start at the same weights."""

    factory: Callable[[], Any]
    weights: dict[str, npt.NDArray[Any]]

    def __call__(self) -> Any:
        import torch

        module = self.factory()
        module.load_state_dict({name: torch.as_tensor(np.array(value)) for name, value in self.weights.items()})
        return module


def warm_start(
    factory: Callable[[], Any], data: Any, *, recipe: Recipe | None = None, seed: int = 0
) -> Callable[[], Any]:
    """Train one module without noise on other records of the same kind, and start every training at its weights.

    For black-box audits of DP-SGD: pass the result in place of the factory to `audit_training`, `audit_one_run` or
    `train_many`, with a DP recipe. The weights are fixed before any coin is thrown, so bounds hold as before; they say
    what DP-SGD leaks from these weights, which its guarantee covers like any others.

    Args:
        factory: Returns a new module that gives logits.
        data: (X, y) of other records than those of the audit.
        recipe: How to train, without `dp`; by default 30 epochs of Adam.
        seed: Decides the first weights and the batches.

    Returns:
        A factory of modules.

    Raises:
        InputError: If the recipe has noise, or data, recipe and module do not fit together.

    >>> audit_training(warm_start(make, (X[500:], y[500:])), (X[:500], y[:500]), recipe=dp)  # doctest: +SKIP
    """
    chosen = LONG if recipe is None else recipe
    if not isinstance(chosen, Recipe) or chosen.dp is not None:
        raise InputError(
            f"recipe must be a Recipe without dp, got {check.show(recipe)}; the noise belongs to the audited training."
        )
    if not callable(factory):
        raise InputError(f"factory must be a function that returns a module, got {check.show(factory)}; pass one.")
    x, y = pair("data", data, "pass records of the same kind as the audit's")
    members = np.ones((1, len(y)), bool)
    trained = next(train_many(factory, chosen, (x, y), members, [seed], return_models=True, engine="inline"))
    if trained.state is None:
        raise InputError(f"the first training failed ({trained.failed}); pass another recipe.")
    return WarmStart(factory, dict(trained.state))
