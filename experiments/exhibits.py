"""Every table and figure of a paper, in its order: what it shows, our run, its printed numbers beside ours, a verdict.

`exhibits.toml` of a paper holds the texts and the printed numbers; `PARTS` of its run.py computes ours. The verdict is
taken from both and compared with the one that the file states: a run that comes out differently is seen.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from .shared import plain

SIZES = ("mini", "quick", "full")


class NotRunError(Exception):
    """What a part shows has not been computed at this size yet; the text says so."""


class Verdict(StrEnum):
    """What a run says about a table or figure of a paper."""

    AGREES = "agrees"
    DIRECTION = "agrees in direction"
    DIFFERS = "differs"
    STAND_IN = "stand-in"
    NOT_POSSIBLE = "not possible here"
    BEYOND = "beyond the paper"


@dataclass(frozen=True)
class PrintedNumber:
    """A number that the paper prints, or a closed form of it, and how far ours may lie from it."""

    name: str
    label: str
    value: float
    within: float
    """The uncertainty of the print (half a unit of its last digit, its standard deviation) and of our own count."""
    note: str = ""
    sizes: tuple[str, ...] = SIZES

    def holds(self, ours: float) -> bool:
        """Whether ours agrees with the print."""
        return ours == self.value or abs(ours - self.value) <= self.within

    @property
    def shown(self) -> str:
        """The print, with the most that ours may differ."""
        if math.isinf(self.value):
            return "∞"
        return f"{self.value:g}" + (f" ± {self.within:g}" if self.within else "")


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper that a run can contradict; ours is 1 where it holds and 0 where it does not."""

    name: str
    label: str
    note: str = ""
    sizes: tuple[str, ...] = SIZES

    def holds(self, ours: float) -> bool:
        """Whether our run supports the sentence."""
        return ours == 1.0

    @property
    def shown(self) -> str:
        """The sentence has no number."""
        return "yes"


@dataclass(frozen=True)
class Found:
    """What one part of an experiment has computed."""

    numbers: dict[str, float]
    tables: dict[str, str] = field(default_factory=dict)
    """Markdown by title."""
    figures: dict[str, tuple[str, dict[str, Any]]] = field(default_factory=dict)
    """Caption and Vega-Lite specification by file name."""


@dataclass(frozen=True)
class Exhibit:
    """One table or figure of a paper, or a part of it that has a verdict of its own."""

    number: str
    part: str
    """The key of PARTS that computes it."""
    title: str
    shows: str
    run: str
    stated: Verdict
    why: str
    numbers: tuple[PrintedNumber, ...]
    claims: tuple[Claim, ...]
    tables: tuple[str, ...]
    figures: tuple[str, ...]
    stand_in: bool = False
    """Whether the data or the model are not those of the paper; so also where a claim does not hold on them."""
    beyond: bool = False
    """Whether the paper has no counterpart; so also where one of our own claims does not hold."""

    @property
    def rows(self) -> tuple[PrintedNumber | Claim, ...]:
        """Everything that a run is compared with."""
        return (*self.numbers, *self.claims)

    def asked(self, size: str) -> list[str]:
        """The names of what a run of this size computes."""
        return [row.name for row in self.rows if size in row.sizes]

    def verdict(self, ours: Mapping[str, float]) -> Verdict | None:
        """What our numbers say; None where some are missing. What cannot be run, or not on the same data, stays so."""
        if self.stated is Verdict.NOT_POSSIBLE:
            return self.stated
        if any(row.name not in ours for row in self.rows if SIZES[-1] in row.sizes):
            return None
        right = {row.name: row.holds(ours[row.name]) for row in self.rows if row.name in ours}
        claimed = [right[claim.name] for claim in self.claims if claim.name in right]
        if self.stand_in:
            return Verdict.STAND_IN if all(claimed) else Verdict.DIFFERS
        if self.beyond:
            return Verdict.BEYOND if all(right.values()) else Verdict.DIFFERS
        if all(right.values()):
            return Verdict.AGREES
        return Verdict.DIRECTION if claimed and all(claimed) else Verdict.DIFFERS


def read(folder: Path) -> tuple[Exhibit, ...]:
    """The exhibits of a paper, checked; none where it has no such file."""
    file = folder / "exhibits.toml"
    if not file.exists():
        return ()
    found = tuple(_exhibit(folder.name, entry) for entry in tomllib.loads(file.read_text(encoding="utf-8"))["exhibit"])
    numbers = [exhibit.number for exhibit in found]
    names = [row.name for exhibit in found for row in exhibit.rows]
    for kind, values in (("exhibit", numbers), ("row", names)):
        twice = {value for value in values if values.count(value) > 1}
        if twice:
            raise SystemExit(f"{folder.name}: exhibits.toml has the {kind} {sorted(twice)[0]} twice")
    return found


def _sized(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "sizes": tuple(row.get("sizes", SIZES))}


