"""Images of one size, from CIFAR-10 or from Fashion-MNIST with attributes in the place of CelebA, and one map for all.

A record's label is a number: a class of CIFAR-10 or, with attributes, the set of those that hold, one bit for each. A
network with an output for each attribute gives every set a probability, the product over its attributes, so an audit
takes it as a classifier of sets. Its loss is then that of all labels together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .adult import parts

Settings = Mapping[str, Any]
GARMENTS = {  # yes or no by class of Fashion-MNIST
    "covers the trunk": (0, 2, 3, 4, 6),
    "long sleeves": (2, 4, 6),
    "covers the legs": (1, 3),
    "opens in front": (4, 6),
    "for the feet": (5, 7, 9),
}
LOOKS = ("bright", "brighter above")  # computed from the pixels; the same for a mirrored image
ATTRIBUTES = (*GARMENTS, *LOOKS)
FEWEST = 10  # members of a label, for others with this label
BRIGHT = 0.286  # the mean of all pixels of Fashion-MNIST, from 0 to 1
SETS = (np.arange(2 ** len(ATTRIBUTES))[:, None] >> np.arange(len(ATTRIBUTES))) & 1  # the attributes of every label


def small(images: Any, side: int) -> Any:
    """Means over squares, so that a generator can follow the images."""
    count, height, width, channels = images.shape
    blocks = images.reshape(count, side, height // side, side, width // side, channels)
    return blocks.mean(axis=(2, 4)).astype(np.float32)


def low_pass(images: Any, share: float) -> Any:
    """Keep this share of the frequencies of either axis (of the cosine transform), the low ones; 1 changes nothing."""
    if share >= 1.0:
        return images
    from scipy.fft import dctn, idctn

    waves = dctn(np.asarray(images, np.float64), axes=(1, 2), norm="ortho")
    height, width = images.shape[1:3]
    waves[:, round(share * height) :] = 0.0
    waves[:, :, round(share * width) :] = 0.0
    smooth = idctn(waves, axes=(1, 2), norm="ortho")
    if np.dtype(images.dtype).kind in "iu":
        return np.rint(smooth).clip(0, 255).astype(images.dtype)
    return smooth.astype(images.dtype)


@dataclass(eq=False)
class LowPassed:
    """A generator that learns from images before the map, and whose images then go through it as the real ones did.

    `originals` are the members before the map; what the generator is fitted to is found among them.
    """

    inner: Any
    share: float
    originals: Any = field(repr=False)

    @property
    def name(self) -> str:
        """What the page calls it."""
        return f"{self.inner.name}, {self.share:g} of the frequencies"

    @property
    def minimum(self) -> int:
        """The fewest members."""
        return int(self.inner.minimum)

    def fit(self, members: Any, *, seed: int) -> LowPassed:
        """Fit the generator to the originals of these members."""
        X = members[0] if isinstance(members, tuple) else members
        rows = {image.tobytes(): at for at, image in enumerate(low_pass(self.originals, self.share))}
        own = self.originals[[rows[image.tobytes()] for image in X]]
        learnt = (own, members[1]) if isinstance(members, tuple) else own
        return LowPassed(self.inner.fit(learnt, seed=seed), self.share, self.originals)

    def sample(self, count: int, *, seed: int) -> Any:
        """Its images after the map."""
        made = self.inner.sample(count, seed=seed)
        if isinstance(made, tuple):
            return low_pass(made[0], self.share), made[1]
        return low_pass(made, self.share)


def attributes(images: Any, y: Any) -> Any:
    """The label of each image from 0 to 1: the number of the set of its attributes."""
    upper = images.shape[1] // 2
    rows = images.reshape(len(images), images.shape[1], -1)
    looks = rows.mean(axis=(1, 2)) > BRIGHT, rows[:, :upper].mean(axis=(1, 2)) > rows[:, upper:].mean(axis=(1, 2))
    told = np.stack([*(np.isin(y, classes) for classes in GARMENTS.values()), *looks], axis=1)
    return told.astype(np.int64) @ (1 << np.arange(len(ATTRIBUTES)))


def drawn(settings: Settings, seed: int) -> list[tuple[Any, Any]]:
    """Members, fresh images, and images for the controls: disjoint, as whole numbers, made small, after the map.

    Other images whose label fewer than ten members have are left out: an audit refuses real non-members with a label
    that none of its members has.
    """
    found = []
    for X, y in parts(settings["data"], [settings["members"]] * 3, seed):
        images = np.asarray(X, np.float32)
        images = images if images.ndim == 4 else images[..., None]
        if settings["attributes"]:
            y = attributes(images, np.asarray(y))
        edge = -images.shape[1] % settings["side"] // 2
        images = small(np.pad(images, ((0, 0), (edge, edge), (edge, edge), (0, 0))), settings["side"])
        found.append((low_pass(np.rint(255.0 * images).astype(np.uint8), settings["low_pass"]), np.asarray(y)))
    inside, *others = found
    labels, counts = np.unique(inside[1], return_counts=True)
    known = labels[counts >= FEWEST]
    return [inside, *((X[np.isin(y, known)], y[np.isin(y, known)]) for X, y in others)]
