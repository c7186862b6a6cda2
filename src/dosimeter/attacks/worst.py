"""SelectWorst: the records that an attack tells apart best, weighed on shadow models that the attack has not seen.

Zanella-Béguelin et al., "Bayesian estimation of differential privacy" (2023), Alg. 3.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from dosimeter import _validate as check
from dosimeter._validate import BoolArray, FloatArray, InputError, IntArray
from dosimeter.attacks.signals import Array, blocks, counts, enough, read_shadows, sides
from dosimeter.attacks.table import SHADOW_ATTACKS, AttackForm, AttackRow

MEASURES = ("accuracy", "auc")
DEFAULT_FOLDS = 4


@dataclass(frozen=True, eq=False)
class Worst:
    """Hold the records that were selected, the worst first, and what the choice rests on.

    Attributes:
        records: The selected records.
        weights: Their weights.
        by: What was weighed, "accuracy" or "auc".
        attack: The attack.
        folds: The number of parts that the shadow models were divided into.
        all_weights: The weights of every record.
        skipped: Records that no fold could weigh because too few shadow models were trained with or without them; their
            weight is ½, that of a coin.
    """

    records: IntArray
    weights: FloatArray
    by: str
    attack: str
    folds: int
    all_weights: FloatArray = field(repr=False)
    skipped: IntArray = field(repr=False)


def select_worst(
    outputs: Any,
    included: Any,
    count: int,
    *,
    by: str = "accuracy",
    attack: str = "lira",
    folds: int | None = None,
    seed: int = 0,
    **options: Any,
) -> Worst:
    """Select the records that an attack tells apart best, weighed on shadow models that it has not seen.

    The shadow models are divided into `folds` parts. The models of one part are scored by the attack fitted on all
    others, so every model is scored once by an attack that has not seen it. The weight of a record is:

    - `by="accuracy"`: the mean of the shares of right guesses among the models with and those without the record, the
    accuracy against a fair coin. LiRA online guesses "member" above 0, the other attacks above the middle between the
    record's mean scores with and without it, each fitted model scored by the other fitted ones; a score on the
    threshold is half a guess. Holding a model out takes it from its own side of the record, so a record that does not
    leak weighs a little less than ½. - `by="auc"`: the share of pairs of held-out models of one part, one with the
    record and one without, that the scores put in the right order. Models of different parts are scored by different
    fits and are not compared.

    Records with equal weight are ordered by the distance between the mean scores of both kinds, then by number.

    Args:
        outputs: Signals (K, n) of the shadow models, high for a likely member.
        included: Booleans (K, n): which model was trained on which record.
        count: How many records to select.
        by: "accuracy" or "auc".
        attack: A name in `SHADOW_ATTACKS`.
        folds: The number of parts; None makes each model a part of its own for LiRA online by accuracy, and four parts
            otherwise.
        seed: Decides the parts.
        **options: Those of the attack.

    Returns:
        The records, the worst first, with their weights.

    Raises:
        InputError: If the attack or an option is unknown, or too few records have enough shadow models.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> included = rng.random((64, 20)) < 0.5
    >>> outputs = rng.normal(np.where(np.arange(20) == 7, 9.0, 0.0) * included)
    >>> select_worst(outputs, included, 1).records.tolist()
    [7]
    """
    signals, mask = read_shadows(outputs, included)
    models, records = signals.shape
    check.choice("by", by, MEASURES)
    row = SHADOW_ATTACKS[check.choice("attack", attack, tuple(SHADOW_ATTACKS))]
    wanted = check.whole("count", count, 1, f"pass at most the {records} records", records)
    if models < 2:
        raise InputError("outputs holds 1 model; the selection needs models to fit on and others to weigh on.")
    how = _Weighing(row, row.form(options, mask, left_out=True), by)
    parts = _parts(folds, models, how)
    deal = np.random.default_rng(np.random.SeedSequence(check.seed(seed))).permutation(models) % parts
    usable = _usable(how, mask, deal)
    if usable.sum() < wanted:
        fewest = [max(side, 1) + how.needs_threshold for side in how.form.need]
        raise InputError(
            f"count is {wanted}, but only {int(usable.sum())} of {records} records have {fewest[0]} shadow models with "
            f"and {fewest[1]} without them outside each of the {parts} folds; train more shadow models."
        )
    if not usable.all():
        signals, mask = signals[:, usable], mask[:, usable]
    weights, distances = np.full(records, 0.5), np.zeros(records)
    weights[usable], distances[usable] = _weights(how, signals, mask, deal)
    order = np.lexsort((np.arange(records), -distances, -weights, ~usable))[:wanted]
    return Worst(order, weights[order], by, attack, parts, weights, np.flatnonzero(~usable))


class _Weighing(NamedTuple):
    """The attack with its options, and how it weighs records."""

    row: AttackRow
    form: AttackForm
    by: str

    @property
    def needs_threshold(self) -> bool:
        return self.by == "accuracy" and not self.form.fixed


def _parts(folds: int | None, models: int, how: _Weighing) -> int:
    by = how.by
    if folds is None:
        alone = by == "accuracy" and how.form.fixed
        return models if alone else max(2, min(DEFAULT_FOLDS, models // 2))
    most = models if by == "accuracy" else max(2, models // 2)
    return check.whole("folds", folds, 2, f"pass 2 to {most} for {models} models by {by}", most)


def _usable(how: _Weighing, mask: BoolArray, deal: IntArray) -> BoolArray:
    """Records that every fold can weigh: held-out models of both kinds, and what the attack needs among the others."""
    inside, outside = counts(mask)
    fits, pairs = (inside > 0) & (outside > 0), np.zeros(inside.size, np.int64)
    for part in range(int(deal.max()) + 1):
        held_inside, held_outside = counts(mask[deal == part])
        rest = inside - held_inside, outside - held_outside
        fits &= enough(how.form.need, *rest, left_out=how.needs_threshold) & (rest[0] > 0) & (rest[1] > 0)
        pairs += held_inside * held_outside
    return fits & (pairs > 0) if how.by == "auc" else fits


def _weights(how: _Weighing, signals: Array, mask: BoolArray, deal: IntArray) -> tuple[FloatArray, FloatArray]:
    """Of every record: the weight over held-out models, and how far apart the mean scores of both kinds are."""
    scores, thresholds = _held_out(how, signals, mask, deal)
    inside, outside = sides(scores, mask)
    weights = np.empty(signals.shape[1])
    for columns in blocks(signals.shape[1], len(signals)):
        block, member = scores[:, columns], mask[:, columns]
        if how.by == "accuracy":
            weights[columns] = _accuracy(block - thresholds[deal % len(thresholds), columns], member)
        else:
            ordered = np.array([_ordered_pairs(block[deal == part], member[deal == part]) for part in np.unique(deal)])
            weights[columns] = ordered[:, 0].sum(axis=0) / ordered[:, 1].sum(axis=0)
    return weights, inside.mean - outside.mean


def _held_out(how: _Weighing, signals: Array, mask: BoolArray, deal: IntArray) -> tuple[FloatArray, FloatArray]:
    """Scores (K, n) of every model by an attack fitted without its fold, and thresholds (folds, n) or (1, n)."""
    parts = int(deal.max()) + 1
    if how.form.fixed and parts == len(signals):
        return how.row.rotated(how.form, signals, mask), np.zeros((1, signals.shape[1]))
    scores = np.empty(signals.shape)
    fit = how.needs_threshold
    thresholds = np.zeros((parts if fit else 1, signals.shape[1]))
    for part in range(parts):
        held = deal == part
        fitted, fitted_mask = signals[~held], mask[~held]
        scores[held] = how.row.scores_of(how.form, signals[held], fitted, fitted_mask)
        if fit:
            inside, outside = sides(how.row.rotated(how.form, fitted, fitted_mask), fitted_mask)
            thresholds[part] = (inside.mean + outside.mean) / 2
    return scores, thresholds


def _accuracy(margins: FloatArray, member: BoolArray) -> FloatArray:
    """Mean of the shares of right guesses on both kinds of models."""
    right = 0.5 * (1 + np.where(member, 1.0, -1.0) * np.sign(margins))
    return 0.5 * (
        np.where(member, right, 0.0).sum(axis=0) / member.sum(axis=0)
        + np.where(member, 0.0, right).sum(axis=0) / (~member).sum(axis=0)
    )


def _ordered_pairs(scores: FloatArray, member: BoolArray) -> tuple[FloatArray, IntArray]:
    """Of each column: pairs (with, without) in the right order by the rank sum, ties counted half, and all pairs."""
    order = np.argsort(scores, axis=0)
    values = np.take_along_axis(scores, order, axis=0)
    place = np.arange(len(scores))[:, None]
    fresh = np.ones(values.shape, bool)
    fresh[1:] = values[1:] != values[:-1]
    last = np.ones(values.shape, bool)
    last[:-1] = fresh[1:]
    first = np.maximum.accumulate(np.where(fresh, place, 0), axis=0)
    final = np.minimum.accumulate(np.where(last, place, len(scores))[::-1], axis=0)[::-1]
    ranks = np.where(np.take_along_axis(member, order, axis=0), (first + final) / 2 + 1, 0.0).sum(axis=0)
    inside, outside = counts(member)
    return ranks - inside * (inside + 1) / 2, inside * outside
