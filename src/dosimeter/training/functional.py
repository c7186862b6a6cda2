"""Any module that `torch.func` can take: several models at once by vmap over their stacked parameters."""

from __future__ import annotations

from typing import Any

import numpy as np

from dosimeter._validate import FloatArray, IntArray
from dosimeter.training.chain import torch_module
from dosimeter.training.devices import forward
from dosimeter.training.draws import Draws, blocks, in_slots
from dosimeter.training.neighbour import Neighbour, Transcript
from dosimeter.training.recipe import Recipe
from dosimeter.training.steps import CanarySums, Log, log, losses, on, optimiser, parts, set_rate

GRADIENTS = 2**24  # numbers of per-example gradients that are held at once


def train(
    modules: list[Any],
    recipe: Recipe,
    data: tuple[Any, Any],
    draws: list[Draws],
    neighbour: Neighbour | None = None,
) -> list[Transcript | None]:
    """Train modules of one architecture together, in place."""
    torch = torch_module()
    template = modules[0].train()
    watch = log(recipe, draws, neighbour, data, list(template.parameters()))
    names = [name for name, _ in template.named_parameters()]
    with torch.no_grad():
        stacked = {name: torch.stack([module.get_parameter(name) for module in modules]) for name in names}
    optimise = optimiser(list(stacked.values()), recipe)
    gradient = _gradient(template, recipe, len(modules))
    noise = None if recipe.dp is None else _Noise(stacked, recipe, draws)
    rates, step = recipe.rates(draws[0].steps), 0
    for rows, counts in blocks(draws):
        for at, count in zip(rows, counts, strict=True):
            difference = None
            if watch is not None and noise is not None:
                difference = _difference(gradient, stacked, data, watch, step)
                noise.deviations = watch.note(step, _lengths(difference)).tolist()
            fetched, rows_at, weights = _fetched(recipe, draws, data, at, count)
            found = _batch(gradient, stacked, fetched, rows_at, weights, recipe.accumulate)
            if noise is not None:
                noise.add(found, None if watch is None else watch.canaries)
                if watch is not None and difference is not None:
                    watch.projections[:, step] = noise.along(difference)
            for name, parameter in stacked.items():
                parameter.grad = found[name]
            set_rate(optimise, rates, step)
            with torch.no_grad():
                optimise.step()
            step += 1
            for model, drawn in enumerate(draws):
                if drawn.steps == step:
                    with torch.no_grad():
                        for name in names:
                            modules[model].get_parameter(name).copy_(stacked[name][model])
    for module in modules:
        module.eval()
    return [None] * len(modules) if watch is None else watch.transcripts()


def _fetched(
    recipe: Recipe, draws: list[Draws], data: tuple[Any, Any], rows: IntArray, counts: IntArray
) -> tuple[tuple[Any, Any], IntArray, FloatArray]:
    """The records of a step, the rows of each model in them, and their weights.

    Rows are (models, width), or (models, micro-batches, width). With an augmentation the records are newly made ones,
    those of one model after those of the other.
    """
    if recipe.augment is not None:
        rows, data = _augmented(draws, data, rows, counts)
    if recipe.dp is None or recipe.dp.microbatches is None:
        return data, rows, _weights(draws, rows.shape[1], counts)
    return data, *in_slots(draws, rows, counts, recipe.dp.microbatches)


def _augmented(
    draws: list[Draws], data: tuple[Any, Any], rows: IntArray, counts: IntArray
) -> tuple[IntArray, tuple[Any, Any]]:
    torch, (x, y), index = torch_module(), data, on(rows, data[0])
    fresh = []
    for drawn, row, count in zip(draws, index, counts.tolist(), strict=True):
        fresh += [drawn.augmented(x[row[:count]]), x[row[count:]]]  # padding stays as it is: it counts for nothing
    places: IntArray = np.arange(rows.size).reshape(rows.shape)
    return places, (torch.cat(fresh), y[index.flatten()])


def _weights(draws: list[Draws], width: int, counts: IntArray) -> FloatArray:
    """1 / divisor for the records of a batch, 0 for the padding, as (models, width)."""
    divisors = np.array([drawn.divisor or max(1, int(n)) for drawn, n in zip(draws, counts, strict=True)])
    return (np.arange(width) < counts[:, None]) / divisors[:, None]


def _batch(
    gradient: Any, stacked: dict[str, Any], data: tuple[Any, Any], rows: IntArray, weights: FloatArray, pieces: int
) -> dict[str, Any]:
    """Weighted sums of gradients over rows (models, width), in so many parts of the width."""
    torch, (x, y) = torch_module(), data
    dtype = next(iter(stacked.values())).dtype
    total: dict[str, Any] = {}
    for columns in parts(torch.arange(rows.shape[1], device=x.device), pieces):
        index = on(rows, x)[:, columns]
        found = gradient(stacked, x[index], y[index], on(weights, x).to(dtype)[:, columns])
        total = {name: g if not total else total[name].add_(g) for name, g in found.items()}
    return total


def _difference(gradient: Any, stacked: dict[str, Any], data: tuple[Any, Any], watch: Log, step: int) -> Any:
    """Δ of each model at the present weights as (models, parameters); None where it is 0 for all."""
    differs = watch.differs(step)
    if not differs.any():
        return None
    rows = np.tile(watch.rows, (len(differs), 1))
    found = _batch(gradient, stacked, data, rows, differs[:, None] * watch.signs, 1)
    return torch_module().cat([part.flatten(1) for part in found.values()], 1)


