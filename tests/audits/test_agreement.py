"""Do outputs belong to their records? Right ones do, shuffled ones do by chance alone."""

import itertools

import numpy as np
import pytest

from dosimeter.audits.training import repeatable as module
from dosimeter.audits.training.repeatable import BY_CHANCE, agreement


def answers(rng, y, right):
    """Probabilities of three classes, first choice right with this chance."""
    first = np.where(rng.random(y.size) < right, y, rng.integers(0, 3, y.size))
    P = rng.dirichlet([1, 1, 1], y.size) + 2 * np.eye(3)[first]
    return P / P.sum(axis=1, keepdims=True)


def test_mean_and_variance_are_those_over_all_orders(monkeypatch):
    monkeypatch.setattr(module, "FEWEST_MEMBERS", 2)
    rng = np.random.default_rng(0)
    y = np.array([0, 0, 1, 2, 1, 0])
    P = rng.dirichlet([1, 1, 1], 6).round(1)
    found = [agreement(P, y[list(order)]) for order in itertools.permutations(range(6))]
    assert np.mean(found) == pytest.approx(0, abs=1e-12)
    assert np.var(found) == pytest.approx(1)


@pytest.mark.parametrize("labels", ["balanced", "rare"])
def test_shuffled_answers_seldom_pass(labels):
    """1000 shuffled answers of a perfect model: at most 1 % pass 3 standard deviations (about 0.13 % are expected)."""
    rng = np.random.default_rng(1)
    passed = 0
    for _ in range(1000):
        y = rng.choice(3, 60, p=[1 / 3] * 3 if labels == "balanced" else [0.9, 0.05, 0.05])
        passed += agreement(answers(rng, y, 1.0)[rng.permutation(60)], y) > BY_CHANCE
    assert passed <= 10


def test_right_answers_pass():
    rng = np.random.default_rng(2)
    y = rng.integers(0, 3, 60)
    P = answers(rng, y, 0.6)
    assert agreement(P, y) > BY_CHANCE
    assert agreement(np.log(P) + rng.normal(0, 9, (60, 1)), y) > BY_CHANCE
    assert agreement(P, y[::-1]) < BY_CHANCE
    two = rng.integers(0, 2, 40)
    assert agreement(two * 0.2 + 0.1, two) > BY_CHANCE
    assert agreement(0.5 - two * 0.2, two) < -BY_CHANCE
    assert agreement(two[:, None] * 0.2, two) == agreement(two * 0.2, two)
    many = rng.integers(0, 2, 40_000)
    assert BY_CHANCE < agreement(many + rng.normal(size=many.size), many) < 60  # not all are looked at


def test_the_most_frequent_class_with_a_doubt():
    """Always the first class, but less surely where it is wrong."""
    y = np.repeat([0, 1], [95, 5])
    P = np.stack([0.9 - 0.2 * y, 0.1 + 0.2 * y], axis=1)
    assert agreement(P, y) > BY_CHANCE


def test_nothing_to_tell():
    assert agreement(np.full((40, 2), 0.5), np.arange(40) % 2) == 0
    assert agreement(np.eye(2)[np.arange(40) % 2], np.zeros(40, int)) == 0
    assert agreement(np.full((4, 2), 0.5), np.arange(4) % 2) is None
