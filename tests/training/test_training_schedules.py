"""AdamW and schedules: torch's own, in every loop and for models of different lengths."""

import numpy as np
import pytest
import sample_models

from dosimeter import InputError
from dosimeter.training import Privacy, Recipe, train_many

torch = pytest.importorskip("torch", reason="the engine needs torch: dosimeter[torch]")

X, Y = sample_models.images(60)
MEMBERS = sample_models.halves(3, 60, sizes=[30, 33, 45])  # 4, 5 and 6 steps an epoch
WAYS = [
    (sample_models.dense_net, "dense"),
    (sample_models.dense_net, "functional"),
    (sample_models.conv_net, "convolutional"),
]
SCHEDULES = ["constant", "cosine", "one-cycle"]


def schedulers(optimise, schedule, rate, steps):
    if schedule == "cosine":
        return torch.optim.lr_scheduler.CosineAnnealingLR(optimise, T_max=steps)
    if schedule == "one-cycle":
        return torch.optim.lr_scheduler.OneCycleLR(optimise, max_lr=rate, total_steps=steps, cycle_momentum=False)
    return torch.optim.lr_scheduler.ConstantLR(optimise, factor=1.0)


@pytest.mark.parametrize("steps", [4, 5, 7, 10, 33, 1000])
@pytest.mark.parametrize("schedule", SCHEDULES[1:])
def test_the_rates_are_those_of_torch(schedule, steps):
    recipe = Recipe(steps=steps, learning_rate=0.3, schedule=schedule)
    optimise = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.3)
    scheduler, found = schedulers(optimise, schedule, 0.3, steps), []
    for _ in range(steps):
        found.append(optimise.param_groups[0]["lr"])
        optimise.step()
        if len(found) < steps:
            scheduler.step()
    assert recipe.rates(steps) == pytest.approx(found, rel=1e-9, abs=1e-15)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(
    "optimiser",
    [
        {"optimiser": "sgd", "momentum": 0.9, "weight_decay": 0.01, "learning_rate": 0.05},
        {"optimiser": "adam", "weight_decay": 0.01, "learning_rate": 0.01},
        {"optimiser": "adamw", "weight_decay": 0.1, "learning_rate": 0.01},
    ],
    ids=lambda options: options["optimiser"],
)
@pytest.mark.parametrize("strategy", ["dense", "functional", "sequential"])
def test_as_torch_trains_alone(strategy, optimiser, schedule):
    """Full batches, so that torch's own optimiser and scheduler see the same gradients; models of equal length."""
    recipe = Recipe(steps=9, batch_size=None, schedule=schedule, precision="float64", **optimiser)
    options = {"strategy": strategy, "return_models": True, "engine": "inline"}
    found = next(iter(train_many(sample_models.dense_net, recipe, (X, Y), MEMBERS[:1], [5], **options)))

    from dosimeter.training.draws import Draws
    from dosimeter.training.groups import started

    rows = np.flatnonzero(MEMBERS[0])
    module = started(sample_models.dense_net, Draws(5, recipe, rows).start, "float64")
    kinds = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
    values = {name: value for name, value in optimiser.items() if name != "optimiser"}
    optimise = kinds[optimiser["optimiser"]](module.parameters(), lr=values.pop("learning_rate"), **values)
    scheduler = schedulers(optimise, schedule, optimiser["learning_rate"], 9)
    x, y = torch.from_numpy(X[rows]).double(), torch.from_numpy(Y[rows])
    for step in range(9):
        optimise.zero_grad()
        torch.nn.functional.cross_entropy(module(x), y).backward()
        optimise.step()
        if step < 8:
            scheduler.step()
    for name, value in module.state_dict().items():
        assert found.state[name] == pytest.approx(value.numpy(), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("dp", [None, Privacy(1.0, 0.3)], ids=["plain", "private"])
@pytest.mark.parametrize("optimiser", ["sgd", "adamw"])
@pytest.mark.parametrize(("factory", "strategy"), WAYS, ids=lambda way: getattr(way, "__name__", way))
def test_models_of_different_lengths_have_their_own_rates(factory, strategy, optimiser, dp):
    recipe = Recipe(
        epochs=2,
        batch_size=8,
        optimiser=optimiser,
        learning_rate=0.02,
        schedule="one-cycle",
        dp=dp,
        precision="float64",
    )
    options = {"return_models": True, "engine": "inline"}
    many = list(train_many(factory, recipe, (X, Y), MEMBERS, [5, 6, 7], strategy=strategy, group=3, **options))
    for at, one in enumerate(many):
        alone = train_many(factory, recipe, (X, Y), MEMBERS[at : at + 1], [5 + at], strategy="sequential", **options)
        for name, value in next(iter(alone)).state.items():
            assert one.state[name] == pytest.approx(value, rel=1e-7, abs=1e-9)


def test_refusals():
    with pytest.raises(InputError, match=r"exactly one of epochs and steps"):
        Recipe(schedule="cosine")
    with pytest.raises(InputError, match=r"schedule must be one of"):
        Recipe(steps=5, schedule="linear")
    with pytest.raises(InputError, match=r"one-cycle.*at least 4 steps, got 3"):
        list(train_many(sample_models.dense_net, Recipe(steps=3, schedule="one-cycle"), (X, Y), MEMBERS, [1, 2, 3]))
    with pytest.raises(InputError, match=r"no meaning for adamw"):
        Recipe(steps=5, optimiser="adamw", momentum=0.9)


def test_a_recipe_without_them_keeps_its_key():
    """What stores and audits know of a recipe has the fields of older versions alone, unless it uses a later one."""
    plain = Recipe(steps=5, dp=Privacy(1.0))
    older = {"optimiser", "learning_rate", "momentum", "weight_decay", "epochs", "steps", "batch_size", "sampling"}
    assert set(plain.to_dict()) == older | {"dp", "loss", "accumulate", "canaries"}
    assert set(plain.to_dict()["dp"]) == {"noise_multiplier", "clip", "sensitivity"}
    assert repr(plain).endswith("loss='cross-entropy', accumulate=1, canaries=None)")
    assert "Privacy(noise_multiplier=1.0, clip=1.0, sensitivity='global')" in repr(plain)
    later = Recipe(steps=5, schedule="cosine", device="cuda:1", precision="bf16", dp=Privacy(1.0, microbatches=4))
    assert Recipe.from_dict(later.to_dict()) == later and "microbatches=4" in repr(later)
    assert "schedule='cosine'" in repr(later)
