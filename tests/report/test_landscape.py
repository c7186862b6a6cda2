"""The frontier and the densities of the privacy–utility landscape, and the page that compares audits."""

from __future__ import annotations

import itertools
import math
import re

import numpy as np
import pytest
import samples
from hypothesis import given
from hypothesis import strategies as st
from test_page import Outline, words_of

from dosimeter._validate import InputError
from dosimeter.audits.compare.landscape import GUARANTEED, LOWER, bandwidth, density, frontier, strategies
from dosimeter.audits.compare.page import compare_page

POINTS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), min_size=1, max_size=14)


def beaten(point: tuple[int, int], others: list[tuple[int, int]]) -> bool:
    """Whether a point or a mixture of two is at least as private and as useful, and better in one of them."""
    x, y = point
    if any(a <= x and b >= y and (a, b) != point for a, b in others):
        return True
    for (a, b), (c, d) in itertools.permutations(others, 2):
        if a < x < c and (d - b) * (x - a) >= (y - b) * (c - a) and point not in ((a, b), (c, d)):
            return True
    return False


@given(POINTS)
def test_frontier_is_what_no_mixture_beats(points: list[tuple[int, int]]) -> None:
    x, y = zip(*points, strict=True)
    found = frontier(x, y).tolist()
    unbeaten = {p for p in points if not beaten(p, points)}
    assert {points[i] for i in found} == unbeaten
    chosen = [points[i] for i in found]
    assert chosen == sorted(chosen) and all(b[1] > a[1] for a, b in itertools.pairwise(chosen))


@given(POINTS, st.floats(0.1, 10), st.floats(-5, 5))
def test_frontier_does_not_depend_on_units(points: list[tuple[int, int]], scale: float, shift: float) -> None:
    x, y = np.array(points, float).T
    assert frontier(x, y).tolist() == frontier(2 * x, y + 1).tolist()
    assert set(frontier(x, y)) <= set(range(len(points)))
    assert frontier(x * 4, y * 0.5).tolist() == frontier(x, y).tolist()


def test_frontier_refuses_what_it_cannot_order() -> None:
    with pytest.raises(InputError, match="one pair for each point"):
        frontier([1, 2], [1])
    with pytest.raises(InputError, match=r"epsilon\[1\] is inf"):
        frontier([1, math.inf], [1, 2])


def test_density_is_a_density_and_matches_a_direct_sum() -> None:
    values = np.random.default_rng(0).normal(2, 1, 200)
    grid = np.linspace(-6, 10, 4001)
    found = density(values, grid)
    assert np.trapezoid(found, grid) == pytest.approx(1, abs=1e-9)
    h = bandwidth(values)
    # Silverman (1986), equation 3.31
    assert h == pytest.approx(
        0.9 * min(values.std(ddof=1), np.subtract(*np.quantile(values, [0.75, 0.25])) / 1.34) * 200**-0.2
    )
    at = sum(math.exp(-((2.5 - v) ** 2) / (2 * h * h)) for v in values) / (200 * h * math.sqrt(2 * math.pi))
    assert density(values, [2.5])[0] == pytest.approx(at, rel=1e-12)


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=8))
def test_density_of_few_or_equal_values_is_finite(values: list[float]) -> None:
    found = density(values, np.linspace(-200, 200, 50))
    assert np.isfinite(found).all() and (found >= 0).all()
    assert density([3.0, 3.0], [3.0], width=0.5)[0] == pytest.approx(1 / (0.5 * math.sqrt(2 * math.pi)))
    with pytest.raises(InputError, match="width"):
        density([1.0], [1.0], width=0.0)


def test_repeats_become_one_point_with_their_range() -> None:
    points = strategies(
        np.array([1.0, 2.0, 0.5, math.inf]),
        np.array([0.9, 0.8, 0.7, 1.0]),
        ["a", "a", "b", "c"],
        ["g"] * 4,
        [GUARANTEED] * 4,
    )
    assert [p.name for p in points] == ["a", "b"]
    assert (points[0].epsilon, points[0].epsilon_low, points[0].epsilon_high) == (1.5, 1.0, 2.0)
    assert points[0].utility == pytest.approx(0.85) and points[0].repeats == 2
    assert all(p.frontier for p in points)


