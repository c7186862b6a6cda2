"""What users call, as they call it, on mechanisms whose ε is known: how often does a bound exceed the truth?"""

from dosimeter.selftest.calls import GROUPS, Call, Group
from dosimeter.selftest.mechanisms import COINS, ONE_MODEL, ONE_RUN, PEOPLE, RUNS, TWO_SAMPLES, Mechanism
from dosimeter.selftest.study import FALSE_ALARM, CoverageRow, broken, count_rows, groups, rows

__all__ = [
    "COINS",
    "FALSE_ALARM",
    "GROUPS",
    "ONE_MODEL",
    "ONE_RUN",
    "PEOPLE",
    "RUNS",
    "TWO_SAMPLES",
    "Call",
    "CoverageRow",
    "Group",
    "Mechanism",
    "broken",
    "count_rows",
    "groups",
    "rows",
]
