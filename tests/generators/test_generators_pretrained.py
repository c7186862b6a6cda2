"""A given Hugging Face model: a tiny GPT-2 with random weights and a tokenizer of whole words, made here."""

import numpy as np
import pytest

from dosimeter._validate import InputError
from dosimeter.generators import PretrainedText, same_shape
from dosimeter.generators.pretrained import _framed

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

WORDS = [f"w{k}" for k in range(20)]
MEMBERS = [" ".join(WORDS[s : s + 6]) for s in np.random.default_rng(0).integers(0, 14, 120)]


@pytest.fixture(scope="module")
def parts():
    from tokenizers import Tokenizer, models, pre_tokenizers

    known = {word: k for k, word in enumerate(["<s>", "</s>", "<unk>", *WORDS])}
    words = Tokenizer(models.WordLevel(known, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=len(known), n_positions=32, n_embd=32, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=1
    )
    return transformers.GPT2LMHeadModel(config), tokenizer


def test_it_writes_texts_and_leaves_the_model_as_it_is(parts):
    model, tokenizer = parts
    model.train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.random.get_rng_state()
    made = PretrainedText(model, tokenizer, most_tokens=10, epochs=1).fit(MEMBERS, seed=0).sample(20, seed=1)
    same_shape(MEMBERS, made, count=20)
    assert all(made) and all(word in WORDS for text in made for word in text.split() if word != "<unk>")
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert model.training and torch.equal(state, torch.random.get_rng_state())


def test_fine_tuning_teaches_what_follows_what(parts):
    model, tokenizer = parts
    fitted = PretrainedText(model, tokenizer, most_tokens=12, epochs=25, learning_rate=1e-2).fit(MEMBERS, seed=0)
    made = fitted.sample(60, seed=1)
    steps = [int(b[1:]) - int(a[1:]) for t in made for a, b in zip(t.split(), t.split()[1:], strict=False)]
    assert np.mean(np.array(steps) == 1) > 0.8
    assert np.median([len(text.split()) for text in made]) == 6  # the end of a text is learnt too


def test_the_seeds_decide(parts):
    fitted = PretrainedText(*parts, most_tokens=8).fit(MEMBERS, seed=0)
    first = fitted.sample(10, seed=2)
    assert first == fitted.sample(10, seed=2) and first != fitted.sample(10, seed=3)
    tuned = [PretrainedText(*parts, most_tokens=8, epochs=1, batch=40).fit(MEMBERS, seed=s).model for s in (0, 0, 1)]
    weights = [next(iter(model.parameters())) for model in tuned]
    assert torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])


def test_prompts_of_different_lengths_are_not_part_of_the_texts(parts):
    model, tokenizer = parts
    prompts = ["w3", "w1 w2 w3 w4 w5 w6"]
    fitted = PretrainedText(model, tokenizer, prompts=prompts, prompt_tokens=4, most_tokens=8).fit(MEMBERS, seed=0)
    assert sorted(prompt.size for prompt in fitted.prompts) == [1, 4]
    assert all(0 < len(text.split()) <= 8 for text in fitted.sample(40, seed=0))


def test_filled_prompts_have_the_distribution_of_bare_ones(parts):
    model, tokenizer = parts
    short = PretrainedText(model, tokenizer, prompts=["w3"], most_tokens=1, top_p=0.3).fit(MEMBERS, seed=0)
    both = PretrainedText(model, tokenizer, prompts=["w3", "w1 w2 w4"], most_tokens=1, top_p=0.3).fit(MEMBERS, seed=0)
    ids = [short.prompts[0], both.prompts[1]]
    alone, filled = (
        {short._written(torch, [ids[0]] * 50)[k] for k in range(50)},
        {both._written(torch, [ids[0]] * 50 + [ids[1]])[k] for k in range(50)},
    )
    assert alone == filled


