"""Dense networks, several at once: forward, backward and update as batched matrix products.

The gradient of one record at a linear layer is δ ⊗ (a, 1), so its squared norm is ‖δ‖² (‖a‖² + 1) and DP-SGD needs
no per-example gradient: the norms of all layers give one factor for each record, and scaling δ by it makes the ordinary
product δᵀa the clipped sum (Goodfellow, arXiv:1510.01799, applied to clipping).

With one logit or two the loss of a record depends on one number only, the logit or the difference of the two. This
number and its error e are computed; at the end δ is e or (−e, e).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dosimeter._validate import FloatArray, IntArray
from dosimeter.training.chain import Layer, torch_module
from dosimeter.training.draws import Draws, blocks
from dosimeter.training.neighbour import Neighbour, Transcript
from dosimeter.training.recipe import Recipe
from dosimeter.training.steps import CanarySums, Log, adaptive, log, on, set_rate

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
    kind: type[DenseGroup] | None = None,
) -> list[Transcript | None]:
    """Train modules of one architecture together, in place; `even`: all models of the run have equally many members."""
    torch = torch_module()
    watch = log(recipe, draws, neighbour, data, list(modules[0].parameters()))
    with torch.no_grad():
        group = (kind or DenseGroup)(torch, modules, layers, recipe, data[0].flatten(1), data[1], draws)
        step = 0
        for rows, counts in blocks(draws, ALIGN, even):
            for at, count, marks in zip(rows, counts, group.marks(rows), strict=True):
                difference = None if watch is None else group.difference(watch, step)
                group.step(at, count, marks, None if watch is None else watch.canaries)
                if watch is not None and difference is not None:
                    watch.projections[:, step] = group.along(difference)
                step += 1
                for model, drawn in enumerate(draws):
                    if drawn.steps == step:
                        group.give_back(model)
    for module in modules:
        module.eval()
    return [None] * len(modules) if watch is None else watch.transcripts()


class DenseGroup:
    """Stacked weights (models, outputs, inputs), momentum and reused buffers."""

    def __init__(
        self, torch: Any, modules: list[Any], layers: list[Layer], recipe: Recipe, x: Any, y: Any, draws: list[Draws]
    ) -> None:
        self.torch, self.modules, self.layers, self.recipe = torch, modules, layers, recipe
        self.device = x.device
        self.x, self.models, self.draws = x.numpy() if x.device.type == "cpu" else x, len(modules), draws
        self.dtype = next(modules[0].parameters()).dtype
        self.like: dict[str, Any] = {"dtype": self.dtype, "device": self.device}
        self.single = layers[-1].outputs <= 2
        self.y = y.to(self.dtype) if self.single else _compact(torch, y)
        self.names = [
            (f"{k.name}.weight".lstrip("."), f"{k.name}.bias".lstrip(".") if k.bias else None) for k in layers
        ]
        sizes = [parameter.numel() for parameter in modules[0].parameters()]
        order = [name for name, _ in modules[0].named_parameters()]
        self.offsets = dict(zip(order, np.cumsum([0, *sizes[:-1]]).tolist(), strict=True))
        self.weights, self.parts = self._flat()
        self.velocity, self.moves = self._flat()
        self.across = {name: part.transpose(1, 2) for name, part in self.parts.items()}
        self.sums = [part.view(self.models, -1) for part in self.moves.values()]
        if self.single:
            self.signs = torch.tensor([-1.0, 1.0][-layers[-1].outputs :], **self.like)
            self.unit_norm = torch.linalg.vector_norm(self.signs)  # ‖δ‖ where e = 1
            weight, bias = self.names[-1]
            self.tops = {name: self.parts[name].split(1, dim) for name, dim in ((weight, 1), (bias, 2)) if name}
        self.divisors = np.array([drawn.divisor or 1 for drawn in draws], np.float64)
        for name, part in self.parts.items():
            for model, module in enumerate(modules):
                part[model].copy_(module.get_parameter(name).view(part[model].shape))
        self.adam = None
        self.rates, self.taken, self.rate = recipe.rates(draws[0].steps), 0, recipe.learning_rate
        if recipe.optimiser != "sgd":
            self.weights.grad = self.velocity
            self.adam = adaptive(recipe)(
                [self.weights], lr=recipe.learning_rate, weight_decay=recipe.weight_decay, fused=True
            )
        first = draws[0].members
        full = all(drawn.full for drawn in draws)
        self.one_input = full and all(np.array_equal(first, drawn.members) for drawn in draws[1:])
        self.same_rows = full and len({drawn.steps for drawn in draws}) == 1
        self.noise: Any = None
        if recipe.dp is not None:
            self.norms = torch.linalg.vector_norm(x, dim=1)
            self.biases = torch.tensor([float(layer.bias) for layer in layers], **self.like).view(-1, 1, 1, 1)
            if recipe.dp.noise_multiplier:
                self._prepare_noise(sum(sizes))
                self._scale_noise(np.full(self.models, recipe.dp.noise_multiplier * recipe.dp.clip))
        self.buffers: dict[tuple[int, bool], Buffers] = {}
        self.scales: dict[tuple[int, bytes], Any] = {}

    def _prepare_noise(self, total: int) -> None:
        """Room for the noise of a step, a row for each model, and the parts of it that go to each parameter."""
        self.noise = self.torch.empty(self.models, total, **self.like)
        self.noise_of = {}
        for name, part in self.moves.items():
            start = self.offsets[name]
            self.noise_of[name] = self.noise[:, start : start + part[0].numel()].view(part.shape)
        self.noisy = [(part, self.noise_of[name]) for name, part in self.moves.items()]
        self.noise_rows = list(zip(self.draws, self.noise, strict=True))

    def _scale_noise(self, deviations: FloatArray) -> None:
        """The standard deviations of the noise on the sums from now on, one for each model."""
        self.deviations = deviations
        scales = (deviations / self.divisors).tolist()
        self.noise_scale = scales[0] if len(set(scales)) == 1 else None
        self.noise_scales = self.torch.tensor(scales, **self.like).view(-1, 1, 1)

    def _flat(self) -> tuple[Any, dict[str, Any]]:
        """One flat tensor for all models and its contiguous parts by the name of the parameter."""
        sizes = [self.models * parameter.numel() for parameter in self.modules[0].parameters()]
        starts = np.cumsum([0, *(-(-size // CACHE_LINE) * CACHE_LINE for size in sizes)]).tolist()
        flat, parts = self.torch.zeros(starts[-1], **self.like), {}
        for (name, parameter), start, size in zip(self.modules[0].named_parameters(), starts, sizes, strict=False):
            rows = parameter.shape[0] if parameter.ndim == 2 else 1
            parts[name] = flat[start : start + size].view(self.models, rows, -1)
        return flat, parts

    def give_back(self, model: int) -> None:
        """Write the weights of one model into its module."""
        for name, part in self.parts.items():
            parameter = self.modules[model].get_parameter(name)
            parameter.copy_(part[model].view(parameter.shape))

    def marks(self, rows: list[IntArray]) -> list[list[Any]]:
        """Labels of the records of some steps and, with DP, their norms: so many at once are found in the cache."""
        index = on(np.concatenate([part.ravel() for part in rows]), self.y)
        labels = self.y.index_select(0, index)
        found = [labels.long() if labels.dtype is self.torch.uint8 else labels]
        if self.recipe.dp is not None:
            found.append(self.norms.index_select(0, index))
        steps = [part.split([one.size for one in rows]) for part in found]
        return [[part.view(*one.shape, 1) for part in parts] for one, *parts in zip(rows, *steps, strict=True)]

    def step(self, rows: IntArray, counts: IntArray, marks: list[Any], canaries: CanarySums | None = None) -> None:
        """One step of every model on its own batch, in as many parts as the recipe wants."""
        width = rows.shape[1]
        factor = self._scale(counts, width)
        piece = -(-width // (self.recipe.accumulate * ALIGN)) * ALIGN
        keep = self._begin()
        kept = 0.0 if canaries is None or canaries.subtract else keep * canaries.read(self.sums)
        for at in range(0, width, piece):
            buffers = self._buffers(min(piece, width - at), self.one_input)
            if not (self.same_rows and buffers.filled and piece >= width):
                some = slice(1 if self.one_input else None), slice(at, at + piece)
                buffers.fill(rows[some], [part[some] for part in marks])
            self._deltas(buffers, factor[:, at : at + piece])
            self._products(buffers, keep)
            keep = 1.0
        if canaries is not None:
            canaries.add(self.sums, self.divisors)
        if self.noise is not None:
            self._add_noise()
        if canaries is not None:
            canaries.observe(self.sums, self.divisors, kept)
        self._move()

    def _begin(self) -> float:
        """Start the sum of the step's gradients; what it is to keep of what stands there: the momentum."""
        recipe = self.recipe
        if recipe.weight_decay and self.adam is None:
            self.velocity.mul_(recipe.momentum).add_(self.weights, alpha=recipe.weight_decay)
            return 1.0
        return recipe.momentum

    def _move(self) -> None:
        """One pass moves all weights."""
        if self.adam is None:
            if self.rates is not None:
                self.rate = float(self.rates[self.taken])
            self.weights.add_(self.velocity, alpha=-self.rate)
        else:
            set_rate(self.adam, self.rates, self.taken)
            self.adam.step()
        self.taken += 1

    def _deltas(self, buffers: Buffers, factor: Any) -> None:
        """δ of each record at every layer, clipped with DP, and times the record's factor."""
        self._forward(buffers)
        self._errors(buffers)
        if self.recipe.dp is None:
            buffers.top.mul_(factor)
            self._pass_back(buffers)
        else:
            self._pass_back(buffers)
            factor = self._clipping(buffers).mul_(factor)
            for delta in (*buffers.deltas[:-1], buffers.top):
                delta.mul_(factor)
        if self.single:
            self.torch.mul(buffers.top, self.signs, out=buffers.deltas[-1])

    def _buffers(self, width: int, one_input: bool) -> Buffers:
        if len(self.buffers) > 8:
            self.buffers.clear()
        if (width, one_input) not in self.buffers:
            self.buffers[width, one_input] = Buffers(self, width, one_input)
        return self.buffers[width, one_input]

    def _scale(self, counts: IntArray, width: int) -> Any:
        """1 / divisor for the records of a batch, 0 for the padding, as (models, width, 1)."""
        key = (width, counts.tobytes())
        if key not in self.scales:
            if len(self.scales) > 32:
                self.scales.clear()
            sizes = [drawn.divisor or max(1, count) for drawn, count in zip(self.draws, counts.tolist(), strict=True)]
            scale = (np.arange(width) < counts[:, None]) / np.array(sizes)[:, None]
            self.scales[key] = on(scale, self.weights).to(self.dtype).unsqueeze(2)
        return self.scales[key]

    def _forward(self, buffers: Buffers) -> None:
        torch, a = self.torch, buffers.input
        for at, (layer, (weight, bias), z) in enumerate(zip(self.layers, self.names, buffers.outputs, strict=True)):
            if z is buffers.top:
                self._one_logit(buffers)
            elif at == 0 and buffers.one_input:
                torch.mm(buffers.rows, self.parts[weight].view(-1, layer.inputs).T, out=buffers.wide_output)
                if bias is not None:
                    buffers.wide_output.add_(self.parts[bias].view(1, -1))
            elif bias is None:
                torch.bmm(a, self.across[weight], out=z)
            else:
                torch.baddbmm(self.parts[bias], a, self.across[weight], out=z)
            if layer.activation == "relu":
                z.clamp_(min=0)
            elif layer.activation == "tanh":
                z.tanh_()
            elif layer.activation == "sigmoid":
                z.sigmoid_()
            a = z

    def _one_logit(self, buffers: Buffers) -> None:
        """The logit of each record, or the difference of its two."""
        torch, (weight, bias) = self.torch, self.names[-1]
        self.slope, row = self._difference(weight), buffers.top.view(self.models, 1, -1)
        if buffers.one_input and len(self.layers) == 1:
            torch.mm(self.slope.view(self.models, -1), buffers.rows.T, out=row.squeeze(1))
        else:
            torch.bmm(self.slope, buffers.below_top, out=row)
        if bias is not None:
            row.add_(self._difference(bias))

    def _difference(self, name: str) -> Any:
        """What a parameter of the last layer is for the one number: of one logit itself, of two their difference."""
        rows = self.tops[name]
        return rows[0] if len(rows) == 1 else rows[1] - rows[0]

    def _errors(self, buffers: Buffers) -> None:
        """δ of each record's loss at the logits."""
        if self.single:
            buffers.top.sigmoid_().sub_(buffers.labels)
        else:
            self.torch.softmax(buffers.outputs[-1], 2, out=buffers.top)
            buffers.top.scatter_add_(2, buffers.labels, buffers.minus_one)

    def _pass_back(self, buffers: Buffers) -> None:
        """δ at the layers below the logits."""
        torch = self.torch
        for at in range(len(self.layers) - 1, 0, -1):
            below, h = buffers.deltas[at - 1], buffers.outputs[at - 1]
            raw = buffers.narrow if at == 1 and buffers.one_input else below
            if self.single and at == len(self.layers) - 1:
                torch.mul(buffers.top, self.slope, out=raw)
            else:
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

    def _clipping(self, buffers: Buffers) -> Any:
        """min(1, clip / norm of its gradient) of each record, as (models, width, 1)."""
        torch, dp, norm = self.torch, self.recipe.dp, self.torch.linalg.vector_norm
        assert dp is not None
        for part, into in buffers.measured:
            norm(part, dim=2, keepdim=True, out=into)
        if self.single:
            torch.mul(buffers.top, self.unit_norm, out=buffers.top_norm)
        torch.mul(buffers.norms, buffers.norms, out=buffers.squares)
        buffers.input_squares.add_(self.biases).mul_(buffers.delta_squares)
        total, *others = buffers.layer_squares
        for other in others:
            total.add_(other)
        total.rsqrt_()
        if dp.clip != 1:
            total.mul_(dp.clip)
        return total.clamp_(max=1)

    def _products(self, buffers: Buffers, keep: float, into: dict[str, Any] | None = None) -> None:
        """into = keep · into + Σ over records of δ ⊗ (a, 1), by default into the moves."""
        a, into = buffers.input, into or self.moves
        for at, ((weight, bias), z, delta) in enumerate(zip(self.names, buffers.outputs, buffers.deltas, strict=True)):
            if at == 0 and buffers.one_input:
                into[weight].view(-1, buffers.rows.shape[1]).addmm_(buffers.wide_delta.T, buffers.rows, beta=keep)
            else:
                into[weight].baddbmm_(buffers.across[at], a, beta=keep)
            if bias is not None:
                into[bias].baddbmm_(buffers.ones, delta, beta=keep)
            a = z

    def _add_noise(self) -> None:
        for drawn, row in self.noise_rows:
            drawn.noise(row)
        for part, drawn_part in self.noisy:
            if self.noise_scale is not None:
                part.add_(drawn_part, alpha=self.noise_scale)
            else:
                part.addcmul_(drawn_part, self.noise_scales)

    def difference(self, watch: Log, step: int) -> list[tuple[Any, Any]] | None:
        """Δ = ĝ(D) − ĝ(D') of each model at the present weights; the noise follows it where it is local.

        Each layer's Δ is Σ p ⊗ (q, c) over one or two terms, with p (models, terms, outputs) and q (models, terms,
        inputs); c = 1 in the first term and 0 in the second. None where Δ = 0 for all models.
        """
        differs, terms, squares = watch.differs(step), None, np.zeros(self.models)
        if differs.any():
            terms = self._terms(watch, on(differs, self.weights).to(self.dtype))
            for layer, (p, q) in zip(self.layers, terms, strict=True):
                squares += self._squares(layer, p, q)
        deviations = watch.note(step, np.sqrt(squares))
        if self.noise is not None and watch.dp.sensitivity == "local":
            self._scale_noise(deviations)
        return terms

    def _terms(self, watch: Log, differs: Any) -> list[tuple[Any, Any]]:
        buffers = self._buffers(-len(watch.rows), False)
        if not buffers.filled:
            rows = np.tile(watch.rows, (self.models, 1))
            buffers.fill(rows, self.marks([rows])[0])
        self._deltas(buffers, differs.view(-1, 1, 1))
        found = []
        for a, delta in zip([buffers.input, *buffers.outputs], buffers.deltas, strict=False):
            if len(watch.rows) == 1:
                found.append((delta * float(watch.signs[0]), a))
            else:  # δ ⊗ a − δ' ⊗ a' = (δ − δ') ⊗ a + δ' ⊗ (a − a'), which keeps the digits of a small difference
                p = self.torch.stack([delta[:, 0] - delta[:, 1], delta[:, 1]], 1)
                found.append((p, self.torch.stack([a[:, 0], a[:, 0] - a[:, 1]], 1)))
        return found

    def _squares(self, layer: Layer, p: Any, q: Any) -> FloatArray:
        """‖Σ p ⊗ (q, c)‖² of each model, from the products of the terms with each other."""
        p, q = p.double(), q.double()
        products = q @ q.transpose(1, 2)
        if layer.bias:
            products[:, 0, 0] += 1
        squares: FloatArray = (products * (p @ p.transpose(1, 2))).sum((1, 2)).clamp_(min=0).cpu().numpy()
        return squares

    def along(self, difference: list[tuple[Any, Any]]) -> FloatArray | float:
        """⟨noise on the sum, Δ⟩ of each model in the step just taken."""
        if self.noise is None:
            return 0.0
        inner = self.torch.zeros(self.models, dtype=self.torch.float64, device=self.device)
        for (weight, bias), (p, q) in zip(self.names, difference, strict=True):
            inner += (self.torch.bmm(q, self.noise_of[weight].transpose(1, 2)) * p).sum((1, 2))
            if bias is not None:
                inner += (self.noise_of[bias][:, 0] * p[:, 0]).sum(1)
        found: FloatArray = inner.cpu().numpy() * self.deviations
        return found


