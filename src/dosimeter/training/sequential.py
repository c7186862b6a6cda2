"""The plain loop, one model and one batch after another: any module, and the reference for every other path."""

from __future__ import annotations

from typing import Any

from dosimeter.training.chain import torch_module
from dosimeter.training.draws import Draws
from dosimeter.training.neighbour import Neighbour, Transcript
from dosimeter.training.recipe import Recipe
from dosimeter.training.steps import Noise, Watch, losses, optimiser, trained_parameters


def train(
    modules: list[Any],
    recipe: Recipe,
    data: tuple[Any, Any],
    draws: list[Draws],
    neighbour: Neighbour | None = None,
) -> list[Transcript | None]:
    """Train modules one after another, in place."""
    return [_train(module, recipe, data, drawn, neighbour) for module, drawn in zip(modules, draws, strict=True)]


def _train(
    module: Any, recipe: Recipe, data: tuple[Any, Any], draws: Draws, neighbour: Neighbour | None
) -> Transcript | None:
    torch = torch_module()
    x, y = data
    parameters = trained_parameters(module)
    optimise = optimiser(parameters, recipe)
    noise = None if recipe.dp is None else Noise(parameters, recipe, draws)
    watch = None if neighbour is None else Watch(neighbour, draws.steps)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(draws.layers)
        module.train()
        for batch in draws.batches():
            rows = torch.from_numpy(batch)
            optimise.zero_grad()
            if recipe.dp is None:
                if len(batch):
                    losses(module(x[rows]), y[rows]).mean().backward()
            else:
                assert noise is not None and draws.divisor is not None
                clip = recipe.dp.clip
                if watch is not None:
                    watch.look(lambda at, clip=clip: clipped_sum(module, x[at], y[at], clip))
                sums = clipped_sum(module, x[rows], y[rows], clip)
                added = noise.add(sums)
                if watch is not None:
                    watch.write(added)
                for parameter, total in zip(parameters, sums, strict=True):
                    parameter.grad = total.div_(draws.divisor)
            for parameter in parameters:
                if parameter.grad is None:  # an empty batch, or a part that the loss does not reach
                    parameter.grad = torch.zeros_like(parameter)
            optimise.step()
        module.eval()
    return None if watch is None else watch.transcript


def clipped_sum(module: Any, x: Any, y: Any, clip: float) -> list[Any]:
    """The sum of the gradients of single records, each clipped to the norm: one backward pass a record."""
    torch = torch_module()
    parameters = trained_parameters(module)
    sums = [torch.zeros_like(parameter) for parameter in parameters]
    for at in range(len(x)):
        loss = losses(module(x[at : at + 1]), y[at : at + 1]).sum()
        gradients = torch.autograd.grad(loss, parameters, materialize_grads=True)
        norm = torch.stack([gradient.square().sum() for gradient in gradients]).sum().sqrt()
        factor = (clip / norm).clamp(max=1.0)
        for total, gradient in zip(sums, gradients, strict=True):
            total.add_(gradient * factor)
    return sums
