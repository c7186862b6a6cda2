"""A small convolutional classifier of images, as helper, reference and judge of real against generated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from dosimeter._validate import FloatArray, IntArray
from dosimeter.training.chain import torch_module

EPOCHS = 12
BATCH = 64
ASKED = 2000


def image_classifier(
    images: npt.NDArray[Any], labels: IntArray, *, classes: int, seed: int, epochs: int = EPOCHS
) -> Callable[[npt.NDArray[Any]], FloatArray]:
    """Train on images (n, h, w, c) and return a function from images to logits; the same for the same seed.

    Pixels are centred and scaled by the mean and deviation of the training images.
    """
    torch: Any = torch_module()
    nn = torch.nn
    centre, scale = float(images.mean()), float(images.std()) or 1.0

    def tensor(rows: npt.NDArray[Any]) -> Any:
        array = (np.moveaxis(rows, -1, 1).astype(np.float32) - centre) / scale
        return torch.from_numpy(np.ascontiguousarray(array, np.float32))

    state, threads = torch.random.get_rng_state(), torch.get_num_threads()
    torch.manual_seed(seed)
    torch.set_num_threads(1)  # small batches: several threads mostly wait for each other
    try:
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
    finally:
        torch.random.set_rng_state(state)
        torch.set_num_threads(threads)
    network.eval()

    def logits(rows: npt.NDArray[Any]) -> FloatArray:
        with torch.inference_mode():
            found = [network(tensor(rows[i : i + ASKED])) for i in range(0, len(rows), ASKED)]
        return np.asarray(torch.cat(found).double().numpy())

    return logits
