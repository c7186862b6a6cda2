"""What a generator is: it is fitted to members and then samples synthetic non-members of the same form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from dosimeter import _validate as check
from dosimeter._validate import InputError, show
from dosimeter.records import kind_of, parted


@runtime_checkable
class Fitted(Protocol):
    """A generator that has seen its members."""

    def sample(self, count: int, *, seed: int) -> Any:
        """`count` records in the form of the members: X, or (X, y) when the members came with labels."""


@runtime_checkable
class Generator(Protocol):
    """A recipe for synthetic records; `minimum` is the fewest members it can be fitted to."""

    @property
    def name(self) -> str: ...

    @property
    def minimum(self) -> int: ...

    def fit(self, members: Any, *, seed: int) -> Fitted:
        """Learn the members' distribution; `members` is X or (X, y)."""


class Choice(NamedTuple):
    """A generator, the kind of the records (tabular, image or text) and why it was chosen."""

    generator: Generator
    kind: str
    reason: str


class Members(NamedTuple):
    """Records and labels (None when there are none), the number of records and their kind."""

    X: Any
    y: Any
    size: int
    kind: str


def read_members(members: Any, *, name: str = "members") -> Members:
    """Records and labels of X or (X, y), with the kind that they are."""
    X, y = parted(name, members)
    kind = kind_of(X, name=name)
    count = _count(X, name)
    if count == 0:
        raise InputError(f"{name} holds no record; pass at least one.")
    if y is not None:
        y = np.asarray(y)
        if y.shape != (count,):
            raise InputError(
                f"the labels of {name} have shape {y.shape}, but there are {count} records; pass one label for each."
            )
    return Members(X, y, count, kind)


def _count(X: Any, name: str) -> int:
    if isinstance(X, Mapping):
        flat = next((key for key, column in X.items() if not hasattr(column, "__len__")), None)
        if flat is not None:
            raise InputError(f"column {show(flat)} of {name} is {show(X[flat])}; pass one value for each record.")
        lengths = {str(key): len(column) for key, column in X.items()}
        if len(set(lengths.values())) > 1:
            raise InputError(
                f"the columns of {name} have different lengths, {show(lengths)}; pass equally many values."
            )
        return next(iter(lengths.values()), 0)
    rows = getattr(X, "num_rows", None)
    return len(X) if rows is None else int(rows)


def require_members(members: Any, *, kind: str, minimum: int, caller: str) -> Members:
    """The members, refused when they are of another kind or too few."""
    found = read_members(members)
    if found.kind != kind:
        raise InputError(f"{caller} needs {_PLURAL[kind]}, got {_PLURAL[found.kind]} as members; use choose(members).")
    if found.size < minimum:
        raise InputError(f"{caller} needs at least {minimum} members, got {found.size}; pass more.")
    return found


_PLURAL = {"tabular": "tables", "image": "images", "text": "texts"}


def check_count(count: Any) -> int:
    """How many records to sample."""
    return check.whole("count", count, 1, "pass how many records to generate")


def streams(seed: Any, parts: int) -> list[np.random.Generator]:
    """Independent random generators from one seed."""
    return [np.random.default_rng(child) for child in np.random.SeedSequence(check.seed(seed)).spawn(parts)]


def joined(X: Any, y: Any) -> Any:
    """X alone, or the pair when there are labels."""
    return X if y is None else (X, y)
