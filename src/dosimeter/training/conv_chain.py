"""A plain chain of convolutions, poolings, activations and dense layers: forward and backward without autograd.

It computes what autograd would, in less time, with DP-SGD too: the sum of gradients that are clipped one by one. The
first convolution is a product with the columns of its input, which for few channels beats the convolution's own weight
gradient several times over. An activation before a max pooling changes places with it: both are monotone, so the
outputs are the same bits, and the activation has a quarter to do. Where equal numbers meet in a pooling the
activation's gradient is zero, or the gradient goes to one of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dosimeter.training.by_record import PIECE, ByColumns, ByRecord, clipped
from dosimeter.training.chain import WEIGHED, Link, links, torch_module

COLUMNS = 32  # numbers under the window of the first convolution up to which it is done by columns


class ConvChain:
    """Gradients of a module that is such a chain; `read` makes one where it can."""

    def __init__(self, module: Any, steps: list[Any]) -> None:
        self.parameters, self.steps = list(module.parameters()), steps

    @classmethod
    def read(cls, module: Any, records: Any, *, by_record: bool = False, fixed: int = 0) -> ConvChain | None:
        """The chain that a module is, checked against the module's own answers to some records; else None.

        With `by_record` it gives clipped sums instead of gradients. `fixed` says that every step is given one tensor
        of so many records: the columns of the first convolution are then made once.
        """
        torch = torch_module()
        found = links(module)
        if isinstance(found, str) or records.ndim != 4:
            return None
        most = COLUMNS if not by_record else min(COLUMNS, PIECE // (fixed * records[0].numel())) if fixed else 0
        steps = _steps(module, [link for link in found if link.kind != "same"], most)
        if steps is None:
            return None
        made = cls(module, steps)
        with torch.no_grad():
            try:
                ours, theirs = made.forward(records), module(records)
            except RuntimeError:
                return None
        same = ours.shape == theirs.shape and ours.ndim == 2
        return made if same and torch.allclose(ours, theirs, rtol=1e-3, atol=1e-4) else None

    def forward(self, x: Any) -> Any:
        """The logits; every step keeps what its way back needs."""
        for step in self.steps:
            x = step.forward(x)
        return x

    def add_gradients(self, x: Any, y: Any, divisor: float) -> None:
        """Add those of the records' losses, divided by so much, to the gradients of the module's parameters."""
        with torch_module().no_grad():
            delta = _errors(self.forward(x), y).div_(divisor)
            found: dict[Any, Any] = {}
            for at in range(len(self.steps) - 1, -1, -1):
                delta = self.steps[at].backward(delta, found, at > 0)
            for parameter in self.parameters:
                gradient = found[parameter]
                parameter.grad = gradient if parameter.grad is None else parameter.grad.add_(gradient)

    def clipped_sums(self, x: Any, y: Any, clip: float, signs: Any = None) -> list[list[Any]]:
        """The sum of the records' gradients, each clipped to this norm, in the order of the module's parameters.

        With `signs` the last records are apart, see `by_record.clipped`.
        """
        torch = torch_module()
        with torch.no_grad():
            if not len(x):
                return [[torch.zeros_like(parameter) for parameter in self.parameters]]
            layers: list[Any] = []
            delta = _errors(self.forward(x), y)
            for at in range(len(self.steps) - 1, -1, -1):
                step = self.steps[at]
                if isinstance(step, _Columns):
                    layers.append(ByColumns(step.part, step.columns, delta))
                elif isinstance(step, (_Convolution, _Linear, _FlatLinear)):
                    layers.append(ByRecord(step.part, step.given(), delta))
                    delta = step.below(delta) if at else None
                elif at:
                    delta = step.backward(delta, {}, True)
            return clipped(layers, clip, self.parameters, signs)


def _errors(logits: Any, labels: Any) -> Any:
    """δ of each record's cross-entropy at the logits; one column is class 1 against class 0."""
    torch = torch_module()
    if logits.shape[1] == 1:
        return torch.sigmoid(logits).sub_(labels.view(-1, 1).to(logits.dtype))
    delta = torch.softmax(logits, 1)
    return delta.scatter_add_(1, labels.view(-1, 1), delta.new_full((len(labels), 1), -1.0))


