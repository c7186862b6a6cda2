"""What an attack finds and what may be claimed from it: the same target, split and number of reference trainings.

python bench/power.py [--data credit_default] [--targets HGB] [--skip-peers]; reads DOSIMETER_DATA.
The peers run in an environment of their own (`environments.py`). A full run writes power.md and power.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

for threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[threads] = "1"  # before NumPy is imported: seconds are those of one thread

import environments  # noqa: E402
import numpy as np  # noqa: E402
import power_task as power  # noqa: E402

HERE = Path(__file__).parent
DATA = ("credit_default", "adult")
FORCED = ("rmia-online", "lira")
Row = dict[str, Any]


def task_of(name: str) -> power.Task:
    """The records of a data set, each once, and fair coins that decide who is a member."""
    import dosimeter as dm
    from dosimeter import datasets

    X, y = datasets.load(name).pair
    rows = np.random.default_rng(power.SEED).permutation(np.unique(X, axis=0, return_index=True)[1])
    pool, others = rows[: power.RECORDS], rows[power.RECORDS : power.RECORDS + power.POPULATION]
    return power.Task(X[pool], y[pool], dm.fair_coins(pool.size, seed=power.SEED), X[others], y[others])


def ours(task: power.Task, name: str) -> tuple[list[Row], list[Row], float]:
    """The default audit without and with references; then each attack on the same references, to check the choice."""
    import dosimeter as dm
    from dosimeter.engine import RunOptions, Store

    target = power.estimator(name, power.SEED).fit(task.X[task.included], task.y[task.included])
    asked: dict[str, Any] = {"data": (task.X, task.y), "included": task.included, "delta": power.DELTA}
    with tempfile.TemporaryDirectory() as folder:
        run = RunOptions(engine="inline", progress=False, store=Store(Path(folder) / "store"))
        seconds, loss = power.timed(lambda: dm.audit_model(target, **asked))
        rows = [_row("dosimeter audit_model", loss, seconds)]
        seconds, best = power.timed(lambda: dm.audit_model(target, **asked, references=power.REFERENCES, run=run))
        rows.append(_row(f"**dosimeter audit_model(references={power.REFERENCES})**", best, seconds))
        tried = []
        for attack in FORCED:
            audit = dm.audit_model(
                target, **asked, references=power.REFERENCES, attack=attack, run=run, guard=False, resamples=0
            )
            tried.append(_row(attack, audit, 0.0) | {"chosen": attack == best.metadata.attack})
    on_references = {row.attack: row.epsilon for row in best.details.strength}
    for row in tried:
        row["on_references"] = on_references.get(row["tool"])
    right = target.predict_proba(task.X)[np.arange(task.y.size), task.y]
    return rows, tried, float(np.clip(right, 1e-7, 1 - 1e-7).sum())


def _row(tool: str, audit: Any, seconds: float) -> Row:
    points = {point.fpr: point.tpr for point in audit.curve.tpr_at_fpr}
    return {
        "tool": tool,
        "tpr_0.1": points[0.001],
        "tpr_1": points[0.01],
        "auc": audit.curve.auc,
        "seconds": seconds,
        "epsilon": audit.headline.low,
        "attack": getattr(audit.metadata, "attack", None) or "loss",
        "claim": f"ε ≥ {audit.headline.low:.2f}",
    }


def peers(task: power.Task, name: str) -> dict[str, Any]:
    """The rows of every peer, from a process in their environment."""
    with tempfile.TemporaryDirectory() as folder:
        task.save(Path(folder) / "task.npz")
        command = [environments.interpreter("power"), HERE / "peer_power.py", Path(folder) / "task.npz", name]
        clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, env=clean)
    if done.returncode:
        raise SystemExit(f"the peers failed:\n{done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def table(results: list[dict[str, Any]]) -> str:
    """All results as Markdown."""
    lines = [
        "# Power: what each tool finds, and what it may claim",
        "",
        f"Written by `python bench/power.py`. {power.RECORDS} records, members by fair coins, {power.REFERENCES} "
        "reference trainings for each tool that uses any, δ = 1e-5, 95 % confidence, one target for each row of the "
        "head. TPR at .1 % / at 1 % FPR / AUC; seconds of processor time on one thread, trainings of the references "
        "included. Only dosimeter's ε are lower bounds; PrivacyGuard's headline ε is an upper end of a bootstrap, and "
        "its eps_cp takes the best threshold of the same data without a correction.",
        "",
        "| data, target | tool | TPR at .1 % | TPR at 1 % | AUC | seconds | what it may claim |",
        "|---|---|---|---|---|---|---|",
    ]
    for result in results:
        for row in result["rows"]:
            head = f"| {result['data']}, {result['target']} | {row['tool']} |"
            if "failed" in row:
                lines.append(f"{head} | | | | failed: {row['failed']} |")
                continue
            attack = f", by {row['attack']}" if "attack" in row else ""
            lines.append(
                f"{head} {100 * row['tpr_0.1']:.1f} % | {100 * row['tpr_1']:.1f} % | {row['auc']:.3f} | "
                f"{row['seconds']:.1f} | {row['claim']}{attack} |"
            )
    measured = {(result["data"], result["target"]) for result in results}
    missing = [f"{d}, {t}" for d in DATA for t in power.TARGETS if (d, t) not in measured]
    if missing:
        lines += ["", f"Not measured: {'; '.join(missing)}."]
    lines += ["", *_behind(results), "", *_choices(results)]
    return "\n".join(lines) + "\n"


def _behind(results: list[dict[str, Any]]) -> list[str]:
    """Where a peer finds more than the default audit with references, or finds it sooner."""
    found = []
    for result in results:
        own = next((row for row in result["rows"] if "references=" in row["tool"]), None)
        others = [row for row in result["rows"] if "dosimeter" not in row["tool"] and "failed" not in row]
        for key, what in (("tpr_0.1", "TPR at .1 %"), ("tpr_1", "TPR at 1 %"), ("auc", "AUC")):
            best = max(others, key=lambda row, key=key: row[key], default=None)
            if own is not None and best is not None and best[key] > own[key]:
                values = f"{best[key]:.3f} against our {own[key]:.3f}"
                found.append(f"- {result['data']}, {result['target']}: {best['tool']} has the larger {what}, {values}.")
        faster = [row["tool"] for row in others if own is not None and row["seconds"] < own["seconds"]]
        if faster:
            found.append(f"- {result['data']}, {result['target']}: less time takes {', '.join(faster)}.")
    head = "## Where dosimeter is behind"
    return [head, "", *(found or ["On no row, neither in power nor in time."])]


def _choices(results: list[dict[str, Any]]) -> list[str]:
    lines = [
        '## Was `attack="auto"` right?',
        "",
        "The attack is chosen on the references alone. This table attacks the target with each, to check that choice; "
        "nothing of it enters an audit.",
        "",
        "| data, target | attack | ε on the references, mean | ε on the target | TPR at 1 % | AUC | chosen |",
        "|---|---|---|---|---|---|---|",
    ]
    for result in results:
        for row in result["tried"]:
            on = "" if row["on_references"] is None else f"{row['on_references']:.2f}"
            lines.append(
                f"| {result['data']}, {result['target']} | {row['tool']} | {on} | ≥ {row['epsilon']:.2f} | "
                f"{100 * row['tpr_1']:.1f} % | {row['auc']:.3f} | {'yes' if row['chosen'] else 'no'} |"
            )
    return lines


def _kept(file: Path) -> dict[tuple[str, str], list[Row]]:
    """The peers' rows of an earlier run: they do not change when dosimeter does."""
    if not file.is_file():
        return {}
    return {
        (result["data"], result["target"]): [row for row in result["rows"] if "dosimeter" not in row["tool"]]
        for result in json.loads(file.read_text())
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", nargs="+", default=DATA, choices=DATA)
    parser.add_argument("--targets", nargs="+", default=power.TARGETS, choices=power.TARGETS)
    parser.add_argument("--skip-peers", action="store_true", help="measure dosimeter alone")
    parser.add_argument("--keep-peers", action="store_true", help="take the peers from power.json where it has them")
    asked = parser.parse_args()
    kept = _kept(HERE / "power.json") if asked.keep_peers else {}
    wanted = {(data, target) for data in asked.data for target in asked.targets}
    if not asked.skip_peers and not wanted <= set(kept):
        environments.install("power")
    full = not asked.skip_peers and set(asked.data) == set(DATA) and set(asked.targets) == set(power.TARGETS)
    folder = HERE if full else environments.WORK
    folder.mkdir(exist_ok=True)
    results: list[dict[str, Any]] = []
    for data in asked.data:
        task = task_of(data)
        for target in asked.targets:
            rows, tried, mark = ours(task, target)
            if (data, target) in kept:
                rows += kept[data, target]
            elif not asked.skip_peers:
                found = peers(task, target)
                if abs(found["target"] - mark) > 1e-3:
                    print(f"{data}, {target}: the peers' target differs ({found['target']}, {mark})", file=sys.stderr)
                rows += found["rows"]
            results.append({"data": data, "target": target, "rows": rows, "tried": tried})
            print(f"{data}, {target}: done", file=sys.stderr, flush=True)
            (folder / "power.json").write_text(json.dumps(results, indent=1) + "\n")
            (folder / "power.md").write_text(table(results))
    print(table(results))


if __name__ == "__main__":
    main()
