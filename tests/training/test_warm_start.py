"""A start that makes canaries stand out: the same weights for every training, and nothing of the audited records."""

import numpy as np
import pytest

from dosimeter import InputError
from dosimeter.training import Privacy, Recipe, train_many, warm_start

torch = pytest.importorskip("torch")

X = np.random.default_rng(0).normal(size=(120, 5)).astype(np.float32)
Y = (X[:, 0] > 0).astype(np.int64)


def make():
    return torch.nn.Linear(5, 2)


def test_every_module_starts_at_weights_that_fit_the_other_records():
    warm = warm_start(make, (X, Y), recipe=Recipe(epochs=60, learning_rate=0.5))
    first, second = warm(), warm()
    assert torch.equal(first.weight, second.weight)
    assert first.weight.data_ptr() != second.weight.data_ptr()
    right = (first(torch.as_tensor(X)).argmax(dim=1).numpy() == Y).mean()
    assert right > 0.9 > (make()(torch.as_tensor(X)).argmax(dim=1).numpy() == Y).mean()


def test_the_seed_decides_the_weights():
    first, same, other = (warm_start(make, (X, Y), seed=seed)().weight for seed in (1, 1, 2))
    assert torch.equal(first, same)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("strategy", ["dense", "sequential"])
def test_trainings_begin_there(strategy):
    warm = warm_start(make, (X, Y))
    recipe = Recipe(steps=1, batch_size=None, learning_rate=1e-9, dp=Privacy(1.0))
    members = np.ones((2, 120), bool)
    for trained in train_many(warm, recipe, (X, Y), members, [5, 6], strategy=strategy, return_models=True):
        np.testing.assert_allclose(trained.state["weight"], warm().weight.detach().numpy(), atol=1e-6)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"recipe": Recipe(epochs=1, dp=Privacy(1.0))}, "recipe must be a Recipe without dp"),
        ({"recipe": "long"}, "recipe must be a Recipe without dp"),
        ({"factory": 3}, "factory must be a function"),
        ({"data": X}, "data must be a pair"),
    ],
)
def test_bad_input_is_one_sentence(given, sentence):
    arguments = {"factory": make, "data": (X, Y)} | given
    with pytest.raises(InputError, match=sentence):
        warm_start(arguments.pop("factory"), arguments.pop("data"), **arguments)
