"""What calibration by similar records adds to the loss, without any reference model: ε, AUC and TPR on real tables.

python bench/calibration.py [--seeds 1] [--labels]; reads DOSIMETER_DATA. Prints a table and writes calibration.json as
rows come; rows that are there already are kept, `--again` measures them anew. Every audit is `audit_model` with its
defaults but for the guard and the bootstrap, which have no part in these numbers. With `--labels` the models give
labels alone, and the targets are a forest and a tree without limits to their leaves.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

for threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[threads] = "1"  # before NumPy is imported

import numpy as np  # noqa: E402

FILE = Path(__file__).with_suffix(".json")
DATA = {"credit_default": 3001, "bank_marketing": 3001, "adult": 3001, "german_credit": 999}
ATTACKS = ("loss", "calibrated", "calibrated-neighbours", "calibrated-class")


def estimators(seed: int) -> dict[str, Any]:
    from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.tree import DecisionTreeClassifier

    return {
        "boosting": HistGradientBoostingClassifier(random_state=seed),
        "forest, leaves of 5": RandomForestClassifier(50, min_samples_leaf=5, random_state=seed),
        "forest": RandomForestClassifier(50, random_state=seed),
        "network, 60 epochs": make_pipeline(StandardScaler(), MLPClassifier((64, 32), max_iter=60, random_state=seed)),
        "tree, leaves of 10": DecisionTreeClassifier(min_samples_leaf=10, random_state=seed),
        "tree": DecisionTreeClassifier(random_state=seed),
    }


SCORES = ("boosting", "forest, leaves of 5", "forest", "network, 60 epochs", "tree, leaves of 10")
LABELS = ("forest", "tree")


def row(data: str, target: str, seed: int, outputs: str) -> dict[str, Any]:
    """One target, attacked in each way; from hard labels in the two ways that differ most."""
    import dosimeter as dm
    from dosimeter import datasets

    X, y = datasets.load(data).pair
    rows = np.random.default_rng(seed).permutation(np.unique(X, axis=0, return_index=True)[1])[: DATA[data]]
    X, y = np.asarray(X[rows], float), y[rows]
    coins = dm.fair_coins(y.size, seed=seed)
    model = estimators(seed)[target].fit(X[coins], y[coins])
    found = {}
    asked: dict[str, Any] = {"data": (X, y), "included": coins, "guard": False, "resamples": 0}
    asked |= {"outputs": "labels"} if outputs == "labels" else {}
    for attack in _attacks(outputs):
        audit = dm.audit_model(model, attack=attack, **asked)
        points = {point.fpr: point.tpr for point in audit.curve.tpr_at_fpr}
        found[attack] = {"epsilon": audit.headline.low, "auc": audit.curve.auc, "tpr_1": points[0.01]}
    return {"data": data, "target": target, "seed": seed, "outputs": outputs, "attacks": found}


def _attacks(outputs: str) -> tuple[str, ...]:
    return ATTACKS[:2] if outputs == "labels" else ATTACKS


def table(rows: list[dict[str, Any]]) -> str:
    """ε of each attack, and the means."""
    attacks = list(rows[0]["attacks"])
    lines = [f"| data, target, seed | {' | '.join(attacks)} |", "|---|" + "---|" * len(attacks)]
    for one in rows:
        values = (f"{one['attacks'][a]['epsilon']:.2f} ({one['attacks'][a]['auc']:.3f})" for a in attacks)
        lines.append(f"| {one['data']}, {one['target']}, {one['seed']} | {' | '.join(values)} |")
    means = [
        (np.mean([one["attacks"][a]["epsilon"] for one in rows]), np.mean([one["attacks"][a]["auc"] for one in rows]))
        for a in attacks
    ]
    lines.append(f"| mean of {len(rows)}: ε ≥ (AUC) | {' | '.join(f'{e:.2f} ({a:.3f})' for e, a in means)} |")
    for attack in attacks[1:]:
        more = [one["attacks"][attack]["epsilon"] - one["attacks"]["loss"]["epsilon"] for one in rows]
        counts = sum(m > 0 for m in more), sum(m < 0 for m in more)
        lines.append(f"\n{attack}: more than the loss in {counts[0]}, less in {counts[1]}.")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1, help="splits of each data set")
    parser.add_argument("--labels", action="store_true", help="models that give labels alone")
    parser.add_argument("--again", action="store_true", help="measure rows that are kept already")
    asked = parser.parse_args()
    outputs, targets = ("labels", LABELS) if asked.labels else ("scores", SCORES)
    kept = {} if not FILE.is_file() else {_key(one): one for one in json.loads(FILE.read_text())}
    wanted = [(data, target, seed, outputs) for seed in range(asked.seeds) for data in DATA for target in targets]
    for key in wanted:
        if asked.again or set(kept.get(key, {}).get("attacks", ())) != set(_attacks(outputs)):
            kept[key] = row(*key)
            FILE.write_text(json.dumps(list(kept.values()), indent=1) + "\n")
            print(f"{', '.join(map(str, key))}: done", file=sys.stderr, flush=True)
    print(table([kept[key] for key in wanted]))


def _key(one: dict[str, Any]) -> tuple[str, str, int, str]:
    return one["data"], one["target"], one["seed"], one["outputs"]


if __name__ == "__main__":
    main()
