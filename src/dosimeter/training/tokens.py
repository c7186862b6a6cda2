"""Texts as rows of hashed word ids: the same on every machine, and no vocabulary learned from any text."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Any

import numpy as np

from dosimeter import _validate as check
from dosimeter._validate import InputError, IntArray

PADDING = 0

_WORD = re.compile(r"\w+|[^\w\s]")


def hashed_words(texts: Iterable[Any], *, vocabulary: int = 2048, length: int = 32) -> IntArray:
    """Ids (texts, length) from 0 to vocabulary − 1: words and signs in lower case, hashed; 0 fills up short texts.

    Words beyond `length` are cut off. Different words may share an id; more of a `vocabulary` makes that rarer.

    >>> hashed_words(["Good, good", ""], vocabulary=1000, length=4)
    array([[656, 369, 656,   0],
           [  0,   0,   0,   0]])
    """
    ids = check.whole("vocabulary", vocabulary, 2, "pass how many ids there are, e.g. 2048", 2**31)
    width = check.whole("length", length, 1, "pass how many words of a text count, e.g. 32", 2**20)
    if isinstance(texts, (str, bytes)):
        raise InputError(f"texts must be a list of texts, got one: {check.show(texts)}; put it into a list.")
    rows = texts.tolist() if isinstance(texts, np.ndarray) else list(texts)
    known: dict[str, int] = {}
    found = np.full((len(rows), width), PADDING, np.int64)
    for at, text in enumerate(rows):
        if not isinstance(text, str):
            raise InputError(f"texts[{at}] is {check.show(text)}, not a text; convert it first.")
        words = _WORD.findall(text.lower())[:width]
        for word in words:
            if word not in known:
                digest = hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest()
                known[word] = 1 + int.from_bytes(digest, "little") % (ids - 1)
        found[at, : len(words)] = [known[word] for word in words]
    return found
