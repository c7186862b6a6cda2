"""RMIA: how often a record's likelihood ratio beats that of population records; InfoRMIA: by how much.

Zarifzadeh, Liu and Shokri, "Low-cost high-power membership inference attacks" (2024). Tao and Shokri,
"Information-theoretic membership inference for granular quantification of memorization" (2026).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from dosimeter import _validate as check
from dosimeter._validate import BoolArray, FloatArray, InputError, IntArray
from dosimeter.attacks.signals import Array, Need, Signals, blocks, counts, read_signals, require_models

MODES = ("offline", "online")
SCALES = ("logit", "log", "probability")
NEEDS = {"offline": Need(0, 1), "online": Need(1, 1)}
OFFLINE_A = 0.3
SMALLEST = float(np.finfo(np.float64).tiny)
ROUNDING = 1e-6  # a softmax in single precision may pass 1 by this much


class RmiaRule(NamedTuple):
    """The options of RMIA, checked; `columns` are the population's."""

    mode: str
    gamma: float
    offline_a: float
    scale: str
    columns: IntArray | slice

    @property
    def name(self) -> str:
        return f"rmia mode='{self.mode}'"

    @property
    def need(self) -> Need:
        return NEEDS[self.mode]


def rmia(
    target: Any,
    shadows: Any,
    included: Any,
    *,
    population: Any = None,
    mode: str = "offline",
    gamma: float = 1.0,
    offline_a: float | None = None,
    scale: str = "logit",
) -> FloatArray:
    """Score records by RMIA: the share of population records that the record's likelihood ratio beats.

    With r(x) = p_target(x) / p(x), the score is the share of population records z with r(x) ≥ gamma · r(z). p is the
    mean probability of the true label over the shadow models: half the mean with and half the mean without the record
    (`mode="online"`), or, when only models without it are used, ((1+a) p_out + 1−a)/2 (`mode="offline"`). Scores are
    multiples of 1/size of the population, and within one target they rank like r(x), whatever gamma and the population.

    Args:
        target: Signals (n,) or (T, n) of the target models, high for a likely member.
        shadows: Signals (K, n) of the shadow models for the same records.
        included: Booleans (K, n): which shadow model was trained on which record.
        population: The columns used as z, indices or a mask; None takes all.
        mode: "offline" or "online".
        gamma: The ratio that counts as a win.
        offline_a: a in [0, 1], by default 0.3: 1 takes p_out as it is, a smaller a suits models that overfit more.
        scale: What the signals are: "logit" (the logit-scaled confidences that LiRA takes, so that one matrix serves
            both), "log" (log-probabilities, minus the cross-entropy) or "probability".

    Returns:
        Scores in [0, 1] of the target's shape, high for a likely member.

    Raises:
        InputError: If the arrays do not fit together, a signal is impossible on the scale, or a record has too few
            shadow models.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> included = rng.random((32, 100)) < 0.5
    >>> signals = rng.normal(2.0 * included)
    >>> scores = rmia(signals[0], signals[1:], included[1:])
    >>> bool(scores[included[0]].mean() > scores[~included[0]].mean())
    True
    """
    signals, rule = _read(target, shadows, included, population, mode, gamma, offline_a, scale)
    ratios, _ = _log_ratios(signals, rule)
    _shares(ratios, rule)
    return signals.shaped(ratios)


def rmia_rotated(outputs: Array, included: BoolArray, rule: RmiaRule) -> FloatArray:
    """RMIA scores (K, n) with each model as the target once and the other K − 1 as its shadow models."""
    ratios = np.empty(outputs.shape)
    _log_ratios_rotated(outputs, included, rule, ratios)
    _shares(ratios, rule)
    return ratios


