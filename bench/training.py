"""Many models, fast: the training engine against the loops that people write, on the same work, in one run.

python bench/training.py [--quick] [--only W1 W4] [--rounds 5]; needs torch, Opacus and Ray (the extras torch and ray).
Ways take turns of the same length, so that they see the same machine; the figure to read is the median of the rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
import warnings
from itertools import pairwise
from multiprocessing import active_children
from pathlib import Path

HERE = Path(__file__).parent
MALLOC = "glibc.malloc.mmap_threshold=2000000000:glibc.malloc.trim_threshold=8000000000"


def mlp(sizes):
    from torch import nn

    layers = []
    for a, b in pairwise(sizes):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def purchase_net():
    return mlp((600, 128, 100))


def adult_net():
    return mlp((104, 64, 32, 2))


def image_net():
    from torch import nn

    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32 * 49, 10)),
    )


def clusters(count, shape, classes, noise, seed=0):
    """Records around one centre for each class: (train and test features, labels)."""
    import numpy as np

    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((classes, *shape))
    y = rng.integers(0, classes, count + 2000)
    x = (centres[y] + noise * rng.standard_normal((count + 2000, *shape))) / (1 + noise**2) ** 0.5
    x = x.astype(np.float32)
    return (x[:count], y[:count]), (x[count:], y[count:])


def half(models, count):
    import numpy as np

    rng = np.random.default_rng(1)
    rows = np.zeros((models, count), bool)
    for row in rows:
        row[rng.permutation(count)[: count // 2]] = True
    return rows


class Work:
    """One row: factory, recipe, data, how many models, and the arithmetic of one."""

    def __init__(self, name, title, factory, recipe, shape, classes, count, models, noise, baseline, targets):
        self.name, self.title, self.factory, self.recipe, self.models = name, title, factory, recipe, models
        self.data, self.test = clusters(count, shape, classes, noise)
        self.members = half(models, count)
        self.baseline, self.targets = baseline, targets
        self.neighbour = None

    def flops(self):
        """Of one model: forward, weight gradients, input gradients above the first layer, and the test records."""
        from torch import nn

        linear = [part for part in self.factory().modules() if isinstance(part, nn.Linear)]
        sizes = [part.weight.numel() for part in linear]
        seen = int(self.members[0].sum())
        steps = self.recipe.length(seen)
        trained = steps * min(self.recipe.batch(seen), seen) * (6 * sum(sizes) - 2 * sizes[0])
        return trained + 2 * sum(sizes) * len(self.test[0])


def ours(work, models):
    import numpy as np

    from dosimeter.training import train_many

    seeds = list(range(models))
    found = train_many(
        *(work.factory, work.recipe, work.data, work.members[:models], seeds),
        evaluate_on=work.test,
        neighbour=work.neighbour,
        workers=2,
    )
    results = list(found)
    assert all(one.failed is None for one in results)
    return float(np.mean([one.accuracy for one in results])), str(results[0].plan)


def accuracy(module, test):
    import torch

    with torch.no_grad():
        return float((module.eval()(test[0]).argmax(1) == test[1]).float().mean())


def loop(work, model, *, loader):
    """Accuracy of one model, trained with torch's own threads: by a DataLoader, or by slices of a permuted tensor."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    x, y, test = *map(torch.from_numpy, work.data), [torch.from_numpy(part) for part in work.test]
    recipe = work.recipe
    torch.manual_seed(model)
    module, rows = work.factory(), torch.from_numpy(work.members[model])
    mine, theirs = x[rows], y[rows]
    optimiser = torch.optim.SGD(module.parameters(), lr=recipe.learning_rate, momentum=recipe.momentum)
    for _ in range(recipe.epochs):
        if loader:
            batches = DataLoader(TensorDataset(mine, theirs), batch_size=recipe.batch_size, shuffle=True)
        else:
            batches = ((mine[part], theirs[part]) for part in torch.randperm(len(mine)).split(recipe.batch_size))
        for a, b in batches:
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(module(a), b).backward()
            optimiser.step()
    return accuracy(module, test)


