"""Tables, Adult above all: networks trained for few and for many epochs, and on other records."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from copy import deepcopy
from functools import cache
from typing import Any

import numpy as np

from dosimeter import audit_members_only
from dosimeter.accounting import noise_for_epsilon
from dosimeter.datasets import Dataset, load
from dosimeter.engine import Store
from dosimeter.generators import Mst, TreeModel
from dosimeter.training import Privacy, Recipe

from .summary import kept

DELTA = 1e-5
CLIP = 1.0


def networks(X: Any, y: Any, *, hidden: Any, epochs: Sequence[int], batch: int, seed: int) -> dict[int, Any]:
    """A dense network after so many epochs of one training, with nothing against over-fitting."""
    from sklearn.neural_network import MLPClassifier
    from threadpoolctl import threadpool_limits

    rng = np.random.RandomState(np.random.SeedSequence(seed).generate_state(1)[0])
    model = MLPClassifier(tuple(hidden), alpha=0.0, batch_size=batch, random_state=rng)
    classes, records = np.unique(y), X.astype(np.float32)
    found = {}
    with threadpool_limits(1):
        for epoch in range(1, max(epochs) + 1):
            model.partial_fit(records, y, classes=classes)
            if epoch in epochs:
                found[epoch] = deepcopy(model)
    return found


def private_recipe(members: int, epsilon: float, settings: Mapping[str, Any]) -> Recipe:
    """DP-SGD for as long as the longest training, with noise for this ε."""
    epochs, batch = max(settings["epochs"]), settings["dp_batch"]
    steps = epochs * math.ceil(members / batch)
    noise = noise_for_epsilon(epsilon, delta=DELTA, sample_rate=batch / members, steps=steps)
    return Recipe(
        "adam",
        settings["dp_learning_rate"],
        epochs=epochs,
        batch_size=batch,
        sampling="poisson",
        dp=Privacy(noise, CLIP),
    )


@cache
def _data(name: str) -> Dataset:
    return load(name)


def parts(name: str, sizes: Sequence[int], seed: int) -> list[tuple[Any, Any]]:
    """Disjoint random parts of a data set."""
    data = _data(name)
    order = np.random.default_rng(np.random.SeedSequence(seed)).permutation(len(data))
    return [data.take(rows).pair for rows in np.split(order, np.cumsum(sizes))[:-1]]


def _flipped(y: Any, share: float, seed: int) -> Any:
    """Two classes, some of them exchanged at random: only a network that learns by heart gets these right."""
    rng = np.random.default_rng(np.random.SeedSequence([seed, len(y)]))
    return np.where(rng.random(len(y)) < share, 1 - y, y)


def audited(settings: Mapping[str, Any], seed: int, store: Store | None = None) -> dict[str, Any]:
    """Both protocols for a network after fewer and more epochs of one training.

    With `mst` the generator is MST with that ε, its domain from rows that are neither members nor real non-members.
    """
    sizes = [settings["members"], settings.get("nonmembers", settings["members"])]
    inside, fresh, *public = parts(settings["data"], [*sizes, settings["public"]] if "mst" in settings else sizes, seed)
    if "flipped" in settings:
        inside, fresh = ((X, _flipped(y, settings["flipped"], seed)) for X, y in (inside, fresh))
    how = {"hidden": settings["hidden"], "batch": settings["batch"]}
    epochs = sorted(settings["epochs"])
    models, trained = {}, {}
    for count, model in networks(*inside, **how, epochs=epochs, seed=seed).items():
        name = f"{count} epochs"
        models[name] = model
        accuracies = [float(model.score(X.astype(np.float32), y)) for X, y in (inside, fresh)]
        trained[name] = {"epochs": count, "dp": None, "train": accuracies[0], "test": accuracies[1]}
    generator: Any = TreeModel()
    if "mst" in settings:
        guarantee = {"epsilon": settings["mst"], "public": public[0]}
        generator = Mst(**guarantee, bins=settings["bins"], name=f"MST, ε = {settings['mst']:g}")
    began = time.process_time()
    audit = audit_members_only(
        dict(reversed(models.items())),
        inside,
        generator=generator,
        nonmembers=fresh,
        references=settings.get("references", 8),
        protocol="thesis",
        helper_train=lambda X, y, at: networks(X, y, **how, epochs=epochs[-1:], seed=at)[epochs[-1]],
        seed=seed,
    )
    return kept(audit, seed, trained, cpu_seconds=time.process_time() - began)


def silent(settings: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """The audit of a network that was trained on other records; few epochs for even seeds, many for odd."""
    inside, outside = parts(settings["data"], [settings["members"]] * 2, 10_000 + seed)
    epochs = settings["epochs"][seed % 2]
    how = {"hidden": settings["hidden"], "epochs": [epochs], "batch": settings["batch"], "seed": seed}
    model = networks(*outside, **how)[epochs]
    began = time.process_time()
    audit = audit_members_only(model, inside, generator=TreeModel(), repeats=5, seed=seed)
    (target,) = audit.details["targets"]
    return {
        "seed": seed,
        "epochs": epochs,
        "epsilon": target["epsilon"],
        "stands_out": target["stands_out"],
        "auc": target["auc"],
        "auc_limit": target["verdict"]["auc_limit"],
        "cpu_seconds": time.process_time() - began,
    }
