"""Images: a convolutional network trained for few and for many epochs on a part of CIFAR-10, in 8 by 8 pixels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dosimeter import audit_members_only
from dosimeter.datasets import load
from dosimeter.engine import Store
from dosimeter.generators import PcaMixture
from dosimeter.training import Recipe, train_many
from dosimeter.training.networks import network

from .summary import ordering

SIDE = 8


def small(images: Any) -> Any:
    """Means over squares, so that a mixture of Gaussians can follow the images."""
    count, height, width, channels = images.shape
    blocks = images.reshape(count, SIDE, height // SIDE, SIDE, width // SIDE, channels)
    return blocks.mean(axis=(2, 4)).astype(np.float32)


def ordered(settings: Mapping[str, Any], seed: int, store: Store | None = None) -> dict[str, float]:
    """ε̃ of a network that generalises and of one that fits its members too closely."""
    data, size = load("cifar10"), settings["members"]
    order = np.random.default_rng(np.random.SeedSequence(seed)).permutation(len(data))
    X, y = data.take(order[: 2 * size]).pair
    X = small(X)
    planes = np.ascontiguousarray(X.transpose(0, 3, 1, 2))
    factory = network("cnn", planes, 10)
    inside = (np.arange(2 * size) < size)[None]
    models = {}
    for epochs in reversed(settings["epochs"]):
        recipe = Recipe("adam", learning_rate=settings["learning_rate"], epochs=epochs, batch_size=settings["batch"])
        found = next(iter(train_many(factory, recipe, (planes, y), inside, [seed], return_models=True, store=store)))
        models[str(epochs)] = _asked(found.module(factory))
    audit = audit_members_only(
        models,
        (X[:size], y[:size]),
        generator=PcaMixture(dimensions=settings["dimensions"]),
        references=settings["references"],
        seed=seed,
    )
    return ordering(audit, seed)


def _asked(module: Any) -> Callable[[Any], Any]:
    """Logits of images whose channels come last."""
    import torch

    def logits(images: Any) -> Any:
        planes = np.ascontiguousarray(np.asarray(images, np.float32).transpose(0, 3, 1, 2))
        with torch.inference_mode():
            return module(torch.from_numpy(planes)).numpy()

    return logits
