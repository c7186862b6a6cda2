"""SelectWorst: the planted records are found, the weights are those of held-out models."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dosimeter import InputError
from dosimeter.attacks import lira, select_worst
from dosimeter.attacks.worst import _ordered_pairs


def drawn(seed, models=64, records=300, planted=(7, 100, 299), gap=3.0):
    rng = np.random.default_rng(seed)
    included = rng.random((models, records)) < 0.5
    strength = np.zeros(records)
    strength[list(planted)] = gap
    return rng.normal(0, 3, records) + rng.standard_normal((models, records)) + strength * included, included


@pytest.mark.parametrize("by", ["accuracy", "auc"])
@pytest.mark.parametrize("attack", ["lira", "watson", "loss"])
@pytest.mark.parametrize("folds", [None, 4])
def test_planted_records_are_found(by, attack, folds):
    outputs, included = drawn(0)
    found = select_worst(outputs, included, 3, by=by, attack=attack, folds=folds)
    assert set(found.records.tolist()) == {7, 100, 299}
    expected = stats.norm.cdf(1.5) if by == "accuracy" else stats.norm.cdf(3 / 2**0.5)  # .933, .983
    assert abs(found.weights.mean() - expected) < 0.04
    assert (np.diff(found.weights) <= 0).all()
    np.testing.assert_array_equal(found.all_weights[found.records], found.weights)
    assert found.skipped.size == 0


def test_rmia_finds_them_too():
    outputs, included = drawn(1)
    assert set(select_worst(outputs, included, 3, attack="rmia").records.tolist()) == {7, 100, 299}


@pytest.mark.parametrize("attack", ["lira", "watson"])
def test_weights_are_honest_where_nothing_leaks(attack):
    """A weight from models that the attack was fitted on would lie far above one half."""
    outputs, included = drawn(3, models=16, records=4000, planted=())
    for by, folds in (("accuracy", None), ("accuracy", 4), ("auc", None), ("auc", 8)):
        found = select_worst(outputs, included, 1, by=by, attack=attack, folds=folds)
        weights = np.delete(found.all_weights, found.skipped)
        assert 0.475 < weights.mean() < 0.5 + 4.5 * weights.std() / weights.size**0.5
        assert weights.mean() < 0.514


def test_accuracy_of_one_record_by_hand():
    outputs, included = drawn(5, models=12, records=40, planted=(7,))
    included[:, :] = (np.arange(12)[:, None] + np.arange(40)) % 2 == 0
    found = select_worst(outputs, included, 1, folds=3, seed=4)
    deal = np.random.default_rng(np.random.SeedSequence(4)).permutation(12) % 3
    right = np.empty((12, 40))
    for part in range(3):
        held = deal == part
        scores = lira(outputs[held], outputs[~held], included[~held], variance="bayesian")
        right[held] = (scores > 0) == included[held]
    expected = [(right[included[:, j], j].mean() + right[~included[:, j], j].mean()) / 2 for j in range(40)]
    np.testing.assert_allclose(found.all_weights, expected, rtol=1e-12)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6))
def test_pairs_in_order_with_ties(seed):
    rng = np.random.default_rng(seed)
    scores, member = rng.integers(0, 4, (9, 5)).astype(float), rng.random((9, 5)) < 0.5
    for j, (ordered, total) in enumerate(zip(*_ordered_pairs(scores, member), strict=True)):
        pairs = scores[member[:, j], j][:, None] - scores[~member[:, j], j]
        assert total == pairs.size
        assert ordered == ((pairs > 0) + 0.5 * (pairs == 0)).sum()


def test_records_without_enough_models_are_skipped_and_said():
    outputs, included = drawn(0, records=20, planted=(3,))
    included[:, 5], included[:, 6] = True, False
    included[:, 7] = np.arange(64) == 2
    found = select_worst(outputs, included, 17)
    assert found.skipped.tolist() == [5, 6, 7]
    assert (found.all_weights[[5, 6, 7]] == 0.5).all()
    assert not set(found.records.tolist()) & {5, 6, 7}
    assert found.records[0] == 3
    with pytest.raises(InputError, match="count is 18, but only 17 of 20 records"):
        select_worst(outputs, included, 18)


def test_same_seed_same_choice():
    outputs, included = drawn(2)
    first, second = (select_worst(outputs, included, 20, folds=5, seed=9) for _ in range(2))
    np.testing.assert_array_equal(first.records, second.records)


def test_constant_signals_never_weigh_more_than_a_coin():
    included = drawn(0)[1]
    for attack in ("lira", "watson", "rmia", "loss"):
        for by in ("accuracy", "auc"):
            found = select_worst(np.zeros(included.shape), included, 2, attack=attack, by=by)
            assert (found.all_weights <= 0.5).all()
            assert (found.weights == 0.5).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"count": 0}, "count must be"),
        ({"count": 301}, "count must be"),
        ({"by": "loss"}, "by must be one of"),
        ({"attack": "best"}, "attack must be one of"),
        ({"folds": 1}, "folds must be"),
        ({"folds": 65}, "folds must be"),
        ({"folds": 33, "by": "auc"}, "folds must be between 2 and 32"),
        ({"seed": -1}, "seed"),
        ({"gamma": 1.0}, "gamma is not an option of lira"),
        ({"attack": "rmia", "mode": "both"}, "mode must be one of"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(InputError, match=message):
        select_worst(*drawn(0), **{"count": 3, **options})
