"""Images with a trained generator: networks of several lengths and sizes, with DP-SGD, with attributes, without a leak.

`python -m experiments.panoramia.cifar quick|full [group …]` trains a generator by flow matching, and trains and audits
the networks of each group together, by both protocols. Rows go to `results.json`; rows that are there are not computed
again. Generators, their images and networks are kept in `.reproduce/store`, so that a stopped run resumes.

Groups: lengths (Tables 6.1 to 8.1, Figures 6.1 to 8.3), sizes (Figure 8.6a), private (Tables 8.2 to 8.4, Figure 8.6b),
attributes (Fashion-MNIST for CelebA; Figure 8.4), controls (networks that learnt from other images), trials (other ways
to generate images and to map them; no audit).
"""

from __future__ import annotations

import argparse
import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from dosimeter import Audit, audit_members_only
from dosimeter.engine import Store
from dosimeter.generators import Filtered, FlowMatching
from dosimeter.generators.nearest import best_correlations

from ..shared import announce
from . import stored, tables
from .images import LowPassed, Settings, drawn, low_pass
from .networks import NETWORKS, Labelled, accuracy, asked, private, trained
from .summary import Remembered, kept, quantiles
from .trials import told_apart, tried

FOLDER = Path(__file__).resolve().parent
CONFIG = FOLDER / "config.toml"
SIZES = ("quick", "full")
KEYS = {
    "lengths": ("cifar10", "generator"),
    "sizes": ("sizes",),
    "private": ("dp.resnet", "dp.wide", "dp.same"),
    "attributes": ("celeba", "generator"),
    "controls": ("controls",),
    "trials": ("trials",),
}
SHOWN = 500  # records of each kind whose losses a figure shows
DP_NAMES = {"dp.resnet": "residual", "dp.wide": "wide"}
Pairs = Sequence[tuple[Any, Any]]


@dataclass(frozen=True, eq=False)
class Group:
    """The networks of one audit by name, with what is told of each, and which of them make a row of which key."""

    modules: dict[str, Any] = field(default_factory=dict)
    told: dict[str, dict[str, Any]] = field(default_factory=dict)
    rows: list[tuple[str, list[str]]] = field(default_factory=list)

    def add(self, name: str, module: Any, *, epochs: int, dp: float | None = None) -> str:
        """One more network; its name."""
        size = sum(part.numel() for part in module.parameters())
        self.modules[name], self.told[name] = module, {"epochs": epochs, "dp": dp, "parameters": size}
        return name


def networks(group: str, pairs: Pairs, settings: Settings, seed: int, store: Store | None) -> Group:
    """Train the networks of a group, or take them from the store."""
    inside, _, others = pairs
    made, epochs = Group(), settings["epochs"]
    if group == "private":
        return _private(inside, settings, seed, store)
    if group == "sizes":
        for kind in NETWORKS:
            short = settings["short_epochs"]
            made.add(kind, trained(kind, *inside, settings, [short], seed, store)[short], epochs=short)
    elif group == "controls":
        for number in range(settings["controls"]):
            found = trained("plain", *others, settings, settings["control_epochs"], seed + 1 + number, store)
            for count, module in found.items():
                made.add(f"never saw them {number + 1}, {count} epochs", module, epochs=count)
    else:
        for count, module in trained("plain", *inside, settings, epochs, seed, store).items():
            made.add(f"{count} epochs", module, epochs=count)
    made.rows.append((KEYS[group][0], list(made.modules)))
    return made


def _private(inside: tuple[Any, Any], settings: Settings, seed: int, store: Store | None) -> Group:
    """Residual and wide networks with DP-SGD and without, and for some ε a second one that is trained otherwise."""
    made, longest = Group(), settings["short_epochs"]
    other = {**settings, **settings["dp_other"]}
    for key, kind in DP_NAMES.items():
        names = []
        for epsilon in settings[key.replace(".", "_")]:
            module = private(kind, *inside, epsilon, settings, seed, store)
            names.append(made.add(f"{kind}, ε = {epsilon:g}", module, epochs=settings["dp_epochs"], dp=epsilon))
        plain = trained(kind, *inside, {**settings, "width": settings["dp_width"]}, [longest], seed, store)[longest]
        made.rows.append((key, [*names, made.add(f"{kind}, without DP", plain, epochs=longest)]))
    for epsilon in settings["dp_same"]:
        module = private("residual", *inside, epsilon, other, seed, store)
        name = made.add(f"residual, ε = {epsilon:g}, other settings", module, epochs=other["dp_epochs"], dp=epsilon)
        made.rows.append(("dp.same", [f"residual, ε = {epsilon:g}", name]))
    return made


def generator_of(settings: Settings, originals: Any, store: Store | None) -> Any:
    """Flow matching; with attributes without labels, so that a labeler gives them; filtered and mapped where asked.

    `originals` are the members before the map.
    """
    found: Any = FlowMatching(
        steps=settings["steps"],
        start=settings["start"],
        flips=True,
        conditional=not settings["attributes"],
        store=store,
    )
    if settings["drop"]:
        found = Filtered(found, drop=settings["drop"])
    if settings["low_pass"] < 1:
        found = LowPassed(found, settings["low_pass"], originals)
    return Labelled(found, settings, store) if settings["attributes"] else found