def informia(
    target: Any,
    shadows: Any,
    included: Any,
    *,
    population: Any = None,
    mode: str = "offline",
    offline_a: float | None = None,
    scale: str = "logit",
) -> FloatArray:
    """Score records by InfoRMIA: how many nats the target knows of a record beyond what it knows of the population.

    The score is ln r(x) + KL, where r(x) = p_target(x) / p(x) is RMIA's ratio and KL the divergence of the target from
    the shadow models on the population, whose records count in proportion to p(z) (Tao and Shokri, ICLR 2026). KL is
    one number for each target: within one model the ranks are those of r(x), and so of RMIA where its shares do not
    tie; across models the scores can be compared.

    Args:
        target: Signals of the target, (records,) or (models, records).
        shadows: Signals of the shadow models, (models, records).
        included: Which shadow model was trained on which record.
        population: The columns used as z: indices or a mask; None takes all.
        mode: "offline", from shadow models without the record alone, or "online".
        offline_a: As for `rmia`.
        scale: What the signals are: "logit", "log" or "probability".

    Returns:
        Scores of the target's shape, high for a likely member.

    Raises:
        InputError: If the arrays do not fit each other or a record lacks the shadow models that the mode needs.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> shadows, included = rng.normal(size=(8, 5)), np.arange(8)[:, None] % 2 == np.arange(5) % 2
    >>> informia(shadows[0], shadows[1:], included[1:]).shape
    (5,)
    """
    signals, rule = _read(target, shadows, included, population, mode, 1.0, offline_a, scale)
    ratios, evidence = _log_ratios(signals, rule)
    return signals.shaped(_with_divergence(ratios, evidence, rule))


def informia_rotated(outputs: Array, included: BoolArray, rule: RmiaRule) -> FloatArray:
    """InfoRMIA scores (K, n) with each model as the target once and the other K − 1 as its shadow models."""
    ratios, evidence = np.empty(outputs.shape), np.empty(outputs.shape)
    _log_ratios_rotated(outputs, included, rule, ratios, evidence)
    return _with_divergence(ratios, evidence, rule)


def _read(
    target: Any, shadows: Any, included: Any, population: Any, mode: Any, gamma: Any, offline_a: Any, scale: Any
) -> tuple[Signals, RmiaRule]:
    """The arrays and options of an attack, checked."""
    signals = read_signals(target, shadows, included)
    rule = read_rule(signals.target.shape[1], population, mode, gamma, offline_a, scale)
    require_models(rule.name, rule.need, *counts(signals.included))
    for name, values in (("target", signals.target), ("shadows", signals.shadows)):
        check_scale(name, values, rule.scale)
    return signals, rule


def _log_ratios(signals: Signals, rule: RmiaRule) -> tuple[FloatArray, FloatArray]:
    """ln r(x) of every target (T, n), and ln p(x) (1, n)."""
    inside, outside = counts(signals.included)
    ratios, evidence = np.empty((len(signals.target), outside.size)), np.empty((1, outside.size))
    for part in blocks(outside.size, max(len(ratios), len(signals.shadows))):
        own = signals.included[:, part]
        odds = _both(signals.shadows[:, part], rule.scale)
        within, beyond = (_means(odds, side, size[part]) for side, size in ((own, inside), (~own, outside)))
        evidence[:, part] = _log_evidence(within, beyond, rule)
        ratios[:, part] = log_probability(signals.target[:, part], rule.scale) - evidence[:, part]
    return ratios, evidence


def _log_ratios_rotated(
    outputs: Array, included: BoolArray, rule: RmiaRule, ratios: FloatArray, evidence: FloatArray | None = None
) -> None:
    """Write ln r(x) and, where there is room for it, ln p(x), both (K, n), each model against the others."""
    inside, outside = counts(included)
    for part in blocks(outputs.shape[1], outputs.shape[0]):
        own = included[:, part]
        odds = _both(outputs[:, part], rule.scale)
        within, beyond = (_means_without(odds, side, size[part]) for side, size in ((own, inside), (~own, outside)))
        base = _log_evidence(within, beyond, rule)
        ratios[:, part] = log_probability(outputs[:, part], rule.scale) - base
        if evidence is not None:
            evidence[:, part] = base


def _with_divergence(ratios: FloatArray, evidence: FloatArray, rule: RmiaRule) -> FloatArray:
    """ln r(x) plus the divergence of each target from the shadow models on the population."""
    weights = special.softmax(evidence[:, rule.columns], axis=1)
    divergence = -(weights * ratios[:, rule.columns]).sum(axis=1, keepdims=True)
    return np.asarray(ratios + divergence)


