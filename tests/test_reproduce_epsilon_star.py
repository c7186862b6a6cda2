"""The paper on Epsilon*: exact values, the study by hand, its strategies, and every part in miniature."""

import importlib.util
import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

SPEC = importlib.util.spec_from_file_location("reproduce", Path(__file__).parent.parent / "scripts" / "reproduce.py")
assert SPEC is not None and SPEC.loader is not None
reproduce = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(reproduce)
run = reproduce.load("epsilon_star")
simulation, landscape = run.simulation, run.landscape
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="trains models")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("normal.3", 9.2394),
        *((f"gamma.{d}.1e-05", v) for d, v in enumerate((0.0, 4.3192, 6.6173, 8.0402))),
        *((f"gamma.{d}.0.001", v) for d, v in enumerate((0.0, 2.7082, 4.2249, 5.1275))),
    ],
)
def test_exact_values_of_the_study(name, value):
    """The suprema of the stated distributions; identical ones give 0."""
    assert simulation.exact()[name] == pytest.approx(value, abs=1e-4)


def test_parametric_study_by_hand():
    """Two thousand lines of the transform and a brute grid give what the study says of one sample."""
    rows = [r for r in simulation.study([2000], 1, seed=4) if r["losses"] == "normal.3" and r["form"] == "parametric"]
    rng = np.random.default_rng(np.random.SeedSequence(4).spawn(5)[0])
    inside, outside = rng.normal(0, 1, 2000), rng.normal(3, 1, 2000)
    low, high = min(inside.min(), outside.min()), max(inside.max(), outside.max())
    phi = [-np.log(np.expm1(1 + (x - low) / (high - low))) for x in (inside, outside)]
    members, others = (stats.norm(p.mean(), p.std()) for p in phi)
    grid = np.linspace(min(p.min() for p in phi) - 3, max(p.max() for p in phi) + 3, 400_001)
    fpr, fnr, delta = others.sf(grid), members.cdf(grid), 1e-5
    kept = (np.minimum(fpr, fnr) > delta) & (np.maximum(fpr, fnr) < 1 - delta)
    fpr, fnr = fpr[kept], fnr[kept]
    ratios = [(1 - delta - fnr) / fpr, (1 - delta - fpr) / fnr, (fnr - delta) / (1 - fpr), (fpr - delta) / (1 - fnr)]
    assert rows[0]["epsilon"] == pytest.approx(float(np.log(np.max(ratios))), abs=1e-3)


def test_ratios_by_hand():
    found = simulation.ratios(1000, 1, seed=3)
    exact = next(r for r in found if r.repeat < 0 and r.kind.endswith("FPR") and r.at == 75)  # at the loss 1.5
    tpr, fpr = stats.norm.cdf(1.5), stats.norm.cdf(-1.5)
    assert exact.value == pytest.approx(math.log((tpr - 1e-5) / fpr))
    assert exact.place == pytest.approx(0.5) and exact.rate == pytest.approx(fpr)
    rng = np.random.default_rng(np.random.SeedSequence(3).spawn(1)[0])
    inside, outside = rng.normal(0, 1, 1000), rng.normal(3, 1, 1000)
    seen = next(r for r in found if r.repeat == 0 and r.kind.endswith("FNR") and r.at == 75)
    assert seen.value == pytest.approx(math.log((np.mean(outside > 1.5) - 1e-5) / np.mean(inside > 1.5)))
    assert simulation.spread(found, 0.05, 0.95) < simulation.spread(found, 0.001, 0.05)


def test_spread_is_measured_about_the_truth():
    ratio = simulation.Ratio
    truth = [ratio(0, 0.5, 0.1, "a", 2.0, -1), ratio(1, 0.5, 0.4, "a", 1.0, -1)]
    seen = [ratio(0, 0.5, 0.3, "a", v, k) for k, v in enumerate((5.0, -1.0))]
    assert simulation.spread(truth + seen, 0.05, 0.2) == 3.0


@pytest.mark.parametrize(("which", "count"), [("adult", 52), ("purchase", 52)])
def test_strategies_are_those_of_the_paper(which, count):
    """52 for Adult; 51 for Purchase-100, and one training more that reaches 100 %."""
    for size in ("quick", "full"):
        tried = landscape.strategies(run.CONFIG[size][which])
        assert len({s.name for s in tried}) == len(tried) == count
        assert run.CONFIG[size][which]["repeats"] == 5


@pytest.mark.parametrize(
    ("epsilon", "clip", "epochs", "microbatches"),
    [(1.0, 1.0, 20, 1), (3.0, 30.0, 1, 32), (100.0, 10.0, 5, 32)],
)
def test_strategies_spend_their_epsilon(epsilon, clip, epochs, microbatches):
    from dosimeter.accounting import rdp

    how = landscape.recipe(landscape.Strategy(epochs, 64, epsilon, clip, microbatches), 5000)
    delta = 1 / (5000 * np.log(5000))
    assert 0.98 * epsilon < rdp(how.mechanism(5000), delta=delta).epsilon <= epsilon
    assert how.dp.clip == clip and how.dp.microbatches == microbatches and how.length(5000) == epochs * 79
    assert (how.optimiser, how.learning_rate, how.momentum) == ("sgd", 0.01, 0.9)
    assert landscape.recipe(landscape.Strategy(epochs, 64), 5000).dp is None


def test_utility_is_auroc_for_two_classes():
    y = np.array([0, 0, 1, 1])
    logits = np.array([[0.0, -1.0], [0.0, 2.0], [0.0, 1.0], [0.0, 3.0]])
    assert landscape._utility(logits, y) == 0.75
    assert landscape._utility(np.eye(3)[[0, 1, 1]], np.array([0, 1, 2])) == pytest.approx(2 / 3)


@needs_torch
def test_the_landscapes_run_in_miniature():
    """On digits and breast_cancer, with the rows that the page asks for, on one fixed split."""
    for part in ("fig1", "fig2", "fig6"):
        found = run.PARTS[part](size="mini", store=None)
        asked = {n for e in reproduce.exhibits("epsilon_star") if e.part == part for n in e.asked("full")}
        assert {name for name in asked if not name.endswith(("epsilon", "accuracy"))} == set(found.numbers)
        assert found.tables and all(spec["datasets"] for _, spec in found.figures.values())
    explored = run._explored("mini", "adult", None)
    assert explored.members == 381 and explored.measure == "AUROC"
    assert all(o.losses[0].size == 381 and len(o.epsilons) == 3 for o in explored.outcomes)
    assert [o.strategy.epochs for o in explored.plain] == [1, 20]
