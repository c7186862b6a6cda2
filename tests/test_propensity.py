"""A bound from unequal chances: exact tails, the slope of the log-odds, the level, and what bad input gets."""

import dataclasses
import itertools
import json
import runpy
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

import dosimeter as dm
from dosimeter import InputError, PropensityRun, Validity, propensity_bound
from dosimeter.estimators.propensity import STEP, GuessTable, bound_of_table
from dosimeter.estimators.propensity_run import CUT, Grouped, reliability, slope_interval, tail


def by_convolution(weight, chance, number):
    """The law of a weighted sum of coins, one coin after the other."""
    law = np.ones(1)
    for w, q, n in zip(weight, chance, number, strict=True):
        one = np.zeros(w + 1)
        one[0], one[w] = 1 - q, q
        for _ in range(n):
            law = np.convolve(law, one)
    return law


groups = st.lists(
    st.tuples(st.integers(1, 8), st.one_of(st.floats(0.0, 1.0), st.just(0.5)), st.integers(1, 30)),
    min_size=1,
    max_size=6,
)


@given(groups, st.floats(0, 1))
@settings(max_examples=60, deadline=None)
def test_the_tail_is_that_of_the_convolution_and_never_below_it(found, place):
    weight, chance, number = (np.array(column) for column in zip(*found, strict=True))
    law = by_convolution(weight, chance, number)
    least = int(place * law.size)
    exact = law[least:].sum()
    assert exact - 1e-12 <= tail(Grouped(weight, chance, number), least) <= exact + CUT + 1e-12


def test_the_tail_of_a_long_sum_in_a_window():
    coins = Grouped(np.array([1, 3]), np.array([0.3, 0.8]), np.array([40_000, 20_000]))
    one, three = (stats.binom(40_000, 0.3), stats.binom(20_000, 0.8))
    k = np.arange(15_000, 17_001)
    for least in (59_500, 60_000, 60_800):
        exact = float((three.pmf(k) * one.sf(least - 3 * k - 1)).sum())
        assert tail(coins, least) == pytest.approx(exact, rel=1e-6, abs=1e-11)
    assert tail(coins, 100_001) == 0.0 and tail(coins, 0) == 1.0


def test_fair_coins_and_equal_weights_give_the_binomial_bound():
    """A second route: 60 guesses of one size, 48 right, four sets of weights at a quarter of the level each."""
    inside = np.arange(60) < 48
    found = propensity_bound(PropensityRun(np.ones(60), inside, np.full(60, 0.5)))
    chance = stats.beta.ppf(0.05 / 4, 48, 13)
    assert found.low == pytest.approx(special.logit(chance), abs=1e-4)
    assert found.details["guesses"] == 60 and found.details["correct"] == 48
    assert found.validity is Validity.CONDITIONAL and not found.validity.is_bound


def test_every_guess_counts_with_its_own_chance():
    """Twelve guesses, half of them likely anyway: the largest rejected ε by enumeration of all labels."""
    odds = np.repeat([0.0, 1.0], 6)
    run = PropensityRun(np.ones(12), np.ones(12, bool), special.expit(odds))
    found = propensity_bound(run, confidence=0.5)

    def all_right(epsilon):
        return float(np.prod(special.expit(odds + epsilon)))

    assert all_right(found.low) <= 0.125 < all_right(found.low + 1e-3)
    out = PropensityRun(-np.ones(12), np.zeros(12, bool), special.expit(-odds))
    assert propensity_bound(out, confidence=0.5).low == found.low  # "out" guesses mirror "in" guesses


def test_a_likelier_label_proves_less_and_slack_is_subtracted():
    rng = np.random.default_rng(0)
    inside = rng.random(800) < 0.5
    scores = rng.normal(2.0 * inside - 1, 1)
    plain = PropensityRun(scores, inside, np.full(800, 0.5))
    bounds = [propensity_bound(plain, delta=delta).low for delta in (0.0, 1e-4)]
    assert bounds[0] > bounds[1] > 0
    less = propensity_bound(dataclasses.replace(plain, slack=0.4)).low
    assert less == pytest.approx(bounds[0] - 0.4, abs=1e-9)
    wide = PropensityRun(scores, inside, np.full(800, 0.5), limits=(np.full(800, 0.4), np.full(800, 0.6)), spent=0.001)
    assert bounds[0] - special.logit(0.6) - 2 * STEP < propensity_bound(wide).low < bounds[0] - special.logit(0.6) / 2


