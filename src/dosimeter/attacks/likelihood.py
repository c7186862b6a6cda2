"""LiRA: the likelihood ratio of a signal under the shadow models with and without a record.

Carlini et al., "Membership inference attacks from first principles" (2022), Alg. 1 and its offline form, with a
Student-t predictive density for few shadow models.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from dosimeter import _validate as check
from dosimeter._validate import BoolArray, FloatArray, InputError, IntArray
from dosimeter.attacks.signals import (
    Array,
    Moments,
    Need,
    block_sides,
    blocks,
    counts,
    read_signals,
    require_models,
    sides,
    without_one,
)

MODES = ("online", "offline")
VARIANCES = ("auto", "global", "record", "bayesian")
ENOUGH_FOR_RECORD_VARIANCE = 64
ENOUGH_ON_A_SIDE = 8  # 64 models with fair coins leave hardly any record with fewer
PRIOR_SHAPE = 2.0  # of the inverse gamma prior: the pooled variance weighs as much as four models
SMALLEST_VARIANCE = 1e-6  # of a record, as a share of the pooled one: a constant signal is not certainty
CONSTANT = 1e-290  # a smaller variance counts as 0
FURTHEST = 1e150  # standard deviations that can still be squared
UNDERFLOW = 1e-280
_NEEDS = {
    ("online", "global"): Need(1, 1),
    ("online", "bayesian"): Need(1, 1),
    ("online", "record"): Need(2, 2),
    ("offline", "global"): Need(0, 1),
    ("offline", "bayesian"): Need(0, 1),
    ("offline", "record"): Need(0, 2),
}


class LiraRule(NamedTuple):
    """The options of LiRA, with "auto" decided; `name` is its key in `MINIMUM`."""

    mode: str
    variance: str

    @property
    def name(self) -> str:
        return f"lira mode='{self.mode}' variance='{self.variance}'"

    @property
    def need(self) -> Need:
        return _NEEDS[self.mode, self.variance]


FORMS = tuple(LiraRule(*form) for form in _NEEDS)  # all that the options can mean


class Pooled(NamedTuple):
    """The variance within records, pooled over all of them, with and without; numbers or (K, 1)."""

    inside: FloatArray
    outside: FloatArray


def lira(target: Any, shadows: Any, included: Any, *, mode: str = "online", variance: str = "auto") -> FloatArray:
    """Score records by LiRA: the likelihood ratio of the signal with and without the record.

    `mode="online"` is the log density of the signal among the shadow models trained with the record, minus the log
    density among those trained without it. `mode="offline"` uses only the models without: Φ((signal − mean) /
    deviation), as its log-odds, which rank like Φ and do not saturate in the tails.

    The variance of the densities is each record's own ("record"), one within-record variance pooled over all records,
    one with and one without ("global"), or each record's own shrunk to the pooled one ("bayesian"): an inverse gamma
    prior with shape a = 2 and mean parameter at the pooled variance s² gives, from n signals with squares S, a
    Student-t with 2a + n − 1 degrees of freedom and squared scale (a s² + S/2) / (a + (n−1)/2) · (1 + 1/n). "auto" is
    "record" with 64 or more shadow models, 8 on each side of every record, and "bayesian" otherwise: with few models a
    record's own variance is noise, with many both agree and "record" is the published attack.

    Args:
        target: Signals (n,) or (T, n) of the target models, high for a likely member.
        shadows: Signals (K, n) of the shadow models for the same records.
        included: Booleans (K, n): which shadow model was trained on which record.
        mode: "online" or "offline".
        variance: "auto", "global", "record" or "bayesian".

    Returns:
        Scores of the target's shape, high for a likely member.

    Raises:
        InputError: If the arrays do not fit together, or a record has too few shadow models.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> included = rng.random((32, 100)) < 0.5
    >>> signals = rng.normal(2.0 * included)
    >>> scores = lira(signals[0], signals[1:], included[1:])
    >>> bool(scores[included[0]].mean() > scores[~included[0]].mean())
    True
    """
    rule = read_rule(mode, variance)
    signals = read_signals(target, shadows, included)
    rule = decided(rule, signals.included)
    require_models(rule.name, rule.need, *counts(signals.included))
    inside, outside = sides(signals.shadows, signals.included)
    pooled = _pooled(rule, _totals(inside, -1), _totals(outside, -1), _apart(inside, outside, -1) / inside.mean.size)
    targets, records = len(signals.target), signals.shadows.shape[1]
    scores = np.empty((targets, records))
    for part in blocks(records, targets):
        scores[:, part] = _scores(signals.target[:, part], inside.at(part), outside.at(part), pooled, rule)
    return signals.shaped(scores)


def lira_rotated(outputs: Array, included: BoolArray, rule: LiraRule) -> FloatArray:
    """LiRA scores (K, n) with each model as the target once and the other K − 1 as its shadow models."""
    models, records = outputs.shape
    inside_totals, outside_totals, apart = np.zeros((2, models)), np.zeros((2, models)), np.zeros(models)
    for part in blocks(records, models):
        inside, outside = _rotated_sides(outputs[:, part], included[:, part])
        inside_totals += _totals(inside, 1)
        outside_totals += _totals(outside, 1)
        apart += _apart(inside, outside, 1)
    pooled = _pooled(rule, inside_totals, outside_totals, apart / records)
    pooled = Pooled(*(values[:, None] for values in pooled))
    scores = np.empty((models, records))
    for part in blocks(records, models):
        inside, outside = _rotated_sides(outputs[:, part], included[:, part])
        scores[:, part] = _scores(outputs[:, part], inside, outside, pooled, rule)
    return scores


def read_rule(mode: Any, variance: Any) -> LiraRule:
    """Check the options."""
    return LiraRule(check.choice("mode", mode, MODES), check.choice("variance", variance, VARIANCES))


def decided(rule: LiraRule, included: BoolArray, *, left_out: bool = False) -> LiraRule:
    """The rule with "auto" replaced by what it means for this mask, also when each model is left out once.

    That is "record" from 64 models with 8 on each side of every record, otherwise "bayesian".
    """
    if rule.variance != "auto":
        return rule
    inside, outside = (side - left_out for side in counts(included))
    fewest = int(outside.min()) if rule.mode == "offline" else int(min(inside.min(), outside.min()))
    enough = included.shape[0] - left_out >= ENOUGH_FOR_RECORD_VARIANCE and fewest >= ENOUGH_ON_A_SIDE
    return rule._replace(variance="record" if enough else "bayesian")


def _rotated_sides(outputs: Array, included: BoolArray) -> tuple[Moments, Moments]:
    inside, outside = block_sides(outputs, included)
    return without_one(outputs, included, inside), without_one(outputs, ~included, outside)


def _totals(side: Moments, axis: int) -> FloatArray:
    """Sum of squares and degrees of freedom over records."""
    freedom = np.maximum(side.models - 1, 0)
    return np.stack([side.squares.sum(axis=axis), freedom.sum(axis=axis).astype(np.float64)])


def _apart(inside: Moments, outside: Moments, axis: int) -> FloatArray:
    """Squared distances of the two means, summed over records."""
    both = (inside.models > 0) & (outside.models > 0)
    squared: FloatArray = np.where(both, inside.mean - outside.mean, 0.0) ** 2
    return np.asarray(squared.sum(axis=axis))


def _pooled(rule: LiraRule, inside: FloatArray, outside: FloatArray, apart: FloatArray) -> Pooled:
    """Variances within records; a side that cannot tell takes the other's, constant sides their squared distance."""
    (in_squares, in_freedom), (out_squares, out_freedom) = inside, outside
    freedom = np.asarray(out_freedom if rule.mode == "offline" else in_freedom + out_freedom)
    if not freedom.all():
        with_or = "" if rule.mode == "offline" else "with or "
        raise InputError(
            f"{rule.name} needs at least 2 shadow models {with_or}without some record to know how far signals "
            "scatter, but no record has them; train more shadow models or take watson or rmia."
        )
    own_in = in_squares / np.maximum(in_freedom, 1.0)
    own_out = out_squares / np.maximum(out_freedom, 1.0)
    if rule.mode == "offline":
        own_in, apart = np.zeros_like(own_in), np.zeros_like(apart)
    last = np.where(apart > CONSTANT, apart, 1.0)
    spread_in = np.where(own_in > CONSTANT, own_in, np.where(own_out > CONSTANT, own_out, last))
    spread_out = np.where(own_out > CONSTANT, own_out, np.where(own_in > CONSTANT, own_in, last))
    return Pooled(spread_in, spread_out)


