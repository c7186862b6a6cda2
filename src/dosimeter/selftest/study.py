"""Make every call on every mechanism and count how often its bound exceeds the truth."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy import special

from dosimeter import _validate as check
from dosimeter.selftest.calls import GROUPS, LONG, Call, Group, Said
from dosimeter.selftest.mechanisms import Mechanism

FALSE_ALARM = 1e-3  # chance that correct code is reported as broken, over the whole table


@dataclass(frozen=True)
class CoverageRow:
    """One call on one mechanism."""

    group: str
    estimator: str
    mechanism: str
    truth: float
    delta: float
    validity: str
    is_bound: bool
    trials: int
    violations: int
    nominal: float
    mean: float

    @property
    def rate(self) -> float:
        return self.violations / self.trials

    @property
    def error(self) -> float:
        """Binomial standard error of the rate, at the nominal rate where none was seen."""
        p = min(max(self.rate, self.nominal), 0.5) if self.violations == 0 else self.rate
        return math.sqrt(p * (1 - p) / self.trials)

    @property
    def p_value(self) -> float:
        """P[at least this many violations] at the nominal rate."""
        return 1.0 if self.violations == 0 else float(special.bdtrc(self.violations - 1, self.trials, self.nominal))

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "rate": self.rate, "error": self.error, "p_value": self.p_value}


def groups(long: bool) -> tuple[Group, ...]:
    """All calls that are tested; the long form has those that need more than NumPy and SciPy, where it is installed."""
    return (*GROUPS, *LONG) if long else GROUPS


def count_rows(long: bool = False) -> int:
    """How many rows there will be."""
    return sum(len(group.names) * len(group.mechanisms) for group in groups(long))


def rows(
    trials: int, records: int, seed: int = 0, *, long: bool = False, only: Sequence[str] | None = None
) -> Iterator[CoverageRow]:
    """Make every call; a row is given as soon as it is done.

    The seed decides the scores. Coins are fresh in every run, as they are for users.

    Args:
        trials: Trials of the cheap calls; costly ones have fewer, and each row says how many.
        records: Records of each kind in a trial, where the mechanism does not fix them.
        seed: Draws the same scores again.
        long: Whether to include what takes long.
        only: The titles of the groups of calls to make; all of them unless given.

    Returns:
        The rows, group by group.

    Raises:
        InputError: If a number is too small.
    """
    check.whole("trials", trials, 1, "pass e.g. 500")
    check.whole("records", records, 100, "pass e.g. 1000")
    chosen = [group for group in groups(long) if only is None or group.title in only]
    return _rows(trials, records, check.seed(seed), chosen)


def _rows(trials: int, records: int, seed: int, chosen: Sequence[Group]) -> Iterator[CoverageRow]:
    for group in chosen:
        for number, mechanism in enumerate(group.mechanisms):
            for call in group.calls:  # every call sees the same scores
                key = [seed, zlib.crc32(group.title.encode()), number]
                children = np.random.SeedSequence(key).spawn(group.trials(trials))
                generators = [np.random.default_rng(child) for child in children]
                yield from play(group.title, call, mechanism, generators, records)


def play(
    title: str, call: Call, mechanism: Mechanism, generators: Sequence[np.random.Generator], records: int
) -> Iterator[CoverageRow]:
    """Make a call once with each generator: a row for each bound that it states."""
    found = [call.run(mechanism.draw(rng, records), mechanism) for rng in generators]
    for name, said in zip(call.names, zip(*found, strict=True), strict=True):
        yield _row(title, name, mechanism.name, said)


def _row(title: str, name: str, mechanism: str, said: Sequence[Said]) -> CoverageRow:
    first = said[0]
    return CoverageRow(
        group=title,
        estimator=name,
        mechanism=mechanism,
        truth=first.truth,
        delta=first.delta,
        validity=first.validity,
        is_bound=first.is_bound,
        trials=len(said),
        violations=sum(one.bound > one.truth + 1e-9 for one in said),
        nominal=1 - first.confidence,
        mean=sum(one.bound for one in said) / len(said),
    )


def broken(table: Sequence[CoverageRow]) -> list[CoverageRow]:
    """Rows labelled as valid bounds whose level is broken beyond chance, over the table as a whole."""
    bounds = [row for row in table if row.is_bound]
    return [row for row in bounds if row.p_value < FALSE_ALARM / len(bounds)]