class Buffers:
    """Inputs, layer outputs and δ of one width of batch.

    When every model takes the same records, there is one copy of them and the first layers of all models are one
    matrix: its outputs lie as (records, models, outputs), seen as (models, records, outputs).
    """

    def __init__(self, group: DenseGroup, width: int, one_input: bool) -> None:
        torch, models, width = group.torch, group.models, abs(width)
        self.group, self.one_input, self.filled = group, one_input, False

        def empty(*shape: int) -> Any:
            return torch.empty(shape, **group.like)

        sizes = [layer.outputs for layer in group.layers]
        logits = [*sizes[:-1], 1] if group.single else sizes
        self.rows = empty(width if one_input else models * width, group.x.shape[1])
        self.input = self.rows.expand(models, -1, -1) if one_input else self.rows.view(models, width, -1)
        self.outputs = [empty(models, width, size) for size in logits]
        self.deltas = [empty(models, width, size) for size in sizes]
        if one_input:
            self.wide_output, self.wide_delta = empty(width, models * sizes[0]), empty(width, models * sizes[0])
            self.deltas[0] = self.wide_delta.view(width, models, -1).transpose(0, 1)
            if len(sizes) > 1 or not group.single:
                self.outputs[0] = self.wide_output.view(width, models, -1).transpose(0, 1)
            self.narrow = empty(models, width, sizes[0])
        self.top = self.outputs[-1] if group.single else self.deltas[-1]
        self.below_top = [self.input, *self.outputs][-2].transpose(1, 2)
        self.across = [delta.transpose(1, 2) for delta in self.deltas]
        self.ones = torch.ones((1, 1, width), **group.like).expand(models, -1, -1)
        self.minus_one = torch.full((models, width, 1), -1.0, **group.like)
        if group.recipe.dp is not None:  # norms of the input and of δ at each layer, of each record
            self.norms = empty(2, len(sizes), models, width, 1)
            self.squares = empty(2, len(sizes), models, width, 1)
            self.input_squares, self.delta_squares = self.squares
            self.layer_squares, self.top_norm = list(self.input_squares), self.norms[1, -1]
            deltas = self.deltas[:-1] if group.single else self.deltas
            self.measured = [
                *zip(self.outputs, self.norms[0, 1:], strict=False),
                *zip(deltas, self.norms[1], strict=False),
            ]

    def fill(self, rows: IntArray, marks: list[Any]) -> None:
        """Fetch the records of the rows; their labels and norms are given."""
        x = self.group.x
        if isinstance(x, np.ndarray):
            np.take(x, rows.ravel(), axis=0, out=self.rows.numpy(), mode="clip")  # beats index_select
        else:
            self.group.torch.index_select(x, 0, on(rows.ravel(), x), out=self.rows)
        self.labels = marks[0].expand(self.group.models, -1, -1)
        if len(marks) > 1:
            self.norms[0, 0] = marks[1]
        self.filled = True


def _compact(torch: Any, y: Any) -> Any:
    """Classes as bytes, where they fit: labels at random places are then found in the cache."""
    whole = not y.is_floating_point() and len(y) > 0 and y.device.type == "cpu"
    return y.to(torch.uint8) if whole and int(y.min()) >= 0 and int(y.max()) < 256 else y