def misses(count, seed, *, off=0.0, leak=1.0):
    """Bounds above the truth among some audits of 301 records with propensities of their own."""
    rng = np.random.default_rng(seed)
    above = 0
    for _ in range(count):
        chance = special.expit(rng.normal(0, 1.2, 301))
        inside = rng.random(301) < chance
        scores = np.where((rng.random(301) < special.expit(leak)) == inside, 1.0, -1.0) if leak else np.ones(301)
        stated = np.clip(chance - off, 0.01, 0.99)
        above += propensity_bound(PropensityRun(scores, inside, stated)).low > leak
    return above


def test_the_level_is_kept_where_propensities_are_right_and_not_where_they_are_off():
    """300 audits at 5 %: 29 misses or more have probability 0.0006 at exactly 5 %; off by 0.1 nearly all miss."""
    assert misses(150, 1, leak=1.0) + misses(150, 2, leak=0.0) <= 28
    assert misses(20, 3, off=0.1, leak=0.0) >= 10


def test_a_public_coin_needs_its_delta():
    """With probability δ every label is published; at most 8 of 60 audits at δ = 0.03 may say ε > 0 (P < 1e-3)."""
    rng = np.random.default_rng(5)
    above = 0
    for _ in range(60):
        inside = rng.random(201) < 0.7
        scores = np.where(inside, 9.0, -9.0) if rng.random() < 0.03 else rng.normal(size=201)
        above += propensity_bound(PropensityRun(scores, inside, np.full(201, 0.7)), delta=0.03).low > 0
    assert above <= 8


# --- pairs -------------------------------------------------------------------------------------------------


def test_the_slope_interval_by_enumeration():
    lead, first = np.full(10, 1.0), np.arange(10) < 8
    low, point, high = slope_interval(lead, first, 0.1)
    assert point == pytest.approx(special.logit(0.8), abs=0.01)
    ends = special.logit(stats.beta.ppf([0.05, 0.95], [8, 9], [3, 2]))
    assert low <= ends[0] and high >= ends[1]
    assert low == pytest.approx(ends[0], abs=0.02) and high == pytest.approx(ends[1], abs=0.02)


@pytest.mark.parametrize("first", [np.ones(4, bool), np.zeros(4, bool)])
def test_slopes_without_an_end(first):
    low, point, high = slope_interval(np.array([0.1, 0.5, 1.0, 2.0]), first, 0.1)
    assert low <= point <= high
    assert slope_interval(np.zeros(4), first, 0.1) == (1.0, 1.0, 1.0)


def test_the_slope_is_inside_its_interval_as_often_as_it_says():
    rng = np.random.default_rng(2)
    missed = 0
    for _ in range(50):
        lead = np.abs(rng.normal(0, 1.5, 150))
        low, _, high = slope_interval(lead, rng.random(150) < special.expit(0.7 * lead), 0.1)
        missed += not low <= 0.7 <= high
    assert missed <= 13  # P < 1e-3 at 10 %


def test_pairs_do_not_depend_on_who_is_listed_first():
    """The order within a pair comes from the log-odds or the scores, never from the label."""
    rng = np.random.default_rng(3)
    scores, odds = rng.normal(size=(2, 40)), rng.normal(size=(2, 40))
    odds[1, :5] = odds[0, :5]
    run = PropensityRun.from_pairs((scores[0], scores[1]), (odds[0], odds[1]))
    turned = PropensityRun.from_pairs((scores[1], scores[0]), (odds[1], odds[0]))
    assert np.array_equal(run.scores, turned.scores) and np.array_equal(run.included, ~turned.included)
    assert run.neighbours == "replace" and (run.propensities[:5] == 0.5).all()
    assert run.spent > 0 and (run.limits[0] <= run.propensities).all()


def test_pairs_that_differ_without_a_leak_prove_nothing_and_a_leak_shows():
    rng = np.random.default_rng(4)
    odds = rng.normal(1, 1, 600), rng.normal(0, 1, 600)
    noise = rng.normal(size=600), rng.normal(size=600)
    silent = PropensityRun.from_pairs((odds[0] + noise[0], odds[1] + noise[1]), odds)
    assert propensity_bound(silent).low == 0.0
    leak = PropensityRun.from_pairs((odds[0] + noise[0] + 3, odds[1] + noise[1]), odds)
    assert propensity_bound(leak).low > 1.0
    assert 0 < propensity_bound(leak.ordered()).low < propensity_bound(leak).low


