"""What the loops share: losses, optimisers, noise and the mean of a batch."""

from __future__ import annotations

from typing import Any

from dosimeter.training.chain import torch_module
from dosimeter.training.draws import Draws
from dosimeter.training.neighbour import Neighbour, Transcript
from dosimeter.training.recipe import Recipe


def losses(logits: Any, labels: Any) -> Any:
    """Cross-entropy of each record; one column (or none) of logits is class 1 against class 0."""
    functional = torch_module().nn.functional
    if logits.ndim == 1 or logits.shape[1] == 1:
        flat = logits.reshape(labels.shape)
        return functional.binary_cross_entropy_with_logits(flat, labels.to(flat.dtype), reduction="none")
    return functional.cross_entropy(logits, labels, reduction="none")


def optimiser(parameters: list[Any], recipe: Recipe) -> Any:
    """The torch optimiser of a recipe."""
    optim = torch_module().optim
    common: dict[str, Any] = {"lr": recipe.learning_rate, "weight_decay": recipe.weight_decay}
    if recipe.optimiser == "adam":
        return optim.Adam(parameters, **common)
    return optim.SGD(parameters, momentum=recipe.momentum, **common)


def trained_parameters(module: Any) -> list[Any]:
    """The parameters that are not frozen, in the module's order."""
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


class Noise:
    """The Gaussian noise of DP-SGD on the sum of a batch, from a model's own stream."""

    def __init__(self, parameters: list[Any], recipe: Recipe, draws: Draws) -> None:
        assert recipe.dp is not None
        self.draws, self.scale = draws, recipe.dp.noise_multiplier * recipe.dp.clip
        total = sum(parameter.numel() for parameter in parameters)
        self.flat = torch_module().zeros(total, dtype=parameters[0].dtype)

    def add(self, sums: list[Any]) -> list[Any]:
        """Add the noise of the next step, and return it."""
        if self.scale:
            self.draws.noise(self.flat)
            self.flat.mul_(self.scale)
        at, added = 0, []
        for total in sums:
            added.append(self.flat[at : at + total.numel()].view(total.shape))
            total.add_(added[-1])
            at += total.numel()
        return added


class Watch:
    """Writes the transcript of a training, with clipped sums from whatever computes them."""

    def __init__(self, neighbour: Neighbour, steps: int) -> None:
        self.rows, self.signs = neighbour.rows_and_signs()
        self.transcript, self.step = Transcript.empty(steps), 0

    def look(self, clipped_sum: Any) -> None:
        """Note Δ at the present weights."""
        torch = torch_module()
        terms = [
            [part * sign for part in clipped_sum(torch.tensor([row]))]
            for row, sign in zip(self.rows.tolist(), self.signs.tolist(), strict=True)
        ]
        self.difference = [sum(parts[1:], parts[0]) for parts in zip(*terms, strict=True)]

    def write(self, noise: list[Any]) -> None:
        """Note ‖Δ‖ and ⟨noise, Δ⟩ of the step."""
        pairs = list(zip(self.difference, noise, strict=True))
        self.transcript.distances[self.step] = float(sum(part.square().sum() for part, _ in pairs)) ** 0.5
        self.transcript.projections[self.step] = float(sum((part * drawn).sum() for part, drawn in pairs))
        self.step += 1
