"""DP softmax regression: clipped gradients by norms, noise from the seed, and what the accountants make of it."""

import numpy as np
import pytest

from dosimeter import InputError
from dosimeter.training.logistic import DpLogisticRegression


def records(n: int = 60, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    return rng.normal(size=(n, 4)) + y[:, None], np.array(["a", "b", "c"])[y]


def test_steps_equal_explicit_per_example_clipping() -> None:
    x, y = records()
    model = DpLogisticRegression(noise_multiplier=0.7, steps=5, clip=0.5, learning_rate=0.3, seed=4).fit(x, y)
    rng = np.random.default_rng(np.random.SeedSequence(4))
    weights, inputs = np.zeros((5, 3)), np.column_stack([x, np.ones(len(x))])
    for _ in range(5):
        total = np.zeros_like(weights)
        for row, label in zip(inputs, y, strict=True):
            logits = row @ weights
            p = np.exp(logits) / np.exp(logits).sum()
            gradient = np.outer(row, p - (model.classes_ == label))
            total += gradient * min(1.0, 0.5 / np.linalg.norm(gradient))
        weights -= 0.3 / len(x) * (total + rng.normal(0, 0.7 * 0.5, weights.shape))
    assert np.allclose(model.coef_, weights, atol=1e-12)


def test_it_learns_and_repeats() -> None:
    x, y = records(600)
    model = DpLogisticRegression(noise_multiplier=1.0, steps=50, seed=1).fit(x, y)
    assert model.score(x, y) > 0.7
    again = DpLogisticRegression(noise_multiplier=1.0, steps=50, seed=1).fit(x, y)
    assert np.array_equal(model.coef_, again.coef_)
    assert np.allclose(model.predict_proba(x).sum(axis=1), 1)
    assert (model.mechanism.noise_multiplier, model.mechanism.steps) == (1.0, 50)


def test_bad_input() -> None:
    x, y = records()
    with pytest.raises(InputError, match="noise_multiplier"):
        DpLogisticRegression(noise_multiplier=-1)
    with pytest.raises(InputError, match="clip"):
        DpLogisticRegression(noise_multiplier=1, clip=0)
    with pytest.raises(InputError, match="no guarantee"):
        _ = DpLogisticRegression(noise_multiplier=0).mechanism
    with pytest.raises(InputError, match="one class"):
        DpLogisticRegression(noise_multiplier=1).fit(x, np.zeros(len(x)))
    with pytest.raises(InputError, match="features"):
        DpLogisticRegression(noise_multiplier=1).fit(x, y[:-1])
