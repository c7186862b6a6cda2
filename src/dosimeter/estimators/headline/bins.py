"""Bins of neighbouring ranks: all that the headline bound uses of the scores."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dosimeter._validate import BoolArray, FloatArray, IntArray

RATIO = 1.12  # a bin reaches this much further from its end of the ranking than the one before it


class Bins(NamedTuple):
    """How many records, and how many members among them, each bin of ranks holds; the lowest scores first."""

    records: IntArray
    members: IntArray

    @property
    def edges(self) -> IntArray:
        """The ranks between which the bins lie, from 0 to the number of records."""
        return np.concatenate([[0], np.cumsum(self.records)])

    @property
    def total(self) -> int:
        return int(self.records.sum())


def rank_bins(scores: FloatArray, member: BoolArray) -> Bins:
    """Count the members in bins whose sizes grow from both ends of the ranking towards its middle.

    No edge parts records of equal score: an edge inside a group of ties moves to both ends of the group.
    """
    order = np.argsort(scores, kind="stable")
    edges = _edges(scores[order])
    upto = np.concatenate([[0], np.cumsum(member[order])])
    return Bins(np.diff(edges), np.diff(upto[edges]))


def wanted_edges(total: int) -> IntArray:
    """The ranks at which so many records are parted where no scores are tied."""
    ranks, rank = [0], 1
    while rank < total / 2:
        ranks.append(rank)
        rank = max(rank + 1, int(rank * RATIO))
    wanted = np.array(ranks, dtype=np.int64)
    return np.unique(np.concatenate([wanted, total - wanted, [total // 2, (total + 1) // 2]]))


def _edges(ordered: FloatArray) -> IntArray:
    total = ordered.size
    edges = wanted_edges(total)
    inner = edges[(edges > 0) & (edges < total)]
    values = ordered[inner]
    tied = ordered[inner - 1] == values
    if tied.any():
        ends = [np.searchsorted(ordered, values[tied], side) for side in ("left", "right")]
        inner = np.concatenate([inner[~tied], *ends])
    return np.unique(np.concatenate([[0], inner, [total]])).astype(np.int64)
