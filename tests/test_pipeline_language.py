"""`dosimeter run` on a language model: the whole way from texts, resumed from the store, with DP-SGD beside it."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from dosimeter import InputError
from dosimeter.audits.verify import verify
from dosimeter.engine import Store
from dosimeter.pipelines import config as settings
from dosimeter.pipelines.language import FineTuning
from dosimeter.pipelines.launch import launch
from dosimeter.pipelines.subjects import subject

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
sys.path.insert(0, str(Path(__file__).parent / "audits"))

from tiny_language import corpus  # noqa: E402

from dosimeter.pipelines import language, language_audit  # noqa: E402

TEXT = """
audit = "text"
seed = 3
[data]
file = "texts.jsonl"
length = 12
vocabulary = 700
[model]
network = "gpt2"
dimension = 32
layers = 1
heads = 2
[recipe]
steps = 60
learning_rate = 5e-3
[budget]
canaries = 80
"""


@pytest.fixture
def folder(tmp_path):
    lines = [json.dumps({"text": text}) for text in corpus(200, length=13)]
    (tmp_path / "texts.jsonl").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "audit.toml").write_text(TEXT, encoding="utf-8")
    return tmp_path


def read(folder, *changes):
    return settings.read(str(folder / "audit.toml"), list(changes))


def test_the_whole_way_and_again_from_the_store(folder, monkeypatch):
    config, store = read(folder), Store(folder / "store")
    audit = launch(config, subject(config, base=folder), store=store, progress=False)
    assert audit.metadata.kind == "text" and audit.metadata.count == 80
    assert verify(audit).valid

    def never(*_, **__):
        raise AssertionError("trained again")

    monkeypatch.setattr(language_audit, "fine_tune", never)
    again = launch(config, subject(config, base=folder), store=store, progress=False)
    assert again.headline == audit.headline


def test_dp_sgd_has_a_guarantee_beside_the_bound(folder):
    config = read(folder, "recipe.dp.epsilon=4.0", "recipe.steps=5")
    audit = launch(config, subject(config, base=folder), store=Store(folder / "store"), progress=False)
    assert audit.region.upper.epsilon <= 4.0 and audit.headline.low <= 4.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("model.network='mlp'", "trains network = 'gpt2'"),
        ("data.length=14", "has 0 different texts of 14 words"),
        ("recipe.dp.noise_multiplier=1.0", "needs epsilon"),
        ("model.heads=3", "dimension must be a multiple of heads"),
    ],
)
def test_bad_settings(folder, change, message):
    config = read(folder, change)
    with pytest.raises(InputError, match=message):
        launch(config, subject(config, base=folder), store=Store(folder / "store"), progress=False)


def test_the_ready_made_pipeline_is_read():
    config = settings.read("lm-canaries")
    assert config.audit == "text" and config.budget.canaries == 1000


def test_a_row_does_not_change_the_gradient_of_another():
    """The loss is a mean within rows first: a shorter row beside it leaves a row's own gradient as it is."""
    model = language.small_model(60, positions=32, width=16, layers=1, heads=2, seed=0)
    row, long = list(range(2, 12)), list(range(20, 40))
    gradients = []
    for other in (long, long[:5]):
        model.zero_grad()
        both = language._loss(torch, model, [row, other])
        alone = language._loss(torch, model, [other])
        (2 * both - alone).backward()
        gradients.append(torch.cat([p.grad.ravel().clone() for p in model.parameters()]))
    assert torch.allclose(*gradients, atol=1e-6)


def test_per_sample_gradients_are_those_of_rows_alone():
    opacus = pytest.importorskip("opacus")
    rows = [list(range(2, 12)), list(range(20, 36)), list(range(5, 9))]
    model = language.small_model(60, positions=32, width=16, layers=1, heads=2, seed=0).train()
    alone = []
    for row in rows:
        model.zero_grad()
        language._loss(torch, model, [row]).backward()
        alone.append(torch.cat([p.grad.ravel().clone() for p in model.parameters()]))
    taught = opacus.GradSampleModule(model)
    taught.zero_grad()
    language._loss(torch, taught, rows).backward()
    found = torch.cat([p.grad_sample.flatten(1) for p in model.parameters()], dim=1)
    assert torch.allclose(found, torch.stack(alone), atol=1e-5)


def test_an_empty_batch_is_a_step_of_noise(monkeypatch):
    pytest.importorskip("opacus")
    monkeypatch.setattr(language, "_poisson", lambda rng, count, rate, steps: iter([np.array([], np.int64)] * steps))
    model = language.small_model(60, positions=32, width=16, layers=1, heads=2, seed=0)
    before = model.transformer.wte.weight.detach().clone()
    engine = language.fine_tune(model, [[2, 3, 4], [5, 6, 7]], FineTuning(3, batch=1, epsilon=8.0), records=100)
    assert sum(steps for *_, steps in engine.accountant.history) == 3
    assert not torch.equal(before, model.transformer.wte.weight)


def test_batches_visit_every_record_and_steps_are_fixed():
    rng = np.random.default_rng(0)
    batches = list(language._shuffled(rng, 10, 4, 5))
    assert len(batches) == 5 and sorted(np.concatenate(batches).tolist()) == sorted([*range(10), *range(10)])
    small = list(language._poisson(rng, 5, 1e-9, 30))
    assert len(small) == 30 and all(batch.size == 0 for batch in small)
    mechanism = FineTuning(50, batch=10, epsilon=8.0).mechanism(100)
    assert mechanism.sample_rate == 0.1 and mechanism.steps == 50
