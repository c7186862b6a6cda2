"""Any module that `torch.func` can take: several models at once by vmap over their stacked parameters."""

from __future__ import annotations

from typing import Any

import numpy as np

from dosimeter._validate import FloatArray, IntArray
from dosimeter.training.chain import torch_module
from dosimeter.training.draws import Draws, blocks
from dosimeter.training.neighbour import Neighbour, Transcript
from dosimeter.training.recipe import Recipe
from dosimeter.training.steps import CanarySums, Log, log, losses, optimiser, parts

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
    gradient = _plain(template) if recipe.dp is None else _clipped(template, recipe.dp.clip, len(modules))
    noise = None if recipe.dp is None else _Noise(stacked, recipe, draws)
    step = 0
    for rows, counts in blocks(draws):
        for at, count in zip(rows, counts, strict=True):
            difference = None
            if watch is not None and noise is not None:
                difference = _difference(gradient, stacked, data, watch, step)
                noise.deviations = watch.note(step, _lengths(difference)).tolist()
            found = _batch(gradient, stacked, data, at, _weights(draws, at.shape[1], count), recipe.accumulate)
            if noise is not None:
                noise.add(found, None if watch is None else watch.canaries)
                if watch is not None and difference is not None:
                    watch.projections[:, step] = noise.along(difference)
            for name, parameter in stacked.items():
                parameter.grad = found[name]
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
    for columns in parts(torch.arange(rows.shape[1]), pieces):
        index = torch.from_numpy(rows)[:, columns]
        found = gradient(stacked, x[index], y[index], torch.from_numpy(weights).to(dtype)[:, columns])
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
    return 0.0 if difference is None else torch.linalg.vector_norm(difference, dim=1, dtype=torch.float64).numpy()


def works(module: Any, x: Any, y: Any, private: bool) -> str | None:
    """Why `torch.func` cannot take the module, found by one small step, or None."""
    torch = torch_module()
    stacked = {name: torch.stack([p.detach(), p.detach()]) for name, p in module.named_parameters()}
    rows = x[:2].unsqueeze(0).expand(2, *x[:2].shape), y[:2].expand(2, len(y[:2]))
    gradient = _clipped(module, 1.0, 2) if private else _plain(module)
    try:
        gradient(stacked, *rows, torch.ones(rows[1].shape, dtype=next(iter(stacked.values())).dtype))
    except Exception as error:  # vmap refuses in many ways
        return f"torch.func.vmap cannot take it ({type(error).__name__})"
    return None


def _plain(template: Any) -> Any:
    torch = torch_module()

    def loss(parameters: Any, x: Any, y: Any, weights: Any) -> Any:
        return (losses(torch.func.functional_call(template, parameters, (x,)), y) * weights).sum()

    return torch.func.vmap(torch.func.grad(loss))


def _clipped(template: Any, clip: float, models: int) -> Any:
    """Weighted sums of clipped gradients; records go through in chunks, and chunks add up."""
    torch = torch_module()

    def loss(parameters: Any, x: Any, y: Any) -> Any:
        return losses(torch.func.functional_call(template, parameters, (x.unsqueeze(0),)), y.unsqueeze(0)).sum()

    def one_model(parameters: Any, x: Any, y: Any, weights: Any) -> Any:
        found = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))(parameters, x, y)
        squares = torch.stack([g.reshape(g.shape[0], -1).square().sum(1) for g in found.values()]).sum(0)
        factor = (clip / squares.sqrt()).clamp(max=1.0) * weights
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
        self.flat = torch_module().zeros(len(draws), total, dtype=next(iter(stacked.values())).dtype)

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
        inner: FloatArray = torch.linalg.vecdot(self.flat, difference).double().numpy()
        return inner * np.array(self.deviations)
