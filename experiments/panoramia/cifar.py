"""CIFAR-10 with a trained generator: networks of three lengths, of several sizes, with DP-SGD, and some without a leak.

`python -m experiments.panoramia.cifar quick|half|full [group …]` trains a generator by flow matching, and trains and
audits the targets of each group together. Rows go to `cifar.json`, one for each target; rows that are there are not
computed again. The generator, its images and the networks with DP-SGD are kept in `.reproduce/store`, so that a stopped
run resumes. Groups: lengths (Tables 6.1 and 8.1, Figures 8.1 and 8.2), sizes (Figure 8.6a), private (Tables 8.2 to 8.4,
Figure 8.6b), controls (networks that learnt from other images).
"""

from __future__ import annotations

import argparse
import json
import math
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dosimeter import Audit, audit_members_only
from dosimeter.engine import Store
from dosimeter.generators import FlowMatching
from dosimeter.training import Model, train_many

from .adult import parts, private_recipe
from .images import CLASSES, small

FOLDER = Path(__file__).resolve().parent
ROWS = FOLDER / "cifar.json"
SIZES = ("quick", "half", "full")  # 8, 16 and 32 pixels
GROUPS = ("lengths", "controls", "private", "sizes")
NETWORKS = ("plain", "residual", "wide")
Settings = Mapping[str, Any]


def network(kind: str, width: int) -> Any:
    """Four convolutions, a residual network, or one that is twice as wide; group norms, so that DP-SGD can train it."""
    from torch import nn

    def layer(given: int, made: int, step: int = 1) -> list[Any]:
        return [nn.Conv2d(given, made, 3, stride=step, padding=1), nn.GroupNorm(8, made), nn.ReLU()]

    class Residual(nn.Module):  # type: ignore[misc]
        def __init__(self, size: int) -> None:
            super().__init__()
            self.inner = nn.Sequential(*layer(size, size), nn.Conv2d(size, size, 3, padding=1), nn.GroupNorm(8, size))

        def forward(self, x: Any) -> Any:
            return nn.functional.relu(x + self.inner(x))

    wide = 2 * width if kind == "wide" else width
    extra = [[] if kind == "plain" else [Residual(size)] for size in (wide, 2 * wide, 4 * wide)]
    return nn.Sequential(
        *layer(3, wide),
        *extra[0],
        *layer(wide, 2 * wide, 2),
        *extra[1],
        *layer(2 * wide, 4 * wide, 2),
        *extra[2],
        *layer(4 * wide, 4 * wide),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(16 * 4 * wide, CLASSES),
    )


def trained(kind: str, X: Any, y: Any, settings: Settings, epochs: Sequence[int], seed: int) -> dict[int, Any]:
    """The network after so many epochs of one training with Adam and mirrored images."""
    import torch

    images, labels = _planes(X), torch.tensor(y)
    found = {}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = network(kind, settings["width"]).to(memory_format=torch.channels_last)
        batches = math.ceil(len(images) / settings["batch"])
        optimiser = torch.optim.AdamW(module.parameters(), settings["learning_rate"], weight_decay=5e-4)
        for epoch in range(1, max(epochs) + 1):
            for rows in torch.randperm(len(images)).tensor_split(batches):
                seen = torch.where(torch.rand(len(rows), 1, 1, 1) < 0.5, images[rows].flip(3), images[rows])
                optimiser.zero_grad()
                torch.nn.functional.cross_entropy(module(seen), labels[rows]).backward()
                optimiser.step()
            if epoch in epochs:
                found[epoch] = deepcopy(module).eval()
    return found


def private(X: Any, y: Any, epsilon: float, settings: Settings, seed: int, store: Store | None) -> Any:
    """The plain network trained with DP-SGD."""
    factory = Model(partial(network, "plain", settings["width"]), f"panoramia cifar, width {settings['width']}")
    how = {**settings, "epochs": [settings["dp_epochs"]]}
    trained_one = train_many(
        factory,
        private_recipe(len(X), epsilon, how),
        (_planes(X).numpy(), np.asarray(y)),
        np.ones((1, len(X)), bool),
        [seed],
        return_models=True,
        store=store,
        engine="inline",
    )
    return next(iter(trained_one)).module(factory)


def targets(
    group: str, drawn: Sequence[tuple[Any, Any]], settings: Settings, seed: int, store: Store | None
) -> dict[str, tuple[Any, dict[str, Any]]]:
    """The networks of a group by name, each with what the row says of it."""
    inside, _, others = drawn
    longest = max(settings["epochs"])
    found: dict[str, tuple[Any, dict[str, Any]]] = {}
    if group == "lengths":
        for epochs, module in trained("plain", *inside, settings, settings["epochs"], seed).items():
            found[f"{epochs} epochs"] = module, {"network": "plain", "epochs": epochs, "dp": None}
    elif group == "sizes":
        for kind in NETWORKS:
            module = trained(kind, *inside, settings, [longest], seed)[longest]
            found[kind] = module, {"network": kind, "epochs": longest, "dp": None}
    elif group == "private":
        for epsilon in settings["dp"]:
            module = private(*inside, epsilon, settings, seed, store)
            found[f"DP, ε = {epsilon:g}"] = module, {"network": "plain", "epochs": settings["dp_epochs"], "dp": epsilon}
    else:
        for number in range(settings["controls"]):
            for epochs, module in trained("plain", *others, settings, settings["epochs"], seed + 1 + number).items():
                name = f"never saw them {number + 1}, {epochs} epochs"
                found[name] = module, {"network": "plain", "epochs": epochs, "dp": None}
    return found


