"""Hugging Face models, tiny and random: nothing is downloaded."""

import numpy as np
import pytest

from dosimeter import InputError
from dosimeter.models import HuggingFace, access, dataset

torch = pytest.importorskip("torch", reason="Hugging Face models need torch: dosimeter[torch]")
transformers = pytest.importorskip("transformers", reason="Hugging Face models need transformers: dosimeter[text]")

VOCABULARY = 50


class Tokenizer:
    """One token a letter, a start and an end for classifiers; called like a tokenizer of Hugging Face."""

    def __init__(self, frame=False, model_max_length=10**30):
        self.frame, self.model_max_length = frame, model_max_length

    def __call__(self, texts, truncation=False, max_length=None):
        extra = 2 if self.frame else 0
        rows = [[3 + ord(letter) % 40 for letter in text] for text in texts]
        if truncation:
            rows = [row[: max_length - extra] for row in rows]
        return {"input_ids": [[1, *row, 2] if self.frame else row for row in rows]}


def gpt2(**options):
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=VOCABULARY, n_positions=32, n_embd=16, n_layer=2, n_head=2, initializer_range=0.5,
        bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    return transformers.GPT2LMHeadModel(config, **options)


def bert(labels=3, **options):
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=VOCABULARY, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=32, num_labels=labels, initializer_range=0.5, **options,
    )  # fmt: skip
    return transformers.BertForSequenceClassification(config)


TEXTS = ["hello world", "a longer sentence of words", "hi", "the same", "abcdefghijkl", "zz"]


def one_by_one(model, rows):
    """Log-probabilities of each sequence alone, by the model's own log_softmax in double precision."""
    found = []
    model.eval()
    with torch.no_grad():
        for row in rows:
            logits = model(torch.tensor([row])).logits[0].double().log_softmax(dim=1)
            found.append(np.array([float(logits[i, row[i + 1]]) for i in range(len(row) - 1)]))
    model.train()
    return found


@pytest.mark.parametrize("batch_size", [None, 1, 2, 4])
def test_causal_equals_one_by_one(batch_size):
    model, tokenizer = gpt2(), Tokenizer()
    model.train()
    box = access(HuggingFace(model, tokenizer, batch_size=batch_size))
    found = box.sequences(TEXTS)
    expected = one_by_one(model, tokenizer(TEXTS)["input_ids"])
    for got, want in zip(found.log_probabilities, expected, strict=True):
        assert got == pytest.approx(want, abs=1e-5)
    assert found.loss == pytest.approx([-v.mean() for v in expected], abs=1e-5)
    assert found.perplexity == pytest.approx(np.exp(found.loss))
    assert found.tokens.tolist() == [len(text) - 1 for text in TEXTS]
    assert np.array_equal(box.losses(TEXTS).values, found.loss)
    assert box.losses(TEXTS, None).kind == "log-probabilities"
    assert model.training
    assert all(part.training for part in model.modules())


def test_mean_loss_is_the_models_own():
    model = gpt2().eval()
    row = torch.tensor([[5, 9, 11, 3, 30]])
    with torch.no_grad():
        own = float(model(row, labels=row).loss)
    assert HuggingFace(model).losses(row).values == pytest.approx([own], abs=1e-5)
    assert HuggingFace(model).losses([row[0].numpy()]).values == pytest.approx([own], abs=1e-5)
    assert HuggingFace(model).losses([row[0].tolist()]).values == pytest.approx([own], abs=1e-5)


def test_long_sequences_are_cut_and_said_so():
    model = gpt2()
    long = "x" * 40 + "y"
    found = HuggingFace(model, Tokenizer()).losses([long, "short"])
    assert "1 of 2 sequences were cut to their first 32 tokens" in found.warnings[0]
    assert found.values[0] == pytest.approx(HuggingFace(model, Tokenizer()).losses(["x" * 32]).values[0], abs=1e-5)
    tokens = HuggingFace(model).losses([np.full(40, 5), np.arange(1, 6)])
    assert tokens.warnings == found.warnings
    shorter = HuggingFace(model, Tokenizer(), max_length=4).sequences(TEXTS)
    assert shorter.tokens.max() == 3
    assert HuggingFace(model, Tokenizer(model_max_length=8)).max_length == 8


