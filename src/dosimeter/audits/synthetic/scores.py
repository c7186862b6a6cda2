"""From releases to a score for each unit: closeness and cell counts beside those of reference releases, then a stack.

The score of a unit depends on the coins of the audited release through that release alone. References have coins of
their own; the weights of tables and the stack are learned from these. A reference is scored with the help of the
others, as the audited release is scored with the help of all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dosimeter._validate import BoolArray, FloatArray, IntArray
from dosimeter.audits.synthetic.surest import FORMS, best_form
from dosimeter.estimate import Level

Single = npt.NDArray[np.float32]
PENALTIES = (0.01, 0.1, 1.0, 10.0)  # of the weights of tables, for each example
EXTREME = 12.0  # standard deviations
CLOSE, BY_COLUMN, CELLS, WEIGHTED, STACK = "closeness", "closeness by column", "cell counts", "weighted cells", "stack"
COPIES = "exact copies"
SHOWN = (CLOSE, BY_COLUMN, COPIES, f"{CELLS}, 2 columns")  # on their own, beside the stack and the weighted cells


@dataclass(frozen=True, eq=False)
class Seen:
    """What releases show of the audited records.

    `close` and `by_column` are distances (releases, records), the latter None where it would take too long. `cells` are
    counts (releases, records, tables), brought to one number of published rows; None where nothing can be counted.
    `copies` is how often each record stands in each release as it is, `isolation` its distance to the nearest other
    record.
    """

    isolation: FloatArray
    close: FloatArray
    copies: FloatArray
    by_column: FloatArray | None
    cells: Single | None
    orders: IntArray


class ReleaseScores(NamedTuple):
    """Scores of the units for each audited release, by the name of the score, that of the headline first."""

    scores: dict[str, FloatArray]


def calibrated(seen: Seen, release: int, others: IntArray, member: BoolArray) -> tuple[FloatArray, list[str]]:
    """Columns of scores for one release beside others; `member` says which records each of the others was fitted on.

    A record is compared with the others that did not have it. Where all had it, with what they would show of it by the
    distance to the nearest other record, or without copies.
    """
    weights, lost = _outside(member), member.all(axis=0)
    columns: list[FloatArray] = []
    names: list[str] = []
    for name, distance in ((CLOSE, seen.close), (BY_COLUMN, seen.by_column)):
        if distance is None:
            continue
        usual = (weights * distance[others]).sum(axis=0)
        least = _floor(distance[others])
        logs = (weights * np.log(distance[others] + least)).sum(axis=0)
        if lost.any() and not lost.all():
            near = seen.isolation + least
            usual[lost] = (near * np.median(usual[~lost] / near[~lost]))[lost]
            logs[lost] = (np.log(near) + np.median(logs[~lost] - np.log(near[~lost])))[lost]
        spread = np.sqrt((weights * (distance[others] - usual) ** 2).sum(axis=0)) + least
        columns += [
            logs - np.log(distance[release] + least),
            usual - distance[release],
            (usual - distance[release]) / spread,
        ]
        names += [name, f"{name}, difference", f"{name}, in deviations"]
    often = np.log1p(seen.copies)
    columns.append(often[release] - np.where(lost, 0.0, (weights * often[others]).sum(axis=0)))
    names.append(COPIES)
    if seen.cells is not None:
        ratio = cell_ratios(seen.cells, release, others, member)
        for order in np.unique(seen.orders):
            columns.append(ratio[:, seen.orders == order].mean(axis=1, dtype=np.float64))
            names.append(f"{CELLS}, {order} column{'s' if order > 1 else ''}")
    return np.stack(columns, axis=1), names


def cell_ratios(cells: Single, release: int, others: IntArray, member: BoolArray) -> Single:
    """ln of the count in each record's cells, over the mean count of releases that did not have it."""
    weights = _outside(member).astype(np.float32)
    usual = np.zeros(cells.shape[1:], np.float32)
    for weight, other in zip(weights, others, strict=True):
        usual += weight[:, None] * cells[other]
    lost = member.all(axis=0)
    if lost.any() and not lost.all():
        usual[lost] = np.maximum(usual[lost] - _gain(cells, others, member), 0)
    return np.log(cells[release] + np.float32(0.5)) - np.log(usual + np.float32(0.5))


def _gain(cells: Single, others: IntArray, member: BoolArray) -> Single:
    """How much larger counts are where a release had the record, for each table, over all records and releases."""
    both = [(cells[other], mask) for other, mask in zip(others, member, strict=True) if mask.any() and not mask.all()]
    gains = [counts[mask].mean(axis=0) - counts[~mask].mean(axis=0) for counts, mask in both]
    return np.mean(gains, axis=0, dtype=np.float32) if gains else np.zeros(cells.shape[2], np.float32)


def _outside(member: BoolArray) -> FloatArray:
    """Weights (others, records) of the others that did not have a record; of all where every one had it."""
    out = (~member).astype(np.float64)
    out[:, out.sum(axis=0) == 0] = 1.0
    return out / out.sum(axis=0)


