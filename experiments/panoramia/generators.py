"""Generators of tables side by side: how well a judge tells their records from real ones, and how near they come."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from dosimeter import Scores
from dosimeter.attacks.stacked import Content, content_scores
from dosimeter.engine import Store
from dosimeter.generators import GaussianCopula, Mst, TreeModel

from .adult import parts

DELTA = 1e-5
COPY = 1e-6  # records that are nearer are the same, but for the rounding of a float


def _made(name: str, settings: Mapping[str, Any], public: tuple[Any, Any]) -> Any:
    if name.startswith("MST"):
        epsilon = float(name.split("=")[1])
        return Mst(epsilon=epsilon, delta=DELTA, public=public, bins=settings["bins"], name=name)
    return {"tree": TreeModel(), "copula": GaussianCopula()}[name]


def judged(real: tuple[Any, Any], made: tuple[Any, Any], seed: int) -> float:
    """The AUC of the classifier that baseline and attack begin with, on records that it was not trained on."""
    X, y = (np.concatenate(both) for both in zip(real, made, strict=True))
    member = np.arange(len(X)) < len(real[0])
    train = np.random.default_rng(seed).permutation(len(X)) < len(X) // 2
    sides = [Content("tabular", X[rows].astype(float), y[rows]) for rows in (train, ~train)]
    scores = content_scores(sides[0], member[train], sides[1], seed=seed).audit
    return Scores(scores[member[~train]], scores[~member[~train]]).auc


def nearest(asked: tuple[Any, Any], known: tuple[Any, Any]) -> Any:
    """The distance of each record to the nearest known one: sum over columns, a word that differs counts as 1."""
    from sklearn.neighbors import NearestNeighbors

    tables = [np.column_stack([X, y]).astype(np.float32) for X, y in (known, asked)]
    binary = np.isin(tables[0], (0.0, 1.0)).all(axis=0)
    known_rows, asked_rows = (np.where(binary, table / 2, table) for table in tables)  # a one-hot block differs in two
    index = NearestNeighbors(n_neighbors=1, metric="manhattan").fit(known_rows)
    return index.kneighbors(asked_rows)[0][:, 0]


def audited(settings: Mapping[str, Any], seed: int, store: Store | None = None) -> dict[str, Any]:
    """Every generator on one draw: it learns from some records and is judged against others."""
    learnt, held, public = parts(settings["data"], [settings["members"], settings["held"], settings["public"]], seed)
    some = slice(0, settings["asked"])
    usual = nearest((held[0][some], held[1][some]), learnt)
    rows = [_row("held-out records", None, usual, 0.0)]
    for name in settings["generators"]:
        began = time.process_time()
        made = _made(name, settings, public).fit(learnt, seed=seed).sample(settings["held"], seed=seed + 1)
        taken = time.process_time() - began
        away = nearest((made[0][some], made[1][some]), learnt)
        rows.append(_row(name, judged(held, made, seed), away, taken))
    return {"seed": seed, "data": settings["data"], "rows": rows}


def _row(name: str, auc: float | None, away: Any, seconds: float) -> dict[str, Any]:
    distance, copies = float(np.median(away)), float(np.mean(away < COPY))
    return {"name": name, "auc": auc, "distance": distance, "copies": copies, "seconds": seconds}
