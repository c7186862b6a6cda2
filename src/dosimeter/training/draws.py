"""What chance decides in a training, drawn from its seed in one way whatever the engine: start, batches, noise."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from dosimeter._validate import IntArray
from dosimeter.training.chain import torch_module
from dosimeter.training.recipe import Recipe


class Draws:
    """The random choices of one model; start, batches and noise are streams of their own."""

    def __init__(self, seed: int, recipe: Recipe, members: IntArray) -> None:
        start, batches, noise, layers = np.random.SeedSequence(seed).spawn(4)
        self.recipe, self.members = recipe, np.asarray(members, np.int64)
        self.start, self.layers = _torch_seed(start), _torch_seed(layers)
        self.steps = recipe.length(len(self.members))
        self._batches, self._noise_seed = np.random.default_rng(batches), _torch_seed(noise)
        self._noise: Any = None

    @property
    def divisor(self) -> int | None:
        """What sums of gradients are divided by: a public number with DP, else the records of each batch (None)."""
        return None if self.recipe.dp is None else self.recipe.batch(len(self.members))

    def batches(self) -> Iterator[IntArray]:
        """The records of each step, by their row in the data."""
        count = len(self.members)
        size = self.recipe.batch(count)
        for step in range(self.steps):
            if size == count:
                yield self.members
            elif self.recipe.sampling == "poisson":  # the size first, then which: the same law as one coin a record
                drawn = self._batches.binomial(count, size / count)
                yield self.members[self._batches.choice(count, drawn, replace=False, shuffle=False)]
            else:
                at = step % -(-count // size) * size
                if at == 0:
                    order = self.members[self._batches.permutation(count)]
                yield order[at : at + size]

    def noise(self, out: Any) -> None:
        """Fill a flat tensor with the standard normal noise of the next step, parameters in the module's order."""
        if self._noise is None:  # torch's generator takes less than half the time of NumPy's
            self._noise = torch_module().Generator().manual_seed(self._noise_seed)
        out.normal_(generator=self._noise)


def _torch_seed(sequence: np.random.SeedSequence) -> int:
    return int(sequence.generate_state(1, np.uint64)[0] >> np.uint64(1))


def blocks(draws: list[Draws], align: int = 1, even: bool = False) -> Iterator[tuple[list[IntArray], IntArray]]:
    """Batches of several models side by side: for each step rows (models, width), and how many count (steps, models).

    What does not count is a member of the model, so that no model touches another's records. A model that has had its
    steps gets empty batches. The width is a multiple of `align`; that of a full batch, so that fixed batches are
    multiplied in the same way in every group, or of the widest, for Poisson batches and where all models of a run have
    equally many members (`even`).
    """
    streams = [drawn.batches() for drawn in draws]
    total, done = max(drawn.steps for drawn in draws), 0
    full = max(drawn.recipe.batch(len(drawn.members)) for drawn in draws)
    least = 1 if even or draws[0].recipe.sampling == "poisson" else full
    length = max(1, min(32, 2**21 // (full * len(draws))))
    none = np.empty(0, np.int64)
    while done < total:
        some = min(length, total - done)
        taken = [[next(stream, none) for stream in streams] for _ in range(some)]
        counts = np.array([[len(batch) for batch in step] for step in taken])
        widths = -(-np.maximum(counts.max(axis=1), least) // align) * align
        yield [_side_by_side(step, width, draws) for step, width in zip(taken, widths.tolist(), strict=True)], counts
        done += some


def _side_by_side(batches: list[IntArray], width: int, draws: list[Draws]) -> IntArray:
    rows = np.empty((len(batches), width), np.int64)
    for row, batch, drawn in zip(rows, batches, draws, strict=True):
        row[: len(batch)] = batch
        row[len(batch) :] = drawn.members[0]
    return rows
