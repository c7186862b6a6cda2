"""Records of any kind, read once for the checks that come before any number: tables, images, texts, labels."""

from __future__ import annotations

import array
import hashlib
import math
import re
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dosimeter import _validate as check
from dosimeter._validate import FloatArray, InputError, IntArray

UintArray = npt.NDArray[np.uint64]
KINDS = ("auto", "tabular", "image", "text")
CHANNELS = (1, 3, 4)
THUMBNAIL = 8
BLOCK = 1 << 22  # numbers that are looked at in one go
CONTINUOUS = 20  # more distinct fractional labels than this are a regression target
TEXT_CHARACTERS = 5_000  # of each text, for words and shingles; exact copies are compared in full


@dataclass(frozen=True, eq=False)
class Records:
    """Members and non-members in one form: (n, d) floats, (n, h, w, c) images, or lists of texts.

    `labels` are class codes over the union of both sides; a continuous target is cut at its pooled deciles.
    """

    kind: str
    members: Any
    nonmembers: Any
    labels: tuple[IntArray, IntArray] | None
    missing: int

    @property
    def sizes(self) -> tuple[int, int]:
        return len(self.members), len(self.nonmembers)


def read_records(members: Any, nonmembers: Any, labels: Any = None, kind: str = "auto") -> Records:
    """Check and convert both sides alike; an (X, y) tuple brings its own labels."""
    check.choice("kind", kind, KINDS)
    (first, own), (second, other) = (
        _features_and_labels("members", members),
        _features_and_labels("nonmembers", nonmembers),
    )
    if (own is None) != (other is None):
        side = "members" if other is None else "nonmembers"
        raise InputError(f"only {side} is an (X, y) pair; give labels for both sides or for neither.")
    if own is not None and labels is not None:
        raise InputError("labels is given, and members is an (X, y) pair too; give the labels once.")
    if labels is not None:
        if not isinstance(labels, (tuple, list)) or len(labels) != 2:
            raise InputError(f"labels must be a pair (of members, of nonmembers), got {check.show(labels)}.")
        own, other = labels
        if (own is None) != (other is None):
            raise InputError("labels holds None for one side only; give labels for both sides or for neither.")
    if _mixed_lengths(first) or _mixed_lengths(second):  # token numbers: to the checks each is a word
        first, second = _as_words("members", first), _as_words("nonmembers", second)
    texts = _texts("members", first, kind), _texts("nonmembers", second, kind)
    if texts[0] is not None and texts[1] is not None:
        form, pair, missing = "text", (texts[0], texts[1]), 0
    elif texts[0] is None and texts[1] is None:
        form, pair, missing = _arrays(first, second, kind)
    else:
        raise InputError("one of members and nonmembers holds texts, the other numbers; pass the same kind of records.")
    for name, records in zip(("members", "nonmembers"), pair, strict=True):
        if len(records) == 0:
            raise InputError(f"{name} holds no record; pass at least one.")
    coded = None if own is None else _codes(own, other, len(pair[0]), len(pair[1]))
    return Records(form, pair[0], pair[1], coded, missing)


def _features_and_labels(name: str, value: Any) -> tuple[Any, Any]:
    if not isinstance(value, tuple):
        return value, None
    if len(value) != 2:
        raise InputError(f"{name} as a tuple must be (X, y), got {len(value)} parts; pass an array, a list or (X, y).")
    return value


def _mixed_lengths(value: Any) -> bool:
    """Is this a list of flat rows of whole numbers, not all of one length?"""
    rows = value if isinstance(value, list) else []
    if not all(isinstance(row, (list, tuple)) or getattr(row, "ndim", 0) == 1 for row in rows):
        return False
    if len({len(row) for row in rows}) < 2:
        return False
    kinds = (row.dtype.kind if isinstance(row, np.ndarray) else _kind_of(row) for row in rows)
    return all(kind in "iu" for kind in kinds)


def _kind_of(row: Any) -> str:
    return "i" if all(isinstance(token, (int, np.integer)) for token in row) else "O"


