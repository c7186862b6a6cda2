"""Quantifying identifiability (Bernau et al., 2021): Tables 2 and 3 and Figures 3 to 9.

`results()` has the closed forms (from belief to ε, noise and advantage) and the trainings of a size. As a command:

    python experiments/identifiability/run.py                          # all of the paper's settings, 1000 repetitions
    python experiments/identifiability/run.py --only adult --repetitions 200
    python experiments/identifiability/run.py --quick                  # digits, under a minute, no download

It needs the extra torch and, except for digits, the data sets (DOSIMETER_DATA names their folder).
"""

from __future__ import annotations

import argparse
import time
import tomllib
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dosimeter import InputError
from dosimeter.accounting import noise_for_epsilon
from dosimeter.identifiability import advantage_from_epsilon, advantage_from_mu, epsilon_from_belief

HERE = Path(__file__).parent
STEPS, CLIP, RATE = 30, 3.0, 0.005
ORDERS = (*(round(1 + k / 10, 1) for k in range(1, 100)), *range(12, 64))  # those of the released code
BELIEFS = (0.53, 0.75, 0.9, 0.99)


def noise(belief: float, delta: float, conversion: str = "classic", neighbours: str = "add/remove") -> float:
    """The paper's noise multiplier: Rényi accounting of 30 full-batch steps; σ/C, so doubled for replaced records."""
    method = "rdp-classic" if conversion == "classic" else "rdp"
    epsilon = float(epsilon_from_belief(belief))
    return noise_for_epsilon(epsilon, delta=delta, steps=STEPS, neighbours=neighbours, method=method, orders=ORDERS)


def results(size: str = "mini", store: Any = None) -> dict[str, float | Exception]:
    """ε for a belief, the advantage of Theorem 3, the noise in force, and what the trainings of this size gave."""
    found: dict[str, float | Exception] = {**closed_forms()}
    try:
        rows = trainings(size, store)
    except (ImportError, InputError) as error:
        return {**found, "trained": error}
    for row in rows:
        data = "purchase" if row["data"] in ("purchase100", "location30") else row["data"]
        name = f"trained.{data}.{row['neighbours']}.{row['noise']}.{row['belief']:g}"
        if row["noise"] == "local":
            found[f"{name}.from_theory"] = row["trajectory"] - row["expected"]
            found[f"{name}.epsilon_ratio"] = row["epsilon_sensitivities"] / row["epsilon"]
        else:
            found[f"{name}.within"] = float(row["trajectory"] <= row["expected"] + 1e-9)
    return found


def tables(size: str, store: Any = None) -> dict[str, str]:
    """Table 2 beside the theory, and Figures 7 to 9 as numbers."""
    return {"The DP adversary against DP-SGD": table(trainings(size, store))}


def figures(size: str, folder: Path, store: Any = None) -> dict[str, str]:
    """Figures 3 to 9."""
    from . import pictures

    rows = trainings(size, store)
    return {**pictures.of_meaning(folder), **pictures.of_runs(folder, rows), **pictures.of_targets(folder, rows)}


def trainings(size: str, store: Any = None) -> list[dict[str, Any]]:
    """The rows of all gradient audits of a size; made once in a process."""
    if size not in _made:
        from ..shared import announce

        config = dict(tomllib.loads((HERE / "config.toml").read_text(encoding="utf-8"))[size])
        beliefs = (0.9, *config.pop("beliefs"))
        rows = []
        for name, count in config.items():
            for seed, scenario in enumerate(scenarios(beliefs), start=1):
                announce(
                    f"identifiability, {size}: {name}, {count} repetitions, {', '.join(map(str, scenario.values()))}"
                )
                given = {"repetitions": count, "seed": seed, "store": store, "progress": store is not None, **scenario}
                rows.append(measure(settings()[_there(name)], **given))
        _made[size] = rows
    return _made[size]


_made: dict[str, list[dict[str, Any]]] = {}


def closed_forms() -> dict[str, float]:
    """What needs no training."""
    found: dict[str, float] = {}
    for belief in (0.75, 0.9, 0.99):
        epsilon = float(epsilon_from_belief(belief))
        found[f"table3.{belief}.epsilon"] = epsilon
        for delta in (0.01, 0.001):
            found[f"table3.{belief}.{delta}.advantage"] = float(
                advantage_from_epsilon(epsilon, delta=delta, method="classic")
            )
    for belief in BELIEFS:
        for conversion in ("classic", "improved"):
            found[f"noise.{belief}.0.001.{conversion}"] = noise(belief, 0.001, conversion)
    for delta in (0.01, 0.001):
        found[f"table2.local.{delta}.advantage"] = float(advantage_from_mu(STEPS**0.5 / noise(0.9, delta)))
    return found