@pytest.mark.parametrize("batch_size", [None, 1, 3])
def test_classification_equals_one_by_one(batch_size):
    model, tokenizer = bert(), Tokenizer(frame=True)
    y = np.array([0, 1, 2, 0, 1, 2])
    box = HuggingFace(model, tokenizer, batch_size=batch_size)
    out = box.outputs(TEXTS)
    model.eval()
    with torch.no_grad():
        rows = [model(torch.tensor([row])).logits[0].numpy() for row in tokenizer(TEXTS)["input_ids"]]
    assert out.values == pytest.approx(np.stack(rows), abs=1e-5)
    assert out.kind == "logits"
    z = np.stack(rows).astype(np.float64)
    expected = [np.logaddexp.reduce(np.delete(r, k)) - r[k] for r, k in zip(z, y, strict=True)]
    assert box.losses(TEXTS, y).values == pytest.approx(expected, abs=1e-5)
    names = [f"LABEL_{label}" for label in y]
    assert np.array_equal(box.losses(TEXTS, names).values, box.losses(TEXTS, y).values)
    with pytest.raises(InputError, match=r"labels\[0\] is 'dog', which is not one of"):
        box.losses(TEXTS, ["dog"] * 6)
    with pytest.raises(InputError, match=r"labels\[0\] is 3, outside"):
        box.losses(TEXTS, y + 3)
    with pytest.raises(InputError, match="labels are missing"):
        box.losses(TEXTS)


def test_classifier_that_cannot_pad():
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=VOCABULARY, n_positions=32, n_embd=16, n_layer=1, n_head=2, num_labels=2, initializer_range=0.5,
        bos_token_id=0, eos_token_id=0, pad_token_id=None,
    )  # fmt: skip
    model = transformers.GPT2ForSequenceClassification(config)
    model.config.pad_token_id = None
    out = HuggingFace(model, Tokenizer()).outputs(TEXTS)
    model.eval()
    with torch.no_grad():
        rows = [model(torch.tensor([row])).logits[0].numpy() for row in Tokenizer()(TEXTS)["input_ids"]]
    assert out.values == pytest.approx(np.stack(rows), abs=1e-5)


def test_one_output_is_a_logit():
    found = HuggingFace(bert(labels=1), Tokenizer(frame=True)).losses(TEXTS, [0, 1] * 3)
    assert "logit of class 1" in found.warnings[0]
    assert found.values.shape == (6,)


def test_memory_decides_the_batches(monkeypatch):
    from dosimeter.models import black_box

    model, seen = gpt2(), []
    forward = model.forward

    def spy(*args, **kwargs):
        seen.append(tuple(kwargs["input_ids"].shape))
        return forward(*args, **kwargs)

    monkeypatch.setattr(model, "forward", spy)
    whole = HuggingFace(model, Tokenizer()).losses(TEXTS).values
    assert seen == [(6, 26)]
    seen.clear()
    monkeypatch.setattr(black_box, "BUDGET", 30 * 4 * 3 * VOCABULARY)  # 30 tokens
    assert HuggingFace(model, Tokenizer()).losses(TEXTS).values == pytest.approx(whole, abs=1e-5)
    assert [rows for rows, _ in seen] == [1, 2, 3]
    assert [longest for _, longest in seen] == sorted((longest for _, longest in seen), reverse=True)


def test_refusals():
    box = HuggingFace(gpt2(), Tokenizer())
    with pytest.raises(InputError, match=r"pass dosimeter.models.HuggingFace"):
        access(gpt2())
    with pytest.raises(InputError, match="no tokenizer"):
        HuggingFace(gpt2()).losses(["text"])
    with pytest.raises(InputError, match=r"X\[1\] has 1 token"):
        box.losses(["fine", "x"])
    with pytest.raises(InputError, match=r"X\[1\] has 0 token"):
        HuggingFace(bert()).outputs([[1, 2], []])
    with pytest.raises(InputError, match=r"X\[2\] is not like X\[0\]"):
        box.losses(["fine", "text", [1, 2]])
    with pytest.raises(InputError, match=r"X\[0\] has a token outside the model's vocabulary of 50"):
        box.losses([[1, 2, 50]])
    with pytest.raises(InputError, match="flat array of token numbers"):
        box.losses([[0.5, 2.5]])
    with pytest.raises(InputError, match="one string"):
        box.losses("text")
    with pytest.raises(InputError, match="no record"):
        box.losses([])
    with pytest.raises(InputError, match="no outputs of classes"):
        box.outputs(TEXTS)
    with pytest.raises(InputError, match="no probabilities of tokens"):
        HuggingFace(bert()).sequences([[1, 2]])
    with pytest.raises(InputError, match="must be a Hugging Face model"):
        HuggingFace(len, Tokenizer())
    with pytest.raises(InputError, match="the task of BertModel is not known"):
        HuggingFace(bert().bert)
    with pytest.raises(InputError, match="task must be one of"):
        HuggingFace(gpt2(), task="poetry")
    with pytest.raises(InputError, match="does regression"):
        HuggingFace(bert(problem_type="regression"))
    with pytest.raises(InputError, match="batch_size has no meaning"):
        access(box, batch_size=3)
    broken = gpt2()
    with torch.no_grad():
        broken.transformer.wte.weight[7] = torch.nan
    with pytest.raises(InputError, match="record 0 is NaN"):
        HuggingFace(broken).losses([[1, 7, 2], [1, 2, 3]])


