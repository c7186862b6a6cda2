"""The exact supremum behind Epsilon*: golden values, dense scans, limits."""

import json
import math
from pathlib import Path

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats
from star_routes import brute_force, ceiling

from dosimeter._validate import InputError
from dosimeter.estimators.epsilon_star import (
    epsilon_star_from_tails,
    epsilon_star_normal,
)

GOLDEN = json.loads((Path(__file__).parent / "golden" / "epsilon_star.json").read_text(encoding="utf-8"))


def test_golden_normal():
    golden = GOLDEN["normal 0 vs 3, delta 1e-5"]
    for value in (
        epsilon_star_from_tails(stats.norm(0, 1), stats.norm(3, 1), delta=1e-5),
        float(epsilon_star_normal(0, 1, 3, 1, 1e-5)),
    ):
        assert value == pytest.approx(golden["value"], abs=golden["tolerance"])
        assert value == pytest.approx(9.23934, abs=1e-4)


@pytest.mark.parametrize(
    ("delta", "rounded"), [(1e-5, (4.31917, 6.61728, 8.04013)), (1e-3, (2.70822, 4.22489, 5.12752))]
)
@pytest.mark.parametrize("scale", [5.0, 0.2])  # the second parameter may be read as scale or as rate
def test_golden_gamma(delta, rounded, scale):
    member = stats.gamma(2, scale=scale)
    assert epsilon_star_from_tails(member, stats.gamma(2, scale=scale), delta=delta) == 0
    for d, grid_value in enumerate(rounded, start=1):
        golden = GOLDEN[f"gamma d={d}, delta {'1e-5' if delta == 1e-5 else '1e-3'}"]
        other = stats.gamma(2 + d, scale=scale)
        value = epsilon_star_from_tails(member, other, delta=delta)
        assert value == pytest.approx(golden["value"], abs=golden["tolerance"])
        assert value == pytest.approx(grid_value, abs=1e-4)
        assert value == pytest.approx(epsilon_star_from_tails(other, member, delta=delta), abs=1e-12)


@settings(max_examples=80, deadline=None)
@given(
    st.floats(-12, -0.5),
    st.floats(-6, 6),
    st.one_of(st.floats(-0.5, 0.5), st.floats(-5, 1)),
)
def test_normal_supremum_against_brute_force(log_delta, gap, log_sd):
    delta, sd = 10**log_delta, 10**log_sd
    exact = float(epsilon_star_normal(gap, sd, 0.0, 1.0, delta))
    scanned = brute_force(gap, sd, 0.0, 1.0, delta)
    assert exact >= scanned - 1e-9
    assert exact == pytest.approx(scanned, abs=1e-5)


def test_interior_supremum_against_mpmath():
    # Equal means, members twice as spread: the best threshold is inside, found here by root of the derivative.
    delta = mpmath.mpf("1e-4")
    with mpmath.workdps(40):

        def log_ratio(s):
            return mpmath.log((mpmath.ncdf(-s / 2) - delta) / mpmath.ncdf(-s))

        best = mpmath.findroot(lambda s: mpmath.diff(log_ratio, s), 3.5)
        at_end = log_ratio(-mpmath.sqrt(2) * mpmath.erfinv(2 * delta - 1))
        expected = float(max(log_ratio(best), at_end))
    assert float(epsilon_star_normal(0, 2, 0, 1, 1e-4)) == pytest.approx(expected, abs=1e-11)


def test_two_routes_to_one_supremum():
    for delta in (1e-12, 1e-5, 0.01, 0.3):
        for sd in (0.3, 1.0, 2.5):
            by_tails = epsilon_star_from_tails(stats.norm(0, sd), stats.norm(0.7, 1), delta=delta)
            assert by_tails == pytest.approx(float(epsilon_star_normal(0, sd, 0.7, 1, delta)), abs=1e-9)


