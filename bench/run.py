"""Time dosimeter against its targets and its peers.

Makes one virtual environment for each library under .bench/ (minutes, once), keeps one process open in each,
lets them take turns, and prints the medians of CPU time with the values beside each other. A full run writes
bench/results.json and bench/results.md; any other run writes them to .bench/.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import report
from environments import WORK, NotInstalledError, install, interpreter
from rows import FORBIDDEN, GROWTH, IMPORT_RATIO, IMPORT_REPEATS, ROWS, Row

HERE = Path(__file__).resolve().parent
EXAMPLES = """examples:
  python bench/run.py                      everything (some 4 minutes, and 10 more the first time)
  python bench/run.py --quick              small sizes, no slow peers (about a minute once installed)
  python bench/run.py --only lower-bound   one group of rows
  python bench/run.py --skip-peers         dosimeter alone
"""
# Libraries by name: the environment they run in, the module with their tasks, the package whose version is shown.
LIBRARIES = {
    "dosimeter": ("dosimeter", "ours", "dosimeter"),
    "reference": ("dosimeter", "reference", "numpy"),
    "privacy-estimates": ("privacy-estimates", "peer_privacy_estimates", "privacy-estimates"),
    "jax-privacy": ("jax-privacy", "peer_jax_privacy", "jax-privacy"),
    "privacyguard": ("privacyguard", "peer_privacyguard", "privacyguard-platform"),
}
_POOLS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
ONE_THREAD = dict.fromkeys(_POOLS, "1") | {"JAX_PLATFORMS": "cpu"}


class TaskError(Exception):
    """A task failed in its worker."""


class Worker:
    """A process that stays open in the environment of one library."""

    def __init__(self, library: str) -> None:
        environment, module, _ = LIBRARIES[library]
        log = WORK / f"{library}.log"
        self._ended = f"the process has ended; see {log.relative_to(HERE.parent)}"
        with log.open("w") as errors:
            self._process = subprocess.Popen(
                [str(interpreter(environment)), str(HERE / "worker.py"), module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=os.environ | ONE_THREAD,
            )

    def ask(self, task: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """One repetition of a task."""
        assert self._process.stdin and self._process.stdout
        try:
            self._process.stdin.write(json.dumps({"task": task, "arguments": arguments}) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        answer = json.loads(line) if line else {"error": self._ended}
        if "error" in answer:
            raise TaskError(f"{task}: {answer['error']}")
        return answer

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()


class Bench:
    """The workers that are open, and what had to be left out."""

    def __init__(self, skip_peers: bool) -> None:
        self.left_out: list[str] = []
        self.workers: dict[str, Worker] = {}
        self.versions: dict[str, str] = {}
        self._without: set[str] = set(LIBRARIES) - {"dosimeter", "reference"} if skip_peers else set()
        self._installed: set[str] = set()

    def worker(self, library: str) -> Worker | None:
        """The worker of a library, its environment made if need be; None if that cannot be had."""
        if library in self._without:
            return None
        if library not in self.workers:
            environment, _, package = LIBRARIES[library]
            try:
                if environment not in self._installed:  # never again while a worker of it is open
                    install(environment)
                    self._installed.add(environment)
                self.workers[library] = Worker(library)
                self.versions[package] = self.workers[library].ask("version", {"package": package})["value"]
            except (NotInstalledError, TaskError) as error:
                if library == "dosimeter":
                    raise
                self._without.add(library)
                self.left_out.append(f"{library} ({error})")
                return None
        return self.workers[library]

    def close(self) -> None:
        """End all workers."""
        for worker in self.workers.values():
            worker.close()


def measure(bench: Bench, row: Row, quick: bool) -> dict[str, Any] | None:
    """Repetitions of a row, ours and theirs in turn, after one of each that is not counted; None if it needs a peer."""
    ours = bench.worker("dosimeter")
    theirs = bench.worker(row.peer) if row.peer and (row.quick_peer or not quick) else None
    assert ours is not None
    if row.peer and theirs is None and not row.target.own:
        return None
    sides = [(ours, row.task, row.arguments, row.repeats)]
    if theirs:
        arguments = row.arguments if row.peer_arguments is None else row.peer_arguments
        sides.append((theirs, row.peer_task or row.task, arguments, row.peer_repeats))
    taken: list[list[dict[str, Any]]] = [[] for _ in sides]
    for round_number in range(max(repeats for *_, repeats in sides) + 1):
        for answers, (worker, task, arguments, repeats) in zip(taken, sides, strict=True):
            warm_up = round_number == 0 and repeats > 1
            if warm_up or (len(answers) < repeats and round_number > 0):
                answer = worker.ask(task, arguments)
                if not warm_up:
                    answers.append(answer)
    return judged(row, *[summary(answers) for answers in taken])


def summary(answers: list[dict[str, Any]]) -> dict[str, Any]:
    """The median of repetitions, with all of them."""
    times = [answer["seconds"] for answer in answers]
    last = answers[-1]
    return {"seconds": statistics.median(times), "value": last["value"], "scale": last["scale"], "all": times}


def judged(row: Row, ours: dict[str, Any], theirs: dict[str, Any] | None = None) -> dict[str, Any]:
    """A row with its ratio, its error and whether the target is met."""
    ratio = theirs["seconds"] / ours["seconds"] if theirs else None
    error = distance(ours["value"], row.truth) if row.truth else None
    if theirs and row.truth:
        theirs["error"] = distance(theirs["value"], row.truth)
    target = row.target
    checks = [
        None if target.milliseconds is None else 1000 * ours["seconds"] <= target.milliseconds,
        None if target.ratio is None or ratio is None else ratio >= target.ratio,
        None if target.value is None else ours["value"] >= target.value,
        None if target.error is None or error is None else error <= target.error,
    ]
    made = [check for check in checks if check is not None]
    verdict = "" if not made else "yes" if all(made) else "not yet" if target.aim else "no"
    if verdict == "yes" and target.ratio is not None and ratio is None:
        verdict = "yes, but for the ratio"
    return {
        "name": row.name,
        "work": row.work,
        "peer": row.peer,
        "ours": ours,
        "theirs": theirs,
        "ratio": ratio,
        "error": error,
        "target": str(target),
        "met": verdict,
        "note": row.note,
    }


def distance(found: list[float], truth: list[float]) -> float:
    """The largest distance between two lists of numbers."""
    return max(abs(a - b) for a, b in zip(found, truth, strict=True))


def growth(bench: Bench, quick: bool) -> list[dict[str, Any]]:
    """The time of lower_bound over sizes, and what it costs a comparison of a sort."""
    worker = bench.worker("dosimeter")
    assert worker is not None
    lines = []
    for members in GROWTH[:2] if quick else GROWTH:
        tell(f"growth: {members:,} scores of each side")
        worker.ask("lower_bound", {"members": members})
        answers = [worker.ask("lower_bound", {"members": members}) for _ in range(3 if members > 10**6 else 9)]
        total, found = 2 * members, summary(answers)
        cost = 1e9 * found["seconds"] / (total * math.log2(total))
        lines.append({"members": members, "seconds": found["seconds"], "per_n_log_n": cost, "value": found["value"]})
    return lines


def imports(bench: Bench) -> dict[str, Any]:
    """Import times in fresh processes that take turns, and the modules that should not have been loaded."""
    bench.worker("dosimeter")
    python = str(interpreter("dosimeter"))
    names = ["dosimeter", "scipy.stats"]
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    for round_number in range(IMPORT_REPEATS + 1):
        for name in names:
            code = (
                "import time; c, w = time.process_time(), time.perf_counter()\n"
                f"import {name}\n"
                "print(time.process_time() - c, time.perf_counter() - w)"
            )
            cpu, wall = run_code(python, code).split()
            if round_number:  # the first one fills the caches
                taken[name].append((float(cpu), float(wall)))
    code = f"import dosimeter, sys\nprint(*[name for name in {FORBIDDEN} if name in sys.modules])"
    times = {
        name: {"cpu": statistics.median(c for c, _ in t), "wall": statistics.median(w for _, w in t)}
        for name, t in taken.items()
    }
    ratio = times["dosimeter"]["cpu"] / times["scipy.stats"]["cpu"]
    return {"times": times, "ratio": ratio, "most": IMPORT_RATIO, "forbidden": run_code(python, code).split()}


def run_code(python: str, code: str) -> str:
    """What a fresh process prints."""
    return subprocess.run(
        [python, "-c", code], check=True, capture_output=True, text=True, env=os.environ | ONE_THREAD
    ).stdout


def machine() -> dict[str, str]:
    """What the numbers depend on."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    load = f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown"
    return {
        "processor": f"{names[0] if names else platform.processor() or 'unknown'} ({os.cpu_count()} cores)",
        "load at the start": load,
        "Python": platform.python_version(),
    }