def test_texts_through_dataset():
    X, y = dataset(TEXTS)
    assert HuggingFace(gpt2(), Tokenizer()).losses(X, y).values.shape == (6,)


def token_rows(count=12, seed=0, low=3):
    """Rows of tokens of different lengths; tokens below `low` are special and stand in none."""
    rng = np.random.default_rng(seed)
    return [rng.integers(low, VOCABULARY, size) for size in rng.integers(4, 15, count)]


def padded(rows, token, side):
    longest = max(row.size for row in rows)
    both = [(row, np.full(longest - row.size, token)) for row in rows]
    return np.stack([np.concatenate(pair if side == "right" else pair[::-1]) for pair in both])


def with_padding_token(model, token):
    model.config.pad_token_id = token
    return model


class TestTokenRows:
    """Rows of any lengths, and arrays with padding: each row has the scores that it has alone."""

    @pytest.mark.parametrize("batch_size", [None, 1, 5])
    @pytest.mark.parametrize("form", [list, tuple, lambda rows: np.array(rows, dtype=object)])
    def test_rows_of_any_length(self, batch_size, form):
        model, rows = gpt2(), token_rows(low=0)
        found = HuggingFace(model, batch_size=batch_size).sequences(form(rows))
        for got, want in zip(found.log_probabilities, one_by_one(model, rows), strict=True):
            assert got == pytest.approx(want, abs=1e-5)
        assert found.warnings == ()

    @pytest.mark.parametrize("side", ["left", "right"])
    @pytest.mark.parametrize("token", [2, 0])  # 0 ends texts too
    @pytest.mark.parametrize("batch_size", [None, 5])
    def test_known_padding_is_left_out(self, side, token, batch_size):
        model, rows = with_padding_token(gpt2(), token), token_rows()
        found = HuggingFace(model, batch_size=batch_size).sequences(padded(rows, token, side))
        for got, want in zip(found.log_probabilities, one_by_one(model, rows), strict=True):
            assert got == pytest.approx(want, abs=1e-5)
        short = sum(row.size < max(map(len, rows)) for row in rows)
        where = {"left": "start", "right": "end"}[side]
        assert found.warnings[0].startswith(
            f"{short} of 12 token rows were padded: token {token} at their {where} was left out of the scores"
        )
        assert ("marks the edge of a text" in found.warnings[0]) == (token == 0)

    @pytest.mark.parametrize("side", ["left", "right"])
    @pytest.mark.parametrize("token", [0, 7])  # 0 ends texts, 7 is one of the words
    def test_unknown_padding_is_refused(self, side, token):
        model, rows = gpt2(), [row[row != 7] for row in token_rows(20)]
        where = {"left": "start", "right": "end"}[side]
        with pytest.raises(
            InputError, match=rf"rows {where} with token {token} at least 2 times, but no padding token"
        ):
            HuggingFace(model).losses(padded(rows, token, side))
        found = HuggingFace(model, padding=token).sequences(padded(rows, token, side))
        for got, want in zip(found.log_probabilities, one_by_one(model, rows), strict=True):
            assert got == pytest.approx(want, abs=1e-5)
        whole = HuggingFace(model, padding="none").sequences(padded(rows, token, side))
        assert (whole.tokens == max(map(len, rows)) - 1).all()
        assert whole.warnings == ()

    def test_a_mark_at_the_edge_of_a_text_is_not_padding(self):
        model = with_padding_token(gpt2(), 0)
        rows = [np.concatenate([[0], row, [0]]) for row in token_rows()]
        for given in (rows, [row[:5] for row in rows], [np.append(row[:4], 0) for row in rows]):
            found = HuggingFace(model).sequences(given)
            assert found.warnings == ()
            assert found.loss == pytest.approx([-v.mean() for v in one_by_one(model, given)], abs=1e-5)

    def test_the_tokenizers_token_comes_first(self):
        class Padded(Tokenizer):
            pad_token_id, eos_token_id = 2, None

        model, rows = with_padding_token(gpt2(), 1), token_rows()
        found = HuggingFace(model, Padded()).losses(padded(rows, 2, "right"))
        assert found.values == pytest.approx(HuggingFace(model).losses(rows).values, abs=1e-5)
        with pytest.raises(InputError, match="but the padding token is 1"):
            HuggingFace(model).losses(padded(rows, 2, "right"))

    @pytest.mark.parametrize("side", ["left", "right"])
    def test_the_attention_mask_decides(self, side):
        model, rows = gpt2(), token_rows()
        ids = padded(rows, 0, side)
        given = {
            "input_ids": torch.tensor(ids),
            "attention_mask": torch.tensor(padded([r * 0 + 1 for r in rows], 0, side)),
        }
        for X in (given, transformers.BatchEncoding(given), dataset(given)[0], dataset((given, None))[0]):
            assert HuggingFace(model).losses(X).values == pytest.approx(
                HuggingFace(model).losses(rows).values, abs=1e-5
            )
        with pytest.raises(InputError, match="another shape"):
            HuggingFace(model).losses({**given, "attention_mask": given["attention_mask"][:, 1:]})
        with pytest.raises(InputError, match="a row for each text"):
            HuggingFace(model).losses({"input_ids": [1, 2, 3], "attention_mask": [1, 1, 1]})

    def test_classifiers_too(self):
        model, rows = bert(), token_rows(low=4)
        alone = HuggingFace(model).outputs(rows).values
        found = HuggingFace(model).outputs(padded(rows, 0, "right"))  # BERT's padding token is 0
        assert found.values == pytest.approx(alone, abs=1e-5)
        assert "were padded" in found.warnings[0]
        y = np.arange(12) % 3
        assert HuggingFace(model).losses(padded(rows, 0, "left"), y).values.shape == (12,)

    def test_nothing_but_padding(self):
        with pytest.raises(InputError, match=r"X\[1\] has 0 token\(s\)"):
            HuggingFace(with_padding_token(gpt2(), 2)).losses(np.array([[5, 6, 7], [2, 2, 2]]))
        with pytest.raises(InputError, match="padding must be"):
            HuggingFace(gpt2(), padding="right")
        masked = padded(token_rows(), -100, "right")
        with pytest.raises(InputError, match=r"padding=-100"):
            HuggingFace(gpt2()).losses(masked)
        assert np.isfinite(HuggingFace(gpt2(), padding=-100).losses(masked).values).all()

    @pytest.mark.parametrize("vocabulary", [3, 10, 50])
    def test_text_that_repeats_itself_is_no_padding(self, vocabulary):
        """60 sets of random tokens in all, of which by chance fewer than one in 500 look padded."""
        rng = np.random.default_rng(vocabulary)
        box = HuggingFace(gpt2())
        for _ in range(20):
            tokens, notes = box._tokens(list(rng.integers(0, vocabulary, (100, 12))), least=2)
            assert len(tokens) == 100 and notes == ()