def _as_words(name: str, value: Any) -> list[str]:
    """Token numbers of each record as a text."""
    rows = [np.asarray(row) for row in value]
    if not all(row.ndim == 1 and row.dtype.kind in "iu" for row in rows):
        raise InputError(f"{name} holds no token numbers, but the other side does; pass the same kind of records.")
    return [" ".join(map(str, row.tolist())) for row in rows]


def _texts(name: str, value: Any, kind: str) -> list[str] | None:
    """The list of texts, or None when the records are not texts."""
    flat = isinstance(value, list) or getattr(value, "ndim", 0) == 1
    if isinstance(value, str) or (kind == "text" and not flat):
        raise InputError(
            f"{name} must be a list of texts, got {type(value).__name__}; pass one string for each record."
        )
    if kind not in ("auto", "text") or not flat or len(value) == 0:
        return [] if kind == "text" else None
    if kind == "auto" and not isinstance(next(iter(value)), str):
        return None
    check.check_length(name, value)
    items = list(value)
    bad = next((i for i, item in enumerate(items) if not isinstance(item, str)), None)
    if bad is not None:
        raise InputError(f"{name}[{bad}] is {check.show(items[bad])}, not a text; pass one string for each record.")
    return items


def _arrays(first: Any, second: Any, kind: str) -> tuple[str, tuple[Any, Any], int]:
    arrays = []
    for name, value in (("members", first), ("nonmembers", second)):
        check.check_length(name, value, rows=True)
        try:
            array = np.asarray(value)
        except (ValueError, TypeError, RuntimeError, MemoryError):
            raise InputError(
                f"{name} must be an array of records; its rows have mixed lengths, or it cannot be read as an array."
            ) from None
        if array.ndim == 0 or array.dtype.kind in "cV":
            raise InputError(
                f"{name} must be an array of records, got {check.show(value)}; pass one row for each record."
            )
        if len(array) == 0:
            raise InputError(f"{name} holds no record; pass at least one.")
        arrays.append(array[:, None] if array.ndim == 1 else array)
    a, b = arrays
    if a.shape[1:] != b.shape[1:]:
        raise InputError(
            f"members has records of shape {a.shape[1:]}, nonmembers of shape {b.shape[1:]}; they must be alike."
        )
    if 0 in a.shape[1:]:
        raise InputError(f"members has records of shape {a.shape[1:]}, which hold nothing; pass at least one feature.")
    form = kind if kind != "auto" else "tabular" if a.ndim == 2 else "image"
    if form == "image":
        pair = _images("members", a), _images("nonmembers", b)
    else:
        flat = a.reshape(len(a), -1), b.reshape(len(b), -1)
        numeric = all(x.dtype.kind in "biuf" for x in flat)
        pair = (_floats(flat[0]), _floats(flat[1])) if numeric else _encoded(*flat)
    missing = 0
    for name, side in zip(("members", "nonmembers"), pair, strict=True):
        if side.dtype.kind == "f":
            missing += _count_missing(name, side)
    return form, pair, missing


def _floats(array: npt.NDArray[Any]) -> FloatArray:
    return array.astype(np.float64, copy=False)