def audited(group: str, settings: Settings, seed: int, store: Store | None) -> list[dict[str, Any]]:
    """One audit of all networks of a group: a row for each."""
    drawn = images(settings, seed)
    inside, fresh, _ = drawn
    asked: dict[str, Callable[[Any], Any]] = {}
    told = {}
    for name, (module, what) in targets(group, drawn, settings, seed, store).items():
        asked[name] = _asked(module)
        right = [float(np.mean(asked[name](X).argmax(axis=1) == y)) for X, y in (inside, fresh)]
        size = sum(parameter.numel() for parameter in module.parameters())
        told[name] = {**what, "parameters": size, "train": right[0], "test": right[1]}
    generator = FlowMatching(steps=settings["steps"], start=settings["start"], flips=True, store=store)
    began = time.process_time()
    audit = audit_members_only(
        asked,
        inside,
        generator=generator,
        nonmembers=fresh,
        references=settings["references"],
        splits=tuple(settings["splits"]),
        seed=seed,
    )
    shared = {"group": group, **_shared(audit, settings, seed), "seconds": round(time.process_time() - began, 1)}
    rows = []
    for target in audit.details["targets"]:
        real = next(row for row in audit.details["real"]["targets"] if row["name"] == target["name"])
        rows.append(
            {
                "key": key(group, settings, seed, target["name"]),
                **shared,
                "target": target["name"],
                **told[target["name"]],
                **{name: target[name] for name in ("epsilon", "epsilon_raw", "c_plus_epsilon_lb", "auc", "stands_out")},
                "one_run": target["one_run"],
                "by_record": target["by_record"],
                "real": real["epsilon"],
                "real_one_run": real["one_run"],
            }
        )
    return rows


def images(settings: Settings, seed: int) -> list[tuple[Any, Any]]:
    """Members, fresh images, and images for the controls: disjoint, as whole numbers, made small where asked."""
    drawn = parts("cifar10", [settings["members"]] * 3, seed)
    return [(np.rint(255.0 * small(X, settings["side"])).astype(np.uint8), y) for X, y in drawn]


def key(group: str, settings: Settings, seed: int, target: str = "") -> str:
    """What a row is of."""
    return " | ".join([f"{settings['side']} pixels", f"{settings['members']} members", group, str(seed), target])


def _shared(audit: Audit, settings: Settings, seed: int) -> dict[str, Any]:
    """What all rows of an audit have."""
    check = audit.details["generator"]
    return {
        "side": settings["side"],
        "members": settings["members"],
        "seed": seed,
        "steps": settings["steps"],
        "start": settings["start"],
        "c_lb": audit.details["targets"][0]["c_lb"],
        "judge": check["counted"],
        "judge_auc": check["auc"],
        "judges": {judge["name"]: judge["auc"] for judge in check["judges"]},
        "decides": check["decides"],
        "nearest": check["nearest"]["generated"],
        "nearest_real": check["nearest"]["real"],
        "closeness": check["nearest"]["closeness"],
    }


def rows() -> list[dict[str, Any]]:
    """The rows that were computed so far."""
    return json.loads(ROWS.read_text(encoding="utf-8")) if ROWS.exists() else []


def table(found: Sequence[Mapping[str, Any]]) -> str:
    """The rows as a table."""
    lines = [
        "| target | ε (DP) | train | test | judge's AUC | c_lb | {c+ε}_lb | ε̃ | stands out | RM;RN | O(1) RM;RN |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in found:
        guarantee = "–" if row["dp"] is None else f"{row['dp']:g}"
        lines.append(
            f"| {row['target']} | {guarantee} | {row['train']:.1%} | {row['test']:.1%} | {row['judge_auc']:.3f} | "
            f"{row['c_lb']:.2f} | {row['c_plus_epsilon_lb']:.2f} | {row['epsilon']:.2f} | "
            f"{'yes' if row['stands_out'] else 'no'} | {row['real']:.2f} | {row['real_one_run']:.2f} |"
        )
    return "\n".join(lines)


def _planes(X: Any) -> Any:
    """Images with their channels first, from −1 to 1."""
    import torch

    return torch.from_numpy(np.ascontiguousarray(np.asarray(X, np.float32).transpose(0, 3, 1, 2)) / 127.5 - 1.0)


def _asked(module: Any) -> Callable[[Any], Any]:
    import torch

    def logits(X: Any) -> Any:
        with torch.inference_mode():
            return np.concatenate([module(part).numpy() for part in _planes(X).split(500)])

    return logits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("size", choices=SIZES)
    parser.add_argument("groups", nargs="*", default=GROUPS, help=f"some of {', '.join(GROUPS)}; all if none is named")
    given = parser.parse_args()
    settings = tomllib.loads((FOLDER / "config.toml").read_text(encoding="utf-8"))["cifar"][given.size]
    store = Store(FOLDER.parents[1] / ".reproduce" / "store")
    for seed in range(settings["first_seed"], settings["first_seed"] + settings["seeds"]):
        for group in given.groups:
            there = [row for row in rows() if row["key"].startswith(key(group, settings, seed))]
            if not there:
                there = audited(group, settings, seed, store)
                text = json.dumps([*rows(), *there], ensure_ascii=False, indent=1)
                ROWS.write_text(text + "\n", encoding="utf-8")
            print(f"\n{group}, seed {seed}\n\n{table(there)}", flush=True)


if __name__ == "__main__":
    main()