def test_an_audit_does_not_depend_on_the_padding():
    """A model that has learnt 60 texts by heart: rows of any lengths, padded rows and masks prove the same."""
    from dosimeter import audit_model

    model = with_padding_token(gpt2(), 2)
    members, others = token_rows(60, seed=1), token_rows(60, seed=2)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    ids, mask = (
        torch.tensor(padded(rows, fill, "right")) for rows, fill in ((members, 2), ([m * 0 + 1 for m in members], 0))
    )
    for _ in range(60):
        optimiser.zero_grad()
        loss = model(input_ids=ids, attention_mask=mask, labels=ids.masked_fill(mask == 0, -100)).loss
        loss.backward()
        optimiser.step()
    box = HuggingFace(model)
    ragged = audit_model(box, members=members, nonmembers=(others, None), resamples=20)
    assert ragged.headline.low > 2
    assert ragged.guard.checked
    assert ragged.metadata["warnings"] == ()
    for side in ("left", "right"):
        again = audit_model(
            box, members=(padded(members, 2, side), None), nonmembers=(padded(others, 2, side), None), resamples=20
        )
        assert again.headline.low == ragged.headline.low
        notes = [note for note in again.metadata["warnings"] if "were padded" in note]
        assert [note.partition(":")[0] for note in notes] == ["members", "nonmembers"]
    scored = HuggingFace(model, padding="none")
    worse = audit_model(
        scored, members=(padded(members, 2, "right"), None), nonmembers=(padded(others, 2, "right"), None), resamples=20
    )
    assert worse.headline.low <= ragged.headline.low
