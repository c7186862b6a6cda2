"""The canary sheet: texts, fair coins and their hash, written before a fine-tuning and read after it.

A canary is a prefix from the user's own kind of text and a secret drawn uniformly from a fixed list of words, so that
other secrets of the same kind can be drawn to compare with. A coin decides for each canary, or for each person, whether
it is in; the coins come from a stream of their own. The hash of the sheet covers texts and coins.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from dosimeter import _validate as check
from dosimeter._files import naming
from dosimeter._persons import persons
from dosimeter._validate import BoolArray, InputError, IntArray
from dosimeter.audits.text.words import draw_secrets, prefixes, read_texts, word_list
from dosimeter.evidence import fair_coins, fresh_seed, mask_hash
from dosimeter.reading import read_text, strict_json

__all__ = ["KINDS", "Canary", "CanarySheet", "canary_sheet"]

KINDS = ("suffix", "random", "names", "records")
DEFAULT_COUNT = 1000
FORMAT = 1
MOST_COPIES = 1000


@dataclass(frozen=True)
class Canary:
    """One text of a sheet: what leads to the secret, the secret, and the token numbers of both where they are known.

    The audit scores the secret alone. A record of the user's own has no prefix: all of it is scored.
    """

    prefix: str
    secret: str
    included: bool
    ids: tuple[int, ...] = ()
    group: str | None = None

    @property
    def text(self) -> str:
        """The whole text, as it goes into the training."""
        return self.prefix + self.secret


@dataclass(frozen=True)
class CanarySheet:
    """Hold the canaries of one fine-tuning, with their coins.

    Make it with `canary_sheet` before training, keep it with `save`, and read it with `load`, which checks the hash.

    Args:
        canaries: The texts and their coins.
        kind: How they were made.
        copies: How often each canary that is in goes into the training set.
        seed: Decided the texts.
        coin_seed: Decided the coins.
        words: The list that secrets were drawn from; empty for records.
        length: How many words of the list make a secret.

    Raises:
        InputError: If there is no canary, a text stands twice, or the coins are not those of the seed.

    >>> sheet = canary_sheet(20, kind="names", like=[f"letter {n} says that" for n in range(40)], prefix=3, seed=1)
    >>> CanarySheet.load(sheet.save("canaries.jsonl")) == sheet
    True
    """

    canaries: tuple[Canary, ...] = field(repr=False)
    kind: str
    copies: int
    seed: int
    coin_seed: int
    words: tuple[str, ...] = field(default=(), repr=False)
    length: int = 0

    def __post_init__(self) -> None:
        if not self.canaries:
            raise InputError("a sheet needs at least one canary; make it with canary_sheet.")
        check.choice("kind", self.kind, KINDS)
        check.whole("copies", self.copies, 1, "pass how often each canary is trained on", MOST_COPIES)
        seen: dict[str, int] = {}
        for index, canary in enumerate(self.canaries):
            if not canary.secret.strip():
                raise InputError(f"canary {index} is empty; remove it.")
            first = seen.setdefault(canary.text, index)
            if first != index and not (canary.group is not None and canary.group == self.canaries[first].group):
                raise InputError(
                    f"texts {first} and {index} are the same, so their coins are not independent; remove one of them."
                )
        drawn = fair_coins(len(self.canaries), self.coin_seed, groups=self.groups)
        if not np.array_equal(drawn, self.included):
            raise InputError("the coins of the sheet are not those that its seed draws; use the sheet as it was made.")

    def __len__(self) -> int:
        return len(self.canaries)

    def __iter__(self) -> Iterator[Canary]:
        return iter(self.canaries)

    @cached_property
    def included(self) -> BoolArray:
        """The coin of each canary: True for those that are in."""
        return np.array([canary.included for canary in self.canaries])

    @cached_property
    def groups(self) -> tuple[str, ...] | None:
        """The person behind each canary; None if each canary has a coin of its own."""
        names = tuple(canary.group for canary in self.canaries)
        known = tuple(name for name in names if name is not None)
        if known and len(known) < len(names):
            raise InputError("some canaries of the sheet have a person and some have none; name one for each.")
        return known or None

    @property
    def unit(self) -> str:
        """What one coin decides about: a record, a person, or a group of copies."""
        if self.groups is not None:
            return "person"
        return "record" if self.copies == 1 else f"{self.copies}-record group"

    @property
    def mask_hash(self) -> str:
        """The hash of the coins, one for each record or person: to be written down before training."""
        if self.groups is None:
            return mask_hash(self.included)
        people = persons("groups", self.groups, len(self))
        coins = np.zeros(people.names.size, bool)
        coins[people.place] = self.included
        return mask_hash(coins)

    @cached_property
    def hash(self) -> str:
        """The hash of the whole sheet: texts, token numbers and coins."""
        return hashlib.sha256("\n".join(self._lines()).encode("utf-8", "surrogatepass")).hexdigest()

    def training_texts(self, rest: Sequence[str] = ()) -> list[str]:
        """Give the texts to train on: those of `rest`, then every canary that is in, as often as `copies` says.

        Texts of `rest` that stand in the sheet are left out there: the coins alone decide about them.
        """
        known = {canary.text for canary in self.canaries}
        kept = [text for text in rest if text not in known]
        return [*kept, *(canary.text for canary in self.canaries if canary.included for _ in range(self.copies))]

    def again(self, seed: int | None = None) -> CanarySheet:
        """Draw new coins for the same texts, for a reference fine-tune that tells nothing about these ones."""
        coin_seed = fresh_seed() if seed is None else check.seed(seed)
        if coin_seed == self.coin_seed:
            raise InputError(f"seed={coin_seed} draws the coins of this sheet again; pass another one.")
        coins = fair_coins(len(self), coin_seed, groups=self.groups)
        made = tuple(replace(c, included=bool(coin)) for c, coin in zip(self.canaries, coins, strict=True))
        return replace(self, canaries=made, coin_seed=coin_seed)

    def other_secrets(self, count: int, rng: np.random.Generator) -> list[str]:
        """Draw secrets as those of the canaries were drawn."""
        if not self.words:
            raise InputError("records have no list of words that other secrets could be drawn from.")
        return draw_secrets(self.words, self.length, count, rng)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the sheet as JSON lines, the hash last; only its owner may read it, for it says who is in."""
        target = Path(path)
        with naming(target):
            target.touch(mode=0o600)
            target.write_text("\n".join([*self._lines(), json.dumps({"hash": self.hash})]) + "\n", encoding="utf-8")
        return target

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> CanarySheet:
        """Read a sheet that `save` wrote.

        Raises:
            InputError: If it is not a sheet, or its hash does not match.
        """
        lines = [line for line in read_text(path).split("\n") if line.strip()]
        rows = [strict_json(line, what=f"line {number} of {path}") for number, line in enumerate(lines, start=1)]
        if len(rows) < 3 or not isinstance(rows[0], dict) or rows[0].get("dosimeter_canaries") != FORMAT:
            raise InputError(f"{path} is not a canary sheet of this version; make it with `dosimeter canaries`.")
        head = check.fields(
            str(path), rows[0], ("dosimeter_canaries", "kind", "copies", "seed", "coin_seed"), _OPTIONAL
        )
        stated = rows[-1].get("hash") if isinstance(rows[-1], dict) else None
        actual = hashlib.sha256("\n".join(lines[:-1]).encode("utf-8", "surrogatepass")).hexdigest()
        if stated != actual:
            raise InputError(
                f"{path} was changed: its hash is {actual[:16]}…, it states {check.show(stated)}; use the sheet "
                "as it was made."
            )
        return cls(
            canaries=tuple(_canary(row, f"{path}, canary {index}") for index, row in enumerate(rows[1:-1])),
            kind=check.text("kind", head["kind"]),
            copies=check.whole("copies", head["copies"], 1, "write a number"),
            seed=check.seed(head["seed"]),
            coin_seed=check.seed(head["coin_seed"]),
            words=check.texts("words", head.get("words", ())),
            length=check.whole("length", head.get("length", 0), 0, "write a number"),
        )

    def _lines(self) -> list[str]:
        head: dict[str, object] = {
            "dosimeter_canaries": FORMAT,
            "kind": self.kind,
            "copies": self.copies,
            "seed": self.seed,
            "coin_seed": self.coin_seed,
            "mask_hash": self.mask_hash,
            "length": self.length,
            "words": list(self.words),
        }
        rows = (
            {"prefix": c.prefix, "secret": c.secret, "included": c.included}
            | ({"ids": list(c.ids)} if c.ids else {})
            | ({} if c.group is None else {"group": c.group})
            for c in self.canaries
        )
        return [json.dumps(row) for row in (head, *rows)]