def _steps(module: Any, found: list[Link], most: int) -> list[Any] | None:
    """The steps of the links, activations after the poolings that follow them; None where one is not known."""
    kinds = [link.kind for link in found]
    if "convolution" not in kinds or kinds[-1] != "linear" or kinds.count("flatten") != 1:
        return None
    flat = kinds.index("flatten")
    if "linear" in kinds[:flat] or {"convolution", "pool", "norm"} & set(kinds[flat:]):
        return None
    order = list(found)
    for at in range(len(order) - 1):
        if order[at].kind in ACTIVATIONS and order[at + 1].kind == "pool":
            order[at], order[at + 1] = order[at + 1], order[at]
    if order[0].kind in ACTIVATIONS:  # they work in place, and the records are not theirs
        return None
    steps = list(_made(module, order, most))
    return None if any(step is None for step in steps) else steps


def _made(module: Any, order: list[Link], most: int) -> Iterator[Any]:
    for at, link in enumerate(order):
        part: Any = module.get_submodule(link.name) if link.kind in WEIGHED else None
        if link.kind == "convolution":
            if part.padding_mode != "zeros" or isinstance(part.padding, str):
                yield None
            else:
                few = at == 0 and part.groups == 1 and part.weight[0].numel() <= most
                yield _Columns(part) if few else _Convolution(part)
        elif link.kind == "linear":
            yield _FlatLinear(part) if order[at - 1].kind == "flatten" else _Linear(part)
        elif link.kind == "pool":
            yield _pool(module, link)
        elif link.kind == "norm":
            overwritten = order[at + 1].kind in ACTIVATIONS
            yield _Norm(module.get_submodule(link.name), overwritten)
        elif link.kind == "flatten":
            if order[at + 1].kind != "linear":
                yield _Flatten()
        else:
            yield _Activation(link.kind)


class _Convolution:
    def __init__(self, part: Any) -> None:
        self.part = part
        self.shape = (part.stride, part.padding, part.dilation)

    def forward(self, x: Any) -> Any:
        self.input = x
        return torch_module().conv2d(x, self.part.weight, self.part.bias, *self.shape, self.part.groups)

    def backward(self, delta: Any, found: dict[Any, Any], below: bool) -> Any:
        part = self.part
        sizes = None if part.bias is None else [part.out_channels]
        wanted = [below, True, part.bias is not None]
        back, found[part.weight], bias = torch_module().ops.aten.convolution_backward(
            delta, self.input, part.weight, sizes, *self.shape, False, [0, 0], part.groups, wanted
        )
        if part.bias is not None:
            found[part.bias] = bias
        return back

    def given(self) -> Any:
        return self.input

    def below(self, delta: Any) -> Any:
        part, wanted = self.part, [True, False, False]
        back, _, _ = torch_module().ops.aten.convolution_backward(
            delta, self.input, part.weight, None, *self.shape, False, [0, 0], part.groups, wanted
        )
        return back


