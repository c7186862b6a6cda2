"""What one run of DP-SGD proves about itself: digits, a small network, 10 000 Dirac canaries, the accountant's ε = 8.

`python -m bench.dp_sgd` trains everything, prints a table and writes bench/dp_sgd.json; `--quick` takes one seed of
each and writes nothing; `--parts near bugs` measures these again and leaves the others in the file as they are. Four
questions: how near do the bounds come to the accountant; are bugs caught in one run (half the noise, a layer that is
not clipped); are correct runs left alone; what does a worst-case start add to a black-box audit. The bugs are in a
training loop of its own, `Loop`, as a user would have one.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import dosimeter as dm
from dosimeter.datasets import load
from dosimeter.engine import RunOptions
from dosimeter.training import Privacy, Recipe, warm_start
from dosimeter.training.networks import mlp

Floats = npt.NDArray[np.float64]

EPSILON, DELTA, CONFIDENCE = 8.0, 1e-5, 0.95
CANARIES, HIDDEN, CLIP, RATE = 10_000, 160, 1.0, 0.5
SETTINGS = ((1.0, 100), (0.5, 100), (0.1, 200))  # sampling rate and steps
HERE = RunOptions(engine="inline", progress=False)
AUDITED = 500  # records of the black-box audits; the others train the worst-case start
PARTS = ("near", "bugs", "level", "black box")
LARGE = 10.0  # the norm of a canary before clipping, in units of the clipping norm


def digits() -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    x, y = load("digits").pair
    return np.asarray(x, np.float32) / np.float32(np.max(x)), np.asarray(y, np.int64)


def factory() -> Any:
    return mlp(64, 10, hidden=(HIDDEN,))


def recipe_of(rate: float, steps: int, records: int) -> Recipe:
    batch = None if rate == 1 else round(rate * records)
    exact = 1.0 if batch is None else batch / records
    noise = dm.noise_for_epsilon(EPSILON, delta=DELTA, sample_rate=exact, steps=steps)
    return Recipe(steps=steps, batch_size=batch, sampling="poisson", learning_rate=RATE, dp=Privacy(noise, CLIP))


def auc(scores: Floats, coins: npt.NDArray[np.bool_]) -> float:
    ranks = np.argsort(np.argsort(scores)) + 1.0
    inside, outside = int(coins.sum()), int((~coins).sum())
    return float((ranks[coins].sum() - inside * (inside + 1) / 2) / (inside * outside))


def near(rate: float, steps: int, seeds: int) -> list[dict[str, Any]]:
    """Audits of correct runs: what each adversary and each bound shows."""
    x, y = digits()
    recipe, rows = recipe_of(rate, steps, len(x)), []
    for seed in range(seeds):
        for canaries in ("dirac", "dirac-gradients-only"):
            start = time.perf_counter()
            audit = dm.audit_one_run(
                factory, (x, y), recipe=recipe, canaries=canaries, count=CANARIES, delta=DELTA, seed=seed, run=HERE
            )
            family = [e for e in audit.estimates if e.validity is dm.Validity.ASSUMES_FAMILY]
            assert audit.curve is not None and audit.metadata.utility is not None
            rows.append(
                {
                    "rate": rate,
                    "steps": steps,
                    "noise": recipe.dp.noise_multiplier if recipe.dp else None,
                    "seed": seed,
                    "adversary": audit.metadata.attack,
                    "auc": audit.curve.auc,
                    "accuracy": audit.metadata.utility.runs.members if audit.metadata.utility.runs else None,
                    "finite-sample": audit.headline.low,
                    "family": family[0].low if family else None,
                    "rejected": family[0].details["rejected"] if family else None,
                    "seconds": time.perf_counter() - start,
                }
            )
    return rows


@dataclass
class Loop:
    """DP-SGD of a network with one hidden layer, written out; `bug` is "none", "noise" (halved) or "clipping"."""

    noise: float
    rate: float
    steps: int
    bug: str = "none"

    def scores(self, coins: npt.NDArray[np.bool_], seed: int) -> Floats:
        """Train with the canaries whose coins are on, and give the adversary's log-likelihood ratio of each canary.

        Canary j is a record whose gradient is LARGE times the clipping norm at parameter j and 0 elsewhere. It goes
        through the same clipping as every other record.
        """
        x, y = digits()
        rng = np.random.default_rng(seed)
        inputs, classes = x.shape[1], 10
        weights = [
            rng.normal(0, inputs**-0.5, (inputs, HIDDEN)),
            np.zeros(HIDDEN),
            rng.normal(0, HIDDEN**-0.5, (HIDDEN, classes)),
            np.zeros(classes),
        ]
        sizes = np.cumsum([w.size for w in weights])
        first = np.arange(coins.size) < sizes[1]  # canaries in the first layer
        deviation = self.noise * CLIP * (0.5 if self.bug == "noise" else 1.0)
        ratios = np.zeros(coins.size)
        for _ in range(self.steps):
            batch = rng.random(len(x)) < self.rate
            known = np.concatenate([g.ravel() for g in self._records(weights, x[batch].astype(float), y[batch])])
            total = known.copy()
            drawn = coins & (rng.random(coins.size) < self.rate)
            total[: coins.size] += drawn * self._clipped_canaries(first)
            total += rng.normal(0, deviation, total.size)
            seen = (total - known)[: coins.size] / CLIP
            ratios += np.logaddexp(
                np.log1p(-self.rate) if self.rate < 1 else -np.inf,
                np.log(self.rate) + (2 * seen - 1) / (2 * self.noise**2),
            )
            for weight, move in zip(weights, np.split(total, sizes[:-1]), strict=True):
                weight -= RATE * move.reshape(weight.shape) / (self.rate * len(x))
        return ratios

    def _clipped_canaries(self, first: npt.NDArray[np.bool_]) -> Floats:
        raw = np.full(first.size, LARGE * CLIP)
        squares = np.where(first, raw**2, 0.0), np.where(first, 0.0, raw**2)
        factors = self._factors(*squares)
        return raw * np.where(first, factors[0], factors[1])

    def _factors(self, first: Floats, second: Floats) -> tuple[Floats, Floats]:
        """What the gradients of both layers are multiplied by, from their squared norms."""
        if self.bug == "clipping":  # the first layer is forgotten
            return np.ones_like(first), np.minimum(1.0, CLIP / np.sqrt(np.maximum(second, 1e-30)))
        both = np.minimum(1.0, CLIP / np.sqrt(np.maximum(first + second, 1e-30)))
        return both, both

    def _records(self, weights: list[Floats], x: Floats, y: npt.NDArray[np.int64]) -> list[Floats]:
        """Sums of clipped gradients."""
        hidden = np.maximum(x @ weights[0] + weights[1], 0.0)
        logits = hidden @ weights[2] + weights[3]
        error = np.exp(logits - logits.max(axis=1, keepdims=True))
        error /= error.sum(axis=1, keepdims=True)
        error[np.arange(len(y)), y] -= 1.0
        back = (error @ weights[2].T) * (hidden > 0)
        squares = [
            (delta**2).sum(axis=1) * ((before**2).sum(axis=1) + 1) for before, delta in ((x, back), (hidden, error))
        ]
        one, two = self._factors(*squares)
        back, error = back * one[:, None], error * two[:, None]
        return [x.T @ back, back.sum(axis=0), hidden.T @ error, error.sum(axis=0)]


def bugs(rate: float, steps: int, seeds: int) -> list[dict[str, Any]]:
    """Runs of a loop that claims ε = 8, tested once each."""
    noise = dm.noise_for_epsilon(EPSILON, delta=DELTA, sample_rate=rate, steps=steps)
    claimed, rows = dm.DpSgd(noise, rate, steps), []
    for bug in ("none", "noise", "clipping"):
        for seed in range(seeds):
            coins = dm.fair_coins(CANARIES, seed=1000 + seed)
            run = dm.OneRun(Loop(noise, rate, steps, bug).scores(coins, seed), coins)
            found = {
                "any dependence": dm.claim(run, mechanism=claimed, delta=DELTA),
                "independent": dm.claim(run, mechanism=claimed, delta=DELTA, independent=True),
            }
            row = {"rate": rate, "steps": steps, "bug": bug, "seed": seed, "auc": auc(run.scores, coins)}
            row["finite-sample"] = dm.lower_bound(run, delta=DELTA).low
            rows.append(row | {name: [e.details["rejected"], e.low] for name, e in found.items()})
    return rows


def level(runs: int) -> dict[str, Any]:
    """How often correct trainings, small ones, are rejected at 5 %."""
    x, y = (part[:300] for part in digits())
    recipe = Recipe(steps=15, batch_size=90, sampling="poisson", learning_rate=RATE, dp=Privacy(1.0, CLIP))
    claimed = dm.DpSgd(1.0, 90 / 300, 15)
    rejected = {"any dependence": 0, "independent": 0}
    for seed in range(runs):
        options: dict[str, Any] = {"recipe": recipe, "canaries": "dirac", "count": 1000, "delta": DELTA, "seed": seed}
        run = _evidence(factory, (x, y), options)
        for name in rejected:
            rejected[name] += bool(
                dm.claim(run, mechanism=claimed, delta=DELTA, independent=name == "independent").details["rejected"]
            )
    return {"runs": runs, "canaries": 1000, "rejected": rejected}


def _evidence(train: Any, data: Any, options: dict[str, Any]) -> dm.OneRun:
    """The canaries of one training by the engine, as an audit would score them."""
    from dosimeter.training import Dirac, train_many

    seed = options["seed"]
    parameters = sum(p.numel() for p in train().parameters())
    dirac = Dirac.draw(options["count"], parameters=parameters, seed=10_000 + seed)
    recipe = Recipe(**{**vars(options["recipe"]), "canaries": dirac})
    members = np.ones((1, len(data[0])), bool)
    (trained,) = train_many(train, recipe, data, members, seeds=[seed], progress=False)
    return dm.OneRun(trained.transcript.canaries, np.array(dirac.included))


def black_box(seeds: int) -> list[dict[str, Any]]:
    """Audits of a repeated training that sees outputs alone: from random weights, and from those of `warm_start`."""
    x, y = digits()
    data, others = (x[:AUDITED], y[:AUDITED]), (x[AUDITED:], y[AUDITED:])
    recipe, rows = recipe_of(1.0, 50, AUDITED), []
    for seed in range(seeds):
        for start, make in (("random", factory), ("warm", warm_start(factory, others, seed=seed))):
            audit = dm.audit_training(
                make, data, recipe=recipe, canaries="clip-bkd", shadows=64, runs=256, delta=DELTA, seed=seed, run=HERE
            )
            assert audit.curve is not None
            rows.append({"start": start, "seed": seed, "auc": audit.curve.auc, "finite-sample": audit.headline.low})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="what to measure")
    parser.add_argument("--quick", action="store_true", help="one seed of each, and four runs for the level")
    asked = parser.parse_args()
    seeds, runs = (1, 4) if asked.quick else (5, 40)
    measure = {
        "near": lambda: [row for setting in SETTINGS for row in near(*setting, seeds)],
        "bugs": lambda: [row for setting in SETTINGS[:2] for row in bugs(*setting, seeds)],
        "level": lambda: level(runs),
        "black box": lambda: black_box(min(seeds, 2)),
    }
    file = Path(__file__).with_suffix(".json")
    results = {} if asked.quick or not file.is_file() else json.loads(file.read_text())
    results |= {part: measure[part]() for part in asked.parts}
    if not asked.quick:
        file.write_text(json.dumps(results, indent=1) + "\n")
    for row in results.get("near", ()):
        family = "–" if row["family"] is None else f"{row['family']:.2f}"
        print(
            f"q = {row['rate']}, {row['steps']} steps, seed {row['seed']}, {row['adversary']}: AUC {row['auc']:.3f}, "
            f"finite-sample ε ≥ {row['finite-sample']:.2f}, in the family ε ≥ {family}, {row['seconds']:.1f} s"
        )
    for row in results.get("bugs", ()):
        print(
            f"q = {row['rate']}, bug: {row['bug']}, seed {row['seed']}: finite-sample ε ≥ {row['finite-sample']:.2f}; "
            f"rejected {row['any dependence'][0]} (any dependence), {row['independent'][0]} (independent)"
        )
    for row in results.get("black box", ()):
        print(
            f"black box, {row['start']} start, seed {row['seed']}: AUC {row['auc']:.3f}, "
            f"finite-sample ε ≥ {row['finite-sample']:.2f}"
        )
    print(f"level: {results.get('level')}")


if __name__ == "__main__":
    main()