def _scores(target: Array, inside: Moments, outside: Moments, pooled: Pooled, rule: LiraRule) -> FloatArray:
    if rule.mode == "offline":
        return _tail_log_odds(target, outside, pooled.outside, rule.variance)
    own = _log_density(target, inside, pooled.inside, rule.variance)
    own -= _log_density(target, outside, pooled.outside, rule.variance)
    return own


def _log_density(target: Array, side: Moments, pooled: FloatArray, variance: str) -> FloatArray:
    """Log density of the predictive distribution, up to a constant that both sides share."""
    if variance == "bayesian":
        shape, square_scale = _posterior(side, pooled)
        constant = _student_constants(int(side.models.max()))[side.models] - 0.5 * np.log(square_scale)
        t = _standardised(target, side, square_scale)
        return constant - (shape + 0.5) * np.log1p(t * t / (2 * shape))
    spread = _variance(side, pooled, variance)
    z = _standardised(target, side, spread)
    return -0.5 * (z * z + np.log(spread))


def _standardised(target: Array, side: Moments, variance: FloatArray) -> FloatArray:
    return np.clip((target - side.mean) / np.sqrt(variance), -FURTHEST, FURTHEST)


def _variance(side: Moments, pooled: FloatArray, variance: str) -> FloatArray:
    if variance == "global":
        return pooled
    return np.maximum(side.squares / np.maximum(side.models - 1, 1), SMALLEST_VARIANCE * pooled)


