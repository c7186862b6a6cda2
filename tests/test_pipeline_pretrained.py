"""`dosimeter run` on a pre-trained transformer: its frozen features, and the transformer fine-tuned."""

import gzip
from dataclasses import replace
from functools import partial
from itertools import islice

import numpy as np
import pytest

from dosimeter import InputError
from dosimeter.engine import Store
from dosimeter.pipelines import config as settings
from dosimeter.pipelines import subjects
from dosimeter.pipelines.launch import launch
from dosimeter.pipelines.subjects import subject

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from dosimeter.pipelines import pretrained  # noqa: E402

GOOD, BAD, REST = ("fine", "lovely", "great"), ("dull", "poor", "awful"), ("film", "plot", "cast", "scene", "music")
HEAD = """
seed = 1
[data]
name = "sst2"
folder = "."
records = 80
length = 8
encoder = "tiny"
[model]
network = "logistic"
[recipe]
epochs = 60
batch_size = 20
learning_rate = 0.5
[budget]
shadows = 8
runs = 12
[engine]
name = "inline"
"""


def sentences(count):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, count)
    return [" ".join((*rng.choice(REST, 3), rng.choice((BAD, GOOD)[y]))) for y in labels], labels


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A tiny BERT with random weights, and sentences in the form of SST-2."""
    tiny = tmp_path / "tiny"
    tiny.mkdir()
    (tiny / "vocab.txt").write_text("\n".join(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *GOOD, *BAD, *REST)))
    transformers.BertTokenizerFast(str(tiny / "vocab.txt")).save_pretrained(tiny)
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    torch.manual_seed(0)
    transformers.BertModel(transformers.BertConfig(vocab_size=16, **shape)).save_pretrained(tiny)
    texts, labels = sentences(100)
    rows = [f"train,{y},{text}" for text, y in zip(texts, labels, strict=True)]
    with gzip.open(tmp_path / "sst2.csv.gz", "wt") as file:
        file.write("\n".join(["split,label,sentence", *rows]) + "\n")
    (tmp_path / "audit.toml").write_text(HEAD)
    monkeypatch.setattr(subjects, "load", partial(subjects.load, verify=False))  # fewer sentences than SST-2 has
    pretrained._encoder.cache_clear()
    pretrained._classifier.cache_clear()
    return tmp_path


def read(folder, *changes):
    return settings.read(str(folder / "audit.toml"), list(changes))


def fine_tuned(folder, *changes):
    text = HEAD.replace('encoder = "tiny"', "").replace('network = "logistic"', 'pretrained = "tiny"')
    (folder / "audit.toml").write_text(text.replace("epochs = 60", "epochs = 2").replace("= 0.5", "= 5e-3"))
    return read(folder, *changes)


def test_features_are_the_means_of_the_tokens_and_are_computed_once(folder, monkeypatch):
    texts = ["fine film", "a dull plot and a poor cast", "great"]
    store = Store(folder / "store")
    found = pretrained.text_features("tiny", texts, length=8, base=folder, store=store)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder / "tiny")
    model = transformers.AutoModel.from_pretrained(folder / "tiny").eval()
    for text, row in zip(texts, found, strict=True):  # alone, so without padding
        with torch.no_grad():
            alone = model(**tokenizer(text, return_tensors="pt", truncation=True, max_length=8)).last_hidden_state
        assert np.allclose(row, alone[0].mean(dim=0).numpy(), atol=1e-5)
    monkeypatch.setattr(pretrained, "_mean_of_tokens", None)
    assert (pretrained.text_features("tiny", texts, length=8, base=folder, store=store) == found).all()


def test_other_weights_have_other_features(folder):
    store = Store(folder / "store")
    before = pretrained.text_features("tiny", ["fine film"], length=8, base=folder, store=store)
    model = transformers.AutoModel.from_pretrained(folder / "tiny")
    model.embeddings.word_embeddings.weight.data *= 2
    model.save_pretrained(folder / "tiny")
    pretrained._encoder.cache_clear()
    after = pretrained.text_features("tiny", ["fine film"], length=8, base=folder, store=store)
    assert not np.allclose(before, after)


def test_a_network_on_frozen_features(folder):
    config, store = read(folder), Store(folder / "store")
    ready = subject(config, base=folder, store=store)
    assert ready.data[0].shape == (80, 16)
    audit = launch(config, ready, store=store, progress=False)
    assert audit.metadata.trainings.done == 20
    assert audit.metadata.utility.shadows["members"] > 0.7


def test_a_fine_tuned_transformer(folder):
    config, store = fine_tuned(folder), Store(folder / "store")
    ready = subject(config, base=folder)
    assert ready.data[0].shape == (80, 8)
    train = ready.train
    first, again, other = (train(np.arange(30), seed)(ready.data[0]) for seed in (0, 0, 1))
    assert (first == again).all()
    assert (first != other).any()
    longer = replace(train, epochs=25)(np.arange(60), 0)(ready.data[0][60:])
    assert (longer.argmax(axis=1) == ready.data[1][60:]).mean() > 0.8
    assert launch(config, ready, store=store, progress=False).provenance.computed == 20
    assert launch(config, ready, store=store, progress=False).provenance.cached == 20


def test_batches_are_random_and_of_like_lengths(folder):
    train = subject(fine_tuned(folder), base=folder).train
    rng, records = np.random.default_rng(0), 1605
    lengths = rng.integers(3, 9, records)
    rows = np.where(np.arange(8) < lengths[:, None], train.padding + 1, train.padding)
    train = replace(train, x=rows, batch=16)
    drawn = list(islice(train.batches(np.arange(records), np.random.default_rng(1)), 200))
    first = np.concatenate(drawn[:100])
    assert len(set(first.tolist())) == 1600  # a pass takes nobody twice, and the next begins with who was left over
    assert set(range(records)) - set(first.tolist()) <= set(np.concatenate(drawn[100:]).tolist())
    filled = np.mean([lengths[batch].max() for batch in drawn]) - lengths.mean()
    at_random = np.mean([lengths[batch].max() for batch in first.reshape(16, -1).T]) - lengths.mean()
    assert filled < 0.25 * at_random
    means = np.array([lengths[batch].mean() for batch in drawn[:50]])
    assert abs(np.corrcoef(means, np.arange(50))[0, 1]) < 0.4  # long and short ones in no order
    few = list(islice(train.batches(np.arange(5), np.random.default_rng(1)), 3))
    assert [sorted(batch.tolist()) for batch in few] == [[0, 1, 2, 3, 4]] * 3


def test_steps_and_epochs_count_alike(folder):
    by_epochs = subject(fine_tuned(folder, "recipe.batch_size=15"), base=folder).train
    assert by_epochs.length(40) == 6
    (folder / "audit.toml").write_text((folder / "audit.toml").read_text().replace("epochs = 2", "steps = 5"))
    assert subject(read(folder), base=folder).train.length(40) == 5


def test_an_encoder_that_cannot_be_used(folder, monkeypatch):
    with pytest.raises(InputError, match=r"data\.encoder is for texts, and digits has none"):
        subject(read(folder, "data.name=digits"), base=folder)

    def missing(*_, **__):
        raise OSError("nowhere is neither a folder nor on the hub")

    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", missing)  # the hub itself is asked for long
    with pytest.raises(InputError, match=r"data\.encoder nowhere cannot be loaded"):
        subject(read(folder, "data.encoder=nowhere"), base=folder)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (("recipe.momentum=0.9",), "recipe.momentum has no meaning for model.pretrained"),
        (("recipe.dp={epsilon=8.0}",), "recipe.dp has no meaning for model.pretrained"),
        (("recipe.steps=3",), "recipe.epochs or recipe.steps must say how long"),
        (("recipe.learning_rate=-1.0",), "recipe must hold positive numbers"),
        (("data.name=digits",), "model.pretrained is for texts, and digits has none"),
        (("data.encoder=tiny",), "data.encoder has no meaning for model.pretrained"),
    ],
)
def test_a_fine_tuning_that_makes_no_sense(folder, changes, words):
    with pytest.raises(InputError, match=words):
        subject(fine_tuned(folder, *changes), base=folder)
