"""How much each trial does, and the counts that are printed at the end.

A new trial is a new file `test_*.py` here: it takes its numbers from `sizes` and reports with `tally`. The short form
runs with the other tests; `make chaos` (DOSIMETER_CHAOS=long) runs the long one.
"""

import os
from collections import Counter
from dataclasses import dataclass

import pytest


@dataclass(frozen=True)
class Sizes:
    """How often each kind of mishap strikes."""

    kills: int  # of parents and workers of an audit
    flips: int  # of stored files
    full: int  # disks that fill up
    limits: int  # processes with a limit on file sizes
    writers: int  # rounds of processes that share a store
    hostile: int  # audit files made to deceive
    bombs: int  # files made to take memory


SHORT = Sizes(kills=8, flips=100, full=12, limits=1, writers=1, hostile=300, bombs=5)
LONG = Sizes(kills=200, flips=2000, full=200, limits=25, writers=25, hostile=10_000, bombs=50)
GOALS = {  # of the long form, by the beginning of what is counted
    "kills of": 200,
    "stored files damaged": 2000,
    "damages found": 2000,
    "hostile audit files": 10_000,
    "fuzz calls": 100_000,
}


def is_long():
    return os.environ.get("DOSIMETER_CHAOS") == "long"


@pytest.fixture(scope="session")
def sizes():
    return LONG if is_long() else SHORT


@pytest.fixture
def tally(record_property):
    """Count something under a name, e.g. tally("kills of a worker"); the totals are printed after the tests."""
    counts = Counter()

    def count(name, number=1):
        counts[name] += number

    yield count
    for name, number in counts.items():
        record_property(f"chaos: {name}", number)


def pytest_terminal_summary(terminalreporter):
    totals = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, number in getattr(report, "user_properties", ()):
                if name.startswith("chaos: ") and report.when == "teardown":
                    totals[name.removeprefix("chaos: ")] += number
    if totals:
        terminalreporter.section("chaos")
        for name, number in totals.items():
            terminalreporter.write_line(f"{number:8d}  {name}")
    for name, goal in GOALS.items() if totals and is_long() else ():
        number = sum(count for counted, count in totals.items() if counted.startswith(name))
        word = "reached" if number >= goal else "MISSED"
        terminalreporter.write_line(f"goal {word}: {name} … {number} of {goal}")
