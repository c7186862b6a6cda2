"""Purchase-100, Texas-100 and Location-30 of Shokri et al. (IEEE S&P 2017): rows of bits with a class from 1."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import IO

import numpy as np

from dosimeter._validate import InputError, show
from dosimeter.datasets import _raw_files
from dosimeter.datasets.tables import Array, Contents

_BLOCK = 1 << 22
_LIMIT = 1 << 34  # bytes in an archive, which are read some megabytes at a time
_MOST = 1 << 30  # bits in memory; Texas-100 has 415 million
_LABELS = 1 << 24
_NPZ_LIMIT = 1 << 34  # as float64, which some copies are, Texas-100 takes 3.3 GB

Read = Callable[[Sequence[Path]], Contents]


def archive(bits: int, classes: int, *, features: str, labels: str | None = None) -> Read:
    """The reader of a .tgz whose member `features` has one row of bits in each line.

    The class is in the same line of the member `labels`, or else before the bits.
    """
    return partial(_archive, bits=bits, classes=classes, features=features, labels=labels)


def arrays(bits: int, classes: int) -> Read:
    """The reader of an .npz with x and y (or features and labels, also one-hot), classes counted from 0 or 1."""
    return partial(_arrays, bits=bits, classes=classes)


def _archive(paths: Sequence[Path], *, bits: int, classes: int, features: str, labels: str | None) -> Contents:
    path = paths[0]
    heads: list[str] = []
    blocks: list[Array] = []
    names = [features] if labels is None else [features, labels]
    with _raw_files.tar_members(path, names, _LIMIT) as members:
        for name, stream in members:
            if name == labels:
                heads = stream.read(_LABELS).decode("ascii", "replace").split()
                continue
            first = 0
            for found, block in _blocks(stream, bits, path):
                wrong = [place for place, head in enumerate(found) if (head == "") == (labels is None)]
                if wrong:
                    wanted = f"a class and {bits} bits" if labels is None else f"{bits} bits"
                    raise InputError(
                        f"{path}: record {first + wrong[0]} of {name} is not {wanted}; get the file again."
                    )
                blocks.append(block)
                first += len(block)
                if first * bits > _MOST:
                    raise InputError(f"{path}: {name} has more than {_MOST} bits; it is not the file expected here.")
                if labels is None:
                    heads += found
    if not blocks:
        raise InputError(f"{path}: {features} has no record; get the file again.")
    return _contents(np.concatenate(blocks), _whole(heads, path), classes, path)


def _blocks(stream: IO[bytes], bits: int, path: Path) -> Iterator[tuple[list[str], Array]]:
    """What stands before the bits of each line, and the bits, some megabytes at a time."""
    rest, start = b"", 0
    while chunk := stream.read(_BLOCK):
        whole, newline, rest = (rest + chunk).rpartition(b"\n")
        if newline and whole.strip():
            heads, block = _lines(whole + newline, bits, path, start)
            start += len(block)
            yield heads, block
    if rest.strip():
        yield _lines(rest + b"\n", bits, path, start)


def _lines(data: bytes, bits: int, path: Path, start: int) -> tuple[list[str], Array]:
    """Lines that end with the bits, one character each with commas between, or else any comma-separated lines."""
    data = data.replace(b"\r", b"")
    width = 2 * bits - 1
    text = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(text == ord("\n"))
    begins = np.concatenate([[0], ends[:-1] + 1])
    starts = ends - width
    if (starts >= begins).all():
        body = np.lib.stride_tricks.sliding_window_view(text, width)[starts]
        values = body[:, ::2] - ord("0")
        before = text[np.maximum(starts - 1, 0)]
        separated = (starts == begins) | (before == ord(",")) | (before == ord(" "))
        if values.max() <= 1 and (body[:, 1::2] == ord(",")).all() and separated.all():
            slices = zip(begins.tolist(), starts.tolist(), strict=True)
            return [data[a:b].decode("ascii", "replace").strip(' ,"') for a, b in slices], values
    return _slowly(data, bits, path, start)


def _slowly(data: bytes, bits: int, path: Path, start: int) -> tuple[list[str], Array]:
    heads: list[str] = []
    values = []
    for number, row in enumerate(
        csv.reader(io.StringIO(data.decode("ascii", "replace")), skipinitialspace=True), start
    ):
        if not row:
            continue
        cells = [cell.strip() for cell in row]
        if len(cells) not in (bits, bits + 1) or not set(cells[-bits:]) <= {"0", "1"}:
            raise InputError(f"{path}: record {number} is not a row of {bits} bits; get the file again.")
        heads.append("".join(cells[:-bits]))
        values.append([cell == "1" for cell in cells[-bits:]])
    return heads, np.array(values, dtype=np.uint8).reshape(-1, bits)


def _whole(texts: Sequence[str], path: Path) -> Array:
    try:
        return np.array([int(text) for text in texts], dtype=np.int64)
    except (ValueError, OverflowError):
        wrong = next(text for text in texts if not text.isdigit())
        raise InputError(f"{path}: {show(wrong)} is not the number of a class; get the file again.") from None


def _arrays(paths: Sequence[Path], *, bits: int, classes: int) -> Contents:
    path = paths[0]
    columns = {name.lower(): values for name, values in _raw_files.arrays(path, _NPZ_LIMIT).items()}
    names = ("features", "labels") if "features" in columns else ("x", "y")
    if not set(names) <= set(columns):
        raise InputError(f"{path} must hold the arrays x and y; it holds {show(', '.join(columns), 90)}.")
    x, y = columns[names[0]], columns[names[1]]
    if x.ndim != 2 or x.shape[1] != bits or x.dtype.kind not in "biuf" or not len(x):
        raise InputError(f"{path}: {names[0]} has shape {x.shape} and type {x.dtype}, not (records, {bits}) bits.")
    wrong = ~((x == 0) | (x == 1)).all(axis=1)
    if wrong.any():
        raise InputError(
            f"{path}: record {int(np.argmax(wrong))} of {names[0]} is not all 0 and 1; get the file again."
        )
    if y.dtype.kind not in "biuf" or y.shape not in ((len(x),), (len(x), 1), (len(x), classes)):
        raise InputError(f"{path}: {names[1]} has shape {y.shape} and type {y.dtype}, not one class for each record.")
    if y.shape == (len(x), classes):
        if not (((y == 0) | (y == 1)).all() and (y.sum(axis=1) == 1).all()):
            raise InputError(f"{path}: {names[1]} has rows that are not one-hot; get the file again.")
        return _contents(x.astype(np.uint8), y.argmax(axis=1) + 1, classes, path)
    flat = y.reshape(-1)
    if not (np.isfinite(flat).all() and (flat == np.floor(flat)).all()):
        raise InputError(f"{path}: {names[1]} holds other things than whole numbers; get the file again.")
    return _contents(x.astype(np.uint8), flat.astype(np.int64) + (flat.max() < classes), classes, path)


def _contents(x: Array, y: Array, classes: int, path: Path) -> Contents:
    """Bits and the classes from 1 on."""
    if len(x) != len(y):
        raise InputError(f"{path} has {len(x)} records and {len(y)} classes; get the file again.")
    outside = (y < 1) | (y > classes)
    if outside.any():
        at = int(np.argmax(outside))
        raise InputError(f"{path}: record {at} has the class {y[at]}, not one from 1 to {classes}; get the file again.")
    names = tuple(f"bit {number}" for number in range(x.shape[1]))
    labels = tuple(f"class {number}" for number in range(classes))
    return Contents(x.astype(np.float32), (y - 1).astype(np.int64), names, labels, None)
