"""Token numbers of the texts of a sheet, and where in them the secret stands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dosimeter._validate import InputError, IntArray, show
from dosimeter.audits.text.sheet import CanarySheet

__all__ = ["EncodedSheet", "TokenLimits", "encode", "encoded", "find", "plain_ids", "spans_of"]


@dataclass(frozen=True)
class EncodedSheet:
    """Token rows as the model sees them, and in each the first scored token and the one after the last."""

    rows: list[IntArray]
    spans: IntArray


@dataclass(frozen=True)
class TokenLimits:
    """The longest text that a model takes and the size of its vocabulary; None where it states none."""

    most: int | None
    vocabulary: int | None


def plain_ids(tokenizer: Any, texts: Sequence[str]) -> list[list[int]]:
    """Token numbers of the texts alone, without tokens for start and end."""
    return [list(map(int, row)) for row in _call(tokenizer, list(texts), add_special_tokens=False)]


def encode(tokenizer: Any, sheet: CanarySheet, limits: TokenLimits) -> EncodedSheet:
    """Encode the texts of a sheet as a training would, and find their secrets.

    Raises:
        InputError: If the tokenizer is not that of the sheet or of the model, or a text is too long to be seen whole.
    """
    texts = [canary.text for canary in sheet.canaries]
    own = plain_ids(tokenizer, texts)
    for index, (canary, row) in enumerate(zip(sheet.canaries, own, strict=True)):
        if canary.ids and tuple(row) != canary.ids:
            raise InputError(
                f"the tokenizer gives canary {index} other tokens than the sheet holds; pass the tokenizer that the "
                "sheet was made with."
            )
    return encoded(tokenizer, texts, [canary.prefix for canary in sheet.canaries], own, limits=limits)


def encoded(
    tokenizer: Any,
    texts: Sequence[str],
    leads: Sequence[str],
    own: list[list[int]] | None = None,
    *,
    limits: TokenLimits,
) -> EncodedSheet:
    """Encode texts and find what follows each lead."""
    own = plain_ids(tokenizer, texts) if own is None else own
    rows = [np.array(row, np.int64) for row in _call(tokenizer, list(texts))]
    begins = spans_of(tokenizer, texts, leads, own)
    spans = np.empty((len(rows), 2), np.int64)
    for index, (row, part, begin) in enumerate(zip(rows, own, begins, strict=True)):
        _check(index, row, limits)
        start = find(row, np.array(part, np.int64))
        if start is None:
            raise InputError(
                f"the tokenizer changes text {index} between its special tokens; pass one that keeps texts as they are."
            )
        spans[index] = max(1, start + begin), start + len(part)
        if spans[index, 0] >= spans[index, 1]:
            raise InputError(f"text {index} has no token that could be scored; remove it.")
    return EncodedSheet(rows, spans)


def spans_of(tokenizer: Any, texts: Sequence[str], leads: Sequence[str], own: list[list[int]]) -> list[int]:
    """How many tokens of each text belong to its lead: the text is encoded once and cut by numbers."""
    known = dict(zip(leads, plain_ids(tokenizer, leads), strict=True)) if any(leads) else {}
    begins = []
    for index, (lead, row) in enumerate(zip(leads, own, strict=True)):
        part = known.get(lead, []) if lead else []
        if row[: len(part)] == part:
            begins.append(len(part))
            continue
        offsets = _offsets(tokenizer, texts[index], len(row))
        if offsets is None:
            raise InputError(
                f"the tokenizer joins prefix and secret of canary {index}; pass a fast tokenizer, which knows where "
                "each token stands."
            )
        begins.append(next((place for place, (_, end) in enumerate(offsets) if end > len(lead)), len(row)))
    return begins


def find(row: IntArray, part: IntArray) -> int | None:
    """Where a sequence stands in a row; None if it does not."""
    if part.size == 0 or part.size > row.size:
        return None
    windows = np.lib.stride_tricks.sliding_window_view(row, part.size)
    places = np.flatnonzero((windows == part).all(axis=1))
    return int(places[0]) if places.size else None


def _check(index: int, row: IntArray, limits: TokenLimits) -> None:
    most, vocabulary = limits.most, limits.vocabulary
    if row.size < 2:
        raise InputError(f"text {index} has {row.size} token(s), at least 2 are needed; remove it.")
    if most is not None and row.size > most:
        raise InputError(
            f"text {index} has {row.size} tokens, but the model takes {most}: it would be cut; make a sheet with a "
            "shorter prefix, or shorter records."
        )
    if vocabulary is not None and row.max() >= vocabulary:
        raise InputError(
            f"the tokenizer does not fit the model: text {index} has token {int(row.max())}, the model knows 0 to "
            f"{vocabulary - 1}; pass the model's own tokenizer."
        )


def _call(tokenizer: Any, texts: list[str], **options: Any) -> Any:
    if not callable(tokenizer):
        raise InputError(
            f"tokenizer must be a Hugging Face tokenizer, got {show(tokenizer)}; load it with from_pretrained."
        )
    try:
        return tokenizer(texts, **options)["input_ids"]
    except (TypeError, KeyError, ValueError) as error:
        raise InputError(
            f"the tokenizer fails on the sheet's texts ({type(error).__name__}: {show(str(error), 120)}); pass the "
            "tokenizer of the model."
        ) from error


def _offsets(tokenizer: Any, text: str, size: int) -> list[tuple[int, int]] | None:
    if not getattr(tokenizer, "is_fast", False):
        return None
    offsets = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    return [tuple(pair) for pair in offsets] if len(offsets) == size else None
