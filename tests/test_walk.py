"""The calibration of the ranked walk: exact, golden, and conservative for every q of a band."""

import itertools

import numpy as np
import pytest
from scipy import special, stats

from dosimeter.estimators import walk


def every(m: int) -> np.ndarray:
    return np.arange(1, m + 1)


# Local level a at q = 1/2 over all prefixes, found independently of this project's code
@pytest.mark.parametrize(
    ("m", "alpha", "level"), [(200, 0.025, 0.003216), (1000, 0.025, 0.001815), (1000, 0.05, 0.003906)]
)
def test_golden_levels(m: int, alpha: float, level: float) -> None:
    assert walk.exact_level(every(m), alpha, 0.5) == pytest.approx(level, rel=6e-4)


@pytest.mark.parametrize(("m", "level"), [(5000, 0.00117), (10_000, 0.000993)])  # α = .025
def test_golden_levels_of_long_walks(m: int, level: float) -> None:
    tried = np.array([0.99, 1.01]) * level  # the crossing probability rises in steps
    bounds = walk.limits(every(m), np.full(2, 0.5), tried)[:, None, :]
    below, above = walk.crossing(every(m), bounds, np.array([0.5]))[:, 0, -1]
    assert below <= 0.025
    assert above >= 0.025


def test_limits_against_scipy() -> None:
    points, q, level = np.array([1, 2, 7, 40, 333, 5000]), np.array([0.5, 0.731, 0.99]), np.array([0.1, 1e-3, 1e-9])
    found = walk.limits(points, q, level)
    for row in range(3):
        for column, r in enumerate(points):
            t = np.arange(r + 2)
            past = stats.binom.sf(t - 1, r, q[row]) < level[row]
            past[-1] = True
            assert found[row, column] == np.argmax(past)


@pytest.mark.parametrize("q", [0.5, 0.8])
def test_crossing_against_all_paths(q: float) -> None:
    points = np.array([2, 3, 6, 9])
    bounds = walk.limits(points, np.array([q]), np.array([0.3]))
    expected = 0.0
    for path in itertools.product([0, 1], repeat=9):
        reached = np.cumsum(path)[points - 1]
        if np.any(reached >= bounds[0]):
            expected += q ** sum(path) * (1 - q) ** (9 - sum(path))
    assert walk.crossing(points, bounds[None], np.array([q]))[0, 0, -1] == pytest.approx(expected, abs=1e-13)


def test_crossing_is_cumulative_and_several_levels_agree_with_one() -> None:
    points = walk.checkpoints(500)
    q, level = np.array([0.55, 0.9]), np.array([0.01, 0.001])
    bounds = walk.limits(points, np.tile(q, 2), np.repeat(level, 2)).reshape(2, 2, -1)
    both = walk.crossing(points, bounds, q)
    assert np.all(np.diff(both, axis=2) >= 0)
    for i, j in itertools.product(range(2), range(2)):
        alone = walk.crossing(points, bounds[i, j][None, None], q[j : j + 1])
        assert np.allclose(alone[0, 0], both[i, j], atol=1e-13)


def test_table_covers_every_q_of_its_bands() -> None:
    """The heart of the validity: at random q the true crossing probability never exceeds the tabulated one."""
    table, rng = walk.level_table(), np.random.default_rng(3)
    edges = [*walk.BAND_EDGES, 11.0]
    points = walk.checkpoints(20_000)
    chosen = np.array([8, 30, 60, 90, 115])
    for band in range(len(walk.BAND_EDGES)):
        q = special.expit(rng.uniform(edges[band], edges[band + 1], 12))
        bounds = walk.limits(points, np.tile(q, chosen.size), np.repeat(table.level[chosen], q.size))
        true = walk.crossing(points, bounds.reshape(chosen.size, q.size, -1), q).max(axis=1)
        stored = table.alpha[: points.size, band, chosen].T
        assert np.all(true <= stored)


def test_table_is_not_wasteful() -> None:
    """Exact levels are at most a third above the tabulated ones where ε is small, though all q are covered."""
    for m in (100, 1000, 10_000):
        exact = min(walk.exact_level(walk.checkpoints(m), 0.025, q) for q in (0.5, 0.53, 0.56))
        found = walk.local_levels(m, np.full(len(walk.BAND_EDGES), 0.025))[0]
        assert exact / 1.35 < found <= exact


@pytest.mark.parametrize("alpha", [0.3, 0.05, 1e-4, 1e-9, 1e-15])
def test_levels_for_any_size_and_confidence(alpha: float) -> None:
    wanted = np.full(len(walk.BAND_EDGES), alpha)
    found = np.array([walk.local_levels(m, wanted) for m in (1, 10, 1000, 10**5, 10**6, 10**9)])
    sizes = np.array([walk.checkpoints(m).size for m in (1, 10, 1000, 10**5, 10**6, 10**9)])
    assert np.all(np.diff(found, axis=0) <= 0)  # more looks, less level for each
    assert np.all(found >= alpha / sizes[:, None] * (1 - 1e-12))  # never below the union bound


def test_no_level_left_means_no_look() -> None:
    assert np.all(walk.local_levels(1000, np.full(len(walk.BAND_EDGES), -0.1)) == 0)


def test_checkpoints_start_everywhere_and_end_at_the_records() -> None:
    assert walk.checkpoints(1).tolist() == [1]
    for m in (5, 99, 10**6):
        points = walk.checkpoints(m)
        assert np.all(np.diff(points) > 0)
        assert points[-1] <= m
