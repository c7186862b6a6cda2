"""Small images as members of their class, shaken: a smoothed bootstrap in principal components, band by band.

A new image is √(1−h²) of a random member's deviation from the mean of its class plus h of Gaussian noise (Silverman and
Young 1987: the variance stays). The noise has the covariance within the classes and, in each band of components, the
strength that this member has there: images differ in contrast far more than a Gaussian says.

What is kept of the member keeps the image typical of its label. If little is kept, even a model that learnt from other
images can tell new images from real ones. If much is kept, a model recognises the members in the new images, and less
of a leak shows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dosimeter import _validate as check
from dosimeter._validate import FloatArray, IntArray
from dosimeter.datasets.dataset import Array
from dosimeter.generators.images import REFERENCE, class_samples, without_images
from dosimeter.generators.pixels import Images, PixelMap, pixel_map, read_images
from dosimeter.generators.protocol import require_members

PILED = 0.1  # share of members with a pixel at its smallest or largest value, from which on the pixel is mapped


@dataclass(frozen=True)
class SmoothedBootstrap:
    """Generate small images by mixing members with noise of their own strength: the default for images.

    Args:
        smoothing: The share of noise h, above 0; with 1 nothing of a member is kept.
        band: How many principal components share one strength of the noise.
        name: What the page calls it.
        minimum: The fewest members that it can be fitted to.

    >>> images = np.random.default_rng(0).random((60, 4, 4))
    >>> SmoothedBootstrap().fit(images, seed=0).sample(5, seed=1).shape
    (5, 4, 4)
    """

    smoothing: float = 0.5
    band: int = 16
    name: str = "smoothed bootstrap of images"
    minimum: int = 50

    def fit(self, members: Any, *, seed: int) -> FittedBootstrap:
        """Compute the means of the classes, the components within them and the members' places there.

        Args:
            members: Images X, or (X, y); labels make the images of each class.
            seed: Decides every random choice.

        Returns:
            What samples new records.

        Raises:
            InputError: If the members are of another kind or too few.
        """
        records = require_members(members, kind="image", minimum=self.minimum, caller="the smoothed bootstrap")
        share = check.within("smoothing", self.smoothing, 0.0, 1.0, "pass the share of noise, e.g. 0.8", include="(]")
        band = check.whole("band", self.band, 1, "pass how many components share a strength, e.g. 16")
        seeds = np.random.SeedSequence(check.seed(seed))
        images = read_images(records)
        rows = images.rows.astype(np.float64)
        counts = np.bincount(images.codes)
        means = np.stack([rows[images.codes == code].mean(axis=0) for code in range(counts.size)])
        places, spread, basis = _components(rows - means[images.codes])
        plane = basis * spread[:, None]
        classes = []
        for code, child in enumerate(seeds.spawn(counts.size)):
            mine = images.codes == code
            bare = Shaken(places[mine], share, band, None)
            finish = _finish(images.rows[mine], bare, means[code], plane, np.random.default_rng(child))
            classes.append(Shaken(bare.places, share, band, finish))
        return FittedBootstrap(without_images(images), means, plane, tuple(classes), counts / records.size)


@dataclass(frozen=True, eq=False)
class FittedBootstrap:
    """Means of the classes, the plane of the components, the members' places in it and the classes' shares."""

    images: Images
    means: FloatArray
    plane: FloatArray
    classes: tuple[Shaken, ...]
    shares: FloatArray

    def sample(self, count: int, *, seed: int) -> Any:
        """Sample `count` new images, with labels if the members had them."""
        return class_samples(
            self.images, self.classes, self.shares, lambda z, codes: self.means[codes] + z @ self.plane, count, seed
        )


@dataclass(frozen=True, eq=False)
class Finish:
    """Pixels are kept within the members' range; where many members share its end, they get the members' values."""

    low: FloatArray
    high: FloatArray
    piled: IntArray
    map: PixelMap

    def __call__(self, rows: FloatArray) -> FloatArray:
        done = np.clip(rows, self.low, self.high)
        if self.piled.size:
            done[:, self.piled] = self.map(rows[:, self.piled])
        return done


@dataclass(frozen=True, eq=False)
class Shaken:
    """Places of the members of one class in the components, in units of the components' deviations."""

    places: FloatArray
    smoothing: float
    band: int
    pixels: Finish | None

    def draw(self, count: int, rng: np.random.Generator) -> FloatArray:
        """Places of new images."""
        chosen = self.places[rng.integers(0, len(self.places), count)]
        starts = np.arange(0, chosen.shape[1], self.band)
        if not starts.size:
            return chosen
        widths = np.diff(np.append(starts, chosen.shape[1]))
        strength = np.sqrt(np.add.reduceat(chosen**2, starts, axis=1) / widths)
        noise = rng.standard_normal(chosen.shape) * np.repeat(strength, widths, axis=1)
        kept: FloatArray = np.sqrt(1.0 - self.smoothing**2) * chosen + self.smoothing * noise
        return kept


def _components(deviations: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The rows in units of the components' deviations, these deviations, and the components that vary at all."""
    left, size, right = np.linalg.svd(deviations, full_matrices=False)
    kept = size > 1e-7 * size[0] if size[0] > 0 else np.zeros(size.size, bool)
    spread = size[kept] / np.sqrt(len(deviations))
    return left[:, kept] * np.sqrt(len(deviations)), spread, right[kept]


def _finish(members: Array, bare: Shaken, mean: FloatArray, plane: FloatArray, rng: np.random.Generator) -> Finish:
    low, high = members.min(axis=0), members.max(axis=0)
    at_end = np.maximum((members == low).mean(axis=0), (members == high).mean(axis=0))
    piled = np.flatnonzero(at_end >= PILED)
    drawn = mean[piled] + bare.draw(max(REFERENCE, 2 * len(members)), rng) @ plane[:, piled]
    return Finish(low.astype(np.float64), high.astype(np.float64), piled, pixel_map(members[:, piled], drawn))
