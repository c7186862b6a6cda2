"""A learned attack: a classifier on features and outputs that never scores a record whose membership it was shown."""

from __future__ import annotations

from typing import Any

import numpy as np

from dosimeter import _validate as check
from dosimeter._validate import BoolArray, FloatArray, InputError, IntArray, table
from dosimeter.engine.threads import one_thread

FOLDS = 5


def learned(train_features: Any, train_membership: Any, features: Any, *, seed: int, folds: int = FOLDS) -> FloatArray:
    """Score records by boosted trees fitted on records whose membership is known.

    The training rows are divided into `folds` parts of about the same share of members, with equal rows in one part,
    and one classifier is fitted without each part. A row of `features` that is also a training row is scored by the
    classifier that has not seen it; any other row gets the mean of all classifiers. So the same rows may be passed
    twice.

    Args:
        train_features: Features (m, d) of rows of known membership.
        train_membership: Whether each of them is a member.
        features: Features (n, d) of the rows to score.
        seed: Decides the folds and the trees.
        folds: How many parts.

    Returns:
        Log-odds of membership (n,).

    Raises:
        InputError: If arrays do not pair up, or there are fewer rows of one kind than folds.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> member = rng.random(400) < 0.5
    >>> features = rng.normal(size=(400, 2)) + 2 * member[:, None]
    >>> scores = learned(features, member, features, seed=0)
    >>> bool(scores[member].mean() > scores[~member].mean())
    True
    """
    known = table("train_features", train_features)
    member = check.bits("train_membership", train_membership)
    asked = table("features", features, known.shape[1])
    if member.size != len(known):
        raise InputError(f"train_membership has {member.size} records for {len(known)} rows; give one for each row.")
    parts = check.whole("folds", folds, 2, "pass e.g. 5")
    fewest = min(int(member.sum()), int((~member).sum()))
    if fewest < parts:
        raise InputError(
            f"train_membership has only {fewest} records of one kind for {parts} folds; pass more of both kinds."
        )
    rows = np.unique(np.concatenate([known, asked]) + 0.0, axis=0, return_inverse=True)[1].ravel()
    known_rows, asked_rows = rows[: len(known)], rows[len(known) :]
    part_of = _dealt(known_rows, member, parts, int(rows.max()) + 1, np.random.SeedSequence(check.seed(seed)))
    own = part_of[asked_rows]
    scores, new = np.zeros(len(asked)), own < 0
    for part in range(parts):
        kept = part_of[known_rows] != part
        if member[kept].all() or not member[kept].any():
            raise InputError(
                "train_features has so many equal rows that a fold holds all members or all non-members; pass rows "
                "that differ."
            )
        predicted = _log_odds(known[kept], member[kept], asked, seed)
        scores += np.where(own == part, predicted, np.where(new, predicted / parts, 0.0))
    return scores


def _dealt(rows: IntArray, member: BoolArray, parts: int, total: int, seed: np.random.SeedSequence) -> IntArray:
    """The part of every distinct row, −1 for rows without known membership; members and others take turns."""
    part_of = np.full(total, -1, np.int64)
    distinct, first = np.unique(rows, return_index=True)
    order = np.random.default_rng(seed).permutation(distinct.size)
    order = order[np.argsort(member[first[order]], kind="stable")]
    part_of[distinct[order]] = np.arange(distinct.size) % parts
    return part_of


def _log_odds(inputs: FloatArray, member: BoolArray, asked: FloatArray, seed: int) -> FloatArray:
    from sklearn.ensemble import HistGradientBoostingClassifier

    model = HistGradientBoostingClassifier(max_iter=100, learning_rate=0.08, max_leaf_nodes=16, random_state=seed)
    with one_thread():
        result: FloatArray = model.fit(inputs, member).decision_function(asked)
    return result
