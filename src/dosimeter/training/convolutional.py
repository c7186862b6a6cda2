"""Convolutional networks: one model at a time, channels last; per-example norms from layer inputs and output gradients.

On a CPU vmap is not faster than the convolutions themselves, so the gain is in the memory layout, in a pass by hand
where the network is a plain chain (conv_chain.py) and, with DP, in never holding the gradients of single records of
all layers at once: the backward pass gives δ at the output of every layer, and each layer's norms and clipped sum come
from its input and δ (by_record.py).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dosimeter._validate import FloatArray, IntArray
from dosimeter.training.by_record import ByRecord, clipped
from dosimeter.training.chain import obstacle, torch_module
from dosimeter.training.conv_chain import ConvChain
from dosimeter.training.devices import forward
from dosimeter.training.draws import Draws
from dosimeter.training.neighbour import Neighbour, Transcript
from dosimeter.training.recipe import Recipe
from dosimeter.training.steps import Private, divisible, log, losses, move, on, optimiser, parts, set_rate


def has_none(module: Any) -> str | None:
    """Why the convolutional loop is of no use: the module has no two-dimensional convolution; None if it has one."""
    nn = torch_module().nn
    return None if any(isinstance(part, nn.Conv2d) for part in module.modules()) else "it has no Conv2d"


def why_not(module: Any) -> str | None:
    """Why a module cannot be trained this way with DP-SGD, or None."""
    nn = torch_module().nn
    kinds = [type(part) for part in module.modules() if next(part.parameters(recurse=False), None) is not None]
    others = [kind.__name__ for kind in kinds if kind not in (nn.Conv2d, nn.Linear)]
    if others:
        return f"{others[0]} is neither Conv2d nor Linear"
    if nn.Conv2d not in kinds:
        return "it has no Conv2d"
    for part in module.modules():
        if type(part) is nn.Conv2d and (part.padding_mode != "zeros" or isinstance(part.padding, str)):
            return "a Conv2d has a padding that unfold does not know"
    return None


def layout(module: Any, records: Any) -> Any:
    """Channels last, unless the module's forward does not take it (`view` after a convolution does not)."""
    torch = torch_module()
    if records.ndim != 4:
        return torch.contiguous_format
    training = module.training
    try:
        with torch.no_grad():
            module.eval()
            module.to(memory_format=torch.channels_last)(records.contiguous(memory_format=torch.channels_last))
    except RuntimeError:
        return torch.contiguous_format
    finally:
        module.to(memory_format=torch.contiguous_format).train(training)
    return torch.channels_last


def train(
    modules: list[Any],
    recipe: Recipe,
    data: tuple[Any, Any],
    draws: list[Draws],
    neighbour: Neighbour | None = None,
) -> list[Transcript | None]:
    """Train modules one after another, in place."""
    torch = torch_module()
    x, y = data
    mixed, private = recipe.precision == "bf16", recipe.dp is not None  # the chain knows one type of numbers
    fixed = [_fixed(recipe, drawn) for drawn in draws]
    chains = [
        None if mixed or obstacle(module) else ConvChain.read(module, x[:2], by_record=private, fixed=count)
        for module, count in zip(modules, fixed, strict=True)
    ]
    best = torch.channels_last if chains[0] is not None else layout(modules[0], x[:2])
    x = x.contiguous(memory_format=best)
    transcripts = []
    for module, by_hand, drawn in zip(modules, chains, draws, strict=True):
        module.to(memory_format=best).train()
        transcripts.append(_train(module, by_hand, recipe, (x, y), drawn, neighbour))
        module.to(memory_format=torch.contiguous_format).eval()
    return transcripts


def _fixed(recipe: Recipe, draws: Draws) -> int:
    """The records of the batch that every step takes, or 0."""
    always = draws.full and recipe.augment is None and recipe.accumulate == 1
    return len(draws.members) if always else 0


