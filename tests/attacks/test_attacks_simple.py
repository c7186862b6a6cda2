"""Loss and Watson: definitions, ranks within classes, and what no attack accepts."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dosimeter import InputError
from dosimeter.attacks import MINIMUM, best_attack, lira, loss, rmia, watson


def test_loss_is_the_signal_in_double_precision():
    signals = np.array([[1.0, -2.0], [0.5, 3.0]], np.float32)
    found = loss(signals)
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, signals)
    assert not np.shares_memory(found, signals)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(-3, 3), st.sampled_from("abc")), min_size=1, max_size=40))
def test_levels_within_classes_are_mid_ranks(pairs):
    values, labels = np.array([v for v, _ in pairs], float), np.array([c for _, c in pairs])
    expected = np.empty(values.size)
    for label in set(labels):
        rows = labels == label
        expected[rows] = (stats.rankdata(values[rows]) - 0.5) / rows.sum()
    np.testing.assert_allclose(loss(values, labels=labels), expected, rtol=1e-12)
    np.testing.assert_allclose(loss(np.stack([values, -values]), labels=labels)[1], 1 - expected, rtol=1e-12)


def test_levels_make_hard_classes_comparable():
    rng = np.random.default_rng(0)
    labels, member = rng.integers(0, 2, 4000), rng.random(4000) < 0.5
    signals = rng.standard_normal(4000) + member + 8 * labels
    auc = [
        stats.mannwhitneyu(s[member], s[~member]).statistic / (member.sum() * (~member).sum())
        for s in (loss(signals), loss(signals, labels=labels))
    ]
    assert auc[0] < 0.66 < 0.74 < auc[1]  # Φ(1/√2) = .760 within a class


def test_watson_subtracts_the_mean_of_the_models_without():
    rng = np.random.default_rng(0)
    included = rng.random((6, 40)) < 0.5
    included[0] = False
    shadows, target = rng.standard_normal((6, 40)), rng.standard_normal((2, 40))
    mean = np.array([shadows[~included[:, j], j].mean() for j in range(40)])
    np.testing.assert_allclose(watson(target, shadows, included), target - mean, atol=1e-13)
    np.testing.assert_allclose(watson(target[0], shadows, included.astype(int)), (target - mean)[0], atol=1e-13)


@pytest.mark.parametrize(("shadows", "name"), [(0, "loss"), (1, "rmia"), (15, "rmia"), (16, "lira"), (256, "lira")])
def test_best_attack(shadows, name):
    assert best_attack(shadows) == name
    assert any(key.split()[0] == name for key in MINIMUM)


@pytest.mark.parametrize("bad", [-1, 2.5, "many", None])
def test_best_attack_refuses(bad):
    with pytest.raises(InputError, match="shadows"):
        best_attack(bad)


GOOD = ([0.0, 1.0], [[0.0, 1.0], [1.0, 0.0], [0.5, 0.5]], [[1, 0], [0, 1], [0, 0]])


@pytest.mark.parametrize("attack", [watson, lira, rmia])
@pytest.mark.parametrize(
    ("which", "value", "message"),
    [
        (0, [0.0, np.nan], r"target\[1\] is nan, and 1 of 2 values"),
        (0, [0.0, 1e200], r"target\[1\] is 1e\+200"),
        (0, [0.0], "target has 1 records but shadows has 2"),
        (0, [], "target is empty"),
        (0, 3.0, "target must have shape"),
        (0, ["a", "b"], "target must hold numbers"),
        (0, [[0.0], [0.0, 1.0]], "target must be an array of numbers"),
        (0, np.ma.masked_array([0.0, 1.0], [False, True]), r"target\[1\] is masked"),
        (1, [[0.0, 1.0], [np.inf, 0.0], [0.5, 0.5]], r"shadows\[1, 0\] is inf"),
        (1, [0.0, 1.0], r"shadows must have shape \(models, records\)"),
        (1, np.zeros((0, 2)), "shadows is empty"),
        (2, [[1, 0], [0, 1]], r"included has shape \(2, 2\) but shadows has \(3, 2\)"),
        (2, [[1, 0], [0, 2], [0, 0]], r"included\[1, 1\] is 2"),
        (2, [[1, 0], [0, 0.5], [0, 0]], r"included\[1, 1\] is 0.5"),
        (2, [[1], [0, 1], [0]], "included must be an array"),
    ],
)
def test_bad_arrays_are_named(attack, which, value, message):
    evidence = list(GOOD)
    evidence[which] = value
    with pytest.raises(InputError, match=message):
        attack(*evidence)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: lira(*GOOD, mode="both"), "mode must be one of"),
        (lambda: lira(*GOOD, variance="mine"), "variance must be one of"),
        (lambda: rmia(*GOOD, gamma=0), "gamma"),
        (lambda: rmia(*GOOD, gamma=np.nan), "gamma"),
        (lambda: rmia(*GOOD, offline_a=2), "offline_a"),
        (lambda: rmia(*GOOD, scale="loss"), "scale must be one of"),
        (lambda: rmia(*GOOD, population=[]), "population must be"),
        (lambda: rmia(*GOOD, population=[0, 2]), r"population\[1\] is 2"),
        (lambda: rmia(*GOOD, population=[False, False]), "at least one of them"),
        (lambda: rmia(*GOOD, population=[0.5]), "population must be"),
        (lambda: loss([1.0, 2.0], labels=[1]), "labels has shape"),
        (lambda: loss([1.0, 2.0], labels=[1.0, np.nan]), r"labels\[1\] is nan"),
        (lambda: loss([1.0, 2.0], labels=[None, 1]), "labels must hold"),
        (lambda: watson([1.0], [[1.0]], [[True]]), "watson needs at least 1 .*record 0 has 0 without"),
    ],
)
def test_bad_options_are_named(call, message):
    with pytest.raises(InputError, match=message):
        call()
