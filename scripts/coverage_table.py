"""Write docs/coverage.md and .json: how often a bound exceeds the known truth (`make coverage-table`)."""

from __future__ import annotations

import argparse
import json
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from itertools import groupby
from pathlib import Path

from dosimeter import selftest
from dosimeter.selftest import CoverageRow

PAGE = Path(__file__).parent.parent / "docs" / "coverage.md"
HEAD = """# Coverage: does the 95 % bound hold?

What users call is called here as they call it, on mechanisms whose ε is known. A cell says in how many of n audits
the bound was above the truth, then the mean bound and the truth. Nominal is 5 %: a row in **bold** is labelled as a
valid bound and must not exceed it beyond chance; the others are shown so that one can see why they are not. Estimators
are called {trials} times on each mechanism, audits less often, because each takes longer: every cell has its own n.

Made by `make coverage-table` ({records} records of each kind where the mechanism does not fix another number, seed
{seed}; coins are fresh, so counts where coins are thrown differ a little from run to run). A mechanism with δ > 0 is
judged at its own δ; estimators that need δ > 0 are run at 1e-5 where it is 0. Of {bounds} rows labelled as valid bounds
{broken} break their level beyond chance (chance of a false alarm in the whole table: {alarm:.1%}).

In *one model, a random split* two independent records that leak ε each make a replacement that leaks 2ε, so the truth
is 2ε for `replace` and ε for `add/remove`. The mechanisms that publish records are exactly (0, δ)-DP.
"""


def page(rows: list[CoverageRow], trials: int, records: int, seed: int) -> str:
    """The tables in Markdown, one for each group."""
    bounds, failed = sum(row.is_bound for row in rows), len(selftest.broken(rows))
    alarm = selftest.FALSE_ALARM
    text = [HEAD.format(trials=trials, records=records, seed=seed, bounds=bounds, broken=failed, alarm=alarm)]
    for title, found in groupby(rows, lambda row: row.group):
        text.append(f"\n## {title}\n")
        text += _table(list(found))
    return "\n".join(text) + "\n"


def _table(rows: list[CoverageRow]) -> list[str]:
    mechanisms = list(dict.fromkeys(row.mechanism for row in rows))
    cells = {(row.estimator, row.mechanism): row for row in rows}
    lines = ["| call | validity | " + " | ".join(mechanisms) + " |", "|---" * (2 + len(mechanisms)) + "|"]
    for name in dict.fromkeys(row.estimator for row in rows):
        found = [cells[name, mechanism] for mechanism in mechanisms]
        label = f"**{name}**" if found[0].is_bound else name
        lines.append(f"| {label} | {found[0].validity} | " + " | ".join(map(_cell, found)) + " |")
    return lines


def _cell(row: CoverageRow) -> str:
    return f"{row.violations} of {row.trials} (mean {row.mean:.2f}, truth {row.truth:.3g})"


def _play(title: str, arguments: argparse.Namespace) -> list[CoverageRow]:
    started, found = time.time(), []
    for row in selftest.rows(arguments.trials, arguments.records, arguments.seed, long=True, only=[title]):
        found.append(row)
        seen = f"{row.violations} of {row.trials}"
        print(f"{time.time() - started:6.0f} s  {row.estimator}, {row.mechanism}: {seen}", file=sys.stderr, flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=500)
    parser.add_argument("--records", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    with ProcessPoolExecutor(arguments.workers) as pool:
        work = [pool.submit(_play, group.title, arguments) for group in selftest.groups(long=True)]
        rows = [row for part in work for row in part.result()]
    record = [{**row.to_dict(), "records": arguments.records} for row in rows]
    PAGE.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(rows, arguments.trials, arguments.records, arguments.seed), encoding="utf-8")
    for row in selftest.broken(rows):
        print(f"BROKEN: {row}", file=sys.stderr)
    sys.exit(1 if selftest.broken(rows) else 0)


if __name__ == "__main__":
    main()
