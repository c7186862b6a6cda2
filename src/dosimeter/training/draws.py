"""What chance decides in a training, drawn from its seed in one way whatever the engine: start, batches, noise."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from dosimeter import _validate as check
from dosimeter._validate import BoolArray, FloatArray, InputError, IntArray
from dosimeter.training.chain import torch_module
from dosimeter.training.devices import generator
from dosimeter.training.neighbour import Neighbour
from dosimeter.training.recipe import Augment, Recipe


class Draws:
    """The random choices of one model; start, batches, noise and canaries are streams of their own."""

    def __init__(self, seed: int, recipe: Recipe, members: IntArray) -> None:
        start, batches, noise, layers, canaries, slots, augment = np.random.SeedSequence(seed).spawn(7)
        self.recipe, self.members = recipe, np.asarray(members, np.int64)
        self.pool = self.members  # what batches are drawn from
        self.start, self.layers = _torch_seed(start), _torch_seed(layers)
        self.steps = recipe.length(len(self.members))
        self._batches, self._noise_seed = np.random.default_rng(batches), _torch_seed(noise)
        self._canaries, self._slots, self._augment_seed = canaries, np.random.default_rng(slots), _torch_seed(augment)
        self._noise: Any = None
        self._augment: Any = None
        self._slot: int | None = None
        self.differs = np.zeros(self.steps, bool)

    @property
    def size(self) -> int:
        """Records in a batch (expected, for Poisson)."""
        return self.recipe.batch(len(self.pool))

    @property
    def full(self) -> bool:
        """Whether every step takes all members."""
        return self.size == len(self.pool)

    @property
    def divisor(self) -> int | None:
        """What sums of gradients are divided by: a public number with DP, else the records of each batch (None)."""
        dp = self.recipe.dp
        return None if dp is None else dp.microbatches or self.size

    def watch(self, neighbour: Neighbour, alike: bool = False) -> None:
        """Let the batches of D and D' be the same but for the record in which they differ; before any is drawn.

        They are drawn for the members with the removed record and without the added one (with it, where nothing is
        removed). A training on the other data set finds the slot of that record empty, or filled by the added one.
        From then on `differs` says of each step drawn so far whether its batch has that slot; never, if the records
        that change places are `alike`.
        """
        slot, other = neighbour.removed, neighbour.added
        if slot is None:
            slot, other = other, None
        pool = np.union1d(self.members[self.members != (-1 if other is None else other)], [slot])
        if self.recipe.batch(len(pool)) == len(pool):
            self.differs[:] = not alike
            return
        self.pool, self.steps = pool, self.recipe.length(len(pool))
        self.differs = np.zeros(self.steps, bool)
        self._slot, self._other, self._alike = slot, other, alike
        self._inside = bool((self.members == slot).any())

    def batches(self) -> Iterator[IntArray]:
        """The records of each step, by their row in the data."""
        count, size = len(self.pool), self.size
        for step in range(self.steps):
            if size == count:
                batch = self.pool
            elif (
                self.recipe.sampling == "poisson"
            ):  # the size first, then which: the same law as one coin for each record
                drawn = self._batches.binomial(count, size / count)
                batch = self.pool[self._batches.choice(count, drawn, replace=False, shuffle=False)]
            else:
                at = step % -(-count // size) * size
                if at == 0:
                    order = self.pool[self._batches.permutation(count)]
                batch = order[at : at + size]
            yield batch if self._slot is None else self._in_this_world(batch, step)

    def _in_this_world(self, batch: IntArray, step: int) -> IntArray:
        found = batch == self._slot
        present = bool(found.any())
        self.differs[step] = present and not self._alike
        if self._inside or not present:
            return batch
        return batch[~found] if self._other is None else np.where(found, self._other, batch)

    def canaries(self) -> Iterator[BoolArray]:
        """Of each of the recipe's canaries whether it is in the batch of each step, as one more record would be."""
        assert self.recipe.canaries is not None
        included, rng = np.array(self.recipe.canaries.included, bool), np.random.default_rng(self._canaries)
        passes = -(-len(self.pool) // self.size)  # batches of a pass
        for step in range(self.steps):
            if self.full:
                yield included
            elif self.recipe.sampling == "poisson":
                yield included & (rng.random(included.size) < self.size / len(self.pool))
            else:
                if step % passes == 0:
                    turns = rng.integers(passes, size=included.size)
                yield included & (turns == step % passes)

    def slots(self, count: int) -> IntArray:
        """The micro-batch of each of the records of the next batch.

        Fixed batches are cut into equal parts. In others each record has a slot of its own choice, so that none moves
        the others into another micro-batch by being there: one record changes one clipped mean.
        """
        assert self.recipe.dp is not None and self.recipe.dp.microbatches is not None
        assert self.recipe.batch_size is not None
        number = self.recipe.dp.microbatches
        if self.full or self.recipe.sampling == "poisson":
            return self._slots.integers(number, size=count)
        return np.arange(count) // (self.recipe.batch_size // number)

    def fetch(self, x: Any, y: Any, rows: Any) -> tuple[Any, Any, Any]:
        """Records, labels and the rows of them that are the batch: with an augmentation, newly made ones."""
        if self.recipe.augment is None:
            return x, y, rows
        made = self.augmented(x[rows])
        return made, y[rows], torch_module().arange(len(rows), device=rows.device)

    def augmented(self, records: Any) -> Any:
        """What the recipe's augmentation makes of the records of a batch; with DP, of one after another."""
        augment = self.recipe.augment
        if augment is None or not len(records):
            return records
        if self._augment is None:
            self._augment = generator(records.device, self._augment_seed)
        parts = [records] if self.recipe.dp is None else records.split(1)
        return torch_module().cat([checked_augmentation(augment, part, self._augment) for part in parts])

    def noise(self, out: Any) -> None:
        """Fill a flat tensor with the standard normal noise of the next step, parameters in the module's order."""
        if self._noise is None:  # torch's generator takes less than half the time of NumPy's
            self._noise = generator(out.device, self._noise_seed)
        out.normal_(generator=self._noise)


def checked_augmentation(augment: Augment, records: Any, draws_from: Any) -> Any:
    """What an augmentation makes of records, if it is records of the same shape and type."""
    made = augment(records, draws_from)
    torch = torch_module()
    if not isinstance(made, torch.Tensor) or made.shape != records.shape or made.dtype != records.dtype:
        found = f"shape {tuple(made.shape)}, {made.dtype}" if isinstance(made, torch.Tensor) else check.show(made)
        raise InputError(
            f"augment must return records of shape {tuple(records.shape)} and type {records.dtype}, as it got them; "
            f"got {found}; crop, pad or cast back inside it."
        )
    return made


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
    full = max(drawn.size for drawn in draws)
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


def in_slots(draws: list[Draws], rows: IntArray, counts: IntArray, number: int) -> tuple[IntArray, FloatArray]:
    """Rows by micro-batch, (models, number, width), and 1 / records of the micro-batch; 0 for the padding."""
    slots = [drawn.slots(int(count)) for drawn, count in zip(draws, counts, strict=True)]
    sizes = np.array([np.bincount(one, minlength=number) for one in slots])
    shape = (len(draws), number, max(1, int(sizes.max())))
    index, weights = np.broadcast_to(rows[:, :1, None], shape).copy(), np.zeros(shape)
    for model, one in enumerate(slots):
        order = np.argsort(one, kind="stable")
        starts = np.cumsum(sizes[model]) - sizes[model]
        place = np.arange(one.size) - starts[one[order]]
        index[model, one[order], place] = rows[model, order]
        weights[model, one[order], place] = 1 / sizes[model][one[order]]
    return index, weights
