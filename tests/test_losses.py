"""Losses from logits and probabilities: the formula, its tails, what was rounded."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from dosimeter._validate import InputError
from dosimeter.models.outputs import losses_from_logits, losses_from_probabilities


def test_binary_logits_are_the_signed_logit():
    np.testing.assert_array_equal(losses_from_logits([2.0, 2.0, -700.0], [1, 0, 1]), [-2.0, 2.0, 700.0])


def test_multiclass_logits_keep_the_tail():
    logits = np.array([[60.0, 0.0, 1.0], [0.5, -0.25, 3.0], [-400.0, 400.0, 399.0], [0.0, 1e300, 0.0]])
    labels = [0, 1, 0, 1]
    with mpmath.workdps(400):
        expected = []
        for row, label in zip(logits[:3], labels[:3], strict=True):
            weights = [mpmath.exp(mpmath.mpf(float(z))) for z in row]
            p = weights[label] / mpmath.fsum(weights)
            expected.append(float(-(mpmath.log(p) - mpmath.log(1 - p))))
    losses = losses_from_logits(logits, labels)
    np.testing.assert_allclose(losses[:3], expected, rtol=1e-14)
    assert losses[3] == -1e300


@given(st.lists(st.floats(-30, 30), min_size=1, max_size=8), st.integers(0, 1))
def test_two_classes_equal_the_binary_formula(logits, label):
    z = np.array(logits)
    two = losses_from_logits(np.column_stack([np.zeros_like(z), z]), np.full(z.size, label))
    np.testing.assert_allclose(two, losses_from_logits(z, np.full(z.size, label)), rtol=1e-13, atol=1e-13)
    p = special.expit(z)
    from_p, _ = losses_from_probabilities(np.column_stack([special.expit(-z), p]), np.full(z.size, label))
    np.testing.assert_allclose(from_p, two, rtol=1e-9, atol=1e-9)


def test_probabilities_give_the_formula():
    losses, clipped = losses_from_probabilities([0.2, 0.2, 0.9], [1, 0, 1])
    np.testing.assert_allclose(losses, [math.log(4), -math.log(4), -math.log(9)])
    assert clipped == 0
    losses, clipped = losses_from_probabilities([[0.2, 0.3, 0.5], [0.1, 0.1, 0.8]], [1, 2])
    np.testing.assert_allclose(losses, [math.log(7 / 3), -math.log(4)])
    assert clipped == 0


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_rounded_probabilities_are_clipped_alike_at_both_ends_and_counted(dtype):
    losses, clipped = losses_from_probabilities(np.array([0, 1, 0, 1, 0.5], dtype), [0, 0, 1, 1, 1])
    edge = -math.log(np.finfo(dtype).epsneg)
    np.testing.assert_allclose(losses, [-edge, edge, edge, -edge, 0], atol=1e-3)
    assert clipped == 4
    two_columns, clipped = losses_from_probabilities(np.array([[1, 0], [0, 1]], dtype), [0, 0])
    np.testing.assert_allclose(two_columns, [-edge, edge], atol=1e-3)
    assert clipped == 2


def test_probabilities_of_the_others_keep_what_one_minus_p_loses():
    losses, clipped = losses_from_probabilities([[1.0, 2e-16, 3e-16]], [0])
    assert losses[0] == pytest.approx(math.log(5e-16)) and clipped == 0


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: losses_from_logits([[1.0, math.nan], [0, 0]], [0, 1]), r"logits\[0\] is not finite"),
        (lambda: losses_from_logits([0.0, math.inf], [0, 1]), r"logits\[1\] is not finite"),
        (lambda: losses_from_logits([[1.0], [2.0]], [0, 0]), "binary"),
        (lambda: losses_from_logits(np.zeros((2, 2, 2)), [0, 0]), r"shape \(n,\)"),
        (lambda: losses_from_logits([], []), r"shape \(n,\)"),
        (lambda: losses_from_logits([[1.0, 2.0], [3.0]], [0, 0]), "mixed lengths"),
        (lambda: losses_from_logits(["a"], [0]), "must hold numbers"),
        (lambda: losses_from_logits([1.0, 2.0], [0]), "pair up"),
        (lambda: losses_from_logits([1.0, 2.0], [0, 2]), r"labels\[1\] is 2"),
        (lambda: losses_from_logits([1.0, 2.0], [0.5, 1]), r"labels\[0\] is 0.5"),
        (lambda: losses_from_logits([[1.0, 2.0, 3.0]], [-1]), r"labels\[0\] is -1"),
        (lambda: losses_from_logits([[-1.7e308, 1.7e308]], [0]), "largest float"),
        (lambda: losses_from_probabilities([0.5, 1.5], [0, 1]), r"probabilities\[1\] .*outside"),
        (lambda: losses_from_probabilities([[0.5, 0.6]], [0]), r"probabilities\[0\] does not sum to 1"),
        (lambda: losses_from_probabilities([[1.5, -0.5]], [0]), "outside"),
    ],
)
def test_bad_outputs_are_refused(call, words):
    with pytest.raises(InputError, match=words):
        call()
