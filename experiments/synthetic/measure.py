"""Audit generators of synthetic tables side by side: what is proven, copies, utility, seconds.

    DOSIMETER_DATA=folder python experiments/synthetic/measure.py            # everything; resumes where it stopped
    python experiments/synthetic/measure.py --data adult --only bootstrap --seeds 1
    python experiments/synthetic/measure.py --null 200                       # a generator that never saw the members
    python experiments/synthetic/measure.py --hidden                         # German credit and credit default
    python experiments/synthetic/measure.py --page                           # write the tables of the docs again

MST needs mbi, CTGAN needs ctgan and torch, copulas its package; without one its rows are left out and named. Results
are kept in results.json, a row for each audit, and releases in `.reproduce/synthetic`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT))

import dosimeter as dm  # noqa: E402
from dosimeter import RunOptions, Store  # noqa: E402
from experiments.synthetic import tables  # noqa: E402
from experiments.synthetic.generators import DELTA, NoisyColumns, Unrelated, averaged, bootstrap, of_name  # noqa: E402

RESULTS = HERE / "results.json"
FILES = {"adult": "adult.csv.gz", "bank": "bank_marketing.csv.gz"}
RECORDS = 10_000  # --records asks for others; every row says how many
# Generators by name: seeds, references. Those that take minutes to fit have fewer of both.
GENERATORS = {
    "publishes its records": (1, 8),
    "bootstrap (copies rows)": (5, 8),
    "SMOTE (neighbours blended)": (5, 8),
    "Gaussian copula": (5, 8),
    "Chow–Liu tree": (5, 8),
    "independent columns": (5, 8),
    "copulas (package)": (5, 8),
    "MST, ε=∞": (5, 2),
    "MST, ε=10": (5, 2),
    "MST, ε=1": (5, 2),
    "CTGAN 10 epochs": (5, 2),
}


def table_of(name: str, records: int = RECORDS) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The audited records, drawn at random, and the rows of the file that no audit touches."""
    rows = pd.read_csv(Path(os.environ["DOSIMETER_DATA"]) / FILES[name])
    rows = rows.drop(columns=[c for c in ("split",) if c in rows]).drop_duplicates().reset_index(drop=True)
    order = np.random.default_rng(0).permutation(len(rows))
    return tuple(rows.iloc[part].reset_index(drop=True) for part in (order[:records], order[records:]))  # type: ignore[return-value]


def kept() -> list[dict[str, Any]]:
    """The audits that are done."""
    return json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else []


def keep(row: dict[str, Any]) -> None:
    """Add one audit; the file is written whole or not at all."""
    rows = [r for r in kept() if r["key"] != row["key"]] + [row]
    part = RESULTS.with_suffix(".part")
    part.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    part.replace(RESULTS)


