"""Dense networks that clip micro-batches: the mean gradient of some records instead of that of one.

The gradient of a micro-batch at a layer is Σ w δ ⊗ (a, 1) over its records, w one over their number. Its squared norm
is the sum of w w′ (δ · δ′)(a · a′ + 1) over all pairs of them: small matrices, so that the gradients of single
micro-batches are never held. Where the batch is one micro-batch, its gradient is at hand, and so is its norm.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dosimeter._validate import IntArray
from dosimeter.training.dense import Buffers, DenseGroup
from dosimeter.training.draws import in_slots
from dosimeter.training.steps import CanarySums, on


class MicroGroup(DenseGroup):
    """Models of one architecture that train together on micro-batches."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        assert self.recipe.dp is not None and self.recipe.dp.microbatches is not None
        self.number, self.clip = self.recipe.dp.microbatches, self.recipe.dp.clip
        self.alone = self._flat()[1] if self.number == 1 else None

    def step(self, rows: IntArray, counts: IntArray, marks: list[Any], canaries: CanarySums | None = None) -> None:
        """One step of every model on its own batch, whose records are dealt out to its micro-batches."""
        if self.alone is not None:
            for drawn, count in zip(self.draws, counts.tolist(), strict=True):
                drawn.slots(count)  # they are all in one
            self.means = on(1 / np.maximum(counts, 1), self.weights).to(self.dtype).view(-1, 1, 1)
        else:
            places = np.arange(rows.size).reshape(rows.shape)
            index, weights = in_slots(self.draws, places, counts, self.number)
            self.index, self.width = on(index.ravel(), self.weights), index.shape[2]
            self.means = on(weights, self.weights).to(self.dtype).view(-1, self.width, 1)
        super().step(rows, counts, marks, canaries)

    def _clipping(self, buffers: Buffers) -> Any:
        """What the gradient of each record is multiplied by, as (models, width, 1)."""
        if self.alone is not None:
            return self.means.expand(-1, buffers.top.shape[1], 1).clone()
        squares = self.means.new_zeros(len(self.means), self.width, self.width)
        for at, layer in enumerate(self.layers):
            products = self._pairs([buffers.input, *buffers.outputs][at])
            if layer.bias:
                products.add_(1.0)
            top = self.single and at == len(self.layers) - 1
            squares.addcmul_(products, self._pairs(buffers.top * self.unit_norm if top else buffers.deltas[at]))
        norms = self.torch.bmm(self.torch.bmm(self.means.transpose(1, 2), squares), self.means).clamp_(min=0).sqrt_()
        factors = (self.clip / norms).clamp_(max=1.0) * self.means
        found = self.means.new_zeros(self.models * buffers.top.shape[1])
        return found.index_add_(0, self.index, factors.flatten()).view(self.models, -1, 1)  # the padding adds 0

    def _pairs(self, rows: Any) -> Any:
        """The products of the records of each micro-batch with each other, (models · micro-batches, width, width)."""
        some = rows.reshape(-1, rows.shape[2]).index_select(0, self.index).view(-1, self.width, rows.shape[2])
        return self.torch.bmm(some, some.transpose(1, 2))

    def _products(self, buffers: Buffers, keep: float, into: dict[str, Any] | None = None) -> None:
        """The clipped sum; that of one micro-batch is its gradient, clipped."""
        if self.alone is None:
            super()._products(buffers, keep, into)
            return
        super()._products(buffers, 0.0, self.alone)
        parts = list(self.alone.values())
        squares = self.torch.stack([part.square().sum((1, 2)) for part in parts]).sum(0)
        factors = (self.clip / squares.sqrt()).clamp_(max=1.0).view(-1, 1, 1)
        self.velocity.mul_(keep)
        for name, part in self.alone.items():
            self.moves[name].addcmul_(part, factors)
