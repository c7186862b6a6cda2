"""The identifiability paper: noise and identities that no run could contradict, pairs, and every part in miniature."""

import importlib
import importlib.util
from pathlib import Path

import numpy as np
import pytest

from dosimeter.identifiability import advantage_from_mu

SPEC = importlib.util.spec_from_file_location("reproduce", Path(__file__).parent.parent / "scripts" / "reproduce.py")
assert SPEC is not None and SPEC.loader is not None
reproduce = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(reproduce)
run = reproduce.load("identifiability")
trained = importlib.import_module("experiments.identifiability.trained")
closed = run.closed
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="trains models")


@pytest.mark.parametrize(
    ("belief", "classic", "improved"),
    [(0.53, 329.0, 96.7), (0.75, 19.24, 14.66), (0.9, 9.952, 8.138), (0.99, 5.074, 4.424)],
)
def test_the_noise_is_that_of_the_released_code(belief, classic, improved):
    """Its accountant at k = 30 and δ = 0.001, orders up to 63, and the same with the conversion of later versions."""
    noise = trained.noise
    assert noise(belief, 0.001) == pytest.approx(classic, rel=2e-4)
    assert noise(belief, 0.001, "improved") == pytest.approx(improved, rel=6e-4)
    assert noise(belief, 0.001, neighbours="replace") == pytest.approx(2 * noise(belief, 0.001))


def test_games_agree_with_the_closed_form():
    played = closed.play(2.2, 0.001, dimensions=7)
    assert played.advantage == pytest.approx(
        float(advantage_from_mu(1 / closed.classic_deviation(2.2, 0.001))), abs=0.006
    )
    assert closed.boundary(0.3) == pytest.approx(0.5)


@needs_torch
@pytest.mark.parametrize("neighbours", ["bounded", "unbounded"])
def test_local_noise_leaves_the_same_advantage_whatever_the_data(neighbours):
    """Noise scaled to ‖Δ‖ of each step is a Gaussian mechanism of one μ: no data set can contradict these."""
    way = trained.Way(neighbours, "local")
    cell = run.cell("mini", "mnist", way, None)
    mu = 30**0.5 / trained.noise(0.9, cell.delta)
    assert cell.advantage == pytest.approx(float(advantage_from_mu(mu)), abs=1e-6)
    assert cell.by_sensitivities == pytest.approx(cell.epsilon, rel=1e-3)
    other = run.cell("mini", "mnist", trained.Way(neighbours, "global"), None)
    assert other.advantage <= cell.advantage and other.by_sensitivities < other.epsilon


@needs_torch
@pytest.mark.parametrize("labels", ["any", "equal", "different"])
@pytest.mark.parametrize("most", [True, False])
def test_pairs_are_those_of_a_search_through_all(labels, most):
    pairs = importlib.import_module("experiments.identifiability.pairs")

    found = run.parts("mini", "mnist")
    (x, y), (ux, uy) = found.inside, found.others
    away = np.linalg.norm(x[:, None].astype(float) - ux[None], axis=2)
    same = y[:, None] == uy[None]
    allowed = {"any": np.ones_like(same), "equal": same, "different": ~same}[labels]
    best = np.sort(away[allowed])
    chosen = pairs.choose(found, most=most, labels=labels, count=3)
    assert [p.distance for p in chosen] == pytest.approx(best[::-1][:3] if most else best[:3], rel=1e-5)
    for pair in chosen:
        assert pair.same_label == same[pair.removed, pair.added] and allowed[pair.removed, pair.added]
        assert pair.distance == pytest.approx(away[pair.removed, pair.added], rel=1e-5)


@needs_torch
def test_gradients_are_clipped_and_differ_by_the_local_sensitivity():
    """The transcript of a training and the gradients taken one by one say the same of a pair of records."""
    import torch

    from dosimeter.training import Neighbour, Privacy, Recipe, train_many

    pairs = importlib.import_module("experiments.identifiability.pairs")
    found = run.parts("mini", "mnist")
    (x, y), (ux, uy) = found.inside, found.others

    def always_the_same():
        torch.manual_seed(0)
        return found.setting.factory()

    both = np.concatenate([x, ux[:1]]), np.concatenate([y, uy[:1]])
    members = np.arange(len(both[0]))[None] < len(x)
    recipe = Recipe("adam", 0.005, steps=1, batch_size=None, dp=Privacy(9.0, 0.8))
    (one,) = train_many(always_the_same, recipe, both, members, [5], neighbour=Neighbour(3, len(x)))
    a, b = (pairs.clipped(always_the_same(), *part, clip=0.8) for part in ((x, y), (ux, uy)))
    assert np.linalg.norm(a, axis=1).max() <= 0.8 + 1e-5
    assert one.transcript.distances[0] == pytest.approx(float(np.linalg.norm(a[3] - b[0])), rel=1e-4)


@needs_torch
@pytest.mark.parametrize("part", ["fig4-mnist", "distances-mnist", "fig5-mnist", "fig6-mnist", "fig6-d", "fig7"])
def test_every_part_runs_in_miniature(part):
    """On digits, and with the rows that the page asks for."""
    found = run.PARTS[part](size="mini", store=None)
    asked = {name for e in reproduce.exhibits("identifiability") if e.part == part for name in e.asked("full")}
    assert {name.replace("digits", "mnist") for name in found.numbers} == asked
    assert set(found.numbers.values()) <= {0.0, 1.0}
    assert all(caption and spec["datasets"] for caption, spec in found.figures.values())
