"""PANORAMIA (Kazmi 2024): bounds in closed form, silence without a leak, and over-fitting seen on three kinds of data.

`python experiments/panoramia/run.py adult|images|text|silent|controls` trains and audits; DOSIMETER_DATA names the
folder of the data. What is finished is kept in `.reproduce/store`, for the same command and for `make reproduce`, which
runs `results()`, `tables()` and `figures()`.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from dosimeter import InputError, OneRun, fair_coins, panoramia
from dosimeter.audits.members_only.measure import LEVEL, judge
from dosimeter.audits.members_only.pair_classifier import Pair
from dosimeter.engine import Store

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
if not __package__:  # started as a file
    sys.path.insert(0, str(ROOT))

from experiments.panoramia import kept, summary  # noqa: E402
from experiments.panoramia import tables as markdown  # noqa: E402

CONFIG = tomllib.loads((FOLDER / "config.toml").read_text(encoding="utf-8"))
KINDS = {"mini": ("table",), "quick": ("adult", "images", "text"), "full": ("adult", "images", "text")}
SILENT = {"no_leak.audits": "silent", "no_leak.larger_audits": "silent_larger"}
SIMULATED = 200


@lru_cache(maxsize=8)
def measured(kind: str, size: str, store: Store | None = None, workers: int | None = None) -> tuple[summary.Row, ...]:
    """What the audits of one kind of data measured, one entry for each seed; printed as they come."""
    found = []
    engine = "inline" if size == "mini" else "local"
    for row in kept.rows(kind, CONFIG[kind][size], store, engine=engine, workers=workers):
        found.append(row)
        if size != "mini":
            measures = ", ".join(f"{t['name']}: {t['epsilon']:.3f}" for t in row["targets"])
            print(f"{kind}, seed {row['seed']}: c_lb {row['c_lb']:.3f}; {measures}", flush=True)
    return tuple(found)


@lru_cache(maxsize=8)
def silent_audits(
    section: str, size: str, store: Store | None = None, workers: int | None = None
) -> tuple[summary.Row, ...]:
    """The audits of networks that never saw the members."""
    found: list[summary.Row] = []
    for row in kept.rows("silent", CONFIG[section][size], store, workers=workers):
        found.append(row)
        if row["epsilon"] > 0 or len(found) % 20 == 0:
            silent = sum(r["epsilon"] == 0 for r in found)
            print(f"{section}, seed {row['seed']}: ε̃ {row['epsilon']:.3f}; 0 in {silent} of {len(found)}", flush=True)
    return tuple(found)


def results(size: str = "mini", store: Store | None = None) -> dict[str, float | Exception]:
    """Bounds at a fixed number of guesses, silence without a leak, and what audits of real models show."""
    found: dict[str, float | Exception] = {"bound.90_of_100": _fixed(), "no_leak.simulated": _simulated()}
    for kind in KINDS[size]:
        try:
            rows = measured(kind, size, store)
        except (ImportError, InputError) as error:
            found[kind] = error
            continue
        found |= {f"{kind}.{name}": value for name, value in _shown(kind, rows).items()}
    for name, section in SILENT.items() if size != "mini" else ():
        try:
            found[name] = float(np.mean([r["epsilon"] == 0.0 for r in silent_audits(section, size, store)]))
        except InputError as error:
            found[name] = error
    return found


def _shown(kind: str, rows: tuple[summary.Row, ...]) -> dict[str, float]:
    if kind == "table":
        return {"fits": summary.rises(rows, column="train"), "below_real": summary.below_real(rows)}
    few = CONFIG[kind].get("few")
    found = {
        "rises": summary.rises(rows, few),
        "auc_rises": summary.rises(rows, few, "auc"),
        "below_real": summary.below_real(rows),
    }
    if kind == "adult":
        found |= {
            "c_lb": float(np.mean([row["c_lb"] for row in rows])),
            "dp_below_guarantee": summary.below_guarantee(rows),
            "dp_below_plain": summary.private_below(rows),
        }
    return found


def _available(size: str, store: Store | None) -> dict[str, tuple[summary.Row, ...]]:
    found = {}
    for kind in KINDS[size]:
        try:
            found[kind] = measured(kind, size, store)
        except (ImportError, InputError):
            continue
    return found


def tables(size: str = "mini", store: Store | None = None) -> dict[str, str]:
    """Tables 7.1 and 8.1, DP-SGD, the cost, and the audits without a leak."""
    found = _available(size, store)
    if not found:
        return {}
    told = markdown.of_targets(found) | markdown.of_audits(found) | markdown.of_private(found) | markdown.of_cost(found)
    if size == "mini":
        return told
    try:
        silent = {CONFIG[s][size]["members"]: silent_audits(s, size, store) for s in SILENT.values()}
    except InputError:
        return told
    return told | markdown.of_silence(silent)


def figures(size: str, folder: Path, store: Store | None = None) -> dict[str, str]:
    """Figures 8.1 to 8.3 and 8.6, the over-fitting sweep and DP-SGD in `folder`: their captions by file name."""
    from experiments.panoramia import pictures

    found = _available(size, store)
    drawn: dict[str, str] = {}
    if found:
        for draw in (
            pictures.of_strength,
            pictures.of_curves,
            pictures.of_real,
            pictures.of_sweep,
            pictures.of_private,
        ):
            drawn |= draw(folder, found)
    return drawn


def controls(kind: str, store: Store | None, workers: int | None = None) -> list[summary.Row]:
    """Audits of models that learnt from other images or texts than the members."""
    settings = {**CONFIG[kind]["full"], **CONFIG["controls"], "control": True}
    return list(kept.rows(kind, settings, store, workers=workers))


def _fixed() -> float:
    coins = fair_coins(1000, seed=1)
    order = np.concatenate([np.flatnonzero(coins)[:90], np.flatnonzero(~coins)[:10]])
    scores = np.zeros(1000)
    scores[order] = 1.0
    return panoramia(baseline=None, attack=OneRun(scores, coins), confidence=0.975, guesses=100).epsilon


def _simulated() -> float:
    """Silence for scores whose errors are those of the model: half from the pool that the references share."""
    rng = np.random.default_rng(3)
    silent = 0
    for _ in range(SIMULATED):
        content = rng.normal(np.repeat([0.6, 0.0], 400), 1.0)
        own, shared = rng.normal(0.0, 0.4, (9, 800)), rng.normal(0.0, 0.4, 800)
        found = content + own
        found[0] += rng.normal(0.0, 0.4, 800)
        found[1:] += shared
        pairs = [Pair(row[:400], row[400:]) for row in found]
        silent += not judge(pairs[0], pairs[1:], level=LEVEL).stands_out
    return silent / SIMULATED


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", choices=[*KINDS["full"], "silent", "controls"])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--workers", type=int, help="processes at once; one for each core if not given")
    given = parser.parse_args()
    size: Any = "quick" if given.quick else "full"
    store = Store(ROOT / ".reproduce" / "store")
    if given.experiment == "silent":
        found = {CONFIG[s][size]["members"]: silent_audits(s, size, store, given.workers) for s in SILENT.values()}
        told = markdown.of_silence(found)
    elif given.experiment == "controls":
        told = markdown.of_controls({kind: controls(kind, store, given.workers) for kind in ("images", "text")})
    else:
        rows = measured(given.experiment, size, store, given.workers)
        told = markdown.of_targets({given.experiment: rows}) | markdown.of_audits({given.experiment: rows})
        few = CONFIG[given.experiment].get("few")
        first, last = summary.compared(rows[0], few)
        more = round(summary.rises(rows, few) * len(rows))
        print(f"ε̃ is larger after {last['name']} than after {first['name']} in {more} of {len(rows)} seeds")
    for title, table in told.items():
        print(f"\n{title}\n\n{table}")


if __name__ == "__main__":
    main()