def _lengths(difference: Any) -> Any:
    """‖Δ‖ of each model."""
    torch = torch_module()
    return 0.0 if difference is None else torch.linalg.vector_norm(difference, dim=1, dtype=torch.float64).cpu().numpy()


def works(module: Any, x: Any, y: Any, recipe: Recipe) -> str | None:
    """Why `torch.func` cannot take the module, found by one small step, or None."""
    torch = torch_module()
    stacked = {name: torch.stack([p.detach(), p.detach()]) for name, p in module.named_parameters()}
    rows = x[:2].unsqueeze(0).expand(2, *x[:2].shape), y[:2].expand(2, len(y[:2]))
    if recipe.dp is not None and recipe.dp.microbatches is not None:
        rows = rows[0].unsqueeze(1), rows[1].unsqueeze(1)
    gradient = _gradient(module, recipe, 2)
    try:
        gradient(stacked, *rows, torch.ones(rows[1].shape, dtype=next(iter(stacked.values())).dtype))
    except Exception as error:  # vmap refuses in many ways
        return f"torch.func.vmap cannot take it ({type(error).__name__})"
    return None


def _gradient(template: Any, recipe: Recipe, models: int) -> Any:
    """The gradient of a recipe as a function of stacked parameters, records, labels and weights."""
    torch = torch_module()

    def call(parameters: Any, x: Any) -> Any:
        return torch.func.functional_call(template, parameters, (x,))

    ask = forward(call, recipe.precision, next(template.parameters()).device)
    if recipe.dp is None:
        return _plain(ask)
    return _clipped(ask, template, recipe.dp.clip, recipe.dp.microbatches, models)


def _plain(ask: Any) -> Any:
    torch = torch_module()

    def loss(parameters: Any, x: Any, y: Any, weights: Any) -> Any:
        return (losses(ask(parameters, x), y) * weights).sum()

    return torch.func.vmap(torch.func.grad(loss))


def _clipped(ask: Any, template: Any, clip: float, number: int | None, models: int) -> Any:
    """Weighted sums of clipped gradients, of records or of the weighted means of `number` micro-batches.

    Records or micro-batches go through in chunks, and chunks add up.
    """
    torch = torch_module()

    def loss(parameters: Any, x: Any, y: Any) -> Any:
        return losses(ask(parameters, x.unsqueeze(0)), y.unsqueeze(0)).sum()

    def mean_loss(parameters: Any, x: Any, y: Any, weights: Any) -> Any:
        return (losses(ask(parameters, x), y) * weights).sum()

    def one_model(parameters: Any, x: Any, y: Any, weights: Any) -> Any:
        if number is None:
            found = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))(parameters, x, y)
        else:
            found = torch.func.vmap(torch.func.grad(mean_loss), in_dims=(None, 0, 0, 0))(parameters, x, y, weights)
        squares = torch.stack([g.reshape(g.shape[0], -1).square().sum(1) for g in found.values()]).sum(0)
        factor = (clip / squares.sqrt()).clamp(max=1.0)
        factor = factor * weights if number is None else factor / number
        return {name: torch.tensordot(factor, g, dims=1) for name, g in found.items()}

    together = torch.func.vmap(one_model)
    size = sum(parameter.numel() for parameter in template.parameters())
    chunk = max(1, GRADIENTS // (size * models))

    def gradient(stacked: Any, x: Any, y: Any, weights: Any) -> Any:
        total: dict[str, Any] = {}
        for at in range(0, x.shape[1], chunk):
            part = slice(at, at + chunk)
            found = together(stacked, x[:, part], y[:, part], weights[:, part])
            total = {name: g if not total else total[name].add_(g) for name, g in found.items()}
        return total

    return gradient


class _Noise:
    """The noise of DP-SGD, a row for each model."""

    def __init__(self, stacked: dict[str, Any], recipe: Recipe, draws: list[Draws]) -> None:
        assert recipe.dp is not None
        self.draws, self.silent = draws, recipe.dp.noise_multiplier == 0
        self.deviations = [recipe.dp.noise_multiplier * recipe.dp.clip] * len(draws)
        self.divisors = np.array([drawn.divisor for drawn in draws], np.float64)
        total = sum(parameter[0].numel() for parameter in stacked.values())
        self.flat = next(iter(stacked.values())).new_zeros(len(draws), total)

    def add(self, gradients: dict[str, Any], canaries: CanarySums | None) -> None:
        """Add the canaries and the noise of the next step to gradients that are divided by the batch."""
        flat = [gradient.view(len(gradient), -1) for gradient in gradients.values()] if canaries is not None else []
        if canaries is not None:
            canaries.add(flat, self.divisors)
        if not self.silent:
            self._add(gradients)
        if canaries is not None:
            canaries.observe(flat, self.divisors)

    def _add(self, gradients: dict[str, Any]) -> None:
        sizes = [gradient[0].numel() for gradient in gradients.values()]
        for model, (drawn, row) in enumerate(zip(self.draws, self.flat, strict=True)):
            drawn.noise(row)
            for gradient, piece in zip(gradients.values(), row.split(sizes), strict=True):
                one = gradient[model]
                one.add_(piece.view(one.shape), alpha=self.deviations[model] / float(self.divisors[model]))

    def along(self, difference: Any) -> FloatArray:
        """⟨noise on the sum, Δ⟩ of each model in the step just taken."""
        torch = torch_module()
        inner: FloatArray = torch.linalg.vecdot(self.flat, difference).double().cpu().numpy()
        return inner * np.array(self.deviations)
