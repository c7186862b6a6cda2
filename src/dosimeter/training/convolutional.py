"""Convolutional networks: one model at a time, channels last; per-example norms from layer inputs and output gradients.

On a CPU neither vmap nor unfolded products are faster than the convolutions themselves, so the gain is in the memory
layout, in a backward pass by hand where the network is a plain chain (conv_chain.py) and, with DP, in never holding the
gradients of single records of all layers at once: the backward pass gives δ at the output of every layer, each layer's
norms come from its input and δ (one layer at a time), and the clipped sum is the ordinary weight gradient of δ scaled
by the record's factor.
"""

from __future__ import annotations

from typing import Any

from dosimeter.training.chain import obstacle, torch_module
from dosimeter.training.conv_chain import ConvChain
from dosimeter.training.devices import forward
from dosimeter.training.draws import Draws
from dosimeter.training.neighbour import Neighbour, Transcript
from dosimeter.training.recipe import Recipe
from dosimeter.training.steps import Private, divisible, log, losses, move, on, optimiser, parts, set_rate

PIECE = 2**24  # numbers of one layer's unfolded inputs and gradients that are held at once


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
    own = recipe.dp is not None or recipe.precision == "bf16"  # autograd has it: the chain knows one type of numbers
    chains = [None if own or obstacle(module) else ConvChain.read(module, x[:2]) for module in modules]
    best = torch.channels_last if chains[0] is not None else layout(modules[0], x[:2])
    x = x.contiguous(memory_format=best)
    transcripts = []
    for module, by_hand, drawn in zip(modules, chains, draws, strict=True):
        module.to(memory_format=best).train()
        transcripts.append(_train(module, by_hand, recipe, (x, y), drawn, neighbour))
        module.to(memory_format=torch.contiguous_format).eval()
    return transcripts


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
    private = ghost = None
    if recipe.dp is not None:
        private, ghost = Private(parameters, recipe, draws, watch), Ghost(module, recipe.dp.clip, ask)
    try:
        for step, batch in enumerate(draws.batches()):
            xs, ys, rows = draws.fetch(x, y, on(batch, x))
            optimise.zero_grad()
            if by_hand is not None:
                for part in parts(rows, recipe.accumulate):
                    by_hand.add_gradients(xs.index_select(0, part), ys.index_select(0, part), len(rows))
            elif private is None:
                for part in parts(rows, recipe.accumulate):
                    losses(ask(xs[part]), ys[part]).sum().div(len(rows)).backward()
            else:
                private.step(lambda at, ghost=ghost, xs=xs, ys=ys: ghost.clipped_sum(xs[at], ys[at]), rows)
            set_rate(optimise, rates, step)
            move(optimise, parameters)
    finally:
        if ghost is not None:
            ghost.close()
    return None if watch is None else watch.transcripts()[0]


class Ghost:
    """Clipped sums of a module whose parameters are those of Linear and Conv2d layers, each used once in a forward."""

    def __init__(self, module: Any, clip: float, ask: Any = None) -> None:
        torch = torch_module()
        self.module, self.clip, self.ask = module, clip, ask or module
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

    def clipped_sum(self, x: Any, y: Any) -> list[Any]:
        """The sum of clipped gradients, in the order of the module's parameters."""
        torch = torch_module()
        parameters = list(self.module.parameters())
        if not len(x):
            return [torch.zeros_like(parameter) for parameter in parameters]
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
            kept = [
                (part, self.seen[part][0].to(part.weight.dtype), delta.to(part.weight.dtype))
                for part, delta in zip(parts, deltas, strict=True)
            ]
            squares = x.new_zeros(len(x))
            for part, a, delta in kept:
                squares += _squared_norms(part, a, delta)
            factor = (self.clip / squares.sqrt()).clamp_(max=1.0)
            found: dict[Any, Any] = {}
            for part, a, delta in kept:
                scaled = delta * factor.view(-1, *[1] * (delta.ndim - 1))
                found[part.weight], bias = _sums(part, a, scaled)
                if part.bias is not None:
                    found[part.bias] = bias
            self.seen.clear()
            return [found.get(p, torch.zeros_like(p)) for p in parameters]


def _squared_norms(part: Any, a: Any, delta: Any) -> Any:
    """‖∂loss/∂(weight, bias)‖² of each record."""
    torch = torch_module()
    if type(part) is torch.nn.Linear and a.ndim == 2:
        return delta.square().sum(1) * (a.square().sum(1) + (part.bias is not None))
    size = part.weight.numel() + (a[0].numel() * part.weight[0, 0].numel() if a.ndim == 4 else 0)
    chunk = max(1, PIECE // size)
    found = []
    for at in range(0, len(a), chunk):
        piece, error = a[at : at + chunk], delta[at : at + chunk]
        if type(part) is torch.nn.Linear:  # a row for each position
            piece, error = piece.flatten(1, -2), error.flatten(1, -2)
            square = torch.bmm(error.transpose(1, 2), piece).square().sum((1, 2))
            bias = error.sum(1).square().sum(1)
        else:
            columns = torch.nn.functional.unfold(piece, part.kernel_size, part.dilation, part.padding, part.stride)
            grouped = columns.view(len(piece) * part.groups, -1, columns.shape[2])
            error = error.reshape(len(piece) * part.groups, -1, columns.shape[2])
            square = _conv_squares(torch, grouped, error).view(len(piece), -1).sum(1)
            bias = error.view(len(piece), -1, columns.shape[2]).sum(2).square().sum(1)
        found.append(square + bias if part.bias is not None else square)
    return torch.cat(found)


def _conv_squares(torch: Any, columns: Any, error: Any) -> Any:
    """‖δ Uᵀ‖² of each record, by the product or by the two Gram matrices, whichever is less work."""
    inputs, places, outputs = columns.shape[1], columns.shape[2], error.shape[1]
    if places * (inputs + outputs) < inputs * outputs:  # Li et al., arXiv:2110.05679, Eq. (4)
        return (columns.transpose(1, 2).bmm(columns) * error.transpose(1, 2).bmm(error)).sum((1, 2))
    return error.bmm(columns.transpose(1, 2)).square().sum((1, 2))


def _sums(part: Any, a: Any, delta: Any) -> tuple[Any, Any]:
    """Gradients of weight and bias for δ at the output."""
    torch = torch_module()
    if type(part) is torch.nn.Linear:
        rows = delta.flatten(0, -2)
        return rows.T @ a.flatten(0, -2), rows.sum(0)
    _, weight, bias = torch.ops.aten.convolution_backward(
        *(delta, a, part.weight, [part.out_channels], part.stride, part.padding, part.dilation),
        *(False, [0, 0], part.groups, [False, True, True]),
    )
    return weight, bias
