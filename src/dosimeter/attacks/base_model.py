"""Scores of texts from a fine-tuned model beside the base model that it started from, high for a likely member.

Every function takes one sequence of natural-log token probabilities for each text, from both models on the same tokens.
With δ the difference of the two at a token, all of them are reductions of δ.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dosimeter import _validate as check
from dosimeter._validate import FloatArray, InputError
from dosimeter.attacks.text import Ragged, log_probabilities, min_k_plus_plus, read_rows

WINDOWS = (2, 3, 4, 6, 9, 13, 18, 25, 32, 40)  # tokens, as in the released code of WBC
DAMPING = 1e-3  # nats added to both sums: a row with one or two wrong tokens must not beat all others by chance
NO_ERRORS = 1e6  # above every quotient of sums: a text that the model would have written itself


def window_signs(tokens: Any, reference: Any) -> FloatArray:
    """Count windows of tokens that became likelier, over ten widths: WBC (Chen et al. 2026).

    Signs are less moved than means by single tokens; short texts have few windows, so scores are tied.

    Args:
        tokens: The natural-log probability of each token, one sequence for each text.
        reference: The same tokens under the base model.

    Returns:
        A score for each text, from 0 to 1, high for a likely member.

    Raises:
        InputError: If a value is not finite or above 0, or the lengths differ.

    >>> window_signs([[-1.0, -1.0, -1.0]], [[-2.0, -2.0, -0.5]]).tolist()
    [1.0]
    """
    gained = _gained(tokens, reference)
    total = np.concatenate([[0.0], np.cumsum(gained.values)])
    rows = np.repeat(np.arange(gained.starts.size), gained.lengths)
    left = (gained.starts + gained.lengths)[rows] - np.arange(gained.values.size)  # tokens from here to the end
    found = np.zeros(gained.starts.size)
    for width in WINDOWS:
        size = np.minimum(width, gained.lengths)[rows]
        begins = np.flatnonzero(left >= size)
        up = total[begins + size[begins]] - total[begins] > 0
        found += np.bincount(rows[begins], up, found.size) / np.bincount(rows[begins], minlength=found.size)
    return found / len(WINDOWS)


def error_zone(tokens: Any, reference: Any, ranks: Any) -> FloatArray:
    """Compare what rose with what fell where the model still errs: EZ-MIA (2026) as ln(P + a) − ln(N + a).

    P and N are the sums of rises and of falls over the tokens that are not the model's first choice. The quotient of
    the released code is 0 for a text without falls, which puts the best-remembered texts last; here they come first,
    and texts without any error above all others, in the order of their mean rise.

    Args:
        tokens: The natural-log probability of each token, one sequence for each text.
        reference: The same tokens under the base model.
        ranks: How many tokens of the vocabulary the model holds likelier, one number for each token.

    Returns:
        A score for each text, high for a likely member.

    Raises:
        InputError: If a value is not finite or above 0, or the lengths differ.

    >>> error_zone([[-1.0, -3.0], [-0.1, -0.1]], [[-2.0, -3.0], [-1.0, -1.0]], [[1, 5], [0, 0]]).round(2).tolist()
    [6.91, 1000000.9]
    """
    gained, rank = _gained(tokens, reference), read_rows("ranks", ranks)
    _same_lengths(gained, rank, "ranks")
    wrong = rank.values > 0
    rise, fall = (
        np.add.reduceat(np.where(wrong, np.maximum(sign * gained.values, 0.0), 0.0), gained.starts)
        for sign in (1.0, -1.0)
    )
    errors = np.add.reduceat(wrong.astype(float), gained.starts)
    quotient = np.log(rise + DAMPING) - np.log(fall + DAMPING)
    return np.where(errors > 0, quotient, NO_ERRORS + gained.sums() / gained.lengths)


def token_informia(tokens: Any, reference: Any, divergences: Any) -> FloatArray:
    """Average the rise of each token and how far the whole vocabulary moved there: token-level InfoRMIA (2026).

    Args:
        tokens: The natural-log probability of each token, one sequence for each text.
        reference: The same tokens under the base model.
        divergences: KL(base ‖ fine-tuned) over the vocabulary at each token.

    Returns:
        A score for each text, high for a likely member.

    Raises:
        InputError: If a value is not finite or above 0, or the lengths differ.

    >>> token_informia([[-1.0, -3.0]], [[-2.0, -3.0]], [[0.5, 0.5]]).tolist()
    [1.0]
    """
    gained, moved = _gained(tokens, reference), read_rows("divergences", divergences)
    _same_lengths(gained, moved, "divergences")
    return (gained.sums() + moved.sums()) / gained.lengths


def calibrated_min_k_plus_plus(
    tokens: Any, means: Any, deviations: Any, reference: tuple[Any, Any, Any], k: float = 0.2
) -> FloatArray:
    """Subtract from Min-K%++ of the fine-tuned model that of the base model.

    Args:
        tokens: The natural-log probability of each token, one sequence for each text.
        means: The mean log-probability over the vocabulary at each token.
        deviations: Its standard deviation.
        reference: The same three for the base model.
        k: The share of the tokens, in (0, 1].

    Returns:
        A score for each text, high for a likely member.

    Raises:
        InputError: If a value is not finite, lengths differ, or the share is out of range.

    >>> base = [[-3.0]], [[-2.0]], [[1.0]]
    >>> calibrated_min_k_plus_plus([[-1.0]], [[-2.0]], [[1.0]], base, k=1.0).tolist()
    [2.0]
    """
    if not isinstance(reference, tuple) or len(reference) != 3:
        raise InputError(
            f"reference must be (tokens, means, deviations) of the base model, got {check.show(reference)}."
        )
    return min_k_plus_plus(tokens, means, deviations, k) - min_k_plus_plus(*reference, k)


def _gained(tokens: Any, reference: Any) -> Ragged:
    """δ: how much likelier each token became."""
    own, other = log_probabilities("tokens", tokens), log_probabilities("reference", reference)
    _same_lengths(own, other, "reference")
    return own._replace(values=own.values - other.values)


def _same_lengths(own: Ragged, other: Ragged, name: str) -> None:
    if not np.array_equal(own.lengths, other.lengths):
        raise InputError(f"{name} and tokens differ in length; pass one number for each token of each text in both.")
