"""The experiment on texts: passages of one length, words by number, a training looked at on its way, a whole audit."""

import importlib
import json
import types
from collections import Counter

import numpy as np
import pytest
from scipy import stats
from test_reproduce import reproduce

reproduce.load("panoramia")
texts = importlib.import_module("experiments.panoramia.texts")

SETTINGS = {"width": 16, "layers": 1, "batch": 32, "learning_rate": 0.02}


@pytest.fixture
def paragraphs(monkeypatch):
    """Paragraphs in which each word leans to the next one of the alphabet, with a heading and some rare words."""
    rng = np.random.default_rng(0)
    steps = rng.choice([1, 1, 1, 2, 5, 7, 11], (80, 41)).cumsum(axis=1) % 20
    found = [" ".join("abcdefghijklmnopqrst"[k] for k in row) for row in steps]
    found += ["= A heading of rare words =", "", "zz " + found[0]]
    monkeypatch.setattr(texts, "load", lambda name: types.SimpleNamespace(X=np.array(found)))
    texts.corpus.cache_clear()
    yield found
    texts.corpus.cache_clear()


def test_passages_have_one_length_and_known_words_only(paragraphs):
    words, passages = texts.corpus(12, 6)
    counts = Counter(word for text in paragraphs[:-3] for word in text.split()) + Counter(paragraphs[-1].split())
    least = min(counts[word] for word in words[1:])
    assert words[0] == "<unk>" and len(words) == 12 and least >= max(counts[w] for w in counts if w not in words)
    assert len(set(passages)) == len(passages) and list(passages) == sorted(passages)
    assert all(len(text.split()) == 6 and set(text.split()) <= {*words, "<unk>"} for text in passages)
    first = [word if word in words else "<unk>" for word in paragraphs[0].split()[:6]]
    assert " ".join(first) in passages and not any("heading" in text for text in passages)


def test_words_have_numbers_and_a_start():
    words = texts.Words(("<unk>", "a", "b"))
    assert words(["b a zz", "a"])["input_ids"] == [[0, 3, 2, 1], [0, 2]] and words.size == 4
    assert words(["b a zz"], truncation=True, max_length=2)["input_ids"] == [[0, 3]]
    assert texts._whole("a b", words, 2) and not texts._whole("a b", words, 3) and not texts._whole("a zz", words, 2)


def test_entropy_of_words():
    shares = np.array([3, 2, 1]) / 6
    assert np.isclose(texts.entropy(["a a b", "b a c"]), stats.entropy(shares))


def test_a_model_on_its_way_is_the_model_of_a_shorter_training():
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    words = texts.Words(("<unk>", "a", "b", "c"))
    passages = [" ".join(row) for row in np.random.default_rng(0).choice(["a", "b", "c"], (64, 5))]
    both = texts.language_models(passages, words, epochs=[2, 12], settings=SETTINGS, seed=1)
    short = texts.language_models(passages, words, epochs=[2], settings=SETTINGS, seed=1)[2]
    other = texts.language_models(passages, words, epochs=[2], settings=SETTINGS, seed=2)[2]
    losses = [model.losses(passages).values for model in (both[2], short, other, both[12])]
    assert np.array_equal(losses[0], losses[1]) and not np.array_equal(losses[0], losses[2])
    assert losses[3].mean() < losses[0].mean()


def test_an_audit_is_plain_and_in_the_order_of_over_fitting(paragraphs):
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    settings = {**SETTINGS, "members": 200, "words": 21, "length": 8, "order": 2, "epochs": [8, 2]}
    row = texts.audited({**settings, "reference_epochs": 2, "references": 3, "splits": [0.25, 0.25, 0.25, 0.25]}, 0)
    assert json.loads(json.dumps(row)) == row and row["members"] == 200 and row["seed"] == 0
    few, many = row["targets"]
    assert (few["epochs"], many["epochs"]) == (2, 8) and many["train"] < few["train"] < np.log(22)
    assert 0 <= row["unknown"] < 0.2 and 0 < row["entropy"] < np.log(21) and 0 <= row["filtered"] < 0.5