def test_tails_may_be_functions_and_heavy():
    pair = (stats.norm(0, 1).logcdf, stats.norm(0, 1).logsf)
    assert epsilon_star_from_tails(pair, stats.norm(3, 1), delta=1e-5) == pytest.approx(9.239367372294035)
    # ln of a log-normal is normal: a strictly increasing transform changes nothing, over 18 orders of magnitude.
    heavy = epsilon_star_from_tails(stats.lognorm(5), stats.lognorm(5, scale=math.exp(15)), delta=1e-5)
    assert heavy == pytest.approx(9.239367372294035, abs=1e-9)


@given(st.floats(-3, 3), st.floats(0.2, 3), st.floats(0.2, 3), st.floats(1e-9, 0.2))
@settings(max_examples=60, deadline=None)
def test_supremum_is_symmetric_scale_free_and_falls_in_delta(gap, s1, s2, delta):
    value = float(epsilon_star_normal(gap, s1, 0, s2, delta))
    for same in ((0, s2, gap, s1), (-gap, s1, 0, s2), (7 * gap + 2, 7 * s1, 2, 7 * s2)):
        assert float(epsilon_star_normal(*same, delta)) == pytest.approx(value, abs=1e-8)
    assert 0 <= value <= ceiling(delta) + 1e-12
    assert float(epsilon_star_normal(gap, s1, 0, s2, delta / 2)) >= value - 1e-12


def test_wider_separation_never_lowers_the_supremum_up_to_its_ceiling():
    gaps = np.linspace(0, 40, 801)
    for sd in (0.01, 1.0, 3.0):
        values = epsilon_star_normal(gaps, sd, 0, 1, 1e-6)
        if sd == 1.0:
            assert values[0] == 0
        assert np.diff(values).min() >= -1e-9
        assert values[-1] == pytest.approx(ceiling(1e-6), abs=1e-12)


def test_vanishing_standard_deviation_is_the_limit():
    p, delta = special.ndtr(1.0), 1e-5
    limit = math.log(max((1 - 2 * delta) / (1 - p), (p - delta) / delta, (1 - 2 * delta) / p, (1 - p - delta) / delta))
    for sd, tolerance in ((0.0, 1e-12), (1e-9, 1e-7), (1e-4, 1e-2)):
        for value in (epsilon_star_normal(1, sd, 0, 1, delta), epsilon_star_normal(0, 1, 1, sd, delta)):
            assert float(value) == pytest.approx(limit, abs=tolerance)
    np.testing.assert_allclose(
        epsilon_star_normal([1, 1, 9], 0, [1, 2, 0], [0, 0, 1], delta), [0, *[ceiling(delta)] * 2]
    )


def test_tiny_deltas_and_large_ones():
    assert float(epsilon_star_normal(0, 1, 1, 1, 1e-300)) < ceiling(1e-300)
    assert float(epsilon_star_normal(0, 1, 50, 1, 0.4)) == 0  # even the ceiling is below 1
    assert float(epsilon_star_normal(0, 1, 50, 1, 0.7)) == 0
    assert epsilon_star_from_tails(stats.norm(0, 1), stats.norm(50, 1), delta=0.7) == 0
    assert epsilon_star_from_tails(stats.norm(0, 1), stats.norm(50, 1), delta=1e-5) == pytest.approx(ceiling(1e-5))


def test_bad_distributions_are_refused():
    with pytest.raises(InputError, match="delta must be above 0"):
        epsilon_star_normal(0, 1, 1, 1, 0)
    with pytest.raises(InputError, match="sd_members"):
        epsilon_star_normal(0, -1, 1, 1, 1e-5)
    with pytest.raises(InputError, match="mu_nonmembers"):
        epsilon_star_normal(0, 1, math.nan, 1, 1e-5)
    with pytest.raises(InputError, match="delta must be above 0"):
        epsilon_star_from_tails(stats.norm(0, 1), stats.norm(3, 1), delta=0)
    with pytest.raises(InputError, match="members must have logcdf"):
        epsilon_star_from_tails(3, stats.norm(3, 1), delta=1e-5)
    with pytest.raises(InputError, match="never NaN"):
        epsilon_star_from_tails((lambda x: x * math.nan,) * 2, stats.norm(3, 1), delta=1e-5)