class _Columns:
    """The first convolution: what lies under the window at each place as a matrix, a row of ones for the bias."""

    def __init__(self, part: Any) -> None:
        self.part, self.columns, self.known = part, part.weight.detach().new_empty(0), None

    def forward(self, x: Any) -> Any:
        torch, part = torch_module(), self.part
        if x is not self.known:
            self._fill(x)
            self.known = x
        count, window = len(x), part.weight[0].numel()
        weights = part.weight.reshape(part.out_channels, window)
        if part.bias is not None:
            weights = torch.cat([weights, part.bias[:, None]], 1)
        torch.bmm(self.columns.transpose(1, 2), weights.T.expand(count, -1, -1), out=self.output)
        return self.output.view(count, *self.places, -1).permute(0, 3, 1, 2)

    def _fill(self, x: Any) -> None:
        torch, part = torch_module(), self.part
        (high, wide), (down, right) = part.kernel_size, part.stride
        (above, left), (tall, broad) = part.padding, part.dilation
        x = torch.nn.functional.pad(x.contiguous(), (left, left, above, above))
        count, channels = x.shape[:2]
        self.places = (
            (x.shape[2] - tall * (high - 1) - 1) // down + 1,
            (x.shape[3] - broad * (wide - 1) - 1) // right + 1,
        )
        window, (every, plane, row, _) = channels * high * wide, x.stride()
        shape = (count, window + (part.bias is not None), self.places[0] * self.places[1])
        if self.columns.shape != shape:
            self.columns = x.new_ones(shape)
            self.output = x.new_empty(count, shape[2], part.out_channels)
        moved = x.as_strided(
            (count, channels, high, wide, *self.places), (every, plane, row * tall, broad, row * down, right)
        )
        self.columns[:, :window].view(moved.shape).copy_(moved)

    def backward(self, delta: Any, found: dict[Any, Any], below: bool) -> None:
        torch, part = torch_module(), self.part
        rows = delta.permute(0, 2, 3, 1).reshape(len(delta), -1, part.out_channels)
        total = torch.bmm(self.columns, rows).sum(0)
        if part.bias is not None:
            found[part.bias], total = total[-1], total[:-1]
        gradient = torch.empty_like(part.weight)
        found[part.weight] = gradient.copy_(total.T.reshape(part.weight.shape))


class _Linear:
    def __init__(self, part: Any) -> None:
        self.part = part

    def forward(self, x: Any) -> Any:
        self.input = x
        return torch_module().nn.functional.linear(x, self.part.weight, self.part.bias)

    def backward(self, delta: Any, found: dict[Any, Any], below: bool) -> Any:
        found[self.part.weight] = delta.T @ self.input
        if self.part.bias is not None:
            found[self.part.bias] = delta.sum(0)
        return delta @ self.part.weight if below else None

    def given(self) -> Any:
        return self.input

    def below(self, delta: Any) -> Any:
        return delta @ self.part.weight


class _Flatten:
    """In the order of the channels first, which is that of the next layer's weights."""

    def forward(self, x: Any) -> Any:
        self.shape = x.shape
        return x.flatten(1)

    def backward(self, delta: Any, found: dict[Any, Any], below: bool) -> Any:
        return delta.view(self.shape).contiguous(memory_format=torch_module().channels_last)


class _FlatLinear:
    """Flatten and a dense layer with fewer outputs than the batch has records: its weights change their order."""

    def __init__(self, part: Any) -> None:
        self.part, self.whole = part, (_Flatten(), _Linear(part))

    def forward(self, x: Any) -> Any:
        count, channels, high, wide = x.shape
        self.reordered = self.part.out_features < count and high * wide > 1
        if not self.reordered:
            return self.whole[1].forward(self.whole[0].forward(x))
        self.shape, self.input = x.shape, x.permute(0, 2, 3, 1).reshape(count, -1)
        weight = self.part.weight.view(-1, channels, high, wide)
        self.weight = weight.permute(0, 2, 3, 1).reshape(len(weight), -1)
        return torch_module().nn.functional.linear(self.input, self.weight, self.part.bias)

    def backward(self, delta: Any, found: dict[Any, Any], below: bool) -> Any:
        if not self.reordered:
            return self.whole[0].backward(self.whole[1].backward(delta, found, True), found, True)
        count, channels, high, wide = self.shape
        gradient = (delta.T @ self.input).view(-1, high, wide, channels)
        found[self.part.weight] = gradient.permute(0, 3, 1, 2).reshape(len(gradient), -1)
        if self.part.bias is not None:
            found[self.part.bias] = delta.sum(0)
        return (delta @ self.weight).view(count, high, wide, channels).permute(0, 3, 1, 2)

    def given(self) -> Any:
        if not self.reordered:
            return self.whole[1].input
        count, channels, high, wide = self.shape
        return self.input.view(count, high, wide, channels).permute(0, 3, 1, 2).flatten(1)

    def below(self, delta: Any) -> Any:
        if not self.reordered:
            return self.whole[0].backward(self.whole[1].below(delta), {}, True)
        count, channels, high, wide = self.shape
        return (delta @ self.weight).view(count, high, wide, channels).permute(0, 3, 1, 2)