def _posterior(side: Moments, pooled: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Half the degrees of freedom and the squared scale of the Student-t predictive."""
    shape = PRIOR_SHAPE + (side.models - 1).astype(np.float64) / 2
    return shape, (PRIOR_SHAPE * pooled + 0.5 * side.squares) / shape * (1 + 1 / side.models)


def _student_constants(most: int) -> FloatArray:
    """ln Γ(a + ½) − ln Γ(a) − ½ ln a for the shapes that 0 … `most` signals give; ½ ln 2π is left out."""
    shape = PRIOR_SHAPE + 0.5 * (np.arange(most + 1) - 1)
    return special.gammaln(shape + 0.5) - special.gammaln(shape) - 0.5 * np.log(shape)


def _tail_log_odds(target: Array, side: Moments, pooled: FloatArray, variance: str) -> FloatArray:
    """Log-odds of the cdf of the models without the record, exact far into both tails."""
    if variance == "bayesian":
        shape, square_scale = _posterior(side, pooled)
        t = _standardised(target, side, square_scale)
        lower = log_student_tail(2 * shape, np.abs(t))
        return np.sign(t) * (np.log1p(-np.exp(lower)) - lower)
    z = _standardised(target, side, _variance(side, pooled, variance))
    return special.log_ndtr(z) - special.log_ndtr(-z)


def log_student_tail(freedom: FloatArray | IntArray, t: FloatArray) -> FloatArray:
    """ln P[T ≥ t] for t ≥ 0, also where the probability underflows.

    There the tail is ½ I_x(ν/2, ½) with x = ν/(ν+t²), and I_x(a, b) = x^a (1−x)^b / (a B(a, b)) · F(a+b, 1; a+1; x)
    (DLMF 8.17.8).
    """
    freedom, t = np.broadcast_arrays(np.asarray(freedom, float), t)
    tail = special.stdtr(freedom, -t)
    result: FloatArray = np.log(np.maximum(tail, UNDERFLOW))
    far = tail < UNDERFLOW
    if far.any():
        a = freedom[far] / 2
        ratio = t[far] / freedom[far] * t[far]  # (1−x)/x
        x = 1 / (1 + ratio)
        factor = special.hyp2f1(a + 0.5, 1.0, a + 1, x)
        result = np.array(result)
        result[far] = (
            math.log(0.5)
            - a * np.log1p(ratio)
            + 0.5 * np.log(ratio / (1 + ratio))
            - np.log(a)
            - special.betaln(a, 0.5)
            + np.log(factor)
        )
    return result
