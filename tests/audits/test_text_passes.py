"""One pass of model and base: other precisions, and how much memory a batch takes."""

import copy

import numpy as np
import pytest

import dosimeter as dm
from dosimeter import InputError

torch = pytest.importorskip("torch", reason="language models need torch: dosimeter[torch]")
transformers = pytest.importorskip("transformers", reason="language models need transformers: dosimeter[text]")

from tiny_language import corpus, gpt2, llama, tokenizer  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402

from dosimeter.audits.text.files import load_model  # noqa: E402
from dosimeter.audits.text.subject import Asked  # noqa: E402
from dosimeter.models import black_box, hugging_face  # noqa: E402
from dosimeter.models.token_pass import token_passes  # noqa: E402
from dosimeter.training import asking  # noqa: E402

COUNT = 40


@pytest.fixture(scope="module")
def coder():
    return tokenizer()


@pytest.fixture(scope="module")
def sheet(coder):
    return dm.canary_sheet(COUNT, like=corpus(60, seed=5), tokenizer=coder, seed=3, length=8, prefix=4)


@pytest.mark.parametrize("make", [gpt2, llama])
def test_bfloat16_is_reduced_in_single_precision(make, coder, sheet):
    """The logits have 8 bits, so scores move by some hundredths; the sums over the vocabulary add nothing to that."""
    if not asking._has_bfloat16():
        pytest.skip("this processor stops a program at a product in bfloat16; `make test` sets ONEDNN_MAX_CPU_ISA")
    models = [make(len(coder), seed=seed).eval() for seed in (0, 1)]
    halves = [copy.deepcopy(model).to(torch.bfloat16) for model in models]
    asked = Asked.read(halves[0], coder, halves[1], batch_size=1)  # alone, as in the second route
    texts = asked.encode(sheet)
    found, single = asked.passes(texts), Asked.read(models[0], coder, models[1]).passes(texts)
    for row in range(0, COUNT, 17):
        at = np.arange(*texts.spans[row])
        with torch.no_grad():
            logits = halves[0](torch.tensor(texts.rows[row][None])).logits[0]
        assert logits.dtype == torch.bfloat16
        log = logits.double().log_softmax(dim=1).numpy()[at - 1]
        own = log[np.arange(at.size), texts.rows[row][at]]
        assert found.target.log_probability[row] == pytest.approx(own, abs=1e-4)
        assert found.target.rank[row].tolist() == (log > own[:, None]).sum(axis=1).tolist()
        assert found.target.mean[row] == pytest.approx((np.exp(log) * log).sum(axis=1), abs=1e-4)
    for side, other in ((found.target, single.target), (found.base, single.base)):
        for part in ("log_probability", "mean", "deviation"):
            apart = np.concatenate(getattr(side, part)) - np.concatenate(getattr(other, part))
            assert 0 < abs(apart).max() < 0.05, part
    assert np.concatenate(found.divergence) == pytest.approx(np.concatenate(single.divergence), abs=0.05)


def test_a_processor_that_stops_bfloat16_is_noticed(monkeypatch, coder, sheet):
    monkeypatch.setattr(asking, "_has_bfloat16", lambda: False)
    model = llama(len(coder)).to(torch.bfloat16)
    with pytest.raises(InputError, match=r"bfloat16.*model\.float\(\).*ONEDNN_MAX_CPU_ISA"):
        dm.audit_canaries(model, coder, sheet, score="loss")
    with pytest.raises(InputError, match="bfloat16"):
        dm.audit_canaries(llama(len(coder)), coder, sheet, base=model)


def test_memory_of_a_batch_is_bounded(coder, monkeypatch):
    """No tensor of logits that a pass makes holds more than a batch's share, however many texts there are."""
    vocabulary, most = len(coder), []
    rng = np.random.default_rng(0)
    rows = [rng.integers(2, vocabulary, size) for size in rng.integers(4, 60, 150)]
    spans = np.array([(1, row.size) for row in rows])

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            found = function(*args, **(kwargs or {}))
            most.extend(x.numel() for x in tree_leaves(found) if isinstance(x, torch.Tensor) and vocabulary in x.shape)
            return found

    box, base = (Asked.read(gpt2(vocabulary, seed).eval(), coder, None).box for seed in (0, 1))
    monkeypatch.setattr(hugging_face, "_CPU_TOKENS", 128)
    with Watch():
        token_passes(box, rows, spans, base=base.model)
    assert 0 < max(most) <= 128 * vocabulary < sum(row.size for row in rows) * vocabulary / 20
    most.clear()
    monkeypatch.setattr(black_box, "BUDGET", 2 * 4 * 3 * 64 * vocabulary)  # two models, 64 tokens, three copies
    with Watch():
        token_passes(box, rows, spans, base=base.model)
    assert 0 < max(most) <= 64 * vocabulary


def bert(kind, coder):
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    return kind(transformers.BertConfig(vocab_size=len(coder), initializer_range=0.2, **sizes)).eval()


def test_a_model_that_sees_what_it_should_predict_is_refused(coder, sheet):
    encoder = bert(transformers.BertLMHeadModel, coder)
    with pytest.raises(InputError, match=r"sees the tokens that it should predict.*pass a causal language model"):
        dm.audit_canaries(encoder, coder, sheet, score="loss")
    encoder.config.is_decoder = True
    decoder = transformers.BertLMHeadModel(encoder.config)
    assert dm.audit_canaries(decoder, coder, sheet, score="loss", exposure=0).headline.low == 0.0


@pytest.mark.parametrize("kind", ["BertForMaskedLM", "GPT2ForSequenceClassification"])
def test_folders_with_models_of_other_kinds_are_refused(kind, coder, tmp_path):
    made = getattr(transformers, kind)
    model = bert(made, coder) if kind.startswith("Bert") else made(gpt2(len(coder)).config)
    model.save_pretrained(tmp_path)
    with pytest.raises(InputError, match=f"holds a {kind}, which is not a causal language model"):
        load_model(tmp_path)
