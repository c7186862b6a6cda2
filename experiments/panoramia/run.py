"""PANORAMIA (Kazmi 2024): bounds in closed form, silence without a leak, and over-fitting seen on three kinds of data.

`python experiments/panoramia/run.py adult|images|text|silent [--quick]` trains and audits; DOSIMETER_DATA names the
folder of the data. `results()` is what `make reproduce` runs.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import tomllib
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from dosimeter import InputError, OneRun, fair_coins, panoramia
from dosimeter.audits.null_band import LEVEL, Pair, judge
from dosimeter.engine import Store

FOLDER = Path(__file__).resolve().parent
CONFIG = tomllib.loads((FOLDER / "config.toml").read_text(encoding="utf-8"))
FILES = {"adult": "adult", "images": "images", "text": "texts"}
SIMULATED = 200


def _beside(name: str) -> Any:
    """A module of this folder, whether this file was started or imported."""
    if __package__:
        return importlib.import_module(f"{__package__}.{name}")
    if str(FOLDER.parent) not in sys.path:
        sys.path.insert(0, str(FOLDER.parent))
    return importlib.import_module(f"{FOLDER.name}.{name}")


@lru_cache(maxsize=8)
def measured(kind: str, size: str, store: Store | None = None) -> tuple[dict[str, float], ...]:
    """What the audits of one kind of data measured, one entry for each seed; printed as they come."""
    settings = CONFIG[kind][size]
    module = _beside(FILES[kind])
    rows = []
    for seed in range(settings["first_seed"], settings["first_seed"] + settings["seeds"]):
        rows.append(module.ordered(settings, seed, **({"store": store} if kind == "images" else {})))
        print(json.dumps({"kind": kind, **{key: round(value, 4) for key, value in rows[-1].items()}}), flush=True)
    return tuple(rows)


@lru_cache(maxsize=2)
def silent_audits(size: str) -> tuple[bool, ...]:
    """Whether ε̃ was 0, for each audit of a network that never saw the members."""
    settings = CONFIG["silent"][size]
    ask: Callable[..., bool] = _beside("adult").silent
    found: list[bool] = []
    for seed in range(settings["first_seed"], settings["first_seed"] + settings["repetitions"]):
        found.append(ask(settings, seed))
        if not found[-1] or len(found) % 20 == 0:
            print(json.dumps({"kind": "silent", "seed": seed, "silent": sum(found), "of": len(found)}), flush=True)
    return tuple(found)


def rises(rows: tuple[dict[str, float], ...]) -> float:
    """The share of seeds in which ε̃ is larger after many epochs than after few."""
    return float(np.mean([row["many"] > row["few"] for row in rows]))


def below_real(rows: tuple[dict[str, float], ...]) -> float:
    """The share of seeds in which ε̃ is at most the best bound with real non-members on the same members."""
    return float(np.mean([row["many"] <= max(row["real"], row["real_one_run"]) for row in rows]))


def results(size: str = "mini", store: Store | None = None) -> dict[str, float | Exception]:
    """Bounds at a fixed number of guesses, silence in simulated audits; from quick on, what real models give."""
    found: dict[str, float | Exception] = {"bound.90_of_100": _fixed(), "no_leak.simulated": _simulated()}
    if size == "mini":
        return found
    for kind in FILES:
        try:
            rows = measured(kind, size, store)
        except (ImportError, InputError) as error:
            found[kind] = error
            continue
        found[f"{kind}.rises"] = rises(rows)
        if kind == "adult":
            found["adult.below_real"] = below_real(rows)
    try:
        found["no_leak.audits"] = float(np.mean(silent_audits(size)))
    except InputError as error:
        found["no_leak.audits"] = error
    return found


def _fixed() -> float:
    coins = fair_coins(1000, seed=1)
    order = np.concatenate([np.flatnonzero(coins)[:90], np.flatnonzero(~coins)[:10]])
    scores = np.zeros(1000)
    scores[order] = 1.0
    return panoramia(baseline=None, attack=OneRun(scores, coins), confidence=0.975, guesses=100).epsilon


def _simulated() -> float:
    """Silence for scores whose errors are those of the model: half from the pool that the stand-ins share."""
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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("experiment", choices=[*FILES, "silent"])
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    size = "quick" if arguments.quick else "full"
    if arguments.experiment == "silent":
        audits = silent_audits(size)
        share = float(np.mean(audits))
        error = (share * (1 - share) / len(audits)) ** 0.5
        print(f"silent in {sum(audits)} of {len(audits)} audits: {share:.3f} ± {error:.3f}")
        return
    rows = measured(arguments.experiment, size)
    print(f"measured leak rises with over-fitting in {sum(r['many'] > r['few'] for r in rows)} of {len(rows)} seeds")
    if arguments.experiment == "adult":
        print(f"at most the bound with real non-members in {round(below_real(rows) * len(rows))} of {len(rows)} seeds")


if __name__ == "__main__":
    main()
