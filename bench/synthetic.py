"""The nearest published row of every record: mixed tables of 50 columns, against a loop, scikit-learn and anonymeter.

python bench/synthetic.py                    # 10⁵ records against 10⁵ rows; a few minutes on two idle cores
python bench/synthetic.py --queries 5000     # fewer records; times for all are counted up and marked ~
python bench/synthetic.py --growth           # 10⁴, 10⁵ and 10⁶ rows, 1000 records each
python bench/synthetic.py --audit            # the whole audit of a release that exists
python bench/synthetic.py --page             # write what synthetic.json holds into the tutorial

25 columns of numbers and 25 of words (8 each). `wall` is what the clock says with so many `threads`, `cpu` processor
time of all threads. `load` is how many processes wanted to run just before: where there were any, `wall` says too much,
so read `cpu` and divide by the threads. The loop is one distance after the other in NumPy, a record at a time. Plain
tiles are the usual product in float32, without our folding; `times_plain_tiles` is our time as a share of theirs.
anonymeter 1.1.0 runs in an environment of its own (`--anonymeter python`), on its own functions. `--write` keeps a row
in synthetic.json, in the place of an earlier one of the same sizes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "docs" / "tutorials" / "synthetic.md"
BEGIN, END = "<!-- bench -->", "<!-- /bench -->"
IDLE = 0.5  # the largest load under which seconds of the clock are quoted
NUMBERS, WORDS, LEVELS = 25, 25, 8
PEER = """
import sys, time, numpy as np, pandas as pd
import anonymeter.evaluators
from anonymeter.neighbors.mixed_types_kneighbors import MixedTypeKNeighbors
rng = np.random.default_rng(0)
def table(rows):
    made = {f"n{k}": rng.normal(size=rows) for k in range(25)}
    made |= {f"w{k}": np.array(list("abcdefgh"))[rng.integers(0, 8, rows)] for k in range(25)}
    return pd.DataFrame(made)
