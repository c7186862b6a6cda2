"""Networks by name. Each function returns a new torch module; `network` makes the factory that fits given records.

All of them give one logit for each class, have neither buffers nor dropout and do not mix the records of a batch, so
that many can be trained at once, with DP-SGD too. Images are (channels, height, width), texts are ids of
`tokens.hashed_words` with 0 for padding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from dosimeter import _validate as check
from dosimeter._validate import InputError
from dosimeter.training.chain import torch_module
from dosimeter.training.recipe import Model

ACTIVATIONS = ("relu", "tanh")


def mlp(inputs: int, classes: int, hidden: Sequence[int] = (64,), activation: str = "relu") -> Any:
    """Dense layers of the widths `hidden`, each followed by the activation; records of any shape are flattened."""
    nn = torch_module().nn
    if isinstance(hidden, (str, bytes)) or not isinstance(hidden, Sequence):
        raise InputError(f"hidden must be the widths of the layers, got {check.show(hidden)}; pass e.g. [64, 32].")
    widths = [_width("inputs", inputs), *(_width(f"hidden[{at}]", width) for at, width in enumerate(hidden))]
    parts: list[Any] = [nn.Flatten()]
    for before, after in pairwise(widths):
        parts += [nn.Linear(before, after), _activation(activation)]
    return nn.Sequential(*parts, nn.Linear(widths[-1], _classes(classes)))


def logistic(inputs: int, classes: int) -> Any:
    """Logistic regression: one linear layer."""
    return mlp(inputs, classes, hidden=())


def cnn(shape: Sequence[int], classes: int, activation: str = "relu") -> Any:
    """Two convolutions, the first in steps of two, each pooled, and a dense layer of 64: for images like MNIST's."""
    nn = torch_module().nn
    channels, height, width = _image(shape, 8)
    return nn.Sequential(
        *(nn.Conv2d(channels, 16, 5, stride=2, padding=2), _activation(activation), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), _activation(activation), nn.MaxPool2d(2)),
        nn.Flatten(),
        nn.Linear(32 * _eighth(height) * _eighth(width), 64),
        _activation(activation),
        nn.Linear(64, _classes(classes)),
    )


def cnn_tanh_4(shape: Sequence[int], classes: int, channels: Sequence[int] = (16, 32, 32, 64)) -> Any:
    """Four convolutions with tanh, the first in steps of two, pooled after each two; a linear layer: for CIFAR-10.

    Bounded activations keep gradients small, so that less of them is clipped (Papernot et al., arXiv:2007.14191).
    """
    nn = torch_module().nn
    inputs, height, width = _image(shape, 8)
    if isinstance(channels, (str, bytes)) or not isinstance(channels, Sequence) or len(channels) != 4:
        raise InputError(f"channels must be four widths, got {check.show(channels)}; pass e.g. [16, 32, 32, 64].")
    widths = [inputs, *(_width(f"channels[{at}]", value) for at, value in enumerate(channels))]
    parts: list[Any] = []
    for at, (before, after) in enumerate(pairwise(widths)):
        parts += [nn.Conv2d(before, after, 3, stride=1 if at else 2, padding=1), nn.Tanh()]
        parts += [nn.MaxPool2d(2)] if at % 2 else []
    return nn.Sequential(
        *parts, nn.Flatten(), nn.Linear(widths[-1] * _eighth(height) * _eighth(width), _classes(classes))
    )


def bag_of_embeddings(vocabulary: int, classes: int, dimension: int = 16) -> Any:
    """The mean of the words' embeddings and a linear layer."""
    torch_module()
    from dosimeter.training.text_modules import BagOfEmbeddings

    return BagOfEmbeddings(_width("vocabulary", vocabulary), _classes(classes), _width("dimension", dimension))


def transformer(
    vocabulary: int, length: int, classes: int, dimension: int = 32, heads: int = 2, layers: int = 1
) -> Any:
    """A small encoder with learned places, normalised before each part; the mean over the words is classified."""
    if _width("dimension", dimension) % _width("heads", heads):
        raise InputError(f"dimension must be a multiple of heads, got {dimension} and {heads}; pass e.g. 32 and 2.")
    torch_module()
    from dosimeter.training.text_modules import Transformer

    vocabulary, length, layers = _width("vocabulary", vocabulary), _width("length", length), _width("layers", layers)
    return Transformer(vocabulary, length, _classes(classes), dimension, heads, layers)


NETWORKS: dict[str, Callable[..., Any]] = {
    "mlp": mlp,
    "logistic": logistic,
    "cnn": cnn,
    "cnn-tanh-4": cnn_tanh_4,
    "bag-of-embeddings": bag_of_embeddings,
    "transformer": transformer,
}
IMAGES = ("cnn", "cnn-tanh-4")
TEXTS = ("bag-of-embeddings", "transformer")


def network(name: str, records: Any, classes: int, *, vocabulary: int | None = None, **options: Any) -> Model:
    """The factory of a named network for records like these, with the name that keys of a store are made of.

    `records` is (n, …): flat rows, images (n, channels, height, width) or ids (n, length) below `vocabulary`. Further
    options are those of the network's function.
    """
    check.choice("network", name, tuple(NETWORKS))
    shape = np.shape(records)[1:]
    if not shape:
        raise InputError(
            f"records must have at least two axes, got shape {np.shape(records)}; pass one row for each record."
        )
    if name in TEXTS:
        if vocabulary is None or len(shape) != 1 or np.asarray(records).dtype.kind not in "iu":
            raise InputError(f"network {name} is for texts as ids, see tokens.hashed_words; pass them and vocabulary.")
        given: dict[str, Any] = {"vocabulary": vocabulary} | ({"length": shape[0]} if name == "transformer" else {})
    elif vocabulary is not None:
        raise InputError(f"network {name} is not for texts; choose {' or '.join(TEXTS)}.")
    elif name in IMAGES:
        given = {"shape": shape}
    else:
        given = {"inputs": math.prod(shape)}
    settings = {**given, "classes": classes, **options}
    factory = partial(NETWORKS[name], **settings)
    try:
        factory()
    except TypeError:
        raise InputError(
            f"network {name} does not know one of the options {', '.join(options)}; leave it out or correct its name."
        ) from None
    described = ", ".join(f"{key}={value}" for key, value in sorted(settings.items()))
    return Model(factory, f"{name}({described})")


def _width(name: str, value: Any) -> int:
    return check.whole(name, value, 1, "pass a positive whole number")


def _classes(value: Any) -> int:
    return check.whole("classes", value, 2, "pass the number of classes")


def _image(shape: Any, least: int) -> tuple[int, int, int]:
    sizes = tuple(int(size) for size in shape)
    if len(sizes) != 3 or min(sizes) < 1 or min(sizes[1:]) < least:
        raise InputError(
            f"shape must be (channels, height, width) with images of at least {least} by {least}, got {sizes}; reshape "
            "the records or choose network mlp."
        )
    return sizes


def _eighth(size: int) -> int:
    """What a convolution in steps of two and two poolings leave of a side."""
    return math.ceil(size / 2) // 4


def _activation(name: str) -> Any:
    nn = torch_module().nn
    return {"relu": nn.ReLU, "tanh": nn.Tanh}[check.choice("activation", name, ACTIVATIONS)]()
