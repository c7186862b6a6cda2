"""LiRA against SciPy's densities record by record, its invariances, and its edges."""

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dosimeter import InputError
from dosimeter.attacks import lira
from dosimeter.attacks.likelihood import log_student_tail

VARIANCES = ("record", "global", "bayesian")


def drawn(seed, models=8, records=30, targets=None, gap=1.0):
    """Signals with a level and a scale of each record; at least three models on each side."""
    rng = np.random.default_rng(seed)
    included = np.stack([rng.permutation(np.arange(models) < models // 2) for _ in range(records)], axis=1)
    level, scale = rng.normal(0, 3, records), np.exp(rng.normal(0, 0.5, records))
    shadows = level + scale * (rng.standard_normal((models, records)) + gap * included)
    target = level + scale * rng.standard_normal((targets or 1, records))
    return (target if targets else target[0]), shadows, included


def by_scipy(target, shadows, included, mode, variance):
    """One record at a time, with the densities and tails of scipy.stats."""
    groups = [[shadows[side[:, j], j] for j in range(target.size)] for side in (included, ~included)]
    pooled = [sum(((g - g.mean()) ** 2).sum() for g in side) / sum(g.size - 1 for g in side) for side in groups]
    scores = []
    for j, x in enumerate(target):
        laws = []
        for side, common in zip(groups, pooled, strict=True):
            g = side[j]
            if variance == "global":
                laws.append(stats.norm(g.mean(), common**0.5))
            elif variance == "record":
                laws.append(stats.norm(g.mean(), g.std(ddof=1)))
            else:
                a, b = 2 + (g.size - 1) / 2, 2 * common + ((g - g.mean()) ** 2).sum() / 2
                laws.append(stats.t(2 * a, g.mean(), (b / a * (1 + 1 / g.size)) ** 0.5))
        online = laws[0].logpdf(x) - laws[1].logpdf(x)
        scores.append(online if mode == "online" else laws[1].logcdf(x) - laws[1].logsf(x))
    return np.array(scores)


@pytest.mark.parametrize("mode", ["online", "offline"])
@pytest.mark.parametrize("variance", VARIANCES)
def test_against_scipy_record_by_record(mode, variance):
    for seed in range(3):
        evidence = drawn(seed)
        found = lira(*evidence, mode=mode, variance=variance)
        assert found.dtype == np.float64
        np.testing.assert_allclose(found, by_scipy(*evidence, mode, variance), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("variance", VARIANCES)
def test_blocks_do_not_change_the_scores(variance, monkeypatch):
    target, shadows, included = drawn(0, records=53, targets=3)
    whole = lira(target, shadows, included, variance=variance)
    monkeypatch.setattr("dosimeter.attacks.signals.CELLS", 24)  # three records in a block
    np.testing.assert_allclose(lira(target, shadows, included, variance=variance), whole, rtol=1e-12)
    one_by_one = [lira(row, shadows, included, variance=variance) for row in target]
    np.testing.assert_allclose(whole, one_by_one, rtol=1e-12)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    factor=st.floats(0.01, 100),
    shift=st.floats(-50, 50),
    variance=st.sampled_from(VARIANCES),
    mode=st.sampled_from(["online", "offline"]),
)
def test_affine_maps_of_the_signals_change_nothing(seed, factor, shift, variance, mode):
    target, shadows, included = drawn(seed)
    moved = lira(factor * target + shift, factor * shadows + shift, included, mode=mode, variance=variance)
    plain = lira(target, shadows, included, mode=mode, variance=variance)
    np.testing.assert_allclose(moved, plain, rtol=1e-6, atol=1e-6)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), variance=st.sampled_from(VARIANCES))
def test_order_of_models_and_records_does_not_matter(seed, variance):
    target, shadows, included = drawn(seed)
    rng = np.random.default_rng(seed)
    models, records = rng.permutation(len(shadows)), rng.permutation(target.size)
    turned = lira(target[records], shadows[models][:, records], included[models][:, records], variance=variance)
    np.testing.assert_allclose(
        turned, lira(target, shadows, included, variance=variance)[records], rtol=1e-9, atol=1e-9
    )


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), variance=st.sampled_from(VARIANCES))
def test_swapping_in_and_out_turns_the_sign(seed, variance):
    target, shadows, included = drawn(seed)
    np.testing.assert_allclose(
        lira(target, shadows, ~included, variance=variance),
        -lira(target, shadows, included, variance=variance),
        rtol=1e-9,
        atol=1e-9,
    )


