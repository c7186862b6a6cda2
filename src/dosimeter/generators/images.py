"""Small images from a mixture of Gaussians in their principal components, for each class when there are labels."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from dosimeter import _validate as check
from dosimeter._validate import FloatArray, IntArray
from dosimeter.datasets.dataset import Array
from dosimeter.generators.pixels import Images, PixelMap, pixel_map, read_images
from dosimeter.generators.protocol import check_count, require_members, streams

PER_PART = 150  # members that each part of a mixture has in the mean
MOST_PARTS = 40
REFERENCE = 2000  # images that the model's own pixels are read from
RIDGE = 1e-3  # of the mean variance, added to the diagonal of every covariance


@dataclass(frozen=True, eq=False)
class ClassMixture:
    """Weights, means and roots of the covariances of one class, and its pixel map."""

    weights: FloatArray
    means: FloatArray
    roots: FloatArray
    pixels: PixelMap | None

    def draw(self, count: int, rng: np.random.Generator) -> FloatArray:
        """Points in the space of the principal components."""
        part = rng.choice(self.weights.size, count, p=self.weights)
        noise = rng.standard_normal((count, self.means.shape[1]))
        order = np.argsort(part, kind="stable")
        ends = np.cumsum(np.bincount(part, minlength=self.weights.size))
        for k, rows in enumerate(np.split(order, ends[:-1])):
            noise[rows] = self.means[k] + noise[rows] @ self.roots[k].T
        return noise


@dataclass(frozen=True)
class PcaMixture:
    """Generate small images from a Gaussian mixture in their principal components.

    Pixels get the members' distribution afterwards.

    Args:
        dimensions: The most principal components.
        parts: How many Gaussians each class has; None for one for each 150 members.
        name: What the page calls it.
        minimum: The fewest members that it can be fitted to.

    >>> images = np.random.default_rng(0).random((60, 4, 4))
    >>> PcaMixture().fit(images, seed=0).sample(5, seed=1).shape
    (5, 4, 4)
    """

    dimensions: int = 100
    parts: int | None = None
    name: str = "PCA and Gaussian mixture"
    minimum: int = 50

    def fit(self, members: Any, *, seed: int) -> FittedMixture:
        """Fit the principal components, and a mixture for each class.

        Args:
            members: Images X, or (X, y); labels make the images of each class.
            seed: Decides every random choice.

        Returns:
            What samples new records.

        Raises:
            InputError: If the members are of another kind or too few.
        """
        records = require_members(members, kind="image", minimum=self.minimum, caller="the image mixture")
        most = check.whole("dimensions", self.dimensions, 1, "pass e.g. 100")
        parts = None if self.parts is None else check.whole("parts", self.parts, 1, "pass e.g. 5 for each class")
        images = read_images(records)
        basis_stream, *own = streams(seed, 1 + images.classes.size)
        mean, basis = _principal(images.rows, min(most, records.size // 5, images.rows.shape[1]), basis_stream)
        points = (images.rows - mean) @ basis.T
        mixtures = []
        for code, rng in enumerate(own):
            mine = images.codes == code
            count = int(mine.sum())
            bare = fit_mixture(points[mine], parts_for(count) if parts is None else min(parts, count), rng)
            reference = bare.draw(max(REFERENCE, 2 * count), rng) @ basis + mean
            mixed = ClassMixture(bare.weights, bare.means, bare.roots, pixel_map(images.rows[mine], reference))
            mixtures.append(mixed)
        return FittedMixture(
            without_images(images), mean, basis, tuple(mixtures), np.bincount(images.codes) / records.size
        )


def parts_for(count: int) -> int:
    """How many Gaussians a class of this size gets."""
    return int(np.clip(count // PER_PART, 1, MOST_PARTS))


@dataclass(frozen=True, eq=False)
class FittedMixture:
    """Principal components, the mixture of each class and the classes' shares."""

    images: Images
    mean: FloatArray
    basis: FloatArray
    mixtures: tuple[ClassMixture, ...]
    shares: FloatArray

    def sample(self, count: int, *, seed: int) -> Any:
        """Sample `count` new images, with labels if the members had them."""
        return class_samples(
            self.images, self.mixtures, self.shares, lambda z, _: z @ self.basis + self.mean, count, seed
        )


class ImageSource(Protocol):
    """What the images of one class are drawn from, and what is done to their pixels afterwards."""

    @property
    def pixels(self) -> Callable[[FloatArray], FloatArray] | None: ...

    def draw(self, count: int, rng: np.random.Generator) -> FloatArray: ...


def class_samples(
    images: Images,
    sources: Sequence[ImageSource],
    shares: FloatArray,
    rows_of: Callable[[FloatArray, IntArray], FloatArray],
    count: int,
    seed: int,
) -> Any:
    """Classes drawn by their shares, then images from the source of each; `rows_of` turns points into pixels."""
    size = check_count(count)
    pick, *own = streams(seed, 1 + len(sources))
    codes: IntArray = pick.choice(shares.size, size, p=shares).astype(np.int64)
    made = np.empty((size, int(np.prod(images.shape))))
    for code, (source, rng) in enumerate(zip(sources, own, strict=True)):
        mine = np.flatnonzero(codes == code)
        rows = rows_of(source.draw(mine.size, rng), codes[mine])
        made[mine] = rows if source.pixels is None else source.pixels(rows)
    return images.write(made, codes)


def without_images(images: Images) -> Images:
    """The form of the images without the images."""
    none: Array = images.rows[:0]
    return Images(none, images.shape, images.dtype, images.classes, images.codes[:0], images.labelled)


def _principal(rows: Array, most: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    from sklearn.decomposition import PCA

    model = PCA(most, svd_solver="randomized", random_state=int(rng.integers(1 << 31)))
    with np.errstate(invalid="ignore"):  # the share of variance explained, when all images are the same
        model.fit(rows.astype(np.float32))
    return model.mean_.astype(np.float64), model.components_.astype(np.float64)


def fit_mixture(points: FloatArray, parts: int, rng: np.random.Generator) -> ClassMixture:
    """A Gaussian mixture with full covariances, without a pixel map."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture

    scale = float(points.var(axis=0).mean()) or 1.0
    model = GaussianMixture(
        parts, reg_covar=RIDGE, max_iter=50, init_params="k-means++", random_state=int(rng.integers(1 << 31))
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # one that has not quite converged serves as well
        model.fit(points / np.sqrt(scale))
    roots = np.linalg.cholesky(model.covariances_ * scale)
    return ClassMixture(model.weights_ / model.weights_.sum(), model.means_ * np.sqrt(scale), roots, None)
