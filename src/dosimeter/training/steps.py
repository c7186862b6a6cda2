"""What the loops share: losses, optimisers, the gradients of DP-SGD and their transcripts."""

from __future__ import annotations

from typing import Any

import numpy as np

from dosimeter._validate import BoolArray, FloatArray, InputError
from dosimeter.training.chain import mixes_records, torch_module
from dosimeter.training.draws import Draws
from dosimeter.training.neighbour import Neighbour, Transcript
from dosimeter.training.recipe import Dirac, Privacy, Recipe


def losses(logits: Any, labels: Any) -> Any:
    """Cross-entropy of each record; one column (or none) of logits is class 1 against class 0."""
    functional = torch_module().nn.functional
    if logits.ndim == 1 or logits.shape[1] == 1:
        flat = logits.reshape(labels.shape)
        return functional.binary_cross_entropy_with_logits(flat, labels.to(flat.dtype), reduction="none")
    return functional.cross_entropy(logits, labels, reduction="none")


class Sgd:
    """The same steps as torch.optim.SGD, bit for bit, without its bookkeeping."""

    # Models of an audit are small, and thousands are trained: hooks, profiling and parameter groups of torch.optim.SGD
    # take longer than the step itself. torch offers the fused list operations under private names only (its own
    # optimisers call them); tests/training compares the result with torch.optim.SGD.

    def __init__(self, parameters: list[Any], recipe: Recipe) -> None:
        self.parameters, self.recipe, self.rate = parameters, recipe, recipe.learning_rate
        self.velocity: list[Any] = []

    def zero_grad(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None

    def step(self) -> None:
        torch, recipe = torch_module(), self.recipe
        with torch.no_grad():
            moves = [parameter.grad for parameter in self.parameters]
            if recipe.weight_decay:
                moves = torch._foreach_add(moves, self.parameters, alpha=recipe.weight_decay)
            if recipe.momentum:
                moves = self._gathered(moves)
            torch._foreach_add_(self.parameters, moves, alpha=-self.rate)

    def _gathered(self, moves: list[Any]) -> list[Any]:
        if not self.velocity:
            self.velocity = [move.clone() for move in moves]
        else:
            torch_module()._foreach_mul_(self.velocity, self.recipe.momentum)
            torch_module()._foreach_add_(self.velocity, moves)
        return self.velocity


def optimiser(parameters: list[Any], recipe: Recipe) -> Any:
    """The optimiser of a recipe."""
    if recipe.optimiser == "sgd":
        return Sgd(parameters, recipe)
    return adaptive(recipe)(parameters, lr=recipe.learning_rate, weight_decay=recipe.weight_decay)


def adaptive(recipe: Recipe) -> Any:
    """Adam or AdamW of torch."""
    return {"adam": torch_module().optim.Adam, "adamw": torch_module().optim.AdamW}[recipe.optimiser]


def set_rate(optimise: Any, rates: FloatArray | None, step: int) -> None:
    """Give an optimiser the learning rate of a step; after the last one it moves nothing."""
    if rates is None:
        return
    rate = float(rates[step]) if step < len(rates) else 0.0
    if isinstance(optimise, Sgd):
        optimise.rate = rate
    else:
        optimise.param_groups[0]["lr"] = rate


def on(array: Any, like: Any) -> Any:
    """An array as a tensor on the device of another one."""
    return torch_module().from_numpy(array).to(like.device)


def trained_parameters(module: Any) -> list[Any]:
    """The parameters that are not frozen, in the module's order."""
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


def move(optimise: Any, parameters: list[Any]) -> None:
    """One step of the optimiser; without a gradient (an empty batch, a part the loss does not reach) it is zero."""
    for parameter in parameters:
        if parameter.grad is None:
            parameter.grad = torch_module().zeros_like(parameter)
    optimise.step()


def divisible(module: Any, recipe: Recipe) -> None:
    """Refuse to work through a batch in parts where the parts are not the whole."""
    mixing = mixes_records(module)
    if recipe.accumulate > 1 and mixing is not None:
        raise InputError(
            f"accumulate={recipe.accumulate} changes what {mixing} makes of a batch; use GroupNorm, or accumulate=1."
        )


def parts(rows: Any, count: int) -> list[Any]:
    """Rows in at most this many parts, none of them empty."""
    length = len(rows)
    return list(rows.split(-(-length // count))) if length else []


class Log:
    """The transcripts of models while they train."""

    def __init__(
        self,
        recipe: Recipe,
        draws: list[Draws],
        neighbour: Neighbour | None,
        data: tuple[Any, Any],
        parameters: list[Any],
    ) -> None:
        assert recipe.dp is not None
        self.dp, self.draws, self.most = recipe.dp, draws, 0.0
        if neighbour is not None:
            self.rows, self.signs = neighbour.rows_and_signs()
            first, last = self.rows[0], self.rows[-1]
            alike = len(self.rows) == 2 and all(bool((part[first] == part[last]).all()) for part in data)
            self.most = recipe.dp.clip * len(self.rows)  # only rounding goes beyond
            for drawn in draws:
                drawn.watch(neighbour, alike)
        self.canaries = None if recipe.canaries is None else CanarySums(recipe.canaries, recipe.dp, draws, parameters)
        shape = len(draws), max(drawn.steps for drawn in draws)
        self.distances, self.projections, self.deviations = np.zeros(shape), np.zeros(shape), np.zeros(shape)

    def differs(self, step: int) -> BoolArray:
        """Of each model whether the batch of a step, once drawn, has the record in which D and D' differ."""
        return np.array([step < drawn.steps and bool(drawn.differs[step]) for drawn in self.draws])

    def note(self, step: int, distances: Any) -> FloatArray:
        """Keep ‖Δ‖ of each model; the standard deviation of the noise that the step gets."""
        self.distances[:, step] = np.minimum(distances, self.most)
        scale = self.dp.clip if self.dp.sensitivity == "global" else self.distances[:, step]
        self.deviations[:, step] = self.dp.noise_multiplier * scale
        return self.deviations[:, step]

    def transcripts(self) -> list[Transcript | None]:
        """One for each model, cut to its steps."""
        found: list[Transcript | None] = []
        for model, drawn in enumerate(self.draws):
            arrays = [
                array[model, : drawn.steps].copy() for array in (self.distances, self.projections, self.deviations)
            ]
            seen = None if self.canaries is None else self.canaries.observed[model]
            found.append(Transcript(arrays[0], arrays[1], arrays[2], seen))
        return found


class CanarySums:
    """The recipe's canaries in the sums of several models: tensors (models, numbers), one for each parameter."""

    def __init__(self, dirac: Dirac, dp: Privacy, draws: list[Draws], parameters: list[Any]) -> None:
        ends = np.cumsum([parameter.numel() for parameter in parameters])
        places = np.array(dirac.coordinates)
        if places.max() >= ends[-1]:
            raise InputError(f"canaries name coordinate {places.max()}, but the model trains {ends[-1]} numbers.")
        holders = np.searchsorted(ends, places, side="right")
        starts = np.concatenate([[0], ends[:-1]])
        self.spots = [
            (holder, on(places[holders == holder] - starts[holder], parameters[0]), holders == holder)
            for holder in np.unique(holders).tolist()
        ]
        self.draws, self.clip, self.noise, self.taken = draws, dp.clip, dp.noise_multiplier, 0
        self.subtract = dirac.subtract
        self.streams = [drawn.canaries() for drawn in draws]
        self.observed = np.zeros((len(draws), places.size))
        self.before = np.zeros_like(self.observed)
        self.rates = np.array([[drawn.size / len(drawn.pool)] for drawn in draws])
        self.sampled = self.subtract and self.noise > 0 and draws[0].recipe.sampling == "poisson"

    def add(self, tensors: list[Any], divisors: FloatArray) -> None:
        """Add the gradients of the canaries in the next batches to sums that are divided by so much."""
        if self.subtract:
            self.before = self.read(tensors)
        none = np.zeros(self.observed.shape[1], bool)
        amounts = np.array([next(stream, none) for stream in self.streams]) * (self.clip / divisors)[:, None]
        for holder, spot, which in self.spots:
            tensors[holder][:, spot] += on(amounts[:, which], tensors[holder]).to(tensors[holder].dtype)

    def read(self, tensors: list[Any]) -> FloatArray:
        """What stands at the coordinates, as (models, canaries)."""
        found = np.empty_like(self.observed)
        for holder, spot, which in self.spots:
            found[:, which] = tensors[holder][:, spot].cpu().numpy()
        return found

    def observe(self, tensors: list[Any], divisors: FloatArray, kept: FloatArray | float = 0.0) -> None:
        """Count the noisy sums of a step, divided by so much, for the models that still train.

        `kept` is what stood at the coordinates before the step. An adversary who knows the records subtracts
        everything that stood there before canaries and noise.
        """
        training = np.array([self.taken < drawn.steps for drawn in self.draws])
        seen = (self.read(tensors) - (self.before if self.subtract else kept)) * divisors[:, None]
        self.observed += np.where(training[:, None], self._evidence(seen), 0.0)
        self.taken += 1

    def _evidence(self, seen: FloatArray) -> FloatArray:
        """The log-likelihood ratio of "in" for Poisson batches, where all else is known; else what was seen."""
        if not self.sampled:
            return seen
        sure = (2 * seen / self.clip - 1) / (2 * self.noise**2)  # ln of the ratio if the canary was in the batch
        some = self.rates < 1
        rates = np.where(some, self.rates, 0.5)  # a full batch is always known: its sum says it all
        return np.where(some, np.logaddexp(np.log1p(-rates), np.log(rates) + sure), seen)


def log(
    recipe: Recipe,
    draws: list[Draws],
    neighbour: Neighbour | None,
    data: tuple[Any, Any],
    parameters: list[Any],
) -> Log | None:
    """Where the transcripts of a training of models with such parameters go; None if nobody watches."""
    if neighbour is not None or recipe.canaries is not None:
        return Log(recipe, draws, neighbour, data, parameters)
    if recipe.dp is not None and recipe.dp.sensitivity == "local":
        raise InputError("sensitivity='local' scales the noise to two data sets; pass neighbour=Neighbour(…).")
    return None


class Private:
    """The gradients of DP-SGD of one model, from whatever sums clipped gradients of rows."""

    def __init__(self, parameters: list[Any], recipe: Recipe, draws: Draws, log: Log | None) -> None:
        assert recipe.dp is not None
        self.parameters, self.recipe, self.draws, self.log, self.taken = parameters, recipe, draws, log, 0
        self.clip, self.scale = recipe.dp.clip, recipe.dp.noise_multiplier * recipe.dp.clip
        self.noisy = recipe.dp.noise_multiplier > 0
        total = sum(parameter.numel() for parameter in parameters)
        self.flat = parameters[0].new_zeros(total)

    def step(self, clipped_sum: Any, rows: Any) -> None:
        """Set the gradients of the parameters for a batch; `clipped_sum` of some rows is a part of their sum.

        If it has `apart`, one call gives the sum over the batch and Δ.
        """
        difference = None
        first, *others = parts(rows, self.recipe.accumulate) or [rows]
        together = hasattr(clipped_sum, "apart") and len(first) > 0 and not others
        if together and self.log is not None and self.log.differs(self.taken)[0]:
            sums, difference = clipped_sum.apart(first, self.log.rows, self.log.signs)
            self._note(self.log, difference)
        else:
            if self.log is not None:
                difference = self._difference(self.log, clipped_sum)
            sums = clipped_sum(first)
        for part in others:
            for total, more in zip(sums, clipped_sum(part), strict=True):
                total.add_(more)
        canaries = None if self.log is None else self.log.canaries
        if canaries is not None:
            sums = [total.contiguous() for total in sums]
            canaries.add([total.view(1, -1) for total in sums], np.ones(1))
        noise = self._noise(sums)
        for total, drawn in zip(sums, noise, strict=True):
            total.add_(drawn)
        if self.log is not None and difference is not None:
            inner = sum(float((part * drawn).sum()) for part, drawn in zip(difference, noise, strict=True))
            self.log.projections[0, self.taken] = inner
        if canaries is not None:
            canaries.observe([total.view(1, -1) for total in sums], np.ones(1))
        self.taken += 1
        for parameter, total in zip(self.parameters, sums, strict=True):
            parameter.grad = total.div_(self.draws.divisor)

    def _difference(self, log: Log, clipped_sum: Any) -> list[Any] | None:
        """Δ at the present weights, or None where it is 0; its length decides on the noise."""
        torch, found = torch_module(), None
        if log.differs(self.taken)[0]:
            terms = [
                [part * sign for part in clipped_sum(torch.tensor([row], device=self.flat.device))]
                for row, sign in zip(log.rows.tolist(), log.signs.tolist(), strict=True)
            ]
            found = [sum(pieces[1:], pieces[0]) for pieces in zip(*terms, strict=True)]
        self._note(log, found or [])
        return found

    def _note(self, log: Log, difference: list[Any]) -> None:
        """Let the length of Δ decide on the noise."""
        square = sum(float(part.square().sum()) for part in difference)
        self.scale = float(log.note(self.taken, square**0.5)[0])

    def _noise(self, sums: list[Any]) -> list[Any]:
        """The noise of the next step, in the shapes of the sums."""
        if self.noisy:
            self.draws.noise(self.flat)
            self.flat.mul_(self.scale)
        pieces = self.flat.split([total.numel() for total in sums])
        return [piece.view(total.shape) for piece, total in zip(pieces, sums, strict=True)]
