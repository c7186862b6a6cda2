"""RMIA against its definition, pair by pair, on every scale."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, log_expit

from dosimeter import InputError
from dosimeter.attacks import rmia


def drawn(seed, models=6, records=40):
    rng = np.random.default_rng(seed)
    included = rng.random((models, records)) < 0.5
    included[0], included[1] = True, False
    level = rng.normal(0, 2, records)
    return level + rng.standard_normal(records), level + rng.standard_normal((models, records)), included


def by_pairs(target, shadows, included, population, mode, gamma, a):
    """The definition: every record against every population record."""
    p, ps = expit(target), expit(shadows)
    outside = np.array([ps[~included[:, j], j].mean() for j in range(p.size)])
    inside = np.array([ps[included[:, j], j].mean() for j in range(p.size)])
    ratio = p / ((inside + outside) / 2 if mode == "online" else ((1 + a) * outside + 1 - a) / 2)
    return np.array([[ratio[x] / ratio[z] >= gamma * (1 - 1e-12) for z in population] for x in range(p.size)]).mean(
        axis=1
    )


@pytest.mark.parametrize("mode", ["online", "offline"])
@pytest.mark.parametrize("gamma", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("a", [0.0, 0.3, 1.0])
def test_against_the_definition(mode, gamma, a):
    evidence = drawn(0)
    some = np.arange(0, 40, 3)
    for population, columns in ((None, np.arange(40)), (some, some), (np.isin(np.arange(40), some), some)):
        found = rmia(*evidence, population=population, mode=mode, gamma=gamma, offline_a=a)
        np.testing.assert_allclose(found, by_pairs(*evidence, columns, mode, gamma, a), atol=1e-12)


def test_one_matrix_on_three_scales():
    target, shadows, included = drawn(1)
    logit = rmia(target, shadows, included)
    np.testing.assert_array_equal(logit, rmia(log_expit(target), log_expit(shadows), included, scale="log"))
    np.testing.assert_array_equal(logit, rmia(expit(target), expit(shadows), included, scale="probability"))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.floats(0.1, 10), st.sampled_from(["online", "offline"]))
def test_gamma_and_population_keep_the_order(seed, gamma, mode):
    evidence = drawn(seed)
    base = rmia(*evidence, mode=mode)
    order = np.argsort(base)
    for other in (rmia(*evidence, mode=mode, gamma=gamma), rmia(*evidence, mode=mode, population=np.arange(7))):
        assert (np.diff(other[order]) >= 0).all()
        assert ((other >= 0) & (other <= 1)).all()


def test_rows_of_targets_are_scored_alone():
    target, shadows, included = drawn(2)
    rows = np.stack([target, target[::-1]])
    np.testing.assert_array_equal(rmia(rows, shadows, included)[1], rmia(target[::-1], shadows, included))


def test_saturated_models_keep_their_order():
    included = np.zeros((1, 4), bool)
    shadows = np.full((1, 4), 60.0)
    scores = rmia([50.0, 55.0, 58.0, 70.0], shadows, included)  # 1 − p is far below 1e-16
    assert (np.diff(scores) > 0).all()
    low = rmia([-900.0, -850.0, -800.0, -750.0], np.full((1, 4), -800.0), included, offline_a=1.0)
    assert (np.diff(low) > 0).all()


@pytest.mark.parametrize("mode", ["online", "offline"])
@pytest.mark.parametrize("scale", ["log", "probability", "logit"])
def test_constant_signals_give_finite_scores(mode, scale):
    included = drawn(0)[2]
    for value in (0.0, 1.0) if scale == "probability" else (0.0, -1e99):
        scores = rmia(np.full(40, value), np.full((6, 40), value), included, mode=mode, scale=scale)
        assert (scores == 1).all()


def test_signals_off_the_scale_are_named():
    target, shadows, included = drawn(0)
    with pytest.raises(InputError, match=r"target\[0, \d+\] is .* impossible on the scale 'log'"):
        rmia(np.abs(target), shadows, included, scale="log")
    with pytest.raises(InputError, match=r"shadows\[\d, \d+\] is .* scale 'probability'"):
        rmia(expit(target), shadows, included, scale="probability")


def test_records_that_lack_a_side_are_named():
    target, shadows, included = drawn(0)
    with pytest.raises(InputError, match=r"rmia mode='offline' needs at least 1 .*record 0 has 0 without \(40 such"):
        rmia(target, shadows, np.ones_like(included))
    included[:, 5] = False
    rmia(target, shadows, included)
    with pytest.raises(InputError, match=r"rmia mode='online' .*record 5 has 0 with:"):
        rmia(target, shadows, included, mode="online")