def source() -> str:
    """A fingerprint of the code that is measured."""
    found = hashlib.sha256()
    for path in sorted((HERE.parent / "src").rglob("*.py")):
        found.update(path.read_bytes())
    return found.hexdigest()[:12]


def tell(message: str) -> None:
    """A line of progress."""
    print(message, file=sys.stderr, flush=True)


def arguments() -> argparse.Namespace:
    """The command line."""
    groups = sorted({row.name for row in ROWS} | {"growth", "import"})
    parser = argparse.ArgumentParser(
        prog="bench/run.py",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="small sizes only, and no slow peers")
    parser.add_argument("--only", metavar="NAME", choices=groups, help="one group of rows: " + ", ".join(groups))
    parser.add_argument("--skip-peers", action="store_true", help="install and run no other library")
    return parser.parse_args()


def main() -> int:
    """Run the benchmark."""
    options = arguments()
    bench = Bench(options.skip_peers)
    results: dict[str, Any] = {"machine": machine(), "rows": [], "growth": [], "import": {}}
    start, code = time.monotonic(), source()
    try:
        for row in ROWS:
            if options.only not in (None, row.name) or (options.quick and not row.quick):
                continue
            tell(f"{row.name}: {row.work}")
            try:
                found = measure(bench, row, options.quick)
                results["rows"] += [found] if found else []
            except TaskError as error:
                bench.left_out.append(f"{row.work} ({error})")
        if options.only in (None, "growth"):
            results["growth"] = growth(bench, options.quick)
        if options.only in (None, "import"):
            tell("import: fresh processes")
            results["import"] = imports(bench)
    except (NotInstalledError, TaskError) as error:
        tell(f"error: {error}")
        return 1
    finally:
        bench.close()
    results |= {"versions": bench.versions, "left_out": bench.left_out, "source": code, "changed": source() != code}
    full = not (options.quick or options.only or options.skip_peers)
    folder = HERE if full else WORK
    (folder / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    (folder / "results.md").write_text(report.markdown(results))
    print(report.text(results), end="")
    tell(f"{time.monotonic() - start:.0f} s; written to {folder.name}/results.md and {folder.name}/results.json")
    return 0


if __name__ == "__main__":
    sys.exit(main())
