"""Table 2 with models worth auditing: `python experiments/bayesian/measure.py [--only NAME] [--minutes 50]`.

For each target of config.toml: shadow models on random halves choose the challenge points, as in Algorithm 3 of the
paper; then models are trained on all records, with each point in or out by a coin. What every model showed of the
points stands in results/, a file for each target: a run may stop at any time, the next one adds to it, on another
machine too, and runs of two targets do not disturb each other.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import tomllib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from dosimeter import OneRun, Scores, fair_coins, lower_bound  # noqa: E402
from dosimeter.attacks import lira, select_worst  # noqa: E402
from dosimeter.engine import Store  # noqa: E402
from dosimeter.estimate import Estimate  # noqa: E402
from dosimeter.estimators.rates import clopper_pearson, jeffreys  # noqa: E402
from dosimeter.estimators.with_assumptions import bayesian  # noqa: E402
from experiments.bayesian.targets import Target, named  # noqa: E402
from experiments.shared import announce  # noqa: E402

RESULTS = HERE / "results"
STORE = ROOT / ".reproduce" / "store"
CONFIG: dict[str, Any] = tomllib.loads((HERE / "config.toml").read_text(encoding="utf-8"))["models"]
DELTA = 1e-5
METHODS = {"clopper_pearson": clopper_pearson, "jeffreys": jeffreys, "joint": bayesian}
SHADOW_SEED, COIN_SEED, RUN_SEED = 1, 2, 3


@dataclass(frozen=True)
class Kept:
    """What the models of one target showed of its challenge points; a row for each model."""

    points: list[int]
    shadow_in: list[list[int]]
    shadow_signals: list[list[float]]
    shadow_accuracy: list[float]
    coins: list[list[int]] = field(default_factory=list)
    signals: list[list[float]] = field(default_factory=list)
    accuracy: list[float] = field(default_factory=list)

    @property
    def runs(self) -> int:
        """Models that were attacked."""
        return len(self.coins)

    def scores(self) -> npt.NDArray[np.float64]:
        """LiRA's scores (runs, points), calibrated on the shadow models."""
        found = lira(np.array(self.signals), np.array(self.shadow_signals), np.array(self.shadow_in, bool))
        return np.asarray(found, np.float64)

    def as_printed(self) -> dict[str, Estimate]:
        """The paper's protocol: 90 %, two-sided, at the threshold with the largest lower end on the same samples."""
        scores, coins = self.scores(), np.array(self.coins, bool)
        samples = Scores(scores[coins], scores[~coins], independent=True)
        at: dict[str, Any] = {"delta": DELTA, "confidence": 0.9, "sides": "both", "threshold": "naive"}
        return {name: method(samples, **at) for name, method in METHODS.items()}

    @property
    def chance(self) -> float:
        """The chance that scores which know nothing of the coins would rank members as high or higher."""
        scores, coins = self.scores(), np.array(self.coins, bool)
        return float(stats.mannwhitneyu(scores[coins], scores[~coins], alternative="greater").pvalue)

    def proven(self) -> Estimate:
        """Ours: a 95 % lower bound that holds for the best of all thresholds, points of one model together."""
        return lower_bound(OneRun(self.scores().ravel(), np.array(self.coins, bool).ravel(), COIN_SEED), delta=DELTA)


def read(folder: Path = RESULTS) -> dict[str, Kept]:
    """What there is so far, by target."""
    files = sorted(folder.glob("*.json"))
    return {file.stem: Kept(**json.loads(file.read_text(encoding="utf-8"))) for file in files}


def write(name: str, kept: Kept, folder: Path = RESULTS) -> None:
    """Put the results of one target into its file, which is written whole or not at all: a line for each model."""
    parts = []
    for key, value in asdict(kept).items():
        nested = bool(value) and isinstance(value[0], list)
        rows = ",\n  ".join(json.dumps(row) for row in value)
        parts.append(f" {json.dumps(key)}: " + (f"[\n  {rows}\n ]" if nested else json.dumps(value)))
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / f"{name}.part"
    part.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")
    part.replace(folder / f"{name}.json")


def shadowed(name: str, target: Target, store: Store | None) -> Kept:
    """Train the shadow models, which the store keeps one by one, and choose the points that LiRA tells apart best."""
    own, records = CONFIG[name], len(target.y)
    masks = fair_coins(own["shadows"] * records, SHADOW_SEED).reshape(own["shadows"], records)
    masks[1::2] = ~masks[0::2]  # every record is in one of two models
    signals, accuracy = [], []
    for at, (seen, right) in enumerate(target.trained(masks, range(own["shadows"]), store), start=1):
        signals.append(seen)
        accuracy.append(right)
        announce(f"{name}: shadow model {at} of {own['shadows']}, test accuracy {right:.3f}")
    worst = select_worst(np.array(signals), masks, own["points"]).records
    return Kept(
        points=worst.tolist(),
        shadow_in=masks[:, worst].astype(int).tolist(),
        shadow_signals=np.round(np.array(signals)[:, worst], 4).tolist(),
        shadow_accuracy=np.round(accuracy, 4).tolist(),
    )


def challenged(name: str, target: Target, kept: Kept, store: Store | None) -> Iterator[Kept]:
    """Train the models that are still missing; gives what there is after each of them."""
    own, records = CONFIG[name], len(target.y)
    coins = fair_coins(own["runs"] * own["points"], COIN_SEED).reshape(own["runs"], own["points"])
    left = range(kept.runs, own["runs"])
    masks = np.ones((len(left), records), bool)
    masks[:, kept.points] = coins[kept.runs :]
    seeds = [10_000 * RUN_SEED + run for run in left]
    found: dict[str, list[Any]] = {name: list(value) for name, value in asdict(kept).items()}
    for run, (seen, right) in zip(left, target.trained(masks, seeds, store, kept.points), strict=True):
        found["coins"].append(coins[run].astype(int).tolist())
        found["signals"].append(np.round(seen, 4).tolist())
        found["accuracy"].append(round(right, 4))
        announce(f"{name}: model {run + 1} of {own['runs']}, test accuracy {right:.3f}")
        yield Kept(**{name: list(value) for name, value in found.items()})


def complete(name: str, store: Store | None, *, until: float | None = None, folder: Path = RESULTS) -> None:
    """Train what is missing of a target; stops after the model that is at work at the time `until`."""
    kept = read(folder).get(name)
    if kept is not None and kept.runs >= CONFIG[name]["runs"]:
        return
    target = named(CONFIG[name], store)
    if kept is None:
        kept = shadowed(name, target, store)
        write(name, kept, folder)
    for after in challenged(name, target, kept, store):
        write(name, after, folder)
        if until is not None and time.monotonic() > until:
            return


def main() -> None:
    """Train the targets that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=list(CONFIG), help="one target")
    parser.add_argument("--minutes", type=float, help="stop after so many minutes")
    given = parser.parse_args()
    until = None if given.minutes is None else time.monotonic() + 60 * given.minutes
    STORE.mkdir(parents=True, exist_ok=True)
    for name in [given.only] if given.only else list(CONFIG):
        if until is None or time.monotonic() < until:
            complete(name, Store(STORE), until=until)


if __name__ == "__main__":
    main()
