"""Quantile regression: how far a signal lies above that of a non-member with the same features.

Bertran et al., "Scalable membership inference attacks via quantile regression" (2023): no shadow models at all.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dosimeter import _validate as check
from dosimeter._validate import FloatArray, InputError, matrix, table
from dosimeter.engine.threads import one_thread

FEWEST = 40  # non-members: two leaves of the trees
SMALLEST_SPREAD = 0.1  # as a share of the spread over all non-members


def quantile_regression(target: Any, features: Any, reference: Any, *, level: float = 0.9, seed: int = 0) -> FloatArray:
    """Score records by how far the signal exceeds what their features predict for a non-member.

    Boosted trees learn the median and the `level` quantile of the non-members' signals given their features; the score
    is (signal − median) / (quantile − median), 1 on the quantile itself. So a threshold of 1 has a false positive rate
    of about 1 − `level` for every kind of record, and one order of scores serves all other rates. The spread is never
    taken below a tenth of the one over all non-members.

    Args:
        target: Signals (n,) of the target model.
        features: Features (n, d) of the same records.
        reference: A pair (signals, features) of known non-members, other records than the target's.
        level: The quantile, in (0.5, 1).
        seed: Decides the trees.

    Returns:
        Scores (n,), high for a likely member.

    Raises:
        InputError: If arrays do not pair up, or there are fewer than 40 known non-members.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> features = rng.normal(size=(200, 2))
    >>> signals = features[:, 0] + rng.normal(size=200)
    >>> quantile_regression(signals[:100] + 3, features[:100], (signals[100:], features[100:])).shape
    (100,)
    """
    signals, inputs = _pair("target", target, "features", features)
    if not isinstance(reference, (tuple, list)) or len(reference) != 2:
        raise InputError(
            "reference must be a pair (signals, features) of known non-members, got "
            f"{check.show(reference)}; pass both arrays."
        )
    known, known_inputs = _pair("reference[0]", reference[0], "reference[1]", reference[1], inputs.shape[1])
    quantile = check.within("level", level, 0.5, 1.0, "pass e.g. 0.9", include="()")
    if known.size < FEWEST:
        raise InputError(f"reference holds {known.size} non-members, below {FEWEST}; pass more of them.")
    middle, upper = (_fitted(known_inputs, known, q, check.seed(seed)) for q in (0.5, quantile))
    typical = float(np.quantile(known - middle(known_inputs), quantile))
    centre = middle(inputs)
    spread = np.maximum(upper(inputs) - centre, SMALLEST_SPREAD * typical)
    return (signals - centre) / np.where(spread > 0, spread, 1.0)


def _pair(
    name: str, signals: Any, features_name: str, features: Any, columns: int | None = None
) -> tuple[FloatArray, FloatArray]:
    values = matrix(name, signals, dimensions=(1,)).astype(np.float64)
    inputs = table(features_name, features, columns)
    if len(inputs) != values.size:
        raise InputError(
            f"{features_name} has {len(inputs)} rows for the {values.size} signals of {name}; pair them up."
        )
    return values, inputs


def _fitted(inputs: FloatArray, signals: FloatArray, quantile: float, seed: int) -> Any:
    from sklearn.ensemble import HistGradientBoostingRegressor

    model = HistGradientBoostingRegressor(
        loss="quantile", quantile=quantile, max_iter=100, learning_rate=0.08, max_leaf_nodes=16, random_state=seed
    )
    with one_thread():
        model.fit(inputs, signals)
    return model.predict
