"""Write docs/coverage.md and .json: how often a bound exceeds the known truth (`make coverage-table`)."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from dosimeter import selftest

PAGE = Path(__file__).parent.parent / "docs" / "coverage.md"
HEAD = """# Coverage: does the 95 % bound hold?

Made by `make coverage-table` ({trials} trials of {records} records of each kind, seed {seed}). Each cell is the share
of trials in which the bound was above the true ε, with its binomial standard error, and the mean bound in brackets.
Nominal is 5 %. Rows in **bold** are labelled as valid bounds and must not exceed it; the others are shown so that one
can see why they are not.
A mechanism with δ > 0 is judged at its own δ; estimators that need δ > 0 are run at 1e-5 where it is 0.
"""


def page(rows: list[selftest.Row], trials: int, records: int, seed: int) -> str:
    """The tables in Markdown, one for each kind of evidence."""
    text = [HEAD.format(trials=trials, records=records, seed=seed)]
    titles = ("Two samples", "One run with coin-flipped records", "Independent runs, tested while they come in")
    for title, (estimators, mechanisms) in zip(titles, selftest.GROUPS, strict=True):
        names = [m.name for m in mechanisms]
        text += [
            f"\n## {title}\n",
            "| estimator | validity | " + " | ".join(f"{m.name} (ε = {m.truth:.3g})" for m in mechanisms) + " |",
        ]
        text.append("|---" * (2 + len(names)) + "|")
        for estimator in estimators:
            found = [next(r for r in rows if r.estimator == estimator and r.mechanism == name) for name in names]
            cells = [f"{100 * r.rate:.1f} ± {100 * r.error:.1f} % ({r.mean:.2f})" for r in found]
            label = f"**{estimator}**" if found[0].is_bound else estimator
            text.append(f"| {label} | {found[0].validity} | " + " | ".join(cells) + " |")
            rows = [r for r in rows if r not in found]
    return "\n".join(text) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--records", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    started, rows = time.time(), []
    for row in selftest.rows(arguments.trials, arguments.records, arguments.seed):
        rows.append(row)
        print(f"{time.time() - started:6.0f} s  {row.estimator}, {row.mechanism}: {row.rate:.3f}", file=sys.stderr)
    record = [row.to_dict() for row in rows]
    PAGE.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(rows, arguments.trials, arguments.records, arguments.seed), encoding="utf-8")
    for row in selftest.broken(rows):
        print(f"BROKEN: {row}", file=sys.stderr)
    sys.exit(1 if selftest.broken(rows) else 0)


if __name__ == "__main__":
    main()