def opacus_loop(work, model):
    """Opacus's GradSampleModule and DPOptimizer on slices of a permuted tensor (no DataLoader to slow it down)."""
    import torch
    from opacus import GradSampleModule
    from opacus.optimizers import DPOptimizer

    x, y, test = *map(torch.from_numpy, work.data), [torch.from_numpy(part) for part in work.test]
    recipe = work.recipe
    torch.manual_seed(model)
    rows = torch.from_numpy(work.members[model])
    mine, theirs = x[rows], y[rows]
    batch = recipe.batch(len(mine))
    module = GradSampleModule(work.factory())
    inner = torch.optim.SGD(module.parameters(), lr=recipe.learning_rate, momentum=recipe.momentum)
    optimiser = DPOptimizer(
        inner,
        noise_multiplier=recipe.dp.noise_multiplier,
        max_grad_norm=recipe.dp.clip,
        expected_batch_size=batch,
    )
    neighbour = None if work.neighbour is None else (x[work.neighbour.added][None], y[work.neighbour.added][None])
    left = recipe.length(len(mine))
    while left:
        for part in torch.randperm(len(mine)).split(batch):
            if neighbour is not None:  # the record in which the other data set differs: its clipped gradient
                optimiser.zero_grad()
                torch.nn.functional.cross_entropy(module(neighbour[0]), neighbour[1]).backward()
                other = [p.grad_sample[0] for p in module.parameters()]
                norm = torch.stack([g.square().sum() for g in other]).sum().sqrt()
                torch.stack([(g * (recipe.dp.clip / norm).clamp(max=1)).square().sum() for g in other]).sum()
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(module(mine[part]), theirs[part]).backward()
            optimiser.step()
            left -= 1
    return accuracy(module, test)


