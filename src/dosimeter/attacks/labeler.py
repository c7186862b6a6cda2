"""Labels for generated records that came without: a classifier of the classes, trained on the generator's records."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import special

from dosimeter._validate import FloatArray, InputError, IntArray
from dosimeter.attacks.stacked import Content, WordClassifier, boosted, has_torch, hashed, principal, quiet_fit

HELD_OUT = 0.2  # of the records, to say how good the labels are
MOST_CLASSES = 1000


class Labels(NamedTuple):
    """A class for each generated record, and how often the classifier is right about records it has not seen."""

    codes: IntArray
    accuracy: float


def label(known: Content, asked: Content, *, seed: int) -> Labels:
    """Draw a class for each record from the chances that a classifier of the known records gives.

    Drawn, not the likeliest: labels of members are noisy too, and clean ones would give generated records away.
    """
    assert known.labels is not None
    rng = np.random.default_rng(np.random.SeedSequence(seed))
    classes, codes = np.unique(known.labels, return_inverse=True)
    if classes.size > min(MOST_CLASSES, len(known) // 2):
        raise InputError(
            f"generator returns no labels, and {classes.size} different labels of {len(known)} members are too many to "
            "train a labeler; let the generator return (X, y)."
        )
    if classes.size == 1:
        return Labels(np.full(len(asked), classes[0]), 1.0)
    order = rng.permutation(len(known))
    held, fit = np.split(order, [max(1, round(HELD_OUT * order.size))])
    train = Content(known.kind, known.take(fit).records, codes[fit])
    chances = _chances(train, (_bare(known.take(held)), _bare(asked)), classes.size, seed)
    right = float(np.mean(chances[0].argmax(axis=1) == codes[held]))
    drawn = (np.cumsum(chances[1], axis=1) < rng.random((len(asked), 1))).sum(axis=1)
    return Labels(classes[np.minimum(drawn, classes.size - 1)], right)


def _bare(content: Content) -> Content:
    """The records without their labels."""
    return Content(content.kind, content.records, None)


def _chances(train: Content, asked: tuple[Content, Content], classes: int, seed: int) -> list[FloatArray]:
    assert train.labels is not None
    if train.kind == "image" and has_torch():
        from dosimeter.attacks.image_classifier import image_classifier

        logits = image_classifier(train.records, train.labels, classes=classes, seed=seed)
        return [np.asarray(special.softmax(logits(part.records), axis=1), np.float64) for part in asked]
    bare = _bare(train)
    fitted: Any
    if train.kind == "text":
        fitted, seen = WordClassifier(), hashed(bare)
        views = [hashed(part) for part in asked]
    elif train.kind == "image":
        fitted, seen = boosted(seed, leaves=31, rounds=120), principal(bare, bare)[0]
        views = [principal(bare, part)[1] for part in asked]
    else:
        fitted, seen, views = boosted(seed, leaves=31, rounds=120), bare.records, [part.records for part in asked]
    quiet_fit(fitted, seen, train.labels)
    found = []
    for view in views:
        chances = np.zeros((view.shape[0], classes))
        chances[:, fitted.classes_] = fitted.predict_proba(view)
        found.append(chances)
    return found
