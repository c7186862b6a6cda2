"""The first half of a training audit: shadow models of the Adult MLP and the LiRA scores of all records.

python bench/audit_training.py [--quick]; needs torch and the Adult data set (DOSIMETER_DATA or a download).
The other way is the plain PyTorch loop: one model after the other, batches as slices of a permuted tensor (no
DataLoader to slow it down), in one thread, which makes the loop faster: with torch's two threads it took many times as
long on a shared machine (not tried on a quiet one); then the same scores, each model attacked with the help of the
others, in NumPy. It does all of the work once, in four parts; after each part ours does all of it, so that both see the
same machine. The ratio of wall times is the figure to read; that of CPU times says how much of it is less work.
Target: 3 times the loop's speed on 2 cores; exit code 1 otherwise.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
MALLOC = "glibc.malloc.mmap_threshold=2000000000:glibc.malloc.trim_threshold=8000000000"
TARGET = 3.0
MODELS, RECORDS, HIDDEN, PARTS = 64, 10_000, (64, 64), 4


def net():
    from dosimeter.training.networks import mlp

    return mlp(104, 2, HIDDEN)


def adult(records):
    import numpy as np

    from dosimeter.datasets import load

    data = load("adult")
    rows = np.random.default_rng(0).permutation(len(data))[:records]
    return np.ascontiguousarray(data.X[rows], np.float32), data.y[rows]


def ours(x, y, masks, recipe):
    """Signals and scores as `audit_training` makes them, in two processes."""
    from dosimeter.attacks import leave_one_out
    from dosimeter.audits.training.repeatable import pipeline
    from dosimeter.audits.training.shadows import collect
    from dosimeter.engine import RunOptions

    where = RunOptions(workers=2, progress=False)
    trained = pipeline(net, (x, y), recipe=recipe, where=where)
    found = collect(trained.run(masks, list(range(len(masks)))), masks, stage="shadow")
    assert not found.failed
    return leave_one_out("lira", found.signals, masks, variance="record"), found.accuracy.nonmembers


def loop(x, y, masks, recipe, first):
    """The same by hand: train, ask for all records, take the log-odds of the true class."""
    import numpy as np
    import torch

    torch.set_num_threads(1)
    inputs, labels = torch.from_numpy(x), torch.from_numpy(y)
    signals, right = np.empty(masks.shape), []
    for index, mask in enumerate(masks):
        torch.manual_seed(first + index)
        module, rows = net(), torch.from_numpy(mask)
        mine, theirs = inputs[rows], labels[rows]
        optimiser = torch.optim.SGD(module.parameters(), lr=recipe.learning_rate, momentum=recipe.momentum)
        for _ in range(recipe.epochs):
            for part in torch.randperm(len(mine)).split(recipe.batch_size):
                optimiser.zero_grad()
                torch.nn.functional.cross_entropy(module(mine[part]), theirs[part]).backward()
                optimiser.step()
        with torch.no_grad():
            logits = module(inputs).double().numpy()
        gap = logits[:, 1] - logits[:, 0]
        signals[index] = np.where(y == 1, gap, -gap)
        right.append(float((logits.argmax(axis=1) == y)[~mask].mean()))
    return signals, right


def looped_scores(signals, masks):
    """LiRA with each model as the target once."""
    import numpy as np

    scores = np.empty(masks.shape)
    for index in range(len(masks)):
        others = np.arange(len(masks)) != index
        scores[index] = densities(signals[index], signals[others], masks[others])
    return scores


def densities(target, shadows, masks):
    """Log density with the record minus log density without it."""
    import numpy as np

    found = []
    for side in (masks, ~masks):
        count = side.sum(axis=0)
        mean = np.where(side, shadows, 0.0).sum(axis=0) / count
        variance = np.where(side, (shadows - mean) ** 2, 0.0).sum(axis=0) / (count - 1)
        found.append(-((target - mean) ** 2) / (2 * variance) - np.log(variance) / 2)
    return found[0] - found[1]


def auc(scores, masks):
    """The mean over models of the chance that a member's score is above a non-member's."""
    import numpy as np

    ranks = scores.argsort(axis=1).argsort(axis=1) + 1
    inside = masks.sum(axis=1)
    above = np.where(masks, ranks, 0).sum(axis=1) - inside * (inside + 1) / 2
    return float((above / (inside * (masks.shape[1] - inside))).mean())


def cpu_seconds():
    """Of this process and of the workers that it has, so far."""
    from multiprocessing import active_children

    tick, total = os.sysconf("SC_CLK_TCK"), 0.0
    for pid in [os.getpid(), *(child.pid for child in active_children())]:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        total += sum(map(int, fields[11:15])) / tick
    return total


class Clock:
    """Wall and CPU seconds, added up over the times that it runs."""

    def __init__(self):
        self.wall = self.cpu = 0.0

    def __enter__(self):
        self.began = time.perf_counter(), cpu_seconds()

    def __exit__(self, *error):
        self.wall += time.perf_counter() - self.began[0]
        self.cpu += cpu_seconds() - self.began[1]


def measure(epochs):
    import numpy as np

    from dosimeter.audits.training.shadows import halves
    from dosimeter.training import Recipe

    x, y = adult(RECORDS)
    masks = halves(MODELS, RECORDS, 1)
    plain = {"learning_rate": 0.1, "momentum": 0.9, "batch_size": 128}
    recipe, short = Recipe(epochs=epochs, **plain), Recipe(epochs=1, **plain)
    ours(x, y, masks, short)  # the first time pays for imports, processes and caches
    loop(x, y, masks[:1], short, 0)
    slow, turns, signals, right = Clock(), [], [], []
    for first in range(0, MODELS, MODELS // PARTS):
        with slow:
            found = loop(x, y, masks[first : first + MODELS // PARTS], recipe, first)
        signals.append(found[0])
        right += found[1]
        turns.append(Clock())
        with turns[-1]:
            scores, accuracy = ours(x, y, masks, recipe)
    with slow:
        looped = looped_scores(np.concatenate(signals), masks)
    wall, cpu = (statistics.median(getattr(turn, name) for turn in turns) for name in ("wall", "cpu"))
    return {
        "models": MODELS,
        "records": RECORDS,
        "epochs": epochs,
        "dosimeter": {"wall": wall, "CPU": cpu, "accuracy": accuracy, "AUC": auc(scores, masks)},
        "loop": {"wall": slow.wall, "CPU": slow.cpu, "accuracy": statistics.fmean(right), "AUC": auc(looped, masks)},
        "wall ratio": slow.wall / wall,
        "CPU ratio": slow.cpu / cpu,
        "target": TARGET,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="4 epochs instead of 20")
    asked = parser.parse_args()
    if os.environ.get("GLIBC_TUNABLES") != MALLOC:  # for both ways alike; it counts from the start of a process
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "GLIBC_TUNABLES": MALLOC})
    found = measure(4 if asked.quick else 20)
    print(json.dumps(found, indent=1))
    if not asked.quick:
        (HERE / "audit_training.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return int(found["wall ratio"] < TARGET)


if __name__ == "__main__":
    sys.exit(main())
