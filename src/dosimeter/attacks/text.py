"""Scores of texts from the log-probabilities of their tokens, high for a likely member.

Every function takes one sequence of natural-log token probabilities for each text, of any lengths.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dosimeter import _validate as check
from dosimeter._validate import FloatArray, InputError, IntArray

ROUNDING = 1e-3  # a log-softmax in half precision may pass 0 by this much


class Ragged(NamedTuple):
    """Rows of different lengths, one after another."""

    values: FloatArray
    starts: IntArray
    lengths: IntArray

    def sums(self) -> FloatArray:
        return np.add.reduceat(self.values, self.starts)


def mean_log_probability(tokens: Any) -> FloatArray:
    """Average the log-probabilities of the tokens: minus the model's loss on the text.

    Args:
        tokens: The natural-log probability of each token, one sequence for each text.

    Returns:
        A score for each text, high for a likely member.

    Raises:
        InputError: If a value is not finite or above 0.

    >>> mean_log_probability([[-1.0, -3.0], [-0.5]]).tolist()
    [-2.0, -0.5]
    """
    ragged = log_probabilities("tokens", tokens)
    return ragged.sums() / ragged.lengths


def reference_ratio(tokens: Any, reference: Any) -> FloatArray:
    """Subtract the mean log-probability under a reference model (Carlini et al. 2021); tokenisers may differ.

    Args:
        tokens: The natural-log probability of each token, one sequence for each text.
        reference: The same for the reference model.

    Returns:
        A score for each text, high for a likely member.

    Raises:
        InputError: If a value is not finite or above 0, or the texts differ in number.

    >>> reference_ratio([[-1.0, -3.0]], [[-4.0]]).tolist()
    [2.0]
    """
    own, other = log_probabilities("tokens", tokens), log_probabilities("reference", reference)
    if own.starts.size != other.starts.size:
        raise InputError(
            f"reference has {other.starts.size} texts but tokens has {own.starts.size}; pass the same texts in both."
        )
    return own.sums() / own.lengths - other.sums() / other.lengths


def zlib_ratio(tokens: Any, texts: Sequence[str]) -> FloatArray:
    """Divide the log-probability of the whole text by the bytes of its zlib compression (Carlini et al. 2021).

    Args:
        tokens: The natural-log probability of each token, one sequence for each text.
        texts: The texts themselves.

    Returns:
        A score for each text, high for a likely member.

    Raises:
        InputError: If a value is not finite or above 0, or there is not one text for each sequence.

    >>> zlib_ratio([[-1.0, -3.0]], ["hello world"]).round(3).tolist()
    [-0.211]
    """
    ragged = log_probabilities("tokens", tokens)
    if isinstance(texts, str) or len(texts) != ragged.starts.size:
        found = "one string" if isinstance(texts, str) else f"{len(texts)} texts"
        raise InputError(f"texts is {found} for {ragged.starts.size} rows of tokens; pass one string for each row.")
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError(f"texts[{index}] is {check.show(text)}, not a text; pass one string for each row.")
    sizes = np.array([len(zlib.compress(text.encode("utf-8", "surrogatepass"))) for text in texts])
    return ragged.sums() / sizes


def min_k(tokens: Any, k: float = 0.2) -> FloatArray:
    """Average the log-probabilities of the share `k` of tokens that the model expected least: Min-K% (Shi et al. 2024).

    Args:
        tokens: The natural-log probability of each token, one sequence for each text.
        k: The share of the tokens, in (0, 1].

    Returns:
        A score for each text, high for a likely member.

    Raises:
        InputError: If a value is not finite or above 0, or the share is out of range.

    >>> min_k([[-1.0, -3.0, -8.0, -0.1]], k=0.5).tolist()
    [-5.5]
    """
    return _lowest(log_probabilities("tokens", tokens), k)


def min_k_plus_plus(tokens: Any, means: Any, deviations: Any, k: float = 0.2) -> FloatArray:
    """Take Min-K% of log-probabilities that are standardised at each position: Min-K%++ (Zhang et al. 2025).

    Args:
        tokens: The natural-log probability of each token, one sequence for each text.
        means: The mean log-probability of the next token under the model's own distribution over the vocabulary, one
            for each token.
        deviations: Its standard deviation; 0 (a uniform distribution) makes the token's value 0.
        k: The share of the tokens, in (0, 1].

    Returns:
        A score for each text, high for a likely member.

    Raises:
        InputError: If a value is not finite, lengths differ, or the share is out of range.

    >>> min_k_plus_plus([[-1.0, -3.0]], [[-2.0, -2.0]], [[1.0, 0.5]], k=0.5).tolist()
    [-2.0]
    """
    own, centre, spread = (
        log_probabilities("tokens", tokens),
        log_probabilities("means", means),
        read_rows("deviations", deviations),
    )
    for name, other in (("means", centre), ("deviations", spread)):
        if not np.array_equal(own.lengths, other.lengths):
            same = own.lengths.size == other.lengths.size
            index = int(np.argmax(own.lengths != other.lengths)) if same else min(own.lengths.size, other.lengths.size)
            raise InputError(f"{name}[{index}] and tokens[{index}] differ in length; pass one number for each token.")
    if spread.values.min() < 0:
        row, place = _place(spread, int(np.argmax(spread.values < 0)))
        raise InputError(f"deviations[{row}][{place}] is below 0; pass standard deviations.")
    usable = spread.values > 0
    values = np.where(usable, (own.values - centre.values) / np.where(usable, spread.values, 1.0), 0.0)
    return _lowest(own._replace(values=values), k)


def _lowest(ragged: Ragged, k: float) -> FloatArray:
    """Mean of the lowest share of each row, at least one value."""
    share = check.within("k", k, 0.0, 1.0, "pass a share of the tokens, e.g. 0.2", include="(]")
    rows = np.repeat(np.arange(ragged.starts.size), ragged.lengths)
    order = np.lexsort((ragged.values, rows))
    taken = np.maximum(1, np.floor(share * ragged.lengths + 1e-9)).astype(np.int64)
    place = np.arange(ragged.values.size) - ragged.starts[rows]
    kept = np.where(place < taken[rows], ragged.values[order], 0.0)
    return np.add.reduceat(kept, ragged.starts) / taken


def log_probabilities(name: str, rows: Any) -> Ragged:
    """Read rows of natural logarithms of probabilities."""
    ragged = read_rows(name, rows)
    if ragged.values.max() > ROUNDING:
        row, place = _place(ragged, int(np.argmax(ragged.values > ROUNDING)))
        raise InputError(
            f"{name}[{row}][{place}] is {ragged.values.max():g}, above 0; pass natural logarithms of probabilities."
        )
    return ragged


def read_rows(name: str, rows: Any) -> Ragged:
    """Read one flat sequence of finite numbers for each text."""
    if isinstance(rows, str) or not hasattr(rows, "__len__") or len(rows) == 0:
        raise InputError(f"{name} must be a list with one sequence of numbers for each text, got {check.show(rows)}.")
    arrays = []
    for index, row in enumerate(rows):
        arrays.append(np.asarray(row))
        if arrays[-1].ndim != 1 or arrays[-1].dtype.kind not in "iuf" or not arrays[-1].size:
            raise InputError(
                f"{name}[{index}] is {check.show(row)}; pass a flat sequence with at least one number for each text."
            )
    lengths = np.array([row.size for row in arrays])
    starts = np.concatenate(([0], np.cumsum(lengths)[:-1]))
    ragged = Ragged(np.concatenate(arrays).astype(np.float64), starts, lengths)
    bad = ~np.isfinite(ragged.values)
    if bad.any():
        index, place = _place(ragged, int(np.argmax(bad)))
        raise InputError(
            f"{name}[{index}][{place}] is {ragged.values[np.argmax(bad)]}, and {int(bad.sum())} of {bad.size} values "
            "are not finite; repair or leave out these texts."
        )
    return ragged


def _place(ragged: Ragged, flat: int) -> tuple[int, int]:
    row = int(np.searchsorted(ragged.starts, flat, side="right")) - 1
    return row, flat - int(ragged.starts[row])
