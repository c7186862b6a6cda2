"""How well generated records pass for real ones, and what they cost: python bench/generators.py table adult.

Each generator learns from members and writes as many records. A classifier is then trained to tell held-out real
records from generated ones; its AUC on records that it has not seen is near 0.5 for a good generator and 1 for a bad
one. The share of generated records that are equal to a member shows whether it only copies.

Images have three judges: trees on pixels, a convolutional network that classifies images, and the network that judges
generated records in an audit. Their median correlation with the nearest member stands beside that of real images.
`--side 16` makes images small, `--steps` trains flow matching for longer, and `--start` lets it start from members.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from dosimeter import generators
from dosimeter.datasets import load
from dosimeter.engine import Store
from dosimeter.generators.pixels import channels_last

TABLES = ("adult", "bank_marketing", "credit_default", "german_credit", "location30")
SHOWN = 3


def contenders(kind: str, names: list[str], options: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The generators for a kind of data, by the names of their classes, with some options."""
    known = {
        "table": ("GaussianCopula", "TreeModel", "Mst"),
        "image": ("SmoothedBootstrap", "PcaMixture", "ConvolutionalVae", "FlowMatching"),
        "text": ("NGram", "CausalTransformer"),
    }[kind]
    return {name: getattr(generators, name)(**options.get(name, {})) for name in known if not names or name in names}


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


def networks(real: Any, made: Any, *, seed: int) -> dict[str, float]:
    """The AUC of two convolutional networks on the half of the images that they have not seen."""
    from dosimeter.attacks.image_classifier import image_classifier, image_judge

    X = np.concatenate([channels_last(real), channels_last(made)])
    y = np.repeat([1, 0], [len(real), len(made)])
    order = np.random.default_rng(seed).permutation(y.size)
    train, test = order[: y.size // 2], order[y.size // 2 :]
    logits = image_classifier(X[train], y[train], classes=2, seed=seed)(X[test])
    odds = image_judge(X[train], y[train] == 1, seed=seed)(X[test])
    return {
        "classifier": float(roc_auc_score(y[test], logits[:, 1] - logits[:, 0])),
        "judge": float(roc_auc_score(y[test], odds)),
    }


def smaller(data: Any, side: int) -> Any:
    """Images as means over squares, as whole numbers from 0 to 255."""
    X = channels_last(data.X)
    step = X.shape[1] // side
    means = X.reshape(len(X), side, step, side, step, X.shape[3]).mean(axis=(2, 4))
    return replace(data, X=np.rint(255 * means).astype(np.uint8))


def measure(
    kind: str, dataset: str, count: int, names: list[str], seed: int, *, side: int | None, options: Mapping[str, Any]
) -> None:
    """Print a row for each generator."""
    data = load(dataset) if side is None else smaller(load(dataset), side)
    count = min(count, len(data) // 2)
    order = np.random.default_rng(seed).permutation(len(data))
    inside, outside = (data.take(order[k * count : (k + 1) * count]) for k in range(2))
    members = inside.X if inside.y is None or kind == "text" else inside.pair
    real = features(kind, outside.X, None if kind == "text" else outside.y)
    print(f"{dataset}, {count} members; chosen: {generators.choose(members).generator.name}")
    for name, generator in contenders(kind, names, options).items():
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
        if kind == "image":
            told = networks(outside.X, X, seed=seed)
            near = [float(np.median(generators.nearest_members(inside.X, part[:1000]))) for part in (X, outside.X)]
            print(
                f"    AUC of a classifier {told['classifier']:.3f}, of the judge {told['judge']:.3f}; nearest member "
                f"{near[0]:.3f}, real images {near[1]:.3f}",
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
    parser.add_argument("--side", type=int, help="height and width of images, which must divide theirs")
    parser.add_argument("--steps", type=int, default=1500, help="training steps of flow matching")
    parser.add_argument("--start", type=float, default=0.0, help="where flow matching starts, 0 for noise")
    parser.add_argument("--smoothing", type=float, default=0.5, help="share of noise of the smoothed bootstrap")
    parser.add_argument("--store", help="folder that keeps the training of flow matching")
    arguments = parser.parse_args()
    default = {"table": TABLES, "image": ("mnist",), "text": ("wikitext2",)}[arguments.kind]
    for dataset in arguments.datasets or default:
        measure(
            arguments.kind,
            dataset,
            arguments.records,
            arguments.only,
            arguments.seed,
            side=arguments.side,
            options={
                "FlowMatching": {
                    "steps": arguments.steps,
                    "start": arguments.start,
                    "flips": dataset == "cifar10",
                    "store": None if arguments.store is None else Store(arguments.store),
                },
                "SmoothedBootstrap": {"smoothing": arguments.smoothing},
            },
        )


if __name__ == "__main__":
    main()
