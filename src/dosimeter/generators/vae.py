"""A small convolutional variational autoencoder in torch, for each class when there are labels.

The decoder's variance is the mean squared error itself (Rybkin et al. 2021). New images do not start from the prior but
from a Gaussian mixture fitted to the members' codes (Ghosh et al. 2020). Pixels get the members' distribution
afterwards, as in `images`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dosimeter import _validate as check
from dosimeter._validate import FloatArray, IntArray
from dosimeter.datasets.dataset import Array
from dosimeter.generators.images import ClassMixture, class_samples, fit_mixture, parts_for, without_images
from dosimeter.generators.pixels import CHANNELS, Images, pixel_map, read_images
from dosimeter.generators.protocol import require_members, streams
from dosimeter.training.chain import torch_module

BATCH = 128
ASKED = 1000  # images that are decoded at once


@dataclass(frozen=True)
class ConvolutionalVae:
    """Generate images with a small convolutional variational autoencoder; needs torch.

    Args:
        latent: How many numbers the code of an image has.
        width: How many filters the first layer has.
        epochs: Passes over the members.
        learning_rate: The largest rate of its one-cycle schedule.
        name: What the page calls it.
        minimum: The fewest members that it can be fitted to.

    >>> ConvolutionalVae(epochs=5).fit((images, labels), seed=0).sample(10, seed=1)  # doctest: +SKIP
    """

    latent: int = 32
    width: int = 32
    epochs: int = 15
    learning_rate: float = 2e-3
    name: str = "convolutional VAE"
    minimum: int = 200

    def fit(self, members: Any, *, seed: int) -> FittedVae:
        """Train the network from scratch, then fit a mixture to the codes of each class.

        Args:
            members: Images X, or (X, y); labels make the images of each class.
            seed: Decides every random choice.

        Returns:
            What samples new records.

        Raises:
            InputError: If the members are of another kind or too few, or an argument is out of range.
        """
        torch = torch_module()
        records = require_members(members, kind="image", minimum=self.minimum, caller="the VAE")
        sizes = [check.whole(n, getattr(self, n), 1, "pass a larger number") for n in ("latent", "width", "epochs")]
        rate = check.within("learning_rate", self.learning_rate, 0.0, 1.0, "pass e.g. 0.002", include="()")
        images = read_images(records)
        order, mixing, *own = streams(seed, 2 + images.classes.size)
        inputs = torch.from_numpy(framed(images))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(order.integers(1 << 31)))
            network = _network(torch, inputs.shape[1:], images.classes.size, sizes[0], sizes[1])
            _train(torch, network, inputs, torch.from_numpy(images.codes), sizes[2], rate, order)
        low, high = float(images.rows.min()), float(images.rows.max())
        fitted = FittedVae(without_images(images), network, low, high, (), np.bincount(images.codes) / records.size)
        codes = _codes_of(torch, network, inputs, images.codes)
        mixtures = []
        for code, rng in enumerate(own):
            mine = images.codes == code
            bare = fit_mixture(codes[mine], parts_for(int(mine.sum())), mixing)
            points = bare.draw(2 * int(mine.sum()), rng)
            reference = fitted.decoded(points, np.full(len(points), code))
            mixtures.append(ClassMixture(bare.weights, bare.means, bare.roots, pixel_map(images.rows[mine], reference)))
        return FittedVae(fitted.images, network, low, high, tuple(mixtures), fitted.shares)


@dataclass(frozen=True, eq=False)
class FittedVae:
    """The network, the range of the pixels, the mixture of codes of each class and the classes' shares."""

    images: Images
    network: Any
    low: float
    high: float
    mixtures: tuple[ClassMixture, ...]
    shares: FloatArray

    def sample(self, count: int, *, seed: int) -> Any:
        """Sample `count` new images, with labels if the members had them."""
        return class_samples(self.images, self.mixtures, self.shares, self.decoded, count, seed)

    def decoded(self, points: FloatArray, codes: IntArray) -> FloatArray:
        """Rows of pixels from points in the space of the codes."""
        torch = torch_module()
        parts = [np.empty((0, int(np.prod(self.images.shape))))]
        with torch.no_grad():
            for start in range(0, len(points), ASKED):
                z = torch.from_numpy(points[start : start + ASKED].astype(np.float32))
                x = self.network.decode(z, torch.from_numpy(codes[start : start + ASKED])).numpy()
                parts.append(unframed(x, self.images.shape).astype(np.float64))
        return np.concatenate(parts) * (self.high - self.low) + self.low


