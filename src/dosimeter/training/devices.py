"""In which precision and from which seed a training computes, on any device: the same for every loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from dosimeter.engine.work import seed_torch
from dosimeter.training.chain import torch_module


def parameter_type(precision: str | None) -> Any:
    """The type that parameters are cast to, or None where they keep their own."""
    torch = torch_module()
    return {"float32": torch.float32, "float64": torch.float64, "bf16": torch.float32}.get(precision or "")


def forward(module: Callable[..., Any], precision: str | None, device: Any) -> Callable[..., Any]:
    """Call a module in the precision of a recipe.

    With "bf16" the products are computed in bfloat16 (torch's autocast). Parameters and their gradients stay in single
    precision, and so do the losses, since what is logits here leaves as single precision.
    """
    if precision != "bf16":
        return module
    torch = torch_module()

    def mixed(*inputs: Any) -> Any:
        # Without the cache: a cast weight that is kept from one transform of torch.func is wrong in the next.
        with torch.autocast(device.type, dtype=torch.bfloat16, cache_enabled=False):
            logits = module(*inputs)
        return logits.float()

    return mixed


@contextmanager
def seeded(seed: int, device: Any = None) -> Iterator[None]:
    """Torch draws from this seed in the block, on the CPU and on a GPU, and afterwards as before."""
    torch = torch_module()
    kind = "cpu" if device is None else device.type
    cards = [] if kind == "cpu" else [device]
    with torch.random.fork_rng(devices=cards, device_type="cuda" if kind == "cpu" else kind):
        seed_torch(torch, seed)
        yield


def generator(device: Any, seed: int) -> Any:
    """A generator of random numbers where they are needed."""
    return torch_module().Generator(device).manual_seed(seed)