def _floor(distances: FloatArray) -> float:
    """What is added before a logarithm: a thousandth of the usual distance."""
    usual = float(np.median(distances))
    return 1e-3 * usual if usual > 0 else 1e-6


def attack(
    seen: Seen, audited: int, masks: BoolArray, place: IntArray, units: int, unit_masks: BoolArray, level: Level
) -> ReleaseScores:
    """Score every unit in each of the first `audited` releases; the rest are references with these masks.

    `place` is the unit of each record; a unit is scored by the mean and the largest score of its records. The headline
    is the stack, or a form of it that ties the surest units where that proves more about the references.
    """
    count = len(masks)
    references = np.arange(audited, audited + count)
    single = units == place.size
    features: list[FloatArray] = []
    tables: list[Single] = []
    names: list[str] = []
    for release in range(audited + count):
        keep = references != release
        columns, names = calibrated(seen, release, references[keep], masks[keep])
        features.append(by_unit(columns, place, units, single))
        if seen.cells is not None:
            ratio = cell_ratios(seen.cells, release, references[keep], masks[keep])
            tables.append(ratio if single else _means(ratio, place, units))
    scores = {name: np.stack([f[:, at] for f in features[:audited]]) for at, name in enumerate(names) if name in SHOWN}
    if tables:
        weighted = _weighted(tables, audited, unit_masks)
        scores[WEIGHTED] = np.stack(weighted[:audited])
        features = [np.column_stack([f, w]) for f, w in zip(features, weighted, strict=True)]
    stacked = _stacked(features, audited, unit_masks)
    scores = {STACK: stacked[:audited], **scores}
    form = best_form(stacked[audited:], unit_masks, level)
    if form is not None:
        name, cut = form
        scores = {name: FORMS[name](stacked[:audited], cut), **scores}
    return ReleaseScores(scores)


def by_unit(columns: FloatArray, place: IntArray, units: int, single: bool) -> FloatArray:
    """The columns of records as columns of units: means, then the largest values."""
    if single:
        return columns
    largest = np.full((units, columns.shape[1]), -np.inf)
    np.maximum.at(largest, place, columns)
    return np.concatenate([_means(columns, place, units), largest], axis=1)


def _means(columns: Any, place: IntArray, units: int) -> Any:
    total = np.zeros((units, columns.shape[1]), columns.dtype)
    np.add.at(total, place, columns)
    return total / np.bincount(place, minlength=units)[:, None].astype(columns.dtype)


def _weighted(tables: list[Single], audited: int, masks: BoolArray) -> list[FloatArray]:
    """A score from ridge weights for each table, learned on the references: for a reference, on the others.

    The penalty is the one under which references tell the coins of each other best.
    """
    pooled = np.concatenate(tables[audited:])
    center, scale = pooled.mean(axis=0, dtype=np.float64), pooled.std(axis=0, dtype=np.float64)
    scale[scale < 1e-9] = np.inf
    del pooled
    grams, moments = [], []
    for table, mask in zip(tables[audited:], masks, strict=True):
        z = ((table - center) / scale).astype(np.float64)
        grams.append(z.T @ z)
        moments.append(z.T @ (2.0 * mask - 1.0))
    gram, moment, size = sum(grams), sum(moments), masks.size

    def solved(penalty: float, without: int | None) -> FloatArray:
        g = gram if without is None else gram - grams[without]
        m = moment if without is None else moment - moments[without]
        return np.linalg.solve(g + penalty * size * np.eye(len(g)), m)

    def told(penalty: float) -> float:
        total = 0.0
        for j, (table, mask) in enumerate(zip(tables[audited:], masks, strict=True)):
            score = ((table - center) / scale) @ solved(penalty, j)
            spread = float(score.std())
            total += float(np.mean((score - score.mean()) * (2.0 * mask - 1.0))) / spread if spread > 0 else 0.0
        return total

    best = max(PENALTIES, key=told)
    return [
        np.asarray(((table - center) / scale) @ solved(best, None if at < audited else at - audited), np.float64)
        for at, table in enumerate(tables)
    ]


def _stacked(features: list[FloatArray], audited: int, masks: BoolArray) -> FloatArray:
    """A logistic regression of the references' coins on all columns; its scores of all releases."""
    from sklearn.linear_model import LogisticRegression

    from dosimeter.attacks.stacked import margins, quiet_fit

    known = np.concatenate(features[audited:])
    center, scale = np.median(known, axis=0), known.std(axis=0)
    scale[scale < 1e-12] = np.inf

    def scaled(columns: FloatArray) -> FloatArray:
        return np.clip((columns - center) / scale, -EXTREME, EXTREME)

    model = LogisticRegression(C=1.0, max_iter=300)
    quiet_fit(model, scaled(known), masks.reshape(-1))
    return np.stack([margins(model, scaled(columns)) for columns in features])
