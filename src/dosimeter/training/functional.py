"""Any module that `torch.func` can take: several models at once by vmap over their stacked parameters."""

from __future__ import annotations

from typing import Any

import numpy as np

from dosimeter.training.chain import torch_module
from dosimeter.training.draws import Draws, blocks
from dosimeter.training.recipe import Recipe
from dosimeter.training.steps import losses, optimiser

GRADIENTS = 2**24  # numbers of per-example gradients that are held at once


def train(modules: list[Any], recipe: Recipe, data: tuple[Any, Any], draws: list[Draws]) -> None:
    """Train modules of one architecture together, in place."""
    torch = torch_module()
    x, y = data
    template = modules[0].train()
    names = [name for name, _ in template.named_parameters()]
    with torch.no_grad():
        stacked = {name: torch.stack([module.get_parameter(name) for module in modules]) for name in names}
    dtype = stacked[names[0]].dtype
    optimise = optimiser(list(stacked.values()), recipe)
    gradient = _plain(template) if recipe.dp is None else _clipped(template, recipe.dp.clip, len(modules))
    noise = _Noise(stacked, recipe, draws)
    step = 0
    for rows, counts in blocks(draws):
        for at, count in zip(rows, counts, strict=True):
            width = at.shape[1]
            index = torch.from_numpy(at)
            divisors = np.array([drawn.divisor or max(1, int(n)) for drawn, n in zip(draws, count, strict=True)])
            weights = (np.arange(width) < count[:, None]) / divisors[:, None]
            found = gradient(stacked, x[index], y[index], torch.from_numpy(weights).to(dtype))
            noise.add(found)
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
    def __init__(self, stacked: dict[str, Any], recipe: Recipe, draws: list[Draws]) -> None:
        self.draws, self.scales = draws, [0.0] * len(draws)
        if recipe.dp is not None:
            size = recipe.dp.noise_multiplier * recipe.dp.clip
            self.scales = [size / float(drawn.divisor or 1) for drawn in draws]
        total = sum(parameter[0].numel() for parameter in stacked.values())
        self.flat = torch_module().empty(total, dtype=next(iter(stacked.values())).dtype)

    def add(self, gradients: dict[str, Any]) -> None:
        for model, (drawn, scale) in enumerate(zip(self.draws, self.scales, strict=True)):
            if not scale:
                continue
            drawn.noise(self.flat)
            at = 0
            for gradient in gradients.values():
                size = gradient[model].numel()
                gradient[model].add_(self.flat[at : at + size].view(gradient[model].shape), alpha=scale)
                at += size