# --- trainings --------------------------------------------------------------------------------------------


def dense(*sizes: int) -> Any:
    """A network of dense layers with ReLU between them."""
    from torch import nn

    layers = [part for a, b in pairwise(sizes) for part in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


def small_cnn() -> Any:
    """Two convolutions and a dense layer for 28 × 28 images."""
    from torch import nn

    return nn.Sequential(
        *(nn.Conv2d(1, 8, 5, stride=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(8, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 4 * 4, 10)),
    )


class Setting(NamedTuple):
    """A data set of the paper: how many records D has, the network, and the distance that chooses D'."""

    name: str
    records: int
    factory: Callable[[], Any]
    distance: str
    universe: int = 4000
    test: int = 1000


def settings() -> dict[str, Setting]:
    """By name; Location-30 stands in where there is no file of Purchase-100, with its own bits and classes."""
    return {
        "adult": Setting("adult", 1000, partial(dense, 104, 6, 6, 2), "manhattan"),
        "purchase100": Setting("purchase100", 1000, partial(dense, 600, 128, 100), "hamming"),
        "location30": Setting("location30", 1000, partial(dense, 446, 128, 30), "hamming", 3000),
        "mnist": Setting("mnist", 100, small_cnn, "negative-ssim-8x8", 2000),
        "digits": Setting("digits", 200, partial(dense, 64, 16, 10), "euclidean", 800, 500),
    }


def parts(setting: Setting) -> list[tuple[Any, Any]]:
    """D, the universe and the test records, at random and disjoint."""
    from dosimeter.datasets import load, split

    data = load(setting.name, download=False)
    found = split(data, sizes=(setting.records, setting.universe, setting.test), seed=0)
    pairs = []
    for part in found:
        x, y = part.pair
        if setting.name == "mnist":
            x = np.asarray(x).reshape(len(x), 1, 28, 28)
        elif setting.name == "digits":
            x = np.asarray(x) / 16
        pairs.append((np.asarray(x, np.float32), y))
    return pairs


def measure(
    setting: Setting,
    *,
    repetitions: int,
    belief: float = 0.9,
    neighbours: str = "bounded",
    scale: str = "global",
    seed: int = 0,
    workers: int | None = None,
    store: Any = None,
    progress: bool = True,
) -> dict[str, Any]:
    """One cell of Table 2: a row of numbers from one gradient audit, with the audit itself under "audit"."""
    from dosimeter.audits.gradients import audit_gradients
    from dosimeter.engine import RunOptions
    from dosimeter.training import Privacy, Recipe

    inside, universe, test = parts(setting)
    delta = 1 / setting.records
    relation = "replace" if neighbours == "bounded" and scale == "global" else "add/remove"
    # The released code trains with Adam at the paper's rate; plain SGD would hardly leave its start in 30 steps.
    recipe = Recipe(
        "adam",
        RATE,
        steps=STEPS,
        batch_size=None,
        dp=Privacy(noise(belief, delta, neighbours=relation), CLIP, sensitivity=scale),
    )
    start = time.process_time(), time.perf_counter()
    audit = audit_gradients(
        setting.factory,
        inside,
        recipe=recipe,
        universe=universe,
        neighbours=neighbours,
        distance=setting.distance,
        epsilon=float(epsilon_from_belief(belief)),
        delta=delta,
        repetitions=repetitions,
        test=test,
        seed=seed,
        run=RunOptions(workers=workers, store=store, progress=progress),
        name=f"{setting.name}, {neighbours}, {scale}, ρ = {belief:g}",
    )
    by = {e.method: e for e in audit.estimates}
    found, excess = audit.details["advantage"], audit.details["delta_prime"]
    return {
        "data": setting.name,
        "neighbours": neighbours,
        "noise": scale,
        "belief": belief,
        "repetitions": repetitions,
        "epsilon": audit.details["target"]["epsilon"],
        "expected": found["expected"],
        "trajectory": found["trajectory"],
        "counting": [found["counting"], found["counting_low"], found["counting_high"]],
        "delta_prime": [excess["share"], excess["share_low"], excess["share_high"]],
        "delta_prime_expected": excess["expected"],
        "epsilon_sensitivities": _classic(by["sensitivities"].details["mu"]["highest"], delta),
        "epsilon_beliefs": by["beliefs"].epsilon,
        "epsilon_advantage": by["advantage, trajectory"].epsilon,
        "lower_bound": audit.headline.low,
        "yeom": audit.details["yeom"]["advantage"],
        "accuracy": audit.details["utility"]["accuracy"],
        "wall_seconds": time.perf_counter() - start[1],
        "audit": audit,
    }


def _classic(mu: float, delta: float) -> float:
    """ε of the noise that was in force by the accountant that the paper's noise comes from."""
    from dosimeter.accounting import Gaussian, rdp

    return rdp(Gaussian(1 / mu), delta=delta, conversion="classic", orders=ORDERS).epsilon


COLUMNS = (
    ("data", "data", "{}"),
    ("neighbours", "neighbours", "{}"),
    ("noise", "noise", "{}"),
    ("belief", "ρ", "{:g}"),
    ("repetitions", "runs", "{}"),
    ("expected", "2Φ(μ/2) − 1", "{:.3f}"),
    ("trajectory", "Adv, trajectories", "{:.4f}"),
    ("counting", "Adv, counted", "{0[0]:.3f} ({0[1]:.3f} to {0[2]:.3f})"),
    ("delta_prime", "δ′", "{0[0]:.4f} ({0[1]:.4f} to {0[2]:.4f})"),
    ("delta_prime_expected", "δ′ expected", "{:.2g}"),
    ("epsilon", "ε", "{:.3f}"),
    ("epsilon_sensitivities", "ε′ sensitivities", "{:.3f}"),
    ("epsilon_beliefs", "ε′ largest belief", "{:.3f}"),
    ("epsilon_advantage", "ε′ advantage", "{:.3f}"),
    ("lower_bound", "ε proven", "{:.3f}"),
    ("yeom", "Adv, losses", "{:.4f}"),
    ("accuracy", "accuracy", "{:.3f}"),
    ("wall_seconds", "s", "{:.0f}"),
)


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as Markdown."""
    lines = [" | ".join(title for _, title, _ in COLUMNS), " | ".join("---" for _ in COLUMNS)]
    lines += [" | ".join(form.format(row[key]) for key, _, form in COLUMNS) for row in rows]
    return "\n".join(f"| {line} |" for line in lines) + "\n"


def scenarios(beliefs: tuple[float, ...]) -> list[dict[str, Any]]:
    """Table 2 is at ρ = 0.9 in all four ways; other beliefs with global noise on replaced records (Figs 7 to 9)."""
    four = [{"neighbours": n, "scale": s} for n in ("bounded", "unbounded") for s in ("local", "global")]
    others = [{"neighbours": "bounded", "scale": "global", "belief": b} for b in beliefs if b != 0.9]
    return four + others


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(settings()), help="data sets; default: those of the paper")
    parser.add_argument("--repetitions", type=int, default=1000)
    parser.add_argument("--quick", action="store_true", help="digits with 60 repetitions")
    parser.add_argument("--table2", action="store_true", help="only ρ = 0.9")
    parser.add_argument("--workers", type=int, default=None)
    parser.add_argument("--pages", type=Path, help="folder for the page of each audit")
    given = parser.parse_args()
    names = given.only or (["digits"] if given.quick else ["adult", _there("purchase100"), "mnist"])
    repetitions = 60 if given.quick else given.repetitions
    rows = []
    for name in names:
        for seed, scenario in enumerate(scenarios((0.9,) if given.table2 or given.quick else BELIEFS), start=1):
            row = measure(settings()[name], repetitions=repetitions, workers=given.workers, seed=seed, **scenario)
            audit = row.pop("audit")
            if given.pages is not None:
                audit.to_html(given.pages / f"{name}-{row['neighbours']}-{row['noise']}-{row['belief']:g}.html")
            rows.append(row)
            print(table(rows[-1:]).splitlines()[-1], flush=True)
    print(table(rows))


def _there(name: str) -> str:
    """The data set, or Location-30 where there is no file of Purchase-100."""
    from dosimeter.datasets import load

    if name != "purchase100":
        return name
    try:
        return load(name, download=False).name
    except InputError:
        return "location30"


if __name__ == "__main__":
    main()
