"""Run the papers' experiments and set their numbers beside ours: `make reproduce [PAPER=name]`."""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
EXPERIMENTS = ROOT / "experiments"
PAGE = ROOT / "docs" / "reproductions.md"
HEAD = """# Reproductions

Made by `make reproduce`: the papers' numbers beside ours. A row holds where ours lies within the
tolerance of what is expected; the source says where the number comes from and why it differs where it does.
"""


def papers() -> list[str]:
    """Folders that hold an experiment."""
    return sorted(path.parent.name for path in EXPERIMENTS.glob("*/run.py"))


def run(paper: str) -> list[tuple[str, float, float, bool, str]]:
    """Rows (name, expected, ours, holds, source) of one paper."""
    folder = EXPERIMENTS / paper
    spec = importlib.util.spec_from_file_location(f"experiment_{paper}", folder / "run.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = module.results()
    expected = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
    missing = set(found) ^ {row["name"] for row in expected}
    if missing:
        raise SystemExit(f"{paper}: expected.json and run.py disagree on {', '.join(sorted(missing))}")
    return [
        (e["name"], e["value"], found[e["name"]], abs(found[e["name"]] - e["value"]) <= e["tolerance"], e["source"])
        for e in expected
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--paper", default="all", choices=["all", *papers()])
    chosen = parser.parse_args().paper
    page, failed = [HEAD], 0
    for paper in papers() if chosen == "all" else [chosen]:
        rows = run(paper)
        failed += sum(not row[3] for row in rows)
        page += [f"\n## {paper}\n", "| number | expected | ours | holds | source |", "|---|---|---|---|---|"]
        page += [f"| {n} | {e:g} | {o:.6g} | {'yes' if h else '**no**'} | {s} |" for n, e, o, h, s in rows]
        for name, value, ours, holds, _ in rows:
            print(f"{'ok  ' if holds else 'OFF '} {paper}.{name}: expected {value:g}, ours {ours:.6g}")
    if chosen == "all":
        PAGE.write_text("\n".join(page) + "\n", encoding="utf-8")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
