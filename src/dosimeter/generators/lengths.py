"""Texts as long as the members: a generator ends its texts too early or too late, and their length gives them away."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from dosimeter._validate import IntArray
from dosimeter.generators.words import END

FEWEST = 64  # texts that are written in one go, at least
EXACT = 16  # tokens up to which lengths must agree; longer ones may differ by a share
WIDTH = 1 / 16


Writer: TypeAlias = Callable[[int, IntArray | None], IntArray]


def matched(write: Writer, lengths: IntArray, count: int, rng: np.random.Generator, *, most: int) -> IntArray:
    """`count` rows of tokens whose lengths are drawn from `lengths`, those of long ones up to a few per cent.

    `write(n, None)` gives n rows that end where the generator ends them, filled up with END, or that have one token
    more than the longest of `lengths`. Those of a length that is wanted are kept, so they are draws given their length.
    For lengths that have not come up in `most` rows for each one asked for, `write(n, least)` gives rows that do not
    end before these lengths, and they are cut there.
    """
    wanted = np.sort(rng.choice(lengths, count))
    kept: list[IntArray] = []
    longest, left, ask = int(lengths.max()), most * count, count
    while wanted.size and left > 0:
        rows = write(ask, None)
        left -= ask
        sizes = (rows != END).sum(axis=1)
        usable = np.flatnonzero(sizes <= longest)
        order = usable[np.argsort(sizes[usable], kind="stable")]
        have, need = _group(sizes[order]), _group(wanted)
        taken = order[_turn(have) < _times(need, have)]
        kept.append(rows[taken])
        wanted = wanted[_turn(need) >= _times(have, need)]
        rate = max(taken.size / ask, 1.0 / most)
        ask = max(1, min(left, max(FEWEST, math.ceil(1.2 * wanted.size / rate))))
    if wanted.size:
        rows = write(wanted.size, wanted)
        kept.append(np.where(np.arange(rows.shape[1]) < wanted[:, None], rows, END))
    return rng.permutation(np.concatenate(kept))


def _group(lengths: IntArray) -> IntArray:
    """A number that lengths which pass for each other share, in the order of the lengths."""
    beyond = np.log(np.maximum(lengths, EXACT) / EXACT) / math.log1p(WIDTH)
    return np.minimum(lengths, EXACT) + np.floor(beyond + 1e-9).astype(np.int64)


def _times(ordered: IntArray, values: IntArray) -> IntArray:
    """How often each value stands in an ordered array."""
    return np.searchsorted(ordered, values, side="right") - np.searchsorted(ordered, values, side="left")


def _turn(ordered: IntArray) -> IntArray:
    """0 for the first of equal values in an ordered array, 1 for the second, and so on."""
    return np.arange(ordered.size) - np.searchsorted(ordered, ordered, side="left")