rows, queries = table(int(sys.argv[1])), table(int(sys.argv[2]))
MixedTypeKNeighbors(n_neighbors=1, n_jobs=1).fit(rows[:100]).kneighbors(queries[:2])  # compiled once
began, cpu = time.perf_counter(), time.process_time()
MixedTypeKNeighbors(n_neighbors=1, n_jobs=1).fit(rows).kneighbors(queries)
print(time.perf_counter() - began, time.process_time() - cpu)
"""


def table(rows: int, seed: int) -> dict[str, Any]:
    """A mixed table as columns."""
    rng = np.random.default_rng(seed)
    made: dict[str, Any] = {f"n{k}": rng.normal(size=rows) for k in range(NUMBERS)}
    made |= {f"w{k}": np.array(list("abcdefgh"), object)[rng.integers(0, LEVELS, rows)] for k in range(WORDS)}
    return made


def timed(work: Any) -> tuple[float, float, Any]:
    """Seconds on the wall and of the processor."""
    wall, cpu = time.perf_counter(), time.process_time()
    found = work()
    return time.perf_counter() - wall, time.process_time() - cpu, found


def plain_tiles(queries: Any, rows: Any) -> Any:
    """The usual way in float32: |q|² + |p|² − 2 q·p, a tile at a time, the smallest of each row."""
    norms, place = (rows**2).sum(axis=1), np.zeros(len(queries), int)
    for start in range(0, len(queries), 512):
        asked = queries[start : start + 512]
        own, best = (asked**2).sum(axis=1)[:, None], np.full(len(asked), np.inf)
        for first in range(0, len(rows), 4096):
            tile = own + norms[first : first + 4096] - 2 * (asked @ rows[first : first + 4096].T)
            winner = tile.argmin(axis=1)
            value = tile[np.arange(len(tile)), winner]
            better = value < best
            best[better] = value[better]
            place[start : start + 512][better] = winner[better] + first
    return place


def _load() -> float:
    """Processes that wanted to run in the last minute."""
    return round(os.getloadavg()[0], 2)


def neighbours(queries: int, rows: int, workers: int) -> dict[str, Any]:
    """Our search, and the same by scikit-learn and by a loop on some of the records."""
    from sklearn.metrics import pairwise_distances_argmin_min
    from threadpoolctl import threadpool_limits

    from dosimeter.audits.synthetic.nearest import nearest
    from dosimeter.audits.synthetic.rows import read_real, read_release
    from dosimeter.audits.synthetic.space import fit_space
    from dosimeter.engine.work import forget_peak, peak_memory

    pool = read_real(table(queries, 0), "data")[0]
    release = read_release(table(rows, 1), pool, "synthetic")
    space = fit_space(pool)
    wall, cpu, points = timed(lambda: (space.coordinates(pool), space.coordinates(release)))
    encoding = {"wall": wall, "cpu": cpu}
    forget_peak()
    wall, cpu, found = timed(lambda: nearest(*points, workers=workers))
    row = {"records": queries, "rows": rows, "dimensions": points[0].shape[1], "threads": workers, "load": _load()}
    row |= {"encoding": encoding}
    row |= {"ours": {"wall": wall, "cpu": cpu, "peak_mb": peak_memory() / 1e6}}
    few = min(500, queries)
    with threadpool_limits(1):
        wall, cpu, other = timed(lambda: pairwise_distances_argmin_min(points[0][:few], points[1]))
    row["scikit-learn"] = {"wall": wall, "cpu": cpu, "records": few}
    several = min(4096, queries)
    with threadpool_limits(1):
        wall, cpu, _ = timed(lambda: plain_tiles(points[0][:several], points[1]))
    row["plain tiles"] = {"wall": wall, "cpu": cpu, "records": several}
    row["times_plain_tiles"] = row["ours"]["cpu"] / queries / (cpu / several)
    row["distances_agree"] = bool(np.allclose(other[1], found.distance[:few], atol=1e-3))
    if rows > 200_000:  # the loop would need a copy in float64
        return row
    few = min(20, queries)
    exact = points[1].astype(np.float64)
    wall, cpu, _ = timed(lambda: [np.sqrt(((exact - q) ** 2).sum(axis=1)).argmin() for q in points[0][:few]])
    row["loop"] = {"wall": wall, "cpu": cpu, "records": few}
    return row


def peer(python: str, rows: int, queries: int = 20) -> dict[str, Any]:
    """The search of anonymeter, in its own environment."""
    command = [python, "-c", PEER, str(rows), str(queries)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"left_out": done.stderr.strip().splitlines()[-1][:200]}
    wall, cpu = (float(v) for v in done.stdout.split())
    return {"wall": wall, "cpu": cpu, "records": queries}


def audit(records: int, rows: int, workers: int) -> dict[str, Any]:
    """The whole audit of a release that exists."""
    import dosimeter as dm
    from dosimeter.engine.work import forget_peak, peak_memory

    load = _load()
    members, held, made = (table(n, seed) for seed, n in enumerate((records, records, rows)))
    run = dm.RunOptions(workers=workers, progress=False)
    forget_peak()
    wall, cpu, found = timed(
        lambda: dm.audit_synthetic(synthetic=made, members=members, nonmembers=held, run=run, seed=0)
    )
    told = {"records": 2 * records, "rows": rows, "threads": workers, "load": load, "wall": wall, "cpu": cpu}
    told["peak_mb"] = peak_memory() / 1e6
    return told | {"compared": found.metadata.members + found.metadata.nonmembers, "epsilon": found.headline.low}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=100_000)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--anonymeter", metavar="PYTHON", help="an interpreter that has anonymeter")
    parser.add_argument("--growth", action="store_true")
    parser.add_argument("--audit", action="store_true")
    parser.add_argument("--write", action="store_true", help="write synthetic.json")
    parser.add_argument("--page", action="store_true")
    given = parser.parse_args()
    if given.page:
        head, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
        told = quoted(json.loads((HERE / "synthetic.json").read_text(encoding="utf-8")))
        PAGE.write_text(f"{head}{BEGIN}\n\n{told}\n\n{END}{rest.split(END)[1]}", encoding="utf-8")
        return
    for row in measured(given):
        print(json.dumps(row), flush=True)
        for name in ("ours", "plain tiles", "scikit-learn", "loop", "anonymeter"):
            if "cpu" in row.get(name, {}):
                part = row[name].get("records", row["records"])
                each = 1e5 * row[name]["cpu"] / part
                print(f"  {name}: {each:.0f} s of the processor for 10⁵ records (measured on {part})", file=sys.stderr)
        if given.write:
            keep(row)


def keep(row: dict[str, Any]) -> None:
    """Write a row in the place of one of the same sizes; what is not measured this time stays as it was."""
    file = HERE / "synthetic.json"
    kept = json.loads(file.read_text(encoding="utf-8")) if file.exists() else []
    same = [place for place, old in enumerate(kept) if all(old[k] == row[k] for k in ("what", "records", "rows"))]
    if same:
        kept[same[0]] |= row
    else:
        kept.append(row)
    file.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def quoted(rows: list[dict[str, Any]]) -> str:
    """The rows as Markdown: the search at 10⁵, its growth, and the whole audit."""
    searches = [row for row in rows if row["what"] == "neighbours"]
    whole = max(searches, key=lambda row: row["records"])
    names = ("plain tiles", "scikit-learn", "anonymeter", "loop")
    cells = [f"~{whole['records'] / whole[n]['records'] * whole[n]['cpu']:.0f}" if n in whole else "–" for n in names]
    ours = f"{whole['ours']['cpu']:.0f}, with {whole['ours']['peak_mb'] / 1e3:.2f} GB of memory"
    lines = [
        "| dosimeter | plain float32 products | scikit-learn | anonymeter 1.1.0 | a loop |",
        "|---|---|---|---|---|",
        f"| {ours} | {' | '.join(cells)} |",
    ]
    growth = sorted((row for row in searches if row is not whole), key=lambda row: int(row["rows"]))
    took = ", ".join(f"{row['ours']['cpu']:.2g} seconds for {row['rows']:,}".replace(",", " ") for row in growth)
    most = max(row["ours"]["peak_mb"] for row in growth) / 1e3
    told = [f"For {growth[0]['records']} records the time grows in proportion to the rows: {took}; with at most"]
    told[0] += f" {most:.1f} GB."
    if whole.get("load", IDLE + 1) <= IDLE:
        told.append(f"On the clock the search took {whole['ours']['wall']:.0f} s with {whole['threads']} threads.")
    for row in (row for row in rows if row["what"] == "audit"):
        clock = f" ({row['wall']:.0f} s on the clock, {row['threads']} threads)" if row["load"] <= IDLE else ""
        told.append(
            f"The whole audit of a release that exists, with {row['records']} records and {row['rows']} published rows,"
            f" took {row['cpu']:.0f} s of processor time{clock} and {row['peak_mb'] / 1e3:.1f} GB; it compares "
            f"{row['compared']} of the records, drawn at random."
        )
    return "\n".join([*lines, "", "\n".join(told)])


def measured(given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Rows as they are measured."""
    if given.audit:
        yield {"what": "audit"} | audit(given.queries, given.rows, given.workers)
        return
    for size in (10_000, 100_000, 1_000_000) if given.growth else (given.rows,):
        asked = min(given.queries, 1000) if given.growth else given.queries
        row = {"what": "neighbours"} | neighbours(asked, size, given.workers)
        if given.anonymeter:
            row["anonymeter"] = peer(given.anonymeter, size)
        yield row


if __name__ == "__main__":
    main()
