"""How close generated images come to members: the best correlation with a member or its mirror image."""

from __future__ import annotations

from typing import Any

import numpy as np

from dosimeter._validate import FloatArray, InputError, IntArray
from dosimeter.datasets.dataset import Array
from dosimeter.generators.pixels import Float32Array, channels_last
from dosimeter.generators.protocol import Members, read_members

BLOCK = 500  # images that are compared at once


def nearest_members(members: Any, generated: Any) -> FloatArray:
    """Correlate each generated image with the members, and keep the best.

    Correlations are over all pixels of an image, so that brightness and contrast do not count. Mirrored members are
    members too. An image of one colour correlates with nothing.

    Args:
        members: Images X, or (X, y).
        generated: Images of the same form.

    Returns:
        The largest correlation of each generated image with a member, from 0 to 1.

    Raises:
        InputError: If the records are not images, or of another shape than the members.

    >>> images = np.random.default_rng(0).random((30, 6, 6))
    >>> nearest_members(images, 2 * images[:1, :, ::-1] + 1).round(3)
    array([1.])
    """
    known, made = (
        _planes(read_members(part, name=name), name) for part, name in ((members, "members"), (generated, "generated"))
    )
    if known.shape[1:] != made.shape[1:]:
        raise InputError(
            f"generated has images of shape {made.shape[1:]}, members of shape {known.shape[1:]}; resize them."
        )
    return best_correlations(known, made)


def best_correlations(members: Array, images: Array, *, own: IntArray | None = None) -> FloatArray:
    """The best correlation of images (n, h, w, c) with a member or its mirror image.

    `own` says which member each image is itself, where they are members: it does not count.
    """
    rows, best = _rows(members), np.zeros(len(images))
    for start in range(0, len(images), BLOCK):
        block = slice(start, start + BLOCK)
        for seen in (images[block], images[block][:, :, ::-1]):
            found = _rows(seen) @ rows.T
            if own is not None:
                found[np.arange(len(found)), own[block]] = 0.0
            np.maximum(best[block], found.max(axis=1), out=best[block])
    return np.minimum(best, 1.0)


def _planes(records: Members, name: str) -> Array:
    """Images as (n, h, w, c)."""
    if records.kind != "image":
        raise InputError(f"{name} must hold images, got {records.kind} records; pass an array (n, h, w[, c]).")
    return channels_last(records.X)


def _rows(images: Array) -> Float32Array:
    """Rows of length 1 and mean 0; an image of one colour is a row of zeros."""
    rows = np.asarray(images, np.float32).reshape(len(images), -1)
    rows = rows - rows.mean(axis=1, keepdims=True)
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    scaled: Float32Array = np.divide(rows, length, out=np.zeros_like(rows), where=length > 1e-6)
    return scaled