def test_a_lower_bound_is_on_no_frontier() -> None:
    kinds = [LOWER, GUARANTEED, GUARANTEED]
    points = strategies(np.array([0.1, 3.0, 5.0]), np.array([0.99, 0.8, 0.7]), list("abc"), ["g"] * 3, kinds)
    assert [p.frontier for p in points] == [False, True, False]


@pytest.mark.once
def test_the_landscape_ranks_guarantees_and_not_lower_bounds() -> None:
    """A weak attack on a model without guarantee must not look like privacy."""
    private, weak = samples.full(guard=False), samples.bare(1.6)
    page = compare_page([private, weak], ["DP", "not attacked well"], [0.8, 0.9])
    shown = words_of(page, "landscape")
    assert private.region is not None
    stated = private.region.upper.epsilon
    assert f"On the frontier: DP (ε {stated:.4g}, utility 0.8)." in shown
    assert "Open marks stand at a lower bound, because no guarantee is known (not attacked well)" in shown
    assert "smaller is better" not in page and "densit" not in page
    assert f"≥ {weak.headline.low:.4g} a lower bound, no guarantee" in shown
    ranked = compare_page([private, private], ["a", "b"], [0.8, 0.9])
    assert "ε guaranteed (smaller is better)" in ranked
    bare = compare_page([weak, samples.bare()], ["a", "b"], [0.8, 0.9])
    assert "On the frontier" not in bare and "ε proven from below (no ranking)" in bare


def test_densities_need_points() -> None:
    audit = samples.full(guard=False)
    names = [f"run {i}" for i in range(10)]
    utilities = np.linspace(0.5, 0.9, 10)
    assert "densities by category" in compare_page([audit] * 10, names, utilities)
    assert "densities" not in compare_page([audit] * 9, names[:9], utilities[:9])


def test_compare_page_shows_audits_side_by_side() -> None:
    audits = [samples.bare(1.0), samples.full(), samples.shifted()]
    names = ["over-fitted", samples.HOSTILE, "DP"]
    page = compare_page(audits, names, [0.95, 0.9, 0.85], categories=["plain", "plain", "DP"])
    outline = Outline(page)
    assert [attrs["id"] for attrs in outline.all("section")] == ["overview", "bounds", "landscape", "claims", "words"]
    assert samples.HOSTILE in outline.text() and len(outline.all("script")) == 2
    assert page.index("guard shift") < page.index("ε ≥")
    assert len(re.findall("<svg", page)) == 4
    assert all(a.headline.claim in outline.text() for a in audits)
    assert "for replacing one record" in words_of(page, "overview")
    without = Outline(compare_page(audits[:1], names[:1]))
    assert [attrs["id"] for attrs in without.all("section")] == ["overview", "bounds", "claims", "words"]
    star = compare_page(audits, names, [0.95, 0.9, 0.85], method="epsilon-star-parametric")
    assert "epsilon-star-parametric" in star


def test_compare_page_refuses_bad_input() -> None:
    audit = samples.bare()
    for arguments, message in (
        (([], []), "at least one Audit"),
        (([audit], []), "names has 0 entries for 1 audits"),
        (([audit], ["a"], [0.1, 0.2]), "utilities has 2 entries"),
        (([audit], ["a"], [math.nan]), r"utilities\[0\] is nan"),
    ):
        with pytest.raises(InputError, match=message):
            compare_page(*arguments)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="it has lower-bound"):
        compare_page([audit], ["a"], method="nothing")
    with pytest.raises(InputError, match="at most 6"):
        compare_page([audit] * 7, list("abcdefg"), categories=list("abcdefg"))
