"""DP-SGD beside Opacus on the same batches and noise, and beside the softmax regression in NumPy."""

import numpy as np
import pytest
import sample_models

from dosimeter.training import DpLogisticRegression, Privacy, Recipe, train_many
from dosimeter.training.draws import Draws

torch = pytest.importorskip("torch", reason="the engine needs torch: dosimeter[torch]")
X, Y = sample_models.images(60)


def plain_conv():
    nn = torch.nn
    return nn.Sequential(nn.Conv2d(1, 4, 3, stride=2), nn.Tanh(), nn.Flatten(), nn.Linear(36, 3))


def with_opacus(factory, recipe, members, seed, expected):
    """The same training with Opacus's per-sample gradients and optimiser, its noise replaced by the model's draws."""
    opacus = pytest.importorskip("opacus", reason="the comparison needs Opacus: dosimeter[torch]")
    from opacus.optimizers import DPOptimizer

    draws = Draws(seed, recipe, members)
    torch.manual_seed(draws.start)
    module = opacus.GradSampleModule(factory())
    inner = torch.optim.SGD(module.parameters(), lr=recipe.learning_rate, momentum=recipe.momentum)
    size = sum(parameter.numel() for parameter in module.parameters())

    class SameNoise(DPOptimizer):
        def add_noise(self):
            flat, at = torch.empty(size), 0
            draws.noise(flat)
            for parameter in self.params:
                piece = flat[at : at + parameter.numel()].view(parameter.shape)
                parameter.grad = parameter.summed_grad + piece * self.noise_multiplier * self.max_grad_norm
                at += parameter.numel()

    dp = recipe.dp
    optimiser = SameNoise(
        inner, noise_multiplier=dp.noise_multiplier, max_grad_norm=dp.clip, expected_batch_size=expected
    )
    for batch in draws.batches():
        rows = torch.from_numpy(batch)
        optimiser.zero_grad()
        loss = torch.nn.functional.cross_entropy(module(torch.from_numpy(X)[rows]), torch.from_numpy(Y)[rows])
        loss.backward()
        optimiser.step()
    return {name.removeprefix("_module."): tensor.numpy() for name, tensor in module.state_dict().items()}


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
@pytest.mark.parametrize("clip", [0.1, 2.0, 1e3])
@pytest.mark.parametrize("sampling", ["shuffled", "poisson"])
@pytest.mark.parametrize(
    ("factory", "strategy"),
    [
        (sample_models.dense_net, "dense"),
        (sample_models.dense_net, "functional"),
        (plain_conv, "convolutional"),
    ],
)
def test_as_opacus(factory, strategy, sampling, clip):
    members = np.arange(10, 50)
    recipe = Recipe(
        epochs=4, batch_size=10, sampling=sampling, dp=Privacy(0.8 / clip, clip), learning_rate=0.2, momentum=0.5
    )
    chosen = np.zeros((1, 60), bool)
    chosen[0, members] = True
    mine = next(train_many(factory, recipe, (X, Y), chosen, [11], strategy=strategy, workers=1, return_models=True))
    theirs = with_opacus(factory, recipe, members, 11, expected=10)
    assert set(theirs) == set(mine.state)
    for name, value in theirs.items():
        assert mine.state[name] == pytest.approx(value, abs=2e-5)  # Opacus clips to clip / (norm + 1e-6)


def test_as_the_regression_in_numpy():
    """Without noise, from weights of zero: the same steps on the sum over a full batch."""
    features = X.reshape(60, -1)

    def factory():
        module = torch.nn.Linear(64, 3)
        for parameter in module.parameters():
            torch.nn.init.zeros_(parameter)
        return module.double()

    steps = {"steps": 25, "learning_rate": 3.0}
    numpy_own = DpLogisticRegression(noise_multiplier=0.0, clip=0.7, **steps).fit(features, Y)
    recipe = Recipe(batch_size=None, dp=Privacy(0.0, 0.7), **steps)
    for strategy in ("dense", "functional", "sequential"):
        mine = next(
            train_many(
                factory, recipe, (features, Y), np.ones((1, 60), bool), [0], strategy=strategy, return_models=True
            )
        )
        both = np.vstack([mine.state["weight"].T, mine.state["bias"]])
        assert both == pytest.approx(numpy_own.coef_, abs=1e-12)


def test_chunks_of_per_example_gradients_add_up(monkeypatch):
    from dosimeter.training import by_record, functional

    recipe = Recipe(epochs=1, batch_size=20, dp=Privacy(1.0, 0.2))
    chosen = np.ones((2, 60), bool)
    for strategy, module, limit in (("functional", functional, "GRADIENTS"), ("convolutional", by_record, "PIECE")):
        found = []
        for size in (1, 2**24):
            monkeypatch.setattr(module, limit, size)
            trained = train_many(
                plain_conv, recipe, (X, Y), chosen, [1, 2], strategy=strategy, workers=1, return_models=True
            )
            found.append(next(trained).state)
        for name in found[0]:
            assert found[0][name] == pytest.approx(found[1][name], abs=1e-6)


def test_noise_has_the_size_that_is_accounted_for():
    """The gradient is zero with zero inputs and no bias, so the weights move by the noise alone."""

    def factory():
        return torch.nn.Linear(400, 50, bias=False)

    recipe = Recipe(steps=1, batch_size=10, dp=Privacy(1.3, 0.7), learning_rate=1.0)
    blank, labels = np.zeros((40, 400), np.float32), np.arange(40)
    common = {"workers": 1, "return_models": True}
    moved, start = (
        next(train_many(factory, way, (blank, labels), np.ones((1, 40), bool), [3], **common)).state["weight"]
        for way in (recipe, Recipe(steps=1, learning_rate=1e-30))
    )
    assert (moved - start).std() == pytest.approx(1.3 * 0.7 / 10, rel=0.02)
