"""Attacks that fit a model: nobody is scored by what saw its label, and quantiles hold for non-members."""

import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

from dosimeter import InputError, Scores
from dosimeter.attacks import learned, quantile_regression


def auc(scores, member):
    return Scores(scores[member], scores[~member]).auc


def test_random_labels_stay_random_on_the_same_rows():
    """Trees that saw these labels would know most of them."""
    rng = np.random.default_rng(0)
    x, member = rng.standard_normal((1200, 4)), rng.random(1200) < 0.5
    error = (1 / 12 * 1200 / (600 * 600)) ** 0.5  # of an AUC without leak
    assert abs(auc(learned(x, member, x, seed=0), member) - 0.5) < 4.5 * error
    repeated = np.concatenate([x, x])
    twice = learned(repeated, np.concatenate([member, member]), x, seed=0)
    assert abs(auc(twice, member) - 0.5) < 4.5 * error


def test_a_leak_is_learned_on_the_same_and_on_new_rows():
    rng = np.random.default_rng(1)

    def rows(count):
        member = rng.random(count) < 0.5
        level = rng.normal(0, 3, count)  # what the record alone lets expect
        return np.stack([level, level + rng.standard_normal(count) + 2 * member], axis=1), member

    (x, member), (new, new_member) = rows(2500), rows(1500)
    best = stats.norm.cdf(2 / 2**0.5)  # .921
    assert best - 0.06 < auc(learned(x, member, x, seed=0), member) <= best + 0.02
    assert best - 0.06 < auc(learned(x, member, new, seed=0), new_member) <= best + 0.02


def test_learned_repeats_and_ignores_the_order_of_the_asked_rows():
    rng = np.random.default_rng(2)
    x, member = rng.standard_normal((200, 3)), rng.random(200) < 0.5
    first = learned(x, member, x, seed=5)
    np.testing.assert_array_equal(first, learned(x, member, x, seed=5))
    np.testing.assert_array_equal(first[::-1], learned(x, member, x[::-1], seed=5))


def heteroscedastic(rng, count):
    x = rng.uniform(-2, 2, (count, 2))
    return x, 3 * x[:, 0] + np.exp(0.7 * x[:, 1]) * rng.standard_normal(count)


def test_quantiles_hold_and_hard_records_are_told_apart():
    rng = np.random.default_rng(0)
    reference_x, reference = heteroscedastic(rng, 3000)
    x, signals = heteroscedastic(rng, 4000)
    member = rng.random(4000) < 0.5
    signals = signals + 2 * np.exp(0.7 * x[:, 1]) * member
    scores = quantile_regression(signals, x, (reference, reference_x), level=0.9)
    rate = (scores[~member] >= 1).mean()
    assert 0.07 < rate < 0.14
    for side in (x[:, 1] < -1, x[:, 1] > 1):  # for every kind of record alike
        assert 0.05 < (scores[~member & side] >= 1).mean() < 0.18
    best = stats.norm.cdf(2**0.5)  # .921
    assert auc(scores, member) > best - 0.03
    assert auc(signals, member) < best - 0.12


def test_constant_reference_gives_finite_scores():
    x = np.arange(50.0)
    scores = quantile_regression(np.ones(50), x, (np.zeros(50), x))
    np.testing.assert_allclose(scores, 1.0)


X, M = np.arange(40.0)[:, None], np.arange(40) % 2


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: learned(X, M[:5], X, seed=0), "train_membership has 5 records for 40 rows"),
        (lambda: learned(X, M, np.zeros((3, 2)), seed=0), "features has 2 columns, expected 1"),
        (lambda: learned(X, np.zeros(40), X, seed=0), "only 0 records of one kind"),
        (lambda: learned(X, M + 1, X, seed=0), r"train_membership\[1\] is 2"),
        (lambda: learned(X * np.nan, M, X, seed=0), r"train_features\[0, 0\] is nan"),
        (lambda: learned(X * 0, M, X, seed=0), "so many equal rows"),
        (lambda: learned(X, M, X, seed=-1), "seed"),
        (lambda: learned(X, M, X, seed=0, folds=1), "folds"),
        (lambda: quantile_regression(M, X, M), "reference must be a pair"),
        (lambda: quantile_regression(M, X[:3], (M, X)), "features has 3 rows for the 40 signals of target"),
        (lambda: quantile_regression(M, X, (M, X[:3])), r"reference\[1\] has 3 rows"),
        (lambda: quantile_regression(M, X, (M, np.zeros((40, 2)))), r"reference\[1\] has 2 columns"),
        (lambda: quantile_regression(M, X, (M[:9], X[:9])), "holds 9 non-members"),
        (lambda: quantile_regression(M, X, (M, X), level=0.5), "level"),
        (lambda: quantile_regression([np.nan] * 40, X, (M, X)), r"target\[0\] is nan"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(InputError, match=message):
        call()


def test_nothing_heavy_is_imported_with_the_package():
    heavy = ("torch", "sklearn", "ray", "altair", "scipy.stats")
    code = f"import sys, dosimeter.attacks; print(*(n for n in {heavy!r} if n in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