# --- the check of the propensities -------------------------------------------------------------------------


def test_reliability_finds_what_is_off_and_its_limits_are_isotonic():
    rng = np.random.default_rng(6)
    chance = rng.uniform(0.1, 0.9, 4000)
    inside = rng.random(4000) < chance
    right = reliability(PropensityRun(np.zeros(4000), inside, chance))
    off = reliability(PropensityRun(np.zeros(4000), inside, np.clip(chance + 0.1, 0, 0.99)))
    assert right.calibrated and not off.calibrated
    assert sum(row.records for row in right.bins) == 4000 and len(right.bins) == 10
    for before, after in itertools.pairwise(right.bins):
        assert before.low <= after.low and before.high <= after.high
    assert np.bincount(right.place).tolist() == [row.records for row in right.bins]


def test_limits_of_the_order_alone_hold_for_a_steeper_truth():
    rng = np.random.default_rng(7)
    stated = rng.uniform(0.3, 0.7, 5000)
    truth = special.expit(3 * special.logit(stated))
    run = PropensityRun(np.zeros(5000), rng.random(5000) < truth, stated).ordered()
    assert (run.limits[0] <= truth).mean() > 0.99 and (truth <= run.limits[1]).mean() > 0.99


# --- counts, input -----------------------------------------------------------------------------------------


def test_the_bound_follows_from_its_table_and_the_order_of_records_does_not_matter():
    rng = np.random.default_rng(8)
    chance = rng.uniform(0.2, 0.8, 500)
    inside = rng.random(500) < chance
    run = PropensityRun(np.round(rng.normal(2 * inside - 1.0, 1), 1), inside, chance)
    found = propensity_bound(run, delta=1e-4)
    table = GuessTable(*(np.array(column) for column in found.details["table"]))
    assert bound_of_table(table, records=500, delta=1e-4, level=0.05).epsilon == pytest.approx(found.low, abs=1e-12)
    order = rng.permutation(500)
    shuffled = PropensityRun(run.scores[order], inside[order], chance[order])
    assert propensity_bound(shuffled, delta=1e-4).low == pytest.approx(found.low, abs=1e-12)
    assert propensity_bound(PropensityRun(np.zeros(5), inside[:5], chance[:5])).low == 0.0


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: PropensityRun([1.0], [1], [0.0]), "propensities must be 1 numbers between 0 and 1"),
        (lambda: PropensityRun([1.0, 2.0], [1, 0], [0.5]), "propensities must be 2 numbers"),
        (lambda: PropensityRun([1.0], [1, 0], [0.5]), "scores has 1 records and included 2"),
        (lambda: PropensityRun([1.0], [1], [0.5], limits=([0.6], [0.7]), spent=0.1), "limits must enclose"),
        (lambda: PropensityRun([1.0], [1], [0.5], limits=([-1.0], [0.7])), "limits must be 1 numbers from 0 to 1"),
        (lambda: PropensityRun([1.0], [1], [0.5], slack=-1), "slack must"),
        (lambda: PropensityRun.from_pairs(([1.0], [1.0, 2.0]), ([1.0], [1.0])), "hold 1, 2, 1, 1 records"),
        (lambda: propensity_bound(dm.OneRun([1.0, 0.0], [1, 0])), "evidence must be a PropensityRun"),
        (
            lambda: propensity_bound(PropensityRun([1.0], [1], [0.5], ([0.4], [0.6]), 0.2)),
            r"spend 0\.2 of the level",
        ),
        (lambda: reliability(PropensityRun([1.0], [1], [0.5]), bins=0), "bins must"),
    ],
)
def test_bad_input_is_one_sentence(make, match):
    with pytest.raises(InputError, match=match):
        make()


def test_the_numbers_of_the_page_are_those_of_the_bench():
    root = Path(__file__).parent.parent
    bench = runpy.run_path(str(root / "bench" / "propensity.py"))
    found = json.loads((root / "bench" / "propensity.json").read_text(encoding="utf-8"))
    page = (root / "docs" / "honest-bounds.md").read_text(encoding="utf-8")
    assert f"{bench['START']}\n{bench['tables'](found)}\n{bench['END']}" in page
    assert max(row["right"] for row in found["level"]) <= 0.09  # P[Bin(200, 0.05) > 18] < 1 %
