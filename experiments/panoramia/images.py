"""Images: a convolutional network after fewer and more epochs, and with DP-SGD, on a part of CIFAR-10 made small."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import partial
from typing import Any

import numpy as np

from dosimeter import audit_members_only
from dosimeter.engine import Store
from dosimeter.generators import SmoothedBootstrap
from dosimeter.training import Model, train_many

from .adult import parts, private_recipe
from .summary import kept

CLASSES = 10


def small(images: Any, side: int) -> Any:
    """Means over squares, so that a generator can follow the images."""
    count, height, width, channels = images.shape
    blocks = images.reshape(count, side, height // side, side, width // side, channels)
    return blocks.mean(axis=(2, 4)).astype(np.float32)


def convolutions(side: int, width: int) -> Any:
    """Three convolutions, the last two in steps of two, and a dense layer: enough weights to learn images by heart."""
    from torch import nn

    return nn.Sequential(
        *(nn.Conv2d(3, width, 3, padding=1), nn.ReLU()),
        *(nn.Conv2d(width, 2 * width, 3, stride=2, padding=1), nn.ReLU()),
        *(nn.Conv2d(2 * width, 2 * width, 3, stride=2, padding=1), nn.ReLU()),
        nn.Flatten(),
        *(nn.Linear(2 * width * math.ceil(side / 4) ** 2, 128), nn.ReLU()),
        nn.Linear(128, CLASSES),
    )


def networks(X: Any, y: Any, settings: Mapping[str, Any], seed: int) -> dict[int, Any]:
    """The network after so many epochs of one training with Adam, with nothing against over-fitting."""
    import torch

    images, labels = torch.from_numpy(_planes(X)).contiguous(memory_format=torch.channels_last), torch.tensor(y)
    rng = np.random.default_rng(np.random.SeedSequence(seed))
    found = {}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = convolutions(settings["side"], settings["width"]).to(memory_format=torch.channels_last)
        optimiser = torch.optim.Adam(module.parameters(), settings["learning_rate"])
        for epoch in range(1, max(settings["epochs"]) + 1):
            for rows in torch.from_numpy(rng.permutation(len(images))).split(settings["batch"]):
                optimiser.zero_grad()
                torch.nn.functional.cross_entropy(module(images[rows]), labels[rows]).backward()
                optimiser.step()
            if epoch in settings["epochs"]:
                found[epoch] = deepcopy(module)
    return found


def private_network(
    X: Any, y: Any, epsilon: float, settings: Mapping[str, Any], seed: int, store: Store | None = None
) -> Any:
    """The same network trained with DP-SGD for as long as the longest training."""
    side, width = settings["side"], settings["width"]
    factory = Model(partial(convolutions, side, width), f"panoramia images, side {side}, width {width}")
    recipe, everyone = private_recipe(len(X), epsilon, settings), np.ones((1, len(X)), bool)
    trained = train_many(
        factory, recipe, (_planes(X), y), everyone, [seed], return_models=True, store=store, engine="inline"
    )
    return next(iter(trained)).module(factory)


def audited(settings: Mapping[str, Any], seed: int, store: Store | None = None) -> dict[str, Any]:
    """One audit of networks after fewer and more epochs and, if settings say so, of networks with DP-SGD.

    With `control` the networks learn from other images than the members, so that ε̃ has to be 0.
    """
    drawn = parts("cifar10", [settings["members"]] * (3 if settings.get("control") else 2), seed)
    inside, fresh, *others = ((small(X, settings["side"]), y) for X, y in drawn)
    learnt = others[0] if others else inside
    models: dict[str, Callable[[Any], Any]] = {}
    trained: dict[str, dict[str, Any]] = {}

    def add(name: str, module: Any, epochs: int, dp: float | None) -> None:
        models[name] = _asked(module)
        right = [float(np.mean(models[name](X).argmax(axis=1) == y)) for X, y in (inside, fresh)]
        trained[name] = {"epochs": epochs, "dp": dp, "train": right[0], "test": right[1]}

    for epsilon in settings.get("dp", []):
        module = private_network(*learnt, epsilon, settings, seed, store)
        add(f"DP, ε = {epsilon:g}", module, max(settings["epochs"]), epsilon)
    for epochs, module in networks(*learnt, settings, seed).items():
        add(f"{epochs} epochs", module, epochs, None)
    began = time.process_time()
    audit = audit_members_only(
        models,
        inside,
        generator=SmoothedBootstrap(),
        nonmembers=fresh,
        references=settings["references"],
        seed=seed,
    )
    return kept(audit, seed, trained, cpu_seconds=time.process_time() - began)


def _planes(images: Any) -> Any:
    """Images with their channels first, as torch takes them."""
    return np.ascontiguousarray(np.asarray(images, np.float32).transpose(0, 3, 1, 2))


def _asked(module: Any) -> Callable[[Any], Any]:
    """Logits of images whose channels come last."""
    import torch

    def logits(images: Any) -> Any:
        with torch.inference_mode():
            return module(torch.from_numpy(_planes(images))).numpy()

    return logits
