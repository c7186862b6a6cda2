"""The networks on images: plain, residual and wide, with classes or with attributes, without and with DP-SGD."""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from dosimeter.engine import Store, Task, key_of
from dosimeter.engine.tasks import hash_of_arrays
from dosimeter.models import BlackBox, access
from dosimeter.training import Model, train_many

from ..shared import announce
from .adult import private_recipe
from .images import ATTRIBUTES, SETS, Settings

NETWORKS = ("plain", "residual", "wide")  # the smallest first
CLASSES = 10
VERSION = "1"  # raise it when the same settings give other networks
RECIPE = ("width", "batch", "learning_rate", "attributes")  # of the settings: what a training depends on


def network(kind: str, width: int, outputs: int = CLASSES, channels: int = 3) -> Any:
    """Four convolutions, a residual network, or one that is twice as wide; group norms, so that DP-SGD can train it."""
    from torch import nn

    def layer(given: int, made: int) -> list[Any]:
        return [nn.Conv2d(given, made, 3, padding=1), nn.GroupNorm(8, made), nn.ReLU()]

    class Residual(nn.Module):  # type: ignore[misc]
        def __init__(self, size: int) -> None:
            super().__init__()
            self.inner = nn.Sequential(*layer(size, size), nn.Conv2d(size, size, 3, padding=1), nn.GroupNorm(8, size))

        def forward(self, x: Any) -> Any:
            return nn.functional.relu(x + self.inner(x))

    wide = 2 * width if kind == "wide" else width
    more = [[] if kind == "plain" else [Residual(size)] for size in (2 * wide, 4 * wide)]
    return nn.Sequential(
        *layer(channels, wide),
        nn.MaxPool2d(2),
        *layer(wide, 2 * wide),
        *layer(2 * wide, 2 * wide),
        *more[0],
        nn.MaxPool2d(2),
        *layer(2 * wide, 4 * wide),
        *more[1],
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(16 * 4 * wide, outputs),
    )


def _outputs(settings: Settings) -> int:
    return len(ATTRIBUTES) if settings["attributes"] else CLASSES


def trained(
    kind: str, X: Any, y: Any, settings: Settings, epochs: Sequence[int], seed: int, store: Store | None = None
) -> dict[int, Any]:
    """The network after so many epochs of one training with AdamW and mirrored images; kept in the store."""
    import torch

    told = {name: settings[name] for name in RECIPE} | {"kind": kind, "epochs": list(epochs)}
    data = hash_of_arrays({"X": np.asarray(X), "y": np.asarray(y)})
    function: Any = trained
    key = key_of(function, Task("panoramia image network", told, seed), version=VERSION, shared_fingerprint=data)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed % 2**63)
        module = network(kind, settings["width"], _outputs(settings), X.shape[-1])
        entry = None if store is None else store.get(key)
        if entry is not None:
            return {epoch: _filled(deepcopy(module), entry[0][str(epoch)]) for epoch in epochs}
        announce(f"panoramia: a {kind} network on {len(X)} images, {max(epochs)} epochs")
        found = _learnt(module, X, y, settings, epochs)
    if store is not None:
        store.put(key, {str(epoch): _flat(module) for epoch, module in found.items()}, {"what": "panoramia, images"})
    return found


def _learnt(module: Any, X: Any, y: Any, settings: Settings, epochs: Sequence[int]) -> dict[int, Any]:
    """The training itself, from torch's random state as it is, on one thread."""
    import torch

    images, loss = planes(X), torch.nn.functional.cross_entropy
    labels = torch.tensor(np.asarray(y))
    if settings["attributes"]:
        labels = torch.tensor(SETS[np.asarray(y)], dtype=torch.float32)
        loss = torch.nn.functional.binary_cross_entropy_with_logits
    module = module.to(memory_format=torch.channels_last)
    batches = math.ceil(len(images) / settings["batch"])
    optimiser = torch.optim.AdamW(module.parameters(), settings["learning_rate"], weight_decay=5e-4)
    threads, found = torch.get_num_threads(), {}
    torch.set_num_threads(1)
    try:
        for epoch in range(1, max(epochs) + 1):
            for rows in torch.randperm(len(images)).tensor_split(batches):
                seen = torch.where(torch.rand(len(rows), 1, 1, 1) < 0.5, images[rows].flip(3), images[rows])
                optimiser.zero_grad()
                loss(module(seen), labels[rows]).backward()
                optimiser.step()
            if epoch in epochs:
                found[epoch] = deepcopy(module).eval()
    finally:
        torch.set_num_threads(threads)
    return found


