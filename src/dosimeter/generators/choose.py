"""The default generator for each kind of members."""

from __future__ import annotations

from typing import Any

from dosimeter import _validate as check
from dosimeter.engine import Store
from dosimeter.generators.protocol import Choice, Generator, Members, read_members
from dosimeter.generators.smoothed import SmoothedBootstrap
from dosimeter.generators.table import read_table
from dosimeter.generators.tabular import GaussianCopula
from dosimeter.generators.text import NGram
from dosimeter.generators.tree import TreeModel

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
