"""The plain loop, one model and one batch after another: any module, and the reference for every other path."""

from __future__ import annotations

from typing import Any

from dosimeter.training.chain import torch_module
from dosimeter.training.draws import Draws
from dosimeter.training.neighbour import Neighbour, Transcript
from dosimeter.training.recipe import Recipe
from dosimeter.training.steps import Private, divisible, log, losses, move, optimiser, parts, trained_parameters


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
    divisible(module, recipe)
    parameters = trained_parameters(module)
    optimise = optimiser(parameters, recipe)
    watch = log(recipe, [draws], neighbour, data, parameters)
    private = None if recipe.dp is None else Private(parameters, recipe, draws, watch)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(draws.layers)
        module.train()
        for batch in draws.batches():
            rows = torch.from_numpy(batch)
            optimise.zero_grad()
            if private is None:
                for part in parts(rows, recipe.accumulate):
                    losses(module(x[part]), y[part]).sum().div(len(rows)).backward()
            else:
                private.step(lambda at: clipped_sum(module, x[at], y[at], private.clip), rows)
            move(optimise, parameters)
        module.eval()
    return None if watch is None else watch.transcripts()[0]


def clipped_sum(module: Any, x: Any, y: Any, clip: float) -> list[Any]:
    """The sum of the gradients of single records, each clipped to the norm: one backward pass for each record."""
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
