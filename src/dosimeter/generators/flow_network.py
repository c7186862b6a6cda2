"""The network of flow matching, and the space that it works in: colours without correlation, noise like the images.

Noise is drawn with the images' own power in each frequency (of the cosine transform) and each colour. What a network
that has not learnt enough leaves of the noise then looks like the fine structure of the images, and not like coloured
speckle, which a judge sees at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from dosimeter.datasets.dataset import Array
from dosimeter.generators.pixels import Float32Array

HALVINGS = 8  # height and width must be multiples of it: three steps of two
LEAST = 1e-3  # of the largest deviation: a colour or frequency with less is taken to have as much
WAVES = 32


@dataclass(frozen=True, eq=False)
class ColourSpace:
    """The mean image, the directions of the colours with their deviations, and the deviation of every frequency."""

    mean: Float32Array
    colours: Float32Array
    frequencies: Float32Array

    def inside(self, planes: Array) -> Float32Array:
        """Images (n, c, h, w) in decorrelated colours of deviation 1."""
        inverse = np.linalg.inv(self.colours).astype(np.float32)
        moved: Float32Array = np.einsum("dc,nchw->ndhw", inverse, planes - self.mean).astype(np.float32)
        return np.ascontiguousarray(moved)

    def outside(self, planes: Array) -> Float32Array:
        """The way back to pixels."""
        back: Float32Array = np.einsum("cd,ndhw->nchw", self.colours, planes).astype(np.float32) + self.mean
        return back

    def noise(self, count: int, rng: np.random.Generator) -> Float32Array:
        """Gaussian images with the power of the members in each frequency and colour."""
        height, width = self.frequencies.shape[1:]
        white = rng.standard_normal((count, *self.frequencies.shape), np.float32) * self.frequencies
        made: Float32Array = _cosines(height).T @ white @ _cosines(width)
        return made


def colour_space(planes: Array) -> ColourSpace:
    """Learn it from images (n, c, h, w)."""
    mean = planes.mean(axis=0, dtype=np.float64)
    centred = planes - mean
    by_colour = np.moveaxis(centred, 1, 0).reshape(planes.shape[1], -1)
    values, vectors = np.linalg.eigh(by_colour @ by_colour.T / by_colour.shape[1])
    deviations = np.sqrt(np.maximum(values, 0.0))
    deviations = np.maximum(deviations, LEAST * (float(deviations.max()) or 1.0))
    space = ColourSpace(
        mean.astype(np.float32), (vectors * deviations).astype(np.float32), np.empty((0, 0, 0), np.float32)
    )
    height, width = planes.shape[2:]
    found = _cosines(height) @ space.inside(planes) @ _cosines(width).T
    power = np.sqrt((found.astype(np.float64) ** 2).mean(axis=0))
    power = np.maximum(power, LEAST * (float(power.max()) or 1.0))
    return ColourSpace(space.mean, space.colours, power.astype(np.float32))


def _cosines(size: int) -> Float32Array:
    """The orthonormal cosine transform, one frequency in each row."""
    place, frequency = np.arange(size) + 0.5, np.arange(size)[:, None]
    rows = np.sqrt(2.0 / size) * np.cos(math.pi / size * frequency * place)
    rows[0] /= math.sqrt(2.0)
    return rows.astype(np.float32)


def flow_network(torch: Any, channels: int, classes: int, width: int) -> Any:
    """A U-Net with few channels at full size, that knows the time and the class.

    The last layer of every part begins with zeros, so that the network begins with a velocity of 0: noise with the
    power of the images.
    """
    nn = torch.nn
    silu, known = nn.functional.silu, 4 * width
    fine, sizes = 8 * math.ceil(width / 24), (width, 8 * math.ceil(width / 5), 8 * math.ceil(width / 3.5))

    def silent(layer: Any) -> Any:
        nn.init.zeros_(layer.weight)
        nn.init.zeros_(layer.bias)
        return layer

    class Part(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, given: int, made: int) -> None:
            super().__init__()
            self.before, self.between = nn.GroupNorm(8, given), nn.GroupNorm(8, made, affine=False)
            self.first = nn.Conv2d(given, made, 3, padding=1)
            self.second = silent(nn.Conv2d(made, made, 3, padding=1))
            self.told = nn.Linear(known, 2 * made)
            self.past = nn.Conv2d(given, made, 1) if given != made else nn.Identity()

        def forward(self, x: Any, told: Any) -> Any:
            scale, shift = self.told(told)[:, :, None, None].chunk(2, 1)
            inner = self.between(self.first(silu(self.before(x)))) * (1 + scale) + shift
            return self.past(x) + self.second(silu(inner))

    class Attention(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, size: int) -> None:
            super().__init__()
            self.before, self.triple = nn.GroupNorm(8, size), nn.Conv2d(size, 3 * size, 1)
            self.out = silent(nn.Conv2d(size, size, 1))

        def forward(self, x: Any) -> Any:
            count, size, height, across = x.shape
            triple = self.triple(self.before(x)).reshape(count, 3, 4, size // 4, height * across)
            q, k, v = triple.transpose(-1, -2).unbind(1)
            heard = nn.functional.scaled_dot_product_attention(q, k, v).transpose(-1, -2)
            return x + self.out(heard.reshape(count, size, height, across))

    class FlowNetwork(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.classes = nn.Embedding(classes, known)
            self.clock = nn.Sequential(nn.Linear(2 * WAVES, known), nn.SiLU(), nn.Linear(known, known))
            self.register_buffer("waves", torch.exp(torch.linspace(0.0, 6.0, WAVES)), persistent=False)
            self.stem, self.out = nn.Conv2d(channels, fine, 3, padding=1), nn.Conv2d(fine, channels, 3, padding=1)
            silent(self.out)
            steps = (fine, *sizes)
            self.down = nn.ModuleList([nn.Conv2d(a, b, 2, 2) for a, b in pairwise(steps)])
            self.up = nn.ModuleList([nn.ConvTranspose2d(b, a, 2, 2) for a, b in pairwise(steps)])
            self.going = nn.ModuleList([Part(size, size) for size in steps])
            self.coming = nn.ModuleList([Part(2 * size, size) for size in steps[:-1]])
            self.middle = Part(sizes[2], sizes[2])
            self.attend = nn.ModuleList([Attention(size) for size in (sizes[1], sizes[2], sizes[1])])

        def forward(self, x: Any, time: Any, label: Any) -> Any:
            angle = time[:, None] * self.waves
            told = silu(self.clock(torch.cat([angle.sin(), angle.cos()], 1)) + self.classes(label))
            x = self.going[0](self.stem(x), told)
            kept = [x]
            for level in (1, 2, 3):
                x = self.going[level](self.down[level - 1](x), told)
                x = self.attend[level - 2](x) if level > 1 else x
                kept.append(x)
            x = self.middle(x, told)
            for level in (2, 1, 0):
                x = self.coming[level](torch.cat([self.up[level](x), kept[level]], 1), told)
                x = self.attend[2](x) if level == 2 else x
            return self.out(silu(x))

    return FlowNetwork().to(memory_format=torch.channels_last)
