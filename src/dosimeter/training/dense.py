"""Dense networks, several at once: forward, backward and update as batched matrix products.

The gradient of one record at a linear layer is δ ⊗ (a, 1), so its squared norm is ‖δ‖² (‖a‖² + 1) and DP-SGD needs
no per-example gradient: the norms of all layers give one factor a record, and scaling δ by it makes the ordinary
product δᵀa the clipped sum (Goodfellow, arXiv:1510.01799, applied to clipping).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dosimeter.training.chain import Layer, torch_module
from dosimeter.training.draws import Draws, blocks
from dosimeter.training.neighbour import Neighbour, Transcript
from dosimeter.training.recipe import Recipe

ALIGN = 8  # batches are padded to a multiple of this many records
CACHE_LINE = 16  # parameters start at a multiple of this many numbers


def train(
    modules: list[Any],
    layers: list[Layer],
    recipe: Recipe,
    data: tuple[Any, Any],
    draws: list[Draws],
    neighbour: Neighbour | None = None,
    even: bool = False,
) -> list[Transcript | None]:
    """Train modules of one architecture together, in place; `even`: all models of the run have equally many members."""
    torch = torch_module()
    transcripts = [None if neighbour is None else Transcript.empty(drawn.steps) for drawn in draws]
    with torch.no_grad():
        group = _Group(torch, modules, layers, recipe, data[0].flatten(1), data[1], draws)
        step = 0
        for rows, counts in blocks(draws, ALIGN, even):
            for at, count in zip(rows, counts, strict=True):
                difference = None if neighbour is None else group.difference(neighbour)
                group.step(at, count)
                for model, transcript in enumerate(transcripts):
                    if transcript is not None and step < draws[model].steps:
                        group.write(transcript, step, model, difference)
                step += 1
                for model, drawn in enumerate(draws):
                    if drawn.steps == step:
                        group.give_back(model)
    for module in modules:
        module.eval()
    return transcripts


class _Group:
    """Stacked weights (models, outputs, inputs), momentum and reused buffers."""

    def __init__(
        self, torch: Any, modules: list[Any], layers: list[Layer], recipe: Recipe, x: Any, y: Any, draws: list[Draws]
    ) -> None:
        self.torch, self.modules, self.layers, self.recipe = torch, modules, layers, recipe
        self.x, self.y, self.models, self.draws = x, y, len(modules), draws
        self.dtype = next(modules[0].parameters()).dtype
        self.names = [
            (f"{k.name}.weight".lstrip("."), f"{k.name}.bias".lstrip(".") if k.bias else None) for k in layers
        ]
        sizes = [parameter.numel() for parameter in modules[0].parameters()]
        order = [name for name, _ in modules[0].named_parameters()]
        self.offsets = dict(zip(order, np.cumsum([0, *sizes[:-1]]).tolist(), strict=True))
        self.weights, self.parts = self._flat()
        self.velocity, self.moves = self._flat()
        for name, part in self.parts.items():
            for model, module in enumerate(modules):
                part[model].copy_(module.get_parameter(name).view(part[model].shape))
        self.adam = None
        if recipe.optimiser == "adam":
            self.weights.grad = self.velocity
            self.adam = torch.optim.Adam(
                [self.weights], lr=recipe.learning_rate, weight_decay=recipe.weight_decay, fused=True
            )
        first = draws[0].members
        full = all(len(drawn.members) == recipe.batch(len(drawn.members)) for drawn in draws)
        self.one_input = full and all(np.array_equal(first, drawn.members) for drawn in draws[1:])
        self.same_rows = full and len({drawn.steps for drawn in draws}) == 1
        self.noise: Any = None
        if recipe.dp is not None:
            self.norms = (x * x).sum(1)
            if recipe.dp.noise_multiplier:
                self._prepare_noise(sum(sizes), recipe.dp.noise_multiplier * recipe.dp.clip)
        self.buffers: dict[tuple[int, bool], _Buffers] = {}
        self.scales: dict[tuple[int, bytes], Any] = {}

    def _prepare_noise(self, total: int, size: float) -> None:
        """Room for the noise of a step, a row for each model, and the parts of it that go to each parameter."""
        self.noise = self.torch.empty(self.models, total, dtype=self.dtype)
        self.noise_of = {}
        for name, part in self.moves.items():
            start = self.offsets[name]
            self.noise_of[name] = self.noise[:, start : start + part[0].numel()].view(part.shape)
        self.noisy = [(part, self.noise_of[name]) for name, part in self.moves.items()]
        scales = [size / float(drawn.divisor or 1) for drawn in self.draws]
        self.noise_scale = scales[0] if len(set(scales)) == 1 else None
        self.noise_scales = self.torch.tensor(scales, dtype=self.dtype).view(-1, 1, 1)

    def _flat(self) -> tuple[Any, dict[str, Any]]:
        """One flat tensor for all models and its contiguous parts by the name of the parameter."""
        sizes = [self.models * parameter.numel() for parameter in self.modules[0].parameters()]
        starts = np.cumsum([0, *(-(-size // CACHE_LINE) * CACHE_LINE for size in sizes)]).tolist()
        flat, parts = self.torch.zeros(starts[-1], dtype=self.dtype), {}
        for (name, parameter), start, size in zip(self.modules[0].named_parameters(), starts, sizes, strict=False):
            rows = parameter.shape[0] if parameter.ndim == 2 else 1
            parts[name] = flat[start : start + size].view(self.models, rows, -1)
        return flat, parts

    def give_back(self, model: int) -> None:
        """Write the weights of one model into its module."""
        for name, part in self.parts.items():
            parameter = self.modules[model].get_parameter(name)
            parameter.copy_(part[model].view(parameter.shape))

    def step(self, rows: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]) -> None:
        """One step of every model on its own batch."""
        buffers = self._buffers(rows.shape[1], self.one_input)
        if not (self.same_rows and buffers.filled):
            buffers.fill(rows[:1] if self.one_input else rows)
        factor = self._scale(counts, rows.shape[1])
        self._forward(buffers)
        self._errors(buffers)
        if self.recipe.dp is None:
            buffers.deltas[-1].mul_(factor)
            self._pass_back(buffers)
        else:
            self._pass_back(buffers)
            factor = self._clipping(buffers).mul_(factor)
            for delta in buffers.deltas:
                delta.mul_(factor)
        self._update(buffers)

    def _buffers(self, width: int, one_input: bool) -> _Buffers:
        if len(self.buffers) > 8:
            self.buffers.clear()
        if (width, one_input) not in self.buffers:
            self.buffers[width, one_input] = _Buffers(self, width, one_input)
        return self.buffers[width, one_input]

    def _scale(self, counts: npt.NDArray[np.int64], width: int) -> Any:
        """1 / divisor for the records of a batch, 0 for the padding, as (models, width, 1)."""
        key = (width, counts.tobytes())
        if key not in self.scales:
            if len(self.scales) > 32:
                self.scales.clear()
            sizes = [drawn.divisor or max(1, count) for drawn, count in zip(self.draws, counts.tolist(), strict=True)]
            scale = (np.arange(width) < counts[:, None]) / np.array(sizes)[:, None]
            self.scales[key] = self.torch.from_numpy(scale).to(self.dtype).unsqueeze(2)
        return self.scales[key]

    def _forward(self, buffers: _Buffers) -> None:
        torch, a = self.torch, buffers.input
        for at, (layer, (weight, bias), z) in enumerate(zip(self.layers, self.names, buffers.outputs, strict=True)):
            w = self.parts[weight]
            if at == 0 and buffers.one_input:
                torch.mm(buffers.rows, w.view(-1, layer.inputs).T, out=buffers.wide_output)
                if bias is not None:
                    buffers.wide_output.add_(self.parts[bias].view(1, -1))
            elif bias is None:
                torch.bmm(a, w.transpose(1, 2), out=z)
            else:
                torch.baddbmm(self.parts[bias], a, w.transpose(1, 2), out=z)
            if layer.activation == "relu":
                z.clamp_(min=0)
            elif layer.activation == "tanh":
                z.tanh_()
            elif layer.activation == "sigmoid":
                z.sigmoid_()
            a = z

    def _errors(self, buffers: _Buffers) -> None:
        """δ of each record's loss at the logits."""
        torch = self.torch
        logits, delta, labels = buffers.outputs[-1], buffers.deltas[-1], buffers.labels
        if logits.shape[2] == 1:
            torch.sigmoid(logits, out=delta)
            delta.sub_(labels)
        elif logits.shape[2] == 2:  # softmax over two is slow
            error = torch.sub(logits[:, :, 1:], logits[:, :, :1]).sigmoid_().sub_(labels)
            delta[:, :, 1:] = error
            torch.neg(error, out=delta[:, :, :1])
        else:
            torch.softmax(logits, 2, out=delta)
            delta.scatter_add_(2, labels, buffers.minus_one)

    def _pass_back(self, buffers: _Buffers) -> None:
        """δ at the layers below the logits."""
        torch = self.torch
        for at in range(len(self.layers) - 1, 0, -1):
            below, h = buffers.deltas[at - 1], buffers.outputs[at - 1]
            raw = buffers.narrow if at == 1 and buffers.one_input else below
            torch.bmm(buffers.deltas[at], self.parts[self.names[at][0]], out=raw)
            kind = self.layers[at - 1].activation
            if kind == "relu":
                torch.ops.aten.threshold_backward.grad_input(raw, h, 0, grad_input=below)
            elif kind == "tanh":
                torch.ops.aten.tanh_backward.grad_input(raw, h, grad_input=below)
            elif kind == "sigmoid":
                torch.ops.aten.sigmoid_backward.grad_input(raw, h, grad_input=below)
            elif raw is not below:
                below.copy_(raw)

    def _clipping(self, buffers: _Buffers) -> Any:
        """min(1, clip / norm of its gradient) of each record, as (models, width, 1)."""
        torch, dp = self.torch, self.recipe.dp
        assert dp is not None
        total = None
        for at, layer in enumerate(self.layers):
            if at == 0:
                size = buffers.norms + float(layer.bias)
            else:
                size = torch.linalg.vector_norm(buffers.outputs[at - 1], dim=2, keepdim=True).square_()
                if layer.bias:
                    size.add_(1)
            size = size * torch.linalg.vector_norm(buffers.deltas[at], dim=2, keepdim=True).square_()
            total = size if total is None else total.add_(size)
        assert total is not None
        return total.rsqrt_().mul_(dp.clip).clamp_(max=1)

    def _products(self, buffers: _Buffers, into: dict[str, Any], keep: float) -> None:
        """into = keep · into + Σ over records of δ ⊗ (a, 1)."""
        torch, a = self.torch, buffers.input
        for at, ((weight, bias), z, delta) in enumerate(zip(self.names, buffers.outputs, buffers.deltas, strict=True)):
            if at == 0 and buffers.one_input:
                into[weight].view(-1, buffers.rows.shape[1]).addmm_(buffers.wide_delta.T, buffers.rows, beta=keep)
            else:
                into[weight].baddbmm_(delta.transpose(1, 2), a, beta=keep)
            if bias is not None:
                total = torch.sum(delta, 1, keepdim=True)
                into[bias].copy_(total.add_(into[bias], alpha=keep) if keep else total)
            a = z

    def _update(self, buffers: _Buffers) -> None:
        """Momentum is the β of the product that makes the gradient; one pass then moves all weights."""
        recipe, keep = self.recipe, self.recipe.momentum
        if recipe.weight_decay and self.adam is None:
            self.velocity.mul_(keep).add_(self.weights, alpha=recipe.weight_decay)
            keep = 1.0
        self._products(buffers, self.moves, keep)
        if self.noise is not None:
            self._add_noise()
        if self.adam is None:
            self.weights.add_(self.velocity, alpha=-recipe.learning_rate)
        else:
            self.adam.step()

    def _add_noise(self) -> None:
        for drawn, row in zip(self.draws, self.noise, strict=True):
            drawn.noise(row)
        for part, drawn_part in self.noisy:
            if self.noise_scale is not None:
                part.add_(drawn_part, alpha=self.noise_scale)
            else:
                part.addcmul_(drawn_part, self.noise_scales)

    def difference(self, neighbour: Neighbour) -> dict[str, Any]:
        """ĝ(D) − ĝ(D'), the clipped sums of the two data sets at the present weights, by parameter."""
        rows, signs = neighbour.rows_and_signs()
        buffers = self._buffers(-len(rows), False)
        if not buffers.filled:
            buffers.fill(np.tile(rows, (self.models, 1)))
        self._forward(buffers)
        self._errors(buffers)
        self._pass_back(buffers)
        factor = self._clipping(buffers).mul_(self.torch.from_numpy(signs).to(self.dtype).view(1, -1, 1))
        for delta in buffers.deltas:
            delta.mul_(factor)
        found = {name: self.torch.empty_like(part) for name, part in self.parts.items()}
        self._products(buffers, found, 0.0)
        return found

    def write(self, transcript: Transcript, step: int, model: int, difference: dict[str, Any] | None) -> None:
        """Note ‖Δ‖² and ⟨noise, Δ⟩ of the step just taken."""
        dp = self.recipe.dp
        assert dp is not None and difference is not None
        square = inner = 0.0
        for name, part in difference.items():
            flat = part[model].view(-1)
            square += float(flat.dot(flat))
            if self.noise is not None:
                inner += float(flat.dot(self.noise_of[name][model].reshape(-1)))
        transcript.distances[step] = square**0.5
        transcript.projections[step] = inner * dp.noise_multiplier * dp.clip


