"""Attacks that are given the model: scored where it was trained, kept in the store, and stronger where outputs hide."""

import numpy as np
import pytest

import dosimeter as dm
from dosimeter import InputError, RunOptions
from dosimeter.attacks import ATTACKS, WhiteBox, last_layer_gradient
from dosimeter.engine import Store
from dosimeter.training import Observed, Recipe, train_foreign, train_many

torch = pytest.importorskip("torch", reason="needs torch: dosimeter[torch]")
nn = torch.nn

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 6)).astype(np.float32)
Y = RNG.integers(0, 3, 60)
HERE = RunOptions(engine="inline", progress=False)
RECIPE = Recipe(steps=40, batch_size=None, learning_rate=0.5)
SMALL = {"shadows": 16, "runs": 40, "seed": 0}


def net():
    return nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 3))


def single():
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 1, bias=False))


class Words(nn.Module):
    """A dense layer at each position, then a mean: its gradient is a sum over positions."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(2, 3)

    def forward(self, x):
        return self.inner(torch.tanh(x.view(len(x), 3, 2))).mean(1)


def logged():
    return nn.Sequential(nn.Linear(6, 3), nn.LogSoftmax(1))


def slow(module, layer, x, y):
    """One backward pass for each record."""
    found = []
    for record, label in zip(torch.from_numpy(x), torch.from_numpy(y), strict=True):
        logits = module(record[None])
        if logits.shape[1] == 1:
            loss = nn.functional.binary_cross_entropy_with_logits(logits[:, 0], label[None].float())
        else:
            loss = nn.functional.cross_entropy(logits, label[None])
        grads = torch.autograd.grad(loss, list(layer.parameters()))
        found.append(-np.log(float(sum(g.square().sum() for g in grads).sqrt())))
    return np.array(found)


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize(
    ("factory", "last"),
    [(net, "2"), (single, "2"), (Words, "inner"), (logged, "0")],
    ids=["dense", "one", "words", "log"],
)
def test_it_is_the_norm_of_the_gradient(factory, last, frozen):
    torch.manual_seed(0)
    module = factory()
    wanted = slow(module, module.get_submodule(last), X, Y % 2)
    if frozen:
        module.requires_grad_(False)
    module.train()
    assert last_layer_gradient(module, X, Y % 2) == pytest.approx(wanted, rel=1e-4, abs=1e-4)
    assert module.training and not any(part._forward_hooks for part in module.modules())
    assert all(parameter.grad is None for parameter in module.parameters())


def test_the_table_has_it():
    assert ATTACKS["last-layer-gradient"].function is last_layer_gradient
    assert not ATTACKS["last-layer-gradient"].takes_shadows


def test_signals_come_from_the_models():
    masks = RNG.random((3, 60)) < 0.5
    options = {"engine": "inline", "return_models": True}
    for one in train_many(net, RECIPE, (X, Y), masks, [1, 2, 3], evaluate_on=Observed(last_layer_gradient), **options):
        assert one.observed == pytest.approx(last_layer_gradient(one.module(net), X, Y), rel=1e-5)
    own = Observed(last_layer_gradient, (X[:7], Y[:7]))
    assert next(iter(train_many(net, RECIPE, (X, Y), masks, [1, 2, 3], evaluate_on=own))).observed.shape == (7,)


def by_hand(indices, seed):
    torch.manual_seed(seed)
    module = net()
    optimise = torch.optim.SGD(module.parameters(), lr=0.5)
    for _ in range(40):
        optimise.zero_grad()
        nn.functional.cross_entropy(module(torch.from_numpy(X[indices])), torch.from_numpy(Y[indices])).backward()
        optimise.step()
    return module


def test_audits_take_it_by_name():
    found = dm.audit_training(net, (X, Y), recipe=RECIPE, attack="last-layer-gradient", run=HERE, **SMALL)
    assert found.metadata.attack == "last-layer-gradient, lira" and found.headline.low > 0
    own = dm.audit_training(by_hand, (X, Y), attack="last-layer-gradient", run=HERE, **SMALL)
    assert own.metadata.attack == "last-layer-gradient, lira" and own.headline.low > 0
    once = dm.audit_one_run(net, (X, Y), recipe=RECIPE, attack="last-layer-gradient", count=40, seed=0, run=HERE)
    assert once.metadata.attack == "last-layer-gradient, loss"


def hidden(model, X, y):
    """What only the weights tell: the model keeps the numbers of its members, and answers alike to all records."""
    return np.asarray(model.members[np.arange(len(X))], float)


class Keeper:
    def __init__(self, indices):
        self.members = np.zeros(60)
        self.members[indices] = 1

    def predict_proba(self, records):
        return np.full((len(records), 3), 1 / 3)


def keep(indices, seed):
    return Keeper(indices)


def test_a_function_of_the_caller_sees_what_outputs_hide():
    blind = dm.audit_training(keep, (X, Y), attack="loss", run=HERE, **SMALL)
    seeing = dm.audit_training(keep, (X, Y), attack=WhiteBox(hidden, attack="loss"), run=HERE, **SMALL)
    assert blind.headline.low == 0 and seeing.headline.low > 1
    assert seeing.metadata.attack == "hidden, loss"


def test_workers_and_the_store(tmp_path):
    store = Store(tmp_path)
    masks = RNG.random((4, 60)) < 0.5
    options = {"evaluate_on": Observed(last_layer_gradient), "group": 2}
    here = list(train_many(net, RECIPE, (X, Y), masks, range(4), engine="inline", store=store, **options))
    there = list(train_many(net, RECIPE, (X, Y), masks, range(4), engine="local", workers=2, **options))
    again = list(train_many(net, RECIPE, (X, Y), masks, range(4), engine="inline", store=store, **options))
    plain = {"engine": "inline", "store": store, "group": 2}
    other = list(train_many(net, RECIPE, (X, Y), masks, range(4), evaluate_on=Observed(first), **plain))
    without = list(train_many(net, RECIPE, (X, Y), masks, range(4), evaluate_on="data", **plain))
    assert all(np.array_equal(a.observed, b.observed) for a, b in zip(here, there, strict=True))
    assert all(one.cached and np.array_equal(one.observed, b.observed) for one, b in zip(again, here, strict=True))
    assert not any(one.cached for one in (*other, *without)) and without[0].observed is None
    foreign = {"store": store, "engine": "inline"}
    first_time = list(train_foreign(by_hand, masks, range(4), Observed(last_layer_gradient, (X, Y)), **foreign))
    second = list(train_foreign(by_hand, masks, range(4), Observed(last_layer_gradient, (X, Y)), **foreign))
    assert [one.cached for one in (first_time[0], second[0])] == [False, True]
    assert np.array_equal(first_time[0].observed, second[0].observed)


def first(model, X, y):
    return X[:, 0]


def test_refusals():
    with pytest.raises(InputError, match=r"gave shape \(2, 6\) for 2 records"):
        dm.audit_training(net, (X, Y), recipe=RECIPE, attack=WhiteBox(lambda model, X, y: X), run=HERE, **SMALL)
    with pytest.raises(InputError, match="Linear layer"):
        flat = nn.Conv1d(1, 3, 6)
        dm.audit_training(
            lambda: nn.Sequential(nn.Unflatten(1, (1, 6)), flat, nn.Flatten()),
            *((X, Y),),
            **{"recipe": RECIPE, "attack": "last-layer-gradient", "run": HERE, **SMALL},
        )
    with pytest.raises(InputError, match="signal reads outputs"):
        dm.audit_training(
            net, (X, Y), recipe=RECIPE, attack="last-layer-gradient", signal=lambda o, y: o[:, 0], run=HERE, **SMALL
        )
    with pytest.raises(InputError, match="needs a torch module"):
        last_layer_gradient(Keeper([1]), X, Y)
    with pytest.raises(InputError, match="function must be a function"):
        WhiteBox("gradient")
    with pytest.raises(InputError, match="attack must be one of"):
        WhiteBox(first, attack="rmia")
