"""The small sets that come with scikit-learn, always there: digits, breast_cancer, wine."""

from __future__ import annotations

from typing import Any

import numpy as np

from dosimeter.datasets.tables import Contents

NAMES = ("digits", "breast_cancer", "wine")


def read(name: str) -> Contents:
    """The whole set, each feature scaled to [0, 1].

    Digits are flat rows of 64 pixels, divided by 16. The other two are scaled by each feature's lowest and highest
    value in the whole published set, the same for every part that is taken of it.
    """
    from sklearn import datasets

    bunch: Any = getattr(datasets, f"load_{name}")()
    values = np.asarray(bunch.data, dtype=np.float64)
    low, high = (0.0, 16.0) if name == "digits" else (values.min(axis=0), values.max(axis=0))
    X = ((values - low) / (np.asarray(high) - low)).astype(np.float32)
    names = tuple(str(name) for name in bunch.feature_names)
    return Contents(X, np.asarray(bunch.target, dtype=np.int64), names, tuple(map(str, bunch.target_names)), None)