_OPTIONAL = ("mask_hash", "length", "words")


def _canary(row: Any, what: str) -> Canary:
    fields = check.fields(what, row, ("prefix", "secret", "included"), ("ids", "group"))
    if not isinstance(fields["prefix"], str) or not isinstance(fields["secret"], str):
        raise InputError(f"{what}: prefix and secret must be texts; use the sheet as it was made.")
    ids = tuple(check.whole("ids", value, 0, "write token numbers") for value in fields.get("ids", ()))
    group = fields.get("group")
    return Canary(
        fields["prefix"],
        fields["secret"],
        check.flag("included", fields["included"]),
        ids,
        None if group is None else check.text("group", group),
    )


def canary_sheet(
    count: int | None = None,
    *,
    like: Any = None,
    tokenizer: Any = None,
    kind: str = "suffix",
    length: int = 12,
    prefix: int | None = None,
    copies: int = 1,
    groups: Any = None,
    seed: int | None = None,
) -> CanarySheet:
    """Make the texts and the coins for an audit of a fine-tuning, before it is run.

    The more canaries there are, the more can be proven: `dosimeter plan --canaries 200` says what fewer can show. Put
    `sheet.training_texts(your_texts)` into the training, and keep the sheet with `sheet.save(path)`.

    Args:
        count: How many canaries; None for 1000, or for all records.
        like: Texts of the kind that the training has, for the prefixes; with kind="records" the records themselves.
        tokenizer: The tokenizer of the model. Secrets are then words of its vocabulary, and token numbers are kept.
        kind: "suffix": a prefix of `like` and then words at random, which nothing predicts. "random": words at random
            alone. "names": a prefix and then invented names. "records": your own texts as they are, no canaries.
        length: How many tokens a secret has, 8 to 25; a name counts as three.
        prefix: How many words of a text lead to the secret; None for 24, or for fewer where the texts are short.
        copies: How often each canary that is in is trained on. With k copies the audit is about groups of k records,
            and says so.
        groups: The person behind each canary, or behind each record: all texts of a person share one coin.
        seed: Decides texts and coins. None draws a fresh one, which the sheet keeps.

    Returns:
        The sheet.

    Raises:
        InputError: If an argument cannot be used, e.g. too few texts for so many prefixes.

    >>> sheet = canary_sheet(20, kind="names", like=[f"letter {n} says that" for n in range(40)], prefix=3, seed=1)
    >>> len(sheet), len(sheet.training_texts()) == int(sheet.included.sum())
    (20, True)
    """
    check.choice("kind", kind, KINDS)
    copies = check.whole("copies", copies, 1, "pass how often each canary is trained on, e.g. 1", MOST_COPIES)
    wanted = None if count is None else check.whole("count", count, 2, "pass the number of canaries, e.g. 1000")
    size = check.whole("length", length, 8, "pass 8 to 25 tokens", 25)
    seed = fresh_seed() if seed is None else check.seed(seed)
    texts, coins = (int(child.generate_state(1)[0]) for child in np.random.SeedSequence(seed).spawn(2))
    rng = np.random.default_rng(texts)
    given = None if like is None else read_texts("like", like)
    if kind == "records":
        made, ids = _records(given, wanted, groups, rng)
        words: tuple[str, ...] = ()
        number = 0
    else:
        wanted = DEFAULT_COUNT if wanted is None else wanted
        words = word_list(kind, given, tokenizer, size, rng)
        number = max(2, size // 3) if kind == "names" else size
        leads = [""] * wanted if kind == "random" else prefixes(given, wanted, prefix, rng)
        made = list(zip(leads, draw_secrets(words, number, wanted, rng, apart=True), strict=True))
        ids = None if groups is None else np.array(groups, dtype=object)
    if kind == "random":
        made = [("", secret.lstrip()) for _, secret in made]
    names = None if ids is None else persons("groups", ids, len(made))
    drawn = fair_coins(len(made), coins, groups=None if names is None else names.names[names.place])
    if drawn.all() or not drawn.any():
        raise InputError(f"all {len(made)} coins came up the same; make more canaries.")
    canaries = tuple(
        Canary(
            lead,
            secret,
            bool(coin),
            group=None if names is None else str(names.names[names.place[index]]),
        )
        for index, ((lead, secret), coin) in enumerate(zip(made, drawn, strict=True))
    )
    sheet = CanarySheet(canaries, kind, copies, seed, coins, words, number)
    return sheet if tokenizer is None else with_ids(sheet, tokenizer)


def _records(
    given: list[str] | None, wanted: int | None, groups: Any, rng: np.random.Generator
) -> tuple[list[tuple[str, str]], Any]:
    """The user's own texts, or some of them at random; of a person all or none."""
    if given is None:
        raise InputError("kind='records' needs your texts; pass them as like=.")
    people = None if groups is None else persons("groups", groups, len(given))
    units = len(given) if people is None else people.names.size
    wanted = units if wanted is None else wanted
    if wanted > units:
        raise InputError(
            f"count={wanted}, but like has {units} {'texts' if people is None else 'persons'}; ask for fewer."
        )
    chosen = np.sort(rng.choice(units, wanted, replace=False))
    rows: IntArray = chosen if people is None else np.flatnonzero(np.isin(people.place, chosen))
    if people is None:
        _check_repeated(given, rows)
    made = [("", given[row]) for row in rows]
    return made, None if people is None else people.names[people.place[rows]]


def _check_repeated(texts: list[str], rows: IntArray) -> None:
    """Refuse texts that stand twice, and say how many there are: one after the other would be tiresome to find."""
    first: dict[str, int] = {}
    pairs = [(first[texts[row]], int(row)) for row in rows if first.setdefault(texts[row], int(row)) != row]
    if pairs:
        raise InputError(
            f"{len(pairs)} texts of like repeat an earlier one: texts {pairs[0][0]} and {pairs[0][1]} are the same, so "
            "their coins are not independent; keep one of each, e.g. list(dict.fromkeys(texts))."
        )


def with_ids(sheet: CanarySheet, tokenizer: Any) -> CanarySheet:
    """The sheet with the token numbers of every text."""
    from dosimeter.audits.text.encoding import plain_ids

    ids = plain_ids(tokenizer, [canary.text for canary in sheet.canaries])
    made = tuple(replace(c, ids=tuple(row)) for c, row in zip(sheet.canaries, ids, strict=True))
    return replace(sheet, canaries=made)