def audited(data: str, name: str, seed: int, references: int, size: int, store: Path | None) -> dict[str, Any]:
    """One audit as a row."""
    records, public = table_of(data, size)
    generate, stated = of_name(name, public, size // 2)
    finite = stated is not None and np.isfinite(stated)
    given = dm.Guarantee(stated, DELTA, "MST, as stated", "add/remove", "full batch", True) if finite else None
    began, cpu = time.time(), time.process_time()
    audit = dm.audit_synthetic(
        generate,
        records,
        references=references,
        mechanism=given,
        seed=1000 + seed,
        run=RunOptions(engine="inline", store=None if store is None else Store(store), progress=False),
        key=f"{data} {name}",
    )
    details = audit.details
    trained = details.utility.trained
    return {
        "key": f"{data} | {name} | {seed} | {size}",
        "data": data,
        "generator": name,
        "seed": seed,
        "records": len(records),
        "references": references,
        "epsilon": audit.headline.low,
        "ceiling": details.published.perfect,
        "stated": stated if finite else None,
        "auc": audit.curve.auc,
        "attacks": {row.attack: row.epsilon for row in details.attacks},
        "rows": details.published.rows,
        "members": details.published.members,
        "copies_in": details.copies.inside / details.copies.inside_of,
        "copies_out": details.copies.outside / details.copies.outside_of,
        "shapes": details.utility.shapes,
        "trends": details.utility.trends,
        "trained_synthetic": trained.synthetic,
        "trained_real": trained.real,
        "criteria": {c.criterion: [c.found.difference, c.found.difference_low] for c in details.criteria},
        "seconds": time.time() - began,
        "cpu_seconds": time.process_time() - cpu,
        "computed": audit.provenance.computed,
    }


def comparison(
    names: list[str], data: list[str], seeds: int | None, size: int, store: Path | None
) -> Iterator[dict[str, Any]]:
    """All audits that are not done yet, one seed of everything before the next."""
    done = {row["key"] for row in kept()}
    for seed in range(max(count for count, _ in GENERATORS.values())):
        for name in names:
            count, references = GENERATORS[name]
            for one in data:
                if (
                    seed < (count if seeds is None else min(count, seeds))
                    and f"{one} | {name} | {seed} | {size}" not in done
                ):
                    try:
                        yield audited(one, name, seed, references, size, store)
                    except ImportError as error:
                        print(f"left out: {name}: {error}", file=sys.stderr, flush=True)


def null(audits: int, records: int = 400) -> dict[str, Any]:
    """Audits, with default arguments, of a generator that never saw the members: how many prove anything?"""
    public = table_of("adult")[1]
    false, most = 0, 0.0
    for turn in range(audits):
        some = public.iloc[turn * 2 * records % 30_000 :]
        data, own = some.iloc[:records].reset_index(drop=True), some.iloc[records : 2 * records].reset_index(drop=True)
        generate, _ = of_name("never saw the members", own, records)
        audit = dm.audit_synthetic(generate, data, run=RunOptions(engine="inline", progress=False))
        false, most = false + (audit.headline.low > 0), max(most, audit.headline.low)
        if turn % 10 == 9:
            print(f"{turn + 1} audits, {false} above 0", file=sys.stderr, flush=True)
    return {"key": "null", "audits": audits, "records": records, "above": int(false), "largest": most}


def hidden() -> Iterator[dict[str, Any]]:
    """Generators that hide what they do: one memorises 1 % of its rows, two are private by construction; persons."""
    folder = Path(os.environ["DOSIMETER_DATA"])
    for name, file in (("German credit", "german_credit.csv.gz"), ("credit default", "credit_default.csv.gz")):
        rows = pd.read_csv(folder / file).drop_duplicates().sample(frac=1, random_state=0).reset_index(drop=True)
        rows = rows.drop(columns=[c for c in rows if c.lower() == "id"]).iloc[:10_000]
        half = len(rows) // 2
        first, second = (rows.iloc[part].reset_index(drop=True) for part in (slice(half), slice(half, None)))
        people = np.random.default_rng(1).integers(0, len(rows) // 3, len(rows))
        cases: dict[str, tuple[Any, pd.DataFrame, Any]] = {
            "memorises 1 %": (memorises, rows, None),
            "averages 3 neighbours": (averaged, rows, None),
            "noisy columns, ε = 1": (NoisyColumns(second, 1.0, half // 2), first, None),
            "public table": (Unrelated(second), first, None),
            "copies rows, persons": (bootstrap, rows, people),
        }
        for case, (generate, given, groups) in cases.items():
            began = time.time()
            run = RunOptions(engine="inline", progress=False)
            audit = dm.audit_synthetic(generate, given, groups=groups, seed=3, run=run)
            copies = audit.details.copies
            yield {
                "key": f"hidden | {name} | {case}",
                "records": len(given),
                "unit": audit.metadata.unit,
                "epsilon": audit.headline.low,
                "ceiling": audit.details.published.perfect,
                "sure": sure(copies.inside) if groups is None else None,
                "copies_in": copies.inside / copies.inside_of,
                "copies_out": copies.outside / copies.outside_of,
                "seconds": time.time() - began,
            }


def sure(members: int) -> float:
    """The most that so many right guesses alone can prove with 95 % confidence, at δ = 0."""
    chance = 0.05 ** (1 / members) if members else 0.5
    return max(0.0, float(np.log(chance / (1 - chance))))


def memorises(records: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Columns drawn on their own, and one row in a hundred as it is."""
    made = of_name("independent columns", records, 0)[0](records, seed)
    rng = np.random.default_rng(seed)
    copied = rng.choice(len(records), max(1, len(records) // 100), replace=False)
    made.iloc[: len(copied)] = records.iloc[copied].to_numpy()
    return made


def main() -> None:
    """Run what was asked for, and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", choices=list(FILES), default=list(FILES))
    parser.add_argument("--only", nargs="+", default=[], help="generators whose name begins so")
    parser.add_argument("--seeds", type=int, help="at most so many of each generator")
    parser.add_argument("--records", type=int, default=RECORDS, help="audited records")
    parser.add_argument("--null", type=int, metavar="AUDITS")
    parser.add_argument("--hidden", action="store_true")
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--store", type=Path, default=ROOT / ".reproduce" / "synthetic")
    parser.add_argument(
        "--no-store", action="store_true", help="keep no releases: an audit that is stopped begins again"
    )
    given = parser.parse_args()
    if given.null:
        keep(null(given.null))
    if given.hidden:
        for row in hidden():
            keep(row)
            print(row, file=sys.stderr, flush=True)
    if not (given.null or given.hidden or given.page):
        names = [n for n in GENERATORS if not given.only or any(n.startswith(start) for start in given.only)]
        for row in comparison(names, given.data, given.seeds, given.records, None if given.no_store else given.store):
            keep(row)
            print(f"{row['key']}: ε ≥ {row['epsilon']:.2f} in {row['seconds']:.0f} s", file=sys.stderr, flush=True)
    tables.write(kept(), {data: {name: count for name, (count, _) in GENERATORS.items()} for data in FILES})


if __name__ == "__main__":
    main()
