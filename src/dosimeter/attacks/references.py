"""Models that never saw an audit record: the helper on generated data, and references on members outside the audit.

What they say about a record can be had without the model under audit. A reference stands in its place: what an attack
gains from a reference it gains from knowing the distribution, not from membership.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import chain
from typing import Any, TypeAlias

import numpy as np

from dosimeter._validate import BoolArray, FloatArray, IntArray
from dosimeter.attacks.stacked import Content, boosted, class_columns, has_torch, quiet_fit, token_columns
from dosimeter.models import Outputs

Asked: TypeAlias = Callable[[Content], FloatArray]
IMAGE_EPOCHS = (6, 3, 12)
WEIGHTS = (0.05, 0.2, 0.35, 0.4)  # of uniform, one, two and three words in a row
_TOKEN = re.compile(r"\w+|[^\w\s]")


def reference(content: Content, *, seed: int, variant: int = 0) -> Asked:
    """Train a model on records and labels; returns a function from records to the columns of what it says of them.

    Tables: boosted trees or, for odd variants, a dense network; variants 2 and 3 of four are many deep trees, which
    fit the records too closely, and a network that is stopped early on, which does not yet. Images: a convolutional
    network that is trained shorter or longer, without torch a dense one. Texts: hashed words for a class, three words
    in a row for none.
    """
    if content.kind == "text" and content.labels is None:
        return _n_grams(content.records)
    assert content.labels is not None  # the audit asks for labels of everything but texts
    classes, codes = np.unique(content.labels, return_inverse=True)
    if classes.size < 2:
        return lambda asked: np.zeros((len(asked), 3))
    fitted = _classifier(content, codes, classes.size, seed, variant)

    def ask(asked: Content) -> FloatArray:
        logits = fitted(asked)
        assert asked.labels is not None
        place = np.searchsorted(classes, asked.labels).clip(0, classes.size - 1)
        known = classes[place] == asked.labels
        columns = class_columns(Outputs(logits, "logits"), place)
        columns[~known, 0] = columns[:, 0].max()  # a class that the training records lack
        return columns

    return ask


def _classifier(content: Content, codes: IntArray, classes: int, seed: int, variant: int) -> Asked:
    if content.kind == "image" and has_torch():
        from dosimeter.attacks.image_classifier import image_classifier

        epochs = IMAGE_EPOCHS[variant % len(IMAGE_EPOCHS)]
        logits = image_classifier(content.records, codes, classes=classes, seed=seed, epochs=epochs)
        return lambda asked: logits(asked.records)
    if content.kind == "text":
        from sklearn.feature_extraction.text import HashingVectorizer
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline

        model: Any = make_pipeline(HashingVectorizer(ngram_range=(1, 2)), LogisticRegression(C=10.0, max_iter=200))
        x: Any = content.records
    else:
        model = _tabular(seed, variant % 4) if content.kind == "tabular" else _dense(seed)
        x = content.records.reshape(len(content), -1)
    from threadpoolctl import threadpool_limits

    quiet_fit(model, x, codes)

    def logits_of(asked: Content) -> FloatArray:
        rows = asked.records if asked.kind == "text" else asked.records.reshape(len(asked), -1)
        with threadpool_limits(1):
            return np.log(np.maximum(model.predict_proba(rows), 1e-12))

    return logits_of


def _tabular(seed: int, variant: int) -> Any:
    if variant % 2:
        return _dense(seed, short=variant == 3)
    return boosted(seed, leaves=63, rounds=80) if variant else boosted(seed, leaves=15, rounds=80)


def _dense(seed: int, *, short: bool = False) -> Any:
    from sklearn.impute import SimpleImputer
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    length = {"max_iter": 8} if short else {"early_stopping": True, "n_iter_no_change": 3, "max_iter": 40}
    network = MLPClassifier((64,), alpha=1e-3, random_state=seed, **length)
    # boosted trees take missing values as they are, a network does not
    return make_pipeline(SimpleImputer(strategy="median", keep_empty_features=True), StandardScaler(), network)


def _n_grams(texts: list[str]) -> Asked:
    """Interpolated frequencies of one, two and three words in a row; the words that the texts lack are one word."""
    vocabulary: dict[str, int] = {}
    words, starts = _numbers(texts, lambda word: vocabulary.setdefault(word, len(vocabulary) + 1))
    size = len(vocabulary) + 1
    tables = [np.unique(codes[inside], return_counts=True) for codes, inside in _codes(words, starts, size)]

    def frequency(order: int, codes: IntArray) -> FloatArray:
        keys, counts = tables[order]
        if keys.size == 0:
            return np.zeros(codes.size)
        place = np.searchsorted(keys, codes).clip(0, keys.size - 1)
        return np.where(keys[place] == codes, counts[place], 0).astype(np.float64)

    def ask(asked: Content) -> FloatArray:
        tokens, begins = _numbers(asked.records, lambda word: vocabulary.get(word, 0))
        codes = _codes(tokens, begins, size)
        seen = [frequency(order, code) for order, (code, _) in enumerate(codes)]
        # How often the words before this one stood together: the frequency of the shorter n-gram, one place earlier.
        before = [np.full(tokens.size, float(words.size)), np.roll(seen[0], 1), np.roll(seen[1], 1)]
        mixed = np.full(tokens.size, WEIGHTS[0] / size)
        for weight, (_, inside), times, context in zip(WEIGHTS[1:], codes, seen, before, strict=True):
            mixed += weight * np.where(inside & (context > 0), times / np.maximum(context, 1.0), 0.0)
        return token_columns(np.split(np.log(mixed), begins[1:]))

    return ask


def _numbers(texts: list[str], number: Callable[[str], int]) -> tuple[IntArray, IntArray]:
    """The numbers of all words of all texts, and where each text begins; a text without a word has one unknown word."""
    found = [[number(word) for word in _TOKEN.findall(text.lower())] or [0] for text in texts]
    sizes = np.array([len(row) for row in found], np.int64)
    return np.fromiter(chain.from_iterable(found), np.int64, int(sizes.sum())), np.cumsum(sizes) - sizes


def _codes(words: IntArray, starts: IntArray, size: int) -> list[tuple[IntArray, BoolArray]]:
    """Codes of the one, two and three words that end at each word, and whether they lie within one text."""
    place = np.arange(words.size) - np.repeat(starts, np.diff(np.append(starts, words.size)))
    pairs = np.roll(words, 1) * size + words
    triples = np.roll(words, 2) * (size * size) + pairs
    return [(words, place >= 0), (pairs, place >= 1), (triples, place >= 2)]
