"""The rows that a trainer really feeds, compared with the sheet: nothing missing, masked, packed or added."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from dosimeter._validate import InputError, IntArray
from dosimeter.audits.text.encoding import EncodedSheet, find
from dosimeter.audits.text.sheet import CanarySheet

__all__ = ["check_rows"]

TOGETHER = 64  # rows that the collator gets at once
WINDOW = 6  # tokens by which rows are searched
IGNORED = -100
_PRIME = np.uint64(1_000_003)


def check_rows(loader: Any, sheet: CanarySheet, texts: EncodedSheet, tokenizer: Any) -> list[str]:
    """Look for every canary in the rows of a loader, after its collator.

    Returns:
        Notes on what could not be checked.

    Raises:
        InputError: If a canary that is in is missing, cut, masked or packed, or one that is out is there.
    """
    dataset = getattr(loader, "dataset", None)
    if dataset is None or not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
        raise InputError(
            "the rows that the loader feeds cannot be looked through (a data set without length); pass a data set with "
            "rows, or train without the callback and call audit_canaries."
        )
    known = _Known.of(sheet, texts)
    special = frozenset(int(token) for token in getattr(tokenizer, "all_special_ids", None) or ())
    seen: Counter[int] = Counter()
    labelled = True
    for start, ids, mask, labels in _batches(loader, dataset):
        labelled &= labels is not None
        for place, row in enumerate(ids):
            kept = row[mask[place] > 0] if mask is not None else row
            marks = None if labels is None else (labels[place][mask[place] > 0] if mask is not None else labels[place])
            for canary in known.inside(kept, special):
                _check_row(canary, start + place, kept, marks, sheet, texts, special)
                seen[canary] += 1
    for index, coin in enumerate(sheet.included):
        wanted = sheet.copies if coin else 0
        if seen[index] != wanted:
            raise InputError(
                f"canary {index} is in by its coin, but stands in {seen[index]} rows that the loader feeds instead of "
                f"{wanted}; train on sheet.training_texts(…), uncut."
            )
    return [] if labelled else ["the rows have no labels, so it was not checked that the secrets count in the loss"]


def _check_row(
    canary: int,
    number: int,
    row: IntArray,
    labels: IntArray | None,
    sheet: CanarySheet,
    texts: EncodedSheet,
    special: frozenset[int],
) -> None:
    """One row that holds the beginning of a canary's secret."""
    if not sheet.canaries[canary].included:
        raise InputError(
            f"canary {canary} is out by its coin, but stands in row {number} that the loader feeds; train on "
            "sheet.training_texts(…) and nothing else of the sheet."
        )
    own, (first, last) = texts.rows[canary], texts.spans[canary]
    body = np.array([token for token in own.tolist() if token not in special], np.int64)
    rest = np.array([token for token in row.tolist() if token not in special], np.int64)
    if not np.array_equal(rest, body):
        held = find(rest, body) is not None
        why = "shares its row with other text (packing)" if held else "is cut or changed there"
        raise InputError(
            f"canary {canary} stands in row {number}, but {why}; feed it whole and alone, e.g. packing=False."
        )
    if labels is None:
        return
    at = find(row, own[first:last])
    if at is None or (labels[at : at + last - first] == IGNORED).any():
        raise InputError(
            f"the secret of canary {canary} is left out of the loss in row {number} (labels of {IGNORED}); put it into "
            "the part that is trained on."
        )


class _Known:
    """The secrets by a hash of their first tokens, so that rows are searched at once."""

    def __init__(
        self, window: int, hashes: Any, canaries: list[list[int]], secrets: list[IntArray], whole: bool
    ) -> None:
        self.window, self.hashes, self.canaries, self.secrets, self.whole = window, hashes, canaries, secrets, whole

    @classmethod
    def of(cls, sheet: CanarySheet, texts: EncodedSheet) -> _Known:
        secrets = [row[first:last] for row, (first, last) in zip(texts.rows, texts.spans, strict=True)]
        window = min(WINDOW, *(secret.size for secret in secrets))
        places: dict[int, list[int]] = {}
        for index, secret in enumerate(secrets):
            places.setdefault(int(_hashes(secret[:window], window)[0]), []).append(index)
        keys = np.array(sorted(places), np.uint64)
        return cls(window, keys, [places[int(key)] for key in keys], secrets, not sheet.words)

    def inside(self, row: IntArray, special: frozenset[int]) -> list[int]:
        """The canaries whose secret begins somewhere in the row; records must be the row, for one may begin another."""
        if row.size < self.window:
            return []
        hashes = _hashes(row, self.window)
        places = np.minimum(np.searchsorted(self.hashes, hashes), self.hashes.size - 1)
        hits = np.flatnonzero(self.hashes[places] == hashes)
        inside = []
        for hit in hits:
            for canary in self.canaries[places[hit]]:
                secret = self.secrets[canary]
                same = np.array_equal(secret[: self.window], row[hit : hit + self.window])
                if same and (not self.whole or self._is_row(secret, row[hit:], special)):
                    inside.append(canary)
        return sorted(set(inside), key=inside.index)

    @staticmethod
    def _is_row(secret: IntArray, rest: IntArray, special: frozenset[int]) -> bool:
        """Whether nothing but special tokens follows the record."""
        return np.array_equal(secret, rest[: secret.size]) and all(t in special for t in rest[secret.size :].tolist())


def _hashes(row: IntArray, window: int) -> Any:
    """A number for every window of tokens."""
    size = row.size - window + 1
    hashes = np.zeros(size, np.uint64)
    for at in range(window):
        hashes = hashes * _PRIME + row[at : at + size].astype(np.uint64)
    return hashes


def _batches(loader: Any, dataset: Any) -> Iterator[tuple[int, IntArray, IntArray | None, IntArray | None]]:
    """Number of the first row, token numbers, mask and labels of batches, as the collator makes them."""
    collate = getattr(loader, "collate_fn", None)
    for start in range(0, len(dataset), TOGETHER):
        with _same_random_numbers():
            rows = [dataset[index] for index in range(start, min(start + TOGETHER, len(dataset)))]
            batch = rows if collate is None else collate(rows)
        if not hasattr(batch, "get") or batch.get("input_ids") is None:
            raise InputError("the loader's batches hold no input_ids; the rows that it feeds cannot be checked.")
        ids, mask, labels = (_array(batch.get(name)) for name in ("input_ids", "attention_mask", "labels"))
        assert ids is not None
        if ids.ndim != 2 or (labels is not None and labels.shape != ids.shape):
            raise InputError(
                "the loader joins rows into one (padding-free packing), so canaries are not alone; unpack."
            )
        yield start, ids, mask, labels


def _array(value: Any) -> IntArray | None:
    if value is None:
        return None
    array: IntArray = np.asarray(value.cpu() if hasattr(value, "cpu") else value).astype(np.int64)
    return array


@contextmanager
def _same_random_numbers() -> Iterator[None]:
    """Leave the random numbers of the training as they were, whatever a data set or a collator draws."""
    import torch

    states = random.getstate(), np.random.get_state()  # noqa: NPY002  (whose state is kept, not used)
    with torch.random.fork_rng(devices=[]):
        try:
            yield
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])  # noqa: NPY002