def _flat(module: Any) -> Any:
    return np.concatenate([part.detach().contiguous().numpy().reshape(-1) for part in module.parameters()])


def _filled(module: Any, flat: Any) -> Any:
    import torch

    torch.nn.utils.vector_to_parameters(torch.from_numpy(np.array(flat)), module.parameters())
    return module.to(memory_format=torch.channels_last).eval()


def private(kind: str, X: Any, y: Any, epsilon: float, settings: Settings, seed: int, store: Store | None) -> Any:
    """A network of `dp_width` trained with DP-SGD for `dp_epochs`."""
    width = settings["dp_width"]
    announce(f"panoramia: a {kind} network with DP-SGD, ε = {epsilon:g}, {settings['dp_epochs']} epochs")
    factory = Model(partial(network, kind, width), f"panoramia cifar, {kind}, width {width}")
    trainings = train_many(
        factory,
        private_recipe(len(X), epsilon, {**settings, "epochs": [settings["dp_epochs"]]}),
        (planes(X).numpy(), np.asarray(y)),
        np.ones((1, len(X)), bool),
        [seed],
        return_models=True,
        store=store,
        engine="inline",
    )
    return next(iter(trainings)).module(factory)


def planes(X: Any) -> Any:
    """Images with their channels first, from −1 to 1."""
    import torch

    return torch.from_numpy(np.ascontiguousarray(np.asarray(X, np.float32).transpose(0, 3, 1, 2)) / 127.5 - 1.0)


def outputs(module: Any, X: Any) -> Any:
    """What a network says of images: a logit for each class or attribute."""
    import torch

    with torch.inference_mode():
        parts = planes(X).contiguous(memory_format=torch.channels_last).split(500)
        return np.concatenate([module(part).numpy() for part in parts])


def asked(module: Any, settings: Settings) -> BlackBox:
    """A network as an audit takes it: logits of classes, or of all sets of attributes."""

    def logits(X: Any) -> Any:
        found = outputs(module, X)
        return found @ SETS.T.astype(np.float32) if settings["attributes"] else found

    return access(logits, outputs="logits")


def accuracy(module: Any, X: Any, y: Any, settings: Settings) -> float:
    """The share of right classes, or of right answers about attributes."""
    found = outputs(module, X)
    right = (found > 0) == (SETS[y] == 1) if settings["attributes"] else found.argmax(axis=1) == y
    return float(right.mean())


@dataclass(eq=False)
class Labelled:
    """A generator without labels, and a network that is trained on the generator's part and labels what it makes.

    Labels are drawn from the network's probabilities, among the sets of attributes that the members have: labels of
    members are noisy too, and a set that no member has would give an image away.
    """

    inner: Any
    settings: Settings
    store: Store | None = None
    known: Any = None
    labeler: Any = field(default=None, repr=False)

    @property
    def name(self) -> str:
        """What the page calls it."""
        return f"{self.inner.name}, with a labeler"

    @property
    def minimum(self) -> int:
        """The fewest members."""
        return int(self.inner.minimum)

    def fit(self, members: Any, *, seed: int) -> Labelled:
        """Fit the generator to the images, and train the labeler on the same."""
        X, y = members
        epochs = self.settings["labeler_epochs"]
        labeler = trained("plain", X, y, self.settings, [epochs], seed, self.store)[epochs]
        return Labelled(self.inner.fit(X, seed=seed), self.settings, self.store, np.unique(y), labeler)

    def sample(self, count: int, *, seed: int) -> Any:
        """Images with a drawn label each."""
        from scipy.special import softmax

        X = self.inner.sample(count, seed=seed)
        chances = softmax(outputs(self.labeler, X).astype(np.float64) @ SETS[self.known].T, axis=1)
        rng = np.random.default_rng(np.random.SeedSequence([seed, count]))
        drawn = (np.cumsum(chances, axis=1) < rng.random((count, 1))).sum(axis=1)
        return X, self.known[np.minimum(drawn, self.known.size - 1)]