def audited(group: str, settings: Settings, size: str, seed: int, store: Store | None) -> list[dict[str, Any]]:
    """One audit of all networks of a group by both protocols: its rows."""
    pairs = drawn(settings, seed)
    inside, fresh, _ = pairs
    made = networks(group, pairs, settings, seed, store)
    for name, module in made.modules.items():
        right = [accuracy(module, *pair, settings) for pair in (inside, fresh)]
        made.told[name] |= {"train": right[0], "test": right[1]}
    boxes = {name: asked(module, settings) for name, module in made.modules.items()}
    before = [X for X, _ in drawn({**settings, "low_pass": 1.0}, seed)[:2]]
    generator, longest = Remembered(generator_of(settings, before[0], store)), settings["epochs"][-1]

    def like_the_target(epochs: int) -> Any:
        return lambda X, y, at: asked(trained("plain", X, y, settings, [epochs], at, store)[epochs], settings)

    announce(f"panoramia: {group}, an audit of {len(boxes)} networks")
    began = time.process_time()
    audit = audit_members_only(
        dict(reversed(boxes.items())),
        inside,
        generator=generator,
        nonmembers=fresh,
        reference=like_the_target(settings["reference_epochs"]),
        references=settings["references"],
        splits=tuple(settings["splits"]),
        protocol="thesis",
        helper_train=like_the_target(longest),
        seed=seed,
    )
    spent = time.process_time() - began
    told = {"size": size, "data": settings["data"], "side": settings["side"], **judged(audit)}
    rows: list[dict[str, Any]] = []
    for key, names in made.rows:
        row = kept(audit, seed, {name: made.told[name] for name in names}, cpu_seconds=spent)
        rows.append({"key": key, **told, **({"dp": made.told[names[0]]["dp"]} if key == "dp.same" else {}), **row})
    if settings["attributes"]:
        sides = {"members": inside, "real non-members": fresh, "generated": generator.made}
        losses = {
            name: {side: box.losses(X[:SHOWN], y[:SHOWN]).values for side, (X, y) in sides.items()}
            for name, box in boxes.items()
        }
        rows[0]["losses"] = quantiles(losses)
    if "generator" in KEYS[group]:
        how = {name: settings[name] for name in ("steps", "start", "low_pass", "drop")}
        found = maps(generator, *before, settings, seed)
        rows.append({"key": "generator", **told, "seed": seed, **how, "maps": found})
    return rows


def judged(audit: Audit) -> dict[str, Any]:
    """What the audit says of its generator: how well it is told from members, and how close it comes to them."""
    check = audit.details["generator"]
    return {
        "judge": check["counted"],
        "judge_auc": check["auc"],
        "judges": {judge["name"]: judge["auc"] for judge in check["judges"]},
        "decides": check["decides"],
        "nearest": check["nearest"]["generated"],
        "nearest_real": check["nearest"]["real"],
    }


def maps(generator: Remembered, members: Any, fresh: Any, settings: Settings, seed: int) -> list[dict[str, Any]]:
    """What a convolutional judge tells of images that start farther along the way from noise, with and without a map.

    The same map is applied to generated and to fresh images; half of either trains the judge. Not with attributes,
    whose generator has a filter around it.
    """
    if settings["attributes"]:
        return []
    flow, found = generator.inner.inner if settings["low_pass"] < 1 else generator.inner, []
    count = min(settings["mapped"], len(fresh))
    for start in settings["starts"]:
        made = replace(flow, recipe=replace(flow.recipe, start=start)).sample(count, seed=seed)[0]
        for share in settings["shares"]:
            real, generated, known = (low_pass(images, share) for images in (fresh[:count], made, members))
            nearest = [float(np.median(best_correlations(known, side[:SHOWN]))) for side in (generated, real)]
            auc = told_apart(real, generated, seed=seed)
            found.append(
                {"start": start, "share": share, "auc": auc, "nearest": nearest[0], "nearest_real": nearest[1]}
            )
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Compute the rows that are missing, write them group by group, and print what they say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("size", choices=SIZES)
    parser.add_argument("groups", nargs="*", help=f"some of {', '.join(KEYS)}; all if none is named")
    given = parser.parse_args(arguments)
    strange = [group for group in given.groups if group not in KEYS]
    if strange:
        parser.error(f"there is no group {strange[0]!r}; take some of {', '.join(KEYS)}")
    config = tomllib.loads(CONFIG.read_text(encoding="utf-8"))
    store = Store(FOLDER.parents[1] / ".reproduce" / "store")
    for group in given.groups or KEYS:
        settings = config["attributes" if group == "attributes" else "cifar"][given.size]
        for seed in range(settings["first_seed"], settings["first_seed"] + settings["seeds"]):
            there = _there(group, settings, given.size, seed)
            if not there:
                made = (settings, given.size, seed, store)
                there = tried(*made) if group == "trials" else audited(group, *made)
                stored.keep(there)
            show(group, seed, there)


def _there(group: str, settings: Settings, size: str, seed: int) -> list[dict[str, Any]]:
    """The rows of a group, if all of its keys have some."""
    wanted = {"size": size, "seed": seed, "data": settings["data"], "side": settings["side"]}
    found = [row for row in stored.kept() if row["key"] in KEYS[group] and wanted.items() <= row.items()]
    return found if {row["key"] for row in found} == set(KEYS[group]) else []


def show(group: str, seed: int, found: Sequence[Any]) -> None:
    """Print the rows of a group."""
    for row in found:
        print(f"\n{group}, seed {seed}: {row['key']}\n", flush=True)
        if row["key"] == "generator":
            print(
                tables.of_image_generators([row]), *(tables.of_maps(row["maps"]) for _ in row["maps"][:1]), sep="\n\n"
            )
        elif row["key"] == "trials":
            print(tables.of_trials([row]))
        else:
            print(tables.of_targets([row], "accuracy"), tables.of_audits([row]), tables.of_cost([row]), sep="\n\n")


if __name__ == "__main__":
    main()
