"""What a generator is: it learns from members and then samples non-members of the same form; and the default one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from dosimeter import _validate as check
from dosimeter._validate import InputError, show
from dosimeter.engine import Store
from dosimeter.records import kind_of, parted


@runtime_checkable
class Fitted(Protocol):
    """Sample new records: what `Generator.fit` returns."""

    def sample(self, count: int, *, seed: int) -> Any:
        """Sample new records.

        Args:
            count: How many.
            seed: Decides which; the same seed gives the same records.

        Returns:
            Records in the form of the members: X, or (X, y) if the members came with labels.
        """


@runtime_checkable
class Generator(Protocol):
    """Describe how synthetic records are made; any object with these members is a generator."""

    @property
    def name(self) -> str:
        """What the page calls it."""

    @property
    def minimum(self) -> int:
        """The fewest members that it can be fitted to."""

    def fit(self, members: Any, *, seed: int) -> Fitted:
        """Learn the distribution of the members.

        Args:
            members: X or (X, y): a table, images or texts.
            seed: Decides every random choice of the training.

        Returns:
            What samples new records.
        """


class Choice(NamedTuple):
    """Hold what `choose` found: a generator, the kind of the records and why it was chosen.

    Args:
        generator: The generator, not fitted yet.
        kind: "tabular", "image" or "text".
        reason: Why it was chosen, in one sentence.
    """

    generator: Generator
    kind: str
    reason: str


class Members(NamedTuple):
    """Hold records that were read and checked.

    Args:
        X: The records as they came.
        y: Their labels as an array; None if there are none.
        size: The number of records.
        kind: "tabular", "image" or "text".
    """

    X: Any
    y: Any
    size: int
    kind: str


def read_members(members: Any, *, name: str = "members") -> Members:
    """Read records and find out of which kind they are.

    Args:
        members: X or (X, y): a table (n, d) or named columns, images (n, h, w[, c]), or a list of texts.
        name: What messages call them.

    Returns:
        The records, their labels, their number and their kind.

    Raises:
        InputError: If they are of no kind that generators know, empty, or have labels of another length.

    >>> read_members((np.zeros((5, 2)), np.arange(5))).kind
    'tabular'
    """
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
    """Read members; refuse another kind, or too few."""
    records = read_members(members)
    if records.kind != kind:
        raise InputError(
            f"{caller} needs {_PLURAL[kind]}, got {_PLURAL[records.kind]} as members; use choose(members)."
        )
    if records.size < minimum:
        raise InputError(f"{caller} needs at least {minimum} members, got {records.size}; pass more.")
    return records


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


NOMINAL_SHARE = 1 / 3  # bench/generators.py: where the tree is harder to tell from real records than the copula


NAMES = ("auto", "flow")


def choose(members: Any, name: str = "auto", *, store: Store | None = None) -> Choice:
    """Choose the default generator for these members, or the one of this name.

    Args:
        members: X or (X, y): a table, images or texts.
        name: "auto" for the default, or "flow" for `FlowMatching`.
        store: Where a generator with a long training keeps it.

    Returns:
        A `TreeModel` for a table with many unordered columns, else a `GaussianCopula`; a `SmoothedBootstrap` for
        images; an `NGram` for texts. Also the kind of the members, and the reason.

    Raises:
        InputError: If the members are of no kind that generators know, or the name is not known.

    >>> choose(["a text", "another text"]).generator.name
    'n-gram with Kneser–Ney smoothing'
    """
    from dosimeter.generators.smoothed import SmoothedBootstrap  # generators stand on this file
    from dosimeter.generators.text import NGram

    records = read_members(members)
    if check.choice("generator", name, NAMES) == "flow":
        from dosimeter.generators.flow import FlowMatching

        return Choice(FlowMatching(store=store), records.kind, "it was asked for by name")
    if records.kind == "tabular":
        return Choice(*_tabular(records))
    if records.kind == "image":  # bench/README.md: flow matching keeps farther from members and is told more easily
        reason = "members is an array of images: shaken members keep the contrast of small images and need no torch"
        return Choice(SmoothedBootstrap(), "image", reason)
    reason = "members is a list of texts: an n-gram model with back-off needs no torch"
    return Choice(NGram(), "text", reason)


def _tabular(records: Members) -> tuple[Generator, str, str]:
    """A tree where many columns have three or more unordered values, which a copula must put in an order."""
    from dosimeter.generators.table import read_table
    from dosimeter.generators.tabular import GaussianCopula
    from dosimeter.generators.tree import TreeModel

    columns = read_table(records.X, records.y).columns
    nominal = sum(column.levels is not None and len(column.levels) > 2 for column in columns)
    seen = f"members is a table and {nominal} of its {len(columns)} variables have three or more unordered values"
    tree = TreeModel()
    if records.size >= tree.minimum and nominal >= NOMINAL_SHARE * len(columns):
        return tree, "tabular", f"{seen}: a tree of columns keeps every two-way table along its edges"
    return (
        GaussianCopula(),
        "tabular",
        f"{seen}: a Gaussian copula keeps every column's distribution and is the fastest",
    )
