"""Texts from an n-gram model with Kneser–Ney smoothing (Kneser and Ney 1995): fast, and without torch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dosimeter import _validate as check
from dosimeter._validate import FloatArray, IntArray
from dosimeter.generators.classes import FittedClasses, fit_classes
from dosimeter.generators.lengths import matched
from dosimeter.generators.protocol import check_count, require_members, streams
from dosimeter.generators.words import END, START, Vocabulary, read_texts, vocabulary

LARGEST_KEY = 2.0**62
WRITTEN = 40  # texts that are written for each one that is asked for, at most, to find those of the members' lengths

AGAIN = 100  # draws in place of an end that comes too early; the first token has an end only by smoothing


@dataclass(frozen=True)
class NGram:
    """Generate texts token by token, each given the tokens before it: the default for texts.

    The texts are as long as the members.

    Args:
        order: How many tokens an n-gram has, the new one included: 1 to 4.
        words: The size of the vocabulary. Rarer words share one state and are drawn by their own frequency.
        name: What the page calls it.
        minimum: The fewest members that it can be fitted to, for each class where there are labels.

    >>> texts = ["the cat sat on the mat", "the dog sat on the cat"] * 10
    >>> len(NGram().fit(texts).sample(3, seed=1))
    3
    """

    order: int = 3
    words: int = 50_000
    name: str = "n-gram with Kneser–Ney smoothing"
    minimum: int = 20

    def fit(self, members: object, *, seed: int = 0) -> FittedNGram | FittedClasses:
        """Count the n-grams.

        Args:
            members: Texts, or (texts, y); labels give each class a model of its own.
            seed: Checked, and not used: nothing is random here.

        Returns:
            What samples new records.

        Raises:
            InputError: If the members are of another kind or too few.
        """
        check.seed(seed)
        records = require_members(members, kind="text", minimum=self.minimum, caller="the n-gram model")
        texts = read_texts(records)
        if records.y is not None:
            return fit_classes(self._counted, records, minimum=self.minimum, seed=seed)
        return self._counted(texts, seed)

    def _counted(self, texts: list[str], _: int) -> FittedNGram:
        order = check.whole("order", self.order, 1, "pass e.g. 3", 4)
        known = vocabulary(texts, check.whole("words", self.words, 1, "pass e.g. 50000"))
        while float(known.size) ** order > LARGEST_KEY:
            order -= 1
        rows = known.encode(texts)
        return FittedNGram(known, _levels(rows, known.size, order), np.array([row.size for row in rows]))


@dataclass(frozen=True, eq=False)
class NGramLevel:
    """The n-grams of one length: contexts in order, the span of each, cumulative discounted counts, last tokens.

    `stay` is the share of the discounted counts in a context; the rest goes to the next shorter context.
    """

    contexts: IntArray
    starts: IntArray
    cumulative: FloatArray
    last: IntArray
    stay: FloatArray


@dataclass(frozen=True, eq=False)
class FittedNGram:
    """The vocabulary, the levels from the longest context to none, and the lengths of the members in tokens."""

    vocabulary: Vocabulary
    levels: tuple[NGramLevel, ...]
    lengths: IntArray

    def sample(self, count: int, *, seed: int) -> list[str]:
        """Sample `count` texts whose lengths are drawn from those of the members."""
        size = check_count(count)
        walk, rare, chosen = streams(seed, 3)
        rows = matched(lambda n, least: self._written(n, least, walk), self.lengths, size, chosen, most=WRITTEN)
        return self.vocabulary.decode(rows, rare)

    def _written(self, size: int, least: IntArray | None, walk: np.random.Generator) -> IntArray:
        """Token numbers of texts, all of them written token by token at the same time.

        An end before the least length of a text is drawn again; beyond the longest member a text is not written on.
        """
        longest = int(self.lengths.max()) + 1
        least = np.ones(size, np.int64) if least is None else least
        made = np.full((size, longest), END, np.int64)
        context = np.full((size, max(len(self.levels) - 1, 0)), START, np.int64)
        live = np.arange(size)
        for step in range(longest):
            new = self._next(context[live], walk)
            for _ in range(AGAIN):
                early = np.flatnonzero((new == END) & (step < least[live]))
                if early.size == 0:
                    break
                new[early] = self._next(context[live[early]], walk)
            made[live, step] = new
            if context.shape[1]:
                context[live] = np.column_stack([context[live, 1:], new])
            live = live[new != END]
            if live.size == 0:
                break
        return made

    def _next(self, context: IntArray, rng: np.random.Generator) -> IntArray:
        """The next token of each row: from its longest context, or with the smoothing's share from a shorter one."""
        drawn = np.full(len(context), -1, np.int64)
        for skipped, level in enumerate(self.levels):
            open_rows = np.flatnonzero(drawn < 0)
            if open_rows.size == 0:
                break
            key = _keys(context[open_rows, skipped:], self.vocabulary.size)
            place = np.minimum(np.searchsorted(level.contexts, key), level.contexts.size - 1)
            coin = rng.uniform(size=key.size)
            last = skipped == len(self.levels) - 1
            taken = last | ((level.contexts[place] == key) & (coin < level.stay[place]))
            place = place[taken]
            low, high = level.cumulative[level.starts[place]], level.cumulative[level.starts[place + 1]]
            target = low + (high - low) * rng.uniform(size=place.size)
            cell = np.searchsorted(level.cumulative, target, side="right") - 1
            drawn[open_rows[taken]] = level.last[np.clip(cell, level.starts[place], level.starts[place + 1] - 1)]
        return drawn


def _keys(rows: IntArray, size: int) -> IntArray:
    """Rows of token numbers as one number each."""
    key = np.zeros(len(rows), np.int64)
    for column in rows.T:
        key = key * size + column
    return key


def _levels(rows: list[IntArray], size: int, order: int) -> tuple[NGramLevel, ...]:
    start = np.full(order - 1, START, np.int64)
    stream = np.concatenate([part for row in rows for part in (start, row, [END])])
    ends = np.cumsum([row.size + order for row in rows])
    place = np.arange(stream.size)
    begin = np.repeat(np.concatenate([[0], ends[:-1]]), np.diff(ends, prepend=0))
    whole = place[place - begin >= order - 1]
    grams, counts = np.unique(_keys(stream[whole[:, None] + np.arange(1 - order, 1)], size), return_counts=True)
    levels = []
    for length in range(order, 0, -1):
        levels.append(_level(grams, counts, size))
        if length > 1:  # below the top a token counts once for each different token before it
            grams, counts = np.unique(grams % size ** (length - 1), return_counts=True)
    return tuple(levels)


def _level(grams: IntArray, counts: IntArray, size: int) -> NGramLevel:
    contexts, starts = np.unique(grams // size, return_index=True)
    starts = np.append(starts, grams.size)
    once, twice = np.count_nonzero(counts == 1), np.count_nonzero(counts == 2)
    discount = once / (once + 2 * twice) if once and twice else 0.5
    kept = counts - discount
    cumulative = np.concatenate([[0.0], np.cumsum(kept)])
    totals = np.add.reduceat(counts, starts[:-1])
    stay = (cumulative[starts[1:]] - cumulative[starts[:-1]]) / totals
    return NGramLevel(contexts, starts, cumulative, grams % size, stay)
