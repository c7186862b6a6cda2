"""What releases show of records, in numbers: distances to the nearest row in two geometries, and counts in cells."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dosimeter._progress import Progress
from dosimeter._validate import FloatArray
from dosimeter.audits.shift.records import UintArray
from dosimeter.audits.synthetic.cells import fit_cells
from dosimeter.audits.synthetic.nearest import Nearest, nearest, nearest_by_column
from dosimeter.audits.synthetic.rows import Rows
from dosimeter.audits.synthetic.scores import Seen
from dosimeter.audits.synthetic.space import Space, hashes

MOST_BY_COLUMN = 10**10  # differences of single numbers; beyond it the second geometry would take minutes


class Compared(NamedTuple):
    """What all releases show, and the nearest rows of the first."""

    seen: Seen
    first: Nearest


def compare(
    space: Space,
    asked: Rows,
    releases: Sequence[Rows],
    isolation: FloatArray,
    *,
    seed: int,
    workers: int | None,
    progress: bool,
) -> Compared:
    """Measure the records asked about against every release."""
    points = space.coordinates(asked)
    typical = float(np.mean([len(release) for release in releases]))
    numeric = sum(scale.kind != "word" for scale in space.scales)
    work = len(asked) * typical * max(numeric, 1) * len(releases)
    parts = space.parts(asked) if asked.kind == "tabular" and work <= MOST_BY_COLUMN else None
    cells = fit_cells(space.pool, seed)
    codes = None if cells is None else cells.codes(asked)
    own = hashes(asked)
    copies: list[FloatArray] = []
    close: list[FloatArray] = []
    columns: list[FloatArray] = []
    counts = []
    first: Nearest | None = None
    text = f"Comparing {len(asked)} records with {len(releases)} release{'s' if len(releases) > 1 else ''}"
    with Progress(len(releases), text) as bar:
        for place, release in enumerate(releases):
            began = time.monotonic()
            neighbours = nearest(points, space.coordinates(release), workers=workers)
            first = first or neighbours
            close.append(neighbours.distance)
            copies.append(often(own, hashes(release)))
            if parts is not None:
                columns.append(nearest_by_column(parts, space.parts(release), workers=workers).distance)
            if cells is not None and codes is not None:
                scale = np.float32(typical / len(release))
                counts.append(cells.counts(cells.codes(release), codes) * scale)
            bar.advance(place + 1)
            if progress:
                bar.look(1, time.monotonic() - began, 1)
    assert first is not None
    orders = np.empty(0, np.int64) if cells is None else cells.orders()
    seen = Seen(
        isolation,
        np.stack(close),
        np.stack(copies),
        np.stack(columns) if columns else None,
        np.stack(counts) if counts else None,
        orders,
    )
    return Compared(seen, first)


def alone(space: Space, asked: Rows, workers: int | None) -> FloatArray:
    """The distance from each record to the nearest other one, regardless of who was in."""
    points = space.coordinates(asked)
    return nearest(points, points, itself=True, workers=workers).distance


def often(own: UintArray, published: UintArray) -> FloatArray:
    """How often each record stands among published rows as it is."""
    distinct, counts = np.unique(published, return_counts=True)
    at = np.searchsorted(distinct, own).clip(0, distinct.size - 1)
    return np.where(distinct[at] == own, counts[at], 0).astype(np.float64)


SURE = 100.0  # above any logarithm of a ratio of distances


def lone_ratio(asked: Rows, isolation: FloatArray, release: Rows, distance: FloatArray) -> FloatArray:
    """ln of the distance to the nearest other record over that to the release, where there are no references.

    A record that stands in the release as it is, and that no other record equals, comes before all others.
    """
    least = 1e-3 * float(np.median(isolation)) or 1e-6
    own = hashes(asked)
    copied = (often(own, hashes(release)) > 0) & (often(own, own) == 1)
    return np.log(isolation + least) - np.log(distance + least) + SURE * copied
