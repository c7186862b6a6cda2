"""Which upper bins are tested against which lower bins, and with what weight: ranks and revealed labels decide."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy import special

from dosimeter._validate import FloatArray, IntArray
from dosimeter.estimators.headline.bins import Bins
from dosimeter.estimators.headline.design import whole_weights
from dosimeter.estimators.headline.shapes import BOTH, IN, OUT, View

SIZES = (12, 24, 48, 100, 250, 1000, 10**9)  # least records a side, from fine tables to one table of all
_RARE = 2.0  # expected rare labels on either side of a table
_GROUPS = 5  # at most, of the leaking side
_SMALLEST_GROUP = 6


class Pairing(NamedTuple):
    """A table before its members are counted: bins above, bins below, and its weight."""

    upper: IntArray
    lower: IntArray
    weight: int


class _OpposedBins(NamedTuple):
    upper: IntArray
    lower: IntArray
    excess: float  # log odds ratio between the two, beyond the design


def layouts(
    bins: Bins, view: View, kind: int, design: FloatArray, sizes: tuple[int, ...], base: float
) -> Iterator[tuple[int, list[Pairing]]]:
    """Ways to lay tables, from fine to coarse, each with its size; none has as many tables as an earlier one."""
    seen = set()
    for size in sizes:
        if kind == BOTH:
            groups = _two_sided(bins, view, float(design[BOTH]), base, size)
        else:
            groups = _one_sided(bins, view, kind, float(design[kind]), size)
        if not groups or len(groups) in seen:
            continue
        seen.add(len(groups))
        weights = whole_weights(np.array([group.excess for group in groups]))
        yield size, [Pairing(g.upper, g.lower, int(w)) for g, w in zip(groups, weights, strict=True)]


def _two_sided(bins: Bins, view: View, design: float, base: float, least: int) -> list[_OpposedBins]:
    """Groups from the outermost bins inwards; the lower side is cut where as much of its information is passed."""
    odds, records = view.of(BOTH), bins.records
    member = special.expit(odds + base)
    information = records * member * (1 - member)
    top, bottom = np.arange(records.size - 1, view.high - 1, -1), np.arange(view.low)
    if not top.size or not bottom.size:
        return []
    above, below = _Passed.of(records, information, top), _Passed.of(records, information, bottom)
    groups = []
    i0 = j0 = 0
    for i in range(top.size):
        last = i == top.size - 1
        j = bottom.size - 1 if last else below.at_share(above.information[i] / above.information[-1])
        if j < j0 or not (last or (above.allows(i0, i, least) and below.allows(j0, j, least))):
            continue
        a, b = top[i0 : i + 1], bottom[j0 : j + 1]
        mean = [np.average(odds[side], weights=information[side] + 1e-9) for side in (a, b)]
        groups.append(_OpposedBins(a, b, float(mean[0] - mean[1] - design)))
        i0, j0 = i + 1, j + 1
    return groups


class _Passed(NamedTuple):
    """Records and information passed on the way inwards."""

    records: IntArray
    information: FloatArray

    @classmethod
    def of(cls, records: IntArray, information: FloatArray, bins: IntArray) -> _Passed:
        return cls(np.cumsum(records[bins]), np.cumsum(information[bins]))

    def at_share(self, share: float) -> int:
        place = int(np.searchsorted(self.information / self.information[-1], share - 1e-12))
        return min(place, self.information.size - 1)

    def allows(self, first: int, last: int, least: int) -> bool:
        """Whether a group from `first` to `last` is large enough, and leaves enough."""
        for passed, needed in ((self.records, least), (self.information, _RARE)):
            before = passed[first - 1] if first else 0
            if passed[last] - before < needed or passed[-1] - passed[last] < needed:
                return False
        return True


def _one_sided(bins: Bins, view: View, kind: int, design: float, least: int) -> list[_OpposedBins]:
    """Groups of the bins that leak, each against a share of all other hidden bins, dealt out in turn."""
    odds, records = view.of(kind), bins.records
    top, bottom = np.arange(records.size - 1, view.high - 1, -1), np.arange(view.low)
    side, sign = (top, 1.0) if kind == IN else (bottom, -1.0)
    leaking = side[sign * odds[side] > design]
    leaking = leaking if leaking.size else side[:1]
    rest = np.setdiff1d(np.concatenate([top, bottom]), leaking)
    if not rest.size:
        return []
    parts = _grouped(leaking, records, least)
    if rest.size < len(parts):
        parts = [np.concatenate(parts)]
    groups = []
    for place, part in enumerate(parts):
        others = rest[place :: len(parts)]
        apart = np.average(odds[part], weights=records[part]) - np.average(odds[others], weights=records[others])
        upper, lower = (others, part) if kind == OUT else (part, others)
        groups.append(_OpposedBins(upper, lower, float(sign * apart - design)))
    return groups


def _grouped(leaking: IntArray, records: IntArray, least: int) -> list[IntArray]:
    """The leaking bins, outermost first, in a few groups that are large enough."""
    parts: list[list[int]] = [[]]
    for place in leaking.tolist():
        parts[-1].append(place)
        if records[parts[-1]].sum() >= max(least / 2, _SMALLEST_GROUP):
            parts.append([])
    rest = parts.pop()
    if rest:
        parts = [*parts[:-1], parts[-1] + rest] if parts else [rest]
    if len(parts) > _GROUPS:
        parts = [*parts[: _GROUPS - 1], [place for part in parts[_GROUPS - 1 :] for place in part]]
    if least > 4 * SIZES[0]:
        parts = [[place for part in parts for place in part]]
    return [np.array(part) for part in parts]