def _train(
    module: Any,
    by_hand: ConvChain | None,
    recipe: Recipe,
    data: tuple[Any, Any],
    draws: Draws,
    neighbour: Neighbour | None,
) -> Transcript | None:
    x, y = data
    divisible(module, recipe)
    parameters = list(module.parameters())
    ask, rates = forward(module, recipe.precision, x.device), recipe.rates(draws.steps)
    optimise = optimiser(parameters, recipe)
    watch = log(recipe, [draws], neighbour, (x, y), parameters)
    private = ghost = clipped_sum = None
    if recipe.dp is not None:
        private = Private(parameters, recipe, draws, watch)
        ghost = Ghost(module, ask) if by_hand is None else None
        clipped_sum = _Sums(by_hand if ghost is None else ghost, recipe.dp.clip, kept=_fixed(recipe, draws) > 0)
    try:
        for step, batch in enumerate(draws.batches()):
            xs, ys, rows = draws.fetch(x, y, on(batch, x))
            optimise.zero_grad()
            if private is not None and clipped_sum is not None:
                private.step(clipped_sum.of(xs, ys), rows)
            elif by_hand is not None:
                for part in parts(rows, recipe.accumulate):
                    by_hand.add_gradients(xs.index_select(0, part), ys.index_select(0, part), len(rows))
            else:
                for part in parts(rows, recipe.accumulate):
                    losses(ask(xs[part]), ys[part]).sum().div(len(rows)).backward()
            set_rate(optimise, rates, step)
            move(optimise, parameters)
    finally:
        if ghost is not None:
            ghost.close()
    return None if watch is None else watch.transcripts()[0]


class _Sums:
    """Clipped sums over rows of records; if `kept`, the records last asked for are there for the next step."""

    def __init__(self, source: Any, clip: float, *, kept: bool) -> None:
        self.source, self.clip, self.kept = source, clip, kept
        self.x: Any = None
        self.rows: Any = None

    def of(self, x: Any, y: Any) -> _Sums:
        """Sums over these records from now on."""
        self.x, self.y = x, y
        return self

    def __call__(self, rows: Any) -> list[Any]:
        """The sum over these rows."""
        return self.source.clipped_sums(*self._fetched(rows), self.clip)[0]

    def apart(self, rows: Any, others: IntArray, signs: FloatArray) -> list[list[Any]]:
        """The sum over rows, and that over others times their signs, in one pass."""
        fetched = self._fetched(torch_module().cat([rows, on(np.asarray(others, np.int64), rows)]))
        return self.source.clipped_sums(*fetched, self.clip, on(signs, rows).to(fetched[0].dtype))

    def _fetched(self, rows: Any) -> tuple[Any, Any]:
        if not self.kept:
            return self.x[rows], self.y[rows]
        if self.rows is None or not torch_module().equal(rows, self.rows):
            self.rows, self.batch = rows, (self.x[rows], self.y[rows])
        return self.batch


class Ghost:
    """Clipped sums of a module whose parameters are those of Linear and Conv2d layers, each used once in a forward."""

    def __init__(self, module: Any, ask: Any = None) -> None:
        torch = torch_module()
        self.module, self.ask = module, ask or module
        kinds = (torch.nn.Linear, torch.nn.Conv2d)
        self.parts = [part for part in module.modules() if type(part) in kinds]
        self.seen: dict[Any, tuple[Any, Any]] = {}
        self.hooks = [part.register_forward_hook(self._record) for part in self.parts]
        for part in module.modules():
            if getattr(part, "inplace", False):  # would overwrite the outputs whose gradients are wanted
                part.inplace = False

    def close(self) -> None:
        """Leave the module as it was, but for in-place activations."""
        for hook in self.hooks:
            hook.remove()

    def _record(self, part: Any, inputs: Any, output: Any) -> Any:
        if not output.requires_grad:
            output.requires_grad_(True)
        self.seen[part] = (inputs[0].detach(), output)
        return output

    def clipped_sums(self, x: Any, y: Any, clip: float, signs: Any = None) -> list[list[Any]]:
        """The sum of clipped gradients, in the order of the module's parameters; `signs` as in `by_record.clipped`."""
        torch = torch_module()
        parameters = list(self.module.parameters())
        if not len(x):
            return [[torch.zeros_like(parameter) for parameter in parameters]]
        self.seen.clear()
        for parameter in parameters:  # only δ is wanted from the backward pass, not the sums
            parameter.requires_grad_(False)
        try:
            total = losses(self.ask(x), y).sum()
            parts = [part for part in self.parts if part in self.seen]
            deltas = torch.autograd.grad(total, [self.seen[part][1] for part in parts], materialize_grads=True)
        finally:
            for parameter in parameters:
                parameter.requires_grad_(True)
        with torch.no_grad():
            # In the type of the parameters: a norm that is rounded to bfloat16 would let a record move the sum too far.
            layers = [
                ByRecord(part, self.seen[part][0].to(part.weight.dtype), delta.to(part.weight.dtype))
                for part, delta in zip(parts, deltas, strict=True)
            ]
            self.seen.clear()
            return clipped(layers, clip, parameters, signs)
