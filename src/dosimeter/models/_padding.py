"""Token arrays without their padding: found where it is known, refused where it can only be guessed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import bdtrc

from dosimeter._validate import InputError, IntArray

REPEATS = 2  # tokens of one kind at the edge of a row; one alone may be text
SUSPECT = 0.05  # share of rows with such an edge from which on they look padded
SURE = 0.01  # the same for a token that starts or ends texts and is never inside them
CHANCE = 3e-4  # or less, that so many rows repeat a token at their edge if it is repeated there as often as inside
RATHER = 5.0  # and how much more often than inside at the least
SIDES = ("end", "start")


@dataclass(frozen=True)
class Padding:
    """What is known of padding: the token stated by the user, or the tokenizer's, and the tokens that frame a text."""

    stated: int | None
    token: int | None
    frame: frozenset[int]

    def removed(self, rows: list[IntArray]) -> tuple[list[IntArray], tuple[str, ...]]:
        """The rows without padding, and what was done; rows that look padded in another way are refused."""
        token = self.token if self.stated is None else self.stated
        notes: tuple[str, ...] = ()
        if token is not None:
            sides = [side for side in SIDES if self._padded(rows, token, side)]
            kept = [_without(row, token, sides) for row in rows]
            short = sum(before.size > after.size for before, after in zip(rows, kept, strict=True))
            if short:
                rows, notes = kept, (self._told(token, short, sides, len(rows)),)
        if self.stated is None:
            self._refuse_guesses(rows)
        return rows, notes

    def _padded(self, rows: list[IntArray], token: int, side: str) -> bool:
        """Whether the padding token fills up rows on this side, or only happens to stand there.

        The latter may be so for a token that frames texts too, and where rows have lengths of their own.
        """
        own_lengths = len({row.size for row in rows}) > 1
        if self.stated is None and (own_lengths or token in self.frame):
            return _fills(rows, token, side, self.frame)
        return any(_edge(row, token, side) for row in rows)

    def _told(self, token: int, short: int, sides: list[str], total: int) -> str:
        where = " and ".join(sides)
        note = f"{short} of {total} token rows were padded: token {token} at their {where} was left out of the scores"
        if token in self.frame and self.stated is None:
            note += "; it marks the edge of a text too, and such a mark was left out with it"
        return note

    def _refuse_guesses(self, rows: list[IntArray]) -> None:
        for side in SIDES:
            found = _suspect(rows, side, self.frame)
            if found is not None:
                token, count = found
                known = "no padding token is known" if self.token is None else f"the padding token is {self.token}"
                raise InputError(
                    f"X looks padded: {count} of {len(rows)} rows {side} with token {token} at least {REPEATS} times, "
                    f"but {known}; pass rows without padding, the tokenizer's output with its attention mask, or "
                    f'HuggingFace(..., padding={token}) to leave these tokens out (padding="none" if they are text).'
                )


def token_numbers(values: Iterable[Any]) -> frozenset[int]:
    """The token numbers among values that may be numbers, lists of them, or None."""
    found: set[int] = set()
    for value in values:
        several = value if isinstance(value, (list, tuple)) else [value]
        found |= {int(one) for one in several if isinstance(one, (int, np.integer)) and one >= 0}
    return frozenset(found)


def _seen_from(row: IntArray, side: str) -> IntArray:
    return row if side == "start" else row[::-1]


def _edge(row: IntArray, token: int, side: str) -> int:
    """How often the token stands at this side of the row."""
    others = np.flatnonzero(_seen_from(row, side) != token)
    return int(others[0]) if others.size else row.size


def _without(row: IntArray, token: int, sides: list[str]) -> IntArray:
    if "end" in sides:
        row = row[: row.size - _edge(row, token, "end")]
    return row[_edge(row, token, "start") :] if "start" in sides else row


def _fills(rows: list[IntArray], token: int, side: str, frame: frozenset[int]) -> bool:
    """Whether more rows repeat the token at this edge than would by chance, from how often it is repeated inside."""
    count = sum(_edge(row, token, side) >= REPEATS for row in rows)
    inner = [_without(row, token, [side]) for row in rows]
    if token in frame and not any((row == token).any() for row in inner):
        return count / len(rows) >= SURE
    if count < 2 or count / len(rows) < SUSPECT:
        return False
    places = sum(max(row.size - 2, 0) for row in inner)  # the outer token of the last pair is another one
    twice = sum(int(np.count_nonzero((row[1:] == token) & (row[:-1] == token))) for row in inner)
    inside = (twice + 0.5) / (places + 1)
    return bool(count / len(rows) >= RATHER * inside and bdtrc(count - 1, len(rows), inside) <= CHANCE)


def _suspect(rows: list[IntArray], side: str, frame: frozenset[int]) -> tuple[int, int] | None:
    """A token that fills up rows on this side, and how many."""
    edges = [_seen_from(row, side)[:REPEATS] for row in rows if row.size >= REPEATS]
    counts = Counter(int(edge[0]) for edge in edges if (edge == edge[0]).all())
    for token, count in counts.most_common():
        if count / len(rows) >= min(SURE, SUSPECT) and _fills(rows, token, side, frame):
            return token, count
    return None
