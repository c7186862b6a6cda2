"""The plain loop, one model and one batch after another: any module, and the reference for every other path."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dosimeter.training.chain import torch_module
from dosimeter.training.devices import forward, seeded
from dosimeter.training.draws import Draws
from dosimeter.training.neighbour import Neighbour, Transcript
from dosimeter.training.recipe import Recipe
from dosimeter.training.steps import (
    Private,
    divisible,
    log,
    losses,
    move,
    on,
    optimiser,
    parts,
    set_rate,
    trained_parameters,
)


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
    x, y = data
    divisible(module, recipe)
    parameters = trained_parameters(module)
    optimise = optimiser(parameters, recipe)
    watch = log(recipe, [draws], neighbour, data, parameters)
    private = None if recipe.dp is None else Private(parameters, recipe, draws, watch)
    ask, rates = forward(module, recipe.precision, x.device), recipe.rates(draws.steps)
    with seeded(draws.layers, x.device):
        module.train()
        for step, batch in enumerate(draws.batches()):
            xs, ys, rows = draws.fetch(x, y, on(batch, x))
            optimise.zero_grad()
            if private is None:
                for part in parts(rows, recipe.accumulate):
                    losses(ask(xs[part]), ys[part]).sum().div(len(rows)).backward()
            else:
                pieces = _pieces(recipe, draws, rows)
                private.step(_Clipped(ask, parameters, private.clip, xs, ys, pieces), _numbers(rows, pieces))
            set_rate(optimise, rates, step)
            move(optimise, parameters)
        module.eval()
    return None if watch is None else watch.transcripts()[0]


def _pieces(recipe: Recipe, draws: Draws, rows: Any) -> list[Any] | None:
    """The rows of each micro-batch that has any; None where each record is its own."""
    if recipe.dp is None or recipe.dp.microbatches is None:
        return None
    slots = draws.slots(len(rows))
    return [rows[on(np.flatnonzero(slots == slot), rows)] for slot in np.unique(slots)]


def _numbers(rows: Any, pieces: list[Any] | None) -> Any:
    """What is summed over: the rows of single records, or the numbers of micro-batches."""
    return rows if pieces is None else torch_module().arange(len(pieces))


@dataclass(frozen=True, eq=False)
class _Clipped:
    """Sums of gradients, each clipped to the norm: of single records or of the means of micro-batches."""

    ask: Any
    parameters: list[Any]
    clip: float
    x: Any
    y: Any
    pieces: list[Any] | None

    def __call__(self, at: Any) -> list[Any]:
        """One backward pass for each of these records or micro-batches."""
        torch = torch_module()
        sums = [torch.zeros_like(parameter) for parameter in self.parameters]
        for rows in at.split(1) if self.pieces is None else [self.pieces[number] for number in at.tolist()]:
            loss = losses(self.ask(self.x[rows]), self.y[rows]).mean()
            gradients = torch.autograd.grad(loss, self.parameters, materialize_grads=True)
            norm = torch.stack([gradient.square().sum() for gradient in gradients]).sum().sqrt()
            factor = (self.clip / norm).clamp(max=1.0)
            for total, gradient in zip(sums, gradients, strict=True):
                total.add_(gradient * factor)
        return sums