def _channels_first(shape: tuple[int, ...]) -> bool:
    return len(shape) == 3 and shape[0] in CHANNELS and shape[2] not in CHANNELS


def framed(images: Images, multiple: int = 4) -> Array:
    """Images as (n, c, h, w) in [0, 1], filled up so that h and w are multiples of a number."""
    shape = images.shape
    x = images.rows.reshape(-1, *shape).astype(np.float32)
    x = x[:, None] if len(shape) == 2 else x if _channels_first(shape) else np.moveaxis(x, -1, 1)
    x = (x - x.min()) / (float(x.max() - x.min()) or 1.0)
    return np.ascontiguousarray(np.pad(x, ((0, 0), (0, 0), (0, -x.shape[2] % multiple), (0, -x.shape[3] % multiple))))


def unframed(x: Array, shape: tuple[int, ...]) -> Array:
    """Rows of pixels in the order of the members' form."""
    first = _channels_first(shape)
    high, wide = shape[1:] if first else shape[:2]
    cut = x[:, :, :high, :wide]
    return (cut if first else np.moveaxis(cut, 1, -1)).reshape(len(x), -1)


def _network(torch: Any, shape: tuple[int, ...], classes: int, latent: int, width: int) -> Any:
    nn = torch.nn
    channels, height, across = shape
    small = 2 * width * (height // 4) * (across // 4)

    class VaeNetwork(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.down = nn.Sequential(
                nn.Conv2d(channels, width, 4, 2, 1),
                nn.ReLU(),
                nn.Conv2d(width, 2 * width, 4, 2, 1),
                nn.ReLU(),
                nn.Flatten(),
            )
            self.code = nn.Linear(small + classes, 2 * latent)
            self.up = nn.Sequential(
                nn.Linear(latent + classes, small),
                nn.ReLU(),
                nn.Unflatten(1, (2 * width, height // 4, across // 4)),
                nn.ConvTranspose2d(2 * width, width, 4, 2, 1),
                nn.ReLU(),
                nn.ConvTranspose2d(width, channels, 4, 2, 1),
            )

        def encode(self, x: Any, label: Any) -> Any:
            return self.code(torch.cat([self.down(x), self._marks(label)], 1)).chunk(2, 1)

        def decode(self, z: Any, label: Any) -> Any:
            return torch.sigmoid(self.up(torch.cat([z, self._marks(label)], 1)))

        def _marks(self, label: Any) -> Any:
            return nn.functional.one_hot(label, classes).float()

    return VaeNetwork()


def _train(
    torch: Any, network: Any, inputs: Any, labels: Any, epochs: int, rate: float, rng: np.random.Generator
) -> None:
    steps = epochs * -(-len(inputs) // BATCH)
    optimiser = torch.optim.Adam(network.parameters(), rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, rate, total_steps=steps)
    pixels = inputs[0].numel()
    for _ in range(epochs):
        for rows in torch.from_numpy(rng.permutation(len(inputs))).split(BATCH):
            x, label = inputs[rows], labels[rows]
            mean, log_variance = network.encode(x, label)
            log_variance = log_variance.clamp(-10, 10)
            z = mean + torch.randn_like(mean) * (log_variance / 2).exp()
            error = ((network.decode(z, label) - x) ** 2).mean()
            divergence = 0.5 * (mean**2 + log_variance.exp() - 1 - log_variance).sum(1).mean()
            loss = pixels / 2 * (error + 1e-6).log() + divergence
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), 100.0)
            optimiser.step()
            schedule.step()


def _codes_of(torch: Any, network: Any, inputs: Any, labels: IntArray) -> FloatArray:
    """The mean code of each member."""
    means = []
    with torch.no_grad():
        for x, label in zip(inputs.split(ASKED), torch.from_numpy(labels).split(ASKED), strict=True):
            means.append(network.encode(x, label)[0].numpy())
    return np.concatenate(means).astype(np.float64)
