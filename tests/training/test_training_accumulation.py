"""A batch in parts is the batch: every path, with and without DP, beside the same recipe in one part."""

import numpy as np
import pytest
import sample_models
from test_training_transcripts import BATCHES, IN, OUT, WAYS, D, other, recipe, run

from dosimeter import InputError
from dosimeter.training import Neighbour, Privacy, Recipe

torch = pytest.importorskip("torch", reason="the engine needs torch: dosimeter[torch]")


def weights(modules):
    return np.concatenate([p.detach().numpy().ravel() for module in modules for p in module.parameters()])


@pytest.mark.parametrize("accumulate", [2, 3, 50])
@pytest.mark.parametrize("dp", [None, Privacy(0.7, 0.2)], ids=["plain", "private"])
@pytest.mark.parametrize("sampling", ["shuffled", "poisson", "full"])
@pytest.mark.parametrize(("factory", "strategy"), WAYS, ids=lambda way: getattr(way, "__name__", way))
def test_parts_add_up(factory, strategy, sampling, dp, accumulate):
    common = {"steps": 4, "learning_rate": 0.5, "momentum": 0.9, "weight_decay": 0.01, "dp": dp}
    common |= {"batch_size": None} if sampling == "full" else {"batch_size": 20, "sampling": sampling}
    members = [D, np.arange(5, 40)]
    whole, _ = run(strategy, factory, Recipe(**common), members, [1, 2], None)
    split, _ = run(strategy, factory, Recipe(**common, accumulate=accumulate), members, [1, 2], None)
    assert weights(split) == pytest.approx(weights(whole), abs=1e-12)


@pytest.mark.parametrize(("factory", "strategy"), WAYS, ids=lambda way: getattr(way, "__name__", way))
@pytest.mark.parametrize("batching", BATCHES)
def test_transcripts_do_not_change(factory, strategy, batching):
    neighbour = Neighbour(removed=IN, added=OUT)
    found = []
    for accumulate in (1, 3):
        how = recipe(batching, "local", accumulate=accumulate)
        found.append(run(strategy, factory, how, [D, other(neighbour)], [1, 2], neighbour)[1])
    for whole, split in zip(*found, strict=True):
        assert split.distances == pytest.approx(whole.distances, rel=1e-9)
        assert split.projections == pytest.approx(whole.projections, rel=1e-8, abs=1e-12)


@pytest.mark.parametrize(
    ("factory", "strategy"), [(sample_models.dense_net, "dense"), (sample_models.conv_net, "convolutional")]
)
def test_less_is_held_at_once(factory, strategy, monkeypatch):
    """The widest batch that goes through the first layer."""
    widths = []
    if strategy == "dense":
        from dosimeter.training import dense

        plain = dense.Buffers.fill
        monkeypatch.setattr(
            dense.Buffers,
            "fill",
            lambda self, rows, marks: (widths.append(rows.shape[1]), plain(self, rows, marks))[1],
        )
    else:
        from dosimeter.training.conv_chain import ConvChain

        original = ConvChain.forward
        monkeypatch.setattr(ConvChain, "forward", lambda self, x: (widths.append(len(x)), original(self, x))[1])
    for accumulate, most in ((1, 32), (4, 8)):
        widths.clear()
        run(strategy, factory, Recipe(steps=1, batch_size=None, accumulate=accumulate, dp=Privacy(1.0)), [D], [1], None)
        assert most - 3 < max(widths) <= most


def test_refusals():
    for wrong in (0, 1.5, None):
        with pytest.raises(InputError, match="accumulate"):
            Recipe(epochs=1, accumulate=wrong)
    assert Recipe.from_dict(Recipe(epochs=1, accumulate=4).to_dict()).accumulate == 4

    def normed():
        nn = torch.nn
        return nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(72, 3))

    for strategy in ("sequential", "convolutional"):
        with pytest.raises(InputError, match="BatchNorm2d"):
            run(strategy, normed, Recipe(steps=1, accumulate=2), [D], [1], None)
        run(strategy, normed, Recipe(steps=1), [D], [1], None)