def test_texts_are_framed_once():
    assert _framed(np.array([5, 6]), 0, 1).tolist() == [0, 5, 6, 1]
    assert _framed(np.array([0, 5, 1]), 0, 1).tolist() == [0, 5, 1]
    assert _framed(np.array([5]), None, None).tolist() == [5]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"most_tokens": 0}, "most_tokens"),
        ({"most_tokens": 40}, "41 places and the model has 32"),
        ({"epochs": -1}, "epochs"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"top_p": 1.5}, "top_p"),
        ({"prompts": [""]}, "prompts"),
    ],
)
def test_bad_options_are_refused(parts, options, words):
    with pytest.raises(InputError, match=words):
        PretrainedText(*parts, **({"most_tokens": 8} | options)).fit(MEMBERS, seed=0)


def test_other_models_members_and_missing_start_tokens_are_refused(parts):
    model, tokenizer = parts
    with pytest.raises(InputError, match="causal model"):
        PretrainedText(object(), tokenizer).fit(MEMBERS, seed=0)
    with pytest.raises(InputError, match="needs texts"):
        PretrainedText(model, tokenizer).fit(np.zeros((5, 2)), seed=0)
    bare = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=23, n_positions=32, n_embd=8, n_layer=1, n_head=1, bos_token_id=None)
    )
    nameless = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer.backend_tokenizer)
    with pytest.raises(InputError, match="no start token"):
        PretrainedText(bare, nameless, most_tokens=8).fit(MEMBERS, seed=0)


def test_a_model_in_a_folder_is_loaded_with_its_tokenizer(parts, tmp_path):
    model, tokenizer = parts
    for part in parts:
        part.save_pretrained(tmp_path / "tiny")
    model.eval()
    given, loaded = (
        PretrainedText(*what, most_tokens=8, epochs=1).fit(MEMBERS, seed=0).sample(5, seed=1)
        for what in ((model, tokenizer), (tmp_path / "tiny",))
    )
    assert given == loaded
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="could not be loaded"):
        PretrainedText(str(tmp_path / "empty"), most_tokens=8).fit(MEMBERS, seed=0)


def test_a_name_is_asked_of_transformers(parts, monkeypatch):
    asked = []

    def found(part):
        def load(name, *, local_files_only):
            asked.append((name, local_files_only))
            return part

        return load

    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", found(parts[0]))
    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", found(parts[1]))
    assert len(PretrainedText("gpt2", most_tokens=8).fit(MEMBERS, seed=0).sample(3, seed=0)) == 3
    assert asked == [("gpt2", False)] * 2


def test_texts_have_the_least_number_of_tokens(parts):
    fitted = PretrainedText(*parts, most_tokens=12, least_tokens=12).fit(MEMBERS, seed=0)
    assert {len(parts[1](text)["input_ids"]) for text in fitted.sample(30, seed=1)} == {12}
    with pytest.raises(InputError, match="least_tokens"):
        PretrainedText(*parts, most_tokens=8, least_tokens=9).fit(MEMBERS, seed=0)


def test_a_stopped_fine_tuning_goes_on_where_it_was(parts, tmp_path, monkeypatch):
    from dosimeter.generators import pretrained

    how = {"most_tokens": 8, "epochs": 3, "batch": 40}
    whole = PretrainedText(*parts, **how).fit(MEMBERS, seed=0).model.state_dict()
    put, done = pretrained.KeptEpochs.put, []

    def stopped(self, torch, model, optimiser, epoch):
        put(self, torch, model, optimiser, epoch)
        done.append(epoch)
        if done == [1, 2]:
            raise KeyboardInterrupt

    monkeypatch.setattr(pretrained.KeptEpochs, "put", stopped)
    kept = PretrainedText(*parts, **how, store=tmp_path)
    with pytest.raises(KeyboardInterrupt):
        kept.fit(MEMBERS, seed=0)
    again = kept.fit(MEMBERS, seed=0).model.state_dict()
    assert done == [1, 2, 3] and all(torch.equal(value, whole[name]) for name, value in again.items())
    kept.fit(MEMBERS, seed=0)  # read from the store
    assert done == [1, 2, 3]
    kept.fit(MEMBERS, seed=1)
    assert done == [1, 2, 3, 1, 2, 3]
