"""A gradient audit's trainings: many repetitions at once against one after the other, on the same work.

python bench/gradients.py [--quick]; needs torch and the Adult data set (DOSIMETER_DATA or a download).
The setting is that of Bernau et al. (2021): n = 1000, C = 3, rate 0.005, 30 full-batch steps, a 104-6-6-2 network. The
slow way is what one writes with `torch.func`: in each step the gradients of all records of D and of all records of D',
clipped and summed, one repetition after the other in one thread. It is run a few times and counted by the repetition.
Ways take turns; the CPU ratio is one core against one core, the wall ratio the two processes of ours against one loop.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
HERE = Path(__file__).parent
RECORDS, STEPS, CLIP, RATE, NOISE = 1000, 30, 3.0, 0.005, 19.9
TARGETS = {"wall_seconds": 10.0, "ratio": 30.0}


def net():
    from torch import nn

    return nn.Sequential(nn.Linear(104, 6), nn.ReLU(), nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 2))


def adult():
    import numpy as np

    from dosimeter.datasets import load

    data = load("adult")
    rows = np.random.default_rng(0).permutation(len(data))[: RECORDS + 1]
    return data.X[rows], data.y[rows]


def ours(x, y, repetitions, engine, workers=None):
    """Seconds for all repetitions, both worlds: (CPU of this process and its children, wall)."""
    import numpy as np

    from dosimeter.audits.gradients._runs import models_together
    from dosimeter.training import Neighbour, Privacy, Recipe, train_many

    recipe = Recipe("adam", RATE, steps=STEPS, batch_size=None, dp=Privacy(NOISE, CLIP))
    members = np.ones((repetitions, RECORDS + 1), bool)
    members[: repetitions // 2, RECORDS] = False
    members[repetitions // 2 :, 3] = False
    before, wall = os.times(), time.perf_counter()
    found = train_many(
        net,
        recipe,
        (x, y),
        members,
        list(range(repetitions)),
        neighbour=Neighbour(removed=3, added=RECORDS),
        group=models_together(net, recipe, RECORDS, repetitions),
        engine=engine,
        workers=workers,
    )
    assert all(one.transcript is not None for one in found)
    after = os.times()
    return sum(after[:4]) - sum(before[:4]), time.perf_counter() - wall


def one_after_the_other(x, y, repetitions):
    """CPU and wall seconds for a plain loop with per-example gradients of D and D'."""
    import torch

    torch.set_num_threads(1)
    x, y = torch.from_numpy(x.copy()), torch.from_numpy(y.copy()).long()
    inside = torch.arange(RECORDS)
    other = torch.cat([inside[inside != 3], torch.tensor([RECORDS])])
    sigma = NOISE * CLIP
    cpu, wall = time.process_time(), time.perf_counter()
    for repetition in range(repetitions):
        torch.manual_seed(repetition)
        module = net()
        optimiser = torch.optim.Adam(module.parameters(), lr=RATE)

        def loss(parameters, a, b, module=module):
            logits = torch.func.functional_call(module, parameters, (a.unsqueeze(0),))
            return torch.nn.functional.cross_entropy(logits, b.unsqueeze(0))

        gradients = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))
        log_odds = 0.0
        for _ in range(STEPS):
            now = {name: parameter.detach() for name, parameter in module.named_parameters()}
            sums = []
            for rows in (inside, other):
                found = gradients(now, x[rows], y[rows])
                norms = torch.stack([g.flatten(1).square().sum(1) for g in found.values()]).sum(0).sqrt()
                factor = (CLIP / norms).clamp(max=1.0)
                sums.append({name: torch.tensordot(factor, g, dims=1) for name, g in found.items()})
            for name, parameter in module.named_parameters():
                noise, difference = sigma * torch.randn_like(parameter), sums[0][name] - sums[1][name]
                log_odds += float((2 * (noise * difference).sum() + difference.square().sum()) / (2 * sigma**2))
                parameter.grad = (sums[0][name] + noise) / RECORDS
            optimiser.step()
    return time.process_time() - cpu, time.perf_counter() - wall


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="200 repetitions instead of 1000, one round")
    quick = parser.parse_args().quick
    repetitions, rounds, slow = (200, 1, 2) if quick else (1000, 2, 4)
    x, y = adult()
    ours(x, y, 128, "inline")
    one_after_the_other(x, y, 1)
    cpu, wall, cpu_slow, wall_slow = [], [], [], []
    for _ in range(rounds):
        for inline in (True, False):
            a, b = one_after_the_other(x, y, slow)
            cpu_slow.append(a * repetitions / slow)
            wall_slow.append(b * repetitions / slow)
            seconds = ours(x, y, repetitions, "inline" if inline else "local", None if inline else 2)
            (cpu if inline else wall).append(seconds[0] if inline else seconds[1])
    result = {
        "repetitions": repetitions,
        "cpu_seconds": min(cpu),
        "wall_seconds_two_processes": min(wall),
        "cpu_seconds_one_after_the_other": min(cpu_slow),
        "wall_seconds_one_after_the_other": min(wall_slow),
        "extrapolated_from": slow,
        "cpu_ratio": min(cpu_slow) / min(cpu),
        "wall_ratio": min(wall_slow) / min(wall),
        "targets": TARGETS,
    }
    for name, value in result.items():
        print(f"{name:36} {value:.4g}" if isinstance(value, (int, float)) else f"{name:36} {value}")
    if not quick:
        (HERE / "gradients.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