class _Buffers:
    """Inputs, layer outputs and δ of one width of batch.

    When every model takes the same records, there is one copy of them and the first layers of all models are one
    matrix: its outputs lie as (records, models, outputs), seen as (models, records, outputs).
    """

    def __init__(self, group: _Group, width: int, one_input: bool) -> None:
        torch, models, width = group.torch, group.models, abs(width)
        self.group, self.one_input, self.filled = group, one_input, False

        def empty(*shape: int) -> Any:
            return torch.empty(shape, dtype=group.dtype)

        sizes = [layer.outputs for layer in group.layers]
        self.rows = empty(width if one_input else models * width, group.x.shape[1])
        self.input = self.rows.expand(models, -1, -1) if one_input else self.rows.view(models, width, -1)
        self.outputs = [empty(models, width, size) for size in sizes]
        self.deltas = [empty(models, width, size) for size in sizes]
        if one_input:
            self.wide_output, self.wide_delta = empty(width, models * sizes[0]), empty(width, models * sizes[0])
            self.outputs[0] = self.wide_output.view(width, models, -1).transpose(0, 1)
            self.deltas[0] = self.wide_delta.view(width, models, -1).transpose(0, 1)
            self.narrow = empty(models, width, sizes[0])
        self.minus_one = torch.full((models, width, 1), -1.0, dtype=group.dtype)

    def fill(self, rows: npt.NDArray[np.int64]) -> None:
        """Fetch the records of the rows."""
        torch, group = self.group.torch, self.group
        index = torch.from_numpy(rows.reshape(-1))
        torch.index_select(group.x, 0, index, out=self.rows)
        shape = (len(rows), rows.shape[1], 1)
        self.labels = group.y.index_select(0, index).view(shape).expand(group.models, -1, -1)
        if group.recipe.dp is not None:
            self.norms = group.norms.index_select(0, index).view(shape)
        self.filled = True
