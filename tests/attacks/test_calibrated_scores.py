"""Calibration by other records: what it finds, and that who is a member has no part in a score."""

import numpy as np
import pytest
from scipy.special import ndtri
from scipy.stats import rankdata

from dosimeter import InputError
from dosimeter.attacks.calibration import ITSELF, WAYS, _by_trees, calibrated
from dosimeter.estimators.limits import auc_with_error
from dosimeter.evidence import Scores

pytestmark = pytest.mark.once  # scikit-learn alone

rng_of = np.random.default_rng


def pool(size=901, seed=0, copies=1):
    """Signals with a difficulty that the features tell, and a small leak."""
    rng = rng_of(seed)
    features = np.repeat(rng.normal(size=(-(-size // copies), 3)), copies, axis=0)[:size]
    labels = (features[:, 1] > 0).astype(int)
    member = rng.random(size) < 0.5
    signals = 4 * features[:, 0] + 2 * labels + 1.5 * member + rng.normal(size=size)
    return signals, features, labels, member


def auc(scores, member):
    return auc_with_error(Scores(scores[member], scores[~member]))[0]


@pytest.mark.parametrize("by", ["quantile", "neighbours"])
def test_a_leak_below_the_difficulty_of_records_is_found(by):
    signals, features, labels, member = pool(3001)
    assert auc(signals, member) < 0.62
    assert auc(calibrated(signals, features, labels=labels, by=by), member) > 0.65


def test_classes_of_another_level_are_compared_with_themselves():
    rng = rng_of(1)
    labels, member = rng.integers(0, 2, 2001), rng.random(2001) < 0.5
    signals = 6.0 * labels + member + rng.normal(size=2001)
    scores = calibrated(signals, rng.normal(size=(2001, 2)), labels=labels, by="class")
    assert auc(scores, member) > auc(signals, member) + 0.03


def test_class_medians_agree_with_a_loop():
    signals, features, _, _ = pool(301, seed=2)
    labels = np.arange(301) % 4
    usual = np.array([np.median(signals[labels == label]) for label in labels])
    both = [ndtri((rankdata(values) - 0.5) / 301) for values in (signals, signals - usual)]
    found = calibrated(signals, features, labels=labels, by="class")
    np.testing.assert_allclose(found, ITSELF * both[0] + both[1], rtol=1e-12)


def test_neighbours_agree_with_a_loop():
    signals, features, labels, _ = pool(251, seed=3)
    z = (features - features.mean(axis=0)) / features.std(axis=0)
    usual = np.empty(251)
    for i in range(251):
        others = np.flatnonzero((labels == labels[i]) & (np.arange(251) != i))
        near = others[np.argsort(((z[others] - z[i]) ** 2).sum(axis=1))[:20]]
        usual[i] = signals[near].mean()
    both = [ndtri((rankdata(values) - 0.5) / 251) for values in (signals, signals - usual)]
    found = calibrated(signals, features, labels=labels, by="neighbours")
    np.testing.assert_allclose(found, ITSELF * both[0] + both[1], rtol=1e-9)


@pytest.mark.parametrize("by", WAYS)
@pytest.mark.parametrize("copies", [1, 7])
def test_the_order_of_the_records_has_no_part_in_a_score(by, copies):
    signals, features, labels, _ = pool(503, seed=4, copies=copies)
    features[::5, 2] = np.nan
    scores = calibrated(signals, features, labels=labels, by=by)
    for seed in range(3):
        order = rng_of(seed).permutation(503)
        again = calibrated(signals[order], features[order], labels=labels[order], by=by)
        np.testing.assert_array_equal(again, scores[order])


@pytest.mark.parametrize("by", WAYS)
def test_copies_with_one_signal_get_one_score(by):
    signals, features, labels, _ = pool(240, seed=5)
    twice = [np.concatenate([part, part]) for part in (signals, features, labels)]
    scores = calibrated(twice[0], twice[1], labels=twice[2], by=by)
    np.testing.assert_array_equal(scores[:240], scores[240:])


def test_a_record_has_no_part_in_what_is_usual_for_it():
    signals, features, labels, _ = pool(600, seed=6)
    same = np.arange(600)
    usual = _by_trees(signals, features, labels, same)
    raised = signals.copy()
    raised[17] += 100.0
    assert _by_trees(raised, features, labels, same)[17] == usual[17]
    assert (_by_trees(raised, features, labels, same) != usual).any()


def test_many_columns_and_missing_values():
    rng = rng_of(7)
    features = rng.normal(size=(400, 90))
    signals = 3 * features[:, 80] + rng.normal(size=400)
    features[rng.random((400, 90)) < 0.1] = np.nan
    features[:, 5] = np.nan
    scores = calibrated(signals, features)
    left = np.corrcoef(scores - ITSELF * ndtri((rankdata(signals) - 0.5) / 400), signals)[0, 1]
    assert np.isfinite(scores).all()
    assert left < 0.9  # the telling column, among 90, was used


def test_equal_signals_tell_nothing():
    scores = calibrated(np.zeros(300), rng_of(8).normal(size=(300, 2)))
    assert np.unique(scores).size == 1


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"target": np.zeros(199), "features": np.zeros((199, 1))}, "target holds 199 records"),
        ({"features": np.zeros((299, 2))}, r"features has shape \(299, 2\) for 300 signals"),
        ({"features": np.full((300, 2), np.inf)}, "infinite value"),
        ({"features": np.full((300, 2), "a")}, "features must be a table of numbers"),
        ({"labels": np.zeros(5, int)}, "labels has shape"),
        ({"by": "magic"}, "by must be"),
    ],
)
def test_bad_input_is_one_sentence(change, sentence):
    given = {"target": np.zeros(300), "features": np.zeros((300, 2))} | change
    with pytest.raises(InputError, match=sentence) as caught:
        calibrated(given.pop("target"), given.pop("features"), **given)
    assert str(caught.value).count("\n") == 0
