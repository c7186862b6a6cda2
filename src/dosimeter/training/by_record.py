"""Gradients of one layer, record by record: their squared norms, and their sum with a factor for each record.

They follow from the layer's input and δ at its output. The gradients of a convolution are products of δ with the
columns of the input: what lies under the window at each place, channels last, so that they are copied in long runs.
Where they are few enough the products are kept, and the sum is one more product. Otherwise the norms are taken piece
by piece, and the sum is the ordinary weight gradient of δ times the factors.
"""

from __future__ import annotations

from typing import Any

from dosimeter.training.chain import torch_module

PIECE = 2**24  # numbers of one layer's columns and gradients that are held at once
ALL = slice(None)


class ByRecord:
    """The gradients of the parameters of one Linear or Conv2d layer for each record of a batch."""

    def __init__(self, part: Any, a: Any, delta: Any) -> None:
        self.part, self.a, self.delta = part, a, delta
        self.products: Any = None
        torch = torch_module()
        if type(part) is torch.nn.Linear and a.ndim == 2:
            self.squares = delta.square().sum(1) * (a.square().sum(1) + (part.bias is not None))
            return
        one = part.weight.numel() + (a[0].numel() * part.weight[0, 0].numel() if a.ndim == 4 else 0)
        chunk = max(1, PIECE // one)
        keeps = a.ndim == 4 and part.groups == 1 and not _gram(part, delta) and len(a) * part.weight.numel() <= PIECE
        found, products = [], []
        for at in range(0, len(a), chunk):
            piece, error = a[at : at + chunk], delta[at : at + chunk]
            square, product = (_of_rows if a.ndim != 4 else _of_images)(part, piece, error)
            bias = error.flatten(1, -2).sum(1) if a.ndim != 4 else error.sum((2, 3))
            found.append(square + bias.square().sum(1) if part.bias is not None else square)
            if keeps:
                products.append(product)
        self.squares = torch.cat(found)
        if keeps:
            self.products = torch.cat(products) if len(products) > 1 else products[0]

    def sum(self, factors: Any, at: slice = ALL) -> tuple[Any, Any]:
        """Gradients of weight and bias, each record's times its factor; `at` takes some of the records."""
        torch, part, delta, a = torch_module(), self.part, self.delta[at], self.a[at]
        if self.products is not None:
            outputs, inputs, high, wide = part.weight.shape
            total = (factors @ self.products[at].flatten(1)).view(outputs, high, wide, inputs).permute(0, 3, 1, 2)
            return torch.empty_like(part.weight).copy_(total), factors @ delta.sum((2, 3))
        scaled = delta * factors.view(-1, *[1] * (delta.ndim - 1))
        if type(part) is torch.nn.Linear:
            rows = scaled.flatten(0, -2)
            return rows.T @ a.flatten(0, -2), rows.sum(0)
        _, weight, bias = torch.ops.aten.convolution_backward(
            *(scaled, a, part.weight, [part.out_channels], part.stride, part.padding, part.dilation),
            *(False, [0, 0], part.groups, [False, True, True]),
        )
        return weight, bias


class ByColumns:
    """The same for a convolution on columns that are at hand: (records, window and a one for the bias, places)."""

    def __init__(self, part: Any, columns: Any, delta: Any) -> None:
        rows = delta.permute(0, 2, 3, 1).reshape(len(delta), -1, part.out_channels)
        self.part, self.products = part, torch_module().bmm(columns, rows)
        self.squares = self.products.square().sum((1, 2))

    def sum(self, factors: Any, at: slice = ALL) -> tuple[Any, Any]:
        """Gradients of weight and bias, each record's times its factor; `at` takes some of the records."""
        part, products = self.part, self.products[at]
        total = (factors @ products.flatten(1)).view(products.shape[1:])
        bias = None if part.bias is None else total[-1]
        window = total if bias is None else total[:-1]
        return torch_module().empty_like(part.weight).copy_(window.T.reshape(part.weight.shape)), bias


def clipped(layers: list[Any], clip: float, parameters: list[Any], signs: Any = None) -> list[list[Any]]:
    """The sum over the records of gradients clipped to a norm over all layers, in the order of these parameters.

    With `signs` the last records are not in that sum: theirs, each times its sign, is a second one.
    """
    squares = sum((layer.squares for layer in layers[1:]), layers[0].squares)
    factors = (clip / squares.sqrt()).clamp_(max=1.0)
    if signs is None:
        return [_summed(layers, factors, ALL, parameters)]
    count = len(factors) - len(signs)
    last = factors[count:] * signs
    sums = (factors[:count], slice(0, count)), (last, slice(count, None))
    return [_summed(layers, some, at, parameters) for some, at in sums]


def _summed(layers: list[Any], factors: Any, at: slice, parameters: list[Any]) -> list[Any]:
    found: dict[Any, Any] = {}
    for layer in layers:
        found[layer.part.weight], bias = layer.sum(factors, at)
        if layer.part.bias is not None:
            found[layer.part.bias] = bias
    return [found.get(one, torch_module().zeros_like(one)) for one in parameters]


def _of_rows(part: Any, a: Any, delta: Any) -> tuple[Any, None]:
    """A dense layer with a row for each position of a record."""
    a, delta = a.flatten(1, -2), delta.flatten(1, -2)
    return torch_module().bmm(delta.transpose(1, 2), a).square().sum((1, 2)), None


def _of_images(part: Any, a: Any, delta: Any) -> tuple[Any, Any]:
    """A convolution: squared norms, and the products (records, outputs, window) unless Gram matrices are less work."""
    torch = torch_module()
    if part.groups > 1:
        columns = torch.nn.functional.unfold(a, part.kernel_size, part.dilation, part.padding, part.stride)
        columns = columns.view(len(a) * part.groups, -1, columns.shape[2]).transpose(1, 2)
        errors = delta.reshape(len(a) * part.groups, -1, columns.shape[1])
        return errors.bmm(columns).square().sum((1, 2)).view(len(a), -1).sum(1), None
    columns, errors = _columns(part, a), delta.permute(0, 2, 3, 1).flatten(1, 2)
    if _gram(part, delta):  # Li et al., arXiv:2110.05679, Eq. (4)
        return (columns.bmm(columns.transpose(1, 2)) * errors.bmm(errors.transpose(1, 2))).sum((1, 2)), None
    products = errors.transpose(1, 2).bmm(columns)
    return torch.linalg.vecdot(products.flatten(1), products.flatten(1)), products


def _gram(part: Any, delta: Any) -> bool:
    places, window, outputs = delta.shape[2] * delta.shape[3], part.weight[0].numel(), part.out_channels
    return bool(places * (window + outputs) < window * outputs)


def _columns(part: Any, a: Any) -> Any:
    """What lies under the window at each place, (records, places, window), the channels innermost."""
    (high, wide), (down, right) = part.kernel_size, part.stride
    (above, left), (tall, broad) = part.padding, part.dilation
    x = torch_module().nn.functional.pad(a.permute(0, 2, 3, 1), (0, 0, left, left, above, above)).contiguous()
    count, rows, width, channels = x.shape
    every, row, place, _ = x.stride()
    places = ((rows - tall * (high - 1) - 1) // down + 1, (width - broad * (wide - 1) - 1) // right + 1)
    shape = (count, *places, high, wide, channels)
    moved = x.as_strided(shape, (every, row * down, place * right, row * tall, place * broad, 1))
    return moved.reshape(count, places[0] * places[1], -1)
