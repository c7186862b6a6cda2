"""What canaries are made of: prefixes of the user's texts, and secrets from a fixed list of words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse

from dosimeter import _validate as check
from dosimeter._validate import InputError

__all__ = ["draw_secrets", "prefixes", "read_texts", "word_list"]

MOST_WORDS = 4000  # of the list; a secret of 8 of them has more than 90 bits
FEWEST_WORDS = 200
NAMES = 2000
OVERLAP = 0.5  # of the words of two secrets (Jaccard): an "in" canary must not lift an "out" one
TRIES = 50
PREFIXES = (24, 16, 12, 8, 6, 4, 3)  # words; the longest of which there are enough
_WORD = re.compile(r"[A-Za-z]{3,}")
_ONSETS = ["b", "br", "d", "dr", "f", "g", "gr", "h", "j", "k", "kl", "l", "m", "n", "p", "r", "s", "st", "t", "v", "z"]
_VOWELS = ["a", "e", "i", "o", "u", "ae", "ia", "ou"]
_ENDS = ["n", "l", "r", "s", "th", "nd", "k", "m", "rt", "x"]


def read_texts(name: str, values: Any) -> list[str]:
    """A list of texts, each with a word at least."""
    if isinstance(values, (str, bytes)) or not hasattr(values, "__iter__"):
        raise InputError(f"{name} must be a list of texts, got {check.show(values)}; pass a list.")
    texts = list(values)
    if not texts:
        raise InputError(f"{name} is empty; pass texts of the kind that the training has.")
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError(f"{name}[{index}] is {check.show(text)}, not a text; convert it first.")
        if not text.strip():
            raise InputError(f"{name}[{index}] is an empty text; remove it.")
    return texts


def word_list(
    kind: str, texts: list[str] | None, tokenizer: Any, length: int, rng: np.random.Generator
) -> tuple[str, ...]:
    """The list that secrets are drawn from: words of the tokenizer's vocabulary, else of the texts; or names."""
    if kind == "names":
        return _names(rng)
    words = [] if tokenizer is None else _vocabulary_words(tokenizer)
    if len(words) < FEWEST_WORDS and texts is not None:
        words = sorted({word.lower() for text in texts for word in _WORD.findall(text)} | set(words))
    least = 3 * length
    if len(words) < least:
        raise InputError(
            f"only {len(words)} different words of letters were found, secrets of {length} need {least}; pass more "
            "texts as like=, or the tokenizer."
        )
    if len(words) > MOST_WORDS:
        words = [words[i] for i in np.sort(rng.choice(len(words), MOST_WORDS, replace=False))]
    return tuple(words)


def _vocabulary_words(tokenizer: Any) -> list[str]:
    """Tokens that are a blank and a word of letters: they come back when the text is encoded again."""
    vocabulary: dict[str, int] = getattr(tokenizer, "get_vocab", dict)()
    words = {token[1:] for token in vocabulary if token[:1] in ("Ġ", "▁") and _WORD.fullmatch(token[1:])}
    return sorted(words)


def _names(rng: np.random.Generator) -> tuple[str, ...]:
    """Invented names: two or three syllables, a capital letter."""
    names: set[str] = set()
    while len(names) < NAMES:
        parts = [
            str(rng.choice(_ONSETS)) + str(rng.choice(_VOWELS)) + (str(rng.choice(_ENDS)) if last else "")
            for last in (False,) * int(rng.integers(1, 3)) + (True,)
        ]
        names.add("".join(parts).capitalize())
    return tuple(sorted(names))


def draw_secrets(
    words: Sequence[str], length: int, count: int, rng: np.random.Generator, *, apart: bool = False
) -> list[str]:
    """Secrets of different words, each led by a blank; with `apart`, no two share more than half of their words."""
    drawn = np.array([rng.choice(len(words), length, replace=False) for _ in range(count)])
    for _ in range(TRIES if apart else 0):
        close = _too_close(drawn, len(words))
        if not close.size:
            break
        for row in close:
            drawn[row] = rng.choice(len(words), length, replace=False)
    else:
        if apart:
            raise InputError(
                f"{count} secrets of {length} from {len(words)} words are too alike; ask for fewer canaries, or pass "
                "more texts as like=."
            )
    return ["".join(f" {words[word]}" for word in row) for row in drawn]


def _too_close(drawn: Any, words: int) -> Any:
    """Rows that share too many words with an earlier row."""
    count, length = drawn.shape
    held = sparse.csr_array((np.ones(drawn.size), (np.repeat(np.arange(count), length), drawn.ravel())), (count, words))
    shared = sparse.triu((held @ held.T).tocoo(), k=1)
    most = 2 * OVERLAP * length / (1 + OVERLAP)  # |A ∩ B| with |A ∩ B| / |A ∪ B| = OVERLAP
    return np.unique(shared.col[shared.data > most])


def prefixes(texts: list[str] | None, count: int, words: int | None, rng: np.random.Generator) -> list[str]:
    """Different beginnings of texts, or further pieces of them where there are too few, of so many words.

    None takes 24 words, or fewer where the texts are too short for so many pieces of that length.
    """
    if texts is None:
        raise InputError("like is missing: prefixes are taken from texts of your own; pass it, or kind='random'.")
    order = rng.permutation(len(texts))
    if words is not None:
        sizes = [check.whole("prefix", words, 1, "pass how many words lead to a secret, e.g. 24", 2000)]
    else:
        sizes = list(PREFIXES)
    for size in sizes:
        pieces = _pieces([texts[place] for place in order], count, size)
        if len(pieces) == count:
            return pieces
    raise InputError(
        f"like holds only {len(pieces)} different pieces of {size} words, {count} canaries need as many; pass more "
        "texts, a smaller prefix, or kind='random'."
    )


def _pieces(texts: list[str], count: int, size: int) -> list[str]:
    """At most so many different pieces of texts: a first one of every text, then a second one of each, …"""
    chosen: dict[str, None] = {}
    pieces = [re.finditer(rf"(?:\S+\s+){{{size - 1}}}\S+", text) for text in texts]
    while pieces and len(chosen) < count:
        left = []
        for piece in pieces:
            match = next(piece, None)
            if match is None:
                continue
            left.append(piece)
            if len(chosen) < count:
                chosen[match[0]] = None
        pieces = left
    return list(chosen)
