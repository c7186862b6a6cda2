"""How well generated records pass for real ones, and what they cost: python bench/generators.py table adult.

Each generator learns from members and writes as many records. A classifier is then trained to tell held-out real
records from generated ones; its AUC on records that it has not seen is near 0.5 for a good generator and 1 for a bad
one. The share of generated records that are equal to a member shows whether it only copies.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from dosimeter import generators
from dosimeter.datasets import load

TABLES = ("adult", "bank_marketing", "credit_default", "german_credit", "location30")
SHOWN = 3


def contenders(kind: str, names: list[str]) -> dict[str, Any]:
    """The generators for a kind of data, by the names of their classes."""
    known = {
        "table": ("GaussianCopula", "TreeModel", "Mst"),
        "image": ("SmoothedBootstrap", "PcaMixture", "ConvolutionalVae"),
        "text": ("NGram", "CausalTransformer"),
    }[kind]
    return {name: getattr(generators, name)() for name in known if not names or name in names}


def features(kind: str, X: Any, y: Any) -> Any:
    """What the classifier sees of records and their labels."""
    if kind == "text":
        return HashingVectorizer(ngram_range=(1, 2), n_features=1 << 18).transform([str(text) for text in X])
    rows = np.asarray(X, dtype=np.float32).reshape(len(X), -1)
    return rows if y is None else np.column_stack([rows, y])


def told_apart(kind: str, real: Any, made: Any, *, seed: int) -> float:
    """The AUC of a classifier of real and generated records on the half that it has not seen."""
    from scipy import sparse

    stack = sparse.vstack if kind == "text" else np.concatenate
    X = stack([real, made])
    X = X.tocsr() if kind == "text" else X
    y = np.repeat([1, 0], [real.shape[0], made.shape[0]])
    order = np.random.default_rng(seed).permutation(y.size)
    train, test = order[: y.size // 2], order[y.size // 2 :]
    model = LogisticRegression(C=10.0, max_iter=300) if kind == "text" else HistGradientBoostingClassifier()
    model.fit(X[train], y[train])
    return float(roc_auc_score(y[test], model.predict_proba(X[test])[:, 1]))


def measure(kind: str, dataset: str, count: int, names: list[str], seed: int) -> None:
    """Print a row for each generator."""
    data = load(dataset)
    count = min(count, len(data) // 2)
    order = np.random.default_rng(seed).permutation(len(data))
    inside, outside = (data.take(order[k * count : (k + 1) * count]) for k in range(2))
    members = inside.X if inside.y is None or kind == "text" else inside.pair
    real = features(kind, outside.X, None if kind == "text" else outside.y)
    print(f"{dataset}, {count} members; chosen: {generators.choose(members).generator.name}")
    for name, generator in contenders(kind, names).items():
        began = time.process_time()
        fitted = generator.fit(members, seed=seed)
        middle = time.process_time()
        made = fitted.sample(count, seed=seed)
        ended = time.process_time()
        X, y = made if isinstance(made, tuple) else (made, None)
        auc = told_apart(kind, real, features(kind, X, y), seed=seed)
        copies = generators.check_copies(members, made)
        print(
            f"  {name:18s} AUC {auc:.3f}  copies {copies:.4f}  fit {middle - began:.2f} s, sample "
            f"{ended - middle:.2f} s CPU",
            flush=True,
        )
        for text in X[:SHOWN] if kind == "text" else ():
            print(f"    {text[:200]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=["table", "image", "text"])
    parser.add_argument("datasets", nargs="*", help="names that dosimeter.datasets.load knows")
    parser.add_argument("--records", type=int, default=5000)
    parser.add_argument("--only", nargs="*", default=[], help="classes of generators")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    default = {"table": TABLES, "image": ("mnist",), "text": ("wikitext2",)}[arguments.kind]
    for dataset in arguments.datasets or default:
        measure(arguments.kind, dataset, arguments.records, arguments.only, arguments.seed)


if __name__ == "__main__":
    main()