def read_rule(
    records: int,
    population: Any = None,
    mode: Any = "offline",
    gamma: Any = 1.0,
    offline_a: Any = None,
    scale: Any = "logit",
) -> RmiaRule:
    """Check the options."""
    return RmiaRule(
        check.choice("mode", mode, MODES),
        check.within("gamma", gamma, 0.0, math.inf, "pass a positive ratio, e.g. 1", include="()"),
        OFFLINE_A if offline_a is None else check.within("offline_a", offline_a, 0.0, 1.0, "pass e.g. 0.3"),
        check.choice("scale", scale, SCALES),
        slice(None) if population is None else _columns(population, records),
    )


def _columns(population: Any, records: int) -> IntArray:
    columns = np.asarray(population)
    if columns.dtype == np.bool_ and columns.shape == (records,):
        columns = np.flatnonzero(columns)
    if columns.ndim != 1 or columns.dtype.kind not in "iu" or not columns.size:
        raise InputError(
            f"population must be column numbers or a mask of the {records} records with at least one of them, got "
            f"{check.show(population)}; pass e.g. np.arange({records})."
        )
    bad = (columns < 0) | (columns >= records)
    if bad.any():
        index = int(np.argmax(bad))
        raise InputError(
            f"population[{index}] is {columns[index]}, but the columns are 0 to {records - 1}; correct it."
        )
    return columns.astype(np.int64)


def check_scale(name: str, values: Array, scale: str) -> None:
    """Refuse signals that cannot be what `scale` says."""
    low, high = {
        "logit": (-math.inf, math.inf),
        "log": (-math.inf, ROUNDING),
        "probability": (-ROUNDING, 1 + ROUNDING),
    }[scale]
    for found in (float(values.min()), float(values.max())):
        if not low <= found <= high:
            index = tuple(int(i) for i in np.unravel_index(int(np.argmax(values == found)), values.shape))
            raise InputError(
                f"{name}{list(index)} is {found:g}, impossible on the scale '{scale}'; "
                "pass scale='logit', 'log' or 'probability' as the signals are."
            )


def log_probability(values: Array, scale: str) -> FloatArray:
    """ln p of the true label, finite."""
    if scale == "logit":
        result: FloatArray = special.log_expit(values.astype(np.float64, copy=False))
        return result
    if scale == "log":
        return np.minimum(values.astype(np.float64, copy=False), 0.0)
    return np.log(np.clip(values, SMALLEST, 1.0, dtype=np.float64))


def _both(values: Array, scale: str) -> tuple[FloatArray, FloatArray]:
    """p and 1 − p, each exact where it is small."""
    x = values.astype(np.float64, copy=False)
    if scale == "logit":
        return special.expit(x), special.expit(-x)
    if scale == "log":
        x = np.minimum(x, 0.0)
        return np.exp(x), -np.expm1(x)
    x = np.clip(x, 0.0, 1.0)
    return x, 1 - x


Pair = tuple[FloatArray, FloatArray]


def _means(odds: Pair, own: BoolArray, count: IntArray) -> Pair:
    weights = own.astype(np.float64)
    below = np.maximum(count, 1)
    return np.einsum("kb,kb->b", odds[0], weights) / below, np.einsum("kb,kb->b", odds[1], weights) / below


def _means_without(odds: Pair, own: BoolArray, count: IntArray) -> Pair:
    """Means of one side when model k is left out, (K, B)."""
    below = np.maximum(count - own, 1)
    kept = [np.where(own, values, 0.0) for values in odds]
    first, second = (np.clip((values.sum(axis=0) - values) / below, 0.0, 1.0) for values in kept)
    return first, second


def _log_evidence(inside: Pair, outside: Pair, rule: RmiaRule) -> FloatArray:
    """ln p(x), from whichever of p and 1 − p is the smaller."""
    if rule.mode == "online":
        p, q = (inside[0] + outside[0]) / 2, (inside[1] + outside[1]) / 2
    else:
        a = rule.offline_a
        p, q = ((1 + a) * outside[0] + 1 - a) / 2, (1 + a) * outside[1] / 2
    return np.where(q < 0.5, np.log1p(-np.minimum(q, 0.5)), np.log(np.maximum(p, SMALLEST)))


def _shares(ratios: FloatArray, rule: RmiaRule) -> None:
    """Log ratios (T, n) into shares of the population, in place: one sort for each target, never n × n."""
    for row in ratios:
        population = np.sort(row[rule.columns])
        row[:] = np.searchsorted(population, row - math.log(rule.gamma), side="right") / population.size