def _exhibit(paper: str, entry: dict[str, Any]) -> Exhibit:
    try:
        stated = Verdict(entry["verdict"])
        exhibit = Exhibit(
            number=entry["number"],
            part=entry.get("part", ""),
            title=entry["title"],
            shows=entry["shows"],
            run=entry.get("run", ""),
            stated=stated,
            why=entry.get("why", ""),
            numbers=tuple(PrintedNumber(**_sized(row)) for row in entry.get("printed", ())),
            claims=tuple(Claim(**_sized(row)) for row in entry.get("claims", ())),
            tables=tuple(entry.get("tables", ())),
            figures=tuple(entry.get("figures", ())),
            stand_in=stated is Verdict.STAND_IN or bool(entry.get("stand_in", False)),
            beyond=stated is Verdict.BEYOND or bool(entry.get("beyond", False)),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise SystemExit(f"{paper}: exhibits.toml, {entry.get('number', entry)}: {error}") from None
    if stated not in (Verdict.AGREES, Verdict.DIRECTION) and not exhibit.why:
        raise SystemExit(f"{paper}: exhibits.toml, {exhibit.number}: the verdict '{stated}' needs a reason (why)")
    if stated is not Verdict.NOT_POSSIBLE and not (exhibit.rows and exhibit.run and exhibit.part):
        raise SystemExit(f"{paper}: exhibits.toml, {exhibit.number}: give its part, its setting (run) and a row")
    if not all(set(row.sizes) <= set(SIZES) for row in exhibit.rows):
        raise SystemExit(f"{paper}: exhibits.toml, {exhibit.number}: sizes are {', '.join(SIZES)}")
    return exhibit


def summary(papers: Mapping[str, Sequence[Verdict | None]]) -> str:
    """One row for each paper: how many of its tables and figures have which verdict."""
    lines = [f"| paper | {' | '.join(Verdict)} | not run |", f"|---|{'---|' * (len(Verdict) + 1)}"]
    for title, verdicts in papers.items():
        counts = [sum(v is verdict for v in verdicts) for verdict in (*Verdict, None)]
        lines.append(f"| {plain(title)} | {' | '.join(str(count or '') for count in counts)} |")
    return "\n".join(lines)


def section(
    exhibit: Exhibit,
    kept: Mapping[str, Mapping[str, Any]],
    tables: Mapping[str, Mapping[str, Any]],
    pictures: Mapping[str, Mapping[str, Any]],
    place: str,
) -> list[str]:
    """The lines of one exhibit on the page."""
    ours = {name: entry["value"] for name, entry in kept.items() if "value" in entry}
    verdict = exhibit.verdict(ours)
    head = f"{exhibit.number}: {exhibit.title}"
    if exhibit.stand_in:
        head += " (stand-in)"
    lines = [f"\n### {plain(head)}\n", f"*The paper:* {plain(exhibit.shows)}\n"]
    if exhibit.run:
        lines.append(f"*Our run:* {plain(exhibit.run)}\n")
    lines.append(f"**Verdict: {_in_words(exhibit, verdict)}**")
    if exhibit.rows:
        lines += ["", "| | paper | ours | | size |", "|---|---|---|---|---|"]
        lines += [_row(exhibit, row, kept.get(row.name, {})) for row in exhibit.rows]
    for title in exhibit.tables:
        if title in tables:
            lines += [f"\n{tables[title]['text'].strip()}\n", f"{plain(title)} (size: {tables[title]['size']})"]
    for name in exhibit.figures:
        if name in pictures:
            alt = plain(f"{exhibit.number} of the paper, our run")
            lines += [
                f"\n![{alt}]({place}/{name})\n",
                f"{plain(pictures[name]['text'])} (size: {pictures[name]['size']})",
            ]
    return lines


def _in_words(exhibit: Exhibit, verdict: Verdict | None) -> str:
    if verdict is None:
        return "not run yet"
    words = str(verdict)
    if verdict is not exhibit.stated:
        return f"{words}; expected was: {exhibit.stated}"
    return f"{words} ({plain(exhibit.why)})" if exhibit.why else words


def _row(exhibit: Exhibit, row: PrintedNumber | Claim, entry: Mapping[str, Any]) -> str:
    size, beyond = entry.get("size", ""), exhibit.beyond
    paper = "–" if beyond else row.shown
    if "value" not in entry:
        return f"| {plain(row.label)} | {paper} | {plain(entry.get('reason', 'no run yet'))} | | {size} |"
    ours = entry["value"]
    good = row.holds(ours)
    number = "∞" if math.isinf(ours) else f"{ours:.4g}"
    shown = ("yes" if good else "no") if isinstance(row, Claim) else number
    words = ("holds", "**does not hold**") if beyond else ("agrees", "**differs**")
    mark = words[0 if good else 1] if isinstance(row, Claim) or not exhibit.stand_in else ""
    note = ": ".join(filter(None, (mark, plain(row.note))))
    return f"| {plain(row.label)} | {paper} | {shown} | {note} | {size} |"
