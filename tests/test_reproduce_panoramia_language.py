"""The experiment on language models: passages of one length, a training on its way, the base kept, an audit."""

import importlib
import json

import numpy as np
import pytest
from test_reproduce import reproduce

pytest.importorskip("torch")
pytest.importorskip("transformers")

reproduce.load("panoramia")
language = importlib.import_module("experiments.panoramia.language")

SETTINGS = {
    "vocabulary": 300,
    "width": 16,
    "layers": 1,
    "heads": 2,
    "tokens": 10,
    "words": 8,
    "pretrain_texts": 60,
    "pretrain_steps": 8,
    "batch": 32,
    "members": 170,
    "learning_rate": 0.01,
    "epochs": [1, 4],
    "reference_epochs": 1,
    "references": 0,
    "generator_epochs": 1,
    "generator_rate": 0.001,
    "top_p": 0.95,
    "shown": 40,
}


@pytest.fixture(scope="module")
def lines():
    rng = np.random.default_rng(0)
    words = ["north", "south", "river", "stone", "battle", "album", "season", "church", "of", "the", "in", "was"]
    return [tuple(" ".join(rng.choice(words, 24)) for _ in range(200)) for _ in range(2)]


@pytest.fixture
def start(lines, tmp_path, monkeypatch):
    monkeypatch.setattr(language, "WORK", tmp_path)
    monkeypatch.setattr(language, "halves", lambda: tuple(lines))
    language._base.cache_clear()
    yield language.base(SETTINGS)
    language._base.cache_clear()


def test_passages_have_one_length_also_when_read_again(start):
    assert len(set(start.passages)) == len(start.passages) >= 340
    assert {len(start.tokenizer(text)["input_ids"]) for text in start.passages} == {10}
    assert language.cut(start.tokenizer, ["the river"], 10) == []


def test_the_base_is_trained_once(start, tmp_path, monkeypatch):
    (file,) = tmp_path.glob("base-*.safetensors")
    monkeypatch.setattr(language, "fine_tune", lambda *_, **__: pytest.fail("it was there"))
    language._base.cache_clear()
    again = language.base(SETTINGS)
    assert again.wrapped(again.model).losses(list(start.passages[:5])).values.tolist() == (
        start.wrapped(start.model).losses(list(start.passages[:5])).values.tolist()
    )
    assert again.weights == start.weights > 1000 and file.exists()


def test_a_model_on_its_way_is_the_model_of_a_shorter_training(start):
    texts = list(start.passages[:64])
    both = language.fine_tuned(start, texts, SETTINGS, epochs=[1, 4], seed=3)
    short = language.fine_tuned(start, texts, SETTINGS, epochs=[1], seed=3)
    losses = [model.losses(texts).values for model in (both[1], short[1], both[4])]
    assert np.array_equal(losses[0], losses[1]) and losses[2].mean() < losses[0].mean()


def test_an_audit_is_plain_and_shows_the_losses_of_all_models(start):
    row = language.audited(SETTINGS, 0)
    assert json.loads(json.dumps(row)) == row and row["generator"] == "fine-tuned transformer"
    few, many = row["targets"]
    assert (few["epochs"], many["epochs"]) == (1, 4) and many["train"] < few["train"]
    assert many["thesis"]["c_eps_lb"] >= 0 and many["real"] is not None and row["auc_limit"] is None
    assert list(row["losses"]) == ["1 epochs", "4 epochs", "helper"]
    assert all(len(values) == 41 for sides in row["losses"].values() for values in sides.values())
