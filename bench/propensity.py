"""A baseline for each record (`propensity_bound`): does it keep its level, how does it fail, and what does it prove?

`python -m bench.propensity` prints both tables and writes them to bench/propensity.json and docs/honest-bounds.md;
`--parts level` or `--parts adult` measures one of them and leaves the other as it is. The level is measured where the
truth is known: records with propensities of their own, a mechanism with an ε of its own, odd numbers of records, scores
with many ties. On Adult, networks that were trained on the members stand beside networks that never saw them.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special

import dosimeter as dm

FILE = Path(__file__).with_suffix(".json")
PAGE = Path(__file__).parents[1] / "docs" / "honest-bounds.md"
START, END = "<!-- propensity -->", "<!-- /propensity -->"
Floats = npt.NDArray[np.float64]
Bits = npt.NDArray[np.bool_]
Rng = np.random.Generator

SIZES, TRIALS = (37, 208, 1001), 200
SEEDS = range(20, 25)
OFF = 0.05  # by how much every propensity is too low in the second column


LEVEL = (
    f"Share of {TRIALS} audits whose bound, at 95 %, lies above the truth, and the mean bound. Right propensities; "
    "propensities that are all 0.05 too low; pairs whose log-odds are twice too steep; the same pairs by order alone:"
)
ADULT = (
    "Adult, 8000 members, generated non-members of the tree model, networks with two hidden layers; mean over seeds 20 "
    "to 24 (smallest to largest). RM;RN has real non-members, which the others do not need:"
)


def _answers(rng: Rng, labels: Bits, epsilon: float) -> Floats:
    true = rng.random(labels.size) < special.expit(epsilon)
    return np.where(true == labels, 1.0, -1.0)


def _public(rng: Rng, labels: Bits) -> Floats:
    noise = rng.normal(size=labels.size)
    return noise + np.where(labels, 10.0, -10.0) if rng.random() < 0.03 else noise


# name: (ε, δ, scores of labels)
MECHANISMS: dict[str, tuple[float, float, Callable[[Rng, Bits], Floats]]] = {
    "no leak": (0.0, 0.0, lambda rng, s: rng.normal(size=s.size)),
    "no leak, every guess the same": (0.0, 0.0, lambda rng, s: np.ones(s.size)),
    "randomised response ε = 1, all tied": (1.0, 0.0, lambda rng, s: _answers(rng, s, 1.0)),
    "Laplace ε = 1": (1.0, 0.0, lambda rng, s: rng.laplace(1.0 * s, 1.0) - 0.5),
    "public coin (0, 0.03)": (0.0, 0.03, _public),
}


def level(trials: int) -> list[dict[str, Any]]:
    """How often the bound lies above the truth: right propensities, 0.05 too low, and pairs whose slope is unknown."""
    rows = []
    for size in SIZES:
        for name, (epsilon, delta, scores) in MECHANISMS.items():
            rng = np.random.default_rng([size, len(rows)])
            found: dict[str, list[float]] = {"right": [], "off": [], "pairs": [], "ordered": []}
            for _ in range(trials):
                chance = special.expit(rng.normal(0.0, 1.2, size))
                labels = rng.random(size) < chance
                seen = scores(rng, labels)
                wrong = np.clip(chance - OFF, 0.01, 0.99)
                for key, stated in (("right", chance), ("off", wrong)):
                    found[key].append(dm.propensity_bound(dm.PropensityRun(seen, labels, stated), delta=delta).low)
                pairs = _pairs(rng, size, scores)
                found["pairs"].append(dm.propensity_bound(pairs, delta=delta).low)
                found["ordered"].append(dm.propensity_bound(pairs.ordered(), delta=delta).low)
            above = {key: float(np.mean(np.array(bounds) > epsilon)) for key, bounds in found.items()}
            means = {f"mean_{key}": float(np.mean(bounds)) for key, bounds in found.items()}
            rows.append({"records": size, "mechanism": name, "epsilon": epsilon, "trials": trials, **above, **means})
            print(rows[-1], flush=True)
    return rows


def _pairs(rng: Rng, size: int, scores: Callable[[Rng, Bits], Floats]) -> dm.PropensityRun:
    """Members that look different from the others, log-odds that are twice too steep, and a mechanism of one pair."""
    sides = [rng.normal(mean, 1.0, size) for mean in (1.0, 0.0)]
    swapped = rng.random(size) < 0.5  # which of the two the mechanism calls the first
    seen = scores(rng, ~swapped)
    lead = np.where(swapped, -seen, seen)
    return dm.PropensityRun.from_pairs((lead, np.zeros(size)), (2 * sides[0], 2 * sides[1]))


def adult() -> list[dict[str, Any]]:
    """ε̃, the bounds with real non-members and those of a baseline for each record, with and without a leak."""
    from dosimeter.generators import TreeModel
    from experiments.panoramia.adult import networks, parts

    rows = []
    for seed in SEEDS:
        inside, fresh, other = parts("adult", [8000] * 3, seed)
        how: dict[str, Any] = {"hidden": [256, 128], "batch": 64, "epochs": [10, 100], "seed": seed}
        models = {f"{epochs} epochs": model for epochs, model in networks(*inside, **how).items()}
        models |= {f"{epochs} epochs, no member": model for epochs, model in networks(*other, **how).items()}
        audit = dm.audit_members_only(models, inside, generator=TreeModel(), nonmembers=fresh, seed=seed)
        real = {row["name"]: row for row in audit.details["real"]["targets"]}
        for target in audit.details["targets"]:
            name = target["name"]
            row = {"seed": seed, "target": name, "tilde": target["epsilon"], "real": real[name]["epsilon"]}
            row |= {"real_one_run": real[name]["one_run"]}
            rows.append(row | {key: target[key] for key in ("by_record", "by_order")})
            print(rows[-1], flush=True)
        check = audit.details["propensities"]
        print("calibrated", check["calibrated"], "controls", check["controls"], flush=True)
    return rows


def tables(found: dict[str, Any]) -> str:
    lines = [
        LEVEL,
        "",
        "| records | mechanism | right | 0.05 too low | pairs | pairs, order alone |",
        "|---|---|---|---|---|---|",
    ]
    for row in found.get("level", []):
        shares = [f"{row[key]:.1%} (mean {row[f'mean_{key}']:.2f})" for key in ("right", "off", "pairs", "ordered")]
        lines.append(f"| {row['records']} | {row['mechanism']} | {' | '.join(shares)} |")
    head = "| network | ε̃ | RM;RN, in guesses | RM;RN, both kinds | for each record | order alone |"
    lines += ["", ADULT, "", head, "|---|---|---|---|---|---|"]
    targets = dict.fromkeys(row["target"] for row in found.get("adult", []))
    for name in targets:
        own = [row for row in found["adult"] if row["target"] == name]
        columns = ("tilde", "real", "real_one_run", "by_record", "by_order")
        cells = [[row[key] for row in own] for key in columns]
        texts = [f"{np.mean(cell):.2f} ({min(cell):.2f}–{max(cell):.2f})" for cell in cells]
        lines.append(f"| {name} | {' | '.join(texts)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", nargs="+", choices=("level", "adult"), default=("level", "adult"))
    parser.add_argument("--trials", type=int, default=TRIALS)
    asked = parser.parse_args()
    found: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    if "level" in asked.parts:
        found["level"] = level(asked.trials)
    if "adult" in asked.parts:
        found["adult"] = adult()
    FILE.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    before, rest = PAGE.read_text(encoding="utf-8").split(START)
    PAGE.write_text(f"{before}{START}\n{tables(found)}\n{END}{rest.split(END)[1]}", encoding="utf-8")
    print(tables(found))


if __name__ == "__main__":
    main()
