"""Torch as people have it: a training function that returns a module, and records in a Dataset or a DataLoader."""

import numpy as np
import pytest

import dosimeter as dm
from dosimeter import InputError, RunOptions
from dosimeter.records import dataset
from dosimeter.training import Recipe, train_foreign, train_many

torch = pytest.importorskip("torch", reason="needs torch: dosimeter[torch]")
tools = torch.utils.data

RNG = np.random.default_rng(0)
X = RNG.normal(size=(80, 5)).astype(np.float32)
Y = (X[:, 0] + 0.3 * RNG.normal(size=80) > 0).astype(np.int64)
HERE = RunOptions(engine="inline", progress=False)
SETS = {
    "tensors": tools.TensorDataset(torch.from_numpy(X), torch.from_numpy(Y)),
    "subset": tools.Subset(tools.TensorDataset(torch.from_numpy(X), torch.from_numpy(Y)), range(80)),
    "loader": tools.DataLoader(tools.TensorDataset(torch.from_numpy(X), torch.from_numpy(Y)), batch_size=7),
    "shuffled": tools.DataLoader(tools.TensorDataset(torch.from_numpy(X), torch.from_numpy(Y)), 7, shuffle=True),
}


def net():
    return torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.Tanh(), torch.nn.Dropout(0.5), torch.nn.Linear(8, 2))


def fitted(x, y, seed, steps=60):
    torch.manual_seed(seed)
    module = net()
    optimise = torch.optim.Adam(module.parameters(), lr=0.05)
    for _ in range(steps):
        optimise.zero_grad()
        torch.nn.functional.cross_entropy(module(torch.as_tensor(x)), torch.as_tensor(y)).backward()
        optimise.step()
    return module  # in training mode, as people forget it


def train(indices, seed):
    return fitted(X[indices], Y[indices], seed)


def test_a_module_is_asked_as_it_should_be():
    masks = np.arange(80) % 2 == np.arange(2)[:, None]
    for one, mask in zip(train_foreign(train, masks, [3, 4], X, engine="inline", batch_size=9), masks, strict=True):
        module = train(np.flatnonzero(mask), one.seed).eval()
        with torch.no_grad():
            wanted = module(torch.from_numpy(X)).numpy()
        assert one.outputs == pytest.approx(wanted, rel=1e-5, abs=1e-6)


def test_every_audit_takes_a_training_that_returns_a_module():
    both = dm.audit_training(train, (X, Y), shadows=8, runs=24, seed=0, run=HERE)
    assert both.metadata.trainings.failed == 0 and both.metadata.model == "train"
    assert both.metadata.utility.shadows.members > 0.7
    once = dm.audit_one_run(train, (X, Y), count=40, seed=0, run=HERE)
    assert once.metadata.trainings.done == 1
    target = train(np.arange(40), 0)
    model = dm.audit_model(
        target, members=(X[:40], Y[:40]), nonmembers=(X[40:], Y[40:]), references=4, train=train, seed=0, run=HERE
    )
    assert model.headline.low >= 0 and model.metadata.trainings.done == 4
    assert target.training


def test_members_only_takes_a_reference_that_is_a_module():
    def reference(x, y, seed):
        return fitted(np.asarray(x, np.float32), np.asarray(y), seed, steps=20)

    many = np.tile(X, (4, 1)) + 0.1 * RNG.normal(size=(320, 5)).astype(np.float32)
    labels = np.tile(Y, 4)
    found = dm.audit_members_only(
        fitted(many, labels, 0), (many, labels), reference=reference, guesses=40, seed=0, run=HERE
    )
    assert found.headline is not None


def test_a_device_that_is_not_here():
    with pytest.raises(InputError, match="asks for a GPU"):
        dm.audit_training(train, (X, Y), shadows=8, runs=24, run=RunOptions(device="xpu", engine="inline"))


@pytest.mark.parametrize("form", SETS)
def test_datasets_are_records(form):
    x, y = dataset(SETS[form])
    assert np.array_equal(x, X) and np.array_equal(y, Y)
    masks = np.arange(80) % 2 == np.arange(2)[:, None]
    recipe, options = Recipe(steps=3, batch_size=8), {"engine": "inline"}
    arrays = list(train_many(net, recipe, (X, Y), masks, [3, 4], evaluate_on=(X, Y), **options))
    found = list(train_many(net, recipe, SETS[form], masks, [3, 4], evaluate_on=SETS[form], **options))
    for one, other in zip(arrays, found, strict=True):
        assert np.array_equal(one.outputs, other.outputs) and one.accuracy == other.accuracy


def test_audits_take_a_dataset():
    options = {"shadows": 8, "runs": 24, "seed": 0, "run": HERE}
    arrays = dm.audit_training(train, (X, Y), **options)
    found = dm.audit_training(train, SETS["shuffled"], nonmembers=SETS["subset"], **options)
    assert found.headline.low == arrays.headline.low and found.metadata.fingerprint == arrays.metadata.fingerprint
    crafted = tools.TensorDataset(torch.from_numpy(X[:4] * 3), torch.from_numpy(1 - Y[:4]))
    recipe = Recipe(steps=5, batch_size=16)
    assert (
        dm.audit_training(net, SETS["tensors"], recipe=recipe, canaries=crafted, **options).metadata.canaries == "given"
    )
    model = train(np.arange(40), 0)
    parts = [tools.Subset(SETS["tensors"], rows) for rows in (range(40), range(40, 80))]
    loaders = dm.audit_model(model, members=tools.DataLoader(parts[0]), nonmembers=parts[1], seed=0, run=HERE)
    plain = dm.audit_model(model, members=(X[:40], Y[:40]), nonmembers=(X[40:], Y[40:]), seed=0, run=HERE)
    assert loaders.headline.low == plain.headline.low


class Stream(tools.IterableDataset):
    def __iter__(self):
        return iter(zip(X, Y, strict=True))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (tools.DataLoader(Stream()), "IterableDataset"),
        (Stream(), "no rows that can be read"),
        (tools.DataLoader(SETS["tensors"], sampler=tools.SubsetRandomSampler(range(9))), "sampler of its own"),
        (
            tools.DataLoader(SETS["tensors"], sampler=tools.RandomSampler(range(80), replacement=True)),
            "sampler of its own",
        ),
        (tools.DataLoader(SETS["tensors"], collate_fn=lambda items: items), "collate_fn of its own"),
        (tools.TensorDataset(torch.from_numpy(X)), "holds 1 tensors"),
        ([1, 2, 3], "must be a pair"),
    ],
    ids=["loader of a stream", "stream", "some", "with replacement", "collate", "no labels", "no dataset"],
)
def test_what_is_refused(data, words):
    with pytest.raises(InputError, match=words):
        dm.audit_training(train, data, shadows=8, runs=24, run=HERE)