def sgemm(seconds, threads=2):
    """GFLOP/s of products of 2048 × 2048 matrices on all cores, over a turn and in its fastest product."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    a, taken = torch.randn(2048, 2048), []
    while not taken or sum(taken) < seconds:
        start = time.perf_counter()
        a @ a
        taken.append(time.perf_counter() - start)
    torch.set_num_threads(before)
    return tuple(2 * 2048**3 / second / 1e9 for second in (statistics.fmean(taken), min(taken)))


def works(quick):
    from dosimeter.training import Neighbour, Privacy, Recipe

    def size(full, small):
        return small if quick else full

    plain = {"momentum": 0.9, "learning_rate": 0.05}
    dp = {"dp": Privacy(1.1, 1.0), "learning_rate": 0.5}
    loops = {"DataLoader": lambda w, m: loop(w, m, loader=True), "sequential": lambda w, m: loop(w, m, loader=False)}
    sliced = {"sequential": loops["sequential"]}
    opacus = {"Opacus": opacus_loop}
    many, epochs, wide = size(64, 16), size(10, 3), (600,)
    rows = [
        Work("W1", "MLP 600-128-100, n=10 000, batch 128, 10 epochs", purchase_net, Recipe(epochs=epochs, **plain),
             wide, 100, 10_000, many, 3.0, loops, {"DataLoader": 3.5, "sequential": 2.8, "sgemm": 0.65}),
        Work("W2", "MLP 104-64-32-2, n=20 000, batch 256, 5 epochs", adult_net,
             Recipe(epochs=5, batch_size=256, **plain), (104,), 2, 20_000, many, 6.0, loops,
             {"DataLoader": 12, "sequential": 5}),
        Work("W3", "CNN 16-32 on 28×28, n=5 000, batch 64, 3 epochs", image_net,
             Recipe(epochs=size(3, 1), batch_size=64, **plain), (1, 28, 28), 10, 5_000, size(32, 4), 2.0, sliced,
             {"sequential": 2.3}),
        Work("W4", "W2 with DP-SGD, clip 1, noise 1.1", adult_net, Recipe(epochs=5, batch_size=256, momentum=0.9, **dp),
             (104,), 2, 20_000, many, 6.0, opacus, {"Opacus": 30}),
        Work("W5", "full-batch DP-SGD, MLP 600-128-100, 1 000 records, 30 steps, neighbour", purchase_net,
             Recipe(steps=30, batch_size=None, **dp), wide, 100, 1_001, size(256, 16), 1.0, opacus,
             {"Opacus": 22, "sgemm": 0.65}),
    ]  # fmt: skip
    rows[-1].members[:] = True
    rows[-1].members[:, 1000] = False
    rows[-1].neighbour = Neighbour(removed=0, added=1000)
    return rows


def measure(work, rounds):
    """Our models between turns of every other way that last as long; medians over the rounds."""
    wall = timed(lambda: ours(work, min(work.models, 16)))[1]  # pays for imports and caches, as the next line does
    others(work, 0.0)
    wall *= work.models / min(work.models, 16)
    turns, before = [], others(work, wall)
    for _ in range(rounds):
        ours(work, 2)  # calls the workers back: they leave when they have waited for a minute
        (score, plan), wall, share = timed(lambda: ours(work, work.models))
        after = others(work, wall)
        mine = (wall / work.models, share, score)
        mean = {
            name: [statistics.fmean(pair) for pair in zip(before[name], after[name], strict=True)] for name in after
        }
        turns.append({"dosimeter": mine, **mean})
        before = after

    def median(name, part):
        return statistics.median(found[name][part] for found in turns)

    ways = ["dosimeter", *work.baseline]
    ratios = {name: [found[name][0] / found["dosimeter"][0] for found in turns] for name in work.baseline}
    row = {
        "work": work.name,
        "title": work.title,
        "models": work.models,
        "plan": plan,
        "seconds a model": {name: median(name, 0) for name in ways},
        "share of the machine that others took": {name: median(name, 1) for name in ways},
        "accuracy": {name: median(name, 2) for name in ways},
        "targets": work.targets,
    }
    if "sgemm" in work.targets:
        ratios["sgemm"] = [work.flops() / found["dosimeter"][0] / 1e9 / found["sgemm"][0] for found in turns]
        row["GFLOP/s"] = work.flops() / row["seconds a model"]["dosimeter"] / 1e9
        row["sgemm"] = {"lasting": median("sgemm", 0), "fastest product": max(found["sgemm"][1] for found in turns)}
    return row | {"ratios": {name: statistics.median(values) for name, values in ratios.items()}, "rounds": ratios}


def others(work, seconds):
    """A turn of every other way: seconds a model, share of the machine that others took, accuracy; GFLOP/s of sgemm."""
    found = {}
    for name, way in work.baseline.items():
        scores, taken, share = timed(lambda way=way: as_long(way, work, seconds))
        found[name] = (taken / len(scores), share, statistics.fmean(scores))
    if "sgemm" in work.targets:
        found["sgemm"] = sgemm(seconds)
    return found


def as_long(way, work, seconds):
    """Accuracies of as many models as a way trains one after another until the time is over."""
    scores, start = [], time.perf_counter()
    while not scores or time.perf_counter() - start < seconds:
        scores.append(way(work, len(scores) % work.models))
    return scores


def timed(do):
    """What it gives, its wall time, and the share of the machine that others took meanwhile."""
    start, busy, mine = time.perf_counter(), *cpu_seconds()
    result = do()
    wall, after, own = time.perf_counter() - start, *cpu_seconds()
    return result, wall, max(0.0, (after - busy) - (own - mine)) / (wall * os.cpu_count())


def cpu_seconds():
    """CPU seconds of the whole machine, and of this process and its workers, so far."""
    tick = os.sysconf("SC_CLK_TCK")
    counts = [int(value) for value in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    busy = sum(counts) - counts[3] - counts[4]
    mine = 0
    for pid in [os.getpid(), *(child.pid for child in active_children())]:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        mine += int(fields[11]) + int(fields[12])
    return busy / tick, mine / tick


def growth(quick):
    """Seconds a model and peak memory of the workers, from 8 models to 512."""
    from dosimeter.training import Recipe

    counts = (8, 32, 128) if quick else (8, 32, 128, 512)
    recipe = Recipe(epochs=5, batch_size=256, momentum=0.9, learning_rate=0.05)
    work = Work("growth", "", adult_net, recipe, (104,), 2, 20_000, counts[-1], 6.0, {}, {})
    ours(work, 16)
    found = []
    for count in counts:
        times = []
        for _ in range(3 if count < 256 else 1):
            start = time.perf_counter()
            ours(work, count)
            times.append(time.perf_counter() - start)
        memory = [peak(child.pid) for child in active_children()]
        found.append({"models": count, "seconds a model": min(times) / count, "peak MB of a worker": max(memory)})
    return found


def on_ray(quick):
    """Wall time of the same groups, of five seconds and more each, on one Ray node and in two local processes."""
    import ray

    from dosimeter.training import Recipe, train_many

    recipe = Recipe(epochs=4 if quick else 12, momentum=0.9, learning_rate=0.05)
    work = Work("ray", "", purchase_net, recipe, (600,), 100, 10_000, 64, 3.0, {}, {})
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
    taken = {"local": [], "ray": []}
    for turn in range(3):
        for engine, times in taken.items():
            models = 64 if turn else 32  # the first turn starts the workers and imports torch in them
            given = (work.factory, work.recipe, work.data, work.members[:models], list(range(models)))
            start = time.perf_counter()
            results = list(train_many(*given, evaluate_on=work.test, group=16, workers=2, engine=engine))
            assert all(one.failed is None for one in results)
            times += [time.perf_counter() - start] * (turn > 0)
    ray.shutdown()
    best = {engine: min(times) for engine, times in taken.items()}
    each = best["local"] * 2 / 4  # four groups on two processes
    return {"seconds": best, "seconds a task": each, "slower": best["ray"] / best["local"] - 1}


def peak(pid):
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return round(int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024)


def table(rows, grown, far):
    lines = [
        "| work | models | ratio | rounds | target | accuracy (dosimeter / peer) | others took (the same) | how |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        for peer, target in row["targets"].items():
            ratio, share, rounds = (
                row["ratios"][peer],
                row["share of the machine that others took"],
                row["rounds"][peer],
            )
            met = f"≥ {target:g}" + ("" if ratio >= target else " (missed)")
            if peer == "sgemm":
                lasting, most = row["sgemm"]["lasting"], row["sgemm"]["fastest product"]
                what = f"{ratio:.0%} of sgemm ({row['GFLOP/s']:.0f} of {lasting:.0f} GFLOP/s; one product: {most:.0f})"
                spread, scores, noise = f"{min(rounds):.0%} to {max(rounds):.0%}", "", ""
            else:
                what, noise = f"{ratio:.1f} × {peer}", f"{share['dosimeter']:.0%} / {share[peer]:.0%}"
                spread = f"{min(rounds):.1f} to {max(rounds):.1f}"
                scores = f"{row['accuracy']['dosimeter']:.3f} / {row['accuracy'][peer]:.3f}"
            cells = (f"{row['work']} {row['title']}", row["models"], what, spread, met, scores, noise, row["plan"])
            lines.append(f"| {' | '.join(map(str, cells))} |")
    if grown:
        lines += ["", "| models | ms a model | peak MB of a worker |", "|---|---|---|"]
        for one in grown:
            lines.append(f"| {one['models']} | {1000 * one['seconds a model']:.1f} | {one['peak MB of a worker']} |")
    if far:
        slower, each = far["slower"], far["seconds a task"]
        met = "" if slower <= 0.15 else " (missed)"
        lines += ["", f"One Ray node with 2 workers: {slower:+.0%} wall time against 2 local processes for tasks of "]
        lines[-1] += f"{each:.0f} s (target ≤ 15 %{met})."
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer models and epochs")
    parser.add_argument("--only", nargs="*", help="rows: W1 W2 W3 W4 W5 growth ray")
    parser.add_argument("--rounds", type=int, default=5, help="how often our models of a row train; default 5")
    options = parser.parse_args()
    if os.environ.get("GLIBC_TUNABLES") != MALLOC:  # for every way alike; it counts from the start of a process
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "GLIBC_TUNABLES": MALLOC})
    wanted = options.only or ["W1", "W2", "W3", "W4", "W5", "growth", "ray"]
    warnings.filterwarnings("ignore", message="Full backward hook is firing")  # Opacus, once a step
    rows = []
    for work in works(options.quick):
        if work.name in wanted:
            rows.append(measure(work, options.rounds))
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    grown = growth(options.quick) if "growth" in wanted else []
    far = on_ray(options.quick) if "ray" in wanted else None
    text = table(rows, grown, far)
    print(text)
    if not options.quick and not options.only:
        (HERE / "training.md").write_text(f"# Training many models\n\nMade by `bench/training.py`.\n\n{text}\n")
        (HERE / "training.json").write_text(json.dumps({"rows": rows, "growth": grown, "ray": far}, indent=1) + "\n")


if __name__ == "__main__":
    main()