def test_offline_rises_with_the_signal_far_into_both_tails():
    _, shadows, included = drawn(1, records=1)
    ladder = np.linspace(-4000, 4000, 401)[:, None]
    for variance in VARIANCES:
        scores = lira(ladder, shadows, included, mode="offline", variance=variance)[:, 0]
        assert np.isfinite(scores).all()
        assert (np.diff(scores) > 0).all()


@pytest.mark.parametrize("freedom", [3.0, 10.0, 70.0, 260.0, 3000.0])
@pytest.mark.parametrize("t", [0.0, 1.0, 12.0, 60.0, 4000.0])
def test_student_tail_in_high_precision(freedom, t):
    with mpmath.workdps(60):
        x = mpmath.mpf(freedom) / (mpmath.mpf(freedom) + mpmath.mpf(t) ** 2)
        exact = mpmath.log(mpmath.betainc(freedom / 2, 0.5, 0, x, regularized=True) / 2)
    assert float(log_student_tail(np.array([freedom]), np.array([t]))[0]) == pytest.approx(float(exact), rel=1e-9)


def test_float32_gives_the_scores_of_its_values():
    target, shadows, included = drawn(2)
    single = lira(target.astype(np.float32), shadows.astype(np.float32), included)
    double = lira(target.astype(np.float32).astype(float), shadows.astype(np.float32).astype(float), included)
    np.testing.assert_allclose(single, double, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("mode", ["online", "offline"])
@pytest.mark.parametrize("variance", [*VARIANCES, "auto"])
@pytest.mark.parametrize("value", [0.0, 0.1, -1e6, 1e99])
def test_constant_signals_give_finite_scores(mode, variance, value):
    included = drawn(0)[2]
    shadows = np.full(included.shape, value)
    scores = lira(np.full(30, value), shadows, included, mode=mode, variance=variance)
    assert (scores == 0).all()
    tied = shadows.copy()
    tied[:, 3:] += np.where(value, value, 1.0) * drawn(0)[1][:, 3:] / 10
    assert np.isfinite(lira(tied[0] * 1.5, tied, included, mode=mode, variance=variance)).all()


def test_groups_that_are_constant_but_apart_are_told_apart():
    included = drawn(0)[2]
    for variance in VARIANCES:
        shadows = np.where(included, 0.3, 0.1)
        assert (lira(np.full(30, 0.3), shadows, included, variance=variance) > 0).all()
        assert (lira(np.full(30, 0.1), shadows, included, variance=variance) < 0).all()


def test_auto_is_bayesian_with_few_models_and_record_with_many():
    few, many = drawn(0, models=32), drawn(0, models=64)
    np.testing.assert_array_equal(lira(*few), lira(*few, variance="bayesian"))
    np.testing.assert_array_equal(lira(*many), lira(*many, variance="record"))


def test_one_model_on_each_side_borrows_the_variance_of_others():
    target, shadows, included = drawn(0)
    included[:, 0] = [True] + [False] * 7
    assert np.isfinite(lira(target, shadows, included, variance="bayesian")).all()
    with pytest.raises(InputError, match=r"variance='record' needs at least 2 .* record 0 has 1 with"):
        lira(target, shadows, included, variance="record")


@pytest.mark.parametrize(
    ("column", "mode", "message"),
    [
        (
            True,
            "online",
            r"mode='online' variance='bayesian' needs at least 1 .*with and without.* record 17 has 0 without",
        ),
        (False, "online", r"record 17 has 0 with\b"),
        (True, "offline", r"mode='offline' .*record 17 has 0 without"),
    ],
)
def test_a_record_always_in_or_out_is_named(column, mode, message):
    target, shadows, included = drawn(0)
    included[:, 17] = column
    with pytest.raises(InputError, match=message):
        lira(target, shadows, included, mode=mode)


def test_offline_takes_records_that_were_never_in():
    target, shadows, included = drawn(0)
    nowhere = np.zeros_like(included)
    assert np.isfinite(lira(target, shadows, nowhere, mode="offline")).all()


def test_too_few_models_to_know_any_variance():
    with pytest.raises(InputError, match="at least 2 shadow models with or without some record"):
        lira([0.0, 1.0], [[0.0, 1.0], [1.0, 2.0]], [[1, 0], [0, 1]])
    with pytest.raises(InputError, match="at least 2 shadow models without some record"):
        lira([0.0, 1.0], [[0.0, 1.0]], [[0, 0]], mode="offline")
