"""Texts as tokens and back: words with the white space before them, so that joined tokens give the text again."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dosimeter._validate import FloatArray, InputError, IntArray, show
from dosimeter.generators.protocol import Members

START, END, RARE = 0, 1, 2
_SPECIAL = 3
_TOKEN = re.compile(r"\s*(?:<\w+>|['’]?\w+(?:['’]\w+)*|[^\w\s]+)")


def tokens(text: str) -> list[str]:
    """Words and runs of marks, each with the white space before it; white space at the end is dropped.

    The first one has a space before it: a word is the same token wherever it stands.
    """
    return _TOKEN.findall(f" {text.lstrip()}")


def text_of(parts: list[str]) -> str:
    """Tokens as a text; two words that would grow together are kept apart."""
    made: list[str] = []
    for part in parts:
        if made and part[0].isalnum() and made[-1][-1].isalnum():
            made.append(" ")
        made.append(part)
    return "".join(made).strip()


def read_texts(members: Members) -> list[str]:
    """The texts, each with at least one word."""
    texts = list(members.X)
    for row, text in enumerate(texts):
        if not isinstance(text, str) or not _TOKEN.search(text):
            raise InputError(f"members[{row}] is {show(text)}, which has no word; remove this record.")
    return texts


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """The frequent tokens by number, after the start, the end and the token that replaces all rare ones.

    Where it comes up, a rare token is written, drawn as often as it was seen.
    """

    words: tuple[str, ...]
    rare: tuple[str, ...]
    rare_shares: FloatArray

    @property
    def size(self) -> int:
        return len(self.words) + _SPECIAL

    def encode(self, texts: Iterable[str]) -> list[IntArray]:
        """Token numbers of each text, without start and end."""
        number = {word: k + _SPECIAL for k, word in enumerate(self.words)}
        return [np.array([number.get(part, RARE) for part in tokens(text)], np.int64) for text in texts]

    def decode(self, rows: Iterable[Any], rng: np.random.Generator) -> list[str]:
        """Texts of rows of token numbers; what follows an end is dropped."""
        texts = []
        for row in rows:
            ids = np.asarray(row)
            stops = np.flatnonzero(ids == END)
            ids = ids[: stops[0]] if stops.size else ids
            ids = ids[ids != START]
            rare = iter(rng.choice(len(self.rare), int((ids == RARE).sum()), p=self.rare_shares) if self.rare else ())
            texts.append(text_of([self.rare[next(rare)] if k == RARE else self.words[k - _SPECIAL] for k in ids]))
        return texts


def vocabulary(texts: list[str], most: int | None = None) -> Vocabulary:
    """The `most` frequent tokens of texts (all of them for None); the others are rare."""
    seen = Counter(part for text in texts for part in tokens(text))
    ranked = sorted(seen, key=lambda word: (-seen[word], word))
    kept, rare = (ranked, []) if most is None else (ranked[:most], ranked[most:])
    counts = np.array([seen[word] for word in rare], np.float64)
    return Vocabulary(tuple(kept), tuple(rare), counts / counts.sum() if rare else counts)