class _Pool:
    def __init__(self, *options: Any) -> None:
        self.options, self.input = options, None

    def forward(self, x: Any) -> Any:
        aten = torch_module().ops.aten
        if self.input is None or self.input.shape != x.shape:
            self.output, self.indices = aten.max_pool2d_with_indices(x, *self.options)
            self.back = torch_module().empty_like(x)
        else:
            aten.max_pool2d_with_indices.out(x, *self.options, out=self.output, indices=self.indices)
        self.input = x
        return self.output

    def backward(self, delta: Any, found: dict[Any, Any], below: bool) -> Any:
        back = torch_module().ops.aten.max_pool2d_with_indices_backward
        return back.grad_input(delta, self.input, *self.options, self.indices, grad_input=self.back)


def _pool(module: Any, link: Link) -> _Pool | None:
    node = link.node
    if link.name:
        given = vars(module.get_submodule(link.name))
    else:
        names = ("kernel_size", "stride", "padding", "dilation", "ceil_mode", "return_indices")
        given = dict(zip(names, node.args[1:], strict=False)) | dict(node.kwargs)
    if given.get("return_indices"):
        return None
    kernel = given["kernel_size"]
    stride = kernel if given.get("stride") is None else given["stride"]
    sides = (kernel, stride, given.get("padding", 0), given.get("dilation", 1))
    return _Pool(
        *(list(side) if isinstance(side, (tuple, list)) else [side, side] for side in sides),
        bool(given.get("ceil_mode")),
    )


class _Norm:
    """Groups of channels of one record, brought to mean 0 and variance 1; no parameters.

    `overwritten` says that the next step works in place, so that the output is kept once more.
    """

    def __init__(self, part: Any, overwritten: bool) -> None:
        self.part, self.overwritten = part, overwritten

    def forward(self, x: Any) -> Any:
        count, channels, high, wide = x.shape
        rows = x.permute(0, 2, 3, 1).reshape(count, high * wide, channels)
        centred = rows - self._means(rows)
        self.scale = self._means(centred.square()).add_(self.part.eps).rsqrt_()
        self.output = centred.mul_(self.scale)
        given = self.output.clone() if self.overwritten else self.output
        return given.view(count, high, wide, channels).permute(0, 3, 1, 2)

    def backward(self, delta: Any, found: dict[Any, Any], below: bool) -> Any:
        count, channels, high, wide = delta.shape
        rows = delta.permute(0, 2, 3, 1).reshape(count, high * wide, channels)
        back = rows - self._means(rows)
        back.addcmul_(self.output, self._means(rows * self.output), value=-1).mul_(self.scale)
        return back.view(count, high, wide, channels).permute(0, 3, 1, 2)

    def _means(self, rows: Any) -> Any:
        """The mean over places and channels of each group, once for each of its channels: (records, 1, channels)."""
        count, places, channels = rows.shape
        each = channels // self.part.num_groups
        sums = rows.sum(1).view(count, -1, each).sum(2, keepdim=True)
        return sums.div_(places * each).expand(-1, -1, each).reshape(count, 1, channels)


class _Activation:
    """In place, both ways: what comes before it does not need its own output, nor what comes after its own δ."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def forward(self, x: Any) -> Any:
        self.output = ACTIVATIONS[self.kind][0](x)
        return self.output

    def backward(self, delta: Any, found: dict[Any, Any], below: bool) -> Any:
        return ACTIVATIONS[self.kind][1](torch_module().ops.aten, delta, self.output)


ACTIVATIONS: dict[str, Any] = {
    "relu": (
        lambda x: x.clamp_(min=0),
        lambda aten, delta, out: aten.threshold_backward.grad_input(delta, out, 0, grad_input=delta),
    ),
    "tanh": (lambda x: x.tanh_(), lambda aten, delta, out: aten.tanh_backward.grad_input(delta, out, grad_input=delta)),
    "sigmoid": (
        lambda x: x.sigmoid_(),
        lambda aten, delta, out: aten.sigmoid_backward.grad_input(delta, out, grad_input=delta),
    ),
}
