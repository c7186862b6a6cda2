"""Adult: networks trained for few and for many epochs, and networks that never saw the members."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from dosimeter import audit_members_only
from dosimeter.datasets import Dataset, load
from dosimeter.generators import TreeModel

from .summary import ordering


def network(X: Any, y: Any, *, hidden: Any, epochs: int, batch: int, seed: int) -> Any:
    """A dense network trained for so many epochs, with nothing against over-fitting."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neural_network import MLPClassifier
    from threadpoolctl import threadpool_limits

    model = MLPClassifier(
        tuple(hidden),
        alpha=0.0,
        batch_size=batch,
        max_iter=epochs,
        tol=0.0,
        n_iter_no_change=epochs + 1,
        random_state=seed,
    )
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(X.astype(np.float32), y)


@cache
def _data() -> Dataset:
    return load("adult")


def parts(size: int, count: int, seed: int) -> list[tuple[Any, Any]]:
    """Disjoint random parts of Adult."""
    data = _data()
    order = np.random.default_rng(np.random.SeedSequence(seed)).permutation(len(data))
    return [data.take(order[k * size : (k + 1) * size]).pair for k in range(count)]


def ordered(settings: Mapping[str, Any], seed: int) -> dict[str, float]:
    """ε̃ after few and after many epochs, the bound with real non-members, and the CPU time of the audit."""
    few, many = settings["epochs"]
    inside, fresh = parts(settings["members"], 2, seed)
    models = {
        str(epochs): network(*inside, hidden=settings["hidden"], epochs=epochs, batch=settings["batch"], seed=seed)
        for epochs in (many, few)
    }
    began = time.process_time()
    audit = audit_members_only(models, inside, generator=TreeModel(), nonmembers=fresh, seed=seed)
    taken = time.process_time() - began
    real = audit.details["real"]
    return {
        **ordering(audit, seed),
        "real": real["epsilon"],
        "real_one_run": real["one_run"],
        "cpu_seconds": taken,
    }


def silent(settings: Mapping[str, Any], seed: int) -> bool:
    """Whether ε̃ is 0 for a network that was trained on other records; few epochs for even seeds, many for odd."""
    inside, outside = parts(settings["members"], 2, 10_000 + seed)
    epochs = settings["epochs"][seed % 2]
    model = network(*outside, hidden=settings["hidden"], epochs=epochs, batch=settings["batch"], seed=seed)
    audit = audit_members_only(model, inside, generator=TreeModel(), repeats=5, seed=seed)
    return audit.headline.epsilon == 0.0
