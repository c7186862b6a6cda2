"""PyTorch modules: in eval mode, without gradients, on any device, left as they were found."""

from __future__ import annotations

from typing import Any

from dosimeter.models.black_box import Batched
from dosimeter.training.asking import asking, checked_device, out_of_memory, to_tensor

__all__ = ["TorchModule", "asking", "checked_device", "out_of_memory", "to_tensor"]


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
