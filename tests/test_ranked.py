"""The ranked walk: order, ties, the allowance for δ, tightness."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from dosimeter import InputError, OneRun, Scores, Validity, fair_coins
from dosimeter.estimators import ranked as module
from dosimeter.estimators import walk
from dosimeter.estimators.lower_bound import lower_bound
from dosimeter.estimators.ranked import Game, drawable, largest_provable, logit_bound, ranked


def normal(n: int, mu: float, seed: int) -> Scores:
    rng = np.random.default_rng(seed)
    return Scores(rng.normal(mu, 1, n), rng.normal(0, 1, n))


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.integers(0, 6), min_size=1, max_size=30),
    st.lists(st.integers(0, 6), min_size=1, max_size=30),
    st.integers(0, 9),
)
def test_members_among_top_with_ties(members: list[int], nonmembers: list[int], seed: int) -> None:
    game = Game(np.sort(np.array(members, float)), np.sort(np.array(nonmembers, float)), 1.0, True)
    cuts = np.arange(game.records + 1)
    found = module._members_among_top(game, cuts, np.random.default_rng(seed))
    pooled = np.concatenate([members, nonmembers])
    label = np.arange(pooled.size) < len(members)
    for cut, count in zip(cuts, found, strict=True):
        edge = np.sort(pooled)[::-1][cut - 1] if cut else np.inf
        sure = int(np.sum(label & (pooled > edge)))
        tied_members, tied = int(np.sum(label & (pooled == edge))), int(np.sum(pooled == edge))
        inside = cut - int(np.sum(pooled > edge)) if cut else 0
        assert sure + max(0, inside - (tied - tied_members)) <= count <= sure + min(inside, tied_members)
    assert np.all(np.isin(np.diff(found), [0, 1]))  # one consistent order, record by record


def test_members_among_top_without_ties_is_a_sort() -> None:
    scores = normal(300, 1.0, 0)
    game = Game(scores.sorted_members, scores.sorted_nonmembers, 1.0, True)
    pooled = np.concatenate([game.members, game.nonmembers])
    label = (np.arange(600) < 300)[np.argsort(-pooled)]
    cuts = np.arange(601)
    expected = np.concatenate([[0], np.cumsum(label)])
    assert np.array_equal(module._members_among_top(game, cuts, np.random.default_rng(0)), expected)


def test_ties_are_broken_at_random_not_by_input_order() -> None:
    tied = Scores(np.zeros(200), np.zeros(200))
    assert np.mean([ranked(tied, seed=s).low > 0 for s in range(200)]) < 0.12


@given(st.integers(1, 400), st.integers(1, 400))
@settings(max_examples=60, deadline=None)
def test_drawable_serves_fair_coins(members: int, nonmembers: int) -> None:
    records, served = drawable(members, nonmembers)
    drawn = np.arange(records + 1)
    possible = (drawn <= members) & (records - drawn <= nonmembers)
    assert served == pytest.approx(stats.binom.pmf(drawn[possible], records, 0.5).sum(), abs=1e-9)
    assert served >= 0.95


@pytest.mark.parametrize("independent", [True, False])
@pytest.mark.parametrize(("records", "delta"), [(1000, 0.0), (1000, 1e-5), (2000, 0.01), (10**6, 1e-5), (10**9, 1e-6)])
def test_allowance_is_paid_for(records: int, delta: float, independent: bool) -> None:
    epsilon = np.array([0.0, 1.0, 4.0])
    allowed, cost = module._Level(records, delta, 0.05, independent).allowances(epsilon)
    mean = records * delta / (1 + np.exp(epsilon))
    rate = delta / (1 + np.exp(epsilon))
    expected = stats.binom.sf(allowed, records, rate) if independent else mean / (allowed + 1)
    assert np.allclose(cost, expected, rtol=1e-6, atol=1e-15)
    assert np.all(cost <= 0.025 + 1e-12)
    fewer = np.maximum(allowed - 1, 0)
    before = stats.binom.sf(fewer, records, rate) if independent else mean / (fewer + 1)
    assert np.all((allowed == 0) | (before > 0.025))  # the least allowance that does it


def test_bound_is_the_closed_form_at_the_level_of_its_band() -> None:
    scores = normal(1000, 1.0, 4)
    found = ranked(scores, order="two-sided")
    d = found.details
    level = d["local_level"]
    by_hand = special.logit(special.betaincinv(d["correct"], d["guesses"] - d["correct"] + 1, level))
    assert found.low == pytest.approx(by_hand, rel=1e-12)
    edges = np.array(walk.BAND_EDGES)
    band = int(np.searchsorted(edges, found.low, "right")) - 1
    served = drawable(1000, 1000)[1]
    assert level == walk.local_levels(drawable(1000, 1000)[0], np.full(edges.size, 0.05 * served))[band]


def test_logit_bound_at_the_ends() -> None:
    value = logit_bound(np.array([10, 10, 10**9]), np.array([0, 10, 10**9]), 1e-3)
    assert value[0] == -np.inf
    assert value[1] == pytest.approx(-np.log(1e-3 ** (-1 / 10) - 1))
    assert value[2] == pytest.approx(np.log(10**9 / -np.log(1e-3)), rel=1e-6)


def test_tightness_where_the_issue_asks_for_it() -> None:
    """n = 1000+1000, μ = 1, δ = 1e-5: the invalid scan of Clopper–Pearson averages 1.84, hull-Bonferroni about 1.35."""
    bounds = [lower_bound(normal(1000, 1.0, 100 + s), delta=1e-5, seed=s).low for s in range(150)]
    assert np.mean(bounds) > 1.75


def test_robust_where_only_one_side_leaks() -> None:
    """Hard records, members or not, have very low scores: an order by distance from the median starts with noise."""
    bounds = []
    for s in range(30):
        rng = np.random.default_rng(s)
        m, n = rng.normal(1, 1, 1000), rng.normal(0, 1, 1000)
        m[:300], n[:300] = -rng.exponential(10, 300), -rng.exponential(10, 300)
        bounds.append(lower_bound(Scores(m, n), seed=s).low)
    assert np.mean(bounds) > 1.2


def test_robust_where_only_the_other_side_leaks() -> None:
    """An over-fitted classifier: no member has a high loss, and 4 % of the non-members do."""
    bounds = []
    for s in range(30):
        rng = np.random.default_rng(s)
        members, nonmembers = rng.normal(0, 1, 1000), rng.normal(0, 1, 1000)
        nonmembers[:40] -= 6
        bounds.append(lower_bound(Scores(members, nonmembers), seed=s).low)
    assert np.mean(bounds) > 1.4


def test_large_delta_budget_does_not_collapse() -> None:
    """m·δ = 10, where a term m·δ in the level would leave nothing to prove with."""
    bits = fair_coins(1_000_000, 1)
    scores = np.random.default_rng(0).normal(bits, 1.0)
    assert ranked(OneRun(scores, bits, mask_seed=1), delta=1e-5).low > 2.8
    assert ranked(Scores(scores[bits], scores[~bits]), delta=1e-5).low > 3.0


def test_perfect_attack_reaches_what_is_provable() -> None:
    perfect = Scores(np.arange(1000) + 1000.0, np.arange(1000.0))
    found = ranked(perfect, delta=1e-5)
    assert found.low == pytest.approx(found.details["largest_provable"])
    assert 5.5 < found.low < 6.5
    assert largest_provable(100, 0.0, 0.05, independent=True) < largest_provable(1000, 0.0, 0.05, independent=True)


def test_smallest_evidence() -> None:
    assert ranked(Scores([1.0], [0.0])).low == 0
    assert ranked(OneRun([1.0, 0.0], [1, 0])).low == 0


def test_labels() -> None:
    bits = fair_coins(200, 3)
    run = OneRun(np.where(bits, 1.0, 0.0), bits, mask_seed=3)
    assert ranked(run).validity is Validity.FINITE_SAMPLE
    assert ranked(normal(50, 1, 0)).validity is Validity.INDEPENDENT_RUNS
    assert "ε" in str(ranked(run))
    half = OneRun(np.arange(100.0), np.arange(100) < 50)
    assert any("half" in w for w in ranked(half).warnings)


def test_unequal_pools_take_the_better_way() -> None:
    rng = np.random.default_rng(0)
    scores = Scores(rng.normal(2, 1, 500), rng.normal(0, 1, 100_000))
    found = lower_bound(scores, delta=1e-5)
    assert set(found.details["ways"]) == {"ranked", "uniform"}
    assert found.low == max(found.details["ways"].values())
    assert found.method in ("ranked", "uniform")
    assert found.confidence == 0.95


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"order": "sideways"}, "order"),
        ({"delta": 1.0}, "delta"),
        ({"delta": -0.1}, "delta"),
        ({"confidence": 1.0}, "confidence"),
        ({"seed": -1}, "seed"),
        ({"seed": 1.5}, "seed"),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, object], named: str) -> None:
    with pytest.raises(InputError, match=named):
        ranked(normal(20, 1, 0), **arguments)


def test_bad_evidence_is_named() -> None:
    with pytest.raises(InputError, match="evidence"):
        ranked([1.0, 2.0])
    with pytest.raises(InputError, match="evidence"):
        lower_bound("scores.npz")
