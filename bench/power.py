"""What an attack finds and what may be claimed from it: the same target, split and number of reference trainings.

python bench/power.py [--data credit_default] [--targets HGB] [--skip-peers] [--again]; reads DOSIMETER_DATA.
The peers run in an environment of their own (`environments.py`). Rows are kept in power.json as they come, so a run
may be stopped and resumes where it was; the peers are measured once, since they do not change when dosimeter does.
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
PAIRS = [(data, target) for data, targets in power.TARGETS.items() for target in targets]
FORCED = ("rmia-online", "lira")
Row = dict[str, Any]


def task_of(name: str) -> power.Task:
    """The records of a data set, each once, and fair coins that decide who is a member."""
    import dosimeter as dm
    from dosimeter import datasets

    X, y = datasets.load(name).pair
    X = np.ascontiguousarray(X).reshape(len(X), -1)
    rows = np.random.default_rng(power.SEED).permutation(np.unique(X, axis=0, return_index=True)[1])
    size = power.RECORDS[name]
    pool, others = rows[:size], rows[size : size + power.POPULATION[name]]
    return power.Task(X[pool], y[pool], dm.fair_coins(pool.size, seed=power.SEED), X[others], y[others])


def ours(task: power.Task, name: str) -> tuple[list[Row], list[Row], float]:
    """The default audit without and with references; then each attack on the same references, to check the choice."""
    import dosimeter as dm
    from dosimeter.engine import RunOptions, Store

    target = power.target_of(task, name)
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
    sizes = ", ".join(f"{size} records of {name}" for name, size in power.RECORDS.items())
    lines = [
        "# Power: what each tool finds, and what it may claim",
        "",
        f"Written by `python bench/power.py`. {sizes}, members by fair coins, {power.REFERENCES} "
        "reference trainings for each tool that uses any, δ = 1e-5, 95 % confidence, one target for each row of the "
        "head. TPR at .1 % / at 1 % FPR / AUC; seconds of processor time on one thread, trainings of the references "
        "included. A busy machine makes every second do less, so the time is also in trainings of the target, timed "
        "just before: 16 of them are the references. Only dosimeter's ε are lower bounds; PrivacyGuard's headline ε is "
        "an upper end of a bootstrap, and "
        "its eps_cp takes the best threshold of the same data without a correction.",
        "",
        "| data, target | tool | TPR at .1 % | TPR at 1 % | AUC | seconds | in trainings | what it may claim |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for result in results:
        for row in result["rows"]:
            head = f"| {result['data']}, {result['target']} | {row['tool']} |"
            if "failed" in row:
                lines.append(f"{head} | | | | | failed: {row['failed']} |")
                continue
            attack = f", by {row['attack']}" if "attack" in row else ""
            lines.append(
                f"{head} {100 * row['tpr_0.1']:.1f} % | {100 * row['tpr_1']:.1f} % | {row['auc']:.3f} | "
                f"{row['seconds']:.1f} | {_trainings(result, row)} | {row['claim']}{attack} |"
            )
    measured = {(result["data"], result["target"]) for result in results}
    missing = [f"{data}, {target}" for data, target in PAIRS if (data, target) not in measured]
    if missing:
        lines += ["", f"Not measured: {'; '.join(missing)}."]
    lines += ["", *_behind(results), "", *_choices(results)]
    return "\n".join(lines) + "\n"


def _trainings(result: dict[str, Any], row: Row) -> str:
    """The seconds of a row in trainings of the target at that time, where one was timed."""
    pace = result.get("pace" if "dosimeter" in row["tool"] else "peers_pace")
    return "" if pace is None else f"{row['seconds'] / pace:.0f}"


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
        unit = [result["pace"], result["peers_pace"]] if {"pace", "peers_pace"} <= set(result) else [1.0, 1.0]
        faster = [r["tool"] for r in others if own is not None and r["seconds"] / unit[1] < own["seconds"] / unit[0]]
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


Kept = dict[tuple[str, str], dict[str, Any]]


def _kept(file: Path) -> Kept:
    """What was measured before, by data and target."""
    if not file.is_file():
        return {}
    return {(result["data"], result["target"]): result for result in json.loads(file.read_text())}


def _keep(result: dict[str, Any]) -> Kept:
    """Write a result, also one that is half measured, beside what the file holds by now: others may write to it."""
    found = _kept(HERE / "power.json") | {(result["data"], result["target"]): result}
    ordered = [found[pair] for pair in PAIRS if pair in found]
    (HERE / "power.json").write_text(json.dumps(ordered, indent=1) + "\n")
    (HERE / "power.md").write_text(table(ordered))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", nargs="+", default=tuple(power.TARGETS), choices=tuple(power.TARGETS))
    parser.add_argument("--targets", nargs="+", default=None, help="e.g. HGB; all of the data set otherwise")
    parser.add_argument("--skip-peers", action="store_true", help="leave the peers' rows as they are")
    parser.add_argument("--skip-ours", action="store_true", help="leave dosimeter's rows as they are")
    parser.add_argument("--again", action="store_true", help="measure the peers again where power.json has them")
    asked = parser.parse_args()
    found = _kept(HERE / "power.json")
    for data, target in PAIRS:
        if data not in asked.data or (asked.targets is not None and target not in asked.targets):
            continue
        task = task_of(data)
        before = found.get((data, target), {"data": data, "target": target, "rows": [], "tried": []})
        own = [row for row in before["rows"] if "dosimeter" in row["tool"]]
        others = [row for row in before["rows"] if "dosimeter" not in row["tool"]]
        if not asked.skip_peers and (asked.again or not others):
            environments.install("power")
            answer = peers(task, target)
            others, before["mark"] = answer["rows"], answer["target"]
            before["peers_pace"] = answer["pace"]
            found = _keep(before | {"rows": [*own, *others]})
        if not asked.skip_ours:
            before["pace"] = power.pace(task, target)
            own, tried, mark = ours(task, target)
            if abs(before.get("mark", mark) - mark) > 1e-3:
                print(f"{data}, {target}: the peers' target differs ({before['mark']}, {mark})", file=sys.stderr)
            found = _keep(before | {"rows": [*own, *others], "tried": tried})
        print(f"{data}, {target}: done", file=sys.stderr, flush=True)
    print(table([found[pair] for pair in PAIRS if pair in found]))


if __name__ == "__main__":
    main()
