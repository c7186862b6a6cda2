"""MNIST, Fashion-MNIST and CIFAR-10: float32 in [0, 1], (n, 28, 28) or (n, 32, 32, 3), the training images first."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from dosimeter._validate import InputError, show
from dosimeter.datasets import _raw_files
from dosimeter.datasets._raw_files import MEGA
from dosimeter.datasets.tables import Array, Contents

_LIMIT = 512 * MEGA
_SIDE, _CIFAR = 28, (3, 32, 32)
_BATCHES = tuple(
    f"cifar-10-batches-bin/{name}.bin" for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")
)

DIGITS = tuple("0123456789")
CLOTHES = (
    *("T-shirt/top", "trouser", "pullover", "dress", "coat"),
    *("sandal", "shirt", "sneaker", "bag", "ankle boot"),
)
OBJECTS = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

Read = Callable[[Sequence[Path]], Contents]


def mnist_arrays(classes: tuple[str, ...]) -> Read:
    """The reader of an .npz with x_train, y_train, x_test and y_test, all uint8."""
    return partial(_mnist_arrays, classes=classes)


def mnist_idx(classes: tuple[str, ...]) -> Read:
    """The reader of the four original idx files: images and labels for training, then for testing."""
    return partial(_mnist_idx, classes=classes)


def _mnist_arrays(paths: Sequence[Path], *, classes: tuple[str, ...]) -> Contents:
    parts = _four(paths[0], ("x_train", "y_train", "x_test", "y_test"))
    return _contents(parts, (_SIDE, _SIDE), classes, paths[0])


def _mnist_idx(paths: Sequence[Path], *, classes: tuple[str, ...]) -> Contents:
    return _contents([_idx(path) for path in paths], (_SIDE, _SIDE), classes, paths[0])


def _idx(path: Path) -> Array:
    """An array of bytes in the idx format: two zeros, 8 for bytes, the number of dimensions, the dimensions."""
    data = _raw_files.plain(path, _LIMIT)
    dimensions = data[3] if len(data) > 4 and data[:3] == b"\0\0\x08" else 0
    shape = tuple(np.frombuffer(data, ">u4", dimensions, 4).tolist()) if len(data) >= 4 + 4 * dimensions else ()
    if not shape or math.prod(shape) != len(data) - 4 - 4 * dimensions:
        raise InputError(f"{path} is not an idx file of bytes; get it again.")
    return np.frombuffer(data, np.uint8, offset=4 + 4 * dimensions).reshape(shape)


def cifar_deltas(paths: Sequence[Path]) -> Contents:
    """cifar10_20k.npz: the first 20 000 training images and the test images.

    Pixels are kept as differences modulo 256: from the row above, from the column before, and of red and blue from
    green.
    """
    parts = _four(paths[0], ("x_train_delta", "y_train", "x_test_delta", "y_test"))
    for place in (0, 2):
        if parts[place].ndim != 4 or parts[place].shape[1:] != _CIFAR or parts[place].dtype != np.uint8:
            continue  # refused below
        pixels = parts[place].cumsum(axis=2, dtype=np.uint8).cumsum(axis=3, dtype=np.uint8)
        pixels[:, ::2] += pixels[:, 1:2]
        parts[place] = pixels
    return _contents(parts, _CIFAR, OBJECTS, paths[0])


def cifar_binary(paths: Sequence[Path]) -> Contents:
    """cifar-10-binary.tar.gz: records of one byte for the class and 3 072 for the pixels."""
    path, size = paths[0], 1 + math.prod(_CIFAR)
    batches: dict[str, Array] = {}
    with _raw_files.tar_members(path, _BATCHES, _LIMIT) as members:
        for name, stream in members:
            data = stream.read()
            if not data or len(data) % size:
                raise InputError(f"{path}: {name} has {len(data)} bytes, not a multiple of {size}; get the file again.")
            batches[name] = np.frombuffer(data, np.uint8).reshape(-1, size)
    train, test = np.concatenate([batches[name] for name in _BATCHES[:-1]]), batches[_BATCHES[-1]]
    parts = [train[:, 1:].reshape(-1, *_CIFAR), train[:, 0], test[:, 1:].reshape(-1, *_CIFAR), test[:, 0]]
    return _contents(parts, _CIFAR, OBJECTS, path)


def _four(path: Path, names: Sequence[str]) -> list[Array]:
    columns = _raw_files.arrays(path, _LIMIT)
    absent = [name for name in names if name not in columns]
    if absent:
        raise InputError(f"{path} has no array {absent[0]}; it has {show(', '.join(columns), 90)}.")
    return [columns[name] for name in names]


def _contents(parts: Sequence[Array], shape: tuple[int, ...], classes: tuple[str, ...], path: Path) -> Contents:
    """Images and labels of the training part, then of the test part."""
    for images, labels in (parts[:2], parts[2:]):
        if (
            images.shape != (len(labels), *shape)
            or labels.ndim != 1
            or {images.dtype, labels.dtype} != {np.dtype("u1")}
        ):
            raise InputError(
                f"{path} has images of shape {images.shape} and type {images.dtype} with labels of shape "
                f"{labels.shape}; expected bytes of shape (n, {', '.join(map(str, shape))}) and (n,)."
            )
        if len(labels) and labels.max() >= len(classes):
            raise InputError(
                f"{path} has the class {labels.max()}, not one from 0 to {len(classes) - 1}; get it again."
            )
    x, y = np.concatenate([parts[0], parts[2]]), np.concatenate([parts[1], parts[3]])
    if len(shape) == 3:
        x = x.transpose(0, 2, 3, 1)
    X = np.divide(x, np.float32(255), dtype=np.float32, order="C")
    splits = np.repeat(np.array(["train", "test"]), [len(parts[1]), len(parts[3])])
    return Contents(X, y.astype(np.int64), (), classes, {"split": splits})
