"""Small convolutional networks: a classifier of images, as helper and reference, and a judge of real and generated.

The judge has its filters at full size and takes the mean over all places, so that it sees fine structure wherever it
is. A network of the classifier's form hardly tells members mixed with noise from real images; the judge does
(bench/generators.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from dosimeter._validate import BoolArray, FloatArray, IntArray
from dosimeter.training.chain import torch_module

EPOCHS = 12
BATCH = 64
ASKED = 2000
JUDGE_FILTERS = (24, 48, 64)
JUDGE_RATE = 3e-3


def image_classifier(
    images: npt.NDArray[Any], labels: IntArray, *, classes: int, seed: int, epochs: int = EPOCHS
) -> Callable[[npt.NDArray[Any]], FloatArray]:
    """Train on images (n, h, w, c) and return a function from images to logits; the same for the same seed.

    Pixels are centred and scaled by the mean and deviation of the training images.
    """
    torch: Any = torch_module()
    nn = torch.nn
    tensor = _scaled(torch, images)
    with _seeded(torch, seed):
        network = nn.Sequential(
            nn.Conv2d(images.shape[-1], 16, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.LazyLinear(64),
            nn.ReLU(),
            nn.Linear(64, classes),
        )
        x, y = tensor(images), torch.from_numpy(labels)
        network(x[:1])
        optimiser = torch.optim.AdamW(network.parameters(), lr=2e-3, weight_decay=1e-2)
        for _ in range(epochs):
            for rows in torch.randperm(len(x)).split(BATCH):
                optimiser.zero_grad()
                nn.functional.cross_entropy(network(x[rows]), y[rows]).backward()
                optimiser.step()
    return _asked(torch, network, tensor)


def image_judge(
    images: npt.NDArray[Any], real: BoolArray, *, seed: int, epochs: int = EPOCHS
) -> Callable[[npt.NDArray[Any]], FloatArray]:
    """Train on real and generated images (n, h, w, c); a function from images to log-odds of real.

    Half of the images are mirrored in each pass; the rate follows one cycle.
    """
    torch: Any = torch_module()
    nn = torch.nn
    tensor = _scaled(torch, images)
    with _seeded(torch, seed):
        layers, given = [], images.shape[-1]
        for filters in JUDGE_FILTERS:
            layers += [nn.Conv2d(given, filters, 3, padding=1), nn.BatchNorm2d(filters), nn.ReLU()]
            layers += [nn.MaxPool2d(2, ceil_mode=True)] if filters != JUDGE_FILTERS[-1] else []
            given = filters
        network = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(given, 2))
        network = network.to(memory_format=torch.channels_last)  # half as long again without
        x, y = tensor(images), torch.from_numpy(real.astype(np.int64))
        batches = max(1, len(x) // BATCH)  # none is smaller than the others: a norm over one image is none
        optimiser = torch.optim.AdamW(network.parameters(), lr=JUDGE_RATE, weight_decay=1e-2)
        cycle = torch.optim.lr_scheduler.OneCycleLR(optimiser, JUDGE_RATE, total_steps=epochs * batches)
        for _ in range(epochs):
            for rows in torch.randperm(len(x)).tensor_split(batches):
                seen = torch.where(torch.rand(len(rows), 1, 1, 1) < 0.5, x[rows].flip(3), x[rows])
                optimiser.zero_grad()
                nn.functional.cross_entropy(network(seen), y[rows]).backward()
                optimiser.step()
                cycle.step()
    logits = _asked(torch, network, tensor)

    def odds(rows: npt.NDArray[Any]) -> FloatArray:
        found = logits(rows)
        return found[:, 1] - found[:, 0]

    return odds


def _scaled(torch: Any, images: npt.NDArray[Any]) -> Callable[[npt.NDArray[Any]], Any]:
    """Images as tensors with channels first by shape and last in memory, centred and scaled as these images are."""
    centre, scale = float(images.mean()), float(images.std()) or 1.0

    def tensor(rows: npt.NDArray[Any]) -> Any:
        array = (np.ascontiguousarray(rows, np.float32) - np.float32(centre)) / np.float32(scale)
        return torch.from_numpy(array).permute(0, 3, 1, 2)

    return tensor


@contextmanager
def _seeded(torch: Any, seed: int) -> Iterator[None]:
    """Draw from this seed inside the block, on one thread, and leave torch as it was."""
    state, threads = torch.random.get_rng_state(), torch.get_num_threads()
    torch.manual_seed(seed)
    torch.set_num_threads(1)  # small batches: several threads mostly wait for each other
    try:
        yield
    finally:
        torch.random.set_rng_state(state)
        torch.set_num_threads(threads)


def _asked(
    torch: Any, network: Any, tensor: Callable[[npt.NDArray[Any]], Any]
) -> Callable[[npt.NDArray[Any]], FloatArray]:
    network.eval()

    def logits(rows: npt.NDArray[Any]) -> FloatArray:
        with torch.inference_mode():
            found = [network(tensor(rows[i : i + ASKED])) for i in range(0, len(rows), ASKED)]
        return np.asarray(torch.cat(found).double().numpy())

    return logits
