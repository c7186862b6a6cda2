"""Normal mixtures by EM and the exact two-sample KS test."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dosimeter._validate import InputError
from dosimeter.estimators.goodness_of_fit import fit_mixture, goodness_of_fit, ks_equal_sizes


@pytest.mark.parametrize("size", [1, 2, 5, 40, 300])
def test_ks_equals_scipy_exact(size):
    rng = np.random.default_rng(size)
    first = rng.normal(size=(12, size))
    second = rng.normal(np.linspace(0, 1.5, 12)[:, None], 1.0, (12, size))
    statistics, p_values = ks_equal_sizes(first, second)
    for row in range(12):
        expected = stats.ks_2samp(first[row], second[row], method="exact")
        assert statistics[row] == pytest.approx(expected.statistic, abs=1e-12)
        assert p_values[row] == pytest.approx(expected.pvalue, rel=1e-9, abs=1e-14)


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 15).flatmap(lambda n: st.tuples(*[st.lists(st.integers(0, 4), min_size=n, max_size=n)] * 2)))
def test_ks_statistic_with_ties(samples):
    first, second = (np.array(side, float) for side in samples)
    statistic, p_value = ks_equal_sizes(first[None], second[None])
    points = np.arange(5)
    expected = max(abs(np.mean(first <= t) - np.mean(second <= t)) for t in points)
    assert statistic[0] == pytest.approx(expected, abs=1e-12)
    assert 0 <= p_value[0] <= 1


def test_ks_p_value_at_a_thousand_is_near_its_limit():
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(2, 1, 1000))
    statistic, p_value = ks_equal_sizes(first, second)
    limit = stats.kstwobign.sf(math.sqrt(500) * statistic[0])
    assert p_value[0] == pytest.approx(limit, abs=0.03)


def test_one_component_is_the_normal_fit():
    values = np.random.default_rng(1).normal(3, 2, 500)
    mixture = fit_mixture(values, 1)
    assert mixture.weights == pytest.approx([1.0])
    assert mixture.means == pytest.approx([values.mean()]) and mixture.sds == pytest.approx([values.std()])


def test_two_components_are_recovered():
    rng = np.random.default_rng(2)
    values = np.concatenate([rng.normal(-3, 0.5, 6000), rng.normal(2, 1.5, 4000)])
    mixture = fit_mixture(rng.permutation(values), 2)
    order = np.argsort(mixture.means)
    np.testing.assert_allclose(mixture.weights[order], [0.6, 0.4], atol=0.02)
    np.testing.assert_allclose(mixture.means[order], [-3, 2], atol=0.1)
    np.testing.assert_allclose(mixture.sds[order], [0.5, 1.5], atol=0.1)


def test_more_components_raise_the_likelihood_of_what_they_were_fitted_to():
    values = np.random.default_rng(3).gamma(1.5, size=2000)
    likelihoods = []
    for components in (1, 2, 4, 8):
        w, m, s = fit_mixture(values, components)
        likelihoods.append(np.log((w * stats.norm(m, s).pdf(values[:, None])).sum(axis=1)).mean())
    assert np.diff(likelihoods).min() > -1e-4 and likelihoods[1] > likelihoods[0] + 0.1


def test_normal_losses_pass_and_skewed_ones_need_components():
    rng = np.random.default_rng(5)
    normal = goodness_of_fit(rng.normal(size=20_000), components=[1, 3])
    assert (normal.p_values[:, 0] > 1e-3).all()
    skewed = goodness_of_fit(rng.gamma(1.0, size=20_000), components=[1, 8], sample_sizes=[100, 1000])
    assert skewed.p_values[1, 0] < 1e-6 < skewed.p_values[1, 1]
    assert skewed.fewest_components(1e-4) == 8
    assert skewed.log_likelihood[1] > skewed.log_likelihood[0]
    assert goodness_of_fit(rng.gamma(1.0, size=4000), components=[1], sample_sizes=[1000]).fewest_components() is None


def test_p_values_of_a_true_fit_are_spread_evenly():
    values = np.random.default_rng(6).normal(size=20_000)
    p_values = goodness_of_fit(values, components=[1], sample_sizes=[400] * 200, seed=1).p_values.ravel()
    assert stats.kstest(p_values, "uniform").statistic < 0.2  # 0.115 at the 1 % level, plus the fit and ties of D
    assert np.mean(p_values < 0.05) < 0.12


@pytest.mark.once
def test_result_is_complete_repeatable_and_plain():
    values = np.random.default_rng(7).normal(size=2500)
    first, again, other = (goodness_of_fit(values, seed=s) for s in (3, 3, 4))
    np.testing.assert_array_equal(first.p_values, again.p_values)
    assert (first.p_values != other.p_values).any()
    assert first.p_values.shape == first.statistics.shape == (10, 20)
    assert list(first.components) == list(range(1, 21)) and list(first.sample_sizes) == list(range(100, 1001, 100))
    assert len(first.mixtures) == 20 and first.fitted + first.held_out == 2500
    assert json.loads(json.dumps(first.to_dict(), allow_nan=False))["mixtures"][1]["weights"][0] > 0


@pytest.mark.parametrize("factor", [1e-300, 1e300])
def test_the_scale_of_losses_does_not_matter(factor):
    values = np.random.default_rng(8).normal(size=1000)
    options = {"components": [1, 3], "sample_sizes": [50, 400]}
    plain, scaled = goodness_of_fit(values, **options), goodness_of_fit(factor * values, **options)
    np.testing.assert_allclose(scaled.p_values, plain.p_values, rtol=1e-6)
    np.testing.assert_allclose(scaled.log_likelihood, plain.log_likelihood - math.log(factor), rtol=1e-9)
    np.testing.assert_allclose(scaled.mixtures[1].sds / factor, plain.mixtures[1].sds, rtol=1e-6)


def test_ties_and_extremes_do_not_break_the_fit():
    values = np.concatenate([np.zeros(500), np.ones(500), [1e9]])
    result = goodness_of_fit(values, components=[1, 2, 20], sample_sizes=[100])
    assert np.isfinite(result.p_values).all() and np.isfinite(result.log_likelihood).all()


@pytest.mark.parametrize(
    ("losses", "kwargs", "words"),
    [
        ([1.0, 2.0], {}, "at least 4"),
        ([1.0, math.nan, 2.0, 3.0], {}, r"losses\[1\] is nan"),
        (np.ones(4000), {}, "losses are all 1"),
        (np.arange(300.0), {}, "sample_sizes holds 1000"),
        (np.arange(300.0), {"sample_sizes": [0]}, r"sample_sizes\[0\]"),
        (np.arange(300.0), {"sample_sizes": [10.5]}, r"sample_sizes\[0\]"),
        (np.arange(300.0), {"sample_sizes": []}, "sample_sizes"),
        (np.arange(300.0), {"sample_sizes": 5}, "sample_sizes"),
        (np.arange(6.0), {"sample_sizes": [2]}, "components holds 20"),
        (np.arange(300.0), {"sample_sizes": [10], "components": [-1]}, r"components\[0\]"),
        (np.arange(300.0), {"sample_sizes": [10], "seed": 1.5}, "seed"),
    ],
)
def test_bad_input_is_refused(losses, kwargs, words):
    with pytest.raises(InputError, match=words):
        goodness_of_fit(losses, **kwargs)
