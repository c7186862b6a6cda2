"""Attacks that are given the model itself, and not its outputs alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dosimeter import _validate as check
from dosimeter._validate import FloatArray, InputError

LAST_LAYER = "last-layer-gradient"
AT_ONCE = 512  # records
SMALLEST = 1e-30  # norms below count as this one: a model may be sure to the last digit


@dataclass(frozen=True)
class WhiteBox:
    """Name an attack that is given the model.

    Args:
        function: A function (model, X, y) that gives one finite number for each record, high for a likely member. It is
            called where the model was trained, and its numbers are kept with the model's outputs.
        attack: What compares these numbers with those of shadow models: "auto" (LiRA, if there are shadow models),
            "lira", "lira-offline", "watson", or "loss" for the numbers themselves.
        name: What to call it; None for the name of the function.

    Raises:
        InputError: If the function is not one, or the name is not a text.

    >>> WhiteBox(last_layer_gradient).label
    'last_layer_gradient'
    """

    function: Callable[[Any, Any, Any], Any]
    attack: str = "auto"
    name: str | None = None

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise InputError(f"function must be a function (model, X, y), got {check.show(self.function)}; pass one.")
        check.choice("attack", self.attack, ("auto", "lira", "lira-offline", "watson", "loss"))
        if self.name is not None and not isinstance(self.name, str):
            raise InputError(f"name must be a text or None, got {check.show(self.name)}; pass e.g. 'gradient norm'.")

    @property
    def label(self) -> str:
        """What the audit calls it."""
        return self.name or str(getattr(self.function, "__name__", type(self.function).__name__))


def last_layer_gradient(model: Any, X: npt.ArrayLike, y: npt.ArrayLike) -> FloatArray:
    """Take minus the logarithm of the norm of each record's gradient at the last dense layer.

    A model that was trained on a record has little left to learn from it. The last layer's gradient holds the error,
    which outputs show as well, and the size of the features that it comes with, which they do not.

    Args:
        model: A torch module with a `Linear` layer, which gives logits.
        X: The records.
        y: Their classes, from 0.

    Returns:
        One number for each record, high for a likely member.

    Raises:
        InputError: If the model is not a torch module, or its outputs do not come from a dense layer.

    >>> last_layer_gradient(torch.nn.Linear(2, 2), [[0.0, 1.0]], [1]).shape  # doctest: +SKIP
    (1,)
    """
    from dosimeter.training.asking import is_module

    if not is_module(model):
        raise InputError(
            f"{LAST_LAYER} needs a torch module, got {check.show(model)}; pass a recipe, return the module from train, "
            "or pass WhiteBox(function) with a function that knows your model."
        )
    records, labels = np.asarray(X), np.asarray(y)
    parts = [
        _norms(model, records[at : at + AT_ONCE], labels[at : at + AT_ONCE]) for at in range(0, len(records), AT_ONCE)
    ]
    return -np.log(np.maximum(np.concatenate(parts), SMALLEST))


def _norms(model: Any, records: npt.NDArray[Any], labels: npt.NDArray[Any]) -> FloatArray:
    """‖∂loss/∂(weight, bias)‖ at the last dense layer, of each record."""
    import torch

    from dosimeter.training.asking import asking, to_tensor
    from dosimeter.training.steps import losses

    seen: list[tuple[Any, Any, Any]] = []

    def keep(layer: Any, inputs: Any, output: Any) -> Any:
        output = output.detach().requires_grad_(True)  # only what follows the layer needs a gradient
        seen.append((layer, inputs[0].detach(), output))
        return output

    hooks = [part.register_forward_hook(keep) for part in model.modules() if isinstance(part, torch.nn.Linear)]
    try:
        with asking(model) as device, torch.enable_grad():
            outputs = model(to_tensor(records, model, device))
            outputs = getattr(outputs, "logits", outputs)
            delta = None
            if seen and outputs.requires_grad:
                layer, features, output = seen[-1]
                total = losses(outputs, torch.from_numpy(labels.astype(np.int64)).to(device)).sum()
                (delta,) = torch.autograd.grad(total, output, allow_unused=True)
            if delta is None:
                raise InputError(f"{LAST_LAYER} needs a model whose logits come from a Linear layer; pass WhiteBox(…).")
    finally:
        for hook in hooks:
            hook.remove()
    with torch.no_grad():
        delta, features = delta.double(), features.double()
        if delta.ndim == 2:
            square = delta.square().sum(1) * (features.square().sum(1) + (layer.bias is not None))
        else:  # a row for each position
            delta, features = delta.flatten(1, -2), features.flatten(1, -2)
            square = torch.bmm(delta.transpose(1, 2), features).square().sum((1, 2))
            if layer.bias is not None:
                square = square + delta.sum(1).square().sum(1)
    found: FloatArray = square.sqrt().cpu().numpy()
    return found
