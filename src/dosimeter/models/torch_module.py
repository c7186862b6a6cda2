"""PyTorch modules: in eval mode, without gradients, on any device, left as they were found."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from dosimeter import _optional
from dosimeter._validate import InputError, show
from dosimeter.models.black_box import Batched


class TorchModule(Batched):
    """A module whose outputs are logits: (n,) or (n, 1) of class 1, or (n, classes)."""

    expansion = 64  # activations

    def __init__(self, module: Any, *, device: Any = None, **options: Any) -> None:
        super().__init__(**options)
        self.module, self.device = module, checked_device(device)

    def _predict(self, rows: Any) -> Any:
        with asking(self.module, self.device) as device:
            answer = self.module(to_tensor(rows, self.module, device))
        return getattr(answer, "logits", answer)


@contextmanager
def asking(module: Any, device: Any = None) -> Iterator[Any]:
    """Eval mode, no gradients and the device, for as long as the module is asked; yields the device."""
    torch: Any = _optional.require("torch", extra="torch", caller="dosimeter.models")
    modes = [(part, part.training) for part in module.modules()]
    first = next(iter([*module.parameters(), *module.buffers()]), None)
    home = torch.device("cpu") if first is None else first.device
    moved = device is not None and first is not None and torch.device(device) != home
    try:
        module.eval()
        if moved:
            module.to(device)
        with torch.no_grad():  # not inference_mode: what a module caches now must serve training later
            yield home if device is None else torch.device(device)
    except RuntimeError as error:
        if out_of_memory(error):
            raise MemoryError from None
        raise
    finally:
        if moved:
            module.to(home)
        for part, training in modes:
            part.training = training


def out_of_memory(error: RuntimeError) -> bool:
    """Whether torch failed for want of memory, on whatever device."""
    text = str(error).lower()
    return "out of memory" in text or "can't allocate memory" in text


def checked_device(device: Any) -> Any:
    """A device that torch knows and this machine has, or None."""
    if device is None:
        return None
    torch: Any = _optional.require("torch", extra="torch", caller="dosimeter.models")
    try:
        return torch.empty(0, device=device).device
    except Exception as error:
        raise InputError(
            f"device {show(device)} cannot be used here ({show(str(error), 80)}); pass e.g. 'cpu'."
        ) from None


def to_tensor(rows: Any, module: Any, device: Any) -> Any:
    """Records as a tensor; real numbers and bytes take the type of the parameters, int32 and int64 stay."""
    torch: Any = _optional.require("torch", extra="torch", caller="dosimeter.models")
    if not isinstance(rows, torch.Tensor):
        array = np.asarray(rows)
        if array.dtype.kind not in "biuf":
            raise InputError(
                f"X has type {array.dtype}, which a torch module cannot take; pass numbers, or wrap text models in "
                "HuggingFace(model, tokenizer)."
            )
        rows = torch.from_numpy(np.array(array, order="C"))
    kept = rows.dtype in (torch.int32, torch.int64)
    wanted = next((p.dtype for p in module.parameters() if p.is_floating_point()), torch.float32)
    return rows.to(device=device, dtype=rows.dtype if kept else wanted)
