"""Tables, Adult above all: networks trained for few and for many epochs, with DP-SGD, and on other records."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import cache
from typing import Any

import numpy as np

from dosimeter import audit_members_only
from dosimeter.accounting import noise_for_epsilon
from dosimeter.datasets import Dataset, load
from dosimeter.engine import Store
from dosimeter.generators import TreeModel
from dosimeter.training import Privacy, Recipe, train_many
from dosimeter.training.networks import network

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


def private_network(X: Any, y: Any, epsilon: float, settings: Mapping[str, Any], seed: int) -> Callable[[Any], Any]:
    """The logits of a network of the same shape that was trained with DP-SGD."""
    import torch

    recipe, records = private_recipe(len(X), epsilon, settings), X.astype(np.float32)
    factory = network("mlp", records, int(y.max()) + 1, hidden=settings["hidden"])
    everyone = np.ones((1, len(X)), bool)
    (found,) = train_many(factory, recipe, (records, y), everyone, [seed], return_models=True, engine="inline")
    module = found.module(factory)

    def logits(asked: Any) -> Any:
        with torch.inference_mode():
            return module(torch.from_numpy(np.asarray(asked, np.float32))).numpy()

    return logits


@cache
def _data(name: str) -> Dataset:
    return load(name)


def parts(name: str, sizes: Sequence[int], seed: int) -> list[tuple[Any, Any]]:
    """Disjoint random parts of a data set."""
    data = _data(name)
    order = np.random.default_rng(np.random.SeedSequence(seed)).permutation(len(data))
    return [data.take(rows).pair for rows in np.split(order, np.cumsum(sizes))[:-1]]


def audited(settings: Mapping[str, Any], seed: int, store: Store | None = None) -> dict[str, Any]:
    """One audit of networks after fewer and more epochs and, if settings say so, of networks with DP-SGD."""
    sizes = settings["members"], settings.get("nonmembers", settings["members"])
    inside, fresh = parts(settings["data"], sizes, seed)
    how = {"hidden": settings["hidden"], "epochs": settings["epochs"], "batch": settings["batch"], "seed": seed}
    models, trained = {}, {}
    for epsilon in settings.get("dp", []):
        name = f"DP, ε = {epsilon:g}"
        models[name] = private_network(*inside, epsilon, settings, seed)
        accuracies = [float(np.mean(models[name](X).argmax(axis=1) == y)) for X, y in (inside, fresh)]
        trained[name] = {
            "epochs": max(settings["epochs"]),
            "dp": epsilon,
            "train": accuracies[0],
            "test": accuracies[1],
        }
    for epochs, model in networks(*inside, **how).items():
        name = f"{epochs} epochs"
        models[name] = model
        accuracies = [float(model.score(X.astype(np.float32), y)) for X, y in (inside, fresh)]
        trained[name] = {"epochs": epochs, "dp": None, "train": accuracies[0], "test": accuracies[1]}
    began = time.process_time()
    audit = audit_members_only(
        models,
        inside,
        generator=TreeModel(),
        nonmembers=fresh,
        references=settings.get("references", 8),
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