def _images(name: str, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """(n, h, w, c), whether the channels came last, first or not at all."""
    if array.dtype.kind not in "biuf":
        raise InputError(f"{name} must hold pixel values, got type {array.dtype}; convert the images to numbers.")
    if array.ndim == 3:
        return array[..., None]
    if array.ndim != 4:
        raise InputError(f"{name} must have shape (n, h, w) or (n, h, w, c) as images, got {array.shape}.")
    return np.moveaxis(array, 1, -1) if array.shape[1] in CHANNELS and array.shape[3] not in CHANNELS else array


def _count_missing(name: str, side: npt.NDArray[Any]) -> int:
    infinite = np.isinf(side)
    if infinite.any():
        index = ", ".join(str(int(i[0])) for i in np.nonzero(infinite))
        raise InputError(
            f"{name}[{index}] is infinite, and {int(infinite.sum())} of {side.size} values are; "
            "repair these records, or write NaN for a missing value."
        )
    return int(np.isnan(side).sum())


def _encoded(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> tuple[FloatArray, FloatArray]:
    """Columns that are not numbers as the ordinal of their category in the sorted union of both sides."""
    both = np.concatenate([a.astype(object), b.astype(object)])
    coded = np.empty(both.shape)
    for j in range(both.shape[1]):
        column = both[:, j]
        if _is_numeric(column):
            coded[:, j] = column.astype(np.float64)
        else:
            names = [None if _absent(v) else str(v) for v in column]
            place: dict[str | None, float] = {v: i for i, v in enumerate(sorted({v for v in names if v is not None}))}
            place[None] = np.nan
            coded[:, j] = [place[v] for v in names]
    return coded[: len(a)], coded[len(a) :]


def coded_like(known: Any, codes: FloatArray, others: Any) -> FloatArray:
    """Code `others` as `known` records were coded; words that those lack come after theirs, in alphabetical order.

    Columns of numbers stay what they are. Raises InputError for a word where the known records have numbers.
    """
    a, b = (np.asarray(side).astype(object).reshape(len(side), -1) for side in (known, others))
    names = list(getattr(others, "columns", range(b.shape[1])))
    coded = np.empty(b.shape)
    for j, name in enumerate(names):
        column = [np.nan if _absent(value) else value for value in b[:, j]]
        if _is_numeric(a[:, j]):
            word = next((value for value in column if not _is_numeric(np.array([value], object))), None)
            if word is not None:
                raise InputError(
                    f"nonmembers has {check.show(word)} in column {check.show(name)}, where the members have numbers; "
                    "pass numbers there."
                )
            coded[:, j] = np.array(column, object).astype(np.float64)
            continue
        place = {str(value): code for value, code in zip(a[:, j], codes[:, j].tolist(), strict=True)}
        first = 1 + max((code for code in place.values() if not math.isnan(code)), default=-1.0)
        strange = sorted({str(value) for value in column if not _absent(value)} - place.keys())
        place.update({word: first + i for i, word in enumerate(strange)})
        coded[:, j] = [np.nan if _absent(value) else place[str(value)] for value in column]
    return coded


def _is_numeric(column: npt.NDArray[Any]) -> bool:
    try:
        column.astype(np.float64)
    except (ValueError, TypeError):
        return False
    return True


def _absent(value: Any) -> bool:
    return value is None or (not isinstance(value, str) and str(value) in ("nan", "<NA>", "NaT"))


def _codes(own: Any, other: Any, members: int, nonmembers: int) -> tuple[IntArray, IntArray]:
    sides = []
    for name, values, size in (("members", own, members), ("nonmembers", other, nonmembers)):
        try:
            array = np.asarray(values)
        except (ValueError, TypeError, RuntimeError):
            raise InputError(f"the labels of {name} have mixed lengths; pass one label for each record.") from None
        if array.ndim == 2 and array.shape[1] == 1:
            array = array[:, 0]
        if array.shape != (size,):
            raise InputError(
                f"the labels of {name} have shape {array.shape}, but there are {size} records; pass one label for each."
            )
        sides.append(array)
    if all(side.dtype.kind in "biuf" for side in sides):
        both = np.concatenate(sides).astype(np.float64)
        distinct = np.unique(both)
        finite = distinct[np.isfinite(distinct)]
        if finite.size > CONTINUOUS and (finite != np.floor(finite)).any():
            inner = np.quantile(both[np.isfinite(both)], np.arange(1, 10) / 10)
            both = np.where(np.isfinite(both), np.searchsorted(inner, both), both)
    else:
        both = np.array([str(v) for side in sides for v in side.tolist()])
    codes = np.unique(both, return_inverse=True)[1].astype(np.int64)
    return codes[:members], codes[members:]


def record_hashes(records: Any, *, as_bytes: bool = False) -> UintArray:
    """64 bits for each record, equal for equal records; white space in texts and the sign of zero do not count.

    `as_bytes` is faster, for records that are all of type uint8.
    """
    if isinstance(records, list):
        return np.array([digest(" ".join(text.split())) for text in records], np.uint64)
    step = max(1, BLOCK // records[0].size)
    return np.concatenate([_row_hashes(records[i : i + step], as_bytes) for i in range(0, len(records), step)])


def _row_hashes(records: npt.NDArray[Any], as_bytes: bool) -> UintArray:
    rows = records.reshape(len(records), -1)
    if as_bytes:
        wide = np.zeros((len(rows), -(-rows.shape[1] // 8) * 8), np.uint8)
        wide[:, : rows.shape[1]] = rows
        words = wide.view(np.uint64)
    else:
        values = rows.astype(np.float64)
        values += 0.0  # -0.0 is 0.0
        values[np.isnan(values)] = np.nan
        words = values.view(np.uint64)
    salt = mix(np.arange(1, words.shape[1] + 1, dtype=np.uint64))
    return mix(mix(words ^ salt).sum(axis=1, dtype=np.uint64))


def mix(words: UintArray) -> UintArray:
    """A bijection of 64-bit words in which every input bit moves about half of the output bits."""
    out = words ^ (words >> np.uint64(30))
    out *= np.uint64(0xBF58476D1CE4E5B9)
    out ^= out >> np.uint64(27)
    out *= np.uint64(0x94D049BB133111EB)
    out ^= out >> np.uint64(31)
    return out


def digest(text: str) -> int:
    """64 bits of a text, the same in every process."""
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


WORD = r"\w+"
_WORD = re.compile(WORD)


class HashedWords(NamedTuple):
    """The hashes of all words of all texts in order, and how many words each text has."""

    hashes: UintArray
    counts: IntArray


class _Vocabulary(dict[str, int]):
    def __missing__(self, word: str) -> int:
        return self.setdefault(word, len(self))


def word_hashes(texts: list[str]) -> HashedWords:
    """The lower-case words of texts, as hashes."""
    vocabulary = _Vocabulary()
    ids = array.array("q")
    counts = np.zeros(len(texts), np.int64)
    for row, text in enumerate(texts):
        words = _WORD.findall(text[:TEXT_CHARACTERS].lower())
        counts[row] = len(words)
        ids.extend(map(vocabulary.__getitem__, words))
    hashes = np.array([digest(word) for word in vocabulary], np.uint64)
    return HashedWords(hashes[np.array(ids, np.int64)] if ids else hashes, counts)


def thumbnails(images: npt.NDArray[Any]) -> FloatArray:
    """Rows of at most THUMBNAIL x THUMBNAIL block means for each channel, then each channel's mean and deviation."""
    step = max(1, BLOCK // images[0].size)
    return np.concatenate([_thumbnails(images[i : i + step]) for i in range(0, len(images), step)])


def _thumbnails(images: npt.NDArray[Any]) -> FloatArray:
    flat = images.reshape(len(images), -1, images.shape[-1]).astype(np.float64)
    out: Any = images
    for axis in (1, 2):
        size = out.shape[axis]
        edges = np.linspace(0, size, min(THUMBNAIL, size) + 1).astype(np.int64)
        out = np.add.reduceat(out, edges[:-1], axis=axis, dtype=np.float64)
        out /= np.diff(edges).reshape([-1 if k == axis else 1 for k in range(4)])
    return np.concatenate([out.reshape(len(out), -1), flat.mean(axis=1), flat.std(axis=1)], axis=1)


def standardised(rows: FloatArray) -> FloatArray:
    """Columns with mean 0 and standard deviation 1; a missing value becomes the mean, a constant column 0."""
    absent = np.isnan(rows)
    present = np.maximum(len(rows) - absent.sum(axis=0), 1)
    values = np.where(absent, 0.0, rows)
    scale = np.maximum(values.max(axis=0), -values.min(axis=0))
    values /= np.where(scale > 0, scale, 1.0)
    values -= values.sum(axis=0) / present
    values[absent] = 0.0
    spread = np.sqrt(np.einsum("ij,ij->j", values, values) / present)
    values /= np.where(spread > 1e-12, spread, np.inf)
    return values
