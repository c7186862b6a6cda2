"""Scoring of one target by LiRA and RMIA, and of every model in turn: CPU time, memory, and the loop people write.

python bench/attacks.py [--records 50000] [--models 256] [--quick]
CPU seconds of one thread; memory is the peak that tracemalloc sees above the inputs, divided by the size of the matrix
of shadow signals. The loop is a plain NumPy/SciPy one over records; it is run on some of them and scaled up.
Targets: one target in at most 2 s and 3 times the matrix; fails with exit code 1 otherwise.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import tracemalloc
from functools import partial

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from scipy import stats

from dosimeter import attacks

MOST_SECONDS, MOST_MEMORY = 2.0, 3.0
LOOPED = 400  # records that the loop is run on
ROUNDS = 3


def signals(models: int, records: int):
    """Logit-scaled confidences in single precision: a level for each record, higher for members."""
    rng = np.random.default_rng(0)
    included = rng.random((models + 1, records)) < 0.5
    values = rng.standard_normal((models + 1, records), dtype=np.float32) + 1.0 * included
    values += rng.normal(1.0, 2.0, records).astype(np.float32)
    values = values.astype(np.float32)
    return values[0].copy(), values[1:].copy(), included[1:].copy()


def looped_lira(target, shadows, included):
    """Online LiRA with each record's own variance, one record at a time."""
    scores = []
    for j in range(target.size):
        own, other = (shadows[side, j].astype(float) for side in (included[:, j], ~included[:, j]))
        scores.append(
            stats.norm.logpdf(target[j], own.mean(), own.std(ddof=1))
            - stats.norm.logpdf(target[j], other.mean(), other.std(ddof=1))
        )
    return np.array(scores)


def looped_ratios(target, shadows, included):
    """Offline RMIA's ratios of probabilities, one record at a time."""
    ratios = []
    for j in range(target.size):
        outside = 1 / (1 + np.exp(-shadows[~included[:, j], j].astype(float)))
        ratios.append(1 / (1 + np.exp(-float(target[j]))) / ((1.3 * outside.mean() + 0.7) / 2))
    return np.array(ratios)


def looped_shares(ratios, few):
    """RMIA's scores of a few records, each compared with all."""
    return np.array([np.mean(ratios[j] / ratios >= 1) for j in range(few)])


def cpu(work) -> float:
    best = np.inf
    for _ in range(ROUNDS):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best


def peak(work) -> int:
    tracemalloc.start()
    work()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=50_000)
    parser.add_argument("--models", type=int, default=256)
    parser.add_argument("--quick", action="store_true", help="a tenth of the records")
    asked = parser.parse_args()
    records = asked.records // 10 if asked.quick else asked.records
    target, shadows, included = signals(asked.models, records)
    few = min(LOOPED, records)
    part = target[:few], shadows[:, :few], included[:, :few]

    lira_loop = cpu(lambda: looped_lira(*part)) * records / few
    rmia_loop = cpu(lambda: looped_ratios(*part)) * records / few
    rmia_loop += cpu(lambda: looped_shares(np.exp(target), few)) * records / few
    same = np.abs(attacks.lira(*part, variance="record") - looped_lira(*part)).max()
    print(f"{asked.models} shadow models × {records} records, float32, {shadows.nbytes / 1e6:.0f} MB; one target")
    print(f"largest difference of LiRA from the loop: {same:.1e}")
    print(f"{'attack':34}{'CPU s':>8}{'memory':>9}{'loop s':>10}{'ratio':>9}")

    rows = [
        (f"lira {mode} {variance}", partial(attacks.lira, target, shadows, included, mode=mode, variance=variance))
        for mode in ("online", "offline")
        for variance in ("record", "global", "bayesian")
    ]
    rows += [
        (f"rmia {mode}", partial(attacks.rmia, target, shadows, included, mode=mode)) for mode in ("offline", "online")
    ]
    rows.append(("watson", partial(attacks.watson, target, shadows, included)))
    failed = False
    for name, work in rows:
        seconds, memory = cpu(work), peak(work) / shadows.nbytes
        loop = {"lira": lira_loop, "rmia": rmia_loop}.get(name.split()[0])
        beside = f"{loop:10.1f}{loop / seconds:8.0f}×" if loop else ""
        missed = seconds > MOST_SECONDS or memory > MOST_MEMORY
        failed |= missed
        print(f"{name:34}{seconds:8.2f}{memory:8.2f}×{beside}{'  missed' if missed else ''}", flush=True)

    print(f"every model as the target once ({asked.models} targets)")
    for name, options in (("lira", {"variance": "bayesian"}), ("rmia", {}), ("watson", {})):
        work = partial(attacks.leave_one_out, name, shadows, included, **options)
        start = time.process_time()
        memory = peak(work) / shadows.nbytes
        print(f"{name:34}{time.process_time() - start:8.2f}{memory:8.2f}×")
    start = time.process_time()
    chosen = attacks.select_worst(shadows, included, 10)
    print(f"{'select_worst, lira':34}{time.process_time() - start:8.2f}   best weight {chosen.weights[0]:.3f}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
